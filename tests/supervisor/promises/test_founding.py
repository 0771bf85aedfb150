"""A new tree and its root are one commit: whatever a crash comes between, both are there or neither (SUP-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest
import trio

from actors import Unavailable
from actors.errors import InDoubt, OwnedElsewhere
from supervisor.store.faults import Fault, FaultyStore
from tests.supervisor.promises.world import World, agent

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from supervisor.store.base import Store


def rows(path: Path) -> dict[str, object]:
    """How many rows the tables have that a start writes to."""
    db = apsw.Connection(str(path / "agents.db"))
    tables = ("trees", "owners", "agents", "messages")
    found = {table: db.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in tables}  # noqa: S608
    db.close()
    return found


@pytest.mark.parametrize("at", [1, 2])
async def test_sup_6_a_crash_before_a_root_is_made_leaves_no_tree(
    tmp_path: Path, autojump_clock: MockClock, at: int
) -> None:
    """A process that dies before the ordinal of the root is taken, or behind that, has written nothing of the tree."""
    world = World("sqlite", tmp_path)

    def dies(store: Store) -> Store:
        return FaultyStore(store, at=at, forever=True)

    async with world.open({"a": ["ok"]}, wrap=dies, hard=0) as sup:
        with pytest.raises(Unavailable):
            await sup.start(agent(), "go")
        assert rows(tmp_path) == {"trees": 0, "owners": 0, "agents": 0, "messages": 0}
        assert not sup._parts.kernel.ownership.epochs
        assert not sup._parts.kernel.ownership.founding


async def test_sup_6_a_root_that_was_made_in_doubt_is_run(world: World, autojump_clock: MockClock) -> None:
    """The commit is written, and told as failed: the store has the message, so the tree is known to be ours."""

    def doubts(store: Store) -> Store:
        return FaultyStore(store, at=2, when=Fault.AFTER)

    async with world.open({"a": ["ok"]}, wrap=doubts) as sup:
        ref = await sup.start(agent(), "go")
        assert (await ref.wait_report()).text == "ok"
        assert sup._parts.kernel.ownership.epochs == {"a": 1}
    async with world.open({"a": lambda _: "ok"}, agents=[agent()]) as sup:
        assert (await (await sup.find("a")).ask("more")).text == "ok"
        assert sup._parts.kernel.ownership.epochs == {"a": 2}


async def test_sup_6_nothing_is_founded_once_the_supervisor_was_left(world: World, autojump_clock: MockClock) -> None:
    """What nobody would give back any more is not taken (OWN-3)."""
    async with world.open({"a": ["ok"]}) as sup:
        ownership = sup._parts.kernel.ownership
    with pytest.raises(OwnedElsewhere), ownership.founds("a"):  # type: ignore[arg-type]  # a tree's name
        raise AssertionError("it may not begin")
    await trio.lowlevel.checkpoint()
    assert not ownership.founding


async def test_sup_6_a_root_in_doubt_that_nothing_tells_of_is_found_again(
    world: World, autojump_clock: MockClock
) -> None:
    """Without a task nothing says whether it was written; if it was, its key finds it, and it is ours."""

    def doubts(store: Store) -> Store:
        return FaultyStore(store, at=2, when=Fault.AFTER)

    async with world.open({"a": lambda _: "ok"}, wrap=doubts) as sup:
        with pytest.raises(InDoubt):
            await sup.start(agent(), key="k")
        ref = await sup.start(agent(), key="k")
        assert ref.path == "a"
        assert (await ref.ask("go")).text == "ok"
