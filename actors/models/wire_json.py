"""Reading JSON that others wrote: nothing is assumed of its shape, and nothing raises but `NotJson`."""

from __future__ import annotations

import json
import math
from typing import Final, cast

import msgspec

_DECODER: Final = msgspec.json.Decoder()
_LENIENT: Final = json.JSONDecoder()
_NOTHING: Final[dict[str, object]] = {}
_NONE: Final[list[object]] = []


class NotJson(ValueError):
    """The bytes are not JSON."""


def decode_all(data: bytes) -> list[object]:
    """The JSON values that stand in the bytes: one, or several glued together (P-GLUE).

    Raises:
        NotJson: not UTF-8, not JSON, nested too deeply, or something stands behind the last value.
    """
    try:
        return [_DECODER.decode(data)]
    except (msgspec.DecodeError, RecursionError):
        pass  # the lenient way reads what strict JSON forbids: NaN, half surrogates, several values
    try:
        text = data.decode("utf-8").strip()
        values = []
        at = 0
        while at < len(text):
            value, end = _LENIENT.raw_decode(text, at)
            values.append(value)
            at = end
            while at < len(text) and text[at] in " \t\r\n":
                at += 1
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)[:200]) from None
    if not values:
        msg = "no value"
        raise NotJson(msg)
    return values


def decode_lenient(data: bytes) -> object:
    """The first JSON value of the bytes, or None where they are not JSON."""
    try:
        return decode_all(data)[0]
    except NotJson:
        return None


def as_map(value: object) -> dict[str, object]:
    """The value if it is an object, else an empty one."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else _NOTHING


def as_list(value: object) -> list[object]:
    """The value if it is an array, else an empty one."""
    return value if isinstance(value, list) else _NONE


def as_text(value: object) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int | None:
    """The value as a count of tokens; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and value >= 0 else None


def heal(text: str) -> str:
    """The text with surrogate pairs joined and half ones replaced, so that it can be encoded."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
