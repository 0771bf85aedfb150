"""REC-3, REQ-3: whoever has seen half of a response is told to drop it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from actors import (
    AgentCrashed,
    AgentSettled,
    AgentSuspended,
    AttemptDiscarded,
    Missed,
    RequestFailed,
    RequestStarted,
    ResponseEnded,
    Script,
    TextDelta,
    broken,
)
from actors.changes import Append
from actors.models.script import hang
from actors.transcript import ResponseRecord
from tests.supervisor.promises.test_con_6 import Bug
from tests.supervisor.promises.test_evt import Tree
from tests.supervisor.promises.world import agent, ops, watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from trio.testing import MockClock

    from actors import Event
    from actors.watching import Subscription
    from tests.supervisor.promises.world import World


@attrs.define
class Viewer:
    """Someone who shows text as it comes, and does as the events say.

    Attributes:
        half: what is shown of the response in progress. whole: what was said in the end. dropped: how often it had to.
    """

    half: str = ""
    whole: list[str] = attrs.field(factory=list)
    dropped: int = 0
    _last: bool = False  # whether the newest response may still be void

    def see(self, events: Iterable[Event]) -> Viewer:
        """Show them."""
        for event in events:
            match event:
                case TextDelta(text=text):
                    self.half += text
                case ResponseEnded(text=text):
                    assert self.half in ("", text), "what was shown, unless it came too late for it, is what was kept"
                    self.whole, self.half, self._last = [*self.whole, text] if text else self.whole, "", bool(text)
                case RequestStarted():
                    self._last = False
                case AttemptDiscarded() | RequestFailed() | Missed():
                    self.dropped += bool(self.half) or self._last
                    self.whole = self.whole[:-1] if self._last else self.whole
                    self.half, self._last = "", False
                case AgentSettled() | AgentSuspended() | AgentCrashed():
                    assert not self.half, f"still shows half a response at {event}"
                case _:
                    pass
        return self


async def test_rec_3_what_was_seen_of_a_discarded_attempt_is_dropped(world: World, autojump_clock: MockClock) -> None:
    """The connection breaks behind half a text; the next attempt starts clean, and says its number."""
    script = Script({"a": [("half a te", broken()), "a whole text"]}, delta_chars=3)
    async with world.open(script) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "go")
        await ref.wait_idle()
        viewer = Viewer().see(log.events)
        assert (viewer.whole, viewer.half, viewer.dropped) == (["a whole text"], "", 1)
        (discarded,) = log.of(AttemptDiscarded)
        assert (discarded.attempt, discarded.run, discarded.turn) == (1, 1, 1)
        assert {event.attempt for event in log.of(TextDelta) if event.seq > discarded.seq} == {2}


async def test_rec_3_what_was_seen_of_a_response_that_a_crash_lost_is_dropped(
    world: World, autojump_clock: MockClock
) -> None:
    """The loop crashes with a whole response that is not committed: it is void before the crash is told."""
    script = Script({"a": lambda _: "an answer"}, delta_chars=3)
    async with world.open(script) as sup, watched(sup) as log:
        world.spy.before = Bug(("go",), left=2)
        ref = await sup.start(agent(), "go")
        await ref.wait_idle()
        viewer = Viewer().see(log.events)
        assert (viewer.whole, viewer.dropped) == (["an answer"], 2)
        assert len(log.of(AgentCrashed)) == 2
        assert len([record for record in await ref.transcript() if isinstance(record, ResponseRecord)]) == 1


async def test_rec_3_what_was_seen_of_a_response_that_the_store_did_not_take_is_dropped(
    world: World, autojump_clock: MockClock
) -> None:
    """The commit of a whole response fails: it is void before the agent is told to be suspended."""
    async with world.open(Script({"a": lambda _: "an answer"}, delta_chars=3)) as sup, watched(sup) as log:
        world.spy.refuse = lambda one: any(isinstance(r, ResponseRecord) for a in ops(one, Append) for r in a.records)
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        viewer = Viewer().see(log.events)
        assert (viewer.whole, viewer.half, viewer.dropped) == ([], "", 1)
        assert [event.reason for event in log.of(AgentSuspended)] == ["store"]
        world.spy.refuse = lambda _: False
        await sup.resume()
        await ref.wait_idle()
        assert Viewer().see(log.events).whole == ["an answer"]


async def test_rec_3_who_leaves_and_who_comes_next_say_that_half_a_response_is_void(
    world: World, autojump_clock: MockClock
) -> None:
    """Cut off in a stream by leaving, watchers are told; those who come to the next process with what they saw, too."""
    spec = agent()
    async with world.open(Script({"a": [("half a te", hang())]}, delta_chars=3), grace=0) as sup:
        ref = await sup.start(spec)
        async with ref.events(after="now", follow=True) as events:
            await ref.send("go")
            await trio.sleep(1)
            await sup.wait_suspended(0)
            viewer = Viewer().see([event async for event in _until(events, AgentSuspended)])
            position = events.position
        assert (viewer.whole, viewer.half, viewer.dropped) == ([], "", 1)
    async with world.open(Script({"a": lambda _: "an answer"}, delta_chars=3), agents=[spec]) as sup:
        viewer = Viewer(half="half a te")
        ref = await sup.find("a")
        async with ref.events(after=position, follow=True) as events:
            await sup.resume()
            await ref.wait_idle()
            got = [event async for event in _until(events, AgentSettled)]
        assert isinstance(got[0], Missed)
        void = [event for event in got if isinstance(event, AttemptDiscarded)]
        assert [(event.run, event.turn) for event in void] == [(1, 1)]
        viewer.see(got)
        assert (viewer.whole, viewer.half, viewer.dropped) == (["an answer"], "", 1)


async def _until(events: Subscription, kind: type[Event]) -> AsyncIterator[Event]:
    async for event in events:
        yield event
        if isinstance(event, kind):
            return


@pytest.mark.parametrize("seed", range(4))
async def test_rec_3_nobody_is_left_with_half_a_response(world: World, autojump_clock: MockClock, seed: int) -> None:
    """Over random lives with aborts, interrupts, failures and crashes, what a viewer shows in the end was said."""
    dice, tree = random.Random(seed), Tree()
    async with world.open(tree.model()) as sup, watched(sup) as log:
        world.spy.before = Bug(("words",), left=2)
        ref = await sup.start(tree.lead, "calls")
        for _ in range(20):
            await tree.act(ref, dice)
            if dice.random() < 0.5:
                await trio.sleep(dice.random() * 2)
        await ref.abort("enough")
        await ref.wake()
        with trio.move_on_after(100):
            await ref.wait_idle()
        viewer = Viewer().see(event for event in log.events if event.path == "lead")
        records = await ref.transcript(archived=True)
        said = [record.text for record in records if isinstance(record, ResponseRecord) and record.text]
        assert viewer.whole == said
        assert viewer.half == ""
