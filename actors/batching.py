"""A batch within its turn: how it starts, what is told of it, how it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import approving, batch
from .changes import CallRow, CallState, Erase, KvRow, Put
from .content import text_of
from .evolve import evolve
from .happenings import ApprovalDecided, ToolEnded, ToolStarted
from .ids import turn_id
from .inputs import Phase
from .messages import Verdict
from .moves import CALLS_LISTED, CancelCalls, Look, StartCall, Step, Tell, TurnState, opened
from .tools import Effect
from .transcript import ResultStatus

if TYPE_CHECKING:
    from .callview import CallOutcome, CallView
    from .changes import Operation
    from .ids import CallId
    from .moves import Action


def starting(calls: tuple[CallView, ...]) -> tuple[Action, ...]:
    """The actions that start calls."""
    actions: list[Action] = []
    for call in calls:
        block = call.block
        values = {"call": block.id, "name": block.name, "arguments": block.arguments}
        actions.append(Tell(ToolStarted, {**values, "repaired": call.repaired} if call.repaired else values))
        actions.append(StartCall(call))
    return tuple(actions)


def cut_off(
    before: tuple[CallView, ...], ended: tuple[CallView, ...], outcomes: tuple[CallOutcome, ...]
) -> tuple[Action, ...]:
    """What ends the running calls that a fatal tool's failure settled, though they gave nothing (TOL-4)."""
    if len(ended) <= len(outcomes):
        return ()
    gave = {outcome.call for outcome in outcomes}
    ran = {call.block.id for call in before if call.state is CallState.STARTED}
    running = tuple(call.block.id for call in ended if call.block.id in ran - gave)
    return (CancelCalls(running, batch.Why.FATAL),) if running else ()


def settled_tells(calls: tuple[CallView, ...]) -> tuple[Action, ...]:
    """The events of calls that are settled."""
    tells: list[Action] = []
    for call in calls:
        if call.result is None:
            continue
        if call.asking is not None and not call.decided:  # nobody needs to decide it any more
            what = {"call": call.block.id, "name": call.block.name, "verdict": Verdict.WITHDRAWN.value}
            tells.append(Tell(ApprovalDecided, what))
        values = {
            "call": call.block.id,
            "name": call.block.name,
            "status": call.result.status.value,
            "text": text_of(call.result.content)[:TOLD_CHARS],
        }
        tells.append(Tell(ToolEnded, values))
    return tuple(tells)


TOLD_CHARS: Final = 200
"""How much of a result an event shows."""


def told(outcome: CallOutcome) -> str:
    """What an event shows of an outcome."""
    return text_of(outcome.content)[:TOLD_CHARS]


def batch_over(state: TurnState, commit: tuple[Operation, ...], before: tuple[Action, ...]) -> Step:
    """All calls are settled: their results wait, in call order, for the commit that carries the next request."""
    results = batch.results(state.calls)
    assert len(results) == len(state.calls), "TURN-1: a finished batch has every result"
    ids = tuple(call.block.id for call in state.calls if call.result is not None and not _unknown(call))
    if state.unknown:
        ids += _made_up(state)
    done = (*state.done, *((c.block.id, c.block.name, c.result.status.value) for c in state.calls if c.result))
    extra = (state.after_batch,) if state.after_batch is not None else ()
    erased = tuple([Erase(KvRow, (state.row.agent, call.block.id)) for call in state.calls if call.kept])  # HOK-4
    if erased:
        state.staged = (*state.staged, *erased)
    state.calls, state.after_batch, state.phase = (), None, Phase.LOOKING
    state.pending = (*state.pending, *results, *extra)
    state.settled = (*state.settled, *ids)
    state.done = done[-CALLS_LISTED:]
    return Step(state, commit, (*before, Look(sends=False)))


_ENDED: Final = frozenset({ResultStatus.OK, ResultStatus.ERROR, ResultStatus.TIMEOUT})


def _made_up(state: TurnState) -> tuple[CallId, ...]:
    """A repeat that a person approved has come to a known end: what it repeats need not be asked about again."""
    done = {
        approving.likeness(call.tool, call.block)
        for call in state.calls
        if call.asking is not None and call.result is not None and call.result.status in _ENDED
    }
    gone = tuple(call for like, call in state.unknown if like in done)
    state.unknown = tuple((like, call) for like, call in state.unknown if like not in done)
    return gone


def _unknown(call: CallView) -> bool:
    """Its row stays, so that the same call asked for again is known for what it is (TOL-3)."""
    return call.result is not None and call.result.status is ResultStatus.UNKNOWN


def row_of(state: TurnState, call: CallView) -> CallRow:
    """A call as the store keeps it."""
    return batch.row(state.row.agent, turn_id(state.row.agent, opened(state).number), call)


def rows_of(state: TurnState, calls: tuple[CallView, ...]) -> tuple[Put, ...]:
    """The writes of calls as they stand.

    None for a `store` call that is not settled: nothing of it is in the store before its result, so whether it had
    started decides nothing, and without a row it is found planned (TOL-2). Its approval is kept, and then it is.
    """
    return tuple(Put(row_of(state, _as_kept(call))) for call in calls if call.asking is not None or not _unseen(call))


def _unseen(call: CallView) -> bool:
    return call.state is not CallState.SETTLED and call.tool is not None and call.tool.effect is Effect.STORE


def _as_kept(call: CallView) -> CallView:
    started = call.state is CallState.STARTED and _unseen(call)
    return evolve(call, state=CallState.PLANNED) if started else call
