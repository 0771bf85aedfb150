"""What went wrong elsewhere with two executors, stale lists, late writes and requests that came to life hours later.

Two owners of one store live in one process under one virtual clock, each with a supervisor and a lease, as in
`tests/supervisor/test_peers.py`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import (
    Agent,
    AgentCrashed,
    AgentSuspended,
    Child,
    Context,
    DeadLettered,
    Script,
    UsageError,
    call,
    tool,
)
from actors.changes import AgentRow as Row
from actors.changes import Put
from actors.errors import Fenced
from actors.ids import AgentId, TreeId
from actors.messages import ReceiptState
from actors.models.script import hang
from actors.transcript import MessageRecord, ResultRecord
from supervisor import open_supervisor
from supervisor.store.faults import PassingStore
from tests.points.table import Labels
from tests.supervisor.promises.world import Spy, World, check, has, messages, quiet, said, texts, watched
from tests.supervisor.test_peers import LEASE_S, Shared

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from trio.testing import MockClock

    from actors.changes import ChangeSet, Values
    from actors.ports import ModelRequest
    from supervisor import Supervisor
    from supervisor.store.base import Store, Then


@pytest.fixture
def shared(kind: str, tmp_path: Path) -> Shared:
    """A store of either kind, with leases."""
    return Shared(kind, tmp_path)


@asynccontextmanager
async def owner(
    shared: Shared, model: dict[str, Any], *agents: Agent, wrap: Callable[[Store], Store] = Spy, **options: Any
) -> AsyncIterator[Supervisor]:
    """One more owner, with something between it and the store."""
    async with (
        shared.store() as store,
        open_supervisor(model=Script(model), store=wrap(store), agents=agents, inline=True, **options) as sup,
    ):
        yield sup


class Late(PassingStore):
    """A store whose commits with a label are under way until they are let go.

    Attributes:
        label: which, or None. met: one is under way. errors: what came of those that were late.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.label: str | None = None
        self.met, self.go = trio.Event(), trio.Event()
        self.labels = Labels()
        self.errors: list[Exception] = []

    async def commit(self, change_set: ChangeSet, then: Then | None = None) -> Values:
        """Write a change set, some of them late."""
        late = self.label in self.labels.of(change_set)
        if late:
            self.met.set()
            with trio.CancelScope(shield=True):
                await self.go.wait()
        try:
            return await super().commit(change_set, then)
        except Exception as error:
            if late:
                self.errors.append(error)
            raise


@pytest.mark.parametrize("label", ["response", "settled", "end"])
async def test_br_097_what_a_superseded_owner_writes_late_is_refused(
    shared: Shared, autojump_clock: MockClock, label: str
) -> None:
    """Its commit was under way for longer than its lease: it comes behind the next owner's, and changes nothing."""

    @tool
    async def act() -> str:
        """Act."""
        return "acted"

    def model(request: ModelRequest) -> object:
        last = request.window[-1]
        if isinstance(last, MessageRecord):
            return call("act")
        return said(last.content) if isinstance(last, ResultRecord) else "?"

    spec, late = Agent("a", "Act.", tools=[act]), list[Late]()

    def wrap(store: Store) -> Store:
        late.append(Late(store))
        return late[0]

    async with owner(shared, {"a": model}, spec, wrap=wrap) as first, watched(first) as log:
        late[0].label = label
        await first.start(spec, "go", key="k")
        await late[0].met.wait()
        ownership = first._parts.kernel.ownership
        renew, ownership.renew = ownership.renew, no_renewal  # type: ignore[method-assign]  # as one who is stopped
        await trio.sleep(LEASE_S + 1)
        async with owner(shared, {"a": model}, spec) as second:
            (ref,) = await second.resume()
            await ref.wait_idle()
            await ref.ask("and now?")
            now, rows = texts(await ref.transcript()), await second.tree()
            late[0].go.set()
            await quiet()
            assert [type(error) for error in late[0].errors] == [Fenced]
            ownership.renew = renew  # type: ignore[method-assign]  # it goes on
            await trio.sleep(LEASE_S)
            assert texts(await ref.transcript()) == now
            assert await second.tree() == rows
            assert log.of(AgentCrashed) == [], "to have lost a tree is no crash"
            assert [event.reason for event in log.of(AgentSuspended)] == ["owned_elsewhere"]
            await check(second.store)


async def no_renewal() -> tuple[()]:
    """A stopped process renews nothing."""
    return ()


HOURS = 1.6 * 3_600


@pytest.mark.parametrize("ended", ["abort", "dies", "cancel"])
async def test_br_098_a_start_that_was_interrupted_makes_no_worker_later(
    world: World, autojump_clock: MockClock, ended: str
) -> None:
    """Interrupted while it was written: hours and a restart later there is one worker at most, with its work."""
    asked: list[str] = []

    def worker(request: ModelRequest) -> object:
        asked.append(request.agent)
        return "worked"

    @tool(effect="idempotent")
    async def hire(ctx: Context) -> str:
        """Hire a worker."""
        kid = await ctx.start(Agent("w", "Work."), "the work", key="the worker")
        return f"hired {kid.path}"

    lead = Agent("lead", "Hire.", tools=[hire], children=[Agent("w", "Work.")])
    model = {"lead": lambda r: call("hire") if isinstance(r.window[-1], MessageRecord) else "done", "w": worker}
    with trio.CancelScope() as life:
        async with world.open(model, agents=[lead], grace=1) as sup:

            async def slow(one: ChangeSet) -> None:
                if has(one, Put, lambda put: isinstance(put.row, Row) and put.row.name == "w"):
                    if ended == "dies":
                        world.spy.refuse = lambda _: True
                    await trio.sleep(30)

            world.spy.before = slow
            ref = await sup.start(lead, "go", key="k")
            await trio.sleep(10)
            if ended == "abort":
                await ref.abort("never mind", subtree=True)
                await ref.wait_aborted()
            else:
                life.cancel()
                await trio.lowlevel.checkpoint()
    await trio.sleep(HOURS)
    async with world.open(model, agents=[lead]) as sup:
        await sup.resume()
        await trio.sleep(HOURS)
        rows = [row for row in await sup.tree() if row.name == "w"]
        assert len(rows) <= 1
        assert asked == [] if ended == "abort" else len(asked) <= 1, "what was called off does not come to life later"
        ref = await sup.find("lead")
        assert (await ref.ask("hire again")).status == "done"
        rows = [row for row in await sup.tree() if row.name == "w"]
        assert [row.agent for row in rows] == ["lead/w"], "the same key is the same worker"
        assert asked.count("lead/w") <= 1
        await check(sup.store)


async def test_br_098_a_request_that_expired_or_was_withdrawn_is_not_carried_out(
    world: World, autojump_clock: MockClock
) -> None:
    """Its process is gone before it is taken; what comes next, hours later, says what became of it, and does it not."""
    spec, asked = Agent("a", "Answer."), list[str]()

    def model(request: ModelRequest) -> object:
        asked.append(texts(list(request.window))[-1])
        return hang() if len(asked) == 1 else "ok"

    async with world.open({"a": model}, grace=1) as sup:
        ref = await sup.start(spec, "go")
        await trio.sleep(1)
        expires = await ref.send("make a worker", ttl=600)
        withdrawn = await ref.send("make another", key="w")
        pending = await ref.send("make a third")
        assert await withdrawn.withdraw()
    await trio.sleep(HOURS)
    async with world.open({"a": model}, agents=[spec]) as sup:
        late = await sup.receipt(expires.id)
        assert (await sup.receipt(pending.id)).state is ReceiptState.QUEUED, "known to be pending"
        await sup.resume()
        await (await sup.find("a")).wait_idle()
        with pytest.raises(DeadLettered, match="expired"):
            await late.wait_report()
        with pytest.raises(UsageError, match="withdrawn"):
            await (await sup.receipt(withdrawn.id)).wait_report()
        assert [one for one in asked if "make" in one] == ["<make a third"]
        assert await messages(sup.store, "a") == {
            "go": ReceiptState.CONSUMED,
            "make a worker": ReceiptState.DEAD,
            "make another": ReceiptState.WITHDRAWN,
            "make a third": ReceiptState.CONSUMED,
        }


class Stale(PassingStore):
    """A store whose list of work is old by the time that anybody acts on it: `meanwhile` happens in between."""

    async def meanwhile(self) -> None:
        """What happens."""

    async def agents_with_work(self) -> tuple[AgentId, ...]:
        """The list as it was."""
        found = await super().agents_with_work()
        meanwhile, self.meanwhile = self.meanwhile, nothing  # type: ignore[method-assign]  # once
        await meanwhile()
        return found


async def nothing() -> None:
    """Nothing happens."""


@pytest.mark.parametrize("what", ["answered", "withdrawn", "held elsewhere"])
async def test_br_100_what_changed_since_the_list_was_read_is_not_run(
    shared: Shared, autojump_clock: MockClock, what: str
) -> None:
    """Between the list of work and its claim another answers, withdraws, or takes the tree: one answers, once."""
    spec, asked, made = Agent("a", "Answer."), list[str](), list[Stale]()

    def model(name: str) -> Any:
        def answer(_: ModelRequest) -> object:
            asked.append(name)
            return f"by the {name}"

        return answer

    def wrap(store: Store) -> Store:
        made.append(Stale(store))
        return made[0]

    async with owner(shared, {"a": [hang()]}, spec, grace=0) as before:
        ref = await before.start(spec, key="k")
        await ref.pause()
        receipt = await ref.send("go")
    async with (
        owner(shared, {"a": model("second")}, spec, wrap=wrap) as second,
        owner(shared, {"a": model("third")}, spec) as third,
    ):

        async def meanwhile() -> None:
            if what == "withdrawn":
                assert await (await third.receipt(receipt.id)).withdraw()
                return
            other = await third.find("a")
            await other.wake()
            if what == "answered":
                await other.wait_idle()
                await third.store.release(third._parts.kernel.ownership.holder)

        made[0].meanwhile = meanwhile  # type: ignore[method-assign]  # a test's own
        for resumed in await second.resume():
            await resumed.wake()
        await trio.sleep(60)
        assert asked == ([] if what == "withdrawn" else ["third"])
        final = await second.receipt(receipt.id)
        if what == "withdrawn":
            assert final.state is ReceiptState.WITHDRAWN
        else:
            assert (await final.wait_report()).text == "by the third"


async def test_br_100_recovery_keeps_the_limits_of_the_pool(world: World, autojump_clock: MockClock) -> None:
    """Ten trees with work are brought back at once: no more than the pool's two permits ask the model at a time."""
    specs = [Agent(f"a{n}", "Answer.") for n in range(10)]
    busy: list[int] = []

    async def model(_: ModelRequest) -> str:
        busy.append(1)
        most.append(len(busy))
        await trio.sleep(1)
        busy.pop()
        return "ok"

    async with world.open({spec.name: model for spec in specs}, permits=2) as sup:
        for spec in specs:
            ref = await sup.start(spec, key=spec.name)
            await ref.pause()
            await ref.send("go")
    most: list[int] = []
    async with world.open({spec.name: model for spec in specs}, agents=specs, permits=2) as sup:
        refs = await sup.resume()
        for ref in refs:
            await ref.wake()
        for ref in refs:
            assert (await ref.wait_report()).text == "ok"
    assert len(most) == len(refs) == 10
    assert max(most) == 2


async def test_br_101_one_run_started_by_two_processes_is_run_by_one(shared: Shared, autojump_clock: MockClock) -> None:
    """At the same moment, under one key: one of them runs it, the other waits for it, and both have its report."""
    ran, asked, reports = list[str](), list[str](), list[Any]()

    @tool
    async def act(ctx: Context) -> str:
        """Act."""
        ran.append(ctx.call_id)
        await trio.sleep(5)
        return "acted"

    def model(name: str) -> dict[str, Any]:
        def answer(request: ModelRequest) -> object:
            asked.append(name)
            return call("act") if isinstance(request.window[-1], MessageRecord) else f"by the {name}"

        return {"a": answer}

    spec = Agent("a", "Act.", tools=[act])
    async with owner(shared, model("first"), spec) as first, owner(shared, model("second"), spec) as second:

        async def run(sup: Supervisor) -> None:
            reports.append(await sup.run(spec, "go", key="k"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, first)
            nursery.start_soon(run, second)
        assert len(set(asked)) == 1
        assert len(asked) == 2
        assert len(ran) == 1
        assert {report.text for report in reports} == {f"by the {asked[0]}"}
        (root,) = await first.tree()
        assert (await first.store.lease(TreeId(root.agent))) is not None


@pytest.mark.parametrize("later", ["run", "send"])
async def test_br_102_what_a_dead_process_held_is_free_in_bounded_time(
    shared: Shared, autojump_clock: MockClock, later: str
) -> None:
    """It had the tree and the only permit, and renews no more: another goes on with both, once its lease is over."""
    spec = Agent("a", "Answer.")
    async with owner(shared, {"a": [hang()]}, spec, permits=1) as first:
        await first.start(spec, "go", key="k")
        await trio.sleep(1)
        first._parts.kernel.ownership.renew = no_renewal  # type: ignore[method-assign]  # as one that is dead
        async with owner(shared, {"a": lambda _: "ok"}, spec, permits=1) as second:
            with trio.fail_after(2 * LEASE_S + 1):
                if later == "run":
                    assert (await second.run(spec, "go", key="k")).text == "ok"
                else:
                    assert (await (await second.find("a")).ask("are you there?")).text == "ok"


async def test_br_102_a_stream_that_is_stuck_gives_its_permit_back(world: World, autojump_clock: MockClock) -> None:
    """What was brought back never goes on, and has the only permit: its stream is cut in time, and the others go on."""
    specs = [Agent(name, "Answer.") for name in ("stuck", "other")]
    model = {"stuck": lambda _: hang(), "other": lambda _: "ok"}
    async with world.open(model, permits=1, grace=0) as sup:
        await sup.start(specs[0], "go")
        await trio.sleep(1)
    async with world.open(model, agents=specs, permits=1) as sup:
        (stuck,) = await sup.resume()
        await trio.sleep(1)
        began = trio.current_time()
        assert (await sup.run(specs[1], "go")).text == "ok"
        assert trio.current_time() - began < 1_000
        report = await stuck.wait_report()
        assert report.status == "failed"


@pytest.mark.parametrize("wait", ["ask", "wait_idle", "wait_closed"])
async def test_br_102_all_of_a_tree_goes_on_with_whoever_waits_for_it(
    shared: Shared, autojump_clock: MockClock, wait: str
) -> None:
    """Its owner died in the middle of a background child's turn, or of a close; whoever waits brings back all."""
    spec, spies = Agent("a", "Lead.", children=[Child(Agent("kid", "Work."), background=True)]), list[Spy]()
    model = {"a": lambda r: "heard" if r.window.responses else call("kid", task="work")}

    def wrap(store: Store) -> Spy:
        spies.append(Spy(store))
        return spies[-1]

    async with owner(shared, {**model, "kid": [hang()]}, spec, wrap=wrap) as first:
        ref = await first.start(spec, "go", key="k")
        await trio.sleep(1)
        if wait == "wait_closed":
            await ref.close(grace=1_000)
        first._parts.kernel.ownership.renew = no_renewal  # type: ignore[method-assign]  # as one that is dead
        spies[0].refuse = lambda _: True
        async with owner(shared, {**model, "kid": lambda _: "worked"}, spec) as second:
            ref, kid = await second.find("a"), await second.find("a/kid")
            with trio.fail_after(2 * LEASE_S):
                if wait == "ask":
                    await ref.ask("are you there?")
                await (ref.wait_closed if wait == "wait_closed" else kid.wait_idle)()
                await (ref.wait_closed if wait == "wait_closed" else ref.wait_idle)()
            assert any("Report of a/kid (done)" in one for one in texts(await ref.transcript()))
