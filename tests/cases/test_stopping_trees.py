"""Cases of stopping a tree: stops that reach too little, or leave children, results and reasons behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Aborted, Child, Context, RequestStarted, Script, ToolStarted, TurnStarted, call, tool
from actors.transcript import ResultRecord
from tests.supervisor.promises.world import EVERY_STATE, World, agent, check, quiet, said, texts, until, watched

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from actors.reports import Report
    from supervisor import AgentRef, Supervisor


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A store of either kind."""
    return World(request.param, tmp_path)


@tool
async def work() -> str:
    """Work for a second."""
    await trio.sleep(1)
    return "worked"


@tool
async def hangs() -> None:
    """Never end by itself."""
    await trio.sleep_forever()


def family() -> tuple[Any, dict[str, Any]]:
    """A lead that waits for a child that waits for a grandchild, whose tool hangs; and two background children."""
    leaf = agent("leaf", tools=[hangs])
    lead = agent("lead", children=[agent("mid", children=[leaf]), Child(agent("aside", tools=[work]), background=True)])
    script = {
        "lead": [[call("mid", task="x"), call("aside", task="y"), call("aside", task="z")], *["lead goes on"] * 9],
        "mid": [call("leaf", task="z"), "mid goes on"],
        "leaf": [("half of it", call("hangs")), "leaf goes on"],
        "aside": lambda r: call("work") if not r.window.responses else "worked aside",
    }
    return lead, script


async def report_of(sup: Supervisor, path: str) -> Report:
    """How the agent's last run ended."""
    return await (await sup.find(path)).wait_report()


async def test_br_063_064_an_abort_reaches_all_that_is_waited_for_and_says_by_whom(
    world: World, autojump_clock: MockClock
) -> None:
    """Two levels down nothing more is asked or run; each member's end names the ancestor whose abort it was."""
    lead, script = family()
    async with world.open(script) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        await trio.sleep(0.5)
        await ref.abort("the user pressed Stop")
        await ref.wait_aborted()
        below = ("lead/mid", "lead/mid/leaf")
        asked = [len(log.of(kind, path)) for kind in (RequestStarted, ToolStarted) for path in below]
        await trio.sleep(60)
        assert [len(log.of(kind, path)) for kind in (RequestStarted, ToolStarted) for path in below] == asked
        for path in below:
            report = await report_of(sup, path)
            assert isinstance(report.error, Aborted)
            assert "the user pressed Stop" in str(report.error)
            assert "as part of the abort of lead" in str(report.error)
        own = await report_of(sup, "lead/mid/leaf")
        assert (own.text, [done.status for done in own.calls]) == ("half of it", ["aborted"])
        assert own.usage.total_tokens > 0
        await check(sup.store)


@pytest.mark.parametrize("how", ["abort", "interrupt"])
async def test_br_069_what_stops_a_turn_leaves_its_background_children_alone(
    world: World, autojump_clock: MockClock, how: str
) -> None:
    """Two background children live on behind an abort, or a steer that interrupts; each tells its parent once."""
    lead, script = family()
    async with world.open(script) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        await trio.sleep(0.5)
        await (ref.abort("stop") if how == "abort" else ref.steer("stop", interrupt=True))
        await quiet()
        for path in ("lead/aside", "lead/aside#2"):
            assert (await sup.find(path)).state == "running"
        await trio.sleep(10)
        await ref.wait_idle()
        shown = [text for text in texts(await ref.transcript()) if "Report of lead/aside" in text]
        assert len(shown) == len(set(shown)) == 2
        assert all("(done)" in text for text in shown)
        assert log.statuses("lead/aside") == ["done"]


async def test_br_065_070_071_a_stop_of_the_tree_is_a_stop_and_every_child_is_accounted_for(
    world: World, autojump_clock: MockClock
) -> None:
    """The parent is idle, twenty children run: after one abort nobody runs, nobody starts, each has reported once.

    ABT-5: the reports are held. They wake nobody, and come with the next turn that somebody asks for.
    """
    kid = agent("kid", tools=[hangs])
    lead = agent("lead", children=[Child(kid, background=True)], drain={"send": "all"})
    count = 20
    script = {"lead": [[call("kid", task=str(n)) for n in range(count)], "started", "heard"], "kid": [call("hangs")]}
    async with world.open(Script(script)) as sup, watched(sup) as log:  # type: ignore[arg-type]  # steps
        ref = await sup.start(lead, "go")
        await trio.sleep(10)
        assert ref.state == "idle"
        turns = len(log.of(TurnStarted))
        await ref.abort("stop", subtree=True)
        await trio.sleep(600)
        assert len(log.of(TurnStarted)) == turns, "nobody begins a turn for it"
        rows = [row for row in await sup.tree() if row.agent != "lead"]
        assert len(rows) == count
        assert all(row.open is None for row in rows)
        for row in rows:
            assert (await report_of(sup, row.agent)).status == "aborted"
        assert (await ref.ask("what became of them?")).text == "heard"
        told = [text for text in texts(await ref.transcript()) if "Report of lead/kid" in text]
        assert len(told) == len(set(told)) == count
        assert all("aborted" in text for text in told)
        await check(sup.store)


async def test_br_072_what_a_tool_starts_ends_with_its_turn_without_anything_handed_on(
    world: World, autojump_clock: MockClock
) -> None:
    """A tool works in tasks that start children and wait for them: no token is passed on, and all of it ends."""
    other = agent("other", tools=[hangs])
    ended: list[str] = []

    @tool
    async def nested(ctx: Context) -> str:
        """Work in tasks."""

        async def by_a_child(task: str) -> None:
            try:
                await (await ctx.start(other, task)).wait_report()
            finally:
                ended.append(task)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(by_a_child, "one")
            nursery.start_soon(by_a_child, "two")
        return "never"

    async with world.open({"lead": [call("nested"), "on"], "other": [call("hangs"), "no"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent("lead", tools=[nested]), "go")
        await trio.sleep(1)
        assert len(log.of(ToolStarted)) == 3
        await ref.abort("stop")
        await ref.wait_aborted()
        await trio.sleep(60)
        assert sorted(ended) == ["one", "two"]
        assert [log.statuses(path) for path in ("lead/other", "lead/other#2")] == [["aborted"]] * 2
        assert sup._parts.graph.statistics().open == 0


async def test_br_075_a_child_that_is_stopped_leaves_a_result_with_the_reason_and_what_it_had(
    world: World, autojump_clock: MockClock
) -> None:
    """The call's result says aborted, why, and what had been said; the report is typed and has the usage."""
    lead, script = family()
    async with world.open(script) as sup:
        ref = await sup.start(lead, "go")
        await trio.sleep(0.5)
        leaf = await sup.find("lead/mid/leaf")
        await leaf.abort("looks stuck")
        report = await leaf.wait_report()
        assert (report.status, report.text, type(report.error)) == ("aborted", "half of it", Aborted)
        assert report.usage.total_tokens > 0
        await ref.wait_idle()
        (result,) = [r for r in await (await sup.find("lead/mid")).transcript() if isinstance(r, ResultRecord)]
        assert result.status.value == "error"
        for part in ("came to no answer (aborted", "looks stuck", "It had said: half of it"):
            assert part in said(result.content)
        assert (await report_of(sup, "lead")).status == "done"


async def test_br_067_one_that_hangs_costs_no_other_its_result(world: World, autojump_clock: MockClock) -> None:
    """Joined with a deadline, three children of which one hangs give two results and one that ran out of time."""

    @tool
    async def join(ctx: Context) -> list[str]:
        """Hand out three tasks; wait at most a minute for each."""
        kids = [await ctx.start(agent("kid", tools=[hangs]), task) for task in ("a", "hang", "c")]
        found = ["", "", ""]

        async def one(index: int, kid: AgentRef) -> None:
            with trio.move_on_after(60) as scope:
                found[index] = (await kid.wait_report()).text
            if scope.cancelled_caught:
                found[index] = "out of time"
                await kid.abort("out of time")

        async with trio.open_nursery() as nursery:
            for index, kid in enumerate(kids):
                nursery.start_soon(one, index, kid)
        return found

    def kid(request: ModelRequest) -> object:
        task = said(request.window[0].content)  # type: ignore[union-attr]  # the task
        return call("hangs") if task == "hang" else f"did {task}"

    async with world.open({"lead": [call("join"), "joined"], "kid": kid}) as sup, watched(sup) as log:
        ref = await sup.start(agent("lead", tools=[join]), "go")
        report = await ref.wait_report()
        assert (report.text, trio.current_time()) == ("joined", 60)
        assert '=ok:["did a","out of time","did c"]' in texts(await ref.transcript())
        await until(lambda: log.statuses("lead/kid#2"))
        assert log.statuses("lead/kid#2") == ["aborted"]
        held = await sup.store.messages(ref.path, EVERY_STATE)
        assert len(held) == 1, "blocking children send no reports beside their calls"
