"""A mailbox in memory: what an agent's loop sees of its three lanes, in order of acceptance.

The store is the authority; this is its mirror in the process that owns the tree. It changes only after the commit
that changed the store, and decides one thing: which messages the next request takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

from .messages import Lane, Queued, ReceiptState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .agent import Drain
    from .ids import MessageId


@attrs.frozen
class MailboxStatistics:
    """How many messages wait, per lane; held ones are counted in their lane too."""

    control: int
    steer: int
    send: int
    held: int


@final
class Mailbox:
    """The waiting messages of one agent.

    Invariants:
        MAIL-1 each lane is sorted by seq. MAIL-2 every message in it is queued or held; control is never held.
    """

    __slots__ = ("_held", "_lanes")

    def __init__(self, waiting: Iterable[Queued] = ()) -> None:
        self._lanes: dict[Lane, list[Queued]] = {Lane.CONTROL: [], Lane.STEER: [], Lane.SEND: []}
        self._held: set[MessageId] = set()
        for queued in waiting:
            self.add(queued)

    def add(self, queued: Queued) -> None:
        """Put an accepted message in its lane; commits of many senders may be told out of order (MAIL-1)."""
        lane = self._lanes[queued.envelope.lane]
        if queued.state is ReceiptState.HELD:
            self._held.add(queued.envelope.id)
        index = len(lane)
        while index and lane[index - 1].seq > queued.seq:
            index -= 1
        lane.insert(index, queued)

    def remove(self, messages: Iterable[MessageId]) -> None:
        """Forget messages that were claimed, withdrawn or declared dead."""
        gone = set(messages)
        self._held -= gone
        for lane, waiting in self._lanes.items():
            if waiting and any(queued.envelope.id in gone for queued in waiting):
                self._lanes[lane] = [queued for queued in waiting if queued.envelope.id not in gone]

    def hold(self, messages: Iterable[MessageId]) -> None:
        """Mark messages as held by an abort (ABT-4)."""
        self._held.update(messages)

    def release(self) -> tuple[MessageId, ...]:
        """Mark every held message as queued again; returns which."""
        held = tuple(sorted(self._held))
        self._held.clear()
        return held

    def has(self, message: MessageId) -> bool:
        """Whether a message waits here."""
        return any(queued.envelope.id == message for lane in _LANES for queued in self._lanes[lane])

    @property
    def wants_turn(self) -> bool:
        """Whether a turn is requested: something waits that no abort holds."""
        return any(queued.envelope.id not in self._held for lane in _LANES for queued in self._lanes[lane])

    @property
    def control(self) -> tuple[Queued, ...]:
        """What waits in the control lane."""
        return tuple(self._lanes[Lane.CONTROL])

    @property
    def waiting(self) -> tuple[Queued, ...]:
        """Everything in the steer and send lanes, held or not, in order of acceptance."""
        return tuple(sorted((q for lane in _LANES for q in self._lanes[lane]), key=lambda queued: queued.seq))

    def choose(self, drain: Drain, *, sends: bool) -> tuple[Queued, ...]:
        """What the next request takes: steering first; sends only where nothing is owed (CON-1, CON-2).

        Held messages come along, in their order, once a turn runs at all. A message that owes an answer of a type of
        its own is taken alone.
        """
        steers = self._lanes[Lane.STEER]
        if steers:
            return tuple(steers) if drain.steer == "all" else (steers[0],)
        waiting = self._lanes[Lane.SEND]
        if not sends or not waiting:
            return ()
        if drain.send == "one" or waiting[0].envelope.output is not None:
            return (waiting[0],)
        taken = []
        for queued in waiting:
            if queued.envelope.output is not None:
                break
            taken.append(queued)
        return tuple(taken)

    def statistics(self) -> MailboxStatistics:
        """How many wait."""
        lanes = self._lanes
        return MailboxStatistics(
            len(lanes[Lane.CONTROL]), len(lanes[Lane.STEER]), len(lanes[Lane.SEND]), len(self._held)
        )

    def __repr__(self) -> str:
        return f"<Mailbox {self.statistics()}>"


_LANES: Final = (Lane.STEER, Lane.SEND)
