"""Budgets: a tree of accounts that reserve before they spend.

The ledger is the one authority in the process that owns the trees. It keeps integers, never waits, and knows nothing
of models, prices or stores: what it is told it counts, what does not fit it refuses. Its owner opens accounts from
stored rows (own spending only: what stands above is derived) and stores what was spent.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from actors.budget import Budget, Dimension
from actors.errors import BudgetError, Exhausted, InternalError, UsageError
from actors.ids import AgentId
from actors.usage import NOTHING, Amounts

from .accounts import (
    INDEX,
    Account,
    Bound,
    Grant,
    StageCrossed,
    Vector,
    add,
    amounts,
    as_vector,
    growth,
    minus,
    negative,
    room,
    surface,
    vector,
)
from .roster import TOP, Place, Roster, TreeLimits

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "TOP",
    "Grant",
    "Ledger",
    "LimitView",
    "Place",
    "Reservation",
    "Snapshot",
    "StageCrossed",
    "Statistics",
    "TreeLimits",
]

GRANTS_KEPT: Final = 16
_CALLS: Final = INDEX[Dimension.TOOL_CALLS]


class Reservation:
    """What is held for one call until it is settled or released."""

    __slots__ = ("account", "agent", "amounts", "asked", "open")

    def __init__(self, account: Account, asked: Amounts, values: Vector) -> None:
        self.agent = account.node
        self.account = account
        self.amounts = asked
        self.asked = values
        self.open = True

    def __repr__(self) -> str:
        return f"<Reservation {self.agent} {self.amounts} {'open' if self.open else 'ended'}>"


class LimitView(Struct, frozen=True):
    """A limit that binds an agent. `node`: whose it is. Numbers at the surface; `left` is 0 or more."""

    node: AgentId
    dimension: Dimension
    limit: Decimal | int
    used: Decimal | int
    left: Decimal | int


class Snapshot(Struct, frozen=True):
    """An account at one moment.

    Attributes:
        own: spent by the agent itself. spent: by it and all below. held: reserved and not yet settled, what is
        carved out below included. overrun: by how much settlements of the agent exceeded their estimates.
        limits: those of the whole chain, the nearest first. live, ever: agents below. grants: the latest.
    """

    agent: AgentId
    own: Amounts
    spent: Amounts
    held: Amounts
    overrun: Amounts
    limits: tuple[LimitView, ...]
    live: int
    ever: int
    grants: tuple[Grant, ...]


class Statistics(Struct, frozen=True):
    """Counts of a ledger. `reservations`: open ones."""

    accounts: int
    reservations: int
    refused: int
    spent: Amounts


class Ledger(Roster):
    """Accounts in a tree.

    LEDGER-1 a reserve leaves held + spent <= limit at every node of the chain.
    LEDGER-4 a reservation ends once, by settle or release.
    LEDGER-5 what is refused changes no number.
    (LEDGER-2, 3 and 6 are the roster's.)

    Args:
        budget: above all roots, or None.
        limits: bounds of a tree.
    """

    def __init__(self, budget: Budget | None = None, limits: TreeLimits | None = None) -> None:
        super().__init__(budget, limits)
        self._reservations = 0

    def reserve(self, agent: AgentId, asked: Amounts) -> Reservation:
        """Hold an estimate along the whole chain, all or nothing, in one step (BUD-2).

        Raises:
            Exhausted: with the node and dimension that bind; nothing is held.
        """
        account = self._accounts.get(agent) or self._account(agent)
        values = vector(asked)
        self._check(account, values)  # BUD-2, LEDGER-1, LEDGER-5: check, then mutate, with nothing between
        self._move(account, values)
        self._reservations += 1
        return Reservation(account, asked, values)

    def check(self, agent: AgentId, asked: Amounts) -> None:
        """Raise what `reserve` would raise, and hold nothing."""
        self._check(self._account(agent), vector(asked))

    def settle(self, reservation: Reservation, actual: Amounts) -> Amounts:
        """Turn a reservation into spending.

        Returns:
            What the actual amounts exceed the estimate by (`NOTHING` where they do not), which is recorded too.

        Raises:
            InternalError: it has ended already.
        """
        values = _checked(actual)
        self._end(reservation)
        asked = reservation.asked
        delta = minus(values, asked)
        self._spend(reservation.account, values, delta)
        if max(delta) <= 0:
            return NOTHING
        over = as_vector([max(value, 0) for value in delta])
        add(reservation.account.overrun, over)
        return amounts(over)

    def take_calls(self, agent: AgentId, calls: int) -> None:
        """Spend tool calls, or give them back (below 0): reserved and settled at once, for what they cost is known.

        Raises:
            Exhausted: as `reserve`; nothing is spent.
        """
        account = self._account(agent)
        if account.bounded:
            asked = vector(Amounts(tool_calls=calls))
            if calls >= 0:
                self._check(account, asked)
            self._spend(account, asked, asked)
            return
        if account.own is not account.spent:
            account.own[_CALLS] += calls
        for node in account.chain:  # without a bound there is nothing to refuse or to tell, and nothing is carved out
            node.used[_CALLS] += calls
            node.spent[_CALLS] += calls

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back unspent.

        Raises:
            InternalError: it has ended already.
        """
        self._end(reservation)
        self._move(reservation.account, negative(reservation.asked))

    def charge(self, agent: AgentId, spent: Amounts) -> None:
        """Record what was spent already (active time, calls lost in a crash); it is never refused."""
        values = _checked(spent)
        self._spend(self._account(agent), values, values)

    def _end(self, reservation: Reservation) -> None:
        if not reservation.open:
            raise InternalError(f"{reservation!r} was settled or released before")
        reservation.open = False  # LEDGER-4
        self._reservations -= 1

    # -- limits ----------------------------------------------------------------------------------------------------

    def grant(self, node: AgentId, more: Budget, *, by: str, person: bool = True) -> Grant:
        """Raise limits of a node by finite amounts (BUD-5).

        Args:
            node: whose limits; `TOP` for the supervisor's.
            more: what is added, for each dimension that it names.
            by: who gives it.
            person: False caps what is added, ever, at the limit the node was opened with.

        Returns:
            What was given, for the store and the watchers.

        Raises:
            UsageError: nothing is named, or a dimension that has no limit here.
            Exhausted: a carved-out part cannot grow, for what stands above has no more.
            BudgetError: over the cap.
        """
        account = self._account(node)
        added = dict(more.limits())
        if not any(added.values()):
            raise UsageError(f"a grant to {node} names what it adds, such as Budget(usd='0.50'); got nothing")
        for dimension in added:
            if self._limit(account, dimension) is None:
                has = [d.value for d in Dimension if self._limit(account, d) is not None]
                raise UsageError(f"{node} has no limit of {dimension.value} to raise; it has {has or 'none'}")
        raises = [(bound, added[bound.dimension]) for bound in account.bounds if bound.dimension in added]
        if not person:
            for bound, extra in raises:
                _check_cap(account, bound, extra)
        grown = growth(account, raises)
        if grown is not None:
            self._check(account.chain[1], grown)
        for bound, extra in raises:
            self._raise(account, bound, extra, bound.more)
            bound.automatic += 0 if person else extra
        if Dimension.AGENTS in added and account.live_limit is not None:
            account.live_limit += added[Dimension.AGENTS]
        if Dimension.DEPTH in added and account.depth_limit is not None:
            account.depth_limit += added[Dimension.DEPTH]
        account.renewed += 1
        limits = [(d, extra, self._limit(account, d) or 0) for d, extra in added.items()]
        return _record(account, by, limits)

    def extend_once(self, agent: AgentId, asked: Amounts) -> tuple[Grant, ...]:
        """Make room along the chain for one last response: what is missing, once per agent until a next grant.

        Of active time less may be given than asked; of the rest all or nothing.

        Returns:
            What was given, for each node that lacked something; empty where nothing did.

        Raises:
            Exhausted: it was given before, or a node would be extended beyond what others than persons may add.
        """
        account = self._account(agent)
        lacking = [_clipped(*lack) for lack in _lacking(account, vector(asked))]
        if not lacking:
            return ()
        renewed = self.grants(agent)
        for node, bound, extra in lacking:
            mine = bound.on_exhausted == "wrap_up"  # BUD-4: what parks or fails lends nothing, whoever asks
            if not mine or account.extended_at == renewed or bound.automatic + extra > bound.opened:
                raise self._refusal(node, bound, extra + bound.limit - node.used[bound.index])
        given: dict[AgentId, list[tuple[Dimension, int, int]]] = {}
        for node, bound, extra in lacking:
            self._raise(node, bound, extra, bound.lend)
            given.setdefault(node.node, []).append((bound.dimension, extra, bound.limit))
        grants = tuple(_record(self._accounts[node], "wrap_up", raised) for node, raised in given.items())
        account.extended_at = renewed
        return grants

    def _raise(self, node: Account, bound: Bound, extra: int, by: Callable[[int], None]) -> None:
        grown = growth(node, [(bound, extra)])
        by(extra)
        if grown is not None:
            self._move(node.chain[1], grown)

    @staticmethod
    def _limit(account: Account, dimension: Dimension) -> int | None:
        if dimension is Dimension.AGENTS:
            return account.live_limit
        if dimension is Dimension.DEPTH:
            return account.depth_limit
        bound = account.bound(dimension)
        return None if bound is None else bound.limit

    # -- reading ---------------------------------------------------------------------------------------------------

    def remaining(self, agent: AgentId, dimension: Dimension) -> int | None:
        """What is left in a dimension, the tightest along the chain, 0 or more; None where nothing limits it."""
        account = self._account(agent)
        if dimension not in account.limited:
            return None
        rooms = [room(node, account, dimension) for node in account.chain]
        return min((left for left in rooms if left is not None), default=None)

    def exhausted(self, agent: AgentId, dimension: Dimension, asked: int) -> Exhausted:
        """The error that says which node's limit ends what was already admitted, such as its seconds (BUD-8)."""
        account = self._account(agent)
        bounds = [(node, bound) for node in account.chain if (bound := node.bound(dimension)) is not None]
        if not bounds:
            raise InternalError(f"nothing limits {dimension.value} of {agent}")
        node, bound = min(bounds, key=lambda pair: pair[1].limit - pair[0].used[pair[1].index])
        return self._refusal(node, bound, asked)

    @property
    def crossed(self) -> bool:
        """Whether stages were reached that nobody has taken."""
        return bool(self._stages)

    def take_stages(self) -> tuple[StageCrossed, ...]:
        """The stages reached since this was last called, in order: each once per grant (BUD-4)."""
        if not self._stages:
            return ()
        stages = tuple(self._stages)
        self._stages.clear()
        return stages

    def snapshot(self, agent: AgentId) -> Snapshot:
        """An agent's account as it stands."""
        account = self._account(agent)
        views = [
            LimitView(
                node.node,
                bound.dimension,
                surface(bound.dimension, bound.told),
                surface(bound.dimension, node.used[bound.index]),
                surface(bound.dimension, max(bound.limit - node.used[bound.index], 0)),
            )
            for node in account.chain
            for bound in node.bounds
        ]
        return Snapshot(
            agent=agent,
            own=amounts(account.own),
            spent=amounts(account.spent),
            held=amounts(account.used) - amounts(account.spent),
            overrun=amounts(account.overrun),
            limits=tuple(views),
            live=account.live,
            ever=account.ever,
            grants=account.grants,
        )

    def statistics(self) -> Statistics:
        """Counts of the whole ledger; `spent` is the sum of all own spending."""
        return Statistics(len(self._accounts), self._reservations, self._refused, self._total())

    def __repr__(self) -> str:
        return f"<Ledger {len(self._accounts)} accounts, {self._reservations} reservations>"


def _checked(spent: Amounts) -> Vector:
    values = vector(spent)
    if min(values) < 0:
        raise InternalError(f"spent less than nothing: {spent}")
    return values


def _lacking(account: Account, asked: Vector) -> list[tuple[Account, Bound, int]]:
    """What each node of the chain lacks to hold the amount, growth of carved-out parts included."""
    return [
        (node, bound, missing)
        for node, delta in account.upward(asked)
        for bound in node.bounds
        if (missing := node.used[bound.index] + delta[bound.index] - bound.limit) > 0
    ]


def _clipped(node: Account, bound: Bound, extra: int) -> tuple[Account, Bound, int]:
    """Time is given as far as the cap goes, for a response in less time is better than none."""
    if bound.dimension is Dimension.SECONDS and bound.automatic < bound.opened:
        extra = min(extra, bound.opened - bound.automatic)
    return node, bound, extra


def _check_cap(account: Account, bound: Bound, extra: int) -> None:
    if bound.automatic + extra > bound.opened:
        dimension = bound.dimension
        raise BudgetError(
            f"{account.node} may be granted at most {surface(dimension, bound.opened - bound.automatic)} more"
            f" {dimension.value} by anything but a person; asked {surface(dimension, extra)}"
        )


def _record(account: Account, by: str, raised: list[tuple[Dimension, int, int]]) -> Grant:
    number = account.grants[-1].number + 1 if account.grants else 1
    grant = Grant(account.node, number, by, tuple(raised))
    account.grants = (*account.grants[-GRANTS_KEPT + 1 :], grant)
    return grant
