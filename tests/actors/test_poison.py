"""A turn that crashed again and again: when it goes on, is taken apart, or is given up for good (CON-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.callview import CallView
from actors.changes import CallRow, CallState, Enqueue, Erase, Move, OutcomeRow
from actors.content import Text
from actors.evolve import evolve
from actors.happenings import NoteWritten, TurnEnded
from actors.ids import CallId, MessageId, TurnId
from actors.inputs import Begin
from actors.messages import ReceiptState, Status
from actors.moves import Look, Over
from actors.poison import last_try
from actors.transcript import CallBlock, MessageRecord, NoteRecord, ResponseRecord, ResultRecord, ResultStatus, Stop
from actors.usage import NOTHING
from tests.actors.turnkit import HELD, TOOLS, Drive, message, open_row, row, spec

if TYPE_CHECKING:
    from actors.changes import AgentRow

TURN = TurnId("lead:t1")
ONE, TWO = MessageId("one"), MessageId("two")
CONSUMED, QUEUED, DEAD = ReceiptState.CONSUMED, ReceiptState.QUEUED, ReceiptState.DEAD


def found(tries: int, *consumed: MessageId, crashed: bool = True, **fields: Any) -> Drive:
    """A turn found open that had crashed so often, and consumed these."""
    limits = fields.pop("limits", {})
    reports_to = fields.pop("reports_to", None)
    row_ = open_row(tries=tries, consumed=consumed, asking=True, held=HELD, **fields)
    drive = Drive(
        spec(reports_to=reports_to, **limits), row_, [MessageRecord(TURN, id_, (Text(id_),)) for id_ in consumed]
    )
    drive.give(Begin(100.0, owed=True, crashed=crashed, unwritten=HELD))
    return drive


def moves(drive: Drive) -> list[Move]:
    """What the last commit moves."""
    return [operation for operation in drive.made.commit if isinstance(operation, Move)]


def stands(drive: Drive) -> AgentRow:
    """The row as it stands."""
    return drive.state.row


@pytest.mark.parametrize(("tries", "limit"), [(0, 3), (1, 3), (0, 2), (3, 5)])
def test_con_6_core_below_the_limit_a_turn_goes_on(tries: int, limit: int) -> None:
    """Its crash is counted in the commit that stands before all work; what it had reserved is charged."""
    drive = found(tries, ONE, limits={"poison_limit": limit})
    assert moves(drive) == []
    assert drive.written.open is not None
    assert drive.written.open.tries == tries + 1
    assert drive.all(Look)


@pytest.mark.parametrize(("tries", "limit"), [(2, 3), (7, 3), (0, 1), (4, 5)])
@pytest.mark.parametrize("consumed", [(ONE,), (ONE, TWO), ()])
def test_con_6_core_at_the_limit_its_messages_are_dead(tries: int, limit: int, consumed: tuple[MessageId, ...]) -> None:
    """One commit: the letters are dead with the reason, the turn is failed with a note, and nothing is open."""
    drive = found(tries, *consumed, limits={"poison_limit": limit})
    expected = [Move(drive.state.row.agent, (CONSUMED,), DEAD, consumed, moves(drive)[0].reason)] if consumed else []
    assert moves(drive) == expected
    assert all("poison" in str(move.reason) and f"{tries + 1} times" in str(move.reason) for move in expected)
    assert (drive.written.open, drive.written.owes) == (None, False)
    assert drive.written.spent.model_calls == HELD.model_calls
    (outcome,) = drive.wrote(OutcomeRow)
    assert outcome.outcome.status is Status.FAILED
    assert outcome.outcome.failure is not None
    assert outcome.outcome.failure.kind == "crashed"
    note = drive.records[-1]
    assert isinstance(note, NoteRecord)
    assert note.kind == "failure"
    assert len(drive.told(NoteWritten)) == len(drive.told(TurnEnded)) == 1
    drive.check()


def test_con_6_core_a_background_child_reports_that_it_was_given_up() -> None:
    """The parent is told in the same commit, on the reserved place."""
    drive = found(2, ONE, reports_to="boss")
    (report,) = [operation for operation in drive.made.commit if isinstance(operation, Enqueue)]
    assert report.envelope.reserved
    assert "crashed 3 times" in str(report.envelope.content)


def test_con_6_core_several_messages_are_taken_apart_for_their_last_try() -> None:
    """They wait again, marked; the turn is over without an answer to any of them, and reports nothing."""
    drive = found(1, ONE, TWO, reports_to="boss")
    (move,) = moves(drive)
    assert (move.frm, move.to, move.messages) == ((CONSUMED,), QUEUED, (ONE, TWO))
    assert drive.written.singly == (ONE, TWO)
    assert (drive.written.open, drive.written.owes) == (None, False)
    assert drive.over == Over()
    assert not [operation for operation in drive.made.commit if isinstance(operation, Enqueue)]
    assert len(drive.wrote(OutcomeRow)) == len(drive.told(TurnEnded)) == 1
    drive.check()


def test_con_6_core_a_message_on_its_last_try_makes_its_turn_one_of_a_last_try() -> None:
    """The claim counts as all tries but one, and takes the message from the list."""
    drive = Drive(spec(), evolve(row(), singly=(ONE, TWO)))
    drive.start(message("one"))
    assert drive.written.singly == (TWO,)
    assert drive.written.open is not None
    assert drive.written.open.tries == 2
    assert last_try(drive.written, 3)
    other = Drive(spec(), evolve(row(), singly=(TWO,)))
    other.start(message("one"))
    assert other.written.open is not None
    assert (other.written.singly, other.written.open.tries) == ((TWO,), 0)


@pytest.mark.parametrize(
    ("tries", "limit", "last"), [(0, 3, False), (1, 3, False), (2, 3, True), (1, 2, True), (0, 1, False), (0, 2, False)]
)
def test_con_6_core_which_try_is_the_last(tries: int, limit: int, last: bool) -> None:  # noqa: FBT001 - a table
    """The one after which the turn is given up; a first try is none, whatever the limit."""
    assert last_try(open_row(tries=tries), limit) is last
    assert not last_try(row(), limit)


@pytest.mark.parametrize("how", ["left", "suspended", "here"])
def test_con_6_core_what_was_left_in_order_is_no_crash(how: str) -> None:
    """Left at a commit, parked, or suspended by this very process: going on with it counts nothing."""
    row_ = open_row(tries=2, consumed=(ONE,), left=how == "left")
    row_ = evolve(row_, suspended="budget" if how == "suspended" else None)
    drive = Drive(spec(), row_, [MessageRecord(TURN, ONE, (Text("one"),))])
    drive.give(Begin(100.0, owed=True, crashed=how != "here"))
    assert moves(drive) == []
    assert drive.written.open is not None
    assert (drive.written.open.tries, drive.written.open.left) == (2, False)


def test_con_6_core_every_open_call_of_a_turn_that_is_given_up_has_a_result() -> None:
    """Settled ones keep theirs, started ones may have had effect, the rest is skipped; an unknown end keeps its row."""
    states = [
        ("look", CallState.SETTLED),
        ("write", CallState.STARTED),
        ("look", CallState.STARTED),
        ("write", CallState.PLANNED),
    ]
    calls = []
    for index, (name, state) in enumerate(states):
        block = CallBlock(CallId(f"{TURN}.1.{index}"), f"w{index}", name, "{}")
        kept = ResultRecord(TURN, block.id, block.wire_id, name, ResultStatus.OK, (Text("kept"),))
        calls.append(CallView(block, state, TOOLS[name], {}, result=kept if state is CallState.SETTLED else None))
    response = ResponseRecord(TURN, tuple(call.block for call in calls), Stop.TOOL_CALLS, "x")
    drive = Drive(spec(), open_row(tries=2, consumed=(ONE,)), [MessageRecord(TURN, ONE, (Text("one"),)), response])
    drive.give(Begin(100.0, tuple(calls), crashed=True))
    assert [r.status.value for r in drive.records if isinstance(r, ResultRecord)] == [
        "ok",
        "unknown",
        "aborted",
        "skipped",
    ]
    erased = [operation.prefix[0] for operation in drive.made.commit if isinstance(operation, Erase)]
    assert erased == [calls[0].block.id, calls[2].block.id, calls[3].block.id]
    (unknown,) = drive.wrote(CallRow)
    assert (unknown.call, unknown.state) == (calls[1].block.id, CallState.UNKNOWN)
    assert stands(drive).open is None
    assert stands(drive).spent.model_calls == NOTHING.model_calls
    drive.check()
