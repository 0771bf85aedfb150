"""The rules of a model call, over all inputs that matter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from actors.content import Text
from actors.conversation import Conversation
from actors.errors import Broken, ContextOverflow, Malformed, Overloaded, ProviderError, Rejected
from actors.ids import AgentId, CallId, MessageId, RequestId, TurnId
from actors.ports import Emit, ModelRequest, OutputOffer, ReportedUsage, Response, ToolOffer
from actors.transcript import (
    CallBlock,
    MessageRecord,
    NoteRecord,
    ReasoningBlock,
    Record,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    Stop,
    TextBlock,
)
from actors.usage import FREE, Price, Usage
from supervisor.gate import (
    SERVER_DELAY_MAX_S,
    Again,
    Estimator,
    GiveUp,
    estimated_cost,
    next_delay,
    passes_on,
    price_of,
    request_digest,
    slows_the_pool,
    usage_of,
    usage_of_failed,
)

COUNT = st.none() | st.integers(-5, 10_000)
PRICE = Price(input="1", output="4", cached="0.1", cache_write="1.25")


class Named:
    """A model by id and name only."""

    def __init__(self, name: str, *, free: bool = False) -> None:
        self.id, self.name, self.free, self.context_window = f"openai:{name}", name, free, None

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        raise AssertionError("it has a name and a price, and is never asked")


# -- usage and prices ----------------------------------------------------------------------------------------------


@given(st.builds(ReportedUsage, COUNT, COUNT, COUNT, COUNT, COUNT), st.integers(0, 5000), st.integers(0, 9000))
def test_req_7_inclusive_counts_become_disjoint_classes(reported: ReportedUsage, estimate: int, size: int) -> None:
    """No class is negative, and the sums are the server's totals where it told them, whatever nonsense it tells."""
    usage = usage_of(reported, estimate, size)
    assert min(astuple(usage)) >= 0
    assert usage.input_tokens == (estimate if reported.input is None else max(reported.input, 0))
    assert usage.output_tokens == (-(-size // 3) if reported.output is None else max(reported.output, 0))


def test_req_7_each_token_is_counted_in_one_class() -> None:
    """Cached and written input are parts of the input, reasoning is part of the output."""
    assert usage_of(ReportedUsage(100, 50, 60, 20, 10), 7, 7) == Usage(30, 60, 10, 30, 20)
    assert usage_of(ReportedUsage(100, None, None, None, None), 7, 7) == Usage(100, 0, 0, 3, 0)
    assert usage_of(None, 7, 7) == Usage(fresh=7, visible=3)


@pytest.mark.parametrize(
    ("error", "size", "usage"),
    [
        (Rejected("x", reason="auth"), 0, Usage()),
        (Overloaded("x", reason="rate_limit"), 0, Usage()),
        (ContextOverflow("x"), 0, Usage()),
        (Broken("x", reason="connection"), 0, Usage()),
        (Broken("x", reason="timeout"), 0, Usage(fresh=9)),
        (Broken("x", reason="stream_truncated"), 0, Usage(fresh=9)),
        (Malformed("x"), 0, Usage(fresh=9)),
        (Overloaded("x", reason="overloaded"), 6, Usage(fresh=9, visible=2)),
        (None, 0, Usage(fresh=9)),
        (None, 6, Usage(fresh=9, visible=2)),
    ],
)
def test_req_7_a_failed_attempt_is_charged_what_it_may_have_cost(
    error: ProviderError | None, size: int, usage: Usage
) -> None:
    """Nothing where the server turned it away or never had it; the input where it may have read it; and what came."""
    assert usage_of_failed(error, 9, size) == usage


def test_bud_9_a_price_is_found_by_id_or_name_and_free_is_free_unless_priced() -> None:
    """The id goes before the name; a model that is neither priced nor free has no price."""
    dear, cheap = Price("2", "2"), Price("1", "1")
    assert price_of(Named("m"), {"m": cheap}) is cheap
    assert price_of(Named("m"), {"m": cheap, "openai:m": dear}) is dear
    assert price_of(Named("m"), {}) is None
    assert price_of(Named("m", free=True), {}) is FREE
    assert price_of(Named("m", free=True), {"m": cheap}) is cheap


@given(
    st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6)
)
def test_bud_2_the_estimated_cost_is_never_below_the_cost_of_so_many_tokens(
    fresh: int, cached: int, write: int, visible: int, reasoning: int
) -> None:
    """Whatever classes the tokens turn out to be, the reservation covers them."""
    usage = Usage(fresh, cached, write, visible, reasoning)
    assert estimated_cost(PRICE, usage.input_tokens, usage.output_tokens) >= PRICE.cost(usage)
    assert estimated_cost(None, 10, 10) == 0


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**5)), max_size=30))
def test_bud_2_estimates_stay_bounded_whatever_is_reported(answers: list[tuple[int, int, int]]) -> None:
    """However odd the reports, the estimate is positive and grows with the request; the output bound covers all."""
    estimator = Estimator()
    for size, tokens_in, tokens_out in answers:
        estimator.observe(size, ReportedUsage(tokens_in, tokens_out))
        assert estimator.output_tokens(None) >= tokens_out
    assert 0 < estimator.input_tokens(0) <= estimator.input_tokens(1000) <= 16 + 1000 * 16
    assert estimator.output_tokens(0) == 0
    assert "tokens per byte" in repr(estimator)


def test_bud_2_a_model_that_counts_more_tokens_is_estimated_higher() -> None:
    """One answer in another script is enough to move the estimate to the safe side."""
    estimator = Estimator()
    estimator.observe(1000, ReportedUsage(input=900))
    assert estimator.input_tokens(1000) >= 900
    estimator.observe(0, ReportedUsage(input=900))
    estimator.observe(1000, ReportedUsage())
    assert estimator.observed == 1


def test_bud_2_where_requests_differ_the_estimate_covers_the_dearer_ones() -> None:
    """With ratios that swing, the mean alone would be short half of the time."""
    estimator = Estimator()
    for tokens in (200, 400) * 20:
        estimator.observe(1000, ReportedUsage(input=tokens))
    assert 400 <= estimator.input_tokens(1000) <= 600


# -- retries -------------------------------------------------------------------------------------------------------

ERRORS = st.one_of(
    st.builds(Overloaded, st.just("x"), retry_after_s=st.none() | st.floats(-1, 100)),
    st.builds(Broken, st.just("x")),
    st.builds(Malformed, st.just("x")),
    st.builds(Rejected, st.just("x"), retry_after_s=st.none() | st.floats(0, 5)),
    st.builds(ContextOverflow, st.just("x")),
)


@given(ERRORS, st.integers(1, 100), st.integers(1, 8), st.floats(0, 100), st.floats(0, 1))
def test_req_4_a_retry_is_within_attempts_deadline_and_the_servers_word(
    error: ProviderError, attempt: int, attempts: int, deadline: float, unit: float
) -> None:
    """Only what may pass, only so often, never before the server's time, never at or past the deadline."""
    verdict = next_delay(error, attempt, attempts, now=50, deadline=deadline, unit=unit)
    if isinstance(verdict, GiveUp):
        assert verdict.reason
        return
    assert error.retryable
    assert attempt < attempts
    assert 0 <= verdict.delay_s < deadline - 50
    if error.retry_after_s is None:
        assert verdict.delay_s <= min(8, 0.5 * 2 ** (attempt - 1))
    else:
        assert error.retry_after_s <= verdict.delay_s <= max(error.retry_after_s, 0) + 0.5
        assert error.retry_after_s <= SERVER_DELAY_MAX_S


@pytest.mark.parametrize("attempt", [1, 2, 5, 6, 50])
def test_req_4_the_jitter_is_full(attempt: int) -> None:
    """The delay is spread from 0 to a bound that doubles up to eight seconds."""
    bound = min(8.0, 0.5 * 2 ** (attempt - 1))
    delays = [next_delay(Broken("x"), attempt, 99, now=0, deadline=1e9, unit=unit) for unit in (0, 0.5, 1)]
    assert delays == [Again(0), Again(bound / 2), Again(bound)]


def test_req_4_giving_up_says_why() -> None:
    """Each reason is told in words."""
    reasons = [
        next_delay(Rejected("x"), 1, 4, now=0, deadline=9, unit=0),
        next_delay(Broken("x"), 4, 4, now=0, deadline=9, unit=0),
        next_delay(Overloaded("x", retry_after_s=90), 1, 4, now=0, deadline=999, unit=0),
        next_delay(Overloaded("x", retry_after_s=10), 1, 4, now=0, deadline=9, unit=0),
    ]
    for verdict, words in zip(reasons, ("cannot pass", "4 attempts", "90 s, more than 60 s", "deadline"), strict=True):
        assert isinstance(verdict, GiveUp)
        assert words in verdict.reason


def test_req_3_what_the_next_model_may_answer() -> None:
    """Overload, faults, keys, quotas and names are one model's; bad requests and overflows are the conversation's."""
    for error in (Overloaded("x"), Broken("x"), Malformed("x"), *(Rejected("x", reason=r) for r in ("auth", "quota"))):
        assert passes_on(error)
    for reason in ("invalid_request", "content_filter", "request_too_large", "script"):
        assert not passes_on(Rejected("x", reason=reason))
    assert not passes_on(ContextOverflow("x"))


def test_gat_2_which_failures_slow_the_pool() -> None:
    """A 429 and a rate limit by name do; an overload of the server and a spent quota do not."""
    assert slows_the_pool(Overloaded("x", status=429))
    assert slows_the_pool(Overloaded("x", reason="rate_limit"))
    assert not slows_the_pool(Overloaded("x", reason="overloaded", status=503))
    assert not slows_the_pool(Rejected("x", reason="quota", status=429))


# -- digest --------------------------------------------------------------------------------------------------------

TURN = TurnId("a:t1")
RECORDS: list[Record] = [
    MessageRecord(TURN, MessageId("m-1"), (Text("hello"),)),
    ResponseRecord(
        TURN,
        (ReasoningBlock("hm", "test:m", '{"s":1}'), TextBlock("I look."), CallBlock(CallId("c"), "w", "f", "{}")),
        Stop.TOOL_CALLS,
        "m",
    ),
    ResultRecord(TURN, CallId("c"), "w", "f", ResultStatus.OK, (Text("found"),)),
    NoteRecord(TURN, "notice", "note"),
]


def asked(records: list[Record] | None = None, **changes: object) -> ModelRequest:
    """A request with everything in it."""
    base = ModelRequest(
        RequestId("a:t1.1"),
        AgentId("a"),
        "m",
        "Be brief.",
        Conversation(RECORDS if records is None else records).window(),
        tools=(ToolOffer("f", "finds", "{}"),),
        notes=("one",),
    )
    return replace(base, **changes)


def test_req_6_the_digest_is_the_same_for_the_same_question_and_no_other() -> None:
    """Rebuilt it is equal, and for another model of the chain too; each thing that is asked changes it."""
    digest = request_digest(asked())
    assert digest == request_digest(asked())
    assert digest == request_digest(asked(model="fallback"))
    others = [
        asked(id=RequestId("a:t1.2")),
        asked(instructions="Be long."),
        asked(tools=()),
        asked(tools=(ToolOffer("f", "finds", '{"type":"object"}'),)),
        asked(tool_choice="none"),
        asked(output=OutputOffer("Answer", "{}")),
        asked(notes=("one", "two")),
        asked(notes=("onetwo",)),
        asked(max_output_tokens=5),
        asked(effort="low"),
        asked(tier="fast"),
        *(asked(RECORDS[:n]) for n in range(len(RECORDS))),
        asked([*RECORDS[:-1], NoteRecord(TURN, "notice", "other")]),
    ]
    digests = {request_digest(other) for other in others}
    assert len(digests) == len(others)
    assert digest not in digests


def test_req_6_the_digest_takes_any_text() -> None:
    """A lone surrogate, which JSON can carry, does not break it."""
    assert request_digest(asked(instructions="\ud800")) != request_digest(asked(instructions="?"))
