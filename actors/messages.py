"""What a mailbox holds: envelopes in lanes, the states of a receipt, and the outcome that answers a message."""

from __future__ import annotations

import enum
import json
from typing import TYPE_CHECKING, Final

import attrs
from msgspec import Struct

from .content import Content, Trust, check_text, size_of
from .errors import Aborted, UsageError
from .ids import AgentId, CallId, MessageId, RunId, TurnId
from .kept import TAG, Kept
from .usage import NO_USAGE, NOTHING, Amounts, Usage

if TYPE_CHECKING:
    from .errors import CallboardError


class Lane(enum.StrEnum):
    """One of the three FIFO parts of a mailbox; `control` overtakes, `steer` joins at the next boundary."""

    CONTROL = "control"
    STEER = "steer"
    SEND = "send"


class Purpose(enum.StrEnum):
    """What a message is for."""

    TASK = "task"
    """Something to answer: a task, a question, steering."""
    REPORT = "report"
    """A background child's report; it uses the place reserved at the child's start."""
    NOTICE = "notice"
    """Something the agent is told."""
    ANSWER = "answer"
    """An answer to a child's question."""
    ABORT = "abort"
    CLOSE = "close"
    KILL = "kill"
    DECISION = "decision"
    """On a call that needs approval (TOL-12)."""
    PAUSE = "pause"
    WAKE = "wake"
    """Ends a pause."""
    PUT_BACK = "put_back"
    """Another process put a dead letter back, the `target`: its agent's owner takes it up."""


class ReceiptState(enum.StrEnum):
    """Where a message is; the last four are final and exactly one of them comes."""

    PENDING = "pending"
    QUEUED = "queued"
    HELD = "held"
    CONSUMED = "consumed"
    WITHDRAWN = "withdrawn"
    DEAD = "dead"
    REFUSED = "refused"

    @property
    def final(self) -> bool:
        """Whether the message has come to its end."""
        return self in _FINAL


_FINAL: Final = frozenset(
    {ReceiptState.CONSUMED, ReceiptState.WITHDRAWN, ReceiptState.DEAD, ReceiptState.REFUSED},
)

ENVELOPE_BYTES: Final = 64


class Verdict(enum.StrEnum):
    """What became of a request for approval."""

    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    """Nobody decided in time: it counts as denied."""
    WITHDRAWN = "withdrawn"
    """The call was settled without a decision: by an abort, or with its batch."""


class Decision(Kept, frozen=True):
    """A decision on a call. `by`: who made it, as given. `message`: for the model."""

    verdict: Verdict
    by: str = ""
    message: str = ""


class Selection(Kept, frozen=True):
    """What a message chooses for the requests from it on (SEL-1). None leaves a choice as it is, "" is the agent's own.

    Args:
        model: `protocol:name[@base_url]`, or the id of a model that the supervisor or an agent was given.
        effort, tier: as the provider names them.
    """

    model: str | None = None
    effort: str | None = None
    tier: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no text."""
        chosen: tuple[tuple[str, object], ...] = (("model", self.model), ("effort", self.effort), ("tier", self.tier))
        for name, value in chosen:
            if value is not None and not isinstance(value, str):
                msg = f"Selection({name}=...) is text or None; got {value!r}; of a model object pass its id"
                raise UsageError(msg)
            if value is not None:
                check_text(value, f"Selection({name}=...)")

    def then(self, later: Selection | None) -> Selection:
        """This one with what a later message chooses."""
        if later is None:
            return self
        return Selection(
            self.model if later.model is None else later.model or None,
            self.effort if later.effort is None else later.effort or None,
            self.tier if later.tier is None else later.tier or None,
        )


class Envelope(Kept, frozen=True, tag_field=TAG, tag="envelope"):
    """A message with all that goes with it.

    Attributes:
        key: the sender's idempotency key, or None (ACC-7).
        output: key of the type that the answer owes, or None; such a message opens a turn of its own.
        interrupt: a steer that cuts what may be cut (CON-7).
        target: for control messages, the turn they are meant for; for an ABORT that another process ordered for a
            subtree, from which agent on nobody got an order; for a DECISION, the call; for an ANSWER, the question's
            call id.
        reserved: it takes a place that was reserved for it and is never refused (ACC-6).
        reason: of an abort, close or kill; of a PUT_BACK, why it was dead and, in a line of its own, by whom.
        decision: of a DECISION.
        select: what the requests from this message on ask, or None. pinned: compactions keep it (CMP-5).
        expires_ms: when it is dead if nothing consumed it, in milliseconds of the time of day (Unix), or None: never.
    """

    id: MessageId
    to: AgentId
    lane: Lane
    content: Content
    sender: AgentId | None = None
    purpose: Purpose = Purpose.TASK
    key: str | None = None
    output: str | None = None
    interrupt: bool = False
    trust: Trust = Trust.TRUSTED
    target: str | None = None
    reserved: bool = False
    reason: str | None = None
    decision: Decision | None = None
    select: Selection | None = None
    pinned: bool = False
    expires_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        """What it counts in its lane's bound."""
        return size_of(self.content) + ENVELOPE_BYTES


class Queued(Struct, frozen=True):
    """An accepted message with its place in the order of acceptance."""

    seq: int
    envelope: Envelope
    state: ReceiptState = ReceiptState.QUEUED


@attrs.frozen
class LaneBound:
    """What one lane may hold.

    Args:
        messages: how many. size_bytes: how much. message_bytes: how large one may be.
        share: the part of `messages` that one agent may fill, one message at least; code outside may fill all.
    """

    messages: int = 1_000
    size_bytes: int = 16 * 1024 * 1024
    message_bytes: int = 256 * 1024
    share: float = 0.5

    def __attrs_post_init__(self) -> None:
        """Refuse what is no bound."""
        for name in ("messages", "size_bytes", "message_bytes"):
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise UsageError(f"LaneBound({name}=...) is a whole number from 0; got {value!r}")
        share: object = self.share
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise UsageError(f"LaneBound(share=...) is a number from 0 to 1; got {share!r}")

    @property
    def of_one_sender(self) -> int:
        """How many messages of one agent it may hold."""
        return max(1, int(self.messages * self.share))


@attrs.frozen
class DeadLetter:
    """A message that will not be answered, unless it is put back.

    Attributes:
        agent: whom it was sent to. reason: `agent_closed`, `expired`, or how its turn crashed.
        at: when it died, in seconds since 1970. sender: None for code. turn: that had consumed it, or None.
    """

    message: MessageId
    agent: AgentId
    reason: str
    at: float | None
    lane: Lane
    content: Content
    sender: AgentId | None = None
    turn: TurnId | None = None


class Status(enum.StrEnum):
    """The seven outcomes of a run."""

    DONE = "done"
    NEEDS_INPUT = "needs_input"
    PARKED = "parked"
    EXHAUSTED = "exhausted"
    ABORTED = "aborted"
    FAILED = "failed"
    CLOSED = "closed"


class Failure(Kept, frozen=True):
    """An error as it is stored: its kind (`errors.BY_KIND`), its message, and text facts of it."""

    kind: str
    message: str
    facts: tuple[tuple[str, str], ...] = ()


class Asked(Kept, frozen=True):
    """A child's question that an ancestor's wait was completed with (REE-2)."""

    id: MessageId
    child: AgentId
    text: str


class CallDone(Kept, frozen=True):
    """One tool call of a run, as a report lists it."""

    id: CallId
    name: str
    status: str


class Outcome(Kept, frozen=True):
    """How a turn ended, as it is stored; people are handed a `Report` made of it.

    Attributes:
        text: the last response's text.
        output: JSON text of the structured answer, or None. output_type: its type's key.
        usage, spent: of the run so far. cost_known: False where a model without a price was used.
        calls: the run's tool calls, the last 64. trust: the least of what the agent's conversation held.
    """

    path: AgentId
    run: RunId
    turn: TurnId
    status: Status
    text: str = ""
    output: str | None = None
    output_type: str | None = None
    usage: Usage = NO_USAGE
    spent: Amounts = NOTHING
    cost_known: bool = True
    failure: Failure | None = None
    question: Asked | None = None
    calls: tuple[CallDone, ...] = ()
    trust: Trust = Trust.TRUSTED

    @property
    def cut(self) -> bool:
        """Whether an abort ended it (ABT); a turn that found nothing left to answer ends as aborted, too."""
        return self.status is Status.ABORTED and self.failure is not None and self.failure.kind == Aborted.kind


_SKIPPED: Final = "skipped"


def skipped_reason(calls: tuple[CallId, ...]) -> str:
    """What the store keeps with an interrupting steer: which calls it ended (CON-7)."""
    return "\n".join((_SKIPPED, *calls))


def skipped_of(reason: str | None) -> tuple[CallId, ...]:
    """The calls that a consumed message ended, as the store keeps it."""
    first, *calls = (reason or "").split("\n")  # paths hold no control character
    return tuple(CallId(call) for call in calls) if first == _SKIPPED else ()


def failure_of(error: CallboardError) -> Failure:
    """An error as reports and stores keep it: its public attributes become facts, attempts as JSON."""
    facts = tuple(
        (name, json.dumps(value) if name == "attempts" else str(value))
        for name, value in sorted(vars(error).items())
        if not name.startswith("_") and value is not None
    )
    return Failure(error.kind, str(error), facts)
