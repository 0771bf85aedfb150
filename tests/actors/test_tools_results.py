"""What a tool gives, as a model reads it: its form, its type, its length."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors.content import File, Image, Text
from actors.errors import UsageError
from actors.ids import CallId
from actors.results import Keep
from actors.tools import Effect, Tool, tool, toolbox

if TYPE_CHECKING:
    from collections.abc import Iterator


from tests.actors.toolkit import Context, Point, add, arguments, delete, refusal


@attrs.frozen(slots=False)
class Seen:
    """Has a field that nobody gives."""

    name: str
    count: int = attrs.field(init=False, default=0)


# -- results -----------------------------------------------------------------------------------------------------------


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


# -- tools of the runtime, and many tools ------------------------------------------------------------------------------


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
