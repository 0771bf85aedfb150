"""Lives many lives, one a seed, and says which broke a promise.

python -m tests.life --seeds 0:5000              that many; progress, what was
                                                 exercised, failing seeds
python -m tests.life --owners 3 --seeds 0:5000   lives of three processes that
                                                 run side by side
python -m tests.life --seed 17 -v                one, with its story
python -m tests.life --seeds 0:500 --twice       each twice: the same seed is
                                                 the same trace (else a sample)
python -m tests.life --seeds 0:500 --hashes      prints each seed's trace hash

Exit code 1 where a seed failed.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import attrs

from tests.life import living, owning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

WIDTH: Final = 80
SHOWN: Final = 10
"""So many failing seeds are shown; the rest are counted."""
EVERY_S: Final = 10.0
SAMPLE: Final = 50
"""Every so many seeds one is lived twice."""
CHUNK: Final = 5


@attrs.frozen
class Done:
    """What is kept of a life. `again`: the hash of a second one of the same seed, where there was one."""

    seed: int
    hash: str
    again: str | None
    problems: tuple[str, ...]
    counts: Counter[str]

    @property
    def failed(self) -> bool:
        """Whether it broke a promise."""
        return bool(self.problems) or self.again not in (None, self.hash)


def lived(seed: int, owners: int) -> living.Lived:
    """One life."""
    return living.live(seed) if owners == 1 else owning.live(seed, owners)


def summed(seed: int, *, owners: int, every: int) -> Done:
    """One life, and what is kept of it; one seed in `every` is lived twice."""
    life = lived(seed, owners)
    again = lived(seed, owners).hash if seed % every == 0 else None
    return Done(seed, life.hash, again, life.problems, life.world.trace.counts)


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.life", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="one life")
    which.add_argument("--seeds", help="FROM:TO, without TO")
    parser.add_argument("--owners", type=int, default=1, help="processes that live side by side (1)")
    parser.add_argument("--jobs", type=int, default=1, help="lives that are lived at a time (1)")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the story")
    parser.add_argument("--twice", action="store_true", help="live each twice and compare the hashes")
    parser.add_argument("--hashes", action="store_true", help="print the hash of each")
    parser.add_argument("--stop", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    return parser.parse_args(arguments)


def replay(seed: int, owners: int) -> str:
    """The command that lives one life again."""
    return f"python -m tests.life {f'--owners {owners} ' if owners > 1 else ''}--seed {seed} -v"


def one(seed: int, owners: int, *, verbose: bool) -> int:
    """Live one life and tell it; the exit code."""
    life = lived(seed, owners)
    if verbose:
        print("\n".join(life.world.trace.lines))
    for problem in life.problems:
        print(f"BROKEN {problem}")
    print(f"seed {seed}: trace {life.hash}, {len(life.world.trace.lines)} lines, {len(life.problems)} problems")
    return 1 if life.problems else 0


@contextmanager
def working(jobs: int) -> Iterator[Callable[[Callable[[int], Done], Iterable[int]], Iterable[Done]]]:
    """Does one thing for many seeds, in their order: here, or in so many processes."""
    if jobs == 1:
        yield map
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield partial(pool.imap, chunksize=CHUNK)


def many(seeds: range, options: argparse.Namespace) -> int:
    """Live many and count; the exit code."""
    counts: Counter[str] = Counter()
    failed: list[int] = []
    hashes: set[str] = set()
    begun = told = time.monotonic()
    done = twice = 0
    live = partial(summed, owners=options.owners, every=1 if options.twice else SAMPLE)
    with working(options.jobs) as each:
        for life in each(live, seeds):
            done += 1
            twice += life.again is not None
            counts += life.counts
            hashes.add(life.hash)
            if options.hashes:
                print(life.seed, life.hash, flush=True)
            if life.failed:
                failed.append(life.seed)
                if len(failed) <= SHOWN:
                    print(broke(life, options.owners), flush=True)
            now = time.monotonic()
            if now - told > EVERY_S:
                told = now
                print(f"{done}/{len(seeds)} seeds, {rate(done, now - begun)}, {len(failed)} failed", file=sys.stderr)
            if (options.stop and failed) or (options.seconds and now - begun > options.seconds):
                break
    seconds = time.monotonic() - begun
    told_counts(counts)
    print(f"{done} seeds, {rate(done, seconds)}, {seconds:.0f} s, {options.jobs} at a time")
    print(f"{len(hashes)} distinct traces; {twice} lived twice, {len(failed)} failed")
    for line in wrapped(["failed:", *map(str, failed[:100])] if failed else []):
        print(line)
    return 1 if failed else 0


def rate(done: int, seconds: float) -> str:
    """How fast it goes."""
    return f"{done / max(seconds, 1e-6):.1f} seeds/s"


def broke(life: Done, owners: int) -> str:
    """What a life broke, and how it is lived again."""
    lines = [f"\nseed {life.seed} BROKE: {replay(life.seed, owners)}"]
    for problem in life.problems[:6]:
        lines += [f"  {problem[at : at + WIDTH - 2]}" for at in range(0, min(len(problem), 600), WIDTH - 2)]
    if life.again not in (None, life.hash):
        lines.append(f"  55: two lives of seed {life.seed}: {life.hash} and {life.again}")
    return "\n".join(lines)


def wrapped(words: list[str]) -> Iterator[str]:
    """Words in lines."""
    left = iter(words)
    while row := list(islice(left, 12)):
        yield " ".join(row)


def told_counts(counts: Counter[str]) -> None:
    """What was exercised, in columns."""
    cells = [f"{name} {number}" for name, number in sorted(counts.items())]
    width = max(map(len, cells), default=0) + 2
    across = max(1, WIDTH // width)
    for start in range(0, len(cells), across):
        print("".join(cell.ljust(width) for cell in cells[start : start + across]).rstrip())


def main(arguments: list[str]) -> int:
    """Do what the command line says; the exit code."""
    warnings.simplefilter("error")
    gc.freeze()  # what is there by now stays: it need not be looked at behind each life
    options = parsed(arguments)
    if options.seed is not None:
        return one(options.seed, options.owners, verbose=options.verbose)
    first, _, last = options.seeds.partition(":")
    return many(range(int(first), int(last)), options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
