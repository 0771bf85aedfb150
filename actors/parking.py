"""How a turn waits for a person: it parks, and goes on by a decision (TOL-12).

A parked turn is open in the store, runs nothing, and costs no active time (BUD-6); the process may exit. A decision,
an abort or a steer that interrupts brings it back, in this process or a later one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import approving, batch, bounds, ending
from .batching import batch_over, rows_of, settled_tells, starting
from .changes import CallState, Claim
from .errors import Unfinished
from .evolve import evolve
from .ids import turn_id
from .inputs import Phase
from .messages import Status, failure_of
from .moves import Step, opened

if TYPE_CHECKING:
    from .callview import CallView
    from .changes import AgentRow, Operation
    from .inputs import Decided
    from .messages import Decision
    from .moves import Action, TurnState

APPROVAL: Final = "approval"
"""Why a parked turn is suspended."""
PAUSED: Final = "paused"
"""Why an agent is suspended that a person paused."""
BUDGET: Final = "budget"
"""Why an agent is suspended whose exhausted budget says so, until it is granted more."""
PERSON: Final = frozenset({APPROVAL, PAUSED})
"""Reasons to be suspended that a person ends."""


def start_more(state: TurnState) -> tuple[CallView, ...]:
    """Start every call of the batch that may run now; returns these."""
    calls, started = batch.start(state.calls, state.spec.limits.parallel_calls)
    if started:
        state.calls = calls
    return started


def idle(state: TurnState) -> bool:
    """Whether no call of the batch runs."""
    return CallState.STARTED not in [call.state for call in state.calls]


def park(state: TurnState, rows: tuple[Operation, ...], now: float, before: tuple[Action, ...]) -> Step:
    """Only calls that await a decision are left: the turn stops here, in one commit with what came last.

    Where it was to stop anyway it stops for that reason, and parks when it goes on.
    """
    if state.suspending:
        commit, records = ending.flush(state, now)
        return ending.suspended(state, (*rows, *commit), records, before)
    told = ending.outcome(state, opened(state), Status.PARKED, failure=failure_of(Unfinished(waits(state))))
    commit, records = ending.flush(state, now, suspended=APPROVAL, owes=True)
    return ending.suspended(state, (*rows, *commit), records, before, reason=APPROVAL, told=told)


def paused(row: AgentRow, *, pausing: bool) -> AgentRow:
    """The row of an agent that is paused, or goes on; a turn that stands in order goes on standing so (CON-6)."""
    turn = row.open
    if turn is not None and row.suspended is not None:  # whatever it is suspended for now
        turn = evolve(turn, left=True)
    goes_on = None if row.suspended == PAUSED else row.suspended
    return evolve(row, suspended=PAUSED if pausing else goes_on, open=turn)


def waits(state: TurnState) -> str:
    """What a parked turn waits for, in words."""
    names = ", ".join(f"{call.block.name} ({call.block.id})" for call in approving.undecided(state.calls))
    return f"{state.row.agent} waits for approval of {names}: decide in `async with sup.approvals()`, then wait again"


def decided(state: TurnState, event: Decided) -> Step:
    """Claim decisions, and carry them out, in one commit: approved calls start, denied ones are settled.

    In another phase nothing waits for approval: the calls were settled meanwhile, and the keeper ends the decisions.
    """
    if state.phase is not Phase.RUNNING:
        return Step(state)
    turn = turn_id(state.row.agent, opened(state).number)
    waiting = {call.block.id: call for call in approving.undecided(state.calls)}
    found: dict[str, Decision] = {}
    claimed = []
    for queued in event.decisions:
        envelope = queued.envelope
        if envelope.decision is not None and envelope.target in waiting and envelope.target not in found:
            found[envelope.target] = envelope.decision
            claimed.append(envelope.id)
    if not found:
        return park(state, (), event.now, ()) if idle(state) else Step(state)
    before = state.calls
    calls = tuple(
        approving.decide(turn, call, found[call.block.id]) if call.block.id in found else call for call in before
    )
    tells: list[Action] = [
        approving.decided_tell(call, found[call.block.id]) for call in before if call.block.id in found
    ]
    ended = tuple(call for call in calls if call.block.id in found and call.state is CallState.SETTLED)
    state.calls, state.failures = calls, bounds.count_failures(state, ended)
    if not state.suspending:
        start_more(state)
    started = tuple(
        call for call, was in zip(state.calls, before, strict=True)
        if call.state is CallState.STARTED and was.state is not CallState.STARTED
    )  # fmt: skip
    changed = tuple(call for call, was in zip(state.calls, before, strict=True) if call is not was)
    rows: tuple[Operation, ...] = (Claim(state.row.agent, tuple(claimed), turn), *rows_of(state, changed))
    tells += settled_tells(ended)
    if batch.finished(state.calls) and not state.suspending:
        return batch_over(state, rows, tuple(tells))
    if idle(state):
        return park(state, rows, event.now, tuple(tells))
    return Step(state, rows, (*tells, *starting(started)))
