"""A call that is cut takes along what it waits for: blocking children, all the way down, behind one barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from actors import Aborted, Child, Context, Limits, RequestStarted, TurnEnded, call, tool
from actors.changes import AgentRow, Enqueue, Put
from actors.errors import AgentClosed
from actors.ids import turn_id
from actors.messages import Purpose, ReceiptState, Status
from actors.models.script import hang
from actors.transcript import ResultRecord, problems
from tests.supervisor.promises.world import agent, check, has, messages, ops, quiet, texts, watched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock

    from actors import Agent
    from actors.changes import ChangeSet
    from supervisor import AgentRef, Supervisor
    from tests.supervisor.promises.world import World

    Cut = Callable[[Supervisor, AgentRef], Awaitable[None]]


def aborts(one: ChangeSet) -> bool:
    """Whether a set makes an abort durable."""
    return has(one, Enqueue, lambda op: op.envelope.purpose is Purpose.ABORT)


def bears(name: str) -> Callable[[ChangeSet], bool]:
    """Whether a set makes an agent of this name."""
    return lambda one: has(one, Put, lambda op: isinstance(op.row, AgentRow) and op.fresh and op.row.name == name)


def aborted_in(one: ChangeSet) -> set[str]:
    """Whom a set aborts."""
    return {op.envelope.to for op in ops(one, Enqueue) if op.envelope.purpose is Purpose.ABORT}


def running_call(sup: Supervisor, path: str, name: str) -> Any:
    """The id of a call that runs."""
    running = sup._parts.lives[path].calls.running  # type: ignore[index]  # paths are text here
    return next(one for one, found in running.items() if found.call.block.name == name)


def result_of(records: tuple[Any, ...], name: str) -> str:
    """What the model reads of a call."""
    (found,) = [one for one in records if isinstance(one, ResultRecord) and one.name == name]
    return f"{found.status.value}: {found.content[0].text}"  # type: ignore[union-attr]  # a text


# -- the ways to be cut ------------------------------------------------------------------------------------------------


async def steered(_: Supervisor, ref: AgentRef) -> None:
    """By a message that interrupts (CON-7)."""
    await ref.steer("now", interrupt=True)


async def failed_beside(_: Supervisor, __: AgentRef) -> None:
    """By a fatal call beside it, which fails by itself (TOL-4)."""
    await trio.sleep(5)


async def cancelled(sup: Supervisor, ref: AgentRef) -> None:
    """By hand (TOL-7)."""
    for name in ("kid", "work"):
        ref.cancel_call(running_call(sup, "lead", name), "it hangs")


async def timed_out(_: Supervisor, __: AgentRef) -> None:
    """By its own time (TOL-6)."""
    await trio.sleep(60)


WAYS: Final[dict[str, tuple[Cut, str, dict[str, str]]]] = {
    "steer": (steered, "A newer message interrupted the turn", {"kid": "aborted", "work": "aborted"}),
    "fatal": (failed_beside, "A call beside this one failed", {"kid": "aborted", "work": "aborted"}),
    "cancel": (cancelled, "it hangs", {"kid": "error", "work": "error"}),
    "timeout": (timed_out, "The time for the call was up", {"work": "timeout"}),
}


def family(way: str) -> Agent:
    """A lead that waits, in a child's tool and in a tool of its own, for children that wait for one of theirs."""
    leaf = agent("leaf")
    kid, aside = agent("kid", children=[leaf]), agent("aside")
    own = agent("own", children=[leaf])

    @tool(timeout=30 if way == "timeout" else None)
    async def work(ctx: Context) -> str:
        """Start one and wait for it."""
        await ctx.start(aside, "aside", background=True)
        started = await ctx.start(own, "work")
        return (await started.wait_report()).text

    @tool(fatal=True)
    async def boom() -> str:
        """Fail."""
        await trio.sleep(3)
        msg = "boom"
        raise ValueError(msg)

    return agent("lead", tools=[work, boom], children=[kid, Child(own)])


def script(way: str) -> dict[str, Any]:
    """They all wait for leaves that hang."""
    batch = [call("work")] if way == "timeout" else [call("kid", task="x"), call("work")]
    if way == "fatal":
        batch.append(call("boom"))
    return {
        "lead": [batch, "lead goes on"],
        "kid": [call("leaf", task="y"), "kid goes on"],
        "own": [call("leaf", task="y"), "own goes on"],
        "leaf": lambda _: hang(),
        "aside": [hang(), "aside goes on"],
    }


@pytest.mark.parametrize("way", WAYS)
async def test_sup_4_a_call_that_is_cut_aborts_what_it_waits_for(
    world: World, autojump_clock: MockClock, way: str
) -> None:
    """Children and theirs end in one commit, the result says so, the turn goes on; a background child does too."""
    cut, why, statuses = WAYS[way]
    async with world.open(script(way)) as sup, watched(sup) as log:
        ref = await sup.start(family(way), "go")
        await trio.sleep(1)
        await cut(sup, ref)
        assert (await ref.wait_report()).text == "lead goes on"
        below = {
            "kid": {"lead/kid", "lead/kid/leaf"},
            "work": {"lead/own", "lead/own/leaf"},
        }
        taken = set().union(*(below[name] for name in statuses))
        found = [aborted_in(one) for one in world.spy.sets if aborts(one)]
        assert set().union(*found) == taken
        assert len(found) == (2 if way == "cancel" else 1), "one barrier for each cut"
        assert {path: log.statuses(path) for path in taken} == {path: ["aborted"] for path in taken}
        records = await ref.transcript()
        for name, status in statuses.items():
            said = result_of(records, name)
            assert said.startswith(status)
            assert all(path in said for path in below[name])
        reports = [event.outcome.failure.message for event in log.of(TurnEnded) if event.path in taken]
        assert all(why in message for message in reports), reports
        assert (await sup.find("lead/aside")).state == "running"
        await trio.sleep(60)
        asked = {event.path for event in log.of(RequestStarted) if event.path in taken}
        assert asked == taken
        assert len([event for event in log.of(RequestStarted) if event.path in taken]) == len(taken), (
            "none begins again"
        )
        assert problems(records) == []
        await ref.abort("enough", subtree=True)
        await quiet()
        await check(sup.store)


async def test_sup_4_the_end_of_a_turns_time_takes_what_it_waits_for(world: World, autojump_clock: MockClock) -> None:
    """The turn fails, and its blocking child does not go on for nobody."""
    lead = agent("lead", children=[agent("kid")], limits=Limits(turn_s=10))
    async with world.open({"lead": [call("kid", task="x")], "kid": [hang()]}) as sup, watched(sup) as log:
        report = await sup.run(lead, "go")
        assert report.status == "failed"
        await quiet()
        assert log.statuses("lead/kid") == ["aborted"]
        assert "lead/kid" in result_of(await (await sup.find("lead")).transcript(), "kid")


# -- what a call waits for --------------------------------------------------------------------------------------------


async def test_sup_4_a_blocking_child_that_its_call_does_not_wait_for_yet_is_taken_too(
    world: World, autojump_clock: MockClock
) -> None:
    """Started side by side and awaited one after another, none of them outlives its call, cut or aborted."""
    kid = agent("kid")

    @tool
    async def work(ctx: Context) -> str:
        """Start two, wait for the first."""
        kids = [await ctx.start(kid, "x"), await ctx.start(kid, "y")]
        return " ".join([(await one.wait_report()).text for one in kids])

    for end in ("cut", "abort"):
        name = f"lead-{end}"
        async with world.open({name: [call("work"), "on"], "kid": lambda _: hang()}) as sup, watched(sup) as log:
            ref = await sup.start(agent(name, tools=[work]), "go")
            await trio.sleep(1)
            await (ref.abort("enough") if end == "abort" else ref.steer("now", interrupt=True))
            await ref.wait_idle()
            await quiet()
            assert [log.statuses(f"{name}/kid"), log.statuses(f"{name}/kid#2")] == [["aborted"], ["aborted"]]


async def test_sup_4_an_agent_that_was_asked_is_aborted_with_the_call_whose_time_is_up(
    world: World, autojump_clock: MockClock
) -> None:
    """A child of an earlier call, which this one asks and waits for, is what it waits for."""

    @tool(timeout=5)
    async def ask(ctx: Context) -> str:
        """Ask a child that is there."""
        return (await ctx.ask("lead/kid", "more")).text

    steps = {"lead": [call("kid", task="x"), call("ask"), "on"], "kid": ["done", hang(), "unasked"]}
    async with world.open(steps) as sup, watched(sup) as log:
        ref = await sup.start(agent("lead", tools=[ask], children=[agent("kid")]), "go")
        assert (await ref.wait_report()).text == "on"
        await quiet()
        assert log.statuses("lead/kid") == ["done", "aborted"]
        assert "lead/kid" in result_of(await ref.transcript(), "ask")


async def test_sup_4_what_others_wait_for_goes_on(world: World, autojump_clock: MockClock) -> None:
    """A child that a call beside it waits for too, that has gone on to another's message, or in the background."""

    @tool
    async def one(ctx: Context) -> str:
        """Wait for those that other calls started."""
        await trio.sleep(0.1)
        return (await ctx.wait_any(ctx.ref("lead/kid"), ctx.ref("lead/aside")))[1].text

    @tool
    async def two(ctx: Context) -> str:
        """Start it and wait, then do something else."""
        await (await ctx.start(agent("late"), "x")).wait_report()
        await trio.sleep(1_000)
        return "never"

    kid = agent("kid")
    batch = [call("kid", task="x"), call("aside", task="y"), call("one"), call("two")]
    hangs = {"kid": [hang()], "aside": [hang()], "late": ["first", hang()]}
    steps = {"lead": [batch, "on"], **hangs}
    async with world.open(steps) as sup, watched(sup) as log:
        ref = await sup.start(
            agent("lead", tools=[one, two], children=[kid, Child(agent("aside"), background=True)]), "go"
        )
        await trio.sleep(1)
        await (await sup.find("lead/late")).send("somebody else's")
        await trio.sleep(1)
        ref.cancel_call(running_call(sup, "lead", "one"), "no more")
        ref.cancel_call(running_call(sup, "lead", "two"), "no more")
        await quiet()
        for path in ("lead/kid", "lead/aside", "lead/late"):
            assert (await sup.find(path)).state == "running"
        assert log.statuses("lead/late") == ["done"]
        await ref.abort("enough", subtree=True)


async def test_sup_4_a_tool_that_goes_on_past_its_cancellation_waits_for_nobody_and_starts_nobody(
    world: World, autojump_clock: MockClock
) -> None:
    """It hears that whom it waited for was aborted; what it starts then is refused; it holds up a bounded time."""
    heard: list[str] = []
    kid = agent("kid")

    @tool
    async def deaf(ctx: Context) -> str:
        """Notice nothing."""
        started = await ctx.start(kid, "x")
        with trio.CancelScope(shield=True):
            heard.append((await started.wait_report()).status.value)
            try:
                await ctx.start(kid, "again")
            except Aborted as error:
                heard.append(str(error))
        return "late"

    async with world.open({"lead": [call("deaf"), "on"], "kid": lambda _: hang()}) as sup, watched(sup) as log:
        ref = await sup.start(agent("lead", tools=[deaf]), "go")
        await trio.sleep(1)
        began = trio.current_time()
        await ref.steer("now", interrupt=True)
        assert (await ref.wait_report()).text == "on"
        assert trio.current_time() - began < 1
        assert heard[0] == "aborted"
        assert "was cut off; it starts no agents" in heard[1]
        assert len(log.of(RequestStarted, "lead/kid")) == 1
        assert len(await sup.store.children(ref.path)) == 1


async def test_sup_4_nothing_more_of_the_turn_is_written_before_the_abort(
    world: World, autojump_clock: MockClock
) -> None:
    """No crash finds a call settled, and what it waited for at work for nobody."""
    lead = agent("lead", children=[agent("kid")])
    async with world.open({"lead": [call("kid", task="x"), "on"], "kid": [hang()]}) as sup:
        ref = await sup.start(lead, "go")
        await trio.sleep(1)

        async def before(one: ChangeSet) -> None:
            if aborts(one):
                await trio.sleep(3)

        world.spy.before = before
        await ref.steer("now", interrupt=True)
        await ref.wait_report()
        kinds = ["abort" if aborts(one) else "result" for one in world.spy.sets if aborts(one) or _results(one)]
        assert kinds[0] == "abort"


@pytest.mark.parametrize("failures", [1, 4])
async def test_sup_4_an_abort_that_fails_once_is_written_before_the_turn_goes_on(
    world: World, autojump_clock: MockClock, failures: int
) -> None:
    """The store fails for the order alone, and says nothing of passing: the child does not run on for nobody."""
    lead = agent("lead", children=[agent("kid")])
    async with world.open({"lead": [call("kid", task="x"), "on"], "kid": [hang(), "too late"]}) as sup:
        ref = await sup.start(lead, "go")
        await trio.sleep(1)
        refused: list[ChangeSet] = []

        def refuse(one: ChangeSet) -> bool:
            refused.extend([one] if aborts(one) else [])
            return aborts(one) and len(refused) <= failures

        world.spy.refuse = refuse
        await ref.steer("now", interrupt=True)
        report = await ref.wait_report()
        assert report.text == "on"
        assert len(refused) == failures + 1
        kinds = ["abort" if aborts(one) else "result" for one in world.spy.sets if aborts(one) or _results(one)]
        assert kinds[0] == "abort"
        (kid,) = await sup.store.children(ref.path)
        ended = await sup.store.outcome(turn_id(kid.agent, kid.turns))
        assert ended is not None
        assert ended.outcome.status is Status.ABORTED
        await check(sup.store)


def _results(one: ChangeSet) -> bool:
    return any(isinstance(record, ResultRecord) for op in one.operations for record in getattr(op, "records", ()))


# -- births in flight ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lands", ["before", "behind"])
@pytest.mark.parametrize("way", ["steer", "abort", "subtree"])
async def test_abt_5_a_child_that_is_being_born_begins_no_turn(
    world: World, autojump_clock: MockClock, way: str, lands: str
) -> None:
    """Whichever side of the first signal its commit lands on, it is there, or not, and never asks the model."""

    @tool
    async def work(ctx: Context) -> str:
        """Start one and wait for it."""
        started = await ctx.start(agent("kid"), "x", background=way == "subtree")
        return (await started.wait_report()).text

    async with world.open({"lead": [call("work"), "on"], "kid": lambda _: "never"}) as sup, watched(sup) as log:
        born = bears("kid")

        async def before(one: ChangeSet) -> None:
            if born(one) and lands == "behind":
                await trio.sleep(5)

        async def after(one: ChangeSet) -> None:
            if born(one) and lands == "before":
                await trio.sleep(5)

        world.spy.before, world.spy.after = before, after
        ref = await sup.start(agent("lead", tools=[work]), "go")
        await trio.sleep(1)
        match way:
            case "steer":
                await ref.steer("now", interrupt=True)
            case "abort":
                await ref.abort("enough")
            case _:
                await ref.abort("enough", subtree=True)
        await ref.wait_idle()
        await trio.sleep(20)
        assert log.of(RequestStarted, "lead/kid") == []
        assert (await messages(sup.store, "lead/kid"))["x"] is ReceiptState.HELD
        assert await sup.store.agents_with_work() == ()
        await check(sup.store)


async def test_abt_5_no_agent_is_started_between_the_signal_and_the_end_of_the_turn(
    world: World, autojump_clock: MockClock
) -> None:
    """While the end of the aborted turn is being written, its calls still run; what they start then is refused."""
    heard: list[str] = []

    @tool
    async def work(ctx: Context) -> str:
        """Start one a little later."""
        await trio.sleep(3)
        try:
            await ctx.start(agent("kid"), "x")
        except Aborted as error:
            heard.append(str(error))
        return "done"

    async with world.open({"lead": [call("work"), "on"], "kid": lambda _: "never"}) as sup, watched(sup) as log:
        ref = await sup.start(agent("lead", tools=[work]), "go")
        await trio.sleep(1)

        async def before(one: ChangeSet) -> None:
            if not aborts(one):  # the commit that ends the turn
                await trio.sleep(5)

        world.spy.before = before
        await ref.abort("enough")
        await ref.wait_idle()
        await quiet()
        assert len(heard) == 1
        assert "starts no agents" in heard[0]
        assert log.of(RequestStarted, "lead/kid") == []
        assert await sup.store.children(ref.path) == ()


async def test_abt_5_a_staged_child_that_lands_with_the_end_of_an_aborted_turn_begins_nothing(
    world: World, autojump_clock: MockClock
) -> None:
    """A result that was there before the abort stands with whom it started, who is stopped with the subtree (ABT-3)."""

    @tool(effect="store")
    async def stage(ctx: Context) -> str:
        """Start one with the result."""
        await trio.sleep(1.5)
        return (await ctx.start(agent("kid"), "x")).path

    @tool
    async def wait() -> str:
        """Wait."""
        await trio.sleep(1)
        return "waited"

    batch = [call("wait"), call("stage"), call("hold")]

    @tool
    async def hold() -> str:
        """Hold the batch open."""
        await trio.sleep(1_000)
        return "never"

    async with world.open({"lead": [batch, "on"], "kid": lambda _: "never"}) as sup, watched(sup) as log:
        born = bears("kid")

        async def before(one: ChangeSet) -> None:
            if trio.current_time() - began >= 1 and not aborts(one) and not born(one):  # the result of the first to end
                await trio.sleep(5)

        world.spy.before, began = before, trio.current_time()
        ref = await sup.start(agent("lead", tools=[stage, wait, hold]), "go")
        await trio.sleep(2)
        await ref.abort("enough", subtree=True)
        await ref.wait_idle()
        await trio.sleep(20)
        assert [bool(ops(one, Put) and aborted_in(one)) for one in world.spy.sets if born(one)] == [False]
        assert result_of(await ref.transcript(), "stage") == "ok: lead/kid", "the result stands, with whom it started"
        assert log.of(RequestStarted, "lead/kid") == []
        assert (await messages(sup.store, "lead/kid"))["x"] is ReceiptState.HELD
        await check(sup.store)


@pytest.mark.parametrize("lands", ["before", "behind"])
async def test_cls_1_a_child_that_is_being_born_is_behind_the_barrier_of_a_close(
    world: World, autojump_clock: MockClock, lands: str
) -> None:
    """When `close()` has returned it accepts nothing new; its task is answered, for its parent waits for that."""

    @tool
    async def nap() -> str:
        """Take a while."""
        await trio.sleep(20)
        return "rested"

    kid = agent("kid", tools=[nap])

    @tool
    async def work(ctx: Context) -> str:
        """Start one and wait for it; then another."""
        return " ".join([(await (await ctx.start(kid, task)).wait_report()).text for task in "xy"])

    steps = {"lead": [call("work"), "on"], "kid": lambda request: call("nap") if len(request.window) < 2 else "ok"}
    async with world.open(steps) as sup:
        born = bears("kid")

        async def slow(one: ChangeSet) -> None:
            if born(one):
                await trio.sleep(5)

        if lands == "before":
            world.spy.after = slow
        else:
            world.spy.before = slow
        ref = await sup.start(agent("lead", tools=[work]), "go")
        await trio.sleep(1)
        await ref.close(grace=60)
        (row,) = await sup.store.children(ref.path)
        stored = await sup.store.load_agent(row.agent)
        assert stored is not None
        assert stored.intake.value == "closing"
        with pytest.raises(AgentClosed):
            await (await sup.find(row.agent)).send("new")
        await trio.sleep(28)
        with pytest.raises(AgentClosed):
            await (await sup.find("lead/kid#2")).send("new")
        await ref.wait_closed()
        assert texts(await ref.transcript())[-2:] == ["=ok:ok ok", ">on"]
        await check(sup.store)
