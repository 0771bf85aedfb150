"""TOL-6: what a tool or a hook leaves open behind it is its own failure, and ends nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from actors import HookFailed, Hooks, TurnEnded, call, tool
from tests.supervisor.promises.world import agent, check, texts, watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from tests.supervisor.promises.world import World

SAID: Final = "left a nursery open: its tasks were cancelled"


async def enter(*tasks: float) -> trio.Nursery:
    """Open a nursery by hand, with sleeping tasks in it."""
    nursery = await trio.open_nursery().__aenter__()
    for seconds in tasks:
        nursery.start_soon(trio.sleep, seconds)
    return nursery


async def nothing_in_it() -> str:
    """Leave an empty one."""
    await enter()
    return "done"


async def tasks_in_it() -> str:
    """Leave one whose tasks would never end."""
    await enter(3, float("inf"))
    return "done"


async def nested() -> str:
    """Leave one in another."""
    await enter(3)
    await enter(float("inf"))
    return "done"


async def with_a_scope_in_it() -> str:
    """Leave a scope open in one, too."""
    await enter(float("inf"))
    trio.CancelScope().__enter__()
    return "done"


async def in_a_generator() -> str:
    """Leave a generator in the middle."""

    async def numbers() -> AsyncIterator[int]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            yield 1  # noqa: ASYNC101, ASYNC119 - the leak that is tried

    async for number in numbers():
        return str(number)
    return "none"


async def as_it_fails() -> str:
    """Leave one, and fail."""
    await enter(float("inf"))
    msg = "by itself"
    raise ValueError(msg)


async def with_a_failure_in_it() -> str:
    """Leave one in which something fails as it is cancelled."""

    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            msg = "inside"
            raise ValueError(msg)

    (await enter()).start_soon(fail)
    await trio.sleep(1)
    return "done"


async def by_a_task_of_its_own() -> str:
    """Have a task leave one."""
    async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - a task of its own is what is tried
        nursery.start_soon(enter)
    return "done"


LEAKS: Final = {
    nothing_in_it: SAID,
    tasks_in_it: SAID,
    nested: SAID,
    with_a_scope_in_it: SAID,
    in_a_generator: SAID,
    as_it_fails: "ValueError: by itself",
    with_a_failure_in_it: SAID,
    by_a_task_of_its_own: "Nursery stack corrupted",
}


@pytest.mark.filterwarnings("ignore:Async generator")
@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.__name__)
async def test_tol_6_a_nursery_that_a_tool_leaves_open_is_its_calls_error(
    world: World, autojump_clock: MockClock, leak: Any
) -> None:
    """The model reads it, a call beside it and the agents around it go on, and nothing of it runs on."""

    @tool
    async def beside() -> str:
        """Take a while."""
        await trio.sleep(5)
        return "beside"

    steps = {"a": [[call(leak.__name__), call("beside")], "on"], "b": ["one", "two"]}
    async with world.open(steps) as sup:
        other = await sup.start(agent("b"), "go")
        report = await sup.run(agent(tools=[tool(leak), beside]), "go")
        assert report.text == "on"
        shown = texts(await (await sup.find("a")).transcript())
        assert shown[2].startswith("=error:")
        assert LEAKS[leak] in shown[2]
        assert shown[3] == "=ok:beside"
        assert (await other.ask("more")).text == "two"
        assert sup._parts.tools_nursery.child_tasks == frozenset()
        await check(sup.store)


async def test_tol_13_a_nursery_that_a_wrapper_leaves_open_is_its_calls_error(
    world: World, autojump_clock: MockClock
) -> None:
    """A hook around the call may leave one as well."""

    class Leaky(Hooks):
        async def around_tool(self, at: object, view: object, proceed: Any) -> object:
            await enter(float("inf"))
            return await proceed()

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    async with world.open({"a": [call("look"), "on"]}) as sup:
        ref = await sup.start(agent(tools=[look], hooks=Leaky()), "go")
        assert (await ref.wait_report()).text == "on"
        assert SAID in texts(await ref.transcript())[2]


@pytest.mark.parametrize("point", ["before_turn", "after_turn", "instructions"])
async def test_hok_1_a_nursery_that_a_hook_leaves_open_is_its_own_failure(
    world: World, autojump_clock: MockClock, point: str
) -> None:
    """It is told as one that raised: of one that observes nothing follows, one that decides fails the turn."""

    async def leave(*_: object) -> None:
        await enter(float("inf"))

    async with world.open({"a": ["one"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(hooks=type("Leaky", (Hooks,), {point: leave})()), "go")
        report = await ref.wait_report()
        await ref.wait_idle()
        assert report.status == ("failed" if point == "instructions" else "done")
        assert SAID in log.of(HookFailed)[0].error
        assert len(log.of(TurnEnded)) == 1
        assert sup._parts.tools_nursery.child_tasks == frozenset()


async def test_tol_7_a_call_that_is_cut_with_a_nursery_open_ends(world: World, autojump_clock: MockClock) -> None:
    """Cut by its time, by hand or by an abort, it leaves nothing open either."""

    @tool(timeout=5)
    async def hold() -> str:
        """Hold one open."""
        await enter(float("inf"))
        await trio.sleep(1_000)
        return "never"

    async with world.open({"a": [call("hold"), call("hold"), "on"]}) as sup:
        ref = await sup.start(agent(tools=[hold]), "go")
        await trio.sleep(6)
        assert "took longer than 5.0 s" in texts(await ref.transcript())[2]
        await ref.abort("enough")
        await ref.wait_idle()
        await trio.sleep(1)
        assert texts(await ref.transcript())[4].startswith("=aborted")
        assert sup._parts.tools_nursery.child_tasks == frozenset()
