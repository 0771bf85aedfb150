"""One agent's key-value scopes: who may still write to which, and which calls have something to erase (HOK-4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, final

from actors.changes import KvRow, Put
from actors.ids import run_id, tree_of
from actors.kv import call_stores, stores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.changes import Operation
    from actors.ids import AgentId, CallId
    from actors.kv import CallStores, Stores
    from actors.running import Running

    from .parts import Parts
    from .staging import Stage


@final
class Scopes:
    """The stores of one agent's tools and hooks.

    Invariants:
        SCOPES-1 nothing is written to a scope once the commit that erases it was decided.
    """

    def __init__(self, parts: Parts, agent: AgentId, running: Mapping[CallId, Running]) -> None:
        self._parts = parts
        self._running = running
        self._kept: set[CallId] = set()
        self.agent = agent

    def of_call(self, call: CallId, stage: Stage | None) -> CallStores:
        """The stores of a call that starts."""

        def over() -> str | None:
            running = self._running.get(call)
            if running is not None and not running.left_behind:
                return None
            return f"the call {call} is over, and its store is erased"

        return call_stores(stage or self, run_id(self.agent, self._run()), call, over)

    def of_hook(self, stage: Stage | None) -> Stores:
        """The stores of a hook that is called now."""
        number = self._run()

        def over() -> str | None:
            actor = self._parts.kernel.actors.get(self.agent)
            if (
                actor is not None
                and (actor.loop is not None or (actor.run_open and not actor.run_over))
                and self._run() == number
            ):
                return None
            return f"run {number} of {self.agent} is over, and its store is erased"

        return stores(stage or self, run_id(self.agent, number), over)

    def _run(self) -> int:
        """The run that is under way, or the last one."""
        actor = self._parts.kernel.actors.get(self.agent)
        if actor is None:
            return 1
        return max((actor.row if actor.loop is None else actor.loop.state.row).runs, 1)

    def kept(self, call: CallId) -> bool:
        """Whether a call that has ended wrote to its own store."""
        kept = call in self._kept
        self._kept.discard(call)
        return kept

    async def read_kv(self, scope: str) -> dict[str, str]:
        """The values of a scope."""
        rows = await self._parts.kernel.store.kv(self.agent, scope)
        return {row.key: row.value for row in rows}

    async def write_kv(self, operations: tuple[Operation, ...]) -> None:
        """Write values."""
        for operation in operations:
            if isinstance(operation, Put) and isinstance(operation.row, KvRow) and operation.row.scope in self._running:
                self._kept.add(cast("CallId", operation.row.scope))
        await self._parts.kernel.commit(tree_of(self.agent), operations)
