"""Keeps a store's log (`-wal`) short, and never makes a commit wait for much of it to be copied.

SQLite copies the log into the database in the commit that makes it long, all of it: behind a reader that had held it
up for a while that was seen to take 2.5 s for 670 MB, with every agent waiting. So a commit copies a little only. What
has heaped up is copied by a thread with a connection of its own, which holds up nobody. While a reader hangs, what is
committed must stay in the log: it grows by that, and shrinks again when the reader is gone.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

import apsw

if TYPE_CHECKING:
    from collections.abc import Callable

BUSY_MS: Final = 5_000
"""How long another program's lock (a `sqlite3` shell, a backup) is waited for."""
STEP: Final = 1_000
"""Pages in the log from which on a commit copies what is new in it."""
MOST: Final = 4_000
"""Pages that a commit copies at most, some 16 MB and some tens of milliseconds; more is for the thread."""
LONG: Final = 16_384
"""Pages, 64 MB, from which on the log is begun anew also where readers overlap, who would never let it end."""
WAIT_MS: Final = 50
"""How long a commit waits for such readers at most."""
AGAIN_S: Final = 5.0
"""When that is tried again."""
REST_S: Final = 0.25
"""When what the thread could not copy is tried again."""


class Log:
    """The log of one writer's connection. Used by the writer's thread, between its groups.

    Invariants:
        LOG-1 what the writer's thread copies at a time is at most `MOST` pages and one group.
        LOG-2 the thread writes nothing but what is committed, into the database, so it may end at any point.

    Args:
        db: the writer's connection; SQLite's own copying is turned off there.
        helped: whether a second connection may write beside it, see `SEVERAL_FROM`; else commits copy all.

    Attributes:
        copied: the most pages that were copied at once by the writer's thread.
    """

    def __init__(self, db: apsw.Connection, *, helped: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._helped = helped
        self._now = now
        self._pages = 0
        self._done = 0  # of them, those that are in the database
        self._began = 0  # how often the log was begun anew
        self._helper: _Helper | None = None
        self._rest_at = self._again_at = 0.0
        self.copied = 0
        db.set_wal_hook(self._committed)

    def _committed(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._pages:  # it was begun anew
            self._done = 0
            self._began += 1
        self._pages = pages
        return apsw.SQLITE_OK

    def settle(self) -> None:
        """Copy what is new where the log is long, behind a commit; a failing disk is met by the next commit."""
        if self._pages < STEP:
            return
        if self._helper is not None:
            if self._helper.running:
                return
            if self._helper.began == self._began:
                self._done = max(self._done, self._helper.done)
            self._helper = None
        if self._helped and self._pages - self._done > MOST:
            if self._now() >= self._rest_at:
                self._rest_at = self._now() + REST_S
                self._helper = _Helper(self._db.filename, self._began)
            return
        try:
            self._copy()
        except apsw.Error:  # another copies at this moment, a reader is in the way, or the disk fails
            return

    def _copy(self) -> None:
        before = self._done
        if self._pages < LONG or self._now() < self._again_at:
            self._done = self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)[1]
        else:
            self._again_at = self._now() + AGAIN_S
            self._db.set_busy_timeout(WAIT_MS)
            try:
                self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                self._done = self._pages
            finally:
                self._db.set_busy_timeout(BUSY_MS)
        self.copied = max(self.copied, self._done - before)

    def close(self) -> None:
        """End the thread, wherever it is."""
        if self._helper is not None:
            self._helper.stop()


class _Helper:
    """One pass over a long log, in a thread of its own.

    Attributes:
        began: which log it was. done: how many of its pages are in the database behind it.
    """

    def __init__(self, path: str, began: int) -> None:
        self.began = began
        self._db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        self.done = 0
        self._thread = threading.Thread(target=self._run, name="callboard-log", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it still copies."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._db.set_busy_timeout(BUSY_MS)
            self._db.execute("PRAGMA checkpoint_fullfsync = ON")
            self._db.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # before that it knows of no log
            self.done = self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)[1]
        except apsw.Error:  # interrupted, or the disk fails: the writer meets that by itself
            pass
        finally:
            self._db.close()

    def stop(self) -> None:
        """Interrupt it, and wait for its end, which is then near."""
        while self.running:
            with contextlib.suppress(apsw.ConnectionClosedError):  # it has just ended
                self._db.interrupt()
            self._thread.join(0.01)
