"""A change set as SQL: checked and encoded first, then carried out.

`compiled` does the first before the group's transaction begins, so that the database is locked only while statements
run. Each step then looks at what it finds and either writes or raises; it is undone by the savepoint that its set
runs in (STORE-1).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import apsw
from msgspec import Struct

from actors import codec
from actors.changes import (
    FORGOTTEN,
    AgentRow,
    Append,
    Bump,
    CallRow,
    CallState,
    ChangeSet,
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
from .sqlite_owners import Owning
from .sqlite_steps import RECORDS, At, Db, Step

if TYPE_CHECKING:
    from collections.abc import Callable


class Compiled(Struct, frozen=True):
    """A change set, checked and encoded.

    Attributes:
        size: bytes of its bodies. before: carried out first, and has no value.
    """

    tree: str
    epoch: int | None
    steps: tuple[Step, ...]
    size: int = 0
    before: Step | None = None


def compiled(change_set: ChangeSet | Owning) -> Compiled:
    """Check and encode a change set.

    Raises:
        UsageError: it breaks the rules of change sets.
    """
    if isinstance(change_set, Owning):
        if change_set.founding is None:
            return Compiled(change_set.tree, None, (change_set.step,))
        made = compiled(change_set.founding)
        return Compiled(made.tree, None, made.steps, made.size, change_set.step)
    checks.check(change_set)
    at = (change_set.tree, change_set.epoch or 0)
    steps = tuple([_COMPILE[type(operation)](operation, at) for operation in change_set.operations])
    size = sum([len(part) for _, arguments in steps for part in arguments if type(part) is bytes])
    return Compiled(change_set.tree, change_set.epoch, steps, size)


# -- records -----------------------------------------------------------------------------------------------------

_ADD_RECORD: Final = "INSERT INTO records(k, tree, epoch, body) VALUES (?, ?, ?, ?)"


def _append(operation: Append, at: At) -> Step:
    encode = codec.RECORD.encode
    return _do_append, (operation.agent, operation.at, at, *[encode(record) for record in operation.records])


def _do_append(db: Db, agent: str, start: int, at: At, *bodies: bytes) -> int:
    known = db.known(agent)
    if known.length != start:
        raise checks.appended(agent, start, known.length)
    key = known.n * RECORDS + start
    for body in bodies:
        db.execute(_ADD_RECORD, (key, *at, body))
        key += 1
    known.length = start + len(bodies)
    return known.length


_REMOVE_OLDEST: Final = (
    "DELETE FROM records WHERE k IN (SELECT k FROM records WHERE k >= ?1 AND k < ?1 + ?2"
    " AND k - ?1 NOT IN (SELECT value FROM json_each(?3)) ORDER BY k LIMIT ?4)"
)


def _forget(operation: Forget, _: At) -> Step:
    return _do_forget, (operation.agent, operation.before, json.dumps(operation.keep))


def _do_forget(db: Db, agent: str, before: int, keep: str) -> int:
    known = db.known(agent)
    if before >= known.length:
        raise checks.forgets_all(agent, before, known.length)
    db.execute(_REMOVE_OLDEST, (known.n * RECORDS, before, keep, FORGOTTEN))
    return db.changes()


# -- rows --------------------------------------------------------------------------------------------------------

_SET_AGENT: Final = "UPDATE agents SET owes = ?, epoch = ?, body = ? WHERE n = ? AND parent = ? AND key IS ?"
_ADD_AGENT: Final = "INSERT INTO agents(agent, tree, epoch, parent, key, owes, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
_ADD: Final[dict[type[Row], str]] = {
    CallRow: "INSERT INTO calls(call, tree, epoch, awaits, body) VALUES (?, ?, ?, ?, ?)",
    OutcomeRow: "INSERT INTO outcomes(turn, tree, epoch, body) VALUES (?, ?, ?, ?)",
    KvRow: "INSERT INTO kv(agent, scope, key, tree, epoch, body) VALUES (?, ?, ?, ?, ?, ?)",
}
_SET: Final[dict[type[Row], str]] = {
    table: f"{insert} ON CONFLICT DO UPDATE SET epoch = excluded.epoch, body = excluded.body"
    for table, insert in _ADD.items()
}
_SET[CallRow] += ", awaits = excluded.awaits"


def _put(operation: Put, at: At) -> Step:
    row, fresh = operation.row, operation.fresh
    arguments: tuple[Any, ...]
    match row:
        case AgentRow():
            return (_do_add_agent if fresh else _do_set_agent), (row, at, codec.AGENT.encode(row))
        case CallRow():
            arguments = (row.call, *at, int(row.state is CallState.AWAITING), codec.CALL.encode(row))
        case OutcomeRow():
            arguments = (row.turn, *at, codec.OUTCOME.encode(row))
        case KvRow():
            arguments = (row.agent, row.scope, row.key, *at, codec.KV.encode(row))
    return _do_put, ((_ADD if fresh else _SET)[type(row)], row, *arguments)


def _do_put(db: Db, sql: str, row: Row, *arguments: object) -> None:
    try:
        db.execute(sql, arguments)
    except apsw.ConstraintError:
        raise checks.stands(row) from None


def _do_add_agent(db: Db, row: AgentRow, at: At, body: bytes) -> None:
    try:
        db.execute(_ADD_AGENT, (row.agent, *at, row.parent, row.key, int(row.owes), body))
    except apsw.ConstraintError:
        raise checks.stands(row) from None


def _do_set_agent(db: Db, row: AgentRow, at: At, body: bytes) -> None:
    known = db.find(row.agent)
    if known is None:
        _do_add_agent(db, row, at, body)
        return
    db.execute(_SET_AGENT, (int(row.owes), at[1], body, known.n, row.parent, row.key))
    if not db.changes():
        raise checks.moved_identity(row)


def _erase(operation: Erase, _: At) -> Step:
    prefix = operation.prefix
    if operation.table is CallRow:
        return _do_erase, ("DELETE FROM calls WHERE call = ?", prefix)
    if operation.table is OutcomeRow:
        return _do_erase, ("DELETE FROM outcomes WHERE turn = ?", prefix)
    within = " AND ".join(f"{name} = ?" for name in ("agent", "scope", "key")[: len(prefix)])
    return _do_erase, (f"DELETE FROM kv WHERE {within}", prefix)  # noqa: S608 - column names of our own


def _do_erase(db: Db, sql: str, prefix: RowKey) -> int:
    db.execute(sql, prefix)
    return db.changes()


_FIND: Final[dict[type[Row], tuple[str, codec.Form[Any]]]] = {
    AgentRow: ("SELECT body FROM agents WHERE agent = ?", codec.AGENT),
    CallRow: ("SELECT body FROM calls WHERE call = ?", codec.CALL),
    OutcomeRow: ("SELECT body FROM outcomes WHERE turn = ?", codec.OUTCOME),
    KvRow: ("SELECT body FROM kv WHERE agent = ? AND scope = ? AND key = ?", codec.KV),
}


def _require(operation: Require, _: At) -> Step:
    return _do_require, (operation,)


def _do_require(db: Db, operation: Require) -> None:
    sql, form = _FIND[operation.table]
    found = db.ask(sql, operation.key)
    row: Row | None = form.decode(found[0][0]) if found else None
    failed = checks.required(operation.table, operation.key, operation.field, row=row, equals=operation.equals)
    if failed is not None:
        raise failed


def _bump(operation: Bump, at: At) -> Step:
    return _do_bump, (operation, at)


def _do_bump(db: Db, operation: Bump, at: At) -> int:
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


_COMPILE: Final[dict[type[Operation], Callable[..., Step]]] = {
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
