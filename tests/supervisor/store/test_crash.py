"""A process that is killed while it commits: what it was told is there, and nothing is there by half."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest
import trio

from actors.ids import AgentId
from actors.messages import ReceiptState
from supervisor.store.sqlite import open_sqlite_reader, open_sqlite_store

WRITERS = 8

CHILD = """
import os, sys, trio
from actors.changes import AgentRow, Append, Bump, ChangeSet, Claim, Enqueue, Put
from actors.content import Text
from actors.ids import AgentId, MessageId, TreeId, turn_id
from actors.messages import Envelope, Lane, LaneBound
from actors.transcript import NoteRecord
from supervisor.store.sqlite import open_sqlite_store

path, start, writers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
TREE = TreeId("lead")

async def write(store, epoch, number):
    agent = AgentId(f"lead/w#{number}")
    stored = await store.load_agent(agent)
    length = stored.length
    while True:
        message = MessageId(f"m-{number}-{length}")
        envelope = Envelope(message, agent, Lane.SEND, (Text(str(length)),))
        # one set: a message accepted and consumed, two records, the row and a counter
        await store.commit(ChangeSet(TREE, epoch, (
            Enqueue(envelope, LaneBound()),
            Claim(agent, (message,), turn_id(agent, 1)),
            Append(agent, length, (NoteRecord(turn_id(agent, 1), "notice", "a"),)),
            Append(agent, length + 1, (NoteRecord(turn_id(agent, 1), "notice", "b"),)),
            Put(AgentRow(agent, "lead", "w", "d", turns=length + 2)),
            Bump(f"records {number}", 2),
        )))
        length += 2
        os.write(1, b"%d %d\\n" % (number, length))  # acknowledged

async def main():
    async with open_sqlite_store(path, owner="crash") as store:
        epoch = await store.own(TREE, store.new_holder())
        if start == 0:
            for number in range(writers):
                row = AgentRow(AgentId(f"lead/w#{number}"), "lead", "w", "d")
                await store.commit(ChangeSet(TREE, epoch, (Put(row, fresh=True),)))
        async with trio.open_nursery() as nursery:
            for number in range(writers):
                nursery.start_soon(write, store, epoch, number)

trio.run(main)
"""


def killed(path: Path, turn: int, alive_s: float) -> dict[int, int]:
    """Run the child, kill it some time after its first commit, and return what it was told was written."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(turn), str(WRITERS)], stdout=subprocess.PIPE, cwd=Path.cwd()
    )
    assert process.stdout is not None
    with process.stdout:
        first = process.stdout.readline()
        time.sleep(alive_s)  # the disk's own time: the kill falls anywhere in a commit
        process.kill()
        process.wait()
        told = [first, *process.stdout.read().splitlines(keepends=True)]
    acknowledged: dict[int, int] = {}
    for line in told:
        if line.endswith(b"\n"):
            number, length = map(int, line.split())
            acknowledged[number] = max(length, acknowledged.get(number, 0))
    assert acknowledged, "the child died before its first commit"
    return acknowledged


async def check(path: Path, acknowledged: dict[int, int]) -> None:
    """All that was acknowledged is there, whole; the lock is free."""
    async with open_sqlite_reader(path) as reader:
        for number in range(WRITERS):
            agent = AgentId(f"lead/w#{number}")
            stored = await reader.load_agent(agent)
            assert stored is not None
            assert stored.length >= acknowledged.get(number, 0), "an acknowledged commit is lost"
            assert len(await reader.read_records(agent)) == stored.length == stored.row.turns
            consumed = await reader.messages(agent, (ReceiptState.CONSUMED,), limit=100_000)
            assert [message.seq for message in consumed] == list(range(1, stored.length // 2 + 1))
            assert stored.queued == ()
    async with open_sqlite_store(path, owner="check") as store:
        assert store._writer._db.pragma("integrity_check") == "ok"
        rows = store._writer._db.execute("SELECT counter, value FROM counters").fetchall()
        counters = {str(counter): value for counter, value in rows}
        for number in range(WRITERS):
            stored = await store.load_agent(AgentId(f"lead/w#{number}"))
            assert stored is not None
            assert counters.get(f"records {number}", 0) == stored.length


def crash(path: Path, rounds: int) -> None:
    """Kill a child so many times; check after each."""
    dice = random.Random(5)
    epochs = []
    for turn in range(rounds):
        acknowledged = killed(path, turn, dice.uniform(0.0, 0.06))
        trio.run(check, path, acknowledged)
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        epochs.append(db.execute("SELECT epoch FROM trees").get)
        db.close()
    assert epochs == list(range(1, rounds + 1))


def test_rec_3_no_acknowledged_commit_is_lost_to_a_kill(tmp_path: Path) -> None:
    """Killed in the middle of commits, a store holds whole sets, all that were acknowledged, and is free at once."""
    crash(tmp_path / "agents.db", rounds=3)


@pytest.mark.slow
def test_rec_3_no_acknowledged_commit_is_lost_to_many_kills(tmp_path: Path) -> None:
    """As above, forty times over one file."""
    crash(tmp_path / "agents.db", rounds=40)
