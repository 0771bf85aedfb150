"""Which accounts there are, and how amounts move in them: the mechanics below the ledger.

Opening an account, room for agents, and the two movements (used, spent) along a chain. Whoever wants to spend asks
the ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.budget import Dimension
from actors.errors import Exhausted, InternalError, SpawnLimit, UnknownPath, plain
from actors.ids import AgentId, tree_of
from actors.messages import Failure
from actors.usage import NOTHING, Amounts

from .accounts import VECTOR, Account, Bound, StageCrossed, Vector, add, amounts, as_vector, negative, surface, vector

if TYPE_CHECKING:
    from actors.budget import Budget

TOP: Final = AgentId("/")
"""The node above all roots: the supervisor's own budget."""


@attrs.frozen(kw_only=True)
class TreeLimits:
    """Bounds of a tree whose root's budget names none (SUP-5), counted below the root.

    Attributes:
        depth: levels. live: agents alive at once. ever: agents started altogether.
    """

    depth: int = 5
    live: int = 64
    ever: int = 4096


class Place:
    """Room for one agent that is about to be started; it ends in `open` or `unspawn`."""

    __slots__ = ("above", "open")

    def __init__(self, above: Account | None) -> None:
        self.above = above
        self.open = True


class Roster:
    """The accounts of all trees of one process.

    LEDGER-2 what a node uses is what it spent and what is held, and nothing held is negative.
    LEDGER-3 what a node spent is its own and its children's, so the root's is the sum of all own spending.
    LEDGER-6 a node's live agents are those opened below it and not ended, and the places given there.

    Args:
        budget: above all roots, or None.
        limits: bounds of a tree.
    """

    def __init__(self, budget: Budget | None = None, limits: TreeLimits | None = None) -> None:
        self._limits = TreeLimits() if limits is None else limits
        self._top = None if budget is None else Account(TOP, None, budget)
        self._accounts: dict[AgentId, Account] = {} if self._top is None else {TOP: self._top}
        self._forgotten = [0] * len(VECTOR)
        self._lost: dict[AgentId, Account] = {}
        self._stages: list[StageCrossed] = []
        self._refused = 0

    def _account(self, agent: AgentId) -> Account:
        account = self._accounts.get(agent)
        if account is None:
            raise UnknownPath(f"no account of {agent!r} is open; known are {list(self._accounts)[:8]}")
        return account

    def has(self, agent: AgentId) -> bool:
        """Whether an account of it is open."""
        return agent in self._accounts

    def spawn(self, parent: str) -> Place:
        """Take room for one more agent below `parent`; `""` for a root (SUP-5).

        Raises:
            SpawnLimit: depth, live agents or agents ever; nothing has changed.
        """
        above = self._account(AgentId(parent)) if parent else self._top
        for node in above.chain if above else ():
            self._check_room(node, parent, below=above.depth + 1 - node.depth if above else 0)
        _count(above, 1)
        return Place(above)

    def _check_room(self, node: Account, parent: str, *, below: int) -> None:
        if node.depth_limit is not None and node is not self._top and below > node.depth_limit:
            raise SpawnLimit(
                f"{parent} may start no agent: it would stand {below} levels below {node.node}, which allows"
                f" {node.depth_limit}; do the work there, or raise Budget(depth=...)"
            )
        if node.live_limit is not None and node.live >= node.live_limit:
            raise SpawnLimit(
                f"{parent or 'the supervisor'} may start no agent: {node.live} live below {node.node}, which allows"
                f" {node.live_limit}; wait for one to end, close one, or raise Budget(agents=...)"
            )
        if node.ever_limit is not None and node.ever >= node.ever_limit:
            raise SpawnLimit(
                f"{parent} may start no agent: {node.ever} were started below {node.node}, which allows"
                f" {node.ever_limit} altogether; reuse one with send, or raise the tree's limit"
            )

    def unspawn(self, place: Place) -> None:
        """Give a place back, for the agent was not made after all."""
        if place.open:
            place.open = False
            _count(place.above, -1)

    def open(
        self,
        agent: AgentId,
        parent: str,
        budget: Budget | None = None,
        spent: Amounts = NOTHING,
        *,
        place: Place | None = None,
        carve: bool = False,
    ) -> None:
        """Open an account, parents before children.

        Args:
            agent: whose.
            parent: path of the account above, `""` for a root.
            budget: its own, or None.
            spent: by itself so far; what it adds above is derived, and tells no stage a second time.
            place: from `spawn`; None for an agent that existed before: it is counted and not refused.
            carve: hold the budget's limits above at once (BUD-3).

        Raises:
            Exhausted: what is to be carved out is not there; nothing has changed.
        """
        above = self._account(AgentId(parent)) if parent else self._top
        if agent in self._accounts:
            raise InternalError(f"the account of {agent} is open already")
        if place is not None and (not place.open or place.above is not above):
            raise InternalError(f"the place for {agent} is used up, or below another parent than {parent!r}")
        account = Account(agent, above, budget)
        if not parent:
            self._found_again(agent)
            self._bound_tree(account)
        carved = account.bounds if carve and above is not None else ()
        if carved and place is not None:
            assert above is not None
            self._check(above, _rest(carved, account))
        self._accounts[agent] = account
        if spent != NOTHING:
            told = len(self._stages)
            self._spend(account, vector(spent), vector(spent))
            del self._stages[told:]  # BUD-4: told before the restart
        if carved:
            assert above is not None
            self._move(above, _rest(carved, account))
            account.carved = carved
            account.plain = False
        if place is None:
            _count(above, 1)
        else:
            place.open = False

    def _bound_tree(self, root: Account) -> None:
        root.ever_limit = self._limits.ever
        root.live_limit = self._limits.live if root.live_limit is None else root.live_limit
        root.depth_limit = self._limits.depth if root.depth_limit is None else root.depth_limit

    def timed(self, agent: AgentId) -> tuple[AgentId, ...]:
        """The nodes whose limits of seconds the time of an agent counts against, itself first; none if it is gone."""
        account = self._accounts.get(agent)
        if account is None or Dimension.SECONDS not in account.limited:
            return ()
        found = []
        for node in account.chain:
            if node.bound(Dimension.SECONDS) is not None:
                found.append(node.node)
            if any(bound.dimension is Dimension.SECONDS for bound in node.carved):
                break  # held above already (BUD-3)
        return tuple(found)

    def ended(self, agent: AgentId) -> None:
        """The agent lives no more: its place is free, what it carved out and did not spend goes back."""
        account = self._accounts.get(agent)
        if account is not None and account.is_live:  # None: its tree was lost in that moment
            self.give_back(agent)
            account.is_live = False
            _count(account.chain[1] if len(account.chain) > 1 else None, -1, ever=0)

    def give_back(self, agent: AgentId) -> None:
        """End a carve-out: what is left of it is free above again (BUD-3)."""
        account = self._account(agent)
        if account.carved:
            rest = _rest(account.carved, account)
            account.carved = ()
            self._move(account.chain[1], negative(rest))

    def forget(self, root: AgentId) -> None:
        """Drop the accounts of a tree that has ended; its spending stays in the totals.

        Raises:
            InternalError: something of it lives or holds.
        """
        accounts = [account for agent, account in self._accounts.items() if tree_of(agent) == tree_of(root)]
        busy = [account.node for account in accounts if account.is_live or account.used != account.spent]
        if busy:
            raise InternalError(f"the tree {root} still lives or holds: {busy[:3]}")
        for account in accounts:
            add(self._forgotten, as_vector(account.own))
            del self._accounts[account.node]

    def lose(self, root: AgentId) -> None:
        """Another process has the tree: its accounts go, until they are opened again with what it has spent there.

        What was spent and is held here stays above, so that a budget above all trees holds; it is taken back when the
        tree is opened again, and so nothing counts twice (BUD-7).
        """
        accounts = [account for agent, account in self._accounts.items() if tree_of(agent) == tree_of(root)]
        for account in reversed(accounts):
            if account.is_live:
                account.is_live = False
                _count(account.chain[1] if len(account.chain) > 1 else None, -1, ever=0)
            del self._accounts[account.node]
            if account.node == root:
                self._lost[root] = account

    def _found_again(self, root: AgentId) -> None:
        lost = self._lost.pop(root, None)
        if lost is not None and self._top is not None:
            spent = negative(as_vector(lost.spent))
            add(self._top.used, spent)
            add(self._top.spent, spent)

    def _check(self, account: Account, asked: Vector) -> None:
        if min(asked) < 0:
            raise InternalError(f"asked less than nothing: {amounts(asked)}")
        if account.plain:
            for node in account.chain:
                used = node.used
                for bound in node.bounds:
                    if used[bound.index] + asked[bound.index] > bound.limit:
                        raise self._refusal(node, bound, asked[bound.index])
            return
        for node, delta in account.upward(asked):
            for bound in node.bounds:
                if node.used[bound.index] + delta[bound.index] > bound.limit:
                    raise self._refusal(node, bound, delta[bound.index])

    def _refusal(self, node: Account, bound: Bound, asked: int) -> Exhausted:
        dimension = bound.dimension
        limit, used = surface(dimension, bound.told), surface(dimension, node.used[bound.index])
        self._refused += 1
        if bound.exhaust():
            self._stages.append(StageCrossed(node.node, "exhausted", dimension.value, str(limit), str(used)))
        shown = surface(dimension, asked)
        how = bound.on_exhausted  # BUD-4: the budget that refuses says what is to be done
        return Exhausted(node.node, dimension.value, limit=limit, spent=used, asked=shown, on_exhausted=how)  # BUD-8

    def parks(self, agent: AgentId) -> Failure:
        """Why an agent stays parked, as far as the accounts tell: what was asked, and refused, is not kept.

        The failure names the limit where only one parks it; else all of them stand in its words.
        """
        chain = self._account(agent).chain
        found = [(node, bound) for node in chain for bound in node.bounds if bound.on_exhausted == "park"]
        told = [_used(node, bound) for node, bound in found]
        said = "; ".join(f"{one['dimension']} of {one['node']}, {one['spent']} of {one['limit']}" for one in told)
        text = f"{agent} waits for more budget: grant() it, or abort(); spent or held are {said or 'no limits'}"
        facts = told[0] if len(told) == 1 else {}
        return Failure(Exhausted.kind, text, (*sorted(facts.items()), ("on_exhausted", "park")))

    def grants(self, agent: AgentId) -> int:
        """How many grants the budgets that bind an agent have had, extensions left out."""
        return sum([node.renewed for node in self._accounts[agent].chain])

    def _move(self, account: Account, delta: Vector) -> None:
        """Add to what the chain uses."""
        if not account.plain:
            for node, part in list(account.upward(delta)):
                add(node.used, part)
            return
        for node in account.chain:
            add(node.used, delta)

    def _spend(self, account: Account, values: Vector, delta: Vector) -> None:
        """Add to what the chain spent and, by `delta`, to what it uses; note the stages that this reaches."""
        self._move(account, delta)
        if account.own is not account.spent:
            add(account.own, values)
        for node in account.chain:
            spent = node.spent
            add(spent, values)
            for bound in node.bounds:
                if spent[bound.index] >= bound.next_at:
                    self._reach(node, bound)
        assert account.used[6] >= account.spent[6], f"LEDGER-2: {account!r}"

    def _total(self) -> Amounts:
        """All that was ever spent (LEDGER-3): added up when somebody asks, not at every call."""
        total = list(self._forgotten)
        for account in self._accounts.values():
            add(total, as_vector(account.own))
        for lost in self._lost.values():
            add(total, as_vector(lost.spent))
        return amounts(total)

    def _reach(self, node: Account, bound: Bound) -> None:
        spent = node.spent[bound.index]
        limit, shown = str(surface(bound.dimension, bound.told)), str(surface(bound.dimension, spent))
        for stage in bound.reach(spent):
            self._stages.append(StageCrossed(node.node, stage, bound.dimension.value, limit, shown))


def _count(above: Account | None, live: int, *, ever: int | None = None) -> None:
    """Count an agent in every account above it."""
    for node in above.chain if above else ():
        node.live += live
        node.ever += live if ever is None else ever
        assert node.live >= 0, f"LEDGER-6: {node!r}"


def _rest(bounds: tuple[Bound, ...], account: Account) -> Vector:
    """What of these limits is not used."""
    values = [0] * len(VECTOR)
    for bound in bounds:
        values[bound.index] = max(bound.limit - account.used[bound.index], 0)
    return as_vector(values)


def _used(node: Account, bound: Bound) -> dict[str, str]:
    """A limit and what of it is used, as an `Exhausted` names them."""
    limit, used = (plain(surface(bound.dimension, value)) for value in (bound.told, node.used[bound.index]))
    return {"node": node.node, "dimension": bound.dimension.value, "limit": limit, "spent": used}
