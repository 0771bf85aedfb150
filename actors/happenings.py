"""Typed events: everything that happens, in causal order per agent (EVT-1).

Every event names the agent's `path`, the `run`, `turn` and `attempt` it belongs to (0 where there is none), its `seq`
in the agent's own order, and `at`, seconds on the supervisor's clock. Seqs rise from 1 without gap; text and reasoning
deltas and a tool's progress have none of their own and carry that of what came before them.
"""

from __future__ import annotations

from msgspec import Struct

from .ids import AgentId, CallId, MessageId
from .messages import Outcome
from .transcript import Stop
from .usage import NO_USAGE, Usage


class Event(Struct, frozen=True, kw_only=True):
    """What all events have."""

    path: AgentId
    seq: int = 0
    at: float = 0.0
    run: int = 0
    turn: int = 0
    attempt: int = 0


# -- the agent ---------------------------------------------------------------------------------------------------


class AgentStarted(Event, frozen=True, kw_only=True):
    """An agent was made; its task is accepted. `model`: what it will ask. `key`: as given to `start` or `run`."""

    name: str
    model: str = ""
    key: str | None = None


class AgentSettled(Event, frozen=True, kw_only=True):
    """No turn runs and none is requested."""


class AgentSuspended(Event, frozen=True, kw_only=True):
    """It stopped before it was done; the store owes the work. `reason`: such as `leaving`, `store`."""

    reason: str


class AgentEnded(Event, frozen=True, kw_only=True):
    """It is closed: it accepts nothing more and has stopped. `reason`: why, or empty."""

    reason: str = ""


class AgentCrashed(Event, frozen=True, kw_only=True):
    """Its loop ended with an exception that nothing expected."""

    error: str


class SpecChanged(Event, frozen=True, kw_only=True):
    """A stored agent goes on with a changed spec."""

    before: str
    after: str


class StoreTroubled(Event, frozen=True, kw_only=True):
    """The store cannot be written; the tree stands still. `error`: why, and what to do; empty once that is over."""

    error: str


# -- messages ----------------------------------------------------------------------------------------------------


class MessageAccepted(Event, frozen=True, kw_only=True):
    """A message is durable in its lane."""

    message: MessageId
    lane: str
    sender: AgentId | None = None


class MessageConsumed(Event, frozen=True, kw_only=True):
    """A message entered the conversation."""

    message: MessageId
    lane: str


class MessageHeld(Event, frozen=True, kw_only=True):
    """It joins the next turn that another one or `wake()` asks for: an abort holds it, or it is a notice (ABT-4)."""

    message: MessageId


class MessageDead(Event, frozen=True, kw_only=True):
    """A message will not be answered; it is in the dead letters."""

    message: MessageId
    reason: str


class MessagePutBack(Event, frozen=True, kw_only=True):
    """A dead letter waits again. `by`: who put it back. `reason`: why it had been dead."""

    message: MessageId
    by: str
    reason: str = ""


class PostRefused(Event, frozen=True, kw_only=True):
    """A post, which nobody awaits, was refused (ACC-2)."""

    message: MessageId
    error: str


# -- turns -------------------------------------------------------------------------------------------------------


class TurnStarted(Event, frozen=True, kw_only=True):
    """A turn begins."""


class TurnEnded(Event, frozen=True, kw_only=True):
    """The one terminal event of a turn, with its outcome (TRN-4)."""

    outcome: Outcome


class NoteWritten(Event, frozen=True, kw_only=True):
    """The runtime wrote a line for the model: a failure, a limit, a cut."""

    note: str
    text: str


class HookFailed(Event, frozen=True, kw_only=True):
    """A hook raised; where it decides, or is a guard, the turn fails with it (HOK-1)."""

    hook: str
    error: str


class CompactionStarted(Event, frozen=True, kw_only=True):
    """The conversation is being summarised. `reason`: `asked`, `window` or `overflow`."""

    reason: str


class CompactionEnded(Event, frozen=True, kw_only=True):
    """The one end of a compaction that had started.

    Attributes:
        error: why it came to nothing, or None. before, after: bytes of the conversation in force.
        usage: what the summary took. cost: picodollars, None where no price is known.
    """

    error: str | None = None
    before: int = 0
    after: int = 0
    usage: Usage = NO_USAGE
    cost: int | None = None


class SelectionChanged(Event, frozen=True, kw_only=True):
    """A message changed what is asked (SEL-1); empty is the agent's own. `reset`: the conversation began anew."""

    model: str = ""
    effort: str = ""
    tier: str = ""
    reset: bool = False


class SelectionRejected(Event, frozen=True, kw_only=True):
    """A message's choice was not followed: its hand-over note failed, or no such model can be asked (SEL-2)."""

    error: str


# -- model requests ----------------------------------------------------------------------------------------------


class AdmissionWaited(Event, frozen=True, kw_only=True):
    """A request waits for a place at its model."""

    model: str


class RequestStarted(Event, frozen=True, kw_only=True):
    """An attempt at a request is sent. `estimate`: input tokens expected."""

    model: str
    estimate: int = 0


class TextDelta(Event, frozen=True, kw_only=True):
    """Some text of the response in progress."""

    text: str


class ReasoningDelta(Event, frozen=True, kw_only=True):
    """Some reasoning of the response in progress."""

    text: str


class AttemptDiscarded(Event, frozen=True, kw_only=True):
    """An attempt failed: what came of it is void (REQ-3). `retry_in_s`: until the next, or None for the last.

    So is what came of a response that a crash, a stop or the store's failure lost, even behind its end (REC-3); told by
    another process than the one that asked, its `attempt` is 0.
    """

    error: str
    retry_in_s: float | None = None


class ResponseEnded(Event, frozen=True, kw_only=True):
    """The one terminal event of a response (TRN-4). `cost`: picodollars, None where no price is known."""

    stop: Stop
    text: str
    usage: Usage
    cost: int | None = None
    model: str = ""


class RequestFailed(Event, frozen=True, kw_only=True):
    """A request came to no response: the other terminal event. `error`: kind and message."""

    error: str


# -- tool calls --------------------------------------------------------------------------------------------------


class ToolStarted(Event, frozen=True, kw_only=True):
    """A call is on disk as started, and starts. `repaired`: as `ResultRecord` has it."""

    call: CallId
    name: str
    arguments: str
    repaired: tuple[str, ...] = ()


class ToolChanged(Event, frozen=True, kw_only=True):
    """A hook runs a call with other arguments than the model's (TOL-13). `arguments`: these, as JSON text."""

    call: CallId
    name: str
    arguments: str


class ToolProgress(Event, frozen=True, kw_only=True):
    """A running call says how far it is. `done`, `total`: counts, or None."""

    call: CallId
    name: str
    text: str = ""
    done: int | None = None
    total: int | None = None


class ToolEnded(Event, frozen=True, kw_only=True):
    """A call is settled. `text`: the beginning of its result."""

    call: CallId
    name: str
    status: str
    text: str = ""


class ToolLate(Event, frozen=True, kw_only=True):
    """What a call left behind returned later; it never enters the conversation (TOL-14)."""

    call: CallId
    name: str
    text: str = ""


class ToolStuck(Event, frozen=True, kw_only=True):
    """A call that was left behind still runs. `stack`: where."""

    call: CallId
    name: str
    stack: str


class RequestStuck(Event, frozen=True, kw_only=True):
    """A request that was cut still runs, and the next one waits for it. `stack`: where."""

    stack: str


class ApprovalAsked(Event, frozen=True, kw_only=True):
    """A call waits for a person's decision (TOL-12). `arguments`: final, as JSON text. `why`: `tool` or `repeat`.

    `asked`, `expires`: seconds of the time of day (Unix); None: it never expires.
    """

    call: CallId
    name: str
    arguments: str
    why: str = "tool"
    asked: float = 0.0
    expires: float | None = None


class ApprovalDecided(Event, frozen=True, kw_only=True):
    """The one end of a request for approval. `verdict`: approved, denied, expired, withdrawn. `by`: who decided."""

    call: CallId
    name: str
    verdict: str
    by: str = ""
    message: str = ""


# -- budgets -----------------------------------------------------------------------------------------------------


class BudgetStage(Event, frozen=True, kw_only=True):
    """A budget passed a stage. `stage`: soft, critical, exhausted; `path` is the node's."""

    stage: str
    dimension: str
    limit: str
    spent: str


class Overrun(Event, frozen=True, kw_only=True):
    """A settlement exceeded its estimate. `amount`: in the dimension's whole unit."""

    dimension: str
    amount: int


# -- watching ----------------------------------------------------------------------------------------------------


class Missed(Event, frozen=True, kw_only=True):
    """A gap: `count` events were not kept for this watcher, or None where nobody can say (EVT-2, EVT-3).

    It was too slow, or came back after too long; None: its position is of another run of the program, or unknown. What
    it holds of a response in progress is void (REC-3).
    """

    count: int | None
