"""Cases of waiting: ends that nobody heard of, children that were waited for in vain, stops from the inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Child, Context, Hooks, LimitReached, Limits, WaitCycle, call, tool
from actors.changes import Append, Enqueue, OutcomeRow, Put
from actors.messages import Purpose
from actors.transcript import ResultRecord
from tests.supervisor.promises.world import World, agent, check, has, said, texts, watched

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from actors.ports import ModelRequest


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A store of either kind."""
    return World(request.param, tmp_path)


async def test_br_082_a_child_that_ends_at_once_is_heard_of_once(world: World, autojump_clock: MockClock) -> None:
    """Its report is written in the very commit that ends it, so nobody needs to have subscribed before."""
    lead = agent("lead", children=[Child(agent("kid"), background=True)])
    async with world.open({"lead": [call("kid", task="x"), "started", "heard"], "kid": ["quick"]}) as sup:
        ref = await sup.start(lead, "go")
        await ref.wait_idle()
        shown = texts(await ref.transcript())
        assert sum("Report of lead/kid" in text for text in shown) == 1
        (end,) = [
            one
            for one in world.spy.sets
            if has(one, Put, lambda op: isinstance(op.row, OutcomeRow) and op.row.agent == "lead/kid")
        ]
        assert has(end, Enqueue, lambda op: op.envelope.purpose is Purpose.REPORT and op.envelope.to == "lead")


@pytest.mark.parametrize("tenths", range(0, 24, 2))
async def test_br_084_a_child_that_ends_around_its_parents_last_turn_wakes_it(
    world: World, autojump_clock: MockClock, tenths: int
) -> None:
    """Whenever it ends, before, in or behind the turn that would have been the last: the parent hears of it."""

    async def parent(request: ModelRequest) -> object:
        await trio.sleep(1)
        return "ok" if request.window.responses else call("kid", task="x")

    async def child(_: ModelRequest) -> str:
        await trio.sleep(tenths / 10)
        return "done"

    lead = agent("lead", children=[Child(agent("kid"), background=True)])
    async with world.open({"lead": parent, "kid": child}) as sup:
        ref = await sup.start(lead, "go")
        await trio.sleep(60)
        assert ref.state == "idle"
        shown = texts(await ref.transcript())
        assert sum("Report of lead/kid (done)" in text for text in shown) == 1
        assert shown[-1] == ">ok", "and has answered it"
        await check(sup.store)


@pytest.mark.parametrize("how", ["blocking", "background"])
async def test_br_085_an_end_between_two_resumes_is_read_and_nothing_is_done_again(
    world: World, autojump_clock: MockClock, how: str
) -> None:
    """The child ended, and the process died before its parent could take that in: the next one reads the result."""
    ran: list[str] = []

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    lead = agent("lead", children=[Child(agent("kid", tools=[pay]), background=how == "background")])

    def parent(request: ModelRequest) -> object:
        return "ok" if request.window.responses else call("kid", task="x")

    async def child(request: ModelRequest) -> object:
        await trio.sleep(1)
        return "all paid" if request.window.responses else call("pay")

    script = {"lead": parent, "kid": child}
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the supervisor must be left by it
        async with world.open(script) as sup, watched(sup) as log:
            await sup.start(lead, "go")
            told = "result" if how == "blocking" else "message"
            await trio.sleep(0.5)  # its own task was taken
            world.spy.refuse = lambda one: has(
                one, Append, lambda op: op.agent == "lead" and _kind(op.records[-1]) == told
            )
            await trio.sleep(5)
            assert log.statuses("lead/kid") == ["done"]
            world.spy.refuse = lambda _: True
            raise ZeroDivisionError
    async with world.open(script, agents=[lead]) as sup, watched(sup) as log:
        await sup.resume()
        ref = await sup.find("lead")
        await ref.wait_idle()
        assert ran == ["paid"]
        assert log.statuses("lead/kid") == [], "it has nothing to do again"
        assert (await (await sup.find("lead/kid")).wait_report()).text == "all paid"
        shown = texts(await ref.transcript())
        assert sum("all paid" in text for text in shown) == 1
        assert shown[-1] == ">ok"
        await check(sup.store)


def _kind(record: object) -> str:
    return "result" if isinstance(record, ResultRecord) else "message"


POINTS = ("instructions", "before_run", "before_turn", "after_response", "around_tool", "after_turn", "settled", "tool")


@pytest.mark.parametrize("point", POINTS)
async def test_br_088_whoever_stops_itself_stops_behind_that(
    world: World, autojump_clock: MockClock, point: str
) -> None:
    """From any hook, and from a tool: the stop is a request, waiting for it is refused, and it is carried out after."""
    refused: list[WaitCycle] = []

    async def stop(ref: Any) -> None:
        await ref.close()
        try:
            await ref.wait_closed()
        except WaitCycle as error:
            refused.append(error)

    async def method(_: Hooks, at: Any, *rest: Any) -> object:
        await stop(at.ref(at.agent))
        return await rest[-1]() if point == "around_tool" else None

    @tool
    async def work(ctx: Context) -> str:
        """Work."""
        if point == "tool":
            await stop(ctx.ref(ctx.agent))
        return "worked"

    hooks = None if point == "tool" else type("Stopping", (Hooks,), {point: method})()
    async with world.open({"a": [call("work"), "done"]}) as sup:
        with trio.fail_after(30):
            ref = await sup.start(agent(tools=[work], hooks=hooks), "go")
            await ref.wait_closed()
        assert refused
        assert (await ref.wait_report()).text == "done", "what was accepted is answered first (CLS-2)"
        await check(sup.store)


async def test_br_067_091_a_child_that_makes_no_progress_is_ended_and_its_parent_told(
    world: World, autojump_clock: MockClock
) -> None:
    """One of three children hangs in a tool without a time limit: the time of its turn ends it (TRN-7).

    The two others' results stand, and the parent's turn goes on with an error that says what happened.
    """

    @tool
    async def hangs() -> None:
        """Never end."""
        await trio.sleep_forever()

    def kid(request: ModelRequest) -> object:
        task = said(request.window[0].content)  # type: ignore[union-attr]  # the task
        return call("hangs") if task == "hang" else f"did {task}"

    lead = agent("lead", children=[agent("kid", tools=[hangs], limits=Limits(turn_s=60))])
    step = [call("kid", task=task) for task in ("a", "hang", "c")]
    async with world.open({"lead": [step, "went on"], "kid": kid}) as sup:
        ref = await sup.start(lead, "go")
        assert (await ref.wait_report()).text == "went on"
        assert trio.current_time() <= 61
        shown = [text for text in texts(await ref.transcript()) if text.startswith("=")]
        assert [text.split(":")[0] for text in shown] == ["=ok", "=error", "=ok"]
        assert "took longer than" in shown[1]
        stuck = await (await sup.find("lead/kid#2")).wait_report()
        assert isinstance(stuck.error, LimitReached)
