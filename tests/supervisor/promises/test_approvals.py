"""TOL-12, and what hangs on it: approvals through the whole runtime, over both stores, with restarts and races."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import (
    Agent,
    AgentSuspended,
    ApprovalAsked,
    ApprovalDecided,
    CallboardError,
    Child,
    Context,
    Hooks,
    Limits,
    MailboxFull,
    MessageDead,
    Script,
    ToolEnded,
    ToolStarted,
    UsageError,
    call,
    tool,
)
from actors.changes import CallRow, CallState, Claim, Enqueue, Put
from actors.ids import AgentId
from actors.messages import LaneBound, Purpose, ReceiptState, Verdict
from actors.transcript import ResultRecord, problems
from supervisor.store.faults import Fault, FaultyStore
from tests.supervisor.promises.approving import Ask, approve_all, asks, first, pending, script
from tests.supervisor.promises.scheduling import Sched, simulate
from tests.supervisor.promises.world import World, check, has, messages, ops, quiet, texts, watched

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from actors.hooks import AroundCall, Moment, Proceed
    from actors.ports import ModelRequest
    from supervisor import Approval, Supervisor
    from supervisor.store.base import Store

DELETE = call("delete", path="x")
WAITS = "waits for approval of delete (a:t1.1.0)"


async def stopped(sup: Supervisor, spec: Agent, task: str = "go") -> Any:
    """An agent whose turn is parked: its handle."""
    ref = await sup.start(spec, task)
    await quiet()
    while ref.state != "approval":  # noqa: ASYNC110 - the tools of a batch take their time
        await trio.sleep(1)
    return ref


# -- who waits, who is told --------------------------------------------------------------------------------------


async def test_tol_12_where_nobody_decides_the_run_is_parked(world: World, autojump_clock: MockClock) -> None:
    """Without an inbox `run` returns at once, parked, with what is waited for; nothing has run, the store owes it."""
    ask = Ask()
    async with world.open(script()) as sup, watched(sup) as log:
        report = await sup.run(ask.agent(), "go")
        assert report.status == "parked"
        assert WAITS in str(report.error)
        assert ask.ran == []
        assert log.of(ToolStarted) == []
        assert [event.reason for event in log.of(AgentSuspended)] == ["approval"]
        ref = await sup.find("a")
        assert ref.state == "approval"
        assert (await ref.wait_report()).status == "parked"
        assert (await sup.tree())[0].suspended == "approval"
        assert await sup.store.agents_with_work() == ("a",)
        await check(sup.store)
    assert trio.current_time() == 0


async def test_tol_12_where_somebody_decides_the_run_goes_on(world: World, autojump_clock: MockClock) -> None:
    """With an inbox open `run` waits for the decision, however long, and the call runs with what was shown."""
    ask = Ask()
    async with world.open(script()) as sup, watched(sup) as log, trio.open_nursery() as nursery:
        nursery.start_soon(approve_all, sup, 3_600.0)
        await quiet()
        report = await sup.run(ask.agent(), "go")
        nursery.cancel_scope.cancel()
        assert (report.status, report.text) == ("done", "deleted x")
        assert ask.ran == [("a:t1.1.0", {"path": "x", "deep": False})]
        (decided,) = log.of(ApprovalDecided)
        assert (decided.verdict, decided.by) == ("approved", "an operator")
        order = [
            type(event) for event in log.events if isinstance(event, ApprovalAsked | ApprovalDecided | ToolStarted)
        ]
        assert order == [ApprovalAsked, ApprovalDecided, ToolStarted]
        await check(sup.store)


async def test_tol_12_a_request_shows_all_that_matters(world: World, autojump_clock: MockClock) -> None:
    """Path, tool, final arguments, the call, why, since when and until when: that is what a person decides on."""
    ask = Ask()
    async with world.open(script()) as sup:
        sup._parts.kernel.wall = lambda: 1_000.0 + trio.current_time()
        await stopped(sup, ask.agent(approve_timeout=60))
        request = await first(sup)
        assert (request.path, request.tool, request.call_id, request.reason) == ("a", "delete", "a:t1.1.0", "tool")
        assert request.arguments == {"path": "x", "deep": False}
        assert (request.asked_at, request.expires) == (1_000.0, 1_060.0)
        request.arguments["path"] = "everything"  # a copy: changes nothing
        await request.approve()
        report = await (await sup.find("a")).wait_report()
        assert report.status == "done"
        assert ask.paths == ["x"]


async def test_tol_12_a_denial_is_read_by_the_model(world: World, autojump_clock: MockClock) -> None:
    """Denied: the tool does not run, the model reads the message, and the run goes on to its end."""
    ask = Ask()
    async with world.open(script()) as sup:
        ref = await stopped(sup, ask.agent())
        await (await first(sup)).deny("Only the cleaner may delete.", by="an operator")
        report = await ref.wait_report()
        assert (report.status, report.text) == ("done", "Not approved: Only the cleaner may delete.")
        assert [done.status for done in report.calls] == ["denied"]
        assert ask.ran == []


async def test_tol_12_when_the_last_inbox_closes_whoever_waits_is_told(world: World, autojump_clock: MockClock) -> None:
    """`run` waited for a person who has gone: it returns parked."""
    ask = Ask()
    async with world.open(script()) as sup, trio.open_nursery() as nursery:
        found: list[Any] = []

        async def run() -> None:
            found.append(await sup.run(ask.agent(), "go"))

        async with sup.approvals(), sup.approvals() as inbox:
            nursery.start_soon(run)
            request = await anext(aiter(inbox))
            await trio.sleep(5)
            assert found == []
        await quiet()
        assert [report.status for report in found] == ["parked"]
        await request.approve()
        assert (await (await sup.find("a")).wait_report()).status == "done"


async def test_tol_12_an_inbox_ends_with_its_supervisor(world: World, autojump_clock: MockClock) -> None:
    """Whoever iterates comes to an end when the supervisor is left, and hears of each request once."""
    ask, seen = Ask(), []
    async with trio.open_nursery() as nursery, world.open(script(DELETE, DELETE)) as sup:

        async def listen() -> None:
            async with sup.approvals() as inbox:
                seen.extend([request async for request in inbox])

        nursery.start_soon(listen)
        await stopped(sup, ask.agent())
        assert len(await pending(sup, 2)) == 2
    assert [request.call_id for request in seen] == ["a:t1.1.0", "a:t1.1.1"]


async def test_tol_12_a_parked_agent_has_no_task(world: World, autojump_clock: MockClock) -> None:
    """While a person thinks, nothing runs: no task of the agent, no timer where nothing expires."""
    ask = Ask()
    async with world.open(script()) as sup:
        before = len(sup._parts.actors_nursery.child_tasks)
        await stopped(sup, ask.agent())
        assert len(sup._parts.actors_nursery.child_tasks) == before
        assert len(sup._parts.tools_nursery.child_tasks) <= 1


# -- messages, steers, aborts ------------------------------------------------------------------------------------


async def test_tol_12_a_message_waits_behind_an_open_approval(world: World, autojump_clock: MockClock) -> None:
    """Sends and steers that come meanwhile stay queued and decide nothing; after the decision they are answered."""
    ask = Ask()
    async with world.open(script()) as sup:
        ref = await stopped(sup, ask.agent())
        receipts = [await ref.send("and then"), await ref.steer("mind the gap")]
        assert (await receipts[0].wait_report()).status == "parked"  # nobody decides here
        await quiet()
        assert [receipt.state for receipt in receipts] == [ReceiptState.QUEUED] * 2
        assert len(await sup.store.awaiting_calls()) == 1
        await (await first(sup)).approve()
        await ref.wait_idle()
        assert texts(await ref.transcript()) == [
            "<go", "> delete()", "=ok:deleted x", "<mind the gap", ">heard mind the gap", "<and then",
            ">heard and then",
        ]  # fmt: skip
        await check(sup.store)


async def test_tol_12_a_steer_that_interrupts_denies(world: World, autojump_clock: MockClock) -> None:
    """A steer that interrupts is the explicit way to say no: what waits is denied, and the message enters."""
    ask = Ask()
    async with world.open(script()) as sup, watched(sup) as log:
        ref = await stopped(sup, ask.agent())
        request = await first(sup)
        await ref.steer("leave it", interrupt=True)
        await ref.wait_idle()
        assert texts(await ref.transcript())[2:] == [
            "=denied:Not approved: a message came instead; read it. Nothing was run.", "<leave it", ">heard leave it",
        ]  # fmt: skip
        assert [(event.verdict, event.by) for event in log.of(ApprovalDecided)] == [("denied", "steer")]
        assert await sup.store.awaiting_calls() == ()
        with pytest.raises(UsageError, match="does not wait for approval"):
            await request.approve()
        assert ask.ran == []
        await check(sup.store)


async def test_tol_12_an_abort_closes_the_request_and_frees_the_conversation(
    world: World, autojump_clock: MockClock
) -> None:
    """Aborted while parked: the call is settled as not run, the request withdrawn, and a new message is answered."""
    ask = Ask()
    async with world.open(script()) as sup, watched(sup) as log:
        ref = await stopped(sup, ask.agent())
        request = await first(sup)
        await ref.abort("never mind")
        await ref.wait_aborted()
        assert log.statuses("a") == ["aborted"]
        assert [event.verdict for event in log.of(ApprovalDecided)] == ["withdrawn"]
        assert [event.status for event in log.of(ToolEnded)] == ["skipped"]
        report = await ref.ask("hello")
        assert (report.status, report.text) == ("done", "heard hello")
        with pytest.raises(UsageError, match="does not wait for approval"):
            await request.approve()
        assert ask.ran == []
        await check(sup.store)


async def test_tol_12_an_abort_behind_a_restart(world: World, autojump_clock: MockClock) -> None:
    """A new process aborts what an earlier one left parked; the conversation is free."""
    ask = Ask()
    spec = ask.agent()
    async with world.open(script()) as sup:
        await stopped(sup, spec)
    async with world.open(script(), agents=[spec]) as sup:
        ref = await sup.find("a")
        await ref.abort("never mind")
        await ref.wait_aborted()
        assert await sup.store.awaiting_calls() == ()
        assert (await ref.ask("hello")).text == "heard hello"
        await check(sup.store)
    assert ask.ran == []


async def test_tol_12_closing_settles_what_waits(world: World, autojump_clock: MockClock) -> None:
    """A close waits for no person: what awaits approval is settled as not run, and the agent is closed."""
    ask = Ask()
    async with world.open(script()) as sup:
        ref = await stopped(sup, ask.agent())
        await ref.close(grace=5)
        await ref.wait_closed()
        assert ref.state == "closed"
        assert await sup.store.awaiting_calls() == ()
        assert problems(await ref.transcript()) == []
    assert ask.ran == []


# -- restarts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loads", [False, True])
async def test_tol_12_a_later_process_decides(world: World, autojump_clock: MockClock, loads: bool) -> None:  # noqa: FBT001
    """What one process asked another shows, with its age, and decides: the call runs there, once, as it was shown."""
    ask = Ask()
    spec = ask.agent()
    async with world.open(script()) as sup:
        sup._parts.kernel.wall = lambda: 1_000.0
        await stopped(sup, spec)
    async with world.open(script(), agents=[spec]) as sup, watched(sup) as log:
        if loads:
            assert [ref.path for ref in await sup.resume()] == ["a"]
            await quiet()
            assert len(log.of(ApprovalAsked)) == 1
        request = await first(sup)
        assert (request.path, request.arguments, request.asked_at) == ("a", {"path": "x", "deep": False}, 1_000.0)
        assert ask.ran == []
        await request.approve(by="an operator")
        ref = await sup.find("a")
        report = await ref.wait_report()
        assert (report.status, report.text, ask.paths) == ("done", "deleted x", ["x"])
        assert len(log.of(ApprovalAsked)) == len(log.of(ApprovalDecided)) == 1
        await check(sup.store)


async def test_tol_12_a_decision_outlives_the_process_that_accepted_it(world: World, autojump_clock: MockClock) -> None:
    """Accepted, and the process ends before it is carried out: the next one runs the call, and asks nobody."""
    ask = Ask()
    spec = ask.agent()
    async with world.open(script()) as sup:
        await stopped(sup, spec)
        request = await first(sup)
        sup._parts.leaving = "suspend"  # nothing begins any more
        await request.approve(by="an operator")
        await quiet()
        assert ask.ran == []
    async with world.open(script(), agents=[spec]) as sup, watched(sup) as log:
        async with sup.approvals() as inbox:
            with trio.move_on_after(10) as scope:
                async for asked in inbox:
                    raise AssertionError(asked)
            assert scope.cancelled_caught
        await sup.resume()
        ref = await sup.find("a")
        assert (await ref.wait_report()).text == "deleted x"
        assert log.of(ApprovalAsked) == []
        assert ask.paths == ["x"]


async def test_tol_12_a_turn_goes_on_where_it_was(world: World, autojump_clock: MockClock) -> None:
    """Three requests in one turn, each decided by another process: what ran before a pause never runs again."""
    ask = Ask()
    spec = ask.agent()

    def model(request: ModelRequest) -> object:
        done = sum(isinstance(record, ResultRecord) for record in request.window)
        return [call("delete", path=f"x{done // 2}"), call("look")] if done < 6 else "all done"

    async with world.open(Script({"a": model})) as sup:
        await stopped(sup, spec)
    last = ""
    for _ in range(3):
        async with world.open(Script({"a": model}), agents=[spec]) as sup:
            await (await first(sup)).approve()
            ref = await sup.find("a")
            last = (await ref.wait_report()).text
    assert last == "all done"
    assert ask.paths == ["x0", "x1", "x2"]
    assert [name for name, _ in ask.ran].count("look") == 3


async def test_tol_12_a_key_goes_on_with_what_is_parked(world: World, autojump_clock: MockClock) -> None:
    """`run` under the same key says parked again, by a process that knows nothing else of it, and done once decided."""
    ask = Ask()
    spec = ask.agent()
    for _ in range(2):
        async with world.open(script(), agents=[spec]) as sup:
            report = await sup.run(spec, "go", key="nightly")
            assert (report.status, WAITS in str(report.error)) == ("parked", True)
    async with world.open(script(), agents=[spec]) as sup, trio.open_nursery() as nursery:
        nursery.start_soon(approve_all, sup)
        await quiet()
        assert (await sup.run(spec, "go", key="nightly")).text == "deleted x"
        nursery.cancel_scope.cancel()
    assert ask.paths == ["x"]


# -- depth -------------------------------------------------------------------------------------------------------


def family(ask: Ask) -> tuple[Agent, Script]:
    """`lead` asks `mid`, which asks `a`, which deletes."""
    mid = Agent("mid", "Pass it on.", children=[ask.agent()])
    lead = Agent("lead", "Pass it on.", children=[mid])
    return lead, script(lead=asks(call("mid", task="go")), mid=asks(call("a", task="go")))


async def test_tol_12_an_approval_comes_up_from_any_depth(world: World, autojump_clock: MockClock) -> None:
    """Two levels down: the request names the path; the parents' waits go on; outside, the run is parked."""
    ask = Ask()
    lead, model = family(ask)
    async with world.open(model) as sup, watched(sup) as log:
        report = await sup.run(lead, "go")
        assert (report.status, report.path) == ("parked", "lead")
        assert "lead/mid/a waits for approval of delete (lead/mid/a:t1.1.0)" in str(report.error)
        assert log.statuses("lead") == log.statuses("lead/mid") == []
        request = await first(sup)
        assert request.path == "lead/mid/a"
        await request.approve()
        report = await (await sup.find("lead")).wait_report()
        assert (report.status, report.text) == ("done", "deleted x")
        await check(sup.store)


async def test_tol_12_a_nested_request_outlives_the_process(world: World, autojump_clock: MockClock) -> None:
    """The whole tree is in the store: a new process finds the request, decides, and each agent goes on in its place."""
    ask = Ask()
    lead, model = family(ask)
    async with world.open(model) as sup:
        assert (await sup.run(lead, "go")).status == "parked"
    began = trio.current_time()
    async with world.open(model, agents=[lead]) as sup:
        assert {ref.path for ref in await sup.resume()} == {"lead", "lead/mid", "lead/mid/a"}
        ref = await sup.find("lead")
        assert (await ref.wait_report()).status == "parked"
        assert [row.agent for row in await sup.tree()] == ["lead", "lead/mid", "lead/mid/a"]
        await (await first(sup)).approve()
        report = await ref.wait_report()
        assert (report.status, report.text, ask.paths) == ("done", "deleted x", ["x"])
        await check(sup.store)
    assert trio.current_time() - began == 1


async def test_bud_6_while_a_person_thinks_no_clock_runs(world: World, autojump_clock: MockClock) -> None:
    """An hour of waiting costs no active second, of the agent that asks or of those that wait for it."""
    ask = Ask()
    lead, model = family(ask)
    async with world.open(model) as sup, trio.open_nursery() as nursery:
        nursery.start_soon(approve_all, sup, 3_600.0)
        await quiet()
        assert (await sup.run(lead, "go")).status == "done"
        nursery.cancel_scope.cancel()
        rows = {row.agent: row for row in await sup.tree()}
        assert {path: row.spent.active_us for path, row in rows.items()} == {
            "lead": 1_000_000, "lead/mid": 1_000_000, "lead/mid/a": 1_000_000,
        }  # fmt: skip
        assert sup._parts.ledger.snapshot(AgentId("lead")).spent.active_us == 3_000_000


async def test_bud_6_a_clock_runs_while_another_child_works(world: World, autojump_clock: MockClock) -> None:
    """A parent stands still only when everything that it runs does; then, too, its waiters are told."""
    ask = Ask()

    async def slow(_: ModelRequest) -> str:
        await trio.sleep(10)
        return "worked"

    lead = Agent("lead", "Both.", children=[ask.agent(), Agent("b", "Work.")])
    calls = (call("a", task="go"), call("b", task="work"))
    async with world.open(script(lead=asks(*calls), b=slow)) as sup:
        report = await sup.run(lead, "go")
        assert (report.status, trio.current_time()) == ("parked", 10)
        ref = await sup.find("lead")
        await trio.sleep(3_600)
        await (await first(sup)).approve()
        report = await ref.wait_report()
        assert (report.status, report.text) == ("done", "deleted x | worked")
        assert (await sup.tree())[0].spent.active_us == 11_000_000


async def test_tol_12_a_parent_goes_on_while_its_background_child_asks(world: World, autojump_clock: MockClock) -> None:
    """Nobody's turn waits for a background child: the parent is done, and hears the report after the decision."""
    ask = Ask()
    lead = Agent("lead", "Start it.", children=[Child(ask.agent(), background=True)])
    async with world.open(script(lead=asks(call("a", task="go")))) as sup:
        report = await sup.run(lead, "go")
        assert report.status == "done"
        await (await first(sup)).approve()
        ref = await sup.find("lead")
        await trio.sleep(5)
        assert any("Report of lead/a (done)" in line for line in texts(await ref.transcript()))


async def test_tol_12_an_abort_reaches_the_one_that_asks(world: World, autojump_clock: MockClock) -> None:
    """Aborting the root takes the parked grandchild along; every request is withdrawn (ABT-5)."""
    ask = Ask()
    lead, model = family(ask)
    async with world.open(model) as sup, watched(sup) as log:
        await sup.run(lead, "go")
        ref = await sup.find("lead")
        await ref.abort("enough")
        await ref.wait_aborted()
        await quiet()
        for path in ("lead", "lead/mid", "lead/mid/a"):
            assert log.statuses(path) == ["aborted"]
        assert [event.verdict for event in log.of(ApprovalDecided)] == ["withdrawn"]
        assert await sup.store.awaiting_calls() == ()
        await check(sup.store)


async def test_cls_5_leaving_waits_for_no_person(memory: World, autojump_clock: MockClock) -> None:
    """In memory, too, a supervisor whose agents only wait for a person is left at once, not after the grace."""
    ask = Ask()
    lead, model = family(ask)
    async with memory.open(model, on_exit="finish") as sup:
        assert (await sup.run(lead, "go")).status == "parked"
    assert trio.current_time() < 1


# -- decisions ---------------------------------------------------------------------------------------------------


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


# -- expiry ------------------------------------------------------------------------------------------------------


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


# -- what was approved is what runs ------------------------------------------------------------------------------


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


# -- repeats of what ended unknown (TOL-3) -----------------------------------------------------------------------


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


# -- races, crashes ----------------------------------------------------------------------------------------------


async def race(world: World, sched: Sched) -> None:
    """A person approves while another aborts and a third denies."""
    del sched
    ask = Ask()
    async with world.open(script(call("delete", path="x"), call("look"))) as sup:
        ref = await sup.start(ask.agent(), "go")
        request = await first(sup)

        async def quietly(verb: Any) -> None:
            with suppress(UsageError):
                await verb()

        async with trio.open_nursery() as nursery:
            for verb in (request.approve, request.deny, ref.abort):
                nursery.start_soon(quietly, verb)
        await ref.wait_idle()
        await quiet()
        await holds(sup.store, ask)
        assert (await ref.ask("hello")).text == "heard hello"
        mail = await messages(sup.store, "a")
        assert ReceiptState.QUEUED not in mail.values()
        for one in await sup.store.messages(AgentId("a"), (ReceiptState.DEAD,)):
            assert one.envelope.purpose is Purpose.DECISION


async def holds(store: Any, ask: Ask) -> None:
    """What holds whatever raced: one run at most, none without an approval, and the record says what happened."""
    await check(store)
    records = await store.read_records(AgentId("a"))
    statuses = [r.status.value for r in records if isinstance(r, ResultRecord) and r.name == "delete"]
    decided = [
        one.envelope.decision.verdict
        for one in await store.messages(AgentId("a"), tuple(ReceiptState)[1:6])
        if one.envelope.decision is not None
    ]
    assert len(decided) <= 1
    assert len(ask.paths) <= 1
    if ask.paths:
        assert decided == [Verdict.APPROVED]
    for status in statuses:
        assert status in ({"ok", "aborted", "unknown"} if ask.paths else {"denied", "skipped", "aborted", "unknown"})


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_tol_12_races_leave_one_decision_and_one_run(kind: str, tmp_path: Path) -> None:
    """Approve, deny and abort at once, in many orders of the tasks: one decision at most, and it is what happened."""
    for seed in range(60 if kind == "memory" else 15):
        folder = tmp_path / str(seed)
        folder.mkdir()
        sched = Sched(seed, defer=0.5)
        try:
            simulate(lambda: race(World(kind, folder), sched), sched)  # noqa: B023 - run at once
        except BaseException as error:
            error.add_note(f"replay: race(World({kind!r}), Sched({seed}, defer=0.5))")
            raise


async def decided_life(world: World, at: int, *, when: Fault) -> bool:
    """Ask, approve, go on, with the n-th commit failing; then another process finishes. Whether there was one."""
    ask = Ask()
    spec = ask.agent()
    faulty: list[FaultyStore] = []

    def wrap(store: Store) -> Store:
        faulty.append(FaultyStore(store, at=at, when=when, forever=True))
        return faulty[0]

    model = script(call("delete", path="x"), call("look"))
    async with world.open(model, wrap=wrap, grace=5.0, hard=2.0) as sup:
        with suppress(CallboardError, trio.TooSlowError), trio.fail_after(100):
            ref = await sup.start(spec, "go")
            await (await first(sup)).approve()
            await ref.wait_idle()
    async with world.open(model, agents=[spec]) as sup:
        await sup.resume()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(approve_all, sup)
            while await sup.store.agents_with_work():  # noqa: ASYNC110 - the store has no event for it
                await trio.sleep(1)
            nursery.cancel_scope.cancel()
        await holds(sup.store, ask)
        assert await sup.store.awaiting_calls() == ()
    return bool(faulty[0].faults)


@pytest.mark.parametrize("when", list(Fault), ids=[fault.value for fault in Fault])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_tol_12_a_store_that_fails_at_any_commit_runs_nothing_unasked(kind: str, when: Fault, tmp_path: Path) -> None:
    """From commit n on the store fails, for n = 1, 2, 3 …; the next process finishes: one approved run at most."""
    at = 1
    while True:
        folder = tmp_path / str(at)
        folder.mkdir()
        try:
            hit = simulate(lambda: decided_life(World(kind, folder), at, when=when), Sched(0))  # noqa: B023 - run at once
        except BaseException as error:
            error.add_note(f"replay: decided_life(World({kind!r}), {at}, when={when})")
            raise
        if not hit:
            break
        at += 1
    assert at > 5, "such a life has more commits than that"


async def test_tol_12_a_decision_that_came_too_late_is_a_dead_letter(memory: World, autojump_clock: MockClock) -> None:
    """Accepted, and the call was settled by an abort before it was carried out: it is named, and nothing runs."""
    ask = Ask()
    async with memory.open(script()) as sup, watched(sup) as log:
        ref = await stopped(sup, ask.agent())
        request = await first(sup)

        async def abort_too(one: Any) -> None:
            if has(one, Enqueue, lambda o: o.envelope.purpose is Purpose.DECISION):
                memory.spy.after = nothing
                await ref.abort("never mind")

        async def nothing(_: Any) -> None:
            pass

        memory.spy.after = abort_too
        await request.approve()
        await ref.wait_idle()
        await quiet()
        assert [event.reason for event in log.of(MessageDead)] == [
            "the call was settled before the decision was carried out"
        ]
        assert log.statuses("a") == ["aborted"]
        assert (await ref.ask("hello")).text == "heard hello"
    assert ask.ran == []
