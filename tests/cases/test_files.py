"""What went wrong elsewhere in the file: torn tails, locks, logs that grew, writers that stood still."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Agent, Script, StoreTroubled, call, tool
from actors.ids import TreeId
from actors.transcript import problems
from supervisor import open_supervisor
from supervisor.store.sqlite import open_sqlite_reader, open_sqlite_store
from supervisor.stores import check_store_file
from tests.supervisor.promises.world import World, texts, watched

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from actors.transcript import Record
    from supervisor import Supervisor

FRAME = 4_096 + 24
"""Bytes of a page in SQLite's log, with its head, which has a checksum of all before it."""


@pytest.mark.parametrize("spoilt", [False, True])
async def test_br_110_a_torn_tail_takes_no_record_with_it(
    tmp_path: Path,
    autojump_clock: MockClock,
    spoilt: bool,  # noqa: FBT001 - parametrised
) -> None:
    """The log is cut at any byte, or a byte of it is spoilt: all commits before it stand, and the next are read."""

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        return "seen"

    spec = Agent("a", "Look.", tools=[look])
    model = {"a": lambda r: call("look") if r.window.responses % 2 == 0 else "ok"}
    ends: list[tuple[int, int]] = [(0, 0)]  # the log's length behind each commit, and the records that there were
    (tmp_path / "whole").mkdir()
    world = World("sqlite", tmp_path / "whole")
    file, log = world.path / "agents.db", world.path / "agents.db-wal"

    async with world.open(model) as sup:
        ref = await sup.start(spec)
        empty = file.read_bytes(), log.read_bytes()

        async def after(_: ChangeSet) -> None:
            ends.append((log.stat().st_size, len(await sup.store.read_records(ref.path))))

        world.spy.after = after
        ends[0] = (len(empty[1]), 0)
        for _ in range(2):
            await ref.ask("look")
        whole = await ref.transcript()
        data, tail = file.read_bytes(), log.read_bytes()
    assert data == empty[0], "all of it stands in the log"
    dice = random.Random(7)
    frames = range(len(empty[1]), len(tail), FRAME)
    cuts = sorted({at + more for at in frames for more in (0, 1, dice.randrange(FRAME), FRAME - 1)})
    for number, cut in enumerate(cuts):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "agents.db").write_bytes(data)
        torn = tail[:cut] + (bytes([tail[cut] ^ 0xFF]) + tail[cut + 1 :] if spoilt else b"")
        (folder / "agents.db-wal").write_bytes(torn)
        kept = whole[: max(count for end, count in ends if end <= cut)]
        async with open_sqlite_reader(folder / "agents.db", inline=True) as reader:
            assert await reader.read_records(ref.path) == kept, cut
        if number % 16 == 0:  # the whole runtime takes its time
            await goes_on(World("sqlite", folder), spec, model, kept)


async def goes_on(world: World, spec: Agent, model: dict[str, Any], kept: tuple[Record, ...]) -> None:
    """A process opens what is left, and goes on: nothing joins what was torn."""
    async with world.store() as store:
        lease = await store.lease(TreeId("a"))
        assert lease is not None
        await store.release(lease.holder)  # its process is known to be gone
    async with world.open(model, agents=[spec]) as sup:
        await sup.resume()
        ref = await sup.find("a")
        await ref.wait_idle()
        assert (await ref.ask("look")).text == "ok"
        found = await ref.transcript()
        assert found[: len(kept)] == kept
        assert problems(found) == []
        assert texts(found)[-4:] == ["<look", "> look()", "=ok:seen", ">ok"]


async def test_br_113_many_agents_of_two_owners_write_one_file(tmp_path: Path) -> None:
    """Thirty-two agents of two owners, in real time and real threads: no error of locks, and no commit waits for long.

    Nothing is written on the thread of the event loop.
    """
    took: list[float] = []
    threads: set[str] = set()
    specs = [Agent(f"a{n}", "Answer.") for n in range(32)]

    async def work(sup: Supervisor, spec: Agent) -> None:
        ref = await sup.start(spec)
        for _ in range(3):
            began = time.perf_counter()
            receipt = await ref.send("go")
            took.append(time.perf_counter() - began)
            assert (await receipt.wait_report()).text == "ok"

    def traced(*_: object) -> bool:
        threads.add(threading.current_thread().name)
        return True

    async def owns(number: int) -> None:
        mine = specs[number::2]
        async with (
            open_sqlite_store(tmp_path / "agents.db", owner=f"owner {number}") as store,
            open_supervisor(model=Script({one.name: lambda _: "ok" for one in mine}), store=store) as sup,
            watched(sup) as log,
        ):
            store._writer._db.set_exec_trace(traced)
            async with trio.open_nursery() as nursery:
                for spec in mine:
                    nursery.start_soon(work, sup, spec)
            assert log.of(StoreTroubled) == []

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(owns, 0)
            nursery.start_soon(owns, 1)
    assert len(took) == 96
    assert sorted(took)[94] < 5, "a lock that is waited for so long is an error"
    assert threads == {"callboard-writes"}
    assert list(check_store_file(tmp_path / "agents.db")) == []
