"""A generated world: trees of agents, tools of every effect and behaviour, and the log of their effects outside."""

from __future__ import annotations

import random
from collections import Counter
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from actors import Agent, Budget, Child, Compaction, Context, Hooks, Limits, tool
from actors.hooks import Compact, Send, Steer
from actors.ids import name_of, parent_path
from actors.messages import LaneBound
from tests.life.faults import History
from tests.life.trace import Trace

if TYPE_CHECKING:
    from actors.hooks import Answer, Moment
    from actors.tools import Tool

HOWS: Final = ("quick", "quick", "slow", "slow", "fail", "stubborn", "swallow", "long", "tell")
EFFECTS: Final = {"act": "once", "mend": "idempotent", "look": "pure", "keep": "store", "gated": "once"}
"""The tools whose effects outside are logged, with their effect classes."""
MOST_CHILDREN: Final = 10
MOST_REQUESTS: Final = 60
"""A life bounds itself: behind so many, models only answer, and no tool starts anybody."""
MOST_SHARED: Final = 25
"""Likewise where several processes live it: what they find they find between them, not in long conversations."""


@attrs.frozen
class Effect:
    """A tool began its work outside.

    Attributes:
        place: how many commits were written before it. arguments: as the body got them.
        at: when, in virtual seconds.
    """

    process: int
    call: str
    tool: str
    effect: str
    key: str
    arguments: tuple[object, ...]
    place: int
    at: float


WORLD: Final[ContextVar[World]] = ContextVar("world")
"""The world of the life that is lived: tools are made once, for all of them."""


class LifeHooks(Hooks):
    """Hooks that take their time, fail at times, and answer now and then. `world`: whose dice they throw."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked = 0

    async def before_turn(self, at: Moment) -> Answer:
        return await self._any(at, "before_turn")

    async def after_response(self, at: Moment) -> Answer:
        return await self._any(at, "after_response")

    async def settled(self, at: Moment) -> Answer:
        return await self._any(at, "settled")

    async def _any(self, at: Moment, point: str) -> Answer:
        self._asked += 1
        dice = self._world.dice(f"hook:{at.agent}:{point}:{self._asked}")
        if dice.random() < 0.3:
            await trio.sleep(dice.random())
        if self._world.healed or self._asked > 30:
            return None
        draw = dice.random()
        if draw < 0.06:
            msg = "the hook fails"
            raise ValueError(msg)
        answers: dict[str, Answer] = {"steer": Steer("hooked"), "send": Send("hooked"), "compact": Compact()}
        if draw < 0.2:
            how = dice.choice(tuple(answers))
            self._world.trace.count(f"hook {how}")
            return answers[how]
        return None


@attrs.define(eq=False)
class World:
    """All that one life has, whichever process lives it.

    Attributes:
        owners: how many processes live at a time.
        specs: the roots; registry: every spec by name. dead: the tokens of processes that crashed.
        effects: what tools did outside, in order. problems: promises that were seen broken while it ran.
        asked: requests per agent. requests: all of them. healed: from now on everything answers and nothing fails.
        stopped: some process stands still.
        crashes: processes that died. cut: agents with a request that a process left open.
    """

    seed: str
    owners: int = 1
    trace: Trace = attrs.field(factory=Trace)
    history: History = attrs.field(factory=History)
    specs: tuple[Agent, ...] = attrs.field(init=False)
    registry: dict[str, Agent] = attrs.field(factory=dict)
    effects: list[Effect] = attrs.field(factory=list)
    problems: list[str] = attrs.field(factory=list)
    asked: Counter[str] = attrs.field(factory=Counter)
    dead: set[str] = attrs.field(factory=set)
    cut: set[str] = attrs.field(factory=set)
    answered: int = 0
    healed: bool = False
    stopped: bool = False
    crashes: int = 0

    def __attrs_post_init__(self) -> None:
        """Make the specs."""
        self.specs = generated(self)

    def dice(self, what: str) -> random.Random:
        """Dice of their own for one purpose: what is thrown for one never moves another."""
        return random.Random(f"{self.seed}:{what}")

    @property
    def paths(self) -> list[str]:
        """The agents that were made, in order."""
        return self.history.paths

    @property
    def requests(self) -> int:
        """How many requests reached a model."""
        return self.asked.total()

    @property
    def spent(self) -> bool:
        """Whether this life has done enough."""
        return self.healed or self.requests > (MOST_REQUESTS if self.owners == 1 else MOST_SHARED)

    def began(self, ctx: Context, arguments: tuple[object, ...]) -> bool:
        """A tool's body is entered; returns whether its process lives: what a dead one does never happened."""
        token = process_of(ctx)
        if token in self.dead:
            return False
        effect = Effect(
            process=int(token[1:]),
            call=ctx.call_id,
            tool=ctx.name,
            effect=EFFECTS[ctx.name],
            key=ctx.idempotency_key,
            arguments=arguments,
            place=len(self.history.applied),
            at=trio.current_time(),
        )
        self.effects.append(effect)
        self.trace.count(f"effect {effect.effect}")
        self.trace.say(f"p{effect.process} {ctx.name} begins {effect.call} {arguments}")
        return True


def process_of(ctx: Context) -> str:
    """Which process a call runs in."""
    return ctx._host._parts.kernel.token  # type: ignore[attr-defined,no-any-return]  # behind the port


# -- tools -----------------------------------------------------------------------------------------------------------


async def work(ctx: Context, how: str, n: int) -> str:
    """What a tool does, in its way."""
    world = WORLD.get()
    if not world.began(ctx, (how, n)):
        return "dead"
    world.trace.count(f"tool {how}")
    dice = world.dice(f"tool:{ctx.call_id}")
    match "quick" if world.healed else how:
        case "slow":
            await trio.sleep(dice.uniform(0.1, 4))
        case "fail":
            await trio.sleep(0.05)
            msg = "it does not work"
            raise ValueError(msg)
        case "stubborn":
            with trio.CancelScope(shield=True):
                await trio.sleep(dice.uniform(0.5, 15))
        case "swallow":
            try:
                await trio.sleep(3)
            except trio.Cancelled:  # noqa: ASYNC103 - the very fault that is to be lived with
                return "swallowed"  # noqa: ASYNC104 - likewise
        case "long":
            return "long " * 300
        case "tell":
            ctx.progress("half", done=1, total=2)
            await ctx.kv.agent.set("n", n)
        case _:
            await trio.lowlevel.checkpoint()
    return f"did {n}"


@cache
def tools(*, patient: bool) -> tuple[Tool[..., Any], ...]:
    """Every tool there is; a patient one ends a ring of waits only where the runtime does."""

    @tool(effect="once", timeout=6)
    async def act(ctx: Context, how: str, n: int) -> str:
        """Act outside, once."""
        return await work(ctx, how, n)

    @tool(effect="idempotent", resource=lambda n: f"r{n % 2}")
    async def mend(ctx: Context, how: str, n: int) -> str:
        """Act outside under a key."""
        return await work(ctx, how, n)

    @tool(effect="pure")
    def look(ctx: Context, how: str, n: int) -> str:
        """Look: a plain function, as a thread would run it."""
        world = WORLD.get()
        if not world.began(ctx, (how, n)):
            return "dead"
        if how == "fail" and not world.healed:
            msg = "nothing to see"
            raise ValueError(msg)
        return f"saw {n}"

    @tool(effect="store", exclusive=True)
    async def keep(ctx: Context, how: str, n: int) -> str:
        """Keep something in the store."""
        return await work(ctx, how, n)

    @tool(effect="once", approve=True, approve_timeout=20)
    async def gated(ctx: Context, how: str, n: int) -> str:
        """Act outside, if a person lets it."""
        return await work(ctx, how, n)

    return (act, mend, look, keep, gated, *social(patient=patient))


def social(*, patient: bool) -> tuple[Tool[..., Any], ...]:
    """Tools that turn to other agents."""

    @tool(effect="once")
    async def tell(ctx: Context, path: str) -> str:
        """Send another agent a message."""
        WORLD.get().trace.count("tool sends")
        receipt = await ctx.send(path, f"from {ctx.agent}")
        return receipt.state.value

    @tool(effect="pure", timeout=None if patient else 25)
    async def question(ctx: Context, path: str) -> str:
        """Ask another agent, and wait."""
        WORLD.get().trace.count("tool asks")
        return (await ctx.ask(path, f"why, {name_of(ctx.agent)}?", timeout=None if patient else 20)).text

    @tool(effect="once")
    async def hire(
        ctx: Context,
        name: str,
        background: bool,  # noqa: FBT001 - as a model gives it
        wait: bool,  # noqa: FBT001 - likewise
    ) -> str:
        """Start a child."""
        world = WORLD.get()
        if len(world.paths) >= MOST_CHILDREN or world.spent:
            return "enough"
        world.trace.count("tool starts a child")
        kid = await ctx.start(world.registry[name], "help", background=background)
        return (await kid.wait_report()).text if wait else kid.path

    return tell, question, hire


# -- agents ----------------------------------------------------------------------------------------------------------


def generated(world: World) -> tuple[Agent, ...]:
    """The specs of a life: one or two roots, with up to three levels below."""
    dice = world.dice("specs")
    known = tools(patient=world.owners > 1 and world.dice("patience").random() < 0.5)
    names = iter("abcdefghijklmnopqrstuvwxyz")
    budget_left = [6]

    def made(depth: int) -> Agent:
        name = f"{next(names)}{depth}"
        kids: list[Child] = []
        while depth < 3 and budget_left[0] > 0 and dice.random() < 0.55:
            budget_left[0] -= 1
            kid = made(depth + 1)
            part = Budget(tool_calls=dice.randint(2, 8)) if dice.random() < 0.2 else None
            kids.append(Child(kid, background=dice.random() < 0.35, budget=part))
        spec = world.registry[name] = Agent(
            name, f"You are {name}.", tools=dice.sample(known, dice.randint(4, len(known))), children=kids,
            limits=_limits(dice), budget=_budget(dice, depth), compaction=_compaction(dice),
            drain={"steer": dice.choice(("one", "all")), "send": dice.choice(("one", "all"))},
            hooks=LifeHooks(world) if dice.random() < 0.3 else None,
        )  # fmt: skip
        return spec

    return tuple(made(0) for _ in range(dice.choice((1, 1, 2) if world.owners == 1 else (2, 2, 3))))


def _limits(dice: random.Random) -> Limits:
    lane = LaneBound(messages=dice.choice((3, 1000)))
    return Limits(
        model_calls_per_turn=dice.choice((3, 8, 8)), parallel_calls=dice.choice((1, 2, 8)), send=lane, steer=lane,
        calls_per_response=dice.choice((2, 8)), result_chars=dice.choice((100, 64_000)), attempts=dice.choice((1, 3)),
        first_event_s=5.0, between_events_s=5.0, turn_s=dice.choice((None, None, 20.0)), hard_s=2.0,
        approve_s=dice.choice((None, 10.0)), poison_limit=dice.choice((1, 2, 3)),
    )  # fmt: skip


def _budget(dice: random.Random, depth: int) -> Budget | None:
    if dice.random() < (0.5 if depth == 0 else 0.85):
        return None
    how = dice.choice(("wrap_up", "park", "fail"))
    return Budget(model_calls=dice.randint(3, 25), tokens=dice.randint(2_000, 60_000), on_exhausted=how)


def _compaction(dice: random.Random) -> Compaction | None:
    return (
        Compaction(at=dice.choice((None, 0.5, 0.8)), keep=dice.choice((0.0, 0.25, 0.6)))
        if dice.random() < 0.5
        else None
    )


def ancestors(path: str) -> tuple[str, ...]:
    """The paths above, the nearest first."""
    found = []
    while path := parent_path(path):
        found.append(path)
    return tuple(found)
