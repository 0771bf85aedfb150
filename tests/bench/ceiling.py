"""The least that a durable turn costs on Trio and SQLite, with nothing promised: what bench_fleet.py compares with.

A turn is three commits: claim a message and append it; append a tool's result; append the answer and send to the next
agent. One thread commits whatever queued while the last flush ran (WAL, synchronous=FULL).
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import outcome
import trio

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Work: TypeAlias = "Callable[[sqlite3.Cursor], object]"

MOST: Final = 512
TABLES: Final = """
CREATE TABLE agents(agent INTEGER PRIMARY KEY, records INTEGER NOT NULL, spent INTEGER NOT NULL);
CREATE TABLE mail(seq INTEGER PRIMARY KEY, agent INTEGER NOT NULL, body TEXT NOT NULL);
CREATE INDEX mail_of ON mail(agent, seq);
CREATE TABLE records(agent INTEGER, number INTEGER, body TEXT NOT NULL, PRIMARY KEY(agent, number)) WITHOUT ROWID;
"""


class GroupWriter:
    """A thread with a connection; what waits is committed together."""

    def __init__(self, path: Path, agents: int, body: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
        self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + TABLES)
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO agents VALUES(?, 0, 0)", [(agent,) for agent in range(agents)])
        self._db.executemany("INSERT INTO mail(agent, body) VALUES(?, ?)", [(agent, body) for agent in range(agents)])
        self._db.execute("COMMIT")
        self._queue: queue.SimpleQueue[tuple[trio.lowlevel.Task, Work] | None] = queue.SimpleQueue()
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.flushes = 0
        self.commits = 0

    async def do(self, work: Work) -> Any:
        """One logical commit."""
        self._queue.put((trio.lowlevel.current_task(), work))
        return await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)

    def _run(self) -> None:
        cursor = self._db.cursor()
        while (entry := self._queue.get()) is not None:
            group = [entry]
            while len(group) < MOST and not self._queue.empty():
                another = self._queue.get()
                if another is None:  # none is put before every agent has ended
                    return
                group.append(another)
            cursor.execute("BEGIN IMMEDIATE")
            done = []
            for task, work in group:
                cursor.execute("SAVEPOINT one")
                done.append((task, outcome.Value(work(cursor))))
                cursor.execute("RELEASE one")
            cursor.execute("COMMIT")
            self.flushes += 1
            self.commits += len(done)
            self._token.run_sync_soon(_hand_out, done)

    def close(self) -> None:
        """End the thread."""
        self._queue.put(None)
        self._thread.join()
        self._db.close()


def _hand_out(done: list[tuple[trio.lowlevel.Task, outcome.Value[object]]]) -> None:
    for task, value in done:
        trio.lowlevel.reschedule(task, value)


def _append(cursor: sqlite3.Cursor, agent: int, body: str) -> None:
    bump = "UPDATE agents SET records = records + 1, spent = spent + 1 WHERE agent = ? RETURNING records"
    number = cursor.execute(bump, (agent,)).fetchall()[0][0]
    cursor.execute("INSERT INTO records VALUES(?, ?, ?)", (agent, number, body))


def _claim(cursor: sqlite3.Cursor, agent: int) -> str:
    first = "SELECT seq FROM mail WHERE agent = ? ORDER BY seq LIMIT 1"
    found = cursor.execute(f"DELETE FROM mail WHERE seq = ({first}) RETURNING body", (agent,)).fetchall()  # noqa: S608
    body: str = found[0][0]
    _append(cursor, agent, body)
    return body


def send(cursor: sqlite3.Cursor, agent: int, body: str) -> None:
    """Put a message into an agent's mail."""
    cursor.execute("INSERT INTO mail(agent, body) VALUES(?, ?)", (agent, body))


class Ring:
    """Agents that each answer a message and send one to another, until the time is over."""

    def __init__(self, writer: GroupWriter, agents: int, seconds: float, body: str) -> None:
        self._writer = writer
        self._agents = agents
        self._body = body
        self._end = time.perf_counter() + seconds
        self._mail = [1] * agents
        self._lots = [trio.lowlevel.ParkingLot() for _ in range(agents)]
        self.latencies_s: list[float] = []

    async def run(self) -> None:
        """Run them all."""
        async with trio.open_nursery() as nursery:
            for agent in range(self._agents):
                nursery.start_soon(self._agent, agent, nursery)
            await trio.sleep_until(trio.current_time() + max(0.0, self._end - time.perf_counter()))
            nursery.cancel_scope.cancel()

    async def _agent(self, agent: int, nursery: trio.Nursery) -> None:
        while time.perf_counter() < self._end:
            while not self._mail[agent]:
                await self._lots[agent].park()
            self._mail[agent] -= 1
            await self._turn(agent, nursery)

    async def _turn(self, agent: int, nursery: trio.Nursery) -> None:
        began = time.perf_counter()
        await self._writer.do(lambda cursor: _claim(cursor, agent))
        done = trio.Event()

        async def tool() -> None:
            with trio.CancelScope():
                await trio.lowlevel.checkpoint()
            done.set()

        nursery.start_soon(tool)
        await done.wait()
        await self._writer.do(lambda cursor: _append(cursor, agent, self._body))
        to = (agent * 7919 + 1) % self._agents

        def finish(cursor: sqlite3.Cursor) -> None:
            _append(cursor, agent, self._body)
            send(cursor, to, self._body)

        await self._writer.do(finish)
        self.latencies_s.append(time.perf_counter() - began)
        self._mail[to] += 1
        self._lots[to].unpark()
