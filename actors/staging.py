"""What lands with a result or not at all: the writes of `store` calls, and what becomes of them when they are refused.

A `store` call writes beside the commit that settles it. Until then nothing of it is in the store, so that after a crash
it is as if it had never run, and runs again (TOL-3). What it wrote may be refused as it lands: a mailbox is full now,
an agent closed. Then the call has failed, and the commit is tried again without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import keeping
from .changes import CallState, Enqueue
from .content import Text
from .errors import MailboxError, UsageError
from .evolve import evolve
from .happenings import ToolEnded
from .inputs import CallsReturned, Cut
from .messages import Envelope
from .moves import Again, CancelCalls, Staged, Step, Tell
from .transcript import ResultRecord, ResultStatus

if TYPE_CHECKING:
    from .callview import CallOutcome, CallView
    from .changes import Operation
    from .errors import CallboardError
    from .ids import CallId
    from .inputs import CommitFailed, Input
    from .moves import TurnState

REFUSED = "Nothing of this call was done: "


def keep(state: TurnState, calls: tuple[CallView, ...], outcomes: tuple[CallOutcome, ...]) -> None:
    """Keep what calls that ran have staged, and what is too long of their results, for the commit that carries them."""
    keeping.keep(state, outcomes)
    for outcome in outcomes:
        if outcome.staged and any(c.block.id == outcome.call and c.state is CallState.STARTED for c in calls):
            state.stages = (*state.stages, Staged(outcome.call, outcome.staged))


def land(state: TurnState) -> tuple[Operation, ...]:
    """What is staged, for the commit that carries the results: it is staged no more."""
    if not state.stages:
        return ()
    landing = tuple(operation for staged in state.stages for operation in staged.operations)
    state.stages = ()
    return landing


def landing(state: TurnState) -> tuple[Operation, ...]:
    """All that lands with the results of a batch under way; first in its commit, for the rows of its calls are last."""
    return (*land(state), *keeping.drained(state))


def refused(state: TurnState, event: CommitFailed) -> Step | None:
    """Where the commit failed for what a call had staged: that call has failed, and the input is taken once more.

    Returns:
        The step; None where nothing staged is at fault.
    """
    tried = event.tried
    outcomes = tried.outcomes if isinstance(tried, CallsReturned | Cut) else ()
    brought = tuple(Staged(outcome.call, outcome.staged) for outcome in outcomes if outcome.staged)
    fault = _at_fault(event.error, (*state.stages, *brought))
    if tried is None or not fault:
        return None
    text = f"{REFUSED}{event.error}"
    state.stages = tuple(staged for staged in state.stages if staged.call not in fault)
    state.pending = tuple(
        evolve(record, status=ResultStatus.ERROR, content=(Text(text),))
        if isinstance(record, ResultRecord) and record.call in fault
        else record
        for record in state.pending
    )
    status = ResultStatus.ERROR.value
    told = tuple(
        Tell(ToolEnded, {"call": call, "name": name, "status": status, "text": text})
        for call, name, _ in state.done
        if call in fault
    )
    state.done = tuple((call, name, status if call in fault else what) for call, name, what in state.done)
    return Step(state, (), (CancelCalls(fault), *told, Again(_without(tried, fault, text))))


def _at_fault(error: CallboardError, staged: tuple[Staged, ...]) -> tuple[CallId, ...]:
    """Whose writes an error is about; where it does not say which message, all that send one."""
    if not isinstance(error, MailboxError | UsageError):
        return ()
    message = error.message.id if isinstance(error, MailboxError) and isinstance(error.message, Envelope) else None
    return tuple(
        one.call
        for one in staged
        if any(
            isinstance(operation, Enqueue) and message in (None, operation.envelope.id) for operation in one.operations
        )
    )


def _without(tried: Input, fault: tuple[CallId, ...], text: str) -> Input:
    """The input, with calls that failed in place of those whose writes were refused."""
    if not isinstance(tried, CallsReturned | Cut):
        return tried
    failed = tuple(
        evolve(outcome, status=ResultStatus.ERROR, content=(Text(text),), whole=None, staged=())
        if outcome.call in fault
        else outcome
        for outcome in tried.outcomes
    )
    return evolve(tried, outcomes=failed)
