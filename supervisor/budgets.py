"""A budget as the store keeps it: JSON text of what was set."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs

from actors.budget import Budget
from actors.errors import Corrupt, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


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
