"""REE-3 and `wait_any`: only what is really waited for is refused, and all of that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import Hooks, UsageError, WaitCycle, call, tool
from actors.budget import Limits
from actors.models.script import hang
from supervisor import wait_any
from tests.supervisor.promises.world import agent, messages, texts, until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors import Context
    from actors.ports import ModelRequest
    from supervisor import AgentRef, Receipt
    from tests.supervisor.promises.world import World


def after_tool(text: str, name: str, **arguments: object) -> object:
    """Call a tool first, then answer."""
    return lambda request: call(name, **arguments) if request.window.responses == 0 else text


# -- what is there already -------------------------------------------------------------------------------------------


async def test_ree_3_a_reply_that_is_there_is_handed_out_even_round_a_ring(
    world: World, autojump_clock: MockClock
) -> None:
    """B answered a message and now waits for A; A's tool gets that answer, and only a reply still owed is refused."""
    kept: list[Receipt] = []
    got: list[object] = []
    waiting = trio.Event()

    @tool
    async def look(ctx: Context) -> str:
        """Read what is there."""
        await waiting.wait()
        got.append((await kept[0].wait_report()).text)
        try:
            await kept[1].wait_report()
        except WaitCycle:
            got.append("refused")
        _, report = await ctx.wait_any(kept[1], kept[0])
        got.append(report.text)
        return "looked"

    @tool
    async def wait_for_a(ctx: Context) -> str:
        """Wait for A."""
        asked = await ctx.send("a", "are you there?")
        waiting.set()
        return (await asked.wait_report()).text

    def b(request: ModelRequest) -> object:
        return {0: "first answer", 1: call("wait_for_a")}.get(request.window.responses, "second answer")

    async with world.open({"a": after_tool("done", "look"), "b": b}) as sup:
        first = await sup.start(agent("a", tools=[look]), "go")
        second = await sup.start(agent("b", tools=[wait_for_a]))
        kept.append(await second.send("one"))
        await kept[0].wait_report()
        kept.append(await second.send("two"))
        await first.wait_idle()
        await second.wait_idle()
        assert got == ["first answer", "refused", "first answer"]


# -- what ends whatever it waits for ---------------------------------------------------------------------------------


async def test_ree_3_a_turn_that_is_aborted_may_be_waited_for_by_whom_it_waited_for(
    world: World, autojump_clock: MockClock
) -> None:
    """B's deaf tool waits for A; A's tool aborts B and waits for that: B's turn waits for nobody any more."""
    order: list[str] = []

    @tool
    async def stop_b(ctx: Context) -> str:
        """Abort B, and see it done."""
        ref = ctx.ref("b")
        await until(lambda: order == ["asking"])
        with pytest.raises(WaitCycle):
            await ref.wait_aborted()  # nobody has aborted it: its turn would go on for ever
        await ref.abort("enough")
        with trio.fail_after(1):
            await ref.wait_aborted()
        order.append("unwound")
        return "stopped"

    @tool
    async def ask_a(ctx: Context) -> str:
        """Ask A, deaf."""
        with trio.CancelScope(shield=True):
            receipt = await ctx.send("a", "hello?")
            order.append("asking")
            await receipt.wait_report()
        return "x"

    async with world.open({"a": after_tool("done", "stop_b"), "b": after_tool("done", "ask_a")}) as sup:
        b = await sup.start(agent("b", tools=[ask_a]))
        a = await sup.start(agent("a", tools=[stop_b]), "go")
        await b.send("go")
        await a.wait_idle()
        assert order == ["asking", "unwound"], texts(await a.transcript())


async def test_ree_3_a_hook_that_an_abort_left_behind_refuses_nobody(world: World, autojump_clock: MockClock) -> None:
    """A's hook, deaf, still waits for B when its turn is long over: B may ask A, and both come to an end."""
    left: list[str] = []

    class Deaf(Hooks):
        """Asks B, once, whatever comes."""

        async def before_request(self, at: object) -> None:
            """Ask B."""
            if left:
                return
            left.append("asking")
            with trio.CancelScope(shield=True):
                left.append((await at.ref("b").ask("hello?")).text)  # type: ignore[attr-defined]

    @tool
    async def ask_a(ctx: Context) -> str:
        """Ask A."""
        await trio.sleep(5)
        return (await ctx.ask("a", "and you?")).text

    async with world.open({"a": lambda _: "a's answer", "b": after_tool("b's answer", "ask_a")}) as sup:
        b = await sup.start(agent("b", tools=[ask_a]))
        a = await sup.start(agent("a", hooks=Deaf()), "go")
        await until(lambda: left)
        await trio.sleep(1)
        await a.abort("enough")
        await a.wait_aborted()
        await b.wait_idle()
        assert "=ok:a's answer" in texts(await b.transcript())
        await until(lambda: len(left) == 2)
        assert left[1] == "b's answer"
        assert sup._parts.graph.statistics().open == 0


async def test_ree_3_a_tool_that_was_given_up_refuses_nobody_but_who_needs_its_resource(
    world: World, autojump_clock: MockClock
) -> None:
    """A's deaf tool waits for B for ever; A's next turn went on without it, so B may ask A.

    A call of A that needs the deaf call's resource waits for it: while it does, B's ask of A is refused.
    """
    release = trio.Event()
    became: list[str] = []

    @tool(resource=lambda: "disk")
    async def deaf(ctx: Context) -> str:
        """Ask B, once, whatever comes."""
        if became:
            became.append("ran")
            return "ran"
        became.append("asking")
        with trio.CancelScope(shield=True):
            await ctx.ask("b", "hello?")
        return "x"

    @tool
    async def ask_a(ctx: Context) -> str:
        """Ask A when told."""
        await release.wait()
        try:
            return (await ctx.ask("a", "and you?")).text
        except WaitCycle:
            became.append("refused")
            return "refused"

    def a(request: ModelRequest) -> object:
        last = texts(list(request.window))[-1]
        return call("deaf") if last in ("<go", "<again") else "a's answer"

    async with world.open({"a": a, "b": after_tool("b's answer", "ask_a")}) as sup:
        spec = agent("a", tools=[deaf], limits=Limits(hard_s=2))
        b, ref = await sup.start(agent("b", tools=[ask_a])), await sup.start(spec, "go")
        await trio.sleep(1)
        await ref.abort("enough")
        assert (await ref.ask("still there?")).text == "a's answer"
        again = await ref.send("again")
        await trio.sleep(1)
        release.set()
        await b.wait_idle()
        assert became == ["asking", "refused", "ran"][: len(became)]
        assert "refused" in became
        assert (await again.wait_report()).text == "a's answer"
        assert became == ["asking", "refused", "ran"]


async def test_ree_3_a_tool_that_was_given_up_does_not_keep_its_agent_from_being_asked(
    world: World, autojump_clock: MockClock
) -> None:
    """A's deaf tool waits for B for ever; A's next turn went on without it, so B may ask A, and is answered."""
    release = trio.Event()
    began: list[str] = []

    @tool
    async def deaf(ctx: Context) -> str:
        """Ask B, whatever comes."""
        began.append("asking")
        with trio.CancelScope(shield=True):
            await ctx.ask("b", "hello?")
        return "x"

    @tool
    async def ask_a(ctx: Context) -> str:
        """Ask A when told."""
        await release.wait()
        return (await ctx.ask("a", "and you?")).text

    def a(request: ModelRequest) -> object:
        return call("deaf") if not began else "a's answer"

    async with world.open({"a": a, "b": after_tool("b's answer", "ask_a")}) as sup:
        spec = agent("a", tools=[deaf], limits=Limits(hard_s=2))
        b, ref = await sup.start(agent("b", tools=[ask_a])), await sup.start(spec, "go")
        await trio.sleep(1)
        await ref.abort("enough")
        assert (await ref.ask("still there?")).text == "a's answer"
        release.set()
        await b.wait_idle()
        assert "=ok:a's answer" in texts(await b.transcript())


# -- asks that cross -------------------------------------------------------------------------------------------------


async def test_ree_2_of_two_asks_that_cross_one_is_refused_before_it_is_sent(
    world: World, autojump_clock: MockClock
) -> None:
    """A and B ask each other while both messages are being written: the second stands nowhere (BR-078)."""
    caught: list[str] = []
    both: list[str] = []

    @tool
    async def cross(ctx: Context) -> str:
        """Ask the other."""
        both.append(ctx.agent)
        await until(lambda: len(both) == 2)
        try:
            return (await ctx.ask("b" if ctx.agent == "a" else "a", f"from {ctx.agent}")).text
        except WaitCycle:
            caught.append(ctx.agent)
            return "refused"

    script = {name: after_tool("done", "cross") for name in "ab"}
    async with world.open(script) as sup:
        refs = [await sup.start(agent(name, tools=[cross]), "go") for name in "ab"]
        with trio.fail_after(10):
            for ref in refs:
                await ref.wait_idle()
        (refused,) = caught
        other = "b" if refused == "a" else "a"
        assert list(await messages(sup.store, other)) == ["go"], "the refused ask sent nothing"
        assert list(await messages(sup.store, refused)) == ["go", f"from {other}"]


# -- wait_any --------------------------------------------------------------------------------------------------------


async def test_ree_2_wait_any_ends_with_the_first_and_is_one_wait(world: World, autojump_clock: MockClock) -> None:
    """From outside and from a tool, over handles and receipts: whichever is first, in a loop until all have come."""
    order: list[str] = []

    async def at(seconds: float) -> str:
        await trio.sleep(seconds)
        return f"after {seconds:g}"

    @tool
    async def hand_out(ctx: Context) -> str:
        """Start three, and take them as they come."""
        kids = [await ctx.start(agent(f"k{s}"), "go") for s in (3, 1, 2)]
        while kids:
            kid, report = await ctx.wait_any(*kids)
            order.append(f"{kid.path} {report.text}")
            kids.remove(kid)
        return "all"

    script = {f"k{s}": (lambda _, s=s: at(s)) for s in (1, 2, 3)} | {"lead": after_tool("done", "hand_out")}
    async with world.open(script) as sup:
        ref = await sup.start(agent("lead", tools=[hand_out]), "go")
        await ref.wait_idle()
        assert order == ["lead/k1 after 1", "lead/k2 after 2", "lead/k3 after 3"]
        slow, fast = await sup.start(agent("k3")), await sup.start(agent("k1"))
        receipts = (await slow.send("x"), await fast.send("y"))
        first, report = await wait_any(*receipts)
        assert first is receipts[1]
        assert report.text == "after 1"
        which, report = await wait_any(slow, fast)
        assert which is fast, "what is there already comes first"
        with pytest.raises(UsageError, match="of one supervisor"):
            await wait_any()
        assert sup._parts.graph.statistics().open == 0
        assert not sup._parts.replies._messages
        assert not sup._parts.replies._runs


async def test_ree_2_wait_any_is_refused_only_where_all_are_stuck(world: World, autojump_clock: MockClock) -> None:
    """B and C wait for A. A's wait for any of B and D is let in and ended by D; for any of B and C it is refused."""
    became: list[str] = []

    @tool
    async def try_both(ctx: Context) -> str:
        """Wait for one way out, then for none."""
        b, c, d = ctx.ref("b"), ctx.ref("c"), ctx.ref("d")
        await trio.sleep(1)
        which, report = await ctx.wait_any(b, d)
        became.append(f"{which.path} {report.text}")
        try:
            with trio.fail_after(5):
                await ctx.wait_any(b, c)
        except WaitCycle as error:
            became.append("refused" if "waits for any of b, c, so for" in str(error) else str(error))
        return "tried"

    @tool
    async def ask_a(ctx: Context) -> str:
        """Wait for A."""
        return (await ctx.ask("a", "hello?")).text

    async def slow(_: object) -> str:
        await trio.sleep(5)
        return "d is done"

    asking = after_tool("done", "ask_a")
    async with world.open({"a": after_tool("done", "try_both"), "b": asking, "c": asking, "d": slow}) as sup:
        a = await sup.start(agent("a", tools=[try_both]), "go")
        for name in "bc":
            await sup.start(agent(name, tools=[ask_a]), "go")
        await sup.start(agent("d"), "go")
        await a.wait_idle()
        assert became == ["d d is done", "refused"]


async def test_ree_2_a_wait_that_was_let_in_as_any_refuses_who_would_close_its_last_way_out(
    world: World, autojump_clock: MockClock
) -> None:
    """A waits for any of B and C, and B waits for A; then C's ask of A is refused, and by C's end A goes on."""
    became: list[str] = []

    @tool
    async def either(ctx: Context) -> str:
        """Wait for one of two."""
        which, report = await ctx.wait_any(ctx.ref("b"), ctx.ref("c"))
        return f"{which.path}: {report.text}"

    @tool
    async def ask_a(ctx: Context) -> str:
        """Wait for A."""
        await trio.sleep(1 if ctx.agent == "b" else 2)
        try:
            return (await ctx.ask("a", "hello?")).text
        except WaitCycle:
            became.append(ctx.agent)
            return "refused"

    asking = after_tool("done", "ask_a")
    async with world.open({"a": after_tool("done", "either"), "b": asking, "c": asking}) as sup:
        for name in "bc":
            await sup.start(agent(name, tools=[ask_a]), "go")
        a = await sup.start(agent("a", tools=[either]), "go")
        with trio.fail_after(20):
            await a.wait_idle()
        assert became == ["c"]
        assert "=ok:c: done" in texts(await a.transcript())


async def test_a_cancelled_wait_leaves_nothing_behind(world: World, autojump_clock: MockClock) -> None:
    """A thousand waits that time out, of each kind: the tables and the graph are empty."""
    refs: list[AgentRef] = []
    async with world.open({"a": [hang()]}) as sup:
        refs.append(await sup.start(agent("a"), "go"))
        receipt = await refs[0].send("x")
        for _ in range(300):
            for wait in (refs[0].wait_report, receipt.wait_report, refs[0].wait_idle):
                with trio.move_on_after(0.01):
                    await wait()
        replies = sup._parts.replies
        assert not replies._messages
        assert not replies._runs
        assert not replies._conditions
        assert not replies._waiting
        await refs[0].abort("enough")
