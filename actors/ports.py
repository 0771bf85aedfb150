"""The seams: what a model is, and what a loop needs of whoever hosts it.

A model is one async function that calls `emit` while it streams and returns the whole answer. There is no second,
not-streaming way: that is `emit` ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import attrs

from .ids import AgentId, RequestId
from .transcript import Block, ReasoningBlock, Stop, TextBlock, Window

if TYPE_CHECKING:
    from .usage import Usage


@attrs.frozen
class ToolOffer:
    """A tool as a model is told of it. `schema`: JSON text of its parameters' JSON Schema (an object)."""

    name: str
    description: str
    schema: str


@attrs.frozen
class OutputOffer:
    """The type that the answer owes. `schema`: JSON text of its JSON Schema."""

    name: str
    schema: str


@attrs.frozen
class ModelRequest:
    """What a model is asked; the same object for every attempt.

    Attributes:
        id: of the request; its attempts share it (REQ-6). agent: who asks.
        model: the bare model name, as the provider knows it.
        window: the conversation. tools: what may be called, in order. tool_choice: `auto`, `none` or `required`.
        notes: lines of the runtime for this request only, behind the window.
        max_output_tokens: a bound on the answer, or None.
        effort, tier: as selected, or None.
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


@attrs.frozen
class WireCall:
    """A tool call as a provider gave it. `arguments`: JSON text of an object, or the raw text where `invalid`."""

    wire_id: str
    name: str
    arguments: str
    invalid: str | None = None


@attrs.frozen
class ReportedUsage:
    """Token counts as the wire gave them; None is unknown, which is not 0. Inclusive: cached is part of input."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    cache_write: int | None = None


@attrs.frozen
class Response:
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


@attrs.frozen
class TextPiece:
    """A piece of text."""

    text: str


@attrs.frozen
class ReasoningPiece:
    """A piece of reasoning."""

    text: str


@attrs.frozen
class BlockDone:
    """A block is whole: an interrupted response keeps it (TRN-8)."""

    block: ReasoningBlock | TextBlock | WireCall


@attrs.frozen
class Alive:
    """The stream lives, but nothing came (a comment, a ping)."""


ALIVE: Final = Alive()

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


@attrs.frozen
class Served:
    """A response with its accounting. `cost`: picodollars, None where no price is known."""

    response: Response
    usage: Usage
    cost: int | None
    attempts: int
    model: str


def block_of(block: ReasoningBlock | TextBlock | WireCall) -> Block | None:
    """The block as the transcript keeps it; None for a call, which needs an id first."""
    return None if isinstance(block, WireCall) else block
