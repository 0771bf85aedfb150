"""Cases of conversations that no provider takes any more: what stands there however a turn was cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Child, Limits, ToolStarted, call, tool
from actors.changes import Append, ChangeSet, Put
from actors.ids import tree_of
from actors.transcript import MessageRecord, ResultRecord, problems
from tests.cases.strict import statuses, strict
from tests.supervisor.promises.world import World, agent, check, has, said, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from supervisor import AgentRef


@tool
async def work(seconds: float) -> str:
    """Work."""
    await trio.sleep(seconds)
    return f"worked {seconds}"


def batch(count: int) -> list[Any]:
    """Calls of which one ends each second."""
    return [call("work", seconds=number + 1) for number in range(count)]


def first_the_batch(count: int) -> Any:
    """Calls, and after that an answer to whatever comes."""
    return lambda request: "on" if request.window.responses else batch(count)


async def stop(ref: AgentRef, way: str) -> None:
    """Cut the turn, and go on with the same conversation."""
    if way == "abort":
        await ref.abort("cancelled")
        await ref.wait_aborted()
        report = await ref.ask("go on")
    else:
        report = await (await ref.steer("go on", interrupt=True)).wait_report()
    assert (report.status, report.text) == ("done", "on")


@pytest.mark.parametrize("way", ["abort", "interrupt"])
@pytest.mark.parametrize(("count", "done"), [(1, 0), (4, 0), (4, 1), (4, 3)])
async def test_br_001_br_002_a_turn_that_is_cut_among_its_calls_leaves_each_with_a_result(
    world: World, autojump_clock: MockClock, count: int, done: int, way: str
) -> None:
    """With none, one or all but one of the siblings finished, what follows is sent, and a strict server takes it."""
    model = strict({"a": first_the_batch(count)})
    async with world.open(model) as sup:
        ref = await sup.start(agent(tools=[work]), "go")
        await trio.sleep(done + 0.5)
        await stop(ref, way)
        records = await ref.transcript()
        assert problems(records) == []
        assert statuses(records) == ["ok"] * done + ["aborted"] * (count - done)
        assert model.refused == []
        assert model.roles() == ["system", "user", "assistant", *["tool"] * count, "user"]
        await check(sup.store)


@pytest.mark.parametrize("done", [0, 1, 2])
async def test_br_003_a_batch_that_the_process_did_not_outlive_is_closed_as_a_whole_on_load(
    world: World, autojump_clock: MockClock, done: int
) -> None:
    """With none, one or two of three calls finished when the process dies, the next one closes all three at once."""
    spec = agent(tools=[work])
    model = strict({"a": first_the_batch(3)})
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the raise is the crash
        async with world.open(model, hard=0.1) as sup:
            await sup.start(spec, "go")
            await trio.sleep(done + 0.5)
            world.spy.refuse = lambda _: True  # from here on the process is as good as dead
            raise ZeroDivisionError
    async with world.open(model, agents=[spec]) as sup:
        (ref,) = await sup.resume()
        await ref.wait_idle()
        assert statuses(await ref.transcript()) == ["ok"] * done + ["unknown"] * (3 - done)
        assert (await ref.ask("go on")).text == "on"
        assert model.refused == []
        for one in world.spy.sets:  # closed in one commit, with what follows
            ended = [r for op in one.operations for r in getattr(op, "records", ()) if isinstance(r, ResultRecord)]
            assert len(ended) in (0, 3)
        await check(sup.store)


@pytest.mark.parametrize("done", [0, 1, 2])
@pytest.mark.parametrize("way", ["ask", "steer", "abort"])
async def test_br_003_a_session_that_was_damaged_is_repaired_before_anything_stands_behind(
    world: World, autojump_clock: MockClock, done: int, way: str
) -> None:
    """A store says that no turn is open, and its last calls have no results: they get them, whoever speaks first."""
    spec = agent(tools=[work])
    model = strict({"a": first_the_batch(3)})
    async with world.open(model) as sup:
        await sup.run(spec, "go")
        row = (await sup.tree())[0]
        records = (await sup.store.read_records(row.agent))[: 2 + done]
    damaged = World(world.kind, world.path / "damaged", checked=False)
    damaged.path.mkdir()
    async with damaged.store() as store:
        holder = store.new_holder()
        epoch = await store.own(tree_of(row.agent), holder)
        await store.commit(ChangeSet(tree_of(row.agent), epoch, (Put(row), Append(row.agent, 0, records))))
        await store.release(holder)
    async with damaged.open(model, agents=[spec]) as sup:
        ref = await sup.find("a")
        if way == "abort":
            sup.suspend()
            await ref.send("held")
            sup._parts.leaving = None
            await ref.abort("stop")
        elif way == "steer":
            await (await ref.steer("mind", interrupt=True)).wait_report()
        assert (await ref.ask("go on")).text == "on"
        assert statuses(await ref.transcript()) == ["ok"] * done + ["error"] * (3 - done)
        assert problems(await ref.transcript()) == []
        assert model.refused == []
        await check(sup.store)


@pytest.mark.parametrize("way", ["abort", "interrupt"])
@pytest.mark.parametrize("moment", ["start", "middle", "returned", "settled"])
async def test_br_004_a_call_interrupted_at_any_moment_is_closed_with_its_turn(
    world: World, autojump_clock: MockClock, moment: str, way: str
) -> None:
    """Cut as it starts, halfway, as it returns, as its result is written: one result, in the cut's own commit."""
    at = trio.Event()

    @tool
    async def speak() -> str:
        """Speak."""
        if moment == "start":
            at.set()
        await trio.sleep(1)
        if moment == "middle":
            at.set()
        await trio.sleep(1 if moment == "middle" else 0)
        if moment == "returned":
            at.set()
        return "spoken"

    async def settling(one: ChangeSet) -> None:
        if moment == "settled" and has(one, Put, lambda op: getattr(op.row, "result", None) is not None):
            at.set()

    model = strict({"a": lambda r: "on" if r.window.responses else [call("speak"), call("work", seconds=9)]})
    async with world.open(model) as sup:
        world.spy.before = settling
        ref = await sup.start(agent(tools=[speak, work]), "go")
        await at.wait()
        await stop(ref, way)
        records = await ref.transcript()
        assert problems(records) == []
        assert statuses(records)[1] == "aborted"
        assert (statuses(records)[0] == "ok") == (moment in {"returned", "settled"})
        assert model.refused == []
        await check(sup.store)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("background", [False, True])
async def test_br_006_calls_beside_a_hand_over_keep_their_results(
    world: World,
    autojump_clock: MockClock,
    place: int,
    background: bool,  # noqa: FBT001 - parametrised
) -> None:
    """A call that hands a task to another agent, first, between or last: each has its result, nobody else's history."""
    step: list[Any] = [call("work", seconds=1), call("work", seconds=5)]
    step.insert(place, call("kid", task="help"))
    script = {"lead": lambda r: "on" if r.window.responses else step, "kid": lambda r: "helped"}
    model = strict(script)
    kid = agent("kid")
    lead = agent("lead", tools=[work], children=[Child(kid, background=True) if background else kid])
    async with world.open(model) as sup:
        ref = await sup.start(lead, "go")
        await trio.sleep(20)
        await ref.wait_idle()
        records = await ref.transcript()
        assert problems(records) == []
        assert [r.name for r in records if isinstance(r, ResultRecord)] == [one.name for one in step]
        assert statuses(records) == ["ok"] * 3
        assert texts(await (await sup.find("lead/kid")).transcript()) == ["<help", ">helped"]
        assert model.refused == []
        await check(sup.store)


async def test_br_007_a_steer_stands_behind_the_results_whenever_it_comes(
    world: World, autojump_clock: MockClock
) -> None:
    """At every step of a turn with two batches: it is a message of its own, at a boundary, on the wire too."""

    @tool
    async def quick(n: int) -> str:
        """Work a little."""
        await trio.lowlevel.checkpoint()
        return f"{n}"

    def play(request: ModelRequest) -> object:
        return "on" if request.window.responses > 1 else [call("quick", n=n) for n in range(3)]

    places = set()
    for moment in range(0, 60, 2):
        name = f"a{moment}"
        model = strict({name: play})
        async with world.open(model) as sup:
            ref = await sup.start(agent(name, tools=[quick]), "go")
            for _ in range(moment):
                await trio.lowlevel.checkpoint()
            await ref.steer("STEER")
            await ref.wait_idle()
            records = await ref.transcript()
            assert problems(records) == []
            assert model.refused == []
            (place,) = [n for n, r in enumerate(records) if isinstance(r, MessageRecord) and said(r.content) == "STEER"]
            places.add(place)
    assert {0, 5, 9} <= places, "it came before the first request, and behind either batch"


async def test_br_007_what_is_said_of_a_turns_bound_is_said_to_that_turn_only(
    world: World, autojump_clock: MockClock
) -> None:
    """That this call of the model is the last is sent with that call, and not with the first one of the next turn."""
    model = strict({"a": [batch(1), "one", "two"]})
    async with world.open(model) as sup:
        ref = await sup.start(agent(tools=[work], limits=Limits(model_calls_per_turn=2)), "go")
        await ref.wait_idle()
        assert (await ref.ask("go on")).text == "two"
        shown = ["last of 2 model calls" in str(body["messages"]) for body in model.sent]
        assert shown == [False, True, False]
        assert model.refused == []


@pytest.mark.parametrize("way", ["send", "steer", "report", "failure"])
async def test_br_008_what_is_said_meanwhile_is_sent_behind_the_results(
    world: World, autojump_clock: MockClock, way: str
) -> None:
    """A message, a child's report, a note of a failure: on the wire the results come first, whatever came first."""
    kid = agent("kid")
    lead = agent("lead", tools=[work], children=[Child(kid, background=True)], drain={"send": "all"})

    def play(request: ModelRequest) -> object:
        if request.window.responses:
            return "on"
        return [call("kid", task="help"), *batch(2)] if way == "report" else batch(2)

    model = strict({"lead": play, "kid": lambda r: "helped"})
    async with world.open(model) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        await trio.sleep(0.5)
        if way == "failure":
            await ref.abort("no more")
            await ref.wait_aborted()
            await ref.ask("go on")
        elif way != "report":
            await (ref.send("meanwhile") if way == "send" else ref.steer("meanwhile"))
        await trio.sleep(10)
        await ref.wait_idle()
        assert len(log.of(ToolStarted, "lead")) == (3 if way == "report" else 2)
        assert model.refused == []
        roles = [message["role"] for message in model.sent[-1]["messages"]]
        first = roles.index("assistant")
        assert roles[first + 1 : first + 3] == ["tool", "tool"]
