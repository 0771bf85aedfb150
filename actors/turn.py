"""Every decision a turn takes, from its first input to its last: read it from top to bottom.

    begin ── hooks ── look at the mailbox ── admission ── commit what was claimed ── ask the model
                             ▲                                                            │
                             └── all calls settled ◄── run the batch ◄── commit ◄── calls ┤
                                                                                          └ no calls: answer, over

`step(state, input)` decides; it knows no clock, no store and no task. A step names the operations that must be
durable before its actions are performed; a refused input raises and leaves everything as it was. It makes one copy of
the state and changes that: every function below is handed this copy, and no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from msgspec.structs import replace

from . import (
    answering,
    answers,
    approving,
    batch,
    bounds,
    compacting,
    ending,
    exhausting,
    parking,
    poison,
    recovering,
    selecting,
)
from .batching import batch_over, cut_off, rows_of, settled_tells, starting
from .changes import CallState, OpenTurn
from .compaction import NO_COMPACTION, CompactAsked, NotSummarised, Summarised
from .cutting import commit_failed, cut, keep_unrun
from .errors import ContextOverflow, Exhausted, InternalError
from .evolve import evolve
from .happenings import MessageConsumed, RequestFailed, TurnStarted
from .hooked import Point
from .ids import turn_id
from .inputs import (
    Admitted,
    Begin,
    CallsReturned,
    CommitFailed,
    Cut,
    Decided,
    Failed,
    HookReturned,
    Input,
    Looked,
    MustWait,
    NotAdmitted,
    Phase,
    Responded,
    SuspendAsked,
    check_place,
)
from .moves import Admit, Ask, CallHook, Look, Step, Tell, TurnState, nothing_owed, opened
from .parking import BUDGET
from .preparing import choose_again, choose_request
from .settling import BESIDE, clean, end, written
from .staging import keep, landing, refused
from .transcript import NoteRecord
from .usage import NO_USAGE, NOTHING, Amounts

if TYPE_CHECKING:
    from .callview import CallView
    from .changes import Operation
    from .moves import Action


def step(state: TurnState, event: Input) -> Step:
    """What a turn does with an input.

    Raises:
        InternalError: this input has no place in this phase; the state is unchanged.
    """
    check_place(state.phase, event, state.row.agent)
    state = replace(state)  # TURN-4
    match event:  # the usual inputs first: each case is a call
        case Looked():
            return _looked(state, event)
        case Admitted():
            return _admitted(state, event)
        case Responded():
            return _responded(state, event)
        case Begin():
            return _begin(state, event)
        case CallsReturned():
            return _returned(state, event)
        case HookReturned():
            return _after_hook(state, event)
        case MustWait():
            return _must_wait(state, event)
        case NotAdmitted():
            return _not_admitted(state, event)
        case Failed():
            return _failed(state, event)
        case Decided():
            return parking.decided(state, event)
        case Cut():
            return cut(state, event)
        case SuspendAsked():
            return _suspend(state, event)
        case CommitFailed():
            return refused(state, event) or commit_failed(state, event)
        case CompactAsked():
            return compacting.asked(state)
        case Summarised():
            return compacting.summarised(state, event)
        case NotSummarised():
            return compacting.not_summarised(state, event)
        case _:
            assert_never(event)


# -- opening -----------------------------------------------------------------------------------------------------


def _begin(state: TurnState, event: Begin) -> Step:
    """A new turn, or one that the store had open: then recovery comes first, in one commit (REC-1, TOL-3)."""
    row = state.row
    state.since = event.now
    if row.open is not None:
        state.new_run = False
        return poison.given_up(state, event) or recovering.go_on(state, event)
    if event.compact:
        return compacting.begin_alone(state, event)
    number = row.turns + 1
    run = row.runs + 1 if state.new_run else max(row.runs, 1)
    clean(state)
    state.pending = event.unanswered
    fresh = {"run_usage": NO_USAGE, "run_spent": NOTHING} if state.new_run else {}
    state.row = evolve(row, turns=number, runs=run, open=OpenTurn(number, run, began_us=row.spent.active_us), **fresh)
    first = Point.BEFORE_RUN if state.new_run else Point.BEFORE_TURN
    return _at(state, first, (Tell(TurnStarted, {}),))


def _at(state: TurnState, point: Point, before: tuple[Action, ...] = ()) -> Step:
    """Call the hooks of a point, or go on where the agent has none there."""
    while point not in state.spec.hooks:
        if point is Point.BEFORE_RUN:
            point = Point.BEFORE_TURN
        elif point is Point.BEFORE_TURN:
            state.phase = Phase.LOOKING
            return Step(state, (), (*before, Look(sends=not state.owed)))
        elif point is Point.PREPARE:
            point = Point.BEFORE_REQUEST
        else:
            return _admit(state, before)
    if point is Point.PREPARE:
        return choose_request(state, before)
    state.phase, state.then = Phase.HOOK, point
    return Step(state, (), (*before, CallHook(point)))


def _after_hook(state: TurnState, event: HookReturned) -> Step:
    point = state.then
    assert point is not None, "HOOK always knows where it came from"
    if point in BESIDE:
        return written(state, event) if point is Point.SETTLING else selecting.noted(state, event)
    if state.response is not None:
        response, state.response = state.response, None
        if event.error is None:
            return _take_response(state, response)
        tells = keep_unrun(state, response)
        return ending.fail(state, event.error, event.now, *tells)
    if event.error is not None:
        return exhausting.refuse(state, event.error, event.now)
    if state.suspending:
        return ending.suspend(state, event.now, "leaving")
    if event.toolbox is not None:
        state.toolbox = event.toolbox
    match point:
        case Point.BEFORE_RUN:
            return _at(state, Point.BEFORE_TURN)
        case Point.PREPARE:
            return _at(state, Point.BEFORE_REQUEST)
        case Point.BEFORE_REQUEST:
            return _admit(state)
        case _:
            state.phase = Phase.LOOKING
            return Step(state, (), (Look(sends=not state.owed),))


# -- at the boundary ---------------------------------------------------------------------------------------------


def _looked(state: TurnState, event: Looked) -> Step:
    """Steering goes first; a send enters only when nothing is owed an answer (CON-1)."""
    if state.failing is not None:
        return end(state, event)
    if state.ticket is not None and state.compacting.under_way is not None:
        return compacting.ask(state, event.now)
    state.mail, state.day_s = event.mail, event.day_s
    if state.ticket is None:  # with one the request is made up already: the tools that a hook chose for it stand
        state.toolbox = event.toolbox
    if event.mail:
        state.beside = None  # the run goes on: what a hook wrote beside its end vanishes (HOK-3)
        going_on = state.output if opened(state).step else state.spec.output
        state.output = event.output or going_on
    elif state.answer is not None:
        return end(state, event)
    elif not state.owed:
        return ending.nothing(state, event.now)
    state.refused = event.problem or state.refused
    if state.refused is not None:
        return ending.fail(state, state.refused, event.now)
    if state.suspending:
        return ending.suspend(state, event.now, "leaving")
    if (over := bounds.reached(state, event.now)) is not None:
        return ending.fail(state, over, event.now)
    first = exhausting.at_boundary(state, event.now) or selecting.settle(state, event) or compacting.first(state, event)
    if first is not None:
        return first
    bounds.near(state, event.now)
    if state.ticket is not None:
        return choose_again(state) or _claim(state, state.ticket, event.now)
    return _at(state, Point.PREPARE)


def _admit(state: TurnState, before: tuple[Action, ...] = ()) -> Step:
    admit = Admit(ending.waiting_bytes(state), wrap_up=state.exhausted is not None, selection=selecting.in_force(state))
    state.phase = Phase.ADMITTING
    return Step(state, (), (*before, admit))


def _must_wait(state: TurnState, event: MustWait) -> Step:
    """No place now: what is settled becomes durable first, then we wait; the mailbox is looked at afterwards."""
    if state.suspending:
        return ending.suspend(state, event.now, "leaving")
    mail, state.mail, state.waiting = state.mail, (), True
    commit, records = ending.flush(state, event.now)
    helper, wrap_up = state.compacting.under_way is not None, state.exhausted is not None
    selection = selecting.in_force(state)
    admit = Admit(ending.mail_bytes(mail), wait=True, wrap_up=wrap_up, selection=selection, helper=helper)
    return Step(state, commit if records else (), (admit,), records)


_BETWEEN: Final = frozenset({Point.PREPARE, Point.BEFORE_REQUEST})
"""Hooks that run between the look at the mailbox and the admission."""


def _admitted(state: TurnState, event: Admitted) -> Step:
    """Claim at once where nothing ran since the look; else look once more: a steer that came meanwhile enters."""
    looks = state.waiting or state.suspending or state.compacting.under_way is not None
    state.ticket, state.held, state.waiting = event.ticket, event.held, False
    if not looks and state.spec.hooks.isdisjoint(_BETWEEN):
        return _claim(state, event.ticket, event.now)
    state.phase = Phase.LOOKING
    return Step(state, (), (Look(sends=nothing_owed(state)),))


def _not_admitted(state: TurnState, event: NotAdmitted) -> Step:
    """The budget refused: one last response without tools, park, or fail (BUD-4)."""
    if state.compacting.under_way is not None:
        return compacting.not_admitted(state, event)
    return exhausting.not_admitted(state, event.error, event.now) or _admit(state)


def _claim(state: TurnState, ticket: object, now: float) -> Step:
    """Leaving the mailbox, entering the conversation, and the request that is now owed: one commit (CON-4)."""
    staged: tuple[Operation, ...] = ()
    followed: tuple[Action, ...] = ()
    if state.choosing is not None:
        staged, followed = selecting.follow(state)
    number, mail = opened(state).step + 1, state.mail
    output = state.output.key if state.output else None
    asking = {"step": number, "asking": True, "held": state.held, "output": output}
    commit, records = ending.flush(state, now, opening=asking, owes=True)
    tells = tuple(
        [Tell(MessageConsumed, {"message": queued.envelope.id, "lane": queued.envelope.lane.value}) for queued in mail]
    )
    ask = Ask(ticket, number, state.output, toolless=state.last_chance is not None)
    state.phase, state.owed, state.answer, state.conflicts, state.prepared = Phase.ASKING, True, None, 0, None
    return Step(state, (*staged, *commit), (*tells, *followed, ask), records)


# -- the response ------------------------------------------------------------------------------------------------


def _responded(state: TurnState, event: Responded) -> Step:
    """A whole response came; hooks may see it before it is committed. Its cost counts from now on (REQ-7)."""
    served = event.served
    state.ticket = None
    spent = event.spent + Amounts(tool_calls=event.granted) if event.granted else event.spent
    context = served.usage.input_tokens + served.usage.output_tokens
    ending.account(state, served.usage, spent, cost_known=served.cost is not None, context=context)
    if state.compacting is not NO_COMPACTION:
        compacting.measured(state)
    if Point.AFTER_RESPONSE in state.spec.hooks:
        state.phase, state.then, state.response = Phase.HOOK, Point.AFTER_RESPONSE, event
        return Step(state, (), (CallHook(Point.AFTER_RESPONSE),))
    return _take_response(state, event)


def _take_response(state: TurnState, event: Responded) -> Step:
    """Run its calls, or take it for the answer: the content decides (TRN-5..7)."""
    turn_open, served = opened(state), event.served
    turn, response = turn_id(state.row.agent, turn_open.number), served.response
    reading = answers.read(
        turn, turn_open.step, response.blocks, stop=response.stop, model=served.model, usage=served.usage
    )
    text = reading.record.text
    state.last_text = text or state.last_text
    if reading.record.blocks:
        state.pending = (*state.pending, reading.record)
    tell = answering.ended(served, text)
    if reading.calls:
        assert state.toolbox is not None, "a request was made with it"
        calls = tuple([batch.view(turn, block, state.toolbox) for block in reading.calls])
        given = answering.given(state, calls, response.stop, event.now, tell)
        return given if isinstance(given, Step) else _batch(state, given, event, tell, reading.twice)
    return answering.answered(state, response.stop, event.now, tell)


# -- the batch ---------------------------------------------------------------------------------------------------


def _batch(state: TurnState, calls: tuple[CallView, ...], event: Responded, tell: Tell, twice: tuple[str, ...]) -> Step:
    """The batch is committed, and the start of what may start, before any call runs (TOL-2, TOL-3)."""
    turn = turn_id(state.row.agent, opened(state).number)
    calls = bounds.bounded(state, turn, calls, event.granted, event.short)
    running = sum(call.state is CallState.PLANNED for call in calls)
    rows = 0 if running else state.invalid_rows + 1
    if running and event.granted is None:
        row, counted = state.row, Amounts(tool_calls=running)
        state.row = evolve(row, spent=row.spent + counted, run_spent=row.run_spent + counted)
    state.calls, state.phase, state.invalid_rows, state.owed = calls, Phase.RUNNING, rows, True
    if state.last_chance is not None:
        return bounds.no_more(state, event.now, tell)
    if twice:
        state.after_batch = answering.twice(state, turn, twice)
    if rows >= state.spec.limits.invalid_responses:
        text = f"{rows} responses in a row had only calls that could not be run: answer now, without tools."
        state.last_chance, state.after_batch = text, NoteRecord(turn, "limit", text)
    calls = approving.ask(state, turn, calls, state.day_s + event.now)
    tells = (tell, *settled_tells(calls), *approving.asked_tells(calls))
    state.calls = calls
    started: tuple[CallView, ...] = ()
    if batch.finished(calls) and not state.suspending:
        return batch_over(state, (), tells)
    if not state.suspending:
        started = parking.start_more(state)
    if not started:
        return parking.park(state, rows_of(state, state.calls), event.now, tells)
    commit, records = ending.flush(state, event.now)
    return Step(state, (*commit, *rows_of(state, state.calls)), (*tells, *starting(started)), records)


def _returned(state: TurnState, event: CallsReturned) -> Step:
    """Results are kept as they come, and enter the conversation in call order when the last is there (TOL-4)."""
    open_now = {call.block.id for call in state.calls if call.state is CallState.STARTED}
    if not open_now.issuperset(outcome.call for outcome in event.outcomes):
        msg = f"a result for a call that is not running: {[outcome.call for outcome in event.outcomes]}"
        raise InternalError(msg)
    turn = turn_id(state.row.agent, opened(state).number)
    before = state.calls
    calls = batch.settle(before, turn, event.outcomes, event.so_far)
    ended = tuple([call for call, was in zip(calls, before, strict=True) if call is not was])
    keep(state, before, event.outcomes)
    bounds.settled(state, calls, ended)
    tells = (*settled_tells(ended), *(fatal := cut_off(before, ended, event.outcomes)))
    started: tuple[CallView, ...] = ()
    if fatal or (batch.finished(calls) and not state.suspending):  # fatal: what it cut comes before a commit (SUP-4)
        return batch_over(state, (), tells)
    if not state.suspending:
        started = parking.start_more(state)
    rows = (*landing(state), *rows_of(state, (*ended, *started)))
    if parking.idle(state):
        return parking.park(state, rows, event.now, tells)
    return Step(state, rows, (*tells, *starting(started)))


# -- failures, aborts, leaving -----------------------------------------------------------------------------------


def _failed(state: TurnState, event: Failed) -> Step:
    """A request that came to nothing ends the turn with one note that the next request shows (TRN-2).

    A budget may end it too, between two attempts or with its time; then the turn is parked where that says so (BUD-4).
    """
    if isinstance(event.error, ContextOverflow) and state.compacting.overflow is None:
        return compacting.overflowed(state, event, event.error)
    state.ticket = None
    ending.account(state, event.usage, event.spent)
    tell = Tell(RequestFailed, {"error": f"{event.error.kind}: {event.error}"})
    if isinstance(event.error, Exhausted) and event.error.on_exhausted == "park":
        return ending.suspend(state, event.now, BUDGET, event.error, (tell,))
    return ending.fail(state, event.error, event.now, tell)


def _suspend(state: TurnState, event: SuspendAsked) -> Step:
    """Stop at the next commit; at once where nothing is under way (CLS-5)."""
    ending.leaving(state)
    if state.phase is Phase.ADMITTING and state.waiting:
        return ending.suspend(state, event.now, "leaving")
    return Step(state)
