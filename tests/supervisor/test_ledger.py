"""The ledger: examples by promise, and a machine that feeds it legal and illegal input against a plain model."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from actors.budget import Budget, Dimension
from actors.errors import Exhausted, InternalError, SpawnLimit, UnknownPath
from actors.ids import AgentId, parent_path
from actors.usage import NOTHING, Amounts, picodollars
from supervisor.ledger import TOP, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

from tests.supervisor.ledgerkit import LEAD, LEAF, MID, chain

# -- reserve, settle, release ------------------------------------------------------------------------------------------


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


# -- illegal input -----------------------------------------------------------------------------------------------------


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
