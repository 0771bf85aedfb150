"""CON-7: a steer that interrupts, whatever is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from actors import Hooks, call, tool
from actors.models.script import hang
from actors.transcript import MessageRecord, ResultRecord, problems
from tests.supervisor.promises.world import agent, check, said, texts

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from tests.supervisor.promises.world import World


@tool(resource=lambda name: "one")
async def work(name: str) -> str:
    """Work for ten seconds."""
    await trio.sleep(10)
    return name


async def test_con_7_an_interrupt_while_tools_run_names_what_it_ended(world: World, autojump_clock: MockClock) -> None:
    """What had returned keeps its result; the rest is cancelled or skipped, and receipts, late ones too, name it."""
    calls = [call("work", name="a"), call("work", name="b"), call("work", name="c")]
    spec = agent(tools=[work])
    async with world.open({"a": [calls, "stopped"]}) as sup:
        ref = await sup.start(spec, "go")
        await trio.sleep(15)
        start = trio.current_time()
        plain = await ref.steer("and this")
        receipt = await ref.steer("Stop", interrupt=True)
        report = await receipt.wait_report()
        assert trio.current_time() - start < 1
        assert report.text == "stopped"
        assert receipt.skipped == ("a:t1.1.1", "a:t1.1.2")
        assert plain.skipped == ()
        records = await ref.transcript()
        assert problems(records) == []
        shown = texts(records)
        assert [text.partition(":")[0] for text in shown[2:5]] == ["=ok", "=aborted", "=skipped"]
        assert shown[5:] == ["<and this", "<Stop", ">stopped"]
    async with world.open({}, agents=[spec]) as sup:
        assert (await sup.receipt(receipt.id)).skipped == receipt.skipped
        assert (await sup.receipt(plain.id)).skipped == ()


async def test_con_7_an_interrupt_while_the_model_answers_cuts_the_stream(
    world: World, autojump_clock: MockClock
) -> None:
    """What was said stays, marked as cut; the message enters at once; no call was ended."""
    async with world.open({"a": [("half", hang()), "whole"]}) as sup:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        start = trio.current_time()
        receipt = await ref.steer("Stop", interrupt=True)
        assert (await receipt.wait_report()).text == "whole"
        assert trio.current_time() - start < 1
        assert receipt.skipped == ()
        assert texts(await ref.transcript()) == ["<go", ">half", "<Stop", ">whole"]


async def test_con_7_an_interrupt_while_a_hook_looks_at_the_response_skips_its_calls(
    world: World, autojump_clock: MockClock
) -> None:
    """A response that was whole, but not taken up yet, stays; its calls are skipped, and named."""

    class Looks(Hooks):
        async def after_response(self, at: object) -> None:
            await trio.sleep(5)

    async with world.open({"a": [call("work", name="a"), "stopped"]}) as sup:
        ref = await sup.start(agent(tools=[work], hooks=Looks()), "go")
        await trio.sleep(1)
        receipt = await ref.steer("Stop", interrupt=True)
        assert (await receipt.wait_report()).text == "stopped"
        assert receipt.skipped == ("a:t1.1.0",)
        assert [text.partition(":")[0] for text in texts(await ref.transcript())][2:4] == ["=skipped", "<Stop"]


async def test_con_7_an_interrupt_of_an_idle_agent_is_a_steer(world: World, autojump_clock: MockClock) -> None:
    """Where nothing runs, nothing is ended: the message asks for a turn."""
    async with world.open({"a": ["ok"]}) as sup:
        ref = await sup.start(agent())
        receipt = await ref.steer("Stop", interrupt=True)
        assert (await receipt.wait_report()).text == "ok"
        assert receipt.skipped == ()


async def test_con_7_an_interrupt_at_every_moment_leaves_a_valid_conversation(
    world: World, autojump_clock: MockClock
) -> None:
    """Whenever it comes, it is answered, the conversation is valid, and it names just the calls that did not end."""
    seen = set()
    for moment in range(45):
        name = f"a{moment}"

        def model(request: ModelRequest) -> object:
            stopped = any(isinstance(r, MessageRecord) and said(r.content) == "Stop" for r in request.window)
            if stopped or request.window.responses:
                return "ok"
            return [call("work", name="a"), call("work", name="b")]

        async with world.open({name: model}) as sup:
            ref = await sup.start(agent(name, tools=[work]))
            await ref.send("go")
            for _ in range(moment):
                await trio.lowlevel.checkpoint()
            receipt = await ref.steer("Stop", interrupt=True)
            assert (await receipt.wait_report()).text == "ok"
            await ref.wait_idle()
            records = await ref.transcript()
            assert problems(records) == []
            ended = tuple(r.call for r in records if isinstance(r, ResultRecord) and r.status in ("aborted", "skipped"))
            assert receipt.skipped == ended
            seen.add(len(ended))
            await check(sup.store)
    assert seen == {0, 2}
