"""One process of many: it takes what is free, sends to what others run, asks, aborts, closes, and leaves in order."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import trio

from actors.errors import CallboardError, Corrupt, InternalError, Unavailable
from supervisor import open_supervisor
from supervisor.store.sqlite import open_sqlite_store
from tests.processes.world import lead_of, model_of

if TYPE_CHECKING:
    from actors import Agent
    from actors.ref import AgentRef, Receipt
    from supervisor import Supervisor
    from tests.processes.world import World

WORKERS: Final = 3
PATIENCE_S: Final = 4.0
RESUME_S: Final = 0.4


async def live(world: World, name: str, seconds: float) -> None:
    """Be an owner for so long. Where another was stopped as it wrote, opening says so: the next process tries again."""
    try:
        await _live(world, name, seconds)
    except Unavailable as error:
        if "another process has been about to write" not in str(error):
            raise
        _told(world, "open", error)


async def _live(world: World, name: str, seconds: float) -> None:
    async with (
        open_sqlite_store(world.store, owner=f"owner {name}", lease_s=world.lease_s) as store,
        open_supervisor(model=model_of(world), store=store, agents=[lead_of(world)], grace=1.0, hard=1.0) as sup,
        trio.open_nursery() as nursery,
    ):
        spec = sup._parts.kernel.registry["lead"]
        for number in range(WORKERS):
            dice = random.Random(f"{world.seed}:{name}:{number}")
            nursery.start_soon(_work, world, sup, spec, dice)
        nursery.start_soon(_resume, world, sup)
        nursery.start_soon(_decide, world, sup)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()


async def _resume(world: World, sup: Supervisor) -> None:
    while True:
        try:
            found = await sup.resume()
            world.log.tell("resumed", agents=len(found))
        except CallboardError as error:
            _told(world, "resume", error)
        await trio.sleep(RESUME_S)


async def _decide(world: World, sup: Supervisor) -> None:
    """Approve what waits for a word, and say so first."""
    while True:
        try:
            async with sup.approvals() as inbox:
                async for request in inbox:
                    world.log.tell("approving", call=request.call_id)
                    try:
                        await request.approve(by="a person")
                    except CallboardError as error:
                        _told(world, "approve", error)
        except CallboardError as error:
            _told(world, "approvals", error)
        await trio.sleep(RESUME_S)


async def _work(world: World, sup: Supervisor, spec: Agent, dice: random.Random) -> None:
    while True:
        await trio.sleep(dice.uniform(0.02, 0.3))
        what = dice.choices(tuple(_SHARES), tuple(_SHARES.values()))[0]
        with trio.move_on_after(PATIENCE_S):
            try:
                ref = await sup.start(spec, "go", key=world.tree(dice))
                if dice.random() < 0.2:
                    ref = await sup.find(f"{ref.path}/{dice.choice(('kid', 'helper'))}")
                await _do(world, ref, what, dice)
            except trio.TooSlowError:
                world.log.tell("slow", at=what)
            except CallboardError as error:
                _told(world, what, error)


_SHARES: Final = {
    "send": 30,
    "keyed": 14,
    "steer": 12,
    "interrupt": 3,
    "together": 5,
    "ask": 14,
    "withdraw": 8,
    "abort": 6,
    "abort all": 2,
    "close": 1,
    "kill": 0.5,
    "pause": 1,
}


async def _do(world: World, ref: AgentRef, what: str, dice: random.Random) -> None:
    text = f"{what} {dice.getrandbits(32):x}"
    match what:
        case "send":
            _accepted(world, await ref.send(text))
        case "keyed":  # the same key is used by several processes, and again by this one
            key = f"k{dice.randrange(12)}"
            _accepted(world, await ref.send(f"keyed {key}", key=key), key)
        case "steer":
            _accepted(world, await ref.steer(text))
        case "interrupt":
            _accepted(world, await ref.steer(text, interrupt=True))
        case "together":
            for receipt in await ref.send_many([text, f"{text} too"]):
                _accepted(world, receipt)
        case "ask":
            report = await ref.ask(text, timeout=PATIENCE_S / 2)
            world.log.tell("answered", agent=ref.path, status=report.status)
        case "withdraw":
            receipt = await ref.send(text)
            _accepted(world, receipt)
            await trio.sleep(dice.uniform(0.0, 0.3))  # its owner has found it by then, and is about to take it
            world.log.tell("withdrawing", message=receipt.id)
            await receipt.withdraw()
        case "abort" | "abort all":
            await ref.abort("enough", subtree=what == "abort all")
            await ref.wait_aborted()
        case "close":
            await ref.close(grace=0.5)
            await ref.wait_closed()
        case "kill":
            await ref.kill("now")
        case "pause":
            await ref.pause()
            await trio.sleep(0.2)
            await ref.wake()
        case _:
            raise AssertionError(what)
    world.log.tell("did", verb=what)


def _accepted(world: World, receipt: Receipt, key: str | None = None) -> None:
    world.log.tell("accepted", message=receipt.id, agent=receipt.path, key=key)


def _told(world: World, what: str, error: CallboardError) -> None:
    """Errors that say what happened are part of a life; those of ours, and of a damaged store, are not."""
    bad = isinstance(error, InternalError | Corrupt)
    world.log.tell("broken" if bad else "error", verb=what, error=type(error).__name__, text=str(error))
