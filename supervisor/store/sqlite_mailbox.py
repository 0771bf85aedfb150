"""The mailbox of a SQLite store: accepting, claiming, moving and closing, as SQL.

An agent's counters change in the same order everywhere: look, refuse or write the message, count. They are kept by
hand, not by triggers, so that what a commit costs can be read here; and written once, when the group is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from actors import codec
from actors.changes import Claim, Enqueue, Intake, Move, Placed, Shut
from actors.ids import MessageId, tree_of
from actors.messages import Envelope, ReceiptState

from . import checks

if TYPE_CHECKING:
    from actors.errors import Conflict

    from .sqlite_behind import Known
    from .sqlite_steps import At, Db

_WAITING: Final = frozenset({ReceiptState.QUEUED, ReceiptState.HELD})

_FIRST_OF_KEY: Final = "SELECT seq, body FROM messages WHERE agent = ? AND sender = ? AND key = ?"
_OF_SENDER: Final = (
    "SELECT count(*) FROM messages WHERE agent = ? AND state IN ('queued', 'held') AND lane = ? AND sender = ?"
    " AND places = 1"
)
_PLACE: Final = {lane: 1 + 2 * number for number, lane in enumerate(("control", "steer", "send"))}
"""Where the counters of a lane stand among an agent's."""


def enqueue(db: Db, operation: Enqueue, at: At) -> Placed:
    """Accept a message, or find its first acceptance (ACC-1, ACC-7)."""
    envelope = operation.envelope
    to, lane, sender = envelope.to, envelope.lane.value, envelope.sender or ""
    known = db.known(to)
    if envelope.key is not None:
        firsts = db.ask(_FIRST_OF_KEY, (to, sender, envelope.key))
        if firsts:
            return _again(envelope, *firsts[0])
    counts, place = known.counts, _PLACE[lane]
    refused = checks.refusal(
        envelope,
        operation.bound,
        known.intake,
        depth=counts[place],
        size_bytes=counts[place + 1],
        of_sender=lambda: int(db.ask(_OF_SENDER, (to, lane, sender))[0][0]),
    )
    if refused is not None:
        raise refused
    places, counted = (0, 0) if envelope.reserved else (1, envelope.size_bytes)
    n, seq, message = db.next_message(), known.seq + 1, envelope.id
    tree = tree_of(to)
    epoch = at[1] if tree == at[0] else 0  # another tree's message is accepted as from anyone
    body = codec.ENVELOPE.encode(envelope)
    row = (n, "queued", to, seq, message, lane, sender, envelope.key, places, counted, tree, epoch, body)
    db.behind.message(message, row)
    db.behind.count(known)
    known.seq = seq
    counts[0] += 1
    counts[place] += places
    counts[place + 1] += counted
    db.waiting[message] = (n, to, lane, places, counted)
    return Placed(message, seq)


def _again(envelope: Envelope, seq: int, body: bytes) -> Placed:
    first = codec.ENVELOPE.decode(body)
    if not checks.same_body(first, envelope):
        raise checks.reused_key(envelope)
    return Placed(first.id, seq, again=True)


def _count(known: Known, sign: int, state: str, lane: str, places: int, size: int) -> None:
    """Count a message that was (-1) or will be (1) in `state`."""
    if state in _WAITING:
        counts, place = known.counts, _PLACE[lane]
        counts[0] += sign * (state == "queued")
        counts[place] += sign * places
        counts[place + 1] += sign * size


_TAKE: Final = (
    "UPDATE messages SET state = 'consumed', turn = ?, reason = ?, epoch = ?"
    " WHERE id = ? AND agent = ? AND state = ? RETURNING lane, places, bytes"
)


def claim(db: Db, operation: Claim, at: At) -> None:
    """Take messages for a turn (CON-3)."""
    agent, epoch = operation.agent, at[1]
    known = db.known(agent)
    if not operation.messages:
        raise checks.claims_nothing(agent)
    for message in operation.messages:
        waits = db.waiting.pop(message, None)
        if waits is not None and waits[1] == agent:
            db.behind.take((waits[0], "consumed", operation.turn, operation.reason, epoch))
            _count(known, -1, "queued", *waits[2:])
            continue
        for state in ("queued", "held"):  # CON-3: whoever comes second finds it in neither
            taken = db.ask(_TAKE, (operation.turn, operation.reason, epoch, message, agent, state))
            if taken:
                _count(known, -1, state, *taken[0])
                break
        else:
            raise _not_waiting(db, agent, message)
    db.behind.count(known)


def _not_waiting(db: Db, agent: str, message: str) -> Conflict:
    found = db.ask("SELECT state FROM messages WHERE id = ? AND agent = ?", (message, agent))
    return checks.not_waiting(agent, message, found[0][0] if found else "not there")


_COLUMNS: Final = "SELECT n, seq, id, state, lane, places, bytes FROM messages"
_NAMED: Final = f"{_COLUMNS} WHERE id = ? AND agent = ?"
_ALL: Final = f"{_COLUMNS} WHERE agent = ? AND lane != 'control' AND state IN (SELECT value FROM json_each(?))"  # noqa: S608
_ALL_WAITING: Final = f"{_ALL} AND state IN ('queued', 'held') ORDER BY seq"
_TURN_TO: Final = "UPDATE messages SET state = ?, reason = ?, at = ?, epoch = ?{} WHERE n = ?"


def move(db: Db, operation: Move, at: At) -> tuple[MessageId, ...]:
    """Change the state of messages."""
    agent, frm, to = operation.agent, operation.frm, operation.to
    known = db.known(agent)
    update = _TURN_TO.format(", turn = NULL" if to in _WAITING else "")
    moved: list[tuple[int, MessageId]] = []
    named = operation.messages is not None
    for key in operation.messages if operation.messages is not None else (None,):
        for n, seq, message, state, *size in _meant(db, operation, key):
            if named and state not in frm:
                raise checks.not_waiting(agent, message, state)
            db.execute(update, (to.value, operation.reason, operation.at, at[1], n))
            if state == "dead" and to in _WAITING:
                _live_on(db, n)
            db.waiting.pop(message, None)
            _count(known, -1, state, *size)
            _count(known, 1, to.value, *size)
            moved.append((seq, message))
    if moved:
        db.behind.count(known)
    return tuple([message for _, message in sorted(moved)])


def _live_on(db: Db, n: int) -> None:
    """A dead letter waits again: it expires no more."""
    envelope = codec.ENVELOPE.decode(db.ask("SELECT body FROM messages WHERE n = ?", (n,))[0][0])
    if envelope.expires_ms is not None:
        body = codec.ENVELOPE.encode(replace(envelope, expires_ms=None))
        db.execute("UPDATE messages SET body = ? WHERE n = ?", (body, n))


def _meant(db: Db, operation: Move, message: str | None) -> list[Any]:
    if message is not None:
        found = db.ask(_NAMED, (message, operation.agent))
        if not found:
            raise checks.not_waiting(operation.agent, message, "not there")
        return found
    waiting = set(operation.frm) <= _WAITING
    states = json.dumps([state.value for state in operation.frm])
    return db.ask(_ALL_WAITING if waiting else _ALL, (operation.agent, states))


_ORDERS: Final = "SELECT 1 FROM messages WHERE agent = ? AND lane = 'control' AND state IN ('queued', 'held') LIMIT 1"


def shut(db: Db, operation: Shut, _: At) -> bool:
    """Change an agent's intake (CLS-1)."""
    known = db.known(operation.agent)
    if not checks.shuts(known.intake, operation.to):
        return False
    if operation.to is Intake.CLOSED and db.ask(_ORDERS, (operation.agent,)):
        raise checks.order_waits(operation.agent)
    db.execute("UPDATE agents SET intake = ? WHERE n = ?", (operation.to.value, known.n))
    known.intake = operation.to
    return True
