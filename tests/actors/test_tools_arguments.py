"""What a model sends to a tool: read, repaired, refused; and the keys and approvals made of it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import attrs
import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from actors.tools import Parsed, Refusal, Tool, tool
from tests.actors.toolkit import Context, Point, add, arguments, delete, refusal

# -- arguments ---------------------------------------------------------------------------------------------------------


def test_arguments_that_fit_are_built_with_defaults() -> None:
    """Objects become their classes, what is left out its default; nothing sent is nothing given."""
    assert arguments(add.parse('{"a": 1}')) == {"a": 1, "b": 0}
    parsed = arguments(delete.parse('{"path": "x", "points": [{"x": 1, "y": 2}]}'))
    assert parsed == {"path": "x", "points": [Point(1, 2.0)]}
    nothing = tool(lambda: "x", name="nothing")
    assert arguments(nothing.parse("")) == {}
    assert arguments(nothing.parse("{}")) == {}


def test_tol_12_what_a_person_is_shown_is_what_runs_also_where_it_was_repaired() -> None:
    """A list that was sent as text is shown as the list that it is read as; arguments that fit stay as they are."""
    sent = json.dumps({"path": "x", "points": '[{"x": 1, "y": 2}]'})
    assert delete.final(sent) == {"path": "x", "points": [{"x": 1, "y": 2}]}
    assert delete.final('{"path": "x"}') == {"path": "x", "points": None}


def test_tol_13_what_are_the_functions_own_defaults_need_no_json_form() -> None:
    """They are left out by identity: an equal value that a hook gave stays."""
    own = object()

    def fetch(path: str, limit: int = 1_000_000, how: Any = own) -> str:
        """Fetch."""
        return f"{path}{limit}{how}"

    made = tool(fetch)
    given = made.without_defaults({"path": "a", "limit": int("1000000"), "how": own})
    assert given == {"path": "a", "limit": 1_000_000}


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (json.dumps("[" * 100_000), ("the arguments: got the text",)),
        (json.dumps('{"a":' * 300 + "1" + "}" * 300), ("are nested too deeply", "They began")),
        ('{"a": ' + "[" * 300 + "]" * 300 + "}", ("are nested too deeply",)),
        ("{'a': 1}", ("are not JSON", "They began: \"{'a': 1}\"", "one JSON object of: a, b (optional)")),
        ('{"a": 1', ("are not JSON",)),
        ("[" * 100_000, ("are nested too deeply, so it was not run",)),
        ("[1]", ("the arguments: got a list of 1; expected an object with a, b (optional)",)),
        ("null", ("the arguments: got null",)),
        ("{}", ("a: missing; expected a whole number",)),
        ("", ("a: missing",)),
        ('{"a": "5"}', ('a: got the text "5"; expected a whole number',)),
        ('{"a": true}', ("a: got true; expected a whole number",)),
        ('{"a": 1.5}', ("a: got the number 1.5; expected a whole number",)),
        ('{"a": 1, "c": 2, "d": 3}', ("c: no such name here; known: a, b (optional)", "d: no such name here")),
        ('{"a": null, "b": null}', ("a: got null", "b: got null")),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_tol_6_arguments_that_do_not_fit_are_refused_with_words(sent: str, says: tuple[str, ...]) -> None:
    """Not JSON, no object, wrong types, missing and unknown names: text a model can act on, and no exception."""
    text = refusal(add.parse(sent))
    assert text.startswith("The arguments of add ")
    assert "so it was not run" in text
    assert "Call add again" in text
    for part in says:
        assert part in text
    assert len(text) < 1000


def test_tol_6_a_class_that_refuses_its_fields_is_a_refusal() -> None:
    """A validator of an argument's class is part of the check."""

    @tool
    def book(seats: Seats) -> None:
        raise AssertionError

    assert "ValueError: no seats left" in refusal(book.parse('{"seats": {"count": 9}}'))
    assert arguments(book.parse('{"seats": {"count": 1}}')) == {"seats": Seats(1)}


@attrs.frozen
class Seats:
    """Up to five."""

    count: int

    def __attrs_post_init__(self) -> None:
        """Refuse more."""
        if self.count > 5:
            raise ValueError("no seats left")


def test_a_list_or_object_sent_as_text_is_read_and_recorded() -> None:
    """JSON text is read where the schema wants a list or an object, whole arguments included; broken text stays out."""

    @tool
    def plan(steps: list[int], options: dict[str, str] | None = None, note: list[int] | str = "") -> None:
        del steps, options, note

    parsed = plan.parse(json.dumps({"steps": "[1, 2]", "options": '{"a": "b"}', "note": "[1]"}))
    assert parsed == Parsed({"steps": [1, 2], "options": {"a": "b"}, "note": "[1]"}, ("steps", "options"))
    either = tool(pick)
    assert arguments(either.parse('{"which": "[1]", "short": "ab"}')) == {"which": [1], "short": "ab"}
    assert "short: " in refusal(either.parse('{"which": "all", "short": "[1]"}'))
    whole = plan.parse(json.dumps(json.dumps({"steps": [1]})))
    assert isinstance(whole, Parsed)
    assert (whole.arguments["steps"], whole.repaired) == ([1], ("the arguments",))
    assert 'steps: got the text "[1, 2"' in refusal(plan.parse('{"steps": "[1, 2"}'))
    assert 'steps: got the text "5"' in refusal(plan.parse('{"steps": "5"}'))
    assert 'steps[0]: got the text "x"' in refusal(plan.parse(json.dumps({"steps": '["x"]'})))


def pick(which: Literal["all"] | list[int], short: Annotated[str, msgspec.Meta(max_length=2)] | list[int]) -> None:
    """Takes text of its own in both places: a word, and anything short."""


def test_repairs_are_bounded() -> None:
    """No more than eight places are read; the rest is refused."""

    @tool
    def many(rows: list[list[int]]) -> None:
        del rows

    assert isinstance(many.parse(json.dumps({"rows": ["[1]"] * 8})), Parsed)
    assert "rows[8]: got the text" in refusal(many.parse(json.dumps({"rows": ["[1]"] * 9})))


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
VALUES: dict[object, st.SearchStrategy[Any]] = {
    str: st.text(max_size=9),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
    list[int]: st.lists(st.integers(), max_size=4),
    dict[str, bool]: st.dictionaries(st.text(max_size=4), st.booleans(), max_size=4),
    int | None: st.none() | st.integers(),
    Point: st.builds(Point, st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
    list[Point | str]: st.lists(st.builds(Point, st.integers()) | st.text(max_size=3), max_size=3),
}


@st.composite
def signatures(draw: st.DrawFn) -> tuple[Tool[..., Any], dict[str, Any]]:
    """A tool of a few random parameters, and values for those that are given."""
    types = draw(st.lists(st.sampled_from(list(VALUES)), max_size=4))
    given_names = draw(st.sets(st.sampled_from(range(4))))
    annotations = {f"p{index}": annotation for index, annotation in enumerate(types)}
    optional = [name for index, name in enumerate(annotations) if index not in given_names]
    order = [name for name in annotations if name not in optional] + [f"{name}=None" for name in optional]
    scope: dict[str, Any] = {}
    exec(f"def fn({', '.join(order)}): pass", scope)  # noqa: S102 - a made-up signature
    scope["fn"].__annotations__ = annotations
    values = {name: draw(VALUES[annotations[name]]) for name in annotations if name not in optional}
    return tool(scope["fn"]), values


@given(signatures())
def test_arguments_come_back_as_they_were(made: tuple[Tool[..., Any], dict[str, Any]]) -> None:
    """For any signature, values written as JSON are parsed into equal values of equal types."""
    made_tool, values = made
    sent = json.dumps({name: attrs_plain(value) for name, value in values.items()})
    parsed = arguments(made_tool.parse(sent))
    left_out = {name: None for name in parsed if name not in values}
    assert parsed == {**values, **left_out}
    for name, value in values.items():
        assert type(parsed[name]) is type(value)


def attrs_plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, list):
        return [attrs_plain(item) for item in value]
    return attrs.asdict(value) if isinstance(value, Point) else value


@given(
    signatures(),
    st.text(max_size=30)
    | JSONS.map(json.dumps)
    | st.dictionaries(st.sampled_from(["p0", "p1", "p2", "ctx"]), JSONS).map(json.dumps),
)
def test_tol_6_whatever_is_sent_no_exception_comes(made: tuple[Tool[..., Any], object], sent: str) -> None:
    """For any signature, any text is either arguments that the function takes, or a refusal with words."""
    made_tool, _ = made
    parsed = made_tool.parse(sent)
    match parsed:
        case Parsed():
            made_tool.fn(**parsed.arguments)
        case Refusal(text=text):
            assert text.startswith("The arguments of fn ")


def test_tol_11_nothing_a_model_sends_can_stand_for_the_context() -> None:
    """The context is in no schema, is refused as an argument, and is put over whatever the arguments hold."""
    assert "ctx" not in delete.offer.schema
    assert "ctx: no such name here" in refusal(delete.parse('{"path": "x", "ctx": {"agent": "root"}}'))
    mine = Context()
    assert delete.bind({"path": "x", "ctx": "forged"}, mine) == {"path": "x", "ctx": mine}
    assert add.bind({"a": 1}, mine) == {"a": 1}


# -- keys and approval -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "keys"),
    [
        (lambda a: f"row {a}", (("row 1",), False)),
        (lambda a, b: ("x", a, ("y", b), "x"), (("x", "1", "y", "0"), False)),
        (lambda **everything: sorted(everything), (("a", "b"), False)),
        (lambda: None, ((), False)),
        (lambda a: a / 0, ((), True)),
        (lambda a: {"no": a}, ((), True)),
    ],
    ids=["text", "tuple", "all", "none", "raises", "unhashable"],
)
def test_tol_4_resource_gives_the_keys_of_a_call(resource: Any, keys: tuple[tuple[str, ...], bool]) -> None:
    """A key, several, or none; a `resource` that raises, or gives no key, makes the call run alone."""
    assert tool(add.fn, resource=resource).keys({"a": 1, "b": 0}) == keys


def test_tol_12_an_approve_that_raises_asks() -> None:
    """Approval is always, never, or by arguments; where the function fails, it is asked."""
    assert not add.needs_approval({"a": 1})
    assert tool(add.fn, approve=True).needs_approval({"a": 1})
    assert not delete.needs_approval(arguments(delete.parse('{"path": "scratch/x"}')))
    assert delete.needs_approval(arguments(delete.parse('{"path": "src/x"}')))
    assert tool(add.fn, approve=lambda a: a / 0 > 1).needs_approval({"a": 1})
