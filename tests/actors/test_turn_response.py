"""What a response makes of its turn: an answer, a repair, or an error that says so."""

from __future__ import annotations

import attrs
import pytest

from actors.answering import unfit
from actors.changes import OutcomeRow
from actors.content import text_of
from actors.errors import AnswerUnfit, Broken, UsageError
from actors.happenings import NoteWritten, RequestFailed, ResponseEnded, TurnEnded
from actors.ids import TurnId
from actors.inputs import Begin, Failed, Looked, MustWait, NotAdmitted
from actors.messages import Status
from actors.moves import Abandon, StartCall
from actors.output import output_spec
from actors.ports import ANSWER_TOOL, WireCall
from actors.reports import error_of
from actors.transcript import ReasoningBlock, ResponseRecord, ResultRecord, ResultStatus, Stop
from actors.usage import Amounts, Usage
from tests.actors.turnkit import TOOLS, USAGE, Drive, call, message, spec, steer


@attrs.frozen
class Verdict:
    """A typed answer."""

    ok: bool


VERDICT = output_spec(Verdict, "a test")


FITS = '{"ok": true}'


def test_an_answer_ends_the_turn_in_one_commit() -> None:
    """The response, the outcome and the row that owes nothing are one commit."""
    drive = Drive().start()
    assert drive.reply("yes").commit == ()
    drive.look()
    told = drive.outcome_told
    assert (told.status, told.text, told.output) == (Status.DONE, "yes", None)
    assert (told.run, told.turn) == ("lead:r1", "lead:t1")
    assert drive.written.open is None
    assert not drive.written.owes
    assert len(drive.wrote(OutcomeRow)) == 1
    assert drive.shape == "MR"


def test_trn_6_core_a_response_without_blocks_is_no_message() -> None:
    """An empty response leaves no record; the turn ends with empty text, and what it cost is counted."""
    drive = Drive().start()
    drive.reply()
    drive.look()
    assert drive.shape == "M"
    assert (drive.outcome_told.status, drive.outcome_told.text) == (Status.DONE, "")
    assert drive.written.usage == USAGE
    drive.check()


def test_trn_5_core_a_response_is_stored_reasoning_text_calls() -> None:
    """Blocks that came in another order are stored in this one."""
    drive = Drive().start()
    drive.reply(call("look"), "text", ReasoningBlock("because"))
    (response,) = [record for record in drive.records if isinstance(record, ResponseRecord)]
    assert [type(block).__name__ for block in response.blocks] == ["ReasoningBlock", "TextBlock", "CallBlock"]
    assert (response.stop, response.model, response.usage) == (Stop.TOOL_CALLS, "script:x", USAGE)


def test_a_paused_answer_is_asked_to_go_on() -> None:
    """`pause_turn` is no end: the next request follows, with steering but without sends."""
    drive = Drive().start()
    drive.reply("half", stop=Stop.PAUSE_TURN)
    assert drive.state.answer is None
    drive.ask()
    assert drive.asked.step == 2
    drive.reply("whole")
    drive.look()
    assert drive.shape == "MRR"
    assert drive.outcome_told.text == "whole"


STOPPED: list[tuple[Stop, str]] = [
    (Stop.MAX_TOKENS, "answer_cut"),
    (Stop.REFUSAL, "answer_refused"),
    (Stop.CONTENT_FILTER, "answer_refused"),
    (Stop.ERROR, "malformed"),
]


@pytest.mark.parametrize(("stop", "kind"), STOPPED)
def test_trn_7_core_an_answer_that_was_stopped_short_is_no_answer(stop: Stop, kind: str) -> None:
    """The turn fails and says why, each in its kind; what came is kept in the conversation."""
    drive = Drive().start()
    drive.reply("par", stop=stop)
    assert drive.outcome_told.status is Status.FAILED
    assert drive.outcome_told.failure is not None
    assert drive.outcome_told.failure.kind == kind
    assert drive.outcome_told.text == "par"
    assert drive.shape == "MRn"


@pytest.mark.parametrize("stop", [Stop.END_TURN, Stop.STOP_SEQUENCE, Stop.TOOL_CALLS])
def test_other_stops_end_an_answer(stop: Stop) -> None:
    """The content decides: without calls, a text is the answer."""
    drive = Drive().start()
    drive.reply("yes", stop=stop)
    drive.look()
    assert drive.outcome_told.status is Status.DONE


def test_a_typed_answer_is_told_as_json_with_its_type() -> None:
    """The outcome has the JSON, the type's name, and the text as the model wrote it."""
    drive = Drive(spec(output=VERDICT)).start()
    assert drive.written.open is not None
    assert drive.written.open.output == VERDICT.key
    drive.reply(f"Here: {FITS}")
    drive.look()
    told = drive.outcome_told
    assert (told.output, told.output_type, told.text) == ('{"ok":true}', VERDICT.key, f"Here: {FITS}")


def test_a_typed_answer_that_does_not_fit_is_asked_for_again_with_its_problem() -> None:
    """A note says what is wrong; the next response that fits is the answer."""
    drive = Drive(spec(output=VERDICT)).start()
    drive.reply('{"ok": 3}')
    drive.ask()
    assert "ok" in drive.notes("repair")[0]
    assert "does not fit Verdict" in drive.notes("repair")[0]
    drive.reply(FITS)
    drive.look()
    assert drive.outcome_told.status is Status.DONE
    assert drive.shape == "MRnR"


def test_trn_7_core_repairs_are_bounded_and_end_in_an_error() -> None:
    """After `output_repairs` more attempts the turn fails; it never passes what does not fit."""
    drive = Drive(spec(output=VERDICT, output_repairs=2)).start()
    for _ in range(2):
        drive.reply("no")
        drive.ask()
    drive.reply("no")
    assert drive.outcome_told.status is Status.FAILED
    assert "after 3 attempts" in drive.notes("failure")[0]
    assert drive.outcome_told.output is None


def test_trn_7_core_the_error_carries_every_attempt() -> None:
    """Each answer that did not fit is in the failure, with what is wrong with it."""
    drive = Drive(spec(output=VERDICT, output_repairs=1)).start()
    drive.reply("no")
    drive.ask()
    drive.reply('{"ok": 3}')
    failure = drive.outcome_told.failure
    assert failure is not None
    error = error_of(failure)
    assert isinstance(error, AnswerUnfit)
    assert [answer for answer, _ in error.attempts] == ["no", '{"ok": 3}']
    assert ["no JSON" in problem for _, problem in error.attempts] == [True, False]
    assert "after 2 attempts" in str(error)


# -- the answer tool ---------------------------------------------------------------------------------------------


def final(arguments: str = FITS, wire: str = "") -> WireCall:
    """An answer as a call."""
    return call(ANSWER_TOOL, arguments, wire=wire)


def test_an_answer_can_be_a_call_which_runs_nothing() -> None:
    """It is taken, its call has its result, and no tool is started, charged or listed for it."""
    drive = Drive(spec(output=VERDICT)).start()
    drive.reply(final(), granted=0)
    assert drive.all(StartCall) == []
    drive.look()
    told = drive.outcome_told
    assert (told.status, told.output, told.text, told.calls) == (Status.DONE, '{"ok":true}', FITS, ())
    assert (drive.shape, drive.results) == ("MRr", [ResultStatus.OK])
    assert told.spent.tool_calls == 0
    drive.check()


def test_an_answer_by_call_that_does_not_fit_has_an_error_for_its_result() -> None:
    """The result says what is wrong; the next call that fits is the answer."""
    drive = Drive(spec(output=VERDICT)).start()
    drive.reply(final('{"ok": 3}'))
    drive.ask()
    assert drive.results == [ResultStatus.ERROR]
    (told,) = [text_of(record.content) for record in drive.records if isinstance(record, ResultRecord)]
    assert told.startswith("The answer does not fit Verdict: ")
    drive.reply(final())
    drive.look()
    assert (drive.outcome_told.status, drive.shape) == (Status.DONE, "MRrRr")
    drive.check()


def test_trn_7_core_answers_by_call_are_bounded_too() -> None:
    """After `output_repairs` more attempts the turn fails with all of them, on a valid conversation."""
    drive = Drive(spec(output=VERDICT, output_repairs=1)).start()
    drive.reply(final("{"))
    drive.ask()
    drive.reply(final("[]"))
    failure = drive.outcome_told.failure
    assert failure is not None
    error = error_of(failure)
    assert isinstance(error, AnswerUnfit)
    assert [answer for answer, _ in error.attempts] == ["{", "[]"]
    drive.check()


def test_only_the_first_of_several_answers_is_taken() -> None:
    """The others are refused where the model reads it."""
    drive = Drive(spec(output=VERDICT)).start()
    drive.reply(final(), final('{"ok": false}'))
    drive.look()
    assert drive.outcome_told.output == '{"ok":true}'
    assert drive.results == [ResultStatus.OK, ResultStatus.REFUSED]


def test_an_answer_beside_calls_is_refused_on_the_wire() -> None:
    """As a call it has an error for its result, and the others run; the answer is the one given later."""
    drive = Drive(spec(output=VERDICT)).start()
    drive.reply(final(), call("look"))
    assert drive.started == ["lead:t1.1.1"]
    drive.ends(1)
    drive.ask()
    assert drive.results == [ResultStatus.REFUSED, ResultStatus.OK]
    drive.reply(final('{"ok": false}'))
    drive.look()
    assert drive.outcome_told.output == '{"ok":false}'
    drive.check()


@pytest.mark.parametrize(("text", "told"), [(FITS, True), ("I look first.", False)])
def test_an_answer_as_text_beside_calls_is_refused_in_a_notice(text: str, told: bool) -> None:  # noqa: FBT001 - a row
    """The next request says so; words that are no answer are no answer refused."""
    drive = Drive(spec(output=VERDICT)).start()
    drive.reply(text, call("look"))
    drive.ends(0)
    drive.ask()
    assert [("Not taken" in note) for note in drive.notes("notice")] == [True] * told
    drive.check()


def test_a_cut_answer_by_call_is_no_answer() -> None:
    """Though what came fits, the model was not done."""
    drive = Drive(spec(output=VERDICT)).start()
    drive.reply(final(), stop=Stop.MAX_TOKENS)
    assert drive.outcome_told.failure is not None
    assert (drive.outcome_told.failure.kind, drive.outcome_told.output) == ("answer_cut", None)
    assert drive.results == [ResultStatus.REFUSED]
    drive.check()


def test_the_answer_tool_is_one_only_where_an_answer_owes_a_type() -> None:
    """Without a type it is a tool that is not there."""
    drive = Drive().start()
    drive.reply(final())
    drive.ask()
    assert drive.results == [ResultStatus.ERROR]


def test_after_a_restart_the_attempts_are_known_by_the_conversation() -> None:
    """Both forms: what was refused before counts, and is in the error."""
    drive = Drive(spec(output=VERDICT)).start()
    drive.reply("no")
    drive.ask()
    drive.reply(final("[]"))
    drive.ask()
    assert unfit(drive.records, TurnId("lead:t1")) == drive.state.unfit
    assert [answer for answer, _ in drive.state.unfit] == ["no", "[]"]
    assert unfit(drive.records, TurnId("lead:t2")) == ()


def test_a_message_with_a_type_of_its_own_decides_for_its_turn() -> None:
    """Its type replaces the agent's; steering without one keeps it."""
    drive = Drive(spec(output=output_spec(str, "a test")))
    drive.give(Begin(0.0))
    drive.ask(message("m"), output=VERDICT)
    assert drive.asked.output is VERDICT
    drive.reply(call("look"))
    drive.ends(0)
    drive.ask(steer("s", 2))
    assert drive.asked.output is VERDICT


def test_the_agents_own_type_holds_where_the_message_has_none() -> None:
    """`output=` of the agent is what its turns owe."""
    drive = Drive(spec(output=VERDICT)).start()
    assert drive.asked.output is VERDICT
    assert Drive().start().asked.output is None


def test_an_answer_that_failed_before_is_not_told_as_output() -> None:
    """A turn that fails after an answer, while steering was to be answered, has no output."""
    drive = Drive(spec(output=VERDICT)).start()
    drive.reply(FITS)
    drive.look(steer("s", 2))
    drive.give(NotAdmitted(0.0, UsageError("no")))
    assert drive.outcome_told.output is None
    assert drive.shape == "MRMn"  # the note stands behind the message that the turn did not answer


def test_trn_7_core_the_last_model_call_is_said_to_the_model_first() -> None:
    """At the last call of a turn the model is told, and offered no tools."""
    drive = Drive(spec(model_calls_per_turn=2)).start()
    assert drive.offers_tools()
    drive.reply(call("look"))
    drive.ends(0)
    drive.ask()
    assert not drive.offers_tools()
    assert drive.notes("limit") == ["This is the last of 2 model calls of this turn: answer now, without tools."]
    drive.reply("done")
    drive.look()
    assert drive.outcome_told.status is Status.DONE


def test_trn_7_core_calls_after_the_last_chance_fail_the_turn_and_do_not_run() -> None:
    """They are refused with results, and the error is typed."""
    drive = Drive(spec(model_calls_per_turn=2)).start()
    drive.reply(call("look"))
    drive.ends(0)
    drive.ask()
    drive.reply(call("look"), call("nothing"))
    assert drive.outcome_told.status is Status.FAILED
    assert drive.results == [ResultStatus.OK, ResultStatus.REFUSED, ResultStatus.REFUSED]
    assert drive.all(StartCall) == []
    assert "went on calling tools" in drive.notes("failure")[0]
    assert drive.shape == "MRrnRrrn"
    drive.check()


def test_trn_7_core_no_more_calls_than_the_bound_are_made() -> None:
    """With one call per turn, a batch has no request behind it."""
    drive = Drive(spec(model_calls_per_turn=1)).start()
    assert drive.offers_tools()
    drive.reply(call("look"))
    drive.ends(0)
    drive.look()
    assert drive.outcome_told.status is Status.FAILED
    assert "made 1 model calls in one turn" in drive.notes("failure")[0]
    assert drive.shape == "MRrn"


def test_a_steer_behind_the_last_answer_is_over_the_bound() -> None:
    """It is taken, so that its sender is told, and the turn says that the bound is reached."""
    drive = Drive(spec(model_calls_per_turn=1)).start()
    drive.reply("yes")
    drive.look(steer("s", 2))
    assert drive.outcome_told.status is Status.FAILED
    assert drive.shape == "MRMn"


def test_trn_2_core_a_failed_request_leaves_one_note_on_a_valid_conversation() -> None:
    """The note says what happened; the outcome is FAILED with the typed error; what it took is counted."""
    drive = Drive().start()
    drive.give(Failed(100.0, Broken("cut off", reason="stream_truncated"), Usage(fresh=2), Amounts(cost=4)))
    assert drive.outcome_told.status is Status.FAILED
    assert drive.notes("failure") == ["The turn ended early: cut off"]
    assert [told["note"] for told in drive.told(NoteWritten)] == ["failure"]
    assert [told["error"] for told in drive.told(RequestFailed)] == ["broken: cut off"]
    assert (drive.written.usage, drive.written.spent) == (Usage(fresh=2), Amounts(cost=4))
    assert drive.shape == "Mn"
    assert drive.all(Abandon) == []
    drive.check()


def test_trn_4_core_each_response_has_one_end() -> None:
    """ResponseEnded with text, stop, tokens, cost, model and attempt, once."""
    drive = Drive().start()
    drive.reply("a", "b")
    (ended,) = drive.told(ResponseEnded)
    assert ended == {
        "stop": Stop.END_TURN,
        "text": "ab",
        "usage": USAGE,
        "cost": 11,
        "model": "script:x",
        "attempt": 1,
    }
    assert drive.told(RequestFailed) == []


def test_a_text_is_kept_as_the_last_one_where_a_later_response_has_none() -> None:
    """The report's text is the last response's that had some."""
    drive = Drive().start()
    drive.reply("looking", call("look"))
    drive.ends(0)
    drive.ask()
    drive.reply()
    drive.look()
    assert drive.outcome_told.text == "looking"


def test_a_failed_commit_of_an_end_leaves_the_turn_open() -> None:
    """The outcome is not told when it is not written."""
    drive = Drive().start()
    drive.reply("yes")
    drive.fail(Looked(0.0, (), TOOLS))
    assert drive.over.suspended == "store"
    assert drive.told(TurnEnded) == []
    assert drive.state.row.open is not None


def test_an_answer_stands_where_the_steer_behind_it_is_withdrawn() -> None:
    """The answer waits for the steer; without it, it is the answer after all."""
    drive = Drive().start()
    drive.reply("yes")
    drive.look(steer("s", 2))
    drive.give(MustWait(0.0))
    assert drive.shape == "MR"
    drive.admit("t")
    drive.look()  # the steer was withdrawn: the answer is the answer
    assert drive.outcome_told.status is Status.DONE
    assert drive.last(Abandon).ticket == "t"
