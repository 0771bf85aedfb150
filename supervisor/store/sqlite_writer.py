"""The one writer of a SQLite store: change sets in groups, one flush of the disk for each group.

A group is what queued while the last one was flushed; it needs no timer. Most of what its sets write goes at its end,
table by table (`sqlite_behind`). A set that fails leaves nothing and holds up no other: most fail before they have
written anything; where one has, or what was left to the end cannot be written, the group is undone and carried out
again with a savepoint for each set, which is too dear to have for those that do not fail. Values are handed out after
COMMIT only: what a caller is told is on disk.
A waiter cannot give up, so the outcome of a commit is always known to whoever asked for it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import apsw
import outcome

from actors.changes import ChangeSet
from actors.errors import CallboardError, Corrupt, InDoubt, InternalError, StoreError, Unavailable, UsageError

from . import checks
from .sqlite_log import Log
from .sqlite_owners import Look, Owning
from .sqlite_place import Place
from .sqlite_rows import carried_out
from .sqlite_steps import Db

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.changes import Values

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


_SETS: Final = frozenset({ChangeSet, Owning})
"""What needs a transaction."""


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
        sets = [self._checked(one) for one in group]
        if not any(type(one) in _SETS for one in sets):
            return [one for one in sets if not isinstance(one, ChangeSet | Owning)]
        try:
            results = self._transaction(sets, saving=False)
            if results is None:
                results = self._transaction(sets, saving=True)
                assert results is not None, "with savepoints there is nothing half written"
        except BaseException as error:  # noqa: BLE001 - whatever it is, every waiter is told: none may wait for ever
            self._roll_back(error)
            self.refused += len(group)
            in_doubt = self._committing and isinstance(
                error, apsw.IOError
            )  # its frames may stand in the log all the same
            return [outcome.Error(self._in_doubt(error) if in_doubt else self._told(error)) for _ in group]
        refused = sum([type(result) is outcome.Error for result in results])
        done = len(group) - refused - sum([type(one) is Look for one in group])
        self.commits += done
        self.refused += refused
        self.bytes_encoded += self._on.behind.size
        self.flushes += bool(done)  # where every set was refused there is nothing to flush
        self._log.settle()
        return results

    def _checked(self, one: ChangeSet | Owning | Look) -> ChangeSet | Owning | Result:
        try:
            if isinstance(one, Look):
                return outcome.Value((self._on.version(),))
            change_set = one.founding if isinstance(one, Owning) else one
            if change_set is not None:
                checks.check(change_set)
        except Exception as error:  # noqa: BLE001 - a set that is none fails its caller alone
            return outcome.Error(self._refused(error))
        return one

    def _transaction(self, sets: list[ChangeSet | Owning | Result], *, saving: bool) -> list[Result] | None:
        """Carry out a group in one transaction; None where a set failed half written and could not be undone alone."""
        on = self._on
        self._committing = False
        on.begin()
        on.behind.singly = saving
        results: list[Result] = []
        for one in sets:
            if not isinstance(one, ChangeSet | Owning):
                results.append(one)
                continue
            result = self._saved(one) if saving else self._unsaved(one)
            if result is None:
                on.roll_back()
                return None
            results.append(result)
        if not self._written_behind():
            on.roll_back()
            return None
        self._place.check()
        self._committing = True
        on.commit()
        return results

    def _written_behind(self) -> bool:
        """Write what the sets of a group have left to its end; False where one of them has to fail for it."""
        try:
            self._on.behind.write()
        except Exception as error:  # noqa: BLE001 - whatever it is, the sets are carried out each for itself
            self._raise_if_lost(error)
            return False
        return True

    def _unsaved(self, one: ChangeSet | Owning) -> Result | None:
        """Carry out a set; None where it failed when it had written something."""
        before = self._on.behind.touched()
        try:
            return outcome.Value(self._steps(one))
        except Exception as error:  # noqa: BLE001 - of this set alone, whatever it is; else it is raised again
            self._raise_if_lost(error)
            behind = self._on.behind
            return None if behind.stuck or behind.touched() != before else outcome.Error(self._refused(error))

    def _saved(self, one: ChangeSet | Owning) -> Result:
        """Carry out a set, and undo it where it fails."""
        on, size = self._on, self._on.behind.size
        on.execute("SAVEPOINT one")
        try:
            values = self._steps(one)
            on.behind.write()
        except Exception as error:  # noqa: BLE001 - of this set alone, whatever it is; else it is raised again
            self._raise_if_lost(error)
            on.roll_back(" TO one")
            on.execute("RELEASE one")
            on.behind.size = size
            return outcome.Error(self._refused(error))
        on.execute("RELEASE one")
        return outcome.Value(values)

    def _raise_if_lost(self, error: Exception) -> None:
        """A full disk ends the transaction of the whole group, whatever savepoint it was in."""
        if isinstance(error, _OF_THE_DISK) or not self._db.in_transaction:
            raise error

    def _steps(self, one: ChangeSet | Owning) -> Values:
        on = self._on
        if isinstance(one, Owning):
            step, arguments = one.step
            value = step(on, *arguments)
            return (value,) if one.founding is None else carried_out(on, one.founding)
        tree, epoch = one.tree, one.epoch
        if epoch is not None and (found := on.epoch(tree)) != epoch:
            raise checks.fenced(tree, epoch, found)
        return carried_out(on, one)

    def _roll_back(self, error: BaseException) -> None:
        self._on.forget()
        if not self._db.in_transaction:  # SQLite has rolled back by itself
            return
        try:
            self._on.roll_back()
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
