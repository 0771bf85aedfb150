"""Token classes, prices and money: integers inside, decimals at the surface.

Token classes are disjoint, so that each is priced once: `fresh` + `cached` + `cache_write` is all that went in,
`visible` + `reasoning` all that came out. Money is counted in picodollars (10^-12 dollar), so a price per
million tokens with up to six decimals is a whole number per token.

Sums are msgspec structs: a model call makes a dozen, and the store writes them with every row.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

import attrs

from .errors import UsageError
from .kept import Kept

PICO: Final = 10**12
TOKENS_PER_PRICE: Final = 1_000_000
MICROSECONDS: Final = 1_000_000
MOST: Final = 10**15
"""No limit, price or time is larger: 30 million years in seconds, and sums of such figures are still floats."""


def picodollars(value: Decimal | str | int) -> int:
    """Dollars as picodollars, exactly.

    Raises:
        UsageError: not a decimal number, negative, over 10^15, a float, or finer than a picodollar.
    """
    if isinstance(value, float | bool):
        msg = f"money is a string, an int or a Decimal, never a float: write {str(value)!r}"
        raise UsageError(msg)
    try:
        exact = Decimal(value) * PICO
    except (InvalidOperation, ValueError, TypeError) as error:
        msg = f"money must be a decimal number of dollars such as '0.50'; got {value!r}"
        raise UsageError(msg) from error
    if not exact.is_finite() or not 0 <= exact <= MOST * PICO or exact != exact.to_integral_value():
        msg = f"money must be 0 to 10^15 dollars, and whole in units of 10^-12 dollars; got {value!r}"
        raise UsageError(msg)
    return int(exact)


def dollars(pico: int) -> Decimal:
    """Picodollars as dollars, exactly, without trailing zeros."""
    value = (Decimal(pico) / PICO).normalize()
    return value.quantize(Decimal(1)) if value == value.to_integral_value() else value


class Usage(Kept, frozen=True):
    """Tokens of one or many model calls, in disjoint classes.

    Attributes:
        fresh, cached, cache_write: what went in: not from a cache, read from one, written to one.
        visible, reasoning: what came out: text and calls, hidden reasoning.
    """

    fresh: int = 0
    cached: int = 0
    cache_write: int = 0
    visible: int = 0
    reasoning: int = 0

    @property
    def input_tokens(self) -> int:
        """All that went in."""
        return self.fresh + self.cached + self.cache_write

    @property
    def output_tokens(self) -> int:
        """All that came out, reasoning included."""
        return self.visible + self.reasoning

    @property
    def total_tokens(self) -> int:
        """All that went in and came out."""
        return self.fresh + self.cached + self.cache_write + self.visible + self.reasoning

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.fresh + other.fresh,
            self.cached + other.cached,
            self.cache_write + other.cache_write,
            self.visible + other.visible,
            self.reasoning + other.reasoning,
        )


NO_USAGE: Final = Usage()


def _per_token(value: object) -> int:
    """Dollars per million tokens as picodollars per token."""
    pico = picodollars(value)  # type: ignore[arg-type]  # the converter of a public field: it judges what it is given
    if pico % TOKENS_PER_PRICE:
        msg = f"a price has at most six decimals (dollars per million tokens); got {value!r}"
        raise UsageError(msg)
    return pico // TOKENS_PER_PRICE


def _per_token_or_none(value: object) -> int | None:
    return None if value is None else _per_token(value)


@attrs.frozen
class Price:
    """What a model costs, in dollars per million tokens (strings, ints or Decimals; at most six decimals).

    Args:
        input: fresh input. output: all output, reasoning included.
        cached: input read from a cache; like `input` where not given.
        cache_write: input written to a cache; like `input` where not given.
    """

    input: int = attrs.field(converter=_per_token)
    output: int = attrs.field(converter=_per_token)
    cached: int | None = attrs.field(default=None, converter=_per_token_or_none)
    cache_write: int | None = attrs.field(default=None, converter=_per_token_or_none)

    def cost(self, usage: Usage) -> int:
        """What the usage costs, in picodollars."""
        cached = self.input if self.cached is None else self.cached
        write = self.input if self.cache_write is None else self.cache_write
        return (
            usage.fresh * self.input
            + usage.cached * cached
            + usage.cache_write * write
            + usage.output_tokens * self.output
        )


FREE: Final = Price("0", "0")


class Amounts(Kept, frozen=True):
    """A point in the space of budget dimensions, in whole units: what is asked, held, spent or allowed.

    Attributes:
        input_tokens, output_tokens: tokens. cost: picodollars. active_us: microseconds in which a turn ran.
        model_calls, tool_calls: counts.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    active_us: int = 0

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
            self.model_calls + other.model_calls,
            self.tool_calls + other.tool_calls,
            self.active_us + other.active_us,
        )

    def __sub__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.cost - other.cost,
            self.model_calls - other.model_calls,
            self.tool_calls - other.tool_calls,
            self.active_us - other.active_us,
        )


NOTHING: Final = Amounts()
