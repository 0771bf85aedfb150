"""The commit that claims: what it carries, and what becomes of one that fails."""

from __future__ import annotations

import pytest

from actors.changes import Append, Claim, Put
from actors.cutting import CONFLICTS_MAX
from actors.errors import Conflict, Fenced, Unavailable
from actors.happenings import MessageConsumed
from actors.inputs import Admitted, Looked, NotAdmitted, Phase, Responded
from actors.messages import Status
from actors.moves import Abandon, Ask, Look
from actors.transcript import MessageRecord
from tests.actors.turnkit import (
    HELD,
    SPENT,
    TOOLS,
    Drive,
    call,
    exhausted,
    message,
    served,
    steer,
)


def test_con_4_core_claim_record_and_owed_request_are_one_commit() -> None:
    """The step that asks carries all of it, with what the request holds; memory changes after it."""
    drive = Drive()
    drive.begin(message("a"), steer("b", 2))
    assert drive.commits == []
    drive.admit_later()
    before = drive.state
    made = drive.look(message("a"), steer("b", 2))
    assert isinstance(made.actions[-1], Ask)
    append, claim, put = made.commit
    assert isinstance(append, Append)
    assert [record.message for record in append.records if isinstance(record, MessageRecord)] == ["a", "b"]
    assert claim == Claim(drive.state.row.agent, ("a", "b"), "lead:t1")  # type: ignore[arg-type]
    assert isinstance(put, Put)
    opened = drive.written.open
    assert opened is not None
    assert (opened.asking, opened.held, opened.step, opened.consumed) == (True, HELD, 1, ("a", "b"))
    assert drive.written.owes
    assert before.row.open is not None
    assert not before.row.open.asking
    assert before.head == 0
    assert [told["message"] for told in drive.told(MessageConsumed)] == ["a", "b"]
    assert [told["lane"] for told in drive.told(MessageConsumed)] == ["send", "steer"]


def test_con_3_core_a_claim_that_conflicts_is_chosen_again_with_the_same_ticket() -> None:
    """Someone withdrew a message meanwhile: look again; the admission is kept, and nothing is asked."""
    drive = Drive()
    drive.begin(message("a"), message("b", seq=2))
    drive.admit_later("t")
    drive.fail(Looked(0.0, (message("a"), message("b", seq=2)), TOOLS), Conflict("a is withdrawn"))
    assert drive.last(Look).sends
    assert drive.all(Abandon) == []
    drive.look(message("b", seq=2))
    assert drive.asked.ticket == "t"
    assert drive.shape == "M"


def test_claims_that_conflict_without_end_stop_the_turn() -> None:
    """After a bounded number of looks it is the store that is at fault."""
    drive = Drive()
    drive.begin(message("m"))
    drive.admit_later("t")
    for _ in range(CONFLICTS_MAX):
        drive.fail(Looked(0.0, (message("m"),), TOOLS), Conflict("again"))
        assert drive.phase is Phase.LOOKING
    drive.fail(Looked(0.0, (message("m"),), TOOLS), Conflict("again"))
    assert drive.over.suspended == "store"
    assert drive.last(Abandon).ticket == "t"


def test_a_claim_that_works_forgets_earlier_conflicts() -> None:
    """The bound is on conflicts in a row."""
    drive = Drive()
    drive.begin(message("m"))
    drive.admit_later()
    drive.fail(Looked(0.0, (message("m"),), TOOLS), Conflict("again"))
    assert drive.state.conflicts == 1
    drive.look(message("m"))
    assert drive.state.conflicts == 0


def test_a_failing_turn_whose_claim_conflicts_looks_again() -> None:
    """Also the end of a turn claims; a withdrawn message only means that it is not there."""
    drive = Drive()
    drive.begin(message("m"))
    drive.fail(NotAdmitted(0.0, exhausted()), Conflict("withdrawn"))
    assert drive.phase is Phase.LOOKING
    drive.look()
    assert drive.outcome_told.status is Status.ABORTED


@pytest.mark.parametrize(("error", "why"), [(Unavailable("disk full"), "store"), (Fenced("another owner"), "fenced")])
def test_trn_3_core_a_commit_that_fails_stops_the_turn_where_it_was(error: Exception, why: str) -> None:
    """Nothing was written: the turn stays as the store has it, gives its ticket back, and says why."""
    drive = Drive()
    drive.begin(message("m"))
    drive.admit_later("t")
    drive.fail(Looked(0.0, (message("m"),), TOOLS), error)  # type: ignore[arg-type]
    assert drive.over.suspended == why
    assert drive.over.failure is not None
    assert drive.over.outcome is None
    assert drive.last(Abandon).ticket == "t"
    assert drive.all(Ask) == []
    assert drive.records == []


def test_a_conflict_outside_a_claim_is_the_stores() -> None:
    """A batch that conflicts claims nothing: there is nothing to choose again."""
    drive = Drive().start()
    drive.fail(Responded(0.0, served(call("look")), SPENT), Conflict("another wrote"))
    assert drive.over.suspended == "store"
    assert drive.all(Abandon) == []  # the ticket was used by the request


@pytest.mark.parametrize("error", [Conflict("withdrawn"), Unavailable("no disk")])
def test_a_ticket_whose_claim_failed_at_once_is_given_back(error: Conflict | Unavailable) -> None:
    """Admitted and claimed in one step: where that step comes to nothing, the ticket came with it (TURN-3)."""
    drive = Drive()
    drive.begin(message("m"))
    drive.fail(Admitted(drive.now, "ticket", HELD), error)
    assert drive.last(Abandon).ticket == "ticket"
    assert drive.state.ticket is None
    assert drive.phase is (Phase.LOOKING if isinstance(error, Conflict) else Phase.OVER)


def test_con_4_core_an_open_turn_knows_all_that_it_has_taken() -> None:
    """What joined later stands behind what it began with: a turn that is given up gives all of it back (CON-6)."""
    drive = Drive().start()
    drive.reply(call("look"))
    drive.ends(0)
    drive.ask(steer("s", 2))
    assert drive.written.open is not None
    assert drive.written.open.consumed == ("m", "s")
