"""A message's time to live: what nobody consumes in time is dead, and is never seen by the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import DeadLettered, MessageDead, UsageError
from actors.changes import Claim
from actors.models.script import hang
from tests.supervisor.promises.world import agent, check, has, messages, ops, quiet, said, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from tests.supervisor.promises.world import World

from tests.supervisor.promises.mailkit import CONSUMED, DEAD, HELD, QUEUED, slow


async def test_ttl_a_message_that_nobody_consumed_in_time_is_dead(world: World, autojump_clock: MockClock) -> None:
    """It dies on time while the agent is busy, is never seen by the model, and who waits for it hears why."""
    async with world.open({"a": [hang(), "ok"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        start = trio.current_time()
        late = await ref.send("late", ttl=5)
        steered = await ref.steer("late too", ttl=7)
        kept = await ref.send("kept", ttl=1_000)
        with pytest.raises(DeadLettered, match="expired") as caught:
            await late.wait_report()
        assert trio.current_time() - start == pytest.approx(5, abs=0.1)
        assert caught.value.reason == "expired"
        with pytest.raises(DeadLettered):
            await steered.wait_report()
        assert trio.current_time() - start == pytest.approx(7, abs=0.1)
        assert (late.state, late.reason, steered.state, kept.state) == (DEAD, "expired", DEAD, QUEUED)
        with pytest.raises(DeadLettered):
            await late.wait_report()
        assert [event.reason for event in log.of(MessageDead)] == ["expired", "expired"]
        await ref.abort("enough")
        await ref.wait_aborted()
        await ref.wake()
        assert (await kept.wait_report()).text == "ok"
        assert [said(letter.content) for letter in await sup.dead_letters()] == ["late", "late too"]


async def test_ttl_one_that_is_consumed_in_time_lives(world: World, autojump_clock: MockClock) -> None:
    """What entered the conversation does not expire, however long its turn takes."""

    async def long(_: object) -> str:
        await trio.sleep(100)
        return "ok"

    async with world.open({"a": long}) as sup:
        ref = await sup.start(agent())
        receipt = await ref.send("hello", ttl=5)
        assert (await receipt.wait_report()).text == "ok"
        assert await sup.dead_letters() == ()


async def test_ttl_holds_over_a_restart(world: World, autojump_clock: MockClock) -> None:
    """The clock is the time of day: what ran out while no process was there is dead, and asks nobody."""
    spec = agent()
    async with world.open({"a": slow}) as sup:
        ref = await sup.start(spec)
        sup.suspend()
        await ref.send("late", ttl=50)
        kept = await ref.send("kept", ttl=500)
    await trio.sleep(100)
    async with world.open({"a": slow}, agents=[spec]) as sup:
        (ref,) = await sup.resume()
        assert (await (await sup.receipt(kept.id)).wait_report()).text == "re: kept"
        await ref.wait_idle()
        assert await messages(sup.store, "a") == {"late": DEAD, "kept": CONSUMED}
        assert texts(await ref.transcript()) == ["<kept", ">re: kept"]


async def test_ttl_an_agent_with_nothing_else_is_idle_when_it_is_dead(world: World, autojump_clock: MockClock) -> None:
    """Held or suspended, the death of its last message settles an agent: whoever waits for idleness goes on."""
    async with world.open({"a": slow}) as sup:
        ref = await sup.start(agent())
        sup.suspend()
        await ref.send("late", ttl=20)
        with trio.fail_after(30):
            await ref.wait_idle()
        assert trio.current_time() >= 20
        assert ref.statistics().mailbox.send == 0


async def test_ttl_a_held_message_expires(world: World, autojump_clock: MockClock) -> None:
    """An abort does not stop the clock."""
    async with world.open({"a": [hang()]}) as sup:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        held = await ref.send("late", ttl=20)
        await ref.abort("enough")
        await ref.wait_aborted()
        assert held.state is HELD
        await trio.sleep(25)
        assert held.state is DEAD


async def test_ttl_one_that_is_put_back_expires_no_more(world: World, autojump_clock: MockClock) -> None:
    """Whoever puts it back wants it answered, also after a restart."""
    spec = agent()
    async with world.open({"a": slow}) as sup:
        ref = await sup.start(spec)
        sup.suspend()
        late = await ref.send("late", ttl=20)
        await trio.sleep(25)
        assert late.state is DEAD
        await sup.put_back(late.id, by="an operator")
        assert late.state is QUEUED
        await trio.sleep(25)
        assert late.state is QUEUED
    async with world.open({"a": slow}, agents=[spec]) as sup:
        await sup.resume()
        assert (await (await sup.receipt(late.id)).wait_report()).text == "re: late"


async def test_ttl_a_death_that_cannot_be_written_is_tried_again(world: World, autojump_clock: MockClock) -> None:
    """Meanwhile no turn takes the message, and the agent owes it still (ACC-8)."""
    async with world.open({"a": slow}) as sup:
        ref = await sup.start(agent())
        sup.suspend()
        late = await ref.send("late", ttl=20)
        world.spy.refuse = lambda _: True
        await trio.sleep(25)
        assert late.state is QUEUED
        sup._parts.leaving = None
        sup._parts.kernel.actors[ref.path].wake()
        await quiet()
        assert texts(await ref.transcript()) == []
        world.spy.refuse = lambda _: False
        await trio.sleep(10)
        assert late.state is DEAD
        with trio.fail_after(1):
            await ref.wait_idle()


async def test_ttl_a_claim_that_meets_the_end_wins_or_loses_whole(world: World, autojump_clock: MockClock) -> None:
    """A message that expires while its claim is being written is consumed; one whose death came first is not."""
    async with world.open({"a": slow}) as sup:
        ref = await sup.start(agent())

        async def before(one: ChangeSet) -> None:
            if has(one, Claim):
                await trio.sleep(30)

        world.spy.before = before
        receipt = await ref.send("hello", ttl=20)
        await ref.wait_idle()
        texts_of = texts(await ref.transcript())
        assert receipt.state is (CONSUMED if texts_of else DEAD)
        claimed = [message for one in world.spy.sets for op in ops(one, Claim) for message in op.messages]
        assert (receipt.id in claimed) == (receipt.state is CONSUMED)
        await check(sup.store)


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf")])
async def test_ttl_is_a_time_to_come(memory: World, autojump_clock: MockClock, ttl: float) -> None:
    """Anything but a number of seconds above 0 is refused where it is written; nothing is sent."""
    async with memory.open({"a": slow}) as sup:
        ref = await sup.start(agent())
        with pytest.raises(UsageError, match="ttl"):
            await ref.send("hello", ttl=ttl)
        with pytest.raises(UsageError, match="ttl"):
            ref.post("hello", ttl=ttl)
        assert await messages(sup.store, "a") == {}
