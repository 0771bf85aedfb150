"""Tools from functions: what a model is offered, the check of its arguments, the shape of its result."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import attrs
import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from actors.content import File, Image, Text, Trust
from actors.errors import UsageError
from actors.ids import CallId
from actors.results import Keep
from actors.tools import Effect, Parsed, Refusal, Tool, tool, toolbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from decimal import Decimal

    from nowhere import Context as LaterContext  # type: ignore[import-not-found]
    from nowhere import Report


class Context:
    """Stands for the real one, which is told by this mark."""

    __callboard_context__ = True


@attrs.frozen
class Point:
    """A place."""

    x: int
    y: float = 0.0


@attrs.frozen(slots=False)
class Seen:
    """Has a field that nobody gives."""

    name: str
    count: int = attrs.field(init=False, default=0)


@tool
async def add(a: int, b: int = 0) -> int:  # noqa: D417 - b goes undescribed on purpose
    """Add two numbers.

    Args:
        a: the first term
    """
    return a + b


@tool(effect="pure", resource=lambda path: path, approve=lambda path: not path.startswith("scratch/"), timeout=30)
def delete(ctx: Context, path: str, points: list[Point] | None = None) -> str:
    """Delete a file."""
    del ctx, points
    return path


def arguments(parsed: Parsed | Refusal) -> dict[str, Any]:
    """The arguments of a parse that must have worked."""
    assert isinstance(parsed, Parsed), parsed
    return parsed.arguments


def refusal(parsed: Parsed | Refusal) -> str:
    """The text of a parse that must have failed."""
    assert isinstance(parsed, Refusal), parsed
    return parsed.text


# -- what is offered ---------------------------------------------------------------------------------------------


def test_a_tool_offers_name_docstring_and_schema() -> None:
    """A model is told the function's name, its text, and its parameters with types, descriptions and defaults."""
    assert (add.name, add.description, add.is_async) == ("add", "Add two numbers.", True)
    assert (add.offer.name, add.offer.description) == ("add", "Add two numbers.")
    assert json.loads(add.offer.schema) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "the first term"},
            "b": {"type": "integer", "default": 0},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


async def test_the_function_stays_callable() -> None:
    """Called from Python a tool is the function it was made of."""
    assert await add(2, b=3) == 5
    assert delete(Context(), "x") == "x"


def test_options_say_what_they_said() -> None:
    """Each option arrives under its own name; the defaults are the careful ones."""
    assert (delete.effect, delete.timeout_s, delete.takes_context, delete.is_async) == (Effect.PURE, 30.0, True, False)
    assert (add.effect, add.timeout_s, add.trust, add.fatal, add.exclusive) == (
        Effect.ONCE,
        None,
        Trust.TRUSTED,
        False,
        False,
    )
    other = tool(add.fn, name="plus", description="Sum.", trust="external", fatal=True, exclusive=True)
    assert (other.name, other.description, other.trust, other.fatal) == ("plus", "Sum.", Trust.EXTERNAL, True)
    assert other.keys({"a": 1}) == ((), True)


class Counter:
    """Has a method that becomes a tool."""

    def __init__(self) -> None:
        self.total = 0

    def count(self, by: int) -> int:
        """Count up."""
        self.total += by
        return self.total

    @staticmethod
    def still() -> None:
        """Do nothing."""

    @classmethod
    def made(cls) -> int:
        """Count from nothing."""
        return cls().count(1)

    async def __call__(self, by: int) -> int:
        """Count."""
        return self.count(by)


def test_bound_methods_partials_and_callable_objects_become_tools() -> None:
    """`self` is not offered, and neither is what a partial has given already, so that a model cannot change it."""
    counter = Counter()
    bound = tool(counter.count)
    assert (bound.name, bound.description) == ("count", "Count up.")
    assert bound.fn(**arguments(bound.parse('{"by": 2}'))) == 2

    def send(text: str, sender: str, loud: bool = False) -> str:  # noqa: FBT001, FBT002 - as tools are written
        """Send it."""
        return f"{sender}: {text}{loud}"

    partial = tool(functools.partial(send, sender="me"), name="send")
    assert list(json.loads(partial.offer.schema)["properties"]) == ["text", "loud"]
    assert partial.fn(**arguments(partial.parse('{"text": "x"}'))) == "me: xFalse"
    assert "sender: no such name" in refusal(partial.parse('{"text": "x", "sender": "you"}'))
    called = tool(counter, name="call")
    assert called.is_async
    assert tool(Counter.__dict__["still"]).name == "still"
    assert list(json.loads(called.offer.schema)["properties"]) == ["by"]


def test_a_wrapped_function_is_read_through_its_wrapper() -> None:
    """`functools.wraps` keeps signature and annotations."""

    def traced(fn: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> int:
            return fn(*args, **kwargs)

        return wrapper

    @tool
    @traced
    def twice(number: int) -> int:
        return 2 * number

    assert twice.fn(**arguments(twice.parse('{"number": 3}'))) == 6


def test_annotations_are_resolved_where_they_can_be() -> None:
    """Text annotations may name local classes; what cannot be resolved spoils only what needs it."""

    @attrs.frozen
    class Local:
        size: int

    @tool
    def measure(ctx: LaterContext, one: Local, many: list[Local]) -> Report:
        return ctx, one, many

    later: int

    @tool(name="later")
    def uses_later(a: int) -> int:
        return a + later

    later = 1
    assert arguments(uses_later.parse('{"a": 1}')) == {"a": 1}
    assert uses_later(1) == 1 + later
    assert measure.context == "ctx"
    assert arguments(measure.parse('{"one": {"size": 1}, "many": [{"size": 2}]}')) == {
        "one": Local(1),
        "many": [Local(2)],
    }
    assert measure.shape({"any": 1}, 100).content == (Text('{"any":1}'),)


def no_annotation(a):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D103
    return a


def bare_ctx(ctx, a: int):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D103
    return ctx, a


def positional(a: int, /) -> int:
    """Takes a by position."""
    return a


def stars(*a: int) -> tuple[int, ...]:
    """Takes many."""
    return a


def double_stars(**a: int) -> dict[str, int]:
    """Takes all."""
    return a


def unresolved(a: Decimal) -> None:
    """Its type is imported for the type checker only."""


def odd_type(a: int, b: complex) -> None:
    """Its second parameter has no JSON form."""


def odd_result(a: int) -> bytes:
    """Its result has no JSON form."""
    return bytes(a)


def two_contexts(a: Context, b: Context) -> None:
    """Wants two."""


def generator() -> Iterator[int]:
    """Yields."""
    yield 1


async def async_generator() -> AsyncIterator[int]:
    """Yields."""
    yield 1


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (no_annotation, ("tool 'no_annotation', parameter 'a' has no annotation", "`a: str`")),
        (bare_ctx, ("parameter 'ctx' has no annotation", "`ctx: Context`")),
        (positional, ("parameter 'a' is positional only", "take away the `/`")),
        (stars, ("parameter '*a' takes any number", "`a: list[str]`")),
        (double_stars, ("parameter '**a' takes any name", "`a: dict[str, str]`")),
        (unresolved, ("'Decimal' cannot be resolved at run time", "outside `if TYPE_CHECKING`")),
        (odd_type, ("tool 'odd_type', parameter 'b'", "complex", "use str, int")),
        (odd_result, ("tool 'odd_result', its result", "bytes", "use str, int")),
        (two_contexts, ("both 'a' and 'b' are a context",)),
        (generator, ("yields", "return it")),
        (async_generator, ("yields", "return it")),
        (Counter.count, ("is a method of a class", "tool(instance.method)")),
        (Counter, ("a function or a bound method",)),
        ("add", ("a function or a bound method",)),
        (Counter.__dict__["made"], ("a function or a bound method",)),
        (add, ("is a tool already",)),
        (lambda: 1, ("the tool name '<lambda>'", '@tool(name="...")')),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_cannot_be_offered_is_refused_at_decoration(fn: Any, says: tuple[str, ...]) -> None:
    """The error names tool, parameter and type, and says what to write instead."""
    with pytest.raises(UsageError) as caught:
        tool(fn)
    for part in says:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"effect": "twice"}, "effect= is one of once, idempotent, pure, store; got 'twice'"),
        ({"effect": Effect.CHILD}, "effect= is one of once, idempotent, pure, store"),
        ({"trust": "some"}, "trust= is one of trusted, workspace, external"),
        ({"timeout": 0}, "timeout= is seconds above 0"),
        ({"timeout": True}, "timeout= is seconds above 0"),
        ({"timeout": math.inf}, "timeout= is seconds above 0"),
        ({"fatal": 1}, "fatal= is True or False"),
        ({"name": "a b"}, "letters, digits"),
        ({"name": "x" * 65}, "1 to 64"),
        ({"description": 5}, "description= is text"),
        ({"timeout_s": 5}, "there is no option 'timeout_s'; there are name, description, effect"),
        ({"resource": lambda c: c}, "asks for 'c'; the tool takes a, b"),
        ({"approve": lambda ctx: ctx}, "asks for 'ctx'"),
        ({"resource": "a"}, "takes a plain function"),
        ({"resource": iter}, "whose arguments can be read"),
        ({"approve": add.fn}, "takes a plain function"),
        ({"exclusive": True, "resource": lambda a: a}, "keep one of the two"),
    ],
    ids=str,
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any], says: str) -> None:
    """The error names the tool and the option, what it got and what it takes."""
    with pytest.raises(UsageError) as caught:
        tool(add.fn, **options)
    assert says in str(caught.value)


# -- arguments ---------------------------------------------------------------------------------------------------


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


# -- keys and approval -------------------------------------------------------------------------------------------


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


# -- results -----------------------------------------------------------------------------------------------------


def anything() -> Any:
    """Returns whatever."""


def shape(value: object, limit: int = 10_000, returns: object = Any) -> tuple[object, ...]:
    """A result as the model reads it, text only, and whether it is an error."""

    def made() -> Any:
        return value

    made.__annotations__ = {"return": returns}
    shaped = tool(made).shape(value, limit)
    assert not shaped.cut
    assert shaped.whole is None
    return (*(part.text if isinstance(part, Text) else part for part in shaped.content), shaped.error)


class Rude(Mapping[str, int]):
    """A mapping that cannot be read."""

    def __getitem__(self, name: str) -> int:
        return 1 // 0

    def __iter__(self) -> Iterator[str]:
        return iter("a")

    def __len__(self) -> int:
        return 1


PICTURE = Image("image/png", data="aGk=")


@pytest.mark.parametrize(
    ("value", "returns", "shown"),
    [
        ("plain text", str, ("plain text",)),
        ('{"a": 1}', Any, ('{"a": 1}',)),
        (5, int, ("5",)),
        (True, bool, ("true",)),
        (None, None, ("done",)),
        (None, Any, ("done",)),
        (None, int | None, ("null",)),
        (Point(1), Point, ('{"x":1,"y":0.0}',)),
        ([Point(1)], list[Point], ('[{"x":1,"y":0.0}]',)),
        (Seen("x"), Seen, ('{"name":"x","count":0}',)),
        ({"é": 1.5}, dict[str, float], ('{"é":1.5}',)),
        (PICTURE, Image, (PICTURE,)),
        (["look:", PICTURE], list[str | Image], ("look:", PICTURE)),
        ((File("a", "text/plain", "aGk="),), Any, (File("a", "text/plain", "aGk="),)),
        ("undecodable \udce9", str, ("undecodable \\udce9",)),
    ],
    ids=str,
)
def test_results_are_shown_in_their_simplest_form(value: object, returns: object, shown: tuple[object, ...]) -> None:
    """Text as it is, content as it is, nothing as `done`, everything else as JSON."""
    assert shape(value, returns=returns) == (*shown, False)


@pytest.mark.parametrize(
    ("value", "returns", "says"),
    [
        ("5", int, 'does not fit the declared int: the result: got the text "5"; expected a whole number'),
        (True, int, "does not fit the declared int"),
        (None, str, "does not fit the declared str: the result: got null; expected text"),
        (5, None, "does not fit the declared None: the result: got the number 5; expected null"),
        ([1, "a"], list[int], '[1]: got the text "a"; expected a whole number'),
        (PICTURE, str, "does not fit the declared str"),
        (
            5,
            str | Image,
            "does not fit the declared str | actors.content.Image: the result: got the number 5; expected text",
        ),
        (5, Image, "does not fit the declared Image: the result: got the number 5; expected content"),
        ([1], list[Image], "does not fit the declared list[actors.content.Image]: the result: got a list of 1"),
        (b"x", Any, "cannot be shown: a value of type bytes cannot be written as JSON"),
        (math.nan, float, "cannot be shown"),
        ({"a": object()}, Any, "cannot be shown"),
    ],
    ids=str,
)
def test_tol_6_a_result_that_does_not_fit_is_an_error_with_words(value: object, returns: object, says: str) -> None:
    """A result that is not what was declared, or has no JSON form, is an error text, never an exception."""
    text, error = shape(value, returns=returns)
    assert error
    assert isinstance(text, str)
    assert text.startswith("made ran, but its result ")
    assert says in text


def test_tol_6_a_result_that_raises_while_it_is_read_is_an_error_with_words() -> None:
    """Too deep, too long a number, a class of its own ways: still an error text."""
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    cases = ((deep, list[list[int]], "ValueError"), (10**5000, int, "ValueError"), (Rude(), Any, "ZeroDivision"))
    for value, returns, says in cases:
        text, error = shape(value, returns=returns)
        assert error
        assert f"its result cannot be shown: {says}" in str(text)


def test_tol_8_a_long_result_is_cut_with_a_line_that_says_how_much_is_missing() -> None:
    """What is shown fits the limit, line included; the whole is handed back to be kept."""
    shaped = tool(anything).shape("x" * 5000, 1000)
    (text,) = shaped.content
    assert isinstance(text, Text)
    assert len(text.text) <= 1000
    kept, line = text.text.rsplit("\n", 1)
    assert line == f"[cut: {5000 - len(kept):,} of 5,000 characters are missing here]"
    assert (shaped.cut, shaped.whole, shaped.error) == (True, "x" * 5000, False)
    exact = tool(anything).shape("x" * 1000, 1000)
    assert (exact.cut, exact.whole) == (False, None)
    assert tool(anything).shape(list(range(1000)), 200).cut


def test_tol_8_content_is_cut_by_its_text() -> None:
    """Images stay, texts are shown until the limit, and each cut one says so."""
    shaped = tool(anything).shape(["a" * 90, PICTURE, "b" * 200, "c" * 50], 200)
    first, image, second, third = shaped.content
    assert (first, image) == (Text("a" * 90), PICTURE)
    assert isinstance(second, Text)
    assert second.text.endswith("of 200 characters are missing here]")
    assert third == Text("[cut: 50 of 50 characters are missing here]")
    assert shaped.cut
    assert shaped.whole == "\n".join(["a" * 90, "b" * 200, "c" * 50])


def test_tol_8_content_that_is_kept_whole_says_how_to_read_on() -> None:
    """In a part of its own, behind the rest; not where it is longer than what may be kept."""
    parts = ["a" * 90, PICTURE, "b" * 200]
    shaped = tool(anything).shape(parts, 200, Keep(CallId("lead:t1.1.0"), 1_000))
    assert shaped.content[-1] == Text('[all of the text is kept; read_result(reference="t1.1.0") reads on]')
    assert shaped.kept
    longer = tool(anything).shape(parts, 200, Keep(CallId("lead:t1.1.0"), 290))
    assert len(longer.content) == len(parts)
    assert not longer.kept


@given(st.text(), st.integers(min_value=0, max_value=200))
def test_tol_8_a_cut_is_character_safe(text: str, limit: int) -> None:
    """The cut keeps a beginning, counts what is missing rightly, and can always be written as UTF-8."""
    value = text * 20
    shaped = tool(anything).shape(value, limit)
    (part,) = shaped.content
    assert isinstance(part, Text)
    part.text.encode()
    if not shaped.cut:
        assert len(value) <= limit
        return
    kept, line = part.text.rsplit("\n[cut: ", 1)
    assert value.startswith(kept)
    missing, total = (int(number.replace(",", "")) for number in line.split(" characters")[0].split(" of "))
    assert (total, missing) == (len(value), len(value) - len(kept))
    assert len(part.text) <= max(limit, len(line) + len("\n[cut: "))


def test_tol_8_a_cut_never_parts_a_letter_from_its_accent() -> None:
    """Combining marks, joined emoji and line ends stay whole."""
    for unit in ("e\u0301", "\U0001f468\u200d\U0001f469", "\U0001f44d\U0001f3fd", "\r\n"):
        for limit in range(100, 110):
            (part,) = tool(anything).shape(unit * 100, limit).content
            assert isinstance(part, Text)
            kept = part.text.rsplit("\n[cut: ", 1)[0]
            assert kept == unit * (len(kept) // len(unit))
    (part,) = tool(anything).shape("e" + "\u0301" * 1000, 100).content
    assert isinstance(part, Text)
    assert len(part.text) > 60  # a heap of accents is no letter: the search for its begin is bounded


# -- tools of the runtime, and many tools ------------------------------------------------------------------------


def test_the_runtime_makes_tools_from_a_schema() -> None:
    """A child or an answer is a tool like any other: offered, checked against its schema, given its context."""
    schema = {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]}

    async def start(task: str, ctx: Context) -> str:
        del ctx
        return task

    made = Tool.internal("reviewer", "Review a file.", schema, start, effect=Effect.CHILD, context="ctx")
    assert (made.effect, made.is_async, json.loads(made.offer.schema)) == (Effect.CHILD, True, schema)
    assert arguments(made.parse('{"task": "x"}')) == {"task": "x"}
    assert "task: missing; expected text" in refusal(made.parse("{}"))
    assert made.keys({"task": "x"}) == ((), False)
    with pytest.raises(UsageError, match="tool name"):
        Tool.internal("a/b", "", schema, start)
    with pytest.raises(UsageError, match="not a JSON Schema"):
        Tool.internal("a", "", {"type": "foo"}, start)


def test_tol_9_two_tools_of_one_name_are_refused() -> None:
    """The error names both functions, before a model sees either."""
    box = toolbox([add, delete])
    assert list(box) == ["add", "delete"]
    assert box.offers == (add.offer, delete.offer)
    assert box["add"] is add
    assert box.get("other") is None
    assert (repr(box), repr(toolbox([]))) == ("<Toolbox add, delete>", "<Toolbox empty>")
    with pytest.raises(UsageError, match=r"two tools are named 'add': .*\.add and .*\.anything"):
        toolbox([add, delete, tool(anything, name="add")])


def test_a_digest_form_holds_no_addresses() -> None:
    """The same function decorated twice looks the same; another effect or schema looks different."""
    assert tool(add.fn).digest_form() == add.digest_form()
    assert tool(add.fn, effect="pure").digest_form() != add.digest_form()
    assert tool(delete.fn).digest_form() != delete.digest_form()
    assert " at 0x" not in json.dumps(delete.digest_form())
    assert "add" in repr(add)
