"""The ledger against a plain model of it: LEDGER-1, 2, 3 and 6 hold whatever is asked."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from actors.budget import Budget, Dimension
from actors.errors import Exhausted, SpawnLimit, UsageError
from actors.ids import AgentId, parent_path
from actors.usage import NOTHING, Amounts
from supervisor.ledger import TOP, Ledger, Reservation, TreeLimits

FIELDS = list(Amounts.__struct_fields__)
AMOUNTS = st.builds(Amounts, **{name: st.integers(0, 12) for name in FIELDS})
LIMIT = st.none() | st.integers(0, 60)
BUDGET = st.none() | st.builds(
    Budget, tokens=LIMIT, output_tokens=LIMIT, model_calls=LIMIT, tool_calls=LIMIT, agents=st.none() | st.integers(0, 5)
)


class LedgerMachine(RuleBasedStateMachine):
    """The ledger against a list of what each agent spent and holds, from which every total is added up anew."""

    @initialize(budget=BUDGET, top=BUDGET)
    def start(self, budget: Budget | None, top: Budget | None) -> None:
        self.ledger = Ledger(top, TreeLimits(depth=4, live=6, ever=12))
        self.limits: dict[str, dict[Dimension, int]] = {} if top is None else {TOP: dict(top.limits())}
        self.own: dict[str, Amounts] = {}
        self.held: list[Reservation] = []
        self.ended: set[str] = set()
        self.carved: set[str] = set()
        self.add("r", "", budget)

    def add(self, agent: str, parent: str, budget: Budget | None) -> None:
        self.ledger.open(AgentId(agent), parent, budget)
        self.limits[agent] = {} if budget is None else dict(budget.limits())
        self.own[agent] = NOTHING

    def agents(self) -> list[str]:
        return list(self.own)

    def below(self, node: str) -> list[str]:
        return [a for a in self.own if node in {TOP, a} or a.startswith(node + "/")]

    def spent(self, node: str) -> Amounts:
        return sum((self.own[agent] for agent in self.below(node)), NOTHING)

    def used(self, node: str, dimension: Dimension) -> int:
        """Spent and held, added up from the leaves: a carved-out child counts at least its limit."""
        own = self.own.get(node, NOTHING)
        total = value(own, dimension) + sum(value(r.amounts, dimension) for r in self.held if r.agent == node)
        for child in self.own:
            if (parent_path(child) or TOP) == node:
                inner = self.used(child, dimension)
                limit = self.limits[child].get(dimension)
                total += max(inner, limit) if child in self.carved and limit is not None else inner
        return total

    def fits(self, agent: str) -> bool:
        chain = [agent, *parents(agent), TOP]
        return all(
            self.used(node, dimension) <= limit
            for node in chain
            for dimension, limit in self.limits.get(node, {}).items()
            if dimension is not Dimension.AGENTS
        )

    @rule(pick=st.integers(0, 99), name=st.sampled_from("abc"), budget=BUDGET, carve=st.booleans())
    def spawn(self, pick: int, name: str, budget: Budget | None, carve: bool) -> None:  # noqa: FBT001
        parent = self.agents()[pick % len(self.own)]
        agent = f"{parent}/{name}{len(self.own)}"
        nodes = [parent, *parents(parent)]
        root_live = self.limits["r"].get(Dimension.AGENTS, 6)
        live = {n: len([a for a in self.below(n) if a != n and a not in self.ended]) for n in [*nodes, TOP]}
        full = any(live[n] >= self.limits.get(n, {}).get(Dimension.AGENTS, 999) for n in [*nodes, TOP])
        full = full or live["r"] >= root_live or len(self.own) - 1 >= 12 or agent.count("/") > 4
        try:
            place = self.ledger.spawn(parent)
        except SpawnLimit:
            assert full
            return
        assert not full
        self.own[agent], self.limits[agent] = NOTHING, {} if budget is None else dict(budget.limits())
        if carve:
            self.carved.add(agent)
        allowed = not (carve and budget is not None and self.limits[agent].keys() - {Dimension.AGENTS}) or self.fits(
            parent
        )
        try:
            self.ledger.open(AgentId(agent), parent, budget, place=place, carve=carve)
        except Exhausted:
            assert not allowed
            self.ledger.unspawn(place)
            del self.own[agent], self.limits[agent]
            self.carved.discard(agent)
        else:
            assert allowed

    @rule(pick=st.integers(0, 99), asked=AMOUNTS)
    def reserve(self, pick: int, asked: Amounts) -> None:
        agent = self.agents()[pick % len(self.own)]
        trial = Reservation(self.ledger._accounts[AgentId(agent)], asked, (0,) * 7)
        self.held.append(trial)
        allowed = self.fits(agent)
        self.held.pop()
        try:
            self.held.append(self.ledger.reserve(AgentId(agent), asked))
        except Exhausted:
            assert not allowed
        else:
            assert allowed

    @rule(pick=st.integers(0, 99), calls=st.integers(0, 3))
    def take_calls(self, pick: int, calls: int) -> None:
        agent = self.agents()[pick % len(self.own)]
        asked = Amounts(tool_calls=calls)
        self.held.append(Reservation(self.ledger._accounts[AgentId(agent)], asked, (0,) * 7))
        allowed = self.fits(agent)
        self.held.pop()
        try:
            self.ledger.take_calls(AgentId(agent), calls)
        except Exhausted:
            assert not allowed
        else:
            assert allowed
            self.own[agent] += asked

    @rule(pick=st.integers(0, 99), calls=st.integers(1, 3))
    def give_calls_back(self, pick: int, calls: int) -> None:
        agent = self.agents()[pick % len(self.own)]
        if calls <= self.own[agent].tool_calls:
            self.ledger.take_calls(AgentId(agent), -calls)
            self.own[agent] += Amounts(tool_calls=-calls)

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 99), actual=AMOUNTS)
    def settle(self, pick: int, actual: Amounts) -> None:
        held = self.held.pop(pick % len(self.held))
        over = self.ledger.settle(held, actual)
        self.own[held.agent] += actual
        expected = {name: max(getattr(actual, name) - getattr(held.amounts, name), 0) for name in FIELDS}
        assert over == Amounts(**expected)

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 99))
    def release(self, pick: int) -> None:
        self.ledger.release(self.held.pop(pick % len(self.held)))

    @rule(pick=st.integers(0, 99), amounts=AMOUNTS)
    def charge(self, pick: int, amounts: Amounts) -> None:
        agent = self.agents()[pick % len(self.own)]
        self.ledger.charge(AgentId(agent), amounts)
        self.own[agent] += amounts

    @rule(pick=st.integers(0, 99), more=st.integers(1, 20))
    def grant(self, pick: int, more: int) -> None:
        agent = self.agents()[pick % len(self.own)]
        if Dimension.TOKENS not in self.limits[agent]:
            with pytest.raises(UsageError):
                self.ledger.grant(AgentId(agent), Budget(tokens=more), by="operator")
            return
        try:
            self.ledger.grant(AgentId(agent), Budget(tokens=more), by="operator")
        except Exhausted:
            assert agent in self.carved
        else:
            self.limits[agent][Dimension.TOKENS] += more

    @rule(pick=st.integers(0, 99), asked=AMOUNTS)
    def wrap_up(self, pick: int, asked: Amounts) -> None:
        agent = self.agents()[pick % len(self.own)]
        try:
            grants = self.ledger.extend_once(AgentId(agent), asked)
        except Exhausted:
            return
        for grant in grants:
            assert grant.raised
            for dimension, added, limit in grant.raised:
                self.limits[grant.node][dimension] += added
                assert self.limits[grant.node][dimension] == limit
        self.held.append(self.ledger.reserve(AgentId(agent), asked))

    @precondition(lambda self: len(self.own) > 1)
    @rule(pick=st.integers(0, 99))
    def end(self, pick: int) -> None:
        agent = self.agents()[1 + pick % (len(self.own) - 1)]
        self.ledger.ended(AgentId(agent))
        self.ended.add(agent)
        self.carved.discard(agent)

    @invariant()
    def totals_are_what_the_leaves_add_up_to(self) -> None:
        for agent in self.own:
            account = self.ledger._accounts[AgentId(agent)]
            shot = self.ledger.snapshot(AgentId(agent))
            assert shot.own == self.own[agent]
            assert shot.spent == self.spent(agent)  # LEDGER-3
            for dimension in (Dimension.TOKENS, Dimension.OUTPUT_TOKENS, Dimension.MODEL_CALLS, Dimension.SECONDS):
                index = (
                    "input_tokens",
                    "output_tokens",
                    "usd",
                    "model_calls",
                    "tool_calls",
                    "seconds",
                    "tokens",
                ).index(dimension.value)
                assert account.used[index] == self.used(agent, dimension)  # LEDGER-2
                assert account.used[index] >= account.spent[index]
            live = [a for a in self.below(agent) if a != agent and a not in self.ended]
            assert shot.live == len(live)  # LEDGER-6
        assert self.ledger.statistics().spent == self.spent(TOP)
        assert self.ledger.statistics().reservations == len(self.held)


def parents(agent: str) -> list[str]:
    """The agents above, nearest first."""
    found = []
    while agent := parent_path(agent):
        found.append(agent)
    return found


def value(amounts: Amounts, dimension: Dimension) -> int:
    """The amount in a dimension."""
    names = {Dimension.TOKENS: "tokens", Dimension.SECONDS: "active_us", Dimension.COST: "cost"}
    found: int = getattr(amounts, names.get(dimension, dimension.value))
    return found


def test_ledger_1_2_3_6_every_answer_is_the_plain_models() -> None:
    """Whatever is asked in whatever order, totals, refusals and counts are those added up anew from the leaves."""
    run_state_machine_as_test(LedgerMachine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None))
