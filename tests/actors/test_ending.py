"""How a turn commits what it has, and what it writes when it ends."""

from __future__ import annotations

from actors import ending
from actors.changes import Append, CallRow, Claim, Erase, OutcomeRow, Put
from actors.content import Text, Trust
from actors.errors import CallboardError, LimitReached
from actors.evolve import evolve
from actors.ids import AgentId, CallId, TurnId
from actors.inputs import Cut, Phase
from actors.messages import CallDone, Status
from actors.moves import Abandon, CutStream, Over, Tell, TurnState
from actors.transcript import MessageRecord, NoteRecord, ResponseRecord, Stop, TextBlock
from actors.usage import NOTHING, Amounts, Usage
from tests.actors.turnkit import HELD, SPENT, USAGE, exhausted, message, open_row, spec, steer

TURN = TurnId("lead:t1")
RESPONSE = ResponseRecord(TURN, (TextBlock("yes"),), Stop.END_TURN, "x")


def state(**changes: object) -> TurnState:
    """A turn with something to commit."""
    return evolve(TurnState(spec(), open_row(), 3, since=100.0), **changes)


def test_con_4_core_flush_is_one_commit_with_all_that_waits() -> None:
    """Records behind the head, the claim, the erasures, the row last; what was flushed does not wait any more."""
    mail = (message("a"), steer("b", 2, trust=Trust.EXTERNAL, sender=AgentId("boss")))
    before = state(pending=(RESPONSE,), mail=mail, settled=(CallId("c"),))
    after = before
    operations, records = ending.flush(after, 101.5)
    assert [type(operation) for operation in operations] == [Append, Claim, Erase, Put]
    append, claim, erase, put = operations
    assert isinstance(append, Append)
    assert (append.at, append.records) == (3, records)
    assert records == (
        RESPONSE,
        MessageRecord(TURN, mail[0].envelope.id, (Text("a"),)),
        MessageRecord(TURN, mail[1].envelope.id, (Text("b"),), AgentId("boss"), steer=True, trust=Trust.EXTERNAL),
    )
    assert claim == Claim(AgentId("lead"), (mail[0].envelope.id, mail[1].envelope.id), TURN)
    assert erase == Erase(CallRow, (CallId("c"),))
    assert put == Put(after.row)
    assert (after.head, after.pending, after.mail, after.settled, after.since) == (6, (), (), (), 101.5)
    assert after.row.spent == after.row.run_spent == Amounts(active_us=1_500_000)
    assert after.row.open is not None
    assert after.row.open.consumed == ("a", "b")


def test_flush_of_nothing_writes_the_row_only() -> None:
    """No empty append, no empty claim (CON-3)."""
    after = state()
    operations, records = ending.flush(after, 100.0)
    assert operations == (Put(after.row),)
    assert records == ()
    assert after.row.spent == NOTHING


def test_a_failure_note_stands_behind_the_message_that_was_not_answered() -> None:
    """Only the note goes behind: what was said before stays before."""
    note = NoteRecord(TURN, "failure", "no")
    _, records = ending.flush(state(pending=(RESPONSE, note), mail=(message("a"),), note_last=True), 100.0)
    assert [type(record) for record in records] == [ResponseRecord, MessageRecord, NoteRecord]
    _, records = ending.flush(state(pending=(RESPONSE, note), mail=(message("a"),)), 100.0)
    assert [type(record) for record in records] == [ResponseRecord, NoteRecord, MessageRecord]


def test_consumed_messages_add_up_over_a_turn() -> None:
    """For the dead letters and the replies, all of them count."""
    after = state(mail=(message("a"),))
    ending.flush(after, 100.0)
    after.mail = (steer("b", 2),)
    ending.flush(after, 100.0)
    assert after.row.open is not None
    assert after.row.open.consumed == ("a", "b")


def test_account_adds_to_both_totals_and_ends_the_hold() -> None:
    """A cost once unknown stays unknown."""
    again = state(row=open_row(asking=True, held=HELD))
    ending.account(again, USAGE, SPENT, cost_known=False)
    ending.account(again, USAGE, SPENT)
    assert again.row.usage == again.row.run_usage == USAGE + USAGE
    assert again.row.spent == again.row.run_spent == SPENT + SPENT
    assert not again.row.cost_known
    assert again.row.open is not None
    assert (again.row.open.asking, again.row.open.held) == (False, NOTHING)
    known = state()
    ending.account(known, Usage(), NOTHING)
    assert known.row.cost_known


def test_finish_writes_the_outcome_and_leaves_nothing_open() -> None:
    """Records, outcome and row are one commit; the row owes nothing; a ticket in hand is given back."""
    before = state(
        pending=(RESPONSE,),
        answer="yes",
        last_text="yes",
        ticket="t",
        row=evolve(open_row(), suspended="budget"),
        done=((CallId("c"), "look", "ok"),),
    )
    first = CutStream()
    made = ending.finish(before, Status.DONE, 100.0, first)
    append, outcome, put = made.commit
    assert isinstance(append, Append)
    assert isinstance(outcome, Put)
    assert isinstance(outcome.row, OutcomeRow)
    told = outcome.row.outcome
    assert (told.status, told.text, told.output, told.failure) == (Status.DONE, "yes", None, None)
    assert told.calls == (CallDone(CallId("c"), "look", "ok"),)
    assert (outcome.row.turn, outcome.row.run) == (TURN, "lead:r1")
    assert put == Put(made.state.row)
    assert (made.state.row.open, made.state.row.owes, made.state.row.suspended) == (None, False, None)
    assert made.state.phase is Phase.OVER
    assert [type(action) for action in made.actions[1:]] == [Abandon, Tell, Over]
    assert made.actions[0] is first
    assert made.actions[-1] == Over(None, told)


def test_fail_forgets_the_answer_and_says_what_kind() -> None:
    """Exhausted is an outcome of its own; bounds are limits, the rest failures."""
    for error, status, kind in (
        (exhausted(), Status.EXHAUSTED, "limit"),
        (LimitReached("x"), Status.FAILED, "limit"),
        (OddError("x"), Status.FAILED, "failure"),
    ):
        made = ending.fail(state(answer="yes"), error, 100.0)
        tells = [action for action in made.actions if isinstance(action, Tell)]
        assert tells[0].values == {"note": kind, "text": f"The turn ended early: {error}"}
        over = made.actions[-1]
        assert isinstance(over, Over)
        assert over.outcome is not None
        assert over.outcome.status is status
        assert over.outcome.failure is not None
        assert over.outcome.failure.kind == error.kind
        assert made.state.answer is None


def test_abt_2_core_the_aborts_message_is_claimed_in_the_commit_that_ends_the_turn() -> None:
    """First of all operations: where it is gone, nothing is written."""
    made = ending.abort(state(), Cut(100.0, (message("abort"),), "enough"), ())
    assert made.commit[0] == Claim(AgentId("lead"), (message("abort").envelope.id,), TURN)
    assert len([operation for operation in made.commit if isinstance(operation, Claim)]) == 1


def test_suspend_writes_what_waits_and_leaves_the_turn_open() -> None:
    """The mail stays in its lane; with an error the row says why, and those who wait are told."""
    made = ending.suspend(state(pending=(RESPONSE,), mail=(message("a"),)), 100.0, "leaving")
    assert [type(operation) for operation in made.commit] == [Append, Put]
    assert made.actions == (Over("leaving"),)
    assert made.state.row.open is not None
    parked = ending.suspend(state(), 100.0, "budget", exhausted())
    assert (parked.state.row.suspended, parked.state.row.owes) == ("budget", True)
    over = parked.actions[-1]
    assert isinstance(over, Over)
    assert over.outcome is not None
    assert over.outcome.status is Status.PARKED
    assert over.outcome.failure is not None


class OddError(CallboardError):
    """An error that is no budget's."""

    kind = "odd"
