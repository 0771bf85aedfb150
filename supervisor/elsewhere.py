"""How agents stand that another process runs, as the store has it: who waits for a person there, and their state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from actors.errors import Exhausted, Unfinished
from actors.ids import tree_of
from actors.mailbox import Mailbox
from actors.messages import Failure, failure_of
from actors.parking import APPROVAL, BUDGET

from .standstill import causes_of, parked, state_of
from .viewing import View

if TYPE_CHECKING:
    from actors.ids import AgentId
    from actors.messages import Outcome

    from .kernel import Kernel
    from .store.base import StoredAgent

SEEN_MAX: Final = 1_024
"""Of how many agents the state is remembered as it was read last."""


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
        causes = {} if stored is None else await causes_of(self._kernel.store, stored)
        if stored is None or not causes:
            return None
        self.saw(stored)
        if listening and all(cause == APPROVAL for cause, _ in causes.values()):
            return None
        said = "; ".join(words for _, (_, words) in sorted(causes.items()))
        budget = all(cause == BUDGET for cause, _ in causes.values())
        return parked(stored.row, Failure(Exhausted.kind, said) if budget else failure_of(Unfinished(said)))

    def __repr__(self) -> str:
        return f"<Elsewhere {len(self._seen)} seen in {tree_of(next(iter(self._seen))) if self._seen else 'no tree'}>"
