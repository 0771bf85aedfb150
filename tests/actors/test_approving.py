"""Approval in the turn's core: who is asked, what is bound, what a decision does, how a turn parks (TOL-12, TOL-3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors import approving
from actors.budget import Limits
from actors.changes import CallRow, Claim
from actors.content import text_of
from actors.happenings import ApprovalAsked, ApprovalDecided, ToolEnded
from actors.ids import CallId
from actors.inputs import Phase
from actors.messages import Status, Verdict
from actors.moves import Look, StartCall
from actors.parking import APPROVAL
from actors.tools import tool, toolbox
from actors.transcript import ResultRecord, ResultStatus
from tests.actors.approvekit import (
    AWAITING,
    BOX,
    PLANNED,
    SETTLED,
    STARTED,
    again,
    decide,
    decision,
    delete,
    drive,
    erase,
    states,
    wipe,
)
from tests.actors.turnkit import TOOLS, Drive, call, spec

# -- who is asked ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "arguments"), [(delete, '{"path": "a"}'), (erase, '{"path": "a"}'), (wipe, "{}"), (wipe, "")]
)
def test_tol_12_core_a_call_that_needs_approval_awaits_it(asked: Any, arguments: str) -> None:
    """It is committed as awaiting, told of, and not started; alone in its batch it parks the turn."""
    made = drive(call(asked.name, arguments))
    (row,) = made.wrote(CallRow)
    assert (row.state, row.asking is not None) == (AWAITING, True)
    assert made.started == []
    assert made.over.suspended == APPROVAL
    assert made.outcome_told.status is Status.PARKED
    assert made.written.suspended == APPROVAL
    assert made.written.owes
    assert made.told(ApprovalAsked)[0]["call"] == row.call


@pytest.mark.parametrize(
    ("name", "arguments"), [("erase", '{"path": "scratch"}'), ("look", "{}"), ("write", '{"path": "a"}')]
)
def test_tol_12_core_a_call_that_needs_none_runs(name: str, arguments: str) -> None:
    """Arguments or the tool say that no approval is needed: the call starts."""
    made = drive(call(name, arguments))
    assert states(made) == [STARTED]
    assert made.told(ApprovalAsked) == []


def test_tol_12_core_invalid_calls_are_not_asked_about() -> None:
    """What can never run is answered at once, whatever its tool says."""
    made = drive(call("delete", "{}"), call("delete", "{", invalid="malformed_json"))
    assert made.phase is Phase.LOOKING
    assert made.told(ApprovalAsked) == []


def test_tol_12_core_beside_a_call_that_is_asked_about_an_invalid_one_is_not() -> None:
    """It has its error result, and no person is shown what can never run."""
    made = drive(call("delete", '{"path": "a"}'), call("delete", "{}"), call("nowhere"))
    assert states(made) == [] or made.phase is Phase.OVER
    rows = {row.call.rpartition(".")[2]: row.state for row in made.wrote(CallRow)}
    assert rows == {"0": AWAITING, "1": SETTLED, "2": SETTLED}
    assert len(made.told(ApprovalAsked)) == 1


def test_tol_12_core_what_is_shown_is_final() -> None:
    """A person sees all arguments, defaults included, whatever the model left out or wrote as text."""
    made = drive(call("delete", '{"path": "a"}'), call("delete", '{"deep": true, "path": "b"}'))
    shown = [json.loads(told["arguments"]) for told in made.told(ApprovalAsked)]
    assert shown == [{"path": "a", "deep": False}, {"path": "b", "deep": True}]
    assert [list(one) for one in shown] == [["path", "deep"]] * 2


def test_tol_12_core_a_deadline_comes_from_the_tool_else_the_limits() -> None:
    """The tool's own timeout counts before the agent's; without either it never expires."""
    for limits, expected in ((Limits(), [None, 160_000]), (Limits(approve_s=5.5), [105_500, 160_000])):
        made = drive(
            call("delete", '{"path": "a"}'), call("erase", '{"path": "b"}'), spec_=spec(approve_s=limits.approve_s)
        )
        asking = [row.asking for row in made.wrote(CallRow)]
        assert [one and one.expires_ms for one in asking] == expected
        assert {one and one.asked_ms for one in asking} == {100_000}


def test_tol_12_core_no_more_than_the_limit_wait_for_a_person() -> None:
    """A flood of requests is refused, call by call: a person who is asked too much decides nothing."""
    made = drive(*(call("delete", f'{{"path": "{n}"}}') for n in range(4)), spec_=spec(approvals=2))
    rows = made.wrote(CallRow)
    assert [row.state for row in rows] == [AWAITING, AWAITING, SETTLED, SETTLED]
    assert rows[2].result is not None
    assert "2 calls wait for approval already" in text_of(rows[2].result.content)


# -- what runs meanwhile -----------------------------------------------------------------------------------------------


def test_tol_12_core_other_calls_run_and_nothing_that_depends_on_it() -> None:
    """Calls of the batch run; one that shares a key with it waits behind it; the turn parks with the last that ran."""
    made = drive(call("erase", '{"path": "a"}'), call("write", '{"path": "a"}'), call("look"))
    assert states(made) == [AWAITING, PLANNED, STARTED]
    made.ends(2)
    assert made.over.suspended == APPROVAL
    assert {row.call[-1]: row.state for row in made.wrote(CallRow)} == {"2": SETTLED}
    other = again(made)
    assert states(other) == [AWAITING, PLANNED, SETTLED]
    decide(other, decision("0"))
    assert states(other) == [STARTED, PLANNED, SETTLED]
    other.ends(0)
    assert states(other) == [SETTLED, STARTED, SETTLED]


def test_tol_12_core_nothing_runs_behind_an_exclusive_call_that_waits() -> None:
    """An exclusive call that awaits approval holds up all later ones."""
    made = drive(call("wipe"), call("look"))
    assert made.over.suspended == APPROVAL
    other = again(made)
    decide(other, decision("0", Verdict.DENIED))
    assert states(other) == [SETTLED, STARTED]


def test_tol_12_core_a_parked_turn_counts_no_time() -> None:
    """Active time ends with the commit that parks, and begins anew where it goes on (BUD-6)."""
    made = Drive()
    made.tools = BOX
    made.start()
    made.now += 2
    made.reply(call("delete", '{"path": "a"}'))
    assert made.written.spent.active_us == 2_000_000
    made.now += 3600
    other = again(made)
    decide(other, decision("0"))
    other.now += 1
    other.ends(0)
    other.ask()
    assert other.written.spent.active_us == 3_000_000


# -- decisions ---------------------------------------------------------------------------------------------------------


def test_tol_12_core_approval_claims_and_starts_in_one_commit() -> None:
    """The decision is claimed in the commit that writes the call as started; the start rests on it."""
    made = again(drive(call("delete", '{"path": "a"}')))
    assert made.phase is Phase.RUNNING
    decide(made, decision("0"))
    (claim,) = made.wrote(Claim)
    (row,) = made.wrote(CallRow)
    assert claim.messages == (decision("0").envelope.id,)
    assert row.state is STARTED
    (start,) = made.all(StartCall)
    assert start.call.arguments == {"path": "a", "deep": False}
    assert made.told(ApprovalDecided)[0] == {
        "call": row.call, "name": "delete", "verdict": "approved", "by": "an operator", "message": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "message", "text"),
    [
        (Verdict.DENIED, "Only the cleaner may.", "Not approved: Only the cleaner may."),
        (Verdict.DENIED, "", approving.DENIED),
        (Verdict.EXPIRED, "", approving.EXPIRED),
    ],
)
def test_tol_12_core_a_denial_is_a_result_that_the_model_reads(verdict: Verdict, message: str, text: str) -> None:
    """Denied or expired: the call is settled as denied, with the words, and the turn goes on."""
    made = again(drive(call("delete", '{"path": "a"}')))
    decide(made, decision("0", verdict, message))
    assert made.all(Look) == [Look(sends=False)]
    made.ask()
    (result,) = [record for record in made.records if isinstance(record, ResultRecord)]
    assert (result.status, text_of(result.content)) == (ResultStatus.DENIED, text)
    made.check()


def test_tol_12_core_decisions_come_in_any_order_each_to_its_call() -> None:
    """Two calls wait; the later is decided first; each gets its own decision (BR-096)."""
    made = again(drive(call("delete", '{"path": "a"}'), call("delete", '{"path": "b"}')))
    decide(made, decision("1", Verdict.DENIED, "not b"))
    assert made.over.suspended == APPROVAL
    assert {row.call[-1]: row.state for row in made.wrote(CallRow)} == {"1": SETTLED}
    other = again(made)
    assert states(other) == [AWAITING, SETTLED]
    decide(other, decision("0"))
    assert states(other) == [STARTED, SETTLED]
    other.ends(0)
    other.ask()
    assert other.results == [ResultStatus.OK, ResultStatus.DENIED]


def test_tol_12_core_two_decisions_at_once_are_one_commit() -> None:
    """What is decided together is carried out together."""
    made = again(drive(call("delete", '{"path": "a"}'), call("delete", '{"path": "b"}')))
    decide(made, decision("0"), decision("1", Verdict.DENIED))
    assert states(made) == [STARTED, SETTLED]
    assert len(made.wrote(Claim)[0].messages) == 2


def test_tol_12_core_while_others_run_a_decision_starts_the_call() -> None:
    """A decision needs no parked turn."""
    made = drive(call("delete", '{"path": "a"}'), call("look"))
    assert states(made) == [AWAITING, STARTED]
    decide(made, decision("0"))
    assert states(made) == [STARTED, STARTED]
    assert made.started == [CallId("lead:t1.1.0")]


def test_tol_12_core_a_decision_on_another_call_changes_nothing() -> None:
    """One for a call that is settled, or of another turn, is left to the keeper; the parked turn stays parked."""
    made = again(drive(call("delete", '{"path": "a"}')))
    decide(made, decision("lead:t9.1.0"))
    assert made.wrote(Claim) == []
    assert made.over.suspended == APPROVAL
    busy = drive(call("delete", '{"path": "a"}'), call("look"))
    decide(busy, decision("lead:t9.1.0"))
    assert busy.made.commit == ()
    assert states(busy) == [AWAITING, STARTED]
    asking = drive(call("look"))
    asking.ends(0)
    decide(asking, decision("0"))
    assert (asking.made.commit, asking.phase) == ((), Phase.LOOKING)


def test_tol_12_core_the_first_of_two_decisions_counts() -> None:
    """Should two ever stand in the mailbox, the earlier is claimed and the later is not."""
    made = again(drive(call("delete", '{"path": "a"}')))
    decide(made, decision("0", Verdict.DENIED), decision("0"))
    assert made.wrote(Claim)[0].messages == (decision("0", Verdict.DENIED).envelope.id,)
    assert made.started == []


# -- what was approved is what runs ------------------------------------------------------------------------------------


def test_tol_12_core_arguments_changed_in_memory_do_not_run() -> None:
    """An approved call is read anew from the conversation, so nothing that somebody did to its arguments counts."""
    made = drive(call("delete", '{"path": "a"}'), call("look"))
    assert made.state.calls[0].arguments is not None
    made.state.calls[0].arguments["path"] = "everything"
    decide(made, decision("0"))
    assert made.last(StartCall).call.arguments == {"path": "a", "deep": False}


def changed(*, deep: bool, **options: Any) -> Any:
    """Another version of the tool `delete`: another default, or other options."""
    default = deep

    @tool(name="delete", **{"approve": True, **options})
    def other(path: str, deep: bool = default) -> str:  # noqa: FBT001 - a model gives it by name
        """Delete."""
        return path + str(deep)

    return toolbox([other])


@pytest.mark.parametrize(
    ("box", "status"),
    [(changed(deep=True), ResultStatus.REFUSED), (changed(deep=False, effect="idempotent"), ResultStatus.REFUSED)],
)
def test_tol_12_core_a_tool_that_changed_since_does_not_run(box: Any, status: ResultStatus) -> None:
    """The approval was for another version: it is refused with a result that says so (BR-175)."""
    made = again(drive(call("delete", '{"path": "a"}')), box=box)
    decide(made, decision("0"))
    made.ask()
    assert made.results == [status]
    assert [told["verdict"] for told in made.told(ApprovalDecided)] == ["approved"]


def test_tol_12_core_approved_but_not_started_is_bound_too() -> None:
    """Approved calls that waited for a place at the crash start if the tool is the same, and never if it is not."""
    first = again(drive(call("delete", '{"path": "a"}'), call("delete", '{"path": "b"}'), spec_=spec(parallel_calls=1)))
    decide(first, decision("0"), decision("1"))
    assert states(first) == [STARTED, PLANNED]
    same = again(first, more=False)
    assert [one.call.block.id[-1] for one in same.all(StartCall)] == ["1"]
    other = again(first, more=False, box=changed(deep=True))
    assert other.all(StartCall) == []
    assert [told["status"] for told in other.told(ToolEnded)] == ["unknown", "error"]


def test_tol_12_core_a_tool_that_is_gone_needs_no_decision() -> None:
    """The tool of a call that waits is not there any more: the call is settled, and its request is withdrawn."""
    made = again(drive(call("delete", '{"path": "a"}')), more=False, box=TOOLS)
    assert made.all(Look) == [Look(sends=False)]
    assert [told["verdict"] for told in made.told(ApprovalDecided)] == ["withdrawn"]
