"""Lives many lives, one a seed, and says which broke a promise.

python -m tests.life --seeds 0:5000            that many; a progress line, what was exercised, failing seeds
python -m tests.life --seed 17 -v              one, with its story
python -m tests.life --seeds 0:500 --twice     each twice: the same seed is the same trace
python -m tests.life --seeds 0:500 --hashes    prints each seed's trace hash

Exit code 1 where a seed failed.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.life.living import live

if TYPE_CHECKING:
    from tests.life.living import Lived

SHOWN: Final = 10
"""So many failing seeds are shown; the rest are counted."""
EVERY_S: Final = 10.0


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.life", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="one life")
    which.add_argument("--seeds", help="FROM:TO, without TO")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the story")
    parser.add_argument("--twice", action="store_true", help="live each twice and compare the hashes")
    parser.add_argument("--hashes", action="store_true", help="print the hash of each")
    parser.add_argument("--stop", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    return parser.parse_args(arguments)


def one(seed: int, *, verbose: bool) -> int:
    """Live one life and tell it; the exit code."""
    lived = live(seed)
    if verbose:
        print("\n".join(lived.world.trace.lines))
    for problem in lived.problems:
        print(f"BROKEN {problem}")
    print(f"seed {seed}: trace {lived.hash}, {len(lived.world.trace.lines)} lines, {len(lived.problems)} problems")
    return 1 if lived.problems else 0


def many(seeds: range, options: argparse.Namespace) -> int:
    """Live many and count; the exit code."""
    counts: Counter[str] = Counter()
    failed: list[Lived] = []
    hashes: set[str] = set()
    begun = told = time.monotonic()
    done = 0
    for seed in seeds:
        lived = live(seed)
        done += 1
        counts += lived.world.trace.counts
        hashes.add(lived.hash)
        if options.hashes:
            print(seed, lived.hash, flush=True)
        again = live(seed).hash if options.twice else lived.hash
        if lived.problems or again != lived.hash:
            failed.append(lived)
            if len(failed) <= SHOWN:
                print(f"\nseed {seed} BROKE: python -m tests.life --seed {seed} -v")
                print("\n".join(f"  {line[:600]}" for line in lived.problems[:6]), flush=True)
            if again != lived.hash:
                print(f"  55: two lives of seed {seed}: {lived.hash} and {again}")
        now = time.monotonic()
        if now - told > EVERY_S:
            told = now
            rate = done / (now - begun)
            print(f"{done}/{len(seeds)} seeds, {rate:.1f} seeds/s, {len(failed)} failed", file=sys.stderr, flush=True)
        if (options.stop and failed) or (options.seconds and now - begun > options.seconds):
            break
    told_counts(counts)
    rate = done / (time.monotonic() - begun)
    print(f"{done} seeds, {rate:.1f} seeds/s, {len(hashes)} distinct traces, {len(failed)} failed")
    if failed:
        print("failed:", *[lived.seed for lived in failed[:100]])
    return 1 if failed else 0


def told_counts(counts: Counter[str]) -> None:
    """What was exercised, in columns."""
    cells = [f"{name} {number}" for name, number in sorted(counts.items())]
    width = max(map(len, cells), default=0) + 2
    across = max(1, 118 // width)
    for start in range(0, len(cells), across):
        print("".join(cell.ljust(width) for cell in cells[start : start + across]).rstrip())


def main(arguments: list[str]) -> int:
    """Do what the command line says; the exit code."""
    warnings.simplefilter("error")
    options = parsed(arguments)
    if options.seed is not None:
        return one(options.seed, verbose=options.verbose)
    first, _, last = options.seeds.partition(":")
    return many(range(int(first), int(last)), options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
