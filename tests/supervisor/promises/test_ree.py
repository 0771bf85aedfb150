"""REE: re-entrancy and cycles, in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from actors import AgentClosed, Child, WaitCycle, call, tool
from actors.messages import ReceiptState
from tests.supervisor.promises.world import agent, messages, quiet, texts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock

    from actors import Context
    from actors.ports import ModelRequest
    from supervisor import AgentRef, Receipt
    from tests.supervisor.promises.world import World


async def test_ree_1_requesting_is_always_allowed(world: World, autojump_clock: MockClock) -> None:
    """Inside its own turn a tool may send, steer, post, wake and close its own agent, and its parent: each returns."""
    done: list[str] = []

    @tool
    async def everything(ctx: Context) -> str:
        """Ask for everything."""
        with trio.fail_after(1):
            for path in (ctx.agent, "lead"):
                ref = ctx.ref(path)
                await ref.send(f"sent to {path}")
                await ref.steer(f"steered to {path}")
                ref.post(f"posted to {path}")
                await ref.wake()
                done.append(path)
            await ctx.ref(ctx.agent).close()
            done.append("closing")
        return "asked"

    kid = agent("kid", tools=[everything])
    lead = agent("lead", children=[kid])
    script = {"lead": lambda r: call("kid", task="x") if r.window.responses == 0 else "ok", "kid": _once("everything")}
    async with world.open(script) as sup:
        ref = await sup.start(lead, "go")
        report = await ref.wait_report()
        assert report.status == "done"
        assert done == ["lead/kid", "lead", "closing"]
        await (await sup.find("lead/kid")).wait_closed()
        found = await messages(sup.store, "lead/kid")
        assert all(state is ReceiptState.CONSUMED for state in found.values()), found


def _once(name: str, **arguments: object) -> Callable[[ModelRequest], object]:
    """Call a tool first, then answer."""
    return lambda request: call(name, **arguments) if request.window.responses == 0 else "ok"


async def test_ree_1_a_tool_may_ask_for_the_abort_of_its_own_turn(world: World, autojump_clock: MockClock) -> None:
    """The abort is durable when `abort()` returns inside the very turn; the turn then ends as aborted."""
    order: list[str] = []

    @tool
    async def stop(ctx: Context) -> str:
        """Stop."""
        with trio.CancelScope(shield=True):
            await ctx.ref(ctx.agent).abort("by itself")
            order.append("returned")
        await trio.sleep(5)
        order.append("never")
        return "x"

    async with world.open({"a": [call("stop")]}) as sup:
        ref = await sup.start(agent(tools=[stop]), "go")
        report = await ref.wait_report()
        assert report.status == "aborted"
        assert order == ["returned"]


async def test_ree_2_a_childs_question_completes_its_ancestors_wait(world: World, autojump_clock: MockClock) -> None:
    """The child's `ask` ends the parent's wait with the question.

    The parent's answer ends the child's `ask`, and the parent waits again for the same child.
    """
    answers: list[str] = []

    @tool
    async def consult(ctx: Context) -> str:
        """Ask above."""
        report = await ctx.ask("lead", "which colour?")
        answers.append(report.text)
        return report.text

    kid = agent("kid", tools=[consult])
    lead = agent("lead", children=[kid])
    script = {
        "lead": [call("kid", task="paint"), call("answer_kid", answer="blue"), "painted"],
        "kid": [call("consult"), "it is blue now"],
    }
    async with world.open(script) as sup:
        ref = await sup.start(lead, "go")
        report = await ref.wait_report()
        assert report.text == "painted"
        assert answers == ["blue"]
        found = texts(await ref.transcript())
        assert "which colour?" in found[2]
        assert found[4] == "=ok:it is blue now"
        assert sup._parts.graph.statistics().open == 0


async def test_ree_2_a_grandchilds_question_passes_through(world: World, autojump_clock: MockClock) -> None:
    """Asked by a grandchild over a waiting child's head, the root answers, and everybody ends."""

    @tool
    async def consult(ctx: Context) -> str:
        """Ask the root."""
        return (await ctx.ask("lead", "go on?")).text

    leaf = agent("leaf", tools=[consult])
    middle = agent("middle", children=[leaf])
    lead = agent("lead", children=[middle])
    script = {
        "lead": [call("middle", task="x"), call("answer_leaf", answer="yes"), "all done"],
        "middle": [call("leaf", task="y"), "middle done"],
        "leaf": [call("consult"), "leaf done"],
    }
    async with world.open(script) as sup:
        # the answer's tool is offered under the asker's name
        ref = await sup.start(lead, "go")
        report = await ref.wait_report()
        assert report.text == "all done", texts(await ref.transcript())


async def test_ree_2_a_question_left_open_ends_with_its_ancestors_turn(world: World, autojump_clock: MockClock) -> None:
    """A parent that ends its turn without answering leaves nobody hanging."""
    caught: list[BaseException] = []

    @tool
    async def consult(ctx: Context) -> str:
        """Ask above."""
        try:
            return (await ctx.ask("lead", "which?")).text
        except Exception as error:
            caught.append(error)
            raise

    kid = agent("kid", tools=[consult])
    lead = agent("lead", children=[kid])
    async with world.open(
        {"lead": [call("kid", task="x"), "I do not care"], "kid": [call("consult"), "so be it"]}
    ) as sup:
        ref = await sup.start(lead, "go")
        assert (await ref.wait_report()).text == "I do not care"
        await (await sup.find("lead/kid")).wait_idle()
        assert len(caught) == 1
        assert "without answering" in str(caught[0])


WAITS: dict[str, Callable[[AgentRef], Awaitable[object]]] = {
    "ask": lambda ref: ref.ask("please"),
    "wait_report": lambda ref: ref.wait_report(),
    "wait_idle": lambda ref: ref.wait_idle(),
    "wait_aborted": lambda ref: ref.wait_aborted(),
    "wait_closed": lambda ref: ref.wait_closed(),
}


@pytest.mark.parametrize("wait", WAITS)
async def test_ree_2_a_wait_for_oneself_is_refused_and_changes_nothing(
    world: World, autojump_clock: MockClock, wait: str
) -> None:
    """Each waiting form, for the agent's own turn: refused at once, with the path, naming the requesting form.

    Nothing was sent.
    """
    caught: list[WaitCycle] = []

    @tool
    async def loop(ctx: Context) -> str:
        """Wait for oneself."""
        try:
            with trio.fail_after(1):
                await WAITS[wait](ctx.ref(ctx.agent))
        except WaitCycle as error:
            caught.append(error)
        return "went on"

    async with world.open({"a": [call("loop"), "done"]}) as sup:
        ref = await sup.start(agent(tools=[loop]), "go")
        report = await ref.wait_report()
        assert report.text == "done"
        (error,) = caught
        assert "a (turn 1, tool loop)" in str(error)
        assert any(form in str(error) for form in ("send()", "abort()", "close()"))
        assert list(await messages(sup.store, "a")) == ["go"]
        assert sup._parts.graph.statistics().open == 0


async def test_ree_2_a_cycle_of_any_length_is_refused_with_its_whole_path(
    world: World, autojump_clock: MockClock
) -> None:
    """Three agents in a ring: the wait that would close it is refused, the others get their reports."""
    caught: list[WaitCycle] = []
    nexts = {"a": "b", "b": "c", "c": "a"}

    @tool
    async def ask_next(ctx: Context) -> str:
        """Ask the next in the ring."""
        try:
            return (await ctx.ask(nexts[ctx.agent], f"from {ctx.agent}")).text
        except WaitCycle as error:
            caught.append(error)
            return "refused"

    async with world.open(dict.fromkeys("abc", _once("ask_next"))) as sup:
        refs = [await sup.start(agent(name, tools=[ask_next])) for name in "abc"]
        await refs[0].send("go")
        with trio.fail_after(10):
            for ref in refs:
                await ref.wait_idle()
        (error,) = caught
        for name in "abc":
            assert f"{name} (turn 1, tool ask_next)" in str(error)
        assert error.path[0].startswith("c")
        assert error.path[-1] == "c"
        assert "send()" in str(error)
        assert list(await messages(sup.store, "a")) == ["go"], "nothing was sent by the refused ask"


async def test_ree_3_code_that_outlived_its_turn_is_not_refused_for_it(world: World, autojump_clock: MockClock) -> None:
    """A task that a tool left running in somebody else's nursery may wait for the agent: no turn waits for it."""
    got: list[str] = []

    async with trio.open_nursery() as outside, world.open({"a": lambda _: "ok"} | {"a": _once("leave")}) as sup:

        async def later(ref: AgentRef) -> None:
            await trio.sleep(5)
            got.append((await ref.ask("are you there?")).text)

        @tool
        async def leave(ctx: Context) -> str:
            """Leave a task behind."""
            outside.start_soon(later, ctx.ref(ctx.agent))
            return "left"

        ref = await sup.start(agent(tools=[leave]), "go")
        await ref.wait_idle()
        await trio.sleep(10)
        assert got == ["ok"]


async def test_ree_3_a_tool_left_behind_by_an_abort_still_counts(world: World, autojump_clock: MockClock) -> None:
    """The next request waits for it, so its wait for its own agent is refused."""
    caught: list[object] = []

    @tool
    async def deaf(ctx: Context) -> str:
        """Notice nothing, then ask oneself."""
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
            try:
                with trio.fail_after(1):
                    await ctx.ask(ctx.agent, "hello?")
            except (WaitCycle, trio.TooSlowError) as error:
                caught.append(type(error))
        return "x"

    async with world.open({"a": [call("deaf"), "on it goes"]}) as sup:
        ref = await sup.start(agent(tools=[deaf]), "go")
        await trio.sleep(1)
        await ref.abort("enough")
        await ref.send("on")
        await ref.wait_idle()
        assert caught == [WaitCycle]


async def test_ree_4_one_agents_turn_may_wait_for_anothers_and_reports_upward_are_safe(
    world: World, autojump_clock: MockClock
) -> None:
    """A tool waits for agents beside and below; a background child reports to a busy parent without waiting."""

    @tool
    async def consult(ctx: Context) -> str:
        """Ask another tree."""
        return (await ctx.ask("expert", "what is it?")).text

    kid = agent("kid")
    lead = agent("lead", tools=[consult], children=[Child(kid, background=True)])

    async def busy(_: ModelRequest) -> str:
        await trio.sleep(5)
        return "an answer"

    script = {"lead": [[call("kid", task="x"), call("consult")], "one", "two"], "kid": ["quick"], "expert": busy}
    async with world.open(script) as sup:
        await sup.start(agent("expert"))
        ref = await sup.start(lead, "go")
        await trio.sleep(1)
        assert (await sup.find("lead/kid")).state == "idle", "its report was accepted, and needed no loop"
        await ref.wait_idle()
        found = texts(await ref.transcript())
        assert "=ok:an answer" in found
        assert "quick" in found[-2]


async def test_ree_5_tasks_that_a_tool_starts_count_as_the_tool(world: World, autojump_clock: MockClock) -> None:
    """In a nursery of its own, a tool's task is refused a wait for the agent."""
    caught: list[type] = []

    @tool
    async def spread(ctx: Context) -> str:
        """Start tasks."""

        async def task() -> None:
            try:
                with trio.fail_after(1):
                    await ctx.ask(ctx.agent, "hello?")
            except (WaitCycle, trio.TooSlowError) as error:
                caught.append(type(error))

        async with trio.open_nursery() as nursery, trio.open_nursery() as inner:
            nursery.start_soon(task)
            inner.start_soon(task)
        return "x"

    async with world.open({"a": [call("spread"), "done"]}) as sup:
        ref = await sup.start(agent(tools=[spread]), "go")
        await ref.wait_idle()
        assert caught == [WaitCycle, WaitCycle]


async def test_ree_5_threads_that_a_tool_enters_through_trio_count_as_the_tool(world: World) -> None:
    """From a thread of the tool, back through Trio, a wait for the agent is refused.

    So it is from a sync tool, whose thread is Trio's own. On the real clock: threads know no other.
    """
    caught: list[type] = []

    async def try_it(ref: AgentRef) -> None:
        try:
            with trio.fail_after(5):
                await ref.ask("hello?")
        except (WaitCycle, trio.TooSlowError) as error:
            caught.append(type(error))

    @tool
    async def threaded(ctx: Context) -> str:
        """Go through a thread."""
        ref = ctx.ref(ctx.agent)
        await trio.to_thread.run_sync(lambda: trio.from_thread.run(try_it, ref))
        return "x"

    @tool
    def sync(ctx: Context) -> str:
        """Run in a thread."""
        trio.from_thread.run(try_it, ctx.ref(ctx.agent))
        return "x"

    async with world.open({"a": [call("threaded"), call("sync"), "done"]}, threads=True) as sup:
        ref = await sup.start(agent(tools=[threaded, sync]), "go")
        await ref.wait_idle()
        assert caught == [WaitCycle, WaitCycle]
        assert list(await messages(sup.store, "a")) == ["go"]


async def test_ree_1_requests_upward_from_a_closing_child(world: World, autojump_clock: MockClock) -> None:
    """A request that cannot be accepted is refused at once, and holds nobody up."""
    receipts: list[Receipt] = []

    @tool
    async def up(ctx: Context) -> str:
        """Send upward."""
        receipts.append(await ctx.send("lead", "news"))
        return "sent"

    kid = agent("kid", tools=[up])
    lead = agent("lead", children=[kid])
    script = {"lead": [call("kid", task="x"), "one", "two"], "kid": [call("up"), "done"]}
    async with world.open(script) as sup:
        ref = await sup.start(lead, "go")
        await ref.wait_idle()
        await quiet()
        assert receipts[0].state is ReceiptState.CONSUMED
        await ref.close()
        await ref.wait_closed()
        with pytest.raises(AgentClosed):
            await ref.ask("more")
