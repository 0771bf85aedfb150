"""The one writer of a SQLite store: change sets in groups, one flush of the disk for each group.

A group is what queued while the last one was flushed; it needs no timer. Each set runs in a savepoint, so one that
fails leaves nothing and holds up no other. Values are handed out after COMMIT only: what a caller is told is on disk.
A waiter cannot give up, so the outcome of a commit is always known to whoever asked for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import apsw
import outcome

from actors.errors import CallboardError, Corrupt, InternalError, StoreError, Unavailable, UsageError

from . import checks
from .sqlite_rows import Compiled, Own, compiled
from .sqlite_steps import ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.changes import ChangeSet, Values

    from .sqlite_thread import Result

_OF_THE_DISK: Final = (
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.CantOpenError,
    apsw.NoMemError,
    apsw.ProtocolError,
    apsw.InterruptError,
    apsw.CorruptError,
    apsw.NotADBError,
)
"""Errors of the place, not of the set: the whole group fails."""


def store_error(path: str, error: apsw.Error) -> StoreError:
    """What SQLite's error means to whoever uses the store."""
    match error:
        case apsw.FullError():
            return Unavailable(f"store {path}: the disk is full ({error}); free some space, then go on")
        case apsw.ReadOnlyError():
            return Unavailable(f"store {path} is read-only ({error}); make the file and its folder writable")
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(f"store {path} is locked by another program ({error}); end that, then go on")
        case apsw.CorruptError() | apsw.NotADBError():
            return Corrupt(f"store {path} is damaged or no SQLite database ({error}); restore it from a copy")
        case _:
            return Unavailable(
                f"store {path} cannot be read or written ({error}); look at its disk, then open it again"
            )


class Writer:
    """The write connection: carries out groups of change sets. Used by one thread at a time.

    Invariants:
        WRITER-1 no transaction is open between groups.
        WRITER-2 after a COMMIT that failed for the disk's sake nothing more is written: what is on disk is not known.
    """

    def __init__(self, path: str, db: apsw.Connection) -> None:
        self._path = path
        self._db = db
        self._cursor = db.cursor()
        self._broken: str | None = None
        self.commits = 0
        self.refused = 0
        self.flushes = 0
        self.bytes_encoded = 0

    def write(self, group: Sequence[ChangeSet | Own]) -> list[Result]:
        """Carry out change sets, each all or none, with one flush; the outcome of each, in order."""
        if self._broken is not None:
            return [outcome.Error(Unavailable(self._broken)) for _ in group]
        plans = [self._plan(one) for one in group]
        committing = False
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
            epochs: dict[str, int | None] = {}
            results = [self._carry_out(plan, epochs) if isinstance(plan, Compiled) else plan for plan in plans]
            committing = True
            self._cursor.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 - whatever it is, every waiter is told: none may wait for ever
            self._roll_back(committing=committing, error=error)
            self.refused += len(group)
            return [outcome.Error(self._told(error)) for _ in group]
        done = [
            plan.size
            for plan, result in zip(plans, results, strict=True)
            if isinstance(plan, Compiled) and isinstance(result, outcome.Value)
        ]
        self.commits += len(done)
        self.refused += len(group) - len(done)
        self.bytes_encoded += sum(done)
        self.flushes += bool(done)  # where every set was refused there is nothing to flush
        return results

    def _plan(self, one: ChangeSet | Own) -> Compiled | outcome.Error:
        try:
            return compiled(one)
        except Exception as error:  # noqa: BLE001 - a set that cannot be encoded fails its caller alone
            return outcome.Error(self._refused(error))

    def _carry_out(self, one: Compiled, epochs: dict[str, int | None]) -> Result:
        cursor = self._cursor
        cursor.execute("SAVEPOINT one")
        try:
            values = self._steps(one, epochs)
        except Exception as error:
            # a full disk ends the transaction of the whole group, whatever savepoint it was in
            if isinstance(error, _OF_THE_DISK) or not self._db.in_transaction:
                raise
            cursor.execute("ROLLBACK TO one")
            cursor.execute("RELEASE one")
            return outcome.Error(self._refused(error))
        cursor.execute("RELEASE one")
        if one.owns:
            epochs.pop(one.tree, None)
        return outcome.Value(values)

    def _steps(self, one: Compiled, epochs: dict[str, int | None]) -> Values:
        tree, epoch, cursor = one.tree, one.epoch, self._cursor
        if epoch is not None:
            if tree not in epochs:  # the group holds the write lock: what was read stays true till its end
                found = ask(cursor, "SELECT epoch FROM trees WHERE tree = ?", (tree,))
                epochs[tree] = found[0][0] if found else None
            if epochs[tree] != epoch:
                raise checks.fenced(tree, epoch, epochs[tree])
        return tuple([step(cursor, *arguments) for step, arguments in one.steps])

    def _roll_back(self, *, committing: bool, error: BaseException) -> None:
        if committing and isinstance(error, apsw.IOError):
            self._broken = (
                f"store {self._path}: the disk failed while a commit was flushed ({error}); nothing more is written"
                " by this process; look at the disk, then open the store again"
            )
        try:
            if self._db.in_transaction:
                self._cursor.execute("ROLLBACK")
        except apsw.Error:
            # SQLite has rolled back by itself, or the connection is lost; either way nothing was committed
            self._broken = self._broken or str(self._told(error))

    def _told(self, error: BaseException) -> BaseException:
        """What each waiter of a lost group is told; a new error for each, since each is raised elsewhere."""
        if not isinstance(error, Exception):
            return error
        told = store_error(self._path, error) if isinstance(error, apsw.Error) else self._ours(error)
        told.__cause__ = error
        return told

    def _refused(self, error: Exception) -> CallboardError:
        """What the caller of one failed set is told."""
        if isinstance(error, CallboardError):
            return error
        if isinstance(error, UnicodeEncodeError | apsw.TooBigError):
            return UsageError(f"a key or a row cannot be written: {error}; shorten it, or use text that UTF-8 can hold")
        return self._ours(error)

    def _ours(self, error: Exception) -> InternalError:
        return InternalError(f"store {self._path}: {error!r} while a change set was written; nothing of it stays")

    def close(self) -> None:
        """Close the connection; the last one to close writes the log back into the file."""
        self._db.close()
