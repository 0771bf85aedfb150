"""What a commit costs: in memory, in SQLite, and beside the bare group writer that is SQLite's ceiling.

Run it with `python tests/bench/bench_store.py [SECONDS]`; it prints one line of JSON. The logical commit is the one a
turn makes most: claim a message, append its record, write the agent's row; the message is sent in the commit before.
"""

from __future__ import annotations

import json
import queue
import sqlite3
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import outcome
import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors import codec
from actors.changes import AgentRow, Append, CallRow, CallState, ChangeSet, Claim, Enqueue, OpenTurn, Put
from actors.content import Text
from actors.ids import AgentId, MessageId, TreeId, call_id, turn_id
from actors.messages import Envelope, Lane, LaneBound
from actors.transcript import MessageRecord
from actors.usage import Amounts, Usage
from supervisor.store.memory import open_memory_store
from supervisor.store.sqlite import open_sqlite_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisor.store.base import Store

BODY = "x" * 440
BOUND = LaneBound()
TREE = TreeId("lead")


def agent_of(number: int) -> AgentId:
    """The path of the benchmark's n-th agent."""
    return AgentId(f"lead/worker#{number}")


def row_of(agent: AgentId, turn: int) -> AgentRow:
    """A row as it is in the middle of a turn."""
    opened = OpenTurn(turn, 1, 1, asking=True, held=Amounts(1_000, 500, 12_345, 1), consumed=(MessageId("m-1"),))
    spent = Amounts(1_000, 200, 30_000, 3, 2, 5_000_000)
    return AgentRow(
        agent, "lead", "worker", "0123456789abcdef", owes=True, turns=turn, runs=1, open=opened,
        usage=Usage(1_000, 200, 0, 300, 0), spent=spent,
    )  # fmt: skip


def send(agent: AgentId, number: int) -> ChangeSet:
    """Send a message."""
    envelope = Envelope(MessageId(f"m-5f3a9c-{agent.rpartition(chr(35))[2]}-{number}"), agent, Lane.SEND, (Text(BODY),))
    return ChangeSet(TREE, None, (Enqueue(envelope, BOUND),))


def consume(agent: AgentId, number: int, epoch: int) -> ChangeSet:
    """Claim it, append its record, write the row."""
    message, turn = MessageId(f"m-5f3a9c-{agent.rpartition(chr(35))[2]}-{number}"), turn_id(agent, number + 1)
    record = MessageRecord(turn, message, (Text(BODY),))
    operations = (Claim(agent, (message,), turn), Append(agent, number, (record,)), Put(row_of(agent, number + 1)))
    return ChangeSet(TREE, epoch, operations)


def microseconds(work: Callable[[int], object], times: int) -> float:
    """The best of five rounds, per call."""
    best = float("inf")
    for turn in range(5):
        start = time.perf_counter()
        for number in range(turn * times, (turn + 1) * times):
            work(number)
        best = min(best, (time.perf_counter() - start) / times)
    return round(best * 1e6, 2)


async def memory() -> dict[str, float]:
    """Microseconds of commits in memory."""
    store = open_memory_store()
    epoch, agent = await store.own(TREE, store.new_holder()), agent_of(1)
    store.commit_nowait(ChangeSet(TREE, epoch, (Put(row_of(agent, 0)),)))

    def consumed(number: int) -> None:
        store.commit_nowait(send(agent, number))
        store.commit_nowait(consume(agent, number, epoch))

    other, row = agent_of(2), row_of(agent_of(2), 1)
    store.commit_nowait(ChangeSet(TREE, epoch, (Put(row),)))
    record = MessageRecord(turn_id(other, 1), MessageId("m"), (Text(BODY),))
    call = CallRow(call_id(turn_id(other, 1), 1, 0), other, turn_id(other, 1), "t", "{}", CallState.STARTED)

    def appended(number: int) -> None:
        store.commit_nowait(ChangeSet(TREE, epoch, (Append(other, number, (record,)), Put(row), Put(call))))

    return {
        "send+claim+append+put_us": microseconds(consumed, 5_000),
        "append+put+put_us": microseconds(appended, 5_000),
    }


def encoding() -> dict[str, float]:
    """Microseconds of encoding."""
    agent = agent_of(1)
    record, row = MessageRecord(turn_id(agent, 1), MessageId("m"), (Text(BODY),)), row_of(agent, 1)
    body = codec.RECORD.encode(record)
    return {
        "message_record_us": microseconds(lambda _: codec.RECORD.encode(record), 20_000),
        "agent_row_us": microseconds(lambda _: codec.AGENT.encode(row), 20_000),
        "decode_message_record_us": microseconds(lambda _: codec.RECORD.decode(body), 20_000),
    }


async def ours(folder: Path, callers: int, seconds: float) -> dict[str, float]:
    """Logical commits a second in SQLite; each caller sends and consumes in turn."""
    async with open_sqlite_store(folder / f"ours{callers}.db", owner="bench") as store:
        epoch = await store.own(TREE, store.new_holder())
        for number in range(callers):
            await store.commit(ChangeSet(TREE, epoch, (Put(row_of(agent_of(number), 0)),)))
        before, start, cpu = store.statistics(), time.perf_counter(), time.process_time()
        async with trio.open_nursery() as nursery:
            for number in range(callers):
                nursery.start_soon(_caller, store, agent_of(number), epoch, start + seconds)
        took, cpu, after = time.perf_counter() - start, time.process_time() - cpu, store.statistics()
        done = after.commits - before.commits
        return {
            "commits_s": round(done / took),
            "cpu_us": round(cpu / done * 1e6, 1),
            "per_flush": round(done / (after.flushes - before.flushes), 1),
        }


async def _caller(store: Store, agent: AgentId, epoch: int, end: float) -> None:
    number = 0
    while time.perf_counter() < end:
        await store.commit(send(agent, number))
        await store.commit(consume(agent, number, epoch))
        number += 1


class Ceiling:
    """The least that a durable commit costs: ready rows, four statements, one flush per group, no promise kept."""

    SCHEMA = """
        CREATE TABLE agent(id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, spent INTEGER NOT NULL, state TEXT);
        CREATE TABLE mailbox(id INTEGER PRIMARY KEY, agent INTEGER NOT NULL, body TEXT NOT NULL);
        CREATE INDEX mailbox_agent ON mailbox(agent, id);
        CREATE TABLE event(agent INTEGER, seq INTEGER, body TEXT, PRIMARY KEY(agent, seq)) WITHOUT ROWID;
    """

    def __init__(self, path: Path, agents: int) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._db = db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.executescript(self.SCHEMA)
        db.executemany("INSERT INTO agent VALUES(?,0,0,NULL)", [(number,) for number in range(agents)])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        run = self._db.execute
        while (first := self._queue.get()) is not None:
            group = [first]
            while len(group) < 128 and not self._queue.empty():
                group.append(self._queue.get())
            run("BEGIN IMMEDIATE")
            for _, work, agent in group:
                run("SAVEPOINT s")
                work(run, agent)
                run("RELEASE s")
            run("COMMIT")
            self._token.run_sync_soon(self._deliver, group)

    @staticmethod
    def _deliver(group: list[Any]) -> None:
        for task, _, _ in group:
            trio.lowlevel.reschedule(task, outcome.Value(None))

    async def do(self, work: Callable[..., None], agent: int) -> None:
        """One logical commit."""
        self._queue.put((trio.lowlevel.current_task(), work, agent))
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)

    def close(self) -> None:
        """End the thread."""
        self._queue.put(None)
        self._thread.join()
        self._db.close()

    @staticmethod
    def send(run: Any, agent: int) -> None:
        """Send a message."""
        run("INSERT INTO mailbox(agent, body) VALUES(?,?)", (agent, BODY))

    @staticmethod
    def consume(run: Any, agent: int) -> None:
        """Claim, bump, append."""
        claim = "DELETE FROM mailbox WHERE id=(SELECT id FROM mailbox WHERE agent=? ORDER BY id LIMIT 1) RETURNING id"
        run(claim, (agent,)).fetchall()
        bump = "UPDATE agent SET seq=seq+1, spent=spent+1 WHERE id=? RETURNING seq"
        run("INSERT INTO event VALUES(?,?,?)", (agent, run(bump, (agent,)).fetchall()[0][0], BODY))


async def ceiling(folder: Path, callers: int, seconds: float) -> dict[str, float]:
    """The same load on the bare group writer."""
    writer = Ceiling(folder / f"ceiling{callers}.db", callers)
    start, cpu, done = time.perf_counter(), time.process_time(), 0

    async def caller(agent: int) -> None:
        nonlocal done
        while time.perf_counter() < start + seconds:
            await writer.do(Ceiling.send, agent)
            await writer.do(Ceiling.consume, agent)
            done += 2

    async with trio.open_nursery() as nursery:
        for number in range(callers):
            nursery.start_soon(caller, number)
    took, cpu = time.perf_counter() - start, time.process_time() - cpu
    writer.close()
    return {"commits_s": round(done / took), "cpu_us": round(cpu / done * 1e6, 1)}


async def main(seconds: float) -> dict[str, Any]:
    """Everything, ours and the ceiling in turns."""
    found: dict[str, Any] = {"memory": await memory(), "encoding": encoding(), "sqlite": {}}
    with tempfile.TemporaryDirectory(prefix="bench-store-") as name:
        for callers in (1, 100):
            rounds = []
            for turn in range(3):
                folder = Path(name) / str(turn)
                folder.mkdir(exist_ok=True)
                rounds.append((await ours(folder, callers, seconds), await ceiling(folder, callers, seconds)))
            rounds.sort(key=lambda pair: pair[0]["commits_s"] / pair[1]["commits_s"])
            found["sqlite"][str(callers)] = dict(zip(("ours", "ceiling"), rounds[1], strict=True))
    return found


if __name__ == "__main__":
    print(json.dumps(trio.run(main, float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)))
