"""When a turn compacts, what it commits for it, and every way it can come to nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from actors.changes import AgentRow, Append, Claim
from actors.compaction import CompactAsked, Compaction, NotSummarised, Summarise, Summarised
from actors.content import Trust
from actors.errors import Broken
from actors.happenings import CompactionEnded, CompactionStarted, RequestFailed
from actors.inputs import Begin, Failed, MustWait, NotAdmitted, Phase, Responded
from actors.messages import Status
from actors.moves import Admit, Look
from actors.points import TurnSpec
from actors.transcript import Stop, SummaryRecord
from actors.usage import NOTHING, Amounts, Usage
from tests.actors.compactkit import OVERFLOW, PLAN, asked, at_the_model, look, over, overflowed, summary
from tests.actors.turnkit import HELD, SPENT, USAGE, Drive, call, exhausted, message, row, served, spec, steer


def measured(tokens: int, **fields: Any) -> AgentRow:
    """The row of an agent whose conversation was measured."""
    return row(context=tokens, turns=1, runs=1, **fields)


# -- the way through ---------------------------------------------------------------------------------------------------


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


# -- it comes to nothing -----------------------------------------------------------------------------------------------


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


# -- the overflow ------------------------------------------------------------------------------------------------------


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
