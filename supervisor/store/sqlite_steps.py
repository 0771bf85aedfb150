"""What the steps of a SQLite store's change set are made of, and what they work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from actors.changes import Value

from . import checks
from .sqlite_behind import Behind, Known

if TYPE_CHECKING:
    import apsw

    from .sqlite_turn import Turnstile

Step: TypeAlias = tuple[Callable[..., Value], tuple[Any, ...]]
"""A function of the connection, and its arguments."""
At: TypeAlias = tuple[str, int]
"""The tree and the epoch that a row is written with."""

RECORDS: Final = 1 << 32
"""How many records an agent may have: a record's key is its agent's number times this, and its index."""
MOST_KNOWN: Final = 20_000
"""Agents, messages and calls of which is known where they stand; with more, all is looked up anew."""

_AGENT: Final = (
    "SELECT n, parent, key, intake, owes, seq, queued, control_n, control_bytes, steer_n, steer_bytes, send_n,"  # noqa: S608
    f" send_bytes, ifnull((SELECT k - n * {RECORDS} + 1 FROM records WHERE k >= n * {RECORDS}"
    f" AND k < (n + 1) * {RECORDS} ORDER BY k DESC LIMIT 1), 0) FROM agents WHERE agent = ?"
)


@final
class Db:
    """The write connection, what it has read that is still so, and what it has yet to write.

    A commit looks the same few things up again and again: how an agent stands, which messages wait and which calls are
    open, the epoch of its tree. They are kept for as long as they cannot have changed: from one transaction to the
    next while no other connection has written (SQLite tells), and never past a rollback.

    Attributes:
        behind: rows to be written; they are, before anything is read or written otherwise (BEHIND-1).
        waiting: messages that are queued, by id: number, agent, lane, places, bytes; not all.
        calls: calls that stand; not all.
    """

    __slots__ = ("_agents", "_execute", "_last", "_turnstile", "_version", "behind", "calls", "changes", "connection",
                 "epochs", "waiting")  # fmt: skip

    def __init__(self, connection: apsw.Connection, turnstile: Turnstile) -> None:
        self.connection = connection
        self._turnstile = turnstile
        self._execute: Callable[..., Any] = connection.cursor().execute
        self.changes = connection.changes
        self.behind = Behind(connection)
        self.epochs: dict[str, int | None] = {}
        self.waiting: dict[str, tuple[int, str, str, int, int]] = {}
        self.calls: set[str] = set()
        self._agents: dict[str, Known] = {}
        self._last: int | None = None
        self._version = -1

    def execute(self, sql: str, arguments: tuple[Any, ...] = ()) -> Any:
        """Run a statement, behind what waits to be written."""
        self.behind.write()
        return self._execute(sql, arguments)

    def write(self, sql: str, values: tuple[Any, ...]) -> None:
        """Write a row whose last value is its body."""
        self.behind.size += len(values[-1])
        self.execute(sql, values)

    def ask(self, sql: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
        """Run a statement to its end: a cursor that is left open would hold up the commit."""
        self.behind.write()
        return self._ask(sql, arguments)

    def begin(self) -> None:
        """Begin a transaction, with the write lock."""
        with self._turnstile:
            self._execute("BEGIN IMMEDIATE")
        self.behind.size = 0
        # of this connection's own commits it knows; those of others are seen as the transaction begins
        if (
            self.connection.data_version() != self._version
            or len(self._agents) + len(self.waiting) + len(self.calls) > MOST_KNOWN
        ):
            self.forget()

    def commit(self) -> None:
        """End the transaction; what waits must have been written."""
        self._execute("COMMIT")
        self._version = self.connection.data_version()

    def roll_back(self, savepoint: str = "") -> None:
        """Undo the transaction, or what came behind a savepoint, and what is known of it."""
        self.forget()
        self._execute(f"ROLLBACK{savepoint}")

    def close(self) -> None:
        """Give up the place before the write lock."""
        self._turnstile.close()

    def version(self) -> int:
        """A number that changes when another connection has written."""
        return int(self._ask("PRAGMA data_version")[0][0])

    def forget(self) -> None:
        """Look everything up anew: something was undone, or another connection wrote."""
        self.behind.clear()
        self.epochs.clear()
        self.waiting.clear()
        self.calls.clear()
        self._agents.clear()
        self._last = None
        self._version = -1

    def _ask(self, sql: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
        """Ask for what nothing that waits can change."""
        found: list[Any] = self._execute(sql, arguments).fetchall()
        return found

    def find(self, agent: str) -> Known | None:
        """How an agent stands, or None where there is none."""
        known = self._agents.get(agent)
        if known is None:  # then nothing of it waits to be written
            found = self._ask(_AGENT, (agent,))
            if not found:
                return None
            known = self._agents[agent] = Known(found[0])
        return known

    def known(self, agent: str) -> Known:
        """How an agent stands.

        Raises:
            UnknownPath: there is no such agent.
        """
        known = self._agents.get(agent) or self.find(agent)
        if known is None:
            raise checks.unknown(agent)
        return known

    def next_message(self) -> int:
        """The number of a new message: one more than the last one's."""
        if self._last is None:  # then none waits to be written
            self._last = int(self._ask("SELECT ifnull(max(n), 0) FROM messages")[0][0])
        self._last += 1
        return self._last

    def epoch(self, tree: str) -> int | None:
        """The epoch of a tree's owner; None where nobody has owned it."""
        if tree not in self.epochs:
            found = self._ask("SELECT epoch FROM trees WHERE tree = ?", (tree,))
            self.epochs[tree] = found[0][0] if found else None
        return self.epochs[tree]
