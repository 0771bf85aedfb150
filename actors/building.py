"""Values of annotated types from JSON that fits their schema, and JSON from what tools and models' answers hold.

Building goes through each class's own `__init__`, so converters and validators run. What the checked JSON already is
(text, true, plain lists of these) passes as it is. Bytes, NaN and objects of no known form are refused, not guessed.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import decimal
import json
import pathlib
import types
import typing
import uuid
from typing import TYPE_CHECKING, Any, Final

import attrs
import cattrs
import msgspec

from .errors import UsageError
from .fitting import Checker
from .schema import Json, schema_of, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

    Build = Callable[[Any], Any]

_AS_SENT: Final = (str, bool, type(None), Any, object, list, dict)
_BYTES: Final = (bytes, bytearray, memoryview)


def builder(annotation: object, where: str) -> Build | None:
    """A function that builds the type from JSON that fits its schema; None where such JSON is the value already.

    Raises:
        UsageError: the type cannot be built.
    """
    if passes_as_sent(annotation):
        return None
    try:
        hook = _CONVERTER.get_structure_hook(annotation)
    except Exception as error:  # cattrs raises many kinds here, and classes run code of their own
        raise UsageError(f"{where}: {type_name(annotation)} cannot be built from JSON: {error}") from error

    def build(value: Any) -> Any:
        return hook(value, annotation)

    return build


def passes_as_sent(annotation: object) -> bool:
    """Whether JSON that fits the type's schema is a value of the type already; numbers are not: 5.0 may stand for 5."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None:
        return annotation is None or annotation in _AS_SENT
    if origin is typing.Annotated:
        return passes_as_sent(args[0])
    if origin is typing.Literal:
        return all(isinstance(option, str | bool | None) for option in args)
    if origin in (list, dict, typing.Union, types.UnionType, collections.abc.Sequence, collections.abc.Mapping):
        return all(passes_as_sent(arg) for arg in args)
    return False


def reasons(error: BaseException, name: str) -> tuple[str, ...]:
    """Why a value could not be built, one line per place."""
    try:
        told = cattrs.transform_error(error, name, lambda exc, _: f"{type(exc).__name__}: {exc}")
    except Exception:  # noqa: BLE001 - the error's own text may raise; a refusal must still be said
        return (f"{name}: {type(error).__name__}",)
    lines = []
    for text in told:
        said, _, where = text.rpartition(" @ ")
        lines.append(f"{where or name}: {' '.join((said or text).split())}")
    return tuple(lines)


# -- cattrs ------------------------------------------------------------------------------------------------------


def _integer(value: Any, _: object) -> int:
    return value if type(value) is int else int(value)


def _number(value: Any, _: object) -> float:
    return float(value)


def _as_is(value: Any, _: object) -> Any:
    return value


def _leaf(value: Any, tp: Any) -> Any:
    return msgspec.convert(value, tp)


def _path(value: Any, tp: Any) -> Any:
    return tp(value)


def _is_union(tp: object) -> bool:
    return typing.get_origin(tp) in (typing.Union, types.UnionType)


def _union(tp: Any) -> Callable[[Any, Any], Any]:
    """A hook for a union: the first member whose schema the value fits; its own class before a wider one."""
    members: list[tuple[Callable[[Json], bool], Callable[[Any, Any], Any] | None, Any]] = []
    for member in typing.get_args(tp):
        hook = None if passes_as_sent(member) else _CONVERTER.get_structure_hook(member)
        members.append((Checker(schema_of(member, f"union {tp}")).valid, hook, member))
    whole = any(member is int for _, _, member in members)

    def structure(value: Any, _: object) -> Any:
        if whole and type(value) is int:
            return value
        for fits, hook, member in members:
            if fits(value):
                return value if hook is None else hook(value, member)
        raise ValueError(f"fits no member of {type_name(tp)}")

    return structure


def _is_named(tp: object) -> bool:
    return isinstance(tp, type) and issubclass(tp, tuple) and hasattr(tp, "_fields")


def _named(tp: Any) -> Callable[[Any, Any], Any]:
    """A hook for a NamedTuple, whose annotations may be text (postponed), which cattrs does not read."""
    hints = typing.get_type_hints(tp, include_extras=True)
    hooks = [(hints[name], _CONVERTER.get_structure_hook(hints[name])) for name in tp._fields]

    def structure(value: Any, _: object) -> Any:
        return tp(*(hook(item, hint) for item, (hint, hook) in zip(value, hooks, strict=False)))

    return structure


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)  # the schema has refused names that are too many
    converter.register_structure_hook(int, _integer)
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook(str, _as_is)
    converter.register_structure_hook(bool, _as_is)
    for leaf in (dt.datetime, dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID):
        converter.register_structure_hook(leaf, _leaf)
    converter.register_structure_hook_func(lambda tp: isinstance(tp, type) and issubclass(tp, pathlib.PurePath), _path)
    converter.register_structure_hook_factory(_is_union, _union)
    converter.register_structure_hook_factory(_is_named, _named)
    return converter


_CONVERTER: Final = _converter()


# -- encoding ----------------------------------------------------------------------------------------------------


def _form(value: object) -> object:
    """The plain form of what msgspec does not know."""
    match value:
        case pathlib.PurePath():
            return str(value)
        case collections.abc.Mapping():
            return dict(value)
        case collections.abc.Sequence() | collections.abc.Set():
            return list(value)
        case _:
            raise TypeError(f"{type(value).__qualname__} has no JSON form")


def _refused(value: object) -> typing.NoReturn:
    """Bytes are the one thing that `plain` lets through and JSON has no form for."""
    raise TypeError(f"{type(value).__name__} has no JSON form: decode it to text, or return an Image or a File")


_WRITER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_refused)


def plain(value: object) -> Json:
    """A value in JSON's own terms: attrs classes, dataclasses, enums, Decimals, dates and sets included.

    Raises:
        UsageError: something in it has no JSON form.
    """
    try:
        form: Json = msgspec.to_builtins(value, builtin_types=_BYTES, str_keys=True, enc_hook=_form)
    except (TypeError, ValueError, RecursionError) as error:
        raise _no_form(value, error) from error
    return form


def write(form: Json) -> str:
    """JSON text of what `plain` gave.

    Raises:
        UsageError: bytes, NaN or an infinity stand in it.
    """
    try:
        return _WRITER.encode(form)
    except (TypeError, ValueError, RecursionError) as error:
        raise _no_form(form, error) from error


def encode(value: object) -> str:
    """JSON text of a value.

    Raises:
        UsageError: something in it has no JSON form; the message says what to use instead.
    """
    return write(plain(value))


def _no_form(value: object, error: BaseException) -> UsageError:
    kind = type(value).__qualname__
    known = attrs.has(type(value)) or dataclasses.is_dataclass(value) or isinstance(value, dict | list | tuple)
    place = f"a value inside {kind}" if known else f"a value of type {kind}"
    return UsageError(
        f"{place} cannot be written as JSON: {error}; use str, numbers, lists, dicts, attrs or dataclasses"
    )
