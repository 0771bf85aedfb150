"""What becomes of a turn that crashed again and again (CON-6).

A turn found open after a crash is counted before it works: by the new owner of its tree before anything of it is read
in (`supervisor.recovery`), or, where only its loop crashed, in the commit that takes it up. At the third crash in a row
(`Limits.poison_limit`) it is given up: what it had consumed goes to the dead letters. Where that are several messages,
nobody knows which one is at fault: for the last try they wait again, and each is taken alone, by a turn that nothing
else joins. Either way they are in the conversation no more: one that breaks whoever reads it would break every later
turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import approving, batch, ending
from .batching import batch_over, rows_of, settled_tells
from .changes import CallState, Move, OutcomeRow, Put
from .errors import Crashed
from .evolve import evolve
from .happenings import NoteWritten, TurnEnded, TurnStarted
from .ids import turn_id
from .messages import ReceiptState, Status, failure_of
from .moves import Over, Step, Tell, opened
from .tools import Effect
from .transcript import NoteRecord, ResultStatus
from .usage import NOTHING

if TYPE_CHECKING:
    from .callview import CallView
    from .changes import AgentRow, OpenTurn
    from .ids import TurnId
    from .inputs import Begin
    from .moves import Action, TurnState

CRASHED: Final = (
    "The host crashed while this call was running, time and again; the call was given up. " + batch.MAY_HAVE
)


def last_try(row: AgentRow, limit: int) -> bool:
    """Whether the open turn is on its last try: one more crash and it is given up, so nothing else joins it."""
    return row.open is not None and 0 < row.open.tries >= limit - 1


def at_work(row: AgentRow) -> bool:
    """Whether a turn is under way as the store has it: open, and neither left in order nor suspended."""
    return row.open is not None and row.suspended is None and not row.open.left


def _tries(row: AgentRow, *, crashed: bool) -> int:
    """How often a turn that was found open has crashed, the crash of its loop just now included."""
    assert row.open is not None, "it was found open"
    return row.open.tries + (crashed and at_work(row))


def found(row: AgentRow, event: Begin) -> OpenTurn:
    """A turn that was found open, as it goes on: its crash is counted before it works."""
    assert row.open is not None, "it was found open"
    return evolve(row.open, tries=_tries(row, crashed=event.crashed), left=False, asking=False, held=NOTHING)


def gives_up(row: AgentRow, limit: int, *, crashed: bool) -> bool:
    """Whether a turn that was found open crashed too often to be gone on with. `crashed`: its loop did, just now."""
    turn_open, crashes = row.open, _tries(row, crashed=crashed)
    assert turn_open is not None, "it was found open"
    if turn_open.alone or not crashes:
        return False
    return crashes >= limit - (len(turn_open.consumed) > 1)


def given_up(state: TurnState, event: Begin) -> Step | None:
    """The step that ends a turn which crashed too often; None where it may go on, and nothing has changed."""
    limit = state.spec.limits.poison_limit
    if not gives_up(state.row, limit, crashed=event.crashed):
        return None
    crashes = _tries(state.row, crashed=event.crashed)
    return _bury(state, event, crashes) if crashes >= limit else _take_apart(state, event, crashes)


def _bury(state: TurnState, event: Begin, crashes: int) -> Step:
    """The turn fails, on a valid conversation; its messages are dead, and those who wait are told."""
    turn_open, agent = opened(state), state.row.agent
    how = f"the process crashed {crashes} times in a row in turn {turn_open.number}"
    error = Crashed(
        f"{agent} gave a turn up: {how}; its messages are in the dead letters:"
        " dead_letters() lists them, put_back() queues one again"
    )
    tells, writes = _settled(state, event)
    tells = (*tells, _noted(state, f"The turn was given up: {how}. What it was asked is not answered."))
    made = ending.finish(state, Status.FAILED, event.now, *tells, failure=failure_of(error))
    dead = Move(agent, (ReceiptState.CONSUMED,), ReceiptState.DEAD, turn_open.consumed, f"poison: {how}")
    moves = (dead,) if turn_open.consumed else ()
    return Step(made.state, (*moves, *writes, *made.commit), made.actions, made.records)


def _take_apart(state: TurnState, event: Begin, crashes: int) -> Step:
    """The turn ends without an answer; its messages wait again, each for a turn of its own and its last try."""
    turn_open, agent = opened(state), state.row.agent
    tells, writes = _settled(state, event)
    text = f"The turn was given up: the process crashed {crashes} times in it. Its messages come again, one by one."
    noted = _noted(state, text)
    singly = (*state.row.singly, *turn_open.consumed)
    commit, records = ending.flush(state, event.now, open=None, owes=False, suspended=None, singly=singly)
    failed = ending.outcome(state, turn_open, Status.FAILED, failure=failure_of(Crashed(f"{agent}: {text}")))
    again = Move(agent, (ReceiptState.CONSUMED,), ReceiptState.QUEUED, turn_open.consumed, text)
    told = Put(OutcomeRow(failed.turn, agent, failed.run, failed))
    actions = (*tells, noted, Tell(TurnEnded, {"outcome": failed}), Over())
    return Step(ending.over(state), (again, *writes, *commit[:-1], told, commit[-1]), actions, records)


def _noted(state: TurnState, text: str) -> Tell:
    """Say to the model what became of the turn; its messages leave the conversation, as they leave the turn (CON-4)."""
    turn_open = opened(state)
    note = NoteRecord(turn_id(state.row.agent, turn_open.number), "failure", text, turn_open.consumed)
    state.pending, state.note_last = (*state.pending, note), True
    return Tell(NoteWritten, {"note": "failure", "text": text})


def _settled(state: TurnState, event: Begin) -> tuple[tuple[Action, ...], tuple[Put, ...]]:
    """Settle every open call, as nothing will go on with it; what is told, and what is written."""
    turn_open, row = opened(state), state.row
    state.row = evolve(
        row,
        suspended=None,
        open=found(row, event),
        spent=row.spent + event.unwritten,  # BUD-7: as recovery writes it
        run_spent=row.run_spent + event.unwritten,
    )
    began = Tell(TurnStarted, {})
    if not event.open_calls:
        return (began,), ()
    turn = turn_id(row.agent, turn_open.number)
    state.calls = batch.stop(tuple(_crashed(turn, call) for call in event.open_calls), turn, batch.Why.CRASH)
    changed = tuple(call for call, was in zip(state.calls, event.open_calls, strict=True) if call is not was)
    unknown = tuple(c for c in changed if c.result is not None and c.result.status is ResultStatus.UNKNOWN)
    writes = rows_of(state, unknown)
    state.unknown = (*state.unknown, *approving.ended_unknown(unknown))  # TOL-3: in this process, too
    batch_over(state, (), ())
    return (began, *settled_tells(changed)), writes


def _crashed(turn: TurnId, call: CallView) -> CallView:
    """A call that had started: what it does outside may have happened (TOL-3)."""
    if call.state is not CallState.STARTED:
        return call
    harmless = call.tool is not None and call.tool.effect in _HARMLESS
    status = ResultStatus.ABORTED if harmless else ResultStatus.UNKNOWN
    return evolve(call, state=CallState.SETTLED, result=batch.result(turn, call.block, status, CRASHED))


_HARMLESS: Final = frozenset({Effect.PURE, Effect.STORE, Effect.CHILD})
