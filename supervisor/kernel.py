"""What all of one supervisor's parts share: the store's side of commits, and the agents that live in this process.

Memory changes after the commit that says so, in one place (`apply`). The kernel knows nothing of turns, budgets or
models: it keeps rows, mailboxes and actors in step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final
from weakref import WeakValueDictionary

import attrs
import trio

from actors.actor import Actor
from actors.agent import Agent, closure
from actors.changes import AgentRow, Bump, ChangeSet, Claim, Enqueue, Move, Placed, Shut
from actors.errors import CallboardError, SpecMissing, StoreError, UnknownPath
from actors.evolve import evolve
from actors.frames import Frames
from actors.happenings import AgentSuspended, MessageAccepted, MessageDead, MessageHeld, SpecChanged
from actors.ids import AgentId, MessageId, TreeId, tree_of, turn_id
from actors.messages import Lane, Purpose, Queued, ReceiptState, skipped_of
from actors.poison import last_try
from actors.ref import Receipt
from actors.watching import Board

from .budgets import GRANTS, read_budget, read_grant
from .ledger import Ledger
from .replies import Replies
from .store.base import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.changes import Operation, Value, Values
    from actors.happenings import Event
    from actors.ids import TurnId

    from .store.base import StoredAgent


_SEEN_IN_MEMORY: Final = frozenset({Claim, Enqueue, Move, Shut})


@final
@attrs.define(eq=False, kw_only=True)
class Kernel:
    """Rows, mailboxes and actors of one supervisor, in step.

    Invariants:
        KERNEL-1 an agent is in `actors` once; while it is being read it is in `_reading`.
        KERNEL-2 a mailbox in memory changes only by `apply`, after the commit.

    Attributes:
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
    actors: dict[AgentId, Actor] = attrs.field(factory=dict, init=False)
    receipts: WeakValueDictionary[MessageId, Receipt] = attrs.field(factory=WeakValueDictionary, init=False)
    epochs: dict[TreeId, int] = attrs.field(factory=dict, init=False)
    make_actor: Callable[[Agent, AgentRow], Actor] = attrs.field(init=False)
    adopted: Callable[[Actor], None] = attrs.field(init=False)
    """Called with each agent that was read in, once it is here."""
    mortal: Callable[[Actor], None] = attrs.field(init=False)
    """Called with an agent that may have got a message that expires."""
    wall: Callable[[], float] = time.time
    """The time of day in Unix seconds, for what must outlive this process; nothing is ordered by it."""
    _made: int = attrs.field(default=0, init=False)
    _reading: dict[AgentId, trio.Event] = attrs.field(factory=dict, init=False)
    _early: dict[AgentId, list[Queued]] = attrs.field(factory=dict, init=False)
    _owning: dict[TreeId, trio.Lock] = attrs.field(factory=dict, init=False)

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
            StoreError, MailboxError, UnknownPath: nothing was written.
        """
        epoch = self.epochs[tree] if fenced else None

        def then(
            values: Values,
        ) -> None:  # in the order of commits, or memory would end in another state than the store
            if first is not None:
                first()
            for operation, value in zip(operations, values, strict=True):
                if type(operation) in _SEEN_IN_MEMORY:
                    self._apply(operation, value)

        try:
            return await self.store.commit(ChangeSet(tree, epoch, _timed(operations, self.wall)), then)
        except StoreError:
            for operation in operations:
                if isinstance(operation, Enqueue) and operation.envelope.to in self.actors:
                    self.nursery.start_soon(self._catch_up, operation.envelope.to)
            raise

    async def store_counter(self, name: str) -> int:
        """The next value of a counter that all processes share, from 1."""
        (value,) = await self.store.commit(ChangeSet(TreeId(""), None, (Bump(name),)))
        assert isinstance(value, int), "Bump returns the new value"
        return value

    def _apply(self, operation: Operation, value: Value) -> None:
        match operation:
            case Claim(agent=agent, messages=messages, turn=turn, reason=reason):
                self._leave(agent, messages, ReceiptState.CONSUMED, turn=turn, reason=reason)
                actor = self.actors.get(agent)
                if actor is not None and actor.loop is not None:
                    self.replies.claimed(messages, turn)
            case Enqueue(envelope=envelope):
                if isinstance(value, Placed) and not value.again:
                    self._arrived(Queued(value.seq, envelope))
            case Move(agent=agent, to=to, reason=reason):
                self._moved(agent, value if isinstance(value, tuple) else (), to, reason)
            case Shut(agent=agent, to=to):
                actor = self.actors.get(agent)
                if actor is not None:
                    actor.intake = to
            case _:
                pass

    def _leave(
        self,
        agent: AgentId,
        messages: tuple[MessageId, ...],
        state: ReceiptState,
        *,
        turn: TurnId | None = None,
        reason: str | None = None,
    ) -> None:
        actor = self.actors.get(agent)
        if actor is not None:
            actor.mailbox.remove(messages)
        for message in messages:
            receipt = self.receipts.get(message)
            if receipt is not None:
                receipt.turn = turn or receipt.turn
                receipt.reason, receipt.skipped = reason, skipped_of(reason)
                receipt.decide(state)

    def _moved(self, agent: AgentId, messages: tuple[MessageId, ...], to: ReceiptState, reason: str | None) -> None:
        if to.final:
            self._leave(agent, messages, to, reason=reason)
            if to is ReceiptState.DEAD:
                for message in messages:
                    self.tell(agent, MessageDead, {"message": message, "reason": reason or ""})
            return
        actor = self.actors.get(agent)
        for message in messages:
            receipt = self.receipts.get(message)
            if receipt is not None:
                receipt.turn, receipt.reason, receipt.skipped = None, None, ()
                receipt.decide(to)
            if to is ReceiptState.HELD:
                self.tell(agent, MessageHeld, {"message": message})
        if actor is not None:
            if to is ReceiptState.HELD:
                actor.mailbox.hold(messages)
            else:
                self.replies.claimed(messages, None)
                actor.mailbox.release(messages)
                actor.behind = actor.behind or not all(actor.mailbox.has(message) for message in messages)
                actor.wake()

    def _arrived(self, queued: Queued) -> None:
        """A message is durable: its agent has it, or is read in to have it (ACC-8)."""
        envelope = queued.envelope
        lane = envelope.lane
        if lane is not Lane.CONTROL:
            values = {"message": envelope.id, "lane": lane.value, "sender": envelope.sender}
            self.tell(envelope.to, MessageAccepted, values)
        actor = self.actors.get(envelope.to)
        if actor is None:
            if envelope.to in self._reading:  # what is being read may be from before this message
                self._early.setdefault(envelope.to, []).append(queued)
            self.nursery.start_soon(self._bring, envelope.to)
            return
        actor.arrived(queued)
        if envelope.expires_ms is not None:
            self.mortal(actor)
        loop = actor.loop
        if loop is None:
            return
        if envelope.purpose is Purpose.ABORT:
            loop.cut(envelope.reason or "aborted", lambda: _aborts(actor))
        elif envelope.purpose is Purpose.DECISION:
            loop.decide((queued,))
        elif envelope.purpose is Purpose.PAUSE:
            loop.suspend()
        elif envelope.interrupt and not last_try(loop.row, actor.agent.limits.poison_limit):
            loop.cut(None, tuple)

    async def _bring(self, agent: AgentId) -> None:
        """Read an agent in and wake it; its message is in the store whatever happens here."""
        try:
            actor = await self.resident(agent)
        except CallboardError as error:  # in a task of its own: nobody else could hear of it
            self.tell(agent, AgentSuspended, {"reason": error.kind})
            return
        actor.wake()

    async def _catch_up(self, agent: AgentId) -> None:
        """A commit failed that may have been written: what the store accepted is answered all the same (ACC-8)."""
        try:
            stored = await self.store.load_agent(agent)
        except StoreError:
            return  # a restart finds it
        actor = self.actors.get(agent)
        if stored is not None and actor is not None:
            actor.mailbox.catch_up(stored.queued)
            self.mortal(actor)
            actor.wake()

    async def refresh(self, actor: Actor) -> None:
        """Take an agent's row, calls and waiting messages from the store, behind a commit that failed ambiguously."""
        seen = actor.mailbox.seen
        stored = await self.store.load_agent(actor.path)
        assert stored is not None, "an agent with an actor is in the store"
        actor.row, actor.calls, actor.intake = stored.row, stored.calls, stored.intake
        actor.mailbox.reload(stored.queued, seen)
        self.mortal(actor)
        if stored.row.open is not None:
            self.replies.claimed(stored.row.open.consumed, turn_id(actor.path, stored.row.open.number))

    # -- agents ----------------------------------------------------------------------------------------------------

    async def resident(self, agent: AgentId) -> Actor:
        """The agent's actor, read in if it is not in memory.

        Raises:
            UnknownPath: no such agent. SpecMissing: its spec is not in the registry. StoreError.
        """
        while True:
            actor = self.actors.get(agent)
            if actor is not None:
                return actor
            reading = self._reading.get(agent)
            if reading is None:
                break
            await reading.wait()
        self._reading[agent] = trio.Event()
        try:
            return await self._read(agent)
        finally:
            self._reading.pop(agent).set()

    async def _read(self, agent: AgentId) -> Actor:
        await self.own(tree_of(agent))
        stored = await self.store.load_agent(agent)
        if stored is None:
            msg = f"there is no agent {agent!r} in this store"
            raise UnknownPath(msg)
        return self._settle_in(stored)

    def _settle_in(self, stored: StoredAgent) -> Actor:
        row = stored.row
        spec = self.registry.get(row.name)
        if spec is None:
            msg = f"agent {row.agent!r} is suspended (spec_missing): pass its spec {row.name!r} in agents=[...]"
            raise SpecMissing(msg)
        if spec.digest != row.digest:
            self.tell(row.agent, SpecChanged, {"before": row.digest, "after": spec.digest})
        actor = self.make_actor(spec, row)
        actor.intake = stored.intake
        actor.calls = stored.calls
        if row.open is not None:
            self.replies.claimed(row.open.consumed, turn_id(row.agent, row.open.number))
        known = {queued.seq for queued in stored.queued}
        early = (queued for queued in self._early.pop(row.agent, ()) if queued.seq not in known)
        actor.mailbox.reload((*stored.queued, *early), 0)
        self.actors[row.agent] = actor
        self.adopted(actor)
        self.mortal(actor)
        return actor

    def settle_in_new(self, row: AgentRow, spec: Agent) -> Actor:
        """The actor of an agent that is about to be committed; its task arrives with the commit."""
        actor = self.make_actor(spec, row)
        actor.mailbox.next_seq = 1
        self.actors[row.agent] = actor
        return actor

    async def own(self, tree: TreeId) -> int:
        """Own a tree, once: its epoch, and the accounts of all its agents (BUD-7).

        Raises:
            StoreError: it cannot be owned.
        """
        epoch = self.epochs.get(tree)
        if epoch is not None:
            return epoch
        async with self._owning.setdefault(tree, trio.Lock()):
            if tree not in self.epochs:
                epoch = await self.store.own(tree)
                for row in await self.store.tree_rows(tree):
                    self.open_account(row)
                    if row.budget is not None:
                        for granted in await self.store.kv(row.agent, GRANTS):
                            more, by = read_grant(granted)
                            self.ledger.grant(row.agent, more, by=by)
                self.epochs[tree] = epoch
        return self.epochs[tree]

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
        actor = self.actors.get(agent)
        if actor is not None:
            actor.seq += 1
        if self.board.watched:
            seq = 0 if actor is None else actor.seq
            self.board.emit(event(path=agent, seq=seq, at=self.now(), **values))  # type: ignore[arg-type]


def _aborts(actor: Actor) -> tuple[Queued, ...]:
    return tuple(queued for queued in actor.mailbox.control if queued.envelope.purpose is Purpose.ABORT)


def _timed(operations: tuple[Operation, ...], wall: Callable[[], float]) -> tuple[Operation, ...]:
    """The operations, with the time of death of those messages that die."""
    if not any(type(one) is Move and one.to is ReceiptState.DEAD for one in operations):
        return operations
    at = wall()
    return tuple([evolve(one, at=at) if type(one) is Move and one.at is None else one for one in operations])
