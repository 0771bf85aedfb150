"""TOL-12 and BUD-6: an approval comes up from any depth, and no clock runs meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from actors import Agent, ApprovalDecided, Child, Script, call
from actors.ids import AgentId
from tests.supervisor.promises.approving import Ask, approve_all, asks, first, script
from tests.supervisor.promises.world import World, check, quiet, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.ports import ModelRequest


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
