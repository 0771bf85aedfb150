"""The bounds of a turn: reaching one is said to the model first, and then is a typed error (TRN-7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import batch, ending
from .batching import batch_over, settled_tells
from .changes import CallState
from .content import Text, text_of
from .errors import LimitReached
from .ids import turn_id
from .moves import opened
from .pages import reference
from .transcript import NoteRecord, ResultStatus
from .usage import MICROSECONDS

if TYPE_CHECKING:
    from .callview import CallView
    from .cycles import Done
    from .errors import BudgetError, Exhausted
    from .ids import TurnId
    from .moves import Step, Tell, TurnState


# -- model calls and time ----------------------------------------------------------------------------------------

NEAR: Final = 0.9
"""The share of a turn's time after which the model is told that it is nearly up."""


def reached(state: TurnState, now: float) -> LimitReached | None:
    """The error of a turn that may ask the model no more, or None."""
    left = left_s(state, now)
    if left is not None and left <= 0:
        return late(state)
    made = opened(state).step
    if made < state.spec.limits.model_calls_per_turn:
        return None
    return LimitReached(
        f"{state.row.agent} made {made} model calls in one turn, and came to no answer;"
        " raise Limits(model_calls_per_turn=...) or give a smaller task"
    )


def near(state: TurnState, now: float) -> None:
    """Say so where the next model call is the last, or the time is nearly up."""
    if state.last_chance is not None:
        return
    limit, left = state.spec.limits.model_calls_per_turn, left_s(state, now)
    if opened(state).step == limit - 1 and limit > 1:
        last_chance(state, f"This is the last of {limit} model calls of this turn: answer now, without tools.")
    elif left is not None and left <= (1 - NEAR) * (state.spec.limits.turn_s or 0):
        last_chance(state, "The time for this turn is nearly up: answer now, without tools.")


def left_s(state: TurnState, now: float) -> float | None:
    """Seconds that the turn may still take, active ones only, those before a restart included; None: no limit."""
    limit, row = state.spec.limits.turn_s, state.row
    if limit is None:
        return None
    before = row.open.began_us if row.open is not None else None
    spent = 0 if before is None else row.spent.active_us - before
    return limit - spent / MICROSECONDS - max(0.0, now - state.since)


def late(state: TurnState) -> LimitReached:
    """The error of a turn whose time is up."""
    return LimitReached(
        f"a turn of {state.row.agent} took longer than {state.spec.limits.turn_s} s, and came to no answer;"
        " raise Limits(turn_s=...) or give a smaller task"
    )


def last_chance(state: TurnState, text: str) -> None:
    """Say to the model that a bound is near, before the bound is an error (TRN-7)."""
    note = NoteRecord(turn_id(state.row.agent, opened(state).number), "limit", text)
    state.last_chance, state.pending = text, (*state.pending, note)


# -- tool calls --------------------------------------------------------------------------------------------------


def bounded(
    state: TurnState, turn: TurnId, calls: tuple[CallView, ...], granted: int | None, short: Exhausted | None = None
) -> tuple[CallView, ...]:
    """Refuse what is over a bound: calls per response, the budget's tool calls, the same failing call again.

    `short`: why the budget granted no more; what it says is done at the next boundary.
    """
    limits = state.spec.limits
    after: list[CallView] = []
    for index, call in enumerate(calls):
        if call.state is not CallState.PLANNED:
            after.append(call)
        elif index >= limits.calls_per_response:
            after.append(
                batch.refuse(turn, call, f"Not run: only {limits.calls_per_response} calls at once are taken.")
            )
        elif granted is not None and sum(c.state is CallState.PLANNED for c in after) >= granted:
            after.append(batch.refuse(turn, call, "Not run: the budget of tool calls is exhausted."))
            state.short = short
        elif (times := _failed_times(state, call)) >= limits.identical_failures:
            text = f"Not run: this same call failed {times} times in a row. Do something else."
            after.append(batch.refuse(turn, call, text))
        else:
            after.append(call)
    return tuple(after)


def _failed_times(state: TurnState, call: CallView) -> int:
    for name, arguments, times in state.failures:
        if name == call.block.name and arguments == call.block.arguments:
            return times
    return 0


def count_failures(state: TurnState, ended: tuple[CallView, ...]) -> tuple[tuple[str, str, int], ...]:
    """How often each call has failed in a row, with these that ended."""
    counts = {(name, arguments): times for name, arguments, times in state.failures}
    for call in ended:
        key = (call.block.name, call.block.arguments)
        status = call.result.status if call.result is not None else None
        if status is ResultStatus.OK:
            counts.pop(key, None)
        elif status not in (ResultStatus.SKIPPED, ResultStatus.ABORTED):  # a call that failed beside them ended these
            counts[key] = counts.get(key, 0) + 1
    return tuple((name, arguments, times) for (name, arguments), times in counts.items())


def settled(state: TurnState, calls: tuple[CallView, ...], ended: tuple[CallView, ...]) -> None:
    """The calls of the batch as they stand now, of which these ended: count what failed, and see a circle."""
    state.calls, state.failures = calls, count_failures(state, ended)
    if not batch.finished(calls):
        return
    before = state.rounds.times
    state.rounds = state.rounds.then(tuple([_done(state, call) for call in calls]))
    times, limit = state.rounds.times, state.spec.limits.repeated_cycles
    if times >= 2 * limit:
        text = f"The same calls gave the same results {times} times in a row: answer now, without tools."
        state.last_chance = text
    elif times == limit > before:
        text = (
            f"The same calls gave the same results {times} times in a row. Do something else, or answer;"
            f" after {2 * limit} times no more calls are taken."
        )
    else:
        return
    also = "" if state.after_batch is None else f"{state.after_batch.text}\n"
    state.after_batch = NoteRecord(turn_id(state.row.agent, opened(state).number), "limit", also + text)


def _done(state: TurnState, call: CallView) -> Done:
    """A call and its result, without what is the call's own of it: the reference to what is kept whole."""
    block, result = call.block, call.result
    assert result is not None, "a finished batch has every result"
    content = result.content
    if state.row.kept and any(one.call == block.id for one in state.row.kept):
        content = (Text(text_of(content).replace(reference(block.id), "")),)
    return block.name, block.arguments, result.status.value, content


def no_more(state: TurnState, now: float, tell: Tell) -> Step:
    """It was told that no call will be run, and calls: the bound becomes an error (TRN-7)."""
    turn = turn_id(state.row.agent, opened(state).number)
    calls = tuple(batch.refuse(turn, call, "Not run: no more calls are taken in this turn.") for call in state.calls)
    state.calls = calls
    batch_over(state, (), ())
    error: BudgetError = state.exhausted or LimitReached(
        f"{state.row.agent} went on calling tools after it was told: {state.last_chance}"
    )
    return ending.fail(state, error, now, tell, *settled_tells(calls))
