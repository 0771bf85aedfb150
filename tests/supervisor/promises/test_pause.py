"""`pause()` and `wake()`: a person stops an agent at a boundary, and it goes on, also in another process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Agent, AgentSuspended, Script, TurnStarted, call, tool
from actors.changes import AgentRow, Enqueue, Put
from actors.ids import AgentId
from actors.messages import Purpose, ReceiptState
from actors.transcript import MessageRecord, ResultRecord
from tests.supervisor.promises.approving import Ask, asks, first, script
from tests.supervisor.promises.world import agent, check, has, quiet, said, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from tests.supervisor.promises.world import World


class Steps:
    """An agent that works in steps of ten seconds, a tool call each; what runs is noted."""

    def __init__(self, count: int = 3) -> None:
        self.ran: list[int] = []

        @tool
        async def work(step: int) -> str:
            """Work."""
            self.ran.append(step)
            await trio.sleep(10)
            return f"step {step}"

        self.spec = Agent("a", "Work.", tools=[work])

        def model(request: ModelRequest) -> object:
            last = request.window[-1]
            if isinstance(last, MessageRecord) and said(last.content) != "go":
                return f"heard {said(last.content)}"
            done = sum(isinstance(record, ResultRecord) for record in request.window)
            return call("work", step=done) if done < count else "worked"

        self.model = Script({"a": model})


async def test_a_pause_stops_at_the_next_boundary(world: World, autojump_clock: MockClock) -> None:
    """The call that runs is finished and its result kept; then nothing, however long; `wake` goes on behind it."""
    steps = Steps()
    async with world.open(steps.model) as sup, watched(sup) as log:
        ref = await sup.start(steps.spec, "go")
        await trio.sleep(15)
        await ref.pause()
        assert ref.state == "running"
        await trio.sleep(3_600)
        assert ref.state == "paused"
        assert steps.ran == [0, 1]
        assert [event.reason for event in log.of(AgentSuspended)] == ["paused"]
        assert (await sup.tree())[0].suspended == "paused"
        await ref.wake()
        report = await ref.wait_report()
        assert (report.status, report.text, steps.ran) == ("done", "worked", [0, 1, 2])
        assert (await sup.tree())[0].suspended is None
        await check(sup.store)


async def test_whoever_waits_outside_is_told_parked(world: World, autojump_clock: MockClock) -> None:
    """`run` and replies that wait for a paused agent return parked, with the way on; later waits return at once."""
    steps = Steps()
    async with world.open(steps.model) as sup, trio.open_nursery() as nursery:
        reports: list[Any] = []

        async def run() -> None:
            reports.append(await sup.run(steps.spec, "go"))

        nursery.start_soon(run)
        await trio.sleep(5)
        ref = await sup.find("a")
        receipt = await ref.send("more")
        await ref.pause()
        await trio.sleep(10)
        assert [report.status for report in reports] == ["parked"]
        assert "a is paused: wake() goes on" in str(reports[0].error)
        assert (await receipt.wait_report()).status == "parked"
        assert (await ref.wait_report()).status == "parked"
        assert receipt.state is ReceiptState.QUEUED
        await ref.wake()
        assert (await receipt.wait_report()).text == "heard more"
        await check(sup.store)


async def test_bud_6_a_paused_agent_costs_no_time(world: World, autojump_clock: MockClock) -> None:
    """A day of pause is no active second, for the agent and for the parent whose turn waits for it."""
    steps = Steps(1)
    lead = Agent("lead", "Pass it on.", children=[steps.spec])
    steps.model = Script({"lead": asks(call("a", task="go")), "a": steps.model._steps["a"]})
    async with world.open(steps.model) as sup:
        ref = await sup.start(lead, "go")
        await trio.sleep(5)
        kid = await sup.find("lead/a")
        await kid.pause()
        await trio.sleep(86_400)
        assert (await ref.wait_report()).status == "parked"
        await kid.wake()
        report = await ref.wait_report()
        assert (report.status, report.text) == ("done", "worked")
        assert {row.agent: row.spent.active_us for row in await sup.tree()} == {
            "lead": 10_000_000,
            "lead/a": 10_000_000,
        }


async def test_a_pause_outlives_the_process(world: World, autojump_clock: MockClock) -> None:
    """A new process lists the paused agent and starts nothing; `wake` there goes on where it was."""
    steps = Steps()
    async with world.open(steps.model) as sup:
        ref = await sup.start(steps.spec, "go")
        await trio.sleep(5)
        await ref.pause()
        await trio.sleep(10)
    async with world.open(steps.model, agents=[steps.spec]) as sup:
        (ref,) = await sup.resume()
        await trio.sleep(100)
        assert (ref.state, steps.ran) == ("paused", [0])
        report = await sup.run(steps.spec, "again", key="k")
        assert (report.path, report.status) == ("a#2", "done")
        await ref.wake()
        assert (await ref.wait_report()).text == "worked"
        assert steps.ran[:3] == [0, 1, 2]
        await check(sup.store)


async def test_a_pause_that_was_accepted_holds_whatever_happens(world: World, autojump_clock: MockClock) -> None:
    """The process dies before the pause is carried out: the next one begins no turn."""
    steps = Steps()
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the supervisor must be left by it
        async with world.open(steps.model) as sup:
            ref = await sup.start(steps.spec, "go")
            await trio.sleep(5)
            await ref.pause()
            world.spy.refuse = lambda _: True
            raise ZeroDivisionError
    async with world.open(steps.model, agents=[steps.spec]) as sup:
        (ref,) = await sup.resume()
        await trio.sleep(100)
        assert (ref.state, steps.ran) == ("paused", [0])
        await ref.wake()
        assert (await ref.wait_report()).status == "done"


async def test_an_idle_agent_that_is_paused_begins_no_turn(world: World, autojump_clock: MockClock) -> None:
    """Messages are accepted and wait, also through a restart; they are answered when it is woken."""
    spec = agent()
    model = Script({"a": asks()})
    async with world.open(model) as sup, watched(sup) as log:
        ref = await sup.start(spec)
        await ref.pause()
        await quiet()
        assert ref.state == "paused"
        receipt = await ref.send("hello")
        await trio.sleep(10)
        assert (await ref.ask("are you there?")).status == "parked"
        assert log.of(TurnStarted) == []
        assert receipt.state is ReceiptState.QUEUED
    async with world.open(model, agents=[spec]) as sup:
        assert [ref.path for ref in await sup.resume()] == ["a"]
        ref = await sup.find("a")
        await trio.sleep(10)
        assert await ref.transcript() == ()
        await ref.wake()
        await ref.wait_idle()
        assert texts(await ref.transcript()) == ["<hello", ">heard hello", "<are you there?", ">heard are you there?"]


async def test_pauses_and_wakes_count_in_their_order(world: World, autojump_clock: MockClock) -> None:
    """The last of them holds; a pause twice is one, a wake without a pause changes nothing."""
    steps = Steps()
    async with world.open(steps.model) as sup:
        ref = await sup.start(steps.spec, "go")
        await ref.wake()
        await trio.sleep(5)
        await ref.pause()
        await ref.wake()
        await trio.sleep(10)
        assert steps.ran == [0, 1]
        await ref.pause()
        await ref.pause()
        await trio.sleep(100)
        assert ref.state == "paused"
        await ref.wake()
        assert (await ref.wait_report()).status == "done"
        assert steps.ran == [0, 1, 2]
        assert await sup.store.agents_with_work() == ()


async def test_a_turn_that_is_paused_three_times_does_each_step_once(world: World, autojump_clock: MockClock) -> None:
    """Paused in each step and woken by another process each time: no effect is repeated, no step left out."""
    steps = Steps()
    async with world.open(steps.model) as sup:
        ref = await sup.start(steps.spec, "go")
        await trio.sleep(5)
        await ref.pause()
        await trio.sleep(10)
    for _ in range(2):
        async with world.open(steps.model, agents=[steps.spec]) as sup:
            ref = await sup.find("a")
            await ref.wake()
            await trio.sleep(5)
            await ref.pause()
            await trio.sleep(10)
            assert ref.state == "paused"
    async with world.open(steps.model, agents=[steps.spec]) as sup:
        ref = await sup.find("a")
        await ref.wake()
        assert (await ref.wait_report()).text == "worked"
    assert steps.ran == [0, 1, 2]


async def test_an_abort_ends_the_turn_and_its_pause(world: World, autojump_clock: MockClock) -> None:
    """The paused turn is over, and a later message starts one (ABT-4)."""
    steps = Steps()
    async with world.open(steps.model) as sup, watched(sup) as log:
        ref = await sup.start(steps.spec, "go")
        await trio.sleep(5)
        await ref.pause()
        await trio.sleep(10)
        await ref.abort("enough")
        await ref.wait_aborted()
        assert log.statuses("a") == ["aborted"]
        assert (await ref.ask("hello")).text == "heard hello"
        await check(sup.store)


async def test_a_pause_and_an_approval(world: World, autojump_clock: MockClock) -> None:
    """Paused while it waits for a person: the decision is accepted and waits for `wake`; a message does too."""
    ask = Ask()
    spec = ask.agent()
    async with world.open(script()) as sup:
        ref = await sup.start(spec, "go")
        await quiet()
        assert ref.state == "approval"
        await ref.pause()
        await quiet()
        assert ref.state == "paused"
        await (await first(sup)).approve()
        await trio.sleep(100)
        assert ask.ran == []
    async with world.open(script(), agents=[spec]) as sup:
        await sup.resume()
        ref = await sup.find("a")
        await trio.sleep(100)
        assert (ref.state, ask.ran) == ("paused", [])
        await ref.wake()
        report = await ref.wait_report()
        assert (report.text, ask.paths) == ("deleted x", ["x"])


async def test_con_6_pauses_are_no_crashes(world: World, autojump_clock: MockClock) -> None:
    """However often a parked turn is paused, and woken by another process: it is not counted as crashed."""
    ask = Ask()
    spec = ask.agent()
    async with world.open(script()) as sup:
        assert (await sup.run(spec, "go")).status == "parked"
    for _ in range(4):
        async with world.open(script(), agents=[spec]) as sup:
            ref = await sup.find("a")
            await ref.pause()
            await quiet()
        async with world.open(script(), agents=[spec]) as sup:
            ref = await sup.find("a")
            await ref.wake()
            await quiet()
            assert ref.state == "approval"
            opened = (await sup.tree())[0].open
            assert opened is not None
            assert opened.tries == 0
    async with world.open(script(), agents=[spec]) as sup:
        await (await first(sup)).approve()
        assert (await (await sup.find("a")).wait_report()).text == "deleted x"


async def test_a_woken_agent_that_still_waits_for_a_person_parks_again(world: World, autojump_clock: MockClock) -> None:
    """`wake` decides nothing: what needs approval needs it still, and the same request stays open."""
    ask = Ask()
    async with world.open(script()) as sup:
        ref = await sup.start(ask.agent(), "go")
        await quiet()
        request = await first(sup)
        await ref.pause()
        await ref.wake()
        await quiet()
        assert ref.state == "approval"
        await ref.wake()
        await quiet()
        assert ref.state == "approval"
        await request.approve()
        assert (await ref.wait_report()).text == "deleted x"


async def test_a_pause_is_one_commit_with_its_claim(world: World, autojump_clock: MockClock) -> None:
    """The order leaves the mailbox in the commit that writes the row: after a crash it is paused, or is to be."""
    async with world.open(Script({"a": asks()})) as sup:
        ref = await sup.start(agent())
        await ref.pause()
        await quiet()
        (written,) = [
            one for one in world.spy.sets
            if has(one, Put, lambda put: isinstance(put.row, AgentRow) and put.row.suspended == "paused")
        ]  # fmt: skip
        assert len(written.operations) == 2
        orders = [one for one in world.spy.sets if has(one, Enqueue, lambda o: o.envelope.purpose is Purpose.PAUSE)]
        assert [one.epoch for one in orders] == [None]
        assert await sup.store.messages(AgentId("a"), (ReceiptState.QUEUED,)) == ()
