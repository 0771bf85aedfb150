"""What a commit means in this process: mailboxes, receipts and waits follow what the store says, in its order.

Memory changes after the commit that says so, and only here. While an agent is being read from the store, what commits
say of it is kept, and said once more of what was read: the read may be from before them, and saying it twice is the
same as saying it once (`mirrored`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final
from weakref import WeakValueDictionary

import attrs

from actors.actor import Actor
from actors.changes import Claim, Enqueue, Move, Operation, Placed, Shut, Value
from actors.happenings import Event, MessageAccepted, MessageDead, MessageHeld
from actors.ids import AgentId, MessageId
from actors.messages import Lane, Purpose, Queued, ReceiptState, skipped_of
from actors.poison import last_try
from actors.ref import Receipt

from .replies import Replies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.changes import Values
    from actors.ids import TurnId

    from .store.base import StoredAgent

SEEN: Final = frozenset({Claim, Enqueue, Move, Shut})
"""Operations that change what is in memory."""


@attrs.define(eq=False)
class _Told:
    """What commits said of an agent while it was being read."""

    operations: list[tuple[Operation, Value]] = attrs.field(factory=list)


@final
@attrs.define(eq=False, kw_only=True)
class Mirror:
    """Actors, receipts and waits, as the store has them.

    Invariants:
        MIRROR-1 a mailbox in memory changes only here, after the commit, or by a read of the store.
        MIRROR-2 what was told of an agent while it was being read is in force when it has been read.

    Attributes:
        actors: those in memory. receipts: those that somebody holds.
        tell: emits an event of an agent. mortal: called with an agent that may have got a message that expires.
        bring: called with an agent that has work and is not in memory.
        read: called with an agent of which the store has something that nobody told of (MAIL-3).
    """

    replies: Replies
    tell: Callable[[AgentId, type[Event], dict[str, object]], None]
    bring: Callable[[AgentId], None]
    read: Callable[[AgentId], None]
    mortal: Callable[[Actor], None] = attrs.field(init=False)
    gone: Callable[[AgentId, tuple[MessageId, ...]], None] = attrs.field(init=False)
    """Called with messages of which no commit here has said that they left a mailbox, and that wait there no more."""
    actors: dict[AgentId, Actor] = attrs.field(factory=dict, init=False)
    receipts: WeakValueDictionary[MessageId, Receipt] = attrs.field(factory=WeakValueDictionary, init=False)
    _readings: dict[AgentId, list[_Told]] = attrs.field(factory=dict, init=False)

    @contextmanager
    def reading(self, agent: AgentId) -> Iterator[Callable[[Actor], None]]:
        """Keep what is told of an agent while it is read; what is given says it of the actor, once it has been."""
        told = _Told()
        readings = self._readings.setdefault(agent, [])
        readings.append(told)

        def catch_up(actor: Actor) -> None:
            for operation, value in told.operations:
                mirrored(actor, operation, value)

        try:
            yield catch_up
        finally:
            readings.remove(told)
            if not readings:
                self._readings.pop(agent, None)

    def reread(self, actor: Actor, stored: StoredAgent, catch_up: Callable[[Actor], None]) -> tuple[Queued, ...]:
        """Take intake and messages from what was read, and from what was told meanwhile (`reading`).

        Returns:
            The messages that nobody told of here.
        """
        before = actor.mailbox.waiting
        found = actor.mailbox.reload(stored.queued, stored.seq + 1)
        actor.intake, actor.behind = stored.intake, False
        catch_up(actor)
        if before:
            left = {queued.envelope.id for queued in actor.mailbox.waiting}
            gone = tuple([queued.envelope.id for queued in before if queued.envelope.id not in left])
            if gone:
                self.gone(actor.path, gone)
        return found

    def doubted(self, agent: AgentId) -> None:
        """Nothing tells whether what was to change an agent's mailbox was written: it is read (ACC-8)."""
        actor = self.actors.get(agent)
        if actor is not None:
            actor.behind = True
            self.read(agent)

    def apply(self, operations: tuple[Operation, ...], values: Values) -> None:
        """Make what was committed true in memory."""
        for operation, value in zip(operations, values, strict=True):
            if type(operation) in SEEN:
                self._apply(operation, value)

    def _apply(self, operation: Operation, value: Value) -> None:
        match operation:
            case Claim(agent=agent, messages=messages, turn=turn, reason=reason):
                actor = self._mirror(agent, operation, value)
                self.ended(messages, ReceiptState.CONSUMED, turn=turn, reason=reason)
                if actor is not None and actor.loop is not None:
                    self.replies.claimed(messages, turn)
            case Enqueue(envelope=envelope):
                if isinstance(value, Placed) and not value.again:
                    self._arrived(operation, Queued(value.seq, envelope), value)
            case Move(agent=agent, to=to, reason=reason):
                self._moved(operation, self._mirror(agent, operation, value), _ids(value), to, reason)
            case Shut(agent=agent):
                self._mirror(agent, operation, value)
            case _:
                pass

    def _mirror(self, agent: AgentId, operation: Operation, value: Value) -> Actor | None:
        """Change the actor, if there is one; while it is being read, remember that it has to be changed."""
        if self._readings:
            for told in self._readings.get(agent, ()):
                told.operations.append((operation, value))
        actor = self.actors.get(agent)
        if actor is not None:
            mirrored(actor, operation, value)
        return actor

    def ended(
        self,
        messages: tuple[MessageId, ...],
        state: ReceiptState,
        *,
        turn: TurnId | None = None,
        reason: str | None = None,
    ) -> None:
        """Messages have come to their end: the receipts that somebody holds say so."""
        for message in messages:
            receipt = self.receipts.get(message)
            if receipt is not None:
                receipt.turn = turn or receipt.turn
                receipt.reason, receipt.skipped = reason, skipped_of(reason)
                receipt.decide(state)

    def _moved(
        self, move: Move, actor: Actor | None, messages: tuple[MessageId, ...], to: ReceiptState, reason: str | None
    ) -> None:
        if to.final:
            self.ended(messages, to, reason=reason)
            if to is ReceiptState.DEAD:
                for message in messages:
                    self.tell(move.agent, MessageDead, {"message": message, "reason": reason or ""})
            return
        for message in messages:
            receipt = self.receipts.get(message)
            if receipt is not None:
                receipt.turn, receipt.reason, receipt.skipped = None, None, ()
                receipt.decide(to)
            if to is ReceiptState.HELD:
                self.tell(move.agent, MessageHeld, {"message": message})
        if actor is not None and to is ReceiptState.QUEUED:
            self.replies.claimed(messages, None)
            actor.wake()

    def _arrived(self, operation: Operation, queued: Queued, value: Value) -> None:
        """A message is durable: its agent has it, or is read in to have it (ACC-8)."""
        envelope = queued.envelope
        self._told(queued)
        actor = self._mirror(envelope.to, operation, value)
        if actor is None:
            self.bring(envelope.to)
            return
        if actor.mailbox.gap and envelope.to not in self._readings:
            self.read(envelope.to)
        self._signal(actor, queued)

    def discovered(self, actor: Actor, queued: Queued) -> None:
        """A message that another process sent is in the actor's mailbox: it does what it would do if sent here."""
        self._told(queued)
        self._signal(actor, queued)

    def _told(self, queued: Queued) -> None:
        envelope = queued.envelope
        if envelope.lane is not Lane.CONTROL:
            values: dict[str, object] = {"message": envelope.id, "lane": envelope.lane.value, "sender": envelope.sender}
            self.tell(envelope.to, MessageAccepted, values)

    def _signal(self, actor: Actor, queued: Queued) -> None:
        """What a message does beside standing in its lane: it wakes, and some act on a turn that runs."""
        envelope = queued.envelope
        actor.arrived(queued)
        if envelope.expires_ms is not None:
            self.mortal(actor)
        loop = actor.loop
        if loop is None:
            return
        if envelope.purpose is Purpose.ABORT:
            loop.cut(envelope.reason or "aborted", lambda: _aborts(actor))
        elif envelope.purpose is Purpose.DECISION:
            loop.decide((queued,))
        elif envelope.purpose is Purpose.PAUSE:
            loop.suspend()
        elif envelope.interrupt and not last_try(loop.row, actor.agent.limits.poison_limit):
            loop.cut(None, tuple)


def mirrored(actor: Actor, operation: Operation, value: Value) -> None:
    """Change an actor as a commit changed its agent; said again, it changes nothing more."""
    mailbox = actor.mailbox
    match operation:
        case Claim(messages=messages):
            mailbox.remove(messages)
        case Enqueue(envelope=envelope):
            assert isinstance(value, Placed), "Enqueue returns the place"
            mailbox.add(Queued(value.seq, envelope))
            actor.behind = actor.behind or mailbox.gap
        case Move(to=to):
            messages = _ids(value)
            if to.final:
                mailbox.remove(messages)
            elif to is ReceiptState.HELD:
                mailbox.hold(messages)
            else:
                mailbox.release(messages)
                actor.behind = actor.behind or not all(mailbox.has(message) for message in messages)
        case Shut(to=to):
            actor.intake = to
        case _:
            pass


def _ids(value: Value) -> tuple[MessageId, ...]:
    return value if isinstance(value, tuple) else ()


def _aborts(actor: Actor) -> tuple[Queued, ...]:
    return tuple(queued for queued in actor.mailbox.orders if queued.envelope.purpose is Purpose.ABORT)
