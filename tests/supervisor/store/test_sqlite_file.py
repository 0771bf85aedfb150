"""The files of a SQLite store: who may open it, and what they are told."""

from __future__ import annotations

import datetime as dt
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest
import trio
import trio.testing

from actors.changes import AgentRow, Append, Bump, ChangeSet, Put
from actors.errors import CallboardError, Corrupt, Fenced, NewerSchema, OwnedElsewhere, Unavailable, UsageError
from actors.ids import AgentId, TreeId, turn_id
from actors.transcript import NoteRecord
from supervisor.store import schema, sqlite
from supervisor.store.sqlite import open_sqlite_reader, open_sqlite_store
from supervisor.store.sqlite_file import Owner, open_writer, several_may_write

# ruff: noqa: ASYNC240 - nothing else runs here that a blocking look at a file could hold up

TREE, LEAD = TreeId("lead"), AgentId("lead")
COUNT = ChangeSet(TREE, None, (Bump("n"),))


async def refused(path: Path | str, kind: type[CallboardError], told: str, *, reader: bool = False) -> None:
    """Opening it fails with an error that says so."""
    manager = open_sqlite_reader(path, inline=True) if reader else open_sqlite_store(path, owner="tests", inline=True)
    with pytest.raises(kind) as caught:
        await manager.__aenter__()
    assert told in str(caught.value)


# -- paths -------------------------------------------------------------------------------------------------------


async def test_bad_paths_are_named(tmp_path: Path) -> None:
    """A folder, a missing folder, no name and SQLite's own words for memory are refused plainly."""
    await refused(tmp_path, Unavailable, "is a folder; give the name of a file in it")
    await refused(tmp_path / "no" / "agents.db", Unavailable, "there is no folder")
    await refused("", UsageError, "a store is a file name")
    await refused(":memory:", UsageError, "for a store in memory give no store")
    await refused("file:agents.db?mode=memory", UsageError, "a store is a file name")
    await refused(tmp_path / "agents.db", Unavailable, "there is no store", reader=True)
    await refused(tmp_path, Unavailable, "is a folder", reader=True)
    assert list(tmp_path.iterdir()) == []


async def test_what_is_no_store_is_left_alone(tmp_path: Path) -> None:
    """Text, and another program's database, are neither taken nor changed, and no file is left beside them."""
    text, other = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("x" * 5_000)
    db = apsw.Connection(str(other))
    db.execute("CREATE TABLE mine (a)")
    db.close()
    before = other.read_bytes()
    for reader in (False, True):
        await refused(text, Corrupt, "damaged or no SQLite database", reader=reader)
        await refused(other, Corrupt, "another program's database", reader=reader)
    assert text.read_text() == "x" * 5_000
    assert other.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "other.db"}


async def test_an_empty_file_becomes_a_store_but_is_not_read_as_one(tmp_path: Path) -> None:
    """Somebody who made the file with `touch` meant a new store."""
    path = tmp_path / "agents.db"
    path.touch()
    await refused(path, Corrupt, "is an empty file", reader=True)
    async with open_sqlite_store(path, owner="tests", inline=True) as store:
        assert await store.commit(COUNT) == (1,)


async def test_files_are_for_their_user_only(tmp_path: Path) -> None:
    """What agents say is nobody else's business: the store, its log and its lock have mode 0600."""
    async with open_sqlite_store(tmp_path / "agents.db", owner="tests", inline=True) as store:
        await store.commit(COUNT)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(modes) == {f"agents.db{end}" for end in ("", "-wal", "-shm", "-owner", "-queue")}
    assert set(modes.values()) == {0o600}
    assert {path.name for path in tmp_path.iterdir()} == {"agents.db", "agents.db-owner", "agents.db-queue"}


async def test_a_store_where_nobody_may_write_is_read_with_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as on a read-only mount: one that was closed is read; one with a log is not, and the error says the way."""
    path = tmp_path / "agents?.db"
    async with open_sqlite_store(path, owner="tests", inline=True) as store:
        await store.commit(COUNT)
        crashed = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.suffix != ".db-shm"}
    monkeypatch.setattr(os, "access", lambda *_: False)
    before = {file.name for file in tmp_path.iterdir()}
    async with open_sqlite_reader(path, inline=True) as reader:
        assert await reader.roots() == ()
        assert {file.name for file in tmp_path.iterdir()} == before
    for name, body in crashed.items():
        if not name.endswith("-shm"):
            (tmp_path / name).write_bytes(body)
    with pytest.raises(Unavailable, match=r"copy it, together with agents\?\.db-wal,"):
        async with open_sqlite_reader(path, inline=True):
            pass


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
async def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    """Read-only is said when the store is opened, not at the first commit."""
    path = tmp_path / "agents.db"
    async with open_sqlite_store(path, owner="tests", inline=True):
        pass
    path.chmod(0o400)
    await refused(path, Unavailable, "is read-only")


# -- versions ----------------------------------------------------------------------------------------------------


async def test_a_newer_schema_is_refused_unchanged(tmp_path: Path) -> None:
    """An old callboard does not touch what a new one wrote."""
    path = tmp_path / "agents.db"
    async with open_sqlite_store(path, owner="tests", inline=True):
        pass
    db = apsw.Connection(str(path))
    db.pragma("user_version", schema.VERSION + 1)
    db.close()
    for reader in (False, True):
        await refused(path, NewerSchema, f"has schema {schema.VERSION + 1}, this callboard knows", reader=reader)


def test_a_migration_that_fails_leaves_the_old_version_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps and the version's number are one transaction; it works at the next try."""
    path = tmp_path / "agents.db"
    open_writer(path).close()
    broken = schema.Migration("broken", ("CREATE TABLE more (a)", "no such statement"))
    whole = schema.Migration("whole", ("CREATE TABLE more (a)",))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
    with pytest.raises(Unavailable, match="syntax error"):
        open_writer(path)
    db = apsw.Connection(str(path))
    assert db.pragma("user_version") == schema.VERSION - 1
    assert db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'more'").get == 0
    db.close()
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS[:-1], whole))
    db = open_writer(path)
    assert db.pragma("user_version") == schema.VERSION
    assert db.execute("SELECT count(*) FROM more").get == 0
    db.close()


async def test_a_reader_does_not_bring_an_old_store_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever only looks is told who may."""
    open_writer(tmp_path / "agents.db").close()
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    await refused(tmp_path / "agents.db", Unavailable, "run with it once to bring it up", reader=True)


async def test_a_store_keeps_its_name(tmp_path: Path) -> None:
    """The id is made with the store, kept by it, and another store's is another."""
    ids = []
    for name in ("agents.db", "agents.db", "other.db"):
        async with open_sqlite_store(tmp_path / name, owner="tests", inline=True) as store:
            ids.append(store.id)
    assert ids[0] == ids[1] != ids[2]


# -- ownership ---------------------------------------------------------------------------------------------------


async def test_sup_6_a_tree_that_is_run_is_refused_by_name_and_given_back_is_free(tmp_path: Path) -> None:
    """The message says who runs it, since when, and what to do; its store is open to others all the same."""
    path = tmp_path / "agents.db"
    link = tmp_path / "link.db"
    link.symlink_to(path)
    async with (
        open_sqlite_store(path, owner="callboard run review.py", inline=True) as one,
        open_sqlite_store(link, owner="other", inline=True) as two,
    ):
        mine = one.new_holder()
        epoch = await one.own(TREE, mine)
        with pytest.raises(
            OwnedElsewhere, match=r"run by process \d+ \(callboard run review.py\) since .*send or steer"
        ):
            await two.own(TREE, two.new_holder())
        assert await two.own(TreeId("other"), two.new_holder()) == 1
        assert await two.commit(COUNT) == (1,)
        assert await one.own(TREE, mine) == epoch, "whoever has it keeps its epoch"
        await one.release(mine)
        assert await two.own(TREE, two.new_holder()) == epoch + 1


async def test_sup_6_a_lease_that_is_not_renewed_ends(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Renewed in time it lasts; let run out another takes the tree, and the old epoch writes nothing more."""
    async with open_sqlite_store(tmp_path / "agents.db", owner="tests", inline=True, lease_s=10) as store:
        mine, other = store.new_holder(), store.new_holder()
        epoch = await store.own(TREE, mine)
        await trio.sleep(9)
        assert await store.renew(mine) is None
        await trio.sleep(9)
        with pytest.raises(OwnedElsewhere):
            await store.own(TREE, other)
        assert await store.lease(TREE) is not None
        await trio.sleep(1)
        assert await store.lease(TREE) is None
        assert await store.own(TREE, other) == epoch + 1
        assert await store.renew(mine) == {}
        with pytest.raises(Fenced):
            await store.commit(ChangeSet(TREE, epoch, (Bump("n"),)))
        assert await store.commit(ChangeSet(TREE, epoch + 1, (Bump("n"),))) == (1,)


HOLDER = """
import sys
import trio
from actors.ids import TreeId
from supervisor.store.sqlite import open_sqlite_store
async def main():
    async with open_sqlite_store(sys.argv[1], owner="callboard run other.py", lease_s=3600) as store:
        print(await store.own(TreeId("lead"), store.new_holder()), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
trio.run(main)
"""


def _process_of(code: str, path: Path) -> subprocess.Popen[bytes]:
    """A process that runs `code` on a store, until its standard input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd()
    )


async def test_sup_6_a_killed_owner_is_known_to_be_gone(tmp_path: Path) -> None:
    """Its lease would last for an hour, and its process is not there: the tree is taken at once."""
    path = tmp_path / "agents.db"
    process = _process_of(HOLDER, path)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert process.stdout.readline() == b"1\n"
        async with open_sqlite_store(path, owner="tests") as store:
            with pytest.raises(OwnedElsewhere, match=f"process {process.pid} .callboard run other.py."):
                await store.own(TREE, store.new_holder())
            process.kill()
            process.wait()
            assert await store.own(TREE, store.new_holder()) == 2
            rows = store._writer._db.execute("SELECT count(*) FROM owners").fetchall()
            assert rows == [(1,)], "nobody is remembered who has nothing"
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


async def test_sup_6_an_old_sqlite_writes_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 3.51.3 several writers can lose commits: such a process must be alone, and says how not to be."""
    assert [several_may_write(version) for version in ("3.40.1", "3.51.2", "3.51.3", "3.52.0", "4.0")] == [
        False, False, True, True, True,
    ]  # fmt: skip
    path = tmp_path / "agents.db"
    async with open_sqlite_store(path, owner="new", inline=True):
        monkeypatch.setattr(sqlite, "several_may_write", lambda: False)
        await refused(path, OwnedElsewhere, "must not write beside another: before 3.51.3 it can lose commits")
    async with open_sqlite_store(path, owner="callboard run old.py", inline=True):
        monkeypatch.setattr(sqlite, "several_may_write", lambda: True)
        await refused(path, OwnedElsewhere, "store agents.db is in use by this process (callboard run old.py)")
    async with open_sqlite_store(path, owner="tests", inline=True) as store:
        assert await store.commit(COUNT) == (1,)


OWNER = """
import sys
from pathlib import Path
from supervisor.store.sqlite_file import Owner
owner = Owner.take(Path(sys.argv[1]), "callboard run other.py", alone=True)
print("owned", flush=True)
sys.stdin.read()
"""


async def test_sup_6_another_process_is_named_and_a_dead_one_does_not_block(tmp_path: Path) -> None:
    """While it lives its pid is told; once it is killed its file keeps nobody out."""
    path = tmp_path / "agents.db"
    process = _process_of(OWNER, path)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert process.stdout.readline() == b"owned\n"
        await refused(path, OwnedElsewhere, f"in use by process {process.pid} (callboard run other.py) since ")
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
    assert json.loads((tmp_path / "agents.db-owner").read_bytes())["pid"] == process.pid
    async with open_sqlite_store(path, owner="tests", inline=True) as store:
        assert await store.commit(COUNT) == (1,)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "in use by another process; end it"),
        (b"not json", "in use by another process; end it"),
        (b"[1]", "in use by another process; end it"),
        (
            json.dumps(
                {"pid": 1, "host": "elsewhere", "since": "2020-02-03T14:03:00+00:00", "command": "run"}
            ).encode(),
            "in use by process 1 (run) on elsewhere since 2020-02-03 14:03",
        ),
        (json.dumps({"pid": 1, "since": "noon", "command": "run"}).encode(), "since noon"),
    ],
)
async def test_whatever_the_lock_file_holds_the_message_is_readable(tmp_path: Path, content: bytes, told: str) -> None:
    """An owner that has not written yet, or an odd file, is told of as well as can be."""
    owner = Owner.take(tmp_path / "agents.db", "tests", alone=True)
    (tmp_path / "agents.db-owner").write_bytes(content)
    await refused(tmp_path / "agents.db", OwnedElsewhere, told)
    owner.release()
    owner.release()


async def test_the_hour_is_told_for_today(tmp_path: Path) -> None:
    """Since when is told as a clock shows it."""
    owner = Owner.take(tmp_path / "agents.db", "tests", alone=True)
    since = dt.datetime.fromisoformat(json.loads((tmp_path / "agents.db-owner").read_bytes())["since"])
    await refused(tmp_path / "agents.db", OwnedElsewhere, f"since {since:%H:%M},")
    owner.release()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A child that outlives us, made by a plain fork, holds nothing up."""
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom supervisor.store.sqlite_file import Owner\n"
        "owner = Owner.take(Path(sys.argv[1]), 'tests', alone=True)\n"
        "if os.fork():\n    os._exit(0)\n"
        "sys.stdout.close(); os.close(1); sys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "agents.db")], stdin=subprocess.PIPE)
    process.wait()
    assert process.stdin is not None
    try:
        deadline = time.monotonic() + 10
        while True:  # the child closes its copy right after the fork, perhaps later than we look
            try:
                Owner.take(tmp_path / "agents.db", "tests", alone=True).release()
                break
            except OwnedElsewhere:
                assert time.monotonic() < deadline
    finally:
        process.stdin.close()


async def test_a_lock_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """Where the lock cannot stand the store is not opened."""
    (tmp_path / "agents.db-owner").mkdir()
    await refused(tmp_path / "agents.db", Unavailable, "cannot be locked")


async def test_a_failed_opening_frees_the_lock(tmp_path: Path) -> None:
    """What could not be opened can be opened once it is mended."""
    path = tmp_path / "agents.db"
    path.write_text("x" * 5_000)
    await refused(path, Corrupt, "no SQLite database")
    path.unlink()
    async with open_sqlite_store(path, owner="tests", inline=True) as store:
        assert await store.commit(COUNT) == (1,)


# -- reading beside the owner ------------------------------------------------------------------------------------


async def test_a_reader_sees_what_its_owner_has_committed(tmp_path: Path) -> None:
    """`show` works while another process runs the agents, and writes nothing."""
    path = tmp_path / "agents.db"
    async with open_sqlite_store(path, owner="tests", inline=True) as store:
        epoch = await store.own(TREE, store.new_holder())
        await store.commit(ChangeSet(TREE, epoch, (Put(AgentRow(LEAD, "", "lead", "d"), fresh=True),)))
        async with open_sqlite_reader(path, inline=True) as reader:
            for number in range(3):
                record = NoteRecord(turn_id(LEAD, 1), "notice", str(number))
                await store.commit(ChangeSet(TREE, epoch, (Append(LEAD, number, (record,)),)))
                assert (await reader.read_records(LEAD))[-1] == record
            assert reader.id == store.id
            with pytest.raises(apsw.ReadOnlyError):
                reader._reads._db.execute("DELETE FROM records")
    async with open_sqlite_reader(path) as reader:
        assert len(await reader.read_records(LEAD)) == 3


async def test_a_new_store_is_made_once_by_many_that_open_it(tmp_path: Path) -> None:
    """Those that find no schema at the same moment do not both make it: each has the one store."""
    ids: list[str] = []

    async def opens() -> None:
        async with open_sqlite_store(tmp_path / "agents.db", owner="tests") as store:
            ids.append(store.id)
            await store.commit(COUNT)

    async with trio.open_nursery() as nursery:
        for _ in range(12):
            nursery.start_soon(opens)
    assert len(ids) == 12
    assert len(set(ids)) == 1
    async with open_sqlite_store(tmp_path / "agents.db", owner="tests", inline=True) as store:
        assert await store.commit(COUNT) == (13,)


async def test_what_a_commit_survives_is_chosen_by_name(tmp_path: Path) -> None:
    """Commits are flushed unless the store is opened as `normal`; no other word is taken."""
    for durability, level in (("full", 2), ("normal", 1)):
        async with open_sqlite_store(
            tmp_path / "agents.db", owner="tests", durability=durability, inline=True
        ) as store:
            assert store._writer._db.pragma("synchronous") == level
    async with open_sqlite_store(tmp_path / "agents.db", owner="tests", inline=True) as store:
        assert store._writer._db.pragma("synchronous") == 2
    with pytest.raises(UsageError, match="durability="):
        async with open_sqlite_store(tmp_path / "agents.db", owner="tests", durability="off", inline=True):
            pass
