"""How a turn goes on that the store had open: by what became of its calls, and by the last durable record.

Everything is decided at the opening, in one commit, before the model is asked or a call runs again (REC-1, TOL-3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import answering, approving, batch, compacting, parking, poison
from .batching import batch_over, rows_of, settled_tells, starting
from .changes import Put
from .evolve import evolve
from .happenings import TurnStarted
from .ids import turn_id
from .inputs import Phase
from .moves import Look, Step, Tell, opened
from .transcript import Stop

if TYPE_CHECKING:
    from .inputs import Begin
    from .moves import TurnState


def go_on(state: TurnState, event: Begin) -> Step:
    """Take up a turn that the store had open, in one commit: its calls first, each by its effect class."""
    turn_open = opened(state)
    calls, again = batch.recover(approving.recovered(event.open_calls), turn_id(state.row.agent, turn_open.number))
    state.row = evolve(
        state.row,
        owes=True,
        suspended=None,
        open=poison.found(state.row, event),
        spent=state.row.spent + event.unwritten,  # BUD-7: a lost call is charged, here as in the accounts
        run_spent=state.row.run_spent + event.unwritten,
    )
    if turn_open.alone:
        return compacting.recovered(state)
    began = Tell(TurnStarted, {})
    if not calls:
        return _answer(state, event, began)
    state.unknown = (*state.unknown, *approving.ended_unknown(calls))
    state.owed, state.calls, state.phase = True, calls, Phase.RUNNING
    started = parking.start_more(state)
    changed = tuple(call for call, was in zip(state.calls, event.open_calls, strict=True) if call is not was)
    writes = (Put(state.row), *rows_of(state, changed))
    actions = (began, *settled_tells(changed), *starting((*again, *started)))
    if batch.finished(state.calls):
        return batch_over(state, writes, actions)
    if parking.idle(state) and not event.more:
        return parking.park(state, writes[1:], event.now, actions)
    return Step(state, writes, actions)


def _answer(state: TurnState, event: Begin, began: Tell) -> Step:
    """No call was open: an answer is owed, or it is there already, or nothing was taken yet (REC-1)."""
    last, put = event.last, Put(state.row)
    if opened(state).step and not event.owed and last is not None and last.stop is not Stop.INTERRUPTED:
        state.owed, state.last_text = True, last.text
        made = answering.answered(state, last.stop, event.now, began)
        return Step(made.state, (put, *made.commit), made.actions, made.records)
    state.owed, state.phase = event.owed or opened(state).step > 0, Phase.LOOKING
    return Step(state, (put,), (began, Look(sends=not state.owed)))
