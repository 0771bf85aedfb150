"""The conversation of an agent: blocks, records, and the rules of a valid one.

A record is one append-only entry; its position is its index. What a record holds never changes, so a window on a
conversation is a list and a length, and nothing is copied to make a request.

A compaction appends too: its summary says from which index on the records behind it stand in force, and which pinned
messages before that. What it replaces stays where it is, as the archive (CMP-4).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, TypeAlias, overload

import attrs

from .content import Content, Trust, size_of
from .ids import AgentId, CallId, MessageId, TurnId
from .usage import NO_USAGE, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Stop(enum.StrEnum):
    """Why a response ended, in neutral words."""

    END_TURN = "end_turn"
    TOOL_CALLS = "tool_calls"
    MAX_TOKENS = "max_tokens"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    PAUSE_TURN = "pause_turn"
    STOP_SEQUENCE = "stop_sequence"
    ERROR = "error"
    INTERRUPTED = "interrupted"


@attrs.frozen
class TextBlock:
    """Text for the reader. `half`: the response was cut while it was being written (TRN-8)."""

    text: str
    half: bool = False


@attrs.frozen
class ReasoningBlock:
    """Reasoning that the model shows.

    Attributes:
        text: what may be read, perhaps empty.
        origin: the model that made `opaque`; it is sent back to that one only (REQ-8).
        opaque: the provider's own state (signatures, encrypted content) as JSON text, or None.
    """

    text: str
    origin: str = ""
    opaque: str | None = None


@attrs.frozen
class CallBlock:
    """One tool call as the model asked for it.

    Attributes:
        id: our id, unique in the store.
        wire_id: the provider's id, or one made up where it gave none.
        name: the tool asked for. arguments: JSON text as it came.
        invalid: why it may never run (`malformed_json`, `not_an_object`, `truncated`, `no_name`, …), or None.
    """

    id: CallId
    wire_id: str
    name: str
    arguments: str
    invalid: str | None = None


Block: TypeAlias = TextBlock | ReasoningBlock | CallBlock


class ResultStatus(enum.StrEnum):
    """What became of a call."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    DENIED = "denied"
    SKIPPED = "skipped"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@attrs.frozen
class MessageRecord:
    """A message that was consumed."""

    turn: TurnId
    message: MessageId
    content: Content
    sender: AgentId | None = None
    steer: bool = False
    trust: Trust = Trust.TRUSTED
    pinned: bool = False
    """It stays in the conversation, whatever is compacted (CMP-5)."""


@attrs.frozen
class ResponseRecord:
    """What the model said to one request: blocks in the order reasoning, text, calls (TRN-5)."""

    turn: TurnId
    blocks: tuple[Block, ...]
    stop: Stop
    model: str
    usage: Usage = NO_USAGE

    @property
    def calls(self) -> tuple[CallBlock, ...]:
        """The calls of the batch, in order."""
        return tuple(block for block in self.blocks if isinstance(block, CallBlock))

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join([block.text for block in self.blocks if isinstance(block, TextBlock)])


@attrs.frozen
class ResultRecord:
    """The result of one call; results stand in call order, right behind their response (TRN-5)."""

    turn: TurnId
    call: CallId
    wire_id: str
    name: str
    status: ResultStatus
    content: Content
    trust: Trust = Trust.TRUSTED


@attrs.frozen
class NoteRecord:
    """A line of the runtime that the next request shows the model: a failure, a limit, a cut.

    Attributes:
        kind: `failure` (dropped again once a later response of the same turn succeeds), `limit`, `repair`, `notice`.
    """

    turn: TurnId
    kind: str
    text: str


@attrs.frozen
class SummaryRecord:
    """What stands for all before `upto` from now on: a compaction's summary, or the note of a change of model.

    In force are then, in this order: the `pinned` messages, this record, and the records from `upto` on, but for other
    summaries.

    Attributes:
        text: what the model reads; empty where nothing is said. upto, pinned: indices in the store.
        responses: how many responses the model gave before, archived ones and the summary itself included.
        handover: the conversation was reset because another model takes over (SEL-2).
        model: id of the model that wrote it, or empty. usage: what that took.
        trust: the least of what it was made from.
    """

    turn: TurnId
    text: str
    upto: int
    pinned: tuple[int, ...] = ()
    responses: int = 0
    handover: bool = False
    model: str = ""
    usage: Usage = NO_USAGE
    trust: Trust = Trust.TRUSTED

    @property
    def shown(self) -> str:
        """As the next requests show it; empty where nothing is said."""
        if not self.text:
            return ""
        if self.handover:
            return f"Another model held this conversation before. Its hand-over note:\n{self.text}"
        return f"The conversation before this point, summarised:\n{self.text}"


Record: TypeAlias = MessageRecord | ResponseRecord | ResultRecord | NoteRecord | SummaryRecord

RECORD_OVERHEAD_BYTES: Final = 24


def record_bytes(record: Record) -> int:
    """About how many bytes a record adds to a request."""
    match record:
        case MessageRecord(content=content) | ResultRecord(content=content):
            return size_of(content) + RECORD_OVERHEAD_BYTES
        case ResponseRecord(blocks=blocks):
            return sum([_block_bytes(block) for block in blocks]) + RECORD_OVERHEAD_BYTES
        case NoteRecord(text=text):
            return len(text) + RECORD_OVERHEAD_BYTES
        case SummaryRecord():
            return len(record.shown) + RECORD_OVERHEAD_BYTES


def _block_bytes(block: Block) -> int:
    match block:
        case TextBlock(text=text):
            return len(text)
        case ReasoningBlock(text=text, opaque=opaque):
            return len(text) + len(opaque or "")
        case CallBlock(name=name, arguments=arguments):
            return len(name) + len(arguments) + RECORD_OVERHEAD_BYTES


def owes_response(record: Record | None) -> bool:
    """Whether a conversation that ends in this record owes the model's answer (REC-1)."""
    match record:
        case None | SummaryRecord():
            return False
        case ResponseRecord(stop=stop, blocks=blocks):
            return stop is not Stop.INTERRUPTED and any(isinstance(block, CallBlock) for block in blocks)
        case MessageRecord() | ResultRecord() | NoteRecord():
            return True


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

    @property
    def last(self) -> Record | None:
        """The last record in force, or None."""
        return self._records[-1] if self._records else None

    def window(self) -> Window:
        """What stands in it now."""
        return Window(self._records, len(self._records), self._bytes, self._responses, self._memo)

    def __repr__(self) -> str:
        return f"<Conversation {len(self._records)} records of {self.stored}, {self._bytes} bytes>"


def problems(records: Iterable[Record]) -> list[str]:
    """What a provider would refuse in a conversation; empty for a valid one (TRN-5, TOL-1).

    Each batch must be answered by its results, in call order, with nothing between; a result needs its call; no
    response is empty; a wire id stands once in a response.
    """
    found: list[str] = []
    owed: list[CallId] = []
    for index, record in enumerate(records):
        if isinstance(record, ResultRecord):
            if not owed or owed[0] != record.call:
                found.append(f"record {index}: result of {record.call} where {owed[:1] or 'none'} is owed")
            owed = [call for call in owed if call != record.call]
            continue
        if owed:
            found.append(f"record {index}: {type(record).__name__} while results of {owed} are owed")
            owed = []
        if isinstance(record, ResponseRecord):
            found += _response_problems(index, record)
            owed = [block.id for block in record.calls]
    if owed:
        found.append(f"at the end: results of {owed} are owed")
    return found


def _response_problems(index: int, record: ResponseRecord) -> list[str]:
    found = []
    if not record.blocks:
        found.append(f"record {index}: an empty response")
    ranks = [_RANK[type(block)] for block in record.blocks]
    if ranks != sorted(ranks):
        found.append(f"record {index}: blocks not in the order reasoning, text, calls")
    wire = [block.wire_id for block in record.calls]
    if len(set(wire)) != len(wire):
        found.append(f"record {index}: a call id stands twice")
    return found


_RANK: Final[dict[type, int]] = {ReasoningBlock: 0, TextBlock: 1, CallBlock: 2}
