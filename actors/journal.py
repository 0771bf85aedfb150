"""The journal of what happened in one process, bounded: watchers that come back go on from it (EVT-3).

An entry is a row, not an event: while nobody looks, no event is made. Deltas and progress pass by and are not kept. It
knows no watchers and no clock. It lives as long as its supervisor; what must survive a restart is in the store.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Final, TypeAlias, final

import attrs

from .errors import UsageError
from .happenings import (
    AgentCrashed,
    ApprovalAsked,
    Event,
    NoteWritten,
    ReasoningDelta,
    ResponseEnded,
    TextDelta,
    ToolEnded,
    ToolLate,
    ToolProgress,
    ToolStarted,
    ToolStuck,
    TurnEnded,
)
from .ids import AgentId
from .messages import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

Entry: TypeAlias = tuple[type[Event], AgentId, int, float, int, int, Mapping[str, object]]
"""What an event is made of: its class, path, seq, at, run, turn, and the rest."""

PASSING: Final[frozenset[type[Event]]] = frozenset({TextDelta, ReasoningDelta, ToolProgress})
"""Events that have no number of their own and are not kept: what finishes after them says all."""
_HEAVY: Final[frozenset[type[Event]]] = frozenset(
    {AgentCrashed, ApprovalAsked, NoteWritten, ResponseEnded, ToolEnded, ToolLate, ToolStarted, ToolStuck, TurnEnded}
)
"""Events whose text may be long: these are weighed, the rest count `ENTRY_BYTES`."""
ENTRY_BYTES: Final = 512
_SEGMENTS: Final = 16
_DIGITS: Final = 20
NOW: Final = "now"
"""A position: behind all that has happened."""


@attrs.frozen(kw_only=True)
class JournalBound:
    """How much of what happened is kept for watchers that come back.

    Args:
        events: how many, from 0: nothing is kept. size_bytes: how much, about; a sixteenth is let go at a time.
    """

    events: int = 10_000
    size_bytes: int = 8 * 1024 * 1024

    def __attrs_post_init__(self) -> None:
        """Refuse what is no bound."""
        for name in ("events", "size_bytes"):
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                msg = f"JournalBound({name}=...) is a whole number from 0; got {value!r}"
                raise UsageError(msg)


@attrs.frozen
class Position:
    """Where a watcher stands.

    Attributes:
        journal: which one. number: of the last entry it has passed. seen: how many of its scope it has had, or was
            told it missed. path: its scope.
    """

    journal: str
    number: int
    seen: int
    path: str

    def __str__(self) -> str:
        return f"{self.journal}.{self.number}.{self.seen}.{self.path}"


@attrs.frozen
class JournalStatistics:
    """What a journal holds. `put`: events it was ever given."""

    events: int
    size_bytes: int
    put: int


@final
class EventJournal:
    """What happened last, in order.

    Invariants:
        JOURNAL-1 entries are numbered from 1 without gap, those of one agent (`seq`) too.
        JOURNAL-2 it holds the newest, all from `first` to `last`: at most `events` of them, and about `size_bytes`.

    Args:
        token: names this journal; positions of another are unknown here.
        bound: how much it keeps.
    """

    def __init__(self, token: str = "", bound: JournalBound | None = None) -> None:
        self.token = token
        self.bound = bound = JournalBound() if bound is None else bound
        self.last = 0
        self._seqs: dict[AgentId, int] = {}
        self._open: list[Entry] = []
        self._open_bytes = 0
        self._segments: list[list[Entry]] = [self._open]
        self._starts: list[int] = [1]
        self._sizes: list[int] = []
        self._closed_bytes = 0
        self._segment_bytes = bound.size_bytes // _SEGMENTS
        self._segment_events = max(1, min(bound.events // _SEGMENTS, self._segment_bytes // ENTRY_BYTES))

    @property
    def first(self) -> int:
        """The number of the oldest entry that is held; one more than `last` where none is."""
        return self._starts[0]

    def seq(self, path: AgentId) -> int:
        """How many events of an agent there were."""
        return self._seqs.get(path, 0)

    def put(
        self, kind: type[Event], path: AgentId, at: float, run: int, turn: int, values: Mapping[str, object]
    ) -> Entry:
        """Keep an event. `values` are not copied: they must not change any more."""
        seqs = self._seqs
        seqs[path] = seq = seqs.get(path, 0) + 1  # JOURNAL-1
        self.last += 1
        entry = (kind, path, seq, at, run, turn, values)
        opened = self._open
        opened.append(entry)
        if kind in _HEAVY:
            self._open_bytes += _weight(values)
        if len(opened) >= self._segment_events or self._open_bytes > self._segment_bytes:
            self._close()
        return entry

    def _close(self) -> None:
        """Begin a new segment, and let go of the oldest as far as the bound asks (JOURNAL-2)."""
        size = self._open_bytes + ENTRY_BYTES * len(self._open)
        self._sizes.append(size)
        self._closed_bytes += size
        self._open, self._open_bytes = [], 0
        self._segments.append(self._open)
        self._starts.append(self.last + 1)
        room = self.bound.events - self._segment_events  # for what the new segment will hold
        room_bytes = self.bound.size_bytes - 2 * self._segment_bytes
        while self._sizes and (self.last + 1 - self._starts[0] > room or self._closed_bytes > room_bytes):
            self._closed_bytes -= self._sizes.pop(0)
            del self._segments[0], self._starts[0]

    def after(self, number: int) -> Iterator[tuple[int, Entry]]:
        """What is held behind a number, in order, each with its own; the journal must not change meanwhile."""
        number = max(number + 1, self.first)
        place = bisect_right(self._starts, number) - 1
        skip = number - self._starts[place]
        for start, segment in zip(self._starts[place:], self._segments[place:], strict=True):
            for offset in range(skip, len(segment)):
                yield start + offset, segment[offset]
            skip = 0

    def count(self, path: str) -> int:
        """How many events an agent and all below it ever had; "" for everything."""
        if not path:
            return self.last
        below = path + "/"
        return sum(seq for agent, seq in self._seqs.items() if agent == path or agent.startswith(below))

    def held(self, path: str, after: int, upto: int) -> int:
        """How many of them behind a number, up to another, are held."""
        if not path:
            return max(0, upto - max(after, self.first - 1))
        below = path + "/"
        entries = takewhile(lambda numbered: numbered[0] <= upto, self.after(after))
        return sum(entry[1] == path or entry[1].startswith(below) for _, entry in entries)

    def position(self, text: str) -> Position | None:
        """A position as it was written; None where it is none of this journal.

        Raises:
            UsageError: it is no text.
        """
        given: object = text
        if not isinstance(given, str):
            msg = f"after= is the `position` of an earlier watch, or 'now', or None; got {given!r}"
            raise UsageError(msg)
        token, _, rest = given.partition(".")
        number, _, rest = rest.partition(".")
        seen, _, path = rest.partition(".")
        if token != self.token or not all(part.isdecimal() and len(part) < _DIGITS for part in (number, seen)):
            return None
        if int(number) > self.last:
            return None
        return Position(token, int(number), int(seen), path)

    def statistics(self) -> JournalStatistics:
        """What it holds."""
        size = self._closed_bytes + self._open_bytes + ENTRY_BYTES * len(self._open)
        return JournalStatistics(self.last + 1 - self.first, size, self.last)

    def __repr__(self) -> str:
        return f"<EventJournal {self.token} {self.first} to {self.last}>"


def event_of(entry: Entry) -> Event:
    """The event that an entry stands for."""
    kind, path, seq, at, run, turn, values = entry
    return kind(**({"path": path, "seq": seq, "at": at, "run": run, "turn": turn} | dict(values)))  # type: ignore[arg-type]


def _weight(values: Mapping[str, object]) -> int:
    """About how many bytes the texts of an event hold."""
    weight = 0
    for value in values.values():
        if type(value) is str:
            weight += len(value)
        elif type(value) is Outcome:
            weight += len(value.text) + len(value.output or "")
    return weight
