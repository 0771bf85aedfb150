"""What the steps of a SQLite store's change set are made of, and what they work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from actors.changes import Value

from . import checks

if TYPE_CHECKING:
    import apsw

    from .sqlite_turn import Turnstile

Step: TypeAlias = tuple[Callable[..., Value], tuple[Any, ...]]
"""A function of the connection and its arguments; what bodies it writes stand among these as bytes."""
At: TypeAlias = tuple[str, int]
"""The tree and the epoch that a row is written with."""

RECORDS: Final = 1 << 32
"""How many records an agent may have: a record's key is its agent's number times this, and its index."""
MOST_KNOWN: Final = 20_000
"""Agents of which is known where they stand; with more, all is looked up anew."""

_AGENT: Final = (
    f"SELECT n, (SELECT k - n * {RECORDS} + 1 FROM records WHERE k >= n * {RECORDS} AND k < (n + 1) * {RECORDS}"  # noqa: S608
    " ORDER BY k DESC LIMIT 1) FROM agents WHERE agent = ?"
)


@final
class Known:
    """Where an agent's rows stand. `n`: its number. `length`: how many records its conversation has."""

    __slots__ = ("length", "n")

    def __init__(self, n: int, length: int) -> None:
        self.n = n
        self.length = length


@final
class Db:
    """The write connection, and what it has read that is still so.

    A commit looks the same few things up again and again: an agent's number, the length of its conversation, the epoch
    of its tree. They are kept for as long as they cannot have changed: from one transaction to the next while no other
    connection has written (SQLite tells), and never past a rollback.
    """

    __slots__ = ("_agents", "_turnstile", "_version", "changes", "connection", "epochs", "execute", "total_changes")

    def __init__(self, connection: apsw.Connection, turnstile: Turnstile) -> None:
        self.connection = connection
        self._turnstile = turnstile
        self.execute = connection.cursor().execute
        self.changes = connection.changes
        self.total_changes = connection.total_changes
        self.epochs: dict[str, int | None] = {}
        self._agents: dict[str, Known] = {}
        self._version = -1

    def ask(self, sql: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
        """Run a statement to its end: a cursor that is left open would hold up the commit."""
        return self.execute(sql, arguments).fetchall()

    def begin(self) -> None:
        """Begin a transaction, with the write lock."""
        with self._turnstile:
            self.execute("BEGIN IMMEDIATE")
        version = self.version()
        if version != self._version or len(self._agents) > MOST_KNOWN:
            self.forget()
            self._version = version

    def close(self) -> None:
        """Give up the place before the write lock."""
        self._turnstile.close()

    def version(self) -> int:
        """A number that changes when another connection has written."""
        version: int = self.ask("PRAGMA data_version")[0][0]
        return version

    def forget(self) -> None:
        """Look everything up anew: something was undone, or another connection wrote."""
        self.epochs.clear()
        self._agents.clear()

    def find(self, agent: str) -> Known | None:
        """Where an agent's rows stand, or None where there is none."""
        known = self._agents.get(agent)
        if known is None:
            found = self.ask(_AGENT, (agent,))
            if not found:
                return None
            n, length = found[0]
            known = self._agents[agent] = Known(n, length or 0)
        return known

    def known(self, agent: str) -> Known:
        """Where an agent's rows stand.

        Raises:
            UnknownPath: there is no such agent.
        """
        known = self._agents.get(agent) or self.find(agent)
        if known is None:
            raise checks.unknown(agent)
        return known

    def epoch(self, tree: str) -> int | None:
        """The epoch of a tree's owner; None where nobody has owned it."""
        if tree not in self.epochs:
            found = self.ask("SELECT epoch FROM trees WHERE tree = ?", (tree,))
            self.epochs[tree] = found[0][0] if found else None
        return self.epochs[tree]
