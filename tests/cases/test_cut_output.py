"""Cases of calls that are cut off in the middle: what they had until then."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import trio

from actors import Context, Limits, ToolProgress, ToolStarted, call, command, tool
from actors.content import Trust
from actors.transcript import ResultRecord
from tests.supervisor.promises.world import agent, said, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.supervisor.promises.world import World


HOW = {
    "cancel": ("error", "The call was cancelled: not now"),
    "timeout": ("timeout", "The call took longer than 0.5 s"),
    "abort": ("aborted", "The run was aborted"),
    "interrupt": ("aborted", "A newer message interrupted the turn"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="runs a program")
@pytest.mark.parametrize("way", ["cancel", "timeout", "abort", "interrupt"])
async def test_br_005_what_a_command_wrote_before_it_was_cut_stands_in_its_result(memory: World, way: str) -> None:
    """By hand, its timeout, an abort, a newer message: the model reads how it ended and what it had written."""

    @command(timeout=0.5 if way == "timeout" else None, trust="external", stop_s=0.05)
    def build() -> list[str]:
        """Build."""
        return ["sh", "-c", "echo compiled 3 of 7; exec sleep 1000"]

    async with memory.open({"a": [call("build"), "done", "on"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[build]), "go")
        with trio.fail_after(30):
            while not log.of(ToolProgress):  # noqa: ASYNC110 - a process outside of us has no event
                await trio.sleep(0.005)
            if way == "cancel":
                ref.cancel_call(log.of(ToolStarted)[0].call, "not now")
            elif way == "abort":
                await ref.abort("not now")
                await ref.wait_aborted()
            elif way == "interrupt":
                await ref.steer("not now", interrupt=True)
            await ref.wait_idle()
            assert (await ref.ask("go on")).text == ("done" if way == "abort" else "on")
        (result,) = [record for record in await ref.transcript() if isinstance(record, ResultRecord)]
        status, how = HOW[way]
        text = said(result.content)
        assert (result.status.value, text.startswith(how)) == (status, True)
        assert text.endswith("Until then:\ncompiled 3 of 7\n")
        assert result.trust is Trust.EXTERNAL, "what it wrote is believed no more than a whole result"


async def test_br_005_any_tool_can_say_what_it_has_so_far(world: World, autojump_clock: MockClock) -> None:
    """What it says is cut like a result; where it cannot say it, or has nothing, the result says only how it ended."""

    @tool(timeout=5)
    async def collect(ctx: Context, way: str) -> str:
        """Collect."""
        found = ["x" * 50] if way == "much" else ["one"]
        if way == "nothing":
            found = []
        ctx.so_far = (lambda: str(1 // 0)) if way == "broken" else lambda: " ".join(found)
        await trio.sleep(1)
        found += found
        await trio.sleep(1_000)
        return "all"

    ways = ("some", "much", "nothing", "broken")
    async with world.open({"a": [[call("collect", way=way) for way in ways], "done"]}) as sup:
        ref = await sup.start(agent(tools=[collect], limits=Limits(result_chars=60)), "go")
        await ref.wait_idle()
        shown = [said(record.content) for record in await ref.transcript() if isinstance(record, ResultRecord)]
        assert [text.partition("Until then:\n")[2][:7] for text in shown] == ["one one", "xxxxxxx", "", ""]
        assert "x" * 60 not in shown[1]
        assert all(text.startswith("The call took longer than") for text in shown)
