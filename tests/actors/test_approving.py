"""Approval in the turn's core: who is asked, what is bound, what a decision does, how a turn parks (TOL-12, TOL-3)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from actors import approving
from actors.budget import Limits
from actors.changes import AgentRow, CallRow, CallState, Claim, Erase
from actors.content import text_of
from actors.errors import UsageError
from actors.evolve import evolve
from actors.happenings import ApprovalAsked, ApprovalDecided, ToolEnded
from actors.ids import CallId, MessageId
from actors.inputs import Begin, Decided, Phase
from actors.messages import Decision, Envelope, Lane, Purpose, Queued, Status, Verdict
from actors.moves import Look, Over, StartCall
from actors.parking import APPROVAL, PAUSED, paused
from actors.tools import tool, toolbox
from actors.transcript import ResultRecord, ResultStatus
from tests.actors.turnkit import AGENT, TOOLS, Drive, call, open_row, spec

if TYPE_CHECKING:
    from actors.points import TurnSpec

PLANNED, AWAITING, STARTED, SETTLED = CallState.PLANNED, CallState.AWAITING, CallState.STARTED, CallState.SETTLED


@tool(approve=True)
def delete(path: str, deep: bool = False) -> str:  # noqa: FBT001, FBT002 - a model gives it by name
    """Delete."""
    return path + str(deep)


@tool(approve=lambda path: path != "scratch", resource=lambda path: path, approve_timeout=60)
def erase(path: str) -> str:
    """Erase."""
    return path


@tool(approve=True, exclusive=True)
def wipe() -> None:
    """Wipe everything, alone."""


BOX = toolbox([*TOOLS.values(), delete, erase, wipe])


def drive(*calls: Any, spec_: TurnSpec | None = None, **state: Any) -> Drive:
    """A turn whose first response has these calls."""
    made = Drive(spec_, **state)
    made.tools = BOX
    made.start()
    made.reply(*calls)
    return made


def states(made: Drive) -> list[CallState]:
    """Where the calls of the open batch are."""
    return [one.state for one in made.state.calls]


def decision(which: str | CallId, verdict: Verdict = Verdict.APPROVED, message: str = "", seq: int = 5) -> Queued:
    """A decision on a call, as it stands in the mailbox."""
    target = CallId(which) if ":" in which else CallId(f"lead:t1.1.{which}")
    envelope = Envelope(
        MessageId(f"d-{target}-{verdict}"), AGENT, Lane.CONTROL, (), purpose=Purpose.DECISION, target=target,
        decision=Decision(verdict, "an operator", message),
    )  # fmt: skip
    return Queued(seq, envelope)


def decide(made: Drive, *decisions: Queued) -> None:
    """The decisions come."""
    made.give(Decided(made.now, decisions))


def again(made: Drive, *, more: bool = True, box: Any = BOX) -> Drive:
    """Another process goes on with what the store has of a turn that was parked or cut off."""
    rows = {one.call: one for commit in made.commits for put in commit if isinstance(one := row_in(put), CallRow)}
    row = next(
        found
        for commit in reversed(made.commits)
        for put in reversed(commit)
        if isinstance(found := row_in(put), AgentRow)
    )
    other = Drive(made.state.spec, row, made.records, new_run=False)
    other.tools, other.now, other.commits = box, made.now, list(made.commits)
    response = made.records[-1]
    views = tuple(approving.found(block, rows.get(block.id), box) for block in response.calls)  # type: ignore[union-attr]
    other.give(Begin(other.now, views, more=more))
    return other


def row_in(operation: Any) -> Any:
    """The row of a Put."""
    return getattr(operation, "row", None)


# -- who is asked ------------------------------------------------------------------------------------------------


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
    ("name", "arguments"),
    [("erase", '{"path": "scratch"}'), ("look", "{}"), ("write", '{"path": "a"}')],
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


# -- what runs meanwhile -----------------------------------------------------------------------------------------


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


# -- decisions ---------------------------------------------------------------------------------------------------


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


# -- what was approved is what runs ------------------------------------------------------------------------------


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


# -- aborts, steers, failures ------------------------------------------------------------------------------------


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


# -- repeats of what ended unknown (TOL-3) -----------------------------------------------------------------------


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


# -- what the store has ------------------------------------------------------------------------------------------


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
