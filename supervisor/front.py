"""The supervisor as people hold it: start, run, find, resume, watch, grant."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, final

import trio

from actors.budget import Budget
from actors.changes import Put
from actors.content import check_text
from actors.errors import UsageError
from actors.ids import AgentId, MessageId, tree_of
from actors.parking import BUDGET
from actors.ref import AgentRef

from .budgets import grant_row
from .letters import Letters
from .remote import Remote
from .roster import TOP
from .starting import Start, task_message
from .waking import take, wake, wake_tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from actors.agent import Agent
    from actors.changes import AgentRow
    from actors.messages import DeadLetter
    from actors.ref import Receipt
    from actors.reports import Report
    from actors.watching import Subscription

    from .approval import Approval
    from .models import Models
    from .parts import Parts
    from .store.base import Store

EVERYTHING: Final = AgentId("")


@final
class Supervisor:
    """Agents, their trees, and what they share. Opened by `open_supervisor`.

    Attributes:
        store: what it keeps its agents in.
    """

    def __init__(self, parts: Parts, models: Models) -> None:
        self._parts = parts
        self._models = models
        self._letters = Letters(parts)
        self._remote = Remote(parts)

    @property
    def store(self) -> Store:
        """What it keeps its agents in."""
        return self._parts.kernel.store

    async def start(
        self,
        agent: Agent,
        task: object = None,
        *,
        key: str | None = None,
        budget: Budget | None = None,
    ) -> AgentRef:
        """Start a root agent; it lives in the supervisor.

        Args:
            agent: which.
            task: its first message, or None.
            key: the same key is the same agent, also after a restart.
            budget: what it and all below it may spend; the agent's own where not given.

        Returns:
            Its handle: alive, its task accepted.

        Raises:
            UsageError: no model, the key was used with another task, or the supervisor was left. StoreError.

        Durable: the agent and its task.
        """
        self._parts.check_open()
        start = Start(agent, task, key=key, budget=budget)
        self._models.check(agent)
        started = await self._parts.children.start(start)
        return self._ref(started.path)

    async def run(
        self,
        agent: Agent,
        task: object,
        *,
        key: str | None = None,
        budget: Budget | None = None,
    ) -> Report:
        """Start an agent, wait for its report: it lives in the caller's scope.

        With `key`, the same key goes on where it was, or returns the stored report of this task, whatever the agent was
        asked since.

        Raises:
            UsageError, LifecycleError, StoreError: see `start`; every outcome of the run itself is a report.

        If cancelled: the subtree is suspended (in memory: aborted) within the grace before the cancellation goes on.
        """
        ref = await self.start(agent, task, key=key, budget=budget)
        try:
            if key is not None:
                answered = await self._answered(ref.path)
                if answered is not None:
                    return answered
                await wake_tree(self._parts, ref.path)
            last = await ref.wait_report()
            return await self._answered(ref.path) or last
        except trio.Cancelled:
            await self._leave_scope(ref.path)  # noqa: ASYNC102 - it is bounded where it waits, or does not wait at all
            raise

    async def _answered(self, path: AgentId) -> Report | None:
        """The report of the turn that answered an agent's task, whatever it was asked since."""
        store = self._parts.kernel.store
        view = await store.message_state(task_message(path))
        row = None if view is None or view.turn is None else await store.outcome(view.turn)
        return None if row is None else self._parts.desk.report(row.outcome)

    async def _leave_scope(self, path: AgentId) -> None:
        options = self._parts.options
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + options.grace_s + options.hard_s + 1  # the cut-off is at the grace
            await self._parts.exits.give_up(path)

    async def find(self, path: str) -> AgentRef:
        """The handle of an agent of the store; a tree that nobody runs is taken, and goes on (SUP-6).

        Raises:
            UnknownPath: there is none. SpecMissing: its spec is not in the registry.
        """
        check_text(path, "the path of an agent, such as 'lead/reviewer',")
        await self._remote.here(AgentId(path))
        return self._ref(AgentId(path))

    @asynccontextmanager
    async def approvals(self) -> AsyncIterator[AsyncIterator[Approval]]:
        """Open an inbox of calls that wait for approval, in all trees of the store, from before too (TOL-12).

        `async with sup.approvals() as inbox: async for request in inbox: await request.approve()`. While one is open,
        `run` and `wait_*` wait for the decisions; while none is, they return reports with the status `parked`.

        Raises:
            StoreError: the store cannot be read.
        """
        with self._parts.approvals.open() as inbox:
            await self._parts.approvals.find()
            yield inbox

    async def resume(self) -> tuple[AgentRef, ...]:
        """Go on with all that the store owes: cut off, queued, suspended. One indexed read finds it (REC-2).

        Trees that another process runs are left to it; one that ended without giving them back is taken from when its
        lease is over, or at once where its process is known to be gone.

        Returns:
            The handles of the agents that have work; one whose spec is missing stays suspended, and is listed too.
        """
        found = await self._parts.kernel.store.agents_with_work()
        await take(self._parts, found)
        mine = [path for path in found if await wake(self._parts, path)]
        self._doubted(found)
        return tuple(self._ref(path) for path in mine)

    def _doubted(self, found: tuple[AgentId, ...]) -> None:
        """Agents here whose last commit failed, and which the store says owe nothing: it was written (ACC-2).

        They read their rows anew, and end what they believe to be under way.
        """
        for actor in tuple(self._parts.kernel.actors.values()):
            if actor.suspended == "store" and actor.path not in found:
                actor.suspended = None
                actor.wake()

    def events(self, *, after: str | None = None) -> AbstractAsyncContextManager[Subscription]:
        """Watch everything, until the supervisor is left. `after`: as for `AgentRef.events`."""
        return self._parts.desk.events(EVERYTHING, after, follow=True)

    async def grant(self, ref: AgentRef | str, more: Budget, *, by: str) -> None:
        """Raise a budget: what is set in `more` is added to the limits of the node (BUD-5).

        Args:
            ref: whose budget; `"/"` is the supervisor's.
            more: what is added.
            by: who grants it, for the record.

        Raises:
            UsageError: it names nothing, or a dimension that has no limit there. StoreError.

        Durable: the grant, on return; one to the supervisor's budget ends with the supervisor.
        """
        path = _path(ref)
        check_text(by, "by= says who grants it: it")
        if not isinstance(more, Budget):
            raise UsageError(f"what is granted is a Budget, such as Budget(tokens=10_000); got {more!r}")
        kernel = self._parts.kernel
        if path == TOP:  # the supervisor's own, which lives as long as it does
            self._parts.ledger.grant(path, more, by=by)
            below = tuple(kernel.actors)
        else:
            await kernel.resident(path)
            granted = self._parts.ledger.grant(path, more, by=by)
            await kernel.commit(tree_of(path), (Put(grant_row(path, granted.number, more, by)),))
            below = self._parts.stopping.below(path)
            self._parts.stages.granted(path)
        for other in below:
            found = kernel.actors[other]
            if found.suspended == BUDGET:
                found.suspended = None
                found.wake()

    async def dead_letters(self, path: AgentRef | str | None = None) -> tuple[DeadLetter, ...]:
        """List messages that were accepted and will not be answered, in order of acceptance per agent (CON-6).

        Args:
            path: of an agent: its own and those of all below it; None: the whole store's. At most 1,000 are listed.
        """
        return await self._letters.dead(None if path is None else _path(path))

    async def put_back(self, message: str, *, by: str) -> Receipt:
        """Queue a dead letter again, at its old place; what its time to live was counts no more.

        Args:
            message: its id.
            by: who puts it back, for the record: it is kept with the message, and an event.

        Returns:
            Its receipt; receipts that its sender still holds live again too.

        Raises:
            UsageError: it is no dead letter. AgentClosed: its agent accepts nothing any more. StoreError.

        Durable: that it waits, on return.
        """
        check_text(message, "the id of a message, such as `receipt.id`,")
        check_text(by, "by= says who puts it back: it")
        return await self._letters.put_back(MessageId(message), by)

    async def receipt(self, message: str) -> Receipt:
        """The receipt of a message, whoever sent it and whenever; it can wait for the reply (ACC-9).

        Raises:
            UsageError: the store has no such message. StoreError.
        """
        check_text(message, "the id of a message, such as `receipt.id`,")
        return await self._letters.receipt(MessageId(message))

    async def tree(self) -> tuple[AgentRow, ...]:
        """The rows of every agent of the store, parents first."""
        store = self._parts.kernel.store
        rows: list[AgentRow] = []
        after = None
        while page := await store.roots(after=after):
            for root in page:
                rows += await store.tree_rows(tree_of(root.agent))
            after = page[-1].agent
        return tuple(rows)

    def suspend(self) -> None:
        """Ask every turn to stop at its next commit; leaving then is quick. Sync: for a signal handler's task."""
        self._parts.leaving = "suspend"
        for actor in tuple(self._parts.kernel.actors.values()):
            if actor.loop is not None:
                actor.loop.suspend()

    async def wait_suspended(self, grace: float) -> None:
        """Wait until nothing runs; past `grace` seconds cut off what still does."""
        parts = self._parts
        await parts.exits.suspend(tuple(parts.kernel.actors), grace)

    async def abort_all(self, reason: str) -> None:
        """Abort every tree."""
        for path in tuple(self._parts.kernel.actors):
            if "/" not in path:
                await self._parts.stopping.abort(path, reason, subtree=True)

    def _ref(self, path: AgentId) -> AgentRef:
        return AgentRef(self._parts.desk, path)

    def __repr__(self) -> str:
        return f"<Supervisor of {len(self._parts.kernel.actors)} agents in {self.store!r}>"


def _path(ref: AgentRef | str) -> AgentId:
    """The path that a handle stands for, or that is written out."""
    if isinstance(ref, AgentRef):
        return ref.path
    check_text(ref, "an agent is named by its handle or its path, which")
    return AgentId(ref)
