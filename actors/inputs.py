"""What a turn is told: the inputs of `turn.step`, and the phases in which each has a place."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from .callview import CallOutcome, CallView
from .changes import Operation
from .compaction import CompactAsked, NotSummarised, Summarised
from .errors import BudgetError, CallboardError, Exhausted, InternalError, ProviderError
from .ids import CallId
from .messages import Queued
from .output import OutputSpec
from .ports import Served, WireCall
from .selection import Choice
from .tools import Toolbox
from .transcript import ReasoningBlock, ResponseRecord, ResultRecord, TextBlock
from .usage import NO_USAGE, NOTHING, Amounts, Usage

if TYPE_CHECKING:
    from .ids import AgentId


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


class Begin(Struct, frozen=True):
    """The turn begins, or goes on after a restart.

    Attributes:
        open_calls: those that the store still had open, in call order. owed: the last record owes an answer.
        last: the last record, where it is a response; it may be the answer. crashed: it was not left in order here.
        more: a decision or a cut follows at once, so that it does not park. compact: it is for a compaction only.
        unwritten: what the accounts were charged for this agent and its row does not say yet.
        unanswered: results for calls that a damaged store left without one, before anything stands behind (TOL-1).
    """

    now: float
    open_calls: tuple[CallView, ...] = ()
    owed: bool = False
    last: ResponseRecord | None = None
    more: bool = False
    compact: bool = False
    crashed: bool = True
    unwritten: Amounts = NOTHING
    unanswered: tuple[ResultRecord, ...] = ()


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

    `day_s`: makes the time of day of `now`. `choice`: of the mail. `context_window`: tokens. `problem`: why not to ask.
    """

    now: float
    mail: tuple[Queued, ...]
    toolbox: Toolbox
    output: OutputSpec | None = None
    day_s: float = 0.0
    choice: Choice | None = None
    context_window: int | None = None
    problem: CallboardError | None = None
    waits: int = 0


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
    """The model's whole answer. `granted`: how many of its calls the budget admits, None for all; `short`: why."""

    now: float
    served: Served
    spent: Amounts
    granted: int | None = None
    short: Exhausted | None = None


class Failed(Struct, frozen=True):
    """The request came to no answer, after all its attempts."""

    now: float
    error: ProviderError | Exhausted
    usage: Usage = NO_USAGE
    spent: Amounts = NOTHING


class CallsReturned(Struct, frozen=True):
    """Calls ended. `so_far`: where one of them ends its whole batch, what is said of those that ran beside it."""

    now: float
    outcomes: tuple[CallOutcome, ...]
    so_far: tuple[tuple[CallId, str], ...] = ()


class Decided(Struct, frozen=True):
    """Decisions on calls that wait for approval; one on a call that is settled already is left to the keeper."""

    now: float
    decisions: tuple[Queued, ...]


class Cut(Struct, frozen=True):
    """An abort, a steer that interrupts, or the end of the turn's time ends what is under way.

    Attributes:
        control: the abort's messages, to be claimed; empty for an interrupting steer.
        reason: of the abort, else None. late: the error of a turn whose time is up, its own or its budget's.
        blocks: finished blocks of the response in progress; half: the text block that was being written.
        usage, spent: of the request that was cut. outcomes: of calls that had returned, but were not taken in yet.
        so_far: what is said of running calls: what they had so far, who is aborted with them; of those with either.
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
    late: BudgetError | None = None
    so_far: tuple[tuple[CallId, str], ...] = ()

    @property
    def steer(self) -> bool:
        """Whether the turn goes on behind it, with the message that interrupts."""
        return self.reason is None and self.late is None


class SuspendAsked(Struct, frozen=True):
    """Stop at the next commit; what is under way goes on until then."""

    now: float


class CommitFailed(Struct, frozen=True):
    """The last commit did not happen; the state is as before it.

    Attributes:
        ticket: the one that came with the failed step. tried: the input that it was taken for.
    """

    now: float
    error: CallboardError
    ticket: object = None
    tried: Input | None = None


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

_ANY: Final = frozenset(Phase) - {Phase.OPENING, Phase.OVER}
_PLACES: Final[dict[type, frozenset[Phase]]] = {
    Begin: frozenset({Phase.OPENING}),
    HookReturned: frozenset({Phase.HOOK}),
    Looked: frozenset({Phase.LOOKING}),
    Admitted: frozenset({Phase.ADMITTING}),
    MustWait: frozenset({Phase.ADMITTING}),
    NotAdmitted: frozenset({Phase.ADMITTING}),
    Responded: frozenset({Phase.ASKING}),
    Failed: frozenset({Phase.ASKING}),
    CallsReturned: frozenset({Phase.RUNNING}),
    Decided: _ANY,
    Cut: _ANY,
    SuspendAsked: _ANY,
    CommitFailed: _ANY | {Phase.OPENING},
    CompactAsked: _ANY,
    Summarised: frozenset({Phase.COMPACTING}),
    NotSummarised: frozenset({Phase.ADMITTING, Phase.COMPACTING}),
}


def check_place(phase: Phase, event: Input, agent: AgentId) -> None:
    """Refuse an input that has no place in a phase.

    Raises:
        InternalError: it has none.
    """
    if phase not in _PLACES[type(event)]:
        msg = f"{type(event).__name__} has no place in phase {phase} of {agent}"
        raise InternalError(msg)
