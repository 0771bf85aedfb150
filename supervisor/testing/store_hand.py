"""What the conformance suite of stores holds a store with."""

from __future__ import annotations

from typing import Any, Final

import attrs
from msgspec.structs import replace

from actors.changes import (
    AgentRow,
    CallRow,
    CallState,
    ChangeSet,
    Enqueue,
    Operation,
    Placed,
    Put,
    Values,
)
from actors.content import Text
from actors.errors import (
    CallboardError,
)
from actors.ids import AgentId, MessageId, TreeId, call_id, parent_path, turn_id
from actors.messages import Envelope, Lane, LaneBound, ReceiptState
from actors.transcript import NoteRecord, Record
from supervisor.store.base import Store

LEAD: Final = AgentId("lead")
CHILD: Final = AgentId("lead/child")
ROOMY: Final = LaneBound()
WAITING: Final = (ReceiptState.QUEUED, ReceiptState.HELD)


def agent_row(agent: str, *, owes: bool = False, key: str | None = None) -> AgentRow:
    """A row of an agent."""
    return AgentRow(AgentId(agent), parent_path(agent), agent.rpartition("/")[2], "digest", owes=owes, key=key)


def envelope(name: str, to: str = "lead", lane: Lane = Lane.SEND, *, text: str = "hello", **more: Any) -> Envelope:
    """A message; `more` are fields of `Envelope`."""
    return replace(Envelope(MessageId(name), AgentId(to), lane, (Text(text),)), **more)


def note(text: str, agent: str = "lead") -> Record:
    """A record."""
    return NoteRecord(turn_id(agent, 1), "notice", text)


def call_row(agent: str, step: int, ordinal: int) -> CallRow:
    """A row of a started call."""
    turn = turn_id(agent, 1)
    return CallRow(call_id(turn, step, ordinal), AgentId(agent), turn, "tool", "{}", CallState.STARTED)


@attrs.define
class Hand:
    """A store in the hand of one owner of the tree `lead`, with the agents `lead` and `lead/child` in it."""

    store: Store
    epoch: int = 0

    async def take(self) -> None:
        """Own the tree anew: whoever had it gives it back."""
        lease = await self.store.lease(TreeId(LEAD))
        if lease is not None:
            await self.store.release(lease.holder)
        self.epoch = await self.store.own(TreeId(LEAD), self.store.new_holder())

    async def begin(self) -> None:
        """Own the tree and make its agents."""
        await self.take()
        await self(Put(agent_row(LEAD), fresh=True), Put(agent_row(CHILD), fresh=True))

    async def __call__(self, *operations: Operation) -> Values:
        """Commit as the owner."""
        return await self.store.commit(ChangeSet(TreeId(LEAD), self.epoch, operations))

    async def anyone(self, *operations: Operation) -> Values:
        """Commit as anyone."""
        return await self.store.commit(ChangeSet(TreeId(LEAD), None, operations))

    async def send(self, message: Envelope, bound: LaneBound = ROOMY) -> Placed:
        """Send a message as anyone."""
        (placed,) = await self.anyone(Enqueue(message, bound))
        assert isinstance(placed, Placed)
        return placed

    async def refuses(
        self, kind: type[CallboardError], *operations: Operation, epoch: int | None = -1
    ) -> CallboardError:
        """Check that a set fails with `kind` and changes nothing (STORE-1); `epoch` -1 is the owner's own."""
        before = await everything(self.store)
        raised: CallboardError | None = None
        try:
            await self.store.commit(ChangeSet(TreeId(LEAD), self.epoch if epoch == -1 else epoch, operations))
        except CallboardError as error:
            raised = error
        assert raised is not None, f"{kind.__name__} was to be raised for {operations}"
        assert type(raised) is kind, f"{kind.__name__} was to be raised, not {raised!r}"
        assert await everything(self.store) == before, f"a refused set changed something: {operations}"
        return raised

    async def waiting(self, agent: AgentId = LEAD) -> list[tuple[str, str]]:
        """Ids and states of what stands in a mailbox."""
        stored = await self.store.load_agent(agent)
        assert stored is not None
        return [(queued.envelope.id, queued.state.value) for queued in stored.queued]


async def everything(store: Store, agents: tuple[AgentId, ...] = (LEAD, CHILD)) -> tuple[object, ...]:
    """All that the reads tell of some agents."""
    found: list[object] = [await store.agents_with_work(), await store.roots(), await store.tree_rows(TreeId(LEAD))]
    for agent in agents:
        found += [
            await store.load_agent(agent),
            await store.read_records(agent),
            await store.children(agent),
            await store.messages(agent, tuple(ReceiptState)),
            await store.kv(agent, "agent"),
            await store.outcome(turn_id(agent, 1)),
        ]
    return tuple(found)
