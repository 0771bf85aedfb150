"""A turn at its boundaries: opening, the look at the mailbox, admission."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.changes import Claim, OutcomeRow
from actors.errors import InternalError, Unavailable, UsageError
from actors.evolve import evolve
from actors.happenings import TurnEnded, TurnStarted
from actors.hooked import Point
from actors.inputs import (
    Admitted,
    Begin,
    CallsReturned,
    CommitFailed,
    Cut,
    Decided,
    Failed,
    HookReturned,
    Looked,
    MustWait,
    NotAdmitted,
    Phase,
    Responded,
    SuspendAsked,
)
from actors.messages import Status
from actors.moves import Abandon, Admit, Look
from actors.transcript import MessageRecord, record_bytes
from actors.turn import step
from actors.usage import NOTHING, Amounts
from tests.actors.turnkit import (
    HELD,
    SPENT,
    TOOLS,
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

if TYPE_CHECKING:
    from actors.inputs import Input


INPUTS: tuple[Input, ...] = (
    Begin(0.0),
    HookReturned(0.0),
    Looked(0.0, (), TOOLS),
    Admitted(0.0, "t", HELD),
    MustWait(0.0),
    NotAdmitted(0.0, exhausted()),
    Responded(0.0, served("x"), SPENT),
    Failed(0.0, exhausted()),
    CallsReturned(0.0, ()),
    Decided(0.0, ()),
    Cut(0.0, reason="x"),
    SuspendAsked(0.0),
    CommitFailed(0.0, Unavailable("x")),
)


ANYWHERE = (Decided, Cut, SuspendAsked, CommitFailed)


def in_phase(phase: Phase) -> Drive:
    """A turn that has come to a phase."""
    drive = Drive(spec(Point.BEFORE_RUN) if phase is Phase.HOOK else None)
    if phase is not Phase.OPENING:
        drive.give(Begin(drive.now))
    if phase in {Phase.ADMITTING, Phase.ASKING, Phase.RUNNING}:
        drive.look(message("m"))
    if phase in {Phase.ASKING, Phase.RUNNING}:
        drive.admit()
        drive.look(message("m"))
    if phase is Phase.RUNNING:
        drive.reply(call("look"))
    if phase is Phase.OVER:
        drive.look()
    assert drive.phase is phase
    return drive


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.COMPACTING])
def test_an_input_without_a_place_is_refused_and_leaves_the_state(phase: Phase) -> None:
    """In each phase exactly the inputs that something was asked for are taken."""
    taken = {
        Phase.OPENING: {Begin, CommitFailed},
        Phase.HOOK: {HookReturned, *ANYWHERE},
        Phase.LOOKING: {Looked, *ANYWHERE},
        Phase.ADMITTING: {Admitted, MustWait, NotAdmitted, *ANYWHERE},
        Phase.ASKING: {Responded, Failed, *ANYWHERE},
        Phase.RUNNING: {CallsReturned, *ANYWHERE},
        Phase.OVER: set(),
    }[phase]
    state = in_phase(phase).state
    before = evolve(state)
    for event in INPUTS:
        if type(event) in taken:
            step(state, event)
        else:
            with pytest.raises(InternalError, match=f"{type(event).__name__} has no place"):
                step(state, event)
        assert state == before  # a step changes nothing in place


def test_a_new_run_counts_run_and_turn_and_writes_nothing_yet() -> None:
    """A turn begins without a commit: the claim's commit is its first."""
    drive = Drive(row_=row(turns=4, runs=2, run_spent=Amounts(cost=5)))
    made = drive.give(Begin(100.0))
    assert made.commit == ()
    assert drive.last(Look).sends
    drive.ask(message("m"))
    assert (drive.written.turns, drive.written.runs) == (5, 3)
    assert drive.written.run_spent == NOTHING
    assert drive.written.open is not None
    assert (drive.written.open.number, drive.written.open.run) == (5, 3)


def test_a_later_turn_of_a_run_goes_on_counting_in_it() -> None:
    """The second turn of a run has its run's number, and adds to what the run spent."""
    drive = Drive(row_=row(turns=4, runs=2, run_spent=Amounts(cost=5)), new_run=False)
    drive.start()
    assert (drive.written.turns, drive.written.runs) == (5, 2)
    assert drive.written.run_spent.cost == 5
    assert Drive(new_run=False).start().written.runs == 1


def test_trn_4_a_turn_that_finds_nothing_ends_like_any_other() -> None:
    """No message, nothing owed: it was told that it began, so it is told that it ended, and its outcome is stored."""
    drive = Drive()
    drive.begin()
    assert drive.outcome_told.status is Status.ABORTED
    assert "nothing left to answer" in str(drive.outcome_told.failure)
    assert not drive.outcome_told.cut
    assert len(drive.told(TurnEnded)) == 1
    assert len(drive.commits) == 1
    assert (drive.written.open, drive.written.owes, drive.written.turns) == (None, False, 1)


@pytest.mark.parametrize("suspended", [None, "budget"])
def test_con_5_a_turn_that_the_store_has_open_but_that_finds_nothing_is_closed_there(suspended: str | None) -> None:
    """Else the store would owe it for ever: it would be found, opened and left again without end."""
    drive = Drive(row_=evolve(open_row(step=0), suspended=suspended))
    drive.give(Begin(0.0))
    drive.look()
    assert drive.outcome_told.status is Status.ABORTED
    assert drive.written.open is None
    assert not drive.written.owes
    assert drive.written == drive.state.row


def test_con_1_core_sends_enter_only_when_nothing_is_owed() -> None:
    """After a batch and after an answer the send lane is not asked for; at the start it is."""
    drive = Drive()
    drive.give(Begin(0.0))
    assert drive.last(Look).sends
    drive.ask(message("m"))
    drive.reply(call("look"))
    drive.ends(0)
    assert not drive.last(Look).sends
    drive.ask()
    drive.reply("answer")
    assert not drive.last(Look).sends


def test_con_1_core_a_steer_enters_before_the_next_request() -> None:
    """A steer stands behind the batch's results and before the next response."""
    drive = Drive().start()
    drive.reply(call("look"))
    drive.ends(0)
    drive.ask(steer("s", 2))
    drive.reply("done")
    drive.look()
    assert drive.shape == "MRrMR"
    told = drive.records[3]
    assert isinstance(told, MessageRecord)
    assert told.steer
    drive.check()


def test_con_1_core_a_steer_that_comes_with_the_answer_is_answered_too() -> None:
    """The turn goes on: the first answer stays in the conversation, the last one is the report."""
    drive = Drive().start()
    drive.reply("first")
    drive.ask(steer("s", 2))
    assert drive.state.answer is None
    drive.reply("second")
    drive.look()
    assert drive.shape == "MRMR"
    assert drive.outcome_told.text == "second"


def test_the_estimate_counts_what_the_request_will_add() -> None:
    """Mail and results that are not committed yet are part of the next request."""
    drive = Drive()
    first = message("m" * 1000)
    drive.begin(first)
    assert drive.last(Admit).extra_bytes == first.envelope.size_bytes
    drive.admit()
    drive.look(first)
    drive.reply(call("look"))
    drive.ends(0)
    drive.look(steer("s", 2))
    waiting = sum(record_bytes(record) for record in drive.state.pending)
    assert waiting > 0
    assert drive.last(Admit).extra_bytes == waiting + steer("s").envelope.size_bytes


def test_where_there_is_no_place_results_become_durable_before_the_wait() -> None:
    """The batch's results are committed while the turn waits for the model; the mail stays in the mailbox."""
    drive = Drive().start()
    drive.reply(call("look"))
    drive.ends(0)
    drive.look(steer("s", 2))
    made = drive.give(MustWait(0.0))
    assert drive.shape == "MRr"
    assert drive.wrote(Claim) == []
    assert drive.last(Admit) == Admit(steer("s").envelope.size_bytes, wait=True)
    assert made.state.mail == ()
    drive.admit()
    drive.look(steer("s", 2), steer("late", 3))
    assert drive.asked.step == 2
    assert drive.shape == "MRrMM"


def test_a_wait_with_nothing_to_write_writes_nothing() -> None:
    """The first request's wait costs no commit."""
    drive = Drive()
    drive.begin(message("m"))
    assert drive.give(MustWait(0.0)).commit == ()
    assert drive.phase is Phase.ADMITTING


def test_a_message_withdrawn_while_waiting_gives_the_ticket_back() -> None:
    """Nothing is left to answer: the ticket is abandoned, and the turn ends."""
    drive = Drive()
    drive.begin(message("m"))
    drive.give(MustWait(0.0))
    drive.admit("t")
    drive.look()
    assert drive.last(Abandon).ticket == "t"
    assert drive.outcome_told.status is Status.ABORTED


@pytest.mark.parametrize("wait", [False, True])
def test_a_refused_request_answers_its_message(wait: bool) -> None:  # noqa: FBT001
    """What the budget refuses at the first request ends the turn as exhausted, and the message is answered by it."""
    drive = Drive()
    drive.begin(message("m"))
    if wait:
        drive.give(MustWait(0.0))
    drive.give(NotAdmitted(0.0, exhausted()))
    if wait:
        drive.look(message("m"))
    assert drive.outcome_told.status is Status.EXHAUSTED
    assert drive.shape == "Mn"
    assert len(drive.told(TurnEnded)) == 1


def test_a_refusal_that_is_no_budget_fails_the_turn() -> None:
    """A model without a price, a chain without a model: FAILED with that error, whatever exhaustion would do."""
    drive = Drive()
    drive.begin(message("m"))
    drive.give(NotAdmitted(0.0, UsageError("no price")))
    assert drive.outcome_told.status is Status.FAILED
    assert drive.outcome_told.failure is not None
    assert drive.outcome_told.failure.kind == "usage"


def test_a_turn_tells_one_start_and_one_end() -> None:
    """TurnStarted, and TurnEnded with the outcome that the commit wrote (TRN-4)."""
    drive = Drive().start()
    drive.reply("yes")
    drive.look()
    assert len(drive.told(TurnStarted)) == 1
    (ended,) = drive.told(TurnEnded)
    (stored,) = drive.wrote(OutcomeRow)
    assert ended["outcome"] == stored.outcome == drive.outcome_told
