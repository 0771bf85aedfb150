"""The wait-for graph: refuses a wait that could never end, and says why.

Nodes are agents. An agent goes on when all open waits of its frames end, for its turn waits for all of them. A wait
for all its targets ends when each of them goes on, a wait for any when one does. Whoever cannot go on by this rule,
whatever happens, is deadlocked; the graph never holds such an agent (WAITS-1), so only the newest wait can be at
fault, and only whether its waiter goes on need be asked.

What is not an agent's loop (timers, people, providers, the store) always goes on and is never in the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.errors import UsageError, WaitCycle
from actors.waiting import Frame, Mode, Need, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actors.ids import AgentId

INSTEAD: Final = {
    Need.LOOP: "send() or post(), which return when the message is accepted, and finish the turn",
    Need.STEP: "compact(), which is carried out at the next boundary",
    Need.UNWIND: "abort(), which returns when the abort is durable",
    Need.EXIT: "close(), which returns when the close has begun",
}


@attrs.frozen
class Statistics:
    """Counts of a graph. `checks`: waits that had a way back to their waiter; `refused`: those that closed a cycle."""

    open: int
    begun: int
    checks: int
    refused: int


class WaitGraph:
    """Who waits for whom, in one process.

    WAITS-1 no agent of the graph is deadlocked.
    WAITS-2 a refused wait has changed nothing.
    WAITS-3 a wait is in the graph from `begin` until `end`, the end of its frame, or its completion by another.
    """

    def __init__(self) -> None:
        self._of: dict[AgentId, list[Wait]] = {}
        """The open waits of an agent's frames, oldest first; no entry is empty."""
        self._for: dict[AgentId, list[Wait]] = {}
        """The open waits that name an agent as target; no entry is empty."""
        self._watchers: list[Callable[[AgentId], None]] = []
        self._any = self._exits = self._open = self._begun = self._checks = self._refused = 0

    # -- opening and closing ---------------------------------------------------------------------------------------

    def begin(
        self,
        waiter: Frame,
        targets: tuple[AgentId, ...],
        *,
        needs: Need = Need.LOOP,
        mode: Mode = Mode.ALL,
        completing: Wait | None = None,
    ) -> Wait:
        """Open a wait, in one step with its check (REE-1, REE-2).

        Args:
            waiter: the frame that will wait.
            targets: the agents it waits for.
            needs: what must happen there.
            mode: at all of them, or at any one.
            completing: an open wait that ends if this one begins: the ancestor's, from `ancestor_wait`.

        Returns:
            The wait, for `end`.

        Raises:
            WaitCycle: it could never end; nothing has changed.
            UsageError: no target.
        """
        if not targets:
            raise UsageError("a wait names at least one agent; got none")
        wait = Wait(waiter, targets, needs, mode)
        path = self._cycle(wait, completing)
        if path:
            self._refused += 1
            raise _refusal(wait, path)
        if completing is not None:
            self.end(completing)
        self._of.setdefault(waiter.agent, []).append(wait)
        for target in targets:
            self._for.setdefault(target, []).append(wait)
        self._any += mode is Mode.ANY
        self._exits += needs is Need.EXIT
        self._open += 1
        self._begun += 1
        for watcher in self._watchers:
            for target in targets:
                watcher(target)
        return wait

    def end(self, wait: Wait) -> None:
        """Close a wait, however it ended; closing it again does nothing."""
        if not _drop(self._of, wait.waiter.agent, wait):
            return
        for target in wait.targets:
            _drop(self._for, target, wait)
        self._any -= wait.mode is Mode.ANY
        self._exits -= wait.needs is Need.EXIT
        self._open -= 1

    def leave(self, frame: Frame) -> None:
        """Close all waits of a frame whose code has ended: what outlives it holds nobody up (REE-3)."""
        for wait in tuple(self._of.get(frame.agent, ())):
            if wait.waiter is frame:
                self.end(wait)

    def watch(self, watcher: Callable[[AgentId], None]) -> None:
        """Call `watcher` with each agent that somebody begins to wait for; it neither waits nor raises (GAT-1)."""
        self._watchers.append(watcher)

    # -- reading ---------------------------------------------------------------------------------------------------

    def waits_of(self, agent: AgentId) -> tuple[Wait, ...]:
        """The open waits of an agent's frames, oldest first."""
        return tuple(self._of.get(agent, ()))

    def waiters_of(self, agent: AgentId) -> tuple[Wait, ...]:
        """The open waits that name this agent, oldest first."""
        return tuple(self._for.get(agent, ()))

    def is_waited_for(self, agent: AgentId) -> bool:
        """Whether another agent waits for this one (GAT-1)."""
        return agent in self._for

    def ancestor_wait(self, child: AgentId, ancestor: AgentId) -> Wait | None:
        """The open wait for a reply by which an ancestor waits for the child, or for one between them (REE-2).

        The caller completes it with `needs_input`, and passes it to `begin` as `completing`.
        """
        if not child.startswith(ancestor + "/"):
            return None
        for wait in self._of.get(ancestor, ()):
            if wait.needs is Need.LOOP and any(_within(child, target) for target in wait.targets if target != ancestor):
                return wait
        return None

    def deadlocked(self) -> tuple[AgentId, ...]:
        """Who can never go on: cycles and all who wait into them. Always empty, or it is a bug (WAITS-1)."""
        stuck = _reduce(self._of)
        return tuple(sorted(stuck))

    def statistics(self) -> Statistics:
        """Counts."""
        return Statistics(self._open, self._begun, self._checks, self._refused)

    def __repr__(self) -> str:
        return f"<WaitGraph {self._open} open, {self._begun} begun, {self._refused} refused>"

    # -- the check -------------------------------------------------------------------------------------------------

    def _cycle(self, wait: Wait, without: Wait | None) -> list[Wait]:
        """The waits, the new one first, that lead from its waiter back to it, if it would then be deadlocked."""
        agent = wait.waiter.agent
        path = self._way_back(wait, without)
        if not path:
            return []  # with no way back, the waiter goes on as soon as others do, and all others do (WAITS-1)
        self._checks += 1
        if not self._any and wait.mode is Mode.ALL:
            return path  # where every wait is for all, a way back is a cycle and a cycle never ends
        waits = {node: [held for held in of if held is not without] for node, of in self._of.items()}
        waits.setdefault(agent, []).append(wait)
        stuck = _reduce(waits)
        if agent not in stuck:
            return []
        return self._way_back(wait, without, among=stuck)

    def _way_back(self, wait: Wait, without: Wait | None, among: set[AgentId] | None = None) -> list[Wait]:
        """A shortest way along open waits from the new one back to its waiter; empty where there is none."""
        agent = wait.waiter.agent
        came: dict[AgentId, tuple[Wait, AgentId | None]] = {}
        queue: list[AgentId] = []
        if _hits(wait, agent):
            return [wait]
        if agent not in self._for and not self._exits:
            return []  # nobody waits for the waiter
        for target in _needed(wait, self._of):
            if target not in came and (among is None or target in among):
                came[target] = (wait, None)
                queue.append(target)
        for node in queue:  # grows while it is walked: breadth first
            for held in self._of.get(node, ()):
                if held is without:
                    continue
                if _hits(held, agent):
                    return [*_trace(came, node), held]
                for target in _needed(held, self._of):
                    if target not in came and (among is None or target in among):
                        came[target] = (held, node)
                        queue.append(target)
        return []


def _reduce(waits: dict[AgentId, list[Wait]]) -> set[AgentId]:
    """Who never goes on: strike out whoever can, until nobody more can (greedy reduction to a fixpoint)."""
    stuck = {agent for agent, of in waits.items() if of}
    needed_by: dict[AgentId, list[AgentId]] = {}
    for agent, of in waits.items():
        for wait in of:
            for target in _needed(wait, waits):
                needed_by.setdefault(target, []).append(agent)
    queue = list(stuck)
    for agent in queue:  # grows while it is walked: whoever needed one that goes on is looked at again
        if agent in stuck and all(_ends(wait, stuck) for wait in waits[agent]):
            stuck.discard(agent)
            queue.extend(needed_by.get(agent, ()))
    return stuck


def _needed(wait: Wait, waits: dict[AgentId, list[Wait]]) -> Iterator[AgentId]:
    """Whom a wait needs: its targets and, where they must exit, all below them that wait for something."""
    yield from wait.targets
    if wait.needs is Need.EXIT:
        for agent in waits:
            if any(_within(agent, target) for target in wait.targets):
                yield agent


def _within(agent: AgentId, root: AgentId) -> bool:
    """Whether the agent is the root or stands below it."""
    return agent == root or agent.startswith(root + "/")


def _hits(wait: Wait, agent: AgentId) -> bool:
    """Whether the wait needs this agent."""
    if agent in wait.targets:
        return True
    return wait.needs is Need.EXIT and any(_within(agent, target) for target in wait.targets)


def _ends(wait: Wait, stuck: set[AgentId]) -> bool:
    """Whether a wait can end while these agents are stuck."""
    if wait.needs is Need.EXIT:
        blocked = (any(_within(agent, target) for agent in stuck) for target in wait.targets)
    else:
        blocked = (target in stuck for target in wait.targets)
    return not any(blocked) if wait.mode is Mode.ALL else not all(blocked)


def _drop(index: dict[AgentId, list[Wait]], agent: AgentId, wait: Wait) -> bool:
    """Take a wait out of an index; False where it is not there."""
    waits = index.get(agent)
    if waits is None or wait not in waits:
        return False
    waits.remove(wait)
    if not waits:
        del index[agent]
    return True


def _trace(came: dict[AgentId, tuple[Wait, AgentId | None]], last: AgentId) -> list[Wait]:
    """The waits that led to an agent, first to last."""
    path: list[Wait] = []
    node: AgentId | None = last
    while node is not None:
        wait, node = came[node]
        path.append(wait)
    return path[::-1]


def describe(frame: Frame) -> str:
    """A frame in words: agent, turn, and the tool or hook."""
    place = f", {frame.kind} {frame.name}" if frame.name else ""
    return f"{frame.agent} (turn {frame.turn}{place})"


def _refusal(wait: Wait, path: list[Wait]) -> WaitCycle:
    steps = [describe(step.waiter) for step in path] + [wait.waiter.agent]
    shown = " waits for ".join(steps)
    return WaitCycle(f"this wait would never end: {shown}; nothing has changed. Use {INSTEAD[wait.needs]}", steps)
