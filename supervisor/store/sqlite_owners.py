"""Ownership in a SQLite store: taking trees, keeping the lease, giving trees back, as SQL.

Each is one set in the writer's group, so that a tree changes hands between two commits and never inside one (SUP-6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import msgspec

from actors.changes import ChangeSet

from .checks import founded
from .crossing import Crossing, Published
from .leases import REMEMBERED, Holder, Lease, begun, is_over, owned_elsewhere
from .sqlite_machine import boot_id, gone
from .sqlite_steps import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from .sqlite_steps import Db

    Clock: TypeAlias = Callable[[], float]


@attrs.frozen
class Owning:
    """A set of its own kind: it changes who owns what, and needs no epoch.

    Attributes:
        tree: that is meant, or empty.
        founding: what is written with the tree's first epoch, in the same transaction; its values are the set's.
    """

    tree: str
    step: Step
    founding: ChangeSet | None = None


@attrs.frozen
class Look:
    """Asks whether another connection has written, of the one that writes here: it needs no transaction."""


def take(tree: str, holder: Holder, clock: Clock) -> Owning:
    """Take a tree; its value is the epoch."""
    return Owning(tree, (_take, (tree, holder, clock)))


def found(change_set: ChangeSet, clock: Clock) -> Owning:
    """Take a tree that is new with the set that makes its root."""
    return Owning(change_set.tree, (_found, (change_set.tree, change_set.founder, clock)), change_set)


def renew(holder: Holder, clock: Clock) -> Owning:
    """Keep the lease; its value is None, or where one was taken the trees that are left, each with its epoch."""
    return Owning("", (_renew, (holder, clock)))


def release(holder: Holder, trees: tuple[str, ...] | None) -> Owning:
    """Give trees back, or all."""
    return Owning("", (_release, (holder, trees)))


def cross(holder: Holder, waits: tuple[Crossing, ...], clock: Clock) -> Owning:
    """Publish open waits; its value is everybody's."""
    return Owning("", (_cross, (holder, waits, clock)))


LEASE: Final = (
    "SELECT t.epoch, o.body, o.until, (SELECT json_group_array(l.epoch) FROM lost l WHERE l.tree = t.tree"
    " AND l.holder IS NULL) FROM trees t LEFT JOIN owners o ON o.holder = t.holder WHERE t.tree = ?"
)
_TAKE: Final = (
    "INSERT INTO trees VALUES (?1, 1, ?2)"
    " ON CONFLICT DO UPDATE SET epoch = epoch + 1, holder = excluded.holder RETURNING epoch"
)
_KEEP: Final = "INSERT INTO owners VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET until = excluded.until"
_KEEP_UNLESS_OUSTED: Final = f"{_KEEP} WHERE owners.until IS NULL OR owners.until > 0"
_RENEW: Final = "UPDATE owners SET until = ? WHERE holder = ? AND until > 0 RETURNING 1"
_OUST: Final = "UPDATE owners SET until = 0 WHERE holder = ?"  # see leases.OUSTED
_FORGET: Final = "DELETE FROM owners WHERE holder = ?"
_EMPTY: Final = (
    "SELECT body, until FROM owners WHERE until = 0 AND NOT EXISTS (SELECT 1 FROM trees WHERE holder = owners.holder)"
)


def _take(db: Db, tree: str, holder: Holder, clock: Clock) -> int:
    now = clock()
    found = db.ask(LEASE, (tree,))
    epoch, body, until, _ = found[0] if found else (0, None, None, None)
    before = None
    if body is not None:
        before = decoded(body, until)
        over = is_over(before, boot=boot_id(), now=now, gone=gone)
        if before.holder.id == holder.id:
            if over:  # nothing kept it: else the next who looks takes what is run here
                _keep(db, holder, now, _KEEP_UNLESS_OUSTED)
            return int(epoch)
        if not over:
            raise owned_elsewhere(tree, before.holder)
    taken: int = db.ask(_TAKE, (tree, holder.id))[0][0]
    db.epochs[tree] = taken
    _keep(db, holder, now, _KEEP_UNLESS_OUSTED)
    if before is not None:
        if not gone(before.holder):  # it may only have been stopped, and come back
            db.execute("DELETE FROM lost WHERE tree = ? AND epoch <= ?", (tree, epoch - REMEMBERED))
            db.execute("INSERT INTO lost VALUES (?, ?, ?)", (tree, epoch, before.holder.id))
        _oust(db, before.holder)
    return taken


def _found(db: Db, tree: str, holder: Holder, clock: Clock) -> int:
    if db.epoch(tree) is not None:
        raise founded(tree)
    return _take(db, tree, holder, clock)


def _oust(db: Db, holder: Holder) -> None:
    """Let whoever lost a tree find it out when it renews its lease; whoever never will leaves no row behind."""
    db.execute(_OUST, (holder.id,))
    boot = boot_id()
    for body, until in db.ask(_EMPTY):
        old = decoded(body, until).holder
        if old.boot != boot or gone(old):
            db.execute(_FORGET, (old.id,))
            db.execute("DELETE FROM waits WHERE holder = ?", (old.id,))


def _keep(db: Db, holder: Holder, now: float, how: str = _KEEP) -> None:
    db.execute(how, (holder.id, begun(holder, now).until, msgspec.json.encode(attrs.asdict(holder))))


_LIVES: Final = "UPDATE lost SET holder = NULL WHERE holder = ?"


def _renew(db: Db, holder: Holder, clock: Clock) -> Any:
    now = clock()
    if db.ask(_RENEW, (begun(holder, now).until, holder.id)):
        return None
    db.execute(_LIVES, (holder.id,))
    held = tuple(db.ask("SELECT tree, epoch FROM trees WHERE holder = ?", (holder.id,)))
    if held:
        _keep(db, holder, now)
    else:
        db.execute(_FORGET, (holder.id,))
    return held


def _release(db: Db, holder: Holder, trees: tuple[str, ...] | None) -> None:
    db.execute(_LIVES, (holder.id,))
    if trees is None:
        db.execute("UPDATE trees SET holder = NULL WHERE holder = ?", (holder.id,))
        db.execute(_FORGET, (holder.id,))
        db.execute("DELETE FROM waits WHERE holder = ?", (holder.id,))
        return
    for tree in trees:
        db.execute("UPDATE trees SET holder = NULL WHERE tree = ? AND holder = ?", (tree, holder.id))


_PUBLISH: Final = "INSERT INTO waits VALUES (?, ?, ?, ?, ?)"
_PUBLISHED: Final = (
    "SELECT w.holder, w.since, w.at, w.body, o.body, o.until FROM waits w LEFT JOIN owners o ON o.holder = w.holder"
)


def _cross(db: Db, holder: Holder, waits: tuple[Crossing, ...], clock: Clock) -> Any:
    now = clock()
    before = dict(db.ask("SELECT id, since FROM waits WHERE holder = ?", (holder.id,)))
    if before:
        db.execute("DELETE FROM waits WHERE holder = ?", (holder.id,))
    for wait in waits:
        body = msgspec.json.encode(attrs.asdict(wait))
        db.execute(_PUBLISH, (holder.id, wait.id, before.get(wait.id, now), now, body))
    return tuple(
        [
            Published(whose, since, at, msgspec.json.decode(body, type=Crossing))
            for whose, since, at, body, owner, until in db.ask(_PUBLISHED)
            if whose == holder.id
            or (owner is not None and not is_over(decoded(owner, until), boot=boot_id(), now=now, gone=gone))
        ]
    )


def decoded(body: bytes, until: float | None, lived: str = "[]") -> Lease:
    """A lease as it is stored."""
    return Lease(Holder(**msgspec.json.decode(body)), until, tuple(msgspec.json.decode(lived)))
