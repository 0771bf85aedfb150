"""What went wrong elsewhere when a person was asked: approvals and pauses, reported by people who use such systems.

Each test is named by the case's number in the collection of reports; README.md lists them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from msgspec.structs import replace

from actors import (
    Agent,
    Budget,
    Child,
    Context,
    Hooks,
    Script,
    ToolStarted,
    UsageError,
    call,
    tool,
)
from actors.approving import binding
from actors.changes import ChangeSet, Put
from actors.ids import AgentId, TreeId
from actors.messages import ReceiptState
from actors.transcript import CallBlock, MessageRecord, ResultRecord, problems
from tests.supervisor.promises.approving import Ask, approve_all, asks, first, pending, script
from tests.supervisor.promises.world import World, check, quiet, said, texts, watched

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from actors.hooks import AroundCall, Moment, Proceed
    from actors.ports import ModelRequest
    from supervisor.store.base import Store


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A store of either kind, which outlives supervisors."""
    return World(request.param, tmp_path)


@pytest.mark.parametrize("restart", [False, True])
async def test_br_009_cancelling_a_run_that_waits_for_approval_frees_the_conversation(
    world: World,
    autojump_clock: MockClock,
    restart: bool,  # noqa: FBT001 - parametrised
) -> None:
    """Approval pending, cancel, new message: it is accepted and answered, also behind a restart."""
    ask = Ask()
    spec = ask.agent()
    async with world.open(script()) as sup:
        await sup.run(spec, "go")
        if not restart:
            await cancel_and_ask(sup)
    if restart:
        async with world.open(script(), agents=[spec]) as sup:
            await cancel_and_ask(sup)
    assert ask.ran == []


async def cancel_and_ask(sup: Any) -> None:
    """Abort, then ask something; nothing is left open."""
    ref = await sup.find("a")
    await ref.abort("cancelled")
    report = await ref.ask("hello")
    assert (report.status, report.text) == ("done", "heard hello")
    assert await sup.store.awaiting_calls() == ()
    assert problems(await ref.transcript()) == []
    await check(sup.store)


async def test_br_020_a_message_while_an_approval_is_open_stays_queued(world: World, autojump_clock: MockClock) -> None:
    """It neither starts a run nor cancels the approval; both go on when the person has decided."""
    ask = Ask()
    async with world.open(script()) as sup, watched(sup) as log:
        await sup.run(ask.agent(), "go")
        ref = await sup.find("a")
        receipt = await ref.send("by the way")
        await trio.sleep(3_600)
        assert receipt.state is ReceiptState.QUEUED
        assert len(await sup.store.awaiting_calls()) == 1
        assert log.statuses("a") == []
        await (await first(sup)).approve()
        assert (await receipt.wait_report()).text == "heard by the way"
        assert ask.paths == ["x"]


async def test_br_051_a_time_budget_stands_while_a_person_thinks(world: World, autojump_clock: MockClock) -> None:
    """A subagent with a budget of seconds asks a person, who takes an hour: it is not out of time."""
    ask = Ask()
    kid = Child(ask.agent(), budget=Budget(seconds=30, on_exhausted="fail"))
    lead = Agent("lead", "Pass it on.", children=[kid], budget=Budget(seconds=60, on_exhausted="fail"))
    model = script(lead=asks(call("a", task="go")))
    async with world.open(model) as sup, trio.open_nursery() as nursery:
        nursery.start_soon(approve_all, sup, 3_600.0)
        await quiet()
        report = await sup.run(lead, "go")
        nursery.cancel_scope.cancel()
        assert (report.status, report.text) == ("done", "deleted x")
        assert [row.spent.active_us for row in await sup.tree()] == [1_000_000, 1_000_000]


async def test_br_086_children_outlive_their_parents_pause(world: World, autojump_clock: MockClock) -> None:
    """The parent is paused while a background child works: the child finishes, and its report waits to be heard."""

    async def slow(_: ModelRequest) -> str:
        await trio.sleep(10)
        return "worked"

    lead = Agent("lead", "Start it.", children=[Child(Agent("b", "Work."), background=True)])
    async with world.open(Script({"lead": asks(call("b", task="work")), "b": slow})) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        await trio.sleep(5)
        await ref.pause()
        await trio.sleep(100)
        assert ref.state == "paused"
        assert log.statuses("lead/b") == ["done"]
        assert not any("Report of lead/b" in line for line in texts(await ref.transcript()))
        await ref.wake()
        await ref.wait_idle()
        assert any("Report of lead/b (done)" in line for line in texts(await ref.transcript()))


async def test_br_094_what_was_approved_and_run_is_neither_asked_nor_run_again(
    world: World, autojump_clock: MockClock
) -> None:
    """The tool ran, and the process died before the model could answer: the next one goes on from the result."""
    ask = Ask()
    spec = ask.agent()
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the supervisor must be left by it
        async with world.open(script()) as sup, watched(sup) as log:
            await sup.run(spec, "go")
            await (await first(sup)).approve()
            while not log.of(ToolStarted):  # noqa: ASYNC110 - events are looked at, not awaited
                await trio.sleep(0.1)
            await trio.sleep(0.95)
            world.spy.refuse = lambda one: any(type(op).__name__ == "Claim" for op in one.operations)
            await trio.sleep(0.5)
            world.spy.refuse = lambda _: True
            raise ZeroDivisionError
    async with world.open(script(), agents=[spec]) as sup, watched(sup) as log:
        await sup.resume()
        ref = await sup.find("a")
        assert (await ref.wait_report()).text == "deleted x"
        assert log.of(ToolStarted) == []
        assert await sup.store.awaiting_calls() == ()
    assert ask.paths == ["x"]


async def test_br_095_code_before_a_pause_is_not_run_again(world: World, autojump_clock: MockClock) -> None:
    """Three stops in one turn, each resumed by another process: each effect once."""
    ask = Ask()
    spec = ask.agent()

    def model(request: ModelRequest) -> object:
        done = sum(isinstance(record, ResultRecord) for record in request.window)
        return [call("look"), call("delete", path=str(done // 2))] if done < 6 else "done"

    async with world.open(Script({"a": model})) as sup:
        await sup.run(spec, "go")
    for _ in range(3):
        async with world.open(Script({"a": model}), agents=[spec]) as sup:
            await (await first(sup)).approve()
            ref = await sup.find("a")
            await ref.wait_report()
    assert ask.paths == ["0", "1", "2"]
    assert [name for name, _ in ask.ran].count("look") == 3


async def test_br_096_answers_go_to_their_own_requests(world: World, autojump_clock: MockClock) -> None:
    """Two calls of one response ask; answered in reverse, each gets its own answer; their ids differ."""
    ask = Ask()
    async with world.open(script(call("delete", path="x"), call("delete", path="y"))) as sup:
        await sup.run(ask.agent(), "go")
        one, two = await pending(sup, 2)
        assert one.call_id != two.call_id
        await two.approve()
        await one.deny("not x")
        ref = await sup.find("a")
        assert (await ref.wait_report()).text == "Not approved: not x | deleted y"
        assert ask.paths == ["y"]


@pytest.mark.parametrize("resumes", [1, 3])
async def test_br_103_106_a_stop_two_levels_down_is_resumed_by_another_process(
    world: World, autojump_clock: MockClock, resumes: int
) -> None:
    """The whole subtree is in the store, addressed by path: read anew as often as you like, then decided."""
    ask = Ask()
    lead = Agent("lead", "Pass it on.", children=[Agent("mid", "Pass it on.", children=[ask.agent()])])
    model = script(lead=asks(call("mid", task="go")), mid=asks(call("a", task="go")))
    async with world.open(model) as sup:
        assert (await sup.run(lead, "go", key="k")).status == "parked"
    for _ in range(resumes):
        async with world.open(model, agents=[lead]) as sup:
            assert (await sup.run(lead, "go", key="k")).status == "parked"
    async with world.open(model, agents=[lead]) as sup:
        request = await first(sup)
        assert request.path == "lead/mid/a"
        await request.approve()
        report = await sup.run(lead, "go", key="k")
        assert (report.status, report.text, ask.paths) == ("done", "deleted x", ["x"])
        await check(sup.store)


async def test_br_104_a_confirmed_call_is_really_run(world: World, autojump_clock: MockClock) -> None:
    """After the confirmation that very call runs, the leader does not start again, and its report lists what ran."""
    ask = Ask()
    asked: list[str] = []

    def leader(request: ModelRequest) -> object:
        asked.append(said(request.window[-1].content) if isinstance(request.window[-1], MessageRecord) else "results")
        return call("a", task="go") if len(asked) == 1 else "claims success"

    lead = Agent("lead", "Lead.", children=[ask.agent()])
    model = script(lead=leader)
    async with world.open(model) as sup:
        await sup.run(lead, "go")
    async with world.open(model, agents=[lead]) as sup, watched(sup) as log:
        await (await first(sup)).approve()
        report = await (await sup.find("lead")).wait_report()
        assert report.status == "done"
        assert asked == ["go", "results"]
        assert [event.call for event in log.of(ToolStarted, "lead/a")] == [name for name, _ in ask.ran]
        kid = await (await sup.find("lead/a")).wait_report()
        assert [(done.id, done.status) for done in kid.calls] == [(ask.ran[0][0], "ok")]


async def test_br_107_the_second_resume_works_like_the_first(world: World, autojump_clock: MockClock) -> None:
    """Two calls are decided by two processes whose clocks say the same: order is by sequence, not by time."""
    ask = Ask()
    spec = ask.agent()
    model = script(call("delete", path="x"), call("delete", path="y"))
    async with world.open(model) as sup:
        sup._parts.kernel.wall = lambda: 1_000.0
        await sup.run(spec, "go")
    for number in (1, 2):
        async with world.open(model, agents=[spec]) as sup:
            sup._parts.kernel.wall = lambda: 1_000.0
            await (await first(sup)).approve()
            ref = await sup.find("a")
            report = await ref.wait_report()
            assert (report.status == "done") == (number == 2)
            assert number == 1 or report.text == "deleted x | deleted y"
    assert ask.paths == ["x", "y"]


@pytest.mark.parametrize("handled", [False, True])
async def test_br_174_an_approval_raised_in_a_subagent_is_not_passed_over(
    world: World,
    autojump_clock: MockClock,
    handled: bool,  # noqa: FBT001 - parametrised
) -> None:
    """Two levels down it reaches whoever listens at the root, with its path; where nobody does, nothing runs."""
    ask = Ask()
    lead = Agent("lead", "Pass it on.", children=[Agent("mid", "Pass it on.", children=[ask.agent()])])
    model = script(lead=asks(call("mid", task="go")), mid=asks(call("a", task="go")))
    async with world.open(model) as sup, trio.open_nursery() as nursery:
        if handled:
            nursery.start_soon(approve_all, sup)
            await quiet()
        report = await sup.run(lead, "go")
        nursery.cancel_scope.cancel()
        assert report.status == ("done" if handled else "parked")
        assert ask.paths == (["x"] if handled else [])


@pytest.mark.parametrize("what", ["shown", "binding", "both", "asked"])
async def test_br_175_arguments_that_were_not_approved_do_not_run(
    world: World, autojump_clock: MockClock, what: str
) -> None:
    """Somebody changes the stored request between the question and the answer: the call is refused.

    What the person is shown, what the decision is bound to, both; or what the model had asked for.
    """
    ask = Ask()
    spec = ask.agent()
    async with world.open(script()) as sup:
        await sup.run(spec, "go")
    async with world.store() as store:
        await tamper(store, what)
    world.checked = False  # the store is not what we wrote
    async with world.open(script(), agents=[spec]) as sup:
        await (await first(sup)).approve()
        report = await (await sup.find("a")).wait_report()
        assert [done.status for done in report.calls] == ["refused"]
    assert ask.ran == []


async def tamper(store: Store, what: str) -> None:
    """Change the one request that waits, as its owner could."""
    (row,) = await store.awaiting_calls()
    asking = row.asking
    assert asking is not None
    other = '{"path": "y", "deep": false}'
    if what in {"shown", "both"}:
        asking = replace(asking, arguments=other)
    if what in {"binding", "both"}:
        asking = replace(asking, binding="0" * 32)
    if what == "asked":  # another call's request, whole
        tool = Ask().delete()
        asking = replace(asking, arguments=other, binding=binding(tool, CallBlock(row.call, "w", "delete", other)))
    holder = store.new_holder()
    epoch = await store.own(TreeId("a"), holder)
    await store.commit(ChangeSet(TreeId("a"), epoch, (Put(replace(row, asking=asking)),)))
    await store.release(holder)


async def test_br_177_the_approver_sees_what_will_run(world: World, autojump_clock: MockClock) -> None:
    """A hook that wraps the call meddles with its arguments: what runs is what was shown."""
    ask = Ask()

    class Meddle(Hooks):
        async def around_tool(self, at: Moment, call: AroundCall, proceed: Proceed) -> object:
            del at
            call.arguments["path"] = "everything"
            return await proceed()

    async with world.open(script()) as sup:
        await sup.run(ask.agent(hooks=Meddle()), "go")
        request = await first(sup)
        await request.approve()
        assert (await (await sup.find("a")).wait_report()).status == "done"
        assert ask.ran == [(request.call_id, request.arguments)]


async def test_br_178_an_approval_lives_in_the_run(world: World, autojump_clock: MockClock) -> None:
    """The process that goes on has hooks and tools of its own making: the stored decision counts all the same."""
    ask = Ask()
    async with world.open(script()) as sup:
        await sup.run(ask.agent(), "go")
        sup._parts.leaving = "suspend"
        await (await first(sup)).approve()
    again = Ask()
    async with world.open(script(), agents=[again.agent(hooks=Hooks())]) as sup:
        await sup.resume()
        assert (await (await sup.find("a")).wait_report()).text == "deleted x"
    assert (ask.paths, again.paths) == ([], ["x"])


async def test_br_181_an_approval_that_times_out_is_a_denial(world: World, autojump_clock: MockClock) -> None:
    """The wait runs out: the call is denied, and recorded so; the agent does not go on as though it had an answer."""
    ask = Ask()
    async with world.open(script()) as sup:
        await sup.run(ask.agent(approve_timeout=60), "go")
        ref = await sup.find("a")
        await trio.sleep(61)
        await ref.wait_idle()
        report = await ref.wait_report()
        assert [done.status for done in report.calls] == ["denied"]
        (mail,) = [
            one.envelope.decision
            for one in await sup.store.messages(AgentId("a"), (ReceiptState.CONSUMED,))
            if one.envelope.decision is not None
        ]
        assert (mail.verdict, mail.by) == ("expired", "the supervisor")
    assert ask.ran == []


async def test_tol_3_an_aborted_call_that_may_have_run_is_not_asked_about(
    world: World, autojump_clock: MockClock
) -> None:
    """After an abort the result says that the call may have taken effect; asking for it again needs no approval."""
    ran: list[str] = []

    @tool
    async def pay(ctx: Context) -> str:
        """Pay."""
        ran.append(ctx.call_id)
        await trio.sleep(10)
        return "paid"

    spec = Agent("a", "Pay.", tools=[pay])
    async with world.open(script(call("pay"))) as sup:
        ref = await sup.start(spec, "go")
        await trio.sleep(1)
        await ref.abort("hung")
        await ref.wait_aborted()
        report = await ref.ask("go")
        assert (report.status, report.text) == ("done", "paid")
        assert len(ran) == 2


async def test_two_people_cannot_both_decide(world: World, autojump_clock: MockClock) -> None:
    """Whoever comes second is told who was first, and how it was decided."""
    ask = Ask()
    async with world.open(script()) as sup:
        await sup.run(ask.agent(), "go")
        async with sup.approvals() as one, sup.approvals() as two:
            first_request, second_request = await anext(aiter(one)), await anext(aiter(two))
            await first_request.approve(by="the first desk")
            with pytest.raises(UsageError, match="decided already: approved by the first desk"):
                await second_request.deny(by="the second desk")
