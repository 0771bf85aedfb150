"""The gateway with models made of steps, on a virtual clock: every path out, and what it leaves behind."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from actors.budget import Budget, Dimension, Limits
from actors.conversation import Conversation
from actors.errors import (
    Broken,
    ContextOverflow,
    Exhausted,
    InternalError,
    Malformed,
    Overloaded,
    ProviderError,
    Rejected,
    UsageError,
)
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
from actors.usage import NOTHING, Amounts, Price, Usage
from actors.waiting import Frame
from supervisor.books import PERMITS
from supervisor.gateway import Gateway
from supervisor.ledger import Ledger
from supervisor.pools import Rate
from supervisor.tickets import SECONDS_SLACK_S, Accounted, GateTicket
from supervisor.waits import WaitGraph

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.ports import Emit, Model, Piece

    Step = Callable[[ModelRequest, Emit], Awaitable[Response]]

STEPS = itertools.count(1)
LEAD, KID = AgentId("lead"), AgentId("lead/kid")
HELLO = Response((TextBlock("hello"),), Stop.END_TURN, ReportedUsage(10, 5, 4, 2, 1))
PRICE = Price(input="1", output="10", cached="0.1", cache_write="2")


def request(agent: AgentId = LEAD, model: str = "m") -> ModelRequest:
    """A request of its own, with an empty window."""
    return ModelRequest(RequestId(f"{agent}:t1.{next(STEPS)}"), agent, model, "Be brief.", Conversation().window())


class Steps:
    """A model that takes one step per request; the last is repeated."""

    def __init__(self, *steps: object, name: str = "m", free: bool = False) -> None:
        self.steps = list(steps)
        self.id = f"test:{name}"
        self.name = name
        self.free = free
        self.context_window = None
        self.asked: list[str] = []
        self.running = self.most = 0

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        self.asked.append(request.model)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
            await trio.lowlevel.checkpoint()
            match step:
                case Response():
                    return step
                case BaseException():
                    raise step
                case float() | int():
                    await trio.sleep(step)
                    return HELLO
                case _:
                    return await step(request, emit)  # type: ignore[no-any-return,operator]
        finally:
            self.running -= 1


def pieces(*plan: object, end: object = HELLO) -> Step:
    """A step that emits pieces and sleeps numbers, then answers, raises, or hangs on None."""

    async def step(request: ModelRequest, emit: Emit) -> Response:
        for part in plan:
            if isinstance(part, int | float):
                await trio.sleep(part)
            else:
                emit(part)  # type: ignore[arg-type]
        if isinstance(end, Exception):
            raise end
        if end is None:
            await trio.sleep_forever()
        assert isinstance(end, Response)
        return end

    return step


class Notes:
    """A watch that remembers."""

    def __init__(self) -> None:
        self.attempts: list[tuple[int, str]] = []
        self.pieces: list[Piece] = []
        self.failed: list[tuple[str, float | None]] = []

    def attempt(self, number: int, model_id: str, estimate: int) -> None:
        assert estimate > 0
        self.attempts.append((number, model_id))

    def piece(self, piece: Piece) -> None:
        self.pieces.append(piece)

    def discarded(self, error: ProviderError, retry_in_s: float | None) -> None:
        self.failed.append((error.reason, retry_in_s))


class Rig:
    """A gateway over a small tree, with all that must be even at the end."""

    def __init__(self, budget: Budget | None = None, **options: object) -> None:
        self.ledger = Ledger()
        self.ledger.open(LEAD, "", budget)
        self.ledger.open(KID, LEAD)
        options.setdefault("prices", {"m": PRICE, "n": PRICE})
        self.gateway = Gateway(self.ledger, rng=random.Random(7), **options)  # type: ignore[arg-type]
        self.accounted: list[Accounted] = []
        self.gateway.observe(self.accounted.append)
        self.notes = Notes()
        self.ticket: GateTicket | None = None

    async def ask(
        self, *models: Model, agent: AgentId = LEAD, limits: Limits | None = None, size: int = 300
    ) -> Response:
        self.ticket = await self.gateway.admit(agent, models, size, limits=limits or Limits())
        served = await self.gateway.call(self.ticket, request(agent, models[0].name), self.notes)
        return served.response

    def check_even(self) -> None:
        """GATEWAY-1: nothing is held; and the ledger has what the tickets were charged (REQ-7)."""
        assert self.ledger.statistics().reservations == 0
        assert all(pool.held == 0 and pool.waiting == 0 for pool in self.gateway.statistics().pools)
        total = sum((self.ledger.snapshot(agent).own for agent in (LEAD, KID)), NOTHING)
        tokens = sum(record.usage.total_tokens for record in self.accounted)
        assert (total.tokens, total.model_calls) == (tokens, len(self.accounted))
        assert total.cost == sum(record.cost or 0 for record in self.accounted)
        assert len({(record.request, record.number, record.agent) for record in self.accounted}) == len(self.accounted)


# -- success and accounting ----------------------------------------------------------------------------------------


async def test_req_7_a_call_is_accounted_with_its_true_figures(autojump_clock: trio.testing.MockClock) -> None:
    """What was reserved is replaced by what the server reported, in disjoint classes, with latency and cost."""
    rig = Rig()
    ticket = rig.gateway.admit_nowait(KID, (Steps(2.5),), 300)
    assert ticket is not None
    assert rig.ledger.snapshot(LEAD).held == ticket.held
    assert ticket.held.model_calls == 1
    served = await rig.gateway.call(ticket, request(KID), rig.notes)
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
    served = await rig.gateway.call(ticket, request(), rig.notes)
    assert (served.cost, ticket.cost_known, ticket.charged.cost) == (None, False, 0)
    assert ticket.charged.tokens == 15
    free = rig.gateway.admit_nowait(LEAD, (Steps(HELLO, name="local", free=True),), 10)
    assert free is not None
    assert (await rig.gateway.call(free, request(), rig.notes)).cost == 0
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


# -- failures ------------------------------------------------------------------------------------------------------


async def test_req_3_a_failed_attempt_is_discarded_and_the_next_starts_clean(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The watch hears of each attempt and each failure; the answer is the last one's; all are accounted."""
    rig = Rig()
    truncated = Broken("cut", reason="stream_truncated")
    model = Steps(pieces(TextPiece("hal"), end=truncated), Malformed("bad", reason="malformed_stream"), HELLO)
    assert await rig.ask(model) is HELLO
    assert [number for number, _ in rig.notes.attempts] == [1, 2, 3]
    assert [reason for reason, _ in rig.notes.failed] == ["stream_truncated", "malformed_stream"]
    assert [record.outcome for record in rig.accounted] == ["failed", "failed", "ok"]
    assert rig.accounted[0].usage == Usage(fresh=116, visible=1)
    assert rig.ticket is not None
    assert rig.ticket.charged.model_calls == 3
    rig.check_even()


async def test_req_4_the_servers_word_is_kept_and_jitter_is_added(autojump_clock: trio.testing.MockClock) -> None:
    """Never earlier than Retry-After, at most half a second later; what it turned away costs no tokens."""
    rig = Rig()
    began = trio.current_time()
    await rig.ask(Steps(Overloaded("busy", reason="rate_limit", retry_after_s=3, status=429), HELLO))
    assert 3 <= trio.current_time() - began <= 3.5
    assert rig.accounted[0].usage == Usage()
    rig.check_even()


@pytest.mark.parametrize(
    "error",
    [
        Rejected("no key", reason="auth"),
        ContextOverflow("too long", reason="context_overflow"),
        Overloaded("later", reason="rate_limit", retry_after_s=61),
    ],
)
async def test_req_4_what_cannot_pass_is_not_retried(
    autojump_clock: trio.testing.MockClock, error: ProviderError
) -> None:
    """Bad keys, overflows and delays beyond reason come back at once."""
    rig = Rig()
    model = Steps(error)
    with pytest.raises(type(error)):
        await rig.ask(model)
    assert len(model.asked) == 1
    assert rig.notes.failed == [(error.reason, None)]
    rig.check_even()


async def test_req_4_attempts_are_bounded_and_the_last_error_is_raised(autojump_clock: trio.testing.MockClock) -> None:
    """After `limits.attempts` the error comes through, and the waits grew no longer than their bound."""
    rig = Rig()
    model = Steps(Broken("gone", reason="connection"))
    with pytest.raises(Broken):
        await rig.ask(model, limits=Limits(attempts=4))
    assert len(model.asked) == 4
    delays = [delay for _, delay in rig.notes.failed]
    assert delays[-1] is None
    assert all(delay is not None and delay <= 0.5 * 2**n for n, delay in enumerate(delays[:-1]))
    rig.check_even()


async def test_req_4_no_retry_goes_past_the_deadline_around_it(autojump_clock: trio.testing.MockClock) -> None:
    """Where the caller's own deadline comes before the next attempt could, the error comes at once."""
    rig = Rig()
    with trio.fail_after(2), pytest.raises(Overloaded):
        await rig.ask(Steps(Overloaded("busy", retry_after_s=5)))
    assert trio.current_time() == 0
    rig.check_even()


async def test_req_3_the_next_model_of_the_chain_answers(autojump_clock: trio.testing.MockClock) -> None:
    """When one's attempts are used up, or it rejects us for what is the model's side; the request names the model."""
    rig = Rig()
    first, second = Steps(Overloaded("busy", reason="overloaded")), Steps(Rejected("x", reason="quota"), name="n")
    third = Steps(Broken("cut", reason="stream_truncated"), HELLO, name="l", free=True)
    assert await rig.ask(first, second, third, limits=Limits(attempts=2)) is HELLO
    assert (first.asked, second.asked, third.asked) == (["m", "m"], ["n"], ["l", "l"])
    assert [model for _, model in rig.notes.attempts] == ["test:m", "test:m", "test:n", "test:l", "test:l"]
    assert [number for number, _ in rig.notes.attempts] == [1, 2, 3, 4, 5]
    rig.check_even()


async def test_req_3_a_bad_request_is_not_passed_on(autojump_clock: trio.testing.MockClock) -> None:
    """What lies in the request would be refused by the next model too; an overflow is for compaction."""
    for error in (Rejected("bad", reason="invalid_request"), ContextOverflow("long", reason="context_overflow")):
        rig, second = Rig(), Steps(HELLO, name="n")
        with pytest.raises(type(error)):
            await rig.ask(Steps(error), second)
        assert second.asked == []
        rig.check_even()


async def test_req_4_the_budget_bounds_retries(autojump_clock: trio.testing.MockClock) -> None:
    """An attempt that the budget no longer allows is not made: Exhausted, with the failure as its cause."""
    rig = Rig(Budget(model_calls=2))
    with pytest.raises(Exhausted) as caught:
        await rig.ask(Steps(Broken("gone", reason="connection")))
    assert isinstance(caught.value.__cause__, Broken)
    assert caught.value.dimension == "model_calls"
    rig.check_even()


# -- deadlines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "fails_at"),
    [
        ((), (10, 10)),
        ((4, ALIVE, 4, ALIVE, 4, ALIVE, 4), (10, 10)),
        ((2, ALIVE), (7, 8)),
        ((2, TextPiece("a")), (7, 8)),
        ((2, TextPiece("a"), 4, ALIVE, 4, ALIVE, 4, TextPiece("b")), (19, 20)),
    ],
    ids=["silent", "signs of life do not stand for a first event", "stops living", "stalls", "lives on, then stalls"],
)
async def test_req_5_a_stream_that_stalls_is_a_failed_attempt(
    autojump_clock: trio.testing.MockClock, plan: tuple[object, ...], fails_at: tuple[float, float]
) -> None:
    """10 s to the first event, 5 s between events (found at most an eighth later), each a `timeout` that is retried."""
    rig = Rig()
    times: list[float] = []
    model = Steps(pieces(*plan, end=None), HELLO)
    rig.gateway.observe(lambda record: times.append(trio.current_time()))
    await rig.ask(model, limits=Limits(first_event_s=10, between_events_s=5))
    assert fails_at[0] <= times[0] <= fails_at[1]
    assert rig.notes.failed[0][0] == "timeout"
    assert rig.accounted[0].usage.fresh == 116
    rig.check_even()


async def test_req_5_a_stream_that_goes_on_is_left_alone(autojump_clock: trio.testing.MockClock) -> None:
    """However long it takes, as long as something comes in time; many pieces at once cost no deadline each."""
    rig = Rig()
    slow: list[object] = [3, ALIVE, 4, TextPiece("a")] + [4.9, TextPiece("b")] * 40 + [TextPiece("c")] * 100
    await rig.ask(Steps(pieces(*slow)), limits=Limits(first_event_s=10, between_events_s=5))
    assert trio.current_time() == pytest.approx(203)
    assert len(rig.notes.pieces) == 142
    rig.check_even()


async def test_bud_6_the_budgets_seconds_bound_the_call(autojump_clock: trio.testing.MockClock) -> None:
    """A second behind them, where no turn has cut it, a stream ends with Exhausted, and what came is charged."""
    rig = Rig(Budget(seconds=8))
    rig.ledger.charge(KID, Amounts(active_us=5_000_000))
    with pytest.raises(Exhausted) as caught:
        await rig.ask(Steps(pieces(TextPiece("abc"), 100)), agent=KID)
    assert trio.current_time() == 3 + SECONDS_SLACK_S
    assert (caught.value.node, caught.value.dimension) == (LEAD, "seconds")
    assert rig.accounted[0].usage == Usage(fresh=116, visible=1)
    rig.ledger.charge(KID, Amounts(active_us=3_000_000))
    with pytest.raises(Exhausted) as caught:
        await rig.ask(Steps(HELLO), agent=KID)
    assert caught.value.dimension == "seconds"
    rig.check_even()


# -- cancellation, cut, crash --------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0.0, 1.0, 2.5, 4.0, 9.0])
async def test_req_7_a_cancelled_call_charges_what_came_and_gives_everything_back(
    autojump_clock: trio.testing.MockClock, after: float
) -> None:
    """Cancelled while it waits for the first piece, streams, or sleeps between attempts: Cancelled goes on."""
    rig = Rig(permits=1)
    broken = Overloaded("busy", retry_after_s=5, reason="overloaded")
    model = Steps(pieces(2, TextPiece("abcdef"), 1, end=broken), pieces(TextPiece("x"), 100))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.ask, model)
        await trio.sleep(after)  # not a deadline, for before one no retry is begun
        nursery.cancel_scope.cancel()
    rig.check_even()
    outcomes = [(record.outcome, record.usage.visible) for record in rig.accounted]
    assert (
        outcomes
        == {
            0.0: [],
            1.0: [("cut", 0)],
            2.5: [("cut", 2)],
            4.0: [("failed", 2)],
            9.0: [("failed", 2), ("cut", 1)],
        }[after]
    )


async def test_req_7_a_cut_accounts_at_once_and_only_once(autojump_clock: trio.testing.MockClock) -> None:
    """The figures stand before the stream has unwound; its permit is held until it has; no retry follows."""
    rig = Rig(permits=1)
    stuck = trio.Event()

    async def slow_to_die(request: ModelRequest, emit: Emit) -> Response:
        emit(TextPiece("abc"))
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(5, shield=True):
                await stuck.wait()
            raise Broken("closed under us", reason="connection")

    ticket = rig.gateway.admit_nowait(LEAD, (Steps(slow_to_die, HELLO),), 300)
    assert ticket is not None
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def ask() -> None:
            with scope, pytest.raises(Broken):
                await rig.gateway.call(ticket, request(), rig.notes)

        nursery.start_soon(ask)
        await trio.sleep(1)
        rig.gateway.cut(ticket)
        assert ticket.usage == Usage(fresh=116, visible=1)
        assert ticket.charged == rig.ledger.snapshot(LEAD).spent
        assert rig.gateway.admit_nowait(LEAD, (Steps(HELLO),), 300) is None
        rig.gateway.cut(ticket)
        scope.cancel()
    assert rig.notes.failed == [("connection", None)]
    rig.check_even()


async def test_req_7_a_cut_before_the_call_takes_the_reservation_back(autojump_clock: trio.testing.MockClock) -> None:
    """A ticket that was cut asks nobody, and its permit comes back."""
    rig = Rig(permits=1)
    model = Steps(HELLO)
    ticket = rig.gateway.admit_nowait(LEAD, (model,), 300)
    assert ticket is not None
    rig.gateway.cut(ticket)
    assert rig.ledger.statistics().reservations == 0
    with pytest.raises(InternalError, match="cut before"):
        await rig.gateway.call(ticket, request(), rig.notes)
    assert model.asked == []
    rig.check_even()


async def test_req_7_a_cut_between_attempts_ends_the_call_with_the_last_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Cut while it waits to try again, it does not try again even if nobody cancels it."""
    rig = Rig()
    model = Steps(Overloaded("busy", retry_after_s=5, reason="overloaded"))
    ticket = rig.gateway.admit_nowait(LEAD, (model,), 300)
    assert ticket is not None
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            with pytest.raises(Overloaded):
                await rig.gateway.call(ticket, request(), rig.notes)

        nursery.start_soon(ask)
        await trio.sleep(1)
        rig.gateway.cut(ticket)
    assert len(model.asked) == 1
    rig.check_even()


@pytest.mark.parametrize("end", [HELLO, Overloaded("busy", reason="overloaded")])
async def test_req_7_what_comes_after_a_cut_is_not_counted_again(
    autojump_clock: trio.testing.MockClock, end: Response | ProviderError
) -> None:
    """A stream that ends before its cancellation reaches it: the answer or the error goes to the caller, uncounted."""
    rig = Rig()
    ticket = rig.gateway.admit_nowait(LEAD, (Steps(pieces(2, end=end)),), 300)
    assert ticket is not None
    came: list[object] = []

    async def ask() -> None:
        try:
            came.append((await rig.gateway.call(ticket, request(), rig.notes)).response)
        except Overloaded as error:
            came.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(1)
        rig.gateway.cut(ticket)
        charged = ticket.charged
    assert came == [end]
    assert ticket.charged is charged
    assert trio.current_time() == 2
    assert [delay for _, delay in rig.notes.failed] in ([], [None])
    rig.check_even()


async def test_req_7_a_model_that_crashes_is_accounted_too(autojump_clock: trio.testing.MockClock) -> None:
    """A bug in a model comes through as it is, with the permit and the reservation given back."""
    rig = Rig(permits=1)
    with pytest.raises(ZeroDivisionError):
        await rig.ask(Steps(ZeroDivisionError("bug")))
    assert [record.outcome for record in rig.accounted] == ["cut"]
    rig.check_even()


async def test_gat_1_an_abandoned_ticket_gives_everything_back(autojump_clock: trio.testing.MockClock) -> None:
    """Once or twice, before the call or after it; and a ticket is used once."""
    rig = Rig(permits=1)
    ticket = rig.gateway.admit_nowait(LEAD, (Steps(HELLO),), 300)
    assert ticket is not None
    rig.gateway.abandon(ticket)
    rig.gateway.abandon(ticket)
    rig.check_even()
    with pytest.raises(InternalError, match="used up"):
        await rig.gateway.call(ticket, request(), rig.notes)
    await rig.ask(Steps(HELLO))
    assert rig.ticket is not None
    rig.gateway.abandon(rig.ticket)
    rig.check_even()


# -- permits -------------------------------------------------------------------------------------------------------


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
