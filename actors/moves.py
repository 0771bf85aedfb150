"""A turn as data: its state, what comes in, and what it asks its shell to do.

`turn.step(state, input)` returns a `Step`: operations to commit first, and, once they are durable, the state that
then holds and the actions that rest on them. If the commit fails, the old state stands and hears `CommitFailed`.

These are msgspec structs, which are made and copied in C: a model call makes fifty of them, and a frozen attrs class
takes seven times as long to make, for it sets each field by a call.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from .changes import AgentRow, Asking, CallState, Operation
from .compaction import NO_COMPACTION, CompactAsked, Compacting, CompactionOver, NotSummarised, Summarise, Summarised
from .content import Content, Trust
from .errors import CallboardError, Exhausted, ProviderError
from .happenings import Event
from .ids import CallId
from .messages import Failure, Outcome, Queued, Selection
from .output import OutputSpec
from .points import Point, TurnSpec
from .ports import Served, WireCall
from .selection import Choice, Choosing
from .tools import Toolbox
from .transcript import (
    CallBlock,
    NoteRecord,
    ReasoningBlock,
    Record,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    TextBlock,
)
from .usage import NO_USAGE, NOTHING, Amounts, Usage

if TYPE_CHECKING:
    from .changes import OpenTurn
    from .tools import Tool

    AnyTool: TypeAlias = Tool[..., object]


class Phase(enum.StrEnum):
    """What a turn is waiting for."""

    OPENING = "opening"
    HOOK = "hook"
    LOOKING = "looking"
    """for the mailbox"""
    ADMITTING = "admitting"
    """for the gate"""
    ASKING = "asking"
    """for the model"""
    COMPACTING = "compacting"
    """for a summary"""
    RUNNING = "running"
    """for tool calls"""
    OVER = "over"


class CallView(Struct, frozen=True):
    """A call of the open batch.

    Attributes:
        tool, arguments: None where the call can never run; then `result` is set from the start.
        keys: resource keys. exclusive: runs alone.
        asking: what a person is shown, where it needs approval. decided: the person has decided.
    """

    block: CallBlock
    state: CallState
    tool: AnyTool | None = None
    arguments: dict[str, object] | None = None
    keys: tuple[str, ...] = ()
    exclusive: bool = False
    tries: int = 1
    result: ResultRecord | None = None
    asking: Asking | None = None
    decided: bool = False


class TurnState(Struct):
    """A turn between two inputs.

    Invariants:
        TURN-1 `calls` is not empty only while RUNNING; then their response is committed and none of their results is.
            One of them runs, or a decision or a cut follows at once: a turn whose calls only wait is parked (TOL-12).
        TURN-2 `pending` stands, in order, behind the committed conversation of `head` records; it is never left
            uncommitted when a turn is over.
        TURN-3 a ticket is held from Admitted until the request that uses it, or `Abandon`.
        TURN-4 a step changes a copy of its own only; the state that it was given stays as it was.

    Attributes:
        row: the agent's row as last committed. head: records committed.
        pending: records not committed yet. settled: ids of the calls whose results are in `pending`, and of those of
            unknown outcome that one of these makes up for.
        mail: messages chosen for the next commit. owed: the conversation owes an answer.
        ticket: admission in hand; held: what it reserved. waiting: the gate was asked to wait.
        last_text, model: of the last response. invalid_rows: responses in a row with only invalid calls.
        failures: name and arguments of calls that failed in a row, and how often.
        repairs: structured answers asked again. last_chance: no tools are offered from now on, and why.
        exhausted: the refusal that the wrap-up answers. suspending: stop at the next commit.
        refused: why the turn fails once it has taken what it would have answered. conflicts: claims failed in a row.
        since: the time up to which active seconds are counted. done: calls settled in this run, the last of them.
        response: what `after_response` hooks see before it is committed.
        unknown: calls of this agent that ended unknown, each with what a repeat of it is known by (TOL-3).
        day_s: what makes the time of day of `now`.
        after_batch: a note that goes behind the results. note_last: the last of `pending` is a failure note, which
            goes behind the mail. then: where a hook's answer leads.
        compacting: compactions that are due, under way, or useless. choosing: what the mail chooses.
    """

    spec: TurnSpec
    row: AgentRow
    head: int
    phase: Phase = Phase.OPENING
    new_run: bool = True
    pending: tuple[Record, ...] = ()
    settled: tuple[CallId, ...] = ()
    mail: tuple[Queued, ...] = ()
    owed: bool = False
    ticket: object = None
    held: Amounts = NOTHING
    waiting: bool = False
    toolbox: Toolbox | None = None
    output: OutputSpec | None = None
    calls: tuple[CallView, ...] = ()
    last_text: str = ""
    answer: str | None = None
    invalid_rows: int = 0
    failures: tuple[tuple[str, str, int], ...] = ()
    repairs: int = 0
    last_chance: str | None = None
    exhausted: Exhausted | None = None
    refused: CallboardError | None = None
    conflicts: int = 0
    suspending: bool = False
    since: float = 0.0
    done: tuple[tuple[CallId, str, str], ...] = ()
    after_batch: NoteRecord | None = None
    note_last: bool = False
    then: Point | None = None
    response: Responded | None = None
    compacting: Compacting = NO_COMPACTION
    choosing: Choosing | None = None
    unknown: tuple[tuple[str, CallId], ...] = ()
    day_s: float = 0.0


# -- what comes in -----------------------------------------------------------------------------------------------


class Begin(Struct, frozen=True):
    """The turn begins, or goes on after a restart.

    Attributes:
        open_calls: those that the store still had open, in call order. owed: the last record owes an answer.
        last: the last record, where it is a response; it may be the answer. crashed: it was not left in order here.
        more: a decision or a cut follows at once, so that it does not park. compact: it is for a compaction only.
    """

    now: float
    open_calls: tuple[CallView, ...] = ()
    owed: bool = False
    last: ResponseRecord | None = None
    more: bool = False
    compact: bool = False
    crashed: bool = True


class HookReturned(Struct, frozen=True):
    """A hook is done.

    Attributes:
        error: why the turn must fail, or None: an observer's failure is an event of the shell.
        toolbox: chosen for the next request, or None.
        note, staged: of a hook that hands the conversation over: its text, and what it writes beside the change.
    """

    now: float
    error: CallboardError | None = None
    toolbox: Toolbox | None = None
    note: str = ""
    staged: tuple[Operation, ...] = ()


class Looked(Struct, frozen=True):
    """The answer to `Look`: messages chosen by the drain modes, and what is in force for the next request.

    `day_s`: seconds that make the time of day of `now`. `choice`: of the mail. `context_window`: in tokens, or None.
    """

    now: float
    mail: tuple[Queued, ...]
    toolbox: Toolbox
    output: OutputSpec | None = None
    day_s: float = 0.0
    choice: Choice | None = None
    context_window: int | None = None


class Admitted(Struct, frozen=True):
    """The gate has a place and the budget holds the estimate. `held`: what is reserved."""

    now: float
    ticket: object
    held: Amounts


class MustWait(Struct, frozen=True):
    """The gate has no place now."""

    now: float


class NotAdmitted(Struct, frozen=True):
    """The budget refused, or the request can never be admitted."""

    now: float
    error: CallboardError


class Responded(Struct, frozen=True):
    """The model's whole answer. `granted`: how many of its calls the budget admits, None for all."""

    now: float
    served: Served
    spent: Amounts
    granted: int | None = None


class Failed(Struct, frozen=True):
    """The request came to no answer, after all its attempts."""

    now: float
    error: ProviderError | Exhausted
    usage: Usage = NO_USAGE
    spent: Amounts = NOTHING


class CallOutcome(Struct, frozen=True):
    """What a tool gave."""

    call: CallId
    status: ResultStatus
    content: Content
    trust: Trust = Trust.TRUSTED


class CallsReturned(Struct, frozen=True):
    """Calls ended."""

    now: float
    outcomes: tuple[CallOutcome, ...]


class Decided(Struct, frozen=True):
    """Decisions on calls that wait for approval; one on a call that is settled already is left to the keeper."""

    now: float
    decisions: tuple[Queued, ...]


class Cut(Struct, frozen=True):
    """An abort, or a steer that interrupts, ends what is under way.

    Attributes:
        control: the abort's messages, to be claimed; empty for an interrupting steer.
        reason: of the abort; None for a steer.
        blocks: finished blocks of the response in progress; half: the text block that was being written.
        usage, spent: of the request that was cut. outcomes: of calls that had returned, but were not taken in yet.
    """

    now: float
    control: tuple[Queued, ...] = ()
    reason: str | None = None
    blocks: tuple[ReasoningBlock | TextBlock | WireCall, ...] = ()
    half: str = ""
    usage: Usage = NO_USAGE
    spent: Amounts = NOTHING
    cost_known: bool = True
    model: str = ""
    outcomes: tuple[CallOutcome, ...] = ()


class SuspendAsked(Struct, frozen=True):
    """Stop at the next commit; what is under way goes on until then."""

    now: float


class CommitFailed(Struct, frozen=True):
    """The last commit did not happen; the state is as before it. `ticket`: the one that came with the failed step."""

    now: float
    error: CallboardError
    ticket: object = None


Input: TypeAlias = (
    Begin
    | HookReturned
    | Looked
    | Admitted
    | MustWait
    | NotAdmitted
    | Responded
    | Failed
    | CallsReturned
    | Decided
    | Cut
    | SuspendAsked
    | CommitFailed
    | CompactAsked
    | Summarised
    | NotSummarised
)

# -- what is asked of the shell ----------------------------------------------------------------------------------


class CallHook(Struct, frozen=True):
    """Call the hooks of a point; answer HookReturned."""

    point: Point


class Look(Struct, frozen=True):
    """Choose messages; answer Looked at once. `sends`: nothing is owed, so the send lane may enter too."""

    sends: bool


class Admit(Struct, frozen=True):
    """Ask the gate; answer Admitted, MustWait (not with `wait`), NotAdmitted or, for a `helper`, NotSummarised."""

    extra_bytes: int
    wait: bool = False
    wrap_up: bool = False
    selection: Selection | None = None
    helper: bool = False


class Abandon(Struct, frozen=True):
    """Give an unused ticket back."""

    ticket: object


class Ask(Struct, frozen=True):
    """Send the request; answer Responded or Failed. `toolless`: offer no tools."""

    ticket: object
    step: int
    output: OutputSpec | None
    toolless: bool = False


class StartCall(Struct, frozen=True):
    """Run a call that is on disk as started; answer CallsReturned."""

    call: CallView


class CancelCalls(Struct, frozen=True):
    """End these calls; what they still return is late (TOL-14)."""

    calls: tuple[CallId, ...]


class CutStream(Struct, frozen=True):
    """Cancel the response in progress."""


class Tell(Struct, frozen=True):
    """An event; the shell adds path, run, turn, seq and time."""

    event: type[Event]
    values: Mapping[str, object]


class Over(Struct, frozen=True):
    """The turn is over.

    Attributes:
        suspended: it stays open in the store, and why.
        outcome: what those who wait are told; None where only the suspension is said, or nothing was done.
        failure: of the store, where that is the reason.
    """

    suspended: str | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None


Action: TypeAlias = (
    CallHook
    | Look
    | Admit
    | Abandon
    | Ask
    | StartCall
    | CancelCalls
    | CutStream
    | Tell
    | Over
    | Summarise
    | CompactionOver
)


class Step(Struct, frozen=True):
    """What a step decided.

    Attributes:
        state: holds once `commit` is durable. records: those that `commit` appends.
    """

    state: TurnState
    commit: tuple[Operation, ...] = ()
    actions: tuple[Action, ...] = ()
    records: tuple[Record, ...] = ()


CALLS_LISTED: Final = 64
"""How many of a run's calls a report lists: the last."""


def opened(state: TurnState) -> OpenTurn:
    """The open turn of a state: a turn that has begun is open."""
    assert state.row.open is not None, "a turn that has begun is open"
    return state.row.open


def nothing_owed(state: TurnState) -> bool:
    """Whether the conversation owes no answer and none is in hand: then the send lane may enter (CON-1)."""
    return not state.owed and state.answer is None
