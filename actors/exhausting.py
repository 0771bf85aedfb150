"""What a turn does where its budget refuses: what the budget that refused says (BUD-4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import bounds, ending
from .budget import Dimension
from .errors import Exhausted
from .inputs import Phase
from .moves import Look, Step, TurnState, nothing_owed, opened
from .parking import BUDGET

if TYPE_CHECKING:
    from .errors import CallboardError


def not_admitted(state: TurnState, error: CallboardError, now: float) -> Step | None:
    """The budget refused a request, or calls before it.

    Returns:
        The step that parks or fails; None where one last response without tools is to be asked for.
    """
    if not isinstance(error, Exhausted) or state.exhausted is not None:
        return refuse(state, state.exhausted or error, now)
    if error.on_exhausted == "park":
        return ending.suspend(state, now, BUDGET, error)
    if error.on_exhausted == "fail" or opened(state).step == 0 or error.dimension == Dimension.SECONDS:
        return refuse(state, error, now)
    state.exhausted = error
    bounds.last_chance(state, f"The budget is exhausted ({error.dimension}). Sum up what you have now, without tools.")
    return None


def at_boundary(state: TurnState, now: float) -> Step | None:
    """What the budget of tool calls that refused some of the last batch says; None where the turn goes on."""
    if state.short is None:
        return None
    error, state.short = state.short, None
    return not_admitted(state, error, now)


def refuse(state: TurnState, error: CallboardError, now: float) -> Step:
    """Fail; where nothing was taken yet, take it first: who sent it must be told, and not by a turn without end."""
    if state.mail or not nothing_owed(state):
        return ending.fail(state, error, now)
    state.refused, state.phase = error, Phase.LOOKING
    return Step(state, (), (Look(sends=True),))
