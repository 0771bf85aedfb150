"""Trees that change hands at an awkward moment: what the old owner still holds of them, and what it may not do."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from actors import Agent, Script, call, tool
from actors.changes import ChangeSet, Claim, Move, Put
from actors.errors import OwnedElsewhere, Unavailable
from actors.ids import AgentId, TreeId, TurnId
from actors.messages import ReceiptState
from actors.models.script import hang
from supervisor import open_supervisor
from supervisor.ownership import Ownership
from supervisor.patience import Patience
from supervisor.store.faults import PassingStore
from supervisor.store.memory import open_memory_store
from tests.supervisor.test_peers import LEASE_S, Shared, agent, shared, wait_long

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from supervisor import Supervisor
    from supervisor.store.base import Store

__all__ = ["shared"]  # the fixture


@asynccontextmanager
async def stopped(owner: Supervisor) -> AsyncIterator[None]:
    """Inside, this owner renews nothing, as one that is stopped; at the end its lease has been over for a while."""
    ownership = owner._parts.kernel.ownership
    renew, ownership.renew = ownership.renew, _nothing  # type: ignore[method-assign]  # as one who is stopped
    await trio.sleep(LEASE_S + 1)
    yield
    ownership.renew = renew  # type: ignore[method-assign]  # it goes on


async def _nothing() -> tuple[()]:
    """No renewal."""
    return ()


async def test_own_3_a_tree_that_is_being_taken_is_given_back_too(autojump_clock: trio.testing.MockClock) -> None:
    """Whoever leaves while a tree is being taken keeps no lease of it, and takes none afterwards."""
    tree = TreeId("a")

    async def opened(_: TreeId, __: int) -> bool:
        await trio.sleep(1)
        return False

    class Slow(PassingStore):
        """A store that takes its time."""

        async def own(self, tree: TreeId, holder: Any) -> int:
            await trio.sleep(1)
            return await super().own(tree, holder)

    store = Slow(open_memory_store(store_id="s", lease_s=LEASE_S))
    ownership = Ownership(store, opened, Patience(10.0, trio.current_time, lambda _: None))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ownership.own, tree)
        await trio.sleep(0.5)
        await ownership.give_back(10)
    assert await store.lease(tree) is None
    with pytest.raises(OwnedElsewhere, match="the supervisor was left"):
        await ownership.own(TreeId("b"))


async def test_sup_6_whoever_closes_on_leaving_leaves_a_lost_tree_alone(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """Leaving by a close in the moment in which the tree turns out to be lost raises nothing, and closes nothing."""
    spec = agent(tools=[wait_long])
    async with shared.open({"a": ["one", "two", "three"]}, spec) as other:
        async with (
            shared.store() as store,
            open_supervisor(
                model=Script({"a": [call("wait_long"), "never"]}),
                store=store,
                inline=True,
                agents=[spec],
                on_exit="close",
            ) as owner,
        ):
            await owner.start(spec, "go")
            await trio.sleep(1)
            async with stopped(owner):
                await (await other.resume())[0].wait_report()
            owner._parts.kernel.lost(TreeId("a"))
            assert owner._parts.kernel.ownership.leaving
        assert (await (await other.find("a")).ask("more")).text == "three"


async def test_sup_6_an_order_to_a_lost_tree_is_left_to_its_owner(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """An old owner that reads an order before it knows that it lost the tree tries it once, and stops."""

    class Slow(PassingStore):
        """A store that takes its time."""

        async def commit(self, change_set: Any, then: Any = None) -> Any:
            await trio.sleep(0.5)
            return await super().commit(change_set, then)

    spec = agent(tools=[wait_long])
    script: list[Any] = [call("wait_long"), call("wait_long"), "the next owner's"]
    async with (
        shared.open({"a": script}, spec) as owner,
        shared.store() as store,
        open_supervisor(model=Script({"a": script}), store=Slow(store), inline=True, agents=[spec]) as other,
    ):
        await owner.start(spec, "go")
        await trio.sleep(1)
        async with stopped(owner):
            (ref,) = await other.resume()
            await trio.sleep(5)  # the call's end is unknown, so the same call waits for a person
            await ref.abort("enough")
            await trio.sleep(0.3)  # it stands in the store, and its own owner is about to say that it is aborted
            assert not owner._parts.kernel.ownership.epochs
            assert not owner._parts.kernel.actors
        assert (await ref.ask("more")).text == "the next owner's"


async def test_sup_6_an_agent_that_the_next_owner_made_is_not_run_by_the_last(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """An old owner that is asked for a child which it never had finds by that that the tree is another's."""
    kid = Agent("kid", "Help.")
    spec = agent(children=[kid])
    async with (
        shared.open({"a": ["one"]}, spec) as owner,
        shared.open({"a": ["one", call("kid", task="help"), "two"], "kid": ["helped", "helped again"]}, spec) as other,
    ):
        await owner.run(spec, "go", key="k")
        async with stopped(owner):
            await (await other.find("a")).ask("more")
            ref = await owner.find("a/kid")
            assert not owner._parts.kernel.ownership.epochs
            assert (await ref.ask("and you?")).text == "helped again"
            assert "a/kid" not in owner._parts.kernel.actors


async def test_tol_12_whoever_lost_the_tree_may_decide_all_the_same(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """A decision from the process in which the agent was parked before reaches the owner that it has now."""

    @tool(approve=True)
    async def delete() -> str:
        """Delete it."""
        return "deleted"

    spec = agent(tools=[delete])
    async with (
        shared.open({"a": [call("delete"), "never"]}, spec) as owner,
        owner.approvals() as inbox,
        shared.open({"a": ["one", "the next owner's"]}, spec) as other,
    ):
        ref = await owner.start(spec, "go")
        request = await anext(inbox)
        async with stopped(owner):
            await other.find("a")
        await trio.sleep(LEASE_S)
        assert not owner._parts.kernel.actors
        await request.approve()
        assert (await ref.wait_report()).text == "the next owner's"


async def test_acc_9_a_receipt_says_what_was_decided_before_the_tree_came_here(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """A message that the last owner answered is consumed, also for a sender that owns the tree by now."""
    spec = agent()
    async with shared.open({"a": ["one", "two", "three"]}, spec) as other:
        async with shared.open({"a": ["one", "two"]}, spec) as owner:
            await owner.run(spec, "go", key="k")
            receipt = await (await other.find("a")).send("more")
            await trio.sleep(1)
        assert (await (await other.find("a")).ask("and more")).text == "three"
        assert (await receipt.wait_report()).text == "two"
        assert (receipt.state, receipt.turn) == (ReceiptState.CONSUMED, "a:t2")


async def test_acc_9_a_tree_that_is_lost_while_its_answer_is_looked_for_is_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whoever begins to wait for a turn, and loses its tree in that moment, waits for the next owner's answer."""

    class Slow(PassingStore):
        """A store whose outcomes are read slowly while `slow`."""

        slow = False

        async def outcome(self, turn: TurnId) -> Any:
            if self.slow:
                await trio.sleep(2)
            return await super().outcome(turn)

    spec = agent(tools=[wait_long])
    memory: Store = open_memory_store(store_id="s", lease_s=LEASE_S)
    store = Slow(memory)
    async with (
        open_supervisor(model=Script({"a": [call("wait_long")]}), store=store, inline=True, agents=[spec]) as owner,
        open_supervisor(
            model=Script({"a": ["one", "the next owner's"]}), store=memory, inline=True, agents=[spec]
        ) as other,
    ):
        receipt = await (await owner.start(spec)).send("go")
        await trio.sleep(1)
        async with stopped(owner):
            await other._parts.kernel.ownership.own(TreeId("a"))
            store.slow = True
            texts: list[str] = []

            async def wait() -> None:
                texts.append((await receipt.wait_report()).text)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.sleep(1)
                owner._parts.kernel.lost(TreeId("a"))
                await trio.sleep(3)
                await other.resume()
            assert texts == ["the next owner's"]


@pytest.mark.parametrize("steps", range(8))
async def test_cls_5_an_abort_reaches_a_turn_that_is_being_cut_off(
    steps: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Whatever moment of its unwinding it comes in, it finds no stream to end, and raises nothing."""
    store = open_memory_store(store_id="s")
    async with open_supervisor(model=Script({"a": [hang()]}), store=store, inline=True, agents=[agent()]) as sup:
        await sup.start(agent(), "go")
        await trio.sleep(1)
        loop = sup._parts.kernel.actors[AgentId("a")].loop
        assert loop is not None
        loop.cut_off()
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        loop.cut("enough", tuple)


async def test_acc_9_a_receipt_names_the_turn_that_took_its_message_last(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """A message that was put back by another process, and consumed again, is of its new turn also where it was sent."""
    spec = agent(tools=[wait_long])
    async with shared.open({"a": [call("wait_long"), "never"]}, spec) as owner:
        await owner.start(spec)
        receipt = await (await owner.find("a")).send("go")
        await trio.sleep(1)
        assert receipt.turn == "a:t1"
        async with stopped(owner), shared.store() as store:
            tree = TreeId("a")
            epoch = await store.own(tree, store.new_holder())
            dead = Move(receipt.path, (ReceiptState.CONSUMED,), ReceiptState.DEAD, (receipt.id,), reason="crashed")
            await store.commit(ChangeSet(tree, epoch, (dead,)))
            back = Move(receipt.path, (ReceiptState.DEAD,), ReceiptState.QUEUED, (receipt.id,))
            await store.commit(ChangeSet(tree, epoch, (back,)))
            await store.commit(ChangeSet(tree, epoch, (Claim(receipt.path, (receipt.id,), TurnId("a:t7")),)))
        await trio.sleep(LEASE_S)
        with trio.move_on_after(3):
            await receipt.wait_report()
        assert receipt.turn == "a:t7"


async def test_acc_8_what_another_process_sent_is_found_behind_a_read_that_failed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Messages to several agents are found in one look: where the store fails in its midst, the next one finds all."""

    class Failing(PassingStore):
        """A store of which an agent cannot be read while `failing`."""

        failing = False

        async def load_agent(self, agent: AgentId) -> Any:
            if self.failing:
                self.failing = False
                raise Unavailable("a read fails, and that does not pass while it is waited for", passing=False)
            return await super().load_agent(agent)

    memory: Store = open_memory_store(store_id="s", lease_s=LEASE_S)
    store = Failing(memory)
    first, second = agent(), Agent("b", "Answer.")
    script = {"a": ["one", "two"], "b": ["one", "two"]}
    async with (
        open_supervisor(model=Script(script), store=store, inline=True, agents=[first, second], hard=0) as owner,
        open_supervisor(model=Script({}), store=memory, inline=True, agents=[first, second]) as other,
    ):
        for spec in (first, second):
            await owner.run(spec, "go")
        refs = [await other.find("a"), await other.find("b")]
        await trio.sleep(1)
        store.failing = True
        receipts = [await ref.send("more") for ref in refs]
        with trio.fail_after(30):
            first_report, second_report = await receipts[0].wait_report(), await receipts[1].wait_report()
        assert (first_report.text, second_report.text) == ("two", "two")
        assert not store.failing


async def test_abt_4_whoever_lost_the_tree_wakes_it_all_the_same(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """An old owner that does not know it yet is asked to wake an agent: its next owner has what was held queued."""
    spec = agent(tools=[wait_long])
    async with (
        shared.open({"a": [call("wait_long"), "never"]}, spec) as owner,
        shared.open({"a": ["one", "the next owner's"]}, spec) as other,
    ):
        ref = await owner.start(spec, "go")
        await trio.sleep(1)
        receipt = await ref.send("more")
        await ref.abort("enough")
        await ref.wait_aborted()
        async with stopped(owner):
            await other.find("a")
            await trio.sleep(1)
            assert receipt.state is ReceiptState.HELD
            await ref.wake()
        with trio.fail_after(30):
            assert (await receipt.wait_report()).text == "the next owner's"


async def test_con_6_a_letter_is_put_back_by_whoever_lost_its_tree(
    shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """An old owner that does not know it yet puts a letter back: the next owner is told, and answers it."""
    spec = agent(tools=[wait_long])
    async with (
        shared.open({"a": [call("wait_long"), "never"]}, spec) as owner,
        shared.open({"a": ["one", "two", "three"]}, spec) as other,
    ):
        ref = await owner.start(spec, "go")
        await trio.sleep(1)
        receipt = await ref.send("more", ttl=1)
        await trio.sleep(2)
        assert receipt.state is ReceiptState.DEAD
        async with stopped(owner):
            await (await other.resume())[0].wait_report()
            await owner.put_back(receipt.id, by="x")
        with trio.fail_after(30):
            assert (await (await other.receipt(receipt.id)).wait_report()).text == "three"


class Late(PassingStore):
    """A store that tells a birth a second after it is written, and what it reads of an agent even later."""

    async def commit(self, change_set: ChangeSet, then: Any = None) -> Any:
        """Write it."""
        if not any(isinstance(one, Put) and one.fresh for one in change_set.operations):
            return await super().commit(change_set, then)
        values = await super().commit(change_set)
        await trio.sleep(1)
        then(values)
        return values

    async def load_agent(self, agent: AgentId) -> Any:
        """Read it."""
        found = await super().load_agent(agent)
        await trio.sleep(2)
        return found


@pytest.mark.parametrize("path", ["a", "a/kid"])
async def test_peer_2_a_message_to_an_agent_whose_birth_is_written_and_not_told_is_read(
    path: str, shared: Shared, autojump_clock: trio.testing.MockClock
) -> None:
    """Another process finds a new root, or a new child, before its owner has heard that it was born, and is answered.

    Found by `python -m tests.life --owners 3` at seed 1,001,260: the look that met the message passed over it, as one
    of a tree that was another's, and no later one came back to it. A child's was read, and forgotten for the newborn.
    """
    kid = Agent("kid", "Help.")
    spec = agent(children=[kid])
    script: dict[str, list[object]] = {"a": [call("kid", task="help"), "well", "more"], "kid": ["helped", "more"]}
    async with (
        shared.store() as store,
        open_supervisor(model=Script(script), store=Late(store), inline=True, agents=[spec, kid]) as owner,
        shared.open({}, spec, kid) as other,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(owner.start, spec, "go")
        await trio.sleep(0.5 if path == "a" else 1.5)
        assert AgentId(path) not in owner._parts.kernel.actors, "its birth is not told"
        receipt = await (await other.find(path)).send("more")
        with trio.fail_after(30):
            assert (await receipt.wait_report()).text in ("more", "well")


async def test_own_4_a_tree_that_was_taken_and_could_not_be_opened_is_given_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whoever was cut off, or could not read it, keeps no tree that it does not run, though its lease goes on.

    Found by `python -m tests.life --owners 3` at seed 1,005,497: while its owner ran another tree, nobody ran that one.
    """
    first, second = TreeId("a"), TreeId("b")
    well = False

    async def opened(tree: TreeId, _: int) -> bool:
        if tree == second and not well:
            raise Unavailable("it cannot be read")
        return False

    store = open_memory_store(store_id="s", lease_s=LEASE_S)
    ownership = Ownership(store, opened, Patience(10.0, trio.current_time, lambda _: None))
    await ownership.own(first)
    with pytest.raises(Unavailable):
        await ownership.own(second)
    assert await store.lease(second) is not None
    assert await ownership.renew() == ()
    assert await store.lease(second) is None
    assert await store.lease(first) is not None
    well = True
    assert await ownership.own(second) == 2
    assert await ownership.renew() == ()
    assert await store.lease(second) is not None
