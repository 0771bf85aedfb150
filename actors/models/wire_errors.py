"""What a provider's failure means: one table for all protocols, from status, headers and body to a neutral kind.

Sources: the error pages of OpenAI, Anthropic, Google, Mistral and the compatible servers, read 2026-11-29. Codes and
types decide first, wording only where a server gives no code; wording of rate limits is never taken for an overflow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from actors.errors import Broken, ContextOverflow, Malformed, Overloaded, ProviderError, Rejected

from .wire_delay import delay_s
from .wire_json import as_list, as_map, decode_lenient

if TYPE_CHECKING:
    from collections.abc import Iterable

MESSAGE_CHARS: Final = 2_000

_CLASSES: Final[Mapping[str, type[ProviderError]]] = {
    "context_overflow": ContextOverflow,
    "request_too_large": Rejected,
    "invalid_request": Rejected,
    "content_filter": Rejected,
    "auth": Rejected,
    "permission": Rejected,
    "not_found": Rejected,
    "quota": Rejected,
    "unexpected_content_type": Rejected,  # nearly always a wrong base URL: asking again brings the same page
    "cancelled": Rejected,
    "conflict": Overloaded,
    "rate_limit": Overloaded,
    "overloaded": Overloaded,
    "server": Overloaded,
    "timeout": Overloaded,
    "malformed_tool_call": Malformed,
    "malformed_stream": Malformed,
    "empty_response": Malformed,
    "connection": Broken,
    "stream_truncated": Broken,
}
KINDS: Final = frozenset(_CLASSES)

_BY_STATUS: Final[Mapping[int, str]] = {
    401: "auth",
    402: "quota",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    413: "request_too_large",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    524: "timeout",
    529: "overloaded",
}

_BY_WORD: Final[Mapping[str, str]] = {
    # OpenAI and compatibles
    "context_length_exceeded": "context_overflow",
    "exceed_context_size_error": "context_overflow",
    "model_context_window_exceeded": "context_overflow",
    "string_above_max_length": "request_too_large",
    "content_filter": "content_filter",
    "content_policy_violation": "content_filter",
    "responsibleaipolicyviolation": "content_filter",
    "tool_use_failed": "malformed_tool_call",
    "invalid_api_key": "auth",
    "authentication_error": "auth",
    "unauthenticated": "auth",
    "permission_error": "permission",
    "permission_denied": "permission",
    "model_not_found": "not_found",
    "not_found_error": "not_found",
    "not_found": "not_found",
    "insufficient_quota": "quota",
    "credit_balance_exhausted": "quota",
    "organization_spend_limit_exceeded": "quota",
    "project_spend_limit_exceeded": "quota",
    "organization_usage_limit_exceeded": "quota",
    "billing_hard_limit_reached": "quota",
    "billing_error": "quota",
    "quota_exceeded": "quota",
    "enforced_spend_limit_reached": "quota",
    "contract_spend_limit_reached": "quota",
    "linked_organization_spend_limit_reached": "quota",
    "rate_limit_exceeded": "rate_limit",
    "rate_limit_error": "rate_limit",
    "ramp_limit_exceeded": "rate_limit",
    "slow_down": "rate_limit",
    "resource_exhausted": "rate_limit",
    "server_is_overloaded": "overloaded",
    "overloaded_error": "overloaded",
    "provider_unavailable": "overloaded",
    "service_unavailable_error": "overloaded",
    "service_unavailable": "overloaded",
    "unavailable": "overloaded",
    "timeout_error": "timeout",
    "deadline_exceeded": "timeout",
    "server_error": "server",
    "internal_server_error": "server",
    "internal_error": "server",
    "internal": "server",
    "api_error": "server",
    "conflict_error": "conflict",
    "request_too_large": "request_too_large",
    "invalid_prompt": "invalid_request",
    "invalid_request_error": "invalid_request",
    "invalid_argument": "invalid_request",
    "badrequesterror": "invalid_request",
    "malformed_function_call": "malformed_tool_call",
    "unexpected_tool_call": "malformed_tool_call",
}
_VAGUE: Final = frozenset({"invalid_request", "server", "rate_limit"})
"""Kinds whose words servers also use for narrower things: a narrower sign beside them wins."""

_OVERFLOW: Final = re.compile(
    r"maximum context length|context.?(?:length|window|size).{0,40}exceed"
    r"|exceed\w*.{0,60}context.?(?:length|window|size)|prompt is too long|prompt too long"
    r"|input token count.{0,40}exceeds|reduce the length of the (?:messages|input|prompt)"
    r"|greater than the context length|maximum prompt length|longer than the model'?s context length"
    r"|too large for model with \d+ maximum|input is too long for|exceeds the context window|too many input tokens",
    re.IGNORECASE | re.DOTALL,
)
_NO_OVERFLOW: Final = re.compile(
    r"rate.?limit|throttl|too many requests|tokens per (?:min|day)|quota|max_(?:completion_)?tokens.{0,40}too large",
    re.IGNORECASE,
)
_DAILY: Final = re.compile(r"per.?day", re.IGNORECASE)
_NEVER_FORCED: Final = frozenset({"quota", "context_overflow", "auth", "content_filter", "permission"})


@attrs.frozen
class Problem:
    """A failure in neutral words.

    Attributes:
        kind: one of `KINDS`. message: the server's own words, or ours where it had none; perhaps empty.
        retryable: whether asking again may help. code: the server's own code or type.
        status: the HTTP status; None for a failure inside a stream that began well.
    """

    kind: str
    message: str
    retryable: bool
    code: str | None = None
    status: int | None = None
    retry_after_s: float | None = None
    request_id: str | None = None
    found_here: bool = False
    """This side saw it (a stall, a broken stream); the server did not say it."""


def problem(kind: str, message: str, *, retryable: bool | None = None) -> Problem:
    """A problem that this side found: connection, stall, broken stream."""
    return Problem(kind, message, _CLASSES[kind].retryable if retryable is None else retryable, found_here=True)


def error_of(trouble: Problem, model: str) -> ProviderError:
    """The error to raise.

    Args:
        trouble: what happened.
        model: what was asked, for the message.
    """
    family = _CLASSES[trouble.kind]
    if trouble.kind == "timeout" and trouble.found_here:
        family = Broken
    if trouble.retryable and not family.retryable:
        family = Overloaded
    elif family.retryable and not trouble.retryable:
        family = Rejected
    where = f" (HTTP {trouble.status})" if trouble.status is not None else ""
    said = trouble.message.strip() or "the server gave no message"
    hint = _HINTS.get(trouble.kind, "")
    text = f"{model}: {trouble.kind}{where}: {said}{'; ' + hint if hint else ''}"
    return family(
        text,
        reason=trouble.kind,
        retry_after_s=trouble.retry_after_s,
        status=trouble.status,
        request_id=trouble.request_id,
        code=trouble.code,
    )


_HINTS: Final[Mapping[str, str]] = {
    "auth": "check the key",
    "permission": "check what the key may use",
    "not_found": "check the model's name and the base URL (most servers want it to end in /v1)",
    "quota": "raise the spending limit at the provider",
    "unexpected_content_type": "check the base URL (most servers want it to end in /v1)",
    "context_overflow": "compact the conversation or choose a model with a larger window",
    "request_too_large": "send less: shorter messages, fewer or smaller attachments",
}


def classify_http(status: int, headers: Mapping[str, str], body: bytes, *, now_s: float) -> Problem:
    """What an answer with an error status means.

    Args:
        status: 300 or more.
        headers: lower-case names.
        body: as much of it as was read.
        now_s: Unix time, used for dates in headers where the server sent no `Date`.
    """
    facts = _Facts.of(decode_lenient(body), body)
    kind = _kind(status, facts)
    retryable = _CLASSES[kind].retryable
    should = headers.get("x-should-retry")
    if should == "false":
        retryable = False
    elif should == "true" and kind not in _NEVER_FORCED:
        retryable = True
    return Problem(
        kind,
        facts.message or _redirect(status, headers),
        retryable,
        code=facts.code,
        status=status,
        retry_after_s=delay_s(headers, facts.details, limited=kind == "rate_limit", now_s=now_s) if retryable else None,
        request_id=headers.get("x-request-id") or headers.get("request-id") or facts.request_id,
    )


def classify_event(value: object, *, plain: str = "", request_id: str | None = None) -> Problem:
    """What an error inside a stream, or inside a 200 body, means: its code or type decides, there is no status.

    Args:
        value: the JSON that came, with or without the `error` wrapper; None where it was plain text.
        plain: that plain text.
        request_id: of the answer it came in.
    """
    facts = _Facts.of(value, plain.encode())
    code = facts.code
    status = int(code) if code is not None and code.isdecimal() and len(code) == 3 else None
    kind = _kind(status if status is not None and status >= 400 else None, facts)
    return Problem(
        kind,
        facts.message,
        _CLASSES[kind].retryable,
        code=code,
        retry_after_s=delay_s({}, facts.details, limited=False, now_s=0.0),
        request_id=request_id or facts.request_id,
    )


def looks_like_error(value: Mapping[str, object]) -> bool:
    """Whether a JSON object that is no answer is an error in one of its many dresses."""
    if value.get("error"):
        return True
    if "choices" in value:
        return False
    return (
        value.get("object") == "error"
        or value.get("type") == "error"
        or (bool({"detail", "message"} & value.keys()) and value.keys() <= _BARE_KEYS)
    )


_BARE_KEYS: Final = frozenset({"detail", "message", "code", "status", "type", "param", "request_id", "object"})


@attrs.frozen
class _Facts:
    """What can be read out of an error body, whatever its dress."""

    message: str
    code: str | None
    words: tuple[str, ...]
    details: tuple[Mapping[str, object], ...]
    request_id: str | None
    empty: bool

    @classmethod
    def of(cls, value: object, body: bytes) -> _Facts:
        """Read the first of the known dresses that fits; HTML says nothing."""
        items = as_list(value)
        outer = as_map(items[0] if items else value)
        wrapped = outer.get("error")
        inner = as_map(wrapped) or outer
        details = tuple(as_map(item) for item in as_list(inner.get("details")))
        named = as_map(inner.get("details")).get("error_code")
        nested = as_map(inner.get("innererror")).get("code")
        kind_of = as_map(inner.get("metadata")).get("error_type")
        message = wrapped if isinstance(wrapped, str) else _message(inner) or _message(outer)
        if not outer and not message:
            message = _plain(body)
        code = _first(named, inner.get("code"), inner.get("type"))
        words = tuple(
            word.lower()
            for word in (named, nested, kind_of, inner.get("code"), inner.get("type"), inner.get("status"))
            if isinstance(word, str)
        )
        request = outer.get("request_id")
        return cls(
            message[:MESSAGE_CHARS], code, words, details, request if isinstance(request, str) else None, not body
        )


def _message(value: Mapping[str, object]) -> str:
    for key in ("message", "detail", "error_description", "msg"):
        found = value.get(key)
        if isinstance(found, str) and found:
            return found
    listed = [as_map(item).get("msg") for item in as_list(value.get("detail"))]
    return "; ".join(item for item in listed if isinstance(item, str))


def _plain(body: bytes) -> str:
    text = body[: MESSAGE_CHARS * 4].decode("utf-8", "replace").strip()
    return "" if text.startswith("<") or "\x00" in text else text


def _redirect(status: int, headers: Mapping[str, str]) -> str:
    if 300 <= status < 400:
        return f"the server redirects to {headers.get('location', 'nowhere')}; put that address into the base URL"
    return ""


def _first(*values: object) -> str | None:
    for value in values:
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return None


def _kind(status: int | None, facts: _Facts) -> str:
    named = _named(facts.words)
    if named is not None and named not in _VAGUE:
        return named
    if named == "rate_limit" or status == 429:
        return "quota" if _daily(facts.details) else "rate_limit"
    if _overflows(facts.message) or (status == 413 and facts.empty):
        return "context_overflow"
    if status is not None and status in _BY_STATUS:
        return _BY_STATUS[status]
    if named is not None and (status is None or status < 500):
        return named
    return "server" if status is None or status >= 500 else "invalid_request"


def _named(words: Iterable[str]) -> str | None:
    vague = None
    for word in words:
        kind = _BY_WORD.get(word)
        if kind is not None and kind not in _VAGUE:
            return kind
        vague = vague or kind
    return vague


def _overflows(message: str) -> bool:
    return bool(_OVERFLOW.search(message)) and not _NO_OVERFLOW.search(message)


def _daily(details: Iterable[Mapping[str, object]]) -> bool:
    """Whether a quota is the day's, so that waiting does not help soon."""
    violations = (as_map(item) for detail in details for item in as_list(detail.get("violations")))
    return any(_DAILY.search(str(item.get("quotaId", ""))) for item in violations)
