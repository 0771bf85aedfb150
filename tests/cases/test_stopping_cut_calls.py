"""Cases of stopping a part: a call that is cut, and what it had started; code that runs on behind a stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Aborted, AgentClosed, Child, Context, Limits, RequestStarted, ToolStarted, ToolStuck, call, tool
from actors.changes import AgentRow, Put
from actors.models.script import hang
from actors.transcript import problems
from tests.cases.strict import statuses, strict
from tests.supervisor.promises.world import World, agent, check, has, texts, watched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from actors.ports import ModelRequest
    from supervisor import AgentRef, Supervisor
    from tests.supervisor.promises.world import Log


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A store of either kind."""
    return World(request.param, tmp_path)


@tool
async def hangs() -> None:
    """Never end by itself."""
    await trio.sleep_forever()


@tool(fatal=True)
async def breaks() -> str:
    """Break, after a second."""
    await trio.sleep(1)
    msg = "broken"
    raise RuntimeError(msg)


HOW = {"interrupt": "aborted", "cancel": "error", "timeout": "timeout", "fatal": "aborted", "late": "timeout"}


async def cut(how: str, ref: AgentRef, log: Log) -> None:
    """End the lead's first call in one of the ways; those that are not here come by themselves."""
    if how == "interrupt":
        await ref.steer("something else", interrupt=True)
    elif how == "cancel":
        ref.cancel_call(log.of(ToolStarted, "lead")[0].call, "hung")


BY = [(how, by) for how in HOW for by in ("child", "tool") if (how, by) != ("timeout", "child")]
"""A child as a tool has no time limit of its own: its turn has."""


@pytest.mark.parametrize(("how", "by"), BY)
async def test_br_022_026_073_091_a_call_that_is_cut_takes_along_the_child_that_it_waits_for(
    world: World, autojump_clock: MockClock, how: str, by: str
) -> None:
    """By a newer message, by hand, by its time or its turn's, by a fatal sibling: nobody below asks or runs any more.

    Its report says why; a child that reports by message goes on; a kept conversation goes on.
    """
    leaf = agent("leaf", tools=[hangs])
    mid, aside = agent("mid", children=[leaf]), agent("aside", tools=[hangs])

    @tool(timeout=2 if how == "timeout" else None)
    async def delegate(ctx: Context) -> str:
        """Hand it on."""
        return (await (await ctx.start(mid, "x")).wait_report()).text

    first = call("mid", task="x") if by == "child" else call("delegate")
    step = [first, call("aside", task="y"), *([call("breaks")] if how == "fatal" else [])]
    limits = Limits(turn_s=2) if how == "late" else Limits()
    lead = agent("lead", tools=[delegate, breaks], children=[mid, Child(aside, background=True)], limits=limits)
    model = strict(
        {
            "lead": lambda r: "on" if r.window.responses else step,
            "mid": lambda r: "mid goes on" if r.window.responses else call("leaf", task="z"),
            "leaf": lambda r: "leaf goes on" if r.window.responses else ("half of it", call("hangs")),
            "aside": lambda _: call("hangs"),
        }
    )
    async with world.open(model) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        await trio.sleep(0.5)
        await cut(how, ref, log)
        await trio.sleep(5)
        assert statuses(await ref.transcript())[0] == HOW[how]
        asked = len(log.of(RequestStarted))
        await trio.sleep(60)
        assert len(log.of(RequestStarted)) == asked
        for path in ("lead/mid", "lead/mid/leaf"):
            report = await (await sup.find(path)).wait_report()
            assert (report.status, type(report.error)) == ("aborted", Aborted)
            assert "that waited for it was cut off" in str(report.error)
        assert (await sup.find("lead/aside")).state == "running"
        assert (await ref.ask("and now?")).text == "on"
        assert problems(await ref.transcript()) == []
        assert model.refused == []
        await check(sup.store)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_br_022_a_call_that_is_cut_while_it_starts_a_child_leaves_none_behind(
    world: World, autojump_clock: MockClock, moment: str
) -> None:
    """Interrupted while the child is being written, or has been and nobody waits for it yet: it does not run on."""
    met: list[str] = []

    async def interrupt(one: ChangeSet) -> None:
        if has(one, Put, lambda op: isinstance(op.row, AgentRow) and op.row.agent == "lead/kid") and not met:
            met.append(moment)
            await (await sup.find("lead")).steer("something else", interrupt=True)
            for _ in range(10):  # the turn takes it in while the commit is under way
                await trio.lowlevel.checkpoint()

    def lead_does(request: ModelRequest) -> object:
        return "on" if request.window.responses else call("kid", task="x")

    async with world.open({"lead": lead_does, "kid": lambda _: hang()}) as sup:
        setattr(world.spy, moment, interrupt)
        ref = await sup.start(agent("lead", children=[agent("kid")]), "go")
        await ref.wait_idle()
        await trio.sleep(10)
        assert met == [moment]
        assert [row.agent for row in await sup.tree() if row.open is not None or row.owes] == []
        assert texts(await ref.transcript())[-1] == ">on"
        await check(sup.store)


ENDS: dict[str, Callable[[AgentRef], Awaitable[object]]] = {
    "abort": lambda ref: ref.abort("stop"),
    "kill": lambda ref: ref.kill("stop"),
    "interrupt": lambda ref: ref.steer("something else", interrupt=True),
}


@pytest.mark.parametrize("how", ENDS)
async def test_br_065_066_what_runs_on_behind_a_stop_starts_no_agents(
    world: World, autojump_clock: MockClock, how: str
) -> None:
    """A tool that notices no stop goes on to start a child: it is refused, for nobody would wait for it or stop it."""
    refused: list[BaseException] = []

    @tool
    async def deaf(ctx: Context) -> str:
        """Notice nothing."""
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
            try:
                await ctx.start(agent("kid"), "x")
            except Aborted as error:
                refused.append(error)
        return "late"

    async with world.open({"a": [call("deaf"), "on"], "kid": lambda _: hang()}) as sup:
        ref = await sup.start(agent(tools=[deaf]), "go")
        await trio.sleep(1)
        await ENDS[how](ref)
        await trio.sleep(60)
        (error,) = refused
        assert "starts no agents" in str(error)
        assert [row.agent for row in await sup.tree()] == ["a"]


async def test_br_065_no_agent_is_started_below_a_closed_one(world: World, autojump_clock: MockClock) -> None:
    """A task that outlived its call and its agent holds the context still: what it would start is refused."""
    kept: list[Context] = []

    @tool
    async def keep(ctx: Context) -> str:
        """Keep the context."""
        kept.append(ctx)
        return "kept"

    async with world.open({"a": [call("keep"), "done"], "kid": lambda _: hang()}) as sup:
        ref = await sup.start(agent(tools=[keep]), "go")
        await ref.close()
        await ref.wait_closed()
        with pytest.raises(AgentClosed, match="starts no agents"):
            await kept[0].start(agent("kid"), "x")
        assert [row.agent for row in await sup.tree()] == ["a"]


async def test_br_061_what_still_runs_behind_a_stop_is_told_though_nothing_follows(
    world: World, autojump_clock: MockClock
) -> None:
    """Nobody asks anything after the stop: the event that names the tool comes all the same, once, in `hard_s`.

    Whoever asks later has waited for it already.
    """

    @tool
    async def deaf() -> str:
        """Notice nothing."""
        with trio.CancelScope(shield=True):
            await trio.sleep(100)
        return "late"

    async with world.open({"a": [call("deaf"), "on"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[deaf], limits=Limits(hard_s=5)), "go")
        await trio.sleep(1)
        await ref.abort("stop")
        await trio.sleep(10)
        (stuck,) = log.of(ToolStuck)
        assert (stuck.name, stuck.at, "test_stopping_cut_calls.py" in stuck.stack) == ("deaf", 6, True)
        began = trio.current_time()
        assert (await ref.ask("go on")).text == "on"
        assert trio.current_time() == began
        await trio.sleep(200)
        assert len(log.of(ToolStuck)) == 1


# -- stops that find a tree in the store -------------------------------------------------------------------------------


@tool(approve=True)
async def delete() -> str:
    """Delete."""
    return "deleted"


def asking() -> tuple[Any, dict[str, Any]]:
    """A lead that waits for a child that waits for a grandchild, whose tool needs approval."""
    lead = agent("lead", children=[agent("mid", children=[agent("leaf", tools=[delete])])])
    script = {
        "lead": lambda r: "on" if r.window.responses else call("mid", task="x"),
        "mid": lambda r: "mid goes on" if r.window.responses else call("leaf", task="y"),
        "leaf": lambda r: "leaf goes on" if r.window.responses else call("delete"),
    }
    return lead, script


async def all_ended(sup: Supervisor, paths: tuple[str, ...], whose: str) -> None:
    """Nothing is open, and each says with whose abort it ended."""
    assert await sup.store.awaiting_calls() == ()
    assert [row.agent for row in await sup.tree() if row.open is not None] == []
    for path in paths:
        report = await (await sup.find(path)).wait_report()
        assert report.status == "aborted"
        assert f"as part of the abort of {whose}" in str(report.error)
    await check(sup.store)


@pytest.mark.parametrize("subtree", [False, True])
@pytest.mark.parametrize("whose", ["lead", "lead/mid"])
async def test_br_009_070_071_a_stop_behind_a_restart_reaches_what_nobody_has_resumed(
    world: World,
    autojump_clock: MockClock,
    whose: str,
    subtree: bool,  # noqa: FBT001 - parametrised
) -> None:
    """Two levels down a call waits for approval; the next process only stops the top: no request is left to approve."""
    lead, script = asking()
    async with world.open(dict(script)) as sup:
        await sup.run(lead, "go")
        assert len(await sup.store.awaiting_calls()) == 1
    async with world.open(dict(script), agents=[lead]) as sup, watched(sup) as log:
        await (await sup.find(whose)).abort("stop", subtree=subtree)
        await trio.sleep(10)
        await sup.resume()
        await trio.sleep(10)
        await all_ended(sup, ("lead/mid", "lead/mid/leaf")[whose.count("/") :], whose)
        assert (await (await sup.find("lead")).ask("and now?")).text == "on"
        assert log.of(ToolStarted, "lead/mid/leaf") == []


async def test_br_070_a_stop_of_an_idle_parent_behind_a_restart_stops_its_children(
    world: World, autojump_clock: MockClock
) -> None:
    """Its background children had been cut off in the middle: after the stop a resume has nothing to go on with.

    One whose spec this process does not have is stopped too.
    """
    kid, gone = agent("kid", tools=[hangs]), agent("gone", tools=[hangs])
    lead = agent("lead", children=[Child(kid, background=True), Child(gone, background=True)])
    step = [call("kid", task="x"), call("kid", task="y"), call("gone", task="z")]
    script: dict[str, Any] = {"lead": lambda r: "on" if r.window.responses else step}
    script |= dict.fromkeys(("kid", "gone"), lambda _: call("hangs"))
    async with world.open(dict(script), on_exit="suspend") as sup:
        ref = await sup.start(lead, "go")
        await trio.sleep(5)
        assert ref.state == "idle"
    fewer = agent("lead", children=[Child(kid, background=True)])
    async with world.open(dict(script), agents=[fewer]) as sup:
        await (await sup.find("lead")).abort("stop", subtree=True)
        await trio.sleep(10)
        assert [row.agent for row in await sup.tree() if row.open is not None] == []
        await sup.resume()
        await trio.sleep(10)
        await all_ended(sup, ("lead/kid", "lead/kid#2"), "lead")
