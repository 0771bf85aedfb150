"""The bounds of time and of circles, in the turn's core (TRN-7)."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors import bounds
from actors.evolve import evolve
from actors.hooked import Point
from actors.inputs import Begin, Cut, HookReturned, Phase
from actors.messages import Status
from actors.moves import Again, CancelCalls, CutStream, Look, TurnState
from actors.transcript import ResultStatus
from actors.usage import MICROSECONDS, NOTHING, Amounts
from tests.actors.turnkit import Drive, call, message, open_row, row, spec


def late(drive: Drive) -> None:
    """The time of the turn is up."""
    drive.give(Cut(drive.now, late=bounds.late(drive.state)))


def limit_told(drive: Drive) -> bool:
    """Whether those who wait are told that the turn took too long."""
    told = drive.outcome_told
    assert told.status is Status.FAILED
    assert told.failure is not None
    return "took longer than 50.0 s" in told.failure.message


@pytest.mark.parametrize("phase", [Phase.HOOK, Phase.LOOKING, Phase.ADMITTING])
def test_trn_7_core_a_turn_that_took_nothing_takes_what_it_would_have_answered(phase: Phase) -> None:
    """It looks once more, at all lanes, and fails with what it finds; with nothing there it is over at once."""
    drive = Drive(spec(Point.BEFORE_TURN, turn_s=50.0))
    drive.give(Begin(drive.now))
    if phase is not Phase.HOOK:
        drive.give(HookReturned(drive.now))
    if phase is Phase.ADMITTING:
        drive.look(message("m"))
    assert drive.phase is phase
    late(drive)
    assert drive.last(Look).sends
    drive.look(message("m"))
    assert limit_told(drive)
    assert drive.shape == "Mn"
    drive.check()


def test_trn_7_core_what_is_under_way_is_cut_when_the_time_is_up() -> None:
    """The stream; or the calls: those that run time out, those that had not begun are skipped, what came is kept."""
    drive = Drive(spec(turn_s=50.0, parallel_calls=2)).start()
    late(drive)
    assert drive.all(CutStream)
    assert limit_told(drive)
    drive = Drive(spec(turn_s=50.0, parallel_calls=2)).start()
    drive.reply(call("look"), call("write", '{"path": "b"}'), call("put", '{"key": "e"}'))
    drive.give(Cut(drive.now, late=bounds.late(drive.state), outcomes=(drive.outcome(0),)))
    assert drive.last(CancelCalls).calls == ("lead:t1.1.1",)
    drive.give(drive.last(Again).event)
    assert drive.results == [ResultStatus.OK, ResultStatus.TIMEOUT, ResultStatus.SKIPPED]
    assert limit_told(drive)
    drive.check()


def test_trn_7_core_at_a_boundary_the_time_is_looked_at() -> None:
    """In the last tenth the next request offers no tools; behind it there is none."""
    for now, toolless in ((144.0, False), (146.0, True)):
        drive = Drive(spec(turn_s=50.0)).start()
        drive.reply(call("look"))
        drive.now = now
        drive.ends(0)
        drive.ask()
        assert drive.asked.toolless is toolless
    drive = Drive(spec(turn_s=50.0)).start()
    drive.reply(call("look"))
    drive.now = 151.0
    drive.ends(0)
    drive.look()
    assert limit_told(drive)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 1_000), st.integers(-5, 1_000))
def test_trn_7_core_what_is_left_is_the_time_but_for_what_was_active(
    before: int, spent: int, since: int, passed: int
) -> None:
    """The agent's earlier turns do not count, this one's before a restart do; a clock that jumps back gives nothing."""
    opened = open_row(began_us=before)
    state = TurnState(
        spec(turn_s=2_000.0), evolve(opened, spent=NOTHING + Amounts(active_us=before + spent)), 0, since=float(since)
    )
    left = bounds.left_s(state, float(since + passed))
    assert left == pytest.approx(2_000 - spent / MICROSECONDS - max(passed, 0))
    assert bounds.left_s(TurnState(spec(turn_s=None), opened, 0), 5.0) is None


def test_trn_7_core_a_turn_of_which_nobody_knows_when_it_began_has_its_whole_time() -> None:
    """One that an earlier version left open, or that has not begun."""
    for one in (open_row(), row()):
        found = evolve(one, spent=Amounts(active_us=10**10))
        assert bounds.left_s(TurnState(spec(turn_s=50.0), found, 0, since=3.0), 5.0) == 48.0


def test_trn_7_core_a_circle_is_told_beside_what_else_is_said_behind_the_batch() -> None:
    """A call id used twice and a circle in one batch: the model reads of both."""
    drive = Drive(spec(repeated_cycles=2)).start()
    for _ in range(2):
        drive.reply(call("look", wire="same"), call("look", '{"at": "b"}', wire="same"))
        drive.ends(0)
        drive.ask()
    (note,) = drive.notes("limit")
    assert "used more than once" in note
    assert "2 times in a row" in note
    assert len(drive.notes("notice")) == 1
