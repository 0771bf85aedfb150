"""How a run is settled: when its store is erased, and what the `settling` hook writes beside that (HOK-3, HOK-4)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from actors.batching import TOLD_CHARS, told
from actors.callview import CallOutcome
from actors.changes import Enqueue, Erase, KvRow, Move, Put
from actors.content import Text
from actors.errors import Broken, UsageError
from actors.evolve import evolve
from actors.hooked import Point
from actors.ids import CallId
from actors.inputs import CallsReturned, Failed, HookReturned, Looked
from actors.messages import Lane, Queued, ReceiptState, Status
from actors.moves import CallHook, Look
from actors.transcript import ResultStatus
from tests.actors.turnkit import AGENT, Drive, call, message, row, spec, steer

ERASED = Erase(KvRow, (AGENT, "lead:r1"))
WRITTEN = Put(KvRow(AGENT, "agent", "seen", "1"))


def answered(*hooks: Point, keeps: bool = True, **state: Any) -> Drive:
    """A turn that has its answer, and looks at the mailbox."""
    drive = Drive(attrs.evolve(spec(*hooks), keeps=keeps), **state).start()
    drive.reply("answer")
    assert drive.last(Look) == Look(sends=False)
    return drive


def found(drive: Drive, *mail: Queued, waits: int = 0) -> None:
    """What stands in the mailbox."""
    drive.give(Looked(drive.now, mail, drive.tools, waits=waits))


@pytest.mark.parametrize(("waits", "keeps"), [(0, True), (1, True), (0, False)])
def test_hok_4_core_the_runs_store_is_erased_in_the_commit_that_settles_the_run(*, waits: int, keeps: bool) -> None:
    """And in no other: with a message waiting the run goes on; where nothing keeps anything, nothing is erased."""
    drive = answered(keeps=keeps)
    found(drive, waits=waits)
    settles = waits == 0 and keeps
    assert (ERASED in drive.made.commit) == settles
    assert drive.over.run_over == settles
    assert drive.outcome_told.status is Status.DONE


def test_hok_4_core_a_run_that_fails_is_settled_too() -> None:
    """Whether it is the last turn of its run is looked for first, and steering cannot save it any more."""
    drive = Drive(attrs.evolve(spec(), keeps=True)).start()
    drive.give(Failed(drive.now, Broken("no answer")))
    assert drive.last(Look) == Look(sends=False)
    found(drive)
    assert drive.outcome_told.status is Status.FAILED
    assert ERASED in drive.made.commit
    assert drive.shape == "Mn"


def test_hok_4_core_an_abort_settles_the_run_and_waits_for_no_hook() -> None:
    """The store goes in the abort's own commit."""
    drive = Drive(attrs.evolve(spec(Point.SETTLING), keeps=True)).start()
    drive.cut()
    assert drive.over.run_over
    assert ERASED in drive.made.commit
    assert not drive.all(CallHook)


@pytest.mark.parametrize("kept", [True, False])
def test_hok_4_core_what_a_call_keeps_is_erased_with_its_batch(*, kept: bool) -> None:
    """Where it has kept something: in the commit that carries its result; else nothing is there to erase."""
    drive = Drive().start()
    drive.reply(call("look"))
    drive.give(CallsReturned(drive.now, (evolve(drive.outcome(0), kept=kept),)))
    drive.ask()
    erased = [one for one in drive.wrote(Erase) if one.table is KvRow]
    assert [one.prefix for one in erased] == ([(AGENT, "lead:t1.1.0")] if kept else [])


@pytest.mark.parametrize("new_run", [True, False])
def test_hok_4_core_a_new_run_erases_what_a_crash_left_of_the_last(*, new_run: bool) -> None:
    """A crash between two turns leaves a store that no commit settles; the first commit of the next run does."""
    drive = Drive(attrs.evolve(spec(), keeps=True), row(turns=1, runs=1), new_run=new_run).start()
    commits = [operation for commit in drive.commits for operation in commit]
    assert (ERASED in commits) == new_run


def test_hok_3_core_what_the_settling_hook_wrote_lands_with_the_settlement() -> None:
    """It is called once, when nothing waits; then the mailbox is looked at again, and the commit carries both."""
    drive = answered(Point.SETTLING)
    found(drive)
    assert drive.last(CallHook) == CallHook(Point.SETTLING)
    drive.give(HookReturned(drive.now, staged=(WRITTEN,)))
    assert drive.last(Look) == Look(sends=False)
    found(drive)
    assert WRITTEN in drive.made.commit
    assert ERASED in drive.made.commit


@pytest.mark.parametrize("steered", [True, False])
def test_hok_3_core_what_it_wrote_vanishes_where_the_run_goes_on(*, steered: bool) -> None:
    """A steer joins the turn, a send the run: in both cases the hook is asked again at the real end."""
    drive = answered(Point.SETTLING)
    found(drive)
    drive.give(HookReturned(drive.now, staged=(WRITTEN,)))
    if steered:
        drive.ask(steer("s", 2))
        drive.reply("answer again")
        found(drive)
        assert drive.last(CallHook) == CallHook(Point.SETTLING)
    else:
        found(drive, waits=1)
        assert not drive.over.run_over
    commits = [operation for commit in drive.commits for operation in commit]
    assert WRITTEN not in commits
    assert ERASED not in commits


def test_hok_1_core_a_settling_guard_that_fails_fails_the_turn() -> None:
    """The answer is none then, and the hook is not asked again about the failure."""
    drive = answered(Point.SETTLING)
    found(drive)
    drive.give(HookReturned(drive.now, UsageError("not yet"), staged=()))
    found(drive)
    assert drive.outcome_told.status is Status.FAILED
    assert drive.notes("failure") == ["The turn ended early: not yet"]


def test_hok_1_core_a_turn_that_fails_already_is_not_failed_again_by_its_guard() -> None:
    """What ended it stays what is told."""
    drive = Drive(spec(Point.SETTLING)).start()
    drive.give(Failed(drive.now, Broken("no answer")))
    found(drive)
    drive.give(HookReturned(drive.now, UsageError("not yet"), staged=()))
    found(drive)
    failure = drive.outcome_told.failure
    assert failure is not None
    assert failure.message == "no answer"


@pytest.mark.parametrize("sender", [None, "lead"])
def test_abt_5_core_a_report_begins_no_turn_of_a_parent_that_is_aborted_too(sender: str | None) -> None:
    """A barrier's own messages come from the agent above: then the report is there, and held."""
    drive = Drive(spec(reports_to="lead/above")).start()
    asked = message("stop", lane=Lane.CONTROL)
    control = Queued(asked.seq, evolve(asked.envelope, sender=sender))
    drive.cut(control=(control,))
    (report,) = [operation.envelope for operation in drive.wrote(Enqueue)]
    held = [move for move in drive.wrote(Move) if move.to is ReceiptState.HELD]
    assert [move.messages for move in held] == ([] if sender is None else [(report.id,)])


def test_what_an_event_shows_of_a_result_is_bounded() -> None:
    """Its text, and the beginning of it only."""
    made = CallOutcome(CallId("lead:t1.1.0"), ResultStatus.OK, (Text("ab" * TOLD_CHARS),))
    assert told(made) == "ab" * (TOLD_CHARS // 2)


# -- circles -----------------------------------------------------------------------------------------------------


def rounds(drive: Drive, times: int) -> None:
    """The same call with the same result, so often."""
    for _ in range(times):
        drive.reply(call("look"))
        drive.ends(0)
        drive.ask()


def test_trn_7_core_a_circle_is_told_once_and_then_ends_the_calls() -> None:
    """At the limit it is told what will come, at twice the limit tools are offered no more, and a call is an error."""
    drive = Drive(spec(repeated_cycles=2)).start()
    rounds(drive, 1)
    assert drive.notes("limit") == []
    rounds(drive, 2)
    (note,) = drive.notes("limit")
    assert note.startswith("The same calls gave the same results 2 times in a row. Do something else")
    assert drive.offers_tools()
    rounds(drive, 1)
    assert drive.notes("limit")[1:] == [
        "The same calls gave the same results 4 times in a row: answer now, without tools."
    ]
    assert not drive.offers_tools()
    drive.reply(call("look"))
    assert drive.outcome_told.status is Status.FAILED
