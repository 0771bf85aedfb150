"""Ledgers of three levels, for the tests of budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.ids import AgentId, parent_path
from supervisor.ledger import Ledger

if TYPE_CHECKING:
    from actors.budget import Budget

LEAD, MID, LEAF = AgentId("lead"), AgentId("lead/mid"), AgentId("lead/mid/leaf")


def chain(lead: Budget | None = None, mid: Budget | None = None, leaf: Budget | None = None) -> Ledger:
    """Three accounts, one below the other."""
    ledger = Ledger()
    for agent, budget in ((LEAD, lead), (MID, mid), (LEAF, leaf)):
        ledger.open(agent, parent_path(agent), budget)
    return ledger
