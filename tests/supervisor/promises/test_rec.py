"""REC: recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import Child, Script, Unavailable, call, tool
from actors.models.script import hang
from supervisor.store.faults import FaultyStore
from tests.supervisor.promises.world import agent, check, quiet, texts

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from supervisor.store.base import Store
from tests.supervisor.promises.world import World


async def test_rec_1_whether_a_response_is_owed_is_read_from_the_last_durable_record(
    world: World, autojump_clock: MockClock
) -> None:
    """Cut off before each commit in turn, a restart asks the model where the last record owes an answer, else not."""

    @tool(effect="pure")
    async def add(a: int) -> int:
        """Add."""
        return a

    async def life(at: int, *, forever: bool) -> tuple[list[str], int]:
        name = f"a{at}"
        spec = agent(name, tools=[add])
        script = {name: [call("add", a=1), "answer"]}
        faulty: list[FaultyStore] = []

        def wrap(store: Store) -> Store:
            faulty.append(FaultyStore(store, at=0))
            return faulty[0]

        async with world.open(script, wrap=wrap) as sup:
            ref = await sup.start(spec)
            faulty[0].commits = 0
            faulty[0]._at, faulty[0]._forever = at, forever
            try:
                await ref.send("go")
            except Unavailable:
                return [], 0
            await quiet()
            hit = faulty[0].faults
            before = texts(await ref.transcript())
        asked: list[ModelRequest] = []

        def answer(request: ModelRequest) -> object:
            asked.append(request)
            return "answer" if request.window.responses else call("add", a=1)

        async with world.open(Script({name: answer}), agents=[spec]) as sup:
            resumed = await sup.resume()
            for ref in resumed:
                await ref.wait_idle()
            assert texts(await (await sup.find(name)).transcript()) == ["<go", "> add()", "=ok:1", ">answer"]
            await check(sup.store)
        owes = {0: 2, 1: 2, 2: 1, 3: 1, 4: 0}
        assert len(asked) == owes[len(before)], before
        return before, hit

    for at in range(1, 20):
        before, hit = await life(at, forever=True)
        if not hit and before:
            break
    else:
        raise AssertionError("it was never left in peace")
    assert at > 3


async def test_rec_1_an_answer_that_is_durable_is_not_asked_again(world: World, autojump_clock: MockClock) -> None:
    """Where the last record is a whole answer, cut off before its turn had ended, a restart ends the turn with it."""

    async def slow(_: ModelRequest) -> str:
        await trio.sleep(2)
        return "the answer"

    specs = [agent("a"), agent("b")]
    steers = []
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the raise is the crash
        async with world.open({"a": slow, "b": [hang()]}, permits=1, hard=0.1) as sup:
            ref = await sup.start(specs[0], "go")
            await trio.sleep(1)
            await sup.start(specs[1], "takes the place")
            steers.append(await ref.steer("one thing more"))
            await trio.sleep(5)  # the answer is written while the turn waits for its place
            assert texts(await ref.transcript()) == ["<go", ">the answer"]
            assert await steers[0].withdraw()
            world.spy.refuse = lambda _: True  # from here on the process is as good as dead
            raise ZeroDivisionError
    asked: list[str] = []

    def answer(request: ModelRequest) -> str:
        asked.append(request.agent)
        return "asked again"

    async with world.open({"a": answer, "b": answer}, agents=specs) as sup:
        await sup.resume()
        ref = await sup.find("a")
        await ref.wait_idle()
        assert (await ref.wait_report()).text == "the answer"
        assert "a" not in asked
        await (await sup.find("b")).wait_idle()
        await check(sup.store)


async def test_rec_2_finding_the_work_is_one_read_for_the_whole_store(world: World, autojump_clock: MockClock) -> None:
    """Among many idle agents `resume` makes one read for all, and loads only the agents that have work."""
    spec = agent()
    async with world.open({"a": lambda _: "ok"}) as sup:
        for _ in range(30):
            await sup.start(spec, "x")
        busy = await sup.start(spec, "x")
        await quiet()
        sup.suspend()
        await busy.send("left over")
    reads: list[str] = []
    async with world.open({"a": lambda _: "ok"}, agents=[spec]) as sup:
        for name in (
            "load_agent",
            "read_records",
            "agents_with_work",
            "awaiting_calls",
            "tree_rows",
            "roots",
            "messages",
        ):
            _count(world.spy, name, reads)
        (found,) = await sup.resume()
        assert found.path == busy.path
        await found.wait_idle()
        assert sorted(reads) == ["agents_with_work", "load_agent", "read_records", "tree_rows"]


async def test_rec_2_a_whole_tree_is_brought_back_with_what_waits_for_a_person(
    world: World, autojump_clock: MockClock
) -> None:
    """A lead that waits for its child, which waits for a person; one that nobody waits for; and all that expired."""

    @tool(approve=True, approve_timeout=600)
    async def erase() -> str:
        """Erase."""
        return "erased"

    kid = agent("kid", tools=[erase])
    aide = agent("aide", tools=[erase])
    lead = agent("lead", children=[kid, Child(aide, background=True)])
    script = {
        "lead": lambda request: "done" if request.window.responses else [call("kid", task="x"), call("aide", task="y")],
        "kid": lambda request: "tidy" if request.window.responses else call("erase"),
        "aide": lambda request: "tidy" if request.window.responses else call("erase"),
    }
    async with world.open(script) as sup:
        await sup.start(lead, "go", key="k")
        await trio.sleep(1)
    async with world.open(script, agents=[lead]) as sup:
        assert [ref.path for ref in await sup.resume()] == ["lead", "lead/aide", "lead/kid"]
        async with sup.approvals() as inbox:
            shown = [await anext(aiter(inbox)) for _ in range(2)]
            assert {request.path for request in shown} == {"lead/kid", "lead/aide"}
            await next(request for request in shown if request.path == "lead/kid").approve()
            assert (await sup.run(lead, "go", key="k")).text == "done"
    await trio.sleep(1_000)
    async with world.open(script, agents=[lead]) as sup:
        assert [ref.path for ref in await sup.resume()] == ["lead/aide"]
        await trio.sleep(1)
        assert texts(await (await sup.find("lead/aide")).transcript())[2].startswith("=denied")
        assert not await sup.store.agents_with_work()
        await check(sup.store)


def _count(spy: object, name: str, reads: list[str]) -> None:
    """Note each call of a read."""
    original = getattr(spy, name)

    async def counted(*args: object, **kwargs: object) -> object:
        reads.append(name)
        return await original(*args, **kwargs)

    setattr(spy, name, counted)
