"""When a turn compacts the conversation, and what comes of it (CMP-1..6, REQ-3).

    at a boundary, before the next request ── admission ── commit what is settled ── ask for the summary ── commit it

It is a request like any other: admitted, held in the row while it is open, accounted, cut by an abort. The commit that
appends the summary is the compaction; before it nothing of the conversation has changed, so there is nothing to undo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import ending
from .changes import Claim, OpenTurn
from .compaction import (
    ASKED,
    NO_COMPACTION,
    OVERFLOW,
    WINDOW,
    WORTH_BYTES,
    Compacting,
    CompactionOver,
    Summarise,
    summary_of,
)
from .compaction import BYTES_PER_TOKEN as BYTES
from .errors import NotCompacted
from .evolve import evolve
from .happenings import CompactionEnded, CompactionStarted, RequestFailed
from .ids import turn_id
from .inputs import Phase
from .moves import Abandon, Admit, CutStream, Look, Over, Step, Tell, nothing_owed, opened

if TYPE_CHECKING:
    from .changes import Operation
    from .compaction import NotSummarised, Summarised
    from .errors import CallboardError, ContextOverflow
    from .inputs import Begin, Cut, Failed, Looked, NotAdmitted
    from .messages import Queued
    from .moves import Action, TurnState

LEAST_SHARE: Final = 0.1
"""For the window's sake a compaction must replace at least this share of the limit: fixed parts cannot be freed."""


# -- whether -------------------------------------------------------------------------------------------------------


def first(state: TurnState, event: Looked) -> Step | None:
    """Compact before the next request, where that is due; None: go on to it."""
    doing = due(state, event) if state.ticket is None else None
    return None if doing is None else begin(state, doing)


def due(state: TurnState, event: Looked) -> Compacting | None:
    """The compaction that must come before the next request, or None (CMP-6)."""
    doing, rule = state.compacting, state.spec.compaction
    if doing.wanted == OVERFLOW:
        return doing
    if event.mail and any(queued.envelope.interrupt for queued in event.mail):
        return None  # it cut one short, perhaps: first it enters
    if doing.wanted is not None:
        return doing
    context, room = state.row.context, event.context_window
    if room is None or not context or rule.at is None or doing.useless or state.exhausted is not None:
        return None
    limit = int(rule.at * room)
    if context + ending.waiting_bytes(state) // BYTES <= limit:
        return None
    return Compacting(WINDOW, None, limit, overflow=doing.overflow)


def least(doing: Compacting) -> int:
    """How many bytes it must replace to be worth it."""
    return max(WORTH_BYTES, int(doing.limit * BYTES * LEAST_SHARE))


def measured(state: TurnState) -> None:
    """A response has measured the conversation: whether the last compaction was of use is known now."""
    doing = state.compacting
    useless = doing.useless or 0 < doing.limit < state.row.context
    state.compacting = Compacting(doing.wanted, useless=useless)


# -- the way to the summary ----------------------------------------------------------------------------------------


def asked(state: TurnState) -> Step:
    """Somebody wants one: at the next boundary."""
    doing = state.compacting
    if doing.under_way is not None or doing.wanted is not None:
        return Step(state)  # CMP-3: it runs once
    state.compacting = Compacting(ASKED, None, doing.limit, doing.useless, doing.overflow)
    return Step(state)


def begin(state: TurnState, doing: Compacting) -> Step:
    """Ask the gate for a place; the mail stays where it is until the compaction is over."""
    under_way = Compacting(None, doing.wanted, doing.limit, doing.useless, doing.overflow, doing.alone)
    state.mail, state.compacting, state.phase = (), under_way, Phase.ADMITTING
    return Step(state, (), (Admit(ending.waiting_bytes(state), selection=state.row.selection, helper=True),))


def begin_alone(state: TurnState, event: Begin) -> Step:
    """A turn for a compaction only: nobody is told of it, it takes no message and has no outcome."""
    row = state.row
    number = row.turns + 1
    state.row = evolve(row, turns=number, runs=max(row.runs, 1), open=OpenTurn(number, max(row.runs, 1), alone=True))
    state.since = event.now
    return begin(state, Compacting(ASKED, alone=True))


def ask(state: TurnState, now: float) -> Step:
    """The conversation is settled now, in one commit with what the request holds (CMP-1, BUD-7)."""
    if state.suspending and not state.compacting.alone:
        return ending.suspend(state, now, "leaving")
    ticket, doing = state.ticket, state.compacting
    state.mail = ()
    commit, records = ending.flush(state, now, opening={"asking": True, "held": state.held}, owes=True)
    told = Tell(CompactionStarted, {"reason": doing.under_way})
    state.phase, state.conflicts = Phase.COMPACTING, 0
    return Step(state, commit, (told, Summarise(ticket)), records)


def summarised(state: TurnState, event: Summarised) -> Step:
    """The summary enters, whole: from now on it stands for what it replaces (CMP-2)."""
    served = event.served
    assert not state.pending, "what was settled is committed, and nothing comes while it is asked for"
    ending.account(state, served.usage, event.spent, cost_known=served.cost is not None)
    state.ticket = None
    made = summary_of(event.plan, served, turn_id(state.row.agent, opened(state).number))
    told: dict[str, object] = {"before": event.before, "usage": served.usage, "cost": served.cost}
    if isinstance(made, str):
        error = NotCompacted(f"{state.row.agent} was not compacted: {made}")
        return _came_to_nothing(state, event.now, error, (_ended(error, told),))
    state.row, state.pending = evolve(state.row, summary=state.head, context=0), (made,)
    after = event.before - event.plan.size_bytes + len(made.shown)
    actions = (Tell(CompactionEnded, told | {"after": after}), CompactionOver())
    return _go_on(state, event.now, actions, useless=state.compacting.useless)


def _ended(error: CallboardError, told: dict[str, object]) -> Tell:
    return Tell(CompactionEnded, told | {"error": f"{error.kind}: {error}"})


def not_summarised(state: TurnState, event: NotSummarised) -> Step:
    """There was nothing to replace, or no summary came: the conversation stays as it is."""
    error = None if event.error is None else NotCompacted(f"{state.row.agent} was not compacted: {event.error}")
    if state.phase is not Phase.COMPACTING:
        return _came_to_nothing(state, event.now, error, ())
    state.ticket = None
    ending.account(state, event.usage, event.spent, cost_known=event.cost_known)
    told = _ended(error or NotCompacted("there is nothing to replace"), {"usage": event.usage})
    return _came_to_nothing(state, event.now, error, (told,))


def not_admitted(state: TurnState, event: NotAdmitted) -> Step:
    """The budget refuses even the summary."""
    error = NotCompacted(f"{state.row.agent} was not compacted: {event.error}")
    return _came_to_nothing(state, event.now, error, ())


# -- how it ends ---------------------------------------------------------------------------------------------------


def _came_to_nothing(state: TurnState, now: float, error: CallboardError | None, before: tuple[Action, ...]) -> Step:
    doing = state.compacting
    actions = (*before, CompactionOver(error))
    if doing.overflow is not None:  # REQ-3: it would be refused again
        state.compacting = NO_COMPACTION
        return ending.fail(state, doing.overflow, now, *actions)
    return _go_on(state, now, actions, useless=doing.useless or doing.under_way == WINDOW)


def _go_on(state: TurnState, now: float, actions: tuple[Action, ...], *, useless: bool) -> Step:
    """Look at the mailbox again; what was asked is accounted in a commit of its own."""
    doing = state.compacting
    if doing.alone:
        return _close(state, now, actions)
    made, asked = bool(state.pending), state.phase is Phase.COMPACTING
    limit = doing.limit if asked and made else 0
    state.compacting, state.phase = Compacting(doing.wanted, None, limit, useless, doing.overflow), Phase.LOOKING
    commit, records = ending.flush(state, now) if asked else ((), ())
    return Step(state, commit, (*actions, Look(sends=nothing_owed(state))), records)


def _close(
    state: TurnState,
    now: float,
    actions: tuple[Action, ...],
    claimed: tuple[Queued, ...] = (),
    *,
    stored: bool = False,
) -> Step:
    """End a turn that was for a compaction only: its number was not used, and is free again.

    `claimed`: an abort's messages. `stored`: the store has it open.
    """
    number = opened(state).number
    abandon = (Abandon(state.ticket),) if state.ticket is not None else ()
    stored = stored or state.phase is Phase.COMPACTING
    state.mail = ()
    commit, records = ending.flush(state, now, open=None, owes=False, turns=number - 1)
    row = state.row
    ids = tuple(queued.envelope.id for queued in claimed)
    claims: tuple[Operation, ...] = (Claim(row.agent, ids, turn_id(row.agent, number - 1)),) if ids else ()
    written = (*claims, *commit) if stored or claims else ()
    return Step(ending.over(state), written, (*actions, *abandon, Over()), records)


def cut(state: TurnState, event: Cut) -> tuple[tuple[Action, ...], Step | None]:
    """An abort, or a steer that interrupts, ends one that is under way; the steer has it made anew behind it (ABT-4).

    Returns:
        The actions to go on with, and the last step where the turn was for nothing else.
    """
    doing = state.compacting
    actions: tuple[Action, ...] = ()
    error = NotCompacted(f"{state.row.agent} was not compacted: {event.reason or _why(event)}")
    if state.phase is Phase.COMPACTING:
        ending.account(state, event.usage, event.spent, cost_known=event.cost_known)
        actions = (CutStream(), _ended(error, {"usage": event.usage}))
    if doing.alone:
        return actions, _close(state, event.now, (CompactionOver(error),), event.control)
    if event.steer:
        again(state)
        return actions, None
    if doing.wanted is not None or doing.under_way is not None:
        actions = (*actions, CompactionOver(error))
    return actions, None


def _why(event: Cut) -> str:
    return "a message interrupted it" if event.steer else "the time of its turn was up"


def again(state: TurnState) -> None:
    """What was under way is due again."""
    doing = state.compacting
    wanted = doing.under_way or doing.wanted
    state.compacting = Compacting(wanted, None, doing.limit, doing.useless, doing.overflow)


def overflowed(state: TurnState, event: Failed, error: ContextOverflow) -> Step:
    """The model finds the conversation too long: compact once, then ask again (REQ-3, CMP-6)."""
    state.ticket = None
    ending.account(state, event.usage, event.spent)
    state.compacting, state.phase = Compacting(OVERFLOW, None, 0, state.compacting.useless, error), Phase.LOOKING
    told = Tell(RequestFailed, {"error": f"{error.kind}: {error}"})
    return Step(state, (), (told, Look(sends=False)))


def recovered(state: TurnState) -> Step:
    """A turn for a compaction only was cut off by a crash: what it had asked is charged, and it is over."""
    return _close(state, state.since, (), stored=True)
