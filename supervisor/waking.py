"""How agents with work are gone on with: at a resume, under a key, and when a tree is taken over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.changes import Intake
from actors.errors import OwnedElsewhere
from actors.happenings import AgentSuspended
from actors.ids import AgentId, name_of

if TYPE_CHECKING:
    from actors.actor import Actor

    from .parts import Parts

_GOES_ON: Final = frozenset({"leaving", "cancelled", "store", "crashed"})


async def wake_tree(parts: Parts, root: AgentId) -> None:
    """Go on with an agent and all below it that have work.

    Raises:
        StoreError: it cannot be read, or owned.
    """
    below = f"{root}/"
    for path in await parts.kernel.store.agents_with_work():
        if path == root or path.startswith(below):
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
