"""A new agent before it is committed: its row, its task, its account; and what becomes true as it lands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.changes import AgentRow, Enqueue, Intake, Put, Shut
from actors.content import Pinned, Trust, least
from actors.happenings import AgentStarted
from actors.ids import AgentId, tree_of
from actors.messages import Envelope, Lane

from .budgets import write_budget
from .staging import Birth
from .starting import task_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.changes import Operation

    from .parts import Parts
    from .roster import Place
    from .starting import Start


def new(parts: Parts, start: Start, path: AgentId, place: Place, *, forget: Callable[[], None]) -> Birth:
    """A new agent, with its account open; it is committed now, or with the result of the call that stages it.

    `forget`: takes back what is known of it by its key.
    """
    kernel, ledger = parts.kernel, parts.ledger
    budget = start.budget if start.budget is not None else start.agent.budget
    row = AgentRow(
        agent=path,
        parent=start.parent,
        name=start.agent.name,
        digest=start.agent.digest,
        budget=write_budget(budget),
        key=start.key,
        task_digest=start.task_digest(),
        background=start.background,
        started_by=start.call,
    )
    operations: tuple[Operation, ...] = (Put(row, fresh=True),)
    content, message = start.content(), None
    if content is not None:
        message = task_message(path)
        sender = AgentId(start.parent) if start.parent else None
        pinned, trust = isinstance(start.task, Pinned), trust_of(parts, start.parent)
        envelope = Envelope(message, path, Lane.SEND, content, sender, pinned=pinned, trust=trust)
        operations = (*operations, Enqueue(envelope, start.agent.limits.send))
    parent = kernel.actors.get(AgentId(start.parent)) if start.parent else None
    if parent is not None and parent.intake is not Intake.OPEN:
        operations = (*operations, Shut(path, Intake.CLOSING))  # CLS-1: it has its task, and accepts nothing new
    models = parts.models_of(start.agent)
    told = {"name": start.agent.name, "model": models[0].id if models else "", "key": start.key or ""}
    ledger.open(path, start.parent, budget, place=place)

    def born() -> None:
        if path not in kernel.actors and tree_of(path) in kernel.ownership.epochs:  # else the next owner's (PEER-1)
            kernel.settle_in_new(row, start.agent)
        kernel.tell(path, AgentStarted, told)

    def undone() -> None:
        ledger.ended(path)
        ledger.unspawn(place)
        forget()

    return Birth(path, message, row, operations, born, undone)


def trust_of(parts: Parts, path: str) -> Trust:
    """How far the words of an agent may be believed: as far as the least of what it has read; code is trusted.

    What its code was handed meanwhile counts, too: that is in no conversation yet.
    """
    actor = parts.kernel.actors.get(AgentId(path)) if path else None
    if actor is None:
        return Trust.TRUSTED
    row = actor.row if actor.loop is None else actor.loop.row
    return least(row.trust, parts.frames.heard(parts.own_frame()))
