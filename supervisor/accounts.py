"""One account of the ledger: its numbers, its bounds, and how an amount travels up from it.

Numbers are lists of whole units in a fixed order (`VECTOR`), because this is the innermost loop of every model call:
adding to a list element costs a third of building a new frozen object. Total tokens are a dimension of their own, so
that a bound on them is one comparison.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from actors.budget import Budget, Dimension
from actors.ids import AgentId
from actors.usage import MICROSECONDS, Amounts, dollars

if TYPE_CHECKING:
    from collections.abc import Iterator

Vector: TypeAlias = tuple[int, int, int, int, int, int, int]

VECTOR: Final = (
    Dimension.INPUT_TOKENS,
    Dimension.OUTPUT_TOKENS,
    Dimension.COST,
    Dimension.MODEL_CALLS,
    Dimension.TOOL_CALLS,
    Dimension.SECONDS,
    Dimension.TOKENS,
)
INDEX: Final = {dimension: index for index, dimension in enumerate(VECTOR)}
STAGES: Final = ("soft", "critical", "exhausted")
NEVER: Final = math.inf
_ALWAYS_ASKED: Final = frozenset({Dimension.AGENTS, Dimension.DEPTH})


def vector(amounts: Amounts) -> Vector:
    """The amounts in the order of `VECTOR`."""
    fresh, out = amounts.input_tokens, amounts.output_tokens
    return (fresh, out, amounts.cost, amounts.model_calls, amounts.tool_calls, amounts.active_us, fresh + out)


def amounts(values: list[int] | Vector) -> Amounts:
    """A vector as amounts."""
    return Amounts(values[0], values[1], values[2], values[3], values[4], values[5])


def as_vector(values: list[int]) -> Vector:
    """A list of the right length as a vector."""
    return (values[0], values[1], values[2], values[3], values[4], values[5], values[6])


def negative(values: Vector) -> Vector:
    """The vector with its signs turned."""
    return (-values[0], -values[1], -values[2], -values[3], -values[4], -values[5], -values[6])


def minus(left: Vector, right: Vector) -> Vector:
    """The difference of two vectors."""
    a, b, c, d, e, f, g = left
    return (a - right[0], b - right[1], c - right[2], d - right[3], e - right[4], f - right[5], g - right[6])


def add(into: list[int], values: Vector) -> None:
    """Add a vector to numbers, in place and unrolled: the innermost step of the ledger."""
    a, b, c, d, e, f, g = values
    into[0] += a
    into[1] += b
    into[2] += c
    into[3] += d
    into[4] += e
    into[5] += f
    into[6] += g


def surface(dimension: Dimension, value: int) -> Decimal | int:
    """A whole unit as people write it: dollars, seconds, counts."""
    if dimension is Dimension.COST:
        return dollars(value)
    if dimension is Dimension.SECONDS:
        seconds = Decimal(value) / MICROSECONDS
        return seconds.quantize(Decimal(1)) if seconds == seconds.to_integral_value() else seconds.normalize()
    return value


@attrs.frozen
class StageCrossed:
    """A node passed a stage, to be told once per grant (BUD-4). `limit`, `spent`: at the surface, as text."""

    node: AgentId
    stage: str
    dimension: str
    limit: str
    spent: str


@attrs.frozen
class Grant:
    """An extension that was given (BUD-5).

    Attributes:
        number: of the node's grants, from 1. by: who gave it.
        raised: for each dimension what was added and the limit it has now, in whole units.
    """

    node: AgentId
    number: int
    by: str
    raised: tuple[tuple[Dimension, int, int], ...]


class Bound:
    """The limit of one node in one dimension, with the stage that its spending has reached.

    Attributes:
        limit: what may be used. lent: what of it last responses were given, which is nobody's limit to be told of.
        opened: the limit at the opening. automatic: what others than persons have added since.
        next_at: spending at which the next stage is reached. on_exhausted: what its budget says is done then.
    """

    __slots__ = (
        "automatic",
        "critical",
        "dimension",
        "index",
        "lent",
        "limit",
        "next_at",
        "on_exhausted",
        "opened",
        "soft",
        "stage",
    )

    def __init__(self, dimension: Dimension, limit: int, budget: Budget) -> None:
        self.dimension = dimension
        self.index = INDEX[dimension]
        self.limit = limit
        self.opened = limit
        self.automatic = self.lent = 0
        self.on_exhausted = budget.on_exhausted
        self.soft = budget.soft
        self.critical = budget.critical
        self.stage = 0
        self.next_at: float = self._threshold()

    def _threshold(self) -> float:
        match self.stage:
            case 0:
                return math.ceil(self.told * self.soft)
            case 1:
                return math.ceil(self.told * self.critical)
            case 2:
                return self.told
            case _:
                return NEVER

    def reach(self, spent: int) -> Iterator[str]:
        """The stages that this spending reaches for the first time, in order."""
        while spent >= self.next_at:
            yield STAGES[self.stage]
            self.stage += 1
            self.next_at = self._threshold()

    def exhaust(self) -> bool:
        """Mark the bound exhausted, for it refused something; False where that was told already."""
        fresh = self.stage < len(STAGES)
        self.stage = len(STAGES)
        self.next_at = NEVER
        return fresh

    @property
    def told(self) -> int:
        """The limit as it was set and granted: what people know it as (BUD-8)."""
        return self.limit - self.lent

    def lend(self, added: int) -> None:
        """Make room for a last response (BUD-5); the limit that was reached is told as before."""
        self.limit += added
        self.automatic += added
        self.lent += added

    def more(self, added: int) -> None:
        """Raise the limit; its stages are told anew."""
        self.limit += added
        self.stage = 0
        self.next_at = self._threshold()


class Account:
    """What one agent and all below it have spent and hold.

    Attributes:
        node: the agent's path, or `/` for what stands above all roots.
        chain: this account, its parent's, … up to the top.
        plain: no account of the chain is carved out, so amounts travel up unchanged.
        bounded: an account of the chain has a bound.
        own: spent by the agent itself. spent: by it and all below; one list with `own` while nothing is below, which
            saves most agents a second addition. used: spent and held.
        carved: the dimensions whose whole limit is held above (BUD-3).
        limited: the dimensions that the chain may limit; limits are set at the opening only.
        renewed: grants that were not extensions. extended_at: their sum along the chain at the last extension.
        live, ever: agents below, alive and altogether; each with its limit, None for none.
    """

    __slots__ = (
        "bounded",
        "bounds",
        "carved",
        "chain",
        "depth",
        "depth_limit",
        "ever",
        "ever_limit",
        "extended_at",
        "grants",
        "is_live",
        "limited",
        "live",
        "live_limit",
        "node",
        "overrun",
        "own",
        "plain",
        "renewed",
        "spent",
        "used",
    )

    def __init__(self, node: AgentId, parent: Account | None, budget: Budget | None) -> None:
        self.node = node
        self.chain: tuple[Account, ...] = (self, *(parent.chain if parent else ()))
        self.depth: int = parent.depth + 1 if parent else 0
        self.plain: bool = parent.plain if parent else True
        self.spent = self.own = [0] * len(VECTOR)
        if parent is not None and parent.own is parent.spent:
            parent.own = list(parent.spent)
        self.used = [0] * len(VECTOR)
        self.overrun = [0] * len(VECTOR)
        self.bounds: tuple[Bound, ...] = ()
        self.carved: tuple[Bound, ...] = ()
        self.live = self.ever = 0
        self.live_limit: int | None = None
        self.depth_limit: int | None = None
        self.ever_limit: int | None = None
        self.is_live = True
        self.grants: tuple[Grant, ...] = ()
        self.renewed = 0
        self.extended_at = -1
        if budget is not None:
            limits = dict(budget.limits())
            self.bounds = tuple(Bound(d, limit, budget) for d, limit in limits.items() if d in INDEX)
            self.live_limit = limits.get(Dimension.AGENTS)
            self.depth_limit = limits.get(Dimension.DEPTH)
        self.bounded: bool = bool(self.bounds) or (parent is not None and parent.bounded)
        above = parent.limited if parent else _ALWAYS_ASKED
        self.limited: frozenset[Dimension] = above.union(bound.dimension for bound in self.bounds)

    def bound(self, dimension: Dimension) -> Bound | None:
        """The bound in a dimension, or None."""
        return next((bound for bound in self.bounds if bound.dimension is dimension), None)

    def upward(self, amount: Vector) -> Iterator[tuple[Account, Vector]]:
        """Each account of the chain with what the amount changes in what it uses.

        A carved account holds its whole limit above, so above it only what exceeds that limit counts (BUD-3). The
        accounts must not change while this runs.
        """
        for account in self.chain:
            yield account, amount
            if account.carved:
                values = list(amount)
                for bound in account.carved:
                    used = account.used[bound.index]
                    values[bound.index] = max(bound.limit, used + amount[bound.index]) - max(bound.limit, used)
                amount = as_vector(values)

    def __repr__(self) -> str:
        held = [used - spent for used, spent in zip(self.used, self.spent, strict=True)]
        return f"<Account {self.node} spent={amounts(self.spent)} held={amounts(held)} live={self.live}>"


def room(node: Account, account: Account, dimension: Dimension) -> int | None:
    """What one node of the chain leaves to the account."""
    if dimension is Dimension.AGENTS:
        return None if node.live_limit is None else max(node.live_limit - node.live, 0)
    if dimension is Dimension.DEPTH:
        return None if node.depth_limit is None else max(node.depth_limit - (account.depth - node.depth), 0)
    bound = node.bound(dimension)
    if bound is None:
        return None
    left = bound.limit - node.used[bound.index]
    for below in account.chain:
        if below is node:
            break
        for carved in below.carved:
            if carved.dimension is dimension and left >= 0:  # held here for it already
                return None
    return max(left, 0)


def growth(account: Account, raises: list[tuple[Bound, int]]) -> Vector | None:
    """What the account above holds more if these limits rise: something where they are carved out (BUD-3)."""
    if not account.carved:
        return None
    values = [0] * len(VECTOR)
    for bound, extra in raises:
        used = account.used[bound.index]
        values[bound.index] = max(bound.limit + extra, used) - max(bound.limit, used)
    return as_vector(values)
