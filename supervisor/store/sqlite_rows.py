"""A change set as SQL: each operation looks at what it finds, and then either writes or raises.

What it leaves half done where it raises is undone by whoever carries out the set (STORE-1).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import apsw

from actors import codec
from actors.changes import (
    FORGOTTEN,
    AgentRow,
    Append,
    Bump,
    CallRow,
    CallState,
    Claim,
    Enqueue,
    Erase,
    Forget,
    KvRow,
    Move,
    Operation,
    OutcomeRow,
    Put,
    Require,
    Row,
    RowKey,
    Shut,
)

from . import checks, sqlite_mailbox
from .sqlite_steps import RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.changes import ChangeSet, Value, Values

    from .sqlite_steps import At, Db


def carried_out(db: Db, change_set: ChangeSet) -> Values:
    """Carry out a change set that was checked. Returns the values of its operations."""
    at = (change_set.tree, change_set.epoch or 0)
    return tuple([_DO[type(operation)](db, operation, at) for operation in change_set.operations])


# -- records -----------------------------------------------------------------------------------------------------


def _append(db: Db, operation: Append, at: At) -> int:
    agent, start = operation.agent, operation.at
    known = db.known(agent)
    if known.length != start:
        raise checks.appended(agent, start, known.length)
    key = known.n * RECORDS + start
    for record in operation.records:
        db.behind.record((key, *at, codec.RECORD.encode(record)))
        key += 1
    known.length = start + len(operation.records)
    return known.length


_REMOVE_OLDEST: Final = (
    "DELETE FROM records WHERE k IN (SELECT k FROM records WHERE k >= ?1 AND k < ?1 + ?2"
    " AND k - ?1 NOT IN (SELECT value FROM json_each(?3)) ORDER BY k LIMIT ?4)"
)


def _forget(db: Db, operation: Forget, _: At) -> int:
    agent, before = operation.agent, operation.before
    known = db.known(agent)
    if before >= known.length:
        raise checks.forgets_all(agent, before, known.length)
    db.execute(_REMOVE_OLDEST, (known.n * RECORDS, before, json.dumps(operation.keep), FORGOTTEN))
    return db.changes()


# -- rows --------------------------------------------------------------------------------------------------------

_ADD_AGENT: Final = "INSERT INTO agents(agent, tree, parent, key, owes, epoch, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
_ADD_CALL: Final = "INSERT INTO calls(call, awaits, tree, epoch, body) VALUES (?, ?, ?, ?, ?)"
_ADD_OUTCOME: Final = "INSERT INTO outcomes(turn, tree, epoch, body) VALUES (?, ?, ?, ?)"
_ADD_KV: Final = "INSERT INTO kv(agent, scope, key, tree, epoch, body) VALUES (?, ?, ?, ?, ?, ?)"
_SET_KV: Final = f"{_ADD_KV} ON CONFLICT DO UPDATE SET epoch = excluded.epoch, body = excluded.body"


def _put(db: Db, operation: Put, at: At) -> None:
    row = operation.row
    _PUT[type(row)](db, row, at, fresh=operation.fresh)


def _put_agent(db: Db, row: AgentRow, at: At, *, fresh: bool) -> None:
    body, owes = codec.AGENT.encode(row), int(row.owes)
    known = None if fresh else db.find(row.agent)
    if known is None:
        _add(db, _ADD_AGENT, row, (row.agent, at[0], row.parent, row.key, owes, at[1], body))
        return
    if known.parent != row.parent or known.key != row.key:
        raise checks.moved_identity(row)
    db.behind.row(known, owes, at[1], body)


def _put_call(db: Db, row: CallRow, at: At, *, fresh: bool) -> None:
    values = (row.call, int(row.state is CallState.AWAITING), *at, codec.CALL.encode(row))
    if fresh:
        _add(db, _ADD_CALL, row, values)
        return
    db.behind.call(row.call, values)
    db.calls.add(row.call)


def _put_outcome(db: Db, row: OutcomeRow, at: At, *, fresh: bool) -> None:
    values = (row.turn, *at, codec.OUTCOME.encode(row))
    if fresh:
        _add(db, _ADD_OUTCOME, row, values)
        return
    db.behind.outcome(row.turn, values)


def _put_kv(db: Db, row: KvRow, at: At, *, fresh: bool) -> None:
    _add(db, _ADD_KV if fresh else _SET_KV, row, (row.agent, row.scope, row.key, *at, codec.KV.encode(row)))


_PUT: Final[dict[type[Row], Callable[..., None]]] = {
    AgentRow: _put_agent,
    CallRow: _put_call,
    OutcomeRow: _put_outcome,
    KvRow: _put_kv,
}


def _add(db: Db, sql: str, row: Row, values: tuple[object, ...]) -> None:
    try:
        db.write(sql, values)
    except apsw.ConstraintError:
        raise checks.stands(row) from None


def _erase(db: Db, operation: Erase, _: At) -> int:
    table, prefix = operation.table, operation.prefix
    if table is CallRow:
        call = prefix[0]
        if call not in db.calls:
            return _removed(db, "DELETE FROM calls WHERE call = ?", prefix)
        db.calls.remove(call)
        db.behind.erase(call)
        return 1
    if table is OutcomeRow:
        return _removed(db, "DELETE FROM outcomes WHERE turn = ?", prefix)
    within = " AND ".join(f"{name} = ?" for name in ("agent", "scope", "key")[: len(prefix)])
    return _removed(db, f"DELETE FROM kv WHERE {within}", prefix)  # noqa: S608 - column names of our own


def _removed(db: Db, sql: str, prefix: RowKey) -> int:
    db.execute(sql, prefix)
    return db.changes()


_FIND: Final[dict[type[Row], tuple[str, codec.Form[Any]]]] = {
    AgentRow: ("SELECT body FROM agents WHERE agent = ?", codec.AGENT),
    CallRow: ("SELECT body FROM calls WHERE call = ?", codec.CALL),
    OutcomeRow: ("SELECT body FROM outcomes WHERE turn = ?", codec.OUTCOME),
    KvRow: ("SELECT body FROM kv WHERE agent = ? AND scope = ? AND key = ?", codec.KV),
}


def _require(db: Db, operation: Require, _: At) -> None:
    sql, form = _FIND[operation.table]
    found = db.ask(sql, operation.key)
    row: Row | None = form.decode(found[0][0]) if found else None
    failed = checks.required(operation.table, operation.key, operation.field, row=row, equals=operation.equals)
    if failed is not None:
        raise failed


def _bump(db: Db, operation: Bump, at: At) -> int:
    found = db.ask("SELECT value FROM counters WHERE counter = ?", (operation.counter,))
    value: int = (found[0][0] if found else 0) + operation.by
    refused = checks.counted(operation.counter, value, operation.bound)
    if refused is not None:
        raise refused
    db.execute(
        "INSERT INTO counters(counter, tree, epoch, value) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET tree = excluded.tree, epoch = excluded.epoch, value = excluded.value",
        (operation.counter, *at, value),
    )
    return value


_DO: Final[dict[type[Operation], Callable[..., Value]]] = {
    Append: _append,
    Forget: _forget,
    Put: _put,
    Erase: _erase,
    Enqueue: sqlite_mailbox.enqueue,
    Claim: sqlite_mailbox.claim,
    Move: sqlite_mailbox.move,
    Shut: sqlite_mailbox.shut,
    Require: _require,
    Bump: _bump,
}
