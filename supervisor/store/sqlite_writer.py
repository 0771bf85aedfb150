"""The one writer of a SQLite store: change sets in groups, one flush of the disk for each group.

A group is what queued while the last one was flushed; it needs no timer. A set that fails leaves nothing and holds up
no other: most fail before they have written anything; where one has, the group is undone and carried out again with a
savepoint for each set, which is too dear to have for those that do not fail. Values are handed out after COMMIT only:
what a caller is told is on disk.
A waiter cannot give up, so the outcome of a commit is always known to whoever asked for it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import apsw
import outcome

from actors.errors import CallboardError, Corrupt, InDoubt, InternalError, StoreError, Unavailable, UsageError

from . import checks
from .sqlite_log import Log
from .sqlite_owners import Look
from .sqlite_place import Place
from .sqlite_rows import Compiled, compiled
from .sqlite_steps import Db

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.changes import ChangeSet, Values

    from .sqlite_owners import Owning
    from .sqlite_thread import Result
    from .sqlite_turn import Turnstile

_PASSING: Final = (
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.CantOpenError,
    apsw.ProtocolError,
)
"""Errors that may be over in a moment, with nothing done in this process."""
_OF_THE_DISK: Final = (
    *_PASSING,
    apsw.NoMemError,
    apsw.InterruptError,
    apsw.CorruptError,
    apsw.NotADBError,
)
"""Errors of the place, not of the set: the whole group fails."""


def store_error(path: str, error: apsw.Error) -> StoreError:
    """What SQLite's error means to whoever uses the store."""
    match error:
        case apsw.FullError():
            told = f"the disk is full ({error}); free some space, then go on"
        case apsw.ReadOnlyError():
            told = f"it is read-only ({error}); make the file and its folder writable"
        case apsw.BusyError() | apsw.LockedError():
            told = f"it is locked by another program ({error}); end that, then go on"
        case apsw.CorruptError() | apsw.NotADBError():
            return Corrupt(f"store {path} is damaged or no SQLite database ({error}); restore it from a copy")
        case _:
            told = f"it cannot be read or written ({error}); look at its disk"
    return Unavailable(f"store {path}: {told}", passing=isinstance(error, _PASSING))


class Writer:
    """The write connection: carries out groups of change sets. Used by one thread at a time.

    Invariants:
        WRITER-1 no transaction is open between groups.
        WRITER-2 what a COMMIT that failed for the disk's sake had left in the log is never followed by anything: the
            next COMMIT writes over it. Until then it is in doubt: who opens the store after a crash may find it.
        WRITER-3 nothing is committed into files that do not stand under the store's name any more.
    """

    def __init__(self, path: str, db: apsw.Connection, turnstile: Turnstile, *, helped: bool = False) -> None:
        self._path = path
        self._db = db
        self._place = Place(db)
        self._log = Log(db, helped=helped)
        self._on = Db(db, turnstile)
        self._broken: str | None = None
        self._committing = False
        self.commits = 0
        self.refused = 0
        self.flushes = 0
        self.bytes_encoded = 0

    def write(self, group: Sequence[ChangeSet | Owning | Look]) -> list[Result]:
        """Carry out change sets, each all or none, with one flush; the outcome of each, in order."""
        if self._broken is not None:
            return [outcome.Error(Unavailable(self._broken)) for _ in group]
        plans = [self._plan(one) for one in group]
        if not any(isinstance(plan, Compiled) for plan in plans):
            return [plan for plan in plans if not isinstance(plan, Compiled)]
        try:
            results = self._transaction(plans, saving=False)
            if results is None:
                results = self._transaction(plans, saving=True)
                assert results is not None, "with savepoints there is nothing half written"
        except BaseException as error:  # noqa: BLE001 - whatever it is, every waiter is told: none may wait for ever
            self._roll_back(error)
            self.refused += len(group)
            in_doubt = self._committing and isinstance(
                error, apsw.IOError
            )  # its frames may stand in the log all the same
            return [outcome.Error(self._in_doubt(error) if in_doubt else self._told(error)) for _ in group]
        done = [
            plan.size
            for plan, result in zip(plans, results, strict=True)
            if isinstance(plan, Compiled) and isinstance(result, outcome.Value)
        ]
        self.commits += len(done)
        self.refused += len(group) - len(done)
        self.bytes_encoded += sum(done)
        self.flushes += bool(done)  # where every set was refused there is nothing to flush
        self._log.settle()
        return results

    def _plan(self, one: ChangeSet | Owning | Look) -> Compiled | Result:
        try:
            return outcome.Value((self._on.version(),)) if isinstance(one, Look) else compiled(one)
        except Exception as error:  # noqa: BLE001 - a set that cannot be encoded fails its caller alone
            return outcome.Error(self._refused(error))

    def _transaction(self, plans: list[Compiled | Result], *, saving: bool) -> list[Result] | None:
        """Carry out a group in one transaction; None where a set failed half written and could not be undone alone."""
        on = self._on
        self._committing = False
        on.begin()
        results: list[Result] = []
        for plan in plans:
            if not isinstance(plan, Compiled):
                results.append(plan)
                continue
            result = self._saved(plan) if saving else self._unsaved(plan)
            if result is None:
                on.execute("ROLLBACK")
                on.forget()
                return None
            results.append(result)
        self._place.check()
        self._committing = True
        on.execute("COMMIT")
        return results

    def _unsaved(self, one: Compiled) -> Result | None:
        """Carry out a set; None where it failed when it had written something."""
        before = self._on.total_changes()
        try:
            return outcome.Value(self._steps(one))
        except Exception as error:  # noqa: BLE001 - of this set alone, whatever it is; else it is raised again
            self._raise_if_lost(error)
            return outcome.Error(self._refused(error)) if self._on.total_changes() == before else None

    def _saved(self, one: Compiled) -> Result:
        """Carry out a set, and undo it where it fails."""
        on = self._on
        on.execute("SAVEPOINT one")
        try:
            values = self._steps(one)
        except Exception as error:  # noqa: BLE001 - of this set alone, whatever it is; else it is raised again
            self._raise_if_lost(error)
            on.execute("ROLLBACK TO one")
            on.execute("RELEASE one")
            on.forget()
            return outcome.Error(self._refused(error))
        on.execute("RELEASE one")
        return outcome.Value(values)

    def _raise_if_lost(self, error: Exception) -> None:
        """A full disk ends the transaction of the whole group, whatever savepoint it was in."""
        if isinstance(error, _OF_THE_DISK) or not self._db.in_transaction:
            raise error

    def _steps(self, one: Compiled) -> Values:
        tree, epoch, on = one.tree, one.epoch, self._on
        if epoch is not None and (found := on.epoch(tree)) != epoch:
            raise checks.fenced(tree, epoch, found)
        if one.before is not None:
            before, arguments = one.before
            before(on, *arguments)
        return tuple([step(on, *arguments) for step, arguments in one.steps])

    def _roll_back(self, error: BaseException) -> None:
        self._on.forget()
        if not self._db.in_transaction:  # SQLite has rolled back by itself
            return
        try:
            self._on.execute("ROLLBACK")
        except apsw.Error:
            if self._db.in_transaction:  # the connection is lost
                self._broken = f"{self._told(error)}; nothing more is written by this process: open the store again"

    def _told(self, error: BaseException) -> BaseException:
        """What each waiter of a lost group is told; a new error for each, since each is raised elsewhere."""
        if not isinstance(error, Exception):
            return error
        told: CallboardError
        if isinstance(error, Unavailable):  # another stands before the write lock for too long, or the file is gone
            told = Unavailable(str(error), passing=error.passing)
        else:
            told = store_error(self._path, error) if isinstance(error, apsw.Error) else self._ours(error)
        told.__cause__ = error
        return told

    def _in_doubt(self, error: BaseException) -> InDoubt:
        text = f"store {self._path}: the disk failed while a commit was flushed ({error}); look at the disk"
        doubt = InDoubt(text, passing=True)
        doubt.__cause__ = error
        return doubt

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
        with contextlib.suppress(apsw.Error):  # a failing disk: all that was committed is in the log, and stays there
            self._log.close()
            self._db.close()
        self._on.close()
