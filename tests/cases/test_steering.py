"""Cases of steering and queueing: what people met elsewhere, and what happens here instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import AgentClosed, Child, Hooks, ToolStarted, UsageError, call, tool
from actors.messages import ReceiptState
from actors.models.script import hang
from actors.transcript import MessageRecord, ResultRecord, problems
from tests.supervisor.promises.world import World, agent, check, enqueues, messages, quiet, said, texts, watched

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from actors.hooks import Moment
    from actors.ports import ModelRequest
    from supervisor import AgentRef, Receipt

CONSUMED, QUEUED = ReceiptState.CONSUMED, ReceiptState.QUEUED


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A store of either kind."""
    return World(request.param, tmp_path)


@tool
async def write(name: str) -> str:
    """Write for a second."""
    await trio.sleep(1)
    return f"wrote {name}"


def batch(*names: str) -> list[object]:
    """Calls of one response."""
    return [call("write", name=name) for name in names]


@pytest.mark.parametrize("way", ["send", "steer", "interrupt"])
async def test_br_010_queue_steer_and_interrupt_are_three_things(
    world: World, autojump_clock: MockClock, way: str
) -> None:
    """A send drops nothing and waits, a steer drops nothing and joins, an interrupt ends calls; the receipt says so."""

    def model(request: ModelRequest) -> object:
        return "answer" if request.window.responses else batch("a", "b")

    async with world.open({"a": model}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[write]), "go")
        await trio.sleep(0.5)
        receipt = await (ref.send("x") if way == "send" else ref.steer("x", interrupt=way == "interrupt"))
        await ref.wait_idle()
        ran = [result.status.value for result in await ref.transcript() if isinstance(result, ResultRecord)]
        assert len(log.of(ToolStarted)) == 2
        assert ran == (["aborted", "aborted"] if way == "interrupt" else ["ok", "ok"])
        assert len(receipt.skipped) == (2 if way == "interrupt" else 0)
        assert receipt.turn == ("a:t2" if way == "send" else "a:t1")
        assert receipt.state is CONSUMED


async def test_br_011_a_steer_runs_what_was_asked_for_already(world: World, autojump_clock: MockClock) -> None:
    """A steer waits for the batch: each call that the model made before it has run, and its result stands."""
    async with world.open({"a": [batch("a", "b", "c"), "answer"]}) as sup:
        ref = await sup.start(agent(tools=[write]), "go")
        await trio.sleep(0.5)
        await ref.steer("mind the gap")
        await ref.wait_idle()
        shown = texts(await ref.transcript())
        assert shown[2:] == ["=ok:wrote a", "=ok:wrote b", "=ok:wrote c", "<mind the gap", ">answer"]


async def test_br_012_every_message_has_one_end(world: World, autojump_clock: MockClock) -> None:
    """Sent at any moments of a run, steered, withdrawn, expired: each has exactly one end, and none is lost."""
    async with world.open({"a": lambda r: batch("x") if r.window.responses % 3 == 0 else "ok"}) as sup:
        ref = await sup.start(agent(tools=[write], drain={"send": "all"}), "go")
        receipts: list[Receipt] = []
        for number in range(30):
            await trio.sleep((number * 7 % 11) / 10)
            text = f"{number}"
            sent = await (ref.steer(text, interrupt=number % 4 == 0) if number % 2 else ref.send(text, ttl=0.3))
            receipts.append(sent)
            if number % 5 == 0:
                await sent.withdraw()
        await ref.wait_idle()
        await ref.close()
        with pytest.raises(AgentClosed):
            await ref.send("late")
        await ref.wait_closed()
        assert all(receipt.state.final for receipt in receipts)
        stored = await messages(sup.store, "a")
        assert {receipt.state for receipt in receipts} == {CONSUMED, ReceiptState.WITHDRAWN, ReceiptState.DEAD}
        assert [stored[str(n)] for n in range(30)] == [receipt.state for receipt in receipts]
        entered = [said(r.content) for r in await ref.transcript() if isinstance(r, MessageRecord)]
        assert sorted(entered) == sorted(["go", *(str(n) for n in range(30) if receipts[n].state is CONSUMED)])
        await check(sup.store)


async def test_br_013_a_steer_is_the_message_it_was_called_with(world: World, autojump_clock: MockClock) -> None:
    """With a message queued, the steered one enters now, word for word, and the queued one stays queued."""
    async with world.open({"a": [batch("a"), hang()]}) as sup:
        ref = await sup.start(agent(tools=[write]), "go")
        await trio.sleep(0.5)
        queued = await ref.send("A")
        steered = await ref.steer("B")
        await trio.sleep(2)
        assert (queued.state, steered.state) == (QUEUED, CONSUMED)
        assert texts(await ref.transcript())[-1] == "<B"
        assert (await messages(sup.store, "a"))["A"] is QUEUED


@pytest.mark.parametrize("routes", ["steer send", "send steer", "steer post", "send interrupt"])
async def test_br_014_one_id_enters_once(world: World, autojump_clock: MockClock, routes: str) -> None:
    """Delivered by both routes under one key, in the turn, behind it and by the next process, a message stands once.

    The second delivery is the first one's receipt, whichever way it came, and interrupts nothing.
    """
    spec = agent(tools=[write])

    async def deliver(ref: AgentRef, way: str) -> Receipt:
        if way == "post":
            posted = ref.post("B", key="chat-7")
            await posted.wait_accepted()
            return posted
        if way == "send":
            return await ref.send("B", key="chat-7")
        return await ref.steer("B", key="chat-7", interrupt=way == "interrupt")

    one, other = routes.split()
    async with world.open({"a": lambda r: "answer" if r.window.responses else batch("a")}) as sup:
        ref = await sup.start(spec, "go")
        await trio.sleep(0.5)
        first = await deliver(ref, one)
        assert (await deliver(ref, other)).id == first.id
        await ref.wait_idle()
        assert (await deliver(ref, other)).id == first.id
        await ref.wait_idle()
        assert texts(await ref.transcript())[2] == "=ok:wrote a"
    async with world.open({"a": ["never"]}, agents=[spec]) as sup:
        ref = await sup.find("a")
        assert (await deliver(ref, other)).id == first.id
        await ref.wait_idle()
        assert texts(await ref.transcript()).count("<B") == 1
        with pytest.raises(UsageError, match="used for another message"):
            await ref.send("C", key="chat-7")


async def test_br_016_the_receipt_names_the_turn_that_took_it(world: World, autojump_clock: MockClock) -> None:
    """Whoever steers into a turn is told that turn, not one that never comes to be; its report is that turn's."""
    async with world.open({"a": [batch("a"), "answer"]}) as sup:
        ref = await sup.start(agent(tools=[write]), "go")
        await trio.sleep(0.5)
        receipt = await ref.steer("B")
        before = receipt.turn
        report = await receipt.wait_report()
        assert (before, receipt.turn) == (None, "a:t1")
        assert report.run == "a:r1"
        assert report.text == "answer"


async def test_br_019_an_interrupt_is_seen_before_the_next_of_many_writes(
    world: World, autojump_clock: MockClock
) -> None:
    """Of ten writes that run one after another, none starts behind the correction."""
    done: list[str] = []

    @tool(resource=lambda name: "disk")
    async def put(name: str) -> str:
        """Write."""
        done.append(name)
        await trio.sleep(1)
        return name

    async with world.open({"a": [[call("put", name=str(n)) for n in range(10)], "stopped"]}) as sup:
        ref = await sup.start(agent(tools=[put]), "go")
        await trio.sleep(1.5)
        receipt = await ref.steer("Stop!", interrupt=True)
        await receipt.wait_report()
        await trio.sleep(20)
        assert done == ["0", "1"]
        assert len(receipt.skipped) == 9


async def test_br_021_a_message_behind_a_stop_begins_the_next_turn(world: World, autojump_clock: MockClock) -> None:
    """Accepted after the abort, but before the turn has unwound, a message is answered."""

    @tool
    async def deaf() -> str:
        """Notice nothing."""
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return "x"

    async with world.open({"a": lambda r: "answer" if r.window.responses else call("deaf")}) as sup:
        ref = await sup.start(agent(tools=[deaf]), "go")
        await trio.sleep(1)
        before = await ref.send("before")
        await ref.abort("stop")
        after = await ref.send("after")
        report = await after.wait_report()
        assert (report.status, report.text) == ("done", "answer")
        await ref.wait_idle()
        assert (after.state, before.state) == (CONSUMED, CONSUMED), (
            "the earlier one joined what the later one asked for"
        )
        assert texts(await ref.transcript())[3:] == ["<before", ">answer", "<after", ">answer"]


async def test_br_022_br_023_interrupt_and_go_on_in_the_same_conversation(
    world: World, autojump_clock: MockClock
) -> None:
    """An interrupt keeps the work done, is answered in the same run, and leaves a conversation that goes on."""
    async with world.open({"a": [("half an answer", hang()), "another", "and on"]}) as sup:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        await (await ref.steer("Shorter", interrupt=True)).wait_report()
        await (await ref.send("And then?")).wait_report()
        records = await ref.transcript()
        assert problems(records) == []
        assert texts(records) == ["<go", ">half an answer", "<Shorter", ">another", "<And then?", ">and on"]


async def test_br_024_a_steer_never_stands_in_a_result(world: World, autojump_clock: MockClock) -> None:
    """Steered at any moment of a batch, the text is a message of its own, behind all results."""
    for moment in range(0, 22, 3):
        name = f"a{moment}"
        async with world.open({name: [batch("a", "b"), lambda _: "answer", lambda _: "answer"]}) as sup:
            ref = await sup.start(agent(name, tools=[write]), "go")
            await trio.sleep(moment / 10)
            await ref.steer("STEER")
            await ref.wait_idle()
            records = await ref.transcript()
            assert problems(records) == []
            assert [r.message for r in records if isinstance(r, MessageRecord) and said(r.content) == "STEER"]
            assert not any("STEER" in said(r.content) for r in records if isinstance(r, ResultRecord))


async def test_br_074_idleness_is_reached_whatever_became_of_the_messages(
    world: World, autojump_clock: MockClock
) -> None:
    """Withdrawn or expired, a message that will not be answered keeps nobody waiting for idleness."""
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())
        sup.suspend()
        gone, late = await ref.send("gone"), await ref.send("late", ttl=5)
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ref.wait_idle)
                await quiet()
                await gone.withdraw()
        assert late.state is ReceiptState.DEAD


class Broken(Hooks):
    """A hook that decides, and fails."""

    async def instructions(self, at: Moment) -> str:
        """Fail."""
        raise ZeroDivisionError


async def impatient(ref: AgentRef) -> None:
    """Be cancelled while the acceptance is written."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await ref.send("never mind")


@pytest.mark.parametrize("end", ["held", "raised", "cancelled", "refused"])
async def test_br_074_idleness_is_reached_whatever_delivery_met(
    world: World, autojump_clock: MockClock, end: str
) -> None:
    """Held by an abort, failing in a hook, its sender cancelled, its commit refused: idleness is reached."""
    hooks = Broken() if end == "raised" else None
    async with world.open({"a": lambda r: hang() if end == "held" and not r.window.responses else "ok"}) as sup:
        ref = await sup.start(agent(hooks=hooks), "go")
        await trio.sleep(1)
        world.spy.refuse = lambda one: end == "refused" and enqueues("lost")(one)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                if end == "held":
                    await ref.send("held")
                    nursery.start_soon(ref.wait_idle)
                    await quiet()
                    await ref.abort("stop")
                elif end == "cancelled":
                    await impatient(ref)
                elif end == "refused":
                    assert ref.post("lost").state is ReceiptState.PENDING
                else:
                    await ref.send("again")
                nursery.start_soon(ref.wait_idle)
        await ref.wait_idle()
        assert QUEUED not in (await messages(sup.store, "a")).values()
        await check(sup.store)


async def test_br_076_br_015_each_arrival_around_a_close_is_answered(world: World, autojump_clock: MockClock) -> None:
    """Before the barrier: answered. At it and behind it: refused by name, the message attached, nowhere else."""
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())
        before = await ref.send("before")
        refused: list[object] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.close)
            for number in range(10):
                await trio.lowlevel.checkpoint()
                try:
                    await ref.send(f"{number}")
                except AgentClosed as error:
                    refused.append(error.message)
        await ref.wait_closed()
        assert refused
        assert None not in refused
        assert (await before.wait_report()).text == "ok"
        stored = await messages(sup.store, "a")
        assert len([text for text in stored if text.isdigit()]) == 10 - len(refused)
        assert all(state is CONSUMED for state in stored.values())


async def test_br_083_as_many_reports_as_children(world: World, autojump_clock: MockClock) -> None:
    """Nineteen background children end at any points of their parent's turns: nineteen reports are consumed."""
    kid = agent("kid", tools=[write])
    lead = agent("lead", tools=[write], children=[Child(kid, background=True)])
    count = 19

    async def work(request: ModelRequest) -> str:
        await trio.sleep(len(request.agent) % 3 + int(request.agent.rpartition("#")[2] or 1) % 5)
        return "done"

    def parent(request: ModelRequest) -> object:
        if not request.window.responses:
            return [call("kid", task=str(n)) for n in range(count)]
        return batch("x") if request.window.responses % 2 else "ok"

    async with world.open({"lead": parent, "kid": work}) as sup:
        ref = await sup.start(lead, "go")
        await trio.sleep(60)
        await ref.wait_idle()
        reports = [text for text in texts(await ref.transcript()) if "Report of lead/kid" in text]
        assert len(reports) == len(set(reports)) == count


async def test_br_087_many_senders_at_once_give_one_serial_conversation(
    world: World, autojump_clock: MockClock
) -> None:
    """Fifty sends side by side: each is answered by a turn of its own, one after another."""
    async with world.open({"a": lambda r: f"re: {said(r.window[-1].content)}"}) as sup:
        ref = await sup.start(agent())
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(ref.send, str(number))
        await ref.wait_idle()
        shown = texts(await ref.transcript())
        assert len(shown) == 100
        assert [text.removeprefix(">re: ") for text in shown[1::2]] == [text.removeprefix("<") for text in shown[::2]]


async def test_br_090_a_report_reaches_a_parent_that_moved(world: World, autojump_clock: MockClock) -> None:
    """The parent is hosted anew between its child's start and its end: the report is in its mailbox all the same."""
    kid = agent("kid", tools=[write])
    lead = agent("lead", children=[Child(kid, background=True)])
    script = {
        "lead": lambda r: "ok" if r.window.responses else call("kid", task="x"),
        "kid": lambda r: "helped" if r.window.responses else batch("a"),
    }
    async with world.open(script) as sup:
        await sup.start(lead, "go")
        await trio.sleep(0.5)
    async with world.open(script, agents=[lead]) as sup:
        await sup.resume()
        await trio.sleep(5)
        ref = await sup.find("lead")
        await ref.wait_idle()
        assert sum("Report of lead/kid" in text for text in texts(await ref.transcript())) == 1
