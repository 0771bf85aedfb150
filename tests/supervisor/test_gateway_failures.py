"""The gateway where attempts fail, stall and run out of time: REQ-3, REQ-4, REQ-5, BUD-6."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from actors.budget import Budget, Limits
from actors.errors import Broken, ContextOverflow, Exhausted, Malformed, Overloaded, ProviderError, Rejected
from actors.ports import ALIVE, ModelRequest, Response, TextPiece
from actors.usage import Amounts, Usage
from supervisor.tickets import SECONDS_SLACK_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.ports import Emit

    Step = Callable[[ModelRequest, Emit], Awaitable[Response]]

from tests.supervisor.gatekit import HELLO, KID, LEAD, Rig, Steps, pieces

# -- failures ----------------------------------------------------------------------------------------------------------


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


# -- deadlines ---------------------------------------------------------------------------------------------------------


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
