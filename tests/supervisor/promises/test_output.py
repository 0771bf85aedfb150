"""Structured answers, through the whole runtime: repaired, paid for, and told apart from what is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from actors import Agent, Budget, Limits, call, tool
from actors.errors import AnswerCut, AnswerRefused, AnswerUnfit, Exhausted, Malformed, UsageError
from actors.models.script import hang
from actors.ports import ANSWER_TOOL, Response
from actors.transcript import Stop, TextBlock
from tests.supervisor.promises.world import agent, texts

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from tests.supervisor.promises.world import World


@attrs.frozen
class Verdict:
    """A typed answer."""

    ok: bool


@attrs.frozen
class Score:
    """Another."""

    points: int


def other_verdict() -> type:
    """A type of the same name."""

    @attrs.frozen
    class Verdict:
        """A typed answer of another module."""

        grade: str

    return Verdict


async def test_trn_7_no_fitting_answer_is_an_error_with_every_attempt(world: World, autojump_clock: MockClock) -> None:
    """What did not fit is asked for again, a bounded number of times, and each is in the report's error."""
    script = {"a": ["maybe", Score(3), [call(ANSWER_TOOL, ok="yes")]]}
    async with world.open(script) as sup:
        report = await sup.run(agent(output=Verdict, limits=Limits(output_repairs=2)), "well?")
        stored = await (await sup.find("a")).wait_report()
    for told in (report, stored):
        assert (told.status, told.output) == ("failed", None)
        assert isinstance(told.error, AnswerUnfit)
        assert [said for said, _ in told.error.attempts] == ["maybe", '{"points":3}', '{"ok":"yes"}']
        assert all(problem for _, problem in told.error.attempts)


async def test_repairs_are_paid_for(world: World, autojump_clock: MockClock) -> None:
    """Each is a request like any other: counted in the usage, and refused where the budget ends."""
    async with world.open({"a": ["no", "still no", Verdict(ok=True)]}) as sup:
        report = await sup.run(agent(output=Verdict), "well?")
        assert report.output == Verdict(ok=True)
        assert sup.store is not None
        row = (await sup.tree())[0]
        assert row.run_spent.model_calls == 3
    async with world.open({"b": ["no", "still no", Verdict(ok=True)]}) as sup:
        spec = agent("b", output=Verdict, budget=Budget(model_calls=1, on_exhausted="fail"))
        report = await sup.run(spec, "well?")
        assert (report.status, type(report.error)) == ("exhausted", Exhausted)


async def test_attempts_count_over_a_restart(world: World, autojump_clock: MockClock) -> None:
    """A restart gives no answer more tries: what was refused before it is in the error, too."""
    spec = agent(output=Verdict, limits=Limits(output_repairs=1))
    async with world.open({"a": ["no", ("ne", hang())]}) as sup:
        await sup.start(spec, "well?")
        await trio.sleep(1)
    async with world.open({"a": ["no", "never"]}, agents=[spec]) as sup:
        (ref,) = await sup.resume()
        report = await ref.wait_report()
        assert isinstance(report.error, AnswerUnfit)
        assert [said for said, _ in report.error.attempts] == ["no", "never"]


@pytest.mark.parametrize(
    ("stop", "error", "words"),
    [
        (Stop.MAX_TOKENS, AnswerCut, "not whole"),
        (Stop.REFUSAL, AnswerRefused, "the model refused"),
        (Stop.CONTENT_FILTER, AnswerRefused, "content filter"),
        (Stop.ERROR, Malformed, "not whole"),
    ],
)
@pytest.mark.parametrize("typed", [True, False], ids=["typed", "plain"])
async def test_trn_7_cut_and_refused_answers_are_told_apart(
    memory: World,
    stop: Stop,
    error: type,
    words: str,
    typed: bool,  # noqa: FBT001 - a row
    autojump_clock: MockClock,
) -> None:
    """Each is an error of its own, for plain text too, and no repair is asked for; what came is the report's text."""
    came = '{"ok": true}'
    async with memory.open({"a": [Response((TextBlock(came),), stop)]}) as sup:
        report = await sup.run(agent(output=Verdict if typed else None), "well?")
    assert (report.status, type(report.error), report.text, report.output) == ("failed", error, came, None)
    assert words in str(report.error)
    if isinstance(report.error, AnswerRefused):
        assert report.error.by == ("model" if stop is Stop.REFUSAL else "filter")


async def test_an_answer_beside_calls_is_refused_and_given_again(world: World, autojump_clock: MockClock) -> None:
    """The model reads why, in both forms, and the later answer is the report's."""

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        return "it is broken"

    script = {
        "a": [
            [call(ANSWER_TOOL, ok=True), call("look")],
            ('{"ok": true}', call("look")),
            [call(ANSWER_TOOL, ok=False)],
        ]
    }
    async with world.open(script) as sup:
        report = await sup.run(agent(output=Verdict, tools=[look]), "well?")
        assert report.output == Verdict(ok=False)
        assert [done.name for done in report.calls if done.status == "ok"] == ["look", "look"]
        shown = texts(await (await sup.find("a")).transcript())
    assert [line.split(":")[0] for line in shown if "Not taken" in line] == ["=refused", "!Not taken"]


async def test_two_message_types_of_one_name_are_two(world: World, autojump_clock: MockClock) -> None:
    """Both wait at once, and each answer is of the type that its message owes."""
    other = other_verdict()

    def answers(request: ModelRequest) -> object:
        assert request.output is not None
        return '{"grade": "A"}' if "grade" in request.output.schema else Verdict(ok=True)

    async with world.open({"a": answers}) as sup:
        ref = await sup.start(agent())
        await ref.pause()
        one = await ref.send("ok?", output=Verdict)
        two = await ref.send("grade?", output=other)
        await ref.wake()
        assert (await one.wait_report()).output == Verdict(ok=True)
        assert (await two.wait_report()).output == other(grade="A")


async def test_a_type_that_is_not_known_after_a_restart_fails_plainly(world: World, autojump_clock: MockClock) -> None:
    """It is never answered as text; a registered agent of that type makes it known."""
    spec = agent()
    async with world.open({"a": ["x"]}) as sup:
        ref = await sup.start(spec)
        sup.suspend()
        await ref.send("ok?", output=Verdict)
        await ref.send("score?", output=Score)
    knows = Agent("knows", output=Verdict)
    async with world.open({"a": [Verdict(ok=True)]}, agents=[spec, knows]) as sup:
        (ref,) = await sup.resume()
        await ref.wait_idle()
        report = await ref.wait_report()
        assert (report.status, type(report.error)) == ("failed", UsageError)
        assert "the type Score, which this process does not know" in str(report.error)
        said = [record for record in await ref.transcript() if getattr(record, "blocks", ())]
        assert [text for record in said for text in record.blocks] == [TextBlock('{"ok":true}')]  # type: ignore[union-attr]  # as filtered


async def test_trn_7_text_is_the_text_as_it_comes(world: World, autojump_clock: MockClock) -> None:
    """With `output=str` the output is what was said, at once, by `ask`, and read from the store."""
    async with world.open({"a": ['say "hey"', "and you"]}) as sup:
        report = await sup.run(agent(output=str), "go")
        assert report.output == report.text == 'say "hey"'
        ref = await sup.find("a")
        assert (await ref.wait_report()).output == 'say "hey"'
        assert (await ref.ask("and?", output=str)).output == "and you"
