"""What the hooks that choose a request are shown, and when they must choose again.

They see the conversation with all that the request's commit will add. Where other mail has come since, they choose
again: nothing is sent that they have not seen. That ends: each time at least one more message was accepted, or
withdrawn, and a lane is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from . import ending, selecting
from .conversation import Conversation
from .errors import UsageError
from .hooked import Point
from .inputs import Phase
from .moves import Abandon, CallHook, Look, Step, nothing_owed
from .transcript import Record, problems

if TYPE_CHECKING:
    from .conversation import Window
    from .ids import MessageId
    from .moves import Action, TurnState


def choose_request(state: TurnState, before: tuple[Action, ...]) -> Step:
    """Have them choose; where they choose again, the request has had its `before_request`."""
    state.then = Point.PREPARE if state.prepared is None else Point.BEFORE_REQUEST
    state.phase, state.prepared = Phase.HOOK, _mail(state)
    return Step(state, (), (*before, CallHook(Point.PREPARE, _coming(state))))


def choose_again(state: TurnState) -> Step | None:
    """Give back what was admitted where they must choose again; None where the request may go as it is."""
    if state.prepared is None or state.prepared == _mail(state):
        return None
    ticket, state.ticket, state.mail, state.phase = state.ticket, None, (), Phase.LOOKING
    return Step(state, (), (Abandon(ticket), Look(sends=nothing_owed(state))))


def _mail(state: TurnState) -> tuple[MessageId, ...]:
    return tuple(queued.envelope.id for queued in state.mail)


def _coming(state: TurnState) -> tuple[Record, ...]:
    """The records that the request's commit will append; decided on a copy."""
    ahead = replace(state)
    if ahead.choosing is not None:
        selecting.follow(ahead)
    return ending.flush(ahead, ahead.since)[1]


def shown(records: object) -> Window:
    """What a `context` hook returned, as a window.

    Raises:
        UsageError: it is no list of records, or no provider would take it.
    """
    listed = tuple(records) if isinstance(records, list | tuple) else None
    if listed is None or not all(isinstance(one, Record) for one in listed):
        raise UsageError(f"context returns a list of records, made of at.conversation, or None; got {records!r}"[:300])
    if found := problems(listed):
        raise UsageError(f"context returned a conversation that no provider takes: {found[0]}")
    return Conversation(listed).window()
