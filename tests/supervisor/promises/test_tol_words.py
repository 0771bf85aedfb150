"""TOL: what a model is told of calls that ended otherwise than it asked, and what is recorded of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import trio

from actors import Limits, ToolEnded, ToolStarted, call, tool
from actors.transcript import ResultRecord, problems
from tests.supervisor.promises.world import agent, check, said, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.transcript import Record
    from tests.supervisor.promises.world import World


def results(records: tuple[Record, ...]) -> list[tuple[str, str]]:
    """The results of a conversation: status and text."""
    return [(one.status.value, said(one.content)) for one in records if isinstance(one, ResultRecord)]


@tool(effect="pure")
async def look() -> str:
    """Look for long."""
    await trio.sleep(10)
    return "looked"


@tool
async def act() -> str:
    """Act for long."""
    await trio.sleep(10)
    return "acted"


@pytest.mark.parametrize(
    ("way", "began"),
    [("abort", "The run was aborted while"), ("steer", "A newer message interrupted the turn while")],
)
async def test_con_7_a_call_that_is_cut_says_by_what(
    world: World, autojump_clock: MockClock, way: str, began: str
) -> None:
    """A steer that interrupts is no abort: each says what it was, and whether the call may have taken effect."""
    script = {"a": [[call("look"), call("act"), call("act")], "on"]}
    async with world.open(script) as sup:
        ref = await sup.start(agent(tools=[look, act], limits=Limits(parallel_calls=2)), "go")
        await trio.sleep(1)
        if way == "abort":
            await ref.abort("enough")
            await ref.wait_aborted()
        else:
            await ref.steer("stop", interrupt=True)
        await ref.wait_idle()
        records = await ref.transcript()
        assert problems(records) == []
        assert [status for status, _ in results(records)] == ["aborted", "aborted", "skipped"]
        pure, once, skipped = [text for _, text in results(records)]
        assert pure == f"{began} this call was running."
        assert once == f"{began} this call was running. It may have taken effect: check before you repeat it."
        assert skipped == f"Not run: {began[0].lower()}{began[1:].removesuffix(' while')} before this call started."


async def test_tol_6_a_list_sent_as_text_is_read_and_recorded(world: World, autojump_clock: MockClock) -> None:
    """Only where the schema wants a list: what was read is in the event and, durably, in the result."""
    ran: list[object] = []

    @tool
    async def tag(paths: list[str], name: str) -> str:
        """Tag."""
        ran.append((paths, name))
        return "tagged"

    step = [
        call.raw("tag", '{"paths": "[\\"a\\"]", "name": "[1]"}'),
        call.raw("tag", '{"paths": ["b"], "name": "n"}'),
        call.raw("tag", '{"paths": "[\\"a\\"", "name": "n"}'),
        call.raw("tag", '{"paths": ["b"], "name": "n"'),
    ]
    async with world.open({"a": [step, "done"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[tag]), "go")
        await ref.wait_idle()
        assert sorted(ran, key=str) == [(["a"], "[1]"), (["b"], "n")]
        assert [event.repaired for event in log.of(ToolStarted)] == [("paths",), ()]
        found = [one for one in await ref.transcript() if isinstance(one, ResultRecord)]
        assert [(one.status.value, one.repaired) for one in found] == [
            ("ok", ("paths",)),
            ("ok", ()),
            ("error", ()),
            ("error", ()),
        ]
        await check(sup.store)


async def test_tol_7_a_deadline_is_the_calls_own(world: World, autojump_clock: MockClock) -> None:
    """The call that takes too long is cut off at its own time; its sibling goes on to its end."""

    @tool(timeout=2)
    async def short() -> str:
        """Take too long."""
        await trio.sleep(10)
        return "never"

    async with world.open({"a": [[call("short"), call("look")], "done"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[short, look]), "go")
        began = trio.current_time()
        await ref.wait_report()
        assert [status for status, _ in results(await ref.transcript())] == ["timeout", "ok"]
        ended = {event.name: event.at - began for event in log.of(ToolEnded)}
        assert ended == pytest.approx({"short": 2, "look": 10})


async def test_tol_7_a_sync_tool_freezes_nothing_else(world: World) -> None:
    """While its thread stands still other agents answer, its own accepts messages, and an abort is not held up."""
    release, stands = threading.Event(), threading.Event()

    @tool
    def stand() -> str:
        """Stand still."""
        stands.set()
        release.wait(20)
        return "stood"

    script = {"a": [call("stand"), "on"], "b": ["hello"]}
    try:
        with trio.fail_after(20):
            async with world.open(script, threads=True, hard=0.1) as sup:
                ref = await sup.start(agent(tools=[stand], limits=Limits(hard_s=0.1)), "go")
                await trio.to_thread.run_sync(stands.wait)
                assert (await sup.run(agent("b"), "say hello")).text == "hello"
                await ref.send("more")
                await ref.abort("enough")
                await ref.wait_aborted()
                assert [status for status, _ in results(await ref.transcript())] == ["aborted"]
                assert not release.is_set()
                await ref.wake()
                assert (await ref.wait_report()).text == "on"
                release.set()
    finally:
        release.set()
