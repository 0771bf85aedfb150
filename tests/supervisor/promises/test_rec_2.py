"""REC-2: what a restart reads is what has work, however many agents have none."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw
import attrs
import trio

from actors import Script
from actors.ids import TreeId
from actors.models.script import hang
from supervisor import open_supervisor
from supervisor.store.faults import PassingStore
from tests.bench import many_agents
from tests.supervisor.promises.world import agent, quiet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trio.testing import MockClock

    from supervisor.store.leases import Holder
    from tests.supervisor.promises.world import World

BUSY = 5


@attrs.define
class Work:
    """What SQLite did.

    Attributes:
        statements: that were run. steps: of its machine, which are the same in every run. scanned: rows it passed over.
    """

    statements: int = 0
    steps: int = 0
    scanned: int = 0

    def done(self, trace: dict[str, Any]) -> None:
        """A statement is over."""
        self.statements += 1
        self.steps += trace["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]
        self.scanned += trace["stmt_status"]["SQLITE_STMTSTATUS_FULLSCAN_STEP"]


@contextmanager
def watched() -> Iterator[Work]:
    """Count what every connection does that is opened meanwhile."""
    work = Work()

    def hook(db: apsw.Connection) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_PROFILE, work.done)

    apsw.connection_hooks.append(hook)
    try:
        yield work
    finally:
        apsw.connection_hooks.remove(hook)


async def started(path: Path, idle: int) -> Work:
    """Make a store with so many idle agents, open it, and resume what has work."""
    await many_agents.make(path, idle=idle, busy=BUSY)
    script = Script({"busy": lambda _: ("half", hang())})
    with watched() as work:
        async with open_supervisor(
            model=script, store=path, agents=(many_agents.IDLE, many_agents.BUSY), grace=0, inline=True
        ) as sup:
            opened = work.statements
            found = await sup.resume()
            assert {ref.path for ref in found} == {"busy", *(f"busy#{number}" for number in range(2, BUSY + 1))}
            assert work.statements > opened
            return attrs.evolve(work)


async def test_rec_2_a_restart_reads_only_what_has_work(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Beside 10,000 idle agents, a restart takes SQLite as many steps as beside 3, and scans no more rows.

    The order of tasks, which chance has a hand in, moves a few statements; an agent that is looked at costs a step.
    """
    few = await started(tmp_path / "few.db", 3)
    many = await started(tmp_path / "many.db", 10_000)
    assert abs(many.statements - few.statements) < 10 * BUSY
    assert many.steps < few.steps + 2_000
    assert many.scanned < few.scanned + 100


class Slow(PassingStore):
    """A store that takes a second to hand a tree over."""

    async def own(self, tree: TreeId, holder: Holder) -> int:
        await trio.sleep(1)
        return await super().own(tree, holder)


async def test_rec_2_trees_are_taken_side_by_side(world: World, autojump_clock: MockClock) -> None:
    """A restart with many trees waits for the disk as often as with a few; one that another runs holds up none."""
    spec = agent()
    async with world.open({"a": lambda _: ("half", hang())}, grace=0) as sup:
        for _ in range(100):
            await sup.start(spec, "go")
        await quiet()
    async with world.store() as store:
        holder = store.new_holder()
        await store.own(TreeId("a#7"), holder)
        async with open_supervisor(
            model=Script({"a": lambda _: "ok"}), store=Slow(store), agents=[spec], inline=True
        ) as sup:
            began = trio.current_time()
            found = await sup.resume()
            assert len(found) == 99
            assert trio.current_time() - began <= 2 + 1, "64 at a time, and the one that another runs once more"
            assert len(sup._parts.kernel.ownership.epochs) == 99
        await store.release(holder)
