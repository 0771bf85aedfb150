"""Who stands still until a person acts, and who is told so (TOL-12, BUD-6).

An agent stands still when it is parked for approval, when it is paused, and when every call that its turn runs waits
for agents that stand still. Its clock stops. A parent's wait goes on, however long; code outside of agents that waits
for it is told `parked`, unless an inbox is open in which this process will decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from actors.errors import Unfinished
from actors.ids import turn_id
from actors.inputs import Phase
from actors.messages import Status, failure_of
from actors.parking import PAUSED, PERSON

from .standstill import parked

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.actor import Actor
    from actors.ids import AgentId
    from actors.messages import Failure, Outcome
    from actors.running import Running

    from .parts import Parts


@final
class Standing:
    """The agents that stand still.

    Invariants:
        STAND-1 an agent's clock stands exactly while the agent is in `_still`.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._still: dict[AgentId, None] = {}

    @property
    def any(self) -> bool:
        """Whether any agent stands still: while none does, nothing has to be looked at."""
        return bool(self._still)

    def still(self, path: AgentId) -> bool:
        """Whether an agent stands still."""
        return path in self._still

    def look(self, path: AgentId) -> None:
        """Something changed at an agent: see whether it stands still, and so upwards through those that wait for it."""
        parts = self._parts
        todo = [path]
        while todo:
            node = todo.pop()
            still = self._stands(node)
            if still is (node in self._still):
                continue
            if still:
                self._still[node] = None
            else:
                del self._still[node]
            parts.lives[node].host.stand(still=still)
            if still:
                self._tell(node)
                parts.stopping.moved()
            todo += [wait.waiter.agent for wait in parts.graph.waiters_of(node)]

    def left(self, path: AgentId) -> None:
        """An agent is in memory no more: whoever runs it knows how it stands."""
        if path in self._still:
            del self._still[path]
            for wait in self._parts.graph.waiters_of(path):
                self.look(wait.waiter.agent)

    def awaited(self, path: AgentId) -> None:
        """Somebody began to wait for an agent: whoever it is may stand still by that."""
        if path in self._still:
            for wait in self._parts.graph.waiters_of(path):
                self.look(wait.waiter.agent)

    def _stands(self, path: AgentId) -> bool:
        actor = self._parts.kernel.actors.get(path)
        if actor is None:
            return False
        if actor.suspended in PERSON:
            return not actor.due  # a decision, a wake or a steer may have come
        loop = actor.loop
        if loop is None or loop.state.phase is not Phase.RUNNING or not loop.sleeping:
            return False
        running = self._running(path)
        return bool(running) and all(self._waits(path, one) for one in running)

    def _running(self, path: AgentId) -> list[Running]:
        return [one for one in self._parts.lives[path].calls.running.values() if not one.left_behind]

    def _waits(self, path: AgentId, running: Running) -> bool:
        graph = self._parts.graph
        waits = [wait for wait in graph.waits_of(path) if wait.waiter is running.frame]
        targets = [
            graph.targets_of(wait) for wait in waits
        ]  # of another store's agents nobody here knows how they stand
        return bool(waits) and all(some and all(target in self._still for target in some) for some in targets)

    # -- telling ---------------------------------------------------------------------------------------------------

    def outcome(self, path: AgentId) -> Outcome | None:
        """What code outside of agents is told that waits for an agent: None where it should wait on."""
        parts = self._parts
        if path not in self._still or parts.own_frame() is not None:
            return None
        causes = self._causes(path)
        if parts.approvals.listening and all(actor.suspended != PAUSED for actor in causes):
            return None
        return self._outcome(parts.kernel.actors[path], causes)

    def _outcome(self, actor: Actor, causes: list[Actor]) -> Outcome:
        return _parked(actor, lambda: failure_of(Unfinished("; ".join(self._words(cause) for cause in causes))))

    def parked(self, actor: Actor) -> Outcome:
        """What whoever waits for an agent is told whose budget has parked it, perhaps in another process (BUD-4)."""
        return _parked(actor, lambda: self._parts.ledger.parks(actor.path))

    def _words(self, actor: Actor) -> str:
        if actor.suspended == PAUSED:
            return f"{actor.path} is paused: wake() goes on"
        names = ", ".join(f"{request.tool} ({request.call_id})" for request in self._parts.approvals.of(actor.path))
        return f"{actor.path} waits for approval of {names}: decide in `async with sup.approvals()`, then wait again"

    def _causes(self, path: AgentId) -> list[Actor]:
        """The agents at which a person must act before this one goes on."""
        kernel, graph = self._parts.kernel, self._parts.graph
        found: dict[AgentId, Actor] = {}
        seen: set[AgentId] = set()
        todo = [path]
        while todo:
            node = todo.pop()
            actor = kernel.actors.get(node)
            if actor is None or node in seen:
                continue
            seen.add(node)
            if actor.suspended in PERSON or self._parts.approvals.of(node):
                found[node] = actor
            if actor.suspended not in PERSON:
                todo += [target for wait in graph.waits_of(node) for target in graph.targets_of(wait)]
        return [found[node] for node in sorted(found)]

    def _tell(self, path: AgentId) -> None:
        """Tell code outside of agents that waits for this one."""
        parts = self._parts
        actor = parts.kernel.actors.get(path)
        if actor is None:  # its tree was lost: whoever runs it now tells those who wait
            self._still.pop(path, None)
            return
        causes = self._causes(path)
        if parts.approvals.listening and all(actor.suspended != PAUSED for actor in causes):
            return
        waiting = [queued.envelope.id for queued in actor.mailbox.waiting]
        parts.replies.parked(self._outcome(actor, causes), waiting)

    def tell_all(self) -> None:
        """The last inbox was closed: whoever waits for a decision is told."""
        for path in tuple(self._still):
            self._tell(path)

    def __repr__(self) -> str:
        return f"<Standing {', '.join(self._still) or 'nobody'}>"


def _parked(actor: Actor, why: Callable[[], Failure]) -> Outcome:
    """The turn as it stands: what was told as it was parked, else what the row has."""
    row = actor.row if actor.loop is None else actor.loop.state.row
    last = actor.last
    if last is not None and last.status is Status.PARKED and last.turn == turn_id(actor.path, row.turns):
        return last
    return parked(row, why())
