"""Cases of delivery: what a sender is told, and what it may do when it is told nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import (
    AgentClosed,
    Hooks,
    LaneBound,
    Limits,
    MailboxFull,
    ToolStarted,
    TurnStarted,
    UsageError,
    call,
    tool,
)
from actors.ids import CallId
from actors.messages import ReceiptState
from actors.models.script import hang
from tests.supervisor.promises.approving import first as oldest
from tests.supervisor.promises.world import agent, check, enqueues, messages, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from actors.hooks import Moment
    from actors.ports import ModelRequest
    from supervisor import AgentRef
    from tests.supervisor.promises.world import World


@tool
async def work() -> str:
    """Work for a second."""
    await trio.sleep(1)
    return "worked"


async def thinks(request: ModelRequest) -> object:
    """Think for a second; then work, the first time."""
    await trio.sleep(1)
    return "ok" if request.window.responses else call("work")


class Slow(Hooks):
    """A run that takes its time to begin."""

    async def before_run(self, at: Moment) -> None:
        """Half a second."""
        await trio.sleep(0.5)

    async def settling(self, at: Moment) -> None:
        """Likewise."""
        await trio.sleep(2)


@tool(approve=True)
async def delete() -> str:
    """Delete."""
    return "deleted"


PHASES = {"starting": 0.2, "asking": 1.0, "batch": 2.0, "settling": 4.0, "paused": 5, "parked": 5, "compacting": 6}


@pytest.mark.parametrize(("phase", "at"), PHASES.items())
async def test_br_015_what_is_refused_is_handed_back_and_can_be_sent_again(
    world: World, autojump_clock: MockClock, phase: str, at: float
) -> None:
    """In each phase: at a full lane a steer raises with its message, and nothing is stored; sent again, it enters."""

    async def model(request: ModelRequest) -> object:
        if request.purpose == "compaction":
            await trio.sleep(3)
            return "in short"
        if phase == "parked" and not request.window.responses:
            return call("delete")
        return "word " * 400 if phase == "compacting" else await thinks(request)

    async with world.open({"a": model}) as sup:
        spec = agent(tools=[work, delete], hooks=Slow(), limits=Limits(steer=LaneBound(messages=1)))
        ref = await sup.start(spec, "go")
        if phase == "paused":
            await ref.pause()
        elif phase == "compacting":
            await trio.sleep(5)
            await ref.compact()
            at = 1
        await trio.sleep(at)
        first = await ref.steer("first")
        with pytest.raises(MailboxFull) as refused:
            await ref.steer("second")
        assert refused.value.message is not None
        assert "second" not in await messages(sup.store, "a")
        if phase == "paused":
            await ref.wake()
        elif phase == "parked":
            assert first.state is ReceiptState.QUEUED
            await (await oldest(sup)).approve()
        await ref.wait_idle()
        again = await ref.steer("second")
        await again.wait_report()
        assert (first.state, again.state) == (ReceiptState.CONSUMED, ReceiptState.CONSUMED)
        assert texts(await ref.transcript()).count("<second") == 1
        await ref.close()
        with pytest.raises(AgentClosed) as closed:
            await ref.steer("third")
        assert closed.value.message is not None
        assert "third" not in await messages(sup.store, "a")
        await check(sup.store)


async def test_br_016_a_cancel_of_what_does_not_run_is_an_error_that_names_what_does(
    world: World, autojump_clock: MockClock
) -> None:
    """By an id that never was, and by one that is over: refused by name; the call that runs goes on."""
    async with world.open({"a": [[call("work")], [call("work")], "ok"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[work]), "go")
        await trio.sleep(1.5)
        over, running = [event.call for event in log.of(ToolStarted)]
        for wrong in (over, CallId("a:t9.9.9")):
            with pytest.raises(UsageError, match=running):
                ref.cancel_call(wrong, "a mistake")
        await ref.wait_idle()
        assert texts(await ref.transcript())[-2:] == ["=ok:worked", ">ok"]


async def test_br_017_a_steer_meant_for_a_turn_that_is_over_joins_the_one_that_runs(
    world: World, autojump_clock: MockClock
) -> None:
    """The turn rolls over between the look and the steer: it is not refused, and its receipt names the later turn."""
    async with (
        world.open({"a": lambda r: [call("work")] if r.window.responses % 2 == 0 else "ok"}) as sup,
        watched(sup) as log,
    ):
        ref = await sup.start(agent(tools=[work]), "go")
        await trio.sleep(0.5)
        await ref.send("more")
        assert log.of(TurnStarted)[-1].turn == 1, "which the client takes to be the turn"
        await trio.sleep(1)
        receipt = await ref.steer("B")
        report = await receipt.wait_report()
        assert (receipt.turn, report.run, report.text) == ("a:t2", "a:r1", "ok")
        assert texts(await ref.transcript())[-3:] == ["=ok:worked", "<B", ">ok"]
        await check(sup.store)


@pytest.mark.parametrize("restart", [False, True])
async def test_br_018_a_steer_whose_answer_was_lost_is_sent_again_and_done_once(
    world: World,
    autojump_clock: MockClock,
    restart: bool,  # noqa: FBT001 - parametrised
) -> None:
    """The client gives up while the acceptance is written, so it does not know: by its key it is heard once."""
    spec = agent()

    def model(request: ModelRequest) -> object:
        return "ok" if "<turn left" in texts(list(request.window)) else hang()

    async def slow(one: ChangeSet) -> None:
        if enqueues("turn left")(one):
            await trio.sleep(5)

    async with world.open({"a": model}, grace=0) as sup:
        world.spy.before = slow
        ref = await sup.start(spec, "go")
        await trio.sleep(1)
        with trio.move_on_after(1) as patience:
            await ref.steer("turn left", key="7", interrupt=True)
            await trio.lowlevel.checkpoint()
        assert patience.cancelled_caught, "the client was told nothing in time"
        if not restart:
            await told_once(ref)
    if restart:
        async with world.open({"a": model}, agents=[spec]) as sup:
            await sup.resume()
            await told_once(await sup.find("a"))


async def told_once(ref: AgentRef) -> None:
    """Try again."""
    again = await ref.steer("turn left", key="7", interrupt=True)
    assert (await again.wait_report()).text == "ok"
    await ref.wait_idle()
    assert texts(await ref.transcript()).count("<turn left") == 1
