"""The bounds of a turn: reaching one is said to the model first, and then is a typed error (TRN-7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import batch, ending
from .batching import batch_over, settled_tells
from .changes import CallState
from .errors import LimitReached
from .ids import turn_id
from .moves import opened
from .transcript import NoteRecord, ResultStatus

if TYPE_CHECKING:
    from .callview import CallView
    from .errors import BudgetError
    from .ids import TurnId
    from .moves import Step, Tell, TurnState


# -- model calls -------------------------------------------------------------------------------------------------


def reached(state: TurnState) -> LimitReached | None:
    """The error of a turn that may ask the model no more, or None."""
    made = opened(state).step
    if made < state.spec.limits.model_calls_per_turn:
        return None
    return LimitReached(
        f"{state.row.agent} made {made} model calls in one turn, and came to no answer;"
        " raise Limits(model_calls_per_turn=...) or give a smaller task"
    )


def near(state: TurnState) -> None:
    """Say so where the next model call is the last."""
    limit = state.spec.limits.model_calls_per_turn
    if opened(state).step == limit - 1 and limit > 1 and state.last_chance is None:
        last_chance(state, f"This is the last of {limit} model calls of this turn: answer now, without tools.")


def last_chance(state: TurnState, text: str) -> None:
    """Say to the model that a bound is near, before the bound is an error (TRN-7)."""
    note = NoteRecord(turn_id(state.row.agent, opened(state).number), "limit", text)
    state.last_chance, state.pending = text, (*state.pending, note)


# -- tool calls --------------------------------------------------------------------------------------------------


def bounded(state: TurnState, turn: TurnId, calls: tuple[CallView, ...], granted: int | None) -> tuple[CallView, ...]:
    """Refuse what is over a bound: calls per response, the budget's tool calls, the same failing call again."""
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
        elif status is not ResultStatus.SKIPPED:
            counts[key] = counts.get(key, 0) + 1
    return tuple((name, arguments, times) for (name, arguments), times in counts.items())


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
