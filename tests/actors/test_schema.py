"""Types as JSON Schema, the check of JSON against it, and values built from what fits."""

import collections.abc
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import hypothesis.strategies as st
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given

from actors.building import builder, encode, passes_as_sent, reasons
from actors.errors import UsageError
from actors.fitting import LINES_MAX, Checker, accepted, path_text, shown
from actors.schema import Json, compact, default_of, read_docstring, schema_of

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Odd(enum.Enum):
    HALF = 0.5


@attrs.frozen
class Point:
    """A point.

    Attributes:
        x: across
        y: up,
            with a second line
    """

    x: int
    y: float = 1.0
    tags: list[str] = attrs.field(factory=list)
    secret: int = attrs.field(init=False, default=7)


@dataclasses.dataclass
class Line:
    start: Point
    colour: Colour = Colour.RED
    note: str | None = None


class Row(TypedDict):
    id: int
    lines: NotRequired[list[Line]]


class Pair(NamedTuple):
    left: int
    right: str


@attrs.frozen
class Box(Generic[T]):
    value: T
    more: list[T] = attrs.field(factory=list)


@attrs.frozen
class Even:
    number: int

    def __attrs_post_init__(self) -> None:
        if self.number % 2:
            raise ValueError(f"{self.number} is odd")


def _twice(value: int) -> int:
    return value * 2


@attrs.frozen
class Doubled:
    number: int = attrs.field(converter=_twice)


@attrs.frozen
class Node:
    below: "list[Node]"


class Plain:
    pass


@attrs.frozen
class Unresolvable:
    field: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


@dataclasses.dataclass
class Counted:
    name: str
    total: int = dataclasses.field(init=False, default=0)


class Alias:
    """Stands for `type X = ...` of Python 3.12."""

    def __init__(self, value: object) -> None:
        self.__value__ = value


Alias.__name__ = "TypeAliasType"


FORMS: list[tuple[object, dict[str, Any]]] = [
    (str, {"type": "string"}),
    (bool, {"type": "boolean"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (None, {"type": "null"}),
    (Any, {}),
    (list, {"type": "array"}),
    (collections.abc.Sequence, {"type": "array"}),
    (collections.abc.Mapping, {"type": "object"}),
    (Alias(int), {"type": "integer"}),
    (Literal[True], {"type": "boolean", "enum": [True]}),
    (Annotated[int, 5, "five"], {"type": "integer", "description": "five"}),
    (dict, {"type": "object"}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (Sequence[str], {"type": "array", "items": {"type": "string"}}),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
    (Mapping[str, Any], {"type": "object", "additionalProperties": {}}),
    (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (typing.Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 - the old spelling
    (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}),
    (Literal["a", 1], {"enum": ["a", 1]}),
    (Literal[None], {"type": "null", "enum": [None]}),  # noqa: PYI061 - written so somewhere
    (Colour, {"type": "string", "enum": ["red", "blue"]}),
    (dt.datetime, {"type": "string", "format": "date-time"}),
    (decimal.Decimal, {"type": "string", "format": "decimal"}),
    (uuid.UUID, {"type": "string", "format": "uuid"}),
    (pathlib.Path, {"type": "string"}),
    (typing.NewType("UserId", int), {"type": "integer"}),
    (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
    (Annotated[int, msgspec.Meta(ge=1, lt=9)], {"type": "integer", "minimum": 1, "exclusiveMaximum": 9}),
    (Annotated[str, msgspec.Meta(min_length=1)], {"type": "string", "minLength": 1}),
    (Annotated[list[int], msgspec.Meta(max_length=3)], {"type": "array", "items": {"type": "integer"}, "maxItems": 3}),
]


@pytest.mark.parametrize(("annotation", "schema"), FORMS, ids=lambda value: str(value)[:40])
def test_each_type_has_its_schema(annotation: object, schema: dict[str, Any]) -> None:
    """A type is written as the JSON Schema that says what JSON it takes, in the order people wrote it."""
    assert schema_of(annotation, "here") == schema


def test_classes_are_written_out_in_the_order_of_their_fields() -> None:
    """Nested classes stand where they are used, with descriptions, defaults, what is required, and nothing beside."""
    point = {
        "type": "object",
        "properties": {
            "x": {"type": "integer", "description": "across"},
            "y": {"type": "number", "description": "up, with a second line", "default": 1.0},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["x"],
        "additionalProperties": False,
        "description": "A point.",
    }
    line = {
        "type": "object",
        "properties": {
            "start": point,
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["start"],
        "additionalProperties": False,
    }
    row = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "lines": {"type": "array", "items": line}},
        "required": ["id"],
        "additionalProperties": False,
    }
    assert schema_of(Row, "here") == row
    assert list(json.loads(compact(schema_of(Line, "here")))["properties"]) == ["start", "colour", "note"]
    assert "$ref" not in compact(schema_of(Row, "here"))


def test_a_generic_class_is_written_with_its_argument() -> None:
    """A type variable is replaced, inside containers too."""
    assert schema_of(Box[int], "here")["properties"] == {
        "value": {"type": "integer"},
        "more": {"type": "array", "items": {"type": "integer"}},
    }


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (complex, "complex"),
        (bytes, "bytes"),
        (Plain, "Plain"),
        (Callable[[int], int], "Callable"),
        (dict[int, str], "text keys only"),
        (list[Plain], "Plain"),
        (int | bytes, "bytes"),
        (Node, "holds itself"),
        (T, "~T"),
        (5, "5"),
        (Literal[b"x"], "its values must be"),
        (Odd, "its values must be"),
        (Literal[Colour.RED], "its values must be"),
        (Literal[[1]], "Literal"),
        (typing.Type[int], "Type"),  # noqa: UP006 - an alias of a class of its own
        (typing.ClassVar, "ClassVar"),
        (typing.TypeGuard[int], "TypeGuard"),
    ],
)
def test_a_type_without_a_json_form_is_refused_with_what_to_use(annotation: object, says: str) -> None:
    """The error names the place and the type, and lists what can be used."""
    with pytest.raises(UsageError, match="tool 'add', parameter 'a'") as caught:
        schema_of(annotation, "tool 'add', parameter 'a'")
    assert says in str(caught.value)
    assert "TypedDict" in str(caught.value)


@pytest.mark.parametrize(
    "doc",
    [
        "Add.\n\nLong.\n\nArgs:\n    a: the first\n        term\n    b (int): the second\n\nReturns:\n    the sum\n",
        "Add.\n\nLong.\n\nParameters\n----------\na : int\n    the first\n    term\nb : int\n    the second\n",
        "Add.\n\nLong.\n\n:param a: the first term\n:param int b: the second\n:returns: the sum\n",
    ],
    ids=["google", "numpy", "rest"],
)
def test_docstrings_of_all_three_styles_are_read(doc: str) -> None:
    """Text and descriptions are the same, whichever style they are written in."""
    said = read_docstring(doc)
    assert said.text == "Add.\n\nLong."
    assert said.arguments == {"a": "the first term", "b": "the second"}


@pytest.mark.parametrize("doc", [":param", ":param\nReturns:\n::\n  :returns:\n::\n:raises X:"])
def test_a_docstring_that_cannot_be_parsed_is_kept_as_it_is(doc: str) -> None:
    """Odd words in a docstring never keep a function from becoming a tool."""
    assert read_docstring(doc).text
    assert read_docstring(None).text == ""


def test_a_class_whose_annotations_cannot_be_resolved_is_refused() -> None:
    """The error names the class, what is missing, and where to import it."""
    with pytest.raises(UsageError, match=r"here: the annotations of Unresolvable cannot be resolved .*'Nowhere'"):
        schema_of(Unresolvable, "here")


def test_fields_that_nobody_gives_are_not_asked_for() -> None:
    """A field that `__init__` does not take is in no schema, for dataclasses as for attrs classes."""
    assert list(schema_of(Counted, "here")["properties"]) == ["name"]


def test_a_default_that_json_cannot_say_is_left_out() -> None:
    """NaN and bytes are no defaults of a schema; a None is."""
    assert default_of(math.nan) is None
    assert default_of(b"x") is None
    assert default_of(object()) is None
    assert default_of(None) == (None,)


# -- checking ----------------------------------------------------------------------------------------------------


def test_every_error_is_told_with_its_path_and_what_is_accepted() -> None:
    """One line per problem: where, what came, what would be taken; missing and unknown names included."""
    checker = Checker(schema_of(Row, "here"))
    sent: Json = {"lines": [{"start": {"x": "5", "z": 1}, "colour": "green"}, {"start": None}], "more": True}
    assert set(checker.errors(sent)) == {
        "id: missing; expected a whole number",
        'lines[0].start.x: got the text "5"; expected a whole number',
        "lines[0].start.z: no such name here; known: x, y (optional), tags (optional)",
        'lines[0].colour: got the text "green"; expected one of "red", "blue"',
        "lines[1].start: got null; expected an object with x, y (optional), tags (optional)",
        "more: no such name here; known: id, lines (optional)",
    }


def test_the_branch_of_a_union_that_was_meant_is_told_apart() -> None:
    """Of two classes the one that nearly fits is explained; where none is nearer, all are named."""
    checker = Checker(schema_of(Point | Row | None, "here"))
    assert checker.errors({"x": "1"}) == ('x: got the text "1"; expected a whole number',)
    (line,) = checker.errors(5)
    assert line == (
        "the arguments: got the number 5; expected an object with x, y (optional), tags (optional)"
        " or an object with id, lines (optional) or null"
    )
    assert Checker(schema_of(int | None, "here")).errors("5") == (
        'the arguments: got the text "5"; expected a whole number or null',
    )


def test_lines_are_bounded_and_long_values_cut() -> None:
    """A thousand errors are ten lines and a word that there are more; a long text is shown by its beginning."""
    lines = Checker(schema_of(list[int], "here")).errors(["x" * 1000] * 1000)
    assert len(lines) == LINES_MAX + 1
    assert lines[-1] == "… and more"
    assert all(len(line) < 200 for line in lines)
    wide = Literal[tuple(f"{'option':o>60}{n}" for n in range(9))]  # type: ignore[valid-type]
    (line,) = Checker(schema_of(wide, "here")).errors(5)
    assert len(line) == 400
    assert line.endswith("…")


def test_words_for_values_and_schemas() -> None:
    """Values and schemas of every kind have words."""
    assert [shown(value) for value in (None, True, 1.5, "é", [1], {}, {"a": 1})] == [
        "null",
        "true",
        "the number 1.5",
        'the text "é"',
        "a list of 1",
        "an empty object",
        "an object with a",
    ]
    anything, nothing = True, False
    assert accepted(anything) == "anything"
    assert accepted(nothing) == "nothing"
    assert accepted({}) == "anything"
    assert accepted({"type": ["string", "null"]}) == "text or null"
    assert accepted({"type": "array", "items": {"type": "string"}}) == "a list, each text"
    assert accepted({"type": "string", "format": "date"}) == "a date such as 2025-01-31"
    assert accepted({"enum": list(range(20))}).endswith(", …")
    assert path_text(("items", 2, "name")) == "items[2].name"


def test_a_thing_that_is_no_schema_is_refused() -> None:
    """A broken schema is the caller's mistake, told as one."""
    with pytest.raises(UsageError, match="not a JSON Schema"):
        Checker({"type": "foo"})


def test_bounds_of_a_schema_are_told() -> None:
    """What has no words of ours has the validator's."""
    (line,) = Checker(schema_of(Annotated[int, msgspec.Meta(ge=3)], "here")).errors(1)
    assert line == "the arguments: 1 is less than the minimum of 3"


# -- building ----------------------------------------------------------------------------------------------------


def build(annotation: object, value: object) -> object:
    """The value as a tool gets it."""
    make = builder(annotation, "here")
    return value if make is None else make(value)


@pytest.mark.parametrize(
    ("annotation", "sent", "built"),
    [
        (int, 5.0, 5),
        (float, 5, 5.0),
        (Row, {"id": 1, "lines": [{"start": {"x": 2, "y": 3}, "colour": "blue"}]}, None),
        (Point | Row, {"x": 3}, Point(3)),
        (Point | Row, {"id": 3}, {"id": 3}),
        (int | str | None, "5", "5"),
        (float | int, 5, 5),
        (float | None, 5, 5.0),
        (Colour, "red", Colour.RED),
        (set[int], [1, 2], {1, 2}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[str, Point], {"a": {"x": 1}}, {"a": Point(1)}),
        (Pair, [1, "a"], Pair(1, "a")),
        (Box[Point], {"value": {"x": 1}}, Box(Point(1))),
        (Doubled, {"number": 2}, Doubled(2)),
        (dt.date, "2025-01-31", dt.date(2025, 1, 31)),
        (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
        (dt.date | int, "2025-01-31", dt.date(2025, 1, 31)),
        (pathlib.Path, "a/b", pathlib.Path("a/b")),
        (pathlib.PurePosixPath, "a/b", pathlib.PurePosixPath("a/b")),
        (Annotated[Point, "where"], {"x": 1}, Point(1)),
    ],
)
def test_what_fits_is_built_into_the_annotated_type(annotation: object, sent: Any, built: object) -> None:
    """JSON that fits becomes a value of the type, through the class's own converters; numbers get the type asked."""
    assert Checker(schema_of(annotation, "here")).valid(sent)
    made = build(annotation, sent)
    if built is None:
        built = {"id": 1, "lines": [Line(Point(2, 3.0), Colour.BLUE)]}
    assert made == built
    assert type(made) is type(built)


def test_plain_json_passes_as_it_came() -> None:
    """What needs no building costs none: text, truth values and lists of them are not copied."""
    assert all(
        passes_as_sent(tp) for tp in (str, bool, None, Any, list[str], dict[str, bool], str | None, Literal["a"])
    )
    assert not any(passes_as_sent(tp) for tp in (int, float, list[int], set[str], Colour, Literal[1], Point))


def test_a_class_that_refuses_a_value_says_why() -> None:
    """A validator's own words come with the path of the field."""
    make = builder(dict[str, Even], "here")
    assert make is not None
    with pytest.raises(ExceptionGroup) as caught:  # cattrs's own
        make({"a": {"number": 2}, "b": {"number": 3}})
    (line,) = reasons(caught.value, "numbers")
    assert line.startswith("numbers")
    assert "ValueError: 3 is odd" in line
    assert "'b'" in line


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
JSONS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
)
TYPES = st.recursive(
    st.sampled_from(
        [str, int, float, bool, None, Colour, Point, Even, Row, Pair, Literal["a", 1], decimal.Decimal, dt.date]
    ),
    lambda inner: st.one_of(
        inner.map(lambda tp: list[tp]),  # type: ignore[valid-type]
        inner.map(lambda tp: dict[str, tp]),  # type: ignore[valid-type]
        st.tuples(inner, inner).map(lambda pair: typing.Union[pair]),  # noqa: UP007 - built at run time
        inner.map(lambda tp: tuple[tp, ...]),  # type: ignore[valid-type]
    ),
    max_leaves=4,
)


@given(TYPES, JSONS)
def test_the_check_agrees_with_its_own_words(annotation: object, value: Any) -> None:
    """A value has error lines exactly where it does not fit, whatever the type; telling them never raises."""
    checker = Checker(schema_of(annotation, "here"))
    lines = checker.errors(value)
    assert bool(lines) is not checker.valid(value)
    assert all("\n" not in line for line in lines)


@given(TYPES)
def test_every_schema_is_one(annotation: object) -> None:
    """What is made of any mix of types is a valid JSON Schema of the declared dialect, and survives its own text."""
    schema = schema_of(annotation, "here")
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    assert json.loads(compact(schema)) == schema


# -- encoding ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Line(Point(1), Colour.BLUE), None),
        ({"a": {1}, 2: (3,)}, '{"a":[1],"2":[3]}'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (dt.date(2025, 1, 31), '"2025-01-31"'),
        (pathlib.PurePosixPath("a/b"), '"a/b"'),
        (range(3), "[0,1,2]"),
        (Odd.HALF, "0.5"),
        (types.MappingProxyType({"a": frozenset({1})}), '{"a":[1]}'),
        ("é\u2028", '"é\u2028"'),
        (10**30, "1" + "0" * 30),
    ],
)
def test_values_of_our_side_are_written_as_json(value: object, text: str | None) -> None:
    """Classes, enums, decimals, dates, sets and paths have a JSON form; text stays readable."""
    if text is None:
        assert json.loads(encode(value)) == {
            "start": {"x": 1, "y": 1.0, "tags": [], "secret": 7},
            "colour": "blue",
            "note": None,
        }
    else:
        assert encode(value) == text


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"x", "bytes has no JSON form: decode it to text"),
        ({"a": [b"x"]}, "a value inside dict cannot be written as JSON: bytes has no JSON form"),
        (math.nan, "not JSON compliant"),
        ([math.inf], "not JSON compliant"),
        (object(), "object has no JSON form"),
        ({(1, 2): 3}, "cannot be written as JSON"),
        (Plain, "has no JSON form"),
    ],
)
def test_what_has_no_json_form_is_refused(value: object, says: str) -> None:
    """Bytes, NaN and objects of no known form are refused with words, not guessed and not written as null."""
    with pytest.raises(UsageError, match="cannot be written as JSON") as caught:
        encode(value)
    assert says in str(caught.value)


def test_what_cannot_be_built_is_refused_when_it_is_written() -> None:
    """A type that the converter does not know is an error with its place; a union that nothing fits says so."""
    with pytest.raises(UsageError, match="here: Counted cannot be built from JSON"):
        builder(_broken_class(), "here")
    make = builder(int | Point, "here")
    assert make is not None
    with pytest.raises(ValueError, match="fits no member of int"):
        make("x")


def _broken_class() -> type:
    @dataclasses.dataclass
    class Counted:
        name: "Nowhere"  # type: ignore[name-defined]  # noqa: F821

    Counted.__qualname__ = "Counted"
    return Counted


def test_a_reason_is_given_even_where_the_error_has_no_words() -> None:
    """An error whose text cannot be made is told by its class."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert reasons(Mute(), "a") == ("a: Mute",)


def test_a_value_that_holds_itself_is_refused() -> None:
    """A cycle is an error with words, not a crash."""
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        encode(loop)
