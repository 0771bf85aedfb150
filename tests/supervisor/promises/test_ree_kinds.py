"""REE-1, REE-5: every kind of wait, from every place whose code an agent's loop waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest
import trio

from actors import Hooks, WaitCycle, call, tool
from supervisor import wait_any
from supervisor.store.memory import open_memory_store
from tests.supervisor.promises.world import EVERY_STATE, agent, messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock

    from actors import Context
    from supervisor import AgentRef, Supervisor
    from tests.supervisor.promises.world import World


async def _compacted(ref: AgentRef) -> None:
    await ref.compact()
    await ref.wait_compacted()


KINDS: Final[dict[str, Callable[[AgentRef], Awaitable[object]]]] = {
    "ask": lambda ref: ref.ask("please"),
    "wait_report": lambda ref: ref.wait_report(),
    "wait_any": wait_any,
    "wait_idle": lambda ref: ref.wait_idle(),
    "wait_compacted": _compacted,
    "wait_aborted": lambda ref: ref.wait_aborted(),
    "wait_closed": lambda ref: ref.wait_closed(),
}


@attrs.define
class Tries:
    """What became of each kind of wait, in each place."""

    became: dict[tuple[str, str], str] = attrs.field(factory=dict)

    async def all(self, place: str, ref: AgentRef) -> None:
        """Try every kind, once per place."""
        for kind, wait in KINDS.items():
            if (place, kind) in self.became:
                continue
            try:
                with trio.fail_after(1):
                    await wait(ref)
                self.became[place, kind] = "ended"
            except WaitCycle as error:
                self.became[place, kind] = "refused" if ref.path in str(error) else str(error)
            except trio.TooSlowError:
                self.became[place, kind] = "hung"


HOOKS: Final = (
    "instructions",
    "tools",
    "context",
    "before_run",
    "before_turn",
    "before_request",
    "after_response",
    "around_tool",
    "after_turn",
    "after_run",
    "settled",
)


class Trying(Hooks):
    """Waits for its own agent, and for one that waits for it, at the point that is asked for."""


def hook_at(point: str, tries: Tries) -> Trying:
    """Hooks with one method, which tries every kind."""

    async def method(_: object, at: Any, *arguments: Any) -> object:
        await tries.all(point, at.ref(at.agent))
        return await arguments[1]() if point == "around_tool" else None

    return type("At", (Trying,), {point: method})()  # type: ignore[no-any-return]  # a class made here


@pytest.mark.parametrize("point", HOOKS)
async def test_ree_1_no_hook_waits_for_its_own_loop(world: World, autojump_clock: MockClock, point: str) -> None:
    """At each point each kind of wait for the hook's own agent is refused, at once, or is over already."""
    tries = Tries()

    @tool
    async def work() -> str:
        """Work."""
        return "worked"

    spec = agent("a", tools=[work], hooks=hook_at(point, tries))
    async with world.open({"a": [call("work"), "done", "again"]}) as sup:
        ref = await sup.start(spec, "go")
        await ref.wait_idle()
        assert {kind for at, kind in tries.became if at == point} == set(KINDS)
        assert "hung" not in tries.became.values(), tries.became
        over = {"wait_report", "wait_any"} if point in ("after_turn", "after_run", "settled") else set()
        for kind in KINDS:
            assert tries.became[point, kind] == ("ended" if kind in over else "refused"), (kind, tries.became)
        assert list(await messages(sup.store, "a")) == ["go"], "nothing was sent by a refused ask"
        assert sup._parts.graph.statistics().open == 0


async def _in_tasks(tries: Tries, ref: AgentRef) -> None:
    async with trio.open_nursery() as outer, trio.open_nursery() as inner:
        outer.start_soon(tries.all, "task", ref)
        inner.start_soon(tries.all, "inner task", ref)


@pytest.mark.parametrize("back", ["its own", "a ring"])
async def test_ree_5_tasks_of_a_tool_are_refused_every_kind(world: World, autojump_clock: MockClock, back: str) -> None:
    """From a tool and the tasks in its nurseries: each kind, for its own agent and for one that waits for it."""
    tries = Tries()

    @tool
    async def outside(ctx: Context) -> str:
        """Try it."""
        ref = ctx.ref(ctx.agent if back == "its own" else "b")
        await tries.all("tool", ref)
        await _in_tasks(tries, ref)
        return "tried"

    @tool
    async def wait_for_a(ctx: Context) -> str:
        """Wait for the other."""
        return (await ctx.ask("a", "are you there?")).text

    async with world.open({"a": [call("outside"), "done"], "b": [call("wait_for_a"), "done"]}) as sup:
        a = await sup.start(agent("a", tools=[outside]))
        b = await sup.start(agent("b", tools=[wait_for_a]))
        await (b if back == "a ring" else a).send("go")
        for ref in (a, b):
            await ref.wait_idle()
        assert set(tries.became) == {(place, kind) for place in ("tool", "task", "inner task") for kind in KINDS}
        assert set(tries.became.values()) == {"refused"}, tries.became
        assert len(await messages(sup.store, "a")) == 1
        assert len(await messages(sup.store, "b")) == (back == "a ring")


async def test_ree_5_threads_of_a_tool_are_refused_every_kind(world: World) -> None:
    """From a sync tool's thread, and from a thread of an async one, back through Trio: each kind. On the real clock."""
    tries = Tries()

    @tool
    def sync(ctx: Context) -> str:
        """In a thread."""
        trio.from_thread.run(tries.all, "sync", ctx.ref(ctx.agent))
        return "tried"

    @tool
    async def threaded(ctx: Context) -> str:
        """Through a thread."""
        ref = ctx.ref(ctx.agent)
        await trio.to_thread.run_sync(lambda: trio.from_thread.run(tries.all, "thread", ref))
        return "tried"

    async with world.open({"a": [call("sync"), call("threaded"), "done"]}, threads=True) as sup:
        ref = await sup.start(agent("a", tools=[sync, threaded]), "go")
        await ref.wait_idle()
        assert set(tries.became) == {(place, kind) for place in ("sync", "thread") for kind in KINDS}
        assert set(tries.became.values()) == {"refused"}, tries.became


# -- over several supervisors ----------------------------------------------------------------------------------------


def another(world: World) -> World:
    """A store of its own."""
    other = type(world)("memory", world.path)
    other._memory = open_memory_store(store_id="t")
    return other


@pytest.mark.parametrize("stores", ["one", "two"])
async def test_ree_5_a_ring_over_two_supervisors_is_refused(
    world: World, memory: World, autojump_clock: MockClock, stores: str
) -> None:
    """Anna's tool asks an agent of another supervisor, whose tool asks Anna: the second is refused, both go on.

    It is so for two stores and for one, and also where the two agents have one path.
    """
    sups: list[Supervisor] = []
    caught: list[WaitCycle] = []

    @tool
    async def over_there(ctx: Context) -> str:
        """Ask the other supervisor's agent."""
        del ctx
        return (await (await sups[1].find(names[1])).ask("ready?")).text

    @tool
    async def back(ctx: Context) -> str:
        """Ask back."""
        del ctx
        ref = await sups[0].find(names[0])
        try:
            with trio.fail_after(5):
                return (await ref.ask("for what?")).text
        except WaitCycle as error:
            caught.append(error)
            return "refused"

    names = ("anna", "anna") if stores == "two" else ("anna", "ben")
    base = memory if stores == "one" else world  # a file has one owner
    other = base if stores == "one" else another(world)
    first, second = {"anna": [call("over_there"), "told"]}, {names[1]: [call("back"), "ready"]}
    async with base.open(first) as sup, other.open(second) as beside:
        sups += [sup, beside]
        ref = await sup.start(agent(names[0], tools=[over_there]))
        await beside.start(agent(names[1], tools=[back]))
        with trio.fail_after(20):
            report = await ref.ask("go")
        assert report.text == "told"
        (error,) = caught
        assert "tool back" in str(error)
        assert "tool over_there" in str(error)
        assert ("of store" in str(error)) == (stores == "two")
        assert list(await messages(sup.store, names[0])) == ["go"], "the refused ask sent nothing"
        for one in sups:
            assert one._parts.graph.statistics().open == 0


async def test_ree_4_waits_over_two_supervisors_that_end_are_let_in(world: World, autojump_clock: MockClock) -> None:
    """A tool may ask another supervisor's agent of its own agent's path; the sender is no path of that store."""
    sups: list[Supervisor] = []
    other = another(world)

    @tool
    async def over_there() -> str:
        """Ask the other supervisor's agent."""
        return (await (await sups[0].find("anna")).ask("ready?")).text

    async with world.open({"anna": [call("over_there"), "told"]}) as sup, other.open({"anna": ["ready"]}) as beside:
        sups.append(beside)
        await beside.start(agent("anna"))
        ref = await sup.start(agent("anna", tools=[over_there]))
        assert (await ref.ask("go")).text == "told"
        (asked,) = await beside.store.messages(ref.path, EVERY_STATE)
        assert asked.envelope.sender is None
