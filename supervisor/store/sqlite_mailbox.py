"""The mailbox of a SQLite store: accepting, claiming, moving and closing, as SQL.

An agent's counters change in the same statement order everywhere: look, refuse or write the message, count. They are
kept by hand, not by triggers, so that what a commit costs can be read here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import apsw
from msgspec.structs import replace

from actors import codec
from actors.changes import Claim, Enqueue, Intake, Move, Placed, Shut
from actors.ids import MessageId, tree_of
from actors.messages import Envelope, Lane, LaneBound, ReceiptState

from . import checks

if TYPE_CHECKING:
    from actors.errors import Conflict

    from .sqlite_steps import At, Db, Step

_WAITING: Final = frozenset({ReceiptState.QUEUED, ReceiptState.HELD})

_FIRST_OF_KEY: Final = "SELECT seq, body FROM messages WHERE agent = ? AND sender = ? AND key = ?"
_ADD_MESSAGE: Final = (
    "INSERT INTO messages(agent, seq, id, tree, epoch, lane, state, sender, key, places, bytes, body)"
    " VALUES (?, ?, ?, ?, ?, ?, 'queued', ?, ?, ?, ?, ?)"
)
_COUNT: Final = (
    "UPDATE agents SET queued = queued + ?, control_n = control_n + ?, control_bytes = control_bytes + ?,"
    " steer_n = steer_n + ?, steer_bytes = steer_bytes + ?, send_n = send_n + ?, send_bytes = send_bytes + ?"
    " WHERE n = ?"
)
_OF_SENDER: Final = (
    "SELECT count(*) FROM messages WHERE agent = ? AND state IN ('queued', 'held') AND lane = ? AND sender = ?"
    " AND places = 1"
)
_LANES: Final = ("control", "steer", "send")
_LOOK: Final = {
    Lane(lane): f"SELECT n, intake, {lane}_n, {lane}_bytes, seq FROM agents WHERE agent = ?"  # noqa: S608 - our own names
    for lane in _LANES
}
_PLACE: Final = {
    Lane(lane): f"UPDATE agents SET seq = seq + 1, queued = queued + 1, {size} WHERE n = ?"  # noqa: S608
    for lane, size in ((lane, f"{lane}_n = {lane}_n + ?, {lane}_bytes = {lane}_bytes + ?") for lane in _LANES)
}


def enqueue(operation: Enqueue, at: At) -> Step:
    """Accept a message, or find its first acceptance (ACC-1, ACC-7)."""
    envelope = operation.envelope
    tree = tree_of(envelope.to)
    epoch = at[1] if tree == at[0] else 0  # another tree's message is accepted as from anyone
    return _do_enqueue, (envelope, operation.bound, (tree, epoch), codec.ENVELOPE.encode(envelope))


def _do_enqueue(db: Db, envelope: Envelope, bound: LaneBound, at: At, body: bytes) -> Placed:
    to, lane, sender = envelope.to, envelope.lane, envelope.sender or ""
    found = db.ask(_LOOK[lane], (to,))
    if not found:
        raise checks.unknown(to)
    if envelope.key is not None:
        firsts = db.ask(_FIRST_OF_KEY, (to, sender, envelope.key))
        if firsts:
            return _again(envelope, *firsts[0])
    n, intake, depth, size, last = found[0]
    refused = checks.refusal(
        envelope,
        bound,
        Intake(intake),
        depth=depth,
        size_bytes=size,
        of_sender=lambda: int(db.ask(_OF_SENDER, (to, lane.value, sender))[0][0]),
    )
    if refused is not None:
        raise refused
    places, counted = (0, 0) if envelope.reserved else (1, envelope.size_bytes)
    seq: int = last + 1
    try:
        db.execute(_ADD_MESSAGE, (to, seq, envelope.id, *at, lane.value, sender, envelope.key, places, counted, body))
    except apsw.ConstraintError:
        raise checks.used_id(envelope) from None
    db.execute(_PLACE[lane], (places, counted, n))
    return Placed(envelope.id, seq)


def _again(envelope: Envelope, seq: int, body: bytes) -> Placed:
    first = codec.ENVELOPE.decode(body)
    if not checks.same_body(first, envelope):
        raise checks.reused_key(envelope)
    return Placed(first.id, seq, again=True)


class _Counts:
    """What messages that leave (-1) or join (1) the mailbox change in its agent's counters."""

    __slots__ = ("_by",)

    def __init__(self) -> None:
        self._by = [0, 0, 0, 0, 0, 0, 0]

    def note(self, sign: int, state: str, lane: str, places: int, size: int) -> None:
        """Note one message that was or will be in `state`."""
        if state not in _WAITING:
            return
        by = self._by
        by[0] += sign * (state == "queued")
        at = 1 + 2 * _LANES.index(lane)
        by[at] += sign * places
        by[at + 1] += sign * size

    def write(self, db: Db, agent: str) -> None:
        """Change the agent's counters."""
        db.execute(_COUNT, (*self._by, db.known(agent).n))


_TAKE: Final = (
    "UPDATE messages SET state = 'consumed', turn = ?, reason = ?, epoch = ?"
    " WHERE id = ? AND agent = ? AND state = ? RETURNING lane, places, bytes"
)


def claim(operation: Claim, at: At) -> Step:
    """Take messages for a turn (CON-3)."""
    return _do_claim, (operation, at[1])


def _do_claim(db: Db, operation: Claim, epoch: int) -> None:
    agent = operation.agent
    if not operation.messages:
        db.known(agent)
        raise checks.claims_nothing(agent)
    counts = _Counts()
    for message in operation.messages:
        for state in ("queued", "held"):  # CON-3: whoever comes second finds it in neither
            taken = db.ask(_TAKE, (operation.turn, operation.reason, epoch, message, agent, state))
            if taken:
                counts.note(-1, state, *taken[0])
                break
        else:
            db.known(agent)
            raise _not_waiting(db, agent, message)
    counts.write(db, agent)


def _not_waiting(db: Db, agent: str, message: str) -> Conflict:
    found = db.ask("SELECT state FROM messages WHERE id = ? AND agent = ?", (message, agent))
    return checks.not_waiting(agent, message, found[0][0] if found else "not there")


_COLUMNS: Final = "SELECT n, seq, id, state, lane, places, bytes FROM messages"
_NAMED: Final = f"{_COLUMNS} WHERE id = ? AND agent = ?"
_ALL: Final = f"{_COLUMNS} WHERE agent = ? AND lane != 'control' AND state IN (SELECT value FROM json_each(?))"  # noqa: S608
_ALL_WAITING: Final = f"{_ALL} AND state IN ('queued', 'held') ORDER BY seq"
_TURN_TO: Final = "UPDATE messages SET state = ?, reason = ?, at = ?, epoch = ?{} WHERE n = ?"


def move(operation: Move, at: At) -> Step:
    """Change the state of messages."""
    return _do_move, (operation, at[1])


def _do_move(db: Db, operation: Move, epoch: int) -> tuple[MessageId, ...]:
    agent, frm, to = operation.agent, operation.frm, operation.to
    db.known(agent)
    update = _TURN_TO.format(", turn = NULL" if to in _WAITING else "")
    counts = _Counts()
    moved: list[tuple[int, MessageId]] = []
    named = operation.messages is not None
    for key in operation.messages if operation.messages is not None else (None,):
        for n, seq, message, state, *size in _meant(db, operation, key):
            if named and state not in frm:
                raise checks.not_waiting(agent, message, state)
            db.execute(update, (to.value, operation.reason, operation.at, epoch, n))
            if state == "dead" and to in _WAITING:
                _live_on(db, n)
            counts.note(-1, state, *size)
            counts.note(1, to.value, *size)
            moved.append((seq, message))
    if moved:
        counts.write(db, agent)
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


def shut(operation: Shut, _: At) -> Step:
    """Change an agent's intake (CLS-1)."""
    return _do_shut, (operation,)


def _do_shut(db: Db, operation: Shut) -> bool:
    found = db.ask("SELECT intake FROM agents WHERE agent = ?", (operation.agent,))
    if not found:
        raise checks.unknown(operation.agent)
    if not checks.shuts(Intake(found[0][0]), operation.to):
        return False
    if operation.to is Intake.CLOSED and db.ask(_ORDERS, (operation.agent,)):
        raise checks.order_waits(operation.agent)
    db.execute("UPDATE agents SET intake = ? WHERE agent = ?", (operation.to.value, operation.agent))
    return True
