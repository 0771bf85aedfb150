"""The ledger's carved-out parts, stages, grants and agents: BUD-3, BUD-4, BUD-5, SUP-5."""

from __future__ import annotations

import pytest

from actors.budget import Budget, Dimension
from actors.errors import BudgetError, Exhausted, InternalError, SpawnLimit, UnknownPath, UsageError
from actors.ids import AgentId
from actors.usage import NOTHING, Amounts, picodollars
from supervisor.ledger import Ledger, TreeLimits
from tests.supervisor.ledgerkit import LEAD, LEAF, MID, chain


def stages(ledger: Ledger) -> list[tuple[str, str, str]]:
    """The stages taken, in short."""
    return [(stage.node, stage.stage, stage.dimension) for stage in ledger.take_stages()]


# -- carving out -------------------------------------------------------------------------------------------------------


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


# -- stages and grants -------------------------------------------------------------------------------------------------


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


# -- agents ------------------------------------------------------------------------------------------------------------


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
