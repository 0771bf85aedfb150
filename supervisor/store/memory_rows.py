"""What a memory store keeps of an agent and of a message."""

from __future__ import annotations

import attrs

from actors.changes import AgentRow, Intake
from actors.ids import AgentId, MessageId, TurnId
from actors.messages import Envelope, Lane, ReceiptState
from actors.transcript import Record


@attrs.define(eq=False)
class Message:
    """A message and where it is."""

    seq: int
    envelope: Envelope
    size: int
    state: ReceiptState = ReceiptState.QUEUED
    turn: TurnId | None = None
    reason: str | None = None
    at: float | None = None


@attrs.define(eq=False)
class LaneCount:
    """What a lane holds, reserved places left out (STORE-3)."""

    depth: int = 0
    size: int = 0


@attrs.define(eq=False)
class Agent:
    """What is kept for one agent."""

    row: AgentRow
    intake: Intake = Intake.OPEN
    queued: int = 0
    records: list[Record] = attrs.Factory(list)
    messages: list[Message] = attrs.Factory(list)
    waiting: dict[MessageId, Message] = attrs.Factory(dict)
    control: LaneCount = attrs.Factory(LaneCount)
    steer: LaneCount = attrs.Factory(LaneCount)
    send: LaneCount = attrs.Factory(LaneCount)

    def lane(self, lane: Lane) -> LaneCount:
        """The counts of a lane; by identity, which is faster than a table keyed by an enum."""
        if lane is Lane.SEND:
            return self.send
        return self.steer if lane is Lane.STEER else self.control

    def waiting_of(self, sender: AgentId | None, lane: Lane) -> int:
        """How many messages of a sender wait in a lane, reserved places left out."""
        envelopes = [message.envelope for message in self.waiting.values()]
        return sum(one.sender == sender and one.lane is lane and not one.reserved for one in envelopes)
