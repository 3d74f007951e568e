"""The documentation builds, its links lead somewhere, and its reference is whole."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fitroom
import fitroom.data

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_it_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", DOCS, tmp_path / "html"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert "From crash to trained" in (tmp_path / "html" / "index.html").read_text()


def test_the_reference_of_commands_is_what_the_commands_say():
    finished = subprocess.run([sys.executable, DOCS / "commands.py", "--check"], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("package", [fitroom, fitroom.data])
def test_the_reference_of_the_library_has_every_public_name(package):
    public = {name for name, value in vars(package).items() if not name.startswith("_") and not inspect.ismodule(value)}
    text = (DOCS / "reference" / "library.md").read_text()
    assert public <= set(re.findall(rf"auto\w+:: {package.__name__}\.(\w+)\b(?!\.)", text))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_to_files_lead_to_files(page):
    links = re.findall(r"\]\(([^)#:]+)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []
