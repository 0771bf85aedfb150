"""Hooks of a turn: where they are called, and what a failing one leaves behind."""

from __future__ import annotations

import pytest

from actors.changes import Claim
from actors.content import Text
from actors.errors import Exhausted, Rejected, Unavailable, UsageError
from actors.happenings import ResponseEnded
from actors.hooked import Point
from actors.ids import MessageId, TurnId
from actors.inputs import Begin, HookReturned, Looked, Phase
from actors.messages import Queued, Selection, Status
from actors.moves import Abandon, CallHook, Look
from actors.preparing import shown
from actors.selection import Choice
from actors.tools import toolbox
from actors.transcript import MessageRecord, NoteRecord, ResponseRecord, ResultStatus, Stop
from tests.actors.turnkit import (
    USAGE,
    Drive,
    call,
    look,
    message,
    row,
    spec,
    steer,
)


def test_hooks_are_called_in_their_order_where_the_agent_has_them() -> None:
    """Each point comes in its place, and those without a hook are passed over."""
    drive = Drive(spec(Point.BEFORE_RUN, Point.BEFORE_TURN, Point.PREPARE, Point.BEFORE_REQUEST))
    seen = []
    drive.give(Begin(0.0))
    while drive.all(CallHook):
        seen.append(drive.last(CallHook).point)
        drive.give(HookReturned(0.0))
    drive.look(message("m"))
    while drive.all(CallHook):
        seen.append(drive.last(CallHook).point)
        drive.give(HookReturned(0.0))
    assert seen == [Point.BEFORE_RUN, Point.BEFORE_TURN, Point.PREPARE, Point.BEFORE_REQUEST]
    assert drive.phase is Phase.ADMITTING


def test_a_later_turn_has_no_before_run_hook() -> None:
    """`before_run` belongs to the first turn of a run."""
    drive = Drive(spec(Point.BEFORE_RUN, Point.BEFORE_TURN), new_run=False)
    drive.give(Begin(0.0))
    assert drive.last(CallHook).point is Point.BEFORE_TURN


def test_the_tools_that_a_hook_chose_are_those_of_the_request() -> None:
    """What `tools` chose stands for this request, also past the second look at the mailbox."""
    drive = Drive(spec(Point.PREPARE))
    drive.begin(message("m"))
    drive.give(HookReturned(0.0, toolbox=toolbox([look])))
    drive.admit()
    drive.look(message("m"))
    drive.reply(call("deploy"))
    assert drive.state.pending[-1].content[0].text == "There is no tool 'deploy'. Tools: look."  # type: ignore[union-attr]


def test_a_hook_that_decides_fails_the_turn_with_the_message_it_was_for() -> None:
    """The failing hook's turn answers its message: FAILED, and the message is not there again for the next turn."""
    drive = Drive(spec(Point.PREPARE))
    drive.begin(message("m"))
    drive.give(HookReturned(0.0, UsageError("no such prompt")))
    assert drive.outcome_told.status is Status.FAILED
    assert [claim.messages for claim in drive.wrote(Claim)] == [("m",)]
    assert drive.shape == "Mn"


def test_a_hook_that_fails_before_anything_is_taken_takes_it_first() -> None:
    """A failing `before_run` guard answers a message, so that it does not fail in turn after turn without end."""
    drive = Drive(spec(Point.BEFORE_RUN))
    drive.give(Begin(0.0))
    drive.give(HookReturned(0.0, UsageError("no")))
    assert drive.last(Look).sends
    drive.look(message("m"))
    assert drive.outcome_told.status is Status.FAILED
    assert drive.notes("failure") == ["The turn ended early: no"]
    assert drive.shape == "Mn"


def test_a_hook_that_fails_with_nothing_to_take_ends_the_turn() -> None:
    """Where the message was withdrawn meanwhile, the model is told nothing; whoever watches hears of the end."""
    drive = Drive(spec(Point.BEFORE_RUN))
    drive.give(Begin(0.0))
    drive.give(HookReturned(0.0, UsageError("no")))
    drive.look()
    assert drive.outcome_told.status is Status.ABORTED
    assert drive.notes("failure") == []


def test_a_hook_that_fails_while_an_answer_is_owed_fails_at_once() -> None:
    """A later `prepare` hook's failure keeps the results that are there."""
    drive = Drive(spec(Point.PREPARE))
    drive.begin(message("m"))
    drive.give(HookReturned(0.0))
    drive.admit()
    drive.look(message("m"))
    drive.reply(call("look"))
    drive.ends(0)
    drive.look()
    drive.give(HookReturned(0.0, UsageError("no")))
    assert drive.outcome_told.status is Status.FAILED
    assert drive.shape == "MRrn"
    drive.check()


def test_a_hooks_failure_is_typed() -> None:
    """The outcome keeps the error's kind and facts."""
    drive = Drive(spec(Point.PREPARE))
    drive.begin(message("m"))
    drive.give(HookReturned(0.0, Rejected("bad key", reason="auth")))
    failure = drive.outcome_told.failure
    assert failure is not None
    assert (failure.kind, dict(failure.facts)["reason"]) == ("rejected", "auth")
    assert not isinstance(failure, Exhausted)


def seen() -> Drive:
    """A turn whose response, with a call, an `after_response` hook is looking at."""
    drive = Drive(spec(Point.AFTER_RESPONSE)).start()
    drive.reply("text", call("look"))
    assert drive.last(CallHook).point is Point.AFTER_RESPONSE
    assert drive.state.ticket is None
    return drive


def test_a_response_is_taken_once_its_hook_has_seen_it() -> None:
    """The batch is committed and started after the hook, with what it cost counted once."""
    drive = seen()
    drive.give(HookReturned(100.0))
    assert len(drive.started) == 1
    assert drive.written.usage == USAGE
    assert drive.state.response is None


def test_a_hook_that_refuses_a_response_keeps_it_with_its_calls_skipped() -> None:
    """The turn fails on a valid conversation, and the response is paid for."""
    drive = seen()
    drive.give(HookReturned(100.0, UsageError("not like this")))
    assert drive.outcome_told.status is Status.FAILED
    assert drive.results == [ResultStatus.SKIPPED]
    assert drive.shape == "MRrn"
    assert drive.written.usage == USAGE
    assert len(drive.told(ResponseEnded)) == 1
    drive.check()


def test_an_abort_while_a_hook_looks_at_a_response_keeps_it() -> None:
    """Nothing of it runs, nothing of it is lost, and no ticket is given back that was used."""
    drive = seen()
    drive.cut()
    assert drive.results == [ResultStatus.SKIPPED]
    assert drive.all(Abandon) == []
    assert drive.written.usage == USAGE
    assert len(drive.told(ResponseEnded)) == 1
    drive.check()


def test_a_commit_that_fails_while_a_hook_looks_at_a_response_is_no_claim() -> None:
    """A conflict there is the store's: the mailbox is not looked at with the response forgotten."""
    drive = seen()
    drive.fail(HookReturned(0.0, UsageError("no")), Unavailable("x"))
    assert drive.over.suspended == "store"


def prepared(*mail: Queued) -> Drive:
    """A turn whose `prepare` hook has chosen a request for this mail, and which was let in for it."""
    drive = Drive(spec(Point.PREPARE, Point.BEFORE_REQUEST))
    drive.begin(*mail)
    drive.give(HookReturned(0.0))
    assert drive.last(CallHook).point is Point.BEFORE_REQUEST
    drive.give(HookReturned(0.0))
    drive.admit()
    return drive


def test_trn_1_core_the_hooks_that_choose_see_all_that_the_commit_will_add() -> None:
    """What waits to be committed, and the mail, in the order of the conversation."""
    drive = prepared(message("m"))
    drive.look(message("m"))
    drive.reply(call("look"))
    drive.ends(0)
    drive.look(steer("s"))
    coming = drive.last(CallHook).coming
    assert [type(record).__name__ for record in coming] == ["ResponseRecord", "ResultRecord", "MessageRecord"][
        -len(coming) :
    ]
    drive.give(HookReturned(0.0))
    drive.give(HookReturned(0.0))  # before the next request
    drive.admit()
    drive.look(steer("s"))
    assert drive.made.records == coming


@pytest.mark.parametrize("later", [(), ("m", "n")])
def test_hok_1_core_they_choose_again_where_other_mail_has_come(later: tuple[str, ...]) -> None:
    """What was let in is given back; `before_request` was called for this request already, and is not again."""
    drive = prepared(message("m"))
    mail = [message(name, seq=at) for at, name in enumerate(later, 1)]
    drive.look(*mail)
    if not later:  # nothing is left to answer: the turn is over, and the place is given back
        assert drive.phase is Phase.OVER
        assert drive.all(Abandon)
        return
    assert drive.last(Abandon).ticket == "ticket"
    assert drive.last(Look).sends
    assert drive.state.ticket is None
    drive.look(*mail)
    assert drive.last(CallHook).point is Point.PREPARE
    drive.give(HookReturned(0.0))
    assert drive.phase is Phase.ADMITTING
    drive.admit("another")
    drive.look(*mail)
    assert drive.asked.ticket == "another"


def test_sel_1_core_what_a_choice_adds_is_among_what_the_hooks_see() -> None:
    """A change of model that resets the conversation is shown as it will stand; showing it changes nothing."""
    drive = Drive(spec(Point.PREPARE), row(context=7), [MessageRecord(TurnId("lead:t0"), MessageId("o"), (Text("a"),))])
    drive.give(Begin(0.0))
    choice = Choice(Selection(model="other"), compatible=False, pinned=(), responses=0)
    drive.give(Looked(0.0, (message("m"),), drive.tools, None, choice=choice))
    coming = drive.last(CallHook).coming
    assert [type(record).__name__ for record in coming] == ["SummaryRecord", "MessageRecord"]
    assert (drive.state.row.context, drive.state.pending) == (7, ())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("text", "context returns a list of records"),
        ([1], "context returns a list of records"),
        ([ResponseRecord(TurnId("lead:t1"), (), Stop.END_TURN, "m")], "no provider takes: record 0: an empty response"),
    ],
)
def test_trn_5_core_what_a_context_hook_returns_must_be_a_conversation(given: object, says: str) -> None:
    """No list of records, or one that a provider would refuse, is refused before it is sent."""
    with pytest.raises(UsageError, match=says):
        shown(given)


def test_what_a_context_hook_returns_is_what_is_sent() -> None:
    """Whole, and in its order."""
    records = [NoteRecord(TurnId("lead:t1"), "notice", "a"), NoteRecord(TurnId("lead:t1"), "notice", "b")]
    assert [*shown(records)] == [*shown(tuple(records))] == records
