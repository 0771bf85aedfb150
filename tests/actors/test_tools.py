"""Tools from functions: what a model is offered, the check of its arguments, the shape of its result."""

from __future__ import annotations

import functools
import json
import math
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from actors.content import Text, Trust
from actors.errors import UsageError
from actors.tools import Effect, tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from decimal import Decimal

    from nowhere import Context as LaterContext  # type: ignore[import-not-found]
    from nowhere import Report

from tests.actors.toolkit import Context, add, arguments, delete, refusal


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
