"""Who waits for what: for the reply to a message, the end of a run, idleness, an unwinding, a close.

Every wait is checked in the graph before it begins (REE-2), and ends by its condition, by an error, or by
cancellation; whichever it is, its edge is gone when it returns. A wait that another completes (`needs_input`) ends
like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

from actors.errors import CallboardError, InternalError
from actors.waiting import Need

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from actors.frames import Frames
    from actors.ids import AgentId, MessageId, TurnId
    from actors.messages import Outcome
    from actors.waiting import Wait

    from .waits import WaitGraph


@final
class Waiter:
    """One wait of one task. `outcome` or `error` is set when it is done; neither is for a bare condition."""

    __slots__ = ("done", "error", "outcome", "wait")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.outcome: Outcome | None = None
        self.error: CallboardError | None = None
        self.wait: Wait | None = None

    def complete(self, outcome: Outcome | None = None, error: CallboardError | None = None) -> None:
        """End the wait; the first end counts."""
        if not self.done.is_set():
            self.outcome, self.error = outcome, error
            self.done.set()


@final
class Replies:
    """The open waits of this process.

    Invariants:
        REPLY-1 a waiter is registered under one condition, from before it waits until it returns.
        REPLY-2 an outcome reaches every waiter of the messages that its turn consumed, also one that began to wait
            behind the claim.
    """

    def __init__(self, graph: WaitGraph, frames: Frames) -> None:
        self._graph = graph
        self._frames = frames
        self._messages: dict[MessageId, list[Waiter]] = {}
        self._consumed: dict[TurnId, list[MessageId]] = {}
        self._runs: dict[AgentId, list[Waiter]] = {}
        self._conditions: dict[tuple[Need, AgentId], list[Waiter]] = {}
        self._over: CallboardError | None = None

    # -- waiting ---------------------------------------------------------------------------------------------------

    async def wait_message(
        self, message: MessageId, target: AgentId, find: Callable[[], Awaitable[Outcome | None]]
    ) -> Outcome:
        """Wait for the reply to a message. `find`: reads one that is there; asked once this would hear of a new one."""
        return await self._wait_outcome(self._messages.setdefault(message, []), target, find)

    async def wait_run(self, target: AgentId) -> Outcome:
        """Wait for the end of the run in progress."""
        return await self._wait_outcome(self._runs.setdefault(target, []), target)

    async def _wait_outcome(
        self, waiters: list[Waiter], target: AgentId, find: Callable[[], Awaitable[Outcome | None]] | None = None
    ) -> Outcome:
        waiter = Waiter()
        await self._wait(waiter, waiters, target, Need.LOOP, find=find)
        if waiter.outcome is None:
            msg = f"a reply of {target} ended with neither outcome nor error"
            raise InternalError(msg)
        return waiter.outcome

    async def wait_condition(self, target: AgentId, needs: Need) -> None:
        """Wait until `fulfil` is called for this target and need: LOOP is idleness, STEP a compaction."""
        await self._wait(Waiter(), self._conditions.setdefault((needs, target), []), target, needs)

    async def _wait(
        self,
        waiter: Waiter,
        waiters: list[Waiter],
        target: AgentId,
        needs: Need,
        *,
        find: Callable[[], Awaitable[Outcome | None]] | None = None,
    ) -> None:
        frame = self._frames.current_owner()
        if frame is not None:
            waiter.wait = self._graph.begin(frame, (target,), needs=needs)
        waiters.append(waiter)
        try:
            found = None if find is None else await find()
            if found is not None or self._over is not None:
                waiter.complete(found, self._over if found is None else None)
            await waiter.done.wait()
        finally:
            waiters.remove(waiter)  # the list may have left its table already
            if waiter.wait is not None:
                self._graph.end(waiter.wait)
        if waiter.error is not None:
            raise waiter.error

    def check(self, target: AgentId, needs: Need = Need.LOOP) -> None:
        """Refuse a wait that could never end, before anything is sent. Raises `WaitCycle`."""
        frame = self._frames.current_owner()
        if frame is not None:
            self._graph.end(self._graph.begin(frame, (target,), needs=needs))

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
        lists = [self._messages.get(message, []) for message in messages]
        for waiters in (*lists, self._runs.get(outcome.path, [])):
            for waiter in waiters:
                if inside or waiter.wait is None:
                    waiter.complete(outcome)

    def run_over(self, outcome: Outcome) -> None:
        """A run ended: all who wait for it hear its last outcome."""
        for waiter in self._runs.pop(outcome.path, ()):
            waiter.complete(outcome)

    def reply(self, message: MessageId, outcome: Outcome) -> None:
        """Answer a message."""
        for waiter in self._messages.pop(message, ()):
            waiter.complete(outcome)

    def fail_message(self, message: MessageId, error: CallboardError) -> None:
        """A message will have no reply."""
        for waiter in self._messages.pop(message, ()):
            waiter.complete(error=error)

    def fail_agent(self, agent: AgentId, messages: Iterable[MessageId], error: CallboardError) -> None:
        """An agent stopped here without an outcome: whoever waits for it hears why."""
        for message in messages:
            self.fail_message(message, error)
        for waiter in self._runs.pop(agent, ()):
            waiter.complete(error=error)

    def fulfil(self, target: AgentId, needs: Need, error: CallboardError | None = None) -> None:
        """A condition holds, or, with an error, will not come to hold."""
        for waiter in self._conditions.pop((needs, target), ()):
            waiter.complete(error=error)

    def complete_wait(self, wait: Wait, outcome: Outcome) -> bool:
        """End the waiter of an open wait with an outcome of another's making (REE-2). Returns whether it was found."""
        for waiters in (*self._messages.values(), *self._runs.values()):
            for waiter in waiters:
                if waiter.wait is wait:
                    waiter.complete(outcome)
                    return True
        return False

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
