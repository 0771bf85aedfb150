"""What a turn tells of its calls, and the bounds that a batch is held to before any of it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import batch
from .changes import CallState
from .content import text_of
from .happenings import ToolEnded, ToolStarted
from .moves import CallView, StartCall, Tell, TurnState
from .transcript import ResultStatus

if TYPE_CHECKING:
    from .ids import TurnId
    from .moves import Action


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


def starting(calls: tuple[CallView, ...]) -> tuple[Action, ...]:
    """The actions that start calls."""
    actions: list[Action] = []
    for call in calls:
        block = call.block
        actions.append(Tell(ToolStarted, {"call": block.id, "name": block.name, "arguments": block.arguments}))
        actions.append(StartCall(call))
    return tuple(actions)


def count_failures(state: TurnState, ended: tuple[CallView, ...]) -> tuple[tuple[str, str, int], ...]:
    """How often each call has failed in a row, with these that ended."""
    counts = {(name, arguments): times for name, arguments, times in state.failures}
    for call in ended:
        key = (call.block.name, call.block.arguments)
        if call.result is not None and call.result.status is ResultStatus.OK:
            counts.pop(key, None)
        else:
            counts[key] = counts.get(key, 0) + 1
    return tuple((name, arguments, times) for (name, arguments), times in counts.items())


def settled_tells(calls: tuple[CallView, ...]) -> tuple[Action, ...]:
    """The events of calls that are settled."""
    tells = []
    for call in calls:
        if call.result is None:
            continue
        values = {
            "call": call.block.id,
            "name": call.block.name,
            "status": call.result.status.value,
            "text": text_of(call.result.content)[:TOLD_CHARS],
        }
        tells.append(Tell(ToolEnded, values))
    return tuple(tells)


TOLD_CHARS: Final = 200
"""How much of a result an event shows."""
