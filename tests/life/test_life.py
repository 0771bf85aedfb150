"""A short form of the run over lives; the long one is `python -m tests.life --seeds 0:5000`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.life.living import SQLITE_EVERY, live

SEEDS: Final = range(20)
ROOT: Final = Path(__file__).resolve().parents[2]
AGAIN: Final = 8


@pytest.mark.parametrize("seed", SEEDS)
def test_a_life_keeps_its_invariants(seed: int) -> None:
    """A generated life under random events, faults and crashes comes to rest, and breaks no invariant of the list."""
    lived = live(seed)
    told = "\n".join(lived.problems)
    assert not lived.problems, f"{told}\nreplay: python -m tests.life --seed {seed} -v"


def test_lives_are_lived_on_both_stores() -> None:
    """Some of the seeds above live in a file."""
    assert any(seed % SQLITE_EVERY == 5 for seed in SEEDS)


def test_one_seed_is_one_trace() -> None:
    """The same seed gives the same trace, in this process and in another with other hashes; other seeds others."""
    here = live(AGAIN).hash
    assert live(AGAIN).hash == here
    other = subprocess.run(
        [sys.executable, "-m", "tests.life", "--seed", str(AGAIN)],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "77"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"trace {here}," in other.stdout
    assert live(AGAIN + 1).hash != here
