"""What handles and receipts ask of the supervisor: one verb each, carried to the part that does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from actors.actor import may_be_paused
from actors.changes import Enqueue, Move
from actors.content import check_text
from actors.errors import Fenced, NotCompacted, OwnedElsewhere, UsageError
from actors.ids import tree_of
from actors.letters import MAX_TTL_S
from actors.messages import Envelope, Lane, LaneBound, Purpose, ReceiptState
from actors.parking import APPROVAL, PAUSED
from actors.waiting import Need

from .reading import Reading
from .remote import Remote

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from actors.changes import Operation
    from actors.ids import AgentId, CallId
    from actors.letters import Letter
    from actors.messages import Outcome
    from actors.ref import AgentRef, Receipt
    from actors.reports import Report

    from .parts import Parts

_STAY: Final = frozenset({APPROVAL, PAUSED})
"""Reasons to be suspended that `wake` does not end by itself."""


@final
class SupervisorDesk(Reading):
    """The verbs of handles and receipts."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._remote = Remote(parts)

    # -- messages --------------------------------------------------------------------------------------------------

    async def send(self, path: AgentId, letters: Sequence[Letter]) -> tuple[Receipt, ...]:
        """Accept messages."""
        return await self._parts.post.send(path, letters)

    def post(self, path: AgentId, letter: Letter) -> Receipt:
        """Accept a message, later."""
        return self._parts.post.post(path, letter)

    async def withdraw(self, receipt: Receipt) -> bool:
        """Take a message back."""
        taken = await self._parts.post.withdraw(receipt)
        if taken:
            self._parts.replies.reply(receipt.id, error=UsageError(f"{receipt.id} was withdrawn"))
        return taken

    async def ask(self, path: AgentId, letter: Letter, timeout_s: float | None) -> Report:
        """Send, and wait for the reply."""
        self._parts.staging.may_not_wait("ask")
        _check_seconds("timeout=", timeout_s)
        return await self._parts.awaiting.ask(path, letter, timeout_s)

    # -- waiting ---------------------------------------------------------------------------------------------------

    async def wait_any(self, waited: Sequence[AgentRef | Receipt]) -> tuple[int, Report]:
        """The first report of several."""
        self._parts.staging.may_not_wait("wait for a report")
        return await self._parts.awaiting.wait_any(waited)

    async def wait_idle(self, path: AgentId) -> None:
        """No turn runs and none is requested."""
        self._parts.staging.may_not_wait("wait_idle")
        actor = await self._remote.here(path)
        if actor is None:
            await self._remote.until_idle(path)
        elif actor.active or actor.owes:
            stopped = self._parts.lives[path].stopped(actor)
            if stopped is not None:
                raise stopped
            await self._or(self._parts.replies.wait_condition(path, Need.IDLE), self._remote.until_idle, path)
        else:
            await trio.lowlevel.checkpoint()

    async def _or(self, wait: Awaitable[None], elsewhere: Callable[[AgentId], Awaitable[None]], path: AgentId) -> None:
        """Wait here; where the tree is lost meanwhile, for what its next owner brings about."""
        try:
            await wait
        except OwnedElsewhere:
            await elsewhere(path)

    def report(self, outcome: Outcome) -> Report:
        """An outcome as people read it."""
        return self._parts.awaiting.report(outcome)

    # -- ending ----------------------------------------------------------------------------------------------------

    async def abort(self, path: AgentId, reason: str, *, subtree: bool) -> None:
        """End the turn in progress."""
        _check_reason(reason)
        if await self._remote.here(path) is None:
            await self._remote.abort(path, reason, subtree=subtree)
        else:
            await self._parts.stopping.abort(path, reason, subtree=subtree)

    async def wait_aborted(self, path: AgentId) -> None:
        """Until it has unwound."""
        self._parts.staging.may_not_wait("wait_aborted")
        if await self._remote.here(path) is None:
            await self._remote.until_unwound(path)
        else:
            await self._or(self._parts.stopping.wait_aborted(path), self._remote.until_unwound, path)

    async def compact(self, path: AgentId) -> None:
        """Have it compacted at its next boundary."""
        actor = await self._parts.kernel.resident(path)
        actor.compact()

    async def wait_compacted(self, path: AgentId) -> None:
        """Until that is done, or came to nothing."""
        self._parts.staging.may_not_wait("wait_compacted")
        actor = await self._parts.kernel.resident(path)
        if actor.compacting:
            await self._parts.replies.wait_condition(path, Need.STEP)
        elif actor.not_compacted is not None:
            raise NotCompacted(actor.not_compacted)
        else:
            await trio.lowlevel.checkpoint()

    async def close(self, path: AgentId, grace_s: float | None) -> None:
        """Begin a close."""
        _check_seconds("grace=", grace_s)
        if await self._remote.here(path, stand_in=True) is None:
            await self._remote.end(path, Purpose.CLOSE, "closed")
        else:
            await self._parts.closing.close(path, grace_s)

    async def wait_closed(self, path: AgentId) -> None:
        """Until it is closed."""
        self._parts.staging.may_not_wait("wait_closed")
        if await self._remote.here(path, stand_in=True) is None:
            await self._remote.until_closed(path)
        else:
            await self._or(self._parts.closing.wait_closed(path), self._remote.until_closed, path)

    async def kill(self, path: AgentId, reason: str) -> None:
        """End it at once."""
        _check_reason(reason)
        if await self._remote.here(path, stand_in=True) is None:
            await self._remote.end(path, Purpose.KILL, reason)
        else:
            await self._parts.closing.kill(path, reason)

    async def wake(self, path: AgentId) -> None:
        """Queue held messages again."""
        actor = await self._remote.here(path)
        if actor is None:
            await self._remote.order(path, Purpose.WAKE, Move(path, (ReceiptState.HELD,), ReceiptState.QUEUED))
            return
        if actor.suspended is not None and actor.suspended not in _STAY:
            actor.suspended = None
        operations: tuple[Operation, ...] = (Move(path, (ReceiptState.HELD,), ReceiptState.QUEUED),)
        if may_be_paused(actor):
            operations = (*operations, self._order(path, Purpose.WAKE))
        try:  # as its owner: of messages that only moved no other would hear
            await self._parts.kernel.commit(tree_of(path), operations)
        except Fenced:
            await self.wake(path)  # another has it, and is told
            return
        actor.wake()
        self._parts.standing.look(path)

    async def pause(self, path: AgentId) -> None:
        """Stop it at the next step boundary, until it is woken."""
        if await self._remote.here(path) is None:
            await self._remote.order(path, Purpose.PAUSE)
            return
        await self._parts.kernel.commit(tree_of(path), (self._order(path, Purpose.PAUSE),), fenced=False)

    def _order(self, path: AgentId, purpose: Purpose) -> Enqueue:
        message = self._parts.kernel.new_message_id()
        return Enqueue(Envelope(message, path, Lane.CONTROL, (), purpose=purpose, reserved=True), LaneBound())

    def cancel_call(self, path: AgentId, call: CallId, reason: str) -> None:
        """Cancel one running call."""
        _check_reason(reason)
        life = self._parts.lives.get(path)
        if life is None or not isinstance(call, str):
            msg = f"{path} has no running call {call!r}: it is not running here"
            raise UsageError(msg)
        life.calls.cancel(call, reason)


def _check_seconds(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 <= value <= MAX_TTL_S):  # type: ignore[operator]  # a number
        raise UsageError(f"{name} is seconds from 0 to {MAX_TTL_S:.0f}, or None; got {value!r}")


def _check_reason(reason: object) -> None:
    if not isinstance(reason, str):
        raise UsageError(f"the reason is a text; got {reason!r}; of an exception pass its str()")
    check_text(reason, "the reason")
