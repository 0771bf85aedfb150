"""Watchers: bounded queues of events that never block whoever emits (EVT-2)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from .happenings import Missed
from .ids import AgentId

if TYPE_CHECKING:
    from collections.abc import Callable

    from .happenings import Event

WATCHER_EVENTS: Final = 10_000
"""How many events a watcher may be behind."""


@attrs.frozen
class WatcherStatistics:
    """What a watcher has had. `missed`: not kept for it."""

    waiting: int
    taken: int
    missed: int


@final
class Subscription:
    """An async iterator of the events of one agent and all below it.

    Invariants:
        WATCH-1 at most `limit` events wait. WATCH-2 every event of the scope is taken, waiting, or counted as missed.
    """

    def __init__(self, path: str, *, limit: int = WATCHER_EVENTS, follow: bool) -> None:
        self._path = path
        self._below = path + "/"
        self._limit = limit
        self._follow = follow
        self._events: deque[Event] = deque()
        self._missed = 0
        self._missed_all = 0
        self._taken = 0
        self._ended = False
        self._sleeper: trio.lowlevel.Task | None = None

    def offer(self, event: Event) -> None:
        """Take an event if it is in scope; never blocks, never raises."""
        path = event.path
        if self._ended or not (path == self._path or path.startswith(self._below) or not self._path):
            return
        if self._missed or len(self._events) >= self._limit:
            # Once something was missed, nothing is kept until the watcher has heard of the gap: order is kept.
            self._missed += 1
            self._missed_all += 1
        else:
            self._events.append(event)
        self._wake()

    def settle(self) -> None:
        """The run it was opened in is over: end, unless it follows."""
        if not self._follow:
            self.end()

    def end(self) -> None:
        """No more events come."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        if self._events or self._ended:
            await trio.lowlevel.checkpoint()
        while not self._events:
            if self._missed:
                return self._gap()
            if self._ended:
                raise StopAsyncIteration
            await self._sleep()
        self._taken += 1
        return self._events.popleft()

    def _gap(self) -> Event:
        missed, self._missed = self._missed, 0
        return Missed(path=AgentId(self._path), count=missed)

    async def _sleep(self) -> None:
        if self._sleeper is not None:
            msg = "one task at a time iterates over a subscription; open another with events()"
            raise RuntimeError(msg)
        self._sleeper = trio.lowlevel.current_task()

        def abort(_raise_cancel: Callable[[], None]) -> trio.lowlevel.Abort:
            self._sleeper = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def statistics(self) -> WatcherStatistics:
        """What it has had so far."""
        return WatcherStatistics(len(self._events), self._taken, self._missed_all)

    def __repr__(self) -> str:
        return f"<Subscription {self._path or 'all'}: {self.statistics()}>"


@final
class Board:
    """Where events are put up: hands each to every watcher it concerns, in the order emitted (EVT-1)."""

    def __init__(self) -> None:
        self._watchers: list[Subscription] = []

    @property
    def watched(self) -> bool:
        """Whether anybody watches at all."""
        return bool(self._watchers)

    def emit(self, event: Event) -> None:
        """Hand an event to the watchers; sync, bounded, and never raising."""
        for watcher in tuple(self._watchers):
            watcher.offer(event)

    def add(self, watcher: Subscription) -> None:
        """Begin to watch."""
        self._watchers.append(watcher)

    def remove(self, watcher: Subscription) -> None:
        """Stop watching."""
        watcher.end()
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def settled(self, path: str) -> None:
        """An agent has settled: watchers opened on exactly it end, unless they follow."""
        for watcher in tuple(self._watchers):
            if watcher._path == path:  # noqa: SLF001 - the board and its watchers are one thing in two classes
                watcher.settle()

    def end(self) -> None:
        """Nothing more happens: every watcher ends."""
        for watcher in tuple(self._watchers):
            self.remove(watcher)
