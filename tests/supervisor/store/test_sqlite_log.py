"""The log of a SQLite store: short, copied a little at a time, and never by a commit that others wait for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import apsw
import pytest

from actors.changes import AgentRow, ChangeSet, Enqueue, Put
from actors.content import Text
from actors.ids import MessageId
from actors.messages import Envelope, Lane, LaneBound
from supervisor.store import sqlite_log
from supervisor.store.sqlite_file import open_writer
from supervisor.store.sqlite_turn import Turnstile
from supervisor.store.sqlite_writer import Writer
from tests.supervisor.store.test_sqlite_writer import LEAD, TREE, owning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = 4_096
STEP, MOST, LONG = 20, 40, 200


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that a test can reach; an old SQLite tries no second connection."""
    for name, value in (("STEP", STEP), ("MOST", MOST), ("LONG", LONG), ("REST_S", 0.0)):
        monkeypatch.setattr(sqlite_log, name, value)


class Store:
    """A writer of a store, and how long its log is."""

    def __init__(self, path: Path, *, helped: bool = True) -> None:
        self.path = path / "agents.db"
        self.writer = Writer("agents.db", open_writer(self.path, "normal"), Turnstile(self.path), helped=helped)
        epoch = self.writer.write([owning(TREE)])[0].unwrap()[0]
        self.writer.write([ChangeSet(TREE, epoch, (Put(AgentRow(LEAD, "", "lead", "d"), fresh=True),))])[0].unwrap()
        self.sent = 0

    @property
    def pages(self) -> int:
        """In the log."""
        return self.writer._log._pages

    def send(self, times: int) -> None:
        """Commit messages, each of two pages and more."""
        for _ in range(times):
            self.sent += 1
            one = Envelope(MessageId(f"m-{self.sent}"), LEAD, Lane.SEND, (Text("x" * 2 * PAGE),))
            room = LaneBound(messages=10**6, size_bytes=2**40)
            self.writer.write([ChangeSet(TREE, None, (Enqueue(one, room),))])[0].unwrap()

    def helped(self) -> None:
        """Wait until the thread has copied."""
        helper = self.writer._log._helper
        if helper is not None:
            helper._thread.join(10)

    def reader(self) -> apsw.Connection:
        """One that hangs in the middle of a read."""
        found = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        found.execute("BEGIN")
        found.execute("SELECT count(*) FROM messages").fetchall()
        return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """One that has help."""
    found = Store(tmp_path)
    yield found
    found.writer.close()


def test_the_log_stays_short(store: Store) -> None:
    """Whatever is written, the log is begun anew soon after it became long, and no thread is needed."""
    store.send(500)
    assert store.pages < 3 * STEP
    assert store.writer._log._helper is None


def test_log_1_a_commit_copies_little_of_what_a_reader_has_held_up(store: Store) -> None:
    """While a reader hangs the log grows; when it is gone a thread copies all of it, and a commit cuts it short."""
    reader = store.reader()
    store.send(500)
    assert store.pages > 5 * LONG, "what it may still want to read must stay"
    reader.close()
    for _ in range(3):
        store.helped()
        store.send(1)
    assert 0 < store.writer._log.copied <= MOST
    assert store.pages < 3 * STEP, "it is short again"


def test_readers_that_overlap_do_not_keep_the_log(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit meets a reader in the middle of its read: a long log waits for its end, and begins anew."""
    monkeypatch.setattr(sqlite_log, "WAIT_MS", 2_000)
    log, longest = store.writer._log, 0
    for _ in range(2 * LONG // 8):
        ends = threading.Timer(0.01, store.reader().close)
        ends.start()
        store.send(1)
        ends.join()
        store.helped()
        longest = max(longest, store.pages)
    assert LONG <= longest < LONG + MOST, "it was long, and then no more"
    assert log.copied <= MOST


def test_without_help_commits_copy_all(tmp_path: Path) -> None:
    """A SQLite that may not write with two connections has no thread."""
    store = Store(tmp_path, helped=False)
    reader = store.reader()
    store.send(100)
    reader.close()
    store.send(2)
    assert store.writer._log.copied > MOST
    assert store.writer._log._helper is None
    store.writer.close()


def test_a_close_ends_the_thread(tmp_path: Path) -> None:
    """It is interrupted where it is; nothing that was committed is lost."""
    store = Store(tmp_path)
    reader = store.reader()
    store.send(500)
    reader.close()
    store.send(1)
    helper = store.writer._log._helper
    assert helper is not None
    store.writer.close()
    assert not helper.running
    db = apsw.Connection(str(store.path))
    assert db.execute("SELECT count(*) FROM messages").fetchall() == [(501,)]
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


def test_what_fails_while_the_log_is_copied_fails_no_commit(store: Store) -> None:
    """A lock in the way, or a disk that fails, is met by whoever writes next."""
    store.send(STEP)

    class Failing:
        filename = store.writer._log._db.filename

        def wal_checkpoint(self, **_: object) -> object:
            raise apsw.IOError

        def set_busy_timeout(self, _: int) -> None:
            """Nothing."""

    store.writer._log._db = Failing()  # type: ignore[assignment]  # it has what is used
    store.send(2 * LONG)
    assert store.writer.commits == store.sent + 2
