"""The wait-for graph as one supervisor sees it: refuses a wait that could never end, and says why.

All supervisors of a process share one web (`knots.py`), for their agents may wait for each other. Here stand the
paths of one store, and the words of a refusal. Between processes the same nodes, `store:path`, will do.

What is not an agent's loop (timers, people, providers, the store) always goes on and is never in the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

from actors.errors import UsageError, WaitCycle
from actors.ids import AgentId
from actors.waiting import Frame, Mode, Need, Wait

from .knots import Web, node_of, within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence


_SEND: Final = "send() or post(), which return when the message is accepted, and finish the turn"
INSTEAD: Final = {
    Need.REPLY: _SEND,
    Need.IDLE: _SEND,
    Need.STEP: "compact(), which is carried out at the next boundary",
    Need.UNWIND: "abort(), which returns when the abort is durable",
    Need.EXIT: "close(), which returns when the close has begun",
    Need.RELEASE: "another resource key, or call again when that code has ended",
}


@attrs.frozen
class Statistics:
    """Counts of a graph, all supervisors' but for `begun` and `refused`.

    Attributes:
        open, begun: waits. checks: those that had a way back to their waiter. refused: those that could never end.
    """

    open: int
    begun: int
    checks: int
    refused: int


@final
class WaitGraph:
    """Who waits for whom.

    WAITS-1 no agent of the graph is deadlocked.
    WAITS-2 a refused wait has changed nothing.
    WAITS-3 a wait is in the graph from `begin` until `end`, the end of its frame, or its completion by another.
    WAITS-4 paths of another store are never told or taken as paths of this one.

    Args:
        web: what all supervisors of the process share; None for a graph on its own.
        place: the id of this supervisor's store; may be set later, before the first wait.
    """

    def __init__(self, web: Web | None = None, place: str = "") -> None:
        self._web = Web() if web is None else web
        self.place = place
        self._watchers: list[Callable[[AgentId], None]] = []
        self._begun = self._refused = 0

    # -- opening and closing ---------------------------------------------------------------------------------------

    def begin(
        self,
        waiter: Frame,
        targets: Sequence[AgentId],
        *,
        needs: Need = Need.REPLY,
        mode: Mode = Mode.ALL,
        completing: Collection[Wait] = (),
    ) -> Wait:
        """Open a wait, in one step with its check (REE-1, REE-2).

        Args:
            waiter: the frame that will wait, of any store's agent.
            targets: the agents of this store that it waits for.
            needs: what must happen there.
            mode: at all of them, or at any one.
            completing: open waits that end if this one begins: an ancestor's, from `ancestor_waits`.

        Returns:
            The wait, for `end`.

        Raises:
            WaitCycle: it could never end; nothing has changed.
            UsageError: no target.
        """
        paths = tuple(dict.fromkeys(targets))
        if not paths:
            raise UsageError("a wait names at least one agent; got none")
        nodes = tuple([node_of(self.place, path) for path in paths])
        wait = Wait(waiter, paths, needs, mode, self.place, nodes)
        self._open(wait, completing)
        for watcher in self._watchers:
            for path in paths:
                watcher(path)
        return wait

    def begin_behind(self, waiter: Frame, holders: Sequence[Frame]) -> Wait:
        """Open a wait of a call for code that stands apart, and holds its resources.

        Raises:
            WaitCycle: it could never end; nothing has changed.
        """
        paths = tuple([AgentId(describe(holder)) for holder in holders])
        nodes = tuple([self._web.node(holder) for holder in holders])
        wait = Wait(waiter, paths, Need.RELEASE, Mode.ALL, "", nodes)
        self._open(wait, ())
        return wait

    def _open(self, wait: Wait, completing: Collection[Wait]) -> None:
        path = self._web.knot(wait, completing)
        if path:
            self._refused += 1
            raise _refusal(wait, path)
        for ended in completing:
            self._web.remove(ended)
        self._web.add(wait)
        self._begun += 1

    def end(self, wait: Wait) -> None:
        """Close a wait, however it ended; closing it again does nothing."""
        self._web.remove(wait)

    def leave(self, frame: Frame) -> None:
        """Close all waits of a frame whose code has ended: what outlives it holds nobody up (REE-3)."""
        self._web.leave(frame)

    def set_apart(self, frame: Frame, name: str) -> None:
        """Its agent waits for this code no more: it may wait for whom it likes, and holds up nobody by that (REE-3).

        Only a call that needs a resource of it waits for it still (`begin_behind`).
        """
        self._web.set_apart(frame, name)

    def watch(self, watcher: Callable[[AgentId], None]) -> None:
        """Call `watcher` with each agent that somebody begins to wait for; it neither waits nor raises (GAT-1)."""
        self._watchers.append(watcher)

    # -- reading ---------------------------------------------------------------------------------------------------

    def waits_of(self, agent: AgentId) -> tuple[Wait, ...]:
        """The open waits of an agent's frames, oldest first."""
        return self._web.waits_of(node_of(self.place, agent))

    def targets_of(self, wait: Wait) -> tuple[AgentId, ...]:
        """Whom a wait waits for here; nobody where that is in another store (WAITS-4)."""
        return wait.targets if wait.place == self.place else ()

    def waiters_of(self, agent: AgentId) -> tuple[Wait, ...]:
        """The open waits of frames here that name this agent, oldest first."""
        waits = self._web.waiters_of(node_of(self.place, agent))
        return tuple([wait for wait in waits if wait.waiter.place == self.place])

    def open_here(self) -> tuple[Wait, ...]:
        """The open waits for agents of this store by agents here that wait for that code themselves, oldest first."""
        return tuple([wait for wait in self._web.open() if wait.place == self.place == wait.waiter.place])

    def is_waited_for(self, agent: AgentId) -> bool:
        """Whether another agent waits for this one (GAT-1)."""
        return self._web.is_named(node_of(self.place, agent))

    def ancestor_waits(self, asker: Frame, ancestor: AgentId) -> tuple[Wait, ...]:
        """The open waits for a report by which an ancestor waits for the asker's agent, or one between them (REE-2).

        The caller completes them with `needs_input`, and passes them to `begin` as `completing`.
        """
        child = asker.agent
        if not self.is_above(ancestor, asker):
            return ()
        return tuple(
            [
                wait
                for wait in self.waits_of(ancestor)
                if wait.needs is Need.REPLY
                and any(within(child, target) and target != ancestor for target in self.targets_of(wait))
            ]
        )

    def is_above(self, ancestor: AgentId, frame: Frame) -> bool:
        """Whether an agent here stands above a frame's, and its turn may wait for that frame."""
        if frame.place != self.place or self._web.is_apart(frame):
            return False
        return frame.agent.startswith(ancestor + "/")

    def deadlocked(self) -> tuple[str, ...]:
        """Who can never go on, as `store:path`. Always empty, or it is a bug (WAITS-1)."""
        return self._web.stuck()

    def statistics(self) -> Statistics:
        """Counts."""
        return Statistics(len(self._web), self._begun, self._web.checks, self._refused)

    def __repr__(self) -> str:
        return f"<WaitGraph {len(self._web)} open, {self._begun} begun, {self._refused} refused>"


def describe(frame: Frame, *, place: str = "") -> str:
    """A frame in words: agent, turn, and the tool or hook; `place`: where it is, if that must be said."""
    what = f", {frame.kind} {frame.name}" if frame.name else ""
    where = f" of store {place}" if place else ""
    return f"{frame.agent} (turn {frame.turn}{what}){where}"


def _refusal(wait: Wait, path: Sequence[Wait]) -> WaitCycle:
    spread = len({step.waiter.place for step in path}) > 1
    steps = [describe(step.waiter, place=step.waiter.place if spread else "") for step in path]
    joints = [_joint(step) for step in path]
    shown = "".join(f"{step} {joint} " for step, joint in zip(steps, joints, strict=True)) + wait.waiter.agent
    message = f"this wait would never end: {shown}; nothing has changed. Use {INSTEAD[wait.needs]}"
    return WaitCycle(message, (*steps, wait.waiter.agent))


def _joint(wait: Wait) -> str:
    if wait.mode is Mode.ALL or len(wait.targets) == 1:
        return "waits for"
    return f"waits for any of {', '.join(wait.targets)}, so for"
