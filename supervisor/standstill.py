"""Why an agent stands still, as the store says it: who waits for a person, or for a grant. Nothing is changed.

For all that look from outside of the process that runs it: other supervisors, and the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.changes import CallState, Intake
from actors.ids import run_id, turn_id
from actors.messages import Lane, Outcome, ReceiptState, Status
from actors.parking import APPROVAL, BUDGET, PAUSED, PERSON

if TYPE_CHECKING:
    from actors.changes import AgentRow
    from actors.ids import AgentId
    from actors.messages import Failure

    from .store.base import Reader, StoredAgent

_WAITS: Final = frozenset({*PERSON, BUDGET})


async def causes_of(store: Reader, stored: StoredAgent) -> dict[AgentId, tuple[str, str]]:
    """The agents at which a person must act before this one goes on; nobody where it goes on by itself.

    It does where one of its running calls has no child that stands still, or has one that does not.
    """
    row = stored.row
    if row.suspended in _WAITS:
        return {} if _coming(stored) else {row.agent: (row.suspended, _words(stored))}
    running = [call.call for call in stored.calls if call.state is CallState.STARTED and call.result is None]
    if row.open is None or not running:
        return {}
    children = [child for child in await store.children(row.agent) if not child.background]
    causes: dict[AgentId, tuple[str, str]] = {}
    for call in running:
        found: dict[AgentId, tuple[str, str]] = {}
        for child in children:
            loaded = await store.load_agent(child.agent) if child.started_by == call else None
            if loaded is None or state_of(loaded) in _AT_REST:
                continue
            below = await causes_of(store, loaded)
            if not below:
                return {}
            found.update(below)
        if not found:
            return {}
        causes.update(found)
    return causes


def state_of(stored: StoredAgent) -> str:
    """A stored agent's state in one word, as `reading.state_of` has it of one that runs here."""
    row = stored.row
    if stored.intake is not Intake.OPEN:
        return stored.intake.value
    if row.suspended is not None:
        return row.suspended if row.suspended in PERSON else "suspended"
    if row.open is not None or row.owes or any(one.state is ReceiptState.QUEUED for one in stored.queued):
        return "running"
    return "held" if stored.queued else "idle"


_AT_REST: Final = frozenset({"idle", "held", "closed"})


def _coming(stored: StoredAgent) -> bool:
    """Whether something waits that brings it back: a decision, a wake, a steer that interrupts."""
    return any(
        one.envelope.lane is Lane.CONTROL or (one.envelope.interrupt and stored.row.suspended == APPROVAL)
        for one in stored.queued
        if one.state is ReceiptState.QUEUED
    )


def _words(stored: StoredAgent) -> str:
    row = stored.row
    if row.suspended == PAUSED:
        return f"{row.agent} is paused: wake() goes on"
    if row.suspended == BUDGET:
        return f"{row.agent} waits for more budget: grant() it in the process that runs it"
    names = ", ".join(f"{call.name} ({call.call})" for call in stored.calls if call.state is CallState.AWAITING)
    return f"{row.agent} waits for approval of {names}: decide in `async with sup.approvals()`, then wait again"


def parked(row: AgentRow, failure: Failure) -> Outcome:
    """The turn of a row that stands still."""
    return Outcome(
        path=row.agent,
        run=run_id(row.agent, max(row.runs, 1)),
        turn=turn_id(row.agent, max(row.turns, 1)),
        status=Status.PARKED,
        usage=row.run_usage,
        spent=row.run_spent,
        cost_known=row.cost_known,
        failure=failure,
    )
