"""Cases of stopping: aborts that hang, reach too little, or leave something half done, as people met them elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.lowlevel

from actors import (
    AgentEnded,
    Child,
    Script,
    ToolEnded,
    ToolLate,
    ToolStarted,
    ToolStuck,
    call,
    tool,
)
from actors.messages import ReceiptState
from actors.models.script import hang, thought
from actors.transcript import ResponseRecord, ResultRecord, Stop, problems
from tests.supervisor.promises.world import World, agent, check, said, texts, watched

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from actors.ports import ModelRequest


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A store of either kind."""
    return World(request.param, tmp_path)


@pytest.mark.parametrize("deaf", [False, True], ids=["heeds", "deaf"])
async def test_br_057_058_061_an_abort_waits_for_no_tool(
    world: World,
    autojump_clock: MockClock,
    deaf: bool,  # noqa: FBT001 - parametrised
) -> None:
    """A tool that has a long time limit, and may ignore its cancellation, keeps no abort waiting; a new turn begins."""

    @tool(timeout=600)
    async def silent() -> str:
        """Wait for a server that never answers."""
        with trio.CancelScope(shield=deaf):
            await trio.sleep(3_000)
        return "never"

    shown: list[str] = []

    def model(request: ModelRequest) -> object:
        shown.append(" ".join(request.notes))
        return "next" if len(shown) > 1 else call("silent")

    async with world.open({"a": model}, hard=10) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[silent]), "go")
        await trio.sleep(1)
        await ref.abort("stop")
        await ref.wait_aborted()
        assert trio.current_time() == 1, "at once"
        (settled,) = log.of(ToolEnded)
        assert settled.status == "aborted"
        assert "It may have taken effect" in settled.text
        assert (await ref.ask("go on")).text == "next"
        assert trio.current_time() <= 11 + 1e-3
        assert [event.name for event in log.of(ToolStuck)] == ["silent"] * deaf
        assert ("still runs" in shown[-1]) == deaf, "the model is told"
        await check(sup.store)


async def test_br_059_an_abort_at_any_step_leaves_no_run_that_eats_messages(
    world: World, autojump_clock: MockClock
) -> None:
    """Aborted at the n-th step of a turn, for every n until it is over: the next message is answered each time."""

    @tool
    async def step_by_step() -> str:
        """Take a few steps."""
        for _ in range(4):
            await trio.lowlevel.checkpoint()
        return "done"

    async def model(request: ModelRequest) -> object:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        last = request.window[-1]
        return "ok" if isinstance(last, ResultRecord) or said(last.content) == "next" else call("step_by_step")  # type: ignore[union-attr]  # a message

    became: set[str] = set()
    async with world.open({"a": model}) as sup, watched(sup) as log:
        for steps in range(200):
            ref = await sup.start(agent(tools=[step_by_step]))
            first = await ref.send("go")
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            await ref.abort("stop")
            held = first.state is not ReceiptState.CONSUMED
            with trio.fail_after(60):
                assert (await ref.ask("next")).text == "ok"
                await ref.wait_idle()
            assert first.state is ReceiptState.CONSUMED
            records = await ref.transcript()
            assert problems(records) == []
            assert texts(records)[-2:] == ["<next", ">ok"]
            results = [record.status.value for record in records if isinstance(record, ResultRecord)]
            became.add("held" if held else " ".join(results) or "no call")
            if not held and "aborted" not in log.statuses(ref.path):
                break  # the turn was over before the abort
        await check(sup.store)
    assert became >= {"held", "no call", "aborted", "ok"}, "it met the turn before, in and behind its tool"
    assert steps < 199, "the last one came too late"


async def test_br_060_a_late_result_is_not_taken_for_the_next_turns(world: World, autojump_clock: MockClock) -> None:
    """The next turn runs the same tool under the same id of the model's: each result is its own call's."""
    runs: list[int] = []

    @tool(effect="idempotent")
    async def deaf(n: int) -> str:
        """Notice nothing."""
        runs.append(n)
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return f"result {n}"

    script = {"a": [call("deaf", n=1).known_as("w"), call("deaf", n=2).known_as("w"), "done"]}
    async with world.open(script, hard=0.5) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[deaf]), "go")
        await trio.sleep(1)
        await ref.abort("stop")
        assert (await ref.ask("again")).text == "done"
        assert runs == [1, 2]
        (late,) = log.of(ToolLate)
        one, two = [event.call for event in log.of(ToolStarted)]
        assert (late.call, late.text) == (one, "result 1")
        found = [record for record in await ref.transcript() if isinstance(record, ResultRecord)]
        assert [(record.call, record.status.value) for record in found] == [(one, "aborted"), (two, "ok")]
        assert said(found[1].content) == "result 2"


class Steps(trio.abc.Instrument):
    """Counts how often any task is given its turn."""

    def __init__(self) -> None:
        self.taken = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """One more."""
        del task
        self.taken += 1


async def test_br_062_a_close_is_bounded_and_does_not_spin(world: World, autojump_clock: MockClock) -> None:
    """Closed by two tasks while a tool and a stream are stuck: both return at the bound, after few steps of tasks."""

    @tool
    async def deaf() -> str:
        """Notice nothing."""
        with trio.CancelScope(shield=True):
            await trio.sleep(500)
        return ""

    async def reads(_: ModelRequest) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(500)
        return ""

    lead = agent("lead", tools=[deaf], children=[Child(agent("kid"), background=True)])
    counter = Steps()
    async with world.open({"lead": [[call("kid", task="x"), call("deaf")]], "kid": reads}, hard=2) as sup:
        ref = await sup.start(lead, "go")
        await trio.sleep(1)
        trio.lowlevel.add_instrument(counter)

        async def close() -> None:
            await ref.close(grace=3)
            await ref.wait_closed()

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(close)
            nursery.start_soon(close)
        taken = trio.current_time() - began
        trio.lowlevel.remove_instrument(counter)
        assert 3 <= taken <= 2 * (3 + 2) + 2, "a level has its grace and its hard limit"
        assert counter.taken < 2_000
        await ref.close()
        await ref.wait_closed()
        assert trio.current_time() == began + taken, "a third one has nothing to wait for"


@pytest.mark.parametrize("chunks", [0, 1, 4, 9])
async def test_br_077_what_was_streamed_before_the_cut_is_kept(
    world: World, autojump_clock: MockClock, chunks: int
) -> None:
    """Cut behind k chunks, the text of k chunks stands, marked as interrupted, and the next request shows it.

    A promise differs from the case: half reasoning and half calls are dropped (TRN-8).
    """
    shown: list[list[str]] = []

    def model(request: ModelRequest) -> object:
        shown.append(texts(list(request.window)))
        return ("x" * chunks, hang()) if len(shown) == 1 else "next"

    async with world.open(Script({"a": model}, delta_chars=1)) as sup:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        await ref.abort("stop")
        await ref.wait_aborted()
        kept = [record for record in await ref.transcript() if isinstance(record, ResponseRecord)]
        assert [(record.text, record.stop) for record in kept] == [("x" * chunks, Stop.INTERRUPTED)] * bool(chunks)
        assert (await ref.ask("on")).text == "next"
        assert shown[1] == ["<go", *[">" + "x" * chunks] * bool(chunks), "<on"]
    async with world.open({"b": [(thought("half a"), hang())]}) as sup:
        ref = await sup.start(agent("b"), "go")
        await trio.sleep(1)
        await ref.abort("stop")
        await ref.wait_aborted()
        assert problems(await ref.transcript()) == []


async def test_br_066_a_kill_needs_nobodys_help(world: World, autojump_clock: MockClock) -> None:
    """The agent's tool notices nothing for an hour: the kill returns at once, and its late result changes nothing."""

    @tool
    async def deaf() -> str:
        """Notice nothing."""
        with trio.CancelScope(shield=True):
            await trio.sleep(3_600)
        return "late"

    async with world.open({"a": [call("deaf"), "never"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[deaf]), "go")
        await trio.sleep(1)
        await ref.kill("now")
        await ref.wait_closed()
        assert trio.current_time() == 1
        assert len(log.of(AgentEnded)) == 1
        before = await ref.transcript()
        await trio.sleep(7_200)
        assert [event.text for event in log.of(ToolLate)] == ["late"]
        assert await ref.transcript() == before
        await check(sup.store)
