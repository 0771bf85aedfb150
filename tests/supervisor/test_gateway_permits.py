"""The gateway's permits and rates, and what any mix of calls leaves behind: GAT-1, GAT-2, GAT-3."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from actors.budget import Budget, Limits
from actors.conversation import Conversation
from actors.errors import Broken, Exhausted, InternalError, Malformed, Overloaded, ProviderError, Rejected
from actors.ids import AgentId, RequestId
from actors.ports import (
    ALIVE,
    BlockDone,
    Gate,
    ModelRequest,
    ReportedUsage,
    Response,
    Spending,
    TextPiece,
    Ticket,
    Watch,
    WireCall,
)
from actors.transcript import Stop, TextBlock
from actors.usage import Amounts
from actors.waiting import Frame
from supervisor.books import PERMITS
from supervisor.gateway import Gateway
from supervisor.ledger import Ledger
from supervisor.pools import Rate
from supervisor.tickets import GateTicket
from supervisor.waits import WaitGraph

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.ports import Emit

    Step = Callable[[ModelRequest, Emit], Awaitable[Response]]

from tests.supervisor.gatekit import HELLO, KID, LEAD, Notes, Rig, Steps, pieces, request


async def test_gat_1_no_more_streams_than_permits_and_first_come_first_served(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Eleven calls at three permits: never more than three at once, in the order asked; other models do not wait."""
    rig = Rig(permits=3)
    model, order = Steps(1.0), []
    other = Steps(HELLO, name="n")

    async def ask(number: int) -> None:
        await rig.ask(model)
        order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(11):
            nursery.start_soon(ask, number)
            await trio.testing.wait_all_tasks_blocked()
        assert rig.gateway.admit_nowait(LEAD, (model,), 300) is None
        await rig.ask(other)
        assert trio.current_time() == 0
    assert model.most == 3
    assert [n // 3 for n in order] == sorted(n // 3 for n in order)
    assert trio.current_time() == 4
    assert rig.gateway.statistics().waited == 8
    assert max(record.queued_s for record in rig.accounted) == 3
    rig.check_even()


async def test_gat_1_whoever_is_waited_for_goes_first(autojump_clock: trio.testing.MockClock) -> None:
    """An agent that another waits for overtakes, also when the wait begins after it queued."""
    graph = WaitGraph()
    rig = Rig(permits=1, waits=graph)
    names = [AgentId(f"lead/{name}") for name in "abcd"]
    for name in names:
        rig.ledger.open(name, LEAD)
    graph.begin(Frame(LEAD, 1, "tool", "d"), (names[3],))
    model, order = Steps(1.0), []

    async def ask(name: AgentId) -> None:
        ticket = await rig.gateway.admit(name, (model,), 300)
        order.append(name)
        await rig.gateway.call(ticket, request(name), Notes())

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(ask, name)
            await trio.testing.wait_all_tasks_blocked()
        graph.begin(Frame(LEAD, 1, "tool", "c"), (names[2],))
    assert order == [names[0], names[3], names[2], names[1]]


async def test_gat_1_cancelled_while_it_waits_it_holds_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """Also in the moment in which the permit comes: it goes on to the next one."""
    rig = Rig(permits=1)
    model = Steps(1.0)
    got: list[int] = []

    async def ask(number: int, scope: trio.CancelScope) -> None:
        with scope:
            await rig.ask(model)
            got.append(number)

    scopes = [trio.CancelScope() for _ in range(4)]
    async with trio.open_nursery() as nursery:
        for number, scope in enumerate(scopes):
            nursery.start_soon(ask, number, scope)
            await trio.testing.wait_all_tasks_blocked()
        scopes[1].cancel()
        await trio.sleep(0.5)
        scopes[2].deadline = 1.0  # the very moment at which it is its turn
    assert got in ([0, 3], [0, 2, 3])
    rig.check_even()


async def test_gat_1_whoever_the_budget_refuses_after_its_wait_gives_the_permit_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Nothing is reserved while waiting, so the budget may be gone by then: Exhausted, and the next is let in."""
    rig = Rig(permits=1)
    rig.ledger.open(AgentId("lead/poor"), LEAD, Budget(model_calls=1))
    model = Steps(1.0)

    async def poor() -> None:
        with pytest.raises(Exhausted):
            await rig.gateway.admit(AgentId("lead/poor"), (model,), 300)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.ask, model)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(poor)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(rig.ask, model)
        rig.ledger.charge(AgentId("lead/poor"), Amounts(model_calls=1))
    assert trio.current_time() == 2
    rig.check_even()


async def test_gat_1_the_permit_is_free_between_attempts(autojump_clock: trio.testing.MockClock) -> None:
    """While one waits to try again, another is let in; then the first goes before those that came later."""
    rig = Rig(permits=1)
    busy = Steps(Overloaded("busy", reason="overloaded", retry_after_s=2), HELLO)
    other = Steps(HELLO)
    other.id = busy.id
    done: list[str] = []

    async def first() -> None:
        await rig.ask(busy)
        done.append("first")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await trio.sleep(1)
        await rig.ask(other)
        done.append("second")
    assert done == ["second", "first"]
    rig.check_even()


async def test_gat_2_a_429_slows_the_pool_not_one_caller(autojump_clock: trio.testing.MockClock) -> None:
    """After it, nobody is let in at that model before the server's time; then all are."""
    rig = Rig()
    model = Steps(Overloaded("slow down", reason="rate_limit", retry_after_s=4, status=429), HELLO)
    times: list[float] = []

    async def ask() -> None:
        await rig.ask(model)
        times.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(1)
        assert rig.gateway.admit_nowait(LEAD, (model,), 300) is None
        for _ in range(5):
            nursery.start_soon(ask)
    assert all(4 <= at <= 4.5 for at in times)
    assert len(times) == 6
    rig.check_even()


async def test_gat_2_a_rate_is_kept_across_the_pool(autojump_clock: trio.testing.MockClock) -> None:
    """At 60 requests a minute after a full bucket, one a second is let in, whoever asks, and waits end in order."""
    rig = Rig(permits=100, rates={"test:m": Rate(requests_per_minute=60)})
    model, times = Steps(HELLO), []

    async def ask() -> None:
        await rig.ask(model)
        times.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for _ in range(63):
            nursery.start_soon(ask)
    assert times.count(0) == 60
    assert times[60:] == pytest.approx([1, 2, 3], abs=0.01)
    rig.check_even()


async def test_gat_3_a_helper_request_takes_no_second_permit(autojump_clock: trio.testing.MockClock) -> None:
    """Made within a ticket it is let in at once, reserved and accounted, and gives back no permit it never had."""
    rig = Rig(permits=1)
    model = Steps(HELLO)
    outer = rig.gateway.admit_nowait(LEAD, (model,), 300)
    assert outer is not None
    assert rig.gateway.admit_nowait(LEAD, (model,), 300) is None
    flaky = Steps(Broken("cut", reason="stream_truncated"), HELLO)  # its second attempt takes none either
    helper = rig.gateway.admit_nowait(LEAD, (flaky,), 300, within=outer)
    assert helper is not None
    assert helper.held.model_calls == 1
    await rig.gateway.call(helper, request(), rig.notes)
    assert rig.gateway.statistics().pools[0].held == 1
    await rig.gateway.call(outer, request(), rig.notes)


async def test_req_1_the_estimate_learns_from_what_the_model_reports(autojump_clock: trio.testing.MockClock) -> None:
    """After some answers the reservation is near the truth, and still above it."""
    rig = Rig()
    usage = ReportedUsage(input=250, output=40)
    model = Steps(Response((TextBlock("x"),), Stop.END_TURN, usage))
    estimates = []
    for _ in range(60):
        ticket = rig.gateway.admit_nowait(LEAD, (model,), 1000)
        assert ticket is not None
        estimates.append(ticket.held)
        await rig.gateway.call(ticket, request(), rig.notes)
    assert estimates[0].input_tokens == 350
    assert 250 <= estimates[-1].input_tokens <= 270
    assert estimates[-1].output_tokens < estimates[0].output_tokens
    bounded = rig.gateway.admit_nowait(LEAD, (model,), 1000, max_output_tokens=77)
    assert bounded is not None
    assert bounded.held.output_tokens == 77
    rig.gateway.abandon(bounded)
    rig.check_even()


async def test_gateway_1_2_ticket_1_2_any_mix_leaves_nothing_behind(autojump_clock: trio.testing.MockClock) -> None:
    """Two hundred calls with seeded failures, stalls, cancellations and cuts at four permits: all even at the end."""
    dice = random.Random(11)
    rig = Rig(Budget(tokens=2_000_000, usd="100"), permits=4)
    plans: list[object] = [
        HELLO,
        1.5,
        pieces(TextPiece("abc"), 2, BlockDone(WireCall("w", "tool", "{}"))),
        pieces(ALIVE, 3, TextPiece("x"), end=Broken("cut", reason="stream_truncated")),
        pieces(TextPiece("x"), end=None),
        Overloaded("busy", reason="rate_limit", retry_after_s=1, status=429),
        Rejected("bad", reason="invalid_request"),
        Malformed("bad", reason="protocol"),
    ]

    async def one(number: int) -> None:
        model = Steps(*dice.choices(plans, k=3))
        limits = Limits(first_event_s=5, between_events_s=4, attempts=3)
        with trio.move_on_after(dice.choice([0, 1, 5, 20, 1000])):
            ticket = await rig.gateway.admit(dice.choice([LEAD, KID]), (model,), 500, limits=limits)
            try:
                if dice.random() < 0.1:
                    rig.gateway.cut(ticket)
                ask = ModelRequest(RequestId(f"r{number}"), LEAD, "m", "", Conversation().window())
                await rig.gateway.call(ticket, ask, rig.notes)
            except (ProviderError, InternalError):
                pass
            finally:
                rig.gateway.abandon(ticket)

    async with trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(one, number)
            await trio.sleep(dice.choice([0, 0, 0.1]))
    outcomes = {record.outcome for record in rig.accounted}
    assert outcomes == {"ok", "failed", "cut"}
    rig.check_even()


def test_ports_are_kept() -> None:
    """What stands in this room is what `actors.ports` asks for (mypy checks the signatures)."""
    ledger = Ledger()
    graph = WaitGraph()
    gate: Gate = Gateway(ledger, waits=graph)
    spending: Spending = ledger  # type: ignore[assignment]  # it takes its own reservations only
    watch: Watch = Notes()
    ticket: type[Ticket] = GateTicket
    assert all((gate, spending, watch, ticket))
    assert PERMITS == 8
    assert "0 models" in repr(gate)
