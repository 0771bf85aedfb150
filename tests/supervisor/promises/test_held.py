"""Messages that an abort holds, that expire, or that are withdrawn, beside what else happens to their agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import AgentClosed, DeadLettered, Hooks, TurnEnded, TurnStarted, call, tool
from actors.messages import ReceiptState
from actors.models.script import hang
from tests.supervisor.promises.world import agent, check, messages, quiet, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors import Context
    from tests.supervisor.promises.world import World


class Slow(Hooks):
    """Takes ten seconds before a turn."""

    async def before_turn(self, at: object) -> None:
        await trio.sleep(10)


async def test_trn_4_a_turn_whose_message_is_withdrawn_while_its_hook_runs_ends(
    world: World, autojump_clock: MockClock
) -> None:
    """It was told that it began: it ends once, as aborted, and whoever waits for the run hears it."""
    async with world.open({"a": ["answered"]}) as sup, watched(sup) as log, trio.open_nursery() as nursery:
        ref = await sup.start(agent(hooks=Slow()))
        receipt = await ref.send("never mind")
        told: list[object] = []

        async def wait() -> None:
            told.append(await ref.wait_report())

        nursery.start_soon(wait)
        await trio.sleep(1)
        assert await receipt.withdraw()
        await ref.wait_idle()
        await quiet()
        assert [str(report.status) for report in told] == ["aborted"]  # type: ignore[attr-defined]  # reports
        await ref.send("go")
        assert (await ref.wait_report()).text == "answered"
        assert [e.turn for e in log.of(TurnStarted)] == [e.turn for e in log.of(TurnEnded)] == [1, 2]
        await check(sup.store)


@pytest.mark.parametrize("how", ["withdrawn", "expired"])
async def test_a_wait_for_a_run_that_will_not_be_ends(world: World, autojump_clock: MockClock, how: str) -> None:
    """Its only message is withdrawn, or expires, before any turn: a tool that waits for the report is told so."""

    @tool
    async def look(ctx: Context) -> str:
        """Wait for another's report."""
        return (await ctx.ref("a").wait_report()).text

    async with world.open({"a": ["never"], "lead": [call("look"), "saw"]}) as sup:
        ref = await sup.start(agent())
        await ref.pause()
        await quiet()
        receipt = await ref.send("one", ttl=10 if how == "expired" else None)
        lead = await sup.start(agent("lead", tools=[look]), "go")
        await quiet()
        if how == "withdrawn":
            assert await receipt.withdraw()
        await trio.sleep(20)
        assert (await lead.wait_report()).text == "saw"
        assert "withdrawn, or has expired" in texts(await lead.transcript())[2]


async def test_abt_4_a_wake_while_the_abort_unwinds_is_no_part_of_it(world: World, autojump_clock: MockClock) -> None:
    """Held messages that are woken before the turn has ended are answered by the next one; so their sender hears."""
    async with world.open({"a": [hang(), "one", "two"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        receipts = await ref.send_many(["first", "second"])
        await ref.abort("enough")
        await ref.wake()
        assert [(await receipt.wait_report()).text for receipt in receipts] == ["one", "two"]
        assert log.statuses("a") == ["aborted", "done", "done"]
        await check(sup.store)


async def test_abt_4_a_wake_during_the_turn_that_took_the_held_ones_changes_nothing(
    world: World, autojump_clock: MockClock
) -> None:
    """They joined it when it began; each is answered once."""
    async with world.open({"a": [hang(), "one", hang(), "three"]}) as sup:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        held = await ref.send("held")
        await ref.abort("enough")
        await ref.wait_aborted()
        await ref.send("after")
        await trio.sleep(1)
        await ref.wake()
        await trio.sleep(1)
        assert held.state is ReceiptState.CONSUMED
        assert texts(await ref.transcript())[-3:] == ["<held", ">one", "<after"]
        await check(sup.store)


async def test_abt_4_a_held_message_expires_and_is_dead_not_woken(world: World, autojump_clock: MockClock) -> None:
    """Nothing waits for it: the agent stays idle, its receipt says so, and a wake later asks for no turn."""
    async with world.open({"a": [hang(), "never"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        held = await ref.send("held", ttl=60)
        kept = await ref.send("kept", ttl=600)
        await ref.abort("enough")
        await ref.wait_aborted()
        await ref.wait_idle()
        assert ref.state == "held"
        await trio.sleep(100)
        assert held.state is ReceiptState.DEAD
        with pytest.raises(DeadLettered, match="expired"):
            await held.wait_report()
        assert kept.state is ReceiptState.HELD
        await trio.sleep(600)
        assert await messages(sup.store, "a") == {
            "go": ReceiptState.CONSUMED,
            "held": ReceiptState.DEAD,
            "kept": ReceiptState.DEAD,
            "abort": ReceiptState.CONSUMED,
        }
        await ref.wake()
        await ref.wait_idle()
        assert log.statuses("a") == ["aborted"]
        assert ref.state == "idle"
        await check(sup.store)


async def test_cls_2_a_message_that_expires_during_a_close_is_dead_of_that(
    world: World, autojump_clock: MockClock
) -> None:
    """The close waits for no dead one; what it could not answer itself died of the close."""
    async with world.open({"a": [hang()]}, hard=1) as sup:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        mortal = await ref.send("mortal", ttl=5)
        other = await ref.send("other", ttl=50)
        began = trio.current_time()
        await ref.close(grace=10)
        await ref.wait_closed()
        assert trio.current_time() - began < 12
        assert [(letter.message, letter.reason) for letter in await sup.dead_letters()] == [
            (mortal.id, "expired"),
            (other.id, "agent_closed"),
        ]
        with pytest.raises(DeadLettered):
            await mortal.wait_report()
        with pytest.raises(AgentClosed):
            await other.wait_report()
        await trio.sleep(100)
        assert [letter.reason for letter in await sup.dead_letters()] == ["expired", "agent_closed"]
        await check(sup.store)


async def test_cls_2_held_messages_of_a_closing_agent_are_dead_letters(world: World, autojump_clock: MockClock) -> None:
    """A close waits for nobody's wake: what an abort holds dies with its agent, at once."""
    async with world.open({"a": [hang()]}) as sup:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        held = await ref.send("held")
        await ref.abort("enough")
        await ref.wait_idle()
        began = trio.current_time()
        await ref.close(grace=100)
        await ref.wait_closed()
        assert trio.current_time() - began < 1
        assert held.state is ReceiptState.DEAD
        with pytest.raises(AgentClosed):
            await held.wait_report()
        await check(sup.store)
