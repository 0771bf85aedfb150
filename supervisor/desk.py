"""What handles and receipts ask of the supervisor: one verb each, carried to the part that does it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from actors.changes import Enqueue, Move
from actors.content import text_of
from actors.errors import NotCompacted, UsageError
from actors.ids import MessageId, tree_of, turn_id
from actors.messages import Envelope, Lane, LaneBound, Purpose, ReceiptState, Status
from actors.parking import APPROVAL, PAUSED
from actors.reports import Report, report_of
from actors.waiting import Need

from .letters import dead_error
from .reading import Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.actor import Actor
    from actors.changes import Operation
    from actors.ids import AgentId, CallId
    from actors.letters import Letter
    from actors.messages import Outcome
    from actors.ref import Receipt


_STAY: Final = frozenset({APPROVAL, PAUSED})
"""Reasons to be suspended that `wake` does not end by itself."""


@final
class SupervisorDesk(Reading):
    """The verbs of handles and receipts."""

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
            self._parts.replies.fail_message(receipt.id, UsageError(f"{receipt.id} was withdrawn"))
        return taken

    async def ask(self, path: AgentId, letter: Letter, timeout_s: float | None) -> Report:
        """Send, and wait for the reply; an ancestor that waits for us is asked through its wait (REE-2)."""
        if timeout_s is None:
            return await self._ask(path, letter)
        with trio.fail_after(timeout_s):
            return await self._ask(path, letter)

    async def _ask(self, path: AgentId, letter: Letter) -> Report:
        parts = self._parts
        frame = parts.frames.current_owner()
        if frame is not None:
            wait = parts.graph.ancestor_wait(frame.agent, path)
            if wait is not None:
                text = text_of(letter.content)
                return self.report(await parts.children.ask_upward(frame.agent, path, text, wait))
            parts.replies.check(path)
        (receipt,) = await parts.post.send(path, (letter,))
        return await self.wait_reply(receipt)

    async def wait_reply(self, receipt: Receipt) -> Report:
        """The reply to a message."""
        parts = self._parts
        if receipt.state is ReceiptState.WITHDRAWN:
            msg = f"{receipt.id} was withdrawn; it has no report"
            raise UsageError(msg)
        return self.report(
            await parts.replies.wait_message(receipt.id, receipt.path, partial(self._stored_reply, receipt))
        )

    async def _stored_reply(self, receipt: Receipt) -> Outcome | None:
        """The reply where its turn has ended already; read from the store, so that it outlives everything (ACC-9)."""
        actor = self._parts.kernel.actors.get(receipt.path)
        if actor is not None and actor.mailbox.has(receipt.id):
            return self._told(actor)
        store = self._parts.kernel.store
        view = await store.message_state(receipt.id)
        row = None if view is None or view.turn is None else await store.outcome(view.turn)
        if row is not None:
            return row.outcome
        if view is not None and view.state is ReceiptState.DEAD:
            raise dead_error(receipt.id, receipt.path, view.reason or "")
        if view is None or view.turn is None:
            return None
        return None if actor is None else self._told(actor)

    def _told(self, actor: Actor) -> Outcome | None:
        """What whoever begins to wait for an agent that owes an answer is told at once; None where it should wait.

        Raises:
            CallboardError: it stopped here, and nothing will move it on but `wake`, `grant` or `resume`.
        """
        told = self._parts.standing.outcome(actor.path)
        if told is not None:
            return told
        stopped = self._parts.lives[actor.path].stopped(actor)
        if stopped is None:
            return None
        last = actor.last
        if actor.suspended == "budget" and last is not None and last.status is Status.PARKED:
            return last
        raise stopped

    # -- waiting ---------------------------------------------------------------------------------------------------

    async def wait_report(self, path: AgentId) -> Report:
        """The report of the run in progress, else the last one's."""
        parts = self._parts
        actor = await parts.kernel.resident(path)
        if actor.owes or actor.active:
            told = self._told(actor)
            if told is None:
                return self.report(await parts.replies.wait_run(path))
            await trio.lowlevel.checkpoint()
            return self.report(told)
        if actor.last is not None:
            await trio.lowlevel.checkpoint()
            return self.report(actor.last)
        row = await parts.kernel.store.outcome(turn_id(path, actor.row.turns)) if actor.row.turns else None
        if row is None:
            msg = f"{path} never had a run: send() it something first"
            raise UsageError(msg)
        return self.report(row.outcome)

    async def wait_idle(self, path: AgentId) -> None:
        """No turn runs and none is requested."""
        actor = await self._parts.kernel.resident(path)
        if actor.active or actor.owes:
            stopped = self._parts.lives[path].stopped(actor)
            if stopped is not None:
                raise stopped
            await self._parts.replies.wait_condition(path, Need.LOOP)
        else:
            await trio.lowlevel.checkpoint()

    def report(self, outcome: Outcome) -> Report:
        """An outcome as people read it."""
        output: object = None
        if outcome.output is not None and outcome.output_type is not None:
            actor = self._parts.kernel.actors.get(outcome.path)
            spec = self._parts.output(outcome.output_type, None if actor is None else actor.agent)
            read = None if spec is None else spec.read(outcome.output)
            output = getattr(read, "value", None) if read is not None else None
        question = outcome.question
        answer = partial(self._parts.children.answer, question.id if question is not None else MessageId(""))
        return report_of(outcome, output, answer)

    # -- ending ----------------------------------------------------------------------------------------------------

    async def abort(self, path: AgentId, reason: str, *, subtree: bool) -> None:
        """End the turn in progress."""
        await self._parts.kernel.resident(path)
        await self._parts.stopping.abort(path, reason, subtree=subtree)

    async def wait_aborted(self, path: AgentId) -> None:
        """Until it has unwound."""
        await self._parts.stopping.wait_aborted(path)

    async def compact(self, path: AgentId) -> None:
        """Have it compacted at its next boundary."""
        actor = await self._parts.kernel.resident(path)
        actor.compact()

    async def wait_compacted(self, path: AgentId) -> None:
        """Until that is done, or came to nothing."""
        actor = await self._parts.kernel.resident(path)
        if actor.compacting:
            await self._parts.replies.wait_condition(path, Need.STEP)
        elif actor.not_compacted is not None:
            raise NotCompacted(actor.not_compacted)
        else:
            await trio.lowlevel.checkpoint()

    async def close(self, path: AgentId, grace_s: float | None) -> None:
        """Begin a close."""
        await self._parts.closing.close(path, grace_s)

    async def wait_closed(self, path: AgentId) -> None:
        """Until it is closed."""
        await self._parts.closing.wait_closed(path)

    async def kill(self, path: AgentId, reason: str) -> None:
        """End it at once."""
        await self._parts.closing.kill(path, reason)

    async def wake(self, path: AgentId) -> None:
        """Queue held messages again."""
        actor = await self._parts.kernel.resident(path)
        if actor.suspended is not None and actor.suspended not in _STAY:
            actor.suspended = None
        operations: tuple[Operation, ...] = (Move(path, (ReceiptState.HELD,), ReceiptState.QUEUED),)
        if actor.suspended == PAUSED or any(q.envelope.purpose is Purpose.PAUSE for q in actor.mailbox.orders):
            operations = (*operations, self._order(path, Purpose.WAKE))
        await self._parts.kernel.commit(tree_of(path), operations, fenced=False)
        actor.wake()
        self._parts.standing.look(path)

    async def pause(self, path: AgentId) -> None:
        """Stop it at the next step boundary, until it is woken."""
        await self._parts.kernel.resident(path)
        await self._parts.kernel.commit(tree_of(path), (self._order(path, Purpose.PAUSE),), fenced=False)

    def _order(self, path: AgentId, purpose: Purpose) -> Enqueue:
        message = self._parts.kernel.new_message_id()
        return Enqueue(Envelope(message, path, Lane.CONTROL, (), purpose=purpose, reserved=True), LaneBound())

    def cancel_call(self, path: AgentId, call: CallId, reason: str) -> None:
        """Cancel one running call."""
        life = self._parts.lives.get(path)
        if life is None:
            msg = f"{path} has no running call {call!r}: it is not running here"
            raise UsageError(msg)
        life.calls.cancel(call, reason)
