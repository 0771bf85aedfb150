"""CON-6: messages whose turn crashes again and again; dead letters, and the way back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from actors import (
    AgentClosed,
    AgentCrashed,
    Child,
    Crashed,
    LaneBound,
    Limits,
    MessageDead,
    MessagePutBack,
    UsageError,
    call,
    tool,
)
from actors.changes import Append, CallRow, Put
from actors.messages import ReceiptState
from actors.transcript import MessageRecord, ResponseRecord, problems
from tests.supervisor.promises.world import agent, check, has, messages, ops, quiet, said, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from supervisor import Supervisor
    from tests.supervisor.promises.world import World

CONSUMED, QUEUED, DEAD = ReceiptState.CONSUMED, ReceiptState.QUEUED, ReceiptState.DEAD


@attrs.define(eq=False)
class Bug:
    """A bug of the loop that some messages meet: the commit of the answer to one of these ends in an exception.

    Attributes:
        words: of the messages. times: how often each turn met it. left: how often it still happens, or None.
    """

    words: tuple[str, ...]
    left: int | None = None
    times: Counter[str] = attrs.field(factory=Counter)
    entered: dict[str, set[str]] = attrs.field(factory=dict)

    async def __call__(self, one: ChangeSet) -> None:
        """Look at a commit before it is written."""
        for append in ops(one, Append):
            for record in append.records:
                if isinstance(record, MessageRecord):
                    self.entered.setdefault(record.turn, set()).add(said(record.content))
                elif isinstance(record, ResponseRecord):
                    self.meet(record.turn)

    def meet(self, turn: str) -> None:
        """A turn commits an answer."""
        if self.left != 0 and any(word in text for text in self.entered.get(turn, ()) for word in self.words):
            self.times[turn] += 1
            self.left = None if self.left is None else self.left - 1
            msg = "a bug"
            raise RuntimeError(msg)


async def letters(sup: Supervisor) -> list[tuple[str, str]]:
    """Whom each dead letter was for, and what it says."""
    return [(one.agent, said(one.content)) for one in await sup.dead_letters()]


async def test_con_6_the_third_crash_in_a_row_sends_the_message_to_the_dead_letters(
    world: World, autojump_clock: MockClock
) -> None:
    """Two crashes are gone on from; the third ends the turn: a dead receipt, a failed report, and the next message."""
    async with world.open({"a": lambda _: "ok"}) as sup, watched(sup) as log:
        ref = await sup.start(agent())
        world.spy.before = bug = Bug(("poison",))
        bad = await ref.send("poison")
        good = await ref.send("good")
        report = await bad.wait_report()
        assert report.status == "failed"
        assert isinstance(report.error, Crashed)
        assert "crashed 3 times in a row" in str(report.error)
        assert (await good.wait_report()).text == "ok"
        assert bug.times == {"a:t1": 3}
        assert len(log.of(AgentCrashed)) == 3
        assert bad.state is DEAD
        assert [event.message for event in log.of(MessageDead)] == [bad.id]
        assert await messages(sup.store, "a") == {"poison": DEAD, "good": CONSUMED}
        (letter,) = await sup.dead_letters()
        assert (letter.message, letter.agent) == (bad.id, "a")
        assert letter.at == pytest.approx(trio.current_time(), abs=1)
        assert letter.reason.startswith("poison")
        assert letter.reason == bad.reason
        records = await ref.transcript()
        assert problems(records) == []
        assert "given up" in texts(records)[0]
        assert texts(records)[1:] == ["<good", ">ok"], "what breaks whoever reads it is in no later request (CON-4)"
        again = await bad.wait_report()
        assert again.status == "failed"


async def test_con_6_two_crashes_and_then_it_works(world: World, autojump_clock: MockClock) -> None:
    """A crash that passes costs nothing but time: the message is answered, once."""
    async with world.open({"a": lambda _: "ok"}) as sup, watched(sup) as log:
        ref = await sup.start(agent())
        world.spy.before = Bug(("poison",), left=2)
        receipt = await ref.send("poison")
        assert (await receipt.wait_report()).text == "ok"
        assert len(log.of(AgentCrashed)) == 2
        assert texts(await ref.transcript()) == ["<poison", ">ok"]
        assert await sup.dead_letters() == ()
        (row,) = await sup.tree()
        assert (row.open, row.owes, row.singly) == (None, False, ())


async def test_con_6_crashes_in_a_row_are_counted_over_restarts(world: World, autojump_clock: MockClock) -> None:
    """Three processes that die in the same turn are three crashes; the fourth gives the turn up and goes on."""
    spec = agent()

    def answers(one: ChangeSet) -> bool:
        return any(isinstance(record, ResponseRecord) for op in ops(one, Append) for record in op.records)

    receipts = []
    for process in range(3):
        async with world.open({"a": lambda _: "ok"}, agents=[spec]) as sup:
            if process == 0:
                ref = await sup.start(spec)
                receipts = [await ref.send("poison"), await ref.send("good")]
            else:
                await sup.resume()
            world.spy.refuse = answers  # and with this, the process is gone: nothing is written any more
            await quiet()
            world.spy.refuse = lambda _: True
            assert await messages(sup.store, "a") == {"poison": CONSUMED, "good": QUEUED}
    async with world.open({"a": lambda _: "ok"}, agents=[spec]) as sup:
        (ref,) = await sup.resume()
        good = await sup.receipt(receipts[1].id)
        assert (await good.wait_report()).text == "ok"
        bad = await sup.receipt(receipts[0].id)
        assert bad.state is DEAD
        assert (await bad.wait_report()).status == "failed"
        assert await letters(sup) == [("a", "poison")]


async def test_con_6_leaving_in_order_is_no_crash(world: World, autojump_clock: MockClock) -> None:
    """A turn that is left in order, or cut off at the end of the grace, may be gone on with as often as one likes."""

    async def slow(_: object) -> str:
        await trio.sleep(1_000)
        return "ok"

    spec = agent()
    async with world.open({"a": slow}, grace=1) as sup:
        await sup.start(spec, "go")
        await trio.sleep(1)
    for _ in range(4):
        async with world.open({"a": slow}, agents=[spec], grace=1) as sup:
            await sup.resume()
            await trio.sleep(1)
    async with world.open({"a": ["ok"]}, agents=[spec]) as sup:
        (ref,) = await sup.resume()
        assert (await ref.wait_report()).text == "ok"
        assert await sup.dead_letters() == ()


async def test_con_6_the_last_try_takes_several_messages_one_by_one(world: World, autojump_clock: MockClock) -> None:
    """Of three that were taken together only the one at fault is dead; the others are answered, in order."""
    spec = agent(drain={"send": "all"})
    async with world.open({"a": lambda _: "ok"}) as sup, watched(sup) as log:
        ref = await sup.start(spec)
        world.spy.before = bug = Bug(("poison",))
        receipts = await ref.send_many(["one", "poison", "three"])
        reports = [await receipt.wait_report() for receipt in receipts]
        assert [report.status.value for report in reports] == ["done", "failed", "done"]
        assert list(bug.times.values()) == [2, 1], "twice together, and once alone"
        assert await messages(sup.store, "a") == {"one": CONSUMED, "poison": DEAD, "three": CONSUMED}
        assert [receipt.state for receipt in receipts] == [CONSUMED, DEAD, CONSUMED]
        assert len(log.of(AgentCrashed)) == 3
        records = await ref.transcript()
        assert problems(records) == []
        asked = [text for text in texts(records) if text.startswith("<")]
        assert asked == ["<one", "<three"], "each stands where it was answered, and once"
        await check(sup.store)
        assert (await sup.tree())[0].singly == ()
        await ref.send("after")
        await ref.send("that")
        await ref.wait_idle()
        assert await letters(sup) == [("a", "poison")]


async def test_con_6_taken_apart_survives_a_restart(world: World, autojump_clock: MockClock) -> None:
    """That messages are on their last try, alone, is durable."""
    spec = agent(drain={"send": "all"})
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(spec)
        world.spy.before = bug = Bug(("poison",))
        ids = [receipt.id for receipt in await ref.send_many(["one", "poison", "three"])]

        async def after(_: ChangeSet) -> None:
            if (await sup.tree())[0].singly:
                world.spy.refuse = lambda _: True  # the process is gone

        world.spy.after = after
        await quiet(50)
        assert list(bug.times.values()) == [2]
        assert await messages(sup.store, "a") == dict.fromkeys(("one", "poison", "three"), QUEUED)
    async with world.open({"a": lambda _: "ok"}, agents=[spec]) as sup:
        world.spy.before = bug
        await sup.resume()
        found = [await (await sup.receipt(message)).wait_report() for message in ids]
        assert [report.status.value for report in found] == ["done", "failed", "done"]
        assert list(bug.times.values()) == [2, 1]


async def test_con_6_nothing_joins_a_last_try(world: World, autojump_clock: MockClock) -> None:
    """What is steered into a turn on its last try waits for the next one, and does not die with it."""
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())
        bug = Bug(("poison",))
        steered: list[object] = []

        async def before(one: ChangeSet) -> None:
            if sum(bug.times.values()) == 2 and not steered:
                steered.append(None)
                steered[0] = await ref.steer("mind the gap", interrupt=True)
            await bug(one)

        world.spy.before = before
        bad = await ref.send("poison")
        assert (await bad.wait_report()).status == "failed"
        await ref.wait_idle()
        assert await messages(sup.store, "a") == {"poison": DEAD, "mind the gap": CONSUMED}


async def test_con_6_calls_of_a_turn_that_is_given_up_are_paired(world: World, autojump_clock: MockClock) -> None:
    """Its open calls have results, those that had started say that they may have taken effect."""
    ran: list[str] = []

    @tool
    async def act() -> str:
        """Act."""
        ran.append("act")
        await trio.sleep(1)
        return "acted"

    @tool(effect="pure", exclusive=True)
    async def look() -> str:
        """Look."""
        ran.append("look")
        await trio.sleep(1)
        return "looked"

    spec = agent(tools=[act, look], limits=Limits(poison_limit=2))
    script = {"a": lambda request: "ok" if said(request.window[-1].content) == "next" else [call("look"), call("act")]}
    crashes = 0
    async with world.open(script) as sup:
        ref = await sup.start(spec)

        async def before(one: ChangeSet) -> None:
            nonlocal crashes
            settles = [put for put in ops(one, Put) if isinstance(put.row, CallRow) and put.row.result is not None]
            if settles and crashes < 2:
                crashes += 1
                msg = "a bug"
                raise RuntimeError(msg)

        world.spy.before = before
        receipt = await ref.send("go")
        assert (await receipt.wait_report()).status == "failed"
        assert crashes == 2
        world.spy.before = _nothing
        assert (await (await ref.send("next")).wait_report()).text == "ok"
        records = await ref.transcript()
        assert problems(records) == []
        results = [text for text in texts(records) if text.startswith("=")]
        assert results[0].startswith("=aborted:The host crashed")
        assert results[1].startswith("=skipped:")
        assert ran == ["look", "look"], "a pure call runs again, once for each crash but the last"


async def _nothing(_: object) -> None:
    """Nothing stands between."""


async def test_con_6_a_blocking_parent_gets_a_failed_report(world: World, autojump_clock: MockClock) -> None:
    """The call of the child ends with an error result that says why, and the parent goes on."""
    kid = agent("kid")
    lead = agent("lead", children=[kid])
    script = {"lead": [call("kid", task="poison"), "went on"], "kid": lambda _: "ok"}
    async with world.open(script) as sup:
        world.spy.before = Bug(("poison",))
        report = await sup.run(lead, "go")
        assert report.text == "went on"
        records = await (await sup.find("lead")).transcript()
        (result,) = [text for text in texts(records) if text.startswith("=")]
        assert result.startswith("=error:")
        assert "crashed 3 times" in result
        assert await letters(sup) == [("lead/kid", "poison")]
        assert await sup.dead_letters("lead") == await sup.dead_letters()
        assert await sup.dead_letters("lead/kid") == await sup.dead_letters()
        assert await sup.dead_letters("other") == ()


async def test_con_6_a_background_childs_parent_is_told_by_message(world: World, autojump_clock: MockClock) -> None:
    """The report stands on its reserved place, though the lane is full."""
    kid = agent("kid")
    lead = agent("lead", children=[Child(kid, background=True)], limits=Limits(send=LaneBound(messages=1)))
    script = {"lead": lambda r: "ok" if r.window.responses else call("kid", task="poison"), "kid": lambda _: "ok"}
    async with world.open(script) as sup:
        world.spy.before = Bug(("poison",))
        ref = await sup.start(lead, "go")
        await quiet(60)
        await ref.wait_idle()
        asked = [text for text in texts(await ref.transcript()) if "Report of lead/kid (failed" in text]
        assert len(asked) == 1
        assert "crashed 3 times" in asked[0]


async def test_con_6_a_dead_letter_is_put_back(world: World, autojump_clock: MockClock) -> None:
    """It is answered, receipts of it live again, who put it back is on record; what is no dead letter is refused."""
    async with world.open({"a": lambda _: "ok"}) as sup, watched(sup) as log:
        ref = await sup.start(agent())
        world.spy.before = Bug(("poison",), left=3)
        bad = await ref.send("poison")
        await bad.wait_report()
        assert bad.state is DEAD
        with pytest.raises(UsageError, match="no dead letter"):
            await sup.put_back("m-nobody", by="an operator")
        again = await sup.put_back(bad.id, by="an operator")
        assert again.id == bad.id
        assert bad.state in (QUEUED, CONSUMED)
        assert (await bad.wait_report()).text == "ok"
        assert (await again.wait_report()).text == "ok"
        assert bad.state is again.state is CONSUMED
        assert await sup.dead_letters() == ()
        assert texts(await ref.transcript())[1:] == ["<poison", ">ok"], "it stands once"
        await check(sup.store)
        (event,) = log.of(MessagePutBack)
        assert (event.message, event.by) == (bad.id, "an operator")
        assert event.reason.startswith("poison")
        with pytest.raises(UsageError, match="consumed"):
            await sup.put_back(bad.id, by="an operator")


async def test_con_6_a_dead_letter_is_put_back_after_a_restart(world: World, autojump_clock: MockClock) -> None:
    """Dead letters outlive the process, and the way back does not need their sender."""
    spec = agent()
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(spec)
        world.spy.before = Bug(("poison",))
        await (await ref.send("poison")).wait_report()
    async with world.open({"a": lambda _: "ok"}, agents=[spec]) as sup:
        assert await sup.resume() == ()
        (letter,) = await sup.dead_letters()
        receipt = await sup.put_back(letter.message, by="an operator")
        assert (await receipt.wait_report()).text == "ok"
        assert await sup.dead_letters() == ()


async def test_con_6_a_closed_agents_letters_stay_dead(world: World, autojump_clock: MockClock) -> None:
    """What a close could not answer is listed; there is nobody any more to put it back for."""

    async def slow(_: object) -> str:
        await trio.sleep(1_000)
        return "ok"

    async with world.open({"a": slow}, hard=1) as sup:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        late = await ref.send("late")
        await ref.close(grace=1)
        await ref.wait_closed()
        (letter,) = await sup.dead_letters()
        assert (letter.message, letter.reason) == (late.id, "agent_closed")
        with pytest.raises(AgentClosed):
            await late.wait_report()
        with pytest.raises(AgentClosed):
            await sup.put_back(late.id, by="an operator")
        assert late.state is DEAD


async def test_con_6_a_loop_that_crashes_before_it_took_anything_stops(world: World, autojump_clock: MockClock) -> None:
    """Where no message is at fault the agent is suspended after a bounded number of crashes; its messages stay."""
    spec = agent()
    async with world.open({"a": lambda _: "ok"}) as sup, watched(sup) as log:
        ref = await sup.start(spec)

        async def before(one: ChangeSet) -> None:
            if has(one, Append):
                msg = "a bug"
                raise RuntimeError(msg)

        world.spy.before = before
        receipt = await ref.send("hello")
        with pytest.raises(Crashed):
            await receipt.wait_report()
        assert len(log.of(AgentCrashed)) == 4
        assert ref.state == "suspended"
        assert await messages(sup.store, "a") == {"hello": QUEUED}
        world.spy.before = _nothing
        await sup.resume()
        assert (await receipt.wait_report()).text == "ok"


async def test_con_6_a_crash_keeps_no_place_at_the_model(world: World, autojump_clock: MockClock) -> None:
    """What a request was admitted with is given back when its claim meets a bug: the next try does not wait for it."""
    async with world.open({"a": lambda _: "ok"}, permits=1) as sup, watched(sup) as log:
        ref = await sup.start(agent())

        async def before(one: ChangeSet) -> None:
            if has(one, Append) and len(log.of(AgentCrashed)) < 2:
                msg = "a bug"
                raise RuntimeError(msg)

        world.spy.before = before
        with trio.fail_after(60):
            assert (await ref.ask("hello")).text == "ok"
        assert len(log.of(AgentCrashed)) == 2
