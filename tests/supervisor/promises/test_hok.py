"""Hooks: which failures end a turn, and what a hook's answer is (HOK)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Hooks, Send, Steer, call, guard, tool
from actors.changes import Enqueue
from actors.models.script import broken, hang, overflow
from tests.supervisor.promises.world import agent, ops

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.hooks import Moment
    from actors.reports import Report
    from supervisor import Supervisor
    from tests.supervisor.promises.world import World

from tests.supervisor.promises.hookkit import Logs, look


class Instructs(Hooks):
    """A hook that decides."""

    async def instructions(self, at: object) -> str | None:
        raise ValueError("no instructions today")


class Tools(Hooks):
    """Likewise."""

    async def tools(self, at: object) -> None:
        raise ValueError("no tools today")


class Context(Hooks):
    """Likewise."""

    async def context(self, at: object) -> None:
        raise ValueError("no context today")


class Guards(Hooks):
    """A hook that observes, marked as a guard."""

    @guard
    async def before_request(self, at: object) -> None:
        raise ValueError("not on Sundays")


@pytest.mark.parametrize("hooks", [Instructs(), Tools(), Context(), Guards()], ids=lambda one: type(one).__name__)
async def test_hok_1_a_deciding_hook_or_a_guard_fails_the_turn_loudly(
    world: World, hooks: Hooks, autojump_clock: MockClock
) -> None:
    """The model is never asked, and the report carries what the hook raised."""
    asked: list[object] = []

    def answer(request: object) -> str:
        asked.append(request)
        return "done"

    async with world.open({"a": answer}) as sup:
        report = await sup.run(agent(hooks=hooks), "go")
    assert report.status == "failed"
    assert "ValueError" in str(report.error)
    assert asked == []


class Speaks(Hooks):
    """A hook that answers with several messages."""

    async def before_run(self, at: object) -> list[Steer | Send]:
        return [Steer("keep it short"), Send("and then?")]


async def test_hok_2_what_a_hook_returns_is_one_decision(world: World, autojump_clock: MockClock) -> None:
    """Its messages are accepted in one commit, all or none."""
    async with world.open({"a": ["one", "two", "three"]}) as sup:
        ref = await sup.start(agent(hooks=Speaks()), "go")
        await ref.wait_idle()
        accepted = [[put.envelope.content[0].text for put in ops(one, Enqueue)] for one in world.spy.with_op(Enqueue)]
    assert ["keep it short", "and then?"] in accepted


BEGIN = ["before_run 1.1", "before_turn 1.1"]
ASK = ["instructions 1.1", "before_request 1.1", "after_response 1.1"]
END = ["after_turn(done) 1.1", "after_run(done) 1.1", "settled 1.1"]


async def test_hok_2_each_hook_is_called_at_its_point_as_often_as_it_is_reached(
    world: World, autojump_clock: MockClock
) -> None:
    """Once for a run, a turn, a request; a retried attempt is no request, a batch begins another."""
    logs = Logs()
    async with world.open({"a": [broken(), call("look"), "done"]}) as sup:
        await sup.run(agent(tools=[look], hooks=logs), "go")
    assert logs.log == [*BEGIN, *ASK, *ASK, *END]


async def test_hok_2_a_request_that_compacts_first_is_another(world: World, autojump_clock: MockClock) -> None:
    """The overflowing request had its hooks, the one behind the compaction has its own; the summary's has none."""
    logs = Logs()
    script = {"a": ["first " * 400, overflow(), "a summary", "done"]}
    async with world.open(script) as sup:
        ref = await sup.start(agent(hooks=logs), "go")
        await ref.wait_idle()
        logs.log.clear()
        await ref.ask("again")
        await ref.wait_idle()
    asked = [line.split()[0] for line in logs.log]
    assert asked.count("before_turn") == asked.count("after_response") == 1
    assert asked.count("before_request") == asked.count("instructions") == 2


class Steering(Logs):
    """Somebody steers while the request's own hook runs."""

    def __init__(self, sup: list[Supervisor]) -> None:
        super().__init__()
        self.sup = sup
        self.sent = False

    async def before_request(self, at: Moment) -> None:
        """Note it, and the first time let a message come."""
        await super().before_request(at)
        if not self.sent:
            self.sent = True
            await (await self.sup[0].find("a")).steer("and this")


async def test_hok_2_a_request_that_is_chosen_again_has_its_own_hook_once(
    world: World, autojump_clock: MockClock
) -> None:
    """A message that comes behind the choice is chosen for, too; the request is still the one that was announced."""
    sup: list[Supervisor] = []
    logs = Steering(sup)
    async with world.open({"a": ["done", "done"]}) as opened:
        sup.append(opened)
        await opened.run(agent(hooks=logs), "go")
        assert logs.log[2:6] == [*ASK[:2], *ASK[::2]]


async def test_hok_2_a_turn_cut_off_by_a_restart_begins_once(world: World, autojump_clock: MockClock) -> None:
    """The process is left while the model answers: the next goes on with the turn, and ends it."""
    first, then = Logs(), Logs()
    async with world.open({"a": [(hang(),)]}) as sup:
        await sup.start(agent(hooks=first), "go")
        await trio.sleep(1)
    async with world.open({"a": ["done"]}, agents=[agent(hooks=then)]) as sup:
        (ref,) = await sup.resume()
        await ref.wait_idle()
    assert first.log == [*BEGIN, *ASK[:2]]
    assert then.log == [*ASK, *END]


async def test_hok_2_a_parked_turn_begins_and_ends_once(world: World, autojump_clock: MockClock) -> None:
    """Nothing is called while it waits for a person; approved, it goes on."""
    logs = Logs()

    @tool(approve=True)
    async def act() -> str:
        """Act."""
        return "acted"

    async with world.open({"a": [call("act"), "done"]}) as sup:
        ref = await sup.start(agent(tools=[act], hooks=logs), "go")
        async with sup.approvals() as inbox:
            async for request in inbox:
                assert logs.log == [*BEGIN, *ASK]
                await request.approve()
                break
        await ref.wait_idle()
    assert logs.log == [*BEGIN, *ASK, *ASK, *END]


async def test_hok_2_a_paused_turn_begins_and_ends_once(world: World, autojump_clock: MockClock) -> None:
    """Paused between two requests and woken, it goes on."""
    logs = Logs()

    @tool(effect="pure")
    async def slow() -> str:
        """Take a while."""
        await trio.sleep(5)
        return "slept"

    async with world.open({"a": [call("slow"), "done"]}) as sup:
        ref = await sup.start(agent(tools=[slow], hooks=logs), "go")
        await trio.sleep(1)
        await ref.pause()
        await trio.sleep(60)
        assert logs.log == [*BEGIN, *ASK]
        await ref.wake()
        await ref.wait_idle()
    assert logs.log == [*BEGIN, *ASK, *ASK, *END]


async def test_hok_2_a_run_whose_last_message_is_withdrawn_is_over_all_the_same(
    world: World, autojump_clock: MockClock
) -> None:
    """The turn had ended with a message waiting; taken back, the run is over, and its hooks hear it once."""
    ref_of: list[Any] = []

    class Withdraws(Logs):
        async def after_turn(self, at: Moment, report: Report) -> None:
            await super().after_turn(at, report)
            receipt = ref_of.pop()
            await receipt.withdraw()

    logs = Withdraws()
    async with world.open({"a": [lambda _: "done"]}) as sup:
        ref = await sup.start(agent(hooks=logs))
        await ref.pause()
        await ref.send("go")
        ref_of.append(await ref.send("and more"))
        await ref.wake()
        await ref.wait_idle()
    assert logs.log == [*BEGIN, *ASK, *END]


async def test_hok_2_a_turn_that_came_to_nothing_ends_no_run_twice(world: World, autojump_clock: MockClock) -> None:
    """The message of the next run is withdrawn while its hooks look: the last run's end is not told again."""
    taken: list[Any] = []

    class Withdraws(Logs):
        async def before_turn(self, at: Moment) -> None:
            await super().before_turn(at)
            if at.turn == 2:
                await taken[0].withdraw()

    logs = Withdraws()
    async with world.open({"a": ["done"]}) as sup:
        ref = await sup.start(agent(hooks=logs), "go")
        await ref.wait_idle()
        await ref.pause()
        taken.append(await ref.send("never mind"))
        await ref.wake()
        await ref.wait_idle()
    assert [line for line in logs.log if "after_run" in line] == ["after_run(done) 1.1", "after_run() 2.2"]
    assert logs.log[-1] == "settled 2.2", "it had begun, and so it ended (TRN-4)"


async def test_hok_2_what_is_sent_when_a_run_is_over_begins_the_next(world: World, autojump_clock: MockClock) -> None:
    """An answer of `after_run` is a run of its own, with its own hooks."""

    class Goes(Logs):
        async def after_run(self, at: Moment, report: Report) -> Send | None:  # type: ignore[override]  # narrower
            await super().after_run(at, report)
            return Send("once more") if at.run == 1 else None

    logs = Goes()
    async with world.open({"a": ["one", "two"]}) as sup:
        ref = await sup.start(agent(hooks=logs), "go")
        await ref.wait_idle()
    assert [line for line in logs.log if "run" in line or "settled" in line] == [
        "before_run 1.1",
        "after_run(one) 1.1",
        "before_run 2.2",
        "after_run(two) 2.2",
        "settled 2.2",
    ]
