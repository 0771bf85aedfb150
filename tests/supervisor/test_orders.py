"""Orders from another process, and what their owner does before it has seen them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Agent, Context, RequestStarted, call, tool
from actors.models.script import hang
from tests.supervisor.promises.world import watched
from tests.supervisor.test_peers import Shared

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


@pytest.fixture(params=["memory", "sqlite"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    """A store of either kind."""
    return Shared(request.param, tmp_path)


@pytest.mark.parametrize("top", ["lead", "lead/mid"])
async def test_abt_5_an_abort_of_a_subtree_from_elsewhere_takes_who_was_born_before_its_owner_saw_it(
    shared: Shared, autojump_clock: MockClock, top: str
) -> None:
    """The order is in the store, and until the owner's next look a call still starts a child, which got no order.

    It is aborted all the same; what another agent below is sent behind the order is answered (ABT-4).
    """
    kid, idle = Agent("kid", "Help."), Agent("idle", "Help.")
    made: list[float] = []

    @tool
    async def hand_on(ctx: Context) -> str:
        """Start two children: one that has nothing to do, and one just after the order."""
        await ctx.start(idle, None, background=True)
        await trio.sleep_until(1.02)
        await ctx.start(kid, "x", background=True)
        made.append(trio.current_time())
        await trio.sleep(1_000)
        return "late"

    mid = Agent("mid", "Go on.", tools=[hand_on])
    lead = Agent("lead", "Go on.", children=[mid])
    script: dict[str, list[Any]] = {
        "lead": [call("mid", task="x"), "behind"],
        "mid": [call("hand_on")],
        "kid": [lambda _: hang()],
        "idle": ["answered"],
    }
    specs = (lead, mid, kid, idle)
    async with shared.open(script, *specs) as owner, shared.open({}, *specs) as other:
        await trio.sleep(0.005 - trio.current_time() % 0.05)
        await owner.start(lead, "go")
        await trio.sleep_until(0.5)
        theirs = await other.find(top)
        await trio.sleep_until(1.01)
        async with watched(owner) as log:
            await theirs.abort("enough", subtree=True)
            receipt = await (await other.find("lead/mid/idle")).send("and you?")
            assert trio.current_time() == 1.01
            await trio.sleep(10)
            assert made == [1.02]
            assert [row.agent for row in await owner.tree() if row.open is not None] == []
            assert (await (await owner.find("lead/mid/kid")).wait_report()).status == "aborted"
            assert (await receipt.wait_report()).text == "answered"
            assert len(log.of(RequestStarted, "lead/mid/kid")) <= 1


async def test_abt_5_who_was_born_behind_an_order_that_its_owner_never_saw_is_aborted_by_the_next(
    shared: Shared, autojump_clock: MockClock
) -> None:
    """The owner dies between the birth and its look: the order waits in the store, for whoever takes the tree."""
    kid = Agent("kid", "Help.")

    @tool
    async def hand_on(ctx: Context) -> str:
        """Start a child just after the order."""
        await trio.sleep_until(1.02)
        await ctx.start(kid, "x", background=True)
        await trio.sleep(1_000)
        return "late"

    lead = Agent("lead", "Go on.", tools=[hand_on])
    script: dict[str, list[Any]] = {"lead": [lambda r: "behind" if r.window.responses else call("hand_on")] * 9}
    script["kid"] = [lambda _: hang()]
    specs = (lead, kid)
    async with shared.open({}, *specs) as other:
        with pytest.raises(RuntimeError, match="dies"):  # noqa: PT012 - its life is what raises
            async with shared.open(script, *specs) as owner:
                await trio.sleep(0.005)
                await owner.start(lead, "go")
                await trio.sleep_until(0.5)
                theirs = await other.find("lead")
                await trio.sleep_until(1.01)
                await theirs.abort("enough", subtree=True)
                await trio.sleep_until(1.03)
                raise RuntimeError("it dies")
        assert [row.agent for row in await other.tree() if row.open is not None] == ["lead", "lead/kid"]
        async with shared.open(script, *specs) as owner:
            await owner.resume()
            await trio.sleep(10)
            assert [row.agent for row in await owner.tree() if row.open is not None] == []
            assert (await (await owner.find("lead/kid")).wait_report()).status == "aborted"
            report = await (await owner.find("lead")).ask("and now?")
            assert report.text == "behind", report
