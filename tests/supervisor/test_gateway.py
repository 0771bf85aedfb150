"""The gateway with models made of steps, on a virtual clock: every path out, and what it leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors.budget import Budget, Dimension
from actors.errors import Exhausted, UsageError
from actors.ports import ModelRequest, ReportedUsage, Response, TextPiece
from actors.transcript import Stop, TextBlock
from actors.usage import NOTHING, Amounts, Usage
from supervisor.gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import trio.testing

    from actors.ports import Emit

    Step = Callable[[ModelRequest, Emit], Awaitable[Response]]

from tests.supervisor.gatekit import HELLO, KID, LEAD, PRICE, Rig, Steps, pieces, request


async def test_req_7_a_call_is_accounted_with_its_true_figures(autojump_clock: trio.testing.MockClock) -> None:
    """What was reserved is replaced by what the server reported, in disjoint classes, with latency and cost."""
    rig = Rig()
    ticket = rig.gateway.admit_nowait(KID, (Steps(2.5),), 300)
    assert ticket is not None
    assert rig.ledger.snapshot(LEAD).held == ticket.held
    assert ticket.held.model_calls == 1
    served = await rig.call(ticket, request(KID))
    assert served.usage == Usage(fresh=5, cached=4, cache_write=1, visible=3, reasoning=2)
    assert served.cost == PRICE.cost(served.usage) == 57_400_000
    assert (served.attempts, served.model) == (1, "test:m")
    assert ticket.charged == Amounts(10, 5, 57_400_000, 1)
    assert (ticket.usage, ticket.cost_known, ticket.held) == (served.usage, True, NOTHING)
    assert rig.ledger.snapshot(LEAD).spent == ticket.charged
    (record,) = rig.accounted
    assert record.overrun == NOTHING
    assert (record.outcome, record.number, record.latency_s, record.queued_s) == ("ok", 1, 2.5, 0.0)
    rig.check_even()


async def test_req_7_unreported_tokens_are_estimated_and_never_zero(autojump_clock: trio.testing.MockClock) -> None:
    """A server that tells nothing is charged the estimate of the request and the size of the answer."""
    rig = Rig()
    await rig.ask(Steps(pieces(TextPiece("x" * 30), end=Response((TextBlock("x" * 30),), Stop.END_TURN))))
    assert rig.ticket is not None
    assert rig.ticket.usage == Usage(fresh=116, visible=10)
    rig.check_even()


async def test_bud_2_what_a_call_takes_more_than_reserved_is_told(autojump_clock: trio.testing.MockClock) -> None:
    """The record of the attempt has the overrun, and the account has it too."""
    rig = Rig()
    model = Steps(Response((TextBlock("x"),), Stop.END_TURN, ReportedUsage(input=1000, output=5)))
    await rig.ask(model)
    assert rig.accounted[0].overrun == Amounts(input_tokens=1000 - 116)
    assert rig.ledger.snapshot(LEAD).overrun == rig.accounted[0].overrun
    rig.check_even()


async def test_bud_9_without_a_price_tokens_count_and_the_cost_is_unknown(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The answer says None, the ticket says so too, and a free model costs nothing."""
    rig = Rig()
    ticket = rig.gateway.admit_nowait(LEAD, (Steps(HELLO, name="other"),), 10)
    assert ticket is not None
    served = await rig.call(ticket, request())
    assert (served.cost, ticket.cost_known, ticket.charged.cost) == (None, False, 0)
    assert ticket.charged.tokens == 15
    free = rig.gateway.admit_nowait(LEAD, (Steps(HELLO, name="local", free=True),), 10)
    assert free is not None
    assert (await rig.call(free, request())).cost == 0
    assert free.cost_known
    rig.check_even()


async def test_bud_9_with_a_cost_limit_an_unpriced_model_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    """Anywhere in the chain of models, for a limit anywhere on the chain of agents, with the way to set a price."""
    rig = Rig(Budget(usd="1"))
    for chain in ((Steps(HELLO, name="other"),), (Steps(HELLO), Steps(HELLO, name="other"))):
        with pytest.raises(UsageError, match=r"prices=\{'other': Price\("):
            rig.gateway.admit_nowait(KID, chain, 10)
    with pytest.raises(UsageError, match="no model to ask"):
        rig.gateway.admit_nowait(KID, (), 10)
    with pytest.raises(UsageError, match="at least one permit"):
        Gateway(rig.ledger, permits={"m": 0})
    rig.check_even()


async def test_bud_2_an_exhausted_budget_admits_nothing_and_calls_nobody(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Both ways in raise, the model is not asked, and nothing is held."""
    rig = Rig(Budget(tokens=100))
    model = Steps(HELLO)
    with pytest.raises(Exhausted):
        rig.gateway.admit_nowait(KID, (model,), 300)
    with pytest.raises(Exhausted):
        await rig.gateway.admit(KID, (model,), 300)
    assert model.asked == []
    rig.check_even()


async def test_bud_4_the_wrap_up_is_let_in_once(autojump_clock: trio.testing.MockClock) -> None:
    """An exhausted agent gets one last response by a finite extension, and no second one."""
    rig = Rig(Budget(model_calls=1, tokens=9000, seconds=10))
    model = Steps(HELLO)
    await rig.ask(model)
    rig.ledger.charge(LEAD, Amounts(active_us=10_000_000))
    with pytest.raises(Exhausted):
        rig.gateway.admit_nowait(LEAD, (model,), 300)
    ticket = rig.gateway.admit_nowait(LEAD, (model,), 300, wrap_up=True, max_output_tokens=500)
    assert ticket is not None
    await rig.gateway.call(ticket, request(), rig.notes)
    with pytest.raises(Exhausted):
        rig.gateway.admit_nowait(LEAD, (model,), 300, wrap_up=True, max_output_tokens=500)
    raised = {dimension: added for grant in rig.ledger.snapshot(LEAD).grants for dimension, added, _ in grant.raised}
    assert raised == {Dimension.MODEL_CALLS: 1, Dimension.SECONDS: 10_000_000}
    rig.check_even()
