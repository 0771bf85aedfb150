"""Leaving: turns are suspended, finished or closed, in bounded time, and nothing keeps running (CLS-5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

from actors.errors import Unfinished

if TYPE_CHECKING:
    from actors.ids import AgentId

    from .parts import Parts
    from .stopping import Stopping


@final
class Leaving:
    """The ways out of a supervisor, and of a scope that ran a tree in it."""

    def __init__(self, parts: Parts, stopping: Stopping) -> None:
        self._parts = parts
        self._stopping = stopping

    async def _until_finished(self) -> None:
        """Wait until nothing is to be done any more, but by those that only a person can move on."""
        standing, actors = self._parts.standing, self._parts.kernel.actors
        while any((one.active or one.due) and not standing.still(path) for path, one in tuple(actors.items())):
            await self._stopping.movement()

    def _cut_hopeless(self, nodes: tuple[AgentId, ...]) -> None:
        """Cut turns off whose calls wait for agents that have stopped: they would wait for ever, and go on later."""
        actors = self._parts.kernel.actors
        active = [node for node in nodes if (actor := actors.get(node)) is not None and actor.active]
        for node in active:
            below = f"{node}/"
            graph = self._parts.graph
            waiting = {wait.waiter for wait in graph.waits_of(node) if graph.targets_of(wait)}
            running = self._parts.lives[node].calls.running.values()
            alone = all(call.frame in waiting for call in running if not call.left_behind)  # others may still end
            if waiting and alone and not any(other.startswith(below) for other in active):
                self._stopping.cut_off(node)

    async def leave(self, mode: str, grace_s: float, hard_s: float) -> None:
        """Suspend, finish, close, or (an exception in memory) abort everything, in bounded time (CLS-5)."""
        parts = self._parts
        actors = parts.kernel.actors
        roots = tuple(path for path in actors if "/" not in path)
        if mode == "close":
            await parts.closing.close_all(roots, grace_s, hard_s)
            return
        with trio.move_on_after(grace_s):
            while parts.post.pending():
                await parts.post.decided()
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
        await self._stopping.end(tuple(actors), "the supervisor was left", hard_s)

    async def give_up(self, path: AgentId) -> None:
        """Whoever ran this tree was cancelled: it stops within the grace, and what does not is cut off (CLS-5)."""
        options = self._parts.options
        if not options.durable:
            with trio.move_on_after(options.grace_s):
                await self._stopping.abort(path, "the run was cancelled", subtree=True)
                await self._stopping.until(path)
            await self.suspend(self._stopping.below(path), 0.0, "cancelled")
            return
        await self.suspend(self._stopping.below(path), options.grace_s, "cancelled")

    async def suspend(self, nodes: tuple[AgentId, ...], grace_s: float, reason: str = "leaving") -> None:
        """Stop turns at their next commit; past the grace cut them off. What is queued stays queued (CLS-5)."""
        kernel = self._parts.kernel
        for node in nodes:
            actor = kernel.actors.get(node)
            if actor is not None and actor.loop is not None:
                actor.loop.suspend()
        with trio.move_on_after(grace_s):
            while self._stopping.busy(nodes):
                self._cut_hopeless(nodes)
                await self._stopping.movement()
        for node in nodes:
            self._stopping.cut_off(node)
        while self._stopping.busy(nodes):
            await self._stopping.movement()
        error = Unfinished(f"suspended ({reason}); the store owes the work: resume() goes on")
        for node in nodes:
            actor = kernel.actors.get(node)
            if actor is not None and actor.owes:
                self._parts.lives[node].fail_waiters(actor, error)
