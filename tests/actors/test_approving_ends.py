"""Approvals in the turn's core that are aborted, steered and repeated, and what the store has of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from actors import approving
from actors.budget import Limits
from actors.changes import CallRow, CallState, Erase
from actors.errors import UsageError
from actors.evolve import evolve
from actors.happenings import ApprovalAsked, ApprovalDecided
from actors.ids import CallId, MessageId
from actors.inputs import Begin, Decided, Phase
from actors.messages import Status, Verdict
from actors.moves import Look, Over, StartCall
from actors.parking import APPROVAL, PAUSED, paused
from actors.tools import tool, toolbox
from actors.transcript import ResultStatus
from tests.actors.approvekit import AWAITING, BOX, PLANNED, STARTED, again, decide, decision, delete, drive, states
from tests.actors.turnkit import AGENT, Drive, call, open_row

# -- aborts, steers, failures ------------------------------------------------------------------------------------------


def test_tol_12_core_an_abort_settles_what_waits() -> None:
    """Aborted while parked or running: the call is skipped, the request withdrawn, the conversation valid (BR-009)."""
    for made in (again(drive(call("delete", '{"path": "a"}'))), drive(call("delete", '{"path": "a"}'), call("look"))):
        made.cut()
        assert made.outcome_told.status is Status.ABORTED
        assert made.results[0] is ResultStatus.SKIPPED
        assert [told["verdict"] for told in made.told(ApprovalDecided)] == ["withdrawn"]
        assert made.written.suspended is None
        made.check()


def test_tol_12_core_an_interrupting_steer_denies() -> None:
    """A steer that interrupts denies what waits, skips what had not started, and enters (BR-020)."""
    made = again(drive(call("erase", '{"path": "a"}'), call("write", '{"path": "a"}')))
    made.cut(None)
    assert made.all(Look) == [Look(sends=False)]
    made.ask()
    assert made.results == [ResultStatus.DENIED, ResultStatus.SKIPPED]
    assert [(told["verdict"], told["by"]) for told in made.told(ApprovalDecided)] == [("denied", "steer")]


def test_tol_12_core_a_fatal_failure_withdraws() -> None:
    """A sibling whose failure is fatal settles the batch, what awaits approval too."""
    made = drive(call("mount"), call("delete", '{"path": "a"}'))
    made.ends((0, ResultStatus.ERROR))
    assert made.phase is Phase.LOOKING
    assert [told["verdict"] for told in made.told(ApprovalDecided)] == ["withdrawn"]


def test_tol_12_core_an_approved_call_that_is_aborted_is_decided_once() -> None:
    """Its request ended with the approval; the abort withdraws nothing."""
    made = drive(call("delete", '{"path": "a"}'), call("look"))
    decide(made, decision("0"))
    made.cut()
    assert [told["verdict"] for told in made.told(ApprovalDecided)] == ["approved"]
    assert made.results[0] is ResultStatus.ABORTED


def test_tol_12_core_a_commit_that_fails_decides_nothing() -> None:
    """The decision is claimed or not with what it does: a failed commit starts nothing, and stops the turn."""
    made = again(drive(call("delete", '{"path": "a"}')))
    made.fail(Decided(made.now, (decision("0"),)))
    assert made.all(StartCall) == []
    assert made.last(Over).suspended == "store"


def test_cls_5_core_leaving_while_calls_wait() -> None:
    """Asked to stop, a turn whose other calls end stops, and is not told as parked; it parks when it goes on."""
    made = drive(call("delete", '{"path": "a"}'), call("look"))
    made.suspend()
    made.ends(1)
    assert (made.over.suspended, made.over.outcome) == ("leaving", None)
    assert made.written.suspended is None
    other = again(made, more=False)
    assert other.over.suspended == APPROVAL
    asking = Drive()
    asking.tools = BOX
    asking.start()
    asking.suspend()
    asking.reply(call("delete", '{"path": "a"}'))
    assert asking.over.suspended == "leaving"
    assert [row.state for row in asking.wrote(CallRow)] == [AWAITING]
    assert len(asking.told(ApprovalAsked)) == 1


def test_cls_5_core_leaving_behind_a_decision() -> None:
    """A decision that is carried out while the turn is to stop starts nothing: the next owner starts it, unasked."""
    made = again(drive(call("delete", '{"path": "a"}')))
    made.suspend()
    decide(made, decision("0"))
    assert (made.over.suspended, made.started) == ("leaving", [])
    assert [row.state for row in made.wrote(CallRow)] == [PLANNED]
    other = again(made, more=False)
    assert other.started == [CallId("lead:t1.1.0")]


def test_tol_12_core_parking_is_no_crash() -> None:
    """A turn that was parked is found open by whoever goes on, and that is not counted as a crash (CON-6)."""
    made = again(drive(call("delete", '{"path": "a"}')))
    assert made.written.open is not None
    assert made.written.open.tries == 0
    cut_off = drive(call("look"))
    assert again(cut_off, more=False).written.open == open_row(tries=1, consumed=(MessageId("m"),), began_us=0).open


@pytest.mark.parametrize("suspended", [None, APPROVAL])
@pytest.mark.parametrize("pausing", [True, False])
def test_bud_6_core_a_pause_of_a_parked_turn_leaves_it_in_order(*, suspended: str | None, pausing: bool) -> None:
    """A pause takes the place of what it was parked for, its end leaves that; it stands in order either way (CON-6)."""
    row = evolve(open_row(), suspended=suspended)
    found = paused(row, pausing=pausing)
    assert found.suspended == (PAUSED if pausing else suspended)
    assert found.open is not None
    assert found.open.left == (suspended is not None)
    assert paused(evolve(row, open=None), pausing=pausing).open is None


def test_tol_3_core_the_row_of_an_approved_store_call_says_that_it_has_not_started() -> None:
    """Its approval is kept; that it runs is not, as nothing of it is in the store before its result."""

    @tool(effect="store", approve=True)
    def keep_it(text: str) -> str:
        """Keep it."""
        return text

    made = Drive()
    made.tools = toolbox([keep_it])
    made.start()
    made.reply(call("keep_it", '{"text": "a"}'))
    other = again(made, box=made.tools)
    decide(other, decision("0"))
    assert other.started == ["lead:t1.1.0"]
    assert [(row.state, row.asking is not None) for row in other.wrote(CallRow)] == [(PLANNED, True)]


# -- repeats of what ended unknown (TOL-3) -----------------------------------------------------------------------------


def crashed() -> Drive:
    """A `once` call had started when the process died; it is settled unknown."""
    made = again(drive(call("write", '{"path": "a"}')), more=False)
    assert [row.state for row in made.wrote(CallRow)] == [CallState.UNKNOWN]
    made.ask()
    assert made.results == [ResultStatus.UNKNOWN]
    return made


@pytest.mark.parametrize("arguments", ['{"path": "a"}', '{"text": "", "path":"a"}', ' {"path" : "a"} '])
def test_tol_3_core_the_same_call_again_needs_approval(arguments: str) -> None:
    """However it is written, a call like one that ended unknown awaits approval, though its tool asks for none."""
    made = crashed()
    made.reply(call("write", arguments))
    assert made.over.suspended == APPROVAL
    assert made.told(ApprovalAsked)[0]["why"] == "repeat"


@pytest.mark.parametrize(("name", "arguments"), [("write", '{"path": "b"}'), ("put", '{"key": "a"}')])
def test_tol_3_core_another_call_needs_none(name: str, arguments: str) -> None:
    """Other arguments or another tool: it runs."""
    made = crashed()
    made.reply(call(name, arguments))
    assert states(made) == [STARTED]


def test_tol_3_core_an_approved_repeat_ends_the_doubt() -> None:
    """Once a repeat was approved and its end seen, its like needs no approval, and the row of the first is erased."""
    made = crashed()
    made.reply(call("write", '{"path": "a"}'))
    other = again(made)
    other.state = evolve(other.state, unknown=made.state.unknown)
    decide(other, decision("lead:t1.2.0"))
    other.ends(0)
    other.ask()
    assert {erase.prefix[0] for erase in other.wrote(Erase)} == {"lead:t1.1.0", "lead:t1.2.0"}
    other.reply(call("write", '{"path": "a"}'))
    assert states(other) == [STARTED]


def test_tol_3_core_a_denied_repeat_is_asked_about_again() -> None:
    """A denial says nothing of the first call: the next repeat needs approval too."""
    made = crashed()
    made.reply(call("write", '{"path": "a"}'))
    other = again(made)
    other.state = evolve(other.state, unknown=made.state.unknown)
    decide(other, decision("lead:t1.2.0", Verdict.DENIED))
    other.ask()
    assert {erase.prefix[0] for erase in other.wrote(Erase)} == {"lead:t1.2.0"}
    other.reply(call("write", '{"path": "a"}'))
    assert other.over.suspended == APPROVAL


def test_tol_3_core_calls_that_ended_unknown_are_read_from_their_rows() -> None:
    """What a restart reads of the rows is what the process knew; a tool that is gone counts by its text."""
    row = CallRow(CallId("lead:t1.1.0"), AGENT, "lead:t1", "write", '{"path": "a"}', CallState.UNKNOWN)  # type: ignore[arg-type]
    assert approving.unknown_in((row,), BOX) == crashed().state.unknown
    assert approving.unknown_in((row,), toolbox([])) == (('write {"path": "a"}', row.call),)
    broken = CallRow(row.call, AGENT, row.turn, "write", "{", CallState.UNKNOWN)
    assert approving.unknown_in((broken,), toolbox([])) == (('write "{"', row.call),)
    assert approving.unknown_in((broken,), BOX) == (('write "{"', row.call),)
    settled = CallRow(row.call, AGENT, row.turn, "write", "{}", CallState.SETTLED)
    assert approving.unknown_in((settled,), BOX) == ()


# -- what the store has ------------------------------------------------------------------------------------------------


def test_tol_2_core_a_call_without_a_row_never_runs_unasked() -> None:
    """A call found without its row is planned where it needs no approval, and refused where it would."""
    response = drive(call("delete", '{"path": "a"}'), call("look")).records[-1]
    first, second = response.calls  # type: ignore[union-attr]
    assert approving.found(second, None, BOX).state is PLANNED
    view = approving.found(first, None, BOX)
    assert (view.state, view.tool) == (PLANNED, None)
    made = Drive(None, open_row(), [response], new_run=False)
    made.give(Begin(made.now, (view,)))
    assert made.all(StartCall) == []


def test_a_view_is_what_its_row_says() -> None:
    """Settled and unknown rows keep their results, approved ones are decided, waiting ones keep what was shown."""
    made = drive(call("delete", '{"path": "a"}'))
    block = made.records[-1].calls[0]  # type: ignore[union-attr]
    (row,) = made.wrote(CallRow)
    waiting = approving.found(block, row, BOX)
    assert (waiting.state, waiting.asking, waiting.decided) == (AWAITING, row.asking, False)
    for state in (PLANNED, STARTED):
        assert approving.found(block, replace(row, state=state), BOX).decided
    assert not approving.found(block, replace(row, state=STARTED, asking=None), BOX).decided


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "60"])
def test_a_deadline_that_cannot_be_meant_is_refused(seconds: Any) -> None:
    """A request that would expire at once, or at no time of day, is refused where it is written."""
    with pytest.raises(UsageError, match="approve_s"):
        Limits(approve_s=seconds)
    with pytest.raises(UsageError, match="approve_timeout"):
        tool(delete.fn, approve_timeout=seconds)
