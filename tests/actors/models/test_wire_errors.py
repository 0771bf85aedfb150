import pytest

from actors.errors import Broken, ContextOverflow, Malformed, Overloaded, Rejected
from actors.models.wire_errors import KINDS, Problem, classify_event, classify_http, error_of, problem
from tests.actors.models.wire_samples import Sample, differences, neutral, read, samples

FAILED = [sample for sample in samples() if sample.kind == "http" and sample.expected["error"] is not None]


@pytest.mark.parametrize("sample", FAILED, ids=lambda sample: sample.file)
def test_each_failed_answer_has_its_kind(sample: Sample) -> None:
    """An error answer of any of the four protocols becomes the problem that its sample names."""
    found = list(differences(sample.expected, neutral(read(sample, "whole", []))))
    assert not found, f"{sample.quirk}: {found}"


def http(status: int, body: str = "", now: float = 0.0, **headers: str) -> Problem:
    """What an answer means."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return classify_http(status, named, body.encode(), now_s=now)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, "invalid_request"),
        (400, "invalid_request"),
        (401, "auth"),
        (402, "quota"),
        (403, "permission"),
        (404, "not_found"),
        (408, "timeout"),
        (409, "conflict"),
        (422, "invalid_request"),
        (429, "rate_limit"),
        (500, "server"),
        (502, "server"),
        (503, "overloaded"),
        (504, "timeout"),
        (529, "overloaded"),
    ],
)
def test_a_status_alone_has_a_kind(status: int, kind: str) -> None:
    """Without a word in the body the status decides."""
    assert http(status, "<html>").kind == kind


@pytest.mark.parametrize(
    "said",
    [
        "This model's maximum context length is 4096 tokens.",
        "prompt is too long: 213462 tokens > 200000 maximum",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        "the request exceeds the available context size, try increasing it",
        "Please reduce the length of the messages or completion.",
        "Trying to keep the first 100 tokens when context the overflows. greater than the context length",
        "This model's maximum prompt length is 131072 but the request contains 500000 tokens.",
        "inputs longer than the model's context length",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        "prompt too long; exceeded max context length by 12 tokens",
        "Your input exceeds the context window of this model.",
    ],
)
def test_q73_overflow_is_known_by_its_words(said: str) -> None:
    """Servers without a code for it say in many words that the window is full; it is never retried as it is."""
    found = http(400, f'{{"error":{{"message":"{said}","type":"invalid_request_error"}}}}')
    assert (found.kind, found.retryable) == ("context_overflow", False)
    assert isinstance(error_of(found, "m"), ContextOverflow)


@pytest.mark.parametrize(
    "said",
    [
        "Rate limit reached: requests exceed the context size limit per minute",
        "'max_tokens' is too large: 5000. This model's maximum context length is 4096 tokens",
    ],
)
def test_q73_words_of_other_things_are_no_overflow(said: str) -> None:
    """A limit per minute, or an answer asked too long, is not a conversation that is too long."""
    assert http(400, f'{{"error":{{"message":"{said}"}}}}').kind == "invalid_request"


@pytest.mark.parametrize(
    ("headers", "delay"),
    [
        ({"retry_after_ms": "1500", "retry_after": "2"}, 1.5),
        ({"retry_after": "2.5"}, 2.5),
        ({"retry_after": "Sun, 29 Nov 2026 12:00:30 GMT", "date": "Sun, 29 Nov 2026 12:00:00 GMT"}, 30.0),
        ({"retry_after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
        ({"retry_after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-1"}, None),
        ({"retry_after": "inf"}, None),
        ({"x_ratelimit_reset_tokens": "6m0.5s", "x_ratelimit_remaining_tokens": "0"}, 360.5),
        ({"x_ratelimit_reset_requests": "250ms", "x_ratelimit_reset_tokens": "3s"}, 0.25),
        ({"anthropic_ratelimit_requests_reset": "1970-01-01T00:00:20Z"}, 10.0),
        ({}, None),
    ],
)
def test_req_4_the_server_says_how_long(headers: dict[str, str], delay: float | None) -> None:
    """The most exact word of the server about the delay is the one that counts."""
    assert http(429, "", 10.0, **headers).retry_after_s == delay


def test_the_server_decides_whether_to_retry_but_not_what_cannot_pass() -> None:
    """`x-should-retry` wins over the table; a quota that is gone stays gone."""
    assert isinstance(error_of(http(500, "", x_should_retry="false"), "m"), Rejected)
    assert error_of(http(400, "", x_should_retry="true"), "m").retryable
    assert not http(429, '{"error":{"code":"insufficient_quota"}}', x_should_retry="true").retryable


@pytest.mark.parametrize(
    "body", ['{"detail":"no"}', '{"message":"no"}', '{"error":"no"}', '[{"error":{"message":"no"}}]', "no"]
)
def test_q75_the_message_is_found_in_any_dress(body: str) -> None:
    """Whatever a server wraps its message in, people read it."""
    assert http(400, body).message == "no"


def test_q75_messages_are_cut() -> None:
    """A page of text does not become an error message."""
    assert len(http(400, '{"message":"' + "x" * 9000 + '"}').message) == 2000


def test_a_daily_quota_is_not_waited_for() -> None:
    """Q74: a limit of the day does not pass soon."""
    body = '{"error":{"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"RequestsPerDay"}]}]}}'
    assert http(429, body).kind == "quota"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (
            {
                "error": {
                    "code": 500,
                    "type": "server_error",
                    "message": "The model produced output that does not match",
                }
            },
            "server",
        ),
        ({"error": {"code": "rate_limit_exceeded"}}, "rate_limit"),
        ({"error": {"code": 429, "message": "x"}}, "rate_limit"),
        ({"error": {"type": "overloaded_error"}}, "overloaded"),
        ({"error": {"code": "tool_use_failed"}}, "malformed_tool_call"),
        ({"error": "boom"}, "server"),
        (None, "server"),
    ],
)
def test_q66_an_error_inside_a_stream_is_known_by_its_code(value: object, kind: str) -> None:
    """The status of the answer was 200 and says nothing."""
    found = classify_event(value, plain="boom")
    assert (found.kind, found.status) == (kind, None)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_has_its_family(kind: str) -> None:
    """A kind's error is retryable as the kind is, names kind and model, and is of a family that people can act on."""
    error = error_of(problem(kind, "words"), "openai-chat:m@http://h")
    assert isinstance(error, Rejected | Overloaded | Malformed | Broken | ContextOverflow)
    assert error.retryable == problem(kind, "").retryable
    assert error.reason == kind
    assert "openai-chat:m@http://h" in str(error)
    assert "words" in str(error)


def test_a_timeout_of_the_server_is_no_stall_of_the_line() -> None:
    """504 is the server's word, a stall is ours: overloaded and broken."""
    assert isinstance(error_of(http(504), "m"), Overloaded)
    assert isinstance(error_of(problem("timeout", ""), "m"), Broken)
