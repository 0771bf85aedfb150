"""Budgets and grants as the store keeps them: JSON text of what was set; and what they make of an agent's turns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import attrs

from actors.budget import Budget
from actors.changes import KvRow
from actors.compaction import DEFAULT_COMPACTION
from actors.errors import Corrupt, UsageError
from actors.points import TurnSpec
from actors.tool_options import Effect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.agent import Agent
    from actors.budget import Limits
    from actors.changes import AgentRow
    from actors.hooked import Point
    from actors.ids import AgentId
    from actors.tools import Tool


GRANTS: Final = "grants"
"""The key-value scope that holds what was granted to an agent's budget, in order."""


def write_budget(budget: Budget | None) -> str | None:
    """The JSON text of a budget; None for none."""
    if budget is None:
        return None
    values = {name: value for name, value in attrs.asdict(budget).items() if value is not None}
    if budget.usd is not None:
        values["usd"] = str(budget.usd)
    return json.dumps(values, separators=(",", ":"), sort_keys=True)


def read_budget(text: str | None) -> Budget | None:
    """The budget of a row.

    Raises:
        Corrupt: the text is none.
    """
    if text is None:
        return None
    try:
        values: Mapping[str, object] = json.loads(text)
        return Budget(**values)  # type: ignore[arg-type]  # Budget checks each value
    except (ValueError, TypeError, UsageError) as error:
        msg = f"a stored budget cannot be read: {text!r}: {error}"
        raise Corrupt(msg) from error


def grant_row(node: AgentId, number: int, more: Budget, by: str) -> KvRow:
    """What was granted, for the store: it outlives the process like the budget itself (BUD-5)."""
    value = json.dumps({"by": by, "budget": write_budget(more)}, separators=(",", ":"))
    return KvRow(node, GRANTS, f"{number:06}", value)


def read_grant(row: KvRow) -> tuple[Budget, str]:
    """What was granted, and by whom.

    Raises:
        Corrupt: the row holds no grant.
    """
    try:
        value = json.loads(row.value)
        more = read_budget(value["budget"])
        by = str(value["by"])
    except (ValueError, TypeError, KeyError) as error:
        msg = f"a stored grant cannot be read: {row.value!r}: {error}"
        raise Corrupt(msg) from error
    if more is None:
        msg = f"a stored grant grants nothing: {row.value!r}"
        raise Corrupt(msg)
    return more, by


def turn_spec(agent: Agent, row: AgentRow, hooks: frozenset[Point], limits: Limits) -> TurnSpec:
    """What holds for all turns of an agent. `hooks`: the points at which there are some; `limits`: as they are kept."""
    return TurnSpec(
        limits=limits,
        drain=agent.drain,
        hooks=hooks,
        output=agent.output_spec,
        reports_to=row.parent if row.background else None,
        compaction=agent.compaction or DEFAULT_COMPACTION,
        keeps=bool(hooks) or agent.hooks is not None or any(_has_stores(tool) for tool in agent.tools),
    )


def _has_stores(tool: Tool[..., object]) -> bool:
    return tool.context is not None and tool.effect is not Effect.CHILD
