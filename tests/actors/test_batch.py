"""The rules of a batch: which call may start, what becomes of it, and what the model reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors import batch
from actors.callview import CallOutcome, CallView
from actors.changes import CallRow, CallState
from actors.content import Image, Text, Trust, text_of
from actors.evolve import evolve
from actors.ids import AgentId, CallId, TurnId
from actors.transcript import CallBlock, ResultStatus
from tests.actors.turnkit import TOOLS

if TYPE_CHECKING:
    from collections.abc import Sequence

TURN = TurnId("lead:t1")
PLANNED, STARTED, SETTLED = CallState.PLANNED, CallState.STARTED, CallState.SETTLED
OK = ResultStatus.OK


def block(index: int, name: str = "look", arguments: str = "{}", invalid: str | None = None) -> CallBlock:
    """A call block with an id by index."""
    return CallBlock(CallId(f"{TURN}.1.{index}"), f"w{index}", name, arguments, invalid)


def view(index: int, state: CallState = PLANNED, name: str = "look", **fields: Any) -> CallView:
    """A call by index, in a state."""
    made = CallView(block(index, name), state, TOOLS.get(name), {}, **fields)
    if state is SETTLED and made.result is None:
        return evolve(made, result=batch.result(TURN, made.block, OK, "kept"))
    return made


def started(calls: Sequence[CallView]) -> list[int]:
    """The indexes of calls."""
    return [int(call.block.id.rpartition(".")[2]) for call in calls]


def outcome(index: int, status: ResultStatus = OK, trust: Trust = Trust.TRUSTED) -> CallOutcome:
    """What a call gave."""
    return CallOutcome(block(index).id, status, (Text(f"gave {index}"),), trust)


# -- views -------------------------------------------------------------------------------------------------------


def test_a_valid_call_is_planned_with_its_tool_arguments_and_keys() -> None:
    """What is needed to run it is found before anything runs."""
    made = batch.view(TURN, block(0, "write", '{"path": "a"}'), TOOLS)
    assert (made.state, made.tool, made.keys, made.exclusive) == (PLANNED, TOOLS["write"], ("a",), False)
    assert made.arguments == {"path": "a", "text": ""}
    assert batch.view(TURN, block(0, "deploy"), TOOLS).exclusive


@pytest.mark.parametrize("invalid", [*batch.INVALID, "odd"])
def test_tol_6_core_an_invalid_call_says_what_to_do(invalid: str) -> None:
    """Each reason has its text; none of them names a tool that could have run."""
    made = batch.view(TURN, block(0, invalid=invalid), TOOLS)
    assert made.state is SETTLED
    assert made.result is not None
    assert made.result.status is ResultStatus.ERROR
    text = text_of(made.result.content)
    assert text == batch.INVALID.get(invalid, f"The call is invalid ({invalid}). Nothing was run.")
    assert "Nothing was run." in text


def test_a_result_names_its_call() -> None:
    """Id, wire id and name are the call's; content stays as it is, text is wrapped."""
    made = batch.result(TURN, block(3), OK, "text")
    assert (made.turn, made.call, made.wire_id, made.name) == (TURN, "lead:t1.1.3", "w3", "look")
    assert made.content == (Text("text"),)
    picture = (Image("image/png", "data"),)
    assert batch.result(TURN, block(3), OK, picture).content == picture


# -- what may start ----------------------------------------------------------------------------------------------


def test_tol_4_core_calls_that_share_a_key_run_in_the_order_asked() -> None:
    """A call waits for an earlier unfinished one of its key, also for one that waits itself."""
    calls = (view(0, keys=("a",)), view(1, keys=("a", "b")), view(2, keys=("b",)), view(3, keys=("c",)))
    after, begun = batch.start(calls, 8)
    assert started(begun) == [0, 3]
    after, begun = batch.start(batch.settle(after, TURN, [outcome(0)]), 8)
    assert started(begun) == [1]
    after, begun = batch.start(batch.settle(after, TURN, [outcome(1)]), 8)
    assert started(begun) == [2]


def test_tol_4_core_an_exclusive_call_runs_alone() -> None:
    """It waits for all before it, and all after it wait for it."""
    calls = (view(0), view(1, exclusive=True), view(2))
    after, begun = batch.start(calls, 8)
    assert started(begun) == [0]
    after, begun = batch.start(after, 8)
    assert begun == ()
    after, begun = batch.start(batch.settle(after, TURN, [outcome(0)]), 8)
    assert started(begun) == [1]
    after, begun = batch.start(after, 8)
    assert begun == ()
    after, begun = batch.start(batch.settle(after, TURN, [outcome(1)]), 8)
    assert started(begun) == [2]


def test_an_exclusive_call_first_starts_at_once_and_alone() -> None:
    """There is nothing before it."""
    _, begun = batch.start((view(0, exclusive=True), view(1)), 8)
    assert started(begun) == [0]


def test_tol_4_core_the_limit_counts_what_runs() -> None:
    """Running calls take places; settled ones do not."""
    calls = (view(0, SETTLED), view(1, STARTED), view(2), view(3), view(4))
    after, begun = batch.start(calls, 3)
    assert started(begun) == [2, 3]
    assert [call.state for call in after] == [SETTLED, STARTED, STARTED, STARTED, PLANNED]


CALLS = st.lists(
    st.tuples(
        st.sampled_from([PLANNED, STARTED, SETTLED]),
        st.sets(st.sampled_from("abc"), max_size=2).map(lambda keys: tuple(sorted(keys))),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@given(CALLS, st.integers(1, 4))
def test_tol_4_core_what_starts_may_start_and_what_may_starts(
    drawn: list[tuple[CallState, tuple[str, ...], bool]], limit: int
) -> None:
    """Against the words of the promise: keys in order, exclusive alone, at most the limit; and nothing idles."""
    calls = tuple(view(i, state, keys=keys, exclusive=alone) for i, (state, keys, alone) in enumerate(drawn))
    after, begun = batch.start(calls, limit)
    running = sum(call.state is STARTED for call in calls)
    for index, call in enumerate(calls):
        unfinished = [other for other in calls[:index] if other.state is not SETTLED]
        free = not any(call.exclusive or other.exclusive or set(call.keys) & set(other.keys) for other in unfinished)
        may = call.state is PLANNED and free and running < limit
        assert (after[index].state is STARTED) == (may or call.state is STARTED), index
        running += may
    assert started(begun) == [i for i, call in enumerate(after) if call.state is STARTED and calls[i].state is PLANNED]
    if not batch.finished(calls) and not any(call.state is STARTED for call in calls):
        assert begun, "a batch that is not finished always has something that runs"


# -- what becomes of calls ---------------------------------------------------------------------------------------


def test_settle_takes_what_running_calls_gave() -> None:
    """Status, content and trust are the outcome's; calls that do not run are left as they are."""
    calls = (view(0, STARTED), view(1, PLANNED), view(2, SETTLED))
    after = batch.settle(calls, TURN, [outcome(0, ResultStatus.TIMEOUT, Trust.EXTERNAL), outcome(1), outcome(2)])
    assert [call.state for call in after] == [SETTLED, PLANNED, SETTLED]
    made = after[0].result
    assert made is not None
    assert (made.status, made.trust, text_of(made.content)) == (ResultStatus.TIMEOUT, Trust.EXTERNAL, "gave 0")
    assert after[1] is calls[1]
    assert after[2] is calls[2]


@pytest.mark.parametrize("status", [status for status in ResultStatus if status is not OK])
def test_tol_4_core_a_fatal_calls_failure_ends_the_batch(status: ResultStatus) -> None:
    """Whatever the failure is: what runs is aborted, what was not started is skipped."""
    calls = (view(0, STARTED, "mount"), view(1, STARTED), view(2))
    after = batch.settle(calls, TURN, [outcome(0, status)])
    assert [one.status for one in batch.results(after)] == [status, ResultStatus.ABORTED, ResultStatus.SKIPPED]
    assert [call.state for call in batch.settle(calls, TURN, [outcome(0)])] == [SETTLED, STARTED, PLANNED]


def test_a_failure_of_a_call_that_is_not_fatal_skips_nothing() -> None:
    """Only its tool says that it is."""
    calls = (view(0, STARTED, "write"), view(1))
    assert batch.settle(calls, TURN, [outcome(0, ResultStatus.ERROR)])[1].state is PLANNED
    gone = (evolve(view(0, STARTED, "gone"), tool=None), view(1))
    assert batch.settle(gone, TURN, [outcome(0, ResultStatus.ERROR)])[1].state is PLANNED


def test_abt_3_core_stop_settles_by_what_had_begun() -> None:
    """Not started: skipped. Running: aborted, with a word on its effect. Settled: as it was."""
    calls = (view(0, SETTLED), view(1, STARTED), view(2, STARTED, "write"), view(3), view(4, STARTED, "gone"))
    after = batch.stop(calls, TURN, batch.Why.ABORT)
    found = batch.results(after)
    assert batch.finished(after)
    aborted = ResultStatus.ABORTED
    assert [one.status for one in found] == [OK, aborted, aborted, ResultStatus.SKIPPED, aborted]
    assert [text_of(one.content) for one in found[1:]] == [
        "The run was aborted while this call was running.",
        f"The run was aborted while this call was running. {batch.MAY_HAVE}",
        "Not run: the run was aborted before this call started.",
        f"The run was aborted while this call was running. {batch.MAY_HAVE}",
    ]
    had = batch.results(batch.stop(calls, TURN, batch.Why.ABORT, ((calls[0].block.id, "no"), (calls[1].block.id, "x"))))
    assert [one.content for one in had[2:]] == [one.content for one in found[2:]]
    assert had[0] == found[0]
    assert text_of(had[1].content) == f"{text_of(found[1].content)}\nx"
    ended = batch.results(batch.stop(calls, TURN, batch.Why.FATAL))
    assert [one.status for one in ended] == [one.status for one in found]
    assert text_of(ended[3].content) == (
        "Not run: a call beside this one failed, which ends the whole batch, before this call started."
    )


def test_refuse_settles_a_call_that_will_not_run() -> None:
    """With its reason."""
    made = batch.refuse(TURN, view(0), "too many")
    assert made.state is SETTLED
    assert made.result is not None
    assert (made.result.status, text_of(made.result.content)) == (ResultStatus.REFUSED, "too many")


def test_recover_leaves_what_needs_nothing() -> None:
    """Settled and planned calls stay the same objects; a started one of a repeatable tool counts its try."""
    calls = (view(0, SETTLED), view(1), view(2, STARTED, "put"))
    after, again = batch.recover(calls, TURN)
    assert after[0] is calls[0]
    assert after[1] is calls[1]
    assert [call.tries for call in again] == [2]
    assert after[2] is again[0]


def test_a_row_is_what_the_store_needs_of_a_call() -> None:
    """It has all that rebuilds the view."""
    call = view(0, SETTLED, tries=3)
    assert batch.row(AgentId("lead"), TURN, call) == CallRow(
        call.block.id, AgentId("lead"), TURN, "look", "{}", SETTLED, 3, call.result
    )
