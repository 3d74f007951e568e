"""A plugin of pytest: `--cpu-seconds 15` prints which tests and files took most CPU time, child processes counted.

Unlike `--durations` it says the same on a busy machine as on a quiet one, and sees what waits beside others.
"""

import contextlib
from collections import Counter

import psutil
import pytest

COLLECTING = "importing and collecting"


def pytest_addoption(parser):
    parser.addoption(
        "--cpu-seconds",
        type=int,
        metavar="N",
        help="print the N files that took most CPU time, child processes counted (0: all)",
    )


def pytest_configure(config):
    if config.getoption("--cpu-seconds") is not None:
        config.pluginmanager.register(CpuSeconds(), "cpu-seconds-of-files")


class CpuSeconds:
    """Measures in the process that runs the tests, adds up and prints in the one that reports."""

    def __init__(self):
        self._last = 0.0
        self._of_files = Counter()
        self._of_tests = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self):
        """What came before the first test is no test's."""
        self._before = self._lap() if self._last == 0.0 else 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        report = yield
        report.cpu_seconds = self._lap() if report.when == "teardown" else 0.0  # looking at all processes takes a while
        report.cpu_seconds_before, self._before = self._before, 0.0
        return report

    def pytest_runtest_logreport(self, report):
        self._of_files[report.nodeid.split("::")[0]] += report.cpu_seconds
        self._of_tests[report.nodeid] += report.cpu_seconds
        self._of_files[COLLECTING] += report.cpu_seconds_before

    def pytest_terminal_summary(self, terminalreporter, config):
        most = config.getoption("--cpu-seconds") or None
        for title, seconds in (("tests", self._of_tests), ("files", self._of_files)):
            terminalreporter.section(f"CPU seconds of {title}, {self._of_files.total():.0f} in all")
            for name, value in seconds.most_common(most):
                terminalreporter.line(f"{value:8.1f} {name}")

    def _lap(self):
        """Seconds since the last time this was asked."""
        now = _seconds(psutil.Process())
        passed, self._last = max(now - self._last, 0.0), max(now, self._last)
        return passed


def _seconds(process):
    """Of a process and its children: those it has waited for, those at work, and those that ended and still wait."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
