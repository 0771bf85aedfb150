"""Which agents below one its turn and its calls wait for: what an abort takes along (ABT-5).

A wait of this process is in the graph. A call also waits for the children that it has started, before that wait begins
and where nobody runs its turn: found open after a restart, it goes on to wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.changes import CallState
from actors.ids import tree_of
from actors.inputs import Phase
from actors.waiting import Need

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from actors.actor import Actor
    from actors.ids import AgentId, CallId
    from actors.running import Running
    from actors.waiting import Wait

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


def waited_for(parts: Parts, *paths: AgentId) -> tuple[AgentId, ...]:
    """Agents and the descendants that their turns wait for, all the way down (ABT-5)."""
    found: dict[AgentId, None] = {}
    todo = [*paths]
    while todo:
        node = todo.pop()
        if node not in found:
            found[node] = None
            todo += _below(parts, node, parts.graph.waits_of(node))
            todo += _started_by(parts, node, _unfinished(parts, node))
    return tuple(found)


def held_by(parts: Parts, path: AgentId, calls: Collection[Running]) -> tuple[AgentId, ...]:
    """The descendants that these calls of an agent wait for, and nobody else, all the way down.

    Not a background child: its report comes as a message, whoever waits for it.
    """
    actors, frames = parts.kernel.actors, {one.frame for one in calls}
    waits = [wait for wait in parts.graph.waits_of(path) if wait.waiter in frames and wait.needs is Need.REPLY]
    given_up = [node for one in calls for node in one.waited]
    found = [*_below(parts, path, waits), *given_up, *_started_by(parts, path, {one.call.block.id for one in calls})]
    return waited_for(
        parts,
        *[
            node
            for node in dict.fromkeys(found)
            if not (node in actors and actors[node].row.background) and not _wanted_by_others(parts, node, frames)
        ],
    )


def bereft(parts: Parts, path: AgentId, calls: Collection[CallId]) -> tuple[AgentId, ...]:
    """The children that calls of an agent had waited for which are lost with their process, and that nobody wants."""
    return tuple([node for node in _started_by(parts, path, calls) if not _wanted_by_others(parts, node, ())])


def _below(parts: Parts, path: AgentId, waits: Iterable[Wait]) -> list[AgentId]:
    below = f"{path}/"
    return [target for wait in waits for target in parts.graph.targets_of(wait) if target.startswith(below)]


def _wanted_by_others(parts: Parts, path: AgentId, frames: Collection[object]) -> bool:
    return any(wait.needs is Need.REPLY and wait.waiter not in frames for wait in parts.graph.waiters_of(path))


def _unfinished(parts: Parts, path: AgentId) -> Collection[CallId]:
    """The calls of an agent that run, or that were found begun and not settled."""
    actor = parts.kernel.actors.get(path)
    if actor is None:
        return ()
    found = [] if actor.row.open is None else [row.call for row in actor.memory.calls or () if row.result is None]
    if actor.loop is None:
        return found
    running, state = parts.lives[path].calls.running, actor.loop.state
    if state.phase is not Phase.OPENING:  # taken up: what goes on begins behind the commit that says so
        found = [call.block.id for call in state.calls if call.state is CallState.STARTED]
    return [call for call, one in running.items() if not one.left_behind] + [one for one in found if one not in running]


def _started_by(parts: Parts, path: AgentId, calls: Collection[CallId]) -> list[AgentId]:
    """The children whose reports are these calls' to await: those that are at what they were started for."""
    if not calls:
        return []
    below = f"{path}/"
    there = [
        node
        for node, actor in parts.kernel.actors.items()
        if node.startswith(below) and actor.row.started_by in calls and not actor.row.background and _in_first(actor)
    ]
    return there + [node for node in parts.children.unborn(calls) if node not in there]


def _in_first(actor: Actor) -> bool:
    """Whether an agent's first run has not ended: behind it, it works for whoever sent it more."""
    row = actor.row if actor.loop is None else actor.loop.state.row
    return row.runs == 0 or (row.runs == 1 and (actor.run_open or row.open is not None))
