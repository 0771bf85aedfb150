"""Two owners over one store, in one process and under one virtual clock; each has a supervisor and a lease."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import apsw
import attrs
import pytest
import trio
import trio.testing

from actors import Agent, AgentSuspended, Budget, MessagePutBack, Script, call, tool
from actors.errors import AgentClosed, OwnedElsewhere, Unavailable, UsageError
from actors.ids import AgentId, TreeId
from actors.messages import ReceiptState
from actors.transcript import MessageRecord
from supervisor import open_supervisor
from supervisor.ownership import Ownership
from supervisor.patience import Patience
from supervisor.store import sqlite_machine, sqlite_turn
from supervisor.store.memory import open_memory_store
from supervisor.store.sqlite import open_sqlite_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from supervisor import Supervisor
    from supervisor.store.base import Store

LEASE_S = 10.0


class Shared:
    """A store that several owners open."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.path = folder / "agents.db"
        self.memory = open_memory_store(store_id="s", lease_s=LEASE_S)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        """It, as one process has it."""
        if self.kind == "memory":
            yield self.memory
            return
        async with open_sqlite_store(self.path, owner=f"owner of {self.kind}", inline=True, lease_s=LEASE_S) as store:
            yield store

    @asynccontextmanager
    async def open(
        self, script: dict[str, list[Any]], *agents: Agent, budget: Budget | None = None
    ) -> AsyncIterator[Supervisor]:
        """One more owner."""
        async with (
            self.store() as store,
            open_supervisor(model=Script(script), store=store, inline=True, agents=agents, budget=budget) as sup,
        ):
            yield sup


@pytest.fixture(params=["memory", "sqlite"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    """A store of either kind."""
    return Shared(request.param, tmp_path)


def agent(**more: Any) -> Agent:
    """The agent `a`."""
    return Agent("a", "Answer.", **more)


@tool
async def wait_long() -> str:
    """Wait."""
    await trio.sleep(1_000)
    return "waited"


@tool
async def wait_a_little() -> str:
    """Wait."""
    await trio.sleep(5)
    return "waited"


async def test_sup_6_a_message_of_another_process_is_answered_by_the_owner(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """Whoever does not run the tree sends all the same, waits for the reply, and asks no model (ACC-9)."""
    spec = agent()
    async with shared.open({"a": ["one", "two", "three"]}, spec) as owner, shared.open({}, spec) as other:
        await owner.run(spec, "go", key="k")
        ref = await other.find("a")
        receipt = await ref.send("more")
        assert (await receipt.wait_report()).text == "two"
        assert (await ref.ask("and more")).text == "three"
        assert (await ref.wait_report()).text == "three"
        await ref.wait_idle()
        with pytest.raises(OwnedElsewhere):
            await ref.compact()


async def test_acc_4_a_message_of_another_process_is_not_overtaken(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """An agent that was read in with nothing waiting: what another process sent first is answered first."""
    spec = agent()
    async with shared.open({"a": ["one"]}, spec) as before:
        await before.run(spec, "go")
    async with shared.open({"a": ["one", "two", "three"]}, spec) as owner, shared.open({}, spec) as other:
        mine = await owner.find("a")
        theirs = await other.find("a")
        await theirs.send("first")
        await mine.send("second")
        await mine.wait_idle()
        said = [record.content[0].text for record in await mine.transcript() if isinstance(record, MessageRecord)]  # type: ignore[union-attr]
        assert said == ["go", "first", "second"]


async def test_abt_2_an_abort_from_elsewhere_cuts_also_where_another_message_showed_the_gap(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """The order is in the store, and a send from here makes the mailbox be read before the look that would find it."""
    spec = agent(tools=[wait_long])
    async with shared.open({"a": [call("wait_long"), "after"]}, spec) as owner, shared.open({}, spec) as other:
        mine = await owner.start(spec, "go")
        await trio.sleep(1)
        theirs = await other.find("a")
        began = trio.current_time()
        await theirs.abort("enough")
        receipt = await mine.send("behind it")
        await mine.wait_aborted()
        assert trio.current_time() - began < 1
        assert (await receipt.wait_report()).text == "after"


async def test_abt_5_an_abort_from_elsewhere_takes_the_child_that_is_waited_for(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """With the turn ends what it waits for; what came behind the order is no part of it, and is answered (ABT-4)."""
    parent = Agent("p", "Wait.", children=[agent(tools=[wait_long])])
    script = {"p": [call("a", task="x"), "behind"], "a": [call("wait_long"), "never"]}
    async with shared.open(script, parent) as owner, shared.open({}, parent) as other:
        mine = await owner.start(parent, "go")
        await trio.sleep(1)
        began = trio.current_time()
        await (await other.find("p")).abort("enough")
        await mine.wait_aborted()
        child = await owner.find("p/a")
        assert (await child.wait_report()).status == "aborted"
        assert (await mine.ask("and now?")).text == "behind"
        assert trio.current_time() - began < 1


async def test_abt_5_an_abort_from_elsewhere_takes_what_the_owner_has_not_resumed(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """Its owner took the tree behind a restart, and runs nothing of it: what the turn had waited for is aborted too."""

    @tool(approve=True)
    async def delete() -> str:
        """Delete."""
        return "deleted"

    parent = Agent("p", "Wait.", children=[agent(tools=[delete])])
    script = {"p": [call("a", task="x"), "behind"], "a": [call("delete"), "never"]}
    async with shared.open(script, parent) as before:
        await before.run(parent, "go")
    async with shared.open(script, parent) as owner, shared.open({}, parent) as other:
        mine = await owner.find("p")
        await (await other.find("p")).abort("enough")
        await trio.sleep(5)
        assert await owner.store.awaiting_calls() == ()
        assert [row.agent for row in await owner.tree() if row.open is not None] == []
        report = await (await owner.find("p/a")).wait_report()
        assert (report.status, "as part of the abort of p" in str(report.error)) == ("aborted", True)
        assert (await mine.ask("and now?")).text == "behind"


async def test_sup_6_processes_that_wait_only_at_home_do_not_write_for_it(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """What one writes makes the other look, and a look writes nothing: they do not wake each other for ever (REE-5)."""
    parent = Agent("p", "Wait.", children=[agent(tools=[wait_long])])
    script = {"p": [call("a", task="x"), "ok"], "a": [call("wait_long"), "ok"]}
    async with shared.open(script, parent) as one, shared.open(dict(script), parent) as two:
        for sup in (one, two):
            await sup.start(parent, "go")
        await trio.sleep(3)
        ownership = one._parts.kernel.ownership
        renewed, ownership.renew = ownership.renew, _nothing  # type: ignore[method-assign]  # a lease is written, too
        two._parts.kernel.ownership.renew = _nothing  # type: ignore[method-assign]
        await trio.sleep(1)
        async with shared.store() as third:
            before = await third.version()
            await trio.sleep(4)
            assert await third.version() == before
        ownership.renew = renewed  # type: ignore[method-assign]


async def test_sup_6_a_keyed_run_of_two_processes_is_one_run(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """The second process waits for the first one's run, and returns its report."""
    spec = agent()
    async with shared.open({"a": ["one"]}, spec) as owner, shared.open({}, spec) as other:
        ref = await owner.start(spec, "go", key="k")
        assert (await other.run(spec, "go", key="k")).text == "one"
        assert (await ref.wait_report()).text == "one"


async def test_sup_6_orders_reach_the_owner(shared: Shared, autojump_clock: trio.testing.MockClock) -> None:
    """An abort, a pause, a wake and a close from another process are carried out by the one that runs the tree."""
    spec = agent(tools=[wait_long])
    script = {"a": [call("wait_long"), "after the abort", "after the pause"]}
    async with shared.open(script, spec) as owner, shared.open({}, spec) as other:
        mine = await owner.start(spec, "go")
        await trio.sleep(1)
        ref = await other.find("a")
        began = trio.current_time()
        await ref.abort("enough")
        await ref.wait_aborted()
        assert trio.current_time() - began < 1
        assert (await mine.wait_report()).status == "aborted"
        assert (await ref.ask("again")).text == "after the abort"
        await ref.pause()
        await trio.sleep(1)
        receipt = await ref.send("while it is paused")
        await trio.sleep(60)
        assert receipt.state.value == "queued"
        await ref.wake()
        assert (await receipt.wait_report()).text == "after the pause"
        await ref.close()
        await ref.wait_closed()
        assert mine.state == "closed"


async def test_acc_9_a_receipt_says_what_another_process_decided(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """After the wait it names the turn and the calls that ended; a message that another withdrew ends the wait."""
    spec = agent(tools=[wait_long])
    script = {"a": [call("wait_long"), "steered", call("wait_long")]}
    async with shared.open(script, spec) as owner, shared.open({}, spec) as other:
        await owner.start(spec, "go")
        await trio.sleep(1)
        ref = await other.find("a")
        with trio.fail_after(30):
            steered = await ref.steer("now", interrupt=True)
            assert (await steered.wait_report()).text == "steered"
        assert (steered.state, steered.turn, len(steered.skipped)) == (ReceiptState.CONSUMED, "a:t1", 1)
        await ref.send("wait again")
        await trio.sleep(1)
        queued = await ref.send("never mind")

        async def withdraw() -> None:
            await trio.sleep(1)
            assert await (await owner.receipt(queued.id)).withdraw()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(withdraw)
            with trio.fail_after(10), pytest.raises(UsageError, match="withdrawn"):
                await queued.wait_report()
        assert queued.state is ReceiptState.WITHDRAWN
        await ref.abort("enough")


@pytest.mark.parametrize("lane", ["send", "steer"])
async def test_con_4_a_claim_of_what_another_process_withdrew_is_made_again_without_it(
    shared: Shared, lane: str, autojump_clock: trio.testing.MockClock
) -> None:
    """The turn takes what is left, and whoever waits here for the message hears that it was withdrawn (ACC-9)."""
    spec = agent(tools=[wait_a_little])
    async with (
        shared.open({"a": [call("wait_a_little"), "went on", "second"]}, spec) as owner,
        shared.open({}, spec) as other,
        trio.open_nursery() as nursery,
    ):
        mine = await owner.start(spec, "go")
        await trio.sleep(1)
        send = mine.send if lane == "send" else mine.steer
        early, gone, stays = await send("nor this"), await send("never mind"), await send("stays")
        told: list[str] = []

        async def wait() -> None:
            with pytest.raises(UsageError, match="withdrawn"):
                await gone.wait_report()
            told.append("withdrawn")

        nursery.start_soon(wait)
        for one in (early, gone):  # at the first the owner looks, and finds what it sent; at the second nothing is new
            assert await (await other.receipt(one.id)).withdraw()
            await trio.sleep(1)
        with trio.fail_after(60):
            report = await stays.wait_report()
            await mine.wait_idle()
        assert (report.status, report.text) == ("done", "second" if lane == "send" else "went on")
        assert (gone.state, told) == (ReceiptState.WITHDRAWN, ["withdrawn"])
        said = [record.content[0].text for record in await mine.transcript() if isinstance(record, MessageRecord)]  # type: ignore[union-attr]
        assert said == ["go", "stays"]


async def test_con_4_a_turn_of_which_another_process_withdrew_all_messages_ends_without_a_request(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """Nothing is left to claim: no model is asked, the turn ends as in one process (TRN-4), the next answers."""
    spec = agent(tools=[wait_a_little])
    async with (
        shared.open({"a": [call("wait_a_little"), "went on", "next"]}, spec) as owner,
        shared.open({}, spec) as other,
    ):
        mine = await owner.start(spec, "go")
        await trio.sleep(1)
        early, gone = await mine.send("nor this"), await mine.send("never mind")
        for one in (early, gone):  # as above
            assert await (await other.receipt(one.id)).withdraw()
            await trio.sleep(1)
        with trio.fail_after(60):
            report = await mine.wait_report()
            assert (report.status, "nothing left to answer" in str(report.error)) == ("aborted", True)
            await mine.wait_idle()
            with pytest.raises(UsageError, match="withdrawn"):
                await gone.wait_report()
        assert (mine.state, gone.state) == ("idle", ReceiptState.WITHDRAWN)
        assert (await mine.ask("more")).text == "next"


async def test_acc_9_what_another_process_withdrew_is_told_as_soon_as_the_mailbox_is_read(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """A message from elsewhere shows that another one is gone: who waits for it hears that before any claim."""
    spec = agent(tools=[wait_long])
    async with shared.open({"a": [call("wait_long"), "never"]}, spec) as owner, shared.open({}, spec) as other:
        mine = await owner.start(spec, "go")
        await trio.sleep(1)
        gone = await mine.send("never mind")
        assert await (await other.receipt(gone.id)).withdraw()
        await (await other.find("a")).send("behind it")
        with trio.fail_after(1), pytest.raises(UsageError, match="withdrawn"):
            await gone.wait_report()
        assert gone.state is ReceiptState.WITHDRAWN
        await mine.abort("enough")
        await mine.wait_aborted()


async def test_sup_6_a_clean_release_is_taken_at_once(shared: Shared, autojump_clock: trio.testing.MockClock) -> None:
    """What an owner gave back is run by the next, without waiting for a lease."""
    spec = agent()
    async with shared.open({"a": ["one"]}, spec) as owner:
        await owner.run(spec, "go", key="k")
    began = trio.current_time()
    async with shared.open({"a": ["one", "two"]}, spec) as other:
        assert (await (await other.find("a")).ask("more")).text == "two"
        assert trio.current_time() == began


class Stopped(Exception):
    """The process is gone."""


async def test_sup_6_a_stopped_owner_is_superseded_and_stops_quietly(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """Once its lease is over another goes on with the tree; it finds out, stops at once, and that is no crash."""
    spec = agent(tools=[wait_long])
    async with shared.open({"a": [call("wait_long"), "never"]}, spec) as owner:
        ref = await owner.start(spec, "go")
        await trio.sleep(1)
        ownership = owner._parts.kernel.ownership
        renew, ownership.renew = ownership.renew, _nothing  # type: ignore[method-assign]  # as one who is stopped
        async with owner.events() as events, shared.open({"a": ["one", "the next owner's"]}, spec) as other:
            await trio.sleep(LEASE_S + 1)
            (resumed,) = await other.resume()
            report = await resumed.wait_report()
            assert report.text == "the next owner's"
            assert [one.status for one in report.calls] == ["unknown"]
            ownership.renew = renew  # type: ignore[method-assign]  # it goes on
            await trio.sleep(LEASE_S)
            assert not ownership.epochs
            assert not owner._parts.kernel.actors
            told = [event async for event in _until_suspended(events)]
            assert [event.reason for event in told] == ["owned_elsewhere"]
            assert (await ref.wait_report()).text == "the next owner's"


async def _nothing() -> tuple[()]:
    """No renewal."""
    return ()


async def _until_suspended(events: Any) -> AsyncIterator[AgentSuspended]:
    async for event in events:
        if isinstance(event, AgentSuspended):
            yield event
            return


async def test_sup_6_whoever_waits_for_a_dead_owner_takes_its_tree(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """A process that waits for a reply goes on with the tree itself, once nobody runs it any more (ACC-9)."""
    spec = agent(tools=[wait_long])
    async with shared.open({"a": [call("wait_long"), "never"]}, spec) as owner:
        await owner.start(spec, "go")
        await trio.sleep(1)
        ownership = owner._parts.kernel.ownership
        renew, ownership.renew = ownership.renew, _nothing  # type: ignore[method-assign]  # as one who is stopped
        async with shared.open({"a": ["one", "taken over", "taken over"]}, spec) as other:
            report = await (await other.find("a")).ask("are you there?")
            assert report.text == "taken over"
            assert trio.current_time() < 2 * LEASE_S + 5
        ownership.renew = renew  # type: ignore[method-assign]  # it goes on, and finds that it lost the tree
        await trio.sleep(LEASE_S)
        assert not ownership.epochs
        assert (await (await owner.find("a")).ask("and now?")).text == "never"
        assert ownership.epochs == {"a": 3}


async def test_sup_6_a_lost_tree_with_sleeping_agents_is_left(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """Agents of it that are not in memory have accounts too: they go with it, and nothing is counted twice (BUD-7)."""
    kid = Agent("kid", "Help.")
    spec = agent(children=[kid])
    bounded = Budget(model_calls=100)
    script: dict[str, list[Any]] = {"a": [call("kid", task="help"), "one", "two", "three"], "kid": ["helped"]}
    async with shared.open(script, spec) as first:
        await first.run(spec, "go", key="k")  # three model calls
    async with shared.open(script, spec, budget=bounded) as owner:
        await (await owner.find("a")).ask("more")  # the fourth; `a/kid` sleeps
        assert "a/kid" not in owner._parts.kernel.actors
        ownership = owner._parts.kernel.ownership
        renew, ownership.renew = ownership.renew, _nothing  # type: ignore[method-assign]  # as one who is stopped
        await trio.sleep(LEASE_S + 1)
        async with shared.open(script, spec) as other:
            await (await other.find("a")).ask("more")  # the fifth
            ownership.renew = renew  # type: ignore[method-assign]  # it goes on
            await trio.sleep(LEASE_S)
            assert not ownership.epochs
            assert owner._parts.ledger.statistics().spent.model_calls == 4
        assert (await (await owner.find("a")).transcript()) is not None
        assert owner._parts.ledger.statistics().spent.model_calls == 5
        assert owner._parts.ledger.snapshot(AgentId("/")).spent.model_calls == 5


async def test_sup_6_a_tree_that_is_being_left_is_another_s(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """While a tool does not notice that its tree was lost, its agents are another's here, too, and take messages."""

    @tool
    async def sit() -> str:
        """Sit there, whatever comes."""
        with trio.CancelScope(shield=True):
            await trio.sleep(3 * LEASE_S)
        return "up"

    spec = agent(tools=[sit])
    async with shared.open({"a": [call("sit"), "never"]}, spec) as owner:
        ref = await owner.start(spec, "go")
        await trio.sleep(1)
        ownership = owner._parts.kernel.ownership
        renew, ownership.renew = ownership.renew, _nothing  # type: ignore[method-assign]  # as one who is stopped
        async with shared.open({"a": ["one", "the next owner's", "again"]}, spec) as other:
            await trio.sleep(LEASE_S + 1)
            await (await other.resume())[0].wait_report()
            ownership.renew = renew  # type: ignore[method-assign]  # it goes on
            await trio.sleep(LEASE_S / 2)
            assert not ownership.epochs
            assert not await owner.resume()
            assert (await (await ref.send("more")).wait_report()).text == "again"


async def test_sup_6_orders_to_what_is_closed_leave_nothing_waiting(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """A close, kill or abort from another process of what is closed already changes nothing; a pause is refused."""
    kid = Agent("kid", "Help.")
    spec = agent(children=[kid])
    script: dict[str, list[Any]] = {"a": [call("kid", task="help"), "one"], "kid": ["helped"]}
    async with shared.open(script, spec) as owner, shared.open({}, spec) as other:
        await owner.run(spec, "go", key="k")
        await (await owner.find("a/kid")).close()
        await (await owner.find("a/kid")).wait_closed()
        ref = await other.find("a")
        await ref.close()  # its child is closed already
        await ref.wait_closed()
        for end in (ref.close, ref.kill, ref.abort):
            await end()
        with pytest.raises(AgentClosed):
            await ref.pause()
        await ref.wait_closed()
        assert not await owner.store.agents_with_work()


async def test_sup_6_whoever_lost_all_its_trees_keeps_no_lease(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The row of a lease is there for trees only: nobody would ever take away one that has none."""
    path = tmp_path / "agents.db"
    async with (
        open_sqlite_store(path, owner="one", inline=True, lease_s=LEASE_S) as one,
        open_sqlite_store(path, owner="two", inline=True, lease_s=LEASE_S) as two,
    ):
        stopped, next_one = one.new_holder(), two.new_holder()
        await one.own(TreeId("a"), stopped)
        await trio.sleep(LEASE_S + 1)
        await two.own(TreeId("a"), next_one)
        assert await one.renew(stopped) == {}
        owners = apsw.Connection(str(path))
        assert owners.execute("SELECT holder FROM owners").fetchall() == [(next_one.id,)]
        dead = attrs.evolve(one.new_holder(), pid=2**22 + 1)  # Linux numbers no process so high
        await one.own(TreeId("b"), dead)
        await two.own(TreeId("b"), next_one)
        assert owners.execute("SELECT holder FROM owners").fetchall() == [(next_one.id,)]


async def test_own_1_a_tree_is_opened_once_whoever_gives_up(autojump_clock: trio.testing.MockClock) -> None:
    """Of tasks that take a tree at a time, one whose wait is cancelled leaves the next one alone with it."""
    opening: list[TreeId] = []

    async def opened(tree: TreeId, _: int) -> bool:
        opening.append(tree)
        assert len(opening) == 1, "two open the accounts of a tree at a time"
        try:
            await trio.sleep(2)
        finally:
            opening.remove(tree)
        return False

    ownership = Ownership(open_memory_store(store_id="s"), opened, Patience(10.0, trio.current_time, lambda _: None))

    async def impatient() -> None:
        with trio.move_on_after(1):
            await ownership.own(TreeId("a"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(impatient)
        await trio.sleep(0.5)
        nursery.start_soon(ownership.own, TreeId("a"))
        await trio.sleep(1)
        nursery.start_soon(ownership.own, TreeId("a"))
    assert ownership.epochs == {"a": 1}


async def test_a_process_that_stands_before_the_write_lock_makes_the_store_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits too long for a stopped process is told so: that is the place's fault, and no bug of ours."""
    monkeypatch.setattr(sqlite_turn, "WAIT_S", 0.01)
    path = tmp_path / "agents.db"
    async with open_sqlite_store(path, owner="one", inline=True, lease_s=LEASE_S) as store:
        stopped = sqlite_turn.Turnstile(path)
        stopped.enter()
        try:
            with pytest.raises(Unavailable, match="another process has been about to write"):
                await store.own(TreeId("a"), store.new_holder())
        finally:
            stopped.leave()
            stopped.close()
        assert await store.own(TreeId("a"), store.new_holder()) == 1


def test_a_killed_process_is_gone_before_its_parent_has_asked() -> None:
    """A holder whose process has ended is known to be gone at once, also where nobody has waited for it yet."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        holder = attrs.evolve(sqlite_machine.new_holder("it"), pid=child.pid, started="")
        assert not sqlite_machine.gone(holder)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays to be waited for
        assert sqlite_machine.gone(holder)
    finally:
        child.kill()
        child.wait()
        assert child.stdin is not None, "it was opened with a pipe"
        child.stdin.close()


async def test_sup_6_a_wait_for_a_lost_tree_goes_on_with_its_next_owner(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """Whoever waits for a state of an agent hears of it also where another process brings it about (ACC-9)."""
    spec = agent(tools=[wait_long])
    async with shared.open({"a": [call("wait_long"), "never"]}, spec) as owner, trio.open_nursery() as nursery:
        ref = await owner.start(spec, "go")
        await trio.sleep(1)
        for wait in (ref.wait_closed, ref.wait_idle):
            nursery.start_soon(wait)
        ownership = owner._parts.kernel.ownership
        renew, ownership.renew = ownership.renew, _nothing  # type: ignore[method-assign]  # as one who is stopped
        await trio.sleep(LEASE_S + 1)
        async with shared.open({"a": ["one", "the next owner's"]}, spec) as other:
            (resumed,) = await other.resume()
            await resumed.wait_report()
            ownership.renew = renew  # type: ignore[method-assign]  # it goes on
            await trio.sleep(LEASE_S)
            assert not ownership.epochs
            await resumed.close()
            with trio.fail_after(60):
                while nursery.child_tasks:  # noqa: ASYNC110 - a nursery has no event
                    await trio.sleep(0.1)


async def test_con_6_a_dead_letter_of_another_process_tree_is_put_back(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """It waits again at its old place, its owner answers it and tells of it; whoever put it back hears the reply."""
    spec = agent(tools=[wait_long])
    script = {"a": [call("wait_long"), "expired is answered"]}
    async with shared.open(script, spec) as owner, shared.open({}, spec) as other:
        mine = await owner.start(spec, "go")
        mortal = await mine.send("expires", ttl=5)
        await trio.sleep(20)
        assert mortal.state.value == "dead"
        async with owner.events(after="now") as watcher:
            receipt = await other.put_back(mortal.id, by="an operator")
            assert receipt.state is ReceiptState.QUEUED
            with pytest.raises(UsageError, match="is no dead letter"):
                await other.put_back(mortal.id, by="an operator")
            await trio.sleep(1)
            assert mine.state == "running"
            await mine.abort("enough")
            await mine.wake()
            assert (await receipt.wait_report()).text == "expired is answered"
            assert mortal.state is ReceiptState.CONSUMED
            (told,) = [event for _, event in watcher._events if isinstance(event, MessagePutBack)]
            assert (told.message, told.by, told.reason) == (mortal.id, "an operator", "expired")
        await mine.close()
        await mine.wait_closed()
        stored = await other.store.dead_letters()
        assert stored == ()


async def test_con_6_a_dead_letter_of_a_paused_tree_elsewhere_waits_and_ends_no_pause(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """Of a tree that is closed there it is refused, in words that say what to do."""
    spec = agent(tools=[wait_long])
    async with shared.open({"a": ["one", "two"]}, spec) as owner, shared.open({}, spec) as other:
        mine = await owner.start(spec, "go")
        await mine.wait_idle()
        await mine.pause()
        mortal = await mine.send("expires", ttl=5)
        await trio.sleep(20)
        await other.put_back(mortal.id, by="an operator")
        await trio.sleep(20)
        assert mine.state == "paused"
        await mine.wake()
        assert (await mortal.wait_report()).text == "two"
        await mine.pause()
        late = await mine.send("late")
        await mine.close(grace=0)
        await mine.wait_closed()
        with pytest.raises(AgentClosed, match="to another agent"):
            await other.put_back(late.id, by="an operator")
