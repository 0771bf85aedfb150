"""How agents with work are gone on with: at a resume, under a key, and when a tree is taken, whatever for."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from actors.changes import Intake
from actors.errors import CallboardError, OwnedElsewhere
from actors.happenings import AgentSuspended
from actors.ids import AgentId, name_of, tree_of

from .knots import within

if TYPE_CHECKING:
    from collections.abc import Collection

    from actors.actor import Actor
    from actors.ids import TreeId

    from .parts import Parts

AT_ONCE: Final = 64
"""How many trees are being taken at a time."""

_GOES_ON: Final = frozenset({"leaving", "cancelled", "store", "crashed"})


async def take(parts: Parts, paths: Collection[AgentId]) -> None:
    """Take the trees of agents that have work, side by side: their commits share flushes of the disk.

    Whoever wakes an agent of one that could not be taken meets the reason again.
    """
    kernel = parts.kernel
    trees = dict.fromkeys(tree_of(path) for path in paths if name_of(path) in kernel.registry)
    wanted = [tree for tree in trees if tree not in kernel.ownership.epochs]
    for at in range(0, len(wanted), AT_ONCE):
        async with trio.open_nursery() as nursery:
            for tree in wanted[at : at + AT_ONCE]:
                nursery.start_soon(_take, parts, tree)


async def _take(parts: Parts, tree: TreeId) -> None:
    with suppress(CallboardError):
        await parts.kernel.ownership.own(tree)


async def wake_tree(parts: Parts, root: AgentId) -> None:
    """Go on with an agent and all below it that have work.

    Raises:
        StoreError: it cannot be read, or owned.
    """
    found = [path for path in await parts.kernel.store.agents_with_work() if within(path, root)]
    await take(parts, found)
    for path in found:
        await wake(parts, path)


async def wake(parts: Parts, path: AgentId) -> bool:
    """Go on with an agent; False where another process does.

    Raises:
        StoreError: it cannot be read, or owned.
    """
    try:
        actor = await _resumed(parts, path)
    except OwnedElsewhere:
        return False
    if actor is None:
        return True
    if actor.suspended in _GOES_ON:
        actor.suspended = None
    if actor.intake is Intake.CLOSING:
        parts.closing.go_on_closing(actor)
    actor.wake()
    return True


async def _resumed(parts: Parts, path: AgentId) -> Actor | None:
    """The agent's actor; without a spec it is suspended, as an event says, unless it is to be closed."""
    kernel = parts.kernel
    if path in kernel.actors or name_of(path) in kernel.registry:
        return await kernel.resident(path, stand_in=True)
    stored = await kernel.store.load_agent(path)
    if stored is not None and stored.intake is Intake.CLOSING:
        return await kernel.resident(path, stand_in=True)
    kernel.tell(path, AgentSuspended, {"reason": "spec_missing"})
    return None
