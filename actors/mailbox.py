"""A mailbox in memory: what an agent's loop sees of its three lanes, in order of acceptance.

The store is the authority; this is its mirror in the process that owns the tree. It changes only after the commit
that changed the store, and decides one thing: which messages the next request takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

from .messages import Lane, Purpose, Queued, ReceiptState

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

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
class Mortal:
    """The messages of a mailbox that have a time to live.

    Attributes:
        at_ms: when each expires, in milliseconds of the time of day.
        expired: those that have, and whose death is being written; they owe an answer until then (ACC-8).
    """

    __slots__ = ("at_ms", "expired")

    def __init__(self) -> None:
        self.at_ms: dict[MessageId, int] = {}
        self.expired: set[MessageId] = set()

    @property
    def next_ms(self) -> int | None:
        """When the next one expires; None where none does."""
        return min(self.at_ms.values()) if self.at_ms else None

    def expire(self, now_ms: int) -> tuple[MessageId, ...]:
        """Mark what has expired (MAIL-4); returns all that is marked."""
        self.expired.update(message for message, at in self.at_ms.items() if at <= now_ms)
        return tuple(sorted(self.expired))

    def forget(self, messages: Iterable[MessageId]) -> None:
        """These left the mailbox."""
        for message in messages:
            self.at_ms.pop(message, None)
            self.expired.discard(message)


@final
class Mailbox:
    """The waiting messages of one agent.

    Attributes:
        held: messages that an abort holds. mortal: those that have a time to live.
        next_seq: the one that is told next.

    Invariants:
        MAIL-1 each lane is sorted by seq. MAIL-2 every message in it is queued or held; control is never held.
        MAIL-3 seqs have no gaps: a message that is told behind one does not enter before the store was read, so none
            is lost and none overtakes (ACC-4). Control overtakes whatever waits.
        MAIL-4 a message that has expired is chosen by no request, and asks for no turn, while its death is written.
    """

    __slots__ = ("_ahead", "_lanes", "held", "mortal", "next_seq")

    def __init__(self, waiting: Iterable[Queued] = ()) -> None:
        self._lanes: dict[Lane, list[Queued]] = {Lane.CONTROL: [], Lane.STEER: [], Lane.SEND: []}
        self.held: set[MessageId] = set()
        self.mortal = Mortal()
        self.next_seq = 1
        self._ahead: set[int] = set()
        known = tuple(waiting)
        self.reload(known, max((queued.seq for queued in known), default=0) + 1)

    @property
    def gap(self) -> bool:
        """Whether the store has a message that nobody told of, and that must be read."""
        return bool(self._ahead)

    def reload(self, waiting: Iterable[Queued], next_seq: int) -> tuple[Queued, ...]:
        """Take the store's word for everything.

        Args:
            waiting: its messages that wait, in order.
            next_seq: the one that it gives next.

        Returns:
            Those of them that nobody told of here: other processes sent them.
        """
        told, ahead = self.next_seq, self._ahead
        self.held.clear()
        self.mortal = Mortal()
        for lane in self._lanes.values():
            lane.clear()
        unknown: list[Queued] = []
        for queued in waiting:
            self._place(queued)
            if queued.seq >= told and queued.seq not in ahead:
                unknown.append(queued)
        self.next_seq, self._ahead = next_seq, set()
        return tuple(unknown)

    def add(self, queued: Queued) -> None:
        """Take a message that was accepted; one that is not the next shows that one is missing (MAIL-3)."""
        seq, wanted = queued.seq, self.next_seq
        if seq < wanted:
            return  # it was read from the store before its commit was told here
        if seq > wanted:
            self._ahead.add(seq)
            if queued.envelope.lane is Lane.CONTROL:
                self._place(queued)
            return
        self._place(queued)
        self.next_seq = seq + 1

    def _place(self, queued: Queued) -> None:
        lane = self._lanes[queued.envelope.lane]
        envelope = queued.envelope
        if queued.state is ReceiptState.HELD:
            self.held.add(envelope.id)
        if envelope.expires_ms is not None:
            self.mortal.at_ms[envelope.id] = envelope.expires_ms
        index = len(lane)
        while index and lane[index - 1].seq > queued.seq:
            index -= 1
        lane.insert(index, queued)

    def remove(self, messages: Iterable[MessageId]) -> None:
        """Forget messages that were claimed, withdrawn or declared dead."""
        gone = set(messages)
        self.held -= gone
        if self.mortal.at_ms:
            self.mortal.forget(gone)
        for lane, waiting in self._lanes.items():
            if waiting:
                self._lanes[lane] = [queued for queued in waiting if queued.envelope.id not in gone]

    def hold(self, messages: Iterable[MessageId]) -> None:
        """Mark messages as held by an abort (ABT-4)."""
        self.held.update(messages)

    def release(self, messages: Iterable[MessageId]) -> None:
        """Mark messages as queued again."""
        self.held.difference_update(messages)

    def has(self, message: MessageId) -> bool:
        """Whether a message waits here."""
        return any(queued.envelope.id == message for lane in self._lanes.values() for queued in lane)

    @property
    def wants_turn(self) -> bool:
        """Whether a turn is requested: something waits that no abort holds."""
        lanes, idle = self._lanes, self.held
        if self.mortal.expired:
            idle = idle | self.mortal.expired
        if not idle:  # the usual case, asked several times a turn
            return bool(lanes[Lane.SEND] or lanes[Lane.STEER])
        return any(queued.envelope.id not in idle for lane in _LANES for queued in lanes[lane])

    @property
    def waits(self) -> int:
        """How many messages request a turn."""
        if not self.wants_turn:
            return 0
        idle = self.held | self.mortal.expired
        return sum(queued.envelope.id not in idle for lane in _LANES for queued in self._lanes[lane])

    @property
    def orders(self) -> tuple[Queued, ...]:
        """What the control lane holds but for decisions: what must be obeyed before any turn."""
        control = self._lanes[Lane.CONTROL]
        return tuple(q for q in control if q.envelope.purpose is not Purpose.DECISION) if control else ()

    @property
    def decisions(self) -> tuple[Queued, ...]:
        """The decisions that wait for a turn to carry them out (TOL-12)."""
        control = self._lanes[Lane.CONTROL]
        return tuple(q for q in control if q.envelope.purpose is Purpose.DECISION) if control else ()

    @property
    def interrupts(self) -> bool:
        """Whether a steer waits that is to interrupt (CON-7)."""
        steers = self._lanes[Lane.STEER]
        return any(q.envelope.interrupt and q.envelope.id not in self.held for q in steers)

    @property
    def waiting(self) -> tuple[Queued, ...]:
        """Everything in the steer and send lanes, held or not, in order of acceptance."""
        return tuple(sorted((q for lane in _LANES for q in self._lanes[lane]), key=lambda queued: queued.seq))

    def choose(self, drain: Drain, *, sends: bool, singly: Container[MessageId] = ()) -> tuple[Queued, ...]:
        """What the next request takes: steering first; sends only where nothing is owed (CON-1, CON-2).

        Held messages come along, in their order, once a turn runs at all. A message that owes an answer of a type of
        its own is taken alone, and so is one of `singly`, which is on its last try (CON-6).
        """
        steers = self._alive(Lane.STEER)
        if steers:
            return _from_head(steers, singly) if drain.steer == "all" else (steers[0],)
        if not sends:
            return ()
        waiting = self._alive(Lane.SEND)
        return _from_head(waiting, singly) if drain.send == "all" else tuple(waiting[:1])

    def _alive(self, lane: Lane) -> Sequence[Queued]:
        if not self.mortal.expired:
            return self._lanes[lane]
        return [queued for queued in self._lanes[lane] if queued.envelope.id not in self.mortal.expired]

    def statistics(self) -> MailboxStatistics:
        """How many wait."""
        lanes = self._lanes
        return MailboxStatistics(
            len(lanes[Lane.CONTROL]), len(lanes[Lane.STEER]), len(lanes[Lane.SEND]), len(self.held)
        )

    def __repr__(self) -> str:
        return f"<Mailbox {self.statistics()}>"


_LANES: Final = (Lane.STEER, Lane.SEND)


def _from_head(waiting: Sequence[Queued], singly: Container[MessageId]) -> tuple[Queued, ...]:
    """All that enter together: up to the first that must enter alone, which is only ever taken as the head."""
    for index, queued in enumerate(waiting):
        envelope = queued.envelope
        if envelope.output is not None or envelope.id in singly:
            return tuple(waiting[: index or 1])
    return tuple(waiting)
