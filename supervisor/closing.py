"""Closes and kills: a barrier over a subtree that is durable before anything is shut down, then leaves first (CLS).

An agent whose spec is missing is closed like any other: to end what it has open needs no tool and no model.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from actors.changes import AgentRow, Claim, Enqueue, Intake, Move, Require, Shut
from actors.errors import AgentClosed, CallboardError, Conflict, Fenced, OwnedElsewhere, Unavailable
from actors.happenings import AgentEnded
from actors.ids import parent_path, run_id, tree_of, turn_id
from actors.messages import Lane, LaneBound, Outcome, Purpose, ReceiptState, Status
from actors.waiting import Need

from .stopping import control_message

if TYPE_CHECKING:
    from actors.actor import Actor
    from actors.changes import Operation
    from actors.ids import AgentId
    from actors.messages import Envelope

    from .parts import Parts
    from .stopping import Stopping

_WAITING: Final = (ReceiptState.QUEUED, ReceiptState.HELD)
_NO_BOUND: Final = LaneBound()
GRACE_OVER: Final = "closed: the grace period is over"


@attrs.define(eq=False)
class _Close:
    """A close under way. `grace`: how long it answers what was accepted; a kill cuts it short."""

    grace: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    done: trio.Event = attrs.field(factory=trio.Event)


@final
class Closing:
    """The closes under way.

    Invariants:
        CLOSE-1 one close per agent: later callers share it.
    """

    def __init__(self, parts: Parts, stopping: Stopping) -> None:
        self._parts = parts
        self._stopping = stopping
        self._closing: dict[AgentId, _Close] = {}
        self._raising = trio.Lock()
        self._finishing = trio.Lock()

    async def close(self, path: AgentId, grace_s: float | None) -> None:
        """Put the barrier up over the subtree, then close leaves first, in the background.

        Durable: that nothing more is accepted, on return.
        """
        async with self._raising:  # CLOSE-1: whoever comes later returns when the barrier is up, too
            actor = await self._parts.kernel.resident(path, stand_in=True)
            if path in self._closing or actor.intake is Intake.CLOSED:
                return
            await self._raise(path, Purpose.CLOSE, "closed")
            self._start(path, self._parts.options.grace_s if grace_s is None else grace_s)

    async def _raise(self, path: AgentId, purpose: Purpose, reason: str) -> None:
        """Shut an agent and all below it, those not in memory too, in one commit; posts come first (ACC-2, ACC-5).

        Who was born below while that was written is shut in another, before the barrier counts as up (CLS-1).
        """
        await self._load(path)
        for node in self._stopping.below(path):
            await self._parts.post.flush(node)
        actors = self._parts.kernel.actors
        ordered: set[AgentId] = set()
        while nodes := [
            node
            for node in self._stopping.below(path)
            if node not in ordered and actors[node].intake is not Intake.CLOSED
        ]:
            operations: list[Operation] = []
            for node in nodes:
                operations.append(Shut(node, Intake.CLOSING))
                operations.append(Enqueue(control_message(self._parts, node, purpose, reason), _NO_BOUND))
            with suppress(AgentClosed):  # one of them was closed in that moment, which is known here by now
                await self._parts.kernel.commit(tree_of(path), tuple(operations))
                ordered.update(nodes)
            await self._parts.children.born(path)

    async def _load(self, path: AgentId) -> None:
        """Read in the agents below that are not in memory, those without a spec too."""
        kernel = self._parts.kernel
        for row in await kernel.store.tree_rows(tree_of(path)):
            if row.agent.startswith(f"{path}/"):
                await kernel.resident(row.agent, stand_in=True)

    def _start(self, path: AgentId, grace_s: float) -> None:
        deadline = trio.current_time() + grace_s
        if path in self._closing:  # CLOSE-1: its agent found the order in its mailbox before we came here
            self._closing[path].grace.deadline = deadline
            return
        self._closing[path] = _Close(trio.CancelScope(deadline=deadline))
        self._parts.kernel.nursery.start_soon(self._close, path)

    def go_on_closing(self, actor: Actor, envelope: Envelope | None = None) -> None:
        """A close found in the mailbox, or stopped by the store: carried on where nobody here does it already."""
        node: str = actor.path
        while node:
            if node in self._closing:
                return
            node = parent_path(node)
        killed = envelope is not None and envelope.purpose is Purpose.KILL
        self._start(actor.path, 0.0 if killed else self._parts.options.grace_s)

    async def _close(self, path: AgentId) -> None:
        """Answer what was accepted within the grace; past it abort, then kill; finish leaves first (CLS-2..4)."""
        close = self._closing[path]
        try:
            await self._load(path)
            with close.grace:
                await self._stopping.until(path, idle=True)
            await self._stopping.end(self._stopping.below(path), GRACE_OVER, self._parts.options.hard_s)
            actors = self._parts.kernel.actors
            while left := [node for node in self._stopping.below(path) if actors[node].intake is not Intake.CLOSED]:
                async with self._finishing:  # a child's own close may be at it, too
                    await self._finish_quietly(max(left, key=lambda node: (node.count("/"), node)))
        except CallboardError as error:  # in a task of its own: who waits for the close hears of it; the store owes it
            for node in self._stopping.below(path):
                self._parts.replies.fulfil(node, Need.EXIT, error)
        finally:
            del self._closing[path]
            close.done.set()

    async def _finish_quietly(self, path: AgentId) -> None:
        """Close one agent while nothing of it runs: what its children report from here on begins no turn (STOP-1)."""
        with self._stopping.barring((path,)):
            while (actor := self._parts.kernel.actors.get(path)) is not None and _runs(actor):  # None: it was lost
                await self._stopping.end((path,), GRACE_OVER, self._parts.options.hard_s)
            await self._parts.children.born(path)
            actors = self._parts.kernel.actors
            if any(actors[node].intake is not Intake.CLOSED for node in self._stopping.below(path) if node != path):
                return  # a child came meanwhile: it goes first
            try:
                await self._finish(path)
            except Conflict:  # it has obeyed an order meanwhile, or another wrote: whoever called looks again
                actors[path].memory.stale = True

    async def _finish(self, path: AgentId) -> None:
        """One agent is closed: what was not answered is dead, and whoever waits hears it."""
        kernel = self._parts.kernel
        actor = kernel.actors.get(path)
        if actor is None or actor.intake is Intake.CLOSED:  # None: another process has its tree, and closes it
            return
        if not actor.active:
            try:
                await actor.bury("it was closed before it came to an answer")
            finally:  # also where its tree was lost meanwhile: who waits for its turn to end sees it (PEER-1)
                self._stopping.moved()
        elif actor.loop is not None and actor.loop.row.open is not None:  # its task hangs in a request: it cannot bury
            raise Unavailable(f"{path}: its turn could not be ended in the store; the close goes on when it is resumed")
        operations: list[Operation] = [
            Move(path, _WAITING, ReceiptState.DEAD, reason="agent_closed"),
            *await self._orders(actor),
            Require(AgentRow, (path,), "open", None),
            Shut(path, Intake.CLOSED),  # refused where an order has come since: it is read again
        ]
        waiting = [one.envelope.id for one in actor.mailbox.waiting]
        await kernel.commit(tree_of(path), tuple(operations))
        error: CallboardError = AgentClosed(f"{path} was closed before it answered")
        for message in waiting:
            self._parts.replies.reply(message, error=error)
        outcome = Outcome(path, run_id(path, max(actor.row.runs, 1)), turn_id(path, actor.row.turns), Status.CLOSED)
        self._parts.replies.run_over(outcome)
        self._parts.ledger.ended(path)
        kernel.tell(path, AgentEnded, {"reason": "closed"})
        self._parts.replies.fulfil(path, Need.EXIT)
        self._parts.replies.fulfil(path, Need.IDLE)

    async def _orders(self, actor: Actor) -> tuple[Claim, ...]:
        """The claim of the orders that wait for an agent: its end carries them all out."""
        stored = await self._parts.kernel.store.load_agent(actor.path)
        queued = () if stored is None else stored.queued
        control = tuple(one.envelope.id for one in queued if one.envelope.lane is Lane.CONTROL)
        return (Claim(actor.path, control, turn_id(actor.path, actor.row.turns)),) if control else ()

    async def wait_closed(self, path: AgentId) -> None:
        """Wait until it is closed; at once where it is."""
        actor = await self._parts.kernel.resident(path, stand_in=True)
        if actor.intake is not Intake.CLOSED:
            await self._parts.replies.wait_condition(path, Need.EXIT)

    async def kill(self, path: AgentId, reason: str) -> None:
        """End it and all below at once."""
        async with self._raising:
            actor = await self._parts.kernel.resident(path, stand_in=True)
            if actor.intake is Intake.CLOSED:
                return
            with self._stopping.barring((path,)):  # nobody below begins anything more
                await self._raise(path, Purpose.KILL, reason)
                await self._stopping.end(self._stopping.below(path), reason, 0.0)
            if path in self._closing:
                self._closing[path].grace.cancel()
            else:
                self._start(path, 0.0)

    async def close_all(self, roots: tuple[AgentId, ...], grace_s: float, hard_s: float) -> None:
        """Close these, and wait for all closes under way, in bounded time."""
        for root in roots:
            with suppress(OwnedElsewhere, Fenced):  # another process has taken its tree: it is not ours to close
                await self.close(root, grace_s)
        with trio.move_on_after(grace_s + hard_s):
            for close in tuple(self._closing.values()):
                await close.done.wait()


def _runs(actor: Actor) -> bool:
    """Whether something of it may still write; a request that does not notice the end of its turn does not (CLS-4)."""
    loop = actor.loop
    return actor.active and not (loop is not None and loop.over is not None and loop.streams.open)
