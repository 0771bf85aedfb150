"""The writer of a SQLite store: groups, failing disks, waiters that cannot give up."""

from __future__ import annotations

import threading
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import apsw
import outcome
import pytest
import trio
import trio.testing
from msgspec.structs import replace

from actors.changes import (
    AgentRow,
    Append,
    Bump,
    CallRow,
    CallState,
    ChangeSet,
    Claim,
    Enqueue,
    KvRow,
    OutcomeRow,
    Placed,
    Put,
    Require,
)
from actors.content import Text
from actors.errors import Conflict, Corrupt, Fenced, InDoubt, InternalError, Unavailable, UsageError
from actors.ids import AgentId, MessageId, TreeId, call_id, run_id, turn_id
from actors.messages import Envelope, Lane, LaneBound, Outcome, Status
from actors.transcript import NoteRecord
from supervisor.store import sqlite
from supervisor.store.leases import Holder
from supervisor.store.sqlite import SqliteStore, open_sqlite_store
from supervisor.store.sqlite_file import open_reader, open_writer
from supervisor.store.sqlite_machine import boot_id, boot_seconds
from supervisor.store.sqlite_owners import Owning, take
from supervisor.store.sqlite_reads import Reads
from supervisor.store.sqlite_thread import Thread
from supervisor.store.sqlite_turn import Turnstile
from supervisor.store.sqlite_writer import Writer
from tests.supervisor.store.disks import FailingDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TREE, LEAD = TreeId("lead"), AgentId("lead")


def count(counter: str = "n", bound: int | None = None) -> ChangeSet:
    """A set that counts."""
    return ChangeSet(TREE, None, (Bump(counter, bound=bound),))


class Comparing:
    """Something that calls a function when it is compared, inside of a set."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def __eq__(self, other: object) -> bool:
        self._function()
        return False

    __hash__ = None  # type: ignore[assignment]


def comparing(function: Callable[[], object]) -> ChangeSet:
    """A set that calls a function, and then fails; the agent `lead` must be there."""
    return ChangeSet(TREE, None, (Bump("looked"), Require(AgentRow, (LEAD,), "turns", Comparing(function))))


def big(size: int) -> ChangeSet:
    """A set that writes so many bytes."""
    envelope = Envelope(MessageId(f"m-{size}"), LEAD, Lane.SEND, (Text("x" * size),))
    return ChangeSet(TREE, None, (Bump("n"), Enqueue(envelope, LaneBound(size_bytes=2**30, message_bytes=2**30))))


def owning(tree: TreeId) -> Owning:
    """A new owner takes a tree, whose last one's lease was over at once."""
    return take(tree, Holder(token_hex(4), boot=boot_id(), lease_s=0.0), boot_seconds)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """A writer of a store with the agent `lead` in it."""
    found = Writer("agents.db", open_writer(tmp_path / "agents.db"), Turnstile(tmp_path / "agents.db"))
    epoch = found.write([owning(TREE)])[0].unwrap()[0]
    put = ChangeSet(TREE, epoch, (Put(AgentRow(LEAD, "", "lead", "d"), fresh=True),))
    found.write([put])[0].unwrap()
    yield found
    found.close()


def outcomes(writer: Writer, *sets: ChangeSet | Owning) -> list[Any]:
    """What each set of one group comes to: its values, or its error."""
    results = writer.write(sets)
    assert not writer._db.in_transaction  # WRITER-1
    return [result.value if hasattr(result, "value") else result.error for result in results]


# -- groups ------------------------------------------------------------------------------------------------------


def test_a_group_is_one_flush_and_a_failed_set_holds_up_no_other(writer: Writer) -> None:
    """Sets that fail leave nothing, those around them are written, each told its own outcome."""
    flushes = writer.flushes
    found = outcomes(writer, count(), count(bound=1), count(), big(-1), count())
    assert [found[0], found[2], found[4]] == [(1,), (2,), (4,)]
    assert isinstance(found[1], Conflict)
    assert writer.flushes == flushes + 1
    assert (writer.commits, writer.refused) == (6, 1)


def test_sup_6_a_new_epoch_is_in_force_within_its_group(writer: Writer) -> None:
    """What an old owner queued behind the new one's take-over is fenced off."""
    old = ChangeSet(TREE, 1, (Bump("n"),))
    found = outcomes(writer, old, owning(TREE), old, ChangeSet(TREE, 2, (Bump("n"),)))
    assert [found[0], found[1], found[3]] == [(1,), (2,), (2,)]
    assert isinstance(found[2], Fenced)


def noted(at: int, *more: Require) -> ChangeSet:
    """A set of the owner that appends a note."""
    return ChangeSet(TREE, 1, (Append(LEAD, at, (NoteRecord(turn_id(LEAD, 1), "notice", str(at)),)), *more))


def test_store_1_what_was_undone_is_not_remembered(writer: Writer) -> None:
    """A set that fails when it has written is undone whole, also in what the writer knows of the conversation."""
    never = Require(AgentRow, (LEAD,), "turns", -1)
    found = outcomes(writer, count(), noted(0, never), noted(0), noted(1, never), noted(1), count())
    assert [found[0], found[2], found[4], found[5]] == [(1,), (1,), (2,), (2,)]
    assert isinstance(found[1], Conflict)
    assert isinstance(found[3], Conflict)
    assert outcomes(writer, noted(2)) == [(3,)]


def test_store_6_what_another_connection_wrote_is_in_force(writer: Writer, tmp_path: Path) -> None:
    """What the writer knows from before is looked up anew once anybody else has written."""
    assert outcomes(writer, noted(0)) == [(1,)]
    db = apsw.Connection(str(tmp_path / "agents.db"))
    db.execute("DELETE FROM records")
    assert outcomes(writer, noted(0)) == [(1,)]
    db.execute("UPDATE trees SET epoch = 9")
    db.close()
    assert isinstance(outcomes(writer, noted(1))[0], Fenced)


def test_store_5_conversations_do_not_run_into_each_other(writer: Writer, tmp_path: Path) -> None:
    """Agents made one after the other have keys side by side, and each reads its own records only."""
    second = AgentId("lead/b")
    put = ChangeSet(TREE, 1, (Put(AgentRow(second, "lead", "b", "d"), fresh=True),))
    other = ChangeSet(TREE, 1, (Append(second, 0, (NoteRecord(turn_id(second, 1), "notice", "b"),) * 2),))
    assert outcomes(writer, put, noted(0), other, noted(1)) == [(None,), (1,), (2,), (2,)]
    reads = Reads("agents.db", open_reader(tmp_path / "agents.db"))
    assert [note.text for note in reads.read_records(LEAD, 0, None) if isinstance(note, NoteRecord)] == ["0", "1"]
    assert [note.text for note in reads.read_records(second, 1, 2**40) if isinstance(note, NoteRecord)] == ["b"]
    assert [found.length for found in (reads.load_agent(LEAD), reads.load_agent(second)) if found] == [2, 2]
    reads.close()


def test_the_group_is_written_before_anyone_is_told(writer: Writer, tmp_path: Path) -> None:
    """Another connection sees all of a group once its outcomes are there."""
    outcomes(writer, *[count() for _ in range(5)])
    db = open_reader(tmp_path / "agents.db")
    assert db.execute("SELECT value FROM counters").get == 5
    db.close()


def test_our_own_bug_fails_its_set_alone(writer: Writer) -> None:
    """An unexpected exception is told as ours, and the others of the group are written."""

    def bug() -> None:
        raise ZeroDivisionError

    nonsense = ChangeSet(TREE, 1, ("nonsense",))  # type: ignore[arg-type]
    found = outcomes(writer, count(), comparing(bug), count(), nonsense)
    assert isinstance(found[3], InternalError)
    assert [found[0], found[2]] == [(1,), (2,)]
    assert isinstance(found[1], InternalError)
    assert "ZeroDivisionError" in str(found[1])


def test_a_key_that_utf8_cannot_hold_is_a_usage_error(writer: Writer) -> None:
    """A lone surrogate is kept in bodies, and refused where it would be looked for."""
    found = outcomes(writer, count("half \ud83d"), count())
    assert isinstance(found[0], UsageError)
    assert found[1] == (1,)


def test_every_row_has_the_tree_and_the_epoch_of_its_set(writer: Writer) -> None:
    """What a row says of who wrote it; a message to another tree is nobody's, as is what anyone sends."""
    other = AgentId("other")
    outcomes(writer, owning(TREE), owning(TREE), owning(TreeId(other)))
    turn, call = turn_id(LEAD, 1), call_id(turn_id(LEAD, 1), 1, 0)
    ended = Outcome(LEAD, run_id(LEAD, 1), turn, Status.DONE)
    outcomes(
        writer,
        ChangeSet(TreeId(other), 1, (Put(AgentRow(other, "", "other", "d"), fresh=True),)),
        ChangeSet(
            TREE,
            3,
            (
                Put(AgentRow(LEAD, "", "lead", "d")),
                Put(CallRow(call, LEAD, turn, "tool", "{}", CallState.STARTED)),
                Put(OutcomeRow(turn, LEAD, run_id(LEAD, 1), ended)),
                Put(KvRow(LEAD, "agent", "k", "1")),
                Append(LEAD, 0, (NoteRecord(turn, "notice", "x"),)),
                Bump("n"),
                Enqueue(Envelope(MessageId("m-1"), LEAD, Lane.SEND, (Text("x"),)), LaneBound()),
                Enqueue(Envelope(MessageId("m-2"), other, Lane.SEND, (Text("x"),)), LaneBound()),
            ),
        ),
        ChangeSet(TREE, None, (Enqueue(Envelope(MessageId("m-3"), LEAD, Lane.SEND, (Text("x"),)), LaneBound()),)),
    )
    found = {
        table: [tuple(row) for row in writer._db.execute(f"SELECT tree, epoch FROM {table} ORDER BY 1, 2")]  # noqa: S608
        for table in ("agents", "calls", "outcomes", "kv", "records", "counters", "messages")
    }
    own = [("lead", 3)]
    assert found.pop("messages") == [("lead", 0), ("lead", 3), ("other", 0)]
    assert found.pop("agents") == [("lead", 3), ("other", 1)]
    assert found == dict.fromkeys(found, own)


def test_rec_2_finding_work_costs_what_is_found(writer: Writer, tmp_path: Path) -> None:
    """A thousand idle agents with long histories add not one step to the read that finds the agents with work."""

    def agents(first: int, last: int) -> list[ChangeSet]:
        return [
            ChangeSet(TREE, 1, (Put(AgentRow(AgentId(f"lead/w#{number}"), "lead", "w", "d"), fresh=True),))
            for number in range(first, last)
        ]

    def steps(read: Callable[[Reads], object]) -> tuple[object, int]:
        db = open_reader(tmp_path / "agents.db")
        reads, taken = Reads("agents.db", db), 0

        def step() -> bool:
            nonlocal taken
            taken += 1
            return False

        db.set_progress_handler(step, 1)
        found = read(reads)
        db.set_progress_handler(None)
        reads.close()
        return found, taken

    worker = AgentId("lead/w#3")
    sent = [
        ChangeSet(TREE, None, (Enqueue(Envelope(MessageId(f"m-{n}"), worker, Lane.SEND, (Text("x"),)), LaneBound()),))
        for n in range(50)
    ]
    outcomes(writer, *agents(2, 12), sent[0])

    def read(reads: Reads) -> object:
        """The agent, but for how many messages it ever had."""
        found = reads.load_agent(worker)
        assert found is not None
        return replace(found, seq=0)

    before = [steps(Reads.agents_with_work), steps(read)]
    names = tuple(MessageId(f"m-{n}") for n in range(1, 50))
    outcomes(writer, *agents(12, 1_000), *sent[1:], ChangeSet(TREE, 1, (Claim(worker, names, turn_id(worker, 1)),)))
    after = [steps(Reads.agents_with_work), steps(read)]
    assert before == after
    assert before[0][0] == (worker,)


async def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C in the middle of an inline commit takes it back and comes out as itself."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    async with open_sqlite_store(tmp_path / "agents.db", owner="tests", inline=True) as store:
        await make_lead(store)
        with pytest.raises(KeyboardInterrupt):
            store.commit_nowait(comparing(interrupt))
        assert store.commit_nowait(count("looked")) == (1,)
        assert repr(store) == f"<SqliteStore {store.id}>"
    assert repr(store) == f"<SqliteStore {store.id} closed>"


# -- failing disks -----------------------------------------------------------------------------------------------


def test_a_full_disk_fails_the_whole_group_and_the_next_may_pass(writer: Writer) -> None:
    """SQLite ends the transaction itself, so every set of the group is told that nothing was written."""
    db = writer._db
    pages = db.pragma("page_count")
    db.pragma("max_page_count", pages + 4)
    found = outcomes(writer, count(), big(100_000), count())
    assert [type(error) for error in found] == [Unavailable] * 3
    assert len({id(error) for error in found}) == 3  # each is raised in its own task
    assert "the disk is full" in str(found[0])
    assert "free some space" in str(found[0])
    db.pragma("max_page_count", pages + 1_000)
    assert outcomes(writer, big(100_000), count()) == [(1, found_place(1)), (2,)]


def found_place(seq: int) -> object:
    """The place of the big message."""
    return Placed(MessageId("m-100000"), seq)


def test_another_programs_lock_is_told_after_a_while(writer: Writer, tmp_path: Path) -> None:
    """A forgotten shell that holds the write lock is named as such; when it ends all goes on."""
    other = apsw.Connection(str(tmp_path / "agents.db"))
    other.execute("BEGIN IMMEDIATE")
    writer._db.set_busy_timeout(20)
    (error,) = outcomes(writer, count())
    assert isinstance(error, Unavailable)
    assert "locked by another program" in str(error)
    other.execute("ROLLBACK")
    other.close()
    assert outcomes(writer, count()) == [(1,)]


def test_a_database_made_read_only_is_told(writer: Writer) -> None:
    """A disk that turns read-only fails commits with what to do."""
    writer._db.pragma("query_only", True)  # noqa: FBT003 - a pragma's value
    (error,) = outcomes(writer, count())
    assert isinstance(error, Unavailable)
    assert "read-only" in str(error)
    writer._db.pragma("query_only", False)  # noqa: FBT003
    assert outcomes(writer, count()) == [(1,)]


@pytest.mark.parametrize("dies", [True, False], ids=["the process dies", "the disk heals"])
@pytest.mark.parametrize("what", ["write", "sync"])
def test_a_failing_flush_leaves_whole_sets_and_is_written_over(tmp_path: Path, what: str, *, dies: bool) -> None:
    """WRITER-2: a set whose COMMIT met an I/O error is in doubt until the next, which writes over it."""
    path = tmp_path / "agents.db"
    open_writer(path).close()
    disk = FailingDisk()
    db = apsw.Connection(str(path), vfs="failing-disk")
    db.execute("PRAGMA synchronous = FULL")
    writer = Writer("agents.db", db, Turnstile(path))
    assert outcomes(writer, count(), count()) == [(1,), (2,)]
    disk.broken = what
    found = outcomes(writer, count(), count())
    assert [type(error) for error in found] == [InDoubt] * 2, "ACC-2: what is on disk is not known"
    assert all(error.passing for error in found)
    disk.broken = ""
    if not dies:
        assert outcomes(writer, count()) == [(3,)], "it stands behind what was durable"
    writer.close()
    db = open_writer(path)
    assert db.execute("SELECT value FROM counters").get in ({2, 4} if dies else {3})
    assert db.pragma("integrity_check") == "ok"
    db.close()
    disk.unregister()


def test_a_damaged_page_is_told_and_never_served(tmp_path: Path) -> None:
    """A flipped byte in a row's body or in the file's structure is `Corrupt`, with what to do."""
    path = tmp_path / "agents.db"
    db = open_writer(path)
    writer = Writer("agents.db", db, Turnstile(path))
    epoch = writer.write([owning(TREE)])[0].unwrap()[0]
    row = Put(AgentRow(LEAD, "", "lead", "d"), fresh=True)
    note = NoteRecord(turn_id(LEAD, 1), "notice", "findable")
    outcomes(writer, ChangeSet(TREE, epoch, (row, Append(LEAD, 0, (note,)))))
    writer.close()
    body = path.read_bytes()
    at = body.index(b"findable") - 2
    path.write_bytes(body[:at] + b"\x00" + body[at + 1 :])
    reads = Reads("agents.db", open_reader(path))
    with pytest.raises(Corrupt, match="record 0 of lead: a record cannot be read"):
        reads.read_records(LEAD, 0, None)
    reads.close()
    path.write_bytes(body[:4096] + b"\xff" * (len(body) - 4096))
    db = open_reader(path)
    with pytest.raises(Corrupt, match="restore it from a copy"):
        Reads("agents.db", db)
    db.close()


# -- threads -----------------------------------------------------------------------------------------------------


async def test_acc_2_many_callers_share_flushes(tmp_path: Path) -> None:
    """Sets that wait while the disk is flushed go with the next flush; every caller gets its own value."""
    async with open_sqlite_store(tmp_path / "agents.db", owner="tests") as store:
        found: list[object] = []

        async def one() -> None:
            found.append((await store.commit(count()))[0])

        async with trio.open_nursery() as nursery:
            for _ in range(500):
                nursery.start_soon(one)
        statistics = store.statistics()
        assert sorted(found, key=str) == sorted(range(1, 501), key=str)
        assert statistics.commits == 500
        assert 500 / 128 <= statistics.flushes <= 10, "they asked in one pass of the scheduler"


async def test_acc_2_what_is_asked_for_as_it_closes_is_done_or_refused() -> None:
    """Asked in the very pass in which the thread ends: each is done and told so, or refused and not done."""
    done: list[int] = []
    told: list[int] = []
    refused: list[int] = []

    def work(group: list[int]) -> list[outcome.Value[int] | outcome.Error]:
        done.extend(group)
        return [outcome.Value(number) for number in group]

    for first in range(0, 40, 4):  # Trio takes the tasks of a pass in any order
        thread: Thread[int] = Thread("tests", work, last=lambda: None)

        async def ask(number: int, thread: Thread[int] = thread) -> None:
            try:
                told.append(await thread.do(number))
            except Unavailable:
                refused.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(first, first + 4):
                nursery.start_soon(ask, number)
            nursery.start_soon(thread.close)
    assert sorted(told) == sorted(done)
    assert sorted(told + refused) == list(range(40))
    assert told
    assert refused


async def make_lead(store: SqliteStore) -> None:
    """Make the agent `lead`."""
    epoch = await store.own(TREE, store.new_holder())
    await store.commit(ChangeSet(TREE, epoch, (Put(AgentRow(LEAD, "", "lead", "d"), fresh=True),)))


def hold_up(store: SqliteStore, gate: threading.Event) -> Callable[[trio.Nursery], None]:
    """Keep the writing thread in a set until the gate is opened."""

    async def hold() -> None:
        with pytest.raises(Conflict):
            await store.commit(comparing(gate.wait))

    return lambda nursery: nursery.start_soon(hold)


async def test_acc_2_a_cancelled_waiter_gets_its_value(tmp_path: Path) -> None:
    """Cancelled while its set waits for the disk, a caller still learns that it was written, and only then stops."""
    async with open_sqlite_store(tmp_path / "agents.db", owner="tests") as store, trio.open_nursery() as nursery:
        gate = threading.Event()
        await make_lead(store)
        hold_up(store, gate)(nursery)
        await trio.testing.wait_all_tasks_blocked()  # it is asked for before the other
        values: list[object] = []
        scope, told = trio.CancelScope(), trio.Event()

        async def caller() -> None:
            with scope:
                values.append(await store.commit(count()))
                told.set()
                await trio.lowlevel.checkpoint()
                values.append("went on")

        nursery.start_soon(caller)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert values == []
        gate.set()
        await told.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert values == [(1,)]
        assert scope.cancelled_caught


async def test_reads_do_not_wait_for_commits_and_can_be_given_up(tmp_path: Path) -> None:
    """While the writer is held up a read answers; a read that is held up itself ends with its cancellation."""
    async with open_sqlite_store(tmp_path / "agents.db", owner="tests") as store, trio.open_nursery() as nursery:
        gate = threading.Event()
        await make_lead(store)
        hold_up(store, gate)(nursery)
        try:
            assert await store.agents_with_work() == ()
            token, reading = trio.lowlevel.current_trio_token(), trio.Event()

            def slow() -> None:
                token.run_sync_soon(reading.set)
                gate.wait()

            with trio.CancelScope() as scope:
                async with trio.open_nursery() as readers:
                    readers.start_soon(store._read, slow)
                    await reading.wait()
                    scope.cancel()
            assert scope.cancelled_caught
        finally:
            gate.set()
        assert await store.agents_with_work() == ()


async def test_closing_finishes_what_was_asked_for(tmp_path: Path) -> None:
    """Commits under way when the store is closed are written and answered; later ones are refused."""
    path = tmp_path / "agents.db"
    found: list[object] = []
    async with open_sqlite_store(path, owner="tests") as store, trio.open_nursery() as nursery:

        async def one() -> None:
            found.append((await store.commit(count()))[0])

        gate = threading.Event()
        await make_lead(store)
        hold_up(store, gate)(nursery)
        await trio.testing.wait_all_tasks_blocked()  # it is asked for before the others
        for _ in range(20):
            nursery.start_soon(one)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(store.close)
        await trio.testing.wait_all_tasks_blocked()
        assert found == []
        with pytest.raises(Unavailable, match="is closed"):
            await store.commit(count())
        gate.set()
    assert sorted(found, key=str) == sorted(range(1, 21), key=str)
    names = {thread.name for thread in threading.enumerate()}
    assert not {name for name in names if name.startswith("callboard-")}
    async with open_sqlite_store(path, owner="tests", inline=True) as store:
        assert await store.commit(count()) == (21,)


async def test_a_disk_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A close that waits too long says so, and what was under way is finished all the same."""
    monkeypatch.setattr(sqlite, "CLOSE_S", 0.05)
    path, gate = tmp_path / "agents.db", threading.Event()
    manager = open_sqlite_store(path, owner="tests")
    store = await manager.__aenter__()
    try:
        await make_lead(store)
        async with trio.open_nursery() as nursery:
            hold_up(store, gate)(nursery)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(Unavailable, match="has not answered for 0 s; what was under way"):
                await manager.__aexit__(None, None, None)
            gate.set()
    finally:
        gate.set()
        await store.close()  # noqa: ASYNC102 - it is bounded where it waits, or does not wait at all
