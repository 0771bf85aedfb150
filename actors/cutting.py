"""How a turn is cut: by an abort, by a steer that interrupts, by a commit that did not happen.

Everything is settled now, with what came until now, and nothing is waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import answers, batch, ending
from .batching import batch_over, settled_tells
from .changes import CallState
from .errors import Conflict, Fenced
from .evolve import evolve
from .happenings import ResponseEnded
from .ids import turn_id
from .messages import failure_of
from .moves import (
    Abandon,
    CallView,
    CancelCalls,
    CommitFailed,
    Cut,
    CutStream,
    Look,
    Over,
    Phase,
    Step,
    Tell,
    TurnState,
    nothing_owed,
    opened,
)
from .transcript import Stop
from .usage import NOTHING

if TYPE_CHECKING:
    from .changes import OpenTurn
    from .moves import Action


def cut(state: TurnState, event: Cut) -> Step:
    """Abort (ABT-1, ABT-3) or an interrupting steer (CON-7): settle everything now, wait for nothing."""
    turn_open = opened(state)
    turn = turn_id(state.row.agent, turn_open.number)
    actions: list[Action] = []
    if state.ticket is not None and state.phase is not Phase.ASKING:
        actions.append(Abandon(state.ticket))
    state = evolve(state, ticket=None, waiting=False, mail=())
    if state.response is not None:  # it was whole, and a hook was looking at it
        response = state.response
        whole = Cut(
            event.now,
            blocks=response.served.response.blocks,
            usage=response.served.usage,
            spent=response.spent,
            cost_known=response.served.cost is not None,
            model=response.served.model,
        )
        state, tells = _cut_response(evolve(state, response=None), whole, turn_open)
        actions += tells
    elif state.phase is Phase.ASKING:
        state, tells = _cut_response(state, event, turn_open)
        actions += [CutStream(), *tells]
    elif state.phase is Phase.RUNNING:
        returned = batch.settle(state.calls, turn, event.outcomes)
        running = tuple(call.block.id for call in returned if call.state is CallState.STARTED)
        calls = batch.stop(returned, turn, started=True)
        ended = tuple(call for call, was in zip(calls, state.calls, strict=True) if call is not was)
        over = batch_over(evolve(state, calls=calls), (), ())
        state = over.state
        actions += [CancelCalls(running), *settled_tells(ended)]
    if event.reason is None:
        return Step(evolve(state, phase=Phase.LOOKING), (), (*actions, Look(sends=nothing_owed(state))))
    return ending.abort(state, event, tuple(actions))


def _cut_response(state: TurnState, event: Cut, turn_open: OpenTurn) -> tuple[TurnState, tuple[Action, ...]]:
    """What was whole stays, and the half text; finished calls that will not run are settled as skipped (TRN-8)."""
    turn = turn_id(state.row.agent, turn_open.number)
    reading = answers.interrupted(turn, turn_open.step, event.blocks, event.half, model=event.model, usage=event.usage)
    row = state.row
    row = evolve(
        row,
        usage=row.usage + event.usage,
        spent=row.spent + event.spent,
        run_usage=row.run_usage + event.usage,
        run_spent=row.run_spent + event.spent,
        cost_known=row.cost_known and event.cost_known,
        open=evolve(turn_open, asking=False, held=NOTHING),
    )
    planned = tuple(CallView(block, CallState.PLANNED) for block in reading.calls)
    skipped = batch.stop(planned, turn, started=False)
    text = reading.record.text
    cost = event.spent.cost if event.cost_known else None
    values = {"stop": Stop.INTERRUPTED, "text": text, "usage": event.usage, "cost": cost, "model": event.model}
    kept = (reading.record, *batch.results(skipped)) if reading.record.blocks else ()
    state = evolve(state, row=row, pending=(*state.pending, *kept), last_text=text or state.last_text)
    return state, (Tell(ResponseEnded, values), *settled_tells(skipped))


def commit_failed(state: TurnState, event: CommitFailed) -> Step:
    """Nothing was written, so nothing is assumed: look again, or stop with what the store says (TRN-3, TOL-10)."""
    if isinstance(event.error, Conflict) and state.phase in _CLAIMING and state.conflicts < CONFLICTS_MAX:
        # Someone withdrew a message, or another process took it: choose again from what is there.
        again = evolve(state, mail=(), waiting=False, conflicts=state.conflicts + 1, phase=Phase.LOOKING)
        return Step(again, (), (Look(sends=nothing_owed(again)),))
    running = tuple(call.block.id for call in state.calls if call.state is CallState.STARTED)
    actions: list[Action] = [CutStream()] if state.phase is Phase.ASKING else []
    if state.ticket is not None and state.phase is not Phase.ASKING:
        actions.append(Abandon(state.ticket))
    if running:
        actions.append(CancelCalls(running))
    reason = "fenced" if isinstance(event.error, Fenced) else "store"
    return Step(evolve(state, phase=Phase.OVER), (), (*actions, Over(reason, None, failure_of(event.error))))


_CLAIMING: Final = frozenset({Phase.HOOK, Phase.LOOKING, Phase.ADMITTING})
CONFLICTS_MAX: Final = 16
"""Claims in a row that may fail before it is the store that is at fault."""
