"""What small whole lives are made of: tools of each effect class, models that know their part, people who drive.

A driver is a program as users write it: it starts and sends under keys, and after a crash it does all of it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import trio

from actors import Agent, Child, Context, MailboxError, NotCompacted, tool
from actors.errors import LifecycleError
from actors.transcript import MessageRecord, ResultRecord
from tests.points.dying import Process
from tests.points.table import Moment, Phase
from tests.supervisor.promises.world import said

if TYPE_CHECKING:
    from actors.ports import ModelRequest
    from actors.tools import Tool
    from supervisor import AgentRef, Receipt, Supervisor
    from supervisor.store.base import Store
    from tests.points.outside import Outside

Driver: TypeAlias = "Callable[[Person, Supervisor, Agent], Awaitable[None]]"
Play: TypeAlias = "Callable[[ModelRequest, Process], object]"
Holds: TypeAlias = "Callable[[Store, Outside], Awaitable[list[str]]]"
LONG: Final = "word " * 300
TOME: Final = "0123456789" * 7_000
"""More than one piece of what is kept."""


@attrs.define(eq=False)
class Person:
    """Whoever drives: what was acknowledged is not done again, the rest is, under the same keys."""

    process: Process

    @property
    def outside(self) -> Outside:
        """What no crash forgets."""
        return self.process.outside

    async def send(self, ref: AgentRef, text: str) -> Receipt | None:
        """Send under a key; None where the agent takes nothing any more."""
        return await self._took(text, partial(ref.send, text, key=text))

    async def steer(self, ref: AgentRef, text: str, *, interrupt: bool = False) -> Receipt | None:
        """Steer under a key; None where the agent takes nothing any more."""
        return await self._took(text, partial(ref.steer, text, key=text, interrupt=interrupt))

    async def _took(self, text: str, verb: Callable[[], Awaitable[Receipt]]) -> Receipt | None:
        try:
            receipt = await verb()
        except (LifecycleError, MailboxError):
            return None
        if self.outside.accepted.setdefault(text, receipt.id) != receipt.id:
            self.outside.problems.append(f"ACC-7: {text!r} is {receipt.id}, and was {self.outside.accepted[text]}")
        return receipt

    async def once(self, name: str, verb: Callable[[], Awaitable[object]]) -> None:
        """Order something, until it was acknowledged."""
        if name in self.outside.done:
            return
        await verb()
        self.outside.done.add(name)


@attrs.frozen
class Scene:
    """One of them.

    Attributes:
        agents: makes the specs, the first the root. play: what the model answers. drive: what the person does.
        most: model calls that its budget allows in all, or None; what is granted comes on top.
        kills: the model ends its process by itself. holds: what must hold of its end beside what holds of all.
    """

    name: str
    agents: Callable[[Callable[[], Process]], tuple[Agent, ...]]
    play: Play
    drive: Driver
    most: int | None = None
    kills: bool = False
    holds: Holds | None = None


# -- tools -----------------------------------------------------------------------------------------------------------


def tools(now: Callable[[], Process]) -> dict[str, Tool[..., Any]]:
    """One of each effect class, and some that take their time."""

    async def work(ctx: Context, effect: str, seconds: float) -> str:
        await now().enter(ctx, effect)
        await trio.sleep(seconds)
        now().passes("tool:exit")
        return f"{ctx.name} did"

    @tool(effect="once")
    async def act(ctx: Context) -> str:
        """Act outside, once."""
        return await work(ctx, "once", 0.1)

    @tool(effect="once")
    async def slow(ctx: Context, seconds: float = 2.0) -> str:
        """Act outside, slowly."""
        return await work(ctx, "once", seconds)

    @tool(effect="idempotent")
    async def mend(ctx: Context) -> str:
        """Act outside under a key."""
        return await work(ctx, "idempotent", 0.1)

    @tool(effect="pure")
    async def look(ctx: Context) -> str:
        """Look."""
        return await work(ctx, "pure", 0.1)

    @tool(effect="store")
    async def keep(ctx: Context) -> str:
        """Keep something."""
        await ctx.kv.agent.set("kept", await ctx.kv.agent.get("kept", int, 0) + 1)
        return await work(ctx, "store", 0.1)

    @tool(effect="store")
    async def tell(ctx: Context) -> str:
        """Tell the agent itself."""
        await ctx.send(ctx.agent, "told by a store tool")
        return await work(ctx, "store", 0.1)

    @tool(effect="idempotent")
    async def post(ctx: Context) -> str:
        """Tell the agent itself, under a key."""
        await ctx.send(ctx.agent, "told by a keyed send", key=ctx.call_id)
        return await work(ctx, "idempotent", 0.1)

    @tool(effect="pure")
    async def tome(ctx: Context) -> str:
        """Read something long."""
        await work(ctx, "pure", 0.1)
        return TOME

    @tool(effect="once", approve=True)
    async def gated(ctx: Context) -> str:
        """Act outside, if a person lets it."""
        return await work(ctx, "once", 0.1)

    return {one.name: one for one in (act, slow, mend, look, keep, tell, post, tome, gated)}


def lone(*names: str, **options: Any) -> Callable[[Callable[[], Process]], tuple[Agent, ...]]:
    """One agent with these tools."""

    def make(now: Callable[[], Process]) -> tuple[Agent, ...]:
        made = tools(now)
        return (Agent("a", "Act.", tools=[made[name] for name in names], **options),)

    return make


def family(*, background: bool) -> Callable[[Callable[[], Process]], tuple[Agent, ...]]:
    """A lead and a child that acts."""

    def make(now: Callable[[], Process]) -> tuple[Agent, ...]:
        made = tools(now)
        kid = Agent("kid", "Help.", tools=[made["act"], made["slow"]])
        return (Agent("a", "Lead.", tools=[made["act"]], children=[Child(kid, background=background)]), kid)

    return make


# -- models ----------------------------------------------------------------------------------------------------------


def plays(**steps: Any) -> Play:
    """Answers a message by its first word with these calls, and everything else in words."""

    def play(request: ModelRequest, _: Process) -> object:
        if request.purpose != "turn":
            return "in short"
        last = request.window[-1]
        if isinstance(last, MessageRecord):
            return steps.get(said(last.content).partition(" ")[0], f"heard {said(last.content)}")
        return "fine"

    return play


def chain(*steps: Any) -> Play:
    """Asked to go, one step after another of one turn."""

    def play(request: ModelRequest, _: Process) -> object:
        done = 0
        for record in reversed(request.window):
            if isinstance(record, MessageRecord):
                return steps[done] if said(record.content) == "go" and done < len(steps) else "fine"
            done += isinstance(record, ResultRecord)
        return "fine"

    return play


def poisoned(request: ModelRequest, process: Process) -> object:
    """Asked for it, the process dies."""
    last = request.window[-1]
    if isinstance(last, MessageRecord) and said(last.content) == "poison" and not process.dead:
        process.seen.append(POISON)
        process.die()
    return "fine"


POISON: Final = Moment(Phase.AT, frozenset(("model:poison",)))

# -- people ---------------------------------------------------------------------------------------------------------


async def decide(sup: Supervisor, process: Process) -> None:
    """Approve whatever asks, a call that is like one of unknown outcome, too."""
    async with sup.approvals() as inbox:
        async for request in inbox:
            process.passes("person:sees")
            await trio.sleep(1)
            process.outside.approved.add(request.call_id)
            await request.approve(by="an operator")
            process.outside.decided.add(request.call_id)


async def goes(person: Person, sup: Supervisor, spec: Agent) -> None:
    """Give it a task and wait."""
    ref = await sup.start(spec, "go", key="scene")
    await ref.wait_idle()


async def talks(person: Person, sup: Supervisor, spec: Agent) -> None:
    """Two messages, one behind the other's answer."""
    ref = await sup.start(spec, key="scene")
    for text in ("go", "more"):
        receipt = await person.send(ref, text)
        assert receipt is not None, "it is open"
        await receipt.wait_report()


async def steers(person: Person, sup: Supervisor, spec: Agent) -> None:
    """Steer while a batch runs, and send behind it."""
    ref = await sup.start(spec, "go", key="scene")
    await trio.sleep(1)
    await person.steer(ref, "mind the gap")
    await person.send(ref, "more")
    await ref.wait_idle()


async def compacts(person: Person, sup: Supervisor, spec: Agent) -> None:
    """Make a long conversation, have it compacted, go on."""
    ref = await sup.start(spec, key="scene")
    for text in ("go", "again"):
        receipt = await person.send(ref, text)
        assert receipt is not None, "it is open"
        await receipt.wait_report()

    async def compact() -> None:
        try:
            await ref.compact()
            await ref.wait_compacted()
        except NotCompacted:
            pass  # the process before had done it

    await person.once("compact", compact)
    receipt = await person.send(ref, "more")
    assert receipt is not None, "it is open"
    await receipt.wait_report()


async def aborts(person: Person, sup: Supervisor, spec: Agent) -> None:
    """Abort a long call, and go on."""
    ref = await sup.start(spec, "go", key="scene")
    await trio.sleep(1)

    async def abort() -> None:
        await ref.abort("enough")
        await ref.wait_aborted()

    await person.once("abort", abort)
    await person.send(ref, "after")
    await ref.wait_idle()


async def closes(person: Person, sup: Supervisor, spec: Agent) -> None:
    """Close a tree whose child works."""
    ref = await sup.start(spec, "go", key="scene")
    await trio.sleep(1)
    await person.send(ref, "queued")
    if ref.state != "closed":
        await person.once("close", lambda: ref.close(grace=1))
    await ref.wait_closed()


async def dies(person: Person, sup: Supervisor, spec: Agent) -> None:
    """What kills every process that touches it, and something else behind it."""
    ref = await sup.start(spec, key="scene")
    await person.send(ref, "poison")
    await person.send(ref, "more")
    await ref.wait_idle()
