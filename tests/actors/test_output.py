"""The type that an answer owes: what may be one, and how it is built."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict

import attrs
import pytest

from actors import Agent
from actors.building import encode
from actors.errors import UsageError
from actors.output import Answer, output_spec
from actors.tools import tool


@attrs.frozen
class Cat:
    """An attrs class."""

    name: str
    lives: int = 9


@attrs.frozen
class Dog:
    """Another."""

    breed: str


@dataclasses.dataclass(frozen=True)
class Point:
    """A dataclass."""

    x: float
    y: float


class Row(TypedDict):
    """A TypedDict."""

    id: int
    tags: list[str]


class Pair(NamedTuple):
    """A NamedTuple."""

    left: int
    right: str


class Colour(enum.Enum):
    """An enum."""

    RED = "red"
    BLUE = "blue"


TYPES: list[tuple[Any, Any]] = [
    (Cat, Cat("Tom")),
    (Point, Point(1.5, 2.0)),
    (Row, {"id": 1, "tags": ["a"]}),
    (Pair, Pair(1, "a")),
    (Colour, Colour.BLUE),
    (Literal["yes", "no"], "no"),
    (Cat | Dog, Dog("terrier")),
    (Cat | None, None),
    (list[Cat], [Cat("Tom"), Cat("Tim", 3)]),
    (dict[str, int], {"a": 1}),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (int, 41),
    (float, 1.5),
    (bool, True),
    (Decimal, Decimal("1.50")),
    (dt.date, dt.date(2025, 1, 31)),
    (int | str, "a"),
]


@pytest.mark.parametrize(("declared", "value"), TYPES, ids=lambda one: str(one)[:40])
def test_what_an_answer_may_be_comes_back_as_it_was(declared: Any, value: Any) -> None:
    """The JSON of a value is the value again, of its own class; and so is what the store keeps of it."""
    spec = output_spec(declared, "a test")
    read = spec.read(encode(value))
    assert isinstance(read, Answer)
    assert (read.value, type(read.value)) == (value, type(value))
    again = spec.read(read.json)
    assert isinstance(again, Answer)
    assert again.value == value


@pytest.mark.parametrize("text", ["[1, 2]", '{"answer": [1, 2]}', "So:\n```json\n[1, 2]\n```"])
def test_what_is_no_object_is_asked_for_as_one_and_read_in_both_forms(text: str) -> None:
    """Servers take objects only; models answer as they like."""
    spec = output_spec(list[int], "a test")
    assert spec.offer is not None
    assert '"required":["answer"]' in spec.offer.schema
    read = spec.read(text)
    assert isinstance(read, Answer)
    assert read.value == [1, 2]


def test_text_is_an_answer_as_it_comes() -> None:
    """`output=str` asks the model for nothing, and takes what it says."""
    spec = output_spec(str, "a test")
    read = spec.read("yes")
    assert spec.offer is None
    assert isinstance(read, Answer)
    assert read.value == "yes"


class Opaque:
    """A class that nothing is known of."""


@pytest.mark.parametrize(
    "declared",
    [Opaque, bytes, list[Opaque], dict[int, str], complex, collections.Counter, "Cat", Cat("Tom")],
    ids=lambda one: str(one)[:40],
)
def test_what_has_no_json_form_is_refused_where_the_agent_is_written(declared: Any) -> None:
    """The message names the agent and what may be used."""
    with pytest.raises(UsageError, match="agent 'a'"):
        Agent("a", output=declared)


def test_two_types_of_one_name_have_two_keys() -> None:
    """The store tells them apart."""
    one = attrs.make_class("Verdict", {"ok": attrs.field(type=bool)})
    other = attrs.make_class("Verdict", {"score": attrs.field(type=int)})
    first, second = output_spec(one, "a test"), output_spec(other, "a test")
    assert first.name == second.name
    assert first.key != second.key


def test_the_name_of_the_answer_tool_is_taken() -> None:
    """Neither a tool nor a child may have it."""
    with pytest.raises(UsageError, match="final_answer"):

        @tool(name="final_answer")
        def other() -> None:
            """Take the name."""

    with pytest.raises(UsageError, match="final_answer"):
        Agent("a", children=[Agent("final_answer")])
