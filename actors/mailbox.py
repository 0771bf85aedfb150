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
        seen: the highest seq that was told here. next_seq: the one that is told next, where that is known.

    Invariants:
        MAIL-1 each lane is sorted by seq. MAIL-2 every message in it is queued or held; control is never held.
        MAIL-4 a message that has expired is chosen by no request, and asks for no turn, while its death is written.
        MAIL-3 a message that is told before an earlier one waits for it: seqs have no gaps, so none is lost (ACC-4).
    """

    __slots__ = ("_early", "_lanes", "held", "mortal", "next_seq", "seen")

    def __init__(self, waiting: Iterable[Queued] = ()) -> None:
        self._lanes: dict[Lane, list[Queued]] = {Lane.CONTROL: [], Lane.STEER: [], Lane.SEND: []}
        self.held: set[MessageId] = set()
        self.mortal = Mortal()
        self.next_seq: int | None = None
        self.seen = 0
        self._early: dict[int, Queued | None] = {}
        self.reload(waiting, 0)

    def reload(self, waiting: Iterable[Queued], seen: int) -> None:
        """Take the store's word for every message up to `seen`, told before it was read; later ones stay."""
        late = [queued for lane in self._lanes.values() for queued in lane if queued.seq > seen]
        kept = {queued.seq: queued for queued in waiting}
        known = max(kept, default=0)  # the store leaves no gap below: what is missing there is gone
        kept |= {queued.seq: queued for queued in late}
        self.held.intersection_update(queued.envelope.id for queued in late)
        self.mortal = Mortal()
        for lane in self._lanes.values():
            lane.clear()
        for queued in kept.values():
            self._place(queued)
        if self.next_seq is not None:  # its sender may not have told of it yet: it must not enter twice
            self._early = {seq: early for seq, early in self._early.items() if seq > known}
            self.next_seq = max(self.next_seq, known + 1)
            self._enter_early()

    def add(self, queued: Queued) -> None:
        """Take a message that was accepted; commits of many senders may be told out of order (MAIL-3)."""
        seq = queued.seq
        if seq < self._told:
            return  # it was read from the store before its sender told of it
        if self.next_seq is not None and seq > self.next_seq:
            control = queued.envelope.lane is Lane.CONTROL  # it overtakes whatever waits
            self._early[seq] = None if control else queued
            if control:
                self._place(queued)
            return
        self._place(queued)
        self.next_seq = seq + 1
        self._enter_early()

    def _enter_early(self) -> None:
        """Messages that waited for the one before them come in."""
        while self.next_seq in self._early:
            early = self._early.pop(self.next_seq)
            if early is not None:
                self._place(early)
            self.next_seq += 1

    def catch_up(self, waiting: Iterable[Queued]) -> None:
        """Take what the store has and nobody told of: a commit that failed for its sender may have been written."""
        told = self._told
        for queued in waiting:
            if queued.seq >= told and queued.seq not in self._early:
                self._place(queued)
        for early in self._early.values():
            if early is not None:
                self._place(early)
        self._early.clear()
        self.next_seq = max(self.seen + 1, told)

    @property
    def _told(self) -> int:
        """The least seq that nothing is known of."""
        return self.seen + 1 if self.next_seq is None else self.next_seq

    def _place(self, queued: Queued) -> None:
        self.seen = max(self.seen, queued.seq)
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
        for seq, early in self._early.items():
            if early is not None and early.envelope.id in gone:
                self._early[seq] = None

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
    def control(self) -> tuple[Queued, ...]:
        """What waits in the control lane."""
        return tuple(self._lanes[Lane.CONTROL])

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
