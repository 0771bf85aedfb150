"""TRN-7: the time that a turn may take: said to the model first where it can be, and then a typed error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.from_thread
import trio.lowlevel
from trio.testing import MockClock

from actors import Hooks, LimitReached, Limits, Moment, UsageError, call, tool
from actors.models.script import hang
from actors.transcript import NoteRecord, ResponseRecord, ResultRecord, problems
from supervisor.timekeeper import jumps
from tests.supervisor.promises.world import agent, check, said, texts

if TYPE_CHECKING:
    from actors import Agent
    from actors.ports import ModelRequest
    from tests.supervisor.promises.world import World

LIMITS = Limits(turn_s=100, first_event_s=10_000, between_events_s=10_000, parallel_calls=1)


@tool
async def work(seconds: float) -> str:
    """Work."""
    await trio.sleep(seconds)
    return "worked"


def spec(**options: Any) -> Agent:
    """An agent that may take a hundred seconds."""
    return agent(**{"tools": [work], "limits": LIMITS, **options})


async def test_trn_7_a_stream_is_cut_when_the_time_is_up(world: World, autojump_clock: MockClock) -> None:
    """What was whole of the response stays, the turn ends in the typed error, the next one has a fresh clock."""
    async with world.open({"a": [("half", hang()), call("work", seconds=80), "well"]}) as sup:
        ref = await sup.start(spec(), "go")
        began = trio.current_time()
        report = await ref.wait_report()
        assert trio.current_time() - began == pytest.approx(100)
        assert (report.status, type(report.error)) == ("failed", LimitReached)
        assert "turn_s" in str(report.error)
        records = await ref.transcript()
        assert problems(records) == []
        assert [record.text for record in records if isinstance(record, ResponseRecord)] == ["half"]
        assert (await ref.ask("again")).text == "well"
        await check(sup.store)


async def test_trn_7_calls_are_cut_when_the_time_is_up(world: World, autojump_clock: MockClock) -> None:
    """One that runs is told as timed out, one that had not begun as skipped; a deaf one holds nothing up."""

    @tool
    async def deaf() -> str:
        """Notice nothing."""
        with trio.CancelScope(shield=True):
            await trio.sleep(150)
        return "late"

    script = {"a": [[call("deaf"), call("work", seconds=1)], "well"]}
    async with world.open(script) as sup:
        ref = await sup.start(spec(tools=[work, deaf]), "go")
        began = trio.current_time()
        report = await ref.wait_report()
        assert trio.current_time() - began == pytest.approx(100)
        assert isinstance(report.error, LimitReached)
        found = [one for one in await ref.transcript() if isinstance(one, ResultRecord)]
        assert [one.status.value for one in found] == ["timeout", "skipped"]
        assert said(found[0].content).startswith("The time for this turn was up while this call was running. It may")
        assert said(found[1].content) == "Not run: the time for this turn was up before this call started."
        await check(sup.store)


async def test_trn_7_the_model_is_told_before_the_time_is_up(world: World, autojump_clock: MockClock) -> None:
    """At a boundary in the last tenth it is asked to answer without tools, and may."""
    asked: list[str] = []

    def model(request: ModelRequest) -> object:
        asked.append(request.tool_choice)
        return "answer" if request.tool_choice == "none" else call("work", seconds=47)

    async with world.open({"a": model}) as sup:
        ref = await sup.start(spec(), "go")
        report = await ref.wait_report()
        assert (report.status, report.text) == ("done", "answer")
        assert asked == ["auto", "auto", "none"]
        (note,) = [one for one in await ref.transcript() if isinstance(one, NoteRecord)]
        assert note.text == "The time for this turn is nearly up: answer now, without tools."


async def test_trn_7_the_time_of_a_turn_stands_while_a_person_is_waited_for(
    world: World, autojump_clock: MockClock
) -> None:
    """However long an approval takes, in the agent or in a child it waits for; and no pause of ours counts."""

    @tool(approve=True)
    async def risky() -> str:
        """Risk it."""
        return "done"

    kid = spec(tools=[risky])
    lead = agent("lead", tools=[work], children=[kid], limits=LIMITS)
    script = {"lead": [call("a", task="go"), call("work", seconds=60), "led"], "a": [call("risky"), "did"]}
    async with world.open(script) as sup, sup.approvals() as inbox:
        ref = await sup.start(lead, "go")
        request = await anext(inbox)
        await trio.sleep(5_000)
        await request.approve()
        assert (await ref.wait_report()).text == "led"


async def test_trn_7_the_time_before_a_restart_counts(world: World, autojump_clock: MockClock) -> None:
    """A turn that went on for sixty seconds has forty left; the hours in between do not count."""
    pure = tool(effect="pure")(work.fn)
    first = {"a": [call("work", seconds=60), hang()]}
    async with world.open(first, on_exit="suspend", grace=0.1) as sup:
        await sup.start(spec(tools=[pure]), "go")
        await trio.sleep(70)
    await trio.sleep(10_000)
    async with world.open({"a": lambda _: hang()}, agents=[spec(tools=[pure])]) as sup:
        began = trio.current_time()
        (ref,) = await sup.resume()
        report = await ref.wait_report()
        assert isinstance(report.error, LimitReached)
        assert 29 < trio.current_time() - began <= 40.001


async def test_trn_7_a_hook_that_hangs_ends_its_turn_and_what_it_would_have_answered(
    world: World, autojump_clock: MockClock
) -> None:
    """The message is taken and told, not asked for again and again."""
    hung: list[int] = []

    class Hangs(Hooks):
        async def before_turn(self, at: Moment) -> None:
            hung.append(at.turn)
            await trio.sleep_forever()

    async with world.open({"a": ["never asked"]}) as sup:
        ref = await sup.start(spec(hooks=Hangs()))
        report = await (await ref.send("go")).wait_report()
        assert isinstance(report.error, LimitReached)
        await ref.wait_idle()
        assert hung == [1]
        assert texts(await ref.transcript())[0] == "<go"
        await check(sup.store)


async def test_trn_7_a_turn_has_half_an_hour_where_nothing_else_is_said(
    world: World, autojump_clock: MockClock
) -> None:
    """A call that never returns does not hold its agent for ever."""
    async with world.open({"a": [call("work", seconds=1_000_000), "never asked"]}) as sup:
        began = trio.current_time()
        report = await sup.run(agent(tools=[work]), "go")
        assert isinstance(report.error, LimitReached)
        assert trio.current_time() - began == pytest.approx(1_800)


async def test_trn_7_a_clock_that_jumps_while_a_thread_works_ends_no_turn(
    world: World, autojump_clock: MockClock
) -> None:
    """Under it a turn has no time but one that was asked for: all of it would pass at once."""

    @tool
    def think(seconds: float) -> str:
        """Work in a thread, while nothing runs on Trio's."""
        trio.from_thread.run(trio.sleep, seconds)
        return "thought"

    script = {"a": [call("think", seconds=5_000), "done"], "b": [call("think", seconds=200)]}
    async with world.open(script, threads=True) as sup:
        assert (await sup.run(agent(tools=[think]), "go")).text == "done"
        report = await sup.run(agent("b", tools=[think], limits=LIMITS), "go")
        assert isinstance(report.error, LimitReached)


async def test_trn_7_a_clock_that_runs_by_itself_is_told_from_one_that_jumps() -> None:
    """The real clock keeps the time of turns; a virtual one does where it does not wait for a jump."""
    assert jumps(MockClock(autojump_threshold=0))
    assert not jumps(MockClock(rate=1.0))
    assert not jumps(trio.lowlevel.current_clock())


async def test_trn_7_a_turn_without_a_limit_takes_what_it_takes(world: World, autojump_clock: MockClock) -> None:
    """And no task waits for its end."""
    async with world.open({"a": [call("work", seconds=1_000_000), "done"]}) as sup:
        report = await sup.run(spec(limits=Limits(turn_s=None)), "go")
        assert report.status == "done"
        assert sup._parts.timekeeper._running is False


async def test_trn_7_one_task_keeps_the_time_of_all_turns(memory: World, autojump_clock: MockClock) -> None:
    """Each ends at its own time, whichever began first; what is over leaves nothing behind."""
    times: dict[str, float] = {}
    script: dict[str, object] = {name: [hang()] for name in "abc"}
    async with memory.open(script) as sup, trio.open_nursery() as nursery:

        async def one(name: str, turn_s: float) -> None:
            limits = Limits(turn_s=turn_s, first_event_s=10_000)
            report = await sup.run(agent(name, limits=limits), "go")
            assert isinstance(report.error, LimitReached)
            times[name] = trio.current_time() - began

        began = trio.current_time()
        for name, turn_s in (("a", 300.0), ("b", 100.0), ("c", 200.0)):
            nursery.start_soon(one, name, turn_s)
            await trio.sleep(1)
        await trio.sleep(400)
        assert [times[name] for name in "bca"] == pytest.approx([101, 202, 300])
        assert sup._parts.timekeeper._due == {}


@pytest.mark.parametrize("wrong", [0, -1, True, "1", float("inf"), float("nan")])
def test_trn_7_a_time_that_cannot_be_meant_is_refused(wrong: object) -> None:
    """Where it is written."""
    with pytest.raises(UsageError, match="turn_s"):
        Limits(turn_s=wrong)  # type: ignore[arg-type]  # on purpose
