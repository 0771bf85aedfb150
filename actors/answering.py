"""What a response without calls is: the answer, or something that only looks like it (TRN-7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import ending
from .errors import LimitReached
from .fitting import Refusal
from .happenings import ResponseEnded
from .ids import turn_id
from .inputs import Phase
from .moves import Look, Step, Tell, opened
from .transcript import NoteRecord, Stop

if TYPE_CHECKING:
    from .moves import TurnState
    from .ports import Served


def ended(served: Served, text: str) -> Tell:
    """The event of a whole response."""
    return Tell(
        ResponseEnded,
        {
            "stop": served.response.stop,
            "text": text,
            "usage": served.usage,
            "cost": served.cost,
            "model": served.model,
            "attempt": served.attempts,
        },
    )


_STOPPED_SHORT: Final = {
    Stop.MAX_TOKENS: "the answer was cut at the model's output limit; it is not whole",
    Stop.REFUSAL: "the model refused to answer",
    Stop.CONTENT_FILTER: "the answer was stopped by a content filter",
    Stop.ERROR: "the model ended the answer with an error",
}


def answered(state: TurnState, stop: Stop, now: float, tell: Tell) -> Step:
    """A response without calls: the answer, half of one, or one that must be asked for again."""
    text = state.last_text
    if stop is Stop.PAUSE_TURN:
        state.phase = Phase.LOOKING
        return Step(state, (), (tell, Look(sends=False)))
    if state.exhausted is not None:
        return ending.fail(state, state.exhausted, now, tell)
    if stop in _STOPPED_SHORT:
        return ending.fail(state, LimitReached(f"{state.row.agent}: {_STOPPED_SHORT[stop]}"), now, tell)
    if state.output is not None:
        read = state.output.read(text)
        if isinstance(read, Refusal):
            return _repair(state, read.text, now, tell)
        text = read.json
    state.answer, state.owed, state.phase = text, False, Phase.LOOKING
    return Step(state, (), (tell, Look(sends=False)))  # steering that came meanwhile is answered first


def _repair(state: TurnState, problem: str, now: float, tell: Tell) -> Step:
    """A structured answer that does not fit is asked for again, a bounded number of times."""
    bound = state.spec.limits.output_repairs
    assert state.output is not None, "only a typed answer is repaired"
    if state.repairs >= bound or state.last_chance is not None:
        error = LimitReached(
            f"{state.row.agent}: no answer fits {state.output.name} after {state.repairs + 1} attempts: {problem}"
        )
        return ending.fail(state, error, now, tell)
    note = NoteRecord(
        turn_id(state.row.agent, opened(state).number),
        "repair",
        f"The answer does not fit {state.output.name}: {problem}\nAnswer again with JSON that fits, and nothing else.",
    )
    state.repairs, state.pending, state.phase = state.repairs + 1, (*state.pending, note), Phase.LOOKING
    return Step(state, (), (tell, Look(sends=False)))
