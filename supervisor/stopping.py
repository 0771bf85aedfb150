"""Ending things: aborts, closes, kills, and leaving the supervisor; each a barrier over a tree (ABT-5, CLS-1).

All are durable intents first, then signals. While a barrier goes up, nothing below it may begin a turn or be started.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from actors.changes import Claim, Enqueue, Intake, Move, Shut
from actors.errors import AgentClosed, CallboardError, Unfinished
from actors.happenings import AgentEnded
from actors.ids import AgentId, parent_path, run_id, tree_of, turn_id
from actors.messages import Envelope, Lane, LaneBound, Outcome, Purpose, ReceiptState, Status
from actors.parking import APPROVAL, PAUSED
from actors.waiting import Need

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.actor import Actor
    from actors.changes import Operation
    from actors.ids import TreeId

    from .parts import Parts

EVERYTHING: Final = AgentId("")
_WAITING = (ReceiptState.QUEUED, ReceiptState.HELD)
_NO_BOUND = LaneBound()


@attrs.define(eq=False)
class _Close:
    """A close under way. `grace`: how long it answers what was accepted; a kill cuts it short."""

    grace: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    done: trio.Event = attrs.field(factory=trio.Event)


@final
class Stopping:
    """Barriers over agents.

    Invariants:
        STOP-1 while a path is barred, no agent at or below it begins a turn or is started.
        STOP-2 one close per agent: later callers share it.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._barred: dict[AgentId, int] = {}
        self._closing: dict[AgentId, _Close] = {}
        self._raising = trio.Lock()
        self._finishing = trio.Lock()
        self._moved = trio.Event()

    def moved(self) -> None:
        """An actor became passive, or a wait began: whoever waits for a state of the tree looks again."""
        self._moved.set()
        self._moved = trio.Event()

    async def _until(self, path: AgentId, *, idle: bool = False) -> None:
        """Wait until no agent at or below the path is active (`idle`: nor has anything to do)."""
        while self._busy(self.below(path), idle=idle):
            await self._moved.wait()

    def _busy(self, paths: tuple[AgentId, ...], *, idle: bool = False) -> bool:
        actors = self._parts.kernel.actors
        found = (actors.get(path) for path in paths)
        return any(actor is not None and (actor.active or (idle and actor.due)) for actor in found)

    async def _until_finished(self) -> None:
        """Wait until nothing is to be done any more, but by those that only a person can move on."""
        standing, actors = self._parts.standing, self._parts.kernel.actors
        while any((one.active or one.due) and not standing.still(path) for path, one in actors.items()):
            await self._moved.wait()

    def _cut_hopeless(self, nodes: tuple[AgentId, ...]) -> None:
        """Cut turns off whose calls wait for agents that have stopped: they would wait for ever, and go on later."""
        actors = self._parts.kernel.actors
        active = [node for node in nodes if (actor := actors.get(node)) is not None and actor.active]
        for node in active:
            below = f"{node}/"
            waiting = {wait.waiter for wait in self._parts.graph.waits_of(node)}
            running = self._parts.lives[node].calls.running.values()
            alone = all(call.frame in waiting for call in running if not call.left_behind)  # others may still end
            if waiting and alone and not any(other.startswith(below) for other in active):
                self._cut_off(node)

    def barred(self, path: AgentId) -> bool:
        """Whether a barrier stands at or above the path."""
        if not self._barred:
            return False
        node: str = path
        while node:
            if node in self._barred:
                return True
            node = parent_path(node)
        return False

    def _bar(self, paths: Iterable[AgentId]) -> None:
        for path in paths:
            self._barred[path] = self._barred.get(path, 0) + 1

    def _unbar(self, paths: Iterable[AgentId]) -> None:
        for path in paths:
            left = self._barred.pop(path) - 1
            if left:
                self._barred[path] = left

    def below(self, path: AgentId) -> tuple[AgentId, ...]:
        """The agents in memory at and below a path (`""`: all), parents first."""
        if not path:
            return tuple(sorted(self._parts.kernel.actors))
        start = f"{path}/"
        return tuple(sorted(p for p in self._parts.kernel.actors if p == path or p.startswith(start)))

    def _cut_off(self, path: AgentId) -> None:
        actor = self._parts.kernel.actors.get(path)
        if actor is not None:
            actor.cut_off()

    # -- abort -----------------------------------------------------------------------------------------------------

    async def abort(self, path: AgentId, reason: str, *, subtree: bool) -> None:
        """End the turn, and everything it waits for, in one commit; where nothing runs, nothing changes.

        Durable: the abort, on return.
        """
        targets = self.below(path) if subtree else self._waited_for(path)
        await self._abort(targets, reason)

    def _waited_for(self, path: AgentId) -> tuple[AgentId, ...]:
        """An agent and the descendants that its turn waits for, all the way down (ABT-5)."""
        found: dict[AgentId, None] = {}
        todo = [path]
        while todo:
            node = todo.pop()
            if node in found:
                continue
            found[node] = None
            below = f"{node}/"
            for wait in self._parts.graph.waits_of(node):
                todo += [target for target in wait.targets if target.startswith(below)]
        return tuple(found)

    async def _abort(self, targets: tuple[AgentId, ...], reason: str) -> None:
        kernel = self._parts.kernel
        found = (kernel.actors.get(path) for path in targets)
        running = [actor for actor in found if actor is not None and (actor.active or actor.due or _parked(actor))]
        if not running:
            return
        paths = [actor.path for actor in running]
        self._bar(paths)  # all of them, before the first commit: an agent of one tree may be waiting for another's
        try:
            await self._order_aborts(running, reason)
        finally:
            self._unbar(paths)

    async def _order_aborts(self, running: list[Actor], reason: str) -> None:
        """One commit per tree, for a commit is one tree's; what one tree's store refuses holds up no other's."""
        trees: dict[TreeId, list[Operation]] = {}
        for actor in running:
            turn = turn_id(actor.path, actor.row.turns)
            trees.setdefault(tree_of(actor.path), []).extend(
                (
                    Enqueue(self._control(actor.path, Purpose.ABORT, reason, turn), _NO_BOUND),
                    Move(actor.path, (ReceiptState.QUEUED,), ReceiptState.HELD),
                )
            )
        refused: CallboardError | None = None
        for tree, operations in trees.items():
            try:
                await self._parts.kernel.commit(tree, tuple(operations))
            except CallboardError as error:
                refused = refused or error
        if refused is not None:
            raise refused

    def _control(self, path: AgentId, purpose: Purpose, reason: str, target: str = "") -> Envelope:
        message = self._parts.kernel.new_message_id()
        return Envelope(message, path, Lane.CONTROL, (), purpose=purpose, reason=reason, target=target, reserved=True)

    async def wait_aborted(self, path: AgentId) -> None:
        """Wait until the turn in progress has unwound."""
        actor = self._parts.kernel.actors.get(path)
        if actor is not None and actor.active:
            await self._parts.replies.wait_condition(path, Need.UNWIND)

    # -- close -----------------------------------------------------------------------------------------------------

    async def close(self, path: AgentId, grace_s: float | None) -> None:
        """Put the barrier up over the subtree, then close leaves first, in the background.

        Durable: that nothing more is accepted, on return.
        """
        async with self._raising:  # STOP-2: whoever comes later returns when the barrier is up, too
            actor = await self._parts.kernel.resident(path)
            if path in self._closing or actor.intake is Intake.CLOSED:
                return
            await self._raise(path, Purpose.CLOSE, "closed")
            self._start(path, self._parts.options.grace_s if grace_s is None else grace_s)

    async def _raise(self, path: AgentId, purpose: Purpose, reason: str) -> None:
        """Shut an agent and all below it, those not in memory too, in one commit; posts come first (ACC-2, ACC-5)."""
        await self._load(path)
        for node in self.below(path):
            await self._parts.post.flush(node)
        operations: list[Operation] = []
        for node in self.below(path):
            operations.append(Shut(node, Intake.CLOSING))
            operations.append(Enqueue(self._control(node, purpose, reason), _NO_BOUND))
        await self._parts.kernel.commit(tree_of(path), tuple(operations))

    async def _load(self, path: AgentId) -> None:
        """Read in the agents below that are not in memory, as far as their specs are known."""
        kernel = self._parts.kernel
        for row in await kernel.store.tree_rows(tree_of(path)):
            if row.agent.startswith(f"{path}/") and row.name in kernel.registry:
                await kernel.resident(row.agent)

    def _start(self, path: AgentId, grace_s: float) -> None:
        deadline = trio.current_time() + grace_s
        if path in self._closing:  # STOP-2: its agent found the order in its mailbox before we came here
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
                await self._until(path, idle=True)
            await self._end(self.below(path), "closed: the grace period is over", self._parts.options.hard_s)
            actors = self._parts.kernel.actors
            while left := [node for node in self.below(path) if actors[node].intake is not Intake.CLOSED]:
                async with self._finishing:  # a child's own close may be at it, too
                    await self._finish(max(left, key=lambda node: (node.count("/"), node)))
        except CallboardError as error:  # in a task of its own: who waits for the close hears of it; the store owes it
            for node in self.below(path):
                self._parts.replies.fulfil(node, Need.EXIT, error)
        finally:
            del self._closing[path]
            close.done.set()

    async def _end(self, nodes: tuple[AgentId, ...], reason: str, hard_s: float) -> None:
        """Abort what still runs; past `hard_s` cancel its task, and name what is stuck."""
        busy = [node for node in nodes if (actor := self._parts.kernel.actors.get(node)) and actor.active]
        if not busy:
            return
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + hard_s
            with suppress(CallboardError):  # what cannot be written ends all the same
                await self._abort(tuple(busy), reason)
            while self._busy(nodes):
                await self._moved.wait()
        for node in nodes:
            self._cut_off(node)

    async def _finish(self, path: AgentId) -> None:
        """One agent is closed: what was not answered is dead, and whoever waits hears it."""
        kernel = self._parts.kernel
        actor = kernel.actors[path]
        if actor.intake is Intake.CLOSED:
            return
        if not actor.active:
            await actor.bury("it was closed before it came to an answer")
        stored = await kernel.store.load_agent(path)
        queued = () if stored is None else stored.queued
        control = tuple(one.envelope.id for one in queued if one.envelope.lane is Lane.CONTROL)
        operations: list[Operation] = [
            Move(path, _WAITING, ReceiptState.DEAD, reason="agent_closed"),
            Shut(path, Intake.CLOSED),
        ]
        if control:
            operations.append(Claim(path, control, turn_id(path, actor.row.turns)))
        waiting = [one.envelope.id for one in actor.mailbox.waiting]
        await kernel.commit(tree_of(path), tuple(operations))
        error: CallboardError = AgentClosed(f"{path} was closed before it answered")
        for message in waiting:
            self._parts.replies.fail_message(message, error)
        outcome = Outcome(path, run_id(path, max(actor.row.runs, 1)), turn_id(path, actor.row.turns), Status.CLOSED)
        self._parts.replies.run_over(outcome)
        self._parts.ledger.ended(path)
        kernel.tell(path, AgentEnded, {"reason": "closed"})
        self._parts.replies.fulfil(path, Need.EXIT)
        self._parts.replies.fulfil(path, Need.LOOP)

    async def wait_closed(self, path: AgentId) -> None:
        """Wait until it is closed; at once where it is."""
        actor = await self._parts.kernel.resident(path)
        if actor.intake is not Intake.CLOSED:
            await self._parts.replies.wait_condition(path, Need.EXIT)

    async def kill(self, path: AgentId, reason: str) -> None:
        """End it and all below at once."""
        async with self._raising:
            actor = await self._parts.kernel.resident(path)
            if actor.intake is Intake.CLOSED:
                return
            await self._raise(path, Purpose.KILL, reason)
            await self._end(self.below(path), reason, 0.0)
            if path in self._closing:
                self._closing[path].grace.cancel()
            else:
                self._start(path, 0.0)

    # -- leaving ---------------------------------------------------------------------------------------------------

    async def leave(self, mode: str, grace_s: float, hard_s: float) -> None:
        """Suspend, finish, close, or (an exception in memory) abort everything, in bounded time (CLS-5)."""
        parts = self._parts
        actors = parts.kernel.actors
        roots = tuple(path for path in actors if "/" not in path)
        if mode == "close":
            for root in roots:
                await self.close(root, grace_s)
            with trio.move_on_after(grace_s + hard_s):
                for close in tuple(self._closing.values()):
                    await close.done.wait()
            return
        with trio.move_on_after(grace_s):
            while parts.post.pending():  # noqa: ASYNC110 - there is no event for it, and the scope above bounds it
                await trio.lowlevel.checkpoint()
        parts.leaving = mode
        if mode == "suspend":
            await self.suspend(tuple(actors), grace_s)
            return
        if mode == "finish":
            with trio.move_on_after(grace_s):
                await self._until_finished()
            still = tuple(path for path in actors if parts.standing.still(path))
            if still:  # no turn of theirs can end: they stay as they are, for whoever decides
                await self.suspend(still, hard_s)
        await self._end(tuple(actors), "the supervisor was left", hard_s)

    async def give_up(self, path: AgentId) -> None:
        """Whoever ran this tree was cancelled: it stops within the grace, and what does not is cut off (CLS-5)."""
        options = self._parts.options
        if not options.durable:
            with trio.move_on_after(options.grace_s):
                await self.abort(path, "the run was cancelled", subtree=True)
                await self._until(path)
            await self.suspend(self.below(path), 0.0, "cancelled")
            return
        await self.suspend(self.below(path), options.grace_s, "cancelled")

    async def suspend(self, nodes: tuple[AgentId, ...], grace_s: float, reason: str = "leaving") -> None:
        """Stop turns at their next commit; past the grace cut them off. What is queued stays queued (CLS-5)."""
        kernel = self._parts.kernel
        for node in nodes:
            actor = kernel.actors.get(node)
            if actor is not None and actor.loop is not None:
                actor.loop.suspend()
        with trio.move_on_after(grace_s):
            while self._busy(nodes):
                self._cut_hopeless(nodes)
                await self._moved.wait()
        for node in nodes:
            self._cut_off(node)
        while self._busy(nodes):
            await self._moved.wait()
        error = Unfinished(f"suspended ({reason}); the store owes the work: resume() goes on")
        for node in nodes:
            actor = kernel.actors.get(node)
            if actor is not None and actor.owes:
                self._parts.lives[node].fail_waiters(actor, error)


def _parked(actor: Actor) -> bool:
    """Whether its turn is open and waits for a person: that is a turn in progress, which an abort ends (ABT-1)."""
    return actor.row.open is not None and actor.suspended in _WAITS_FOR_A_PERSON


_WAITS_FOR_A_PERSON: Final = frozenset({APPROVAL, PAUSED, "budget"})
