"""The seams: what a model is, and what a loop needs of whoever hosts it.

A model is one async function that calls `emit` while it streams and returns the whole answer. There is no second,
not-streaming way: that is `emit` ignored.
"""

# ruff: noqa: D102 - the class docstring describes a Protocol's attributes

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from msgspec import Struct

from .budget import DEFAULT_LIMITS, Limits
from .conversation import Window
from .ids import AgentId, RequestId
from .transcript import ReasoningBlock, Stop, TextBlock
from .usage import Amounts, Usage

if TYPE_CHECKING:
    from .errors import ProviderError


class ToolOffer(Struct, frozen=True):
    """A tool as a model is told of it. `schema`: JSON text of its parameters' JSON Schema (an object)."""

    name: str
    description: str
    schema: str


ANSWER_TOOL: Final = "final_answer"
"""The tool that a model calls to give a structured answer, where its server has no other form for one."""


class OutputOffer(Struct, frozen=True):
    """The type that the answer owes. `schema`: JSON text of its JSON Schema.

    A wire asks for it in the form that its server takes: a response format, the tool `ANSWER_TOOL`, or words. The
    answer is read from text and from a call of that tool alike.
    """

    name: str
    schema: str


class ModelRequest(Struct, frozen=True):
    """What a model is asked; the same object for every attempt.

    Attributes:
        id: of the request; its attempts share it (REQ-6). agent: who asks.
        model: the bare model name, as the provider knows it.
        window: the conversation. tools: what may be called, in order. tool_choice: `auto`, `none` or `required`.
        notes: lines of the runtime for this request only, behind the window.
        max_output_tokens: a bound on the answer, or None.
        effort, tier: as selected, or None.
        purpose: `turn`, or `compaction` of a helper request that writes a summary.
    """

    id: RequestId
    agent: AgentId
    model: str
    instructions: str
    window: Window
    tools: tuple[ToolOffer, ...] = ()
    tool_choice: str = "auto"
    output: OutputOffer | None = None
    notes: tuple[str, ...] = ()
    max_output_tokens: int | None = None
    effort: str | None = None
    tier: str | None = None
    purpose: str = "turn"


class WireCall(Struct, frozen=True):
    """A tool call as a provider gave it. `arguments`: JSON text of an object, or the raw text where `invalid`."""

    wire_id: str
    name: str
    arguments: str
    invalid: str | None = None


class ReportedUsage(Struct, frozen=True):
    """Token counts as the wire gave them; None is unknown, which is not 0. Inclusive: cached is part of input."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    cache_write: int | None = None


class Response(Struct, frozen=True):
    """What a model answered, whole.

    Attributes:
        blocks: reasoning, text and calls in the order they came.
        usage: None where the server told none.
        model: as the server names it. request_id: the server's, or None.
    """

    blocks: tuple[ReasoningBlock | TextBlock | WireCall, ...]
    stop: Stop
    usage: ReportedUsage | None = None
    model: str = ""
    request_id: str | None = None


class TextPiece(Struct, frozen=True):
    """A piece of text."""

    text: str


class ReasoningPiece(Struct, frozen=True):
    """A piece of reasoning."""

    text: str


class BlockDone(Struct, frozen=True):
    """A block is whole: an interrupted response keeps it (TRN-8)."""

    block: ReasoningBlock | TextBlock | WireCall


class Alive(Struct, frozen=True):
    """The stream lives, but nothing came (a comment, a ping).

    Attributes:
        progress: something came that has no piece of its own (a call's arguments, usage): the peer is not only
        keeping the line open.
    """

    progress: bool = False


ALIVE: Final = Alive()
PROGRESS: Final = Alive(progress=True)

Piece: TypeAlias = TextPiece | ReasoningPiece | BlockDone | Alive
Emit: TypeAlias = Callable[[Piece], None]


class Model(Protocol):
    """Something that answers requests.

    Attributes:
        id: names model and place (`openai-chat:NAME@URL`); it keys permits, prices and opaque state.
        name: the bare model name, for prices and for `ModelRequest.model`.
        free: calls cost nothing unless priced (scripts, loopback servers).
        context_window: tokens, or None where not known.
    """

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def free(self) -> bool: ...
    @property
    def context_window(self) -> int | None: ...

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        """Ask once; no retry inside.

        Args:
            request: what is asked.
            emit: called for each piece as it comes; it never blocks and never raises.

        Raises:
            ProviderError: no whole answer came.

        If cancelled: the connection is closed before the cancellation goes on.
        """
        ...


def goes_along(before: Model, after: Model) -> bool:
    """Whether a conversation held by one model can be gone on with by another (SEL-2).

    Records are neutral, and opaque state stays with the model that made it (REQ-8), so any model can, unless one of the
    two says otherwise: by a method `compatible_with(other: Model) -> bool`.
    """
    for one, other in ((after, before), (before, after)):
        judge: Callable[[Model], bool] | None = getattr(one, "compatible_with", None)
        if judge is not None and not judge(other):
            return False
    return True


class Served(Struct, frozen=True):
    """A response with its accounting. `cost`: picodollars, None where no price is known."""

    response: Response
    usage: Usage
    cost: int | None
    attempts: int
    model: str


# -- the gateway: what a loop needs to ask a model ------------------------------------------------------------------


class Watch(Protocol):
    """Who is told what becomes of a request. Called by the task that asks; it never blocks and never raises."""

    def attempt(self, number: int, model_id: str, estimate: int) -> None:
        """An attempt is sent. `number`: from 1, over all models of the chain. `estimate`: input tokens."""

    def piece(self, piece: Piece) -> None:
        """Something of the answer came."""

    def discarded(self, error: ProviderError, retry_in_s: float | None) -> None:
        """The attempt failed: what came of it is void. `retry_in_s`: until the next one, None where none follows."""


class Ticket(Protocol):
    """A request that was let in: it holds a permit and a reservation until it is called or abandoned.

    Attributes:
        model: id of the model that is asked, or was asked last.
        held: what the next or open attempt has reserved; the record of the started request stores it.
        charged: what the ended attempts were charged, all of them together.
        usage: their tokens. cost_known: whether each of them had a price.
    """

    @property
    def model(self) -> str: ...
    @property
    def held(self) -> Amounts: ...
    @property
    def charged(self) -> Amounts: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def cost_known(self) -> bool: ...


class Gate(Protocol):
    """The one way to a model (REQ-1): trust, budget, admission, call, accounting.

    A ticket is used once. `call` and `abandon` end it on every path; after `call` an `abandon` does nothing, so
    that `finally: gate.abandon(ticket)` is always right.
    """

    def admit_nowait(
        self,
        agent: AgentId,
        models: tuple[Model, ...],
        request_bytes: int,
        *,
        max_output_tokens: int | None = None,
        wrap_up: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        within: Ticket | None = None,
    ) -> Ticket | None:
        """Let a request in if it need not wait for a place at its model.

        Args:
            agent: who asks and pays.
            models: the fallback chain, the first is asked first.
            request_bytes: about the size of the request, for the estimate.
            max_output_tokens: the bound that the request will carry, or None.
            wrap_up: the one last answer of an exhausted budget: it extends what binds, finitely, once per grant.
            limits: attempts and deadlines of the stream.
            within: the ticket under which this helper request is made: it takes no second permit (GAT-3).

        Returns:
            The ticket, or None where it would have to wait; then nothing is held.

        Raises:
            Exhausted: the budget of the agent or of one above it does not allow it.
            UsageError: no model, or no known price where a cost limit binds.
        """

    async def admit(
        self,
        agent: AgentId,
        models: tuple[Model, ...],
        request_bytes: int,
        *,
        max_output_tokens: int | None = None,
        wrap_up: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        within: Ticket | None = None,
    ) -> Ticket:
        """Like `admit_nowait`, but wait for a place.

        If cancelled: nothing is held.
        """
        ...

    async def call(self, ticket: Ticket, request: ModelRequest, watch: Watch) -> Served | None:
        """Ask: attempts, delays and fallbacks included.

        Returns:
            The answer with its own tokens and cost, or None: it was cut and stopped. What all attempts took is read
            from the ticket.

        Raises:
            ProviderError: of the last attempt.
            Exhausted: the budget ended between attempts, or its seconds while asking.

        If cancelled: what came so far is charged, the permit and the reservation are given back, and the
        cancellation goes on.
        """
        ...

    def cut(self, ticket: Ticket) -> None:
        """Account a call that is about to be cancelled, now, with what came of it so far (REQ-7).

        The ticket's `charged`, `usage` and `cost_known` hold when it returns; the call, once stopped, charges nothing
        more. Its permit is held until its stream has unwound.
        """

    def stop(self, ticket: Ticket | None) -> None:
        """Cancel the call of a ticket that was cut, if any: its stream, or its wait for another attempt, unwinds."""

    def abandon(self, ticket: Ticket) -> None:
        """Give back what an admitted ticket holds, where it was not called."""

    def beyond(self, agent: AgentId, written: Amounts) -> Amounts:
        """What an agent's account was charged beyond what its row says it spent, active time left out (BUD-7).

        Tool calls are none of it: those beyond were granted to an answer that was never written, and are given back.
        """
        ...


class Hold(Protocol):
    """A reservation that is open until it is settled or released."""

    @property
    def agent(self) -> AgentId: ...


class Spending(Protocol):
    """Accounts in a tree, for what a loop spends beside model calls: tool calls, active time."""

    def reserve(self, agent: AgentId, asked: Amounts) -> Hold:
        """Hold an estimate along the whole chain, all or nothing (BUD-2).

        Raises:
            Exhausted: a limit of the agent or of one above it does not allow it; nothing is held.
        """
        ...

    def settle(self, hold: Hold, actual: Amounts) -> Amounts:
        """Turn a hold into spending. Returns what it exceeds the estimate by."""
        ...

    def release(self, hold: Hold) -> None:
        """Give a hold back unspent."""

    def charge(self, agent: AgentId, amounts: Amounts) -> None:
        """Record what was spent already; it is never refused."""
