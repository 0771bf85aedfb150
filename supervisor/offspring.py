"""Which agents below one its turn and its calls wait for: what an abort takes along (ABT-5).

A wait of this process is in the graph. A call also waits for the children that it has started, before that wait begins
and where nobody runs its turn: found open after a restart, it goes on to wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.ids import tree_of
from actors.waiting import Need

if TYPE_CHECKING:
    from collections.abc import Collection

    from actors.ids import AgentId, CallId

    from .parts import Parts


async def read_in(parts: Parts, path: AgentId) -> None:
    """Read in what owes work below an agent, in a tree that was found in the store and that nobody has resumed.

    Raises:
        StoreError: it could not be read.
    """
    kernel = parts.kernel
    if tree_of(path) not in kernel.ownership.found:
        return
    below = f"{path}/"
    for other in await kernel.store.agents_with_work():
        if other.startswith(below):
            await kernel.resident(other, stand_in=True)


def waited_for(parts: Parts, path: AgentId) -> tuple[AgentId, ...]:
    """An agent and the descendants that its turn waits for, all the way down (ABT-5)."""
    found: dict[AgentId, None] = {}
    todo, graph = [path], parts.graph
    while todo:
        node = todo.pop()
        if node in found:
            continue
        found[node] = None
        below = f"{node}/"
        for wait in graph.waits_of(node):
            todo += [target for target in graph.targets_of(wait) if target.startswith(below)]
        todo += started_by(parts, node, _unfinished(parts, node))
    return tuple(found)


def awaited_by(parts: Parts, path: AgentId, calls: Collection[CallId]) -> tuple[AgentId, ...]:
    """The children for whose reports calls of an agent wait; not those that report by message."""
    graph, actors, below = parts.graph, parts.kernel.actors, f"{path}/"
    waits = [wait for wait in graph.waits_of(path) if wait.waiter.call in calls and wait.needs is Need.REPLY]
    found = [node for wait in waits for node in graph.targets_of(wait) if node.startswith(below)]
    return tuple([node for node in found if node in actors and not actors[node].row.background])


def _unfinished(parts: Parts, path: AgentId) -> Collection[CallId]:
    """The calls of an agent that run, or that were found begun and not settled."""
    actor = parts.kernel.actors.get(path)
    if actor is None:
        return ()
    if actor.loop is not None:
        return [call for call, one in parts.lives[path].calls.running.items() if not one.left_behind]
    if actor.row.open is None:
        return ()
    return [row.call for row in actor.memory.calls or () if row.result is None]


def started_by(parts: Parts, path: AgentId, calls: Collection[CallId]) -> tuple[AgentId, ...]:
    """The children whose reports are these calls' to await."""
    if not calls:
        return ()
    below = f"{path}/"
    return tuple(
        [
            node
            for node, actor in parts.kernel.actors.items()
            if node.startswith(below) and actor.row.started_by in calls and not actor.row.background
        ]
    )
