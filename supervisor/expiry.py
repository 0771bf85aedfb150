"""Messages with a time to live: one task for all of them declares dead what nobody consumed in time.

The clock is the time of day: what a sender said must hold over restarts and over a machine that slept, and only this
clock does. It orders nothing (ACC-4): one that is set wrong makes messages die early or late, no more.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, final

import trio

from actors.changes import Move
from actors.errors import CallboardError, Conflict
from actors.ids import tree_of
from actors.messages import ReceiptState

from .cause import dead_error

if TYPE_CHECKING:
    from actors.actor import Actor
    from actors.ids import AgentId, MessageId

    from .parts import Parts

EXPIRED: Final = "expired"
RECHECK_S: Final = 60.0
"""A clock that was set forward is noticed within this time."""
RETRY_MS: Final = 5_000
"""When a death that could not be written is tried again."""
_WAITING: Final = (ReceiptState.QUEUED, ReceiptState.HELD)


@final
class Expiry:
    """The deaths that are due, of the agents in memory; of others they are seen when these are read in."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._due: list[tuple[int, AgentId]] = []
        self._changed = trio.Event()
        self._running = False

    def watch(self, actor: Actor) -> None:
        """An agent has messages that expire: mark what is due already, and see to the rest in time."""
        when = actor.mailbox.mortal.next_ms
        if when is None:
            return
        actor.mailbox.mortal.expire(self._parts.kernel.wall_ms())
        self._push(when, actor.path)

    def _push(self, when: int, path: AgentId) -> None:
        if (when, path) in self._due:
            return
        heapq.heappush(self._due, (when, path))
        self._changed.set()
        if not self._running:
            self._running = True
            self._parts.kernel.nursery.start_soon(self._run)

    async def _run(self) -> None:
        try:
            while self._due:
                when, path = self._due[0]
                left_s = (when - self._parts.kernel.wall_ms()) / 1000
                if left_s > 0:
                    self._changed = trio.Event()
                    with trio.move_on_after(min(left_s, RECHECK_S)):
                        await self._changed.wait()
                    continue
                heapq.heappop(self._due)
                await self._expire(path)
        finally:
            self._running = False

    async def _expire(self, path: AgentId) -> None:
        actor = self._parts.kernel.actors.get(path)
        if actor is None:
            return
        dead = actor.mailbox.mortal.expire(self._parts.kernel.wall_ms())
        try:
            for message in dead:  # each by itself: one that a turn takes at this moment is no dead one
                await self._bury(path, message)
        except CallboardError:  # in a task of its own: the store is asked again, or the next owner sees it
            self._push(self._parts.kernel.wall_ms() + RETRY_MS, path)
            return
        when, now = actor.mailbox.mortal.next_ms, self._parts.kernel.wall_ms()
        if when is not None:  # in the past: the store has it elsewhere, and nobody here was told; later, or it spins
            self._push(when if when > now else now + RETRY_MS, path)
        actor.eased()

    async def _bury(self, path: AgentId, message: MessageId) -> None:
        kernel = self._parts.kernel
        move = Move(path, _WAITING, ReceiptState.DEAD, (message,), EXPIRED)
        try:
            await kernel.commit(tree_of(path), (move,), fenced=False)
        except Conflict:
            return
        self._parts.replies.reply(message, error=dead_error(message, path, EXPIRED))
