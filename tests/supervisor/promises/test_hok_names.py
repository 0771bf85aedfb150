"""HOK-1: what a hook is stands in the name that it is found by, whatever decorates its method."""

from __future__ import annotations

from functools import partialmethod
from typing import TYPE_CHECKING

from actors import Hooks, Send
from tests.supervisor.promises.world import agent, check

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.supervisor.promises.world import World


async def _said(_: object, __: object) -> str:
    return "be brief"


async def _valued(_: object, __: object, *, said: str) -> Send:
    return Send(said)


class Renamed(Hooks):
    """Methods whose `__name__` is another, and one that has none."""

    instructions = _said  # type: ignore[assignment]  # called alike
    before_run = partialmethod(_valued, said="and then?")


async def test_hok_1_a_decorated_hook_is_what_it_is_found_as(world: World, autojump_clock: MockClock) -> None:
    """Hooks of functions with other names decide and send; a function without a name does not crash its agent."""
    seen: list[str] = []

    def answer(request: object) -> str:
        seen.append(getattr(request, "instructions", ""))
        return "ok"

    async with world.open({"a": answer}) as sup:
        ref = await sup.start(agent(hooks=Renamed()))
        assert (await ref.ask("go")).text == "ok"
        await ref.wait_idle()
        await check(sup.store)
    assert seen == ["be brief", "be brief"], "the second is of what before_run sent"
