"""A turn as data: its state, and what it asks its shell to do. What comes in stands in `inputs.py`.

`turn.step(state, input)` returns a `Step`: operations to commit first, and, once they are durable, the state that
then holds and the actions that rest on them. If the commit fails, the old state stands and hears `CommitFailed`.

These are msgspec structs, which are made and copied in C: a model call makes fifty of them, and a frozen attrs class
takes seven times as long to make, for it sets each field by a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from .callview import CallView
from .changes import AgentRow, Operation
from .compaction import NO_COMPACTION, Compacting, CompactionOver, Summarise
from .cycles import NO_ROUNDS, Rounds
from .errors import CallboardError, Exhausted
from .happenings import Event
from .hooked import Point
from .ids import CallId, MessageId
from .inputs import Input, Phase, Responded
from .messages import Failure, Outcome, Queued, Selection, Status
from .output import OutputSpec
from .points import TurnSpec
from .selection import Choosing
from .tools import Toolbox
from .transcript import NoteRecord, Record
from .usage import NOTHING, Amounts

if TYPE_CHECKING:
    from .changes import OpenTurn


class Staged(Struct, frozen=True):
    """What a call has written beside the commit that will carry its result."""

    call: CallId
    operations: tuple[Operation, ...]


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
            unknown outcome that one of these makes up for. stages: what lands with results in `pending` (HOK-3).
        mail: messages chosen for the next commit. owed: the conversation owes an answer.
        ticket: admission in hand; held: what it reserved. waiting: the gate was asked to wait.
        last_text: of the last response. invalid_rows: responses in a row with only invalid calls. failures: name and
            arguments of calls that failed in a row, and how often.
        unfit: answers that were asked for again, and why. last_chance: no tools are offered from now on, and why.
        exhausted: the refusal that the wrap-up answers. short: that of calls of the last batch. suspending: stop at the
            next commit.
        failing: how the turn ends as it fails, once the mailbox was looked at. run_over: its end settles its run.
        beside: what the `settling` hook wrote, once it was called.
        refused: why the turn fails once it has taken what it would have answered. conflicts: claims failed in a row.
        since: the time up to which active seconds are counted. done: calls settled in this run, the last of them.
        response: what `after_response` hooks see before it is committed.
        rounds: the last of its batches that ran, by which a circle is seen (TRN-7).
        staged: what else the next commit carries: results that are kept aside (TOL-8).
        unknown: calls of this agent that ended unknown, each with what a repeat of it is known by (TOL-3).
        day_s: what makes the time of day of `now`.
        after_batch: a note that goes behind the results. note_last: the last of `pending` is a failure note, which
            goes behind the mail. then: where a hook's answer leads. prepared: the mail that the hooks which choose the
            next request saw, or None.
        compacting: compactions that are due, under way, or useless. choosing: what the mail chooses.
    """

    spec: TurnSpec
    row: AgentRow
    head: int
    phase: Phase = Phase.OPENING
    new_run: bool = True
    pending: tuple[Record, ...] = ()
    settled: tuple[CallId, ...] = ()
    stages: tuple[Staged, ...] = ()
    failing: tuple[Status, Failure] | None = None
    beside: tuple[Operation, ...] | None = None
    run_over: bool = False
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
    unfit: tuple[tuple[str, str], ...] = ()
    last_chance: str | None = None
    exhausted: Exhausted | None = None
    short: Exhausted | None = None
    refused: CallboardError | None = None
    conflicts: int = 0
    suspending: bool = False
    since: float = 0.0
    done: tuple[tuple[CallId, str, str], ...] = ()
    after_batch: NoteRecord | None = None
    note_last: bool = False
    then: Point | None = None
    prepared: tuple[MessageId, ...] | None = None
    response: Responded | None = None
    compacting: Compacting = NO_COMPACTION
    choosing: Choosing | None = None
    unknown: tuple[tuple[str, CallId], ...] = ()
    staged: tuple[Operation, ...] = ()
    rounds: Rounds = NO_ROUNDS
    day_s: float = 0.0


# -- what is asked of the shell ----------------------------------------------------------------------------------


class CallHook(Struct, frozen=True):
    """Call the hooks of a point; answer HookReturned. `coming`: what the next commit will append, where it matters."""

    point: Point
    coming: tuple[Record, ...] = ()


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
    """End these calls; what they still return is late (TOL-14).

    `why`: for this the blocking children that they wait for are aborted with them; empty: these go on with the turn, or
    are aborted with it already (ABT-5).
    """

    calls: tuple[CallId, ...]
    why: str = ""


class CutStream(Struct, frozen=True):
    """Cancel the response in progress."""


class Again(Struct, frozen=True):
    """Take an input once more, before any other: what its commit failed for is left out now, or had to come first."""

    event: Input


class Tell(Struct, frozen=True):
    """An event; the shell adds path, run, turn, seq and time."""

    event: type[Event]
    values: Mapping[str, object]


class Over(Struct, frozen=True):
    """The turn is over.

    Attributes:
        suspended: it stays open in the store, and why.
        outcome: what those who wait are told; None where only the suspension is said, or nothing was done.
        failure: of the store, where that is the reason. run_over: the run was settled with it.
    """

    suspended: str | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    run_over: bool = False


Action: TypeAlias = (
    CallHook
    | Look
    | Admit
    | Abandon
    | Ask
    | StartCall
    | CancelCalls
    | CutStream
    | Again
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
