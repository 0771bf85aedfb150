"""Cases from the field about compaction and changes of model: each is a way in which others went wrong.

Most of the cases are kept by tests of promises (the table is in README.md); here stand those that need a whole run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from actors import Agent, Compaction, CompactionEnded, CompactionStarted, Script, call, tool
from actors.transcript import SummaryRecord, problems
from supervisor import open_supervisor
from tests.supervisor.promises.world import watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from actors import ModelRequest

LONG = "word " * 400


async def test_br_118_no_orphan_result_survives_compaction_upon_compaction(autojump_clock: MockClock) -> None:
    """BR-118, BR-123: ten compactions in the middle of a turn that calls in parallel; each request is a valid one.

    Elsewhere a cut between a call and its result left an orphan at the head of what was kept, which every later
    compaction kept too; and a summary without its point in the conversation dropped what came behind it.
    """
    refs: list[Any] = []
    requests = 0

    @tool(effect="pure")
    async def look(at: str) -> str:
        """Look."""
        await refs[0].compact()
        return f"{at}: {LONG}"

    def play(request: ModelRequest) -> object:
        nonlocal requests
        if request.purpose == "compaction":
            return "in short"
        assert problems(request.window) == []
        requests += 1
        if requests > 10:
            return "done"
        assert requests < 2 or f"{requests - 1}b" in str(list(request.window)[-1]), "the last batch is never summarised"
        return [call("look", at=f"{requests}a"), call("look", at=f"{requests}b")]

    async with open_supervisor(model=Script({"a": play}), inline=True) as sup:
        refs.append(await sup.start(Agent("a", "", tools=[look], compaction=Compaction(keep=0.0))))
        report = await refs[0].ask("go " + LONG)
        assert report.text == "done"
        await refs[0].wait_idle()
        archived = await refs[0].transcript(archived=True)
        assert sum(isinstance(record, SummaryRecord) for record in archived) >= 8
        whole = [record for record in archived if not isinstance(record, SummaryRecord)]
        assert problems(whole) == [], "the archive is the conversation as it was"


async def test_br_119_a_compaction_by_hand_at_the_threshold_does_not_set_off_another(autojump_clock: MockClock) -> None:
    """BR-119: asked for while one for the window is due, one is made; neither sets off the other again."""
    script = Script({"a": _summarises("in short")}, context_window=1_500, latency_s=1)
    async with open_supervisor(model=script, inline=True) as sup, watched(sup) as log:
        ref = await sup.start(Agent("a", ""), "one")
        await ref.wait_report()
        await ref.ask("two")
        receipt = await ref.send("three")  # its turn finds the conversation past the threshold
        await ref.compact()
        await receipt.wait_report()
        await ref.wait_compacted()
        await ref.wait_idle()
        await trio.sleep(1_000)
        made = [event for event in log.events if isinstance(event, CompactionStarted)]
        assert len(made) == 1


async def test_br_120_a_summariser_that_returns_its_input_ends_it(autojump_clock: MockClock) -> None:
    """BR-120: the summary is as long as what it replaces: at most one attempt per turn, and the agent works on."""
    script = Script({"a": _summarises(lambda request: request.window[0].content[0].text)}, context_window=1_200)
    async with open_supervisor(model=script, inline=True) as sup, watched(sup) as log:
        ref = await sup.start(Agent("a", ""), "one")
        await ref.wait_report()
        for number in range(4):
            assert (await ref.ask(f"more {number}")).text == LONG
        ends = [event for event in log.events if isinstance(event, CompactionEnded)]
        assert 0 < len(ends) <= 4
        assert all("hardly smaller" in (event.error or "") for event in ends)
        assert not any(isinstance(record, SummaryRecord) for record in await ref.transcript(archived=True))


async def test_br_121_what_cannot_be_freed_is_not_compacted_for_ever(autojump_clock: MockClock) -> None:
    """BR-121: the measured size stays past the limit whatever is summarised; a long turn tries at most once."""
    calls = 0

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        return "seen"

    def play(request: ModelRequest) -> object:
        nonlocal calls
        if request.purpose == "compaction":
            return "in short"
        calls += 1
        return call("look") if calls % 12 else LONG

    script = Script({"a": play}, context_window=400)
    async with open_supervisor(model=script, inline=True) as sup, watched(sup) as log:
        agent = Agent("a", "be brief " * 30, tools=[look], compaction=Compaction(at=0.3))
        ref = await sup.start(agent, "go " + LONG)
        await ref.wait_report()
        await ref.ask("again")
        made = [event for event in log.events if isinstance(event, CompactionStarted)]
        assert calls == 24
        assert len(made) <= 3


def _summarises(summary: object) -> Callable[[ModelRequest], object]:
    """Answers at length, and summarises as it is told."""

    def play(request: ModelRequest) -> object:
        if request.purpose != "compaction":
            return LONG
        return summary(request) if callable(summary) else summary

    return play
