"""Checks of a store: rows, keys, agents, records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from actors.changes import (
    AgentRow,
    Append,
    Asking,
    CallRow,
    CallState,
    ChangeSet,
    Erase,
    Forget,
    Intake,
    KvRow,
    OutcomeRow,
    Put,
    Row,
)
from actors.content import Text
from actors.errors import (
    Conflict,
    UnknownPath,
    UsageError,
)
from actors.ids import AgentId, MessageId, TreeId, run_id, turn_id
from actors.messages import Outcome, Status
from actors.transcript import MessageRecord

from .store_hand import CHILD, LEAD, Hand, agent_row, call_row, envelope, everything, note

if TYPE_CHECKING:
    from supervisor.store.base import Store


async def check_empty(store: Store) -> None:
    """An empty store answers every read, and has a name."""
    assert store.id
    assert await store.load_agent(LEAD) is None
    assert await store.read_records(LEAD) == ()
    assert await store.message_state(MessageId("m")) is None
    assert await store.find_key("", "k") is None
    assert await everything(store, ()) == ((), (), ())


async def check_rows(store: Store) -> None:
    """Rows are written, replaced, kept apart by key, and erased by whole parts of it."""
    hand = Hand(store)
    await hand.begin()
    changed = replace(agent_row(LEAD), turns=7, suspended="leaving")
    late, early = call_row(LEAD, 1, 10), call_row(LEAD, 1, 2)
    rows = [KvRow(LEAD, "agent", "b", "2"), KvRow(LEAD, "agent", "a", "1"), KvRow(LEAD, "agents", "a", "3")]
    ended = OutcomeRow(
        turn_id(LEAD, 1), LEAD, run_id(LEAD, 1), Outcome(LEAD, run_id(LEAD, 1), turn_id(LEAD, 1), Status.DONE)
    )
    written: tuple[Row, ...] = (changed, late, early, *rows, ended)
    values = await hand(*[Put(row) for row in written])
    assert values == (None,) * 7
    stored = await store.load_agent(LEAD)
    assert stored is not None
    assert (stored.row, stored.intake, stored.length, stored.calls) == (changed, Intake.OPEN, 0, (early, late))
    assert await store.kv(LEAD, "agent") == (rows[1], rows[0])
    assert await store.outcome(turn_id(LEAD, 1)) == ended
    replaced = KvRow(LEAD, "agent", "a", "new")
    await hand(Put(replaced))
    assert await store.kv(LEAD, "agent") == (replaced, rows[0])
    for row in (changed, early, rows[0], ended):
        await hand.refuses(Conflict, Put(row, fresh=True))
    assert await hand(Erase(CallRow, (late.call,)), Erase(CallRow, (late.call,))) == (1, 0)
    assert await hand(Erase(KvRow, (LEAD, "agent", "b")), Erase(KvRow, (LEAD,)), Erase(KvRow, (LEAD,))) == (1, 2, 0)
    assert await hand(Erase(OutcomeRow, (turn_id(LEAD, 1),))) == (1,)
    assert await store.outcome(turn_id(LEAD, 1)) is None
    await hand.refuses(UsageError, Erase(AgentRow, (LEAD,)))
    await hand.refuses(UsageError, Erase(KvRow, ()))


async def check_keys(store: Store) -> None:
    """A key names one child of a parent, for ever; parent and key of an agent do not change."""
    hand = Hand(store)
    await hand.begin()
    keyed = agent_row("lead/child#2", key="nightly")
    await hand(Put(keyed, fresh=True))
    assert await store.find_key(LEAD, "nightly") == "lead/child#2"
    assert await store.find_key("", "nightly") is None
    await hand.refuses(Conflict, Put(agent_row("lead/child#3", key="nightly"), fresh=True))
    await hand.refuses(Conflict, Put(agent_row("lead/child#3", key="nightly")))
    await hand.refuses(UsageError, Put(replace(keyed, key="other")))
    await hand.refuses(UsageError, Put(replace(keyed, parent="")))
    await hand(Put(agent_row("lead/child/below", key="nightly"), fresh=True))


async def check_awaiting(store: Store) -> None:
    """Calls that wait for a decision are found in every tree while they wait, as they were written last (TOL-12)."""
    hand = Hand(store)
    await hand.begin()
    assert await store.awaiting_calls() == ()
    asking = Asking("tool", "{}", "digest", 1, 2)
    rows = [replace(call_row(LEAD, 1, n), state=CallState.AWAITING, asking=asking) for n in (10, 2)]
    other = replace(call_row("other", 1, 0), state=CallState.AWAITING)
    epoch = await store.own(TreeId("other"), store.new_holder())
    await store.commit(ChangeSet(TreeId("other"), epoch, (Put(agent_row("other")), Put(other))))
    await hand(*(Put(row) for row in rows), Put(call_row(LEAD, 1, 3)), Put(call_row(CHILD, 1, 0)))
    assert await store.awaiting_calls() == (rows[1], rows[0], other)
    started = replace(rows[0], state=CallState.STARTED)
    await hand(Put(started), Erase(CallRow, (rows[1].call,)))
    assert await store.awaiting_calls() == (other,)
    await hand(Put(rows[0]), Put(rows[1], fresh=True))
    assert await store.awaiting_calls() == (rows[1], rows[0], other)
    await hand.refuses(Conflict, Put(started), Put(rows[1], fresh=True))
    assert await store.awaiting_calls() == (rows[1], rows[0], other)


async def check_agents(store: Store) -> None:
    """Children, trees and roots are read in the order they were made; roots in pages."""
    hand = Hand(store)
    await hand.begin()
    for path in ("lead/b", "lead/a", "lead/a/x"):
        await hand(Put(agent_row(path), fresh=True))
    names = ["lead#10", "lead#2", "leader"]
    for name in names:
        epoch = await store.own(TreeId(name), store.new_holder())
        await store.commit(ChangeSet(TreeId(name), epoch, (Put(agent_row(name)), Put(agent_row(f"{name}/x")))))
    assert [row.agent for row in await store.children(LEAD)] == ["lead/child", "lead/b", "lead/a"]
    tree = [row.agent for row in await store.tree_rows(TreeId(LEAD))]
    assert tree == ["lead", "lead/child", "lead/b", "lead/a", "lead/a/x"]
    assert [row.agent for row in await store.roots()] == [LEAD, *names]
    assert [row.agent for row in await store.roots(limit=2)] == [LEAD, names[0]]
    assert [row.agent for row in await store.roots(after=AgentId(names[0]), limit=1)] == [names[1]]
    assert await store.roots(after=AgentId("nobody")) == ()


async def check_records(store: Store) -> None:
    """Records follow the last one or are refused, and are read in any range (STORE-5)."""
    hand = Hand(store)
    await hand.begin()
    records = tuple(note(f"line {number}") for number in range(5))
    assert await hand(Append(LEAD, 0, records[:2]), Append(LEAD, 2, records[2:])) == (2, 5)
    assert await store.read_records(LEAD) == records
    assert await store.read_records(LEAD, 1, 3) == records[1:3]
    assert await store.read_records(LEAD, 4) == records[4:]
    assert await store.read_records(LEAD, 9) == ()
    assert await store.read_records(CHILD) == ()
    assert await hand(Append(LEAD, 5, ())) == (5,)
    for at in (0, 4, 6):
        await hand.refuses(Conflict, Append(LEAD, at, records[:1]))
    await hand.refuses(Conflict, Append(CHILD, 1, records[:1]))
    await hand.refuses(UnknownPath, Append(AgentId("lead/nobody"), 0, records[:1]))
    await hand.refuses(Conflict, Forget(LEAD, 5))
    await hand.refuses(Conflict, Forget(LEAD, 3), Append(LEAD, 0, records[:1]))
    await hand.refuses(UnknownPath, Forget(AgentId("lead/nobody"), 0))
    assert await store.read_records(LEAD) == records
    assert await hand(Forget(LEAD, 4, keep=(1, 9)), Append(LEAD, 5, records[:1])) == (3, 6)
    assert await store.read_records(LEAD) == (records[1], records[4], records[0])
    assert await store.read_records(LEAD, 1, 3) == records[1:2]
    assert await store.read_records(LEAD, 4) == (records[4], records[0])
    assert await hand(Forget(LEAD, 0), Forget(LEAD, 4)) == (0, 1)
    stored = await store.load_agent(LEAD)
    assert stored is not None
    assert stored.length == 6, "the others keep their places"


async def check_text(store: Store) -> None:
    """Any text that Python can hold is kept as it is, a lone half of an emoji and a zero byte too."""
    hand = Hand(store)
    await hand.begin()
    odd = "\x00 \ud83d \U0001f600 \u2028 \"'\\ é\r\n"
    record = MessageRecord(turn_id(LEAD, 1), MessageId("m"), (Text(odd),))
    await hand(Append(LEAD, 0, (record,)), Put(KvRow(LEAD, "agent", "key \u2028 '", odd)))
    await hand.send(envelope("m-1", text=odd))
    assert await store.read_records(LEAD) == (record,)
    assert await store.kv(LEAD, "agent") == (KvRow(LEAD, "agent", "key \u2028 '", odd),)
    stored = await store.load_agent(LEAD)
    assert stored is not None
    assert stored.queued[0].envelope.content == (Text(odd),)
