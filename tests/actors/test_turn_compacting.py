"""When a turn compacts, what it commits for it, and every way it can come to nothing."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from msgspec.structs import replace

from actors.changes import AgentRow, Append, Claim, Forget
from actors.compacting import least
from actors.compaction import (
    ASKED,
    WORTH_BYTES,
    CompactAsked,
    Compacting,
    Compaction,
    CompactionOver,
    NotSummarised,
    Plan,
    Summarise,
    Summarised,
)
from actors.content import Trust
from actors.errors import Broken, Conflict, ContextOverflow, InternalError, NotCompacted, Unavailable, UsageError
from actors.happenings import CompactionEnded, CompactionStarted, RequestFailed, TurnEnded, TurnStarted
from actors.inputs import Begin, Cut, Failed, Looked, MustWait, NotAdmitted, Phase, Responded
from actors.messages import Lane, Purpose, Status
from actors.moves import Abandon, Admit, CutStream, Look, Over, StartCall
from actors.points import TurnSpec
from actors.transcript import Stop, SummaryRecord
from actors.turn import step
from actors.usage import NOTHING, Amounts, Usage
from tests.actors.turnkit import (
    HELD,
    SPENT,
    TOOLS,
    USAGE,
    Drive,
    call,
    exhausted,
    message,
    open_row,
    row,
    served,
    spec,
    steer,
)

PLAN = Plan(3, 3, (0,), 4_000, Trust.WORKSPACE, 2)
OVERFLOW = ContextOverflow("too long", reason="context_overflow")


def asked(drive: Drive, *mail: Any, window: int | None = None) -> Drive:
    """A turn that was asked to compact, before its first request."""
    drive.give(Begin(drive.now))
    drive.give(CompactAsked(drive.now))
    look(drive, *mail or (message("m"),), window=window)
    return drive


def look(drive: Drive, *mail: Any, window: int | None = None, choice: Any = None) -> None:
    """Answer `Look`, with the model's context window."""
    drive.give(Looked(drive.now, mail, TOOLS, choice=choice, context_window=window))


def at_the_model(drive: Drive) -> Drive:
    """From Admit to the summary's request."""
    drive.admit()
    drive.look()
    assert drive.phase is Phase.COMPACTING
    return drive


def summary(drive: Drive, text: str = "in short", *, stop: Stop = Stop.END_TURN, plan: Plan = PLAN) -> None:
    """The summary comes."""
    drive.give(Summarised(drive.now, served(text, stop=stop), SPENT, plan, 5_000))


def over(drive: Drive) -> list[str | None]:
    """What those who wait for compactions were told, in all steps."""
    found = [action for action in drive.actions if isinstance(action, CompactionOver)]
    return [None if action.error is None else str(action.error) for action in found]


def measured(tokens: int, **fields: Any) -> AgentRow:
    """The row of an agent whose conversation was measured."""
    return row(context=tokens, turns=1, runs=1, **fields)


# -- the way through ---------------------------------------------------------------------------------------------


def test_cmp_6_asked_for_it_comes_before_the_next_request() -> None:
    """The helper request is admitted, held in the row, accounted; its record and the row are one commit."""
    drive = asked(Drive())
    assert drive.last(Admit).helper
    at_the_model(drive)
    assert drive.last(Summarise).ticket == "ticket"
    opened = drive.written.open
    assert opened is not None
    assert (opened.asking, opened.held) == (True, HELD)
    assert drive.wrote(Claim) == [], "the mail stays where it is until the compaction is over"
    summary(drive)
    (append,) = drive.wrote(Append)
    assert append.records == (
        SummaryRecord(append.records[0].turn, "in short", 3, (0,), 2, False, "script:x", USAGE, Trust.WORKSPACE),  # noqa: FBT003
    )
    assert drive.written.summary == append.at
    assert drive.written.spent == SPENT
    opened = drive.written.open
    assert opened is not None
    assert (opened.asking, opened.held) == (False, NOTHING)
    assert over(drive) == [None]
    assert drive.last(Look).sends
    assert [told["reason"] for told in drive.told(CompactionStarted)] == ["asked"]
    (told,) = drive.told(CompactionEnded)
    assert (told["before"], told["after"]) == (
        5_000,
        1_000 + len("The conversation before this point, summarised:\nin short"),
    )
    drive.ask(message("m"))
    assert drive.asked.step == 1


def test_cmp_1_what_is_settled_is_committed_before_the_summary_is_asked_for() -> None:
    """Asked while a batch runs, it waits for the batch; its results are in the store when the model is asked."""
    drive = Drive().start()
    drive.reply(call("look"))
    drive.give(CompactAsked(drive.now))
    assert drive.phase is Phase.RUNNING, "BR-124: never with an open batch"
    drive.ends(0)
    drive.look()
    assert drive.last(Admit).helper
    at_the_model(drive)
    assert drive.shape == "MRr"
    assert len(drive.made.records) == 1, "and in memory, which the summary is planned on"
    drive.check()
    summary(drive)
    drive.look()
    assert not drive.last(Admit).helper


def test_bud_9_a_summary_without_a_price_makes_the_cost_unknown() -> None:
    """As of any request, its tokens are counted and its cost is said to be unknown."""
    drive = at_the_model(asked(Drive()))
    drive.give(Summarised(drive.now, served("in short", cost=None), SPENT, PLAN, 5_000))
    assert not drive.written.cost_known


def test_cmp_3_asked_for_twice_it_runs_once() -> None:
    """A second request while one is due or under way is that one."""
    drive = asked(Drive())
    drive.give(CompactAsked(drive.now))
    at_the_model(drive)
    drive.give(CompactAsked(drive.now))
    summary(drive)
    look(drive, message("m"))
    assert not drive.last(Admit).helper
    assert over(drive) == [None]


def test_cmp_6_past_a_share_of_the_window_it_comes_by_itself() -> None:
    """At the limit it does not, past it it does; what waits to be sent counts."""
    waiting = message("").envelope.size_bytes // 4
    for tokens, compacts in ((800 - waiting, False), (801 - waiting, True)):
        drive = Drive(row_=measured(tokens))
        drive.give(Begin(drive.now))
        look(drive, message(""), window=1_000)
        assert drive.last(Admit).helper == compacts
    drive = Drive(row_=measured(700))
    drive.give(Begin(drive.now))
    look(drive, message("x" * 4_000), window=1_000)
    assert drive.last(Admit).helper


@pytest.mark.parametrize("window", [None, 10_000])
def test_cmp_6_it_does_not_come_by_itself_otherwise(window: int | None) -> None:
    """With no window known, or room left, or nothing measured, nothing is compacted."""
    for tokens in (0, 7_900):
        drive = Drive(row_=measured(tokens))
        drive.give(Begin(drive.now))
        look(drive, message(""), window=window)
        assert not drive.last(Admit).helper
    never = TurnSpec(spec().limits, spec().drain, compaction=Compaction(at=None))
    drive = Drive(never, measured(9_999))
    drive.give(Begin(drive.now))
    look(drive, message(""), window=10_000)
    assert not drive.last(Admit).helper


def test_sel_3_the_measured_size_dies_with_the_conversation_it_measured() -> None:
    """A response measures it, a compaction forgets it."""
    drive = Drive().start()
    drive.reply("ok")
    drive.look()
    assert drive.written.context == USAGE.input_tokens + USAGE.output_tokens
    drive = at_the_model(asked(Drive(row_=measured(500))))
    summary(drive)
    assert drive.written.context == 0


def test_cmp_3_one_that_did_not_get_below_its_limit_is_not_repeated() -> None:
    """BR-120, BR-121: measured as too long again behind a compaction for the window, the turn makes no second one."""
    drive = Drive(row_=measured(900))
    drive.give(Begin(drive.now))
    look(drive, message("m"), window=1_000)
    at_the_model(drive)
    summary(drive)
    look(drive, message("m"), window=1_000)
    drive.admit_later()
    look(drive, message("m"), window=1_000)
    drive.give(Responded(drive.now, replace(served(call("look")), usage=Usage(fresh=900)), SPENT))
    drive.ends(0)
    look(drive, window=1_000)
    assert not drive.last(Admit).helper
    assert drive.state.compacting.useless


# -- it comes to nothing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stop", "why"),
    [
        ("", Stop.END_TURN, "no summary"),
        ("  \n", Stop.END_TURN, "no summary"),
        ("half", Stop.MAX_TOKENS, "not whole"),
        ("no", Stop.REFUSAL, "not whole"),
        ("x" * 3_700, Stop.END_TURN, "hardly smaller"),
    ],
)
def test_cmp_2_what_is_no_summary_replaces_nothing(text: str, stop: Stop, why: str) -> None:
    """BR-120: an empty, half or long summary is not taken; whoever waits hears why, and the turn goes on."""
    drive = at_the_model(asked(Drive()))
    summary(drive, text, stop=stop)
    assert drive.wrote(Append) == []
    assert drive.written.summary == -1
    assert drive.written.spent == SPENT, "it was asked, and costs"
    (told,) = over(drive)
    assert told is not None
    assert why in told
    assert "error" in drive.told(CompactionEnded)[0]
    drive.ask(message("m"))
    assert drive.phase is Phase.ASKING


def test_cmp_3_a_request_that_fails_rejects_it() -> None:
    """The summary's request fails: it is accounted, and the turn goes on with the conversation as it was."""
    drive = at_the_model(asked(Drive()))
    drive.give(NotSummarised(drive.now, Broken("gone"), Usage(fresh=2), Amounts(cost=5), cost_known=False))
    assert drive.written.spent == Amounts(cost=5)
    assert not drive.written.cost_known
    assert "gone" in str(over(drive)[0])
    assert drive.phase is Phase.LOOKING


def test_cmp_3_with_nothing_to_replace_it_is_done() -> None:
    """A conversation that is short already needs no request: no error, no event, no commit."""
    drive = asked(Drive())
    drive.give(NotSummarised(drive.now, None))
    assert over(drive) == [None]
    assert drive.told(CompactionEnded) == []
    assert drive.made.commit == ()
    look(drive, message("m"))
    assert not drive.last(Admit).helper


def test_cmp_3_nothing_to_replace_after_all() -> None:
    """What seemed worth it is not when it is planned again: the request was not sent, and the turn goes on."""
    drive = at_the_model(asked(Drive()))
    drive.give(NotSummarised(drive.now, None))
    assert over(drive) == [None]
    assert "nothing to replace" in drive.told(CompactionEnded)[0]["error"]
    assert drive.phase is Phase.LOOKING


def test_cmp_3_one_for_the_window_that_finds_nothing_is_not_tried_again() -> None:
    """BR-121: what is fixed cannot be freed; the turn asks for no summary of it before each request."""
    drive = Drive(row_=measured(900))
    drive.give(Begin(drive.now))
    look(drive, message("m"), window=1_000)
    drive.give(NotSummarised(drive.now, None))
    look(drive, message("m"), window=1_000)
    assert not drive.last(Admit).helper


def test_cmp_3_the_budget_may_refuse_it() -> None:
    """Refused for the summary, the turn goes on to its own request, and is refused or admitted there."""
    drive = asked(Drive())
    drive.give(NotAdmitted(drive.now, exhausted()))
    assert "tokens" in str(over(drive)[0])
    look(drive, message("m"))
    assert not drive.last(Admit).helper


def test_it_waits_for_a_place_like_any_request() -> None:
    """The gate has no place: what is settled is committed, and the same request waits."""
    drive = Drive().start()
    drive.reply(call("look"))
    drive.give(CompactAsked(drive.now))
    drive.ends(0)
    drive.look()
    drive.give(MustWait(drive.now))
    assert (drive.last(Admit).helper, drive.last(Admit).wait) == (True, True)
    assert drive.shape == "MRr"
    at_the_model(drive)


# -- the overflow ------------------------------------------------------------------------------------------------


def overflowed() -> Drive:
    """A turn whose request was refused as too long."""
    drive = Drive().start()
    drive.give(Failed(drive.now, OVERFLOW, Usage(fresh=1), Amounts(cost=2)))
    return drive


def test_req_3_an_overflow_compacts_once_and_asks_again() -> None:
    """The request's end is told and accounted; behind the compaction the same conversation is asked about anew."""
    drive = overflowed()
    assert len(drive.told(RequestFailed)) == 1
    assert drive.phase is Phase.LOOKING
    look(drive, steer("s"))
    assert drive.last(Admit).helper, "what came meanwhile waits"
    at_the_model(drive)
    assert drive.written.spent.cost == 2
    summary(drive)
    assert [told["reason"] for told in drive.told(CompactionStarted)] == ["overflow"]
    drive.ask(steer("s"))
    assert drive.asked.step == 2


def test_req_3_a_second_overflow_fails_the_turn() -> None:
    """Too long still, behind its compaction: the turn fails with the model's words, and no third request is made."""
    drive = overflowed()
    drive.look()
    at_the_model(drive)
    summary(drive)
    drive.ask()
    drive.give(Failed(drive.now, OVERFLOW))
    assert drive.outcome_told.status is Status.FAILED
    assert drive.outcome_told.failure is not None
    assert drive.outcome_told.failure.kind == "context_overflow"


def test_req_3_after_an_answer_an_overflow_may_compact_again() -> None:
    """It is once per request that overflows, not once per turn."""
    drive = overflowed()
    drive.look()
    at_the_model(drive)
    summary(drive)
    drive.ask()
    drive.reply(call("look"))
    drive.ends(0)
    drive.ask()
    drive.give(Failed(drive.now, OVERFLOW))
    assert drive.phase is Phase.LOOKING


@pytest.mark.parametrize("what", ["nothing", "fails", "refused", "useless"])
def test_req_3_an_overflow_that_cannot_be_compacted_fails_the_turn(what: str) -> None:
    """BR-120: with no summary to be had, the turn fails with the overflow, and is not asked again in vain."""
    drive = overflowed()
    drive.look()
    if what == "refused":
        drive.give(NotAdmitted(drive.now, exhausted()))
    elif what == "nothing":
        drive.give(NotSummarised(drive.now, None))
    else:
        at_the_model(drive)
        if what == "useless":
            summary(drive, "x" * 5_000)
        else:
            drive.give(NotSummarised(drive.now, Broken("gone")))
    assert drive.outcome_told.status is Status.FAILED
    assert drive.outcome_told.failure is not None
    assert drive.outcome_told.failure.kind == "context_overflow"
    assert drive.written.open is None


# -- cut, left, failed -------------------------------------------------------------------------------------------


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


# -- a turn for nothing else -------------------------------------------------------------------------------------


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
