"""The mailbox as its users meet it: receipts, keys, drain modes, interrupts, time to live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from actors import Context, LaneBound, Limits, MailboxFull, UsageError, call, tool
from actors.models.script import hang
from tests.supervisor.promises.world import agent, check, messages, quiet, said, texts

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from tests.supervisor.promises.world import World

from tests.supervisor.promises.mailkit import CONSUMED, HELD, QUEUED, WITHDRAWN, slow

# -- keys and receipts -------------------------------------------------------------------------------------------------


async def test_acc_7_a_second_acceptance_under_a_key_returns_the_first_receipt(
    world: World, autojump_clock: MockClock
) -> None:
    """Whoever tries again with a key has the first receipt and is answered once; another body is refused."""
    async with world.open({"a": slow}) as sup:
        ref = await sup.start(agent())
        for way, name in ((ref.send, "1"), (ref.steer, "2")):
            first = await way(name, key=name)
            assert await way(name, key=name) is first
            assert (await first.wait_report()).text == f"re: {name}"
            assert await way(name, key=name) is first
            with pytest.raises(UsageError, match="key"):
                await way("something else", key=name)
        posted = ref.post("3", key="3")
        again = ref.post("3", key="3")
        await again.wait_accepted()
        assert again.id == posted.id
        assert (await again.wait_report()).text == (await posted.wait_report()).text == "re: 3"
        assert list(await messages(sup.store, "a")) == ["1", "2", "3"]


async def test_acc_7_a_key_holds_over_a_restart(world: World, autojump_clock: MockClock) -> None:
    """A client that missed the answer to its send tries again with the next process: it is executed once (BR-018)."""
    spec = agent()
    async with world.open({"a": slow}) as sup:
        ref = await sup.start(spec)
        first = await ref.send("once", key="k", ttl=1_000)
        await first.wait_report()
    async with world.open({"a": slow}, agents=[spec]) as sup:
        again = await (await sup.find("a")).send("once", key="k", ttl=1_000)
        assert again.id == first.id
        assert (await again.wait_report()).text == "re: once"
        assert texts(await (await sup.find("a")).transcript()) == ["<once", ">re: once"]


async def test_acc_9_a_receipt_is_handed_out_again_and_waits(world: World, autojump_clock: MockClock) -> None:
    """By its id alone, in the same process and after a restart, before the answer and long after it."""
    spec = agent()
    async with world.open({"a": slow}) as sup:
        ref = await sup.start(spec)
        first = await ref.send("one")
        assert await sup.receipt(first.id) is first
        await first.wait_report()
        assert first.turn == "a:t1"
        sup.suspend()
        second = await ref.send("two")
        third = await ref.send("three")
        await third.withdraw()
        with pytest.raises(UsageError, match="no message"):
            await sup.receipt("m-nobody")
    async with world.open({"a": slow}, agents=[spec]) as sup:
        old = await sup.receipt(first.id)
        assert (old.state, old.path, old.turn) == (CONSUMED, "a", "a:t1")
        assert (await old.wait_report()).text == "re: one"
        waiting = await sup.receipt(second.id)
        assert waiting.state is QUEUED
        gone = await sup.receipt(third.id)
        assert gone.state is WITHDRAWN
        with pytest.raises(UsageError, match="withdrawn"):
            await gone.wait_report()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waiting.wait_report)
            await quiet()
            await sup.resume()
        assert waiting.state is CONSUMED
        assert (await waiting.wait_report()).text == "re: two"
        assert not await waiting.withdraw()


async def test_acc_9_a_receipt_of_a_turn_that_was_cut_off_waits(world: World, autojump_clock: MockClock) -> None:
    """A message whose turn was under way when the process ended has its reply from the turn that goes on."""
    spec = agent()
    async with world.open({"a": [hang()]}, grace=1) as sup:
        ref = await sup.start(spec)
        receipt = await ref.send("one")
        await trio.sleep(1)
        assert receipt.state is CONSUMED
    async with world.open({"a": slow}, agents=[spec]) as sup:
        again = await sup.receipt(receipt.id)
        assert again.state is CONSUMED
        async with trio.open_nursery() as nursery:
            nursery.start_soon(again.wait_report)
            await sup.resume()
        assert (await again.wait_report()).text == "re: one"


async def test_acc_6_one_agent_takes_at_most_its_share_of_a_lane(world: World, autojump_clock: MockClock) -> None:
    """An agent that floods another leaves places to the rest; the refusal says what to do."""
    full: list[MailboxFull] = []

    @tool
    async def flood(ctx: Context) -> str:
        """Send and send."""
        try:
            for number in range(10):
                await ctx.send("b", f"flood {number}")
        except MailboxFull as error:
            full.append(error)
        return "done"

    async with world.open({"a": [call("flood"), "ok"], "b": [hang()]}) as sup:
        ref = await sup.start(agent("b", limits=Limits(send=LaneBound(messages=6))), "go")
        await quiet()
        await sup.run(agent("a", tools=[flood]), "go")
        assert len(full) == 1
        assert "at most 3 messages of one agent" in str(full[0])
        assert ref.statistics().mailbox.send == 3
        await ref.send_many(["1", "2", "3"])
        with pytest.raises(MailboxFull, match="wait until"):
            await ref.send("4")


# -- drain modes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steer", ["one", "all"])
@pytest.mark.parametrize("send", ["one", "all"])
async def test_con_2_each_lane_in_each_mode(world: World, autojump_clock: MockClock, steer: str, send: str) -> None:
    """Steering first, one or all at each boundary; then sends, one or all for each turn; nothing twice, none left."""
    async with world.open({"a": slow}) as sup:
        ref = await sup.start(agent(drain={"steer": steer, "send": send}), "go")
        await trio.sleep(0.5)
        await ref.send_many(["m1", "m2"])
        await ref.steer("s1")
        await ref.steer("s2")
        await ref.wait_idle()
        steers = ["<s1", "<s2", ">re: s2"] if steer == "all" else ["<s1", ">re: s1", "<s2", ">re: s2"]
        sends = ["<m1", "<m2", ">re: m2"] if send == "all" else ["<m1", ">re: m1", "<m2", ">re: m2"]
        assert texts(await ref.transcript()) == ["<go", ">re: go", *steers, *sends]


@attrs.frozen
class Number:
    """A typed answer."""

    value: int


async def test_con_2_a_message_that_owes_a_type_is_taken_alone(world: World, autojump_clock: MockClock) -> None:
    """Whatever the mode, one answer owes one type: it opens a turn of its own, in its place in the order."""

    def answer(request: ModelRequest) -> str:
        return '{"value": 7}' if request.output is not None else "text"

    async with world.open({"a": answer}) as sup:
        ref = await sup.start(agent(drain={"send": "all"}))
        sup.suspend()
        receipts = [
            await ref.send("1"),
            await ref.send("2"),
            await ref.send("typed", output=Number),
            await ref.send("3"),
            await ref.send("4"),
        ]
        sup._parts.leaving = None
        await ref.wake()
        reports = [await receipt.wait_report() for receipt in receipts]
        assert [report.output for report in reports] == [None, None, Number(7), None, None]
        assert [receipt.turn for receipt in receipts] == ["a:t1", "a:t1", "a:t2", "a:t3", "a:t3"]


# -- held messages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["wake", "send", "steer"])
async def test_abt_4_what_an_abort_holds_is_answered_after_a_wake_or_a_later_message(
    world: World, autojump_clock: MockClock, way: str
) -> None:
    """Held messages ask for no turn; whatever asks for one takes them along, in order, steering first."""

    def model(request: ModelRequest) -> object:
        text = said(request.window[-1].content)  # type: ignore[union-attr]  # it is a message
        return hang() if text == "go" else f"re: {text}"

    async with world.open({"a": model}) as sup:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        held = [await ref.send("h1"), await ref.send("h2")]
        await ref.abort("enough")
        await ref.wait_aborted()
        assert [receipt.state for receipt in held] == [HELD, HELD]
        await ref.wait_idle()
        assert ref.state == "held"
        if way == "wake":
            await ref.wake()
        else:
            held.append(await getattr(ref, way)("later"))
        reports = [await receipt.wait_report() for receipt in held]
        assert [report.text for report in reports] == ["re: h1", "re: h2", "re: later"][: len(held)]
        await ref.wait_idle()
        asked = [text for text in texts(await ref.transcript()) if text.startswith("<")]
        order = {"wake": [], "send": ["<later"], "steer": ["<later"]}[way]
        assert asked == (["<go", *order, "<h1", "<h2"] if way == "steer" else ["<go", "<h1", "<h2", *order])
        await check(sup.store)


async def test_abt_4_held_messages_stay_held_over_a_restart(world: World, autojump_clock: MockClock) -> None:
    """No restart wakes what an abort put to rest; `wake()` does."""
    spec = agent()
    async with world.open({"a": [hang()]}) as sup:
        ref = await sup.start(spec, "go")
        await trio.sleep(1)
        held = await ref.send("h")
        await ref.abort("enough")
        await ref.wait_aborted()
    async with world.open({"a": slow}, agents=[spec]) as sup:
        assert await sup.resume() == ()
        receipt = await sup.receipt(held.id)
        assert receipt.state is HELD
        await (await sup.find("a")).wake()
        assert (await receipt.wait_report()).text == "re: h"


# -- withdrawing -------------------------------------------------------------------------------------------------------


async def test_con_3_a_withdrawal_at_every_moment_has_one_end(world: World, autojump_clock: MockClock) -> None:
    """However a withdrawal and the claim meet, the message is either answered, or taken back and never seen."""
    ends = set()
    for moment in range(25):
        name = f"a{moment}"
        async with world.open({name: lambda _: "ok"}) as sup:
            ref = await sup.start(agent(name))
            receipt = await ref.send("hello")
            for _ in range(moment):
                await trio.lowlevel.checkpoint()
            taken = await receipt.withdraw()
            await ref.wait_idle()
            ends.add(taken)
            assert receipt.state is (WITHDRAWN if taken else CONSUMED)
            assert texts(await ref.transcript()) == ([] if taken else ["<hello", ">ok"])
            assert not await receipt.withdraw()
            (row,) = [row for row in await sup.tree() if row.agent == name]
            assert (row.owes, row.open) == (False, None)
    assert ends == {True, False}


async def test_con_3_who_waits_for_idleness_hears_of_a_withdrawal(world: World, autojump_clock: MockClock) -> None:
    """Where the last message that an agent could not begin with is taken back, nothing is owed any more (BR-074)."""
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())
        sup.suspend()
        receipt = await ref.send("hello")
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ref.wait_idle)
                await quiet()
                assert await receipt.withdraw()


async def test_con_3_a_held_message_can_be_withdrawn(world: World, autojump_clock: MockClock) -> None:
    """What an abort holds is its sender's still."""
    async with world.open({"a": [hang(), "ok"]}) as sup:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        held = await ref.send("h")
        await ref.abort("enough")
        await ref.wait_aborted()
        assert await held.withdraw()
        await (await ref.send("next")).wait_report()
        assert "<h" not in texts(await ref.transcript())
