"""CLS: close."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import AgentClosed, AgentEnded, Child, ToolStarted, TurnStarted, WaitCycle, call, tool
from actors.changes import Intake, Shut
from actors.messages import ReceiptState
from actors.models.script import hang
from tests.supervisor.promises.world import agent, check, has, messages, ops, quiet, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors import Agent, Context
    from actors.ports import ModelRequest
    from supervisor import AgentRef
    from tests.supervisor.promises.world import World


async def slow(_: ModelRequest) -> str:
    """An answer that takes a second."""
    await trio.sleep(1)
    return "ok"


async def test_cls_1_close_is_a_barrier_and_all_callers_share_one_shutdown(
    world: World, autojump_clock: MockClock
) -> None:
    """The barrier is durable over the whole subtree when the first caller returns, later callers add nothing.

    And what was admitted is answered.
    """
    kid = agent("kid")
    lead = agent("lead", children=[Child(kid, background=True)])
    script = {"lead": [call("kid", task="x"), slow, slow, slow, slow], "kid": [slow]}
    async with world.open(script) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        await trio.sleep(0.5)
        receipt = await ref.send("admitted")
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ref.close)
        barriers = [one for one in world.spy.sets if has(one, Shut, lambda op: op.to is Intake.CLOSING)]
        assert len(barriers) == 1
        assert {op.agent for op in ops(barriers[0], Shut)} == {"lead", "lead/kid"}
        for path in ("lead", "lead/kid"):
            with pytest.raises(AgentClosed):
                await (await sup.find(path)).send("late")
        assert (await receipt.wait_report()).text == "ok"
        await ref.wait_closed()
        await ref.wait_closed()
        await ref.close()
        await quiet()
        assert sorted(event.path for event in log.of(AgentEnded)) == ["lead", "lead/kid"]
        assert ref.state == "closed"


async def test_cls_2_what_was_accepted_is_answered_running_calls_finished(
    world: World, autojump_clock: MockClock
) -> None:
    """Within the grace a running call ends, its turn answers, and queued messages are answered too."""

    @tool
    async def work() -> str:
        """Work."""
        await trio.sleep(5)
        return "worked"

    async with world.open({"a": [call("work"), "one", "two"]}) as sup:
        ref = await sup.start(agent(tools=[work]), "1")
        await ref.send("2")
        await trio.sleep(1)
        await ref.close(grace=20)
        await ref.wait_closed()
        assert texts(await ref.transcript()) == ["<1", "> work()", "=ok:worked", ">one", "<2", ">two"]
        assert await sup.store.agents_with_work() == ()


async def test_cls_2_a_tool_that_waits_for_its_own_close_is_refused(world: World, autojump_clock: MockClock) -> None:
    """A tool may ask for the close of its agent, not wait for it: none can hold a close up."""
    caught: list[WaitCycle] = []

    @tool
    async def close_me(ctx: Context) -> str:
        """Close."""
        me = ctx.ref(ctx.agent)
        await me.close()
        try:
            await me.wait_closed()
        except WaitCycle as error:
            caught.append(error)
        return "asked"

    async with world.open({"a": [call("close_me"), "bye"]}) as sup:
        ref = await sup.start(agent(tools=[close_me]), "go")
        report = await ref.wait_report()
        assert report.text == "bye"
        await ref.wait_closed()
        assert "close()" in str(caught[0])


async def test_cls_2_what_could_not_be_answered_is_a_dead_letter(world: World, autojump_clock: MockClock) -> None:
    """Past the grace the rest is dead (`agent_closed`), whoever waits hears it, and a restart owes nothing."""
    spec = agent()
    async with world.open({"a": [hang()]}, hard=1) as sup:
        ref = await sup.start(spec, "1")
        receipt = await ref.send("2")
        await trio.sleep(1)
        await ref.close(grace=3)
        report = await receipt.wait_report()
        assert (report.status, "the grace period is over" in str(report.error)) == ("aborted", True)
        await ref.wait_closed()
        assert (await messages(sup.store, "a"))["2"] is ReceiptState.DEAD
        view = await sup.store.message_state(receipt.id)
        assert view is not None
        assert view.reason == "agent_closed"
        with pytest.raises(AgentClosed):
            await receipt.wait_report()
        await check(sup.store)
    async with world.open({"a": ["never"]}, agents=[spec]) as sup:
        assert await sup.resume() == ()


async def test_cls_2_a_turn_that_stopped_halfway_is_settled_by_a_close(world: World, autojump_clock: MockClock) -> None:
    """An agent that the store's failure suspended in the middle of a batch is closed on a valid conversation."""

    @tool
    async def work() -> str:
        """Work."""
        await trio.sleep(2)
        return "worked"

    spec = agent(tools=[work])
    async with world.open({"a": [call("work")]}) as sup:
        ref = await sup.start(spec, "go")
        await trio.sleep(1)
        world.spy.refuse = lambda _: True
        await trio.sleep(2)
        assert ref.state == "suspended"
        world.spy.refuse = lambda _: False
        await ref.close()
        await ref.wait_closed()
        assert (await sup.tree())[0].open is None
        assert texts(await ref.transcript())[2].startswith("=unknown")
        await check(sup.store)
    async with world.open({"a": ["never"]}, agents=[spec]) as sup:
        assert await sup.resume() == ()


async def test_cls_3_leaves_first_and_a_closing_childs_report_lands_in_its_parent(
    world: World, autojump_clock: MockClock
) -> None:
    """A background child that answers during the close is heard by its closing parent; then leaves end first."""
    kid = agent("kid")
    lead = agent("lead", children=[Child(kid, background=True)])

    async def late(_: ModelRequest) -> str:
        await trio.sleep(5)
        return "late but there"

    script = {"lead": [call("kid", task="x"), "waiting", "heard it"], "kid": [late]}
    async with world.open(script) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        await trio.sleep(1)
        await ref.close(grace=20)
        await ref.wait_closed()
        found = texts(await ref.transcript())
        assert "late but there" in found[-2]
        assert found[-1] == ">heard it"
        assert [event.path for event in log.of(AgentEnded)] == ["lead/kid", "lead"]


async def test_cls_4_past_the_grace_abort_past_hard_a_kill_and_what_still_runs_is_named(
    world: World, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tool that ignores everything is aborted at the grace; the close ends in bounded time.

    On leaving, it is named with where it is stuck.
    """

    @tool
    async def deaf() -> str:
        """Notice nothing."""
        with trio.CancelScope(shield=True):
            await trio.sleep(500)
        return "x"

    async with world.open({"a": [call("deaf")]}, hard=2, grace=1) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[deaf]), "go")
        await trio.sleep(1)
        began = trio.current_time()
        await ref.close(grace=3)
        await ref.wait_closed()
        assert trio.current_time() - began <= 5
        assert log.statuses("a") == ["aborted"]
        await check(sup.store)
    told = capsys.readouterr().err
    assert "deaf" in told
    assert "test_cls.py" in told


async def test_cls_4_a_kill_ends_at_once_and_leaves_a_valid_store(world: World, autojump_clock: MockClock) -> None:
    """A kill waits for nothing; its open turn is settled, and no later owner goes on with it."""
    kid = agent("kid")
    lead = agent("lead", children=[kid])
    async with world.open({"lead": [call("kid", task="x")], "kid": [hang()]}) as sup:
        ref = await sup.start(lead, "go")
        queued = await ref.send("queued")
        await trio.sleep(1)
        began = trio.current_time()
        await ref.kill("now")
        await ref.wait_closed()
        assert trio.current_time() - began < 0.5
        with pytest.raises(AgentClosed):
            await queued.wait_report()
        await check(sup.store)
        assert await sup.store.agents_with_work() == ()
        for row in await sup.tree():
            assert row.open is None, row
    async with world.open({"lead": ["never"], "kid": ["never"]}, agents=[lead]) as sup:
        assert await sup.resume() == ()
        with pytest.raises(AgentClosed):
            await (await sup.find("lead")).send("hello")


async def test_cls_4_a_kill_cuts_a_close_short(world: World, autojump_clock: MockClock) -> None:
    """A kill of an agent that is being closed does not wait for the grace, and there is one shutdown."""
    async with world.open({"a": [hang()]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        await ref.close(grace=1000)
        began = trio.current_time()
        await ref.kill("no patience")
        await ref.wait_closed()
        assert trio.current_time() - began < 1
        assert len(log.of(AgentEnded)) == 1


async def test_cls_1_a_close_reaches_agents_that_are_not_in_memory(world: World, autojump_clock: MockClock) -> None:
    """Closed by a process that never touched the children, these are closed too."""
    kid = agent("kid")
    lead = agent("lead", children=[kid])
    async with world.open({"lead": [call("kid", task="x"), "done"], "kid": ["fine"]}) as sup:
        await (await sup.start(lead, "go")).wait_idle()
    async with world.open({"lead": [], "kid": []}, agents=[lead]) as sup:
        ref = await sup.find("lead")
        await ref.close()
        await ref.wait_closed()
        with pytest.raises(AgentClosed):
            await (await sup.find("lead/kid")).send("late")


async def test_cls_5_suspended_turns_stop_at_their_next_commit_and_the_next_owner_goes_on(
    world: World, autojump_clock: MockClock
) -> None:
    """Left with a store, what is queued stays queued, running calls finish, and the next supervisor ends the work."""
    ran: list[str] = []
    other: list[AgentRef] = []

    @tool(effect="once")
    async def work() -> str:
        """Work."""
        ran.append("+")
        await trio.sleep(2)
        ran.append("-")
        await other[0].send("meanwhile")
        return "worked"

    spec: Agent = agent(tools=[work])
    async with world.open({"a": [call("work"), "never here"], "b": ["never"]}) as sup, watched(sup) as log:
        ref = await sup.start(spec, "1")
        other.append(await sup.start(agent("b")))
        await ref.send("2")
        await trio.sleep(1)
        began = trio.current_time()
    assert trio.current_time() - began <= 1.1
    assert ran == ["+", "-"]
    assert log.of(TurnStarted, "b") == [], "while it is left no turn begins"
    async with world.open({"a": ["?", "one", "two"], "b": ["heard"]}, agents=[spec, agent("b")]) as sup:
        assert (await messages(sup.store, "a"))["2"] is ReceiptState.QUEUED
        assert [found.path for found in await sup.resume()] == ["a", "b"]
        ref = await sup.find("a")
        await ref.wait_idle()
        assert texts(await ref.transcript()) == ["<1", "> work()", "=ok:worked", ">one", "<2", ">two"]
        assert ran == ["+", "-"]


async def test_cls_5_finish_ends_the_turns_under_way(world: World, autojump_clock: MockClock) -> None:
    """`on_exit="finish"`: a turn under way ends within the grace; what stays queued is not begun."""
    async with world.open({"a": slow}, on_exit="finish") as sup:
        ref = await sup.start(agent(), "1")
        await ref.send("2")
        await trio.sleep(0.5)
    async with world.store() as store:
        assert texts(await store.read_records(ref.path)) == ["<1", ">ok"]
        assert (await messages(store, "a"))["2"] is ReceiptState.QUEUED
        await check(store)


async def test_cls_5_close_on_exit_closes_all(world: World, autojump_clock: MockClock) -> None:
    """`on_exit="close"`: everything accepted is answered and every agent is closed."""
    async with world.open({"a": slow}, on_exit="close") as sup:
        ref = await sup.start(agent(), "1")
        await ref.send("2")
    async with world.store() as store:
        assert texts(await store.read_records(ref.path)) == ["<1", ">ok", "<2", ">ok"]
        stored = await store.load_agent(ref.path)
        assert stored is not None
        assert stored.intake is Intake.CLOSED


async def test_cls_5_an_exception_in_the_body_suspends_at_once(world: World, autojump_clock: MockClock) -> None:
    """The body's exception comes out unwrapped, nothing waits for the grace, the store owes the work."""
    spec = agent()
    with pytest.raises(KeyError):  # noqa: PT012 - the raise is what is tested
        async with world.open({"a": [hang()]}, grace=100) as sup, watched(sup) as log:
            await sup.start(spec, "1")
            await trio.sleep(1)
            began = trio.current_time()
            raise KeyError("the body")
    assert trio.current_time() - began < 1
    assert log.of(ToolStarted) == []
    async with world.open({"a": ["?", "answered"]}, agents=[spec]) as sup:
        (ref,) = await sup.resume()
        await ref.wait_idle()
        assert texts(await ref.transcript())[0] == "<1"
        await check(sup.store)
