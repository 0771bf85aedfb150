"""TOL-12: decisions, their expiry, and what was approved is what runs; TOL-3: repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Agent, ApprovalDecided, Context, Hooks, Limits, MailboxFull, Script, UsageError, call, tool
from actors.changes import CallRow, CallState, Claim, Enqueue, Put
from actors.ids import AgentId
from actors.messages import LaneBound, Purpose, ReceiptState
from actors.transcript import ResultRecord
from tests.supervisor.promises.approving import Ask, asks, first, pending, script
from tests.supervisor.promises.world import World, check, has, ops, quiet, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.hooks import AroundCall, Moment, Proceed
    from actors.ports import ModelRequest
    from supervisor import Approval

from tests.supervisor.promises.parked import stopped

# -- decisions ---------------------------------------------------------------------------------------------------------


async def test_tol_12_a_decision_is_never_asked_twice(world: World, autojump_clock: MockClock) -> None:
    """A second decision, the same or another, is refused and names the first; so is one on a call that never asked."""
    ask = Ask()
    async with world.open(script()) as sup:
        ref = await stopped(sup, ask.agent())
        request = await first(sup)
        await request.deny("not now", by="one")
        for again in (request.approve, request.deny):
            with pytest.raises(UsageError, match=r"a:t1.1.0 of a is decided already: denied by one \(not now\)"):
                await again()
        await ref.wait_report()
        with pytest.raises(UsageError, match="decided already: denied by one"):
            await request.approve(by="another")
        assert ask.ran == []
        mail = await sup.store.messages(AgentId("a"), (ReceiptState.CONSUMED,))
        assert [one.envelope.decision.by for one in mail if one.envelope.decision is not None] == ["one"]
        await check(sup.store)


async def test_tol_12_the_second_of_two_deciders_is_refused(world: World, autojump_clock: MockClock) -> None:
    """Two people decide in the same moment: one decision stands, the other hears of it."""
    ask = Ask()
    heard: list[str] = []
    async with world.open(script()) as sup:
        ref = await stopped(sup, ask.agent())
        request = await first(sup)

        async def decide(verb: Any, by: str) -> None:
            try:
                await verb(by=by)
                heard.append(by)
            except UsageError as error:
                heard.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(decide, request.approve, "one")
            nursery.start_soon(decide, request.deny, "two")
        (winner,) = [text for text in heard if text in ("one", "two")]
        (loser,) = [text for text in heard if text not in ("one", "two")]
        assert f"decided already: {'approved' if winner == 'one' else 'denied'} by {winner}" in loser
        await ref.wait_report()
        assert len(ask.ran) == (winner == "one")


@pytest.mark.parametrize("wrong", [3, None, "\ud800"])
async def test_acc_2_a_decision_that_no_store_reads_back_is_refused(
    world: World, autojump_clock: MockClock, wrong: Any
) -> None:
    """What names no decider is refused before it is written: its agent could never be read in again."""
    ask = Ask()
    async with world.open(script()) as sup:
        ref = await stopped(sup, ask.agent())
        request = await first(sup)
        for decide in (request.approve, request.deny):
            with pytest.raises(UsageError, match="by= says who decides"):
                await decide(by=wrong)
        await request.approve(by="one")
        assert (await ref.wait_report()).status == "done"
        await check(sup.store)


async def test_tol_12_requests_are_decided_in_any_order(world: World, autojump_clock: MockClock) -> None:
    """Two calls of one batch wait; the later is decided first, by another process than the earlier."""
    ask = Ask()
    spec = ask.agent()
    model = script(call("delete", path="x"), call("delete", path="y"))
    async with world.open(model) as sup:
        await stopped(sup, spec)
        requests = await pending(sup, 2)
        assert [request.arguments["path"] for request in requests] == ["x", "y"]
        await requests[1].deny("keep y")
        await quiet()
        assert ask.ran == []
    async with world.open(model, agents=[spec]) as sup:
        (request,) = await pending(sup, 1)
        assert request.arguments["path"] == "x"
        await request.approve()
        report = await (await sup.find("a")).wait_report()
        assert (report.text, ask.paths) == ("deleted x | Not approved: keep y", ["x"])


async def test_tol_12_agents_do_not_decide(world: World, autojump_clock: MockClock) -> None:
    """A tool that got hold of a request may not decide on it: what a model says approves nothing."""
    ask, told = Ask(), []
    requests: list[Approval] = []

    @tool
    async def decide() -> str:
        """Approve it ourselves."""
        try:
            await requests[0].approve(by="the model")
        except UsageError as error:
            told.append(str(error))
        return "tried"

    async with world.open(script(b=asks(call("decide")))) as sup:
        await stopped(sup, ask.agent())
        requests.append(await first(sup))
        await sup.run(Agent("b", "Decide.", tools=[decide]), "go")
        assert len(told) == 1
        assert "may not decide" in told[0]
        assert len(await sup.store.awaiting_calls()) == 1
    assert ask.ran == []


async def test_acc_6_a_decision_has_its_place(world: World, autojump_clock: MockClock) -> None:
    """However full the mailbox, and also while the agent closes, a decision is accepted."""
    ask = Ask()
    spec = ask.agent(limits=Limits(send=LaneBound(messages=1), steer=LaneBound(messages=1)))
    async with world.open(script()) as sup:
        ref = await stopped(sup, spec)
        await ref.send("one")
        with pytest.raises(MailboxFull):
            await ref.send("two")
        await (await first(sup)).approve()
        assert (await ref.wait_report()).status == "done"


async def test_tol_12_the_decision_is_claimed_with_what_it_does(world: World, autojump_clock: MockClock) -> None:
    """One commit takes the decision out of the mailbox and writes the call as started, before it starts."""
    ask = Ask()
    async with world.open(script()) as sup:
        ref = await stopped(sup, ask.agent())
        await (await first(sup)).approve()
        await ref.wait_report()
        starts = [
            one for one in world.spy.sets
            if has(one, Put, lambda put: isinstance(put.row, CallRow) and put.row.state is CallState.STARTED)
        ]  # fmt: skip
        assert len(starts) == 1
        assert len(ops(starts[0], Claim)) == 1
        accepted = [
            one for one in world.spy.sets if has(one, Enqueue, lambda o: o.envelope.purpose is Purpose.DECISION)
        ]
        assert [one.epoch for one in accepted] == [None]


# -- expiry ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["tool", "limits"])
async def test_tol_12_a_request_that_expires_is_denied(world: World, autojump_clock: MockClock, where: str) -> None:
    """Nobody decides in time: it counts as denied, is recorded as expired, and the run goes on by itself."""
    ask = Ask()
    options: dict[str, Any] = {"approve_timeout": 60} if where == "tool" else {"limits": Limits(approve_s=60)}
    async with world.open(script()) as sup, watched(sup) as log:
        ref = await stopped(sup, ask.agent(**options))
        request = await first(sup)
        await trio.sleep(59)
        assert ref.state == "approval"
        await trio.sleep(2)
        await ref.wait_idle()
        report = await ref.wait_report()
        assert (report.status, report.text) == ("done", "Not approved: nobody decided in time. Nothing was run.")
        assert [(event.verdict, event.by) for event in log.of(ApprovalDecided)] == [("expired", "the supervisor")]
        with pytest.raises(UsageError, match="decided already: expired by the supervisor"):
            await request.approve()
        assert ask.ran == []
        await check(sup.store)


async def test_tol_12_what_expired_while_nobody_was_there_is_denied(world: World, autojump_clock: MockClock) -> None:
    """The deadline passed while no process ran: the next one denies it, whoever would approve it now."""
    ask = Ask()
    spec = ask.agent(approve_timeout=60)
    async with world.open(script()) as sup:
        sup._parts.kernel.wall = lambda: 1_000.0
        await stopped(sup, spec)
    async with world.open(script(), agents=[spec]) as sup:
        sup._parts.kernel.wall = lambda: 2_000.0
        await sup.resume()
        ref = await sup.find("a")
        await ref.wait_idle()
        assert (await ref.wait_report()).text == "Not approved: nobody decided in time. Nothing was run."
    assert ask.ran == []


async def test_tol_12_the_time_of_day_counts_whatever_the_timer_does(world: World, autojump_clock: MockClock) -> None:
    """A machine that slept wakes believing that there is time left: an approval that comes too late is refused."""
    ask = Ask()
    async with world.open(script()) as sup:
        sup._parts.kernel.wall = lambda: 1_000.0
        ref = await stopped(sup, ask.agent(approve_timeout=60))
        request = await first(sup)
        sup._parts.kernel.wall = lambda: 1_060.0
        with pytest.raises(UsageError, match="has expired"):
            await request.approve()
        await ref.wait_idle()
        assert (await ref.wait_report()).text.startswith("Not approved: nobody decided in time")
    assert ask.ran == []


async def test_tol_12_one_timer_serves_all(world: World, autojump_clock: MockClock) -> None:
    """Many deadlines, one task, in order of time, and none when nothing can expire any more."""
    ask = Ask()
    calls = [call("delete", path="x"), call("erase", path="y")]

    @tool(approve=True, approve_timeout=30)
    async def erase(path: str) -> str:
        """Erase."""
        return path

    spec = Agent("a", "Tidy.", tools=[ask.delete(approve_timeout=90), erase])
    async with world.open(script(*calls)) as sup, watched(sup) as log:

        def timers() -> int:
            return len([task for task in sup._parts.kernel.nursery.child_tasks if "Approvals" in task.name])

        assert timers() == 0
        ref = await stopped(sup, spec)
        assert timers() == 1
        await trio.sleep(31)
        await quiet()
        assert [event.name for event in log.of(ApprovalDecided)] == ["erase"]
        await trio.sleep(60)
        await ref.wait_idle()
        assert [event.name for event in log.of(ApprovalDecided)] == ["erase", "delete"]
        assert timers() == 0


async def test_tol_12_an_expiry_that_is_not_written_is_tried_again(world: World, autojump_clock: MockClock) -> None:
    """The store does not answer when a request expires: nothing runs, and it is denied as soon as it can be written."""
    ask = Ask()
    async with world.open(script()) as sup:
        ref = await stopped(sup, ask.agent(approve_timeout=60))
        world.spy.refuse = lambda one: has(one, Enqueue, lambda o: o.envelope.purpose is Purpose.DECISION)
        await trio.sleep(70)
        assert ref.state == "approval"
        world.spy.refuse = lambda _: False
        await trio.sleep(2)
        await ref.wait_idle()
        assert [done.status for done in (await ref.wait_report()).calls] == ["denied"]


# -- what was approved is what runs ------------------------------------------------------------------------------------


async def test_tol_12_a_tool_that_changed_does_not_run(world: World, autojump_clock: MockClock) -> None:
    """Between the request and the decision the tool got another default: what was approved is not what would run."""
    ask = Ask()

    @tool(name="delete", approve=True)
    async def other(path: str, deep: bool = True) -> str:  # noqa: FBT001, FBT002 - a default that changed
        """Delete."""
        ask.ran.append(("other", {"path": path, "deep": deep}))
        return "gone"

    async with world.open(script()) as sup:
        await stopped(sup, ask.agent())
    async with world.open(script(), agents=[Agent("a", "Tidy up.", tools=[other])]) as sup:
        request = await first(sup)
        assert request.arguments == {"path": "x", "deep": False}
        await request.approve()
        report = await (await sup.find("a")).wait_report()
        assert [done.status for done in report.calls] == ["refused"]
        assert "not the one that was approved" in report.text
    assert ask.ran == []


async def test_tol_12_no_hook_changes_what_was_approved(world: World, autojump_clock: MockClock) -> None:
    """A hook that wraps the call sees its arguments; what it does to them reaches no call."""
    ask = Ask()
    seen: list[Any] = []

    class Meddle(Hooks):
        async def around_tool(self, at: Moment, call: AroundCall, proceed: Proceed) -> object:
            seen.append(dict(call.arguments))
            call.arguments["paths"].append("everything")  # type: ignore[attr-defined]  # a list of text
            return await proceed()

    @tool(approve=True)
    async def clear(paths: list[str]) -> str:
        """Clear."""
        ask.ran.append(("clear", paths))
        return "cleared"

    spec = Agent("a", "Tidy.", tools=[clear], hooks=Meddle())
    async with world.open(script(call("clear", paths=["x"]))) as sup:
        ref = await stopped(sup, spec)
        request = await first(sup)
        assert request.arguments == {"paths": ["x"]}
        await request.approve()
        assert (await ref.wait_report()).status == "done"
    assert [list(arguments) for arguments in seen] == [["paths"]]
    assert ask.ran == [("clear", ["x"])]


# -- repeats of what ended unknown (TOL-3) -----------------------------------------------------------------------------


async def test_tol_3_a_repeat_of_what_ended_unknown_needs_approval(world: World, autojump_clock: MockClock) -> None:
    """A `once` call was cut off by a crash; the model asks for the same again: a person is asked first, once."""
    ran: list[str] = []

    @tool
    async def pay(ctx: Context, amount: int) -> str:
        """Pay."""
        ran.append(ctx.call_id)
        await trio.sleep(100 if len(ran) == 1 else 1)
        return f"paid {amount}"

    def model(request: ModelRequest) -> object:
        done = sum(isinstance(record, ResultRecord) for record in request.window)
        return call("pay", amount=5) if done < 3 else "settled"

    spec = Agent("a", "Pay.", tools=[pay])
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the supervisor must be left by it
        async with world.open(Script({"a": model})) as sup:
            await sup.start(spec, "go")
            await trio.sleep(5)
            world.spy.refuse = lambda _: True  # as good as dead
            raise ZeroDivisionError
    async with world.open(Script({"a": model}), agents=[spec]) as sup:
        await sup.resume()
        ref = await sup.find("a")
        request = await first(sup)
        assert (request.reason, request.arguments) == ("repeat", {"amount": 5})
        assert ran == ["a:t1.1.0"]
    async with world.open(Script({"a": model}), agents=[spec]) as sup:  # also behind another restart
        await (await first(sup)).approve()
        ref = await sup.find("a")
        report = await ref.wait_report()
        assert (report.status, report.text) == ("done", "settled")  # the third was not asked about: the doubt is over
        assert ran == ["a:t1.1.0", "a:t1.2.0", "a:t1.3.0"]
        assert [line for line in texts(await ref.transcript()) if line.startswith("=")][1:] == ["=ok:paid 5"] * 2
        stored = await sup.store.load_agent(AgentId("a"))
        assert stored is not None
        assert stored.calls == ()
        await check(sup.store)
