"""Every moment of every scene, one crash or two, and what came of all of them together.

A scene is played the same way each time, so a life with n crashes says how many moments there are for one crash more.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from tests.points.dying import Failing, Fault
from tests.points.living import Cast, limp, live
from tests.points.scenes import SCENES
from tests.points.table import POINTS, covered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.points.living import Lived
    from tests.points.scenes import Scene

Ended: TypeAlias = "tuple[tuple[int, ...], Lived]"
"""The moments at which a life's processes died, and what came of it."""

SHOWN: Final = 20
HERE: Final = tuple(point.number for point in POINTS if point.moments)
"""The points whose feature exists."""
PAIRS: Final = len(tuple(combinations_with_replacement(HERE, 2)))


@attrs.define(eq=False)
class Sweep:
    """What was run on one store, and what came of it.

    Attributes:
        store: `memory` or `sqlite`. stops_at: on the monotonic clock; None: never. stops: with what breaks first.
        points, pairs: numbers that a crash, or two of one life, covered. ran: lives, by what was done to them.
        singles, doubles, faults: how many such lives there are. broken: promises, with how to see it again.
    """

    store: str
    stops_at: float | None = None
    stops: bool = attrs.field(default=False, kw_only=True)
    points: set[int] = attrs.field(factory=set)
    pairs: set[tuple[int, ...]] = attrs.field(factory=set)
    ran: Counter[str] = attrs.field(factory=Counter)
    singles: int = 0
    doubles: int = 0
    faults: int = 0
    broken: list[str] = attrs.field(factory=list)
    _casts: dict[str, Cast] = attrs.field(factory=dict, init=False)

    def once(self, scene: Scene, every: int = 1, turn: int = 0) -> list[Ended]:
        """A crash at each moment of each process of a scene that nothing disturbs, or at one in `every`."""
        whole = self.run(scene, ())
        moments = [(0,) * before + (at,) for before, seen in enumerate(whole.seen) for at in range(1, seen + 1)]
        self.singles += len(moments)
        return list(self._lives(scene, moments[turn % every :: every], "one crash"))

    def twice(self, scene: Scene, first: Iterable[Ended], every: int = 1, turn: int = 0) -> None:
        """Behind each of these, a crash at each moment of the process that comes next, or at one in `every`."""
        moments = [(*ats, at) for ats, lived in first for at in range(1, lived.seen[len(ats)] + 1)]
        self.doubles += len(moments)
        for _ in self._lives(scene, moments[turn % every :: every], "two crashes"):
            pass

    def fails(self, scene: Scene, every: int = 1, turn: int = 0) -> None:
        """Each operation of the store fails, reads too: in each way, once and from there on; or one in `every`."""
        whole = self._limp(scene, None)
        ways = [
            Failing(at, fault, forever)
            for at in range(1, whole.seen[0] + 1)
            for fault in Fault
            for forever in (False, True)
        ]
        self.faults += len(ways)
        for failing in ways[turn % every :: every]:
            if self.over:
                return
            self.ran["fault"] += 1
            self._limp(scene, failing)

    def _limp(self, scene: Scene, failing: Failing | None) -> Lived:
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

    def _lives(self, scene: Scene, moments: list[tuple[int, ...]], what: str) -> Iterator[Ended]:
        for ats in moments:
            if self.over:
                return
            self.ran[what] += 1
            lived = self.run(scene, ats)
            if len(lived.seen) > len(ats):  # else it ended with the bug that is told
                yield ats, lived

    def run(self, scene: Scene, ats: tuple[int, ...]) -> Lived:
        """One life."""
        with self._file() as path:
            lived = live(self._cast(scene), ats, path)
        numbers = [covered(hit) for hit in lived.hits]
        self.points.update(*numbers)
        for one, other in pairwise(numbers):
            self.pairs.update(tuple(sorted((a, b))) for a in one for b in other)
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
            f"{one.store}: lives with one crash {one.ran['one crash']}/{one.singles},"
            f" with two {one.ran['two crashes']}/{one.doubles}, with a store that fails {one.ran['fault']}/{one.faults}"
            for one in sweeps
        ),
        f"scenes {len(SCENES)}, violations {len(broken)}",
        *(f"NOT COVERED {number}" for number in sorted(set(HERE) - points)),
        *(f"BROKEN {one}" for one in broken[:SHOWN]),
    ]
    return "\n".join(lines)
