"""A request on its way through the gateway: the ticket, and the attempt that is open under it.

Both keep books and move deadlines; neither waits, decides or reserves.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from actors.ids import AgentId, RequestId
from actors.ports import BlockDone, ReasoningPiece, TextPiece, WireCall
from actors.usage import NO_USAGE, NOTHING, Amounts, Price, Usage

from .gate import Estimator
from .pools import Pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.budget import Limits
    from actors.ports import Model, Piece, Watch

    from .ledger import Reservation

SLACK_SHARE: Final = 1 / 8
SLACK_MAX_S: Final = 1.0
"""The idle deadline moves in steps, for moving it costs more than a piece does: a stall is found so much later."""
SECONDS_SLACK_S: Final = 1.0
"""How long behind the budget's seconds a stream is ended here: its turn is cut at them, and keeps what had come."""


@attrs.frozen
class Book:
    """What the gateway keeps of all models of one id."""

    id: str
    pool: Pool
    estimator: Estimator
    price: Price | None


@attrs.frozen(kw_only=True)
class Accounted:
    """An attempt that was accounted, once (REQ-7).

    Attributes:
        request, number: together they are unique. outcome: `ok`, `failed` or `cut`. error: its kind and reason.
        usage: tokens, estimated where nobody reported them. cost: picodollars, None where no price is known.
        overrun: what it took more than was reserved for it.
        latency_s: from sending to the end. queued_s: of the request, waiting for a permit.
    """

    request: RequestId | None
    number: int
    agent: AgentId
    model: str
    outcome: str
    error: str | None
    usage: Usage
    cost: int | None
    overrun: Amounts
    latency_s: float
    queued_s: float


class State(enum.Enum):
    """Where a ticket is."""

    ADMITTED = "admitted"
    CALLED = "called"
    ENDED = "ended"


@final
class GateTicket:
    """A request that was let in: an `actors.ports.Ticket`.

    TICKET-1 it holds a permit of its own model's pool or none, and gives it back once.
    TICKET-2 what is reserved for it is settled or released once.
    """

    __slots__ = (
        "agent",
        "attempt",
        "book",
        "borrowed",
        "chain",
        "charged",
        "cost_known",
        "cut",
        "estimate",
        "has_permit",
        "held",
        "limits",
        "max_output_tokens",
        "models",
        "pause",
        "place",
        "queued_s",
        "request_bytes",
        "reservation",
        "state",
        "usage",
    )

    def __init__(
        self,
        agent: AgentId,
        models: tuple[Model, ...],
        chain: tuple[Book, ...],
        request_bytes: int,
        max_output_tokens: int | None,
        limits: Limits,
        *,
        borrowed: bool,
    ) -> None:
        self.agent = agent
        self.models = models
        self.chain = chain
        self.place = 0
        self.book = chain[0]
        self.request_bytes = request_bytes
        self.max_output_tokens = max_output_tokens
        self.limits = limits
        self.borrowed = borrowed
        self.has_permit = False
        self.estimate = 0
        self.held = NOTHING
        self.reservation: Reservation | None = None
        self.attempt: Attempt | None = None
        self.pause: trio.CancelScope | None = None  # of a wait between two attempts
        self.state = State.ADMITTED
        self.cut = False
        self.charged: Amounts = NOTHING
        self.usage: Usage = NO_USAGE
        self.cost_known = True
        self.queued_s = 0.0

    @property
    def model(self) -> str:
        """Id of the model that is asked, or was asked last."""
        return self.book.id

    def count(self, usage: Usage, cost: int | None, spent: Amounts) -> None:
        """Add an ended attempt."""
        if self.charged is NOTHING:
            self.usage, self.charged = usage, spent
        else:
            self.usage, self.charged = self.usage + usage, self.charged + spent
        if cost is None and usage.total_tokens:
            self.cost_known = False

    def stop(self) -> None:
        """Cancel what it waits for: an attempt, or the pause before the next."""
        for scope in (self.pause, None if self.attempt is None else self.attempt.scope):
            if scope is not None:
                scope.cancel()

    def __repr__(self) -> str:
        return f"<GateTicket {self.agent} at {self.model}, {self.state.value}, held {self.held}>"


class Expired(enum.Enum):
    """Which deadline ended an attempt."""

    FIRST = "nothing came within {0:g} s"
    IDLE = "nothing more came for {0:g} s"
    BUDGET = "the budget's seconds were used up"


@final
class Attempt:
    """One try at a request, with the two deadlines of its stream (REQ-5) and the budget's.

    Until something of the answer comes, signs of life move the idle deadline only; after it, everything does.
    """

    __slots__ = (
        "_between",
        "_budget_at",
        "_clock",
        "_first_at",
        "_moved_at",
        "_pending",
        "_size",
        "_slack",
        "_watch",
        "began",
        "number",
        "open",
        "request",
        "scope",
        "started_at",
    )

    def __init__(
        self,
        request: RequestId,
        number: int,
        limits: Limits,
        *,
        budget_at: float,
        watch: Watch,
        clock: Callable[[], float],
    ) -> None:
        self.request = request
        self.number = number
        self.started_at = now = clock()
        self._first_at = now + limits.first_event_s
        self._budget_at = budget_at + SECONDS_SLACK_S
        self._between = limits.between_events_s
        self._slack = min(self._between * SLACK_SHARE, SLACK_MAX_S)
        self._moved_at = float("-inf")
        self._clock = clock
        self._watch = watch
        self._size = self._pending = 0
        self.began = False
        self.open = True
        self.scope = trio.CancelScope(deadline=min(self._first_at, self._budget_at))

    @property
    def output_bytes(self) -> int:
        """About the size of what has come."""
        return self._size + self._pending

    def emit(self, piece: Piece) -> None:
        """Something came: count it, move the idle deadline, pass it on."""
        fresh = False
        match piece:
            case TextPiece(text=text) | ReasoningPiece(text=text):
                self._pending += len(text)
                fresh = not self.began
            case BlockDone(block=block):
                size = len(block.name) + len(block.arguments) if isinstance(block, WireCall) else len(block.text)
                self._size += max(size, self._pending)  # its pieces came before, or it came whole
                self._pending = 0
                fresh = not self.began
            case _:
                pass
        now = self._clock()
        if fresh:
            self.began = True
        if fresh or now > self._moved_at + self._slack:
            self._moved_at = now
            idle_at = now + self._between + self._slack
            self.scope.deadline = min(idle_at if self.began else min(idle_at, self._first_at), self._budget_at)
        self._watch.piece(piece)

    def expired(self) -> Expired:
        """Which deadline it was, once the scope has been cancelled by one."""
        if self._clock() >= self._budget_at:
            return Expired.BUDGET
        return Expired.FIRST if not self.began and self._clock() >= self._first_at else Expired.IDLE
