"""Control over the order in which Trio runs tasks: the one place that touches Trio's private names for it.

Trio sorts a batch of runnable tasks by creation and hands it to `_r.shuffle` where `_ALLOW_DETERMINISTIC_SCHEDULING`
is set (`trio._core._run`). A hook in its place can also put tasks back on the queue, which gives every interleaving.
`test_checkpoints.py` has the canary that fails when Trio changes this.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import trio
import trio._core._run as run
from trio.testing import MockClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

T = TypeVar("T")


class Sched:
    """Chooses which runnable tasks run next.

    Args:
        seed: the same seed is the same choice, for ever.
        defer: the share of ticks in which only one task runs, and the others are put back.

    Attributes:
        batches: how many it was asked to order. steps: tasks it let run.
    """

    def __init__(self, seed: int, *, defer: float = 0.0) -> None:
        self._dice = random.Random(seed)
        self._defer = defer
        self.batches = 0
        self.steps = 0

    def shuffle(self, batch: list[Any]) -> None:
        """Order a batch in place; some of it may go back on the queue."""
        self.batches += 1
        self._dice.shuffle(batch)
        if len(batch) > 1 and self._dice.random() < self._defer:
            batch[0]._runner.runq.extend(batch[1:])
            del batch[1:]
        self.steps += len(batch)

    def random(self) -> float:
        """What Trio asks where it orders by chance."""
        return self._dice.random()


@contextmanager
def scheduled(sched: Sched) -> Iterator[None]:
    """Let the hook order the tasks of every `trio.run` inside."""
    before = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r
    run._ALLOW_DETERMINISTIC_SCHEDULING, run._r = True, sched  # type: ignore[assignment,misc]  # it has what is used
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING, run._r = before  # type: ignore[misc]  # likewise


def simulate(fn: Callable[[], Awaitable[T]], sched: Sched, *instruments: trio.abc.Instrument) -> T:
    """Run under the hook and a clock that jumps."""
    with scheduled(sched):
        return trio.run(fn, clock=MockClock(autojump_threshold=0), instruments=instruments)


class CancelAt(trio.abc.Instrument):
    """Cancels a scope behind the n-th step that any task takes from `arm()` on.

    Attributes:
        hit: whether it came to that. steps: taken since it was armed.
    """

    def __init__(self, at: int) -> None:
        self._at = at
        self._scope: trio.CancelScope | None = None
        self.steps = 0
        self.hit = False

    def arm(self, scope: trio.CancelScope) -> None:
        """Count from here."""
        self._scope = scope

    def disarm(self) -> None:
        """Cancel no more."""
        self._scope = None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """One step more."""
        if self._scope is None:
            return
        self.steps += 1
        if self.steps == self._at:
            self.hit = True
            self._scope.cancel()
