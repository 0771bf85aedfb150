"""What messages choose: in which commit it holds, what it resets, and what rejects it."""

from __future__ import annotations

from typing import Any

import pytest

from actors.changes import Append, Claim, KvRow, Put
from actors.errors import Conflict, UsageError
from actors.happenings import SelectionChanged, SelectionRejected
from actors.hooked import Point
from actors.ids import MessageId, TurnId
from actors.inputs import Begin, HookReturned, Looked, MustWait, Phase
from actors.messages import Selection
from actors.moves import Abandon, Admit, CallHook, Look
from actors.selection import Choice
from actors.transcript import MessageRecord, SummaryRecord
from tests.actors.turnkit import AGENT, TOOLS, Drive, call, message, row, spec, steer

OTHER = Selection("other")
GOES_ALONG = Choice(OTHER)
RESETS = Choice(OTHER, compatible=False, pinned=(0,), responses=3)


def choosing(drive: Drive, choice: Choice | None, *mail: Any) -> None:
    """Answer `Look` with mail that chooses."""
    drive.give(Looked(drive.now, mail or (message("m"),), TOOLS, choice=choice))


def started(choice: Choice | None, *hooks: Point, **fields: Any) -> Drive:
    """A turn, on a conversation, whose first message chooses."""
    drive = Drive(spec(*hooks), row(turns=1, runs=1, **fields), [MESSAGE, MESSAGE])
    drive.give(Begin(drive.now))
    choosing(drive, choice)
    return drive


MESSAGE = MessageRecord(TurnId("lead:t1"), MessageId("m-0"), ())
STAGED = Put(KvRow(AGENT, "agent", "k", "1"))


def test_sel_1_a_choice_holds_from_its_message_on() -> None:
    """It is admitted for, and stands in the row by the commit that consumes its message, not before (CON-4)."""
    drive = started(GOES_ALONG)
    assert drive.last(Admit).selection == OTHER
    drive.admit_later()
    assert drive.state.row.selection is None
    choosing(drive, GOES_ALONG)
    assert drive.phase is Phase.ASKING
    assert drive.written.selection == OTHER
    assert drive.wrote(Claim)
    (append,) = drive.wrote(Append)
    assert [type(record) for record in append.records] == [MessageRecord], "compatible: the conversation goes along"
    assert drive.told(SelectionChanged) == [{"model": "other", "effort": "", "tier": "", "reset": False}]
    drive.reply(call("look"))
    drive.ends(0)
    drive.look()
    assert drive.last(Admit).selection == OTHER


def test_sel_1_a_choice_of_nothing_is_the_agents_own_again() -> None:
    """What is all empty is not kept in the row."""
    drive = started(Choice(Selection()), selection=OTHER)
    drive.admit_later()
    choosing(drive, Choice(Selection()))
    assert drive.written.selection is None


def test_sel_2_an_incompatible_change_resets_the_conversation_in_the_same_commit() -> None:
    """Behind the reset stand the pinned messages and the message that chose; the size measured before is forgotten."""
    drive = started(RESETS, context=900)
    drive.admit_later()
    choosing(drive, RESETS)
    (append,) = drive.wrote(Append)
    reset, chosen = append.records
    assert isinstance(reset, SummaryRecord)
    assert (reset.upto, reset.pinned, reset.responses, reset.handover, reset.text) == (2, (0,), 3, True, "")
    assert isinstance(chosen, MessageRecord)
    assert (drive.written.summary, drive.written.context, drive.written.selection) == (2, 0, OTHER)
    assert drive.told(SelectionChanged)[0]["reset"]


def test_sel_2_the_hook_writes_the_note_before_and_its_writes_land_with_it() -> None:
    """HOK-3: the note and what the hook staged are in the commit of the change, and in no other."""
    drive = started(RESETS, Point.MODEL_CHANGED)
    assert drive.last(CallHook).point is Point.MODEL_CHANGED
    drive.give(HookReturned(drive.now, note="what matters", staged=(STAGED,)))
    assert drive.made.commit == ()
    choosing(drive, RESETS)
    assert drive.last(Admit).selection == OTHER
    drive.admit_later()
    choosing(drive, RESETS)
    assert STAGED in drive.made.commit
    (append,) = drive.wrote(Append)
    assert isinstance(append.records[0], SummaryRecord)
    assert append.records[0].text == "what matters"


def test_sel_2_a_change_that_goes_along_asks_no_hook() -> None:
    """There is nothing to hand over."""
    assert started(GOES_ALONG, Point.MODEL_CHANGED).all(Admit)


def test_sel_2_the_notes_failure_rejects_the_change_and_keeps_the_history() -> None:
    """The message enters all the same, is answered by the model in force, and the rejection is told."""
    drive = started(RESETS, Point.MODEL_CHANGED)
    drive.give(HookReturned(drive.now, UsageError("no note"), staged=(STAGED,)))
    choosing(drive, RESETS)
    assert drive.last(Admit).selection is None
    drive.admit_later()
    choosing(drive, RESETS)
    assert drive.phase is Phase.ASKING
    assert drive.written.selection is None
    assert drive.written.summary == -1
    assert STAGED not in drive.made.commit
    assert [type(record) for record in drive.wrote(Append)[0].records] == [MessageRecord]
    (told,) = drive.told(SelectionRejected)
    assert "no note" in told["error"]
    assert drive.told(SelectionChanged) == []


def test_sel_2_a_model_that_is_not_known_is_rejected() -> None:
    """No hook is asked about it, nothing changes, and the message is answered."""
    unknown = Choice(OTHER, compatible=False, error=UsageError("no such model"))
    drive = started(unknown, Point.MODEL_CHANGED)
    assert drive.last(Admit).selection is None
    drive.admit_later()
    choosing(drive, Choice(OTHER, compatible=False, error=UsageError("no such model")))
    assert drive.phase is Phase.ASKING
    assert "no such model" in drive.told(SelectionRejected)[0]["error"]


@pytest.mark.parametrize("later", [None, GOES_ALONG])
def test_other_mail_that_came_meanwhile_is_admitted_anew(later: Choice | None) -> None:
    """A ticket for one model is not used for another: a choice withdrawn or added gives it back and looks again."""
    drive = started(GOES_ALONG if later is None else None)
    drive.admit_later("t9")
    choosing(drive, later)
    assert [action.ticket for action in drive.all(Abandon)] == ["t9"]
    assert drive.last(Look).sends
    choosing(drive, later)
    assert drive.last(Admit).selection == (None if later is None else OTHER)
    drive.admit_later()
    choosing(drive, later)
    assert drive.phase is Phase.ASKING
    assert drive.written.selection == (None if later is None else OTHER)


def test_a_choice_waits_for_its_place_with_its_model() -> None:
    """The gate has no place: the same choice is admitted for later, and nothing of it is committed before."""
    drive = started(RESETS)
    drive.give(MustWait(drive.now))
    assert drive.last(Admit).selection == OTHER
    assert drive.made.commit == ()
    drive.admit()
    choosing(drive, RESETS)
    assert drive.written.selection == OTHER


def test_what_a_steer_resets_stands_behind_the_batch_it_came_to() -> None:
    """Results that wait are archived with the rest: the reset stands behind them, the steer behind the reset."""
    drive = Drive().start()
    drive.reply(call("look"))
    drive.ends(0)
    choosing(drive, RESETS, steer("s"))
    drive.admit()
    kinds = [type(record).__name__ for record in drive.wrote(Append)[0].records]
    assert kinds == ["ResultRecord", "SummaryRecord", "MessageRecord"]
    assert drive.written.summary == len(drive.records) - 2


def test_an_empty_conversation_has_nothing_to_reset() -> None:
    """The first message may choose any model."""
    drive = Drive()
    drive.give(Begin(drive.now))
    choosing(drive, RESETS)
    drive.admit_later()
    choosing(drive, RESETS)
    assert drive.written.summary == -1
    assert drive.written.selection == OTHER


def test_a_claim_that_conflicts_keeps_the_choice_for_its_next_try() -> None:
    """Nothing was written, so the choice is not followed yet; the next commit follows it once."""
    drive = started(GOES_ALONG)
    drive.admit_later()
    drive.fail(Looked(drive.now, (message("m"),), TOOLS, choice=GOES_ALONG), Conflict("another"))
    assert drive.state.row.selection is None
    assert drive.told(SelectionChanged) == []
    choosing(drive, GOES_ALONG)
    assert drive.written.selection == OTHER
    assert len(drive.told(SelectionChanged)) == 1


def test_abt_6_a_note_that_an_abort_cut_off_changes_nothing() -> None:
    """Aborted while the hook writes: the message stays queued, the choice is not followed."""
    drive = started(RESETS, Point.MODEL_CHANGED)
    drive.cut("enough")
    assert drive.wrote(Claim) == []
    assert drive.state.row.selection is None
    assert drive.state.choosing is None
