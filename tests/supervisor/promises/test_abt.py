"""ABT: abort."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
import trio.lowlevel

from actors import Aborted, Child, Hooks, MessageHeld, RequestStarted, Steer, ToolStarted, TurnEnded, call, tool
from actors.changes import Claim, Enqueue
from actors.messages import Purpose, ReceiptState
from actors.models.script import hang
from actors.transcript import ResultRecord, problems
from tests.supervisor.promises.world import agent, check, has, messages, ops, quiet, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors import Context
    from actors.changes import AgentRow, ChangeSet
    from actors.ids import AgentId
    from tests.supervisor.promises.world import World


def aborts(one: ChangeSet) -> bool:
    """Whether a set makes an abort durable."""
    return has(one, Enqueue, lambda op: op.envelope.purpose is Purpose.ABORT)


class SlowOpening(Hooks):
    """Takes its time before a turn, and then wants to steer."""

    async def before_run(self, at: object) -> object:  # type: ignore[override]  # narrower
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return Steer("too late")


async def test_abt_1_abort_owns_the_turn_from_its_opening_hook_on(world: World, autojump_clock: MockClock) -> None:
    """Aborted while its first hook runs, a turn never reaches the model."""
    async with world.open({"a": ["never"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(hooks=SlowOpening()), "go")
        await trio.sleep(1)
        await ref.abort("changed my mind")
        await ref.wait_aborted()
        await ref.wait_idle()
        assert log.of(RequestStarted) == []
        assert log.statuses("a") == ["aborted"]


async def test_abt_1_aborted_at_every_moment_before_the_request(world: World, autojump_clock: MockClock) -> None:
    """An abort accepted before the request was sent, whatever the turn was doing, means that none is sent."""
    for step in range(12):
        async with world.open({f"a{step}": ["never"]}) as sup, watched(sup) as log:
            ref = await sup.start(agent(f"a{step}"))

            async def before(one: ChangeSet) -> None:
                if has(one, Claim) and not aborts(one):
                    await trio.sleep(1)

            world.spy.before = before
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ref.send, "go")
                for _ in range(step):
                    await trio.lowlevel.checkpoint()
                await ref.abort("enough")
                durable = len(log.of(RequestStarted))
            await trio.sleep(3)
            if durable == 0 and log.statuses(ref.path) == ["aborted"]:
                assert log.of(RequestStarted) == []


async def test_abt_2_the_requesting_form_returns_when_durable_the_waiting_form_when_unwound(
    world: World, autojump_clock: MockClock
) -> None:
    """`abort()` returns behind its commit, before the loop has unwound; `wait_aborted()` behind that."""

    class Slow(Hooks):
        async def after_turn(self, at: object, report: object) -> None:
            await trio.lowlevel.checkpoint()

    async with world.open({"a": [hang()]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(hooks=Slow()), "go")
        await trio.sleep(1)
        order: list[str] = []

        async def after(one: ChangeSet) -> None:
            if aborts(one):
                await trio.sleep(2)
                order.append("durable")

        async def before(one: ChangeSet) -> None:
            if has(one, Claim) and not aborts(one):
                await trio.sleep(3)  # the commit that ends the turn

        world.spy.after, world.spy.before = after, before
        await ref.abort("enough")
        order.append("abort returned")
        assert log.of(TurnEnded) == []
        await ref.wait_aborted()
        order.append("unwound")
        assert order == ["durable", "abort returned", "unwound"]
        assert log.statuses("a") == ["aborted"]
        report = await ref.wait_report()
        assert isinstance(report.error, Aborted)
        assert "enough" in str(report.error)


async def test_abt_3_started_calls_are_aborted_others_skipped_and_nobody_is_waited_for(
    world: World, autojump_clock: MockClock
) -> None:
    """A deaf tool holds no abort up: its call is settled as aborted at once, calls never started as skipped."""
    log: list[str] = []

    @tool(exclusive=True)
    async def deaf(name: str) -> str:
        """Notice nothing."""
        log.append(name)
        with trio.CancelScope(shield=True):
            await trio.sleep(50)
        return name

    async with world.open({"a": [[call("deaf", name="1"), call("deaf", name="2")]]}) as sup:
        ref = await sup.start(agent(tools=[deaf]), "go")
        await trio.sleep(1)
        began = trio.current_time()
        await ref.abort("enough")
        await ref.wait_aborted()
        assert trio.current_time() == began
        records = await ref.transcript()
        found = [record for record in records if isinstance(record, ResultRecord)]
        assert [record.status.value for record in found] == ["aborted", "skipped"]
        assert "may have taken effect" in texts(records)[2]
        assert problems(records) == []
        await trio.sleep(100)
        assert log == ["1"]


async def test_abt_3_a_call_that_had_returned_keeps_its_result(world: World, autojump_clock: MockClock) -> None:
    """What a call of the batch gave before the abort stands in the conversation."""

    @tool
    async def wait(seconds: float) -> str:
        """Wait."""
        await trio.sleep(seconds)
        return f"waited {seconds}"

    async with world.open({"a": [[call("wait", seconds=9), call("wait", seconds=1)]]}) as sup:
        ref = await sup.start(agent(tools=[wait]), "go")
        await trio.sleep(2)
        await ref.abort("enough")
        await ref.wait_idle()
        assert texts(await ref.transcript())[3] == "=ok:waited 1.0"


async def test_abt_3_a_result_that_the_turn_had_not_taken_in_yet_is_kept(
    world: World, autojump_clock: MockClock
) -> None:
    """What a call gave while the turn was writing another result stands, though the abort comes first."""

    @tool
    async def wait(seconds: float) -> str:
        """Wait."""
        await trio.sleep(seconds)
        return f"waited {seconds}"

    script = {"a": [[call("wait", seconds=9), call("wait", seconds=1), call("wait", seconds=2)]]}
    async with world.open(script) as sup:
        ref = await sup.start(agent(tools=[wait]), "go")
        await quiet()

        async def before(one: ChangeSet) -> None:
            if not aborts(one):
                await trio.sleep(3)

        world.spy.before = before
        await trio.sleep(2.5)  # the first result is being written, the second is there
        await ref.abort("enough")
        await ref.wait_idle()
        found = [text.split(":")[0] for text in texts(await ref.transcript()) if text.startswith("=")]
        assert found == ["=aborted", "=ok", "=ok"]


async def test_abt_4_messages_before_the_cut_off_are_held_and_join_the_next_turn(
    world: World, autojump_clock: MockClock
) -> None:
    """What was accepted before an abort is held, starts no turn, and comes along with the next one that is asked."""
    async with world.open({"a": [hang(), "one", "two", "three"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        held = await ref.send("before")
        await ref.abort("enough")
        await ref.wait_aborted()
        await quiet()
        assert held.state is ReceiptState.HELD
        assert [event.message for event in log.of(MessageHeld)] == [held.id]
        assert (await messages(sup.store, "a"))["before"] is ReceiptState.HELD
        assert ref.state == "held"
        assert log.statuses("a") == ["aborted"]
        await ref.wait_idle()  # held messages do not keep it
        await ref.send("after")
        await ref.wait_idle()
        assert texts(await ref.transcript())[-4:] == ["<before", ">one", "<after", ">two"]


async def test_abt_4_held_messages_are_released_by_wake_also_after_a_restart(
    world: World, autojump_clock: MockClock
) -> None:
    """`wake()` asks for the turn that held messages wait for; a restart alone does not."""
    spec = agent()
    async with world.open({"a": [hang()]}) as sup:
        ref = await sup.start(spec, "go")
        await trio.sleep(1)
        await ref.send("kept")
        await ref.abort("enough")
        await ref.wait_aborted()
    async with world.open({"a": ["unused", "answered"]}, agents=[spec]) as sup:
        assert await sup.resume() == ()
        ref = await sup.find("a")
        assert (await messages(sup.store, "a"))["kept"] is ReceiptState.HELD
        await ref.wake()
        await ref.wait_idle()
        assert texts(await ref.transcript())[-1] in (">answered", ">unused")
        assert (await messages(sup.store, "a"))["kept"] is ReceiptState.CONSUMED


def family() -> object:
    """A lead that waits for a child that waits for a grandchild; and a background child beside them."""
    leaf = agent("leaf")
    middle = agent("middle", children=[leaf])
    aside = agent("aside")
    return agent("lead", children=[middle, Child(aside, background=True)])


FAMILY = {
    "lead": [[call("middle", task="x"), call("aside", task="y")], "lead goes on"],
    "middle": [call("leaf", task="z"), "middle goes on"],
    "leaf": [hang()],
    "aside": [hang(), "aside goes on"],
}


async def test_abt_5_an_abort_takes_all_that_the_turn_waits_for(world: World, autojump_clock: MockClock) -> None:
    """Blocking children are aborted all the way down, in one commit; a background child goes on."""
    async with world.open(FAMILY) as sup, watched(sup) as log:
        ref = await sup.start(family(), "go")  # type: ignore[arg-type]  # an agent
        await trio.sleep(1)
        await ref.abort("enough")
        await quiet()
        (barrier,) = [one for one in world.spy.sets if aborts(one)]
        targets = {op.envelope.to for op in ops(barrier, Enqueue)}
        assert targets == {"lead", "lead/middle", "lead/middle/leaf"}
        assert {e.path: e.outcome.status.value for e in log.of(TurnEnded)} == dict.fromkeys(targets, "aborted")
        aside = await sup.find("lead/aside")
        assert aside.state == "running"
        await check(sup.store)
        requests = len(log.of(RequestStarted))
        await trio.sleep(30)
        assert len(log.of(RequestStarted)) == requests, "no agent below began a turn for it"


async def test_abt_5_subtree_takes_every_child_and_where_nothing_runs_nothing_changes(
    world: World, autojump_clock: MockClock
) -> None:
    """`subtree=True` takes children that nobody waits for, also below an agent that is idle.

    An abort of idle agents writes nothing.
    """
    kid = agent("kid")
    lead = agent("lead", children=[Child(kid, background=True)])
    script = {"lead": [call("kid", task="x"), "idle now", "told"], "kid": [hang(), "later"]}
    async with world.open(script) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        await ref.wait_idle()
        written = len(world.spy.sets)
        await ref.abort("only me")
        assert len(world.spy.sets) == written, "where nothing runs, nothing changes"
        assert (await sup.find("lead/kid")).state == "running"
        await ref.abort("all of you", subtree=True)
        await quiet()
        assert log.statuses("lead/kid") == ["aborted"]
        written = len(world.spy.sets)
        await ref.wait_idle()
        await ref.abort("again", subtree=True)
        assert len(world.spy.sets) == written


async def test_abt_5_acc_8_what_comes_below_the_barrier_is_answered_when_it_is_lifted(
    world: World, autojump_clock: MockClock
) -> None:
    """An idle agent below an aborted one begins no turn while the abort is being written, and then is not forgotten."""
    lead = agent("lead", children=[Child(agent("kid"), background=True)])
    script = {"lead": [call("kid", task="x"), "idle now", "told", hang()], "kid": ["done", "heard"]}
    async with world.open(script) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        await ref.wait_idle()
        kid = await sup.find("lead/kid")
        await ref.send("hang")
        await trio.sleep(1)
        under_way: list[str] = []

        async def before(one: ChangeSet) -> None:
            if aborts(one):
                await kid.send("hear me")
                await quiet()
                under_way.extend(log.statuses("lead/kid"))

        world.spy.before = before
        await ref.abort("enough")
        assert under_way == ["done"], "the message began no turn between the first signal and the last"
        with trio.fail_after(10):
            await kid.wait_idle()
        assert texts(await kid.transcript())[-2:] == ["<hear me", ">heard"]


async def test_abt_5_no_agent_is_started_below_a_barrier_that_came_up_meanwhile(
    world: World, autojump_clock: MockClock
) -> None:
    """A start that was still reading when the abort came starts nothing, though the abort is not written yet."""

    @tool
    async def begin(ctx: Context) -> str:
        """Start one."""
        return (await ctx.start(agent("late"), "go")).path

    async with world.open({"a": [call("begin"), hang()], "late": ["never asked"]}) as sup, watched(sup) as log:
        children = world.spy.children

        async def slow_children(parent: AgentId) -> tuple[AgentRow, ...]:
            await trio.sleep(5)
            return await children(parent)

        async def before(one: ChangeSet) -> None:
            if aborts(one):
                await trio.sleep(10)

        world.spy.children, world.spy.before = slow_children, before  # type: ignore[method-assign]  # on this one
        ref = await sup.start(agent(tools=[begin]), "go")
        await trio.sleep(1)
        await ref.abort("enough", subtree=True)
        await ref.wait_idle()
        assert await children(ref.path) == ()
        assert log.of(RequestStarted, "a/late") == []


class LateSteer(Hooks):
    """Answers a response too late."""

    async def after_response(self, at: object) -> object:  # type: ignore[override]  # narrower
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return Steer("a late answer")


async def test_abt_6_a_hooks_answer_behind_the_abort_is_dropped(world: World, autojump_clock: MockClock) -> None:
    """What a hook answers once its turn was aborted is not carried out."""
    async with world.open({"a": ["one", "two"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(hooks=LateSteer()), "go")
        await trio.sleep(1)
        await ref.abort("enough")
        await ref.wait_aborted()
        await trio.sleep(20)
        assert "a late answer" not in await messages(sup.store, "a")
        assert len(log.of(TurnEnded)) == 1
        assert log.of(ToolStarted) == []
