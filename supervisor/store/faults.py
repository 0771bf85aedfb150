"""A store that fails: the n-th commit, once or for ever, before it is written or after.

For tests of whoever uses a store: what they promise must hold whichever commit fails. A fault after applying is the
ambiguous one: everything is written, and the caller is told that this is not known.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from actors.errors import InDoubt, StoreError, Unavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.changes import AgentRow, CallRow, ChangeSet, KvRow, OutcomeRow, Values
    from actors.ids import AgentId, MessageId, TreeId, TurnId
    from actors.messages import DeadLetter, Queued, ReceiptState
    from actors.transcript import Record

    from .base import MessageView, Store, StoredAgent, StoreStatistics, Then
    from .crossing import Crossing, Published
    from .leases import Holder, Lease

from .base import PAGE


class Fault(enum.Enum):
    """When a commit fails."""

    BEFORE = "before"
    """Nothing of it is written."""
    AFTER = "after"
    """All of it is written, and the caller is told that nobody knows: what a lost connection does."""


def _injected(when: Fault) -> StoreError:
    text = "an injected fault: the commit failed"
    return Unavailable(text) if when is Fault.BEFORE else InDoubt(text)


class PassingStore:
    """A `Store` that passes everything on to another; what is to be otherwise is written over."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def id(self) -> str:
        """The other's."""
        return self._store.id

    async def load_agent(self, agent: AgentId) -> StoredAgent | None:
        """Read an agent."""
        return await self._store.load_agent(agent)

    async def read_records(self, agent: AgentId, start: int = 0, stop: int | None = None) -> tuple[Record, ...]:
        """Read records."""
        return await self._store.read_records(agent, start, stop)

    async def outcome(self, turn: TurnId) -> OutcomeRow | None:
        """Read how a turn ended."""
        return await self._store.outcome(turn)

    async def message_state(self, message: MessageId) -> MessageView | None:
        """Read where a message is."""
        return await self._store.message_state(message)

    async def find_key(self, parent: str, key: str) -> AgentId | None:
        """Find the child started under a key."""
        return await self._store.find_key(parent, key)

    async def agents_with_work(self) -> tuple[AgentId, ...]:
        """Find the agents with work."""
        return await self._store.agents_with_work()

    async def awaiting_calls(self) -> tuple[CallRow, ...]:
        """Find the calls that wait for a decision."""
        return await self._store.awaiting_calls()

    async def children(self, parent: AgentId) -> tuple[AgentRow, ...]:
        """Read the agents right below one."""
        return await self._store.children(parent)

    async def tree_rows(self, tree: TreeId) -> tuple[AgentRow, ...]:
        """Read a tree's agents."""
        return await self._store.tree_rows(tree)

    async def roots(self, *, after: AgentId | None = None, limit: int = PAGE) -> tuple[AgentRow, ...]:
        """Read root agents."""
        return await self._store.roots(after=after, limit=limit)

    async def kv(self, agent: AgentId, scope: str) -> tuple[KvRow, ...]:
        """Read a key-value scope."""
        return await self._store.kv(agent, scope)

    async def messages(
        self, agent: AgentId, states: tuple[ReceiptState, ...], *, after: int = 0, limit: int = PAGE
    ) -> tuple[Queued, ...]:
        """Read an agent's messages."""
        return await self._store.messages(agent, states, after=after, limit=limit)

    async def dead_letters(self, agent: AgentId | None = None, *, limit: int = PAGE) -> tuple[DeadLetter, ...]:
        """Read dead letters."""
        return await self._store.dead_letters(agent, limit=limit)

    async def news(self, after: int) -> tuple[int, tuple[AgentId, ...]]:
        """Find which agents got messages."""
        return await self._store.news(after)

    async def lease(self, tree: TreeId) -> Lease | None:
        """Read who has a tree."""
        return await self._store.lease(tree)

    async def version(self) -> int:
        """Whether anything was committed."""
        return await self._store.version()

    async def close(self) -> None:
        """Close the other."""
        await self._store.close()

    async def commit(self, change_set: ChangeSet, then: Then | None = None) -> Values:
        """Write a change set."""
        return await self._store.commit(change_set, then)

    def new_holder(self) -> Holder:
        """A new owner, as the other tells them apart."""
        return self._store.new_holder()

    async def own(self, tree: TreeId, holder: Holder) -> int:
        """Take ownership of a tree."""
        return await self._store.own(tree, holder)

    async def renew(self, holder: Holder) -> dict[TreeId, int] | None:
        """Keep a lease."""
        return await self._store.renew(holder)

    async def release(self, holder: Holder, trees: tuple[TreeId, ...] | None = None) -> None:
        """Give trees back."""
        await self._store.release(holder, trees)

    async def cross(self, holder: Holder, waits: tuple[Crossing, ...]) -> tuple[Published, ...]:
        """Publish open waits, and read everybody's."""
        return await self._store.cross(holder, waits)

    def statistics(self) -> StoreStatistics:
        """What the other has done."""
        return self._store.statistics()


class FaultyStore(PassingStore):
    """A `Store` around another; all but commits pass through.

    Args:
        store: the one that is used.
        at: which commit fails, counted from 1; 0: none, for counting them.
        when: before it is written or after, ambiguously.
        forever: every commit from that one on fails too.
        error: makes the error that is raised.

    Attributes:
        commits: how many were asked for. faults: how many were failed.
    """

    def __init__(
        self,
        store: Store,
        *,
        at: int,
        when: Fault = Fault.BEFORE,
        forever: bool = False,
        error: Callable[[], StoreError] | None = None,
    ) -> None:
        if at < 0:
            raise UsageError(f"FaultyStore(at=...) counts commits from 1, or is 0 for none; got {at}")
        super().__init__(store)
        self._at = at
        self._forever = forever
        self._when = when
        self._error = error or (lambda: _injected(when))
        self.commits = 0
        self.faults = 0

    def __repr__(self) -> str:
        return f"<FaultyStore at={self._at} {self.commits} commits, {self.faults} faults of {self._store!r}>"

    async def commit(self, change_set: ChangeSet, then: Then | None = None) -> Values:
        """Write a change set, as `Store.commit`, or fail it."""
        self.commits += 1
        if not self._at or not (self.commits == self._at or (self._forever and self.commits > self._at)):
            return await self._store.commit(change_set, then)
        self.faults += 1
        if self._when is Fault.AFTER:
            await self._store.commit(change_set)
        raise self._error()

    def heal(self) -> None:
        """Fail nothing more."""
        self._at = 0
