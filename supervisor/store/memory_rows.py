"""What a memory store keeps of an agent and of a message."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import attrs
from msgspec import Struct, field

from actors.changes import FORGOTTEN, AgentRow, Forget, Intake, Shut
from actors.ids import AgentId, MessageId, TreeId, TurnId
from actors.messages import Envelope, Lane, LaneBound, ReceiptState
from actors.transcript import Record

from . import checks
from .crossing import Published
from .leases import OUSTED, REMEMBERED, Lease

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.errors import MailboxError

    Undo: TypeAlias = "list[tuple[Callable[..., None], tuple[object, ...]]]"

    from .leases import Holder


class Message(Struct, eq=False):
    """A message and where it is."""

    seq: int
    envelope: Envelope
    size: int
    state: ReceiptState = ReceiptState.QUEUED
    turn: TurnId | None = None
    reason: str | None = None
    at: float | None = None


class LaneCount(Struct, eq=False):
    """What a lane holds, reserved places left out (STORE-3)."""

    depth: int = 0
    size: int = 0


class Agent(Struct, eq=False):
    """What is kept for one agent. `places`: its records, and None where one was removed: the others keep theirs."""

    row: AgentRow
    intake: Intake = Intake.OPEN
    queued: int = 0
    places: list[Record | None] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    waiting: dict[MessageId, Message] = field(default_factory=dict)
    control: LaneCount = field(default_factory=LaneCount)
    steer: LaneCount = field(default_factory=LaneCount)
    send: LaneCount = field(default_factory=LaneCount)

    @property
    def records(self) -> list[Record]:
        """Those that are there."""
        return [record for record in self.places if record is not None]

    def forget(self, operation: Forget, undo: Undo) -> int:
        """Remove the oldest ones."""
        places, keep = self.places, frozenset(operation.keep)
        if operation.before >= len(places):
            raise checks.forgets_all(operation.agent, operation.before, len(places))
        oldest = [at for at in range(operation.before) if places[at] is not None and at not in keep][:FORGOTTEN]
        for at in oldest:
            undo.append((places.__setitem__, (at, places[at])))
            places[at] = None
        return len(oldest)

    def shut(self, operation: Shut, undo: Undo) -> bool:
        """Change its intake."""
        if not checks.shuts(self.intake, operation.to):
            return False
        if operation.to is Intake.CLOSED and self.ordered:
            raise checks.order_waits(operation.agent)
        undo.append((setattr, (self, "intake", self.intake)))
        self.intake = operation.to
        return True

    def lane(self, lane: Lane) -> LaneCount:
        """The counts of a lane; by identity, which is faster than a table keyed by an enum."""
        if lane is Lane.SEND:
            return self.send
        return self.steer if lane is Lane.STEER else self.control

    @property
    def ordered(self) -> bool:
        """Whether an order waits."""
        return any(message.envelope.lane is Lane.CONTROL for message in self.waiting.values())

    def waiting_of(self, sender: AgentId | None, lane: Lane) -> int:
        """How many messages of a sender wait in a lane, reserved places left out."""
        envelopes = [message.envelope for message in self.waiting.values()]
        return sum(one.sender == sender and one.lane is lane and not one.reserved for one in envelopes)

    def refusal(self, envelope: Envelope, bound: LaneBound) -> MailboxError | None:
        """Why a message is not accepted, or None."""
        lane = self.lane(envelope.lane)
        of_sender = partial(self.waiting_of, envelope.sender, envelope.lane)
        return checks.refusal(envelope, bound, self.intake, depth=lane.depth, size_bytes=lane.size, of_sender=of_sender)


@attrs.define(eq=False)
class Owners:
    """Who has which tree: `trees` by holder's id, `leases` and published `waits` by it.

    `lost`: of a tree the epochs that ended with a lease, each with its holder, or with "" where that has come back.
    """

    trees: dict[TreeId, str] = attrs.Factory(dict)
    leases: dict[str, Lease] = attrs.Factory(dict)
    waits: dict[str, tuple[Published, ...]] = attrs.Factory(dict)
    lost: dict[TreeId, dict[int, str]] = attrs.Factory(dict)

    def ousted(self, holder: Holder) -> bool:
        """Whether a tree was taken from a holder since it renewed its lease last."""
        lease = self.leases.get(holder.id)
        return lease is not None and lease.until == OUSTED

    def lease(self, tree: TreeId) -> Lease | None:
        """The lease of whoever had the tree last and has not given it back."""
        holder = self.trees.get(tree)
        lease = None if holder is None else self.leases.get(holder)
        return lease if lease is None or tree not in self.lost else attrs.evolve(lease, lived=self._lived(tree))

    def _lived(self, tree: TreeId) -> tuple[int, ...]:
        return tuple(epoch for epoch, holder in self.lost[tree].items() if not holder)

    def lose(self, tree: TreeId, epoch: int, holder: str) -> None:
        """A tree is taken from a holder whose lease is over."""
        lost = self.lost.setdefault(tree, {})
        lost.pop(epoch - REMEMBERED, None)
        lost[epoch] = holder

    def lives(self, holder: str) -> None:
        """A holder does something: it is not gone."""
        for lost in self.lost.values():
            lost.update({epoch: "" for epoch, whose in lost.items() if whose == holder})
