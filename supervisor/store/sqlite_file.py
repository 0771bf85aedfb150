"""The files of a SQLite store: who may write them, how they are opened, and what version they have.

`PATH-owner` beside the store is locked for as long as a process has the store open: shared by all that may write beside
others, or by one alone, which then says in it who it is. The lock is the kernel's and ends with the process, so what
a dead one left in the file never keeps anybody out.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
import secrets
import socket
import urllib.parse
import weakref
from pathlib import Path
from typing import Any, Final

import apsw

from actors.errors import Corrupt, NewerSchema, OwnedElsewhere, Unavailable, UsageError

from . import schema
from .sqlite_log import BUSY_MS
from .sqlite_writer import store_error

PRIVATE: Final = 0o600

DURABILITIES: Final = ("full", "normal")
"""`full`: flushed at every commit, so that what was acknowledged survives a loss of power. `normal`: it survives a
crash of the process; the last commits before a loss of power may be gone."""

_PRAGMAS: Final = (
    "journal_mode = WAL",  # readers and the writer do not wait for each other, and a commit is one flush
    "fullfsync = ON",  # on macOS an ordinary fsync leaves data in the drive's cache
    "checkpoint_fullfsync = ON",
    "temp_store = MEMORY",  # no other file is ever written
    "trusted_schema = OFF",  # nothing in the file may call functions
    "cell_size_check = ON",  # damage is found early, as an error
    "cache_size = -64000",  # 64 MB at most: what is hot of thousands of agents
    "journal_size_limit = 67108864",  # the log shrinks again after a burst
)


SEVERAL_FROM: Final = (3, 51, 3)
"""Before it, a log that is reset while two connections write could lose what was committed (sqlite.org/wal.html)."""


def several_may_write(version: str | None = None) -> bool:
    """Whether this SQLite (None: the one in use) may write to a store beside other processes."""
    parts = (version or apsw.sqlite_lib_version()).split(".")
    return tuple(int(part) for part in parts[:3]) >= SEVERAL_FROM


class Owner:
    """The lock on a store: held from `take` to `release`, or to the end of the process."""

    def __init__(self, descriptor: int, *, alone: bool) -> None:
        self._descriptor: int | None = descriptor
        self._alone = alone
        # a forked child shares the lock and would hold it after our end; closing its copy leaves ours locked
        mine = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forget(mine()))

    @classmethod
    def take(cls, store: Path, owner: str, *, alone: bool = False) -> Owner:
        """Lock a store for this process.

        Args:
            store: its file.
            owner: this process, as another is told of it.
            alone: no other may write meanwhile; else beside others that are not alone.

        Raises:
            OwnedElsewhere: a process has it, and it or this one must be alone.
            Unavailable: the lock file cannot be written.
        """
        path = store.with_name(f"{store.name}-owner")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        except OSError as error:
            raise Unavailable(f"store {store} cannot be locked: {error}; make its folder writable") from error
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            told = _must_be_alone(store) if alone else _owned_elsewhere(store, _read(descriptor))
            os.close(descriptor)
            raise told from None
        except OSError as error:
            os.close(descriptor)
            raise Unavailable(f"store {store} cannot be locked: {error}; put it on a local disk") from error
        if not alone:
            return cls(descriptor, alone=False)
        facts = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": dt.datetime.now().astimezone().isoformat(timespec="seconds"),
            "command": owner,
        }
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(facts).encode(), 0)
        return cls(descriptor, alone=True)

    def release(self) -> None:
        """Give the store up. The file stays: whoever waits to lock it must find this one, not a new one."""
        if self._descriptor is not None:
            if self._alone:
                with contextlib.suppress(OSError):  # a full or vanished disk: closing is what frees the lock
                    os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def _forget(owner: Owner | None) -> None:
    if owner is not None and owner._descriptor is not None:  # noqa: SLF001 - its own module
        os.close(owner._descriptor)  # noqa: SLF001
        owner._descriptor = None  # noqa: SLF001


def _read(descriptor: int) -> dict[str, Any]:
    try:
        facts = json.loads(os.pread(descriptor, 4_096, 0))
    except (OSError, ValueError):  # the owner has the lock and has not written yet
        return {}
    return facts if isinstance(facts, dict) else {}


def _must_be_alone(store: Path) -> OwnedElsewhere:
    wanted = ".".join(str(part) for part in SEVERAL_FROM)
    return OwnedElsewhere(
        f"store {store.name} is in use, and this process's SQLite {apsw.sqlite_lib_version()} must not write beside"
        f" another: before {wanted} it can lose commits; install an apsw with {wanted} or later, or wait until the"
        " other has ended; `callboard show` reads the store meanwhile"
    )


def _owned_elsewhere(store: Path, facts: dict[str, Any]) -> OwnedElsewhere:
    if not facts:
        return OwnedElsewhere(f"store {store.name} is in use by another process; end it, or wait until it has")
    pid = facts.get("pid")
    process = "this process" if pid == os.getpid() else f"process {pid}"
    place = "" if facts.get("host") == socket.gethostname() else f" on {facts.get('host')}"
    return OwnedElsewhere(
        f"store {store.name} is in use by {process} ({facts.get('command')}){place} since {_clock(facts.get('since'))},"
        " whose SQLite must not write beside another; end it, or wait until it has; `callboard show` reads the store"
        " meanwhile"
    )


def _clock(since: object) -> str:
    try:
        moment = dt.datetime.fromisoformat(str(since))
    except ValueError:
        return str(since)
    today = moment.date() == dt.datetime.now(tz=moment.tzinfo).date()
    return f"{moment:%H:%M}" if today else f"{moment:%Y-%m-%d %H:%M}"


# -- opening -----------------------------------------------------------------------------------------------------


def resolved(path: str | os.PathLike[str]) -> Path:
    """The file a store is in, or will be, links followed, so that one store has one lock.

    Raises:
        UsageError: it is no file name.
        Unavailable: it is a folder, or its folder is not there.
    """
    file = _named(path)
    if not file.parent.is_dir():
        raise Unavailable(f"store {os.fspath(path)}: there is no folder {file.parent}; make it first")
    return file


def existing(path: str | os.PathLike[str]) -> Path:
    """The same for a store that is to be there: nothing is made.

    Raises:
        UsageError: it is no file name.
        Unavailable: there is none, or it is a folder. Corrupt: it is an empty file.
    """
    file = _named(path)
    if not file.exists():
        raise Unavailable(
            f"there is no store {os.fspath(path)}; give the file that --store, or store= in Python, has named"
        )
    if not file.stat().st_size:
        raise _empty(file)
    return file


def _empty(file: Path) -> Corrupt:
    return Corrupt(f"{file} is an empty file, not a store; give the name of a store")


def _named(path: str | os.PathLike[str]) -> Path:
    text = os.fspath(path)
    if not text or text.startswith((":", "file:")):
        raise UsageError(f"a store is a file name, not {text!r}; for a store in memory give no store")
    try:
        file = Path(text).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links that go round (RuntimeError before Python 3.13), a NUL
        raise UsageError(f"store {text!r} is no file name ({error}); give the name of a file") from error
    if file.is_dir():
        raise Unavailable(
            f"store {text} is a folder; give the name of a file in it, such as {Path(text) / 'agents.db'}"
        )
    return file


def refuse_strangers(file: Path) -> None:
    """Refuse what is no store before anything is written beside it; other troubles are for who opens it.

    It is read as if nobody wrote to it, which takes no lock and makes no file: its first page alone is looked at, and
    there what says whose it is was written together.

    Raises:
        Corrupt: another program's. NewerSchema: a newer callboard wrote it.
    """
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        db = apsw.Connection(f"{file.as_uri()}?immutable=1", flags=flags)
        with contextlib.closing(db):
            _version(file, db)
    except apsw.NotADBError as error:
        raise store_error(str(file), error) from error
    except apsw.Error:
        return


def open_writer(file: Path, durability: str = "full") -> apsw.Connection:
    """Open a store for writing: make it where it is not there, bring it up to this version's schema.

    Args:
        file: the store.
        durability: what its commits survive, see `DURABILITIES`.

    Raises:
        Corrupt: not a database, or another program's.
        NewerSchema: a newer callboard wrote it.
        Unavailable: it cannot be opened or written.
    """
    try:
        _make_private(file)
    except OSError as error:
        raise Unavailable(f"store {file} cannot be written: {error}; make the file and its folder writable") from error
    with _errors_told(file):
        db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
        with _closed_on_error(db):
            db.set_busy_timeout(BUSY_MS)
            if db.readonly("main"):
                raise Unavailable(f"store {file} is read-only; make the file and its folder writable")
            version = _version(file, db)
            for pragma in (*_PRAGMAS, f"synchronous = {durability}"):
                db.execute(f"PRAGMA {pragma}").fetchall()
            if db.pragma("journal_mode") != "wal":
                raise Unavailable(f"store {file}: its file system has no shared memory; put it on a local disk")
            _migrate(db, version)
        return db


def open_reader(file: Path) -> apsw.Connection:
    """Open a store for reading only; its owner does not notice.

    Raises:
        Corrupt: not a store.
        NewerSchema: a newer callboard wrote it.
        Unavailable: an older callboard wrote it, or it cannot be read.
    """
    with _errors_told(file):
        db = _read_only(file)
        with _closed_on_error(db):
            db.set_busy_timeout(BUSY_MS)
            version = _version(file, db)
            if version == 0:
                raise _empty(file)
            if version < schema.VERSION:
                raise Unavailable(f"store {file} was written by an older callboard; run with it once to bring it up")
        return db


def _read_only(file: Path) -> apsw.Connection:
    """A connection for reading; readers write a little beside the file, so where nobody can that needs a whole one."""
    if os.access(file.parent, os.W_OK) or file.with_name(f"{file.name}-shm").exists():
        return apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    log = file.with_name(f"{file.name}-wal")
    if log.exists() and log.stat().st_size:
        raise Unavailable(
            f"store {file} was not closed, and stands where nothing can be written; copy it, together with {log.name},"
            " to a folder that can be written, and read it there"
        )
    address = f"file:{urllib.parse.quote(str(file.resolve()))}?immutable=1"  # sqlite.org/uri.html
    return apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def count_agents(file: Path) -> int:
    """How many agents a store holds. Raises: as `open_reader`."""
    db = open_reader(file)
    with contextlib.closing(db), _errors_told(file):
        count: int = db.execute("SELECT count(*) FROM agents").get
    return count


def _make_private(file: Path) -> None:
    """Make the file, if it is not there, for its user only, and its name durable; SQLite's others inherit its mode."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    except FileExistsError:
        return
    os.close(descriptor)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _version(file: Path, db: apsw.Connection) -> int:
    """The schema's version; 0 for an empty file."""
    application: int = db.pragma("application_id")
    version: int = db.pragma("user_version")
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]
    if application != schema.APPLICATION_ID and (application or version or tables):
        raise Corrupt(f"{file} is another program's database, not a store; give the store another name")
    if version < 0 or (application and not version):
        raise Corrupt(f"store {file} has schema {version}, which no callboard writes: restore it from a copy")
    if version > schema.VERSION:
        raise NewerSchema(
            f"store {file} has schema {version}, this callboard knows {schema.VERSION}; use the callboard that wrote it"
        )
    return version


def _migrate(db: apsw.Connection, version: int) -> None:
    """Bring the schema up, all steps in one transaction: a crash leaves the old version whole."""
    if version == schema.VERSION:
        return
    with db:
        for migration in schema.MIGRATIONS[version:]:
            for statement in migration.statements:
                db.execute(statement)
        if version == 0:
            db.execute("INSERT INTO meta VALUES ('store_id', ?)", (secrets.token_hex(8),))
            db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {schema.VERSION}")


@contextlib.contextmanager
def _errors_told(file: Path) -> Any:
    try:
        yield
    except apsw.Error as error:
        raise store_error(str(file), error) from error


@contextlib.contextmanager
def _closed_on_error(db: apsw.Connection) -> Any:
    try:
        yield
    except BaseException:
        db.close()
        raise
