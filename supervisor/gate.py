"""The rules of a model call: what it may cost, what it did cost, whether to try again, and what was asked.

Pure: no clock, no dice, no I/O. Estimates err on the safe side, for a budget that is reserved too large is given back
in a moment, and one reserved too small is spent twice. They learn from what servers report.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from actors.errors import ContextOverflow, Overloaded, ProviderError, Rejected, UsageError
from actors.transcript import (
    CallBlock,
    MessageRecord,
    NoteRecord,
    ReasoningBlock,
    ResponseRecord,
    ResultRecord,
    SummaryRecord,
    TextBlock,
)
from actors.usage import FREE, Price, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actors.ports import Model, ModelRequest, ReportedUsage
    from actors.transcript import Block, Record

# -- what a call may cost ----------------------------------------------------------------------------------------------

FIRST_RATIO: Final = 1 / 3
"""Tokens per byte before a model has told anything: English needs about 1/4, code and other scripts more."""
RATIO_MAX: Final = 4.0
BASE_TOKENS: Final = 16
FIRST_OUTPUT: Final = 4096
OUTPUT_MIN: Final = 256
OUTPUT_MARGIN: Final = 1.25
GAIN: Final = 1 / 4
DECAY: Final = 1 / 16


class Estimator:
    """What requests to one model take, learned from what it reported.

    The ratio of tokens to bytes is a weighted mean with its mean deviation, as round-trip times are estimated; the
    bound on output follows a maximum that decays.
    """

    __slots__ = ("_deviation", "_high", "_ratio", "observed")

    def __init__(self) -> None:
        self._ratio = FIRST_RATIO
        self._deviation = 0.0
        self._high = float(FIRST_OUTPUT)
        self.observed = 0

    def input_tokens(self, request_bytes: int) -> int:
        """Tokens that a request of this size is expected to need, at most."""
        return BASE_TOKENS + math.ceil(request_bytes * (self._ratio + 2 * self._deviation))

    def output_tokens(self, max_output_tokens: int | None) -> int:
        """Tokens that an answer is expected to need, at most: its bound, where the request carries one."""
        if max_output_tokens is not None:
            return max_output_tokens
        return max(OUTPUT_MIN, math.ceil(self._high * OUTPUT_MARGIN))

    def observe(self, request_bytes: int, reported: ReportedUsage) -> None:
        """Learn from an answer; what it did not report teaches nothing."""
        if reported.input is not None and request_bytes > 0:
            ratio = min(reported.input / request_bytes, RATIO_MAX)
            if self.observed == 0:
                self._ratio, self._deviation = ratio, ratio / 8
            else:
                error = ratio - self._ratio
                self._ratio += error * GAIN
                self._deviation += (abs(error) - self._deviation) * GAIN
            self.observed += 1
        if reported.output is not None:
            self._high = max(reported.output, self._high + (reported.output - self._high) * DECAY)

    def __repr__(self) -> str:
        return f"<Estimator {self._ratio:.3f}±{self._deviation:.3f} tokens per byte, output to {self._high:.0f}>"


def price_of(model: Model, prices: Mapping[str, Price]) -> Price | None:
    """The price of a model, by its id or its name; nothing for one that is free; None where it is not known (BUD-9)."""
    price = prices.get(model.id) or prices.get(model.name)
    return FREE if price is None and model.free else price


def estimated_cost(price: Price | None, input_tokens: int, output_tokens: int) -> int:
    """What a call may cost, in picodollars: all input at the dearest class that nothing has ruled out."""
    if price is None:
        return 0
    dearest = price.input if price.cache_write is None else max(price.input, price.cache_write)
    return input_tokens * dearest + output_tokens * price.output


def no_price(model: Model, node: str) -> UsageError:
    """The refusal of a model without a price where a cost limit binds (BUD-9)."""
    return UsageError(
        f"{node} has a limit in dollars, but no price of {model.name!r} is known; set it with"
        f" open_supervisor(prices={{{model.name!r}: Price(input='…', output='…')}}) in dollars per million tokens,"
        " or bound the budget in tokens"
    )


# -- what it did cost --------------------------------------------------------------------------------------------------

BYTES_PER_TOKEN: Final = 3
"""For output whose tokens nobody counted; the safe side of about 4."""


def usage_of(reported: ReportedUsage | None, estimate: int, output_bytes: int) -> Usage:
    """Inclusive counts as disjoint classes; what is unknown is estimated.

    Args:
        reported: as the wire gave it, or None.
        estimate: input tokens expected.
        output_bytes: about the size of what came.
    """
    guessed = -(-output_bytes // BYTES_PER_TOKEN)
    if reported is None:
        return Usage(fresh=estimate, visible=guessed)
    total_in = estimate if reported.input is None else max(reported.input, 0)
    total_out = guessed if reported.output is None else max(reported.output, 0)
    if not (reported.cached or reported.cache_write or reported.reasoning):  # the usual case
        return Usage(total_in, 0, 0, total_out)
    cached = min(max(reported.cached or 0, 0), total_in)
    write = min(max(reported.cache_write or 0, 0), total_in - cached)
    reasoning = min(max(reported.reasoning or 0, 0), total_out)
    return Usage(total_in - cached - write, cached, write, total_out - reasoning, reasoning)


def usage_of_failed(error: ProviderError | None, estimate: int, output_bytes: int) -> Usage:
    """What an attempt without a whole answer took: nothing where the server turned it away before it began.

    Args:
        error: how it failed; None for one that was cancelled after it was sent.
        estimate: input tokens expected.
        output_bytes: about the size of what came.
    """
    if error is not None and output_bytes == 0:
        turned_away = isinstance(error, Rejected | Overloaded | ContextOverflow) or error.reason == "connection"
        if turned_away:
            return Usage()
    return usage_of(None, estimate, output_bytes)


# -- whether to try again ----------------------------------------------------------------------------------------------

FIRST_DELAY_S: Final = 0.5
DELAY_MAX_S: Final = 8.0
SERVER_DELAY_MAX_S: Final = 60.0
"""A server that asks for more is not waited for: its answer is told at once, or the next model is asked."""
REQUEST_SIDE: Final = frozenset(
    {"bad_request", "cancelled", "content_filter", "invalid_request", "request_too_large", "script"}
)
"""Reasons of a `Rejected` that lie in the request, so that another model would refuse it too."""


class Again(Struct, frozen=True):
    """Try the same model again. `delay_s`: after so many seconds."""

    delay_s: float


class GiveUp(Struct, frozen=True):
    """Do not try this model again. `reason`: why, in words."""

    reason: str


Verdict: TypeAlias = Again | GiveUp


def next_delay(
    error: ProviderError, attempt: int, attempts: int, *, now: float, deadline: float, unit: float
) -> Verdict:
    """Whether and when to try again (REQ-4).

    Args:
        error: how the attempt failed.
        attempt: its number at this model, from 1.
        attempts: how many there may be.
        now: seconds on the clock of `deadline`.
        deadline: when the next attempt must have begun.
        unit: a die from 0 to 1.
    """
    if not error.retryable:
        return GiveUp("it cannot pass by asking again")
    if attempt >= attempts:
        return GiveUp(f"{attempts} attempts were made")
    if error.retry_after_s is not None:
        if error.retry_after_s > SERVER_DELAY_MAX_S:
            return GiveUp(f"the server asks to wait {error.retry_after_s:g} s, more than {SERVER_DELAY_MAX_S:g} s")
        delay = max(error.retry_after_s, 0.0) + unit * FIRST_DELAY_S  # never earlier than the server asks
    else:
        delay = unit * min(DELAY_MAX_S, FIRST_DELAY_S * 2.0 ** min(attempt - 1, 16))
    if now + delay >= deadline:
        return GiveUp(f"the next attempt in {delay:.1f} s would be past the deadline")
    return Again(delay)


def passes_on(error: ProviderError) -> bool:
    """Whether the next model of a fallback chain may answer what this one did not (REQ-3)."""
    if isinstance(error, ContextOverflow):
        return False
    return not (isinstance(error, Rejected) and error.reason in REQUEST_SIDE)


def slows_the_pool(error: ProviderError) -> bool:
    """Whether the failure says that the whole pool asks too much (GAT-2)."""
    return error.retryable and (error.status == 429 or error.reason == "rate_limit")


# -- what was asked ----------------------------------------------------------------------------------------------------


def request_digest(request: ModelRequest) -> str:
    """A digest of what is asked, the same for every attempt, whatever its model (REQ-6).

    It reads the whole conversation, so it is made when somebody wants it, never as a matter of course.
    """
    digest = hashlib.sha256()
    for field in _fields(request):
        data = field.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def _fields(request: ModelRequest) -> Iterator[str]:
    yield from ("request/1", request.id, request.agent, request.instructions, request.tool_choice)
    yield from map(repr, (request.output, request.max_output_tokens, request.effort, request.tier))
    for tool in request.tools:
        yield from ("tool", tool.name, tool.description, tool.schema)
    for record in request.window:
        yield from _record_fields(record)
    yield from ("notes", *request.notes)


def _record_fields(record: Record) -> Iterator[str]:
    match record:
        case MessageRecord(message=message, content=content, trust=trust):
            yield from ("message", message, trust, *map(repr, content))
        case ResponseRecord(blocks=blocks):
            yield "response"
            for block in blocks:
                yield from _block_fields(block)
        case ResultRecord(call=call, status=status, content=content, trust=trust):
            yield from ("result", call, status, trust, *map(repr, content))
        case NoteRecord(kind=kind, text=text):
            yield from ("note", kind, text)
        case SummaryRecord(shown=shown, trust=trust):
            yield from ("summary", shown, trust)


def _block_fields(block: Block) -> Iterator[str]:
    match block:
        case TextBlock(text=text):
            yield from ("text", text)
        case ReasoningBlock(text=text, origin=origin, opaque=opaque):
            yield from ("reasoning", text, origin, opaque or "")
        case CallBlock(id=call, name=name, arguments=arguments):
            yield from ("call", call, name, arguments)
