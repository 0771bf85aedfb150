"""Every moment of every scene, one crash or two, and what came of all of them together.

A scene is played the same way each time, so a life with n crashes says how many moments there are for one crash more.
Of moments that leave the same one is tried; it stands for all of its stretch.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from itertools import combinations_with_replacement, pairwise, zip_longest
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
from attrs import evolve

from tests.points.dying import Failing, Fault
from tests.points.living import Cast, Lived, limp, live
from tests.points.scenes import SCENES
from tests.points.table import POINTS, Moment, covered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.points.kit import Scene
    from tests.points.living import Limped


@attrs.frozen
class Trial:
    """A life.

    Attributes:
        ats: the moments at which its processes die. stands: to each, all those of its stretch.
        lived: what came of it.
    """

    ats: tuple[int, ...] = ()
    stands: tuple[tuple[Moment, ...], ...] = ()
    lived: Lived | None = None

    @property
    def weight(self) -> int:
        """How many ways to die in so many moments it stands for."""
        return prod(len(moments) for moments in self.stands)

    def next(self, process: int) -> tuple[Trial, ...]:
        """What dies once more, in this process of it; each stretch once."""
        if self.lived is None or len(self.lived.seen) <= process:  # it ended with the bug that is told
            return ()
        ats = (*self.ats, *([0] * (process - len(self.ats))))
        return tuple(
            Trial((*ats, one.first), (*self.stands, tuple(one.moments)))
            for one in self.lived.seen[process]
            if not (self.ats and one.bare)  # else it is as if it had never been
        )


SHOWN: Final = 20
HERE: Final = tuple(point.number for point in POINTS if point.moments)
"""The points whose feature exists."""
PAIRS: Final = len(tuple(combinations_with_replacement(HERE, 2)))


@attrs.define(eq=False)
class Sweep:
    """What was run on one store, and what came of it.

    Attributes:
        store: `memory` or `sqlite`. stops_at: on the monotonic clock; None: never. stops: with what breaks first.
        points, pairs: numbers that a crash, or two of one life, covered.
        ran: ways to die or to fail that were tried, by what was done. lives: in how many lives.
        singles, doubles, faults: how many such ways there are.
        broken: promises, with how to see it again.
    """

    store: str
    stops_at: float | None = None
    stops: bool = attrs.field(default=False, kw_only=True)
    points: set[int] = attrs.field(factory=set)
    pairs: set[tuple[int, ...]] = attrs.field(factory=set)
    ran: Counter[str] = attrs.field(factory=Counter)
    lives: Counter[str] = attrs.field(factory=Counter)
    singles: int = 0
    doubles: int = 0
    faults: int = 0
    broken: list[str] = attrs.field(factory=list)
    _casts: dict[str, Cast] = attrs.field(factory=dict, init=False)

    def once(self, scene: Scene, every: int = 1, turn: int = 0) -> list[Trial]:
        """A crash at each moment of each process of a scene that nothing disturbs, or at one in `every`."""
        whole = self._tried(scene, Trial())
        assert whole.lived is not None, "it was lived"
        trials = [trial for process in range(len(whole.lived.seen)) for trial in whole.next(process)]
        self.singles += sum(trial.weight for trial in trials)
        return self._lives(scene, trials[turn % every :: every], "one crash")

    def twice(self, scene: Scene, first: Iterable[Trial], every: int = 1, turn: int = 0) -> None:
        """Behind each of these, a crash at each moment of the process that comes next, or at one in `every`."""
        trials = [trial for one in first for trial in one.next(len(one.ats))]
        self.doubles += sum(trial.weight for trial in trials)
        self._lives(scene, trials[turn % every :: every], "two crashes")

    def fails(self, scene: Scene, every: int = 1, turn: int = 0) -> None:
        """Each operation of the store fails, reads too: in each way, once and from there on; or one in `every`."""
        whole = self._limp(scene, None)
        ways = [
            Failing(at, fault, forever)
            for at in range(1, whole.operations + 1)
            for fault in (Fault if at in whole.writes else (Fault.BEFORE,))
            for forever in (False, True)
        ]
        self.faults += len(ways)
        for failing in ways[turn % every :: every]:
            if self.over:
                return
            self.ran["fault"] += 1
            self._limp(scene, failing)

    def _limp(self, scene: Scene, failing: Failing | None) -> Limped:
        with self._file() as path:
            lived = limp(self._cast(scene), failing, path)
        self.broken += [f"{scene.name} in {self.store}, {failing}: {problem}" for problem in lived.problems]
        return lived

    @property
    def over(self) -> bool:
        """Whether its time is up, or it has found what it was to find."""
        return (self.stops_at is not None and time.monotonic() > self.stops_at) or (self.stops and bool(self.broken))

    def _cast(self, scene: Scene) -> Cast:
        cast = self._casts.get(scene.name)
        if cast is None:
            cast = self._casts[scene.name] = Cast(scene)
        return cast

    @contextmanager
    def _file(self) -> Iterator[Path | None]:
        """A place for a life's store, where that is a file."""
        if self.store == "memory":
            yield None
            return
        with tempfile.TemporaryDirectory(prefix="points-") as folder:
            yield Path(folder) / "points.db"

    def _lives(self, scene: Scene, trials: Sequence[Trial], what: str) -> list[Trial]:
        done = []
        for trial in trials:
            if self.over:
                break
            self.lives[what] += 1
            self.ran[what] += trial.weight
            done.append(self._tried(scene, trial))
        return done

    def _tried(self, scene: Scene, trial: Trial) -> Trial:
        lived = self.run(scene, trial.ats)
        stands = iter(trial.stands)
        chosen = [next(stands) if at else () for at in trial.ats]
        numbers = [
            frozenset[int]().union(*map(covered, (hit, *moments)))
            for hit, moments in zip_longest(lived.hits, chosen[: len(lived.hits)], fillvalue=())
        ]
        self.points.update(*numbers)
        for one, other in pairwise(numbers):
            self.pairs.update(tuple(sorted((a, b))) for a in one for b in other)
        return evolve(trial, lived=lived)

    def run(self, scene: Scene, ats: tuple[int, ...]) -> Lived:
        """One life."""
        with self._file() as path:
            lived = live(self._cast(scene), ats, path)
        hits = ", then ".join(str(hit) for hit in lived.hits)
        name = f"--scene {scene.name} --store {self.store} --at {','.join(map(str, ats))} ({hits})"
        self.broken += [f"{name}: {problem}" for problem in lived.problems]
        return lived


def told(sweeps: list[Sweep]) -> str:
    """The figures in words."""
    points = set[int]().union(*(one.points for one in sweeps))
    pairs = set[tuple[int, ...]]().union(*(one.pairs for one in sweeps))
    broken = [line for one in sweeps for line in one.broken]
    waiting = ", ".join(f"{one.number} for {one.where}" for one in POINTS if not one.moments)
    lines = [
        f"points covered {len(points)}/{len(POINTS)}; waiting: {waiting}",
        f"pairs of points covered {len(pairs)}/{PAIRS} (unordered, each with itself too)",
        *(
            f"{one.store}: one crash {one.ran['one crash']}/{one.singles} in {one.lives['one crash']} lives,"
            f" two {one.ran['two crashes']}/{one.doubles} in {one.lives['two crashes']},"
            f" a store that fails {one.ran['fault']}/{one.faults}"
            for one in sweeps
        ),
        f"scenes {len(SCENES)}, violations {len(broken)}",
        *(f"NOT COVERED {number}" for number in sorted(set(HERE) - points)),
        *(f"BROKEN {one}" for one in broken[:SHOWN]),
    ]
    return "\n".join(lines)
