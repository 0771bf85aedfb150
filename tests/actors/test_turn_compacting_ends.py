"""A compaction in the turn's core that is cut, left, or fails to be written; and one of an idle agent."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from actors.changes import Append, Claim, Forget
from actors.compacting import least
from actors.compaction import (
    ASKED,
    WORTH_BYTES,
    CompactAsked,
    Compacting,
    Compaction,
    NotSummarised,
    Summarise,
    Summarised,
)
from actors.errors import Broken, Conflict, InternalError, NotCompacted, Unavailable, UsageError
from actors.happenings import CompactionEnded, TurnEnded, TurnStarted
from actors.inputs import Begin, Cut, Looked, MustWait, NotAdmitted, Phase
from actors.messages import Lane, Purpose, Status
from actors.moves import Abandon, Admit, CutStream, Look, Over, StartCall
from actors.turn import step
from actors.usage import Amounts, Usage
from tests.actors.compactkit import PLAN, asked, at_the_model, look, over, overflowed, summary
from tests.actors.turnkit import HELD, SPENT, TOOLS, Drive, call, exhausted, message, open_row, row, served, spec, steer

# -- cut, left, failed -------------------------------------------------------------------------------------------------


def test_abt_4_an_abort_rejects_a_compaction() -> None:
    """Due, waiting for its place or under way: the abort ends it, its waiters hear of it, its cost is kept."""
    drive = Drive().start()
    drive.give(CompactAsked(drive.now))
    drive.cut("enough")
    assert "enough" in str(over(drive)[0])
    drive = asked(Drive())
    drive.cut("enough")
    assert "enough" in str(over(drive)[0])
    drive = at_the_model(asked(Drive()))
    drive.cut("enough", usage=Usage(fresh=3), spent=Amounts(cost=7), cost_known=True)
    assert drive.all(CutStream)
    assert drive.all(Abandon) == [], "the ticket was used"
    assert drive.written.spent.cost == 7
    assert "enough" in drive.told(CompactionEnded)[0]["error"]
    assert drive.outcome_told.status is Status.ABORTED
    assert len(over(drive)) == 1


def test_an_admitted_compaction_gives_its_ticket_back() -> None:
    """Cut between admission and commit, nothing stays held (TURN-3)."""
    drive = asked(Drive())
    drive.admit("t9")
    drive.cut("enough")
    assert [action.ticket for action in drive.all(Abandon)] == ["t9"]


def test_con_7_a_message_that_interrupts_enters_before_it_is_tried_again() -> None:
    """The interrupted compaction is due still; first the message enters, then it is made."""
    drive = at_the_model(asked(Drive()))
    drive.cut(None, spent=Amounts(cost=1))
    assert over(drive) == []
    urgent = steer("now", interrupt=True)
    look(drive, urgent)
    assert not drive.last(Admit).helper
    drive.admit_later()
    look(drive, urgent)
    drive.reply(call("look"))
    drive.ends(0)
    drive.look()
    assert drive.last(Admit).helper


def test_cls_5_leaving_waits_for_the_summarys_commit() -> None:
    """Asked to stop while the summary is written, the turn stops behind its commit; before it, at once."""
    drive = at_the_model(asked(Drive()))
    drive.suspend()
    summary(drive)
    look(drive, message("m"))
    assert drive.over.suspended == "leaving"
    drive = asked(Drive())
    drive.suspend()
    drive.admit("t9")
    drive.look()
    assert drive.over.suspended == "leaving"
    assert [action.ticket for action in drive.all(Abandon)] == ["t9"]


def test_cmp_2_a_commit_that_fails_leaves_the_conversation_as_it_was() -> None:
    """Nothing is assumed of a summary whose commit failed: the turn stops with what the store says."""
    drive = at_the_model(asked(Drive()))
    drive.fail(Summarised(drive.now, served("in short"), SPENT, PLAN, 5_000))
    assert drive.over.suspended == "store"
    assert drive.records == []
    assert drive.all(Abandon) == []


def test_a_conflict_before_the_request_tries_again() -> None:
    """A commit that conflicts is made anew, with the ticket in hand or, where there was none, from the gate on."""
    drive = asked(Drive())
    drive.admit("t9")
    drive.fail(Looked(drive.now, (), TOOLS), Conflict("another"))
    assert drive.phase is Phase.LOOKING
    drive.look()
    assert drive.last(Summarise).ticket == "t9"
    drive = Drive().start()
    drive.reply(call("look"))
    drive.give(CompactAsked(drive.now))
    drive.ends(0)
    drive.look()
    drive.fail(MustWait(drive.now), Conflict("another"))
    drive.look()
    assert drive.last(Admit).helper


# -- a turn for nothing else -------------------------------------------------------------------------------------------


def alone(**fields: Any) -> Drive:
    """An idle agent that is compacted."""
    drive = Drive(row_=row(turns=4, runs=2, **fields), compacting=Compacting(ASKED))
    drive.give(Begin(drive.now, compact=True))
    return drive


def test_cmp_6_an_idle_agent_is_compacted_without_a_turn() -> None:
    """No turn is told or counted, no message is looked for, no outcome is written; while it is open it is held."""
    drive = alone()
    assert drive.last(Admit).helper
    at_the_model(drive)
    opened = drive.written.open
    assert opened is not None
    assert (opened.alone, opened.held) == (True, HELD)
    summary(drive)
    assert drive.written.open is None
    assert (drive.written.turns, drive.written.runs) == (4, 2)
    assert not drive.written.owes
    assert drive.written.summary == 0
    assert drive.over == Over()
    assert drive.told(TurnStarted) == drive.told(TurnEnded) == []
    assert over(drive) == [None]


def test_an_idle_compaction_of_nothing_writes_nothing() -> None:
    """Nothing to replace, or no budget for it: the store is as it was."""
    drive = alone()
    drive.give(NotSummarised(drive.now, None))
    assert (drive.made.commit, drive.over, over(drive)) == ((), Over(), [None])
    drive = alone()
    drive.give(NotAdmitted(drive.now, exhausted()))
    assert (drive.made.commit, drive.over) == ((), Over())


def test_an_idle_compaction_that_fails_is_charged_and_closed() -> None:
    """What it had opened in the store is closed again, with what it cost."""
    drive = at_the_model(alone())
    drive.give(NotSummarised(drive.now, Broken("gone"), Usage(fresh=1), Amounts(cost=3)))
    assert (drive.written.open, drive.written.turns, drive.written.spent.cost) == (None, 4, 3)
    assert drive.wrote(Append) == []


def test_abt_5_an_abort_of_an_idle_compaction_changes_nothing_else() -> None:
    """It ends as it began: the abort's message is claimed, no turn ended; a message that interrupts ends it too."""
    control = message("c", lane=Lane.CONTROL, purpose=Purpose.ABORT)
    drive = at_the_model(alone())
    drive.cut("enough", control=(control,), spent=Amounts(cost=3))
    (claim,) = drive.wrote(Claim)
    assert claim.messages == ("c",)
    assert (drive.written.open, drive.written.turns, drive.written.spent.cost) == (None, 4, 3)
    assert drive.over == Over()
    assert drive.all(CutStream)
    assert "enough" in str(over(drive)[0])
    drive = alone()
    drive.cut("enough", control=(control,))
    assert drive.wrote(Claim)
    drive = alone()
    drive.admit("t9")
    drive.cut(None)
    assert drive.made.commit == ()
    assert [action.ticket for action in drive.all(Abandon)] == ["t9"]


def test_rec_1_an_idle_compaction_that_a_crash_cut_off_owes_nothing() -> None:
    """It is charged what it had reserved and closed; the note or message that the conversation ends in asks nothing."""
    drive = Drive(row_=open_row(step=0, asking=True, held=HELD, alone=True))
    drive.give(Begin(drive.now, owed=True, unwritten=HELD))
    assert drive.over == Over()
    assert (drive.written.open, drive.written.owes, drive.written.spent) == (None, False, HELD)
    assert drive.written.turns == 0
    assert drive.told(TurnStarted) == []


def test_leaving_does_not_cut_an_idle_compaction() -> None:
    """Its next commit is its last: it ends with it."""
    drive = alone()
    drive.suspend()
    at_the_model(drive)
    summary(drive)
    assert drive.over == Over()
    assert drive.written.summary == 0


def test_an_idle_compaction_whose_commit_fails_stops() -> None:
    """The store's failure suspends, as of any turn."""
    drive = alone()
    drive.admit()
    drive.fail(Looked(drive.now, (), TOOLS), Unavailable("no disk"))
    assert drive.over.suspended == "store"
    assert drive.all(Abandon)
    assert drive.all(StartCall) == []


def test_nothing_of_it_is_taken_out_of_place() -> None:
    """A summary that nothing asked for is a bug of ours, and changes nothing."""
    drive = Drive().start()
    before = drive.state
    for event in (Summarised(0.0, served("x"), SPENT, PLAN, 1), NotSummarised(0.0, NotCompacted("x"))):
        with pytest.raises(InternalError):
            step(drive.state, event)
    assert drive.state == before


def test_what_is_worth_a_summary_grows_with_the_window() -> None:
    """BR-121: for the window's sake a share of it must be freed; asked for, a little is enough."""
    assert least(Compacting(ASKED)) == WORTH_BYTES
    assert least(Compacting("window", limit=10_000)) == 4_000


def test_an_abort_behind_a_compaction_rejects_nothing() -> None:
    """What is over is over: nobody is told twice."""
    drive = at_the_model(asked(Drive()))
    summary(drive)
    drive.suspend()
    drive.cut("enough")
    assert over(drive) == [None]
    drive = overflowed()
    drive.look()
    at_the_model(drive)
    summary(drive)
    drive.cut("enough")
    assert over(drive) == [None]


def test_rec_1_core_a_turn_that_is_open_for_a_compaction_never_takes_mail() -> None:
    """An abort of it that another was faster with stops it: it once went on to the mailbox, and asked as a turn."""
    waits = alone()
    waits.give(MustWait(waits.now))
    waits.fail(Cut(waits.now, (steer("abort"),), "enough"), Conflict("another was faster"))
    assert waits.over.suspended == "store"
    assert waits.all(Look) == []


@pytest.mark.parametrize(("archive", "before"), [(None, None), (3, None), (2, 1), (0, 3)])
def test_cmp_4_core_the_archive_is_bounded_in_the_commit_of_the_summary(
    archive: int | None, before: int | None
) -> None:
    """What is older than the newest that may stay is removed behind the append; what is pinned is not."""
    made = Drive(attrs.evolve(spec(), compaction=Compaction(archive=archive)))
    drive = at_the_model(asked(made))
    summary(drive)
    found = [operation for operation in drive.made.commit if isinstance(operation, Forget)]
    assert found == ([] if before is None else [Forget(drive.state.row.agent, before, (0,))])
    kinds = [type(operation) for operation in drive.made.commit]
    assert kinds[: 1 + len(found)] == [Append, Forget][: 1 + len(found)]
    drive.look()
    assert not [operation for operation in drive.made.commit if isinstance(operation, Forget)], "once, with its summary"


@pytest.mark.parametrize("archive", [-1, 1.5, True, "many"])
def test_cmp_4_an_archive_of_no_number_is_refused(archive: Any) -> None:
    """Where it is written, in words that say what is taken."""
    with pytest.raises(UsageError, match="archive"):
        Compaction(archive=archive)
