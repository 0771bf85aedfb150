"""Dead letters, and receipts of messages that were sent long ago: what the store says of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from actors.changes import Enqueue, Intake, Move
from actors.errors import AgentClosed, Conflict, Fenced, UsageError
from actors.happenings import MessagePutBack
from actors.ids import AgentId, tree_of
from actors.messages import LaneBound, Purpose, ReceiptState, skipped_of
from actors.ref import Receipt

from .remote import Remote
from .stopping import control_message

if TYPE_CHECKING:
    from actors.changes import Operation
    from actors.ids import MessageId
    from actors.messages import DeadLetter

    from .parts import Parts


@final
class Letters:
    """What became of messages, and the way back for those that are dead (CON-6)."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._remote = Remote(parts)

    async def dead(self, path: AgentId | None) -> tuple[DeadLetter, ...]:
        """The dead letters of an agent and all below it; of the whole store where it is None."""
        return await self._parts.kernel.store.dead_letters(path)

    async def put_back(self, message: MessageId, by: str) -> Receipt:
        """Queue a dead letter again, at its old place; its receipts live again.

        Raises:
            UsageError: it is no dead letter. AgentClosed: its agent accepts nothing any more. StoreError.
        """
        kernel = self._parts.kernel
        view = await kernel.store.message_state(message)
        if view is None or view.state is not ReceiptState.DEAD:
            found = "in no store here" if view is None else view.state.value
            msg = f"{message} is no dead letter: it is {found}; dead_letters() lists those that can be put back"
            raise UsageError(msg)
        path = view.agent
        actor = await self._remote.here(path)
        intake = (await self._remote.stored(path)).intake if actor is None else actor.intake
        if intake is not Intake.OPEN:
            msg = f"{path} is {intake.value}; send what {message} says to another agent"
            raise AgentClosed(msg, message)
        operations: tuple[Operation, ...] = (
            Move(path, (ReceiptState.DEAD,), ReceiptState.QUEUED, (message,), f"put back by {by}"),
        )
        if actor is None:  # its owner tells of it, once it has looked
            was = " ".join((view.reason or "").split())  # in one line: by whom stands behind it
            order = control_message(self._parts, path, Purpose.PUT_BACK, f"{was}\n{by}", target=message)
            operations = (*operations, Enqueue(order, LaneBound()))

        def told() -> None:
            if actor is not None:
                kernel.tell(path, MessagePutBack, {"message": message, "by": by, "reason": view.reason or ""})

        try:
            await kernel.commit(tree_of(path), operations, fenced=actor is not None, first=told)
        except Fenced:
            return await self.put_back(message, by)  # another has its tree by now, and is told
        except Conflict as error:
            msg = f"{message} is no dead letter any more: {error}"
            raise UsageError(msg) from error
        return await self.receipt(message)

    async def receipt(self, message: MessageId) -> Receipt:
        """A receipt of a message, whoever sent it and whenever (ACC-9).

        Raises:
            UsageError: the store has no such message. StoreError.
        """
        kernel = self._parts.kernel
        known = kernel.receipts.get(message)
        if known is not None and known.state is not ReceiptState.PENDING:
            return known
        made = Receipt(self._parts.desk, message, AgentId(""), ReceiptState.PENDING)
        if known is None:
            kernel.receipts[message] = made  # before we read: what becomes of the message meanwhile is not missed
        view = await kernel.store.message_state(message)
        if view is None:
            msg = f"there is no message {message!r} in this store: it was never accepted, or is not of this store"
            raise UsageError(msg)
        made.path = view.agent
        if made.state is ReceiptState.PENDING:
            made.turn, made.reason, made.skipped = view.turn, view.reason, skipped_of(view.reason)
            made.decide(view.state)
        return made
