"""How a turn commits what it has, and how it ends: done, failed, aborted, or stopped for another owner to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import staging
from .changes import Append, CallRow, Claim, Enqueue, Erase, KvRow, Move, OutcomeRow, Put
from .compaction import forgotten
from .content import Text
from .cycles import NO_ROUNDS
from .errors import Aborted, BudgetError, Exhausted, Unfinished
from .evolve import evolve
from .happenings import NoteWritten, TurnEnded
from .hooked import Point
from .ids import AgentId, MessageId, TurnId, run_id, turn_id
from .inputs import Phase
from .messages import (
    CallDone,
    Envelope,
    Lane,
    LaneBound,
    Outcome,
    Purpose,
    ReceiptState,
    Status,
    failure_of,
    skipped_reason,
)
from .moves import Abandon, Look, Over, Step, Tell, opened
from .transcript import MessageRecord, NoteRecord, least_trust, record_bytes
from .usage import MICROSECONDS, NOTHING, Amounts

if TYPE_CHECKING:
    from .changes import AgentRow, OpenTurn, Operation
    from .errors import CallboardError
    from .inputs import Cut
    from .messages import Failure, Queued
    from .moves import Action, TurnState
    from .transcript import Record
    from .usage import Usage

_NO_BOUND: Final = LaneBound()


def flush(
    state: TurnState, now: float, *, opening: dict[str, object] | None = None, **changes: object
) -> tuple[tuple[Operation, ...], tuple[Record, ...]]:
    """Everything that waits, as one commit: pending records, the mail, cleared calls, the row (CON-4).

    The state is then as it will be behind the commit. `changes`: what else is new in the row, which is copied once;
    `opening`: in its open turn.

    Returns:
        The operations of the commit, and the records it appends.
    """
    row = state.row
    assert row.open is not None, "only an open turn commits"
    records = state.pending
    claim: tuple[Operation, ...] = ()
    if state.mail:
        state.rounds = NO_ROUNDS  # who is told something new may do the same again
        turn = turn_id(row.agent, row.open.number)
        taken = tuple([_record(turn, queued.envelope) for queued in state.mail])
        # A failure note stands behind the messages that the turn failed to answer.
        records = (*records[:-1], *taken, records[-1]) if state.note_last else (*records, *taken)
        claim = _claims(row, row.open, state.mail)
        opening = {**(opening or {}), **_consumed(row.open, state.mail)}
        if row.singly:
            opening = {**opening, **_last_try(state, changes)}
    if opening:
        changes.setdefault("open", evolve(row.open, **opening))
    active = int((now - state.since) * MICROSECONDS)
    if active > 0:
        spent = Amounts(active_us=active)
        changes |= {"spent": row.spent + spent, "run_spent": row.run_spent + spent}
    state.since = max(now, state.since)
    if records and (trust := least_trust(records, row.trust)) is not row.trust:
        changes["trust"] = trust
    if changes:
        state.row = evolve(row, **changes)
    append: tuple[Operation, ...] = (Append(row.agent, state.head, records),) if records else ()
    if row.summary >= state.head:  # it is among the records (CMP-4)
        append += forgotten(state.spec.compaction, row.agent, records)
    cleared = [Erase(CallRow, (call,)) for call in state.settled]
    state.head += len(records)
    staged = (*state.staged, *staging.land(state))
    state.pending = state.settled = state.mail = state.staged = ()
    return (*append, *claim, *cleared, *staged, Put(state.row)), records


def _claims(row: AgentRow, turn_open: OpenTurn, mail: tuple[Queued, ...]) -> tuple[Operation, ...]:
    """The claim of what is taken; that of a steer which interrupts says which calls it ended (CON-7)."""
    turn = turn_id(row.agent, turn_open.number)
    if not turn_open.skipped or not any(queued.envelope.interrupt for queued in mail):
        return (Claim(row.agent, tuple([queued.envelope.id for queued in mail]), turn),)
    said = skipped_reason(turn_open.skipped)
    taken = [queued.envelope for queued in mail]
    return tuple(Claim(row.agent, (one.id,), turn, said if one.interrupt else None) for one in taken)


def _consumed(turn_open: OpenTurn, mail: tuple[Queued, ...]) -> dict[str, object]:
    """What the open turn knows of what it took."""
    after: dict[str, object] = {"consumed": (*turn_open.consumed, *[queued.envelope.id for queued in mail])}
    if turn_open.skipped and any(queued.envelope.interrupt for queued in mail):
        after["skipped"] = ()
    return after


def _last_try(state: TurnState, changes: dict[str, object]) -> dict[str, object]:
    """A message on its last try makes its turn one of a last try, and is on that list no more (CON-6)."""
    row, taken = state.row, {queued.envelope.id for queued in state.mail}
    if taken.isdisjoint(row.singly):
        return {}
    changes["singly"] = tuple([message for message in row.singly if message not in taken])
    return {"tries": max(opened(state).tries, state.spec.limits.poison_limit - 1)}


def waiting_bytes(state: TurnState) -> int:
    """About how much the commit that carries the request will add to the conversation."""
    return mail_bytes(state.mail) + sum([record_bytes(record) for record in state.pending])


def mail_bytes(mail: tuple[Queued, ...]) -> int:
    """About how much messages will add to the conversation."""
    return sum([queued.envelope.size_bytes for queued in mail])


def leaving(state: TurnState) -> None:
    """The turn will stop at its next commit, in order: to go on with it is no crash (CON-6)."""
    state.suspending = True
    state.row = evolve(state.row, open=evolve(opened(state), left=True))


def account(
    state: TurnState, usage: Usage, spent: Amounts, *, cost_known: bool = True, context: int | None = None
) -> None:
    """What a request cost enters the row that the next commit carries; nothing is held for it any more (REQ-7).

    `context`: tokens that the conversation has now, where the request has measured it (SEL-3).
    """
    row = state.row
    state.row = evolve(
        row,
        usage=row.usage + usage,
        spent=row.spent + spent,
        run_usage=row.run_usage + usage,
        run_spent=row.run_spent + spent,
        cost_known=row.cost_known and cost_known,
        context=row.context if context is None else context,
        open=evolve(opened(state), asking=False, held=NOTHING),
    )


def over(state: TurnState) -> TurnState:
    """The state of a turn that is over."""
    state.phase, state.ticket, state.calls = Phase.OVER, None, ()
    return state


def _record(turn: TurnId, envelope: Envelope) -> MessageRecord:
    return MessageRecord(
        turn,
        envelope.id,
        envelope.content,
        envelope.sender,
        steer=envelope.lane is Lane.STEER,
        trust=envelope.trust,
        pinned=envelope.pinned,
    )


def outcome(state: TurnState, turn_open: OpenTurn, status: Status, *, failure: Failure | None = None) -> Outcome:
    """The turn as those who asked are told of it."""
    row = state.row
    answer = state.answer if status is Status.DONE else None
    return Outcome(
        path=row.agent,
        run=run_id(row.agent, turn_open.run),
        turn=turn_id(row.agent, turn_open.number),
        status=status,
        text=state.last_text,
        output=answer if state.output is not None else None,
        output_type=state.output.key if state.output is not None else None,
        usage=row.run_usage,
        spent=row.run_spent,
        cost_known=row.cost_known,
        failure=failure,
        calls=tuple(CallDone(call, name, what) for call, name, what in state.done),
        trust=row.trust,
    )


def finish(
    state: TurnState,
    status: Status,
    now: float,
    *before: Action,
    failure: Failure | None = None,
    wakes: bool = True,
) -> Step:
    """End the turn in one commit: what it still had to say, its outcome, and the report to a waiting parent.

    `wakes`: whether that may begin a turn of the parent's; else it is held.
    """
    turn_open = opened(state)
    commit, records = flush(state, now, open=None, owes=False, suspended=None)
    told = outcome(state, turn_open, status, failure=failure)
    operations = [*commit[:-1], Put(OutcomeRow(told.turn, told.path, told.run, told)), commit[-1]]
    if state.spec.reports_to is not None:
        report = _report(state.spec.reports_to, told)
        operations.append(Enqueue(report, _NO_BOUND))
        if not wakes:
            operations.append(Move(report.to, (ReceiptState.QUEUED,), ReceiptState.HELD, (report.id,)))
    abandon = (Abandon(state.ticket),) if state.ticket is not None else ()
    actions = (*before, *abandon, Tell(TurnEnded, {"outcome": told}), Over(None, told, run_over=state.run_over))
    return Step(over(state), tuple(operations), actions, records)


def _report(parent: str, told: Outcome) -> Envelope:
    """A background child's report: a message on the place that was reserved when the child was started (ACC-6)."""
    why = f": {told.failure.message}" if told.failure is not None else ""
    text = f"Report of {told.path} ({told.status.value}{why}):\n{told.output or told.text}"
    return Envelope(
        id=MessageId(f"r-{told.turn}"),
        to=AgentId(parent),
        lane=Lane.SEND,
        content=(Text(text),),
        sender=told.path,
        purpose=Purpose.REPORT,
        trust=told.trust,
        reserved=True,
    )


def fail(state: TurnState, error: CallboardError, now: float, *before: Action) -> Step:
    """End the turn with a note that the next request shows, on a valid conversation (TRN-2)."""
    note = NoteRecord(turn_id(state.row.agent, opened(state).number), "failure", f"The turn ended early: {error}")
    state.answer = None
    state.pending, state.note_last = (*state.pending, note), True
    status = Status.EXHAUSTED if isinstance(error, Exhausted) else Status.FAILED
    tell = Tell(NoteWritten, {"note": "limit" if isinstance(error, BudgetError) else "failure", "text": note.text})
    if state.spec.keeps or Point.SETTLING in state.spec.hooks:  # whether the run is over is looked for first
        state.failing, state.phase = (status, failure_of(error)), Phase.LOOKING
        return Step(state, (), (*before, tell, Look(sends=False)))
    return finish(state, status, now, *before, tell, failure=failure_of(error))


def abort(state: TurnState, event: Cut, before: tuple[Action, ...]) -> Step:
    """End the turn as aborted; the abort's own message is claimed in the same commit (ABT-2).

    Where that took the parent, too, this turn's report begins none of the parent's (ABT-5).
    """
    assert event.reason is not None, "an abort has a reason"
    failure = failure_of(Aborted(f"{state.row.agent} was aborted: {event.reason}"))
    ids = tuple(queued.envelope.id for queued in event.control)
    claims: tuple[Operation, ...] = (
        (Claim(state.row.agent, ids, turn_id(state.row.agent, opened(state).number)),) if ids else ()
    )
    if state.spec.keeps:  # HOK-4
        run = run_id(state.row.agent, opened(state).run)
        state.staged, state.run_over = (*state.staged, Erase(KvRow, (state.row.agent, run))), True
    wakes = not any(queued.envelope.sender for queued in event.control)
    ended = finish(state, Status.ABORTED, event.now, *before, failure=failure, wakes=wakes)
    return Step(ended.state, (*claims, *ended.commit), ended.actions, ended.records)


def nothing(state: TurnState, now: float) -> Step:
    """There is nothing left to do: the turn has begun, so it ends, for whoever watches and waits (TRN-4)."""
    why = "what asked for this turn was withdrawn, has expired or is held"
    error = Unfinished(f"{state.row.agent} had nothing left to answer: {why}")
    return finish(state, Status.ABORTED, now, failure=failure_of(error))


def suspend(
    state: TurnState, now: float, reason: str, error: Exhausted | None = None, before: tuple[Action, ...] = ()
) -> Step:
    """Stop here; what is settled becomes durable, what is queued stays queued (CLS-5)."""
    state.mail = ()
    if not state.pending and not state.row.owes and error is None:
        return suspended(state, (), (), (), reason=reason)  # the store knows nothing of this turn
    if error is not None:
        state.row = evolve(state.row, suspended=reason, owes=True)
    told = outcome(state, opened(state), Status.PARKED, failure=failure_of(error)) if error is not None else None
    commit, records = flush(state, now)
    return suspended(state, commit, records, before, reason=reason, told=told)


def suspended(
    state: TurnState,
    commit: tuple[Operation, ...],
    records: tuple[Record, ...],
    before: tuple[Action, ...],
    *,
    reason: str = "leaving",
    told: Outcome | None = None,
) -> Step:
    """The step that leaves the turn open for the next owner."""
    abandon = (Abandon(state.ticket),) if state.ticket is not None else ()
    return Step(over(state), commit, (*before, *abandon, Over(reason, told)), records)
