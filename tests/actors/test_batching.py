"""A batch within its turn: bounds, what is told, and how it is over."""

from __future__ import annotations

import pytest

from actors import batch, batching, bounds
from actors.callview import CallView
from actors.changes import CallState, Put
from actors.content import Text, text_of
from actors.evolve import evolve
from actors.happenings import ToolEnded, ToolStarted
from actors.ids import CallId, TurnId
from actors.inputs import Phase
from actors.moves import CALLS_LISTED, Look, StartCall, Tell, TurnState
from actors.transcript import CallBlock, NoteRecord, ResultStatus
from tests.actors.turnkit import open_row, spec

TURN = TurnId("lead:t1")
OK, ERROR = ResultStatus.OK, ResultStatus.ERROR


def view(index: int, name: str = "look", arguments: str = "{}") -> CallView:
    """A planned call."""
    return CallView(CallBlock(CallId(f"{TURN}.1.{index}"), f"w{index}", name, arguments), CallState.PLANNED)


def settled(call: CallView, status: ResultStatus = OK, text: str = "x") -> CallView:
    """The call with a result."""
    return evolve(call, state=CallState.SETTLED, result=batch.result(TURN, call.block, status, text))


def state(**changes: object) -> TurnState:
    """A turn that runs a batch."""
    return evolve(TurnState(spec(calls_per_response=3, identical_failures=2), open_row(), 0), **changes)


def test_bounded_leaves_what_is_settled_and_refuses_by_place_in_the_response() -> None:
    """An invalid call keeps its own reason, and takes its place."""
    calls = (view(0), settled(view(1), ERROR, "why"), view(2), view(3))
    after = bounds.bounded(state(), TURN, calls, None)
    assert after[:3] == calls[:3]
    assert after[3].result is not None
    assert after[3].result.status is ResultStatus.REFUSED


@pytest.mark.parametrize(("granted", "run"), [(None, 3), (3, 3), (2, 2), (1, 1), (0, 0)])
def test_bounded_runs_what_the_budget_grants(granted: int | None, run: int) -> None:
    """The first so many; a call settled before does not use a grant."""
    calls = (settled(view(9), ERROR), *(view(index) for index in range(2)), view(2))
    after = bounds.bounded(evolve(state(), spec=spec()), TURN, calls, granted)
    assert [call.state for call in after[1:]] == [CallState.PLANNED] * run + [CallState.SETTLED] * (3 - run)


def test_bounded_knows_a_failing_call_by_name_and_arguments() -> None:
    """The same name with other arguments is another call."""
    failed = state(failures=(("look", "{}", 2), ("look", '{"at": "b"}', 1)))
    after = bounds.bounded(failed, TURN, (view(0), view(1, "put"), view(2, "look", '{"at": "b"}')), None)
    assert [call.state for call in after] == [CallState.SETTLED, CallState.PLANNED, CallState.PLANNED]
    assert after[0].result is not None
    assert "failed 2 times in a row" in text_of(after[0].result.content)


def test_failures_are_counted_per_call_until_it_works() -> None:
    """Errors add up, a success forgets, a call that was skipped or has no result says nothing."""
    ended = (settled(view(0), ERROR), settled(view(1), ResultStatus.TIMEOUT), settled(view(2, "put"), OK))
    counted = bounds.count_failures(state(failures=(("put", "{}", 1), ("note", "{}", 1))), ended)
    assert {(name, arguments): times for name, arguments, times in counted} == {
        ("look", "{}"): 2,
        ("note", "{}"): 1,
    }
    assert bounds.count_failures(state(), (settled(view(0), ResultStatus.SKIPPED),)) == ()


def test_starting_tells_a_call_before_it_starts() -> None:
    """ToolStarted, then StartCall, for each."""
    one, two = view(0), view(1, "put", '{"key": "a"}')
    actions = batching.starting((one, two))
    assert actions == (
        Tell(ToolStarted, {"call": one.block.id, "name": "look", "arguments": "{}"}),
        StartCall(one),
        Tell(ToolStarted, {"call": two.block.id, "name": "put", "arguments": '{"key": "a"}'}),
        StartCall(two),
    )


def test_settled_calls_are_told_with_the_beginning_of_their_result() -> None:
    """Calls without a result are not told."""
    actions = batching.settled_tells((view(0), settled(view(1), ERROR, "y" * 1_000)))
    assert actions == (
        Tell(
            ToolEnded,
            {"call": "lead:t1.1.1", "name": "look", "status": "error", "text": "y" * batching.TOLD_CHARS},
        ),
    )


def test_a_finished_batch_hands_over_its_results_in_call_order() -> None:
    """TURN-1: no call is left; results wait behind what waited, the note behind them; unknown rows stay."""
    waiting = NoteRecord(TURN, "notice", "before")
    after = NoteRecord(TURN, "notice", "after")
    calls = (settled(view(1)), settled(view(0), ResultStatus.UNKNOWN))
    before = state(calls=calls, phase=Phase.RUNNING, pending=(waiting,), settled=(CallId("z"),), after_batch=after)
    put = Put(before.row)
    made = batching.batch_over(before, (put,), (Look(sends=True),))
    assert made.commit == (put,)
    assert made.actions == (Look(sends=True), Look(sends=False))
    assert made.state.pending == (waiting, calls[0].result, calls[1].result, after)
    assert made.state.settled == ("z", "lead:t1.1.1")
    assert (made.state.calls, made.state.after_batch, made.state.phase) == ((), None, Phase.LOOKING)
    assert made.state.done == (("lead:t1.1.1", "look", "ok"), ("lead:t1.1.0", "look", "unknown"))


def test_only_the_last_calls_are_listed() -> None:
    """A long run's report stays bounded."""
    many = tuple(settled(view(index)) for index in range(CALLS_LISTED + 1))
    made = batching.batch_over(state(calls=many, done=((CallId("old"), "look", "ok"),)), (), ())
    assert len(made.state.done) == CALLS_LISTED
    assert made.state.done[0][0] == "lead:t1.1.1"


def test_turn_1_a_batch_with_an_open_call_is_not_over() -> None:
    """That would lose a result: it is a bug of ours, and says so."""
    with pytest.raises(AssertionError, match="TURN-1"):
        batching.batch_over(state(calls=(view(0),)), (), ())


def test_rows_are_the_calls_as_they_stand() -> None:
    """One write per call, of this agent and turn."""
    call = settled(view(0))
    (put,) = batching.rows_of(state(), (call,))
    assert put.row == batching.row_of(state(), call)
    assert put.row.turn == TURN
    assert put.row.agent == "lead"
    assert call.result is not None
    assert call.result.content == (Text("x"),)
