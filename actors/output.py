"""The type that an answer owes: its schema for the model, and the value out of the model's text.

A type that is no object is asked for as `{"answer": ...}`, because servers take objects only; both forms are read.
JSON is found bare, in a fenced block, or with words around it; where several pieces fit, the last is the answer.
"""

from __future__ import annotations

import hashlib
import json
import re
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs
import msgspec

from .building import builder, reasons, write
from .fitting import Checker, Refusal
from .ports import OutputOffer
from .schema import Json, Schema, check_whole, compact, object_schema, schema_of, type_name

if TYPE_CHECKING:
    from collections.abc import Iterator

WRAPPED: Final = "answer"
_FENCE: Final = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_PIECES_MAX: Final = 64


@attrs.frozen
class Answer:
    """A structured answer. `value`: of the declared type. `json`: its JSON text, which `kept` takes again."""

    value: Any
    json: str


@attrs.frozen(eq=False, repr=False)
class OutputSpec:
    """What an answer owes; make one with `output_spec`.

    Attributes:
        name: of the type, for messages. key: the name with its schema's digest, which the store knows it by: two types
            may share a name. declared: the type.
        offer: what the model's server is told; None for plain text.
    """

    name: str
    key: str
    declared: object
    offer: OutputOffer | None
    _checker: Checker
    _build: Callable[[Any], Any] | None
    _wrapped: bool

    def read(self, text: str) -> Answer | Refusal:
        """The answer in a model's text; never an exception.

        Returns:
            The answer; or what is wrong with it, for the model.
        """
        if self.offer is None:
            return Answer(text, write(text))
        found = False
        refused: tuple[str, ...] = ()
        for value in _pieces(text):
            found = True
            bare = self._unwrapped(value)
            try:
                if self._checker.valid(bare):
                    return Answer(bare if self._build is None else self._build(bare), write(bare))
                lines = self._checker.errors(bare)
            except Exception as error:  # noqa: BLE001 - classes check their fields with code of their own
                lines = reasons(error, "the answer")
            refused = refused or tuple(line.replace("the arguments", "the answer") for line in lines)
        if not found:
            return Refusal(
                f"there is no JSON in it; answer with one JSON value that fits this schema: {self.offer.schema}"
            )
        return Refusal("; ".join(refused))

    def kept(self, json: str) -> object:
        """The value of an answer as it is stored; None where it does not fit the type any more."""
        if self.offer is None:
            return msgspec.json.decode(json)
        found = self.read(json)
        return found.value if isinstance(found, Answer) else None

    def _unwrapped(self, value: Json) -> Json:
        if self._wrapped and isinstance(value, dict) and value.keys() == {WRAPPED}:
            return value[WRAPPED]
        return value

    def __repr__(self) -> str:
        return f"<OutputSpec {self.name}>"


def output_spec(declared: object, where: str) -> OutputSpec:
    """What an answer of a type owes.

    Args:
        declared: attrs class, dataclass, TypedDict or any type with a JSON form; `str` is the text as it comes.
        where: names the place in an error.

    Raises:
        UsageError: the type has no JSON form, or cannot be built.
    """
    written = type_name(declared) if typing.get_args(declared) else getattr(declared, "__name__", type_name(declared))
    name = re.sub(r"[^a-zA-Z0-9_-]+", "_", written).strip("_")[:64]
    if declared is str:
        return OutputSpec("str", "str", str, None, Checker({"type": "string"}), None, wrapped=False)
    schema: Schema = schema_of(declared, where)
    check_whole(schema, where)
    wrapped = schema.get("type") != "object"
    asked = object_schema({WRAPPED: schema}, [WRAPPED]) if wrapped else schema
    name, written_out = name or "answer", compact(asked)
    return OutputSpec(
        name=name,
        key=f"{name}-{hashlib.sha256(written_out.encode()).hexdigest()[:8]}",
        declared=declared,
        offer=OutputOffer(name, written_out),
        checker=Checker(schema),
        build=builder(declared, where),
        wrapped=wrapped,
    )


def _pieces(text: str) -> Iterator[Json]:
    """JSON values in a text, the likeliest first: the whole, then fenced blocks and then bare values from the end."""
    try:
        yield msgspec.json.decode(text.strip())
    except (ValueError, RecursionError):
        pass
    else:
        return
    for block in reversed(_FENCE.findall(text)[-_PIECES_MAX:]):
        try:
            yield msgspec.json.decode(block.strip())
        except (ValueError, RecursionError):
            continue
    yield from reversed(list(_bare(text)))


def _bare(text: str) -> Iterator[Json]:
    """Objects and lists with words around them, in order; a bounded number of tries."""
    place = 0
    for _ in range(_PIECES_MAX):
        start = _BEGIN.search(text, place)
        if start is None:
            return
        try:
            value, place = _SCANNER.raw_decode(text, start.start())
            yield value
        except (ValueError, RecursionError):
            place = start.end()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_BEGIN: Final = re.compile(r"[{\[]")
_SCANNER: Final = json.JSONDecoder(parse_constant=_no_constant)
