"""The agents that every process knows, their tools, and the model; all of them say in the log what they do."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from actors import Agent, Child, Context, Script, call, tool
from actors.transcript import MessageRecord, ResultRecord
from tests.processes.log import Log

if TYPE_CHECKING:
    from actors.ports import ModelRequest

TREES: Final = 4
"""How many trees are worked on at a time."""
GENERATION_S: Final = 10.0
"""After so long others are worked on: what was closed is replaced, and no conversation grows for ever."""
KINDS: Final = {"act": "once", "mend": "idempotent", "tell": "idempotent", "look": "pure", "note": "store"}
STEPS: Final = 3
"""After so many batches on end the model gives its answer."""


@attrs.frozen
class World:
    """One run: its file, what its choices are drawn from, and when it began, on the clock of `time.monotonic`."""

    store: Path
    log: Log
    seed: str
    began: float
    lease_s: float
    healing: bool = False

    def tree(self, dice: random.Random) -> str:
        """The key of a tree: mostly one of those that are worked on now."""
        generation = int((time.monotonic() - self.began) / GENERATION_S)
        if generation and dice.random() < 0.1:
            generation -= 1
        return f"tree-{generation}-{dice.randrange(TREES)}"


def lead_of(world: World) -> Agent:
    """The root of every tree."""
    tools = tools_of(world)
    kid = Agent("kid", "Help.", tools=tools)
    helper = Agent("helper", "Help in the background.", tools=tools)
    return Agent("lead", "Lead.", tools=tools, children=[kid, Child(helper, background=True)])


def tools_of(world: World) -> tuple[Any, ...]:
    """A tool of every effect class; its body's first line is a line of the log."""

    def entered(ctx: Context, n: int) -> str:
        mark = f"{random.getrandbits(48):x}"
        world.log.tell(
            "effect", call=ctx.call_id, key=ctx.idempotency_key, tool=ctx.name, n=n, mark=mark, epoch=_epoch(ctx)
        )
        return mark

    async def dawdle(n: int) -> None:
        await trio.sleep(0.002 if world.healing else (0.0, 0.02, 0.1, 0.3)[n % 4])
        if n == 5:
            msg = "it does not work"
            raise ValueError(msg)

    @tool(effect="once")
    async def act(ctx: Context, n: int) -> str:
        """Act outside, once."""
        mark = entered(ctx, n)
        await dawdle(n)
        return mark

    @tool(effect="idempotent")
    async def mend(ctx: Context, n: int) -> str:
        """Act outside under a key."""
        mark = entered(ctx, n)
        await dawdle(n)
        return mark

    @tool(effect="idempotent")
    async def tell(ctx: Context, n: int) -> str:
        """Send a message to another tree, or to this one."""
        mark = entered(ctx, n)
        to = "lead" if n < 2 else f"lead#{n}"
        await ctx.send(to, f"from {ctx.call_id}")
        await dawdle(n)
        return mark

    @tool(effect="pure")
    def look(ctx: Context, n: int) -> str:
        """Look, in a thread."""
        mark = entered(ctx, n)
        time.sleep(n / 50)
        return mark

    @tool(effect="store", exclusive=True)
    async def note(ctx: Context, n: int) -> str:
        """Note this call, and tell the root of it."""
        mark = entered(ctx, n)
        await ctx.kv.agent.set("notes", [*await ctx.kv.agent.get("notes", list, []), ctx.call_id])
        await ctx.send(ctx.agent.partition("/")[0], f"noted {ctx.call_id}")
        return mark

    return act, mend, tell, look, note


def _epoch(ctx: Context) -> int | None:
    """The epoch of whoever runs the call, for the story of a failure."""
    kernel = ctx._host._parts.kernel  # type: ignore[attr-defined]  # behind the port
    found: int | None = kernel.ownership.epochs.get(ctx.agent.partition("/")[0])
    return found


def model_of(world: World) -> Script:
    """What agents ask: it calls tools, starts children and answers, as drawn for each place of a conversation."""

    def answer(request: ModelRequest) -> object:
        world.log.tell("request", agent=request.agent)
        return _drawn(world, request)

    return Script(
        dict.fromkeys(("lead", "kid", "helper"), answer), latency_s=0 if world.healing else (0, 0.08), delta_chars=0
    )


def _drawn(world: World, request: ModelRequest) -> object:
    window = tuple(request.window)
    batches = 0
    for record in reversed(window):
        if isinstance(record, MessageRecord):
            break
        batches += not isinstance(record, ResultRecord)
    if world.healing or batches >= STEPS or request.tool_choice == "none":
        return "answered"
    dice = random.Random(f"{world.seed}:{request.agent}:{len(window)}")
    if dice.random() < (0.35 if batches == 0 else 0.65):
        return "answered"
    return [_call(request, dice) for _ in range(dice.choice((1, 1, 2, 3)))]


def _call(request: ModelRequest, dice: random.Random) -> object:
    name = dice.choice([*KINDS, "act", "act", "mend", "kid", "helper"])
    if name not in KINDS:
        if name not in {offer.name for offer in request.tools} or request.window.responses > 6:
            name = "act"
        else:
            return call(name, task="help")
    return call(name, n=dice.randrange(6))
