"""The mailbox as its users meet it: receipts, keys, drain modes, interrupts, time to live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from actors import Context, DeadLettered, Hooks, LaneBound, Limits, MailboxFull, MessageDead, UsageError, call, tool
from actors.changes import Claim
from actors.messages import ReceiptState
from actors.models.script import hang
from actors.transcript import MessageRecord, ResultRecord, problems
from tests.supervisor.promises.world import agent, check, has, messages, ops, quiet, said, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from actors.ports import ModelRequest
    from tests.supervisor.promises.world import World

CONSUMED, QUEUED, HELD = ReceiptState.CONSUMED, ReceiptState.QUEUED, ReceiptState.HELD
DEAD, WITHDRAWN = ReceiptState.DEAD, ReceiptState.WITHDRAWN


async def slow(request: ModelRequest) -> str:
    """Answer after a second."""
    await trio.sleep(1)
    return f"re: {said(request.window[-1].content)}" if isinstance(request.window[-1], MessageRecord) else "ok"


# -- keys and receipts -----------------------------------------------------------------------------------------------


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


# -- drain modes -----------------------------------------------------------------------------------------------------


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


# -- held messages ---------------------------------------------------------------------------------------------------


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


# -- withdrawing -----------------------------------------------------------------------------------------------------


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


# -- interrupting ----------------------------------------------------------------------------------------------------


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


# -- time to live ----------------------------------------------------------------------------------------------------


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
