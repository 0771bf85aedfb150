"""The scripted model gives typed answers: values of any type that an agent may owe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

from actors import Agent, Script, answer
from actors.transcript import ResponseRecord, TextBlock
from supervisor import open_supervisor

if TYPE_CHECKING:
    import trio.testing


class Point(NamedTuple):
    """A typed answer that is a tuple."""

    x: int
    name: str = "a"


@pytest.mark.parametrize(
    ("declared", "step", "value"),
    [
        (Point, Point(1), Point(1)),
        (Point, answer(Point(1)), Point(1)),
        (list[int], answer([1, 2]), [1, 2]),
        (list[Point], answer([Point(1), Point(2, "b")]), [Point(1), Point(2, "b")]),
        (tuple[int, str], answer((1, "a")), (1, "a")),
        (Literal["yes", "no"], answer("yes"), "yes"),
        (list[int], lambda _: answer([3]), [3]),
        (Point, lambda _: Point(3), Point(3)),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (int, 5, 5),
    ],
)
async def test_a_typed_answer_of_any_type_is_one_step(
    autojump_clock: trio.testing.MockClock, declared: Any, step: Any, value: object
) -> None:
    """It is read as the value that was written, by an agent that owes one of that type."""
    async with open_supervisor(model=Script({"a": [step]})) as sup:
        report = await sup.run(Agent("a", "Answer.", output=declared), "go")
        assert (report.status, report.output) == ("done", value)
        assert type(report.output) is type(value)


async def test_a_list_without_answer_is_the_parts_of_one() -> None:
    """Text, reasoning and calls side by side, as a model gives them."""
    async with open_supervisor(model=Script({"a": [["It is", "five."]]})) as sup:
        ref = await sup.start(Agent("a", "Answer."), "go")
        await ref.wait_report()
        (said,) = [record for record in await ref.transcript() if isinstance(record, ResponseRecord)]
        assert said.blocks == (TextBlock("It is"), TextBlock("five."))
