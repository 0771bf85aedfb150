"""Who runs when: the scheduler of a life, and processes that stand still while the others go on."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import trio

from tests.supervisor.promises.scheduling import Sched

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BATCHES: Final = 60_000
WHOSE: Final[ContextVar[int]] = ContextVar("whose", default=0)
"""The number of the process that a task is of; 0: nobody's. Tasks inherit it."""


@contextmanager
def acting_for(process: int) -> Iterator[None]:
    """What begins inside is this process's."""
    token = WHOSE.set(process)
    try:
        yield
    finally:
        WHOSE.reset(token)


class Tasks(trio.abc.Instrument):
    """Counts the tasks that are alive (invariant 53), of each process."""

    def __init__(self) -> None:
        self.alive: Counter[int] = Counter()

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """One more."""
        self.alive[_whose(task)] += 1

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        """One less."""
        self.alive[_whose(task)] -= 1


class Bounded(Sched):
    """A scheduler that ends a life which goes round in circles without time passing."""

    most = MOST_BATCHES


class Processes(Bounded):
    """A scheduler of several processes, each of which may stand still: what it would do, it does once it goes on.

    Its timers run out meanwhile, as those of a process do that was stopped.
    """

    most = 20 * MOST_BATCHES

    def __init__(self, seed: int, *, defer: float) -> None:
        super().__init__(seed, defer=defer)
        self._still: dict[int, list[Any]] = {}
        self._all: list[Any] | None = None

    def shuffle(self, batch: list[Any]) -> None:
        """Order those of a batch whose process does not stand still."""
        if self._still or self._all is not None:
            batch[:] = [task for task in batch if not self._kept(task)]
        super().shuffle(batch)

    def _kept(self, task: Any) -> bool:
        whose = _whose(task)
        held = self._all if whose and self._all is not None else self._still.get(whose)
        if held is not None:
            held.append(task)
        return held is not None

    def freeze(self, process: int) -> None:
        """From now on it does nothing."""
        self._still.setdefault(process, [])

    def thaw(self, process: int) -> None:
        """It goes on, if it stood still."""
        _go_on(self._still.pop(process, []))

    def thaw_all(self) -> None:
        """All go on."""
        for process in tuple(self._still):
            self.thaw(process)

    @contextmanager
    def standstill(self) -> Iterator[None]:
        """No process does anything inside, so that what is read is of one moment."""
        self._all = []
        try:
            yield
        finally:
            held, self._all = self._all, None
            _go_on(held)


def _go_on(tasks: list[Any]) -> None:
    for task in tasks:
        task._runner.runq.append(task)


def _whose(task: trio.lowlevel.Task) -> int:
    return task.context.get(WHOSE, 0)
