"""CON: consuming a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from actors import Drain, Hooks, TurnStarted, call, tool
from actors.changes import AgentRow, Append, Claim, Put
from actors.messages import ReceiptState
from actors.transcript import MessageRecord
from tests.supervisor.promises.world import agent, check, has, messages, ops, quiet, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from actors.ports import ModelRequest
    from supervisor import Receipt
    from tests.supervisor.promises.world import World


@tool(effect="pure")
async def nap(seconds: float = 1.0) -> str:
    """Sleep a while."""
    await trio.sleep(seconds)
    return f"slept {seconds}"


async def test_con_1_steering_enters_at_the_next_boundary_a_send_when_nothing_is_owed(
    world: World, autojump_clock: MockClock
) -> None:
    """Steering enters behind the batch and before the next request; a send only behind the answer; steering first."""
    script = {"a": [call("nap"), call("nap"), "answer", "to the send"]}
    async with world.open(script) as sup:
        ref = await sup.start(agent(tools=[nap]), "go")
        await trio.sleep(0.5)
        await ref.send("a send")
        await ref.steer("a steer")
        await ref.wait_idle()
        assert texts(await ref.transcript()) == [
            "<go",
            "> nap()",
            "=ok:slept 1.0",
            "<a steer",
            "> nap()",
            "=ok:slept 1.0",
            ">answer",
            "<a send",
            ">to the send",
        ]


async def test_con_1_steering_during_the_last_response_is_answered_before_the_turn_ends(
    world: World, autojump_clock: MockClock
) -> None:
    """A steer that comes while the answer is streamed joins the same turn; a send waits for the next."""

    async def slow(request: ModelRequest) -> str:
        await trio.sleep(1)
        return f"answer {request.window.responses + 1}"

    async with world.open({"b": slow}) as sup, watched(sup) as log:
        ref = await sup.start(agent("b"), "go")
        await trio.sleep(0.5)
        await ref.send("a send")
        await ref.steer("a steer")
        await ref.wait_idle()
        assert texts(await ref.transcript()) == ["<go", ">answer 1", "<a steer", ">answer 2", "<a send", ">answer 3"]
        assert len(log.of(TurnStarted, "b")) == 2


async def test_con_2_each_lane_drains_one_or_all_as_set(world: World, autojump_clock: MockClock) -> None:
    """By default steers enter together and sends one by one; a setting per lane turns each round."""

    async def slow(_: ModelRequest) -> str:
        await trio.sleep(1)
        return "ok"

    async with world.open({"a": slow, "b": slow}) as sup:
        for spec, order in (
            (agent("a"), ["<s1", "<s2", ">ok", "<m1", ">ok", "<m2", ">ok"]),
            (agent("b", drain=Drain(steer="one", send="all")), ["<s1", ">ok", "<s2", ">ok", "<m1", "<m2", ">ok"]),
        ):
            ref = await sup.start(spec, "go")
            await trio.sleep(0.5)
            await ref.send_many(["m1", "m2"])
            await ref.steer("s1")
            await ref.steer("s2")
            await ref.wait_idle()
            assert texts(await ref.transcript())[2:] == order


async def test_con_3_a_message_is_claimed_inside_its_commit_and_once(world: World, autojump_clock: MockClock) -> None:
    """Every message that entered was claimed by the very set that appended it, once; a lost claim changes nothing."""
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())
        for text in ("1", "2", "3"):
            await ref.send(text)
        await ref.wait_idle()
        claimed: list[str] = []
        for one in world.spy.sets:
            entered = [r.message for op in ops(one, Append) for r in op.records if isinstance(r, MessageRecord)]
            assert entered == [message for op in ops(one, Claim) for message in op.messages]
            claimed += entered
        assert len(claimed) == len(set(claimed)) == 3


async def test_con_3_a_message_withdrawn_under_the_claim_is_answered_by_nobody(
    world: World, autojump_clock: MockClock
) -> None:
    """The claim of a message that was withdrawn meanwhile fails whole; the turn takes what is there instead."""
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())
        receipts: list[Receipt] = []

        async def before(one: ChangeSet) -> None:
            if has(one, Claim) and receipts and receipts[0].state is ReceiptState.QUEUED:
                assert await receipts[0].withdraw()

        world.spy.before = before
        receipts += await ref.send_many(["gone", "stays"])
        await ref.wait_idle()
        assert texts(await ref.transcript()) == ["<stays", ">ok"]
        assert await messages(sup.store, "a") == {"gone": ReceiptState.WITHDRAWN, "stays": ReceiptState.CONSUMED}


async def test_con_4_leaving_entering_and_the_owed_request_are_one_commit(
    world: World, autojump_clock: MockClock
) -> None:
    """The claim, the record, and the row that owes the request stand in one set.

    No commit leaves a message in two places or none; memory changes behind it.
    """
    async with world.open({"a": ["one", "two"]}) as sup:
        ref = await sup.start(agent())
        lanes: list[int] = []

        async def after(one: ChangeSet) -> None:
            await check(sup.store)
            if has(one, Claim):
                lanes.append(ref.statistics().mailbox.send)

        world.spy.after = after
        await ref.send("first")
        await ref.wait_idle()
        await ref.steer("second")
        await ref.wait_idle()
        for one in world.spy.with_op(Claim):
            (row,) = [put.row for put in ops(one, Put) if isinstance(put.row, AgentRow)]
            assert ops(one, Append)
            assert row.owes
            assert row.open is not None
            assert row.open.asking
        assert len(world.spy.with_op(Claim)) == 2
        assert lanes[0] == 1, "memory changes after the commit"


async def test_con_4_a_failed_claim_leaves_the_message_where_it_was(world: World, autojump_clock: MockClock) -> None:
    """A claim that cannot be written leaves the message queued and out of the conversation."""
    spec = agent()
    async with world.open({"a": ["ok"]}) as sup:
        ref = await sup.start(spec)
        world.spy.refuse = lambda one: has(one, Claim)
        await ref.send("hello")
        await quiet()
        assert await messages(sup.store, "a") == {"hello": ReceiptState.QUEUED}
        assert await ref.transcript() == ()
        await check(sup.store)
    async with world.open({"a": ["ok"]}, agents=[spec]) as sup:
        (ref,) = await sup.resume()
        await ref.wait_idle()
        assert texts(await ref.transcript()) == ["<hello", ">ok"]


class Counts(Hooks):
    """Counts turns and settlings."""

    def __init__(self) -> None:
        self.turns = 0
        self.settlings = 0

    async def before_turn(self, at: object) -> None:
        self.turns += 1

    async def settled(self, at: object) -> None:
        self.settlings += 1


async def test_con_5_no_empty_turn_for_work_that_was_consumed(world: World, autojump_clock: MockClock) -> None:
    """Steering that a running turn consumed raises no turn of its own, and no spare set of hooks."""
    hooks = Counts()
    async with world.open({"a": [call("nap"), "answer"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[nap], hooks=hooks), "go")
        await trio.sleep(0.5)
        await ref.steer("1")
        await ref.steer("2")
        await ref.wait_idle()
        await quiet()
        assert len(log.of(TurnStarted, "a")) == 1
        assert (hooks.turns, hooks.settlings) == (1, 1)
        row = (await sup.tree())[0]
        assert (row.turns, row.owes, row.open) == (1, False, None)


async def test_con_5_a_withdrawn_message_leaves_no_turn_behind(world: World, autojump_clock: MockClock) -> None:
    """Where the work is gone before the turn took it, no request is made and nothing is owed."""
    async with world.open({"a": lambda _: "never"}) as sup, watched(sup) as log:
        ref = await sup.start(agent())
        receipts: list[Receipt] = []

        async def before(one: ChangeSet) -> None:
            if has(one, Claim) and receipts[0].state is ReceiptState.QUEUED:
                await receipts[0].withdraw()

        world.spy.before = before
        receipts.append(await ref.send("gone"))
        await ref.wait_idle()
        row = (await sup.tree())[0]
        assert (row.owes, row.open) == (False, None)
        assert not [event for event in log.events if type(event).__name__ == "RequestStarted"]
