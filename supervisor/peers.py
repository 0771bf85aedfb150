"""The other processes over the same store: the lease is kept, what they send is noticed, what they answer is found.

Whatever wakes a process up sooner is a hint; a look at the store every `POLL_S` is the guarantee. A look is one
question that SQLite answers from memory: has any other connection written? Only then is more read.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import trio

from actors.errors import CallboardError, StoreError
from actors.happenings import AgentSuspended
from actors.ids import AgentId, tree_of
from actors.messages import Purpose

if TYPE_CHECKING:
    from actors.ids import TreeId

    from .parts import Parts

POLL_S: Final = 0.05
"""How often the store is asked whether another process has written."""
LOOK_S: Final = 1.0
"""How often answers of other processes are looked for where nothing was written: their owner may be gone."""
ELSEWHERE: Final = "owned_elsewhere"


@final
class Peers:
    """What this supervisor knows of the others.

    Invariants:
        PEER-1 of a tree that was lost nothing runs here, once its tasks have unwound; nothing of it is in memory then.
        PEER-2 a message that another process sent to a tree of ours is in its mailbox at most one look after its
            commit, or the store was not to be read.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._version = -1
        self._read = 0  # the number of the last message that was looked at

    def start(self) -> None:
        """Begin to look, where another process can reach the store at all."""
        self._parts.kernel.lost = self.lose
        lease_s = self._parts.kernel.ownership.holder.lease_s
        if lease_s is not None:
            self._parts.actors_nursery.start_soon(self._main, lease_s)

    async def _main(self, lease_s: float) -> None:
        now = self._parts.kernel.now
        renew_at = look_at = now()
        known = False
        while True:
            try:
                if not known:
                    self._read, _ = await self._parts.kernel.store.news(-1)
                    known = True
                if now() >= renew_at:
                    await self._renew()
                    renew_at = now() + lease_s / 3
                wrote = await self._look()
                if wrote or now() >= look_at:
                    await self._find_answers()
                    look_at = now() + LOOK_S
            except StoreError:
                pass  # whoever needs the store is told; the next look may find it well again
            await trio.sleep(POLL_S)

    # -- the lease -------------------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        for tree in await self._parts.kernel.ownership.renew():
            self.lose(tree)

    def lose(self, tree: TreeId) -> None:
        """Another process has the tree: stop at once and quietly; that is no crash (SUP-6)."""
        parts = self._parts
        if parts.kernel.ownership.epochs.pop(tree, None) is None:
            return
        nodes = parts.stopping.below(AgentId(tree))
        for node in nodes:
            parts.kernel.tell(node, AgentSuspended, {"reason": ELSEWHERE})
            parts.kernel.actors[node].suspended = ELSEWHERE
            parts.stopping.cut_off(node)
        parts.actors_nursery.start_soon(self._forget, tree, nodes)

    async def _forget(self, tree: TreeId, nodes: tuple[AgentId, ...]) -> None:
        """What was read of a tree is no longer so: whoever asks for it reads it anew."""
        parts = self._parts
        while parts.stopping.busy(nodes):
            await parts.stopping.movement()
        for node in nodes:
            parts.kernel.actors.pop(node, None)
            parts.lives.pop(node, None)
        for node in reversed(nodes):
            parts.ledger.ended(node)
        parts.ledger.forget(AgentId(tree))

    # -- what they wrote -------------------------------------------------------------------------------------------

    async def _look(self) -> bool:
        """Whether another process has written since the last look; what it sent to us is taken."""
        kernel = self._parts.kernel
        version = await kernel.store.version()
        if version == self._version:
            return False
        self._version = version
        self._read, agents = await kernel.store.news(self._read)
        for agent in agents:
            if tree_of(agent) not in kernel.ownership.epochs:
                continue
            for queued in await kernel.discover(agent):
                if queued.envelope.purpose is Purpose.ABORT:  # ABT-5: with all that its turn waits for
                    self._parts.actors_nursery.start_soon(self._abort, agent, queued.envelope.reason or "aborted")
        return True

    async def _abort(self, agent: AgentId, reason: str) -> None:
        with suppress(CallboardError):  # what was ordered is carried out all the same; its children go on
            await self._parts.stopping.abort(agent, reason, subtree=False)

    # -- what they answered ----------------------------------------------------------------------------------------

    async def _find_answers(self) -> None:
        """End waits for what other processes have answered; a tree that nobody runs any more is taken (ACC-9)."""
        parts = self._parts
        owned = parts.kernel.ownership.epochs
        for waiter, find in parts.replies.elsewhere(lambda agent: tree_of(agent) in owned):
            try:
                found = await find()
            except CallboardError as error:
                waiter.complete(error=error)
                continue
            if found is not None:
                waiter.complete(found)
            elif await parts.kernel.store.lease(tree_of(waiter.target)) is None:
                parts.kernel.mirror.bring(waiter.target)
