"""Tests here import no framework, which is why they take seconds."""

import sys

import pytest

FRAMEWORKS = {"jax", "tensorflow", "torch"}


@pytest.fixture(autouse=True)
def no_framework_imported():
    before = FRAMEWORKS & set(sys.modules)
    yield
    imported = FRAMEWORKS & set(sys.modules) - before
    assert not imported, f"{', '.join(imported)} was imported: the test belongs into tests/backends or tests/commands"
