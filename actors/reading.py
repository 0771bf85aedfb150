"""What is read of an agent: as last known here, or from the store, never from its loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .pages import PAGE_CHARS

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from decimal import Decimal

    from .budget import Dimension
    from .changes import KeptResult
    from .ids import AgentId
    from .mailbox import MailboxStatistics
    from .pages import Page
    from .transcript import Record
    from .usage import Amounts, Usage
    from .watching import Subscription


# ruff: noqa: D102 - the handle's own methods say what each verb of the Protocols does


class Reads(Protocol):
    """The supervisor, as whoever reads of an agent sees it."""

    def events(
        self, path: AgentId, after: str | None, *, follow: bool
    ) -> AbstractAsyncContextManager[Subscription]: ...
    def view(self, path: AgentId) -> AgentView: ...
    def budget(self, path: AgentId) -> tuple[BudgetLimit, ...]: ...
    async def snapshot(self, path: AgentId) -> AgentView: ...
    async def transcript(self, path: AgentId, *, archived: bool) -> tuple[Record, ...]: ...
    async def kept(self, path: AgentId) -> tuple[KeptResult, ...]: ...
    async def read_result(self, path: AgentId, reference: str, *, start: int, chars: int) -> Page: ...


class AgentView(Protocol):
    """An agent as last known here, or as read from the store."""

    @property
    def state(self) -> str: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def spent(self) -> Amounts: ...
    @property
    def mailbox(self) -> MailboxStatistics: ...
    @property
    def as_of(self) -> float: ...


class BudgetLimit(Protocol):
    """A limit that binds an agent, as a budget has it: dollars, seconds, counts.

    `node`: whose it is, `/` for the supervisor's. `used`: spent and held by it and all below. `left`: 0 or more.
    """

    @property
    def node(self) -> AgentId: ...
    @property
    def dimension(self) -> Dimension: ...
    @property
    def limit(self) -> Decimal | int: ...
    @property
    def used(self) -> Decimal | int: ...
    @property
    def left(self) -> Decimal | int: ...


class AgentReads:
    """The half of a handle that reads."""

    __slots__ = ("_path", "_reads")

    def __init__(self, reads: Reads, path: AgentId) -> None:
        self._reads = reads
        self._path = path

    @property
    def path(self) -> AgentId:
        """`lead/reviewer#2`."""
        return self._path

    def events(self, *, after: str | None = None, follow: bool = False) -> AbstractAsyncContextManager[Subscription]:
        """Watch the agent and all below it: `async with ref.events() as events: async for event in events: …`.

        First comes what the supervisor's journal holds, without deltas and progress; then what happens, with them.

        Args:
            after: the `position` of an earlier watch of it: go on behind that (EVT-3). `now`: only what comes. A gap is
                `Missed(count=n)`; so is a position of an earlier run of the program, or an unknown one: `count=None`.
            follow: go on after the run it was opened in.

        A watcher never slows an agent: one that is too slow gets `Missed(count=n)`.
        """
        return self._reads.events(self._path, after, follow=follow)

    @property
    def state(self) -> str:
        """As last known here: `idle`, `running`, `held`, `approval`, `paused`, `suspended`, `closing` or `closed`.

        Of an agent that another process runs: as it was read last; `unloaded` where it was not.
        """
        return self._reads.view(self._path).state

    @property
    def usage(self) -> Usage:
        """The agent's own tokens, as last known here."""
        return self._reads.view(self._path).usage

    @property
    def budget(self) -> tuple[BudgetLimit, ...]:
        """The limits that bind the agent, its own first, then those above it, as last known here (BUD-1).

        What a limit has left is what the agent may still use of it, with all others that it binds. None where nothing
        is limited, and of an agent whose tree is not run here: its owner keeps the accounts.
        """
        return self._reads.budget(self._path)

    def statistics(self) -> AgentView:
        """All but the budget of the above with `as_of`, seconds on the supervisor's clock."""
        return self._reads.view(self._path)

    async def snapshot(self) -> AgentView:
        """Read the same from the store, never from the loop: what is committed, whichever process runs the agent.

        Raises:
            UnknownPath: it is not in the store. StoreError: it could not be read.
        """
        return await self._reads.snapshot(self._path)

    async def transcript(self, *, archived: bool = False) -> tuple[Record, ...]:
        """Read the conversation from the store, never from the loop.

        Args:
            archived: every record ever, what compactions replaced included, in order (CMP-4); else those in force.
        """
        return await self._reads.transcript(self._path, archived=archived)

    async def kept(self) -> tuple[KeptResult, ...]:
        """List the tool results that were too long to be shown and are kept whole, oldest first (TOL-8)."""
        return await self._reads.kept(self._path)

    async def read_result(self, reference: str, *, start: int = 0, chars: int = PAGE_CHARS) -> Page:
        """Read a page of a result that is kept whole (TOL-8).

        Args:
            reference: as the line about what is missing says it, or the id of the call.
            start: the first character.
            chars: how many, at most.

        Raises:
            UsageError: nothing is kept under this reference, or the page begins outside of it.
        """
        return await self._reads.read_result(self._path, reference, start=start, chars=chars)
