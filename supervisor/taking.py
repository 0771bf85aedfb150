"""The start of ownership: a tree that was taken is recovered in one commit, before anything of it is read in (REC)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.changes import ChangeSet, Put
from actors.errors import InDoubt
from actors.poison import at_work

from .recovery import recovered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.agent import Agent
    from actors.changes import AgentRow
    from actors.ids import TreeId

    from .patience import Patience
    from .store.base import Store


async def recover(
    store: Store, patience: Patience, tree: TreeId, epoch: int, registry: Mapping[str, Agent]
) -> tuple[AgentRow, ...]:
    """Write what must be there before a tree's agents do anything; it may be asked for again, whatever became of it.

    Args:
        store: has the tree.
        patience: with the store.
        tree: that was taken.
        epoch: with which it was.
        registry: the specs, by name: they say how often a turn may crash.

    Returns:
        The rows of the tree's agents, as they stand then.

    Raises:
        StoreError: it could not be read, or nothing of it is written, or that is not known.
    """

    def limit_of(name: str) -> int | None:
        spec = registry.get(name)
        return None if spec is None else spec.limits.poison_limit

    rows = await store.tree_rows(tree)
    if not any(map(at_work, rows)):  # as nearly always
        return rows
    lease = await store.lease(tree)
    lived = () if lease is None else lease.lived
    changed = recovered(rows, epoch, lived, limit_of)
    if not changed:
        return rows
    doubt: InDoubt | None = None
    try:
        await patience.through(store.commit, ChangeSet(tree, epoch, tuple([Put(row) for row in changed])))
    except InDoubt as error:
        doubt = error
    if doubt is not None:
        rows = await store.tree_rows(tree)
        if recovered(rows, epoch, lived, limit_of):
            raise doubt
        return rows
    new = {row.agent: row for row in changed}
    return tuple([new.get(row.agent, row) for row in rows])
