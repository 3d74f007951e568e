"""Processes with a framework in them, which commands are forked from, last as long as the tests."""

import pytest

from ready_process import end_processes


@pytest.fixture(scope="session", autouse=True)
def ready_processes():
    yield
    end_processes()
