"""Agents whose tree another process runs: orders go through its mailbox, and what comes of them is read from the store.

Any process may send to any agent of a store (SUP-6). An order is a control message like those of this process; its
owner finds it at its next look, and carries it out as its own.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, final

import trio

from actors.changes import Enqueue, Intake, Move, Shut
from actors.errors import AgentClosed, OwnedElsewhere, UnknownPath
from actors.ids import AgentId, tree_of
from actors.messages import LaneBound, Purpose, ReceiptState

from .cause import abort_of, born_from
from .peers import LOOK_S, POLL_S
from .stopping import control_message
from .waking import wake_tree

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.actor import Actor
    from actors.changes import Operation

    from .parts import Parts
    from .store.base import StoredAgent


@final
class Remote:
    """The verbs of handles for agents that are not run here."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def here(self, path: AgentId, *, stand_in: bool = False) -> Actor | None:
        """The agent's actor; None where another process runs its tree.

        Raises:
            UnknownPath: no such agent. SpecMissing: its spec is not in the registry. StoreError.
        """
        try:
            return await self._parts.kernel.resident(path, stand_in=stand_in)
        except OwnedElsewhere:
            await self.stored(path)
            return None

    async def stored(self, path: AgentId) -> StoredAgent:
        """The agent as it is in the store.

        Raises:
            UnknownPath: no such agent. StoreError.
        """
        stored = await self._parts.kernel.store.load_agent(path)
        if stored is None:
            msg = f"there is no agent {path!r} in this store"
            raise UnknownPath(msg)
        self._parts.elsewhere.saw(stored)
        return stored

    async def abort(self, path: AgentId, reason: str, *, subtree: bool) -> None:
        """Order an abort; where nothing runs, nothing changes.

        Durable: the order, on return.
        """

        def order(stored: StoredAgent, nodes: tuple[AgentId, ...], born: int) -> tuple[Operation, ...]:
            if stored.row.open is None and not any(one.state is ReceiptState.QUEUED for one in stored.queued):
                return ()
            node = stored.row.agent
            target = born_from(born) if subtree else ""
            ordered = self._order(node, Purpose.ABORT, *abort_of(path, reason).said(node, nodes), target=target)
            return ordered, Move(node, (ReceiptState.QUEUED,), ReceiptState.HELD)

        await self._order_all(path, order, subtree=subtree)

    async def end(self, path: AgentId, purpose: Purpose, reason: str) -> None:
        """Order a close or a kill of an agent and all below it: from now on they accept nothing (CLS-1).

        Durable: that, on return.
        """

        def order(stored: StoredAgent, _: tuple[AgentId, ...], __: int) -> tuple[Operation, ...]:
            return Shut(stored.row.agent, Intake.CLOSING), self._order(stored.row.agent, purpose, reason)

        await self._order_all(path, order, subtree=True)

    async def _order_all(
        self,
        path: AgentId,
        order: Callable[[StoredAgent, tuple[AgentId, ...], int], tuple[Operation, ...]],
        *,
        subtree: bool,
    ) -> None:
        """Order an agent, and all below it where `subtree`, in one commit; what is closed is left out.

        Who was born below while that was written is ordered in another; who is born later, before the owner has seen
        it, is the owner's to order. `order`: is told of whom else there are, and how many the tree has had.
        """
        ordered: set[AgentId] = set()
        while True:
            operations: list[Operation] = []
            nodes, born = await self._below(path) if subtree else ((path,), 0)
            fresh = [node for node in nodes if node not in ordered]
            if not fresh:
                return
            for node in fresh:
                stored = await self.stored(node)
                if stored.intake is not Intake.CLOSED:
                    operations += order(stored, nodes, born)
            with suppress(AgentClosed):  # one of them was closed since it was read
                await self._commit(path, operations)
                ordered.update(fresh)

    async def order(self, path: AgentId, purpose: Purpose, *more: Operation) -> None:
        """Order a pause or its end, with what goes along in one commit."""
        await self._commit(path, [*more, self._order(path, purpose, "")])

    async def until_idle(self, path: AgentId) -> None:
        """Wait until no turn of it is open and none is requested."""

        async def idle() -> bool:
            stored = await self.stored(path)
            waits = any(one.state is ReceiptState.QUEUED for one in stored.queued)
            return stored.row.open is None and not stored.row.owes and not waits

        await self._until(path, idle)

    async def until_unwound(self, path: AgentId) -> None:
        """Wait until no turn of it is open."""

        async def unwound() -> bool:
            return (await self.stored(path)).row.open is None

        await self._until(path, unwound)

    async def until_closed(self, path: AgentId) -> None:
        """Wait until it is closed."""

        async def closed() -> bool:
            return (await self.stored(path)).intake is Intake.CLOSED

        await self._until(path, closed)

    async def _until(self, path: AgentId, holds: Callable[[], Awaitable[bool]]) -> None:
        """Look until it holds; a tree that nobody runs any more is taken, or it never would."""
        tree, look_at = tree_of(path), trio.current_time() + LOOK_S
        while not await holds():
            if trio.current_time() >= look_at:
                look_at = trio.current_time() + LOOK_S
                if await self._parts.kernel.store.lease(tree) is None:
                    await wake_tree(self._parts, AgentId(tree))
            await trio.sleep(POLL_S)

    async def _below(self, path: AgentId) -> tuple[tuple[AgentId, ...], int]:
        """An agent and all below it, parents first; and how many agents its tree has had."""
        rows = await self._parts.kernel.store.tree_rows(tree_of(path))
        below = f"{path}/"
        return tuple(row.agent for row in rows if row.agent == path or row.agent.startswith(below)), len(rows)

    def _order(
        self, path: AgentId, purpose: Purpose, reason: str, sender: AgentId | None = None, *, target: str = ""
    ) -> Enqueue:
        return Enqueue(control_message(self._parts, path, purpose, reason, sender, target=target), LaneBound())

    async def _commit(self, path: AgentId, operations: list[Operation]) -> None:
        if operations:
            await self._parts.kernel.commit(tree_of(path), tuple(operations), fenced=False)
