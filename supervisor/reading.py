"""What handles read of agents: as last known here, or from the store, never from a loop."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from actors.changes import Intake
from actors.errors import UnknownPath
from actors.mailbox import Mailbox
from actors.parking import PERSON
from actors.usage import NO_USAGE, NOTHING
from actors.watching import Subscription

from .life import read_conversation
from .pages import read_page
from .viewing import View

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from actors.actor import Actor
    from actors.changes import KeptResult
    from actors.ids import AgentId
    from actors.pages import Page
    from actors.transcript import Record

    from .ledger import LimitView
    from .parts import Parts
    from .store.base import StoredAgent


class Reading:
    """The verbs of handles that only read."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @asynccontextmanager
    async def _events(self, path: AgentId, after: str | None, *, follow: bool) -> AsyncIterator[Subscription]:
        board = self._parts.board
        watcher = Subscription(board.journal, path, after=after, follow=follow)
        board.add(watcher)
        actor = self._parts.kernel.actors.get(path)
        if path and not follow and (actor is None or not (actor.active or actor.owes)):
            watcher.end()
        try:
            yield watcher
        finally:
            board.remove(watcher)

    def events(self, path: AgentId, after: str | None, *, follow: bool) -> AbstractAsyncContextManager[Subscription]:
        """Watch an agent and all below it."""
        return self._events(path, after, follow=follow)

    def view(self, path: AgentId) -> View:
        """As last known here."""
        now = self._parts.kernel.now()
        actor = self._parts.kernel.actors.get(path)
        if actor is None:
            seen = self._parts.elsewhere.view(path)
            return View("unloaded", NO_USAGE, NOTHING, Mailbox().statistics(), now) if seen is None else seen
        return View(state_of(actor), actor.row.usage, actor.row.spent, actor.mailbox.statistics(), now)

    def budget(self, path: AgentId) -> tuple[LimitView, ...]:
        """The limits that bind it, as its accounts stand here."""
        ledger = self._parts.ledger
        return ledger.snapshot(path).limits if ledger.has(path) else ()

    async def snapshot(self, path: AgentId) -> View:
        """As the store has it now."""
        return self._parts.elsewhere.saw(await self._read(path))

    async def transcript(self, path: AgentId, *, archived: bool) -> tuple[Record, ...]:
        """The conversation, from the store."""
        store = self._parts.kernel.store
        stored = await self._stored(path)
        if archived:
            return await store.read_records(path)
        return tuple((await read_conversation(store, stored.row)).window())

    async def kept(self, path: AgentId) -> tuple[KeptResult, ...]:
        """The results that are kept whole."""
        return (await self._stored(path)).row.kept

    async def read_result(self, path: AgentId, reference: str, *, start: int, chars: int) -> Page:
        """A page of one."""
        stored = await self._stored(path)
        return await read_page(self._parts.kernel.store, stored.row, reference, start=start, chars=chars)

    async def _read(self, path: AgentId) -> StoredAgent:
        stored = await self._parts.kernel.store.load_agent(path)
        if stored is None:
            msg = f"there is no agent {path!r} in this store"
            raise UnknownPath(msg)
        return stored

    async def _stored(self, path: AgentId) -> StoredAgent:
        stored = await self._read(path)
        self._parts.elsewhere.saw(stored)
        return stored


def state_of(actor: Actor) -> str:
    """An actor's state in one word."""
    if actor.intake is not Intake.OPEN:
        return actor.intake.value
    if actor.suspended is not None:
        return actor.suspended if actor.suspended in PERSON else "suspended"
    if actor.active:
        return "running"
    return "held" if actor.mailbox.waiting else "idle"
