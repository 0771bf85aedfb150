"""JSON Schema from what people annotate: parameters of a function, fields of a class, a result.

Classes are written out where they stand (no `$ref`), in the order of their fields, with what their docstrings say.
Unions may hold several classes. What has no JSON form is refused while the program is being written, not when a
model calls. This module knows no tool and checks no value; see `fitting.py`. Dialect: JSON Schema 2020-12.
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import json
import pathlib
import types
import typing
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast

import attrs
import docstring_parser
import msgspec

from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
Schema: TypeAlias = dict[str, Any]

USABLE: Final = (
    "str, int, float, bool, None, Literal, Enum, Decimal, datetime, date, time, timedelta, UUID, Path, list, tuple,"
    " set, dict with str keys, a union of these, an attrs class, a dataclass, a TypedDict or a NamedTuple"
)


@attrs.frozen
class Documented:
    """What a docstring says: `text`, and a description per argument or field."""

    text: str
    arguments: Mapping[str, str]


def read_docstring(doc: str | None) -> Documented:
    """The description and the arguments' descriptions of a docstring in Google, NumPy or reST style."""
    if not doc or not doc.strip():
        return Documented("", {})
    try:
        parsed = docstring_parser.parse(doc)
    except Exception:  # noqa: BLE001 - the parser has bugs (IndexError for a bare `:param`); words are no reason to fail
        return Documented(inspect.cleandoc(doc), {})
    arguments = {item.arg_name: " ".join((item.description or "").split()) for item in parsed.params}
    parts = [parsed.short_description, parsed.long_description]
    text = "\n\n".join(part.strip() for part in parts if part)
    return Documented(text, {name: said for name, said in arguments.items() if said})


def schema_of(annotation: object, where: str, *, closed: bool = True) -> Schema:
    """The JSON Schema of a type.

    Args:
        annotation: the type, resolved (no string).
        where: names the place in an error, for example `tool 'add', parameter 'a'`.
        closed: objects accept no field that their class does not name; False for checking what our side made.

    Raises:
        UsageError: the type, or one inside it, has no JSON form.
    """
    return _Walk(where, closed).of(annotation)


def object_schema(properties: Mapping[str, Schema], required: list[str], *, closed: bool = True) -> Schema:
    """The schema of an object."""
    schema: Schema = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = required
    if closed:
        schema["additionalProperties"] = False
    return schema


def default_of(value: object) -> tuple[Json] | None:
    """A default as JSON, in a tuple of one; None where it has no JSON form."""
    try:
        plain = msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview))
        json.dumps(plain, allow_nan=False)  # refuses bytes and NaN, which msgspec would rewrite
    except (TypeError, ValueError, RecursionError):
        return None
    return (cast("Json", plain),)


def compact(schema: Schema) -> str:
    """The schema as JSON text."""
    return msgspec.json.encode(schema).decode()


def check_whole(schema: Schema, where: str) -> None:
    """Refuse a schema with half a character in what it says: no request could hold it.

    Raises:
        UsageError: it has one; `where` begins the message.
    """
    try:
        compact(schema)
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise UsageError(
            f"{where}: what is said of it is text that UTF-8 can hold; got half a character, {half!r}: {error.object!r}"
        ) from None


def type_name(annotation: object) -> str:
    """How a type is written in a message."""
    if annotation is None or annotation is types.NoneType:
        return "None"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


_PLAIN: Final[Mapping[object, Schema]] = types.MappingProxyType(
    {
        str: {"type": "string"},
        bool: {"type": "boolean"},
        int: {"type": "integer"},
        float: {"type": "number"},
        None: {"type": "null"},
        types.NoneType: {"type": "null"},
        Any: {},
        object: {},
        list: {"type": "array"},
        tuple: {"type": "array"},
        set: {"type": "array", "uniqueItems": True},
        frozenset: {"type": "array", "uniqueItems": True},
        dict: {"type": "object"},
        dt.datetime: {"type": "string", "format": "date-time"},
        dt.date: {"type": "string", "format": "date"},
        dt.time: {"type": "string", "format": "time"},
        dt.timedelta: {"type": "string", "format": "duration"},
        uuid.UUID: {"type": "string", "format": "uuid"},
        decimal.Decimal: {"type": "string", "format": "decimal"},
    },
)
_ARRAYS: Final = (
    list,
    set,
    frozenset,
    collections.deque,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Set,
    collections.abc.MutableSet,
    collections.abc.Collection,
    collections.abc.Iterable,
)
_SETS: Final = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
_MAPPINGS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_QUALIFIERS: Final = (typing.Required, typing.NotRequired, typing.Final, typing.ClassVar)
_META: Final = (
    ("gt", "exclusiveMinimum"),
    ("ge", "minimum"),
    ("lt", "exclusiveMaximum"),
    ("le", "maximum"),
    ("multiple_of", "multipleOf"),
    ("pattern", "pattern"),
    ("title", "title"),
    ("description", "description"),
    ("examples", "examples"),
)
_SIZES: Final[Mapping[str, tuple[str, str]]] = types.MappingProxyType(
    {
        "string": ("minLength", "maxLength"),
        "array": ("minItems", "maxItems"),
        "object": ("minProperties", "maxProperties"),
    },
)


class _Walk:
    """One walk over a type; `open` holds the classes being written out, to refuse one that holds itself."""

    __slots__ = ("_closed", "_open", "_where")

    def __init__(self, where: str, closed: bool) -> None:  # noqa: FBT001 - private
        self._where = where
        self._closed = closed
        self._open: list[object] = []

    def of(self, tp: object) -> Schema:
        try:
            plain = _PLAIN.get(tp)
        except TypeError:  # an unhashable annotation, such as Literal[[1]]
            self._refuse(tp)
        if plain is not None:
            return dict(plain)
        origin = typing.get_origin(tp)
        if origin is not None:
            return self._of_alias(tp, origin, typing.get_args(tp))
        if isinstance(tp, typing.NewType):
            return self.of(tp.__supertype__)
        if type(tp).__name__ == "TypeAliasType":  # `type X = ...` of Python 3.12
            return self.of(cast("Any", tp).__value__)
        if tp in _ARRAYS or tp in _MAPPINGS:
            return {"type": "array" if tp in _ARRAYS else "object"}
        if isinstance(tp, type):
            return self._of_class(tp)
        return self._refuse(tp)

    def _of_alias(self, tp: object, origin: object, args: tuple[Any, ...]) -> Schema:
        if origin is typing.Annotated:
            return self._with_metadata(self.of(args[0]), args[1:])
        if origin in _QUALIFIERS:
            return self.of(args[0])
        if origin is typing.Literal:
            return self._choice(tp, args)
        if origin is typing.Union or origin is types.UnionType:
            return {"anyOf": [self.of(member) for member in args]}
        if origin is tuple:
            return self._tuple(args)
        if origin in _ARRAYS:
            unique = {"uniqueItems": True} if origin in _SETS else {}
            return {"type": "array", "items": self.of(args[0])} | unique
        if origin in _MAPPINGS:
            if self.of(args[0]).get("type") != "string":
                self._refuse(tp, "a JSON object has text keys only")
            return {"type": "object", "additionalProperties": self.of(args[1])}
        if isinstance(origin, type):
            return self._of_class(origin, args)
        return self._refuse(tp)

    def _of_class(self, cls: type, args: tuple[Any, ...] = ()) -> Schema:
        if issubclass(cls, enum.Enum):
            return self._choice(cls, tuple(member.value for member in cls))
        if issubclass(cls, pathlib.PurePath):
            return {"type": "string"}
        if cls in self._open:
            self._refuse(cls, "it holds itself, and a schema is written out in full; give the depth a bound")
        self._open.append(cls)
        try:
            if issubclass(cls, tuple) and hasattr(cls, "_fields"):
                hints = self._hints(cls)
                return self._tuple(tuple(hints[name] for name in cls._fields))
            fields = list(_fields(cls))
            if not fields and not (attrs.has(cls) or dataclasses.is_dataclass(cls) or typing.is_typeddict(cls)):
                self._refuse(cls)
            return self._object(cls, fields, args)
        finally:
            self._open.pop()

    def _object(self, cls: type, fields: list[_Field], args: tuple[Any, ...]) -> Schema:
        hints = self._hints(cls)
        chosen = dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))
        said = read_docstring(_own_docstring(cls))
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for field in fields:
            hint = hints.get(field.name, Any)
            schema = self.of(_substituted(hint, chosen))
            if field.name in said.arguments:
                schema.setdefault("description", said.arguments[field.name])
            if field.default is not None:
                schema["default"] = field.default[0]
            properties[field.name] = schema
            if field.required and typing.get_origin(hint) is not typing.NotRequired:
                required.append(field.name)
        whole = object_schema(properties, required, closed=self._closed)
        return whole | ({"description": said.text} if said.text else {})

    def _hints(self, cls: type) -> dict[str, Any]:
        try:
            return typing.get_type_hints(cls, include_extras=True)
        except (NameError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{self._where}: the annotations of {cls.__qualname__} cannot be resolved at run time ({error});"
                " import what they name outside `if TYPE_CHECKING`, and put the class at the top of its module"
            ) from error

    def _tuple(self, args: tuple[Any, ...]) -> Schema:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": self.of(args[0])}
        size = len(args)
        items = [self.of(arg) for arg in args]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": size, "maxItems": size}

    def _choice(self, tp: object, values: tuple[object, ...]) -> Schema:
        words = {_word(value) for value in values}
        if None in words or not values:
            self._refuse(tp, "its values must be text, whole numbers, true, false or null")
        alone = words.pop() if len(words) == 1 else None
        return ({"type": alone} if alone else {}) | {"enum": list(values)}

    def _with_metadata(self, schema: Schema, metadata: tuple[object, ...]) -> Schema:
        for item in metadata:
            if isinstance(item, str):
                schema["description"] = item
            elif isinstance(item, msgspec.Meta):
                for ours, theirs in _META:
                    value = getattr(item, ours)
                    if value is not None:
                        schema[theirs] = value
                least, most = _SIZES.get(schema.get("type", ""), ("minLength", "maxLength"))
                schema |= {least: item.min_length} if item.min_length is not None else {}
                schema |= {most: item.max_length} if item.max_length is not None else {}
                schema |= item.extra_json_schema or {}
        return schema

    def _refuse(self, tp: object, why: str = "it has no JSON form") -> NoReturn:
        raise UsageError(f"{self._where}: the type {type_name(tp)} cannot be used: {why}; use {USABLE}")


@attrs.frozen
class _Field:
    name: str
    required: bool
    default: tuple[Json] | None


def _fields(cls: type) -> Iterator[_Field]:
    """The fields that making an instance takes."""
    if attrs.has(cls):
        for field in attrs.fields(cls):
            if field.init:
                yield _Field(field.name, field.default is attrs.NOTHING, _shown(field.default, attrs.NOTHING))
    elif dataclasses.is_dataclass(cls):
        for item in dataclasses.fields(cls):
            if item.init:
                bare = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
                yield _Field(item.name, bare, _shown(item.default, dataclasses.MISSING))
    elif typing.is_typeddict(cls):
        needed: frozenset[str] = cast("Any", cls).__required_keys__
        for name in cast("Any", cls).__annotations__:
            yield _Field(name, name in needed, None)


def _shown(default: object, missing: object) -> tuple[Json] | None:
    return None if default is missing or isinstance(default, attrs.Factory) else default_of(default)  # type: ignore[arg-type]


def _own_docstring(cls: type) -> str | None:
    """The docstring that someone wrote; not the signature that dataclasses make up."""
    doc = cls.__dict__.get("__doc__")
    made_up = doc is not None and dataclasses.is_dataclass(cls) and doc.startswith(f"{cls.__name__}(")
    return None if made_up else doc


def _substituted(hint: Any, chosen: Mapping[object, object]) -> object:
    if not chosen:
        return hint
    if isinstance(hint, typing.TypeVar):
        return chosen.get(hint, hint)
    open_variables = getattr(hint, "__parameters__", ())
    return hint[tuple(chosen.get(item, item) for item in open_variables)] if open_variables else hint


def _word(value: object) -> str | None:
    """The JSON Schema type of a plain value; None for what is not plain."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case enum.Enum():
            return None
        case int():
            return "integer"
        case str():
            return "string"
        case _:
            return None
