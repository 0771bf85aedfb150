"""Two owners over one store, in one process and under one virtual clock; each has a supervisor and a lease."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from actors import Agent, AgentSuspended, Script, call, tool
from actors.errors import OwnedElsewhere
from supervisor import open_supervisor
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
    async def open(self, script: dict[str, list[Any]], *agents: Agent) -> AsyncIterator[Supervisor]:
        """One more owner."""
        async with (
            self.store() as store,
            open_supervisor(model=Script(script), store=store, inline=True, agents=agents) as sup,
        ):
            yield sup


@pytest.fixture(params=["memory", "sqlite"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    """A store of either kind."""
    return Shared(request.param, tmp_path)


def agent(**more: Any) -> Agent:
    """The agent `a`."""
    return Agent("a", "Answer.", **more)


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


async def test_sup_6_a_keyed_run_of_two_processes_is_one_run(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """The second process waits for the first one's run, and returns its report."""
    spec = agent()
    async with shared.open({"a": ["one"]}, spec) as owner, shared.open({}, spec) as other:
        ref = await owner.start(spec, "go", key="k")
        assert (await other.run(spec, "go", key="k")).text == "one"
        assert (await ref.wait_report()).text == "one"


@tool
async def wait_long() -> str:
    """Wait."""
    await trio.sleep(1_000)
    return "waited"


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
