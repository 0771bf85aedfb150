"""What a model reads of a tool's result: text and content as they are, the rest as JSON, within a limit (TOL-8)."""

from __future__ import annotations

import json
import types
import typing
import unicodedata
from typing import Any, Final

import attrs
from msgspec import Struct

from .building import plain, write
from .content import Content, File, Image, Text, Trust, as_content
from .errors import UsageError
from .fitting import Checker
from .ids import CallId
from .pages import HINT_CHARS, hint
from .schema import schema_of, type_name
from .transcript import ResultStatus

_PARTS: Final = (Text, Image, File)
DONE: Final = "done"
"""What the model reads of a tool that has nothing to return; None among other results is `null`."""
_UNCHECKED: Final = (Any, object, typing.NoReturn, typing.Never)


class Shaped(Struct, frozen=True):
    """A result as the model reads it.

    Attributes:
        cut: it was too long. whole: the full text where it was cut, else None. kept: it is to be kept aside.
        error: the value is no result (it does not fit the declared type, or has no JSON form); the text says why.
    """

    content: Content
    cut: bool = False
    whole: str | None = None
    error: bool = False
    kept: bool = False


class Given(Struct, frozen=True):
    """A tool's result with more said of it than its value; what the runtime's own tools return.

    Attributes:
        status: what became of the call. trust: how far it may be believed, None: as the tool says.
        keep: it may be kept aside where it is too long.
    """

    value: object
    status: ResultStatus = ResultStatus.OK
    trust: Trust | None = None
    keep: bool = True


class Keep(Struct, frozen=True):
    """That a result too long to be shown is kept whole. `limit_chars`: a longer one is not."""

    call: CallId
    limit_chars: int


@attrs.frozen(eq=False)
class Output:
    """What a tool declared to return, compiled. `checker`: None where everything may come."""

    tool: str
    declared: str = "Any"
    text: bool = True
    parts: bool = True
    exact: type | None = None
    none: str = DONE
    checker: Checker | None = None

    def shape(self, value: object, limit_chars: int, keep: Keep | None = None) -> Shaped:
        """The result within the limit, or the error that says why it is none (TOL-6)."""
        if type(value) is str and self.text:
            return _cut(value, limit_chars, keep)
        try:
            parts = _as_parts(value)
            if parts is not None and self.parts:
                return _cut_parts(parts, limit_chars, keep)
            if type(value) is self.exact:  # an int or a bool that fits: the quick way
                return _cut(json.dumps(value), limit_chars, keep)
            form = plain(value)
            text = self.none if value is None else form if isinstance(form, str) else write(form)
            if self.checker is None or self.checker.valid(form):
                return _cut(text, limit_chars, keep)
            lines = "; ".join(self.checker.errors(form)).replace("the arguments", "the result")
        except UsageError as error:
            return self._error(f"{self.tool} ran, but its result cannot be shown: {error}")
        except Exception as error:  # noqa: BLE001 - whatever a result's own class raises is this call's error (TOL-6)
            return self._error(f"{self.tool} ran, but its result cannot be shown: {type(error).__name__}: {error}")
        return self._error(f"{self.tool} ran, but its result does not fit the declared {self.declared}: {lines}")

    @staticmethod
    def _error(text: str) -> Shaped:
        return Shaped((Text(_safe(text)),), error=True)


def _as_parts(value: object) -> Content | None:
    if isinstance(value, _PARTS):
        return as_content(_mended(value))
    if isinstance(value, list | tuple) and value and any(isinstance(item, _PARTS) for item in value):
        whole = all(isinstance(item, str | Text | Image | File) for item in value)
        return as_content([_mended(item) for item in value]) if whole else None
    return None


def _mended(part: object) -> object:
    """A part of a result without half characters: it comes from where the tool looked, and is shown all the same."""
    match part:
        case str():
            return _safe(part)
        case Text(text=str() as text):
            return Text(_safe(text))
        case File(name=str() as name, media_type=kind, data=data):
            return File(_safe(name), kind, data)
        case _:
            return part


def _safe(text: str) -> str:
    """The text without half characters (from undecodable file names), which no UTF-8 can carry."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def _cut(text: str, limit_chars: int, keep: Keep | None) -> Shaped:
    text = _safe(text)
    if len(text) <= limit_chars:
        return Shaped((Text(text),))
    keep = keep if keep is not None and len(text) <= keep.limit_chars else None
    shown, line = _kept(text, limit_chars, keep)
    return Shaped((Text(text[:shown] + line),), cut=True, whole=text, kept=keep is not None)  # TOL-8


def _kept(text: str, limit_chars: int, keep: Keep | None) -> tuple[int, str]:
    """How much of a text stays, and the line that says how much is missing; together within the limit (TOL-8)."""
    reserved = len(_missing(len(text), len(text))) + (0 if keep is None else HINT_CHARS)
    room = max(0, limit_chars - reserved)
    for _ in range(_CLUSTER_MAX):  # never between a letter and its accent, or inside a joined emoji
        if not 0 < room < len(text) or not _joins(text[room - 1], text[room]):
            break
        room -= 1
    return room, _missing(len(text) - room, len(text), "" if keep is None else hint(keep.call, room))


_CLUSTER_MAX: Final = 16
_JOINER: Final = "\u200d"


def _joins(before: str, after: str) -> bool:
    if before.isascii() and after.isascii():
        return before == "\r" and after == "\n"
    return (
        _JOINER in (before, after)
        or unicodedata.category(after) in ("Mn", "Me")
        or "\U0001f3fb" <= after <= "\U0001f3ff"
    )


def _missing(missing: int, total: int, on: str = "") -> str:
    return f"\n[cut: {missing:,} of {total:,} characters are missing here{on}]"


def _cut_parts(parts: Content, limit_chars: int, keep: Keep | None) -> Shaped:
    texts = [_safe(part.text) for part in parts if isinstance(part, Text)]
    whole = "\n".join(texts)
    if sum(len(text) for text in texts) <= limit_chars:
        return Shaped(tuple(Text(_safe(part.text)) if isinstance(part, Text) else part for part in parts))
    on = "" if keep is None or len(whole) > keep.limit_chars else hint(keep.call, None)
    shown: list[Text | Image | File] = []
    room = limit_chars
    for part in parts:
        if not isinstance(part, Text):
            shown.append(part)
        elif room > 0:
            shaped = _cut(part.text, room, None)
            shown += shaped.content
            room = 0 if shaped.cut else room - len(part.text)
        else:
            shown.append(Text(_missing(len(part.text), len(part.text)).strip()))
    if on:
        shown.append(Text(f"[all of the text is kept{on}]"))
    return Shaped(tuple(shown), cut=True, whole=whole, kept=bool(on))


def compile_output(name: str, returns: object, where: str) -> Output:
    """What the result is checked against; content parts are told apart by their classes, not by a schema.

    Raises:
        UsageError: the declared type has no JSON form.
    """
    if returns in _UNCHECKED:
        return Output(name)
    where = f"{where}, its result"
    alternatives = typing.get_args(returns) if _is_union(returns) else (returns,)
    written = [one for one in alternatives if not any(member in _PARTS for member in _members(one))]
    schemas = [schema_of(one, where, closed=False) for one in written]
    parts = len(written) < len(alternatives)
    return Output(
        name,
        type_name(returns),
        text=returns is str or (parts and str in _members(returns)),
        parts=parts,
        exact=returns if returns is int or returns is bool else None,
        none=DONE if returns in (None, types.NoneType) else "null",
        checker=Checker(schemas[0] if len(schemas) == 1 else {"anyOf": schemas} if schemas else {"enum": []}),
    )


def _is_union(tp: object) -> bool:
    return typing.get_origin(tp) in (typing.Union, types.UnionType)


def _members(tp: object) -> tuple[object, ...]:
    """A type and all the types written inside it."""
    inner = [member for arg in typing.get_args(tp) for member in _members(arg)]
    return (tp, *inner)
