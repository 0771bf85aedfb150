"""Searches every world and every mutant, and prints what was found: `python -m tests.model`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from tests.model.protocol import Protocol
from tests.model.search import search
from tests.model.worlds import MUTANTS, WORLDS

if TYPE_CHECKING:
    from tests.model.search import Found


def main() -> int:
    """Print one line for each; exit code 1 where a world is broken or a mutant survives."""
    begun = time.perf_counter()
    failed = 0
    total = 0
    for name, world in WORLDS.items():
        found = search(Protocol(world))
        total += found.states
        failed += bool(found.wrong)
        print(f"{name:<28} {found.states:>7,} states {found.edges:>9,} steps  {found.wrong or 'holds'}")
        _trace(found)
    killed = 0
    for name, mutant in MUTANTS.items():
        found = search(Protocol(WORLDS[mutant.world], mutant.rules))
        hit = bool(found.wrong)
        killed += hit
        print(f"{'killed' if hit else 'ALIVE '} {name}\n         {found.wrong} ({len(found.trace)} steps)")
    seconds = time.perf_counter() - begun
    print(f"{total:,} states; {killed} of {len(MUTANTS)} mutants killed; {seconds:.1f} s")
    return int(failed > 0 or killed < len(MUTANTS))


def _trace(found: Found) -> None:
    for step in found.trace:
        print(f"    {step}")


if __name__ == "__main__":
    sys.exit(main())
