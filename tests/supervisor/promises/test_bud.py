"""BUD: budgets, through the runtime."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
import trio
from msgspec.structs import replace

from actors import Budget, Exhausted, Price, RequestStarted, Script, UsageError, call, tool
from actors.models.script import hang
from actors.usage import Amounts
from tests.supervisor.promises.world import agent, quiet, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from supervisor import Supervisor
    from tests.supervisor.promises.world import World


class Priced:
    """A script that is not free: a model that costs what it is priced."""

    def __init__(self, steps: dict[str, object], **options: object) -> None:
        self.script = Script(steps, **options)  # type: ignore[arg-type]  # a script
        self.id, self.name, self.free, self.context_window = "paid:m", "m", False, None

    async def request(self, request: ModelRequest, emit: object) -> object:
        return await self.script.request(request, emit)  # type: ignore[arg-type]  # as it came


def still(amounts: Amounts) -> Amounts:
    """Without the active time."""
    return replace(amounts, active_us=0)


async def test_bud_2_parallel_calls_never_slip_through_a_limit(world: World, autojump_clock: MockClock) -> None:
    """Twenty children ask at once under a tree's limit of ten calls.

    At every moment held + spent is within the limit at every node, ten are admitted, and nothing stays held.
    """
    kid = agent("kid", budget=Budget(model_calls=5))
    lead = agent("lead", children=[kid], budget=Budget(model_calls=10, on_exhausted="fail"))
    peak: list[int] = []

    async def answer(request: ModelRequest) -> str:
        await trio.sleep(1)
        used = sup._parts.ledger.snapshot(lead_ref.path)
        peak.append(used.spent.model_calls + used.held.model_calls)
        return f"{request.agent} is done"

    script = {"lead": [[call("kid", task=str(n)) for n in range(20)], "never"], "kid": answer}
    async with world.open(script, permits=50) as sup:
        lead_ref = await sup.start(lead, "go")
        report = await lead_ref.wait_report()
        assert report.status == "exhausted"
        assert max(peak) <= 10
        assert len(peak) == 9, "one call was the lead's own"
        after = sup._parts.ledger.snapshot(lead_ref.path)
        assert (after.spent.model_calls, after.held) == (10, Amounts())


async def test_bud_2_an_abort_gives_back_what_was_held(world: World, autojump_clock: MockClock) -> None:
    """Cut in the middle of a request, a call is settled with what came, and its reservation is gone."""
    async with world.open({"a": [("half", hang())]}) as sup:
        ref = await sup.start(agent(budget=Budget(tokens=10_000_000)), "go")
        await trio.sleep(1)
        assert sup._parts.ledger.snapshot(ref.path).held != Amounts()
        await ref.abort("enough")
        await ref.wait_idle()
        after = sup._parts.ledger.snapshot(ref.path)
        assert after.held == Amounts()
        assert after.own.model_calls == 1


async def test_bud_7_spending_survives_a_restart_and_counts_in_every_ancestor_once(
    world: World, autojump_clock: MockClock
) -> None:
    """Rows, reports and ledger agree before and after a restart; a child's spending is in its parent's account."""

    @tool(effect="pure")
    async def add(a: int) -> int:
        """Add."""
        return a

    kid = agent("kid", tools=[add])
    lead = agent("lead", children=[kid], budget=Budget(model_calls=9))
    script = {"lead": [call("kid", task="x"), "done", "again"], "kid": [call("add", a=1), "fine"]}
    async with world.open(script) as sup:
        ref = await sup.start(lead, "go")
        await ref.wait_idle()
        before = await spending(sup)
        assert before["lead"][0].model_calls == before["lead/kid"][0].model_calls == 2
        assert before["lead"][1].model_calls == 4, "a child's counts in its ancestor"
        assert before["lead"][1] == before["lead"][0] + before["lead/kid"][0]
    async with world.open(script, agents=[lead]) as sup:
        ref = await sup.find("lead")
        assert await spending(sup) == before
        await (await ref.send("more")).wait_report()
        after = await spending(sup)
        assert after["lead"][1].model_calls == 5
        with pytest.raises(Exhausted):
            sup._parts.ledger.check(ref.path, Amounts(model_calls=5))


async def spending(sup: Supervisor) -> dict[str, tuple[Amounts, Amounts]]:
    """Per agent: what its row and its account say it spent, and what its account has with all below."""
    found = {}
    for row in await sup.tree():
        account = sup._parts.ledger.snapshot(row.agent)
        assert still(account.own) == still(row.spent), row.agent
        found[str(row.agent)] = still(row.spent), still(account.spent)
    return found


async def test_bud_7_a_request_lost_in_a_crash_is_charged_what_it_had_reserved_once(
    world: World, autojump_clock: MockClock
) -> None:
    """A process that dies in the middle of a request has spent its reservation: row and ledger say so, once."""
    lead = agent("lead", budget=Budget(model_calls=3))
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the raise is the crash
        async with world.open({"lead": [hang()]}, hard=0.1) as sup:
            ref = await sup.start(lead, "go")
            await trio.sleep(1)
            held = sup._parts.ledger.snapshot(ref.path).held
            world.spy.refuse = lambda _: True  # from here on the process is as good as dead
            raise ZeroDivisionError
    assert held.model_calls == 1
    for _ in range(2):  # found twice, charged once
        async with world.open({"lead": ["?", "?", "answered"]}, agents=[lead]) as sup:
            await sup.resume()
            ref = await sup.find("lead")
            await ref.wait_idle()
            row = (await sup.tree())[0]
            assert row.spent.model_calls == 2
            assert row.spent.input_tokens >= held.input_tokens
            await spending(sup)


async def test_bud_8_a_refusal_names_node_dimension_limit_spent_and_asked(
    world: World, autojump_clock: MockClock
) -> None:
    """The report of a run that its root's budget ended says which node binds, in what, and how much."""
    kid = agent("kid")
    lead = agent("lead", children=[kid], budget=Budget(model_calls=1, on_exhausted="fail"))
    async with world.open({"lead": [call("kid", task="x")], "kid": ["never"]}) as sup:
        ref = await sup.start(lead, "go")
        report = await ref.wait_report()
        below = await (await sup.find("lead/kid")).wait_report()
        for one in (report, below):
            assert one.status == "exhausted"
            error = one.error
            assert isinstance(error, Exhausted)
            assert (error.node, error.dimension) == ("lead", "model_calls")
            assert [str(value) for value in (error.limit, error.spent, error.asked)] == ["1", "1", "1"]
            for part in ("lead", "model_calls", "grant("):
                assert part in str(error)


async def test_bud_9_figures_are_exact(world: World, autojump_clock: MockClock) -> None:
    """Ten thousand tiny prices add up without a rounding: integers inside, decimals at the surface."""
    price = {"m": Price(input="0.1", output="0.3")}
    async with world.open(Priced({"a": lambda _: "x" * 40}), prices=price) as sup:
        ref = await sup.start(agent(budget=Budget(usd=100)), "1")
        for number in range(20):
            await (await ref.send(str(number))).wait_report()
        report = await ref.wait_report()
        row = (await sup.tree())[0]
        picos = row.usage.fresh * 100_000 + row.usage.output_tokens * 300_000
        assert row.spent.cost == picos
        assert isinstance(report.cost, Decimal)
        (bound,) = [one for one in sup._parts.ledger.snapshot(ref.path).limits if one.dimension == "usd"]
        assert bound.used == Decimal(picos) / 10**12


async def test_bud_9_without_a_price_cost_is_unknown_and_a_cost_limit_refuses(
    world: World, autojump_clock: MockClock
) -> None:
    """An unpriced model counts tokens and says that cost is unknown.

    Under a cost limit it is refused with the way to set a price; a free one costs nothing unless it is priced.
    """
    async with world.open(Priced({"a": ["one"], "b": ["never"]})) as sup, watched(sup) as log:
        report = await sup.run(agent("a"), "go")
        assert report.cost is None
        assert report.usage.total_tokens > 0
        refused = await sup.run(agent("b", budget=Budget(usd="1.00")), "go")
        assert refused.status == "failed"
        assert isinstance(refused.error, UsageError)
        assert "prices=" in str(refused.error)
        assert [event.path for event in log.of(RequestStarted)] == ["a"]
    async with world.open({"c": ["free"]}) as sup:
        assert (await sup.run(agent("c", budget=Budget(usd="0.01")), "go")).cost == 0
    async with world.open({"d": ["not free"]}, prices={"script": Price(input="1.00", output="1.00")}) as sup:
        cost = (await sup.run(agent("d", budget=Budget(usd="0.01")), "go")).cost
        assert cost is not None
        assert cost > 0
    await quiet()
