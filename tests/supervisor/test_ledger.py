"""The ledger: examples by promise, and a machine that feeds it legal and illegal input against a plain model."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

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
from actors.errors import BudgetError, Exhausted, InternalError, SpawnLimit, UnknownPath, UsageError
from actors.ids import AgentId, parent_path
from actors.usage import NOTHING, Amounts, picodollars
from supervisor.ledger import TOP, Ledger, Reservation, TreeLimits

if TYPE_CHECKING:
    from collections.abc import Callable

LEAD, MID, LEAF = AgentId("lead"), AgentId("lead/mid"), AgentId("lead/mid/leaf")


def chain(lead: Budget | None = None, mid: Budget | None = None, leaf: Budget | None = None) -> Ledger:
    """Three accounts, one below the other."""
    ledger = Ledger()
    for agent, budget in ((LEAD, lead), (MID, mid), (LEAF, leaf)):
        ledger.open(agent, parent_path(agent), budget)
    return ledger


def stages(ledger: Ledger) -> list[tuple[str, str, str]]:
    """The stages taken, in short."""
    return [(stage.node, stage.stage, stage.dimension) for stage in ledger.take_stages()]


# -- reserve, settle, release -------------------------------------------------------------------------------------


def test_bud_2_a_reservation_is_held_along_the_whole_chain_or_nowhere() -> None:
    """What a node above refuses is held nowhere below it, and what all allow is held at each."""
    ledger = chain(lead=Budget(tokens=100), leaf=Budget(tokens=200))
    held = ledger.reserve(LEAF, Amounts(input_tokens=60, output_tokens=20))
    ledger.check(LEAF, Amounts(input_tokens=20))
    with pytest.raises(Exhausted):
        ledger.check(LEAF, Amounts(input_tokens=21))
    with pytest.raises(Exhausted) as caught:
        ledger.reserve(LEAF, Amounts(input_tokens=21))
    assert caught.value.node == LEAD
    for agent in (LEAD, MID, LEAF):
        assert ledger.snapshot(agent).held == Amounts(input_tokens=60, output_tokens=20)
    ledger.reserve(LEAF, Amounts(input_tokens=20))
    assert ledger.remaining(LEAF, Dimension.TOKENS) == 0
    ledger.release(held)
    assert ledger.remaining(LEAF, Dimension.TOKENS) == 80


def test_bud_2_what_is_held_counts_against_siblings() -> None:
    """Two children cannot both reserve the same rest of their parent's budget."""
    ledger = Ledger()
    ledger.open(LEAD, "", Budget(model_calls=1))
    one, two = AgentId("lead/one"), AgentId("lead/two")
    ledger.open(one, LEAD)
    ledger.open(two, LEAD)
    held = ledger.reserve(one, Amounts(model_calls=1))
    with pytest.raises(Exhausted):
        ledger.reserve(two, Amounts(model_calls=1))
    ledger.release(held)
    ledger.reserve(two, Amounts(model_calls=1))


def test_bud_2_a_settlement_over_its_estimate_is_recorded_as_overrun() -> None:
    """The true figures are spent even over the limit, the excess is returned and kept, and the next is refused."""
    ledger = chain(mid=Budget(output_tokens=50))
    held = ledger.reserve(LEAF, Amounts(input_tokens=10, output_tokens=40, model_calls=1))
    over = ledger.settle(held, Amounts(input_tokens=5, output_tokens=90, model_calls=1))
    assert over == Amounts(output_tokens=50)
    assert ledger.snapshot(LEAF).overrun == Amounts(output_tokens=50)
    assert ledger.snapshot(LEAD).spent == Amounts(input_tokens=5, output_tokens=90, model_calls=1)
    assert ledger.remaining(LEAF, Dimension.OUTPUT_TOKENS) == 0
    with pytest.raises(Exhausted):
        ledger.reserve(LEAF, Amounts(tool_calls=1))


def test_bud_2_none_is_no_limit_and_zero_is_nothing_left() -> None:
    """Without a limit anything is held; with 0 nothing is, and what asks nothing passes."""
    ledger = chain(leaf=Budget(usd=0))
    ledger.reserve(MID, Amounts(cost=picodollars(10**6)))
    assert ledger.remaining(MID, Dimension.COST) is None
    ledger.reserve(LEAF, Amounts(input_tokens=10))
    with pytest.raises(Exhausted):
        ledger.reserve(LEAF, Amounts(cost=1))


def test_bud_2_the_supervisors_own_budget_stands_above_all_trees() -> None:
    """Two roots share what the supervisor may spend."""
    ledger = Ledger(Budget(tokens=10, agents=2))
    ledger.open(AgentId("a"), "", place=ledger.spawn(""))
    ledger.open(AgentId("b"), "", place=ledger.spawn(""))
    ledger.settle(ledger.reserve(AgentId("a"), Amounts(input_tokens=6)), Amounts(input_tokens=6))
    with pytest.raises(Exhausted) as caught:
        ledger.reserve(AgentId("b"), Amounts(input_tokens=5))
    assert caught.value.node == TOP
    with pytest.raises(SpawnLimit, match="the supervisor may start no agent"):
        ledger.spawn("")
    ledger.grant(TOP, Budget(tokens=1), by="operator")
    ledger.reserve(AgentId("b"), Amounts(input_tokens=5))


def test_bud_6_time_counts_as_it_is_charged() -> None:
    """Charged active time uses up the seconds of every node above, and then refuses."""
    ledger = chain(lead=Budget(seconds=1.5))
    ledger.charge(LEAF, Amounts(active_us=1_000_000))
    assert ledger.remaining(MID, Dimension.SECONDS) == 500_000
    ledger.charge(LEAF, Amounts(active_us=750_000))
    assert ledger.remaining(MID, Dimension.SECONDS) == 0
    with pytest.raises(Exhausted) as caught:
        ledger.reserve(LEAF, Amounts(tool_calls=1))
    assert caught.value.dimension == "seconds"
    assert caught.value.spent == Decimal("1.75")


def test_bud_7_spending_survives_a_restart_and_counts_in_every_ancestor() -> None:
    """Accounts opened from own spending, parents first, give the same totals in any such order, stages untold."""
    rows = {LEAD: 10, MID: 20, LEAF: 30, AgentId("lead/other"): 40, AgentId("zed"): 50}
    for order in ([LEAD, MID, LEAF, "lead/other", "zed"], ["zed", LEAD, "lead/other", MID, LEAF]):
        ledger = Ledger()
        for agent in map(AgentId, order):
            budget = Budget(tokens=101) if agent == LEAD else None
            ledger.open(agent, parent_path(agent), budget, Amounts(input_tokens=rows[agent], cost=1))
        assert [ledger.snapshot(agent).spent.tokens for agent in rows] == [100, 50, 30, 40, 50]
        assert ledger.snapshot(LEAD).own == Amounts(input_tokens=10, cost=1)
        assert ledger.statistics().spent == Amounts(input_tokens=150, cost=5)
        assert ledger.remaining(LEAF, Dimension.TOKENS) == 1
        assert ledger.take_stages() == ()


def test_bud_8_a_refusal_names_node_dimension_limit_spent_and_asked() -> None:
    """All five, in dollars and seconds and counts, and what to do next."""
    ledger = chain(mid=Budget(usd="0.50", seconds=2))
    ledger.reserve(LEAF, Amounts(cost=picodollars("0.4375")))
    with pytest.raises(Exhausted) as caught:
        ledger.reserve(LEAF, Amounts(cost=picodollars("0.1")))
    error = caught.value
    assert (error.node, error.dimension) == (MID, "usd")
    assert (error.limit, error.spent, error.asked) == (Decimal("0.5"), Decimal("0.4375"), Decimal("0.1"))
    assert "grant('lead/mid', Budget(usd=...))" in str(error)
    late = ledger.exhausted(LEAF, Dimension.SECONDS, 2_500_000)
    assert (late.node, late.dimension, late.limit, late.asked) == (MID, "seconds", 2, Decimal("2.5"))
    with pytest.raises(InternalError, match="nothing limits"):
        ledger.exhausted(LEAD, Dimension.SECONDS, 1)


def test_bud_9_figures_are_exact() -> None:
    """A million reservations of a tenth of a cent's fraction add up to the picodollar."""
    ledger = chain(lead=Budget(usd="0.000000000003"))
    for _ in range(3):
        ledger.settle(ledger.reserve(LEAF, Amounts(cost=1)), Amounts(cost=1))
    assert ledger.remaining(LEAF, Dimension.COST) == 0
    with pytest.raises(Exhausted):
        ledger.reserve(LEAF, Amounts(cost=1))


# -- carving out --------------------------------------------------------------------------------------------------


def test_bud_3_a_carved_out_part_is_held_at_once_and_returned_less_what_was_spent() -> None:
    """The parent cannot spend the part; the child can; at its end the rest is the parent's again."""
    ledger = Ledger()
    ledger.open(LEAD, "", Budget(tokens=100))
    ledger.open(MID, LEAD, Budget(tokens=60), place=ledger.spawn(LEAD), carve=True)
    assert ledger.remaining(LEAD, Dimension.TOKENS) == 40
    assert ledger.remaining(MID, Dimension.TOKENS) == 60
    with pytest.raises(Exhausted):
        ledger.reserve(LEAD, Amounts(input_tokens=41))
    ledger.reserve(LEAD, Amounts(input_tokens=40))
    ledger.settle(ledger.reserve(MID, Amounts(input_tokens=25)), Amounts(input_tokens=25))
    assert ledger.remaining(LEAD, Dimension.TOKENS) == 0
    ledger.ended(MID)
    assert ledger.remaining(LEAD, Dimension.TOKENS) == 35
    assert ledger.snapshot(LEAD).spent.tokens == 25


def test_bud_3_a_part_larger_than_what_is_left_is_refused_and_nothing_is_opened() -> None:
    """The refusal names the parent; the place is still there for a smaller part."""
    ledger = Ledger()
    ledger.open(LEAD, "", Budget(tokens=100))
    place = ledger.spawn(LEAD)
    with pytest.raises(Exhausted) as caught:
        ledger.open(MID, LEAD, Budget(tokens=101), place=place, carve=True)
    assert caught.value.node == LEAD
    with pytest.raises(UnknownPath):
        ledger.snapshot(MID)
    ledger.open(MID, LEAD, Budget(tokens=100), place=place, carve=True)


def test_bud_3_an_overrun_of_a_carved_part_counts_above() -> None:
    """Only what exceeds the part adds to what the parent uses; a grant to it needs room above."""
    ledger = Ledger()
    ledger.open(LEAD, "", Budget(tokens=100))
    ledger.open(MID, LEAD, Budget(tokens=60), carve=True)
    ledger.settle(ledger.reserve(MID, Amounts(input_tokens=60)), Amounts(input_tokens=70))
    assert ledger.remaining(LEAD, Dimension.TOKENS) == 30
    with pytest.raises(Exhausted):
        ledger.grant(MID, Budget(tokens=41), by="operator")
    ledger.grant(MID, Budget(tokens=40), by="operator")
    assert ledger.remaining(LEAD, Dimension.TOKENS) == 0
    assert ledger.remaining(MID, Dimension.TOKENS) == 30


def test_bud_3_a_node_that_overran_binds_its_carved_parts_too() -> None:
    """Where a limit above is exceeded already, even what asks nothing more of it is refused, as BUD-2 says."""
    ledger = Ledger()
    ledger.open(LEAD, "", Budget(tokens=100))
    ledger.open(MID, LEAD, Budget(tokens=60), carve=True)
    ledger.charge(LEAD, Amounts(input_tokens=40))
    held = ledger.reserve(MID, Amounts(input_tokens=10))
    ledger.charge(LEAD, Amounts(input_tokens=1))
    with pytest.raises(Exhausted) as caught:
        ledger.reserve(MID, Amounts(input_tokens=10))
    assert (caught.value.node, caught.value.spent, caught.value.asked) == (LEAD, 101, 0)
    assert ledger.remaining(MID, Dimension.TOKENS) == 0
    ledger.release(held)


# -- stages and grants ---------------------------------------------------------------------------------------------


def test_bud_4_each_stage_is_told_once_per_grant() -> None:
    """Soft, critical and exhausted come once, in order, at the node whose limit it is, and again after a grant."""
    ledger = chain(mid=Budget(model_calls=10))
    for _ in range(7):
        ledger.settle(ledger.reserve(LEAF, Amounts(model_calls=1)), Amounts(model_calls=1))
    assert stages(ledger) == [(MID, "soft", "model_calls")]
    ledger.settle(ledger.reserve(LEAF, Amounts(model_calls=2)), Amounts(model_calls=2))
    assert stages(ledger) == [(MID, "critical", "model_calls")]
    ledger.settle(ledger.reserve(LEAF, Amounts(model_calls=1)), Amounts(model_calls=1))
    assert stages(ledger) == [(MID, "exhausted", "model_calls")]
    for _ in range(2):
        with pytest.raises(Exhausted):
            ledger.reserve(LEAF, Amounts(model_calls=1))
    assert stages(ledger) == []
    ledger.grant(MID, Budget(model_calls=10), by="operator")
    ledger.charge(LEAF, Amounts(model_calls=4))
    assert stages(ledger) == [(MID, "soft", "model_calls")]


def test_bud_4_a_refusal_is_exhaustion() -> None:
    """Where what is asked does not fit, the stage is told though something is left."""
    ledger = chain(mid=Budget(usd="1"))
    with pytest.raises(Exhausted):
        ledger.reserve(LEAF, Amounts(cost=picodollars("1.5")))
    (stage,) = ledger.take_stages()
    assert (stage.node, stage.stage, stage.dimension, stage.limit, stage.spent) == (MID, "exhausted", "usd", "1", "0")


def test_bud_5_a_grant_is_finite_and_recorded() -> None:
    """It adds what it names, and says by whom; what names nothing or no limit of the node's is refused."""
    ledger = chain(mid=Budget(usd="0.5", agents=1, depth=1))
    grant = ledger.grant(MID, Budget(usd="0.25", agents=2, depth=1), by="operator")
    assert (grant.number, grant.by) == (1, "operator")
    assert grant.raised == (
        (Dimension.COST, picodollars("0.25"), picodollars("0.75")),
        (Dimension.AGENTS, 2, 3),
        (Dimension.DEPTH, 1, 2),
    )
    assert ledger.snapshot(MID).grants == (grant,)
    before = ledger.snapshot(MID)
    with pytest.raises(UsageError, match="no limit of tokens to raise; it has"):
        ledger.grant(MID, Budget(usd="1", tokens=5), by="operator")
    with pytest.raises(UsageError, match="names what it adds"):
        ledger.grant(MID, Budget(), by="operator")
    assert ledger.snapshot(MID) == before


def test_bud_5_what_is_no_person_is_capped() -> None:
    """All that others than persons add to a limit is at most what the node was opened with."""
    ledger = chain(mid=Budget(tokens=100))
    ledger.grant(MID, Budget(tokens=70), by=LEAD, person=False)
    with pytest.raises(BudgetError, match="at most 30 more tokens"):
        ledger.grant(MID, Budget(tokens=31), by=LEAD, person=False)
    ledger.grant(MID, Budget(tokens=1000), by="operator")
    ledger.grant(MID, Budget(tokens=30), by=LEAD, person=False)


def test_bud_5_the_wrap_up_is_one_finite_recorded_extension() -> None:
    """What is missing along the chain is added once; then only after a grant, and never beyond the cap."""
    ledger = chain(lead=Budget(tokens=100), mid=Budget(model_calls=1))
    ledger.charge(LEAF, Amounts(input_tokens=95, model_calls=1))
    asked = Amounts(input_tokens=20, output_tokens=10, model_calls=1)
    assert ledger.extend_once(LEAF, Amounts(input_tokens=5)) == ()
    given = ledger.extend_once(LEAF, asked)
    assert [(grant.node, grant.by, grant.raised) for grant in given] == [
        (MID, "wrap_up", ((Dimension.MODEL_CALLS, 1, 2),)),
        (LEAD, "wrap_up", ((Dimension.TOKENS, 25, 125),)),
    ]
    ledger.settle(ledger.reserve(LEAF, asked), asked)
    with pytest.raises(Exhausted):
        ledger.extend_once(LEAF, Amounts(input_tokens=1))
    ledger.extend_once(MID, Amounts(input_tokens=1))  # another agent's own last response
    ledger.charge(MID, Amounts(input_tokens=1))
    with pytest.raises(Exhausted):
        ledger.extend_once(LEAF, Amounts(input_tokens=1))
    ledger.grant(LEAD, Budget(tokens=1), by="operator")
    with pytest.raises(Exhausted) as caught:
        ledger.extend_once(LEAF, Amounts(input_tokens=90))
    assert (caught.value.node, caught.value.limit, caught.value.spent, caught.value.asked) == (LEAD, 101, 126, 90)
    ledger.extend_once(LEAF, Amounts(input_tokens=10))


def test_bud_5_the_wrap_up_of_a_carved_part_grows_it_and_what_is_held_above() -> None:
    """After the extension the reservation fits at every node, and no number was left behind."""
    ledger = Ledger()
    ledger.open(LEAD, "", Budget(tokens=100))
    ledger.open(MID, LEAD, Budget(tokens=60), carve=True)
    ledger.charge(LEAD, Amounts(input_tokens=35))
    ledger.charge(MID, Amounts(input_tokens=60))
    asked = Amounts(input_tokens=20)
    assert [(grant.node, grant.raised[0][1]) for grant in ledger.extend_once(MID, asked)] == [(MID, 20), (LEAD, 15)]
    ledger.settle(ledger.reserve(MID, asked), asked)
    ledger.ended(MID)
    assert ledger.snapshot(LEAD).held == NOTHING


# -- agents --------------------------------------------------------------------------------------------------------


def test_sup_5_depth_breadth_and_number_are_bounded() -> None:
    """Each bound refuses the agent that is one too many, by name, and what ended frees its place but not its number."""
    ledger = Ledger(limits=TreeLimits(depth=2, live=3, ever=5))
    ledger.open(LEAD, "", place=ledger.spawn(""))
    ledger.open(MID, LEAD, place=ledger.spawn(LEAD))
    ledger.open(LEAF, MID, place=ledger.spawn(MID))
    with pytest.raises(SpawnLimit, match="3 levels below lead, which allows 2"):
        ledger.spawn(LEAF)
    place = ledger.spawn(LEAD)
    with pytest.raises(SpawnLimit, match="3 live below lead"):
        ledger.spawn(MID)
    ledger.unspawn(place)
    ledger.unspawn(place)
    ledger.ended(LEAF)
    ledger.ended(LEAF)
    assert (ledger.snapshot(LEAD).live, ledger.snapshot(LEAD).ever) == (1, 2)
    for name in ("x", "y", "z"):
        ledger.open(AgentId(f"lead/{name}"), LEAD, place=ledger.spawn(LEAD))
        ledger.ended(AgentId(f"lead/{name}"))
    with pytest.raises(SpawnLimit, match="5 were started below lead, which allows 5"):
        ledger.spawn(LEAD)


def test_sup_5_a_budget_raises_or_lowers_the_trees_bounds() -> None:
    """Agents and depth of a root's budget replace the defaults; those of a node below bind below it."""
    ledger = Ledger(limits=TreeLimits(depth=1, live=1))
    ledger.open(LEAD, "", Budget(agents=3, depth=3))
    ledger.open(MID, LEAD, Budget(agents=1, depth=1))
    assert ledger.remaining(LEAD, Dimension.AGENTS) == 2
    assert ledger.remaining(MID, Dimension.AGENTS) == 1
    assert ledger.remaining(MID, Dimension.DEPTH) == 1
    ledger.open(LEAF, MID, place=ledger.spawn(MID))
    with pytest.raises(SpawnLimit, match="1 live below lead/mid"):
        ledger.spawn(MID)
    ledger.ended(LEAF)
    with pytest.raises(SpawnLimit, match="2 levels below lead/mid"):
        ledger.spawn(LEAF)


def test_a_tree_that_ended_can_be_forgotten_and_its_spending_stays_in_the_totals() -> None:
    """Not while something of it lives or holds; a tree whose name begins alike is left alone."""
    ledger = chain()
    ledger.open(AgentId("leader"), "")
    ledger.charge(LEAF, Amounts(input_tokens=5))
    with pytest.raises(InternalError, match="still lives"):
        ledger.forget(LEAD)
    held = ledger.reserve(LEAF, Amounts(tool_calls=1))
    for agent in (LEAF, MID, LEAD):
        ledger.ended(agent)
    with pytest.raises(InternalError, match="still lives or holds"):
        ledger.forget(LEAD)
    ledger.release(held)
    ledger.forget(LEAD)
    assert ledger.statistics().accounts == 1
    assert ledger.statistics().spent.tokens == 5


# -- illegal input -------------------------------------------------------------------------------------------------


def test_ledger_4_a_reservation_ends_once() -> None:
    """A second settle or release is our bug and says so; no number moves."""
    ledger = chain()
    held = ledger.reserve(LEAF, Amounts(tool_calls=1))
    ledger.settle(held, Amounts(tool_calls=1))
    before = ledger.snapshot(LEAD)
    for again in (lambda: ledger.settle(held, NOTHING), lambda: ledger.release(held)):
        with pytest.raises(InternalError, match="before"):
            again()
    assert ledger.snapshot(LEAD) == before


def test_ledger_5_illegal_input_changes_nothing() -> None:
    """Unknown agents, negative amounts, accounts and places used twice are refused and leave all as it was."""
    ledger = chain(lead=Budget(tokens=10))
    held = ledger.reserve(LEAF, Amounts(input_tokens=1))
    place = ledger.spawn(LEAD)
    ledger.open(AgentId("lead/used"), LEAD, place=place)
    before = [ledger.snapshot(agent) for agent in (LEAD, MID, LEAF)], ledger.statistics()
    ghost = AgentId("ghost")
    attempts: list[tuple[type[Exception], Callable[[], object]]] = [
        (UnknownPath, lambda: ledger.reserve(ghost, NOTHING)),
        (UnknownPath, lambda: ledger.charge(ghost, NOTHING)),
        (UnknownPath, lambda: ledger.open(AgentId("ghost/kid"), ghost)),
        (UnknownPath, lambda: ledger.spawn(ghost)),
        (InternalError, lambda: ledger.reserve(LEAF, Amounts(input_tokens=-1))),
        (InternalError, lambda: ledger.charge(LEAF, Amounts(cost=-1))),
        (InternalError, lambda: ledger.settle(held, Amounts(cost=-1))),
        (InternalError, lambda: ledger.open(LEAF, MID)),
        (InternalError, lambda: ledger.open(AgentId("lead/new"), LEAD, place=place)),
    ]
    for error, attempt in attempts:
        with pytest.raises(error):
            attempt()
    assert ([ledger.snapshot(agent) for agent in (LEAD, MID, LEAF)], ledger.statistics()) == before
    ledger.settle(held, NOTHING)


def test_a_ledger_shows_its_state() -> None:
    """The representations name what they hold."""
    ledger = chain()
    held = ledger.reserve(LEAF, Amounts(tool_calls=1))
    assert repr(ledger) == "<Ledger 3 accounts, 1 reservations>"
    assert "open" in repr(held)
    assert "tool_calls=1" in repr(ledger._accounts[LEAF])


# -- the machine ---------------------------------------------------------------------------------------------------

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
