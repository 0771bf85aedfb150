"""What a `store` call has staged, as the turn's core carries it (TOL-3, HOK-3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.changes import CallRow, Enqueue, KvRow, Put
from actors.content import Text, text_of
from actors.errors import AgentClosed, CallboardError, Conflict, Unavailable, UnknownPath
from actors.evolve import evolve
from actors.happenings import ToolEnded
from actors.ids import AgentId, MessageId
from actors.inputs import Admitted, Begin, CallsReturned, Cut, Phase
from actors.messages import Envelope, Lane, LaneBound
from actors.moves import Again, CancelCalls, Look, StartCall
from actors.transcript import ResultRecord
from tests.actors.turnkit import AGENT, HELD, Drive, call, message

if TYPE_CHECKING:
    from actors.changes import Operation

NOTE = call("note", '{"text": "a"}')
LETTER = Envelope(MessageId("letter"), AgentId("lead/kid"), Lane.SEND, (Text("hear"),))
STAGED = (Put(KvRow(AGENT, "agent", "k", "1")), Enqueue(LETTER, LaneBound()))


def returns(drive: Drive, index: int = 0, staged: Any = STAGED) -> CallsReturned:
    """A call that returns, with what it staged."""
    return CallsReturned(drive.now, (evolve(drive.outcome(index), staged=staged),))


def results(drive: Drive) -> list[tuple[str, str]]:
    """Status and text of each result, committed or about to be."""
    records = (*drive.records, *drive.state.pending)
    return [(one.status.value, text_of(one.content)) for one in records if isinstance(one, ResultRecord)]


def landed(drive: Drive) -> list[Operation]:
    """What of it is in the last commit."""
    return [operation for operation in drive.made.commit if operation in STAGED]


def test_tol_3_core_a_store_call_has_no_row_before_it_is_settled() -> None:
    """Nothing of it is in the store, so that it started needs no row: without one it is found planned (TOL-2)."""
    drive = Drive().start()
    drive.reply(NOTE, call("look"))
    assert len(drive.started) == 2
    assert [row.name for row in drive.wrote(CallRow)] == ["look"]


def test_tol_3_core_what_is_staged_is_in_the_commit_with_the_results() -> None:
    """It waits with the result for the next request's commit, which has both."""
    drive = Drive().start()
    drive.reply(NOTE)
    drive.give(returns(drive))
    assert drive.made.commit == ()
    drive.ask()
    assert landed(drive) == list(STAGED)
    assert "r" in drive.shape
    assert drive.state.stages == ()


def test_tol_3_core_beside_a_call_that_runs_it_is_in_the_commit_with_its_row() -> None:
    """The result is kept in the call's row until the batch is over, and what was staged lands with that row."""
    drive = Drive().start()
    drive.reply(NOTE, call("look"))
    drive.give(returns(drive))
    assert drive.made.commit[:2] == STAGED
    assert [row.result is not None for row in drive.wrote(CallRow)] == [True]


@pytest.mark.parametrize("error", [AgentClosed("closed", LETTER), UnknownPath("no such agent")])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside"])
def test_tol_3_core_a_stage_that_is_refused_fails_its_call_only(error: CallboardError, *, beside: bool) -> None:
    """Its result says why, nothing of it is written, and the same commit goes through without it."""
    drive = Drive().start()
    drive.reply(NOTE, *([call("look")] if beside else []))
    event = returns(drive)
    if beside:
        drive.fail(event, error)
    else:
        drive.give(event)
        drive.look()
        drive.fail(drive_admits(drive), error)
    assert drive.last(CancelCalls).calls == (event.outcomes[0].call,)
    drive.give(drive.last(Again).event)
    assert not set(map(id, drive.made.commit)) & set(map(id, STAGED))
    if beside:
        (row,) = drive.wrote(CallRow)
        assert row.result is not None
        assert (row.result.status.value, text_of(row.result.content)) == (
            "error",
            f"Nothing of this call was done: {error}",
        )
        return
    assert results(drive) == [("error", f"Nothing of this call was done: {error}")]
    assert drive.state.done[-1][2] == "error"
    assert [told["status"] for told in drive.told(ToolEnded)] == ["ok", "error"]
    assert drive.phase is Phase.ASKING


def drive_admits(drive: Drive) -> Any:
    """The input whose step claims."""
    return Admitted(drive.now, "ticket", HELD)


def test_tol_3_core_another_failure_is_not_the_stages() -> None:
    """A conflict looks again with the stage kept; a store that fails stops the turn with nothing written."""
    drive = Drive().start()
    drive.reply(NOTE)
    drive.give(returns(drive))
    drive.look(message("n"))
    drive.fail(drive_admits(drive), Conflict("withdrawn"))
    assert drive.all(Look)
    assert drive.state.stages[0].operations == STAGED
    drive.look()
    drive.fail(drive_admits(drive), Unavailable("disk full"))
    assert drive.over.suspended == "store"


def test_tol_3_core_whose_message_was_refused_is_known_by_the_message() -> None:
    """Of two calls that staged something, the one whose message was not taken has failed."""
    drive = Drive().start()
    drive.reply(NOTE, call("note", '{"text": "b"}'), call("look"))
    other = Enqueue(evolve(LETTER, id=MessageId("other")), LaneBound())
    one, two = returns(drive), returns(drive, 1, (other,))
    drive.fail(CallsReturned(drive.now, (*one.outcomes, *two.outcomes)), AgentClosed("closed", LETTER))
    drive.give(drive.last(Again).event)
    rows = drive.wrote(CallRow)
    assert [row.result.status.value for row in rows if row.result is not None] == ["error", "ok"]
    assert other in drive.made.commit


@pytest.mark.parametrize("reason", ["enough", None], ids=["abort", "steer"])
def test_tol_3_core_what_had_returned_before_a_cut_lands(reason: str | None) -> None:
    """A result that came with the cut is taken in, and its stage with it."""
    drive = Drive().start()
    drive.reply(NOTE, call("look"))
    drive.cut(reason, outcomes=returns(drive).outcomes)
    if reason is None:
        drive.ask()
    assert landed(drive) == list(STAGED)
    assert results(drive)[0][0] == "ok"


def test_tol_3_core_a_stage_refused_with_an_abort_does_not_hold_it_up() -> None:
    """The abort's own commit is tried again without it."""
    drive = Drive().start()
    drive.reply(NOTE, call("look"))
    drive.fail(Cut(drive.now, reason="enough", outcomes=returns(drive).outcomes), AgentClosed("closed", LETTER))
    drive.give(drive.last(Again).event)
    assert drive.outcome_told.status.value == "aborted"
    assert [status for status, _ in results(drive)] == ["error", "aborted"]


def test_tol_3_core_a_store_call_found_without_its_result_starts_as_new() -> None:
    """Recovery finds it planned, as if it had never run."""
    drive = Drive().start()
    drive.reply(NOTE)
    found = tuple(evolve(one, state=one.state.PLANNED) for one in drive.state.calls)
    again = Drive(row_=drive.written, records=drive.records)
    again.give(Begin(again.now, found, owed=True))
    assert [start.call.block.id for start in again.all(StartCall)] == [found[0].block.id]
    assert again.wrote(CallRow) == []
