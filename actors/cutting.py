"""How a turn is cut: by an abort, by a steer that interrupts, by a commit that did not happen.

Everything is settled now, with what came until now, and nothing is waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import answers, approving, batch, compacting, ending, staging
from .batch import Why
from .batching import batch_over, settled_tells
from .callview import CallView
from .changes import CallState
from .compaction import NO_COMPACTION
from .errors import Conflict, Exhausted, Fenced
from .evolve import evolve
from .happenings import ResponseEnded
from .ids import turn_id
from .inputs import CommitFailed, Cut, Phase
from .messages import failure_of
from .moves import Abandon, Again, CancelCalls, CutStream, Look, Over, Step, Tell, TurnState, nothing_owed, opened
from .parking import BUDGET
from .transcript import ResultRecord, ResultStatus

if TYPE_CHECKING:
    from .answers import Reading
    from .errors import BudgetError
    from .ids import CallId
    from .inputs import Responded
    from .moves import Action
    from .transcript import Record


def cut(state: TurnState, event: Cut) -> Step:
    """Abort (ABT-1, ABT-3) or an interrupting steer (CON-7): settle everything now, wait for nothing."""
    actions: list[Action] = []
    if state.ticket is not None and state.phase not in _OPEN:
        actions.append(Abandon(state.ticket))
    state.ticket, state.waiting, state.mail, state.choosing = None, False, (), None
    kept, settled = len(state.pending), _settled(state, event)
    if state.compacting is not NO_COMPACTION:
        tells, last = compacting.cut(state, event)
        actions += tells
        if last is not None:
            return Step(last.state, last.commit, (*actions, *last.actions), last.records)
    if state.phase is Phase.ASKING:
        actions += [CutStream(), *_keep_cut(state, event)]
    elif state.response is not None:
        response, state.response = state.response, None
        actions += keep_unrun(state, response, _why(event))
    elif state.phase is Phase.RUNNING:
        turn = turn_id(state.row.agent, opened(state).number)
        returned = batch.settle(state.calls, turn, event.outcomes, event.so_far)
        staging.keep(state, state.calls, event.outcomes)
        if event.steer:
            actions += approving.steered_tells(returned)
            returned = approving.steered(turn, returned)
        gave = {outcome.call for outcome in event.outcomes}
        running = tuple(
            call.block.id for call in state.calls if call.state is CallState.STARTED and call.block.id not in gave
        )
        calls = batch.stop(returned, turn, _why(event), event.so_far)
        ended = tuple(call for call, was in zip(calls, state.calls, strict=True) if call is not was)
        state.calls = calls
        batch_over(state, (), ())
        why = "" if event.reason is not None else _why(event)  # an abort is theirs already (ABT-5)
        actions += [CancelCalls(running, why), *settled_tells(ended)]
        if running and event.late is not None:  # what they wait for is aborted before a commit settles them (SUP-4)
            return Step(state, (), (*actions, Again(event)))
    if event.late is not None:
        return _late(state, event, event.late, tuple(actions))
    if event.steer:
        _note_skipped(state, state.pending[kept:], settled)
        state.phase = Phase.LOOKING
        return Step(state, (), (*actions, Look(sends=nothing_owed(state))))
    return ending.abort(state, event, tuple(actions))


def _why(event: Cut) -> Why:
    if event.late is not None:
        return Why.BUDGET if isinstance(event.late, Exhausted) else Why.TIME
    return Why.STEER if event.steer else Why.ABORT


def _late(state: TurnState, event: Cut, error: BudgetError, actions: tuple[Action, ...]) -> Step:
    """Fail; where nothing was taken yet, take it first: who sent it must be told, and not by a turn without end."""
    if isinstance(error, Exhausted) and error.on_exhausted == "park":
        return ending.suspend(state, event.now, BUDGET, error, actions)
    if not nothing_owed(state):
        return ending.fail(state, error, event.now, *actions)
    state.refused, state.phase = error, Phase.LOOKING
    return Step(state, (), (*actions, Look(sends=True)))


def _settled(state: TurnState, event: Cut) -> set[CallId]:
    """The calls that ended by themselves before the cut."""
    settled = {call.block.id for call in state.calls if call.result is not None}
    settled.update([outcome.call for outcome in event.outcomes])
    return settled


def _note_skipped(state: TurnState, fresh: tuple[Record, ...], settled: set[CallId]) -> None:
    """Keep which calls the steer ended, until it enters: its receipt names them (CON-7)."""
    ended = tuple(
        record.call
        for record in fresh
        if isinstance(record, ResultRecord) and record.status in _ENDED and record.call not in settled
    )
    if ended:
        turn_open = opened(state)
        state.row = evolve(state.row, open=evolve(turn_open, skipped=(*turn_open.skipped, *ended)))


_ENDED: Final = frozenset({ResultStatus.ABORTED, ResultStatus.SKIPPED, ResultStatus.DENIED})


def _keep_cut(state: TurnState, event: Cut) -> tuple[Action, ...]:
    """What was whole of a response that is cut stays, and its half text (TRN-8)."""
    ending.account(state, event.usage, event.spent, cost_known=event.cost_known)
    turn_open = opened(state)
    turn = turn_id(state.row.agent, turn_open.number)
    reading = answers.interrupted(turn, turn_open.step, event.blocks, event.half, model=event.model, usage=event.usage)
    return _keep(state, reading, _why(event), event.spent.cost if event.cost_known else None)


def keep_unrun(state: TurnState, response: Responded, why: Why = Why.HOOK) -> tuple[Action, ...]:
    """A response stays that was whole, but that a hook was still looking at: what it asks for will not be done."""
    served, turn_open = response.served, opened(state)
    turn = turn_id(state.row.agent, turn_open.number)
    blocks = served.response.blocks
    reading = answers.interrupted(turn, turn_open.step, blocks, "", model=served.model, usage=served.usage)
    return _keep(state, reading, why, served.cost)


def _keep(state: TurnState, reading: Reading, why: Why, cost: int | None) -> tuple[Action, ...]:
    """Finished calls that will not run are settled as skipped: no call stays without a result (TOL-1)."""
    record = reading.record
    planned = tuple(CallView(block, CallState.PLANNED) for block in reading.calls)
    skipped = batch.stop(planned, record.turn, why)
    kept: tuple[Record, ...] = (record, *batch.results(skipped)) if record.blocks else ()
    state.pending, state.last_text = (*state.pending, *kept), record.text or state.last_text
    values = {"stop": record.stop, "text": record.text, "usage": record.usage, "cost": cost, "model": record.model}
    return (Tell(ResponseEnded, values), *settled_tells(skipped))


def commit_failed(state: TurnState, event: CommitFailed) -> Step:
    """Nothing was written, so nothing is assumed: look again, or stop with what the store says (TRN-3, TOL-10)."""
    claiming = state.phase in _CLAIMING and state.response is None
    claiming &= state.row.open is None or not state.row.open.alone  # open for a compaction, it takes no mail
    back = (Abandon(event.ticket),) if event.ticket is not None else ()
    if isinstance(event.error, Conflict) and claiming and state.conflicts < CONFLICTS_MAX:
        # Someone withdrew a message, or another process took it: choose again from what is there.
        state.mail, state.waiting, state.phase = (), False, Phase.LOOKING
        state.conflicts += 1
        if state.ticket is None and state.compacting is not NO_COMPACTION:
            compacting.again(state)
        return Step(state, (), (*back, Look(sends=nothing_owed(state))))
    running = tuple(call.block.id for call in state.calls if call.state is CallState.STARTED)
    actions: list[Action] = [*back, CutStream()] if state.phase in _OPEN else [*back]
    if state.ticket is not None and state.phase not in _OPEN:
        actions.append(Abandon(state.ticket))
    if running:
        actions.append(CancelCalls(running))
    reason = "fenced" if isinstance(event.error, Fenced) else "store"
    return Step(ending.over(state), (), (*actions, Over(reason, None, failure_of(event.error))))


_OPEN: Final = frozenset({Phase.ASKING, Phase.COMPACTING})
"""A request is under way, with its ticket."""
_CLAIMING: Final = frozenset({Phase.HOOK, Phase.LOOKING, Phase.ADMITTING})
CONFLICTS_MAX: Final = 16
"""Claims in a row that may fail before it is the store that is at fault."""
