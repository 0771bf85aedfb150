"""The records of an agent that are in force, and windows on them.

What a record holds never changes, so a window is a list and a length, and nothing is copied to make a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from .transcript import MessageRecord, ResponseRecord, SummaryRecord, record_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .transcript import Record


class Window:
    """The first `length` records of a conversation: a view that later appends do not change."""

    __slots__ = ("_bytes", "_length", "_memo", "_records", "_responses")

    def __init__(
        self,
        records: list[Record],
        length: int,
        size_bytes: int,
        responses: int,
        memo: dict[object, object] | None = None,
    ) -> None:
        self._records = records
        self._length = length
        self._bytes = size_bytes
        self._responses = responses
        self._memo = {} if memo is None else memo

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        if isinstance(index, slice):
            return self._records[slice(*index.indices(self._length))]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            msg = f"record {index} of {self._length}"
            raise IndexError(msg)
        return self._records[index]

    def __iter__(self) -> Iterator[Record]:
        for index in range(self._length):
            yield self._records[index]

    @property
    def size_bytes(self) -> int:
        """About how many bytes the records are in a request."""
        return self._bytes

    @property
    def responses(self) -> int:
        """How many responses stand in it."""
        return self._responses

    @property
    def memo(self) -> dict[object, object]:
        """What encoders keep beside the conversation, each under a key of its own: work done once per record (TRN-1).

        All windows on one conversation share it, and it lives as long as the conversation does.
        """
        return self._memo

    def __repr__(self) -> str:
        return f"<Window {self._length} records, {self._bytes} bytes>"


class Conversation:
    """The records of one agent that are in force, append-only, with running totals: a window costs nothing to make.

    Invariants:
        CONV-1 what is in force is a function of the records in the store: extended record by record, or read from the
            last summary on, it is the same.
        CONV-2 a window that was handed out never changes, by a compaction neither.
    """

    __slots__ = ("_bytes", "_first", "_memo", "_records", "_responses", "_skipped", "_summary", "stored")

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records: list[Record] = []
        self._memo: dict[object, object] = {}
        self._bytes = 0
        self._responses = 0
        self._summary: SummaryRecord | None = None
        self._first = 0  # where the records behind the summary begin
        self._skipped: tuple[int, ...] = ()
        self.stored = 0
        """How many records the store has, archived ones included."""
        for record in records:
            self._add(record)

    @classmethod
    def behind(
        cls, at: int, summary: SummaryRecord, pinned: Iterable[Record], records: Iterable[Record]
    ) -> Conversation:
        """What is in force behind the last summary, without its archive.

        Args:
            at: index of the summary in the store.
            summary: the last one.
            pinned: the messages that it names.
            records: those from `summary.upto` on, summaries included.
        """
        all_of_it = tuple(records)
        kept = all_of_it[: at - summary.upto]
        skipped = tuple(summary.upto + n for n, record in enumerate(kept) if isinstance(record, SummaryRecord))
        made = cls()
        made.stored = at
        made._put(summary, pinned, (r for r in kept if not isinstance(r, SummaryRecord)), skipped)
        made.extend(all_of_it[at - summary.upto + 1 :])
        return made

    def __len__(self) -> int:
        return len(self._records)

    def extend(self, records: Iterable[Record]) -> None:
        """Add records that were committed behind the last; a summary replaces what it stands for."""
        for record in records:
            if type(record) is SummaryRecord:
                self._compact(record)
            else:
                self._add(record)

    def _add(self, record: Record) -> None:
        self._records.append(record)
        self._bytes += record_bytes(record)
        self._responses += isinstance(record, ResponseRecord)
        self.stored += 1

    def _compact(self, summary: SummaryRecord) -> None:
        """Rebuild what is in force, from what is: costs what is kept and pinned (CMP-2)."""
        first, wanted = self._first, set(summary.pinned)
        kept = [record for at, record in enumerate(self._records[first:], first) if self.index(at) >= summary.upto]
        pinned = [record for at, record in enumerate(self._records) if self.index(at) in wanted]
        self._put(summary, pinned, kept, tuple(at for at in self._skipped if at >= summary.upto))

    def _put(
        self, summary: SummaryRecord, pinned: Iterable[Record], kept: Iterable[Record], skipped: tuple[int, ...]
    ) -> None:
        before = tuple(pinned)
        assert len(before) == len(summary.pinned), "a summary names messages that are in force"
        self._first = len(before) + 1
        self._records = [*before, summary, *kept]
        self._memo = {}  # what encoders kept was of other records
        self._bytes = sum(record_bytes(record) for record in self._records)
        self._responses = summary.responses + sum(isinstance(r, ResponseRecord) for r in self._records[self._first :])
        self._summary = summary
        self._skipped = (*skipped, self.stored)
        self.stored += 1

    def index(self, at: int) -> int:
        """The index in the store of the `at`-th record in force."""
        if self._summary is None:
            return at
        if at < self._first:
            return self._summary.pinned[at] if at < self._first - 1 else self._skipped[-1]
        found = self._summary.upto + at - self._first
        for skipped in self._skipped:  # in rising order
            found += found >= skipped
        return found

    def pinned(self) -> tuple[int, ...]:
        """The indices in the store of the pinned messages in force."""
        found = enumerate(self._records)
        return tuple(self.index(at) for at, record in found if isinstance(record, MessageRecord) and record.pinned)

    @property
    def first(self) -> int:
        """Where the records behind the last summary begin among those in force."""
        return self._first

    @property
    def last(self) -> Record | None:
        """The last record in force, or None."""
        return self._records[-1] if self._records else None

    def window(self) -> Window:
        """What stands in it now."""
        return Window(self._records, len(self._records), self._bytes, self._responses, self._memo)

    def ahead(self, records: Iterable[Record]) -> Window:
        """The window as it will be once these records are committed; it costs a copy."""
        made = Conversation()
        made._records, made._bytes, made._responses = list(self._records), self._bytes, self._responses
        made._summary, made._first, made._skipped, made.stored = (
            self._summary,
            self._first,
            self._skipped,
            self.stored,
        )
        made.extend(records)
        return made.window()

    def __repr__(self) -> str:
        return f"<Conversation {len(self._records)} records of {self.stored}, {self._bytes} bytes>"
