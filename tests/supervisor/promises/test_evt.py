"""EVT: events."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import trio

from actors import (
    AgentSettled,
    Child,
    MessageAccepted,
    MessageConsumed,
    Missed,
    RequestStarted,
    ResponseEnded,
    Script,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    call,
    overloaded,
    tool,
)
from actors.happenings import Event
from actors.models.script import hang
from actors.watching import WATCHER_EVENTS
from tests.supervisor.promises.world import agent, quiet, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.supervisor.promises.world import World


@tool(effect="pure")
async def add(a: int) -> int:
    """Add."""
    return a


BEFORE = (
    (MessageAccepted, MessageConsumed),
    (MessageConsumed, RequestStarted),
    (TurnStarted, MessageConsumed),
    (RequestStarted, ResponseEnded),
    (ResponseEnded, ToolStarted),
    (ToolStarted, ToolEnded),
    (TextDelta, TurnEnded),
    (TurnEnded, AgentSettled),
)


async def test_evt_1_events_are_typed_numbered_and_in_causal_order_per_agent(
    world: World, autojump_clock: MockClock
) -> None:
    """Over a tree with retries, aborts and children: each event has its agent, run, turn, attempt.

    An agent's seqs only rise, never twice the same; causes stand before effects.
    """
    kid = agent("kid", tools=[add])
    lead = agent("lead", children=[Child(kid)], tools=[add])
    script = {
        "lead": [overloaded(), [call("kid", task="x"), call("add", a=1)], "some words", hang()],
        "kid": [call("add", a=2), "more words"],
    }
    async with world.open(script) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        await ref.wait_idle()
        await ref.send("again")
        await trio.sleep(1)
        await ref.abort("enough")
        await ref.wait_idle()
        await quiet()
        events = log.events
    assert all(type(event) is not Event for event in events), "each is of a type of its own"
    by_agent: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_agent[event.path].append(event)
    assert set(by_agent) == {"lead", "lead/kid"}
    for path, own in by_agent.items():
        seqs = [event.seq for event in own]
        assert seqs == sorted(set(seqs)), (path, [(type(event).__name__, event.seq) for event in own])
        kinds = [type(event) for event in own]
        for first, then in BEFORE:
            if first in kinds:
                assert then not in kinds[: kinds.index(first)], (first, then)
        for event in own:
            if isinstance(event, TurnStarted | TurnEnded | RequestStarted | ResponseEnded | ToolStarted | ToolEnded):
                assert event.run >= 1
                assert event.turn >= 1
            if isinstance(event, RequestStarted):
                assert event.attempt >= 1
    assert [event.attempt for event in log.of(RequestStarted, "lead")] == [1, 2, 1, 1]
    assert [event.turn for event in log.of(TurnStarted, "lead")] == [1, 2]
    times = [event.at for event in events]
    assert times == sorted(times)


async def test_evt_2_a_slow_watcher_slows_nobody_and_is_told_what_it_missed(
    memory: World, autojump_clock: MockClock
) -> None:
    """A watcher that never reads holds no agent up; reading later it gets its first events, then the exact gap."""
    text = "x" * (WATCHER_EVENTS + 500)
    async with memory.open(Script({"a": [text]}, delta_chars=1)) as sup, sup.events() as lazy:
        ref = await sup.start(agent())
        began = trio.current_time()
        async with ref.events(follow=True) as quick:
            await ref.send("go")
            report = await ref.wait_report()
            seen = quick.statistics()
        assert report.text == text
        assert trio.current_time() == began
        statistics = lazy.statistics()
        assert statistics.missed > 0
        assert statistics.waiting == WATCHER_EVENTS
        got = []
        async for event in lazy:
            got.append(event)
            if isinstance(event, Missed):
                break
        assert len(got) == WATCHER_EVENTS + 1
        gap = got[-1]
        assert isinstance(gap, Missed)
        assert gap.count == statistics.missed
        assert seen.missed + seen.waiting <= WATCHER_EVENTS + statistics.missed
        seqs = [event.seq for event in got[:-1]]
        assert seqs == sorted(seqs)
        await ref.send("again")
        await ref.wait_idle()
        after = await lazy.__anext__()
        assert not isinstance(after, Missed), "once told, it gets what comes next"


async def test_evt_2_a_broken_watcher_breaks_nobody(memory: World, autojump_clock: MockClock) -> None:
    """A watcher's code that raises ends itself and nothing else."""
    async with memory.open({"a": [call("add", a=1), "fine"]}) as sup:
        ref = await sup.start(agent(tools=[add]))
        failed = trio.Event()

        async def broken() -> None:
            try:
                async with sup.events() as events:
                    async for event in events:
                        raise RuntimeError(event)  # noqa: TRY301 - the watcher breaks
            except RuntimeError:
                failed.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(broken)
            await quiet(1)
            await ref.send("go")
            assert (await ref.wait_report()).text == "fine"
        assert failed.is_set()
