"""The active seconds of budgets while they pass: what is under way is cut when they are used up (BUD-6).

An account learns of active time by the commits of a turn. Between them time passes all the same, in each turn that runs
below a budget at once; so when a budget's time may be used up all of these are asked, and then charged.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import attrs

from actors.actor import Actor
from actors.budget import Dimension
from actors.ids import AgentId
from actors.tools import Effect
from actors.usage import MICROSECONDS, Amounts

from .timekeeper import RECHECK_S

if TYPE_CHECKING:
    from .parts import Parts

LEAST_S: Final = 0.001
"""How soon a budget is looked at again whose time was not quite used up."""
USED_UP: Final = "the seconds of the budget are used up"


@attrs.define(eq=False)
class _Node:
    """A budget with a limit of seconds. `turns`: those that run at and below it; `at`: when its time is used up."""

    at: float
    turns: dict[AgentId, Actor] = attrs.field(factory=dict)


@final
class Seconds:
    """The budgets whose time passes now.

    Invariants:
        SECONDS-1 a turn that runs is in the node of each limit of seconds that binds it, and in no other.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._nodes: dict[AgentId, _Node] = {}

    def begins(self, actor: Actor) -> None:
        """A turn begins, or goes on; where no limit of seconds binds it, that is all."""
        parts = self._parts
        for path in parts.ledger.timed(actor.path):
            now = parts.kernel.now()
            node = self._nodes.get(path)
            if node is None:
                node = self._nodes[path] = _Node(now + self._left_s(path))
            node.turns[actor.path] = actor
            others = len(node.turns) - 1
            if others:  # the same time passes faster
                node.at = now + max(node.at - now, 0.0) * others / (others + 1)
            if others or node.at > now:  # what is used up already is refused before it is asked for
                parts.timekeeper.watch(f"{path}/", node.at, partial(self._due, path))

    def over(self, path: AgentId) -> None:
        """A turn is over, or stopped."""
        for above in self._parts.ledger.timed(path) if self._nodes else ():
            node = self._nodes.get(above)
            if node is not None and node.turns.pop(path, None) is not None and not node.turns:
                del self._nodes[above]

    def _left_s(self, path: AgentId) -> float:
        left = self._parts.ledger.remaining(path, Dimension.SECONDS)
        return 0.0 if left is None else left / MICROSECONDS

    def _due(self, path: AgentId) -> float | None:
        """Charge what has passed; where that was all, cut what is under way, those below first."""
        node = self._nodes.get(path)
        if node is None:
            return None
        moving = [self._charge(actor) for actor in node.turns.values()]
        left = self._left_s(path)
        if left > 0:
            again = max(left / len(moving), LEAST_S if any(moving) else RECHECK_S)
            node.at = self._parts.kernel.now() + again
            return again
        for below in sorted(node.turns, key=_depth, reverse=True):
            self._cut(node.turns[below])
        return None

    def _charge(self, actor: Actor) -> bool:
        """Have the account know the time that has passed in a turn; whether more passes."""
        parts, loop = self._parts, actor.loop
        if loop is None or loop.over is not None:
            return False
        host, state = parts.lives[actor.path].host, loop.state
        passed = int(max(0.0, host.now() - state.since) * MICROSECONDS)
        active = state.row.spent.active_us + passed - host.charged_us
        if active > 0:
            host.charged_us += active
            parts.ledger.charge(actor.path, Amounts(active_us=active))
            if parts.ledger.crossed:
                parts.stages.spent(actor.path)
        return not parts.standing.still(actor.path)

    def _cut(self, actor: Actor) -> None:
        """Cut a turn; one that waits for children goes on to its next request: they are cut, and that is refused."""
        parts, path, loop = self._parts, actor.path, actor.loop
        if loop is None or loop.over is not None:
            return
        calls = parts.lives[path].calls
        running = [one.call for one in calls.running.values() if not one.left_behind]
        others = [call for call in running if call.tool is None or call.tool.effect is not Effect.CHILD]
        if len(others) < len(running):
            for call in others:
                calls.cancel(call.block.id, USED_UP)
            return
        error = parts.ledger.exhausted(path, Dimension.SECONDS, 0)
        parts.stages.spent(path)
        loop.cut(None, tuple, late=error)

    def __repr__(self) -> str:
        return f"<Seconds of {', '.join(self._nodes) or 'nobody'}>"


def _depth(path: AgentId) -> int:
    return path.count("/")
