"""Whether JSON fits a schema, said in words that a model can act on.

A schema is compiled once. JSON that fits, the common case, costs one call of the compiled validator; only JSON that
does not fit pays for words. Nothing is coerced: "5" is no number, and neither is `true`.
"""

from __future__ import annotations

import itertools
import json
import types
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import attrs
import jsonschema_rs
import msgspec
from jsonschema_rs import ValidationErrorKind as Kind

from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .schema import Json, Schema

    Validator: TypeAlias = jsonschema_rs.Draft202012Validator
    Problem: TypeAlias = jsonschema_rs.ValidationError

LINES_MAX: Final = 10
REPAIRS_MAX: Final = 8
_SHOWN_CHARS: Final = 60
_LINE_CHARS: Final = 400
_LISTED: Final = 12

Step: TypeAlias = str | int


@attrs.frozen
class Refusal:
    """What was sent cannot be taken. `text`: what is wrong, and what would be accepted, for the model."""

    text: str


# -- words -------------------------------------------------------------------------------------------------------


def path_text(path: Sequence[Step]) -> str:
    """A path as people write it: `items[2].name`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def shown(value: object) -> str:
    """A value, short, with what it is."""
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            cut = value if len(value) <= _SHOWN_CHARS else value[: _SHOWN_CHARS - 1] + "…"
            return f"the text {json.dumps(cut, ensure_ascii=False)}"
        case dict():
            names = ", ".join(itertools.islice(value, _LISTED))
            return f"an object with {names}"[: 2 * _SHOWN_CHARS] if names else "an empty object"
        case list():
            return f"a list of {len(value)}"
        case _:
            return f"the number {value}"[: 2 * _SHOWN_CHARS]


_WORDS: Final[Mapping[str, str]] = types.MappingProxyType(
    {
        "string": "text",
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "null": "null",
        "array": "a list",
        "object": "an object",
    },
)
_FORMATS: Final[Mapping[str, str]] = types.MappingProxyType(
    {
        "date-time": "a date and time such as 2025-01-31T12:00:00Z",
        "date": "a date such as 2025-01-31",
        "time": "a time such as 12:00:00",
        "duration": "a duration such as PT90S",
        "uuid": "a UUID",
        "decimal": 'a decimal number as text, such as "1.50"',
    },
)


def accepted(schema: Schema | bool) -> str:  # noqa: FBT001 - JSON Schema has boolean schemas
    """What a schema accepts, in words."""
    if isinstance(schema, bool):
        return "anything" if schema else "nothing"
    if "enum" in schema:
        options: list[Json] = schema["enum"]
        if not options:
            return "content: Text, Image or File"  # what a schema cannot say
        listed = ", ".join(json.dumps(option, ensure_ascii=False) for option in options[:_LISTED])
        return f"one of {listed}" + (", …" if len(options) > _LISTED else "")
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(accepted(member) for member in schema["anyOf"]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(_WORDS[word] for word in kind)
    if kind == "array" and isinstance(schema.get("items"), dict) and schema["items"]:
        return f"a list, each {accepted(schema['items'])}"
    if kind == "object" and schema.get("properties"):
        return f"an object with {names_of(schema)}"
    if kind == "string" and schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    return _WORDS.get(kind or "", "anything")


def names_of(schema: Schema) -> str:
    """The names that an object takes."""
    needed = schema.get("required", ())
    names = [name if name in needed else f"{name} (optional)" for name in schema.get("properties", {})]
    return ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")


# -- checking ----------------------------------------------------------------------------------------------------


@final
class Checker:
    """A compiled schema.

    Attributes:
        schema: what was compiled. valid: whether a JSON value fits it.
    """

    __slots__ = ("_validator", "schema", "valid")

    def __init__(self, schema: Schema) -> None:
        """Compile a schema.

        Raises:
            UsageError: it is not a JSON Schema.
        """
        try:
            self._validator: Validator = jsonschema_rs.Draft202012Validator(schema)
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            raise UsageError(f"not a JSON Schema (2020-12): {str(error).splitlines()[0]}; got {schema!r}") from error
        self.schema = schema
        self.valid: Callable[[Json], bool] = self._validator.is_valid

    def errors(self, value: Json) -> tuple[str, ...]:
        """Every way in which a value does not fit, one line each, at most ten; empty where it fits (TOL-6)."""
        lines: dict[str, None] = {}
        for problem in self._validator.iter_errors(value):
            for line in self._lines(problem):
                lines[_one_line(line)] = None
            if len(lines) > LINES_MAX:
                return (*itertools.islice(lines, LINES_MAX), "… and more")
        return tuple(lines)

    def repaired(self, value: Json) -> tuple[Json, tuple[str, ...]]:
        """The value with lists and objects that were sent as JSON text read; and the paths of those.

        Only where the schema wants a list or an object and takes no text there, only whole JSON, at most eight
        places. The value is changed in place.
        """
        paths: list[str] = []
        for problem in itertools.islice(self._validator.iter_errors(value), 4 * REPAIRS_MAX):
            where = list(problem.instance_path)
            sent = problem.instance
            wanted = _kinds(self._at(problem.schema_path[:-1]))
            if not isinstance(sent, str) or "string" in wanted or not wanted & {"array", "object"}:
                continue
            if not isinstance(problem.kind, Kind.Type | Kind.AnyOf) or len(paths) == REPAIRS_MAX:
                continue
            try:
                read = msgspec.json.decode(sent)
            except (ValueError, RecursionError):
                continue
            if ("object" if isinstance(read, dict) else "array" if isinstance(read, list) else "") in wanted:
                value = _replaced(value, where, read)
                paths.append(path_text(where) or "the arguments")
        return value, tuple(paths)

    def _at(self, path: Sequence[Step]) -> Schema:
        found: Any = self.schema
        for step in path:
            found = found[step]
        return found if isinstance(found, dict) else {}

    def _lines(self, problem: Problem) -> list[str]:
        path = problem.instance_path
        here = path_text(path) or "the arguments"
        parent = self._at(problem.schema_path[:-1])
        match problem.kind:
            case Kind.Required(property=name):
                wanted = accepted(parent.get("properties", {}).get(name, True))
                return [f"{path_text((*path, name))}: missing; expected {wanted}"]
            case Kind.AdditionalProperties(unexpected=names):
                known = names_of(parent) or "none"
                few = names[: LINES_MAX + 1]
                return [f"{path_text((*path, name[:_SHOWN_CHARS]))}: no such name here; known: {known}" for name in few]
            case Kind.AnyOf(context=branches):
                meant = _meant(problem, branches)
                if meant:
                    return [line for inner in meant for line in self._lines(inner)]
                return [f"{here}: got {shown(problem.instance)}; expected {accepted(parent)}"]
            case Kind.Type() | Kind.Enum():
                return [f"{here}: got {shown(problem.instance)}; expected {accepted(parent)}"]
            case _:
                return [f"{here}: {problem.message}"]


def _one_line(line: str) -> str:
    """The line without line breaks and other controls, which a model may have put into a name, and not too long."""
    if len(line) > _LINE_CHARS:
        line = line[: _LINE_CHARS - 1] + "…"
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


def _meant(problem: Problem, branches: list[list[Problem]]) -> list[Problem]:
    """The problems of the branch of a union that was meant: of the value's own JSON type, with the fewest problems."""
    depth = len(problem.instance_path)
    meant = sorted(
        (
            branch
            for branch in branches
            if not any(
                isinstance(one.kind, Kind.Type | Kind.Enum) and len(one.instance_path) == depth for one in branch
            )
        ),
        key=len,
    )
    alone = len(meant) == 1 or (len(meant) > 1 and len(meant[0]) < len(meant[1]))
    return meant[0] if alone else []


def _kinds(schema: Schema) -> set[str]:
    """The JSON types that a schema takes freely; an enumeration takes its own values only."""
    if "enum" in schema:
        return set()
    if "anyOf" in schema:
        return set().union(*(_kinds(member) for member in schema["anyOf"]))
    kind = schema.get("type", "string")  # what takes anything takes text
    return set(kind) if isinstance(kind, list) else {kind}


def _replaced(value: Json, path: list[Step], new: Json) -> Json:
    if not path:
        return new
    holder: Any = value
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = new
    return value
