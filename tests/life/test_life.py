"""A short form of the run over lives; the long one is `python -m tests.life --seeds 0:5000`."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.life import owning
from tests.life.__main__ import lived
from tests.life.events import FAITHFUL, FITFUL
from tests.life.living import live, over_a_file
from tests.life.mutants import MUTANTS, SHARED
from tests.processes.mutants import MUTANTS as PROCESSES

SEEDS: Final = range(20)
OWNERS: Final = 3
ROOT: Final = Path(__file__).resolve().parents[2]
IN_CI_S: Final = {1: 30, OWNERS: 80}
HERE_S: Final = 4
AGAIN: Final = 8
OWNED_FILE: Final = 17
"""A seed whose owners live over a file."""
ASKED_EARLY: Final = 1_008_706
"""A seed whose owners heal, and one of them asks for approval of a call without a deadline while a lease still runs."""
NUMBER_AGAIN: Final = 1_008_711
"""A seed whose owners abort a compaction beside no turn; a turn with its number begins behind that."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_life_keeps_its_invariants(seed: int) -> None:
    """A generated life under random events, faults and crashes comes to rest, and breaks no invariant of the list."""
    life = live(seed)
    told = "\n".join(life.problems)
    assert not life.problems, f"{told}\nreplay: python -m tests.life --seed {seed} -v"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_life_of_several_owners_keeps_its_invariants(seed: int) -> None:
    """Processes side by side over one store, which stand still and die, break no invariant of the list, and rest."""
    life = owning.live(seed, OWNERS)
    told = "\n".join(life.problems)
    assert not life.problems, f"{told}\nreplay: python -m tests.life --owners {OWNERS} --seed {seed} -v"


def test_who_decides_as_all_heals_leaves_no_request() -> None:
    """What is asked in the moment of healing is decided, too: an inbox hands each request out once; some never expire.

    Those who decide until then may leave a request; those who come at healing stay, and may not.
    """
    life = owning.live(ASKED_EARLY, OWNERS)
    assert not life.problems, "\n".join(life.problems)
    assert "ignore" in FITFUL
    assert "ignore" not in FAITHFUL


def test_an_abort_of_a_compaction_is_none_of_the_turn_that_has_its_number_next() -> None:
    """A turn that was for a compaction only gives its number back: calls of the next to have it may begin."""
    life = owning.live(NUMBER_AGAIN, OWNERS)
    assert not life.problems, "\n".join(life.problems)


@pytest.mark.parametrize("owners", [1, OWNERS])
def test_many_lives_keep_their_invariants(owners: int, capsys: pytest.CaptureFixture[str]) -> None:
    """As many more seeds as there is time for, on all processors, each checked as those above; a sample lived twice."""
    seconds = IN_CI_S[owners] if "CI" in os.environ else HERE_S
    done = subprocess.run(
        [sys.executable, "-m", "tests.life", "--owners", str(owners), "--seeds", "1000:100000", "--jobs", "2",
         "--seconds", str(seconds)],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    with capsys.disabled():
        print(f"\nlives of {owners} at a time:", *[line for line in done.stdout.splitlines()[-3:] if "seeds" in line])
    assert done.returncode == 0, done.stdout[-6_000:]
    assert " 0 failed" in done.stdout


def test_the_places_of_the_mutants_are_there() -> None:
    """Each defect that is put into the product on purpose, to see whether lives see it, still has its place."""
    gone = [f"{one.breaks}: {one.wrong()}" for one in (*MUTANTS, *SHARED, *PROCESSES) if one.wrong()]
    assert not gone, gone


def test_lives_are_lived_on_both_stores() -> None:
    """Some of the seeds above live in a file."""
    assert {over_a_file(seed) for seed in (*SEEDS, AGAIN, OWNED_FILE)} == {False, True}
    assert over_a_file(OWNED_FILE)


@pytest.mark.parametrize("seed", [AGAIN, OWNED_FILE])
@pytest.mark.parametrize("owners", [1, OWNERS])
def test_one_seed_is_one_trace(seed: int, owners: int) -> None:
    """The same seed gives the same trace, in this process and in another with other hashes; other seeds others."""
    live = partial(lived, owners=owners)
    here = live(seed).hash
    assert live(seed).hash == here
    other = subprocess.run(
        [sys.executable, "-m", "tests.life", "--owners", str(owners), "--seed", str(seed)],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "77"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"trace {here}," in other.stdout
    assert live(seed + 1).hash != here
