"""Barriers over a tree, and the abort that is one (ABT-5): what is busy below a path, and how it is stopped.

An abort is a durable intent first, then a signal. While a barrier goes up, nothing below it may begin a turn or be
started.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, final

import trio

from actors.changes import Enqueue, Move
from actors.errors import AgentClosed, CallboardError
from actors.ids import AgentId, parent_path, tree_of, turn_id
from actors.messages import Envelope, Lane, LaneBound, Purpose, ReceiptState
from actors.parking import APPROVAL, BUDGET, PAUSED
from actors.waiting import Need

from .cause import Cause, abort_of, first_unordered
from .offspring import read_in, waited_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from actors.actor import Actor
    from actors.changes import Operation
    from actors.ids import TreeId

    from .parts import Parts

_NO_BOUND = LaneBound()
Orders: TypeAlias = "dict[AgentId, tuple[Operation, ...]]"
"""To each agent its order, and what goes along with it."""


@final
class Stopping:
    """Barriers over agents.

    Invariants:
        STOP-1 while a path is barred, no agent at or below it begins a turn or is started.
        STOP-2 an agent that had work while it was barred is woken when no barrier stands above it any more (ACC-8).
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._barred: dict[AgentId, int] = {}
        self._kept: dict[AgentId, None] = {}
        """Agents that had work, and were kept from a turn by a barrier."""
        self._moved = trio.Event()

    def moved(self) -> None:
        """An actor became passive, or a wait began: whoever waits for a state of the tree looks again."""
        self._moved.set()
        self._moved = trio.Event()

    async def until(self, path: AgentId, *, idle: bool = False) -> None:
        """Wait until no agent at or below the path is active (`idle`: nor has anything to do)."""
        while self.busy(self.below(path), idle=idle):
            await self.movement()

    async def movement(self) -> None:
        """Wait until an actor becomes passive, or a wait begins."""
        await self._moved.wait()

    def busy(self, paths: tuple[AgentId, ...], *, idle: bool = False) -> bool:
        """Whether one of these agents is active (`idle`: or has anything to do)."""
        actors = self._parts.kernel.actors
        found = (actors.get(path) for path in paths)
        return any(actor is not None and (actor.active or (idle and actor.due)) for actor in found)

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

    def keeps(self, path: AgentId) -> bool:
        """Whether a barrier keeps an agent from a turn that it asks for; then it is woken when that is lifted."""
        kept = self.barred(path)
        if kept:
            self._kept[path] = None
        return kept

    @contextmanager
    def barring(self, paths: tuple[AgentId, ...]) -> Iterator[None]:
        """Bar these for the length of the block."""
        self._bar(paths)
        try:
            yield
        finally:
            self._unbar(paths)

    def _bar(self, paths: Iterable[AgentId]) -> None:
        for path in paths:
            self._barred[path] = self._barred.get(path, 0) + 1

    def _unbar(self, paths: Iterable[AgentId]) -> None:
        for path in paths:
            left = self._barred.pop(path) - 1
            if left:
                self._barred[path] = left
        kept, self._kept = self._kept, {}
        for path in kept:  # what came meanwhile found them passive, and nothing else would begin their turn (STOP-2)
            actor = self._parts.kernel.actors.get(path)
            if actor is not None:
                actor.wake()

    def below(self, path: AgentId) -> tuple[AgentId, ...]:
        """The agents in memory at and below a path (`""`: all), parents first."""
        if not path:
            return tuple(sorted(self._parts.kernel.actors))
        start = f"{path}/"
        return tuple(sorted(p for p in self._parts.kernel.actors if p == path or p.startswith(start)))

    def cut_off(self, path: AgentId) -> None:
        """Stop an agent's turn here and now, undecided."""
        actor = self._parts.kernel.actors.get(path)
        if actor is not None:
            actor.cut_off()

    # -- abort -----------------------------------------------------------------------------------------------------

    async def abort(self, path: AgentId, reason: str, *, subtree: bool) -> None:
        """End the turn, and everything it waits for, in one commit; where nothing runs, nothing changes.

        Durable: the abort, on return.
        """
        await read_in(self._parts, path)
        targets = partial(self.below, path) if subtree else partial(waited_for, self._parts, path)
        with self.barring((path,)):
            await self._abort((path,), targets, abort_of(path, reason))
        if subtree and self._parts.staging.bears(path):
            self._bar((path,))
            self._parts.actors_nursery.start_soon(self._unborn, path, abort_of(path, reason))

    async def _unborn(self, path: AgentId, cause: Cause) -> None:
        """Behind an abort of a subtree: who comes of results that were there before it lands with the end of the turn.

        The barrier stays up until then, and they begin nothing (ABT-3, ABT-5).
        """
        try:
            while self._parts.staging.bears(path):
                await self.movement()
            with suppress(CallboardError):  # as in `_aside`
                abort = partial(self._abort, (path,), partial(self.below, path), cause)
                await self._parts.kernel.patience.insist(abort)
        finally:
            self._unbar((path,))

    def abort_aside(self, tops: tuple[AgentId, ...], cause: Cause) -> trio.Event:
        """Abort agents, and all that they wait for, in a task of its own; their barrier is up on return (ABT-5).

        Returns:
            What is set once the abort is durable, or could not be written.
        """
        self._bar(tops)
        done = trio.Event()
        parts = self._parts
        parts.frames.clean_context().run(parts.actors_nursery.start_soon, self._aside, tops, cause, done)
        return done

    async def _aside(self, tops: tuple[AgentId, ...], cause: Cause, done: trio.Event) -> None:
        try:
            with suppress(CallboardError):  # nobody could hear of it: the turns above meet that store, too
                abort = partial(self._abort, tops, partial(waited_for, self._parts, *tops), cause)
                await self._parts.kernel.patience.insist(abort)  # it may have failed once: what is cut would run on
        finally:
            self._unbar(tops)
            done.set()

    async def take_along(self, path: AgentId, reason: str) -> None:
        """The abort of a turn that is not run is carried out: what its calls had started is aborted, too (ABT-5).

        Where the abort was ordered here that has its orders already.
        """
        await read_in(self._parts, path)
        actors = self._parts.kernel.actors
        left = tuple(
            [node for node in waited_for(self._parts, path) if node != path and not _aborting(actors.get(node))]
        )
        with self.barring(left):
            await self._abort(left, lambda: left, abort_of(path, reason))

    async def _abort(self, barred: Iterable[AgentId], targets: Callable[[], tuple[AgentId, ...]], cause: Cause) -> None:
        """Order the abort of those of the targets that do anything; for the length of it these are barred.

        Who is being born while the barrier goes up is there, or not, before anybody is told (STOP-1).
        """
        for path in barred:
            await self._parts.children.born(path)
        found = targets()
        await self._commit_aborts({path: self._order(path, cause, found) for path in self.to_abort(found)})

    def to_abort(self, targets: Iterable[AgentId]) -> tuple[AgentId, ...]:
        """Those of the targets that run, are about to, or wait for a person."""
        found = (self._parts.kernel.actors.get(path) for path in targets)
        return tuple([one.path for one in found if one is not None and (one.active or _works(one) or _parked(one))])

    def _order(self, path: AgentId, cause: Cause, targets: tuple[AgentId, ...]) -> Envelope:
        """The order to one agent, and whether its parent is taken too (ABT-5)."""
        turn = turn_id(path, self._parts.kernel.actors[path].row.turns)
        return control_message(self._parts, path, Purpose.ABORT, *cause.said(path, targets), target=turn)

    async def _commit_aborts(self, found: dict[AgentId, Envelope]) -> None:
        """One commit per tree, for a commit is one tree's; what one tree's store refuses holds up no other's."""
        trees: dict[TreeId, Orders] = {}
        for path, order in found.items():
            held = Move(path, (ReceiptState.QUEUED,), ReceiptState.HELD)
            trees.setdefault(tree_of(path), {})[path] = (Enqueue(order, _NO_BOUND), held)
        refused: CallboardError | None = None
        for tree, orders in trees.items():
            try:
                await give(self._parts, tree, orders)
            except CallboardError as error:
                refused = refused or error
        if refused is not None:
            raise refused

    async def wait_aborted(self, path: AgentId) -> None:
        """Wait until the turn in progress has unwound."""
        actor = self._parts.kernel.actors.get(path)
        if actor is not None and actor.active and not (actor.loop is not None and actor.loop.streams.deaf):
            await self._parts.replies.wait_condition(
                path, Need.UNWIND, certain=bool(actor.loop and actor.loop.aborting)
            )

    async def end(self, nodes: tuple[AgentId, ...], reason: str, hard_s: float) -> None:
        """Abort what still runs; past `hard_s` cancel its task, and name what is stuck."""
        busy = [node for node in nodes if (actor := self._parts.kernel.actors.get(node)) and actor.active]
        if not busy:
            return
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + hard_s
            with suppress(CallboardError), self.barring(tuple(busy)):  # what cannot be written ends all the same
                await self._abort(busy, lambda: tuple(busy), Cause(reason))
            while self.busy(nodes):
                await self._moved.wait()
        for node in nodes:
            self.cut_off(node)


async def abort_born_since(parts: Parts, order: Envelope) -> None:
    """An abort of a subtree came from another process: who was born behind its orders is aborted here (ABT-5).

    What waits in other agents came behind the order, or was held by their own (ABT-4).

    Raises:
        StoreError: it could not be read, or written.
    """
    first, path = first_unordered(order.target), order.to
    if first is None:
        return
    await read_in(parts, path)
    with parts.stopping.barring((path,)):
        while True:
            await parts.children.born(path)
            rows = await parts.kernel.store.tree_rows(tree_of(path))
            late = [row.agent for row in rows[first:] if row.agent.startswith(f"{path}/")]
            tops = [node for node in parts.stopping.to_abort(late) if not _aborting(parts.kernel.actors.get(node))]
            if tops:
                await parts.stopping.abort_aside(tuple(tops), abort_of(path, order.reason or "aborted")).wait()
            if not parts.staging.bears(path):
                return
            while parts.staging.bears(path):  # who comes of results that were there before it
                await parts.stopping.movement()


async def give(parts: Parts, tree: TreeId, orders: Orders, *, fenced: bool = True) -> None:
    """Give orders to agents of one tree, in one commit; one that is closed by now gets none.

    Raises:
        StoreError: nothing was written.
    """
    left = dict(orders)
    while left:
        operations = tuple([operation for of_one in left.values() for operation in of_one])
        try:
            await parts.kernel.commit(tree, operations, fenced=fenced)
        except AgentClosed as closed:
            if not isinstance(closed.message, Envelope) or left.pop(closed.message.to, None) is None:
                raise
            continue
        return


def control_message(
    parts: Parts, path: AgentId, purpose: Purpose, reason: str, sender: AgentId | None = None, *, target: str = ""
) -> Envelope:
    """An order to an agent, on a place of its own."""
    message = parts.kernel.new_message_id()
    return Envelope(
        message, path, Lane.CONTROL, (), sender, purpose=purpose, reason=reason, target=target, reserved=True
    )


def _aborting(actor: Actor | None) -> bool:
    """Whether an abort was ordered that it has not carried out yet."""
    return actor is not None and any(order.envelope.purpose is Purpose.ABORT for order in actor.mailbox.orders)


def _works(actor: Actor) -> bool:
    """Whether it begins a turn as soon as no barrier keeps it."""
    return actor.due or (actor.suspended is None and actor.owes)


def _parked(actor: Actor) -> bool:
    """Whether its turn is open and waits for a person: that is a turn in progress, which an abort ends (ABT-1)."""
    return actor.row.open is not None and actor.suspended in _WAITS_FOR_A_PERSON


_WAITS_FOR_A_PERSON: Final = frozenset({APPROVAL, PAUSED, BUDGET, "spec_missing"})
