"""What must hold of the last process once it is at rest: accounts, permits, waits, receipts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from actors import CallboardError
from actors.ids import tree_of
from actors.messages import ReceiptState
from actors.usage import NOTHING
from supervisor.roster import TOP

if TYPE_CHECKING:
    from actors.changes import AgentRow
    from actors.ids import AgentId
    from supervisor.ledger import Snapshot
    from tests.life.events import Process

EXPECTED: Final = (CallboardError, trio.TooSlowError)
"""What a verb may raise in a life; an `InternalError` among them is looked for elsewhere."""


async def at_rest(process: Process) -> list[str]:
    """Every check of the runtime's own figures against the store's rows."""
    found = [*await _receipts(process), *await _accounts(process)]
    parts = process.sup._parts
    known = {*parts.kernel.actors, *(path for path in parts.ledger._accounts if path != TOP)}
    owned = (parts.kernel.ownership.epochs, parts.kernel.ownership.leaving)
    found += [
        f"PEER-1: {path} is in memory, and another's"
        for path in sorted(known)
        if not any(tree_of(path) in o for o in owned)
    ]
    if parts.graph.statistics().open:
        found.append(f"27: {parts.graph.statistics().open} waits are open at rest")
    pools = parts.gateway.statistics().pools  # type: ignore[attr-defined]  # behind the port
    found += [f"38: a permit is held or waited for at rest: {one}" for one in pools if one.held or one.waiting]
    if parts.ledger.statistics().reservations:
        found.append(f"47: {parts.ledger.statistics().reservations} reservations are open at rest")
    running = [one for life in parts.lives.values() for one in life.calls.running.values() if not one.left_behind]
    found += [f"36: {one!r} runs at rest" for one in running]
    return found


async def _receipts(process: Process) -> list[str]:
    """Each receipt is where the store says, and comes to an end (ACC-1, ACC-2, ACC-9).

    Where a commit was written and told as failed, only that each hears of its end.
    """
    found = []
    for receipt in (*process.receipts, *process.posted):
        if receipt.state is ReceiptState.PENDING:
            found.append(f"3: {receipt!r} never heard what became of it")
            continue
        if receipt.state is ReceiptState.REFUSED or process.world.history.ambiguous:
            continue
        view = await process.store.bare.message_state(receipt.id)
        if view is None:
            found.append(f"1: {receipt!r} was accepted, and the store has no such message")
        elif view.state is not receipt.state:
            found.append(f"11: {receipt!r} is {view.state.value} in the store")
        elif view.state is ReceiptState.QUEUED:
            found.append(f"37: {receipt!r} still waits at rest")
        elif view.state is ReceiptState.CONSUMED and view.turn != receipt.turn:
            found.append(f"11: {receipt!r} names turn {receipt.turn}, the store {view.turn}")
    return found


async def _accounts(process: Process) -> list[str]:
    """A node has spent what it and its children have, and its row says so (47, 48), whatever was cut off (BUD-7)."""
    found = []
    parts = process.sup._parts
    rows = {row.agent: row for row in await process.sup.tree()}
    shots: dict[AgentId, Snapshot] = {}
    for path in rows:
        if path in parts.kernel.actors:
            shots[path] = parts.ledger.snapshot(path)
    for path, shot in shots.items():
        if _figures(rows[path].spent) != _figures(shot.own):
            found.append(f"47: the row of {path} has spent {rows[path].spent}, its account {shot.own}")
        kids = [other for other, row in rows.items() if row.parent == path]
        if all(kid in shots for kid in kids):
            total = shot.own
            for kid in kids:
                total += shots[kid].spent
            if total != shot.spent:
                found.append(f"47: {path} has spent {shot.spent}, its parts {total}")
        if not kids and shot.held != NOTHING:
            found.append(f"48: {path} holds {shot.held} at rest")
    return [*found, *_requests(process, tuple(rows.values()))]


def _requests(process: Process, rows: tuple[AgentRow, ...]) -> list[str]:
    """Each request that a model saw is accounted once (REQ-7), where that can be known."""
    world = process.world
    counted = sum(row.spent.model_calls for row in rows)
    if not exact(process):
        return []
    world.trace.count("lives with exact accounts")
    return (
        [] if counted == world.requests else [f"49: models saw {world.requests} requests, and {counted} are accounted"]
    )


def exact(process: Process) -> bool:
    """Whether each request is known to be accounted: one lost with its process is charged as it had reserved."""
    return not process.world.cut


def _figures(spent: object) -> tuple[object, ...]:
    names = ("input_tokens", "output_tokens", "cost", "model_calls", "tool_calls")
    return tuple(getattr(spent, name) for name in names)
