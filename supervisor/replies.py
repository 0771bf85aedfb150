"""Who waits for what: for the reply to a message, the end of a run, idleness, an unwinding, a close.

Every wait is checked in the graph before it begins (REE-2), and ends by its condition, by an error, or by
cancellation; whichever it is, its edge is gone when it returns. A wait that another completes (`needs_input`) ends
like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias, TypeVar, final

import attrs
import trio

from actors.errors import InternalError
from actors.ids import AgentId, MessageId
from actors.messages import Outcome
from actors.waiting import Mode, Need

from .knots import within

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from actors.errors import CallboardError
    from actors.frames import Frames
    from actors.ids import TurnId
    from actors.waiting import Wait

    from .waits import WaitGraph

_Key = TypeVar("_Key")
Find: TypeAlias = Callable[[], Awaitable[Outcome | None]]
Waiters: TypeAlias = "dict[Waiter, Find | None]"
"""Each with how to read what it waits for, where that can be read."""
Taken: TypeAlias = tuple[int, Outcome]
"""Which of several ended a wait, and how."""


@final
class Waiter:
    """One thing that a wait may end by. `outcome` or `error` is set when it ended it; neither is for a bare condition.

    Attributes:
        done: of the whole wait: the first of its waiters to be completed ends it.
        inside: an agent's loop waits for the code that waits here. target: whom this one is for.
        wait: in the graph, once it is there; None for code outside of agents.
    """

    __slots__ = ("done", "error", "inside", "outcome", "target", "wait")

    def __init__(self, target: AgentId, done: trio.Event, *, inside: bool) -> None:
        self.target = target
        self.done = done
        self.inside = inside
        self.outcome: Outcome | None = None
        self.error: CallboardError | None = None

    def complete(self, outcome: Outcome | None = None, error: CallboardError | None = None) -> None:
        """End the wait; the first end counts."""
        if not self.done.is_set():
            self.outcome, self.error = outcome, error
            self.done.set()


@attrs.frozen
class Wanted:
    """A report that a wait may end with: the reply to a message or, with none named, the run in progress.

    Attributes:
        find: reads one that is there already; asked once the waiter would hear of a new one.
    """

    target: AgentId
    message: MessageId | None = None
    find: Find | None = None


async def _nothing() -> None:
    """No other end."""


@final
class Replies:
    """The open waits of this process.

    Invariants:
        REPLY-1 a waiter is registered under one condition, from before it waits until it returns; no list is empty.
        REPLY-2 an outcome reaches every waiter of the messages that its turn consumed, also one that began to wait
            behind the claim.
        REPLY-3 what is there already ends a wait before it is checked: only what is really waited for is refused.
    """

    def __init__(self, graph: WaitGraph, frames: Frames) -> None:
        self._graph = graph
        self._frames = frames
        self._messages: dict[MessageId, Waiters] = {}
        self._consumed: dict[TurnId, list[MessageId]] = {}
        self._runs: dict[AgentId, Waiters] = {}
        self._conditions: dict[tuple[Need, AgentId], Waiters] = {}
        self._waiting: dict[Wait, tuple[Waiter, ...]] = {}
        self._asked: dict[Wait, Outcome] = {}
        """Questions that came to a held wait before anybody waited."""
        self._over: CallboardError | None = None

    # -- waiting ---------------------------------------------------------------------------------------------------

    @contextmanager
    def hold(self, target: AgentId, completing: Collection[Wait] = ()) -> Iterator[Wait | None]:
        """Be in the graph as one who waits for a reply, from before anything is sent for it (REE-2).

        Yields:
            The wait, for `first`; None for code outside of agents.

        Raises:
            WaitCycle: it would never end; nothing has changed.
        """
        frame = self._frames.current_owner()
        wait = None if frame is None else self._graph.begin(frame, (target,), completing=completing)
        try:
            yield wait
        finally:
            if wait is not None:
                self._asked.pop(wait, None)
                self._graph.end(wait)

    async def first(
        self,
        wanted: Sequence[Wanted],
        *,
        held: Wait | None = None,
        instead: Callable[[], Awaitable[Taken | None]] = _nothing,
    ) -> Taken:
        """Wait for the first of several reports.

        Args:
            wanted: any of them.
            held: a wait that is in the graph already.
            instead: another end of the wait, asked before it begins in the graph.

        Returns:
            Which, and the outcome.

        Raises:
            WaitCycle: none of them could ever come; nothing has changed.
            CallboardError: what ended the one that ended first, where it was no outcome.
        """
        frame, done = self._frames.current_owner(), trio.Event()
        waiters = tuple([Waiter(one.target, done, inside=frame is not None) for one in wanted])
        for one, waiter in zip(wanted, waiters, strict=True):
            self._list_of(one)[waiter] = one.find
        wait = held
        if wait is not None:
            self._register(wait, waiters)
        try:
            for one, waiter in zip(wanted, waiters, strict=True):
                found = None if one.find is None or done.is_set() else await one.find()
                if found is not None:
                    waiter.complete(found)
            if self._over is not None:
                waiters[0].complete(error=self._over)
            if frame is not None and wait is None and not done.is_set():
                taken = await instead()
                if taken is not None:
                    waiters[taken[0]].complete(taken[1])
                if not done.is_set():
                    wait = self._graph.begin(frame, [one.target for one in wanted], mode=Mode.ANY)
                    self._register(wait, waiters)
            await done.wait()
        finally:
            for one, waiter in zip(wanted, waiters, strict=True):
                self._forget(one, waiter)
            if wait is not None:
                self._waiting.pop(wait, None)
                self._graph.end(wait)
        return _ended(waiters)

    def _register(self, wait: Wait, waiters: tuple[Waiter, ...]) -> None:
        self._waiting[wait] = waiters
        asked = self._asked.pop(wait, None)
        if asked is not None:
            waiters[0].complete(asked)

    def _list_of(self, one: Wanted) -> Waiters:
        if one.message is None:
            return self._runs.setdefault(one.target, {})
        return self._messages.setdefault(one.message, {})

    def _forget(self, one: Wanted, waiter: Waiter) -> None:
        if one.message is None:
            _drop(self._runs, one.target, waiter)
        else:
            _drop(self._messages, one.message, waiter)

    def elsewhere(self, here: Callable[[AgentId], bool]) -> list[tuple[Waiter, Find]]:
        """The waiters for agents that are not run here, each with how to read what it waits for."""
        tables: tuple[dict[MessageId, Waiters] | dict[AgentId, Waiters], ...] = (self._messages, self._runs)
        return [
            (waiter, find)
            for table in tables
            for waiters in table.values()
            for waiter, find in waiters.items()
            if find is not None and not here(waiter.target)
        ]

    def awaited(self, message: MessageId) -> bool:
        """Whether anybody waits for the reply to a message."""
        return message in self._messages

    async def wait_condition(self, target: AgentId, needs: Need, *, certain: bool = False) -> None:
        """Wait until `fulfil` is called for this target and need.

        `certain`: it comes whatever the target's code waits for, so there is nothing to check (REE-3).
        """
        frame = self._frames.current_owner()
        waiter = Waiter(target, trio.Event(), inside=frame is not None)
        wait = None if frame is None or certain else self._graph.begin(frame, (target,), needs=needs)
        self._conditions.setdefault((needs, target), {})[waiter] = None
        try:
            if self._over is not None:
                waiter.complete()
            await waiter.done.wait()
        finally:
            _drop(self._conditions, (needs, target), waiter)
            if wait is not None:
                self._graph.end(wait)
        if waiter.error is not None:
            raise waiter.error

    # -- what ends waits -------------------------------------------------------------------------------------------

    def claimed(self, messages: Collection[MessageId], turn: TurnId | None) -> None:
        """An open turn consumed messages: its outcome is their reply. None: they wait again, and no turn's is."""
        if turn is not None:
            self._consumed.setdefault(turn, []).extend(messages)
            return
        for was, claimed in tuple(self._consumed.items()):
            left = [message for message in claimed if message not in messages]
            if left:
                self._consumed[was] = left
            else:
                del self._consumed[was]

    def turn_over(self, outcome: Outcome) -> None:
        """A turn ended."""
        for message in self._consumed.pop(outcome.turn, ()):
            self.reply(message, outcome)

    def parked(self, outcome: Outcome, waiting: Iterable[MessageId], *, inside: bool = False) -> None:
        """A turn stands still: it is open, and will have another outcome; what waits behind it is as stuck.

        Code outside of agents hears of it; with `inside` agents' own code does too, whose wait goes on otherwise.
        """
        messages = (*self._consumed.get(outcome.turn, ()), *waiting)
        lists = [self._messages.get(message, {}) for message in messages]
        for waiters in (*lists, self._runs.get(outcome.path, {})):
            for waiter in waiters:
                if inside or not waiter.inside:
                    waiter.complete(outcome)

    def run_over(self, outcome: Outcome) -> None:
        """A run ended: all who wait for it hear its last outcome."""
        for waiter in self._runs.pop(outcome.path, ()):
            waiter.complete(outcome)

    def reply(self, message: MessageId, outcome: Outcome | None = None, *, error: CallboardError | None = None) -> None:
        """Answer a message; with an error, it will have no other reply."""
        for waiter in self._messages.pop(message, ()):
            waiter.complete(outcome, error)

    def fail_agent(self, agent: AgentId, messages: Iterable[MessageId], error: CallboardError) -> None:
        """An agent stopped here without an outcome: whoever waits for it hears why."""
        for message in messages:
            self.reply(message, error=error)
        for waiter in self._runs.pop(agent, ()):
            waiter.complete(error=error)

    def fulfil(self, target: AgentId, needs: Need, error: CallboardError | None = None) -> None:
        """A condition holds, or, with an error, will not come to hold."""
        for waiter in self._conditions.pop((needs, target), ()):
            waiter.complete(error=error)

    def complete_waits(self, waits: Iterable[Wait], asker: AgentId, outcome: Outcome) -> None:
        """End open waits with a question of one whom they wait for, or who stands below such (REE-2)."""
        for wait in waits:
            if wait not in self._waiting:
                self._asked[wait] = outcome
            for waiter in self._waiting.get(wait, ()):
                if within(asker, waiter.target):
                    waiter.complete(outcome)

    def refuse(self, wait: Wait, error: CallboardError) -> None:
        """End an open wait that can never end otherwise."""
        for waiter in self._waiting.get(wait, ()):
            waiter.complete(error=error)

    def fail_all(self, error: CallboardError) -> None:
        """The supervisor stops: every wait that is left ends, and one that begins later ends at once."""
        self._over = error
        for table in (self._messages, self._runs):
            for waiters in table.values():
                for waiter in waiters:
                    waiter.complete(error=error)
        for waiters in self._conditions.values():
            for waiter in waiters:
                waiter.complete()


def _ended(waiters: tuple[Waiter, ...]) -> Taken:
    """How a wait ended. Raises the error that ended it."""
    for index, waiter in enumerate(waiters):
        if waiter.error is not None:
            raise waiter.error
        if waiter.outcome is not None:
            return index, waiter.outcome
    msg = f"a wait for {', '.join(waiter.target for waiter in waiters)} ended with neither outcome nor error"
    raise InternalError(msg)


def _drop(table: dict[_Key, Waiters], key: _Key, waiter: Waiter) -> None:
    """Take a waiter out of its list, which may have left its table already."""
    waiters = table.get(key)
    if waiters is not None and waiter in waiters:
        del waiters[waiter]
        if not waiters:
            del table[key]
