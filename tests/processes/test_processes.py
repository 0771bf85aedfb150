"""A short form of the run over real processes; an hour is `python -m tests.processes --seconds 3600 --slices 60`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 12


@pytest.mark.slow  # no seed fixes what the machine runs when: what it finds is looked into, and stops no landing
def test_processes_that_are_killed_and_stopped_break_no_promise() -> None:
    """Owners over one file, killed and stopped at random, lose no message and start no `once` call twice (REC-3)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.processes", "--seconds", str(SECONDS), "--seed", "ci"],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 violations" in done.stdout
    assert " kills," in done.stdout
