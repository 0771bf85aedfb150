"""ACC: accepting a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import (
    AgentClosed,
    AgentSettled,
    Child,
    Hooks,
    LaneBound,
    Limits,
    MailboxFull,
    MessageTooLarge,
    PostRefused,
    Send,
    Steer,
    Unavailable,
    call,
)
from actors.changes import Enqueue, Shut
from actors.messages import ReceiptState
from tests.supervisor.promises.world import agent, check, enqueues, has, messages, ops, quiet, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from tests.supervisor.promises.world import World


async def test_acc_1_the_message_and_the_owed_work_are_one_commit(world: World, autojump_clock: MockClock) -> None:
    """After every single commit, an agent with a queued message is one that a restart would find; there is one set."""
    async with world.open({"a": ["one", "two"]}) as sup:
        ref = await sup.start(agent())

        async def after(_: object) -> None:
            await check(sup.store)

        world.spy.after = after
        receipt = await ref.send("first")
        assert (await receipt.wait_report()).text == "one"
        sets = [one for one in world.spy.sets if enqueues("first")(one)]
        assert len(sets) == 1
        assert len(sets[0].operations) == 1, "the envelope and what it owes are one operation"
        world.spy.refuse = enqueues("second")
        with pytest.raises(Unavailable):
            await ref.send("second")
        await quiet()
        assert await messages(sup.store, "a") == {"first": ReceiptState.CONSUMED}
        assert await sup.store.agents_with_work() == ()


async def test_acc_2_a_failed_write_admits_nothing(world: World, autojump_clock: MockClock) -> None:
    """A send or steer whose commit fails raises, and the message is nowhere: not in memory, not in the store."""
    async with world.open({"a": ["never said"]}) as sup:
        ref = await sup.start(agent())
        world.spy.refuse = lambda one: has(one, Enqueue)
        with pytest.raises(Unavailable):
            await ref.send("hello")
        with pytest.raises(Unavailable):
            await ref.steer("hello")
        await quiet()
        assert ref.statistics().mailbox.send == ref.statistics().mailbox.steer == 0
        assert await messages(sup.store, "a") == {}
        assert await ref.transcript() == ()


async def test_acc_2_send_returns_when_the_commit_is_durable(world: World, autojump_clock: MockClock) -> None:
    """A send does not return before its commit has."""
    async with world.open({"a": ["said"]}) as sup:
        ref = await sup.start(agent())
        order: list[str] = []

        async def after(one: ChangeSet) -> None:
            if enqueues("hello")(one):
                await trio.sleep(5)
                order.append("durable")

        world.spy.after = after
        receipt = await ref.send("hello")
        order.append("returned")
        assert order == ["durable", "returned"]
        assert receipt.state is ReceiptState.QUEUED


async def test_acc_2_a_refused_post_ends_its_receipt_and_is_an_event(world: World, autojump_clock: MockClock) -> None:
    """A post returns a pending receipt; the failure of its commit is the receipt's end and an event."""
    async with world.open({"a": []}) as sup, watched(sup) as log:
        ref = await sup.start(agent())
        world.spy.refuse = enqueues("hello")
        receipt = ref.post("hello")
        before = receipt.state
        with pytest.raises(Unavailable):
            await receipt.wait_accepted()
        assert (before, receipt.state) == (ReceiptState.PENDING, ReceiptState.REFUSED)
        (event,) = log.of(PostRefused)
        assert event.message == receipt.id
        assert await messages(sup.store, "a") == {}


async def test_acc_2_posts_are_accepted_in_order_with_awaited_sends(world: World, autojump_clock: MockClock) -> None:
    """What was posted before a send stands before it, what was posted behind it behind it, also while commits wait."""
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())

        async def slowly(_: object) -> None:
            await trio.sleep(1)

        world.spy.before = slowly
        ref.post("1")
        ref.post("2")
        await trio.sleep(0.5)  # the first is being written
        ref.post("3")
        await ref.send("4")
        ref.post("5")
        await ref.send("6")
        assert list(await messages(sup.store, "a")) == ["1", "2", "3", "4", "5", "6"]


async def test_acc_2_a_post_is_refused_at_once_at_a_known_bound(world: World, autojump_clock: MockClock) -> None:
    """A post checks the bounds at once: size, number, intake."""
    limits = Limits(send=LaneBound(messages=2, message_bytes=200))
    async with world.open({"a": ["x"]}) as sup:
        ref = await sup.start(agent(limits=limits))
        with pytest.raises(MessageTooLarge):
            ref.post("x" * 500)
        await ref.close()
        with pytest.raises(AgentClosed) as caught:
            ref.post("late")
        assert caught.value.message is not None


async def test_acc_2_a_close_waits_for_posts(world: World, autojump_clock: MockClock) -> None:
    """What was posted before a close began is accepted and answered."""
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())

        async def slowly(one: ChangeSet) -> None:
            if not has(one, Shut):
                await trio.sleep(1)

        world.spy.before = slowly
        receipts = [ref.post("1"), ref.post("2")]
        await ref.close()
        reports = [await receipt.wait_report() for receipt in receipts]
        assert [report.text for report in reports] == ["ok", "ok"]
        await ref.wait_closed()


async def test_acc_3_messages_accepted_together_are_one_commit(world: World, autojump_clock: MockClock) -> None:
    """`send_many` is one commit: side by side in the lane, or none of them."""
    limits = Limits(send=LaneBound(message_bytes=200))
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent(limits=limits))
        with pytest.raises(MessageTooLarge):
            await ref.send_many(["1", "x" * 500, "3"])
        assert await messages(sup.store, "a") == {}
        await ref.send_many(["1", "2", "3"])
        (together,) = world.spy.with_op(Enqueue)
        assert [operation.envelope.content[0].text for operation in ops(together, Enqueue)] == ["1", "2", "3"]
        assert list(await messages(sup.store, "a")) == ["1", "2", "3"]


class Sends(Hooks):
    """Answers the end of the first run with two messages."""

    done = False

    async def after_run(self, at: object, report: object) -> object:  # type: ignore[override]  # narrower
        if self.done:
            return None
        self.done = True
        return [Send("and then"), Steer("first of all")]


async def test_acc_3_a_hooks_actions_are_one_commit(world: World, autojump_clock: MockClock) -> None:
    """Both messages that a hook answers with are accepted by one commit."""
    async with world.open({"a": ["one", "two", "three"]}) as sup:
        ref = await sup.start(agent(hooks=Sends()), "go")
        await ref.wait_idle()
        assert [len(ops(one, Enqueue)) for one in world.spy.with_op(Enqueue)] == [1, 2]
        assert texts(await ref.transcript())[2:] == ["<first of all", ">two", "<and then", ">three"]


async def test_acc_4_order_is_that_of_acceptance_also_over_a_restart(world: World, autojump_clock: MockClock) -> None:
    """What was accepted before a restart is answered before what is accepted after it, and nothing is overwritten."""
    spec = agent()
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(spec)
        sup.suspend()
        for text in ("1", "2", "3"):
            await ref.send(text)
    async with world.open({"a": lambda _: "ok"}, agents=[spec]) as sup:
        ref = await sup.find("a")
        await ref.send("4")
        await sup.resume()
        await ref.wait_idle()
        asked = [text for text in texts(await ref.transcript()) if text.startswith("<")]
        assert asked == ["<1", "<2", "<3", "<4"]
        assert list(await messages(sup.store, "a")) == ["1", "2", "3", "4"]


async def test_acc_4_a_slow_sender_does_not_reorder_the_lane(world: World, autojump_clock: MockClock) -> None:
    """A message whose acceptance is told late still stands where the store put it."""
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent(), "first")

        async def after(one: ChangeSet) -> None:
            if enqueues("slow")(one):
                await quiet(1)

        world.spy.after = after
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.send, "slow")
            await trio.lowlevel.checkpoint()
            nursery.start_soon(ref.send, "quick")
        await ref.wait_idle()
        order = list(await messages(sup.store, "a"))
        assert [text for text in texts(await ref.transcript()) if text.startswith("<")] == [
            "<" + text for text in order
        ]


async def test_acc_5_nothing_new_from_the_moment_a_close_begins(world: World, autojump_clock: MockClock) -> None:
    """Behind a close every way in is shut (`AgentClosed`); what was accepted before it is answered."""
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())
        before = [await ref.send("1"), await ref.send("2")]
        await ref.close()
        for way in (ref.send, ref.steer):
            with pytest.raises(AgentClosed):
                await way("late")
        assert [(await receipt.wait_report()).text for receipt in before] == ["ok", "ok"]
        await ref.wait_closed()
        with pytest.raises(AgentClosed):
            await ref.send("later")
        assert list(await messages(sup.store, "a"))[:2] == ["1", "2"]
        assert "late" not in await messages(sup.store, "a")


async def test_acc_6_lanes_are_bounded_and_a_full_one_blocks_no_other(world: World, autojump_clock: MockClock) -> None:
    """At the bound nothing is written, `steer` still enters, and a report has its reserved place."""
    limits = Limits(send=LaneBound(messages=2, message_bytes=200))
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent(limits=limits))
        sup.suspend()
        await ref.send("1")
        await ref.send("2")
        with pytest.raises(MailboxFull) as full:
            await ref.send("3")
        assert full.value.message is not None, "the message is attached"
        with pytest.raises(MailboxFull):
            ref.post("3")
        with pytest.raises(MessageTooLarge):
            await ref.send("x" * 300)
        await ref.steer("steered")
        assert list(await messages(sup.store, "a")) == ["1", "2", "steered"]


async def test_acc_6_a_childs_report_is_never_refused(world: World, autojump_clock: MockClock) -> None:
    """A background child's report enters a lane that is full: its place was reserved."""
    kid = agent("kid")
    lead = agent("lead", children=[Child(kid, background=True)], limits=Limits(send=LaneBound(messages=1)))
    script: dict[str, list[object]] = {
        "lead": [call("kid", task="x"), lambda _: "ok", "next", "last"],
        "kid": ["done it"],
    }
    release = trio.Event()

    async def slow(_: object) -> str:
        await release.wait()
        return "started"

    script["lead"][1] = slow
    async with world.open(script) as sup:
        ref = await sup.start(lead, "go")
        await quiet()
        kept = await ref.send("fills the lane")
        with pytest.raises(MailboxFull):
            await ref.send("too many")
        await quiet()
        release.set()
        await kept.wait_report()
        await ref.wait_idle()
        asked = [text for text in texts(await ref.transcript()) if text.startswith("<")]
        assert len(asked) == 3
        assert sum("Report of lead/kid" in text for text in asked) == 1


async def test_acc_8_an_agent_that_owes_an_answer_is_not_settled(world: World, autojump_clock: MockClock) -> None:
    """While a message waits the agent is not idle: `wait_idle` does not return, and no event says settled.

    Nor after a restart.
    """
    spec = agent()
    async with world.open({"a": ["one", "two"]}) as sup, watched(sup) as log:
        ref = await sup.start(spec, "1")
        await ref.send("2")
        await ref.wait_idle()
        assert len(log.consumed("a")) == 2
        assert len(log.of(AgentSettled, "a")) == 1
        assert log.events.index(log.of(AgentSettled, "a")[0]) > max(
            log.events.index(event) for event in log.events if type(event).__name__ == "TurnEnded"
        )
        sup.suspend()
        await ref.send("3")
        await quiet()
        with trio.move_on_after(100) as scope:
            await ref.wait_idle()
        assert scope.cancelled_caught, "it owes an answer"
        assert len(log.of(AgentSettled, "a")) == 1
    async with world.open({"a": ["one", "two", "three"]}, agents=[spec]) as sup:
        assert await sup.store.agents_with_work() == ("a",)
        ref = await sup.find("a")
        assert ref.state != "idle"
        await sup.resume()
        await ref.wait_idle()
        assert texts(await ref.transcript())[-2:] == ["<3", ">three"]


async def test_acc_7_a_second_acceptance_under_a_key_is_the_first_one(world: World, autojump_clock: MockClock) -> None:
    """Sent again under its key, by any way, before or after the answer, after a restart: one message, one report."""
    spec = agent()
    async with world.open({"a": ["one", "two"]}) as sup:
        ref = await sup.start(spec)
        first = await ref.send("hello", key="k")
        again = await ref.send("hello", key="k")
        posted = ref.post("hello", key="k")
        await posted.wait_accepted()
        assert first.id == again.id == posted.id
        assert (await first.wait_report()).text == "one"
        late = await ref.send("hello", key="k")
        assert (await late.wait_report()).text == (await posted.wait_report()).text == "one"
        await ref.wait_idle()
        assert texts(await ref.transcript()) == ["<hello", ">one"]
    async with world.open({"a": ["never"]}, agents=[spec]) as sup:
        ref = await sup.find("a")
        later = await ref.send("hello", key="k")
        assert later.id == first.id
        assert (await later.wait_report()).text == "one"


async def test_acc_9_a_receipt_can_wait_at_any_time(world: World, autojump_clock: MockClock) -> None:
    """A reply is there for who waits before the message is consumed, while its turn runs, and when it is long over."""

    async def slow(_: object) -> str:
        await trio.sleep(5)
        return "the answer"

    async with world.open({"a": slow}) as sup:
        ref = await sup.start(agent())
        receipt = await ref.send("hello")
        got: list[str] = []

        async def wait() -> None:
            got.append((await receipt.wait_report()).text)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(2)
            assert receipt.state is ReceiptState.CONSUMED
            nursery.start_soon(wait)
        await wait()
        assert got == ["the answer"] * 3


async def test_acc_8_what_was_written_though_its_sender_was_told_it_failed_is_answered(
    world: World, autojump_clock: MockClock
) -> None:
    """The ambiguous failure: a message that the store accepted is answered, and what comes later stands behind it."""
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())

        async def after(one: ChangeSet) -> None:
            if enqueues("lost")(one):
                msg = "the line broke"
                raise Unavailable(msg)

        world.spy.after = after
        with pytest.raises(Unavailable):
            await ref.send("lost")
        await ref.send("next")
        await ref.wait_idle()
        await quiet()
        assert texts(await ref.transcript()) == ["<lost", ">ok", "<next", ">ok"]
