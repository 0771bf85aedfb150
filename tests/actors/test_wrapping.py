"""What a hook may make of the arguments of a call (TOL-13), and what a turn found open knows of itself (REC-1)."""

from __future__ import annotations

from typing import Any

import pytest

from actors import approving, batch
from actors.answering import unfit
from actors.callview import CallView
from actors.changes import Asking, CallRow, CallState
from actors.content import Text
from actors.conversation import Conversation
from actors.errors import UsageError
from actors.ids import CallId, MessageId, TurnId
from actors.moves import CALLS_LISTED
from actors.ports import ANSWER_TOOL
from actors.reopening import open_calls, owed, so_far
from actors.tools import tool, toolbox
from actors.transcript import (
    CallBlock,
    MessageRecord,
    NoteRecord,
    Record,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    Stop,
    SummaryRecord,
    TextBlock,
)
from actors.wrapping import rewritten
from tests.actors.turnkit import AGENT, TOOLS

TURN = TurnId("lead:t1")


@tool(approve=lambda path: path == "root", resource=lambda path: path)
def erase(path: str, depth: int = 1) -> str:
    """Erase."""
    return path * depth


@tool(exclusive=True, approve=True)
def wipe(disk: str) -> str:
    """Wipe, alone."""
    return disk


@tool(resource=lambda path: None if path == "all" else path)
def sweep(path: str) -> str:
    """Sweep."""
    return path


BOX = toolbox([*TOOLS.values(), erase, wipe, sweep])


def ready(name: str, arguments: str) -> CallView:
    """A call that is about to run."""
    return batch.view(TURN, CallBlock(CallId("lead:t1.1.0"), "w", name, arguments), BOX)


def test_tol_13_core_changed_arguments_are_read_as_a_models_are() -> None:
    """As text they are what is told, and built they are what the tool gets; a default is left out of the text."""
    text, built = rewritten(ready("erase", '{"path": "a"}'), {"path": "a", "depth": 2})
    assert text == '{"path":"a","depth":2}'
    assert built == {"path": "a", "depth": 2}
    assert rewritten(ready("erase", '{"path": "a"}'), {"path": "a", "depth": 1})[1] == {"path": "a", "depth": 1}


@pytest.mark.parametrize(
    ("name", "arguments", "changed", "says"),
    [
        ("erase", '{"path": "a"}', {"path": 5}, "changed its arguments"),
        ("erase", '{"path": "a"}', {"path": "root"}, "needs approval"),
        ("erase", '{"path": "a"}', {"path": "b"}, "needs the resource b"),
        ("sweep", '{"path": "a"}', {"path": "b"}, "needs the resource b"),
    ],
)
def test_tol_13_core_what_the_call_may_not_do_its_hook_may_not_either(
    name: str, arguments: str, changed: dict[str, Any], says: str
) -> None:
    """Arguments that do not fit, that nobody approved, or that need what the call does not hold (TOL-4, TOL-12)."""
    with pytest.raises(UsageError, match=says):
        rewritten(ready(name, arguments), changed)


def test_tol_13_core_what_was_approved_is_what_runs() -> None:
    """The hook may give the same arguments again, and no others."""
    block = CallBlock(CallId("lead:t1.1.0"), "w", "wipe", '{"disk": "a"}')
    view = batch.view(TURN, block, BOX)
    tool_ = view.tool
    assert tool_ is not None
    asking = Asking("tool", '{"disk": "a"}', approving.binding(tool_, block), 0, None)
    asked = CallView(block, CallState.STARTED, tool_, view.arguments, exclusive=True, asking=asking, decided=True)
    assert rewritten(asked, {"disk": "a"})[1] == {"disk": "a"}
    with pytest.raises(UsageError, match="changed the arguments after that"):
        rewritten(asked, {"disk": "b"})


def test_tol_13_core_only_an_exclusive_call_may_come_to_run_alone() -> None:
    """One that runs beside others was started by what it holds."""

    @tool(resource=lambda path: {"a": "a", "b": "b"}[path])
    def known(path: str) -> str:
        """Where the resource cannot be named it runs alone."""
        return path

    box = toolbox([known])
    beside, alone = (
        batch.view(TURN, CallBlock(CallId("lead:t1.1.0"), "w", "known", f'{{"path": "{path}"}}'), box)
        for path in ("a", "elsewhere")
    )
    assert (beside.exclusive, alone.exclusive) == (False, True)
    assert rewritten(alone, {"path": "b"})[1] == {"path": "b"}
    with pytest.raises(UsageError, match="needs to run alone"):
        rewritten(beside, {"path": "elsewhere"})


# -- a turn found open -------------------------------------------------------------------------------------------


def response(*names: str, stop: Stop = Stop.TOOL_CALLS) -> ResponseRecord:
    """A response with these calls."""
    blocks = tuple(CallBlock(CallId(f"lead:t1.1.{n}"), f"w{n}", name, "{}") for n, name in enumerate(names))
    return ResponseRecord(TURN, blocks or (TextBlock("a"),), stop, "m")


def result(index: int, name: str = "look", status: ResultStatus = ResultStatus.OK, text: str = "a") -> ResultRecord:
    """The result of a call."""
    return ResultRecord(TURN, CallId(f"lead:t1.1.{index}"), f"w{index}", name, status, (Text(text),))


def test_tol_2_core_only_the_batch_that_stands_last_is_open() -> None:
    """Its calls are read with their rows and tools, in call order; behind anything else none is open."""
    row = CallRow(CallId("lead:t1.1.1"), AGENT, TURN, "look", "{}", CallState.STARTED)
    found = open_calls(Conversation([response("deploy", "look")]), [row], TOOLS)
    assert [(view.block.name, view.state) for view in found] == [
        ("deploy", CallState.PLANNED),
        ("look", CallState.STARTED),
    ]
    for last in (NoteRecord(TURN, "notice", "a"), result(0)):
        assert open_calls(Conversation([response("look"), last]), [row], TOOLS) == ()


def test_rec_1_core_a_turn_found_open_owes_what_its_last_record_owes() -> None:
    """A message, a note, a result, a batch; not an answer, and not a summary."""
    message = MessageRecord(TURN, MessageId("m"), (Text("a"),))
    for last in (message, NoteRecord(TURN, "failure", "a"), response("look")):
        assert owed(Conversation([last]))
    assert owed(Conversation([response("look"), result(0)]))
    for done in (response(stop=Stop.END_TURN), SummaryRecord(TURN, "a", 0)):
        assert not owed(Conversation([done]))
    assert not owed(Conversation())


def test_rec_1_core_a_report_after_a_restart_lists_the_calls_of_its_turn() -> None:
    """The last so many, in order; none of another turn, and no answer, which is no call of a tool."""
    before = ResultRecord(TurnId("lead:t0"), CallId("lead:t0.1.0"), "w", "look", ResultStatus.OK, (Text("a"),))
    many = response(*(["look"] * (CALLS_LISTED + 5)), ANSWER_TOOL)
    results = [result(n) for n in range(CALLS_LISTED + 5)]
    answer = result(CALLS_LISTED + 5, ANSWER_TOOL, ResultStatus.ERROR, "The answer does not fit x: no y\nAgain.")
    found = so_far(Conversation([before, many, *results, answer]), TURN)
    assert [call for call, _, _ in found["done"]] == [f"lead:t1.1.{n}" for n in range(5, CALLS_LISTED + 5)]
    assert found["unfit"] == (("{}", "no y"),)
    few = so_far(Conversation([response("look"), before, response("look"), result(0)]), TURN)
    assert [call for call, _, _ in few["done"]] == ["lead:t1.1.0"], "few enough that nothing is cut off"


def test_trn_7_core_only_answers_that_were_asked_for_again_count_as_attempts() -> None:
    """A tool's error is none, and neither is what another turn was asked again."""
    failed = result(0, "look", ResultStatus.ERROR, "it failed: no\n")
    told = NoteRecord(TURN, "repair", "The answer does not fit x: no y\nAgain.")
    other = NoteRecord(TurnId("lead:t0"), "repair", "The answer does not fit x: no z\nAgain.")
    records: list[Record] = [
        response("look"),
        failed,
        response(stop=Stop.END_TURN),
        told,
        other,
        NoteRecord(TURN, "notice", "hm"),
    ]
    assert unfit(records, TURN) == (("a", "no y"),)
