"""BUD-1: what a handle says of the limits that bind its agent."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import trio

from actors import Budget, Context, call, tool
from tests.supervisor.promises.world import agent

if TYPE_CHECKING:
    from trio.testing import MockClock

    from supervisor import AgentRef
    from tests.supervisor.promises.world import World


def shown(ref: AgentRef | Context) -> list[tuple[str, str, object, object, object]]:
    """The limits, in short."""
    return [(one.node, one.dimension.value, one.limit, one.used, one.left) for one in ref.budget]


async def test_bud_1_a_handle_says_what_binds_its_agent_and_what_is_left(
    world: World, autojump_clock: MockClock
) -> None:
    """Its own limits, then its parent's, then the supervisor's, in the units of a budget; a call reads the same.

    Nothing of it is there where nothing is limited. A grant and a restart are seen in it.
    """
    seen: list[list[tuple[str, str, object, object, object]]] = []

    @tool
    async def look(ctx: Context) -> str:
        """Look."""
        seen.append(shown(ctx))
        return "seen"

    kid = agent("kid", tools=[look], budget=Budget(tool_calls=5))
    lead = agent("lead", children=[kid], budget=Budget(usd="0.50", model_calls=9))
    script = {
        "lead": lambda r: "on" if r.window.responses else call("kid", task="x"),
        "kid": lambda r: "seen" if r.window.responses else call("look"),
    }
    async with world.open(script, agents=[lead], budget=Budget(tokens=100_000)) as sup:
        assert (await sup.start(agent("free"))).budget[0].node == "/"
        ref = await sup.start(lead, "go")
        await ref.wait_idle()
        tokens = ref.usage.total_tokens + (await sup.find("lead/kid")).usage.total_tokens
        top = ("/", "tokens", 100_000, tokens, 100_000 - tokens)
        above = [("lead", "usd", Decimal("0.5"), Decimal(0), Decimal("0.5")), ("lead", "model_calls", 9, 4, 5), top]
        assert shown(ref) == above
        assert shown(await sup.find("lead/kid")) == [("lead/kid", "tool_calls", 5, 1, 4), *above]
        ((mine, *_),) = seen
        assert mine == ("lead/kid", "tool_calls", 5, 1, 4)
        await sup.grant(ref, Budget(model_calls=3), by="operator")
        assert shown(ref)[1] == ("lead", "model_calls", 12, 4, 8)
    async with world.open(script, agents=[lead]) as sup:
        ref = await sup.find("lead")
        await trio.sleep(1)
        assert shown(ref) == [above[0], ("lead", "model_calls", 12, 4, 8)]
        assert (await sup.start(agent("free"))).budget == ()
