"""How long a server asks to wait, from the many places where servers say it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_S: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MAX_DELAY_S: Final = 7 * 86400.0


def delay_s(
    headers: Mapping[str, str], details: Iterable[Mapping[str, object]], *, limited: bool, now_s: float
) -> float | None:
    """Seconds to wait, or None where nothing says it; in order of how exactly they say it.

    `retry-after-ms`, `retry-after` (seconds or an HTTP date), `RetryInfo.retryDelay` of a Google error, then the rate
    limit's reset.

    Args:
        headers: lower-case names.
        details: of the error body.
        limited: it is a rate limit, so the reset headers are meant.
        now_s: Unix time, where the server sent no `Date`.
    """
    clock = _date_s(headers.get("date", ""))
    now = now_s if clock is None else clock
    found = _number(headers.get("retry-after-ms"), 0.001)
    if found is None:
        found = _number(headers.get("retry-after"), 1.0)
    if found is None and (date := _date_s(headers.get("retry-after", ""))) is not None:
        found = date - now
    if found is None:
        found = next((span for item in details if (span := span_s(item.get("retryDelay"))) is not None), None)
    if found is None and limited:
        found = _reset_s(headers, now)
    return None if found is None else min(max(found, 0.0), MAX_DELAY_S)


def span_s(value: object) -> float | None:
    """Seconds of a span such as `1.57s`, `6m0s` or `250ms`; None where it is none."""
    if not isinstance(value, str) or not value or _SPAN.sub("", value):
        return None
    return sum(float(number) * _UNIT_S[unit] for number, unit in _SPAN.findall(value))


def _number(value: str | None, unit: float) -> float | None:
    try:
        number = float(value) if value is not None else None
    except ValueError:
        return None
    return number * unit if number is not None and 0 <= number < float("inf") else None


def _date_s(value: str) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp() if value else None
    except (ValueError, OverflowError):
        return None


def _stamp_s(value: str) -> float | None:
    try:
        stamp = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()


def _reset_s(headers: Mapping[str, str], now: float) -> float | None:
    """The reset of the limit that is used up; of the nearest, where none says that it is."""
    spent: list[float] = []
    others: list[float] = []
    for name, value in headers.items():
        if "ratelimit" not in name or "reset" not in name:
            continue
        span = span_s(value)
        if span is None and (stamp := _stamp_s(value)) is not None:
            span = stamp - now
        if span is not None:
            (spent if headers.get(name.replace("reset", "remaining")) == "0" else others).append(span)
    return max(spent) if spent else min(others, default=None)
