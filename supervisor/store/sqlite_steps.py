"""What the steps of a SQLite store's change set are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from actors.changes import Value

from . import checks

if TYPE_CHECKING:
    import apsw

Step: TypeAlias = tuple[Callable[..., Value], tuple[Any, ...]]
"""A function of the cursor and its arguments; what bodies it writes stand among these as bytes."""
At: TypeAlias = tuple[str, int]
"""The tree and the epoch that a row is written with."""


def ask(db: apsw.Cursor, sql: str, arguments: tuple[Any, ...]) -> list[Any]:
    """Run a statement to its end: a cursor that is left open would hold up the commit."""
    return db.execute(sql, arguments).fetchall()


def need_agent(db: apsw.Cursor, agent: str) -> None:
    """Raise `UnknownPath` unless there is such an agent."""
    if not ask(db, "SELECT 1 FROM agents WHERE agent = ?", (agent,)):
        raise checks.unknown(agent)
