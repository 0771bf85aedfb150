"""A turn that the store has open: what recovery runs again, what it never runs again, and what is owed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.callview import CallView
from actors.changes import CallRow, CallState
from actors.content import Text, text_of
from actors.evolve import evolve
from actors.happenings import ToolEnded, ToolStarted, TurnStarted
from actors.ids import CallId, MessageId, TurnId
from actors.inputs import Begin, Phase
from actors.messages import Status
from actors.moves import Look, StartCall
from actors.output import output_spec
from actors.transcript import CallBlock, MessageRecord, ResponseRecord, ResultRecord, ResultStatus, Stop, TextBlock
from actors.usage import NOTHING, Amounts
from tests.actors.turnkit import HELD, TOOLS, Drive, message, open_row, row, spec, steer

if TYPE_CHECKING:
    from actors.transcript import Record

TURN = TurnId("lead:t1")
STARTED, PLANNED, SETTLED = CallState.STARTED, CallState.PLANNED, CallState.SETTLED
OK, UNKNOWN = ResultStatus.OK, ResultStatus.UNKNOWN


def view(index: int, name: str, state: CallState, arguments: dict[str, Any] | None = None) -> CallView:
    """A call as it was found, with its tool where there is one."""
    block = CallBlock(CallId(f"{TURN}.1.{index}"), f"w{index}", name, "{}")
    tool = TOOLS.get(name)
    keys, exclusive = tool.keys(arguments or {}) if tool is not None else ((), False)
    result = None
    if state is SETTLED:
        result = ResultRecord(TURN, block.id, block.wire_id, name, OK, (Text(f"kept {index}"),))
    return CallView(block, state, tool, arguments or {}, keys, exclusive, 1, result)


def found(*calls: CallView) -> list[Record]:
    """The conversation that such a batch stands at the end of."""
    response = ResponseRecord(TURN, tuple(call.block for call in calls), Stop.TOOL_CALLS, "x")
    return [MessageRecord(TURN, MessageId("m"), (Text("m"),)), response]


def recovered(*calls: CallView, **limits: Any) -> Drive:
    """A turn found open with this batch, begun again."""
    drive = Drive(spec(**limits), open_row(), found(*calls))
    drive.give(Begin(100.0, calls))
    return drive


@pytest.mark.parametrize("tool", ["write", "deploy", "gone"])
def test_tol_3_core_a_started_once_call_is_settled_unknown_and_never_started_again(tool: str) -> None:
    """Nobody saw its end: the model is told, and decides."""
    drive = recovered(view(0, tool, STARTED))
    assert drive.all(StartCall) == []
    assert drive.phase is Phase.LOOKING
    assert [told["status"] for told in drive.told(ToolEnded)] == ["unknown"]
    drive.ask()
    assert drive.results == [UNKNOWN]
    result = drive.records[-1]
    assert isinstance(result, ResultRecord)
    assert "its outcome is unknown" in text_of(result.content)
    drive.check()


@pytest.mark.parametrize("tool", ["look", "put"])
def test_tol_3_core_a_started_repeatable_call_runs_again_under_its_id(tool: str) -> None:
    """`pure` and `idempotent` calls start again, counted as a further try, in the commit of the recovery."""
    drive = recovered(view(0, tool, STARTED))
    (start,) = drive.all(StartCall)
    assert (start.call.block.id, start.call.tries) == ("lead:t1.1.0", 2)
    (written,) = drive.wrote(CallRow)
    assert (written.state, written.tries) == (STARTED, 2)
    assert len(drive.told(ToolStarted)) == 1


def test_tol_2_core_calls_that_were_never_started_start_now() -> None:
    """Planned calls are dispatched as new, in the order asked and within the limit."""
    drive = recovered(view(0, "look", PLANNED), view(1, "deploy", PLANNED), view(2, "look", PLANNED))
    assert drive.started == ["lead:t1.1.0"]
    assert [(written.call, written.state) for written in drive.wrote(CallRow)] == [("lead:t1.1.0", STARTED)]
    drive.ends(0)
    assert drive.started == ["lead:t1.1.1"]


def test_a_call_that_runs_again_counts_in_the_limit_and_blocks_its_key() -> None:
    """Recovery keeps the rules of a batch."""
    drive = recovered(view(0, "look", STARTED), view(1, "look", PLANNED), parallel_calls=1)
    assert drive.started == ["lead:t1.1.0"]
    drive.ends(0)
    assert drive.started == ["lead:t1.1.1"]


def test_a_planned_call_whose_tool_is_gone_is_an_error_result() -> None:
    """It cannot run; nothing was run."""
    drive = recovered(evolve(view(0, "gone", PLANNED), tool=None), view(1, "look", STARTED))
    assert [told["status"] for told in drive.told(ToolEnded)] == ["error"]
    drive.ends(1)
    drive.ask()
    assert drive.results == [ResultStatus.ERROR, OK]
    result = drive.records[-2]
    assert isinstance(result, ResultRecord)
    assert text_of(result.content) == "The tool 'gone' is no longer there as it was. Nothing was run."


def test_results_that_were_kept_are_not_lost_and_not_told_again() -> None:
    """A settled call keeps its result; with the last one the batch is over."""
    drive = recovered(view(0, "write", SETTLED), view(1, "deploy", SETTLED))
    assert drive.phase is Phase.LOOKING
    assert drive.told(ToolEnded) == []
    assert drive.wrote(CallRow) == []
    drive.ask()
    assert drive.results == [OK, OK]
    drive.check()


def test_tol_3_core_the_row_of_an_unknown_call_stays() -> None:
    """The same call asked for again is to be known for what it is; other rows go with their results."""
    drive = recovered(view(0, "write", STARTED, {"path": "a"}), view(1, "look", SETTLED))
    drive.ask()
    erased = [operation.prefix for operation in drive.made.commit if hasattr(operation, "prefix")]
    assert erased == [("lead:t1.1.1",)]


def test_rec_1_core_the_last_record_says_whether_an_answer_is_owed() -> None:
    """A consumed message owes one: the request is made again, and sends wait."""
    drive = Drive(row_=open_row(), records=found()[:1])
    drive.give(Begin(100.0, (), owed=True))
    assert not drive.last(Look).sends
    drive.ask()
    assert drive.asked.step == 2
    assert drive.shape == "M"
    assert len(drive.told(TurnStarted)) == 1


def test_rec_1_core_an_answer_that_stands_already_is_given() -> None:
    """The last record is the turn's answer: no request is made for it again."""
    last = ResponseRecord(TURN, (TextBlock("yes"),), Stop.END_TURN, "x")
    drive = Drive(row_=open_row(), records=[*found()[:1], last])
    drive.give(Begin(100.0, (), owed=False, last=last))
    assert not drive.last(Look).sends
    drive.look()
    assert (drive.outcome_told.status, drive.outcome_told.text) == (Status.DONE, "yes")
    assert drive.shape == "MR"


def test_rec_1_core_a_typed_answer_that_stands_already_is_read() -> None:
    """Its value is in the outcome; one that does not fit is asked for again."""
    number = output_spec(int, "a test")
    for text, status in (("41", Status.DONE), ("many", None)):
        last = ResponseRecord(TURN, (TextBlock(text),), Stop.END_TURN, "x")
        drive = Drive(row_=open_row(), records=[*found()[:1], last], output=number)
        drive.give(Begin(100.0, last=last))
        if status is None:
            drive.ask()
            assert len(drive.notes("repair")) == 1
        else:
            drive.look()
            assert (drive.outcome_told.status, drive.outcome_told.output) == (status, "41")


@pytest.mark.parametrize("stop", [Stop.PAUSE_TURN, Stop.INTERRUPTED])
def test_rec_1_core_a_response_that_was_no_end_is_none_after_a_restart(stop: Stop) -> None:
    """A pause goes on, and what was interrupted is still owed: neither is told as the answer."""
    last = ResponseRecord(TURN, (TextBlock("half"),), stop, "x")
    drive = Drive(row_=open_row(), records=[*found()[:1], last])
    drive.give(Begin(100.0, last=last))
    drive.look()
    assert drive.phase is Phase.ADMITTING
    assert drive.state.owed


def test_a_response_stopped_short_fails_after_a_restart_too() -> None:
    """It is no answer, whoever reads it; the recovery and the end are one commit."""
    last = ResponseRecord(TURN, (TextBlock("par"),), Stop.MAX_TOKENS, "x")
    drive = Drive(row_=open_row(), records=[*found()[:1], last])
    drive.give(Begin(100.0, last=last))
    assert drive.outcome_told.status is Status.FAILED
    assert drive.shape == "MRn"


def test_without_word_of_its_last_record_an_open_turn_asks_again() -> None:
    """A turn that has made a request owes an answer where nothing says otherwise."""
    drive = Drive(row_=open_row(), records=found()[:1])
    drive.give(Begin(100.0))
    drive.look()
    assert drive.phase is Phase.ADMITTING


def test_a_turn_that_had_taken_nothing_takes_its_message_now() -> None:
    """It was parked or cut off before its first request: sends may enter."""
    drive = Drive(row_=row(turns=1, runs=1, owes=True, suspended="budget", open=open_row(step=0).open))
    drive.give(Begin(100.0))
    assert drive.last(Look).sends
    assert drive.written.suspended is None
    drive.ask(message("m"))
    assert drive.asked.step == 1
    assert (drive.written.turns, drive.written.runs) == (1, 1)


def test_bud_7_core_a_lost_request_is_charged_what_it_had_reserved() -> None:
    """Once, in the commit of the recovery, which also counts the try."""
    opened = open_row(asking=True, held=HELD).open
    drive = Drive(row_=row(turns=1, runs=1, open=opened, spent=Amounts(cost=1)), records=found()[:1])
    drive.give(Begin(100.0, owed=True, unwritten=HELD))
    assert drive.written.spent == Amounts(cost=1) + HELD
    assert drive.written.run_spent == HELD
    assert drive.written.owes
    assert drive.written.open is not None
    assert (drive.written.open.asking, drive.written.open.held, drive.written.open.tries) == (False, NOTHING, 1)


def test_a_recovered_turn_goes_on_like_any_other() -> None:
    """Steering enters behind the results; ids of new calls do not meet old ones."""
    drive = recovered(view(0, "look", STARTED))
    drive.ends(0)
    drive.ask(steer("s", 2))
    assert drive.shape == "MRrM"
    drive.reply("yes")
    drive.look()
    assert drive.outcome_told.status is Status.DONE
    assert drive.outcome_told.calls[0].id == "lead:t1.1.0"
    drive.check()
