"""Every decision a turn takes, from its first input to its last: read it from top to bottom.

    begin ── hooks ── look at the mailbox ── admission ── commit what was claimed ── ask the model
                             ▲                                                            │
                             └── all calls settled ◄── run the batch ◄── commit ◄── calls ┤
                                                                                          └ no calls: answer, over

`step(state, input)` decides; it knows no clock, no store and no task. A step names the operations that must be
durable before its actions are performed; a refused input raises and leaves everything as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from . import answers, batch, ending
from .budget import Dimension
from .changes import CallRow, CallState, OpenTurn, Put
from .errors import BudgetError, Conflict, Exhausted, Fenced, InternalError, LimitReached
from .evolve import evolve
from .fitting import Refusal
from .happenings import MessageConsumed, RequestFailed, ResponseEnded, TurnStarted
from .ids import turn_id
from .messages import Status, failure_of
from .moves import (
    Abandon,
    Admit,
    Admitted,
    Ask,
    Begin,
    CallHook,
    CallsReturned,
    CallView,
    CancelCalls,
    CommitFailed,
    Cut,
    CutStream,
    Failed,
    HookReturned,
    Input,
    Look,
    Looked,
    MustWait,
    NotAdmitted,
    Over,
    Phase,
    Point,
    Responded,
    Step,
    SuspendAsked,
    Tell,
    TurnState,
)
from .telling import bounded, count_failures, settled_tells, starting
from .transcript import NoteRecord, ResultStatus, Stop
from .usage import NO_USAGE, NOTHING, Amounts

if TYPE_CHECKING:
    from .moves import Action
    from .ports import Served


def step(state: TurnState, event: Input) -> Step:
    """What a turn does with an input.

    Raises:
        InternalError: this input has no place in this phase; the state is unchanged.
    """
    _check_phase(state, event)
    match event:
        case Begin():
            return _begin(state, event)
        case HookReturned():
            return _after_hook(state, event)
        case Looked():
            return _looked(state, event)
        case Admitted():
            return _admitted(state, event)
        case MustWait():
            return _must_wait(state, event)
        case NotAdmitted():
            return _not_admitted(state, event)
        case Responded():
            return _responded(state, event)
        case Failed():
            return _failed(state, event)
        case CallsReturned():
            return _returned(state, event)
        case Cut():
            return _cut(state, event)
        case SuspendAsked():
            return _suspend(state, event)
        case CommitFailed():
            return _commit_failed(state, event)
        case _:
            assert_never(event)


_ANY: Final = frozenset(Phase) - {Phase.OVER}
_PHASES: Final[dict[type, frozenset[Phase]]] = {
    Begin: frozenset({Phase.OPENING}),
    HookReturned: frozenset({Phase.HOOK}),
    Looked: frozenset({Phase.LOOKING}),
    Admitted: frozenset({Phase.ADMITTING}),
    MustWait: frozenset({Phase.ADMITTING}),
    NotAdmitted: frozenset({Phase.ADMITTING}),
    Responded: frozenset({Phase.ASKING}),
    Failed: frozenset({Phase.ASKING}),
    CallsReturned: frozenset({Phase.RUNNING}),
    Cut: _ANY,
    SuspendAsked: _ANY,
    CommitFailed: _ANY,
}


def _check_phase(state: TurnState, event: Input) -> None:
    if state.phase not in _PHASES[type(event)]:
        msg = f"{type(event).__name__} has no place in phase {state.phase} of {state.row.agent}"
        raise InternalError(msg)


# -- opening -----------------------------------------------------------------------------------------------------


def _begin(state: TurnState, event: Begin) -> Step:
    """A new turn, or one that the store had open: then recovery comes first, in one commit (REC-1, TOL-3)."""
    row = state.row
    if row.open is not None:
        return _recover(evolve(state, since=event.now, new_run=False), row.open, event)
    number = row.turns + 1
    run = row.runs + 1 if state.new_run else max(row.runs, 1)
    fresh = {"run_usage": NO_USAGE, "run_spent": NOTHING} if state.new_run else {}
    row = evolve(row, turns=number, runs=run, open=OpenTurn(number, run), **fresh)
    state = evolve(state, row=row, since=event.now)
    first = Point.BEFORE_RUN if state.new_run else Point.BEFORE_TURN
    return _at(state, first, (Tell(TurnStarted, {}),))


def _recover(state: TurnState, opened: OpenTurn, event: Begin) -> Step:
    calls, again = batch.recover(event.open_calls, turn_id(state.row.agent, opened.number))
    row = evolve(
        state.row,
        owes=True,
        suspended=None,
        open=evolve(opened, tries=opened.tries + 1, asking=False, held=NOTHING),
        spent=state.row.spent + opened.held,  # BUD-7: a lost call is charged what it had reserved
        run_spent=state.row.run_spent + opened.held,
    )
    state = evolve(state, row=row, owed=event.owed or bool(calls), calls=calls, phase=Phase.RUNNING)
    writes = [Put(row), *(Put(_row(state, call)) for call in calls)]
    if not calls:
        looking = evolve(state, phase=Phase.LOOKING)
        return Step(looking, tuple(writes), (Tell(TurnStarted, {}), Look(sends=not state.owed)))
    state, started = _start_more(state)
    writes += [Put(_row(state, call)) for call in started]
    actions: tuple[Action, ...] = (Tell(TurnStarted, {}), *starting((*again, *started)))
    if batch.finished(state.calls):
        return _batch_over(state, tuple(writes), actions)
    return Step(state, tuple(writes), actions)


def _at(state: TurnState, point: Point, before: tuple[Action, ...] = ()) -> Step:
    """Call the hooks of a point, or go on where the agent has none there."""
    while point not in state.spec.hooks:
        if point is Point.BEFORE_RUN:
            point = Point.BEFORE_TURN
        elif point is Point.BEFORE_TURN:
            return Step(evolve(state, phase=Phase.LOOKING), (), (*before, Look(sends=not state.owed)))
        elif point is Point.PREPARE:
            point = Point.BEFORE_REQUEST
        else:
            return _admit(state, before)
    return Step(evolve(state, phase=Phase.HOOK, then=point), (), (*before, CallHook(point)))


def _after_hook(state: TurnState, event: HookReturned) -> Step:
    point = state.then
    assert point is not None, "HOOK always knows where it came from"
    if event.error is not None:
        return ending.fail(state, event.error, event.now)
    if state.suspending and state.mail == ():
        return ending.suspend(state, event.now, "leaving")
    match point:
        case Point.BEFORE_RUN:
            return _at(state, Point.BEFORE_TURN)
        case Point.PREPARE:
            return _at(state, Point.BEFORE_REQUEST)
        case Point.BEFORE_REQUEST:
            return _admit(state)
        case _:
            return Step(evolve(state, phase=Phase.LOOKING), (), (Look(sends=not state.owed),))


# -- at the boundary ---------------------------------------------------------------------------------------------


def _looked(state: TurnState, event: Looked) -> Step:
    """Steering goes first; a send enters only when nothing is owed an answer (CON-1)."""
    state = evolve(state, mail=event.mail, toolbox=event.toolbox)
    if event.mail:
        going_on = state.output if _opened(state).step else state.spec.output
        state = evolve(state, output=event.output or going_on)
    elif state.answer is not None:
        return ending.finish(state, Status.DONE, event.now)
    elif not state.owed:
        return ending.nothing(state)
    if state.suspending:
        return ending.suspend(state, event.now, "leaving")
    made = _opened(state).step
    limit = state.spec.limits.model_calls_per_turn
    if made >= limit:
        error = LimitReached(
            f"{state.row.agent} made {made} model calls in one turn, and came to no answer;"
            " raise Limits(model_calls_per_turn=...) or give a smaller task"
        )
        return ending.fail(state, error, event.now)
    if made == limit - 1 and limit > 1 and state.last_chance is None:
        state = _last_chance(state, f"This is the last of {limit} model calls of this turn: answer now, without tools.")
    if state.ticket is not None:
        return _claim(state, state.ticket, event.now)
    return _at(state, Point.PREPARE)


def _last_chance(state: TurnState, text: str) -> TurnState:
    """Say to the model that a bound is near, before the bound is an error (TRN-7)."""
    note = NoteRecord(turn_id(state.row.agent, _opened(state).number), "limit", text)
    return evolve(state, last_chance=text, pending=(*state.pending, note))


def _admit(state: TurnState, before: tuple[Action, ...] = ()) -> Step:
    extra = sum(queued.envelope.size_bytes for queued in state.mail)
    admit = Admit(extra, wait=False, wrap_up=state.exhausted is not None)
    return Step(evolve(state, phase=Phase.ADMITTING), (), (*before, admit))


def _must_wait(state: TurnState, event: MustWait) -> Step:
    """No place now: what is settled becomes durable first, then we wait; the mailbox is looked at afterwards."""
    if state.suspending:
        return ending.suspend(state, event.now, "leaving")
    extra = sum(queued.envelope.size_bytes for queued in state.mail)
    state = evolve(state, waiting=True, mail=())
    flushed, commit, records = ending.flush(state, event.now)
    admit = Admit(extra, wait=True, wrap_up=state.exhausted is not None)
    return Step(flushed, commit if records else (), (admit,), records)


def _admitted(state: TurnState, event: Admitted) -> Step:
    state = evolve(state, row=evolve(state.row, open=evolve(_opened(state), held=event.held)))
    if state.suspending:
        stopped = ending.suspend(state, event.now, "leaving")
        return Step(stopped.state, stopped.commit, (Abandon(event.ticket), *stopped.actions), stopped.records)
    if state.waiting:
        # A steer may have come while we waited: it must not wait for a whole response more.
        state = evolve(state, ticket=event.ticket, waiting=False, phase=Phase.LOOKING)
        return Step(state, (), (Look(sends=_nothing_owed(state)),))
    return _claim(state, event.ticket, event.now)


def _not_admitted(state: TurnState, event: NotAdmitted) -> Step:
    """The budget refused: one last response without tools, park, or fail (BUD-4)."""
    error = event.error
    if not isinstance(error, Exhausted) or state.exhausted is not None:
        return ending.fail(state, state.exhausted or error, event.now)
    if state.spec.on_exhausted == "park":
        return ending.suspend(state, event.now, "budget", error)
    if state.spec.on_exhausted == "fail" or _opened(state).step == 0 or error.dimension == Dimension.SECONDS:
        return ending.fail(state, error, event.now)
    text = f"The budget is exhausted ({error.dimension}). Sum up what you have now, without tools."
    state = _last_chance(evolve(state, exhausted=error), text)
    return _admit(state)


def _claim(state: TurnState, ticket: object, now: float) -> Step:
    """Leaving the mailbox, entering the conversation, and the request that is now owed: one commit (CON-4)."""
    opened = _opened(state)
    mail = state.mail
    asking = evolve(opened, step=opened.step + 1, asking=True, output=state.output.name if state.output else None)
    state = evolve(state, row=evolve(state.row, owes=True, open=asking), ticket=ticket)
    state, commit, records = ending.flush(state, now)
    tells = tuple(
        Tell(MessageConsumed, {"message": queued.envelope.id, "lane": queued.envelope.lane.value}) for queued in mail
    )
    ask = Ask(ticket, asking.step, state.output, toolless=state.last_chance is not None)
    return Step(evolve(state, phase=Phase.ASKING, owed=True, answer=None), commit, (*tells, ask), records)


# -- the response ------------------------------------------------------------------------------------------------


def _responded(state: TurnState, event: Responded) -> Step:
    """A whole response: run its calls, or take it for the answer. The content decides (TRN-5..7)."""
    opened = _opened(state)
    turn = turn_id(state.row.agent, opened.number)
    served = event.served
    response = served.response
    reading = answers.read(
        turn, opened.step, response.blocks, stop=response.stop, model=served.model, usage=served.usage
    )
    state = _account(evolve(state, last_text=reading.record.text or state.last_text, ticket=None), event)
    if reading.record.blocks:
        state = evolve(state, pending=(*state.pending, reading.record))
    tell = _ended(served, reading.record.text)
    if reading.calls:
        calls = tuple(batch.view(turn, block, state.toolbox) for block in reading.calls) if state.toolbox else ()
        return _batch(state, calls, event, tell, reading.twice)
    return _answered(state, response.stop, event.now, tell)


def _ended(served: Served, text: str) -> Tell:
    return Tell(
        ResponseEnded,
        {
            "stop": served.response.stop,
            "text": text,
            "usage": served.usage,
            "cost": served.cost,
            "model": served.model,
            "attempt": served.attempts,
        },
    )


def _account(state: TurnState, event: Responded) -> TurnState:
    """What the request cost enters the row that the next commit carries (REQ-7)."""
    row, served = state.row, event.served
    row = evolve(
        row,
        usage=row.usage + served.usage,
        spent=row.spent + event.spent,
        run_usage=row.run_usage + served.usage,
        run_spent=row.run_spent + event.spent,
        cost_known=row.cost_known and served.cost is not None,
        open=evolve(_opened(state), asking=False, held=NOTHING),
    )
    return evolve(state, row=row)


_STOPPED_SHORT: Final = {
    Stop.MAX_TOKENS: "the answer was cut at the model's output limit; it is not whole",
    Stop.REFUSAL: "the model refused to answer",
    Stop.CONTENT_FILTER: "the answer was stopped by a content filter",
    Stop.ERROR: "the model ended the answer with an error",
}


def _answered(state: TurnState, stop: Stop, now: float, tell: Tell) -> Step:
    text = state.last_text
    if stop is Stop.PAUSE_TURN:
        return Step(evolve(state, phase=Phase.LOOKING), (), (tell, Look(sends=False)))
    if state.exhausted is not None:
        return ending.fail(state, state.exhausted, now, tell)
    if stop in _STOPPED_SHORT:
        return ending.fail(state, LimitReached(f"{state.row.agent}: {_STOPPED_SHORT[stop]}"), now, tell)
    if state.output is not None:
        read = state.output.read(text)
        if isinstance(read, Refusal):
            return _repair(state, read.text, now, tell)
        text = read.json
    state = evolve(state, answer=text, owed=False, phase=Phase.LOOKING)
    return Step(state, (), (tell, Look(sends=False)))  # steering that came meanwhile is answered first


def _repair(state: TurnState, problem: str, now: float, tell: Tell) -> Step:
    """A structured answer that does not fit is asked for again, a bounded number of times."""
    bound = state.spec.limits.output_repairs
    assert state.output is not None, "only a typed answer is repaired"
    if state.repairs >= bound or state.last_chance is not None:
        error = LimitReached(
            f"{state.row.agent}: no answer fits {state.output.name} after {state.repairs + 1} attempts: {problem}"
        )
        return ending.fail(state, error, now, tell)
    note = NoteRecord(
        turn_id(state.row.agent, _opened(state).number),
        "repair",
        f"The answer does not fit {state.output.name}: {problem}\nAnswer again with JSON that fits, and nothing else.",
    )
    state = evolve(state, repairs=state.repairs + 1, pending=(*state.pending, note), phase=Phase.LOOKING)
    return Step(state, (), (tell, Look(sends=False)))


# -- the batch ---------------------------------------------------------------------------------------------------


def _batch(state: TurnState, calls: tuple[CallView, ...], event: Responded, tell: Tell, twice: tuple[str, ...]) -> Step:
    """The batch is committed, and the start of what may start, before any call runs (TOL-2, TOL-3)."""
    turn = turn_id(state.row.agent, _opened(state).number)
    calls = bounded(state, turn, calls, event.granted)
    running = sum(call.state is CallState.PLANNED for call in calls)
    rows = 0 if running else state.invalid_rows + 1
    row = state.row
    if running:
        counted = Amounts(tool_calls=running)
        row = evolve(row, spent=row.spent + counted, run_spent=row.run_spent + counted)
    state = evolve(state, row=row, calls=calls, phase=Phase.RUNNING, invalid_rows=rows, owed=True)
    if state.last_chance is not None:
        return _no_more(state, event.now, tell)
    if twice:
        text = f"The call ids {', '.join(twice)} were used more than once; each was taken once, the first time."
        state = evolve(state, after_batch=NoteRecord(turn, "notice", text))
    if rows >= state.spec.limits.invalid_responses:
        text = f"{rows} responses in a row had only calls that could not be run: answer now, without tools."
        state = evolve(state, last_chance=text, after_batch=NoteRecord(turn, "limit", text))
    if state.suspending:
        state, commit, records = ending.flush(state, event.now)
        return ending.suspended(state, (*commit, *_rows(state, calls)), records, (tell,))
    if batch.finished(calls):
        return _batch_over(state, (), (tell, *settled_tells(calls)))
    state, started = _start_more(state)
    state, commit, records = ending.flush(state, event.now)
    tells = (tell, *settled_tells(state.calls))
    return Step(state, (*commit, *_rows(state, state.calls)), (*tells, *starting(started)), records)


def _no_more(state: TurnState, now: float, tell: Tell) -> Step:
    """It was told that no call will be run, and calls: the bound becomes an error (TRN-7)."""
    turn = turn_id(state.row.agent, _opened(state).number)
    results = tuple(
        batch.result(turn, call.block, ResultStatus.REFUSED, "Not run: no more calls are taken in this turn.")
        for call in state.calls
    )
    state = evolve(state, calls=(), pending=(*state.pending, *results))
    error: BudgetError = state.exhausted or LimitReached(
        f"{state.row.agent} went on calling tools after it was told: {state.last_chance}"
    )
    return ending.fail(state, error, now, tell)


def _start_more(state: TurnState) -> tuple[TurnState, tuple[CallView, ...]]:
    calls, started = batch.start(state.calls, state.spec.limits.parallel_calls)
    return (evolve(state, calls=calls), started) if started else (state, ())


def _returned(state: TurnState, event: CallsReturned) -> Step:
    """Results are kept as they come, and enter the conversation in call order when the last is there (TOL-4)."""
    open_now = {call.block.id for call in state.calls if call.state is CallState.STARTED}
    if not open_now.issuperset(outcome.call for outcome in event.outcomes):
        msg = f"a result for a call that is not running: {[outcome.call for outcome in event.outcomes]}"
        raise InternalError(msg)
    turn = turn_id(state.row.agent, _opened(state).number)
    before = state.calls
    calls = batch.settle(before, turn, event.outcomes)
    ended = tuple(call for call, was in zip(calls, before, strict=True) if call is not was)
    state = evolve(state, calls=calls, failures=count_failures(state, ended))
    tells = settled_tells(ended)
    if batch.finished(calls):
        return _batch_over(state, (), tells) if not state.suspending else _keep(state, ended, event.now, tells)
    started: tuple[CallView, ...] = ()
    if not state.suspending:
        state, started = _start_more(state)
    elif not any(call.state is CallState.STARTED for call in calls):
        return _keep(state, ended, event.now, tells)
    rows = tuple(Put(_row(state, call)) for call in (*ended, *started))
    return Step(state, rows, (*tells, *starting(started)))


def _keep(state: TurnState, ended: tuple[CallView, ...], now: float, tells: tuple[Action, ...]) -> Step:
    """Suspending: nothing runs any more; the results that came are durable, the rest starts with the next owner."""
    flushed, commit, records = ending.flush(state, now)
    rows = tuple(Put(_row(state, call)) for call in ended)
    return ending.suspended(flushed, (*commit, *rows), records, tells)


def _batch_over(state: TurnState, commit: tuple[Put, ...], before: tuple[Action, ...]) -> Step:
    """All calls are settled: their results wait, in call order, for the commit that carries the next request."""
    results = tuple(call.result for call in state.calls if call.result is not None)
    assert len(results) == len(state.calls), "TURN-1: a finished batch has every result"
    ids = tuple(call.block.id for call in state.calls if call.result is not None and not _unknown(call))
    done = (*state.done, *((c.block.id, c.block.name, c.result.status.value) for c in state.calls if c.result))
    extra = (state.after_batch,) if state.after_batch is not None else ()
    state = evolve(
        state,
        calls=(),
        pending=(*state.pending, *results, *extra),
        settled=(*state.settled, *ids),
        done=done[-ending.CALLS_LISTED :],
        after_batch=None,
        phase=Phase.LOOKING,
    )
    return Step(state, commit, (*before, Look(sends=False)))


def _unknown(call: CallView) -> bool:
    """Its row stays, so that the same call asked for again is known for what it is (TOL-3)."""
    return call.result is not None and call.result.status is ResultStatus.UNKNOWN


def _row(state: TurnState, call: CallView) -> CallRow:
    return batch.row(state.row.agent, turn_id(state.row.agent, _opened(state).number), call)


def _rows(state: TurnState, calls: tuple[CallView, ...]) -> tuple[Put, ...]:
    return tuple(Put(_row(state, call)) for call in calls)


# -- failures, aborts, leaving -----------------------------------------------------------------------------------


def _failed(state: TurnState, event: Failed) -> Step:
    """A request that came to nothing ends the turn with one note that the next request shows (TRN-2)."""
    row = evolve(
        state.row,
        usage=state.row.usage + event.usage,
        spent=state.row.spent + event.spent,
        run_usage=state.row.run_usage + event.usage,
        run_spent=state.row.run_spent + event.spent,
        open=evolve(_opened(state), asking=False, held=NOTHING),
    )
    tell = Tell(RequestFailed, {"error": f"{event.error.kind}: {event.error}"})
    return ending.fail(evolve(state, row=row, ticket=None), event.error, event.now, tell)


def _cut(state: TurnState, event: Cut) -> Step:
    """Abort (ABT-1, ABT-3) or an interrupting steer (CON-7): settle everything now, wait for nothing."""
    opened = _opened(state)
    turn = turn_id(state.row.agent, opened.number)
    actions: list[Action] = []
    if state.ticket is not None and state.phase is not Phase.ASKING:
        actions.append(Abandon(state.ticket))
    state = evolve(state, ticket=None, waiting=False)
    if state.phase is Phase.ASKING:
        state = _cut_response(state, event, opened)
        actions.append(CutStream())
    elif state.phase is Phase.RUNNING:
        returned = batch.settle(state.calls, turn, event.outcomes)
        running = tuple(call.block.id for call in returned if call.state is CallState.STARTED)
        calls = batch.stop(returned, turn, started=True)
        ended = tuple(call for call, was in zip(calls, state.calls, strict=True) if call is not was)
        over = _batch_over(evolve(state, calls=calls), (), ())
        state = over.state
        actions += [CancelCalls(running), *settled_tells(ended)]
    if event.reason is None:
        return Step(
            evolve(state, mail=(), owed=True, answer=None, phase=Phase.LOOKING), (), (*actions, Look(sends=False))
        )
    return ending.abort(evolve(state, mail=()), event, tuple(actions))


def _cut_response(state: TurnState, event: Cut, opened: OpenTurn) -> TurnState:
    """What was whole stays, and the half text; finished calls that will not run are settled as skipped (TRN-8)."""
    turn = turn_id(state.row.agent, opened.number)
    reading = answers.interrupted(turn, opened.step, event.blocks, event.half, model=event.model, usage=event.usage)
    row = state.row
    row = evolve(
        row,
        usage=row.usage + event.usage,
        spent=row.spent + event.spent,
        run_usage=row.run_usage + event.usage,
        run_spent=row.run_spent + event.spent,
        cost_known=row.cost_known and event.cost_known,
        open=evolve(opened, asking=False, held=NOTHING),
    )
    skipped = tuple(batch.result(turn, block, ResultStatus.SKIPPED, batch.SKIPPED) for block in reading.calls)
    kept = (reading.record, *skipped) if reading.record.blocks else ()
    return evolve(state, row=row, pending=(*state.pending, *kept), last_text=reading.record.text or state.last_text)


def _suspend(state: TurnState, event: SuspendAsked) -> Step:
    """Stop at the next commit; at once where nothing is under way (CLS-5)."""
    state = evolve(state, suspending=True)
    waiting = state.phase is Phase.ADMITTING and state.waiting
    idle = state.phase is Phase.RUNNING and not any(call.state is CallState.STARTED for call in state.calls)
    if waiting or idle:
        return ending.suspend(state, event.now, "leaving")
    return Step(state)


def _commit_failed(state: TurnState, event: CommitFailed) -> Step:
    """Nothing was written, so nothing is assumed: look again, or stop with what the store says (TRN-3, TOL-10)."""
    if isinstance(event.error, Conflict) and state.mail and state.phase in _CLAIMING:
        # Someone withdrew a message, or another process took it: choose again from what is there.
        again = evolve(state, mail=(), phase=Phase.LOOKING)
        return Step(again, (), (Look(sends=_nothing_owed(state)),))
    running = tuple(call.block.id for call in state.calls if call.state is CallState.STARTED)
    actions: list[Action] = [CutStream()] if state.phase is Phase.ASKING else []
    if state.ticket is not None and state.phase is not Phase.ASKING:
        actions.append(Abandon(state.ticket))
    if running:
        actions.append(CancelCalls(running))
    reason = "fenced" if isinstance(event.error, Fenced) else "store"
    return Step(evolve(state, phase=Phase.OVER), (), (*actions, Over(reason, None, failure_of(event.error))))


_CLAIMING: Final = frozenset({Phase.ADMITTING, Phase.LOOKING})


def _opened(state: TurnState) -> OpenTurn:
    assert state.row.open is not None, "a turn that has begun is open"
    return state.row.open


def _nothing_owed(state: TurnState) -> bool:
    return not state.owed and state.answer is None
