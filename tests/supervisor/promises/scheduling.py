"""Control over the order in which Trio runs tasks: the one place that touches Trio's private names for it.

Trio sorts a batch of runnable tasks by creation and hands it to `_r.shuffle` where `_ALLOW_DETERMINISTIC_SCHEDULING`
is set (`trio._core._run`). A hook in its place can also put tasks back on the queue, which gives every interleaving.
`test_checkpoints.py` has the canary that fails when Trio changes this.
"""

from __future__ import annotations

import heapq
import math
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
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
        batches: how many it was asked to order. steps: tasks it let run. most: more batches than that are a circle.
    """

    most: float = math.inf

    def __init__(self, seed: int, *, defer: float = 0.0) -> None:
        self._dice = random.Random(seed)
        self._defer = defer
        self.batches = 0
        self.steps = 0

    def shuffle(self, batch: list[Any]) -> None:
        """Order a batch in place; some of it may go back on the queue."""
        self.batches += 1
        if self.batches > self.most:
            msg = f"it goes round in circles: {self.most} rounds of the scheduler"
            raise RuntimeError(msg)
        if len(batch) > 1:
            self._dice.shuffle(batch)
            if self._dice.random() < self._defer:
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
    bare = _Bare(MockClock(autojump_threshold=0))
    before = trio.sleep
    with scheduled(sched):
        trio.sleep = bare.sleep
        try:
            return trio.run(fn, clock=bare.clock, instruments=(*instruments, bare))
        finally:
            trio.sleep = before


class _Bare(trio.abc.Instrument):
    """Takes out of a run what costs a simulation time and tells it nothing, at its beginning.

    That is the real clock below the virtual one; the question to the system in each round of the loop whether a file is
    ready: it is put only where somebody waits for one, or a thread has called; and the cancel scope of each sleep.
    """

    def __init__(self, clock: MockClock) -> None:
        self.clock = clock
        self._asleep: list[_Sleep] = []

    def before_run(self) -> None:
        """Trio has made all that it runs with."""
        runner, clock, asleep = run.GLOBAL_RUN_CONTEXT.runner, self.clock, self._asleep
        files = _Files(runner.io_manager, runner.entry_queue, self._wake)
        runner.io_manager = files  # type: ignore[assignment]  # it has what is used
        runner.instruments = _Hooks(runner.instruments)  # type: ignore[assignment]  # likewise

        def now() -> float:
            return clock._virtual_base

        def jump() -> None:
            until = runner.deadlines.next_deadline()
            if asleep and asleep[0].until < until:
                until = asleep[0].until
            ahead = until - clock._virtual_base
            if 0 < ahead < math.inf:
                clock._virtual_base += ahead

        clock.current_time, clock._autojump = now, jump  # type: ignore[method-assign]

    async def sleep(self, seconds: float) -> None:
        """What `trio.sleep` does."""
        if seconds <= 0:
            await trio.lowlevel.checkpoint()
            return
        task = trio.lowlevel.current_task()
        one = _Sleep(self.clock._virtual_base + seconds, task)
        heapq.heappush(self._asleep, one)
        await trio.lowlevel.wait_task_rescheduled(one.cut)
        if task._cancel_status.effectively_cancelled:  # in the moment in which it woke up
            await trio.lowlevel.checkpoint()

    def _wake(self) -> None:
        asleep, now = self._asleep, self.clock._virtual_base
        while asleep and (asleep[0].task is None or asleep[0].until <= now):
            task = heapq.heappop(asleep).task
            if task is not None:
                trio.lowlevel.reschedule(task)


@attrs.define(eq=False)
class _Sleep:
    """A task that sleeps; none any more where it was cancelled."""

    until: float
    task: trio.lowlevel.Task | None

    def __lt__(self, other: _Sleep) -> bool:
        return self.until < other.until

    def cut(self, _: Any) -> trio.lowlevel.Abort:
        """Something else has ended it."""
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED


class _Files:
    """Files that are asked for only where there is one: the wake-up of the loop itself is there always."""

    def __init__(self, files: Any, calls: Any, wake: Callable[[], None]) -> None:
        self._files, self._calls, self._wake = files, calls, wake
        self._registered = getattr(files, "_registered", range(2))  # where it is not epoll, the system is asked always

    def get_events(self, timeout: float) -> Any:
        """What is ready."""
        self._wake()
        if len(self._registered) > 1 or self._calls.queue or self._calls.idempotent_queue:
            return self._files.get_events(timeout)
        return ()

    def process_events(self, events: Any) -> None:
        """Wake whoever waits for it."""
        if events:
            self._files.process_events(events)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


class _Hooks(dict[str, Any]):
    """The instruments by hook: Trio asks for each hook in each round whether there is one."""

    def call(self, hook: str, *args: object) -> None:
        """Call one hook of all that have it."""
        for instrument in self[hook]:
            getattr(instrument, hook)(*args)


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
