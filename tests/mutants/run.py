"""Breaks the core on purpose, one place at a time, and sees that a test fails for each.

python tests/mutants/run.py                 all mutants
python tests/mutants/run.py TOL-4 half      those whose name or file has one of these words in it
python tests/mutants/run.py --part 2/5 ...  the second fifth of them
python tests/mutants/run.py --jobs 1 ...    so many at once; else as many as there are processors
python tests/mutants/run.py --old-map ...   with the map of tests that is there, made of older code: quicker to start,
                                            but a survivor may be a false one

The tests are loaded once. Each mutant is a fork, whose functions are exchanged for broken ones; it runs the tests that
reach the changed lines (`reach.py` makes the map), the nearest and quickest first, the machine last, up to the first
that fails. Exit code 1 where a mutant survives; 2 where one cannot be made, as its place is gone or there twice.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import hypothesis
import pytest

sys.path[0] = str(Path(__file__).parent)

import approvals  # type: ignore[import-not-found]  # noqa: E402 - run as a script, from anywhere
import core  # type: ignore[import-not-found]  # noqa: E402 - likewise
import reach  # type: ignore[import-not-found]  # noqa: E402 - likewise
import values  # type: ignore[import-not-found]  # noqa: E402 - likewise
from place import Mutant, put  # type: ignore[import-not-found]  # noqa: E402 - likewise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MUTANTS: tuple[Mutant, ...] = (*core.MUTANTS, *approvals.MUTANTS, *values.MUTANTS)
SURVIVED, KILLED, UNCHANGED, BROKEN = 0, 1, 3, 70
CPU_S = 120
"""A mutant that works longer than this, in a search of seconds, does not come to an end; that is no pass."""
HANGS_S = 400


class Result(NamedTuple):
    """What became of a mutant; `seconds` until it was known."""

    mutant: Mutant
    code: int
    seconds: float


class Runner:
    """A pytest plugin: instead of running the tests, runs some of them for each mutant, in forks.

    Attributes:
        left: what became of the mutants that were not killed.
    """

    def __init__(self, mutants: Sequence[Mutant], jobs: int, *, old_map: bool) -> None:
        self.mutants = mutants
        self.jobs = jobs
        self.lines, self.seconds = reach.reached(old=old_map)
        self.left: list[Result] = []

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """A failure is enough: Hypothesis need not make it small."""
        quick = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("mutants", hypothesis.settings.get_profile("ci"), phases=quick)
        hypothesis.settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each mutant."""
        for number, result in enumerate(self._results(session.items), 1):
            if result.code != KILLED:
                self.left.append(result)
            said = {KILLED: "killed", SURVIVED: "SURVIVED", UNCHANGED: "CHANGES NOTHING"}.get(result.code, "BROKEN")
            print(f"{number}/{len(self.mutants)} {result.mutant.breaks}: {said}, {result.seconds:.1f} s", flush=True)
        return True

    def _results(self, items: list[pytest.Item]) -> Iterator[Result]:
        waiting = list(reversed(self.mutants))
        running: dict[int, tuple[Mutant, float]] = {}
        while waiting or running:
            while waiting and len(running) < self.jobs:
                mutant = waiting.pop()
                running[self._fork(mutant, items)] = mutant, time.monotonic()
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                mutant, begun = running.pop(pid)
                code = os.waitstatus_to_exitcode(status)
                yield Result(mutant, KILLED if code < 0 else code, time.monotonic() - begun)
                continue
            for pid, (_, begun) in running.items():
                if time.monotonic() - begun > HANGS_S:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def _fork(self, mutant: Mutant, items: list[pytest.Item]) -> int:
        sys.stdout.flush()
        child = os.fork()
        if child:
            return child
        code = BROKEN
        try:
            out = os.open(os.devnull, os.O_WRONLY)
            os.dup2(out, 1)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
            code = try_one(mutant, self.chosen(mutant, items))
        except BaseException:  # noqa: BLE001, ASYNC103 - nothing of a child may go on in here
            traceback.print_exc()
        finally:
            os._exit(code)

    def chosen(self, mutant: Mutant, items: list[pytest.Item]) -> list[pytest.Item]:
        """The tests that reach what a mutant changes, in the order in which they are likely to fail soonest."""
        by_line = self.lines.get(mutant.file, {})
        names = {name for line in mutant.lines() for name in by_line.get(str(line), ())}
        if not names:  # it is read as the module is loaded
            names = {name for found in by_line.values() for name in found}
        near = Path(mutant.file).stem
        names.update(item.nodeid for item in items if item.nodeid not in self.seconds)  # newer than the map
        machines = reach.MACHINES if names and near in MACHINE_RUNS else ()
        found = [item for item in items if item.nodeid in names or item.path.name in machines]
        found.sort(
            key=lambda item: (
                item.path.name in reach.MACHINES,
                self.seconds.get(item.nodeid, 0.0) * (1 if near in item.path.name else 5),
            )
        )
        return found


MACHINE_RUNS = frozenset(
    {
        *("answering", "answers", "approving", "batch", "batching", "bounds", "compacting", "compaction"),
        *("conversation", "cutting", "ending", "evolve", "inputs", "moves", "parking", "poison", "preparing"),
        *("recovering", "selecting", "settling", "staging", "turn", "cycles"),
    }
)
"""Modules that the machine of the turn runs."""


def try_one(mutant: Mutant, items: list[pytest.Item]) -> int:
    """Break one place, in this process, and run tests until one fails."""
    try:
        changed = put(mutant)
    except Exception:  # noqa: BLE001 - whatever keeps the module from being loaded
        return KILLED if isinstance(sys.exception(), AssertionError | TypeError | ValueError) else BROKEN
    if not changed:
        return UNCHANGED
    for item, after in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if item.session.testsfailed:
            return KILLED
    return SURVIVED


def main(arguments: list[str]) -> int:
    """Try the chosen mutants; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--old-map", action="store_true")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args(arguments)
    wrong = [f"{one.breaks} ({one.file}): {why}\n    {one.old!r}" for one in MUTANTS if (why := one.wrong())]
    if wrong:
        print(f"{len(wrong)} mutants cannot be made; mend them first:", *wrong, sep="\n")
        return 2
    part, parts = map(int, options.part.split("/"))
    named = [one for one in MUTANTS if not options.words or any(w in f"{one.breaks} {one.file}" for w in options.words)]
    chosen = named[part - 1 :: parts]
    os.environ["CI"] = "1"
    os.chdir(reach.ROOT)
    sys.path.insert(0, str(reach.ROOT))
    runner = Runner(chosen, max(1, options.jobs), old_map=options.old_map)
    ignored = [f"--ignore={path}" for path in reach.NOT_OURS]
    code = pytest.main([*reach.OPTIONS, "-x", *ignored, "tests/actors"], plugins=[runner])
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        sys.exit(f"the tests could not be loaded: exit code {code}")
    left = [f"SURVIVED {one.mutant.breaks} ({one.mutant.file})" for one in runner.left if one.code == SURVIVED]
    left += [f"CANNOT BE MADE {one.mutant.breaks} ({one.mutant.file})" for one in runner.left if one.code != SURVIVED]
    print(f"\n{len(chosen) - len(left)} of {len(chosen)} mutants killed", *left, sep="\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
