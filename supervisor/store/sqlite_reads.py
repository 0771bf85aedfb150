"""The reads of a SQLite store, each one short transaction on a connection of its own.

They have a connection and a thread of their own, so that a long conversation that is read does not hold up commits,
and so that a read is not queued behind sync tools for one of Trio's threads. In write-ahead mode a transaction that
begins now sees every commit that has returned. Rows are decoded after the transaction has ended.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import apsw

from actors import codec
from actors.changes import Intake
from actors.errors import Corrupt
from actors.messages import DeadLetter, Lane, Queued, ReceiptState

from .base import MessageView, StoredAgent
from .checks import call_order
from .leases import is_over
from .sqlite_machine import boot_id, gone
from .sqlite_owners import LEASE, decoded
from .sqlite_place import identity_of
from .sqlite_steps import RECORDS
from .sqlite_writer import store_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.changes import AgentRow, CallRow, KvRow, OutcomeRow
    from actors.ids import AgentId, MessageId, TreeId, TurnId
    from actors.transcript import Record

    from .leases import Lease

_AGENT: Final = (
    f"SELECT body, intake, seq, ifnull((SELECT k - n * {RECORDS} + 1 FROM records WHERE k >= n * {RECORDS}"  # noqa: S608
    f" AND k < (n + 1) * {RECORDS} ORDER BY k DESC LIMIT 1), 0) FROM agents WHERE agent = ?"
)
_RECORDS: Final = (
    f"SELECT k - n * {RECORDS}, records.body FROM agents, records WHERE agent = ?1 AND k >= n * {RECORDS} + ?2"  # noqa: S608
    f" AND k < n * {RECORDS} + ?3 ORDER BY k"
)
_WAITING: Final = "SELECT seq, body, state FROM messages WHERE agent = ? AND state IN ('queued', 'held') ORDER BY seq"
_MESSAGES: Final = (
    "SELECT seq, body, state FROM messages WHERE agent = ? AND seq > ? AND state IN (SELECT value FROM json_each(?))"
)
_DEAD: Final = "SELECT seq, body, reason, at, turn, agent FROM messages WHERE state = 'dead'"
_BELOW: Final = " AND (agent = ?1 OR (agent > ?1 || '/' AND agent < ?1 || '0'))"
_ORDERED: Final = "ORDER BY seq LIMIT ?"
_ROOTS: Final = (
    "SELECT body FROM agents WHERE parent = '' AND n > (CASE WHEN ?1 IS NULL THEN 0 ELSE"
    " (SELECT n FROM agents WHERE agent = ?1) END) ORDER BY n LIMIT ?2"
)
# a tree's paths are the root's and those that begin with it and "/"; "0" follows "/"
_TREE: Final = "SELECT body FROM agents WHERE agent = ?1 OR (agent > ?1 || '/' AND agent < ?1 || '0') ORDER BY n"


def name_of(db: apsw.Connection) -> str | None:
    """The name that a store was given when it was made; None where that is not to be read."""
    try:
        found = db.execute("SELECT value FROM meta WHERE key = 'store_id' AND typeof(value) = 'text'").fetchall()
    except UnicodeDecodeError:
        return None
    return str(found[0][0]) if found else None


class Reads:
    """The read connection. Used by one thread at a time; every method is one read transaction."""

    def __init__(self, path: str, db: apsw.Connection) -> None:
        self.path = path
        self._db = db
        try:
            name = name_of(db)
        except apsw.Error as error:
            raise store_error(path, error) from error
        if name is None:
            raise Corrupt(f"store {path} has lost its name (store_id): it is damaged; restore it from a copy")
        device, number = identity_of(db.filename) or (0, 0)
        self.id: Final = f"{name}@{device:x}.{number:x}"  # a copy of a store has its name, and other agents

    def load_agent(self, agent: AgentId) -> StoredAgent | None:
        """As `Reader.load_agent`."""
        found, waiting, calls = self._rows(
            (_AGENT, (agent,)),
            (_WAITING, (agent,)),
            ("SELECT body FROM calls WHERE call > ?1 || ':t' AND call < ?1 || ':u'", (agent,)),
        )
        if not found:
            return None
        body, intake, seq, length = found[0]
        rows = [_decoded(codec.CALL, call[0], f"a call of {agent}") for call in calls]
        rows.sort(key=call_order)
        return StoredAgent(_agent(body), Intake(intake), length, _queued(agent, waiting), tuple(rows), seq)

    def read_records(self, agent: AgentId, start: int, stop: int | None) -> tuple[Record, ...]:
        """As `Reader.read_records`."""
        end = RECORDS if stop is None else min(stop, RECORDS)
        (found,) = self._rows((_RECORDS, (agent, start, end)))
        return tuple([_decoded(codec.RECORD, body, f"record {at} of {agent}") for at, body in found])

    def outcome(self, turn: TurnId) -> OutcomeRow | None:
        """As `Reader.outcome`."""
        (found,) = self._rows(("SELECT body FROM outcomes WHERE turn = ?", (turn,)))
        return _decoded(codec.OUTCOME, found[0][0], f"the outcome of {turn}") if found else None

    def message_state(self, message: MessageId) -> MessageView | None:
        """As `Reader.message_state`."""
        (found,) = self._rows(("SELECT agent, seq, lane, state, turn, reason FROM messages WHERE id = ?", (message,)))
        if not found:
            return None
        agent, seq, lane, state, turn, reason = found[0]
        return MessageView(message, agent, seq, Lane(lane), ReceiptState(state), turn, reason)

    def find_key(self, parent: str, key: str) -> AgentId | None:
        """As `Reader.find_key`."""
        (found,) = self._rows(("SELECT agent FROM agents WHERE parent = ? AND key = ?", (parent, key)))
        return found[0][0] if found else None

    def agents_with_work(self) -> tuple[AgentId, ...]:
        """As `Reader.agents_with_work`."""
        (found,) = self._rows(("SELECT agent FROM agents WHERE owes = 1 OR queued > 0 ORDER BY agent", ()))
        return tuple([row[0] for row in found])

    def awaiting_calls(self) -> tuple[CallRow, ...]:
        """As `Reader.awaiting_calls`."""
        (found,) = self._rows(("SELECT body FROM calls WHERE awaits = 1", ()))
        rows: list[CallRow] = [_decoded(codec.CALL, row[0], "a call that waits for approval") for row in found]
        return tuple(sorted(rows, key=lambda row: (row.agent, call_order(row))))

    def children(self, parent: AgentId) -> tuple[AgentRow, ...]:
        """As `Reader.children`."""
        return self._agents("SELECT body FROM agents WHERE parent = ? ORDER BY n", (parent,))

    def tree_rows(self, tree: TreeId) -> tuple[AgentRow, ...]:
        """As `Reader.tree_rows`."""
        return self._agents(_TREE, (tree,))

    def roots(self, after: AgentId | None, limit: int) -> tuple[AgentRow, ...]:
        """As `Reader.roots`."""
        return self._agents(_ROOTS, (after, limit))

    def kv(self, agent: AgentId, scope: str) -> tuple[KvRow, ...]:
        """As `Reader.kv`."""
        (found,) = self._rows(("SELECT body FROM kv WHERE agent = ? AND scope = ? ORDER BY key", (agent, scope)))
        return tuple([_decoded(codec.KV, row[0], f"the key-value store of {agent}") for row in found])

    def messages(
        self, agent: AgentId, states: tuple[ReceiptState, ...], *, after: int, limit: int
    ) -> tuple[Queued, ...]:
        """As `Reader.messages`."""
        wanted = json.dumps([state.value for state in states])
        if set(states) <= {ReceiptState.QUEUED, ReceiptState.HELD}:
            only = "AND state IN ('queued', 'held')"  # said again, so that the index over these is taken
        elif set(states) == {ReceiptState.DEAD}:
            only = "AND state = 'dead'"
        else:
            only = ""  # a pass over all messages: nothing that runs asks for finished ones
        (found,) = self._rows((f"{_MESSAGES} {only} {_ORDERED}", (agent, after, wanted, limit)))
        return _queued(agent, found)

    def dead_letters(self, agent: AgentId | None, limit: int) -> tuple[DeadLetter, ...]:
        """As `Reader.dead_letters`."""
        below, arguments = ("", ()) if agent is None else (_BELOW, (agent,))
        (found,) = self._rows((f"{_DEAD}{below} ORDER BY agent, seq LIMIT {limit:d}", arguments))
        return tuple(
            [
                DeadLetter(e.id, e.to, reason or "", at, e.lane, e.content, e.sender, turn)
                for seq, body, reason, at, turn, to in found
                for e in (_decoded(codec.ENVELOPE, body, f"message {seq} of {to}"),)
            ]
        )

    def news(self, after: int) -> tuple[int, tuple[AgentId, ...]]:
        """As `Reader.news`."""
        if after < 0:
            (found,) = self._rows(("SELECT ifnull(max(n), 0) FROM messages", ()))
            return found[0][0], ()
        (found,) = self._rows(("SELECT n, agent FROM messages WHERE n > ? ORDER BY n", (after,)))
        return (found[-1][0] if found else after), tuple(dict.fromkeys(agent for _, agent in found))

    def lease(self, tree: TreeId, clock: Callable[[], float]) -> Lease | None:
        """As `Reader.lease`."""
        (found,) = self._rows((LEASE, (tree,)))
        if not found or found[0][1] is None:
            return None
        lease = decoded(*found[0][1:])
        return None if is_over(lease, boot=boot_id(), now=clock(), gone=gone) else lease

    def version(self) -> int:
        """As `Reader.version`."""
        try:
            version: int = self._db.pragma("data_version")
        except apsw.Error as error:
            raise store_error(self.path, error) from error
        return version

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def _agents(self, sql: str, arguments: tuple[Any, ...]) -> tuple[AgentRow, ...]:
        (found,) = self._rows((sql, arguments))
        return tuple([_agent(row[0]) for row in found])

    def _rows(self, *statements: tuple[str, tuple[Any, ...]]) -> list[list[Any]]:
        """The rows of each statement, all of one moment."""
        db = self._db
        try:
            db.execute("BEGIN")
            try:
                return [db.execute(sql, arguments).fetchall() for sql, arguments in statements]
            finally:
                db.execute("COMMIT")
        except apsw.Error as error:
            raise store_error(self.path, error) from error


def damaged(file: str, error: Corrupt) -> Corrupt:
    """The error of a row that cannot be read, with the file that it stands in."""
    if file in str(error):
        return error
    return Corrupt(f"store {file} is damaged: {error}; `callboard store check` names all of it, a copy restores it")


def _agent(body: bytes) -> AgentRow:
    row: AgentRow = _decoded(codec.AGENT, body, "an agent's row")
    return row


def _queued(agent: str, rows: list[Any]) -> tuple[Queued, ...]:
    return tuple(
        [
            Queued(seq, _decoded(codec.ENVELOPE, body, f"message {seq} of {agent}"), ReceiptState(state))
            for seq, body, state in rows
        ]
    )


def _decoded(form: codec.Form[Any], body: bytes, where: str) -> Any:
    try:
        return form.decode(body)
    except Corrupt as error:
        raise Corrupt(f"{where}: {error}") from None
