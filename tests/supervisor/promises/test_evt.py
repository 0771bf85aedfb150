"""EVT: events."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

import pytest
import trio

from actors import (
    AgentCrashed,
    AgentEnded,
    AgentSettled,
    AttemptDiscarded,
    Child,
    JournalBound,
    MessageAccepted,
    MessageConsumed,
    Missed,
    RequestFailed,
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
    rejected,
    tool,
)
from actors.happenings import Event
from actors.journal import PASSING
from actors.models.script import hang
from actors.transcript import MessageRecord, ResultRecord
from actors.watching import WATCHER_EVENTS
from tests.supervisor.promises.test_con_6 import Bug
from tests.supervisor.promises.world import agent, quiet, said, watched

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from actors.watching import Subscription
    from supervisor import AgentRef
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


def check_seqs(own: list[Event]) -> None:
    """One agent's seqs rise from 1 without gap; what has none of its own carries that of what came before it."""
    seq = 0
    for event in own:
        seq += type(event) not in PASSING
        assert event.seq == seq, [(type(event).__name__, event.seq) for event in own]


async def test_evt_1_events_are_typed_numbered_and_in_causal_order_per_agent(
    world: World, autojump_clock: MockClock
) -> None:
    """Over a tree with retries, aborts and children: each event has its agent, run, turn, attempt.

    An agent's seqs rise without gap; causes stand before effects.
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
    for own in by_agent.values():
        check_seqs(own)
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


async def told(watcher: Subscription, *, until: type[Event] | None = None) -> list[Event]:
    """What a watcher is given until it ends, or until nothing more comes."""
    events: list[Event] = []
    while until is None or not events or type(events[-1]) is not until:
        with trio.move_on_after(1) as scope:
            try:
                events.append(await watcher.__anext__())
            except StopAsyncIteration:
                break
        if scope.cancelled_caught:
            break
    return events


def kept(events: Iterable[Event]) -> list[tuple[str, int, str]]:
    """What the journal keeps of these, in short."""
    return [(event.path, event.seq, type(event).__name__) for event in events if type(event) not in PASSING]


class Tree:
    """A lead with a child, tools, retries and aborts: something of everything."""

    def __init__(self) -> None:
        self.kid = agent("kid", tools=[add])
        self.lead = agent("lead", children=[Child(self.kid)], tools=[add])

    def model(self) -> Script:
        """Answers with what the message asks for."""

        def lead(request: ModelRequest) -> object:
            last = request.window[-1]
            if not isinstance(last, MessageRecord):
                return "done with it"
            match said(last.content).split()[0]:
                case "calls":
                    return [call("kid", task="x"), call("add", a=1)]
                case "hang":
                    return ("half a", hang())
                case "fail":
                    return rejected()
                case _:
                    return "some words"

        def kid(request: ModelRequest) -> object:
            return "helped" if isinstance(request.window[-1], ResultRecord) else call("add", a=2)

        return Script({"lead": lead, "kid": kid}, delta_chars=4, latency_s=0.3)

    async def act(self, ref: AgentRef, dice: random.Random) -> None:
        """Something that an agent may meet."""
        match dice.choice(("send", "send", "steer", "interrupt", "abort", "post", "ttl", "wake", "wait")):
            case "send":
                await ref.send(dice.choice(("calls", "words", "hang", "fail")))
            case "steer":
                await ref.steer("words")
            case "interrupt":
                await ref.steer("words", interrupt=True)
            case "abort":
                await ref.abort("enough")
            case "post":
                ref.post("words")
            case "ttl":
                await ref.send("words", ttl=0.1)
            case "wake":
                await ref.wake()
            case _:
                await trio.sleep(dice.random() * 2)


@pytest.mark.parametrize("seed", range(6))
async def test_evt_1_seqs_have_no_gap_whatever_an_agent_meets(
    world: World, autojump_clock: MockClock, seed: int
) -> None:
    """Over random lives with steers, aborts, retries, tools, crashes, dead letters and idle times in between.

    Seqs rise from 1 without gap; run, turn and attempt only rise where they belong together; ends follow beginnings.
    """
    dice, tree = random.Random(seed), Tree()
    async with world.open(tree.model()) as sup, watched(sup) as log:
        world.spy.before = bug = Bug(("words",), left=2)
        ref = await sup.start(tree.lead, "calls")
        for _ in range(25):
            await tree.act(ref, dice)
            if dice.random() < 0.3:
                await trio.sleep(dice.random() * 3)
        await ref.abort("enough")
        await ref.wake()
        with trio.move_on_after(100):
            await ref.wait_idle()
        events = log.events
        crashed = log.of(AgentCrashed)
    assert len(crashed) == 2 - (bug.left or 0)
    for path in {event.path for event in events}:
        own = [event for event in events if event.path == path]
        check_seqs(own)
        check_causes(own)


OF_A_TURN = (TurnStarted, TurnEnded, MessageConsumed, RequestStarted, ResponseEnded, ToolStarted, ToolEnded, TextDelta)
OF_AN_ATTEMPT = (RequestStarted, ResponseEnded, RequestFailed, AttemptDiscarded, TextDelta)


def check_causes(own: list[Event]) -> None:
    """The order of one agent's events is that of their causes, and each says which run, turn and attempt it is of."""
    accepted: set[str] = set()
    taken: set[str] = set()
    started: set[str] = set()
    turn = run = attempt = 0
    ended = 0
    for event in own:
        if isinstance(event, OF_A_TURN):
            assert event.run >= max(run, 1)
            assert event.turn >= max(turn, 1)
            run, turn = event.run, event.turn
        match event:
            case MessageAccepted(message=message):
                accepted.add(message)
            case MessageConsumed(message=message):
                assert message in accepted
                accepted.remove(message)
                taken.add(message)
            case AgentCrashed():  # what its turn had taken may wait again, for a last try (CON-6)
                accepted |= taken
            case ToolStarted(call=one):
                started.add(one)
            case ToolEnded(call=one, status=status):
                assert one in started or status in {"skipped", "aborted"}
                started.discard(one)
            case RequestStarted():
                attempt = event.attempt
            case TurnEnded():
                assert event.turn > ended, "one end of each turn"
                ended = event.turn
                taken.clear()
            case _:
                pass
        if isinstance(event, OF_AN_ATTEMPT):
            assert event.attempt == attempt >= 1, event


@pytest.mark.parametrize("seed", range(4))
async def test_evt_3_a_watcher_that_comes_and_goes_has_all_of_it(
    world: World, autojump_clock: MockClock, seed: int
) -> None:
    """Leaving and coming back at random moments with its position, it has every event but deltas, once, in order."""
    dice, tree = random.Random(seed), Tree()
    got: list[Event] = []
    async with world.open(tree.model()) as sup, watched(sup) as log:
        ref = await sup.start(tree.lead, "calls")

        async def come_and_go() -> None:
            position = None
            while True:
                async with ref.events(after=position, follow=True) as events:
                    with trio.move_on_after(dice.random() * 2):
                        for _ in range(dice.randrange(1, 20)):
                            one = await events.__anext__()
                            got.append(one)
                    position = events.position
                await trio.sleep(dice.random())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(come_and_go)
            for _ in range(12):
                await tree.act(ref, dice)
                await trio.sleep(dice.random())
            await ref.abort("enough")
            await trio.sleep(100)
            nursery.cancel_scope.cancel()
        assert not [event for event in got if isinstance(event, Missed)]
        assert kept(got) == kept(log.events)
        assert any(type(event) in PASSING for event in got), "live, it has the deltas"


async def test_evt_3_from_the_beginning_comes_what_is_held_without_deltas(
    world: World, autojump_clock: MockClock
) -> None:
    """A watcher that comes late has what happened before, the finished text but no delta, and then what happens."""
    async with world.open(Script({"a": ["one two", "three four"]}, delta_chars=3)) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "go")
        await ref.wait_idle()
        async with ref.events(follow=True) as events:
            before = await told(events)
            assert kept(before) == kept(log.events)
            assert not [event for event in before if type(event) in PASSING]
            assert [event.text for event in before if isinstance(event, ResponseEnded)] == ["one two"]
            await ref.send("more")
            after = await told(events, until=AgentSettled)
        assert "".join(event.text for event in after if isinstance(event, TextDelta)) == "three four"
        async with sup.events(after="now") as nothing:
            assert await told(nothing) == []


async def test_evt_3_a_gap_is_counted_and_then_it_goes_on(world: World, autojump_clock: MockClock) -> None:
    """Where the journal has let go of what came behind a position, that is said with the exact number, first."""
    bound = JournalBound(events=32)
    async with world.open({"a": lambda _: "ok"}, journal=bound) as sup:
        ref = await sup.start(agent(), "go")
        async with ref.events() as events:
            before = await told(events)
            position = events.position
        assert type(before[-1]) is AgentSettled
        for number in range(20):
            await ref.ask(str(number))
        await ref.wait_idle()
        async with ref.events(after=position) as events:
            gap, *rest = await told(events)
        assert isinstance(gap, Missed)
        assert gap.count == rest[0].seq - before[-1].seq - 1
        assert [event.seq for event in rest] == list(range(rest[0].seq, rest[-1].seq + 1))
        assert 16 <= len(rest) <= 32
        assert rest[-1].seq == sup._parts.board.journal.seq(ref.path)
        assert type(rest[-1]) is AgentSettled


async def test_evt_3_a_position_from_before_a_restart_says_so_and_goes_on(
    world: World, autojump_clock: MockClock
) -> None:
    """The journal is one process's: a position of the last one is a gap of unknown size, before what there is."""
    spec = agent()
    async with world.open({"a": ["one"]}) as sup:
        ref = await sup.start(spec, "go")
        async with ref.events() as events:
            await told(events)
            position = events.position
        async with sup.events() as events:
            await told(events)
            above = events.position
    async with world.open({"a": lambda _: "two"}, agents=[spec]) as sup:
        ref = await sup.find("a")
        await ref.ask("more")
        await ref.wait_idle()
        for watch in (ref.events(after=position), sup.events(after=above)):
            async with watch as events:
                gap, *rest = await told(events)
            assert isinstance(gap, Missed)
            assert gap.count is None
            assert [event.seq for event in rest] == list(range(1, len(rest) + 1))
            assert [event.text for event in rest if isinstance(event, ResponseEnded)] == ["two"]


async def test_evt_3_a_watch_ends_with_the_run_it_was_opened_in(world: World, autojump_clock: MockClock) -> None:
    """Opened in a run, it ends with it, all its turns included; opened in none, with what was; following, never."""
    async with world.open(Script({"a": lambda _: "ok"}, latency_s=1)) as sup:
        ref = await sup.start(agent(), "one")
        async with ref.events() as events, ref.events(follow=True) as follows:
            await ref.send("two")
            await trio.sleep(10)
            await ref.ask("three")
            got = [event async for event in events]
            assert [event.turn for event in got if isinstance(event, TurnEnded)] == [1, 2]
            assert type(got[-1]) is AgentSettled
            position = events.position
            assert len([event for event in await told(follows) if isinstance(event, TurnEnded)]) == 3
        await ref.wait_idle()
        async with ref.events(after=position) as events:
            rest = [event async for event in events]
        assert [event.turn for event in rest if isinstance(event, TurnEnded)] == [3]
        async with ref.events(after="now") as events:
            assert [event async for event in events] == []
        await ref.close()
        await ref.wait_closed()
        async with ref.events(after=position) as events:
            assert type([event async for event in events][-1]) is AgentEnded
    async with ref.events(after=position, follow=True) as events:
        assert type([event async for event in events][-1]) is AgentEnded, "the supervisor was left: nothing follows"


async def test_evt_2_a_thousand_watchers_of_one_tree_are_all_told(memory: World, autojump_clock: MockClock) -> None:
    """Each has everything of its scope; those that never read, that raise, and that leave in between, harm nobody."""
    tree = Tree()
    async with memory.open(tree.model()) as sup, watched(sup) as log, AsyncExitStack() as stack:
        ref = await sup.start(tree.lead)
        watchers = [await stack.enter_async_context(ref.events(follow=True)) for _ in range(1_000)]

        async def read(number: int) -> None:
            watcher = watchers[number]
            with trio.move_on_after(1 if number % 3 else 200), suppress(RuntimeError):
                async for _ in watcher:
                    if number % 5 == 0:
                        raise RuntimeError

        async with trio.open_nursery() as nursery:
            for number in range(0, 1_000, 2):
                nursery.start_soon(read, number)
            await ref.ask("calls")
            await ref.wait_idle()
            nursery.cancel_scope.cancel()
        own = [one for one in log.events if one.path.startswith("lead")]
        for number in (1, 501, 999):
            assert kept(await told(watchers[number])) == kept(own)
        assert all(one.statistics().missed == 0 for one in watchers)


async def test_evt_2_a_watcher_too_slow_for_deltas_still_has_what_is_kept(
    memory: World, autojump_clock: MockClock
) -> None:
    """Its queue full of deltas, it misses only deltas: what the journal keeps comes behind the gap."""
    text = "x" * (WATCHER_EVENTS + 500)
    async with memory.open(Script({"a": [text, "more"]}, delta_chars=1)) as sup, watched(sup) as log:
        ref = await sup.start(agent())
        async with ref.events(follow=True) as lazy:
            await told(lazy)
            await ref.ask("go")
            await ref.ask("again")
            await ref.wait_idle()
            got = await told(lazy)
        gaps = [event for event in got if isinstance(event, Missed)]
        assert len(gaps) == 1
        wrote = [event.text for event in got if isinstance(event, ResponseEnded)]
        assert wrote == [text, "more"]
        assert gaps[0].count == len(text) + len("more") - sum(isinstance(event, TextDelta) for event in got)
        assert log.events
