"""From when on a message's choice of model, effort and tier holds, and what becomes of the conversation (SEL-1, SEL-2).

A choice is followed in the commit that consumes its message. One whose model cannot go on with the conversation resets
it in the same commit; the `model_changed` hook writes the hand-over note before. Where that fails, the choice is
rejected: the message enters all the same, and is answered as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .evolve import evolve
from .happenings import SelectionChanged, SelectionRejected
from .hooked import Point
from .ids import turn_id
from .inputs import Phase
from .moves import Abandon, CallHook, Look, Step, Tell, nothing_owed, opened
from .selection import OWN, Choosing
from .transcript import SummaryRecord

if TYPE_CHECKING:
    from .changes import Operation
    from .inputs import HookReturned, Looked
    from .messages import Selection
    from .moves import Action, TurnState


def settle(state: TurnState, event: Looked) -> Step | None:
    """Decide on what the mail chooses, before a request is admitted for it.

    Returns:
        None to go on; or the step that asks the hook first, or that gives back what was admitted for another choice,
        because other mail has come since.
    """
    choice = event.choice
    before = state.choosing
    if (None if before is None else before.choice) == choice:
        return None
    if state.ticket is not None:
        ticket, state.ticket, state.mail, state.phase = state.ticket, None, (), Phase.LOOKING
        return Step(state, (), (Abandon(ticket), Look(sends=nothing_owed(state))))
    state.choosing = None if choice is None else Choosing(choice, error=choice.error)
    if choice is None:
        return None
    asks = choice.error is None and not choice.compatible and Point.MODEL_CHANGED in state.spec.hooks
    if not asks:
        return None
    state.mail, state.phase, state.then = (), Phase.HOOK, Point.MODEL_CHANGED
    return Step(state, (), (CallHook(Point.MODEL_CHANGED),))


def noted(state: TurnState, event: HookReturned) -> Step:
    """The hook has written its note; its failure rejects the choice (SEL-2)."""
    before = state.choosing
    assert before is not None, "the hook was asked about a choice"
    state.choosing, state.phase = Choosing(before.choice, event.note, event.staged, event.error), Phase.LOOKING
    return Step(state, (), (Look(sends=nothing_owed(state)),))


def in_force(state: TurnState) -> Selection | None:
    """What the next request asks."""
    choosing = state.choosing
    return state.row.selection if choosing is None or choosing.error is not None else choosing.choice.selection


def follow(state: TurnState) -> tuple[tuple[Operation, ...], tuple[Action, ...]]:
    """Follow the choice in the commit that takes its message: the row, the record that resets, what was staged."""
    choosing = state.choosing
    assert choosing is not None, "there is something to follow"
    state.choosing = None
    if choosing.error is not None:
        told = Tell(SelectionRejected, {"error": f"{choosing.error.kind}: {choosing.error}"})
        return (), (told,)
    choice, row = choosing.choice, state.row
    selection = choice.selection
    row = evolve(row, selection=None if selection == OWN else selection)
    at = state.head + len(state.pending)
    if not choice.compatible and at:
        turn = turn_id(row.agent, opened(state).number)
        record = SummaryRecord(turn, choosing.note, at, choice.pinned, choice.responses, handover=True)
        state.pending = (*state.pending, record)
        row = evolve(row, summary=at, context=0)  # SEL-3
    values = {
        "model": selection.model or "",
        "effort": selection.effort or "",
        "tier": selection.tier or "",
        "reset": not choice.compatible,
    }
    state.row = row
    return choosing.staged, (Tell(SelectionChanged, values),)
