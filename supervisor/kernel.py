"""What all of one supervisor's parts share: the store's side of commits, and the agents that live in this process.

It owns trees, reads agents in, and commits; what a commit then means in memory is `mirror.py`'s. The kernel knows
nothing of turns, budgets or models: it keeps rows, mailboxes and actors in step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final
from weakref import WeakValueDictionary

import attrs
import trio

from actors.actor import Actor
from actors.agent import Agent, closure
from actors.changes import AgentRow, ChangeSet, Enqueue, Move
from actors.errors import CallboardError, Fenced, InDoubt, SpecMissing, StoreError, UnknownPath
from actors.evolve import evolve
from actors.frames import Frames
from actors.happenings import AgentSuspended, AttemptDiscarded, SpecChanged, StoreTroubled
from actors.ids import AgentId, MessageId, TreeId, tree_of, turn_id
from actors.messages import Queued, ReceiptState
from actors.ref import Receipt
from actors.watching import Board

from .budgets import GRANTS, read_budget, read_grant
from .doubt import settled
from .ledger import Ledger
from .mirror import SEEN, Mirror
from .ownership import Ownership
from .patience import Patience
from .replies import Replies
from .store.base import Store
from .store.leases import owned_elsewhere
from .taking import recover

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.changes import Operation, Values
    from actors.happenings import Event

    from .store.base import StoredAgent


SPEC_MISSING: Final = "spec_missing"
STAND_IN: Final = "The spec of this agent is missing."
"""Instructions of a spec that stands in for a missing one; no model ever reads them."""


@final
@attrs.define(eq=False, kw_only=True)
class Kernel:
    """Rows, mailboxes and actors of one supervisor, in step.

    Invariants:
        KERNEL-1 an agent is in `actors` once; while it is being read it is in `_reading`.

    Attributes:
        hard_s: for how long a store that cannot be written is borne with.
        now: seconds on Trio's clock; the clock's own method, for `trio.current_time` is four calls, often in a turn.
    """

    store: Store
    ledger: Ledger
    board: Board
    frames: Frames
    replies: Replies
    registry: dict[str, Agent]
    nursery: trio.Nursery
    token: str
    now: Callable[[], float]
    hard_s: float
    patience: Patience = attrs.field(init=False)
    ownership: Ownership = attrs.field(init=False)
    mirror: Mirror = attrs.field(init=False)
    actors: dict[AgentId, Actor] = attrs.field(init=False)
    receipts: WeakValueDictionary[MessageId, Receipt] = attrs.field(init=False)
    make_actor: Callable[[Agent, AgentRow], Actor] = attrs.field(init=False)
    adopted: Callable[[Actor], None] = attrs.field(init=False)
    """Called with each agent that was read in, once it is here."""
    foreign: Callable[[Queued], None] = attrs.field(init=False)
    """Called with each message that another process sent to an agent in memory, once it is in its mailbox."""
    lost: Callable[[TreeId], None] = attrs.field(init=False)
    """Called with a tree that turned out to be another's."""
    taken: Callable[[TreeId], None] = attrs.field(init=False)
    """Called with a tree that was taken for the sake of one agent: the others go on, too (SUP-6)."""
    wall: Callable[[], float] = time.time
    """The time of day in Unix seconds, for what must outlive this process; nothing is ordered by it."""
    _made: int = attrs.field(default=0, init=False)
    _sending: set[MessageId] = attrs.field(factory=set, init=False)
    _reading: dict[AgentId, trio.Event] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        """What commits mean here is the mirror's to say."""
        self.patience = Patience(self.hard_s, self.now, self._troubled)
        self.ownership = Ownership(self.store, self._begin_to_own, self.patience)
        spawn = self.nursery.start_soon
        self.mirror = Mirror(
            replies=self.replies,
            tell=self.tell,
            bring=lambda agent: spawn(self._bring, agent),
            read=lambda agent: spawn(self._catch_up, agent),
        )
        self.actors, self.receipts = self.mirror.actors, self.mirror.receipts

    def wall_ms(self) -> int:
        """Milliseconds of the time of day."""
        return int(self.wall() * 1000)

    def new_message_id(self) -> MessageId:
        """An id that no other process makes."""
        self._made += 1
        return MessageId(f"m-{self.token}-{self._made}")

    # -- commits ---------------------------------------------------------------------------------------------------

    async def commit(
        self,
        tree: TreeId,
        operations: tuple[Operation, ...],
        *,
        fenced: bool = True,
        first: Callable[[], None] | None = None,
    ) -> Values:
        """Commit operations on a tree, as its owner unless not `fenced`, then make them true in memory.

        Args:
            tree: whose.
            operations: all or none.
            fenced: as the owner; else as any process may.
            first: called when they are durable, before anything else hears of them.

        Raises:
            StoreError, MailboxError, UnknownPath: nothing was written. InDoubt: even the store does not know.
        """
        epoch = self.ownership.epoch(tree) if fenced else None
        kinds = {*map(type, operations)}  # most commits of a turn send, move and claim nothing
        operations = _timed(operations, self.wall) if Move in kinds else operations
        sent = [one.envelope.id for one in operations if isinstance(one, Enqueue)] if Enqueue in kinds else ()
        self._sending.update(sent)
        founder = self.ownership.holder if tree in self.ownership.founding else None

        def then(values: Values) -> None:  # in the order of commits, or memory would end in another state
            if first is not None:
                first()
            self.mirror.apply(operations, values)

        hears = first is not None or not SEEN.isdisjoint(kinds)
        try:
            change_set = ChangeSet(tree, epoch, operations, founder)
            return await self.patience.through(self.store.commit, change_set, then if hears else None)
        except Fenced:
            self.lost(tree)
            raise
        except InDoubt as doubt:  # ACC-2: nobody is told anything before the store was asked
            values = await settled(
                self.store, operations, _waiting(self.actors, operations), doubt, self.mirror.doubted
            )
            then(values)
            return values
        finally:
            self._sending.difference_update(sent)

    async def _bring(self, agent: AgentId) -> None:
        """Read an agent in and wake it; its message is in the store whatever happens here."""
        try:
            actor = await self.resident(agent)
        except CallboardError as error:  # in a task of its own: nobody else could hear of it
            self.tell(agent, AgentSuspended, {"reason": error.kind})
            return
        actor.wake()

    async def _catch_up(self, agent: AgentId) -> None:
        """The store has a message that nobody told of: it is answered all the same (ACC-8)."""
        actor = self.actors.get(agent)
        with suppress(StoreError):  # a turn, or a restart, reads it again
            if actor is not None:
                owed = actor.owes
                await self._reload(actor)
                actor.wake()
                if owed:  # perhaps not any more: then who waits for its idleness hears of it
                    actor.eased()

    async def discover(self, agent: AgentId) -> None:
        """Another process wrote to an agent of ours: take what is new, as if it had been sent here (ACC-8).

        Raises:
            StoreError: it could not be read.
        """
        actor = self.actors.get(agent)
        if actor is None:
            self.mirror.bring(agent)
            return
        await self._reload(actor)
        actor.wake()

    async def refresh(self, actor: Actor) -> None:
        """Take an agent's row, calls and waiting messages from the store, behind a commit that failed ambiguously."""
        stored = await self._reload(actor)
        actor.row, actor.memory.calls = stored.row, stored.calls
        if stored.row.open is not None:
            self.replies.claimed(stored.row.open.consumed, turn_id(actor.path, stored.row.open.number))

    async def _reload(self, actor: Actor) -> StoredAgent:
        """Read an agent anew, and take its intake and its messages from what is read and what was told meanwhile.

        What another process sent does then what it would do if sent here; what is on its way from here does it when its
        commit is told.
        """
        with self.mirror.reading(actor.path) as catch_up:
            stored = await self.patience.through(self.store.load_agent, actor.path)
            assert stored is not None, "an agent with an actor is in the store"
            found = self.mirror.reread(actor, stored, catch_up)
        self.mirror.mortal(actor)
        for queued in [one for one in found if one.envelope.id not in self._sending]:
            self.mirror.discovered(actor, queued)
            self.foreign(queued)
        return stored

    # -- agents ----------------------------------------------------------------------------------------------------

    async def resident(self, agent: AgentId, *, stand_in: bool = False) -> Actor:
        """The agent's actor, read in if it is not in memory.

        Args:
            agent: whose.
            stand_in: where its spec is missing it gets one that runs nothing, so that it can be closed; and it is
                known to be in the store.

        Raises:
            UnknownPath: no such agent. SpecMissing: its spec is not in the registry. StoreError.
        """
        while True:
            actor = self.actors.get(agent)
            if actor is not None:
                if self.ownership.leaving:
                    self.ownership.check(tree_of(agent))
                if actor.row.name not in self.registry and not stand_in:
                    raise _spec_missing(actor.row)
                return actor
            if (reading := self._reading.get(agent)) is None:
                break
            await reading.wait()
        self._reading[agent] = trio.Event()
        try:
            return await self._read(agent, stand_in=stand_in)
        finally:
            self._reading.pop(agent).set()

    async def _read(self, agent: AgentId, *, stand_in: bool) -> Actor:
        tree = tree_of(agent)
        if not stand_in and tree not in self.ownership.epochs:
            await self._may_own(agent)
        here = tree in self.ownership.epochs
        epoch = await self.ownership.own(tree)
        if not here:
            self.taken(tree)
        with self.mirror.reading(agent) as catch_up:
            stored = await self.patience.through(self.store.load_agent, agent)
            if stored is not None and not self.ledger.has(agent):  # made since the tree was taken, and not here
                self.lost(tree)
            if self.ownership.epochs.get(tree) != epoch:  # lost while it was read, which is not how it is any more
                return await self._read(agent, stand_in=stand_in)
            if stored is None:
                raise _unknown(agent)
            if (born := self.actors.get(agent)) is not None:  # its birth, in the store, was told only now (KERNEL-1)
                await self._reload(born)  # what others have sent to it by now it was not told
                return born
            actor = self._settle_in(stored, stand_in=stand_in)
            catch_up(actor)
        self.adopted(actor)
        self.mirror.mortal(actor)
        return actor

    async def _may_own(self, agent: AgentId) -> None:
        """Refuse to take a tree for the sake of an agent that is not there, or that could not be run here."""
        stored = await self.store.load_agent(agent)
        if stored is None:
            raise _unknown(agent)
        if stored.row.name in self.registry:
            return
        lease = await self.store.lease(tree_of(agent))
        if lease is not None and lease.holder.id != self.ownership.holder.id:
            raise owned_elsewhere(tree_of(agent), lease.holder)
        raise _spec_missing(stored.row)

    def _settle_in(self, stored: StoredAgent, *, stand_in: bool) -> Actor:
        row = stored.row
        spec = self.registry.get(row.name)
        if spec is None:
            if not stand_in:
                raise _spec_missing(row)
            actor = self.make_actor(Agent(row.name, STAND_IN), row)
            actor.suspended = SPEC_MISSING
        else:
            if spec.digest != row.digest:
                self.tell(row.agent, SpecChanged, {"before": row.digest, "after": spec.digest})
            actor = self.make_actor(spec, row)
        actor.intake = stored.intake
        actor.memory.calls = stored.calls
        if row.open is not None and row.open.asking:  # REC-3: its watchers may have seen half of it
            lost = {"error": "the process that asked has ended", "run": row.open.run, "turn": row.open.number}
            self.tell(row.agent, AttemptDiscarded, lost)
        if row.open is not None:
            self.replies.claimed(row.open.consumed, turn_id(row.agent, row.open.number))
        actor.mailbox.reload(stored.queued, stored.seq + 1)
        self.actors[row.agent] = actor
        return actor

    def settle_in_new(self, row: AgentRow, spec: Agent) -> Actor:
        """The actor of an agent that is about to be committed; its task arrives with the commit."""
        actor = self.make_actor(spec, row)
        self.actors[row.agent] = actor
        return actor

    async def _begin_to_own(self, tree: TreeId, epoch: int) -> bool:
        """Recover a tree that was taken, and open the accounts of all its agents (BUD-7)."""
        rows = await recover(self.store, self.patience, tree, epoch, self.registry)
        grants = [await self.store.kv(row.agent, GRANTS) if row.budget is not None else () for row in rows]
        for row, granted in zip(rows, grants, strict=True):  # all is read by now: they are open together, or not at all
            self.open_account(row)
            for more, by in map(read_grant, granted):
                self.ledger.grant(row.agent, more, by=by)
        return bool(rows)

    def open_account(self, row: AgentRow) -> None:
        """The agent's account in the ledger, with what it had spent and the lost request it had reserved for."""
        spent = row.spent if row.open is None else row.spent + row.open.held  # BUD-7: as recovery will write it
        self.ledger.open(row.agent, row.parent, read_budget(row.budget), spent)

    def remember(self, agent: Agent) -> None:
        """Add a spec, and those of its children, to the registry."""
        for name, spec in closure([agent]).items():
            known = self.registry.get(name)
            if known is None:
                self.registry[name] = spec
            elif known is not spec:
                closure([known, spec])

    # -- events ----------------------------------------------------------------------------------------------------

    def tell(self, agent: AgentId, event: type[Event], values: Mapping[str, object]) -> None:
        """Emit an event of an agent that has no turn at hand."""
        self.board.tell(event, agent, values)

    def _troubled(self, error: str) -> None:
        """All trees that are run here stand still, or go on: whoever watches one of them hears of it."""
        for tree in self.ownership.epochs:
            self.tell(AgentId(tree), StoreTroubled, {"error": error})


def _waiting(
    actors: Mapping[AgentId, Actor], operations: tuple[Operation, ...]
) -> dict[AgentId, tuple[MessageId, ...]]:
    """What waits for the agents whose mailboxes are moved."""
    found = (actors.get(one.agent) for one in operations if isinstance(one, Move))
    return {
        actor.path: tuple(queued.envelope.id for queued in actor.mailbox.waiting)
        for actor in found
        if actor is not None
    }


def _unknown(agent: AgentId) -> UnknownPath:
    return UnknownPath(f"there is no agent {agent!r} in this store")


def _spec_missing(row: AgentRow) -> SpecMissing:
    return SpecMissing(f"agent {row.agent!r} is suspended (spec_missing): pass its spec {row.name!r} in agents=[...]")


def _timed(operations: tuple[Operation, ...], wall: Callable[[], float]) -> tuple[Operation, ...]:
    """The operations, with the time of death of those messages that die."""
    for one in operations:
        if type(one) is Move and one.to is ReceiptState.DEAD:
            break
    else:  # as nearly always
        return operations
    at = wall()
    return tuple([evolve(one, at=at) if type(one) is Move and one.at is None else one for one in operations])
