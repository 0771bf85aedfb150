"""CMP-4: what a compaction replaced can be read, until the retention rule removes the oldest of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import apsw
import trio

from actors import Compaction, Pinned
from actors.changes import Forget
from actors.transcript import SummaryRecord
from tests.supervisor.promises.test_cmp import plays
from tests.supervisor.promises.world import World, agent, has, texts
from tests.supervisor.test_cli_store import ran

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from trio.testing import MockClock

    from supervisor import Supervisor

KEPT = 5


async def live(sup: Supervisor, rounds: int) -> None:
    """Ask and compact, again and again; the first task is pinned."""
    ref = await sup.start(agent(compaction=Compaction(archive=KEPT)), Pinned("the task"))
    await ref.wait_report()
    for number in range(rounds):
        await ref.ask(f"more {number}")
        await ref.compact()
        await ref.wait_compacted()


async def test_cmp_4_the_oldest_of_the_archive_is_removed(world: World, autojump_clock: MockClock) -> None:
    """What stays does not grow with the number of compactions; what is pinned or in force stays, also for a restart."""
    async with world.open({"a": plays()}) as sup:
        await live(sup, 3)
        ref = await sup.find("a")
        archived = await ref.transcript(archived=True)
        for number in range(3, 9):
            await ref.ask(f"more {number}")
            await ref.compact()
            await ref.wait_compacted()
            before, archived = archived, await ref.transcript(archived=True)
            assert len(archived) == len(before)
        force = await ref.transcript()
        assert texts(force)[:2] == ["<the task", "!in short"]
        assert texts(archived)[0] == "<the task"
        assert set(force) <= set(archived)
        assert 0 < sum(record not in force for record in archived) <= KEPT + 1, "and the summary behind these"
        stored = await sup.store.load_agent(ref.path)
        assert stored is not None
        assert stored.length > 2 * len(archived)
        for index in range(stored.length - 2, stored.length):
            assert await sup.store.read_records(ref.path, index, index + 1) == (archived[index - stored.length],)
    if world.kind == "sqlite":
        async with world.open({"a": plays(answer="after")}, agents=[agent()]) as sup:
            again = await sup.find("a")
            assert await again.transcript() == force
            assert (await again.ask("and now?")).text == "after"


async def test_cmp_4_nothing_is_removed_without_its_summary(world: World, autojump_clock: MockClock) -> None:
    """They are one commit: a summary that is not written lets go of nothing."""
    async with world.open({"a": plays()}) as sup:
        await live(sup, 4)
        forgets = world.spy.with_op(Forget)
        assert forgets
        assert all(any(isinstance(r, SummaryRecord) for op in one.operations for r in getattr(op, "records", ()))
                   for one in forgets)  # fmt: skip
        ref = await sup.find("a")
        before = await ref.transcript(archived=True)
        world.spy.refuse = lambda one: has(one, Forget)
        await ref.ask("more")
        await ref.compact()
        await trio.sleep(1)
        assert (await ref.transcript(archived=True))[: len(before)] == before
        world.spy.refuse = lambda _: False


def test_cmp_4_places_stay_when_the_oldest_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An export names each record by its place since the first, whatever was removed; a check finds nothing wrong."""
    places: dict[int, object] = {}
    found: dict[int, object] = {}
    file = ""
    for rounds in (2, 6):
        world = World("sqlite", tmp_path / str(rounds))
        world.path.mkdir()

        async def lived(world: World = world, rounds: int = rounds) -> None:
            async with world.open({"a": plays()}) as sup:
                await live(sup, rounds)

        trio.run(lived)
        file = str(world.path / "agents.db")
        lines = [json.loads(line) for line in ran(capsys, "store", "export", file, "a", "--archived")[1].splitlines()]
        found = {line["index"]: line["record"] for line in lines[1:]}
        assert list(found) == sorted(found)
        assert 0 in found, "the task is pinned"
        assert all(found[index] == places[index] for index in found.keys() & places.keys())
        places |= found
        shown = ran(capsys, "show", file, "a", "--all")[1]
        assert all(f"{index} " in shown for index in found)
        assert ran(capsys, "store", "check", file)[0] == 0
    assert max(found) + 1 > len(found), "some are gone"
    for lost in (0, max(found)):  # the pinned one, and the last summary
        db = apsw.Connection(file)
        db.execute("DELETE FROM records WHERE k & 4294967295 = ?", (lost,))
        db.close()
        code, out, _ = ran(capsys, "store", "check", file)
        assert (code, "[20]" in out) == (1, True)
