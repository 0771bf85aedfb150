"""A turn that is cut: by an abort, by a steer that interrupts; and one that is asked to leave."""

from __future__ import annotations

import pytest

from actors.changes import CallRow, CallState, Claim, OutcomeRow, Put
from actors.content import text_of
from actors.errors import Unavailable
from actors.happenings import ResponseEnded, ToolEnded, TurnEnded
from actors.hooked import Point
from actors.inputs import Begin, Cut, HookReturned, MustWait, NotAdmitted, Phase
from actors.messages import Lane, Purpose, Status, skipped_of
from actors.moves import Abandon, CancelCalls, CutStream, Look, Over, StartCall
from actors.transcript import ReasoningBlock, ResponseRecord, ResultRecord, ResultStatus, Stop, TextBlock
from actors.usage import NOTHING, Amounts, Usage
from tests.actors.turnkit import Drive, call, exhausted, message, open_row, spec, steer

ABORT = message("abort", lane=Lane.CONTROL, seq=9, purpose=Purpose.ABORT)
SKIPPED, ABORTED, OK = ResultStatus.SKIPPED, ResultStatus.ABORTED, ResultStatus.OK


def at(phase: Phase) -> Drive:
    """A turn that waits in a phase."""
    drive = Drive(spec(Point.BEFORE_TURN, parallel_calls=2))
    drive.give(Begin(drive.now))
    if phase is Phase.HOOK:
        return drive
    drive.give(HookReturned(drive.now))
    if phase is Phase.LOOKING:
        return drive
    drive.look(message("m"))
    if phase is Phase.ADMITTING:
        return drive
    drive.admit()
    drive.look(message("m"))
    if phase is Phase.RUNNING:
        drive.reply(
            call("look", '{"at": "a"}'),
            call("write", '{"path": "b"}'),
            call("look", '{"at": "c"}'),
            call("fly"),
            call("put", '{"key": "e"}'),
        )
    return drive


WAITS = [Phase.HOOK, Phase.LOOKING, Phase.ADMITTING, Phase.ASKING, Phase.RUNNING]


@pytest.mark.parametrize("phase", WAITS)
def test_abt_1_core_an_abort_ends_the_turn_wherever_it_is(phase: Phase) -> None:
    """One commit claims the abort, settles what is open and writes the outcome; the model is not asked again."""
    drive = at(phase)
    assert drive.phase is phase
    drive.cut("enough", control=(ABORT,))
    told = drive.outcome_told
    assert told.status is Status.ABORTED
    assert told.failure is not None
    assert told.failure.message == "lead was aborted: enough"
    assert [claim.messages for claim in drive.wrote(Claim)] == [("abort",)]
    assert len(drive.wrote(OutcomeRow)) == 1
    assert drive.written.open is None
    assert len(drive.told(TurnEnded)) == 1
    drive.check()


def test_abt_1_core_an_abort_without_messages_claims_nothing() -> None:
    """A claim of nothing would be refused (CON-3)."""
    drive = at(Phase.ASKING)
    drive.cut("enough")
    assert drive.wrote(Claim) == []


@pytest.mark.parametrize("phase", [Phase.HOOK, Phase.LOOKING, Phase.ADMITTING])
def test_abt_4_core_what_was_not_taken_stays_in_the_mailbox(phase: Phase) -> None:
    """An abort claims its own message only: chosen mail that no commit took is not consumed."""
    drive = at(phase)
    drive.cut("enough", control=(ABORT,))
    assert drive.shape == ""
    assert [claim.messages for claim in drive.wrote(Claim)] == [("abort",)]


def test_abt_3_core_started_calls_are_aborted_and_others_skipped() -> None:
    """The turn waits for none of them; what had returned keeps its result; results stand in call order."""
    drive = at(Phase.RUNNING)
    drive.ends(0)
    assert len(drive.started) == 1
    drive.cut("enough")
    assert drive.results == [OK, ABORTED, ABORTED, ResultStatus.ERROR, SKIPPED]
    assert drive.last(CancelCalls).calls == ("lead:t1.1.1", "lead:t1.1.2")
    written = [text_of(record.content) for record in drive.records if isinstance(record, ResultRecord)]
    assert "It may have taken effect" in written[1]
    assert "It may have taken effect" not in written[2]  # a pure tool has none
    assert len(drive.told(ToolEnded)) == 5
    drive.check()


def test_abt_3_core_results_that_came_with_the_abort_are_kept() -> None:
    """A call that returned before the cut is not told aborted."""
    drive = at(Phase.RUNNING)
    drive.cut("enough", outcomes=(drive.outcome(1),))
    assert drive.results == [ABORTED, OK, SKIPPED, ResultStatus.ERROR, SKIPPED]
    assert drive.last(CancelCalls).calls == ("lead:t1.1.0",)


def test_tol_14_core_what_a_cancelled_call_returns_later_has_no_place() -> None:
    """After an interruption the batch is over: the call's result is not the turn's any more."""
    drive = at(Phase.RUNNING)
    late = drive.outcome(1)
    drive.cut(None)
    assert drive.phase is Phase.LOOKING
    assert drive.state.calls == ()
    drive.ask(steer("s", 2))
    drive.reply("yes")
    drive.look()
    assert all(text_of(late.content) not in str(record) for record in drive.records)


def test_trn_8_core_a_cut_response_keeps_finished_blocks_and_half_text() -> None:
    """Marked interrupted, in the order reasoning, text, calls, its calls skipped; and it is accounted."""
    drive = at(Phase.ASKING)
    blocks = (call("look"), ReasoningBlock("why"), TextBlock("one"))
    drive.cut("enough", blocks=blocks, half="tw", usage=Usage(fresh=4), spent=Amounts(cost=6), model="x")
    response = drive.records[1]
    assert isinstance(response, ResponseRecord)
    assert [type(block).__name__ for block in response.blocks] == [
        "ReasoningBlock",
        "TextBlock",
        "TextBlock",
        "CallBlock",
    ]
    assert response.blocks[2] == TextBlock("tw", half=True)
    assert (response.stop, response.model, response.usage) == (Stop.INTERRUPTED, "x", Usage(fresh=4))
    assert drive.results == [SKIPPED]
    assert drive.last(CutStream) == CutStream()
    assert drive.outcome_told.text == "onetw"
    assert (drive.written.usage, drive.written.spent) == (Usage(fresh=4), Amounts(cost=6))
    assert drive.all(Abandon) == []
    drive.check()


def test_trn_4_core_a_cut_response_has_its_end_too() -> None:
    """ResponseEnded says interrupted, and the cost where it is known; its calls are told skipped."""
    drive = at(Phase.ASKING)
    drive.cut("enough", blocks=(call("look"),), half="x", spent=Amounts(cost=6), model="y")
    (ended,) = drive.told(ResponseEnded)
    assert ended == {"stop": Stop.INTERRUPTED, "text": "x", "usage": Usage(), "cost": 6, "model": "y"}
    assert [told["status"] for told in drive.told(ToolEnded)] == ["skipped"]
    unknown = at(Phase.ASKING)
    unknown.cut("enough", cost_known=False)
    assert unknown.told(ResponseEnded)[0]["cost"] is None
    assert not unknown.written.cost_known


def test_trn_6_core_a_response_cut_before_anything_came_is_no_message() -> None:
    """Nothing, or blanks only, leave no record."""
    drive = at(Phase.ASKING)
    drive.cut("enough", half=" \n")
    assert drive.shape == "M"
    drive.check()


# -- a steer that interrupts -------------------------------------------------------------------------------------


def test_con_7_core_an_interrupting_steer_enters_behind_what_was_cut() -> None:
    """The cut response, its skipped calls, then the steer; then the model is asked."""
    drive = at(Phase.ASKING)
    drive.cut(None, blocks=(TextBlock("one"), call("look")), half="tw")
    assert drive.phase is Phase.LOOKING
    assert not drive.last(Look).sends
    drive.ask(steer("s", 2))
    assert drive.shape == "MRrM"
    assert drive.written.open is not None
    assert (drive.written.open.step, drive.written.open.asking) == (2, True)
    drive.check()


def test_con_7_core_an_interrupted_batch_is_settled_before_the_steer() -> None:
    """Running calls are cancelled; the steer stands behind all results."""
    drive = at(Phase.RUNNING)
    drive.cut(None)
    assert drive.last(CancelCalls).calls == ("lead:t1.1.0", "lead:t1.1.1")
    drive.ask(steer("s", 2))
    assert drive.shape == "MRrrrrrM"
    drive.check()


def test_con_7_core_the_claim_of_the_steer_names_the_calls_that_it_ended() -> None:
    """Those that run and those not started; not what had returned, nor for a steer that does not interrupt."""
    drive = at(Phase.RUNNING)
    ended = tuple(call.block.id for call in drive.state.calls if call.result is None)
    drive.cut(None, outcomes=(drive.outcome(0),))
    drive.ask(steer("s", 2), steer("stop", 3, interrupt=True))
    first, second = drive.wrote(Claim)
    assert (first.messages, first.reason) == (("s",), None)
    assert (second.messages, skipped_of(second.reason)) == (("stop",), ended[1:])
    assert len(ended) > 1
    assert drive.written.open is not None
    assert drive.written.open.skipped == ()
    drive.check()


def test_con_7_core_what_was_ended_is_kept_until_the_interrupting_steer_enters() -> None:
    """A steer that goes first takes no name of it; nor does one that ended nothing."""
    drive = at(Phase.RUNNING)
    drive.cut(None)
    drive.ask(steer("s", 2))
    assert drive.written.open is not None
    assert len(drive.written.open.skipped) > 1
    assert [claim.reason for claim in drive.wrote(Claim)] == [None]
    other = at(Phase.ASKING)
    other.cut(None)
    other.ask(steer("stop", 2, interrupt=True))
    assert [claim.reason for claim in other.wrote(Claim)] == [None]


def test_con_7_core_what_was_interrupted_is_still_owed_where_the_steer_is_withdrawn() -> None:
    """The messages that the turn took are not forgotten: the model is asked again."""
    drive = at(Phase.ASKING)
    drive.cut(None)
    drive.ask()
    assert drive.asked.step == 2


def test_con_7_core_an_interruption_before_anything_was_taken_owes_nothing() -> None:
    """No request is made where nothing was consumed and the steer is gone: sends may enter, or the turn leaves."""
    drive = at(Phase.ADMITTING)
    drive.cut(None)
    assert drive.last(Look).sends
    drive.look()
    assert (drive.outcome_told.status, drive.outcome_told.cut) == (Status.ABORTED, False)


def test_con_7_core_an_interruption_behind_the_answer_keeps_it() -> None:
    """The answer stands: it is given where the steer is gone."""
    drive = at(Phase.ASKING)
    drive.reply("yes")
    drive.look(steer("s", 2))
    drive.give(MustWait(0.0))
    drive.cut(None)
    drive.look()
    assert drive.outcome_told.status is Status.DONE
    assert drive.outcome_told.text == "yes"


def test_an_unused_ticket_is_given_back_when_the_turn_is_cut() -> None:
    """TURN-3: a ticket in hand ends in a request or in `Abandon`."""
    drive = at(Phase.ADMITTING)
    drive.admit_later("t")
    drive.cut(None)
    assert drive.last(Abandon).ticket == "t"
    assert drive.state.ticket is None
    drive.look(steer("s", 2))
    assert drive.phase is Phase.ADMITTING  # a new admission


def test_a_commit_that_fails_in_an_abort_stops_what_runs() -> None:
    """The store says no: the stream and the calls are cancelled all the same, and the turn stops."""
    drive = at(Phase.ASKING)
    drive.fail(Cut(0.0, reason="enough"), Unavailable("x"))
    assert drive.last(CutStream) == CutStream()
    assert drive.over.suspended == "store"
    running = at(Phase.RUNNING)
    running.fail(Cut(0.0, reason="enough"), Unavailable("x"))
    assert running.last(CancelCalls).calls == ("lead:t1.1.0", "lead:t1.1.1")


# -- leaving -----------------------------------------------------------------------------------------------------


def test_cls_5_core_a_turn_that_has_done_nothing_leaves_nothing() -> None:
    """Its message stays queued; nothing is written."""
    for phase in (Phase.HOOK, Phase.LOOKING, Phase.ADMITTING):
        drive = at(phase)
        drive.suspend()
        if phase is Phase.HOOK:
            drive.give(HookReturned(drive.now))
        elif phase is Phase.LOOKING:
            drive.look(message("m"))
        else:
            drive.admit("t")
            drive.look(message("m"))
            assert drive.last(Abandon).ticket == "t"
        assert drive.over == Over("leaving")
        assert drive.commits == []


def test_cls_5_core_a_turn_that_waits_for_its_model_leaves_at_once() -> None:
    """Nothing is under way, so nothing is waited for."""
    drive = at(Phase.ADMITTING)
    drive.give(MustWait(0.0))
    drive.suspend()
    assert drive.over == Over("leaving")


def test_cls_5_core_no_place_for_a_leaving_turn_is_its_end() -> None:
    """It does not begin to wait."""
    drive = at(Phase.ADMITTING)
    drive.suspend()
    drive.give(MustWait(0.0))
    assert drive.over == Over("leaving")


def test_cls_5_core_results_are_durable_before_a_turn_leaves() -> None:
    """The batch's results, and what they cost, are the last commit; the turn stays open and owes."""
    drive = at(Phase.ASKING)
    drive.reply(call("look"))
    drive.ends(0)
    drive.suspend()
    drive.look()
    assert drive.over == Over("leaving")
    assert drive.shape == "MRr"
    assert drive.written.open is not None
    assert drive.written.owes


def test_cls_5_core_a_response_that_comes_while_leaving_starts_no_call() -> None:
    """The batch is committed as planned, for the next owner."""
    drive = at(Phase.ASKING)
    drive.suspend()
    assert drive.phase is Phase.ASKING
    drive.reply(call("look"), call("fly"))
    assert drive.over == Over("leaving")
    assert drive.all(StartCall) == []
    assert [found.state for found in drive.wrote(CallRow)] == [CallState.PLANNED, CallState.SETTLED]
    assert drive.shape == "MR"


def test_cls_5_core_an_answer_that_comes_while_leaving_is_given() -> None:
    """What is done is done."""
    drive = at(Phase.ASKING)
    drive.suspend()
    drive.reply("yes")
    drive.look()
    assert drive.outcome_told.status is Status.DONE


def test_cls_5_core_running_calls_are_finished_and_no_more_are_started() -> None:
    """Each result is kept; when nothing runs any more, the turn leaves with the rest planned."""
    drive = at(Phase.RUNNING)
    drive.suspend()
    assert drive.phase is Phase.RUNNING
    drive.ends(0)
    assert drive.started == []
    assert drive.phase is Phase.RUNNING
    drive.ends(1)
    assert drive.over == Over("leaving")
    assert [found.state for found in drive.wrote(CallRow)] == [CallState.SETTLED]
    assert drive.shape == "MR"


def test_cls_5_core_a_batch_that_ends_while_leaving_is_kept_in_its_rows() -> None:
    """The last result too is on disk before the turn is left."""
    drive = Drive().start()
    drive.reply(call("look"))
    drive.suspend()
    drive.ends(0)
    assert drive.over == Over("leaving")
    assert [found.state for found in drive.wrote(CallRow)] == [CallState.SETTLED]


def test_cls_5_core_what_a_response_without_blocks_cost_is_kept() -> None:
    """Nothing is pending, but the row knows more than the store: it is written."""
    drive = at(Phase.ASKING)
    drive.suspend()
    drive.reply(stop=Stop.PAUSE_TURN)
    drive.look()
    assert drive.over == Over("leaving")
    assert drive.written.usage != Usage()
    assert drive.written.open is not None
    assert drive.written.open.held == NOTHING


def test_cls_5_core_a_leaving_turn_that_found_nothing_is_over() -> None:
    """There is nothing to leave open."""
    drive = at(Phase.LOOKING)
    drive.suspend()
    drive.look()
    assert (drive.outcome_told.status, drive.outcome_told.cut) == (Status.ABORTED, False)


def test_con_6_core_a_recovered_turn_that_leaves_before_its_first_request_was_left_in_order() -> None:
    """The store has all of it already, but that going on with it is no crash."""
    drive = Drive(row_=open_row(step=0))
    drive.give(Begin(drive.now))
    drive.suspend()
    made = drive.look(message("m"))
    assert [type(operation) for operation in made.commit] == [Put]
    assert drive.written.open is not None
    assert drive.written.open.left
    assert drive.over == Over("leaving")


def test_park_gives_no_ticket_back_that_it_does_not_have() -> None:
    """A refusal came instead of a ticket."""
    drive = Drive()
    drive.begin(message("m"))
    drive.give(NotAdmitted(0.0, exhausted(on_exhausted="park")))
    assert drive.all(Abandon) == []
