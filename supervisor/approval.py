"""A request for approval as people hold it, and the inbox that hands requests out (TOL-12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, final

import attrs
import trio

from actors.content import check_text
from actors.ids import AgentId, CallId
from actors.messages import Decision, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping


class Deciding(Protocol):
    """Who accepts decisions (`approvals.py`)."""

    @property
    def pending(self) -> Mapping[CallId, Approval]:
        """The open requests, oldest first."""
        ...

    @property
    def changed(self) -> trio.Event:
        """Set when a request comes, or when it is over."""
        ...

    @property
    def over(self) -> bool:
        """Whether the supervisor was left."""
        ...

    async def decide(self, request: Approval, decision: Decision) -> None:
        """Accept a decision, durably, if it is the first."""


@final
@attrs.frozen(eq=False)
class Approval:
    """A call that waits for a person.

    Attributes:
        path: whose call it is. tool: its name. call_id: of the call, and so of the request.
        arguments: what it will run with, defaults included; changing this changes nothing.
        reason: `tool`: its tool asks for approval; `repeat`: one like it ended with its outcome unknown (TOL-3).
        asked_at, expires: seconds of the time of day (Unix); `expires` is None for never.
    """

    path: AgentId
    tool: str
    arguments: dict[str, Any]
    call_id: CallId
    reason: str
    asked_at: float
    expires: float | None
    _deciding: Deciding = attrs.field(repr=False)

    async def approve(self, *, by: str = "") -> None:
        """Let the call run, with these very arguments.

        Args:
            by: who decides, for the record.

        Raises:
            UsageError: it was decided already (the message says how), it needs no decision any more, an agent's own
            code asks, or `by` is no text. StoreError.

        If cancelled: it is decided or not, all or none.

        Durable: the decision, on return.
        """
        check_text(by, "by= says who decides: it")
        await self._deciding.decide(self, Decision(Verdict.APPROVED, by))

    async def deny(self, message: str = "", *, by: str = "") -> None:
        """Let the call not run; the model reads why.

        Args:
            message: for the model.
            by: who decides, for the record.

        Raises, cancelled, durable: as for `approve`.
        """
        check_text(message, "what the model reads of a denial")
        check_text(by, "by= says who decides: it")
        await self._deciding.decide(self, Decision(Verdict.DENIED, by, message))


@final
class Inbox:
    """The requests for approval that are open, oldest first, then those that come; each is handed out once.

    It ends when the supervisor is left.
    """

    def __init__(self, deciding: Deciding) -> None:
        self._deciding = deciding
        self._seen: set[CallId] = set()

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> Approval:
        await trio.lowlevel.checkpoint()
        while not self._deciding.over:
            pending = self._deciding.pending
            self._seen.intersection_update(pending)
            for call, request in pending.items():
                if call not in self._seen:
                    self._seen.add(call)
                    return request
            await self._deciding.changed.wait()
        raise StopAsyncIteration

    def __repr__(self) -> str:
        return f"<Inbox {len(self._deciding.pending)} open>"
