"""Checks of a store: sets as wholes, owners, cancellation, many callers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from actors.changes import (
    AgentRow,
    Append,
    Bump,
    CallRow,
    CallState,
    ChangeSet,
    Claim,
    Enqueue,
    Erase,
    Intake,
    KvRow,
    Move,
    Operation,
    OutcomeRow,
    Placed,
    Put,
    Require,
    Shut,
    Values,
)
from actors.errors import (
    CallboardError,
    Conflict,
    Fenced,
    MailboxFull,
    Unavailable,
    UnknownPath,
    UsageError,
)
from actors.ids import AgentId, MessageId, TreeId, run_id, turn_id
from actors.messages import LaneBound, Outcome, ReceiptState, Status

from .store_hand import LEAD, ROOMY, WAITING, Hand, agent_row, call_row, envelope, note

if TYPE_CHECKING:
    from supervisor.store.base import Store


async def check_conditions(store: Store) -> None:
    """`Require` and `Bump` let a set through or fail it whole."""
    hand = Hand(store)
    await hand.begin()
    await hand(Put(KvRow(LEAD, "agent", "a", "1")), Put(call_row(LEAD, 1, 0)))
    call = call_row(LEAD, 1, 0).call
    met = (
        Require(AgentRow, (LEAD,), "turns", 0),
        Require(CallRow, (call,), "state", CallState.STARTED),
        Require(KvRow, (LEAD, "agent", "a"), "value", "1"),
    )
    assert await hand(*met) == (None, None, None)
    for unmet in (
        Require(AgentRow, (LEAD,), "turns", 1),
        Require(CallRow, (call,), "state", CallState.SETTLED),
        Require(KvRow, (LEAD, "agent", "b"), "value", None),
        Require(OutcomeRow, (turn_id(LEAD, 1),), "run", run_id(LEAD, 1)),
        Require(AgentRow, ("nobody",), "turns", 0),
    ):
        await hand.refuses(Conflict, Put(agent_row(LEAD, owes=True)), unmet)
    await hand.refuses(UsageError, Require(AgentRow, (LEAD,), "turn", 0))
    await hand.refuses(UsageError, Require(KvRow, (LEAD,), "value", "1"))
    assert await hand(Bump("n"), Bump("n", 4, bound=5), Bump("other", -2)) == (1, 5, -2)
    await hand.refuses(Conflict, Bump("n", bound=5))
    assert await hand.anyone(Bump("n", -5), Bump("n", 0)) == (0, 0)
    await hand.refuses(UsageError, Bump("n", 2**63 - 1), Bump("n", 1))
    await hand.refuses(UsageError, Bump("n", 2**63))


async def check_whole(store: Store) -> None:
    """A set is written whole or not at all, whichever operation fails; later ones see earlier ones (STORE-1)."""
    hand = Hand(store)
    await hand.begin()
    await hand.send(envelope("m-0"))
    turn = turn_id(LEAD, 1)
    ended = OutcomeRow(turn, LEAD, run_id(LEAD, 1), Outcome(LEAD, run_id(LEAD, 1), turn, Status.DONE))
    made = agent_row("lead/new", owes=True, key="k")
    operations: tuple[Operation, ...] = (
        Bump("n"),
        Put(made, fresh=True),
        Enqueue(envelope("m-1", "lead/new", key="x"), ROOMY),
        Claim(AgentId("lead/new"), (MessageId("m-1"),), turn_id("lead/new", 1)),
        Append(AgentId("lead/new"), 0, (note("one"),)),
        Append(AgentId("lead/new"), 1, (note("two"),)),
        Claim(LEAD, (MessageId("m-0"),), turn),
        Move(LEAD, (ReceiptState.CONSUMED,), ReceiptState.DEAD, (MessageId("m-0"),), "why"),
        Put(KvRow(LEAD, "agent", "a", "1")),
        Put(KvRow(LEAD, "agent", "a", "2")),
        Put(call_row(LEAD, 1, 0), fresh=True),
        Erase(CallRow, (call_row(LEAD, 1, 0).call,)),
        Put(ended),
        Put(replace(agent_row(LEAD), turns=1)),
        Require(AgentRow, (LEAD,), "turns", 1),
        Shut(LEAD, Intake.CLOSING),
    )
    for length in range(len(operations) + 1):
        await hand.refuses(Conflict, *operations[:length], Bump("never", bound=0))
    assert await store.load_agent(AgentId("lead/new")) is None
    assert await store.find_key(LEAD, "k") is None
    assert await store.message_state(MessageId("m-1")) is None
    values = await hand(*operations)
    assert values[0] == 1
    assert values[2] == Placed(MessageId("m-1"), 1)
    assert values[4:6] == (1, 2)
    assert values[15] is True
    assert await store.agents_with_work() == ("lead/new",)


async def check_fence(store: Store) -> None:
    """Each owner has a higher epoch; an old one, or nobody, writes no row of the tree (SUP-6, STORE-6)."""
    hand = Hand(store)
    await hand.begin()
    old = hand.epoch
    await hand.take()
    assert hand.epoch > old
    holder = store.new_holder()
    assert await store.own(TreeId("other"), holder) >= 1
    for epoch in (old, 0, hand.epoch + 1):
        await hand.refuses(Fenced, Put(agent_row(LEAD, owes=True)), epoch=epoch)
    await hand.refuses(Fenced, Enqueue(envelope("m"), ROOMY), epoch=old)
    for operation in (
        Put(agent_row(LEAD, owes=True)),
        Append(LEAD, 0, (note("x"),)),
        Claim(LEAD, (MessageId("m"),), turn_id(LEAD, 1)),
        Erase(KvRow, (LEAD,)),
    ):
        await hand.refuses(UsageError, operation, epoch=None)
    for operation in (Put(agent_row("leader")), Append(AgentId("other"), 0, ()), Erase(CallRow, ("other:t1.1.0",))):
        await hand.refuses(UsageError, operation)
    other = await store.own(TreeId("other"), holder)
    await store.commit(ChangeSet(TreeId("other"), other, (Put(agent_row("other"), fresh=True),)))
    assert await hand(Put(agent_row(LEAD)), Enqueue(envelope("m", "other"), ROOMY)) == (None, Placed(MessageId("m"), 1))


async def check_founding(store: Store) -> None:
    """A new tree is taken by the set that makes its root, both or neither; one that anybody had is not new (SUP-6)."""
    hand = Hand(store)
    await hand.begin()
    holder, tree = store.new_holder(), TreeId("other")

    async def refused(*operations: Operation, epoch: int = 1) -> type[CallboardError] | None:
        try:
            await store.commit(ChangeSet(tree, epoch, operations, holder))
        except CallboardError as error:
            return type(error)
        return None

    root, task = Put(agent_row("other"), fresh=True), Enqueue(envelope("m", "other"), ROOMY)
    assert await refused(root, Bump("never", bound=0)) is Conflict
    assert await refused(task) is UnknownPath
    assert await refused(root, epoch=2) is await refused(Put(agent_row(LEAD))) is UsageError
    assert await store.lease(tree) is None
    assert await store.tree_rows(tree) == ()
    told: list[Values] = []
    values = await store.commit(ChangeSet(tree, 1, (root, task), holder), told.append)
    assert values == told[0] == (None, Placed(MessageId("m"), 1))
    lease = await store.lease(tree)
    assert lease is not None
    assert lease.holder.id == holder.id
    assert await store.own(tree, holder) == 1
    assert await refused(Bump("n")) is Conflict
    await store.release(holder)
    assert await refused(Bump("n")) is Conflict
    epoch = await store.own(tree, store.new_holder())
    assert await store.commit(ChangeSet(tree, epoch, (Bump("n"),))) == (1,)


async def check_cancelled(store: Store) -> None:
    """A cancelled caller gets the commit's value first, and its cancellation at the next checkpoint (ACC-2)."""
    hand = Hand(store)
    await hand.begin()
    values: list[Values] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        values.append(await hand(Bump("n")))
        await trio.lowlevel.checkpoint()
        raise AssertionError("the cancellation was lost")
    assert scope.cancelled_caught
    assert values == [(1,)]
    assert await hand(Bump("n")) == (2,)


async def check_together(store: Store) -> None:
    """Many callers at once are carried out one after another, and each gets its own value."""
    hand = Hand(store)
    await hand.begin()
    before = store.statistics()
    found: list[object] = []

    async def one(number: int) -> None:
        try:
            found.append((await hand(Bump("n"), Enqueue(envelope(f"m-{number}"), LaneBound(messages=150))))[0])
        except MailboxFull:
            found.append(None)

    async with trio.open_nursery() as nursery:
        for number in range(300):
            nursery.start_soon(one, number)
    assert sorted(value for value in found if isinstance(value, int)) == list(range(1, 151))
    assert [queued.seq for queued in await store.messages(LEAD, WAITING)] == list(range(1, 151))
    after = store.statistics()
    assert (after.commits - before.commits, after.refused - before.refused) == (150, 150)


async def check_closed(store: Store) -> None:
    """A closed store says so, and may be closed again."""
    hand = Hand(store)
    await hand.begin()
    holder = store.new_holder()
    await store.close()
    await store.close()
    for use in (lambda: hand(Bump("n")), lambda: store.own(TreeId(LEAD), holder), lambda: store.load_agent(LEAD)):
        try:
            await use()
        except Unavailable:
            continue
        raise AssertionError("a closed store was used")
