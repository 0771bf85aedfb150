"""For all tests: how Hypothesis searches, and how long each suite took."""

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# Nothing here measures time: a slow machine must not fail a test, and CI finds the same examples every time.
settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


class SuiteSeconds:
    """Adds up the seconds of each suite: a folder of tests/, or a file that stands there alone."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of one test."""
        self._seconds[suite_of(report.nodeid)] += report.duration  # type: ignore[assignment]  # Counter adds floats too

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the suites, the longest first."""
        terminalreporter.section("seconds per suite")
        for suite, seconds in self._seconds.most_common():
            terminalreporter.write_line(f"{suite} {seconds:.1f} s")


def suite_of(nodeid: str) -> str:
    """The suite of a test: `tests/actors/test_turn.py::test_x` is in `actors`."""
    parts = nodeid.partition("::")[0].split("/")
    return parts[1].removesuffix(".py") if len(parts) > 1 else parts[0].removesuffix(".py")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the Hypothesis profile (`ci` where CI is set) and watch the time."""
    settings.load_profile("ci" if os.environ.get("CI") else "dev")
    config.pluginmanager.register(SuiteSeconds(), "suite-seconds")
