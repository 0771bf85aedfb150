"""Cases of tools and structured answers: what models send that nobody expected, and what becomes of it here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import msgspec
import pytest

from actors import Agent, Budget, LimitReached, Limits, ToolStarted, UsageError, call, tool
from actors.errors import AnswerUnfit, Exhausted
from actors.fitting import Refusal
from actors.tools import Tool
from actors.transcript import MessageRecord, ResultRecord
from tests.supervisor.promises.world import World, agent, check, said, texts, watched

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from actors.transcript import Record


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A store of either kind."""
    return World(request.param, tmp_path)


def results(records: Sequence[Record]) -> list[tuple[str, str]]:
    """The results of a conversation: status and text."""
    return [(one.status.value, said(one.content)) for one in records if isinstance(one, ResultRecord)]


@tool(effect="pure")
async def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


async def test_br_142_a_made_up_tool_ends_nothing_and_is_told_what_there_is(
    world: World, autojump_clock: MockClock
) -> None:
    """Among good calls the good ones run; the result lists the names that there are, a bounded number of them."""

    def made(name: str) -> Tool[..., Any]:
        @tool(name=name, effect="pure")
        async def one() -> str:
            """Do one thing."""
            return name

        return one

    many = [made(f"a_tool_with_a_long_name_{number:03}") for number in range(300)]
    step = [call("add", a=1, b=2), call("ad", a=1), call("add", a=3)]
    async with world.open({"a": [step, "done"], "b": [call("nothing"), "done"]}) as sup:
        ref = await sup.start(agent(tools=[add]), "go")
        assert (await ref.wait_report()).text == "done"
        found = results(await ref.transcript())
        assert [status for status, _ in found] == ["ok", "error", "ok"]
        assert found[1][1] == "There is no tool 'ad'. Tools: add."
        ref = await sup.start(agent("b", tools=many), "go")
        assert (await ref.wait_report()).text == "done"
        ((status, text),) = results(await ref.transcript())
        assert status == "error"
        assert "a_tool_with_a_long_name_000" in text
        assert text.endswith("a_tool_with_a_long_name_049, and 250 more.")


async def test_br_142_144_a_model_that_never_calls_rightly_is_ended(world: World, autojump_clock: MockClock) -> None:
    """Made-up tools and arguments that do not fit count towards one bound; then the turn ends with a typed error."""

    def always(request: ModelRequest) -> object:
        count = request.window.responses
        return call("nothing", n=count) if count % 2 else call("add", a=str(count))

    async with world.open({"a": always}) as sup:
        report = await sup.run(agent(tools=[add], limits=Limits(invalid_responses=4)), "go")
        assert (report.status, type(report.error)) == ("failed", LimitReached)
        row = (await sup.tree())[0]
        assert row.run_spent.model_calls == 5, "four, and one without tools to answer with"
        await check(sup.store)


SENT = {
    "cut": '{"a": 1, "b": 2',
    "cut in a text": '{"a": 1, "b": "x',
    "garbage behind it": '{"a": 1} and so on',
    "two objects": '{"a": 1}{"a": 2}',
    "NaN": '{"a": NaN}',
    "Infinity": '{"a": Infinity}',
    "blank": "  ",
    "a list": "[1]",
    "null": "null",
    "single quotes": "{'a': 1}",
    "trailing comma": '{"a": 1,}',
}


@pytest.mark.parametrize("text", SENT.values(), ids=list(SENT))
async def test_br_143_what_is_no_json_object_runs_nothing(
    memory_world: World, autojump_clock: MockClock, text: str
) -> None:
    """Not even a tool that could run with its defaults alone: the model is told what was wrong, and what to send."""
    ran: list[int] = []

    @tool(effect="pure")
    async def delete(a: int = 0, b: int = 0) -> str:
        """Delete."""
        ran.append(a + b)
        return "deleted"

    async with memory_world.open({"a": [call.raw("delete", text), "done"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[delete]), "go")
        await ref.wait_idle()
        ((status, told),) = results(await ref.transcript())
        assert (ran, log.of(ToolStarted)) == ([], [])
        assert status == "error"
        assert "Call delete again with one JSON object of: a (optional), b (optional)." in told
        where = ("(byte ", "truncated", "expected an object")
        assert any(words in told for words in where), "where it broke, or what it is instead"


@pytest.fixture
def memory_world(tmp_path: Path) -> World:
    """A store in memory."""
    return World("memory", tmp_path)


async def test_br_143_a_call_that_broke_off_before_its_arguments_runs_nothing(
    world: World, autojump_clock: MockClock
) -> None:
    """No text where there should be some is no empty object, though the tool needs no argument."""
    needless = tool(lambda: None, name="needless", effect="pure")
    async with world.open({"a": [call.raw("needless", ""), "done"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[needless]), "go")
        await ref.wait_idle()
        ((status, told),) = results(await ref.transcript())
        assert (status, log.of(ToolStarted)) == ("error", [])
        assert "Nothing was run" in told


@attrs.frozen
class Line:
    """A line of a text."""

    number: int
    words: list[str]


async def test_br_144_a_refusal_names_the_place_and_what_was_expected(world: World, autojump_clock: MockClock) -> None:
    """Every place that does not fit is told with its path and the type expected, and the model mends it."""

    @tool(effect="pure")
    async def write(lines: list[Line], mode: Annotated[str, msgspec.Meta(max_length=3)] = "w") -> int:
        """Write."""
        return len(lines) + len(mode)

    bad = [{"number": "one", "words": []}, {"number": 2}]
    good = [{"number": 1, "words": ["a"]}]
    async with world.open({"a": [call("write", lines=bad), call("write", lines=good), "done"]}) as sup:
        ref = await sup.start(agent(tools=[write]), "go")
        assert (await ref.wait_report()).text == "done"
        (status, told), mended = results(await ref.transcript())
        assert status == "error"
        assert 'lines[0].number: got the text "one"; expected a whole number' in told
        assert "lines[1].words: missing; expected a list, each text" in told
        assert mended == ("ok", "2")


async def test_br_145_a_list_sent_as_text_is_read_where_a_list_is_wanted(
    world: World, autojump_clock: MockClock
) -> None:
    """Only there, at any depth; a text stays a text though it looks like a list; what was read is recorded."""
    ran: list[object] = []

    @tool(effect="pure")
    async def tag(ids: list[int], note: str, either: list[int] | str = "", line: Line | None = None) -> str:
        """Tag."""
        ran.append((ids, note, either, line))
        return "tagged"

    step = [
        call("tag", ids="[1,2]", note="[1,2]", either="[1,2]", line='{"number": 1, "words": ["a"]}'),
        call("tag", ids="[1,2", note="x"),
        call("tag", ids='["a"]', note="x"),
    ]
    async with world.open({"a": [step, "done"]}) as sup:
        ref = await sup.start(agent(tools=[tag]), "go")
        await ref.wait_idle()
        found = [one for one in await ref.transcript() if isinstance(one, ResultRecord)]
        assert [one.status.value for one in found] == ["ok", "error", "error"]
        assert ran == [([1, 2], "[1,2]", "[1,2]", Line(1, ["a"]))]
        assert [one.repaired for one in found] == [("ids", "line"), (), ()]


async def test_br_146_one_tool_that_cannot_be_offered_never_reaches_a_session() -> None:
    """A schema that is none, or a type without one, is refused where it is written, by the tool's name."""
    fine = [tool(add.fn, name=f"add_{number}") for number in range(19)]

    async def bad(when: complex) -> str:
        """Do."""
        return str(when)

    with pytest.raises(UsageError, match=r"tool 'bad', parameter 'when': the type complex cannot be used"):
        tool(bad)
    with pytest.raises(UsageError, match="not a JSON Schema"):
        Tool.internal("odd", "", {"type": "nonsense"}, add.fn)
    assert len(Agent("a", "", tools=fine).tools) == 19


def test_br_147_a_schema_that_we_make_has_no_references() -> None:
    """Classes are written out where they stand, so every server takes them; one that holds itself is refused."""

    @attrs.frozen
    class Pair:
        """Two lines."""

        one: Line
        other: Line

    @tool(effect="pure")
    async def compare(pairs: list[Pair]) -> str:
        """Compare."""
        return str(pairs)

    assert "$ref" not in compare.offer.schema
    assert "$defs" not in compare.offer.schema
    assert compare.offer.schema.count('"number"') == 4, "twice a property, twice required"
    with pytest.raises(UsageError, match="it holds itself"):
        tool(_deep)


def test_br_147_a_schema_that_was_given_may_have_references_and_is_checked_through_them() -> None:
    """Of the runtime's own making or another's: `$defs` are followed, in words too, recursion included."""
    node = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "below": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["name"],
        "additionalProperties": False,
    }
    schema = {"$defs": {"node": node}, "type": "object", "properties": {"top": {"$ref": "#/$defs/node"}}}
    given = Tool.internal("walk", "", {**schema, "required": ["top"]}, add.fn)
    good = {"top": {"name": "a", "below": [{"name": "b", "below": []}]}}
    assert not isinstance(given.parse(json.dumps(good)), Refusal)
    refused = given.parse(json.dumps({"top": {"name": "a", "below": [{"name": 1}]}}))
    assert isinstance(refused, Refusal)
    assert "top.below[0].name: got the number 1; expected text" in refused.text


@attrs.frozen
class Deep:
    """It holds itself."""

    below: list[Deep]


async def _deep(deep: Deep) -> str:
    """Go down."""
    return str(deep)


@attrs.frozen
class Verdict:
    """A typed answer."""

    ok: bool
    score: int


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("good", [True, False])
async def test_br_148_149_a_structured_answer_is_repaired_with_the_very_error_and_bounded(
    world: World,
    autojump_clock: MockClock,
    before: int,
    good: bool,  # noqa: FBT001 - parametrised
) -> None:
    """Bad, bad, good, or bad for ever, with a history or none: the same tries, each paid for and kept in the error."""
    asked: list[str] = []

    def model(request: ModelRequest) -> object:
        if request.output is None:
            return "chat"
        asked.append(" ".join(texts(list(request.window)[-2:])))
        return Verdict(ok=True, score=1) if good and len(asked) == 3 else f'{{"ok": "yes", "score": {len(asked)}}}'

    async with world.open({"a": model}) as sup:
        ref = await sup.start(agent(limits=Limits(output_repairs=4)))
        for number in range(before):
            await ref.ask(f"chat {number}")
        report = await ref.ask("well?", output=Verdict)
        assert 'ok: got the text "yes"; expected true or false' in asked[1]
        if good:
            assert (report.output, len(asked)) == (Verdict(ok=True, score=1), 3)
            return
        assert len(asked) == 5, "one, and four repairs"
        assert isinstance(report.error, AnswerUnfit)
        assert [text for text, _ in report.error.attempts] == [
            f'{{"ok": "yes", "score": {number}}}' for number in range(1, 6)
        ]
        assert all("expected true or false" in problem for _, problem in report.error.attempts)
        assert (await sup.tree())[0].run_spent.model_calls == 5
        assert report.usage.total_tokens > 0
        messages = [record for record in await ref.transcript() if isinstance(record, MessageRecord)]
        assert len(messages) == before + 1, "what is asked again is no message of anybody's"


async def test_br_149_a_stubborn_model_stops_where_the_budget_does(world: World, autojump_clock: MockClock) -> None:
    """A bound of a hundred thousand repairs recurses nowhere, and is cut short by what the agent may spend."""
    spec = agent(
        output=Verdict,
        limits=Limits(output_repairs=100_000, model_calls_per_turn=100_000),
        budget=Budget(model_calls=1_100, on_exhausted="fail"),
    )
    if world.kind == "sqlite":
        spec = attrs.evolve(spec, budget=Budget(model_calls=60, on_exhausted="fail"))
    async with world.open({"a": lambda _: "no"}) as sup:
        report = await sup.run(spec, "well?")
        assert (report.status, type(report.error)) == ("exhausted", Exhausted)
        assert (await sup.tree())[0].run_spent.model_calls == (60 if world.kind == "sqlite" else 1_100)
