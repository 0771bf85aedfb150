"""How agents stand that another process runs, as the store has it: who waits for a person there, and their state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from actors.changes import CallState, Intake
from actors.errors import Unfinished
from actors.ids import run_id, tree_of, turn_id
from actors.mailbox import Mailbox
from actors.messages import Lane, Outcome, ReceiptState, Status, failure_of
from actors.parking import APPROVAL, BUDGET, PAUSED, PERSON

from .viewing import View

if TYPE_CHECKING:
    from actors.ids import AgentId

    from .kernel import Kernel
    from .store.base import StoredAgent

SEEN_MAX: Final = 1_024
"""Of how many agents the state is remembered as it was read last."""
_WAITS: Final = frozenset({*PERSON, BUDGET})


@final
class Elsewhere:
    """What was read of agents that are not run here.

    Invariants:
        ELSEWHERE-1 at most `SEEN_MAX` agents are remembered, those that were read last.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._seen: dict[AgentId, View] = {}

    def saw(self, stored: StoredAgent) -> View:
        """An agent was read: its handles say so from now on, until it is read again or runs here."""
        row, mailbox = stored.row, Mailbox()
        mailbox.reload(stored.queued, stored.seq + 1)
        self._seen.pop(row.agent, None)
        view = View(state_of(stored), row.usage, row.spent, mailbox.statistics(), self._kernel.now())
        self._seen[row.agent] = view
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        return view

    def view(self, path: AgentId) -> View | None:
        """An agent as it was read last; None where it never was."""
        return self._seen.get(path)

    async def parked(self, path: AgentId, *, listening: bool) -> Outcome | None:
        """What code outside of agents is told that waits for an agent which stands still (TOL-12).

        Args:
            path: whom it waits for.
            listening: an inbox is open here, in which its approvals will be decided.

        Returns:
            That it is parked, and for what; None where it should wait on.

        Raises:
            StoreError: it cannot be read.
        """
        stored = await self._kernel.store.load_agent(path)
        causes = {} if stored is None else await self._causes(stored)
        if stored is None or not causes:
            return None
        self.saw(stored)
        if listening and all(cause == APPROVAL for cause, _ in causes.values()):
            return None
        row = stored.row
        return Outcome(
            path=path,
            run=run_id(path, max(row.runs, 1)),
            turn=turn_id(path, max(row.turns, 1)),
            status=Status.PARKED,
            usage=row.run_usage,
            spent=row.run_spent,
            cost_known=row.cost_known,
            failure=failure_of(Unfinished("; ".join(words for _, (_, words) in sorted(causes.items())))),
        )

    async def _causes(self, stored: StoredAgent) -> dict[AgentId, tuple[str, str]]:
        """The agents at which a person must act before this one goes on; nobody where it goes on by itself.

        It does where one of its running calls has no child that stands still, or has one that does not.
        """
        row = stored.row
        if row.suspended in _WAITS:
            return {} if _coming(stored) else {row.agent: (row.suspended, _words(stored))}
        running = [call.call for call in stored.calls if call.state is CallState.STARTED and call.result is None]
        if row.open is None or not running:
            return {}
        children = [child for child in await self._kernel.store.children(row.agent) if not child.background]
        causes: dict[AgentId, tuple[str, str]] = {}
        for call in running:
            found: dict[AgentId, tuple[str, str]] = {}
            for child in children:
                loaded = await self._kernel.store.load_agent(child.agent) if child.started_by == call else None
                if loaded is None or state_of(loaded) in _AT_REST:
                    continue
                below = await self._causes(loaded)
                if not below:
                    return {}
                found.update(below)
            if not found:
                return {}
            causes.update(found)
        return causes

    def __repr__(self) -> str:
        return f"<Elsewhere {len(self._seen)} seen in {tree_of(next(iter(self._seen))) if self._seen else 'no tree'}>"


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
