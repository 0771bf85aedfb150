"""The records of an agent that are in force, and windows on them.

What a record holds never changes, so a window is a list and a length, and nothing is copied to make a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, overload

from .transcript import MessageRecord, NoteRecord, ResponseRecord, ResultRecord, SummaryRecord, record_bytes

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from .ids import CallId, MessageId
    from .transcript import CallBlock, Record

    _Pair: TypeAlias = tuple[int, Record]


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

    __slots__ = ("_at", "_bytes", "_first", "_memo", "_records", "_responses", "stored")

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records: list[Record] = []
        self._at: list[int] = []  # the index in the store of each
        self._memo: dict[object, object] = {}
        self._bytes = 0
        self._responses = 0
        self._first = 0  # where the records behind the summary begin
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
        made = cls()
        made.stored = summary.upto
        for record in all_of_it[: at - summary.upto]:
            if isinstance(record, SummaryRecord):
                made.stored += 1
            else:
                made._add(record)
        made._put(summary, list(zip(summary.pinned, pinned, strict=True)), made._pairs())
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
        self._at.append(self.stored)
        self._bytes += record_bytes(record)
        self._responses += isinstance(record, ResponseRecord)
        self.stored += 1
        if type(record) is NoteRecord and record.without:
            self._take_back(record.without)

    def _take_back(self, messages: Container[MessageId]) -> None:
        """Rebuild what is in force without some messages, which are asked no more, or come again (CON-6)."""
        gone = [isinstance(record, MessageRecord) and record.message in messages for record in self._records]
        self._first -= sum(gone[: self._first])
        self._set([pair for pair, left in zip(self._pairs(), gone, strict=True) if not left])

    def _compact(self, summary: SummaryRecord) -> None:
        """Rebuild what is in force, from what is: costs what is kept and pinned (CMP-2)."""
        pairs, wanted = self._pairs(), set(summary.pinned)
        kept = [pair for pair in pairs[self._first :] if pair[0] >= summary.upto]
        self._put(summary, [pair for pair in pairs if pair[0] in wanted], kept)

    def _put(self, summary: SummaryRecord, pinned: list[_Pair], kept: list[_Pair]) -> None:
        assert len(pinned) == len(summary.pinned), "a summary names messages that are in force"
        self._first = len(pinned) + 1
        self._set([*pinned, (self.stored, summary), *kept])
        self._responses = summary.responses + sum(isinstance(record, ResponseRecord) for _, record in kept)
        self.stored += 1

    def _pairs(self) -> list[_Pair]:
        """What is in force, each record with its index in the store."""
        return list(zip(self._at, self._records, strict=True))

    def _set(self, pairs: list[_Pair]) -> None:
        """Put other records in force; windows that were handed out keep theirs (CONV-2)."""
        self._at = [at for at, _ in pairs]
        self._records = [record for _, record in pairs]
        self._memo = {}  # what encoders kept was of other records
        self._bytes = sum(record_bytes(record) for record in self._records)

    def index(self, at: int) -> int:
        """The index in the store of the `at`-th record in force; behind the last, of the next one."""
        return self._at[at] if at < len(self._at) else self.stored

    def pinned(self) -> tuple[int, ...]:
        """The indices in the store of the pinned messages in force."""
        return tuple(at for at, record in self._pairs() if isinstance(record, MessageRecord) and record.pinned)

    @property
    def first(self) -> int:
        """Where the records behind the last summary begin among those in force."""
        return self._first

    @property
    def last(self) -> Record | None:
        """The last record in force, or None."""
        return self._records[-1] if self._records else None

    def unanswered(self) -> tuple[CallBlock, ...]:
        """The calls at the end that have no result: between turns there are none, unless the store was damaged."""
        answered: set[CallId] = set()
        for record in reversed(self._records):
            if type(record) is ResultRecord:
                answered.add(record.call)
                continue
            calls = record.calls if type(record) is ResponseRecord else ()
            return tuple([block for block in calls if block.id not in answered])
        return ()

    def window(self) -> Window:
        """What stands in it now."""
        return Window(self._records, len(self._records), self._bytes, self._responses, self._memo)

    def ahead(self, records: Iterable[Record]) -> Window:
        """The window as it will be once these records are committed; it costs a copy."""
        made = Conversation()
        made._records, made._at = list(self._records), list(self._at)
        made._bytes, made._responses = self._bytes, self._responses
        made._first, made.stored = self._first, self.stored
        made.extend(records)
        return made.window()

    def __repr__(self) -> str:
        return f"<Conversation {len(self._records)} records of {self.stored}, {self._bytes} bytes>"
