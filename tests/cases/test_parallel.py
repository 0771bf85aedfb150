"""Cases of parallel calls: what one call's end does to the others of its batch, and what they do to each other."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Context, Limits, ToolEnded, ToolLate, ToolStarted, ToolStuck, call, command, tool
from actors.changes import CallRow, Put
from actors.transcript import ResultRecord, problems
from tests.cases.strict import statuses, strict
from tests.supervisor.promises.world import agent, check, has, quiet, said, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors import Tool
    from actors.changes import ChangeSet
    from actors.ports import ModelRequest
    from tests.supervisor.promises.world import World


class Shop:
    """Tools that take a while.

    Attributes:
        alive: names of the calls whose code runs. done: those that ended by themselves.
    """

    def __init__(self, *, fatal: bool = False) -> None:
        self.alive: set[str] = set()
        self.done: list[str] = []

        @tool
        async def work(name: str, seconds: float = 1.0, unwind: float = 0.0) -> str:
            """Work, and take a while to stop where it is stopped."""
            self.alive.add(name)
            try:
                await trio.sleep(seconds)
                self.done.append(name)
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(unwind)
                self.alive.remove(name)
            return name

        @tool(fatal=fatal)
        async def breaks() -> str:
            """Break, after a second."""
            await trio.sleep(1)
            msg = "broken"
            raise RuntimeError(msg)

        self.tools: list[Tool[..., Any]] = [work, breaks]


@pytest.mark.parametrize("fatal", [False, True])
async def test_br_025_a_failing_sibling_discards_no_result(
    world: World,
    autojump_clock: MockClock,
    fatal: bool,  # noqa: FBT001 - parametrised
) -> None:
    """Of three calls one succeeds, one raises, one is slow: under either policy three outcomes stand, each its own."""
    shop = Shop(fatal=fatal)
    step = [call("work", name="ok", seconds=0.5), call("breaks"), call("work", name="slow", seconds=5)]
    model = strict({"a": [step, "told"]})
    async with world.open(model) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=shop.tools), "go")
        report = await ref.wait_report()
        assert (report.status, report.text) == ("done", "told")
        assert statuses(await ref.transcript()) == ["ok", "error", "aborted" if fatal else "ok"]
        assert sorted(event.status for event in log.of(ToolEnded)) == sorted(statuses(await ref.transcript()))
        assert shop.done == (["ok"] if fatal else ["ok", "slow"])
        assert model.refused == []
        await check(sup.store)


async def test_br_025_a_cancelled_call_takes_no_sibling_with_it(world: World, autojump_clock: MockClock) -> None:
    """One call of three is cancelled by hand: its result says so, the others end as they would have."""
    shop = Shop()
    step = [call("work", name=name) for name in ("1", "2", "3")]
    async with world.open({"a": [step, "told"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=shop.tools), "go")
        await trio.sleep(0.5)
        ref.cancel_call(log.of(ToolStarted)[1].call, "hung")
        await ref.wait_idle()
        assert texts(await ref.transcript())[2:] == ["=ok:1", "=error:The call was cancelled: hung", "=ok:3", ">told"]


async def test_br_026_behind_a_fatal_failure_no_sibling_is_alive(world: World, autojump_clock: MockClock) -> None:
    """Siblings are cancelled and waited for before the model, or anybody, hears of it; what waited never starts."""
    shop = Shop(fatal=True)
    alive: list[set[str]] = []

    def model(request: ModelRequest) -> object:
        if not request.window.responses:
            slow = [call("work", name=name, seconds=60, unwind=2) for name in ("1", "2")]
            return [*slow, call("breaks"), call("work", name="3")]
        alive.append(set(shop.alive))
        return "told"

    checked = strict({"a": model})
    async with world.open(checked) as sup:
        ref = await sup.start(agent(tools=shop.tools, limits=Limits(parallel_calls=3)), "go")
        report = await ref.wait_report()
        assert report.text == "told"
        assert trio.current_time() == pytest.approx(3, abs=0.1)
        assert alive == [set()]
        assert shop.done == []
        assert statuses(await ref.transcript()) == ["aborted", "aborted", "error", "skipped"]
        assert checked.refused == []


async def test_br_026_what_does_not_stop_holds_a_fatal_failure_for_a_bounded_time(
    world: World, autojump_clock: MockClock
) -> None:
    """A sibling that takes too long to unwind is named, with its stack; the model is told that it runs still."""
    shop = Shop(fatal=True)
    notes: list[tuple[str, ...]] = []

    def model(request: ModelRequest) -> object:
        notes.append(request.notes)
        step = [call("work", name="deaf", seconds=60, unwind=30), call("breaks")]
        return "told" if request.window.responses else step

    async with world.open({"a": model}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=shop.tools, limits=Limits(hard_s=5)), "go")
        await ref.wait_report()
        assert trio.current_time() == pytest.approx(6, abs=0.1)
        (stuck,) = log.of(ToolStuck)
        assert (stuck.name, "test_parallel.py" in stuck.stack) == ("work", True)
        assert "still runs" in notes[-1][0]
        await trio.sleep(60)
        assert shop.alive == set()
        assert statuses(await ref.transcript()) == ["aborted", "error"]


async def test_br_026_what_ends_as_a_fatal_failure_is_taken_in_is_late(world: World, autojump_clock: MockClock) -> None:
    """A sibling returns in the very moment in which it is given up: an event tells it, and no turn stumbles over it."""
    for round_ in range(8):  # whoever the scheduler lets go first
        gone = trio.Event()

        @tool(fatal=True)
        async def breaks() -> str:
            """Break."""
            await trio.sleep(1)
            gone.set()  # noqa: B023 - it is over within the round
            msg = "broken"
            raise RuntimeError(msg)

        @tool
        async def work() -> str:
            """End at once when the other has failed, something else having come in between."""
            await gone.wait()  # noqa: B023 - likewise
            sup.suspend()
            return "late"

        spec = agent(f"a{round_}", tools=[breaks, work])
        steps = {spec.name: lambda r: "told" if r.window.responses else [call("work"), call("breaks")]}
        async with world.open(steps) as sup, watched(sup) as log:
            await sup.start(spec, "go")
            await trio.sleep(2)
            assert [(event.name, event.text) for event in log.of(ToolLate)] == [("work", "late")]
        async with world.open(steps, agents=[spec]) as sup:
            await sup.resume()
            ref = await sup.find(spec.name)
            await ref.wait_idle()
            assert texts(await ref.transcript())[-1] == ">told"
            assert statuses(await ref.transcript()) == ["aborted", "error"]
            await check(sup.store)


@pytest.mark.skipif(not hasattr(trio.lowlevel, "open_process"), reason="runs a program")
async def test_br_027_a_search_that_finds_nothing_cancels_none_of_26_siblings(memory: World) -> None:
    """A program that exits with 1 is an error for the model to read; all that run beside it go on to their ends."""
    seen = trio.Event()

    @command
    def search() -> list[str]:
        """Search, and find nothing."""
        return ["sh", "-c", "exit 1"]

    @tool
    async def look(ctx: Context, at: int) -> str:
        """Look, until the search has failed."""
        await seen.wait()
        return f"looked at {at}"

    step = [call("look", at=number) for number in range(26)]
    async with memory.open({"a": [[*step[:13], call("search"), *step[13:]], "told"]}) as sup:
        async with sup.events() as events:
            ref = await sup.start(agent(tools=[search, look], limits=Limits(parallel_calls=27)), "go")
            with trio.fail_after(20):
                async for event in events:
                    if isinstance(event, ToolEnded):
                        assert (event.name, event.status, event.text) == ("search", "error", "[exit code 1]")
                        break
                seen.set()
                report = await ref.wait_report()
        assert report.text == "told"
        assert statuses(await ref.transcript()) == ["ok"] * 13 + ["error"] + ["ok"] * 13


@pytest.mark.parametrize("way", ["store", "kill", "body"])
async def test_br_028_no_call_outlives_a_turn_that_stopped_unexpectedly(
    world: World, autojump_clock: MockClock, way: str
) -> None:
    """The store fails at the first result, the agent is killed, the program raises: no sibling runs on behind it."""
    shop = Shop()
    step = [call("work", name="first"), *(call("work", name=f"{n}", seconds=1_000) for n in range(3))]

    def settles(one: ChangeSet) -> bool:
        return has(one, Put, lambda op: isinstance(op.row, CallRow) and op.row.result is not None)

    async def live() -> None:
        async with world.open({"a": [step]}, grace=1) as sup:
            ref = await sup.start(agent(tools=shop.tools), "go")
            await trio.sleep(0.5)
            assert len(shop.alive) == 4
            if way == "store":
                world.spy.refuse = settles
                await trio.sleep(1)
            elif way == "kill":
                await ref.kill("now")
                await ref.wait_closed()
            else:
                raise ZeroDivisionError
            await quiet()
            assert shop.alive == set(), "while the supervisor goes on"
            if way == "kill":
                assert problems(await ref.transcript()) == []

    if way == "body":
        with pytest.raises(ZeroDivisionError):
            await live()
    else:
        await live()
    assert shop.alive == set()
    assert trio.current_time() < 100


class Files:
    """Files that are read and written slowly, so that two at once lose one's work."""

    def __init__(self, **held: str) -> None:
        self.held = held

        @tool(resource=lambda path: path)
        async def edit(path: str, old: str, new: str) -> str:
            """Replace a text."""
            text = self.held[path]
            await trio.sleep(1)
            if old not in text:
                return f"no {old} in it"
            self.held[path] = text.replace(old, new)
            return "edited"

        @tool(effect="pure", resource=lambda path: path)
        async def read(path: str) -> str:
            """Read."""
            return self.held[path]

        @tool(exclusive=True)
        async def write(path: str, text: str) -> str:
            """Write, alone."""
            await trio.sleep(1)
            self.held[path] = text
            return "written"

        self.tools: list[Tool[..., Any]] = [edit, read, write]


async def test_br_029_two_edits_of_one_file_are_both_made_in_order(world: World, autojump_clock: MockClock) -> None:
    """Calls that name one file run one after another, as asked: the second sees what the first wrote; others beside."""
    files = Files(a="one two", b="one")
    step = [
        call("edit", path="a", old="one", new="1"),
        call("edit", path="b", old="one", new="1"),
        call("edit", path="a", old="1 two", new="done"),
    ]
    async with world.open({"a": [step, "told"]}) as sup:
        ref = await sup.start(agent(tools=files.tools), "go")
        await ref.wait_idle()
        assert files.held == {"a": "done", "b": "1"}
        assert trio.current_time() == pytest.approx(2, abs=0.1)
        assert [said(r.content) for r in await ref.transcript() if isinstance(r, ResultRecord)] == ["edited"] * 3


async def test_br_030_one_child_called_twice_is_two_agents(world: World, autojump_clock: MockClock) -> None:
    """Two tasks for one spec in one batch: each has its own conversation, its own values, and its own answer."""

    @tool
    async def keep(ctx: Context, word: str) -> str:
        """Keep a word."""
        await ctx.kv.agent.set("word", word)
        await trio.sleep(1)
        return str(await ctx.kv.agent.get("word"))

    def kid(request: ModelRequest) -> object:
        task = said(request.window[0].content)  # type: ignore[union-attr]  # a message comes first
        return f"{task}: {said(request.window[-1].content)}" if request.window.responses else call("keep", word=task)  # type: ignore[union-attr]

    step = [call("kid", task="sun"), call("kid", task="moon")]
    async with world.open({"lead": [step, "told"], "kid": kid}) as sup:
        ref = await sup.start(agent("lead", children=[agent("kid", tools=[keep])]), "go")
        await ref.wait_idle()
        assert texts(await ref.transcript())[2:4] == ["=ok:sun: sun", "=ok:moon: moon"]
        for path, task in (("lead/kid", "sun"), ("lead/kid#2", "moon")):
            found = texts(await (await sup.find(path)).transcript())
            assert found == [f"<{task}", "> keep()", f"=ok:{task}", f">{task}: {task}"]
        await check(sup.store)


async def test_br_031_a_thread_that_cannot_be_cancelled_is_said_to_run_still(memory: World) -> None:
    """Behind a fatal failure a thread goes on: its result says the outcome is open, the model is told that it runs.

    What it returns in the end is an event, and never enters the conversation.
    """
    goes, ends = threading.Event(), threading.Event()
    notes: list[tuple[str, ...]] = []

    @tool
    def deaf() -> str:
        """Change something, and hear nothing."""
        goes.set()
        ends.wait(20)
        return "changed after all"

    @tool(fatal=True)
    async def breaks() -> str:
        """Break once the other runs."""
        while not goes.is_set():  # noqa: ASYNC110 - a thread has no event of ours
            await trio.sleep(0.001)
        msg = "broken"
        raise RuntimeError(msg)

    def model(request: ModelRequest) -> object:
        notes.append(request.notes)
        return "told" if request.window.responses else [call("deaf"), call("breaks")]

    try:
        async with memory.open({"a": model}, threads=True) as sup, watched(sup) as log:
            ref = await sup.start(agent(tools=[deaf, breaks], limits=Limits(hard_s=0.05)), "go")
            with trio.fail_after(20):
                await ref.wait_report()
                assert statuses(await ref.transcript()) == ["aborted", "error"]
                assert "may have taken effect" in texts(await ref.transcript())[2]
                assert "deaf" in notes[-1][0]
                assert "still runs" in notes[-1][0]
                ends.set()
                while not log.of(ToolLate):  # noqa: ASYNC110 - likewise
                    await trio.sleep(0.001)
            assert [event.text for event in log.of(ToolLate)] == ["changed after all"]
            assert "changed after all" not in "".join(texts(await ref.transcript()))
    finally:
        ends.set()


@pytest.mark.parametrize("way", ["edit", "write"])
async def test_br_032_a_read_behind_a_write_sees_it(world: World, autojump_clock: MockClock, way: str) -> None:
    """By a shared key or by a call that runs alone: a read asked for behind a write reads what was written."""
    files = Files(a="old")
    change = call("edit", path="a", old="old", new="new") if way == "edit" else call("write", path="a", text="new")
    step = [call("read", path="a"), change, call("read", path="a")]
    async with world.open({"a": [step, "told"]}) as sup:
        ref = await sup.start(agent(tools=files.tools), "go")
        await ref.wait_idle()
        found = [said(r.content) for r in await ref.transcript() if isinstance(r, ResultRecord)]
        assert (found[0], found[2]) == ("old", "new")
