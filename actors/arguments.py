"""The arguments of a tool: their schema, and their reading from the JSON text that a model sent (TOL-6).

A list or an object that was sent as JSON text is read as what it is, where the schema wants one; that is recorded.
JSON that is broken stays refused. Nothing else is mended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
from msgspec import Struct

from .building import builder, reasons
from .fitting import Checker, Refusal, names_of
from .schema import Json, Schema, check_whole, default_of, object_schema, schema_of

if TYPE_CHECKING:
    from .signature import Argument

_DECODE: Final = msgspec.json.Decoder().decode


class Parsed(Struct, frozen=True):
    """Arguments that fit, built, with defaults. `repaired`: where a list or object had been sent as JSON text."""

    arguments: dict[str, Any]
    repaired: tuple[str, ...] = ()


@attrs.frozen(eq=False)
class Input:
    """What a tool takes, compiled."""

    tool: str
    checker: Checker
    defaults: Mapping[str, object] = attrs.field(factory=dict)
    builders: tuple[tuple[str, Callable[[Any], Any]], ...] = ()

    def parse(self, arguments: str) -> Parsed | Refusal:
        """Arguments from JSON text, or what the model is told."""
        try:
            value = _DECODE(arguments) if arguments else {}
            if type(value) is dict and self.checker.valid(value):  # the usual case
                return self._built(value)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            return self._unread(error, arguments)
        return self._repaired(value, arguments)

    def final(self, arguments: str) -> dict[str, Json]:
        """The arguments of a call that fits, in the parameters' order, with the defaults that have a JSON form."""
        value = _DECODE(arguments) if arguments else {}
        if not (type(value) is dict and self.checker.valid(value)):
            value = self.checker.repaired(value)[0]
        assert isinstance(value, dict), "arguments that fit are an object"
        properties = self.checker.schema.get("properties", {})
        shown = {
            name: value[name] if name in value else schema["default"]
            for name, schema in properties.items()
            if name in value or "default" in schema
        }
        return {**shown, **value}

    def without_defaults(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Built arguments but for those that are the function's own defaults, which need no JSON form."""
        left = self.defaults
        return {name: value for name, value in arguments.items() if name not in left or left[name] is not value}

    def _built(self, value: dict[str, Any], repaired: tuple[str, ...] = ()) -> Parsed | Refusal:
        kwargs = {**self.defaults, **value}
        for name, build in self.builders:
            if name in value:
                try:
                    kwargs[name] = build(value[name])
                except Exception as error:  # noqa: BLE001 - classes check their fields with code of their own
                    return self._refused(reasons(error, name))
        return Parsed(kwargs, repaired)

    def _repaired(self, value: Json, arguments: str) -> Parsed | Refusal:
        try:
            read, paths = self.checker.repaired(value)
            if isinstance(read, dict) and self.checker.valid(read):
                return self._built(read, paths)
            return self._refused(self.checker.errors(read))
        except (ValueError, RecursionError) as error:
            return self._unread(error, arguments)

    def _refused(self, lines: tuple[str, ...]) -> Refusal:
        listed = "\n".join(f"- {line}" for line in lines)
        return Refusal(f"The arguments of {self.tool} do not fit, so it was not run:\n{listed}\n{self._again()}")

    def _unread(self, error: Exception, arguments: str) -> Refusal:
        deep = isinstance(error, RecursionError) or "ecursion" in str(error)  # the validator has a ValueError for it
        why = "are nested too deeply, so it was not run." if deep else f"are not JSON, so it was not run: {error}."
        return Refusal(f"The arguments of {self.tool} {why} They began: {arguments[:80]!r}. {self._again()}")

    def _again(self) -> str:
        return f"Call {self.tool} again with one JSON object of: {names_of(self.checker.schema) or 'nothing, {}'}."


def compile_input(name: str, arguments: tuple[Argument, ...], said: Mapping[str, str]) -> tuple[Schema, Input]:
    """The schema of a tool's arguments, and what reads them.

    Args:
        name: the tool's.
        arguments: in order.
        said: descriptions from the docstring.

    Raises:
        UsageError: a parameter's type has no JSON form.
    """
    properties: dict[str, Schema] = {}
    builders: list[tuple[str, Callable[[Any], Any]]] = []
    for argument in arguments:
        place = f"tool {name!r}, parameter {argument.name!r}"
        schema = schema_of(argument.annotation, place)
        if argument.name in said:
            schema.setdefault("description", said[argument.name])
        if argument.default is not None and (default := default_of(argument.default[0])) is not None:
            schema["default"] = default[0]
        check_whole(schema, place)
        properties[argument.name] = schema
        build = builder(argument.annotation, place)
        if build is not None:
            builders.append((argument.name, build))
    required = [argument.name for argument in arguments if argument.default is None]
    whole = object_schema(properties, required)
    defaults = {argument.name: argument.default[0] for argument in arguments if argument.default is not None}
    return whole, Input(name, Checker(whole), defaults, tuple(builders))
