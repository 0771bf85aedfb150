"""Watchers: bounded queues of events that never block whoever emits (EVT-2), and what they catch up on (EVT-3)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias, final

import attrs
import trio

from .happenings import Event, Missed
from .ids import AgentId
from .journal import NOW, PASSING, EventJournal, Position, event_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

WATCHER_EVENTS: Final = 10_000
"""How many events a watcher may be behind before it depends on the journal."""

Numbered: TypeAlias = tuple[int, Event]
"""An event with its number in the journal; 0 for one that is not kept there."""


@attrs.frozen
class WatcherStatistics:
    """What a watcher has had. `waiting`: queued for it. `missed`: not kept for it."""

    waiting: int
    taken: int
    missed: int


@final
class Subscription:
    """An async iterator of the events of one agent and all below it.

    What happened before it was opened it reads from the journal; from then on it is `live`, and what happens waits in
    its queue, behind that. A queue that is full puts it behind: once it is empty the journal is read, until that has no
    more, and it is live again in the same step.

    Invariants:
        WATCH-1 at most `limit` events wait. WATCH-2 every event of the scope that the journal keeps is taken, waiting,
        held by the journal, or counted as missed; one that is not kept too, from when it was opened.
        WATCH-3 while it is live, the journal holds nothing of the scope from behind its opening that was neither queued
        nor taken.

    Args:
        journal: of what happened before.
        path: whose; "" for everything.
        after: a position, `now`, or None for all that the journal holds.
        follow: whether it outlives the run it was opened in.
        limit: how many events may wait.
    """

    def __init__(
        self,
        journal: EventJournal,
        path: str,
        *,
        after: str | None = None,
        follow: bool,
        limit: int = WATCHER_EVENTS,
    ) -> None:
        self.path = path
        self._below = path + "/"
        self._limit = limit
        self._follow = follow
        self._journal = journal
        self._events: deque[Numbered] = deque()
        self._unknown = False
        self._missed = 0
        self._missed_all = 0
        self._taken = 0
        self._slow = False
        self._ended: tuple[int, int] | None = None  # behind which entry, and how many of its scope there were then
        self._sleeper: trio.lowlevel.Task | None = None
        self._passed, self._seen = self._begin(after)
        self._opened = (journal.last, journal.count(path))  # behind which entry, and how many of its scope there were
        self._live = True

    def _begin(self, after: str | None) -> tuple[int, int]:
        """Behind which entry it begins, and how many of its scope it then has had."""
        journal, path = self._journal, self.path
        if after == NOW:
            return journal.last, journal.count(path)
        start = journal.first - 1
        position = None if after is None else journal.position(after)
        if position is None:
            if after is not None:
                self._unknown = True  # EVT-3: another process's, or nobody's; how many it misses is not known
            return start, journal.count(path) - journal.held(path, start, journal.last)
        if position.number >= start:
            return position.number, journal.count(path) - journal.held(path, position.number, journal.last)
        if position.path != path:
            self._unknown = True
            return start, journal.count(path) - journal.held(path, start, journal.last)
        return position.number, position.seen

    # -- from the board --------------------------------------------------------------------------------------------

    def offer(self, numbered: Numbered) -> None:
        """Take an event of the scope; never blocks, never raises."""
        if self._ended is not None:
            return
        if not self._live:
            if self._slow and not numbered[0]:
                self._miss(1)
            return
        if len(self._events) >= self._limit:
            self._fall_behind(numbered[0])
        else:
            self._events.append(numbered)
        if self._sleeper is not None:
            self._wake()

    def _fall_behind(self, number: int) -> None:
        """The queue is full: what comes from now on is read from the journal; what is not kept there is missed."""
        self._live, self._slow = False, True
        if not number:
            self._miss(1)

    def _miss(self, count: int) -> None:
        self._missed += count
        self._missed_all += count

    def settle(self) -> None:
        """The run it was opened in is over: end, unless it follows."""
        if not self._follow:
            self.end()

    def end(self) -> None:
        """No more events come; those until now are still handed out."""
        if self._ended is None:
            last = self._journal.last
            self._ended = (last, 0 if self._live else self._journal.count(self.path))
            self._wake()

    def _wake(self) -> None:
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None

    # -- to whoever iterates ---------------------------------------------------------------------------------------

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        if self._events or self._ended is not None or not self._live or self._passed < self._opened[0]:
            await trio.lowlevel.checkpoint()
        while True:
            event = self._take()
            if event is not None:
                return event
            if self._ended is not None:
                raise StopAsyncIteration
            await self._sleep()

    def _take(self) -> Event | None:
        """The next event, if there is one now; where there is none, it is live (WATCH-3)."""
        before = self._before()
        if before is not None:
            self._taken += 1
            return before
        if self._events:
            number, event = self._events.popleft()
            if number:
                self._passed = number
                self._seen += 1
        else:
            found = None if self._live else self._catch_up()
            if found is None:
                return None
            event = found
        self._taken += 1
        return event

    def _before(self) -> Event | None:
        """The next event from before it was opened, or the gap before that; None where it has had them."""
        if self._unknown:
            self._unknown = False
            return Missed(path=AgentId(self.path), count=None)
        return self._read(*self._opened) if self._passed < self._opened[0] else None

    def _catch_up(self) -> Event | None:
        """The next event that its queue had no place for, or the gap before it; None once it is live."""
        missed, self._missed = self._missed, 0
        found = self._read(*(self._ended or (self._journal.last, self._journal.count(self.path))), missed)
        if found is None:
            self._live, self._slow = True, False
        return found

    def _read(self, stop: int, ever: int, missed: int = 0) -> Event | None:
        """The next event that the journal has up to `stop`, or the gap before it.

        `ever`: how many of the scope there were up to there. `missed`: not kept in the journal, and part of the gap.
        """
        journal, path = self._journal, self.path
        if self._passed < journal.first - 1:
            lost = max(0, ever - self._seen - journal.held(path, self._passed, stop))
            self._passed = min(journal.first - 1, stop)
            self._seen += lost
            self._missed_all += lost
            missed += lost
        if missed:
            return Missed(path=AgentId(self.path), count=missed)
        for number, entry in journal.after(self._passed):
            if number > stop:
                break
            self._passed = number
            if not path or entry[1] == path or entry[1].startswith(self._below):
                self._seen += 1
                return event_of(entry)
        self._passed = max(self._passed, stop)
        return None

    async def _sleep(self) -> None:
        if self._sleeper is not None:
            msg = "one task at a time iterates over a subscription; open another with events()"
            raise RuntimeError(msg)
        self._sleeper = trio.lowlevel.current_task()

        def abort(_raise_cancel: Callable[[], None]) -> trio.lowlevel.Abort:
            self._sleeper = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    @property
    def position(self) -> str:
        """Where it stands, behind the event it took last: `events(after=position)` goes on there (EVT-3)."""
        return str(Position(self._journal.token, self._passed, self._seen, self.path))

    def statistics(self) -> WatcherStatistics:
        """What it has had so far."""
        return WatcherStatistics(len(self._events), self._taken, self._missed_all)

    def __repr__(self) -> str:
        return f"<Subscription {self.path or 'all'}: {self.statistics()}>"


@final
class Board:
    """Where events are put up: journalled, and handed to every watcher they concern, in the order emitted (EVT-1).

    Watchers are found by their scope, so an event costs a look-up per level of its path, however many there are.

    Args:
        now: seconds on the supervisor's clock.
        journal: what is kept of it.
    """

    def __init__(self, now: Callable[[], float] = trio.current_time, journal: EventJournal | None = None) -> None:
        self._now = now
        self.journal = EventJournal() if journal is None else journal
        self._watchers: dict[str, list[Subscription]] = {}
        self._over = False

    def concerns(self, path: str) -> bool:
        """Whether anybody watches an agent."""
        watchers = self._watchers
        while watchers:
            if path in watchers:
                return True
            if not path:
                return False
            path = path.rpartition("/")[0]
        return False

    def _scopes(self, path: str) -> Iterator[list[Subscription]]:
        """The watchers of an agent, of those above it, and of everything."""
        watchers = self._watchers
        while True:
            found = watchers.get(path)
            if found is not None:
                yield found
            if not path:
                return
            path = path.rpartition("/")[0]

    def tell(
        self, kind: type[Event], path: AgentId, values: Mapping[str, object], *, run: int = 0, turn: int = 0
    ) -> None:
        """Put up an event; sync, bounded, and never raising.

        Args:
            kind: its class.
            path: whose.
            values: the rest of it; they must not change any more.
            run: it belongs to, 0 for none.
            turn: likewise.
        """
        journal = self.journal
        if kind in PASSING:
            if self._watchers and self.concerns(path):
                self._hand((0, event_of((kind, path, journal.seq(path), self._now(), run, turn, values))))
            return
        entry = journal.put(kind, path, self._now(), run, turn, values)
        if self._watchers and self.concerns(path):
            self._hand((journal.last, event_of(entry)))

    def _hand(self, numbered: Numbered) -> None:
        for watchers in self._scopes(numbered[1].path):
            for watcher in watchers:
                watcher.offer(numbered)

    def add(self, watcher: Subscription) -> None:
        """Begin to watch."""
        self._watchers.setdefault(watcher.path, []).append(watcher)
        if self._over:
            watcher.end()

    def remove(self, watcher: Subscription) -> None:
        """Stop watching."""
        watcher.end()
        watchers = self._watchers.get(watcher.path, [])
        if watcher in watchers:
            watchers.remove(watcher)
            if not watchers:
                del self._watchers[watcher.path]

    def settled(self, path: str) -> None:
        """An agent has settled: watchers opened on exactly it end, unless they follow."""
        for watcher in self._watchers.get(path, ()):
            watcher.settle()

    def end(self) -> None:
        """Nothing more happens: every watcher ends."""
        self._over = True
        for watchers in tuple(self._watchers.values()):
            for watcher in tuple(watchers):
                self.remove(watcher)
