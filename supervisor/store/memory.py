"""A store in memory: the reference for what a change set does, and what runs without a file.

A commit here is a plain function of a few microseconds with no task and no thread. It keeps the objects it is given
(they are frozen) and encodes nothing.
"""

from __future__ import annotations

import secrets
from itertools import islice
from typing import TYPE_CHECKING, Self

import trio

from actors.changes import CallState
from actors.errors import Unavailable
from actors.messages import DeadLetter, Queued, ReceiptState

from . import checks
from .base import PAGE, MessageView, StoredAgent, StoreStatistics
from .checks import call_order
from .crossing import Published
from .leases import OUSTED, Holder, Lease, begun, is_over, owned_elsewhere
from .memory_tables import Tables

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from actors.changes import AgentRow, CallRow, ChangeSet, KvRow, OutcomeRow, Values
    from actors.ids import AgentId, MessageId, TreeId, TurnId
    from actors.transcript import Record

    from .base import Then
    from .crossing import Crossing
    from .memory_rows import Message


class MemoryReader:
    """The reads of a store in memory. Each is a checkpoint, as those of a file are."""

    def __init__(self, store_id: str, tables: Tables) -> None:
        self._id = store_id
        self._tables = tables
        self._closed = False

    @property
    def id(self) -> str:
        """The random name of this store."""
        return self._id

    async def load_agent(self, agent: AgentId) -> StoredAgent | None:
        """Read an agent, as `Reader.load_agent`."""
        await self._read()
        found = self._tables.agents.get(agent)
        if found is None:
            return None
        calls = sorted(self._tables.calls.get(agent, {}).values(), key=call_order)
        queued = _in_order(found.waiting.values())
        return StoredAgent(found.row, found.intake, len(found.places), queued, tuple(calls), len(found.messages))

    async def read_records(self, agent: AgentId, start: int = 0, stop: int | None = None) -> tuple[Record, ...]:
        """Read records, as `Reader.read_records`."""
        await self._read()
        found = self._tables.agents.get(agent)
        return () if found is None else tuple([one for one in found.places[start:stop] if one is not None])

    async def outcome(self, turn: TurnId) -> OutcomeRow | None:
        """Read how a turn ended."""
        await self._read()
        return self._tables.outcomes.get(turn)

    async def message_state(self, message: MessageId) -> MessageView | None:
        """Read where a message is."""
        await self._read()
        found = self._tables.messages.get(message)
        if found is None:
            return None
        envelope = found.envelope
        return MessageView(message, envelope.to, found.seq, envelope.lane, found.state, found.turn, found.reason)

    async def find_key(self, parent: str, key: str) -> AgentId | None:
        """Find the child of `parent` that was started under a key."""
        await self._read()
        return self._tables.keys.get((parent, key))

    async def agents_with_work(self) -> tuple[AgentId, ...]:
        """Find the agents that owe work or have a queued message."""
        await self._read()
        return tuple(sorted(self._tables.work))

    async def awaiting_calls(self) -> tuple[CallRow, ...]:
        """Find the calls that wait for a decision."""
        await self._read()
        open_calls = self._tables.calls.values()
        found = [row for rows in open_calls for row in rows.values() if row.state is CallState.AWAITING]
        return tuple(sorted(found, key=lambda row: (row.agent, call_order(row))))

    async def children(self, parent: AgentId) -> tuple[AgentRow, ...]:
        """Read the agents right below one."""
        await self._read()
        return tuple(self._tables.agents[child].row for child in self._tables.below.get(parent, ()))

    async def tree_rows(self, tree: TreeId) -> tuple[AgentRow, ...]:
        """Read all agents of a tree."""
        await self._read()
        agents = self._tables.agents
        return tuple(agents[path].row for path in self._tables.trees.get(tree, ()))

    async def roots(self, *, after: AgentId | None = None, limit: int = PAGE) -> tuple[AgentRow, ...]:
        """Read a page of root agents."""
        await self._read()
        paths = self._tables.below.get("", [])
        if after is not None and after not in paths:
            return ()
        start = 0 if after is None else paths.index(after) + 1
        return tuple(self._tables.agents[path].row for path in paths[start : start + limit])

    async def kv(self, agent: AgentId, scope: str) -> tuple[KvRow, ...]:
        """Read a key-value scope of an agent."""
        await self._read()
        rows = self._tables.kv.get(agent, {})
        return tuple(rows[key] for key in sorted(rows) if key[0] == scope)

    async def messages(
        self, agent: AgentId, states: tuple[ReceiptState, ...], *, after: int = 0, limit: int = PAGE
    ) -> tuple[Queued, ...]:
        """Read a page of an agent's messages."""
        await self._read()
        found = self._tables.agents.get(agent)
        if found is None:
            return ()
        return _in_order(message for message in found.messages[after:] if message.state in states)[:limit]

    async def dead_letters(self, agent: AgentId | None = None, *, limit: int = PAGE) -> tuple[DeadLetter, ...]:
        """Read dead letters of an agent and all below it."""
        await self._read()
        below = f"{agent}/"
        found = [
            letter(message)
            for path, one in sorted(self._tables.agents.items())
            if agent is None or path == agent or path.startswith(below)
            for message in one.messages
            if message.state is ReceiptState.DEAD
        ]
        return tuple(found[:limit])

    async def news(self, after: int) -> tuple[int, tuple[AgentId, ...]]:
        """Find which agents got messages since."""
        await self._read()
        messages = self._tables.messages
        new = () if after < 0 else islice(messages.values(), after, None)
        return len(messages), tuple(dict.fromkeys(message.envelope.to for message in new))

    async def lease(self, tree: TreeId) -> Lease | None:
        """Read who has a tree."""
        await self._read()
        found = self._tables.owners.lease(tree)
        over = found is not None and is_over(found, boot="", now=trio.current_time(), gone=_nobody_is_gone)
        return None if over else found

    async def version(self) -> int:
        """A number that changes with every commit."""
        await self._read()
        return self._tables.commits

    async def close(self) -> None:
        """Close it; what it held stays until it is collected."""
        self._closed = True
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def _read(self) -> None:
        self._check_open()
        await trio.lowlevel.checkpoint()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the memory store is closed; open another")


class MemoryStore(MemoryReader):
    """A `Store` that lives as long as its process.

    Commits do not yield; reads are checkpoints. One process, one thread: a second owner is another task with another
    epoch. It keeps the invariants of `Store`, and no epoch per row: nothing outlives it.
    """

    def __init__(self, store_id: str, lease_s: float | None = None) -> None:
        super().__init__(store_id, Tables())
        self._lease_s = lease_s
        self._refused = 0

    def __repr__(self) -> str:
        return f"<MemoryStore {len(self._tables.agents)} agents, {self._tables.commits} commits>"

    async def commit(self, change_set: ChangeSet, then: Then | None = None) -> Values:
        """Write a change set, as `Store.commit`; it does not yield."""
        values = self.commit_nowait(change_set)
        if then is not None:
            then(values)
        return values

    def commit_nowait(self, change_set: ChangeSet) -> Values:
        """Write a change set from synchronous code; the same as `commit`."""
        if self._closed:
            self._check_open()
        try:
            values = self._tables.carry_out(change_set) if change_set.founder is None else self._found(change_set)
        except BaseException:
            self._refused += 1
            raise
        self._tables.commits += 1
        return values

    def _now(self) -> float:
        """Seconds that leases are counted in; without a lease that ends no clock is asked."""
        return 0.0 if self._lease_s is None else trio.current_time()

    def new_holder(self) -> Holder:
        """A new owner, as `Store.new_holder`."""
        return Holder(secrets.token_hex(8), "this process", lease_s=self._lease_s)

    def _found(self, change_set: ChangeSet) -> Values:
        """A new tree, and the set that makes its root: both, or neither."""
        tree, holder, tables = change_set.tree, change_set.founder, self._tables
        assert isinstance(holder, Holder), "as `new_holder` makes them"
        checks.check(change_set)
        if tree in tables.epochs:
            raise checks.founded(tree)
        self._own(tree, holder)
        try:
            return tables.carry_out(change_set)
        except BaseException:
            del tables.epochs[tree], tables.owners.trees[tree]
            raise

    async def own(self, tree: TreeId, holder: Holder) -> int:
        """Take ownership of a tree, as `Store.own`; it does not yield."""
        self._check_open()
        return self._own(tree, holder)

    def _own(self, tree: TreeId, holder: Holder) -> int:
        epochs, owners = self._tables.epochs, self._tables.owners
        now, before = self._now(), owners.lease(tree)
        over = before is not None and is_over(before, boot=holder.boot, now=now, gone=_nobody_is_gone)
        if before is not None and before.holder.id == holder.id:
            if over and not owners.ousted(holder):  # nothing kept it: else the next who looks takes what is run here
                owners.leases[holder.id] = begun(holder, now)
            return epochs[tree]
        if before is not None and not over:
            raise owned_elsewhere(tree, before.holder)
        if before is not None:
            owners.leases[before.holder.id] = Lease(before.holder, OUSTED)
            owners.lose(tree, epochs[tree], before.holder.id)
        owners.trees[tree] = holder.id
        if not owners.ousted(holder):
            owners.leases[holder.id] = begun(holder, now)
        epochs[tree] = epochs.get(tree, 0) + 1
        self._tables.commits += 1
        return epochs[tree]

    async def renew(self, holder: Holder) -> dict[TreeId, int] | None:
        """Keep a lease, as `Store.renew`; it does not yield."""
        self._check_open()
        owners = self._tables.owners
        ousted = owners.ousted(holder)
        owners.leases[holder.id] = begun(holder, self._now())
        if not ousted:
            return None
        owners.lives(holder.id)
        return {tree: self._tables.epochs[tree] for tree, has in owners.trees.items() if has == holder.id}

    async def release(self, holder: Holder, trees: tuple[TreeId, ...] | None = None) -> None:
        """Give trees back, as `Store.release`; it does not yield."""
        self._check_open()
        owners = self._tables.owners
        owners.lives(holder.id)
        for tree in tuple(owners.trees) if trees is None else trees:
            if owners.trees.get(tree) == holder.id:
                del owners.trees[tree]
        if trees is None:
            owners.leases.pop(holder.id, None)
            owners.waits.pop(holder.id, None)

    async def cross(self, holder: Holder, waits: tuple[Crossing, ...]) -> tuple[Published, ...]:
        """Publish open waits, as `Store.cross`; it does not yield."""
        self._check_open()
        owners, now = self._tables.owners, self._now()
        before = {one.wait.id: one.since for one in owners.waits.pop(holder.id, ())}
        if waits:
            mine = tuple([Published(holder.id, before.get(wait.id, now), now, wait) for wait in waits])
            owners.waits[holder.id] = mine
        if waits or before:
            self._tables.commits += 1
        return tuple(
            [
                one
                for whose, published in owners.waits.items()
                for one in published
                if whose == holder.id
                or ((lease := owners.leases.get(whose)) and not is_over(lease, boot="", now=now, gone=_nobody_is_gone))
            ]
        )

    def statistics(self) -> StoreStatistics:
        """What it has done so far."""
        return StoreStatistics(commits=self._tables.commits, refused=self._refused)

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()  # noqa: ASYNC102 - it is bounded where it waits, or does not wait at all


def _in_order(messages: Iterable[Message]) -> tuple[Queued, ...]:
    found = [Queued(message.seq, message.envelope, message.state) for message in messages]
    found.sort(key=lambda queued: queued.seq)
    return tuple(found)


def letter(message: Message) -> DeadLetter:
    """A dead message, as people are shown it."""
    envelope = message.envelope
    return DeadLetter(
        envelope.id,
        envelope.to,
        message.reason or "",
        message.at,
        envelope.lane,
        envelope.content,
        envelope.sender,
        message.turn,
    )


def _nobody_is_gone(_: Holder) -> bool:
    """Whoever uses this store is of this process, and lives as long as it does."""
    return False


def open_memory_store(*, store_id: str | None = None, lease_s: float | None = None) -> MemoryStore:
    """Open a store in memory; use it with `async with`, or as it is.

    Args:
        store_id: its name, for runs that must repeat; None draws a random one, as calls to others need (TOL-3).
        lease_s: seconds that a supervisor keeps its trees without renewing its lease; None: until it gives them back.
    """
    return MemoryStore(secrets.token_hex(8) if store_id is None else store_id, lease_s)
