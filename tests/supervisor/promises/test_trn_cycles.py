"""TRN-7: a turn that goes round in circles is told so, then takes no more calls, then ends in a typed error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors import LimitReached, Limits, call, tool
from actors.transcript import NoteRecord, ResultRecord, problems
from tests.supervisor.promises.world import agent, check

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from tests.supervisor.promises.world import World


@tool
async def first(at: int = 0) -> str:
    """Give what it was given."""
    return f"first {at}"


@tool
async def second() -> str:
    """Give much."""
    return "second " * 1_000


def told(request: ModelRequest) -> list[str]:
    """The limits that the model was told of."""
    return [record.text for record in request.window if isinstance(record, NoteRecord) and record.kind == "limit"]


LIMITS = Limits(repeated_cycles=3, result_chars=500)


@pytest.mark.parametrize("heeds", ["never", "when told", "at last"])
async def test_trn_7_a_circle_is_told_and_then_an_error(world: World, autojump_clock: MockClock, heeds: str) -> None:
    """A, B, A, B: told after three, no calls taken after six, an error if it calls still; one that heeds is done.

    What is cut and kept counts as the same, though each call has a reference of its own.
    """
    toolless: list[str] = []

    def model(request: ModelRequest) -> object:
        toolless.append(request.tool_choice)
        if (heeds == "when told" and told(request)) or (heeds == "at last" and request.tool_choice == "none"):
            return "enough"
        return call(("first", "second")[request.window.responses % 2])

    async with world.open({"a": model}) as sup:
        ref = await sup.start(agent(tools=[first, second], limits=LIMITS), "go")
        report = await ref.wait_report()
        records = await ref.transcript()
        assert problems(records) == []
        ran = [record for record in records if isinstance(record, ResultRecord) and record.status.value == "ok"]
        notes = [record.text for record in records if isinstance(record, NoteRecord) and record.kind == "limit"]
        assert "3 times in a row. Do something else" in notes[0]
        if heeds == "when told":
            assert (report.status, len(ran), len(notes)) == ("done", 6, 1)
            return
        assert len(ran) == 12
        assert "6 times in a row: answer now" in notes[1]
        assert toolless == ["auto"] * 12 + ["none"]
        if heeds == "at last":
            assert report.status == "done"
        else:
            assert report.status == "failed"
            assert isinstance(report.error, LimitReached)
        await check(sup.store)


@pytest.mark.parametrize("way", ["new results", "new mail"])
async def test_trn_7_what_brings_something_new_is_no_circle(world: World, autojump_clock: MockClock, way: str) -> None:
    """Another result, or a message that came in between: the count begins anew."""
    rounds = 20

    def model(request: ModelRequest) -> object:
        made = request.window.responses
        if made >= rounds:
            return "done"
        return call("poll", at=made if way == "new results" else 0)

    async with world.open({"a": model}) as sup:
        made = 0

        @tool
        async def poll(at: int) -> str:
            """Poll."""
            nonlocal made
            made += 1
            if way == "new mail" and made % 2 == 0:
                await ref.steer("again")
            return f"nothing new {at}"

        ref = await sup.start(agent(tools=[poll], limits=LIMITS))
        report = await ref.ask("go")
        assert report.status == "done"
        assert made == rounds
        assert not any(isinstance(record, NoteRecord) for record in await ref.transcript())
