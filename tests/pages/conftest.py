"""The browser in which pages are opened."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium, or the one that `playwright install chromium` brought."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        candidates = (*map(shutil.which, CHROMIUMS), playwright.chromium.executable_path)
        program = next((path for path in candidates if path and Path(path).exists()), None)
        if program is None:
            pytest.skip("no Chromium is installed: `playwright install chromium` brings one")
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()
