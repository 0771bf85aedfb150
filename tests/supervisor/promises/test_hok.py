"""Hooks: which failures end a turn, and what a hook's answer is (HOK)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors import Hooks, Send, Steer, guard
from actors.changes import Enqueue
from tests.supervisor.promises.world import agent, ops

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.supervisor.promises.world import World


class Instructs(Hooks):
    """A hook that decides."""

    async def instructions(self, at: object) -> str | None:
        raise ValueError("no instructions today")


class Tools(Hooks):
    """Likewise."""

    async def tools(self, at: object) -> None:
        raise ValueError("no tools today")


class Context(Hooks):
    """Likewise."""

    async def context(self, at: object) -> None:
        raise ValueError("no context today")


class Guards(Hooks):
    """A hook that observes, marked as a guard."""

    @guard
    async def before_request(self, at: object) -> None:
        raise ValueError("not on Sundays")


@pytest.mark.parametrize("hooks", [Instructs(), Tools(), Context(), Guards()], ids=lambda one: type(one).__name__)
async def test_hok_1_a_deciding_hook_or_a_guard_fails_the_turn_loudly(
    world: World, hooks: Hooks, autojump_clock: MockClock
) -> None:
    """The model is never asked, and the report carries what the hook raised."""
    asked: list[object] = []

    def answer(request: object) -> str:
        asked.append(request)
        return "done"

    async with world.open({"a": answer}) as sup:
        report = await sup.run(agent(hooks=hooks), "go")
    assert report.status == "failed"
    assert "ValueError" in str(report.error)
    assert asked == []


class Speaks(Hooks):
    """A hook that answers with several messages."""

    async def before_run(self, at: object) -> list[Steer | Send]:
        return [Steer("keep it short"), Send("and then?")]


async def test_hok_2_what_a_hook_returns_is_one_decision(world: World, autojump_clock: MockClock) -> None:
    """Its messages are accepted in one commit, all or none."""
    async with world.open({"a": ["one", "two", "three"]}) as sup:
        ref = await sup.start(agent(hooks=Speaks()), "go")
        await ref.wait_idle()
        accepted = [[put.envelope.content[0].text for put in ops(one, Enqueue)] for one in world.spy.with_op(Enqueue)]
    assert ["keep it short", "and then?"] in accepted
