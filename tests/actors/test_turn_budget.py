"""What a turn spends, and what it does when it may spend no more."""

from __future__ import annotations

import pytest

from actors.compaction import CompactAsked
from actors.content import text_of
from actors.happenings import NoteWritten, RequestFailed, TurnEnded
from actors.hooked import Point
from actors.inputs import Begin, Cut, Failed, NotAdmitted
from actors.messages import Status
from actors.moves import Again, CancelCalls
from actors.transcript import ResultRecord, ResultStatus
from actors.usage import NOTHING, Amounts, Usage
from tests.actors.compactkit import at_the_model, summary
from tests.actors.turnkit import HELD, SPENT, USAGE, Drive, call, exhausted, message, row, spec, steer


def ran_out(on_exhausted: str = "wrap_up", dimension: str = "tokens") -> Drive:
    """A turn that has results, and whose second request the budget refuses."""
    drive = Drive().start()
    drive.reply("so far", call("look"))
    drive.ends(0)
    drive.look(steer("s", 2))
    drive.give(NotAdmitted(0.0, exhausted(dimension, on_exhausted)))
    return drive


def test_an_exhausted_budget_gets_one_last_answer_without_tools() -> None:
    """The wrap-up is asked under its own admission, told why, and ends as exhausted with its text."""
    drive = ran_out()
    assert drive.made.actions[-1].wrap_up  # type: ignore[union-attr]
    drive.admit()
    drive.look(steer("s", 2))
    assert not drive.offers_tools()
    assert drive.notes("limit") == ["The budget is exhausted (tokens). Sum up what you have now, without tools."]
    drive.reply("sum")
    assert (drive.outcome_told.status, drive.outcome_told.text) == (Status.EXHAUSTED, "sum")
    assert drive.shape == "MRrnMRn"


def test_a_wrap_up_that_is_refused_too_ends_with_the_first_refusal() -> None:
    """There is one wrap-up; its refusal ends the turn, and says what ran out first."""
    drive = ran_out()
    drive.give(NotAdmitted(0.0, exhausted("usd")))
    assert drive.outcome_told.status is Status.EXHAUSTED
    assert "tokens" in drive.notes("failure")[0]


def test_a_wrap_up_that_calls_tools_ends_as_exhausted() -> None:
    """Its calls are refused."""
    drive = ran_out()
    drive.admit()
    drive.look()
    drive.reply(call("look"))
    assert drive.outcome_told.status is Status.EXHAUSTED
    assert drive.results == [ResultStatus.OK, ResultStatus.REFUSED]


@pytest.mark.parametrize(("on_exhausted", "dimension"), [("fail", "tokens"), ("wrap_up", "seconds")])
def test_without_a_wrap_up_exhaustion_ends_the_turn(on_exhausted: str, dimension: str) -> None:
    """`fail`, and time that is gone, end it at once; what was settled is kept."""
    drive = ran_out(on_exhausted, dimension)
    assert drive.outcome_told.status is Status.EXHAUSTED
    assert drive.shape == "MRrMn"


def test_park_keeps_the_turn_open_for_a_grant() -> None:
    """What is settled becomes durable, the mail stays queued, the row says that it is suspended and owes."""
    drive = ran_out("park")
    assert drive.over.suspended == "budget"
    assert drive.outcome_told.status is Status.PARKED
    assert (drive.written.suspended, drive.written.owes) == ("budget", True)
    assert drive.written.open is not None
    assert drive.shape == "MRr"
    assert drive.told(TurnEnded) == []


def test_park_at_the_first_request_is_durable_too() -> None:
    """A turn that could not make its first request is parked with its message still queued."""
    drive = Drive()
    drive.begin(message("m"))
    drive.give(NotAdmitted(0.0, exhausted(on_exhausted="park")))
    assert drive.written.suspended == "budget"
    assert drive.shape == ""


def test_a_request_whose_budget_ends_meanwhile_is_exhausted() -> None:
    """`Exhausted` between attempts is told as such, and as a limit."""
    drive = Drive().start()
    drive.give(Failed(0.0, exhausted()))
    assert drive.outcome_told.status is Status.EXHAUSTED
    assert [told["note"] for told in drive.told(NoteWritten)] == ["limit"]


def test_a_request_whose_budget_ends_meanwhile_parks_where_it_says_so() -> None:
    """Between attempts, or with its time: the turn stays open, and its message in the conversation."""
    drive = Drive().start()
    drive.give(Failed(0.0, exhausted("seconds", "park")))
    assert (drive.over.suspended, drive.outcome_told.status) == ("budget", Status.PARKED)
    assert (drive.written.suspended, drive.written.owes) == ("budget", True)
    assert [told["error"].split(":")[0] for told in drive.told(RequestFailed)] == ["exhausted"]
    assert drive.shape == "M"


TWO = (call("look", '{"at": "a"}'), call("look", '{"at": "b"}'))


def short(on_exhausted: str = "wrap_up") -> Drive:
    """A turn of whose two calls the budget granted one, which has returned; a message came meanwhile."""
    drive = Drive().start()
    drive.reply("so far", *TWO, granted=1, short=exhausted("tool_calls", on_exhausted))
    drive.ends(0)
    drive.look(steer("s", 2))
    return drive


def test_calls_that_the_budget_refused_are_followed_by_one_last_answer() -> None:
    """At the next boundary, with what has come until then."""
    drive = short()
    assert drive.results == []
    drive.admit()
    drive.look(steer("s", 2))
    assert drive.results == [ResultStatus.OK, ResultStatus.REFUSED]
    assert not drive.offers_tools()
    assert drive.notes("limit") == ["The budget is exhausted (tool_calls). Sum up what you have now, without tools."]
    drive.reply("sum")
    assert (drive.outcome_told.status, drive.outcome_told.text) == (Status.EXHAUSTED, "sum")


def test_calls_that_the_budget_refused_are_summed_up_behind_a_compaction_too() -> None:
    """Said once: the boundary behind the compaction goes on to the last answer."""
    drive = Drive().start()
    drive.reply("so far", *TWO, granted=1, short=exhausted("tool_calls"))
    drive.give(CompactAsked(drive.now))
    drive.ends(0)
    drive.look(steer("s", 2))
    at_the_model(drive)
    summary(drive)
    drive.ask(steer("s", 2))
    assert not drive.offers_tools()
    drive.reply("sum")
    assert (drive.outcome_told.status, drive.outcome_told.text) == (Status.EXHAUSTED, "sum")


@pytest.mark.parametrize(("how", "status", "shape"), [("fail", "exhausted", "MRrrMn"), ("park", "parked", "MRrr")])
def test_calls_that_the_budget_refused_fail_or_park_the_turn(how: str, status: str, shape: str) -> None:
    """Their results are in the conversation; parked, what came meanwhile waits."""
    drive = short(how)
    assert (drive.outcome_told.status, drive.shape) == (status, shape)


def test_a_budget_that_had_nothing_to_refuse_changes_nothing() -> None:
    """A call that could not be run took nothing of it."""
    drive = Drive().start()
    drive.reply(call("look"), call("fly"), granted=1, short=exhausted("tool_calls", "fail"))
    drive.ends(0)
    drive.ask()
    assert drive.offers_tools()


@pytest.mark.parametrize(("how", "status", "shape"), [("wrap_up", "exhausted", "MRrn"), ("park", "parked", "MRr")])
def test_a_turn_is_cut_when_the_seconds_of_its_budget_are_used_up(how: str, status: str, shape: str) -> None:
    """There is no time for a last response; a call that ran is told as timed out, and by what."""
    drive = Drive().start()
    drive.reply(call("look"))
    drive.give(Cut(drive.now, late=exhausted("seconds", how)))
    assert drive.all(CancelCalls)
    drive.give(drive.last(Again).event)
    assert (drive.outcome_told.status, drive.shape) == (status, shape)
    assert drive.results == [ResultStatus.TIMEOUT]
    (result,) = [record for record in drive.records if isinstance(record, ResultRecord)]
    assert text_of(result.content) == "The time of the budget was used up while this call was running."


def test_a_turn_that_has_taken_nothing_yet_is_parked_with_its_message_queued() -> None:
    """The store knows that it owes work, and that only a grant lets it go on."""
    drive = Drive(spec(Point.BEFORE_TURN))
    drive.give(Begin(drive.now))
    drive.give(Cut(drive.now, late=exhausted("seconds", "park")))
    assert (drive.written.suspended, drive.written.owes, drive.shape) == ("budget", True, "")


def test_what_a_request_cost_is_in_the_row_and_nothing_is_held_any_more() -> None:
    """Totals and the run's share grow by what was fed in; the reservation is gone with the response."""
    before = row(usage=Usage(fresh=1), spent=Amounts(cost=1))
    drive = Drive(row_=before).start()
    drive.reply(call("look"))
    assert drive.written.usage == Usage(fresh=1) + USAGE
    assert drive.written.spent == Amounts(cost=1) + SPENT + Amounts(tool_calls=1)
    assert drive.written.run_usage == USAGE
    assert drive.written.run_spent == SPENT + Amounts(tool_calls=1)
    assert drive.written.cost_known
    assert drive.written.open is not None
    assert (drive.written.open.asking, drive.written.open.held) == (False, NOTHING)


def test_a_response_without_a_price_makes_the_cost_unknown_for_good() -> None:
    """Once unknown, it stays so."""
    drive = Drive().start()
    drive.reply(call("look"), cost=None)
    drive.ends(0)
    drive.ask()
    drive.reply("yes")
    drive.look()
    assert not drive.written.cost_known
    assert not drive.outcome_told.cost_known


def test_active_seconds_are_counted_once_and_never_backwards() -> None:
    """Each commit adds the time since the last; a clock that jumps back adds nothing."""
    drive = Drive()
    drive.now = 10.0
    drive.start()
    drive.now = 12.5
    drive.reply(call("look"))
    assert drive.written.spent.active_us == 2_500_000
    drive.now = 11.0
    drive.ends(0)
    drive.ask()
    assert drive.written.spent.active_us == 2_500_000
    drive.now = 13.0
    drive.reply("yes")
    drive.look()
    assert drive.written.spent.active_us == 3_000_000
    assert drive.written.run_spent.active_us == 3_000_000


def test_what_is_held_is_written_only_with_the_request_that_holds_it() -> None:
    """A ticket given back leaves nothing that recovery would charge."""
    drive = Drive().start()
    drive.reply(call("look"))
    drive.ends(0)
    drive.look()
    drive.admit_later()
    drive.suspend()
    drive.look()
    assert drive.over.suspended == "leaving"
    assert drive.written.open is not None
    assert drive.written.open.held == NOTHING
    assert HELD != NOTHING
