"""Who waits, or looks, from a process that does not run the tree: what the store knows is said there, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from actors import Agent, Budget, Context, call, tool
from actors.changes import ChangeSet, Enqueue
from actors.ids import AgentId, MessageId, tree_of
from actors.messages import Envelope, Lane, LaneBound, Purpose, ReceiptState
from supervisor.elsewhere import SEEN_MAX, Elsewhere
from tests.supervisor.test_peers import Shared

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["memory", "sqlite"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    """A store of either kind."""
    return Shared(request.param, tmp_path)


@tool(approve=True)
async def delete(path: str) -> str:
    """Delete."""
    return f"deleted {path}"


@tool
async def wait_long() -> str:
    """Wait."""
    await trio.sleep(1_000)
    return "waited"


def agent(name: str = "a", **more: Any) -> Agent:
    """An agent that may delete, and wait."""
    return Agent(name, "Answer.", tools=[delete, wait_long], **more)


async def test_tol_12_a_run_that_is_parked_elsewhere_is_told_to_who_waits(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """`wait_report`, `ask` and a receipt hear `parked` and for what, in bounded time; a decision from here goes on."""
    spec = agent()
    script = {"a": [call("delete", path="x"), "done", "more", "again"]}
    async with shared.open(script, spec) as owner, shared.open({}, spec) as other:
        mine = await owner.start(spec, "go")
        ref = await other.find("a")
        with trio.fail_after(3):
            report = await ref.wait_report()
        assert report.status == "parked"
        assert "a waits for approval of delete (a:t1.1.0)" in str(report.error)
        assert ref.state == "approval"
        with trio.fail_after(3):
            assert (await ref.ask("more")).status == "parked"
            receipt = await ref.send("again")
            assert (await receipt.wait_report()).status == "parked"
        assert receipt.state is ReceiptState.QUEUED
        async with other.approvals() as inbox, trio.open_nursery() as nursery:
            heard: list[str] = []

            async def wait() -> None:
                heard.append((await ref.wait_report()).text)

            nursery.start_soon(wait)
            await trio.sleep(10)
            assert heard == [], "while an inbox is open here the wait goes on"
            await (await anext(inbox)).approve()
        assert heard in (["done"], ["again"]), "of the run in progress: its turns so far, or all of them"
        await mine.wait_idle()


async def test_tol_12_an_open_inbox_is_offered_what_another_process_asks_later(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """Whoever waits beside an open inbox waits for its decisions: what other processes ask is decided there, too."""
    spec = agent()
    script = {"a": [call("delete", path="x"), "done", call("delete", path="y"), "done again"]}
    async with shared.open(script, spec) as owner, shared.open({}, spec) as other, other.approvals() as inbox:
        mine = await owner.start(spec, "go")
        ref = await other.find("a")
        with trio.fail_after(10):
            await (await anext(inbox)).approve()
            assert (await ref.wait_report()).text == "done"
            await mine.send("more")
            request = await anext(inbox)
            assert request.arguments == {"path": "y"}
            await request.deny()
            assert (await ref.wait_report()).text == "done again"


@pytest.mark.parametrize("decides", ["here", "there"])
async def test_tol_12_what_was_decided_of_another_process_is_not_asked_again(
    shared: Shared, autojump_clock: trio.testing.MockClock, decides: str
) -> None:
    """The next inbox hands out what is open, whoever decided the others, and whoever runs their agents."""
    spec = agent()
    script = {"a": [[call("delete", path="x"), call("wait_long")], "done"]}
    async with shared.open(script, spec) as owner, shared.open({}, spec) as other:
        await owner.start(spec, "go")
        await trio.sleep(2)
        async with other.approvals() as inbox:
            request = await anext(inbox)
            if decides == "here":
                await request.approve()
        if decides == "there":
            async with owner.approvals() as inbox:
                await (await anext(inbox)).approve()
            await trio.sleep(2)
        for sup in (other, owner):
            async with sup.approvals() as inbox:
                with trio.move_on_after(5) as nothing:
                    await anext(inbox)
                assert nothing.cancelled_caught, sup


async def test_tol_12_a_parent_whose_child_is_parked_elsewhere_stands_still_too(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """The approval comes up from any depth; where something of the tree still works, the wait goes on."""
    kid = agent("kid")
    lead = agent("lead", children=[kid])
    script: dict[str, Any] = {
        "lead": [[call("kid", task="x")], "on", [call("kid", task="y"), call("wait_long")]],
        "kid": delete_first,
    }
    async with shared.open(script, lead) as owner, shared.open({}, lead) as other:
        mine = await owner.start(lead, "go")
        ref = await other.find("lead")
        with trio.fail_after(3):
            report = await ref.wait_report()
        assert report.status == "parked"
        assert "lead/kid waits for approval of delete" in str(report.error)
        assert ref.state == "running"
        async with owner.approvals() as inbox:
            await (await anext(inbox)).approve()
            with trio.fail_after(5):
                assert (await ref.wait_report()).text == "on"
        await mine.send("both")
        with trio.move_on_after(30) as waiting:
            await ref.wait_report()
        assert waiting.cancelled_caught, "a call beside it still works"
        await mine.abort("enough")


def delete_first(request: Any) -> Any:
    """Delete, then say so."""
    return call("delete", path="x") if len(request.window) == 1 else "deleted"


async def test_tol_12_an_agents_own_code_waits_on_for_a_run_that_is_parked_elsewhere(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """Only code outside of agents is told, as at home."""
    spec = agent()

    @tool
    async def ask() -> str:
        """Wait for the other process' agent."""
        return (await ref.wait_report()).text

    asker = Agent("asker", "Ask.", tools=[ask])
    async with (
        shared.open({"a": [call("delete", path="x"), "done"]}, spec) as owner,
        shared.open({"asker": [call("ask"), "heard"]}, spec, asker) as other,
    ):
        await owner.start(spec, "go")
        ref = await other.find("a")
        mine = await other.start(asker, "go")
        await trio.sleep(30)
        assert mine.state == "running"
        async with owner.approvals() as inbox:
            await (await anext(inbox)).approve()
            assert (await mine.wait_report()).text == "heard"


async def test_sup_6_a_handle_says_how_an_agent_stands_that_runs_elsewhere(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """Idle, running, paused, held, closed: as it was read last, with the time of that."""
    spec = agent(budget=Budget(tokens=100_000))
    script = {"a": ["one", call("wait_long"), "two"]}
    async with shared.open(script, spec) as owner, shared.open({}, spec) as other:
        mine = await owner.start(spec, "go")
        await mine.wait_idle()
        ref = await other.find("a")
        assert ref.state == "idle"
        assert ref.usage == mine.usage
        seen = ref.statistics().as_of
        await mine.send("wait")
        await trio.sleep(1)
        assert ref.state == "idle", "nothing was read since"
        found = await ref.snapshot()
        assert (found.state, found.mailbox.send) == ("running", 0)
        assert found == ref.statistics()
        assert found.as_of > seen
        here = await mine.snapshot()  # of one that runs here: what is committed
        assert (here.state, here.usage, here.spent) == (found.state, found.usage, found.spent)
        await mine.send("behind")
        assert (await ref.snapshot()).mailbox.send == 1
        await mine.abort("enough")
        await mine.wait_aborted()
        await ref.wait_idle()
        assert ref.state == "held"
        await mine.pause()
        await trio.sleep(1)
        await other.find("a")
        assert ref.state == "paused"
        with trio.fail_after(3):
            await ref.wake()
            assert (await ref.wait_report()).text == "two"
        await mine.close()
        await ref.wait_closed()
        assert ref.state == "closed"


async def test_tol_12_a_call_that_waits_for_one_that_works_beside_one_that_is_parked_does_not_stand_still(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """Nobody is told `parked` while something of what the call started goes on."""
    kid, busy = agent("kid"), agent("busy")

    @tool
    async def both(ctx: Context) -> str:
        """Start two, wait for one after the other."""
        kids = [await ctx.start(busy, "x"), await ctx.start(kid, "y")]
        return " ".join([(await one.wait_report()).text for one in kids])

    lead = Agent("lead", "Lead.", tools=[both], children=[kid, busy])
    script: dict[str, Any] = {"lead": [call("both"), "on"], "kid": delete_first, "busy": [call("wait_long"), "ok"]}
    async with shared.open(script, lead) as owner, shared.open({}, lead) as other:
        mine = await owner.start(lead, "go")
        ref = await other.find("lead")
        with trio.move_on_after(30) as waiting:
            await ref.wait_report()
        assert waiting.cancelled_caught
        await mine.abort("enough")


async def test_tol_12_what_brings_a_parked_run_back_may_be_on_its_way(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """A decision that its owner has not taken up yet ends the standing still: who waits, waits for what comes of it."""
    spec = agent()
    async with shared.open({"a": [call("delete", path="x")]}, spec) as owner:
        await owner.start(spec, "go")
        await trio.sleep(1)
    async with shared.open({}, spec) as other:
        elsewhere, path = Elsewhere(other._parts.kernel), AgentId("a")
        parked = await elsewhere.parked(path, listening=False)
        assert parked is not None
        assert parked.status == "parked"
        assert await elsewhere.parked(path, listening=True) is None
        order = Envelope(
            MessageId("d"), path, Lane.CONTROL, (), purpose=Purpose.DECISION, target="a:t1.1.0", reserved=True
        )
        await other.store.commit(ChangeSet(tree_of(path), None, (Enqueue(order, LaneBound()),)))
        assert await elsewhere.parked(path, listening=False) is None


async def test_elsewhere_1_what_is_remembered_of_others_is_bounded(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """The agents that were read last are kept; one that never was is not known."""
    spec = agent()
    async with shared.open({"a": lambda _: "ok"}, spec) as owner:  # type: ignore[dict-item]  # a function for all
        await owner.run(spec, "go", key="k")
        stored = await owner.store.load_agent("a")  # type: ignore[arg-type]  # paths are text
        assert stored is not None
        elsewhere = Elsewhere(owner._parts.kernel)
        for number in range(SEEN_MAX + 10):
            elsewhere.saw(replace(stored, row=replace(stored.row, agent=f"a#{number}")))
        assert elsewhere.view("a#9") is None  # type: ignore[arg-type]
        assert elsewhere.view("a#10") is not None  # type: ignore[arg-type]
        assert repr(elsewhere).startswith(f"<Elsewhere {SEEN_MAX} seen")
