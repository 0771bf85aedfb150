"""What happens to a life from outside: messages, aborts, closes, decisions, at random moments; each bounded in time."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from actors import Budget, CallboardError
from actors.content import Pinned
from actors.errors import AgentClosed, Conflict, InternalError
from actors.ids import AgentId
from actors.messages import Selection
from supervisor import AgentRef, Receipt, Supervisor
from tests.life.faults import LifeStore
from tests.life.world import World

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable


WAITS_S: Final = (0.0, 0.1, 1.0, 5.0, 20.0)
MODELS: Final = ("script:one", "script:two")


@attrs.define(eq=False)
class Process:
    """One supervisor of a life, and what those who talk to it hold.

    Attributes:
        accepted: ids of messages whose acceptance was returned. receipts: what their senders hold.
        posted: receipts of posts, which may have been refused. broken: a verb raised what it never may.
    """

    world: World
    number: int
    sup: Supervisor
    store: LifeStore
    receipts: list[Receipt] = attrs.field(factory=list)
    posted: list[Receipt] = attrs.field(factory=list)
    broken: list[str] = attrs.field(factory=list)
    left: bool = False

    def took(self, *receipts: Receipt) -> None:
        """Acceptance was returned."""
        self.receipts += receipts

    def any_ref(self, dice: random.Random) -> AgentRef | None:
        """Some agent; those made early come more often."""
        paths = self.world.paths
        if not paths:
            return None
        path = paths[min(dice.randrange(len(paths)), dice.randrange(len(paths)))]
        return AgentRef(self.sup._parts.desk, AgentId(path))


async def drive(process: Process, dice: random.Random, actions: int) -> None:
    """Do so many things, with pauses between."""
    world = process.world
    for _ in range(actions):
        await trio.sleep(dice.choice((0.0, 0.05, 0.5, 3.0)) * dice.random())
        ref = process.any_ref(dice)
        if ref is None:
            continue
        verb = dice.choice(VERBS)
        world.trace.count(verb.__name__.strip("_"))
        world.trace.say(f"p{process.number} {verb.__name__.strip('_')} {ref.path}")
        try:
            await verb(process, ref, dice)
        except (CallboardError, trio.TooSlowError) as error:
            world.trace.say(
                f"p{process.number} {verb.__name__.strip('_')} {ref.path}: {type(error).__name__}: {error}"[:300]
            )
            if isinstance(error, InternalError | Conflict):  # that another wrote meanwhile is nobody's but the store's
                process.broken.append(f"54: {verb.__name__} raised {error!r}")


async def _for_a_while(dice: random.Random, wait: Callable[[], Awaitable[object]]) -> None:
    with trio.move_on_after(dice.choice(WAITS_S)):
        await wait()


# -- verbs -----------------------------------------------------------------------------------------------------------


async def _send(process: Process, ref: AgentRef, dice: random.Random) -> None:
    key = f"k{dice.randrange(4)}" if dice.random() < 0.2 else None
    content: Any = f"about {key}" if key else f"m{dice.randrange(1000)}"
    content = Pinned(content) if dice.random() < 0.1 else content
    receipt = await ref.send(content, key=key, ttl=dice.choice((None, None, None, 0.5, 5.0)))
    process.took(receipt)
    if dice.random() < 0.3:
        await _for_a_while(dice, receipt.wait_report)


async def _steer(process: Process, ref: AgentRef, dice: random.Random) -> None:
    process.took(await ref.steer(f"s{dice.randrange(1000)}"))


async def _interrupt(process: Process, ref: AgentRef, dice: random.Random) -> None:
    process.took(await ref.steer(f"i{dice.randrange(1000)}", interrupt=True))


async def _post(process: Process, ref: AgentRef, dice: random.Random) -> None:
    receipt = ref.post(f"p{dice.randrange(1000)}", steer=dice.random() < 0.3)
    process.posted.append(receipt)
    if dice.random() < 0.5:
        await receipt.wait_accepted()
        process.took(receipt)


async def _send_many(process: Process, ref: AgentRef, dice: random.Random) -> None:
    process.took(*await ref.send_many([f"n{dice.randrange(1000)}" for _ in range(dice.choice((2, 3)))]))


async def _withdraw(process: Process, ref: AgentRef, dice: random.Random) -> None:
    receipt = await ref.send("never mind")
    process.took(receipt)
    if dice.random() < 0.5:
        await trio.sleep(dice.random())
    await receipt.withdraw()


async def _ask(process: Process, ref: AgentRef, dice: random.Random) -> None:
    await ref.ask("?", timeout=dice.choice(WAITS_S), output=int if dice.random() < 0.2 else None)


async def _abort(process: Process, ref: AgentRef, dice: random.Random) -> None:
    await ref.abort("dice", subtree=dice.random() < 0.5)
    if dice.random() < 0.5:
        await _for_a_while(dice, ref.wait_aborted)


async def _close(process: Process, ref: AgentRef, dice: random.Random) -> None:
    if dice.random() < 0.5:
        return  # or too little would live
    await ref.close(grace=dice.choice((0.0, 1.0, 10.0)))
    if dice.random() < 0.5:  # orders come while it ends
        for _ in range(dice.randint(1, 4)):
            await trio.sleep(dice.choice((0.02, 0.2, 1.0)) * dice.random())
            below = [path for path in process.world.paths if path.startswith(ref.path)]
            met = AgentRef(process.sup._parts.desk, AgentId(dice.choice(below or [ref.path])))
            with suppress(AgentClosed):
                await dice.choice((met.abort, met.pause, met.wake, met.close))()
    if dice.random() < 0.8:
        await _for_a_while(dice, ref.wait_closed)


async def _kill(process: Process, ref: AgentRef, dice: random.Random) -> None:
    if dice.random() < 0.3:
        await ref.kill("dice")


async def _pause(process: Process, ref: AgentRef, dice: random.Random) -> None:
    await ref.pause()
    if dice.random() < 0.7:
        await trio.sleep(dice.random() * 3)
        await ref.wake()


async def _wake(process: Process, ref: AgentRef, dice: random.Random) -> None:
    await ref.wake()


async def _compact(process: Process, ref: AgentRef, dice: random.Random) -> None:
    await ref.compact()
    if dice.random() < 0.5:
        await _for_a_while(dice, ref.wait_compacted)


async def _select(process: Process, ref: AgentRef, dice: random.Random) -> None:
    chosen = Selection(model=dice.choice((*MODELS, "")), effort=dice.choice((None, "low")))
    process.took(await ref.send("with that", select=chosen))


async def _cancel_call(process: Process, ref: AgentRef, dice: random.Random) -> None:
    life = process.sup._parts.lives.get(ref.path)
    running = () if life is None else tuple(life.calls.running)
    if running:
        ref.cancel_call(dice.choice(running), "dice")


async def _grant(process: Process, ref: AgentRef, dice: random.Random) -> None:
    await process.sup.grant(ref, Budget(model_calls=dice.randint(1, 5)), by="the operator")


async def _wait(process: Process, ref: AgentRef, dice: random.Random) -> None:
    await _for_a_while(dice, dice.choice((ref.wait_idle, ref.wait_report, ref.wait_aborted, ref.wait_compacted)))


async def _put_back(process: Process, ref: AgentRef, dice: random.Random) -> None:
    dead = await process.sup.dead_letters(ref)
    if dead:
        letter = dice.choice(dead)
        if dice.random() < 0.5:  # its agent is at something else then
            with suppress(CallboardError):
                await AgentRef(process.sup._parts.desk, letter.agent).compact()
            await trio.sleep(dice.random() / 2)
        process.took(await process.sup.put_back(letter.message, by="the operator"))


async def _start(process: Process, ref: AgentRef, dice: random.Random) -> None:
    spec = dice.choice(process.world.specs)
    if len(process.world.paths) < 8:
        await process.sup.start(spec, "begin", key=dice.choice((None, "one")))


async def _run(process: Process, ref: AgentRef, dice: random.Random) -> None:
    with trio.move_on_after(dice.choice(WAITS_S)):
        await process.sup.run(process.world.specs[0], "run", key="run")


Verb = "Callable[[Process, AgentRef, random.Random], Awaitable[None]]"
VERBS: Final = (
    *(_send,) * 6, *(_steer,) * 3, *(_interrupt,) * 3, *(_post,) * 2, *(_send_many,) * 2, _withdraw, _ask, _ask,
    _abort, _abort, _close, _kill, _pause, _pause, _wake, _compact, _compact, _select, _select, _cancel_call,
    _cancel_call, _grant, _grant, _wait, _wait, _put_back, _start, _run,
)  # fmt: skip


# -- people ----------------------------------------------------------------------------------------------------------

FAITHFUL: Final = ("approve", "approve", "deny", "twice")
"""What somebody may do who is there for as long as anything waits: such a request is handed out once, and may have no
end of its own, so to leave it would be to leave it for good."""
FITFUL: Final = (*FAITHFUL, "ignore")


async def decide(  # noqa: ASYNC114 - it is started in one place, in a nursery that stays
    process: Process, dice: random.Random, may: tuple[str, ...], task_status: trio.TaskStatus[None]
) -> None:
    """Somebody who decides on calls: approves, denies, twice at times, or, where they may, lets them expire."""
    world = process.world
    with suppress(CallboardError):
        async with process.sup.approvals() as inbox:
            task_status.started()
            async for request in inbox:
                draw = "deny" if world.healed else dice.choice(may)
                world.trace.count(f"decision {draw}")
                if not world.healed:
                    await trio.sleep(dice.random() * 2)
                for again in range({"ignore": 0, "twice": 2}.get(draw, 1)):
                    with suppress(CallboardError):
                        await (request.deny("no", by="x") if draw == "deny" or again else request.approve(by="x"))
        return
    task_status.started()
