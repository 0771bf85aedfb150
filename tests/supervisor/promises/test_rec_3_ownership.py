"""REC-3, CON-6: what a new owner writes of a tree before it reads an agent in; and a crash before and behind that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Limits, Unavailable, call
from actors.changes import AgentRow, Put
from actors.errors import CallboardError
from actors.models.script import hang
from supervisor.store.faults import PassingStore
from tests.supervisor.promises.test_con_6 import letters
from tests.supervisor.promises.world import agent, check, ops, quiet

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from actors.ids import AgentId
    from supervisor.store.base import StoredAgent
    from tests.supervisor.promises.world import World

HANGS: dict[str, Any] = {"a": lambda _: ("half", hang())}


def dead(_: ChangeSet) -> bool:
    """The process is gone: nothing is written any more."""
    return True


class Deadly(PassingStore):
    """A store whose process dies when it reads an agent in, as one does that runs out of memory."""

    async def load_agent(self, agent: AgentId) -> StoredAgent | None:
        msg = "the process is gone"
        raise Unavailable(msg)


async def test_con_6_a_turn_that_kills_whoever_reads_it_in_reaches_its_limit(
    world: World, autojump_clock: MockClock
) -> None:
    """The crash is on disk before the agent is read: two more processes that die of it, and the turn is given up."""
    spec = agent()
    async with world.open(HANGS, grace=0) as sup:
        ref = await sup.start(spec)
        bad = await ref.send("poison")
        await trio.sleep(1)
        world.spy.refuse = dead
    for _ in range(2):
        async with world.open({}, agents=[spec], wrap=Deadly) as sup:
            with pytest.raises(Unavailable):
                await sup.resume()
            world.spy.refuse = dead
    async with world.open({}, agents=[spec]) as sup:
        await sup.resume()
        assert (await (await sup.receipt(bad.id)).wait_report()).status == "failed"
        assert await letters(sup) == [("a", "poison")]


async def test_con_6_a_lead_outlives_the_child_that_kills_its_process(world: World, autojump_clock: MockClock) -> None:
    """Both turns were at work in each of the three crashes: the child's is given up, and the lead reads why."""
    kid = agent("kid")
    lead = agent("lead", children=[kid])
    script: dict[str, Any] = {
        "lead": lambda request: call("kid", task="poison") if not request.window.responses else "went on",
        "kid": lambda _: ("half", hang()),
    }
    for process in range(3):
        async with world.open(script, agents=[lead], grace=0) as sup:
            if process == 0:
                await sup.start(lead, "go", key="k")
            else:
                await sup.resume()
            await trio.sleep(1)
            world.spy.refuse = dead
    async with world.open(script, agents=[lead]) as sup:
        await sup.resume()
        report = await sup.run(lead, "go", key="k")
        assert (report.status, report.text) == ("done", "went on")
        assert await letters(sup) == [("lead/kid", "poison")]
        await check(sup.store)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("again", [False, True])
async def test_rec_3_a_crash_at_the_start_of_ownership_is_harmless(
    world: World, autojump_clock: MockClock, *, written: bool, again: bool
) -> None:
    """Dead before the commit that recovers a tree, or behind it, once or twice: what was lost is charged once."""
    patient = Limits(poison_limit=9)
    kid = agent("kid", limits=patient)
    lead = agent("lead", children=[kid], limits=patient)
    script: dict[str, Any] = {
        "lead": lambda request: call("kid", task="help") if not request.window.responses else ("half", hang()),
        "kid": lambda _: ("half", hang()),
    }
    async with world.open(script, agents=[lead], grace=0) as sup:
        await sup.start(lead, "go", key="k")
        await trio.sleep(1)
        world.spy.refuse = dead
    sets: list[ChangeSet] = []
    for _ in range(1 + again):
        async with world.open(script, agents=[lead], grace=0) as sup:

            def dies(one: ChangeSet) -> bool:
                counts = [put.row for put in ops(one, Put) if isinstance(put.row, AgentRow)]
                if sets or not counts:
                    return bool(sets)
                sets.append(one)
                return not written

            sets.clear()
            world.spy.refuse = dies
            try:
                await sup.resume()
                await quiet()
            except CallboardError:
                assert not written
            assert [put.row.agent for put in ops(sets[0], Put)] == ["lead", "lead/kid"], (
                "one commit, for the whole tree"
            )
            assert all(put.row.open.lost for put in ops(sets[0], Put))
    async with world.open({"lead": lambda _: "went on", "kid": lambda _: "helped"}, agents=[lead]) as sup:
        await sup.resume()
        assert (await sup.run(lead, "go", key="k")).text == "went on"
        spent = {row.agent: row.spent.model_calls for row in await sup.tree()}
        assert spent == {"lead": 2, "lead/kid": 2}, "one lost request of the kid, charged once"
        await check(sup.store)
