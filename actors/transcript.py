"""The conversation of an agent: blocks, records, and the rules of a valid one.

A record is one append-only entry; its position is its index, and what it holds never changes. A compaction appends too:
its summary says from which index on the records stand in force, and which pinned messages before that. What it replaces
stays where it is, as the archive (CMP-4).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from .content import Content, Trust, least, size_of
from .ids import AgentId, CallId, MessageId, TurnId
from .kept import TAG, Kept
from .usage import NO_USAGE, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable


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


class TextBlock(Kept, frozen=True, tag_field=TAG, tag="said"):
    """Text for the reader. `half`: the response was cut while it was being written (TRN-8)."""

    text: str
    half: bool = False


class ReasoningBlock(Kept, frozen=True, tag_field=TAG, tag="reasoned"):
    """Reasoning that the model shows.

    Attributes:
        text: what may be read, perhaps empty.
        origin: the model that made `opaque`; it is sent back to that one only (REQ-8).
        opaque: the provider's own state (signatures, encrypted content) as JSON text, or None.
    """

    text: str
    origin: str = ""
    opaque: str | None = None


class CallBlock(Kept, frozen=True, tag_field=TAG, tag="called"):
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


class MessageRecord(Kept, frozen=True, tag_field=TAG, tag="message"):
    """A message that was consumed."""

    turn: TurnId
    message: MessageId
    content: Content
    sender: AgentId | None = None
    steer: bool = False
    trust: Trust = Trust.TRUSTED
    pinned: bool = False
    """It stays in the conversation, whatever is compacted (CMP-5)."""


class ResponseRecord(Kept, frozen=True, tag_field=TAG, tag="response"):
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


class ResultRecord(Kept, frozen=True, tag_field=TAG, tag="result"):
    """The result of one call; results stand in call order, right behind their response (TRN-5).

    `repaired`: places of the arguments where a list or an object had been sent as JSON text, and was read as such.
    """

    turn: TurnId
    call: CallId
    wire_id: str
    name: str
    status: ResultStatus
    content: Content
    trust: Trust = Trust.TRUSTED
    repaired: tuple[str, ...] = ()


class NoteRecord(Kept, frozen=True, tag_field=TAG, tag="note"):
    """A line of the runtime that the next request shows the model: a failure, a limit, a cut.

    Attributes:
        kind: `failure` (shown until a later response of the same turn succeeds), `limit` (until its turn is over),
            `repair`, `notice`.
        without: messages before it that it takes out of what is in force, as their consumption is taken back (CON-6).
    """

    turn: TurnId
    kind: str
    text: str
    without: tuple[MessageId, ...] = ()


class SummaryRecord(Kept, frozen=True, tag_field=TAG, tag="summary"):
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


def least_trust(records: Iterable[Record], known: Trust = Trust.TRUSTED) -> Trust:
    """The least of what records say of their trust, and of what is `known`: what is derived of them has it (GAT-4)."""
    for record in records:
        trust = getattr(record, "trust", Trust.TRUSTED)
        if trust is not known:
            known = least(known, trust)
    return known


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
        case _:
            assert_never(record)


def _block_bytes(block: Block) -> int:
    match block:
        case TextBlock(text=text):
            return len(text)
        case ReasoningBlock(text=text, opaque=opaque):
            return len(text) + len(opaque or "")
        case CallBlock(name=name, arguments=arguments):
            return len(name) + len(arguments) + RECORD_OVERHEAD_BYTES
        case _:
            assert_never(block)


def owes_response(record: Record | None) -> bool:
    """Whether a conversation that ends in this record owes the model's answer (REC-1)."""
    match record:
        case None | SummaryRecord():
            return False
        case ResponseRecord(stop=stop, blocks=blocks):
            return stop is not Stop.INTERRUPTED and any(isinstance(block, CallBlock) for block in blocks)
        case MessageRecord() | ResultRecord() | NoteRecord():
            return True
        case _:
            assert_never(record)


def entered(records: Iterable[Record]) -> tuple[MessageId, ...]:
    """The messages that stand in a conversation, in order: what was consumed, and not taken back (CON-4)."""
    found: list[MessageId] = []
    for record in records:
        if isinstance(record, MessageRecord):
            found.append(record.message)
        elif isinstance(record, NoteRecord) and record.without:
            found = [message for message in found if message not in record.without]
    return tuple(found)


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
