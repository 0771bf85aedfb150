"""TOL-14, ABT-6: what an abandoned call or hook sends its own agent brings back nothing that was ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import Aborted, Context, Hooks, Limits, Script, call, tool
from supervisor import open_supervisor
from tests.supervisor.promises.world import agent, check, messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock

    from actors.hooks import Moment
    from supervisor import AgentRef
    from tests.supervisor.promises.world import World

CUTS: dict[str, Callable[[AgentRef], Awaitable[object]]] = {
    "abort": lambda ref: ref.abort("enough"),
    "interrupt": lambda ref: ref.steer("something else", interrupt=True),
}


async def posted(ctx: Context) -> None:
    """Send from sync code."""
    ctx.ref("a").post("back again")


SENDS: dict[str, Callable[[Context], Awaitable[object]]] = {
    "ctx.send": lambda ctx: ctx.send("a", "back again"),
    "steer": lambda ctx: ctx.ref("a").steer("back again"),
    "post": posted,
}


@pytest.mark.parametrize("late", ["noticed", "not noticed", "stuck"])
@pytest.mark.parametrize("how", SENDS)
@pytest.mark.parametrize("cut", CUTS)
async def test_tol_14_code_that_a_cut_left_behind_sends_its_own_agent_nothing(
    world: World, autojump_clock: MockClock, cut: str, how: str, late: str
) -> None:
    """Whether it cleans up, goes on regardless, or was given up: refused, so that no turn begins behind the end.

    What it sends to another agent is that one's to answer.
    """
    refused: list[BaseException] = []

    @tool
    async def works(ctx: Context) -> str:
        """Work on."""
        try:
            with trio.CancelScope(shield=late != "noticed"):
                await trio.sleep(30 if late == "stuck" else 3)
        finally:
            with trio.CancelScope(shield=True):
                await ctx.send("b", "for you")
                try:
                    await SENDS[how](ctx)
                except Aborted as error:
                    refused.append(error)
        return "late"

    async with world.open({"a": lambda r: "on" if r.window.responses else call("works"), "b": ["heard"]}) as sup:
        other = await sup.start(agent("b"))
        ref = await sup.start(agent(tools=[works], limits=Limits(hard_s=5)), "go")
        await trio.sleep(1)
        await CUTS[cut](ref)
        await trio.sleep(100)
        (error,) = refused
        assert "it sends its own agent nothing any more" in str(error)
        assert "back again" not in await messages(sup.store, "a")
        assert (await other.wait_report()).text == "heard"
        await check(sup.store)


@pytest.mark.parametrize("point", ["before_request", "after_turn"])
async def test_abt_6_a_hook_that_an_abort_left_behind_sends_its_own_agent_nothing(
    world: World, autojump_clock: MockClock, point: str
) -> None:
    """It notices no cancellation, and sends by its handle, not by what it returns."""
    refused: list[BaseException] = []

    async def deaf(_: Hooks, at: Moment, *__: object) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(3)
            try:
                await at.ref(at.agent).send("back again")
            except Aborted as error:
                refused.append(error)

    hooks: Hooks = type("Deaf", (Hooks,), {point: deaf})()
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent(hooks=hooks), "go")
        await trio.sleep(1)
        await ref.abort("enough")
        await trio.sleep(100)
        assert len(refused) == 1
        assert list(await messages(sup.store, "a")) == ["go", "abort"]
        await check(sup.store)


@pytest.mark.parametrize("what", ["call", "hook"])
async def test_tol_14_what_code_that_was_cut_has_started_outside_of_it_sends_its_agent_nothing(
    world: World, autojump_clock: MockClock, what: str
) -> None:
    """A task of a tool, or of a hook, in a nursery of the program's, goes on when that has long ended: refused."""
    refused: list[BaseException] = []

    async def later(send: Callable[[str], Awaitable[object]]) -> None:
        await trio.sleep(5)
        try:
            await send("back again")
        except Aborted as error:
            refused.append(error)

    @tool
    async def works(ctx: Context) -> str:
        """Work on."""
        outside.start_soon(later, ctx.ref("a").send)
        await trio.sleep(100)
        return "late"

    async def before_request(_: Hooks, at: Moment, *__: object) -> None:
        if what == "hook":
            outside.start_soon(later, at.ref("a").send)
            await trio.sleep(100)

    hooks: Hooks = type("Starts", (Hooks,), {"before_request": before_request})()
    async with trio.open_nursery() as outside, world.open({"a": [call("works"), "on"]}) as sup:
        ref = await sup.start(agent(tools=[works], hooks=hooks), "go")
        await trio.sleep(1)
        await ref.abort("enough")
        await trio.sleep(20)
        (error,) = refused
        assert "it sends its own agent nothing any more" in str(error)
        assert list(await messages(sup.store, "a")) == ["go", "abort"]


async def test_tol_14_an_agent_of_another_supervisor_is_not_its_own(world: World, autojump_clock: MockClock) -> None:
    """What code of a cut call sends to its namesake in another store is that one's to answer."""

    @tool
    async def works() -> str:
        """Work on."""
        outside.start_soon(later)
        await trio.sleep(100)
        return "late"

    async def later() -> None:
        await trio.sleep(5)
        await namesake.send("for you")

    async with (
        open_supervisor(model=Script({"a": ["heard"]})) as other,
        trio.open_nursery() as outside,
        world.open({"a": [call("works"), "on"]}) as sup,
    ):
        namesake = await other.start(agent())
        ref = await sup.start(agent(tools=[works]), "go")
        await trio.sleep(1)
        await ref.abort("enough")
        await trio.sleep(20)
        assert (await namesake.wait_report()).text == "heard"
