"""TOL-12, and what hangs on it: approvals through the whole runtime, over both stores, with restarts and races."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import AgentSuspended, ApprovalAsked, ApprovalDecided, ToolEnded, ToolStarted, UsageError, call
from actors.messages import ReceiptState
from actors.transcript import problems
from tests.supervisor.promises.approving import Ask, approve_all, first, pending, script
from tests.supervisor.promises.world import World, check, quiet, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock


from tests.supervisor.promises.parked import WAITS, stopped

DELETE = call("delete", path="x")


# -- who waits, who is told --------------------------------------------------------------------------------------------


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


# -- messages, steers, aborts ------------------------------------------------------------------------------------------


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
