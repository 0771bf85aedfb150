"""A batch in its turn: committed before it runs, started in order, settled in call order."""

from __future__ import annotations

import pytest

from actors.batch import Why, ends_all
from actors.callview import CallOutcome
from actors.changes import Append, CallRow, CallState, Erase
from actors.content import Text, text_of
from actors.errors import InternalError
from actors.happenings import ResponseEnded, ToolEnded, ToolStarted
from actors.ids import CallId
from actors.inputs import CallsReturned, Phase, Responded
from actors.moves import CancelCalls, Look, StartCall
from actors.tools import toolbox
from actors.transcript import ResultRecord, ResultStatus
from actors.turn import step
from actors.usage import Amounts
from tests.actors.turnkit import SPENT, Drive, call, served, spec

ERROR, OK = ResultStatus.ERROR, ResultStatus.OK


def texts(drive: Drive) -> list[str]:
    """What the committed results say."""
    return [text_of(record.content) for record in drive.records if isinstance(record, ResultRecord)]


def states(drive: Drive) -> list[CallState]:
    """The state of each call row in the last commit."""
    return [found.state for found in drive.wrote(CallRow)]


def test_tol_2_core_a_batch_is_committed_before_any_call_runs() -> None:
    """The response, the row of each call, and the starts are in the commit of the step that starts them."""
    drive = Drive(spec(parallel_calls=1)).start()
    made = drive.reply(call("look"), call("write", '{"path": "a"}'))
    (append,) = drive.wrote(Append)
    assert [type(record).__name__ for record in append.records] == ["ResponseRecord"]
    assert states(drive) == [CallState.STARTED, CallState.PLANNED]
    assert [action.call.block.id for action in made.actions if isinstance(action, StartCall)] == ["lead:t1.1.0"]


def test_tol_3_core_every_start_is_on_disk_first() -> None:
    """A call that starts later is written as started in the commit of the same step."""
    drive = Drive(spec(parallel_calls=1)).start()
    drive.reply(call("look", '{"at": "a"}'), call("look", '{"at": "b"}'), call("look", '{"at": "c"}'))
    for index in range(2):
        drive.ends(index)
        rows = {found.call: found.state for found in drive.wrote(CallRow)}
        assert rows == {f"lead:t1.1.{index}": CallState.SETTLED, f"lead:t1.1.{index + 1}": CallState.STARTED}
        assert drive.started == [f"lead:t1.1.{index + 1}"]
    assert drive.ends(2).commit == ()


def test_tol_3_core_a_batch_whose_commit_fails_starts_nothing() -> None:
    """Effect after record: without the record there is no effect."""
    drive = Drive().start()
    made = drive.fail(Responded(0.0, served(call("look"), call("deploy")), SPENT))
    assert not [action for action in made.actions if isinstance(action, StartCall)]
    assert drive.over.suspended == "store"
    assert drive.state.calls == ()


def test_tol_4_core_results_stand_in_call_order_whatever_order_they_came_in() -> None:
    """They enter in one commit, with the erasure of their rows."""
    drive = Drive().start()
    drive.reply(call("look", '{"at": "a"}'), call("look", '{"at": "b"}'), call("look", '{"at": "c"}'))
    drive.ends(2)
    assert drive.phase is Phase.RUNNING
    drive.ends(0)
    assert drive.shape == "MR"
    drive.ends(1)
    assert not drive.last(Look).sends
    drive.ask()
    assert texts(drive) == ["result 0", "result 1", "result 2"]
    assert [erase.prefix for erase in drive.wrote(Erase)] == [(f"lead:t1.1.{index}",) for index in range(3)]
    assert {erase.table for erase in drive.wrote(Erase)} == {CallRow}
    drive.check()


def test_tol_4_core_results_that_came_are_kept_at_once() -> None:
    """Each result is durable in its row, before the batch is over."""
    drive = Drive().start()
    drive.reply(call("look", '{"at": "a"}'), call("look", '{"at": "b"}'))
    drive.ends(1)
    (kept,) = drive.wrote(CallRow)
    assert (kept.call, kept.state) == ("lead:t1.1.1", CallState.SETTLED)
    assert kept.result is not None
    assert text_of(kept.result.content) == "result 1"


def test_tol_4_core_erased_rows_are_forgotten() -> None:
    """The rows of one batch are erased once, with their results."""
    drive = Drive().start()
    drive.reply(call("look"))
    drive.ends(0)
    drive.ask()
    assert len(drive.wrote(Erase)) == 1
    drive.reply("yes")
    drive.look()
    assert drive.wrote(Erase) == []


def test_tol_4_core_at_most_the_limit_runs_at_once() -> None:
    """Of four calls two start; each that ends lets one more start."""
    drive = Drive(spec(parallel_calls=2)).start()
    drive.reply(*(call("look", f'{{"at": "{n}"}}') for n in range(4)))
    assert len(drive.started) == 2
    drive.ends(0)
    assert drive.started == ["lead:t1.1.2"]
    drive.ends(1, 2)
    assert drive.started == ["lead:t1.1.3"]


def test_tol_4_core_several_results_at_once_are_one_commit() -> None:
    """What came together is written together."""
    drive = Drive().start()
    drive.reply(*(call("look", f'{{"at": "{n}"}}') for n in range(3)))
    drive.ends(2, 0)
    assert len(drive.wrote(CallRow)) == 2
    assert len(drive.commits) == 3


def test_tol_4_core_a_failing_call_cancels_no_sibling() -> None:
    """Its error is data; the others go on."""
    drive = Drive().start()
    drive.reply(call("look", '{"at": "a"}'), call("look", '{"at": "b"}'))
    drive.ends((0, ERROR))
    assert drive.all(CancelCalls) == []
    drive.ends(1)
    drive.ask()
    assert drive.results == [ERROR, OK]


def test_tol_4_core_a_fatal_call_that_fails_ends_its_batch() -> None:
    """What runs is cancelled, what waited will not run, and neither counts as a call that failed."""
    drive = Drive(spec(parallel_calls=2)).start()
    drive.reply(call("mount"), call("look", '{"at": "b"}'), call("look", '{"at": "c"}'))
    drive.ends((0, ERROR))
    assert drive.started == []
    assert drive.last(CancelCalls) == CancelCalls((CallId("lead:t1.1.1"),), Why.FATAL)
    drive.ask()
    assert drive.results == [ERROR, ResultStatus.ABORTED, ResultStatus.SKIPPED]
    assert drive.state.failures == (("mount", "{}", 1),)


def test_tol_4_core_a_call_that_ends_with_a_fatal_one_keeps_its_result() -> None:
    """What came with the failure is taken, and is not cancelled; the last of a batch has nobody to end."""
    drive = Drive(spec(parallel_calls=2)).start()
    drive.reply(call("mount"), call("look", '{"at": "b"}'), call("look", '{"at": "c"}'))
    drive.ends((0, ERROR), 1)
    assert drive.all(CancelCalls) == []
    drive.ask()
    assert drive.results == [ERROR, OK, ResultStatus.SKIPPED]


def test_sup_4_core_the_result_of_a_call_that_a_fatal_one_cuts_says_what_is_said_of_it() -> None:
    """What it had, and who is aborted with it, stands in its result; nothing is said of those that had not started."""
    drive = Drive(spec(parallel_calls=2)).start()
    drive.reply(call("mount"), call("look", '{"at": "b"}'), call("look", '{"at": "c"}'))
    said = ("lead:t1.1.1", "Aborted with it: lead/kid."), ("lead:t1.1.2", "never")
    drive.give(CallsReturned(drive.now, (drive.outcome((0, ERROR)),), said))  # type: ignore[arg-type]  # ids are text
    drive.ask()
    results = [text_of(record.content) for record in drive.records if isinstance(record, ResultRecord)]
    assert results[1].endswith("\nAborted with it: lead/kid.")
    assert results[0] == "result 0"
    assert "never" not in results[2]


def test_tol_4_core_only_a_failure_of_a_fatal_tool_ends_all() -> None:
    """Neither a good end of it does, nor a failure of another tool."""
    drive = Drive().start()
    drive.reply(call("mount"), call("look", '{"at": "b"}'))
    ends = [ends_all(drive.state.calls, drive.outcome(one)) for one in ((0, ERROR), (0, OK), (1, ERROR), (1, OK))]
    assert ends == [True, False, False, False]


@pytest.mark.parametrize("reason", ["enough", None])
def test_abt_3_core_a_cut_that_meets_a_fatal_failure_ends_what_runs(reason: str | None) -> None:
    """The failure came, and was not taken in yet, when the turn was cut: what runs is cancelled all the same."""
    drive = Drive(spec(parallel_calls=2)).start()
    drive.reply(call("mount"), call("look", '{"at": "b"}'), call("look", '{"at": "c"}'))
    drive.cut(reason, outcomes=(drive.outcome((0, ERROR)),))
    assert drive.last(CancelCalls) == CancelCalls((CallId("lead:t1.1.1"),), "" if reason else Why.STEER)


def test_tol_5_core_a_wire_id_used_twice_is_taken_once() -> None:
    """The second is refused before anything runs, and the model is told behind the results."""
    drive = Drive().start()
    drive.reply(call("look", '{"at": "a"}', wire="x"), call("look", '{"at": "b"}', wire="x"), call("put", wire="y"))
    assert drive.started == ["lead:t1.1.0"]  # `put` lacks its argument
    drive.ends(0)
    drive.ask()
    assert drive.notes("notice") == ["The call ids x were used more than once; each was taken once, the first time."]
    assert drive.shape == "MRrrn"
    drive.check()


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (call("fly"), "There is no tool 'fly'. Tools: deploy, look, mount, note, put, write."),
        (call("look", "{", invalid="malformed_json"), "are not JSON, so it was not run: Input data was truncated"),
        (call("look", "[]", invalid="not_an_object"), "expected an object with at (optional)"),
        (call("put", "{}"), "key"),
        (call("look", invalid="odd"), "The call is invalid (odd). Nothing was run."),
    ],
)
def test_tol_6_core_a_call_that_cannot_run_is_an_error_result_the_model_can_act_on(asked: object, text: str) -> None:
    """It ends no turn; nothing is started and no commit is needed before the next request."""
    drive = Drive().start()
    made = drive.reply(asked)  # type: ignore[arg-type]
    assert made.commit == ()
    assert drive.phase is Phase.LOOKING
    drive.ask()
    assert drive.results == [ERROR]
    assert text in texts(drive)[0]
    drive.check()


def test_tol_1_core_calls_of_an_agent_without_tools_get_results() -> None:
    """A model that calls what was never offered is answered; the conversation stays one that providers take."""
    drive = Drive()
    drive.tools = toolbox([])
    drive.start()
    drive.reply(call("look"))
    drive.ask()
    assert texts(drive) == ["There is no tool 'look'. Tools: none."]
    drive.check()


def test_invalid_calls_beside_valid_ones_are_settled_in_their_place() -> None:
    """Their rows are written as settled, and their results stand in call order."""
    drive = Drive().start()
    drive.reply(call("fly"), call("look"))
    assert states(drive) == [CallState.SETTLED, CallState.STARTED]
    drive.ends(1)
    drive.ask()
    assert drive.results == [ERROR, OK]


# -- bounds ------------------------------------------------------------------------------------------------------


def test_trn_7_core_responses_with_only_invalid_calls_are_bounded() -> None:
    """After the bound the model is told, gets one request without tools, and then the turn fails."""
    drive = Drive(spec(invalid_responses=2)).start()
    drive.reply(call("fly"))
    drive.ask()
    assert drive.offers_tools()
    drive.reply(call("fly"))
    drive.ask()
    assert not drive.offers_tools()
    assert drive.notes("limit") == [
        "2 responses in a row had only calls that could not be run: answer now, without tools."
    ]
    drive.reply(call("fly"))
    assert drive.outcome_told.failure is not None
    assert drive.outcome_told.failure.kind == "limit_reached"
    assert drive.shape == "MRrRrnRrn"
    drive.check()


def test_trn_7_core_one_valid_call_starts_the_count_of_invalid_responses_anew() -> None:
    """The bound is on responses in a row."""
    drive = Drive(spec(invalid_responses=2)).start()
    drive.reply(call("fly"))
    drive.ask()
    drive.reply(call("fly"), call("look"))
    drive.ends(1)
    drive.ask()
    drive.reply(call("fly"))
    drive.ask()
    assert drive.offers_tools()


def test_trn_7_core_the_same_failing_call_is_refused_after_its_bound() -> None:
    """Name and arguments that failed so often in a row are not run again; others are."""
    drive = Drive(spec(identical_failures=2)).start()
    for _ in range(2):
        drive.reply(call("look"))
        drive.ends((0, ERROR))
        drive.ask()
    drive.reply(call("look"), call("look", '{"at": "b"}'))
    assert drive.started == ["lead:t1.3.1"]
    drive.ends(1)
    drive.ask()
    assert drive.results[-2:] == [ResultStatus.REFUSED, OK]
    assert texts(drive)[-2] == "Not run: this same call failed 2 times in a row. Do something else."


def test_trn_7_core_a_success_forgets_the_failures_of_its_call() -> None:
    """In a row means in a row."""
    drive = Drive(spec(identical_failures=2)).start()
    for status in (ERROR, OK, ERROR):
        drive.reply(call("look"))
        assert len(drive.started) == 1
        drive.ends((0, status))
        drive.ask()
    drive.reply(call("look"))
    assert len(drive.started) == 1


def test_calls_over_the_bound_of_one_response_are_refused() -> None:
    """So many are taken; the rest has a result that says so."""
    drive = Drive(spec(calls_per_response=2)).start()
    drive.reply(*(call("look", f'{{"at": "{n}"}}') for n in range(3)))
    assert len(drive.started) == 2
    drive.ends(0, 1)
    drive.ask()
    assert drive.results == [OK, OK, ResultStatus.REFUSED]
    assert "only 2 calls at once" in texts(drive)[2]


def test_calls_that_the_budget_does_not_grant_are_refused() -> None:
    """The first so many run; what was charged is in the row, as the budget has it."""
    drive = Drive().start()
    drive.reply(call("look", '{"at": "a"}'), call("look", '{"at": "b"}'), granted=1)
    assert len(drive.started) == 1
    assert drive.written.spent == SPENT + Amounts(tool_calls=1)
    drive.ends(0)
    drive.ask()
    assert drive.results == [OK, ResultStatus.REFUSED]
    assert texts(drive)[1] == "Not run: the budget of tool calls is exhausted."


def test_what_the_budget_charged_is_what_the_row_counts() -> None:
    """Also for calls that turn out to be invalid: a restart reads what was charged from the row."""
    drive = Drive().start()
    drive.reply(call("look"), call("fly"), granted=2)
    assert drive.written.spent.tool_calls == 2
    assert drive.written.run_spent.tool_calls == 2
    uncounted = Drive().start()
    uncounted.reply(call("look"), call("fly"))
    assert uncounted.written.spent.tool_calls == 1


# -- what is told ------------------------------------------------------------------------------------------------


def test_each_call_is_told_started_and_ended_in_order() -> None:
    """ToolStarted before its call starts, ToolEnded when it is settled, never twice."""
    drive = Drive().start()
    drive.reply(call("fly"), call("look", '{"at": "b"}'))
    assert [told["call"] for told in drive.told(ToolEnded)] == ["lead:t1.1.0"]
    assert drive.told(ToolStarted) == [{"call": "lead:t1.1.1", "name": "look", "arguments": '{"at": "b"}'}]
    drive.ends(1)
    ended = drive.told(ToolEnded)
    assert ended[1:] == [{"call": "lead:t1.1.1", "name": "look", "status": "ok", "text": "result 1"}]
    assert len(drive.told(ResponseEnded)) == 1


def test_the_outcome_lists_the_calls_of_the_run() -> None:
    """In call order, the last of them."""
    drive = Drive().start()
    for turn in range(3):
        drive.reply(*(call("look", f'{{"at": "{turn} {n}"}}') for n in range(30)))
        drive.ends(*range(8))
        while drive.phase is Phase.RUNNING:
            drive.ends(*(n for n, one in enumerate(drive.state.calls) if one.state is CallState.STARTED))
        drive.ask()
    drive.reply("yes")
    drive.look()
    calls = drive.outcome_told.calls
    assert len(calls) == 64
    assert (calls[-1].id, calls[-1].name, calls[-1].status) == ("lead:t1.3.29", "look", "ok")
    assert calls[0].id == "lead:t1.1.26"


def test_a_result_for_a_call_that_does_not_run_is_refused() -> None:
    """Unknown, not started, or settled already: a bug of the shell, and the state stays."""
    drive = Drive(spec(parallel_calls=1)).start()
    drive.reply(call("look", '{"at": "a"}'), call("look", '{"at": "b"}'), call("look", '{"at": "c"}'))
    drive.ends(0)
    for index in (0, 2, 9):
        outcome = CallOutcome(CallId(f"lead:t1.1.{index}"), OK, (Text("x"),))
        with pytest.raises(InternalError, match="not running"):
            step(drive.state, CallsReturned(0.0, (outcome,)))


def test_tol_10_core_a_failed_commit_of_results_closes_the_batch() -> None:
    """What runs is cancelled, nothing is started, and nothing enters the conversation."""
    drive = Drive(spec(parallel_calls=2)).start()
    drive.reply(call("look", '{"at": "a"}'), call("look", '{"at": "b"}'), call("look", '{"at": "c"}'))
    drive.fail(CallsReturned(0.0, (drive.outcome(0),)))
    assert drive.last(CancelCalls).calls == ("lead:t1.1.0", "lead:t1.1.1")
    assert drive.all(StartCall) == []
    assert drive.over.suspended == "store"
    assert drive.shape == "MR"
