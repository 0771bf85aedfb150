"""One run from end to end: owners under the driver, a fresh owner that heals all of it, the judge."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from actors.errors import AgentClosed, CallboardError, UnknownPath
from supervisor import open_supervisor
from supervisor.store.sqlite import open_sqlite_store
from tests.processes.driver import Driver
from tests.processes.judge import judge
from tests.processes.log import Log, read
from tests.processes.raw import asked
from tests.processes.world import World, lead_of, model_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from supervisor import Supervisor

HEAL_S: Final = 60.0


@attrs.define
class Ran:
    """A run. `errors`: what verbs raised, by name. `ended`: those of its problems that are an owner's own end."""

    counts: Counter[str] = attrs.field(factory=Counter)
    errors: Counter[str] = attrs.field(factory=Counter)
    problems: list[str] = attrs.field(factory=list)
    ended: int = 0


def run(folder: Path, *, seed: str, seconds: float, lease_s: float, say: Callable[[str], None]) -> Ran:
    """Run once, in a folder of its own."""
    store = folder / "agents.db"
    world = World(store, Log(folder / "log.jsonl"), seed, time.monotonic(), lease_s)
    trio.run(_made, store)
    driver = Driver(world, folder, say=say)
    driver.run(seconds)
    ran = Ran(driver.counts, problems=driver.problems, ended=driver.ended)
    began = time.monotonic()
    ran.problems += trio.run(_healed, attrs.evolve(world, healing=True))
    ran.counts["seconds to heal"] = round(time.monotonic() - began)
    world.log.close()
    facts = read(folder / "log.jsonl")
    verdict = trio.run(judge, store, facts)
    ran.problems += verdict.problems
    ran.counts.update(verdict.counts)
    ran.counts["takeovers"] = _takeovers(store)
    ran.errors.update(f"{fact['error']} of {fact['verb']}" for fact in facts if fact["what"] == "error")
    return ran


async def _made(store: Path) -> None:
    async with open_sqlite_store(store, owner="the driver"):
        pass


def _takeovers(store: Path) -> int:
    ((row,),) = asked(store, "SELECT coalesce(sum(epoch - 1), 0) FROM trees")
    found: int = row[0]
    return found


async def _healed(world: World) -> list[str]:
    """A fresh owner takes all there is and goes on with it, until nothing is owed."""
    owed: object = "not even begun"
    with trio.move_on_after(HEAL_S):
        async with (
            open_sqlite_store(world.store, owner="the last owner", lease_s=world.lease_s) as store,
            open_supervisor(model=model_of(world), store=store, agents=[lead_of(world)], grace=5.0) as sup,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(_approve, world, sup)
            while owed := await _owed(world, sup):  # noqa: ASYNC110 - a store has no event
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        return []
    return [f"ACC-8: not at rest after {HEAL_S:.0f} s: {str(owed)[:2_000]}"]


async def _owed(world: World, sup: Supervisor) -> list[Any]:
    """What is still owed, once all of it was gone on with."""
    try:
        await sup.resume()
        holding, trees = asked(
            world.store, "SELECT DISTINCT agent FROM messages WHERE state = 'held'", "SELECT tree FROM trees"
        )
        held = {row[0] for row in holding}
        for agent in held.union(row.agent for row in await sup.tree() if row.suspended == "paused"):
            with suppress(AgentClosed):  # it was closed while it was paused
                await (await sup.find(agent)).wake()
        for (tree,) in trees:
            try:
                await sup.find(tree)
            except UnknownPath:  # its maker was killed between taking the tree and making its root
                await sup.store.own(tree, sup._parts.kernel.ownership.holder)
        return [*await sup.store.agents_with_work(), *await sup.store.awaiting_calls(), *held]
    except CallboardError as error:
        return [error]


async def _approve(world: World, sup: Supervisor) -> None:
    async with sup.approvals() as inbox:
        async for request in inbox:
            world.log.tell("approving", call=request.call_id)
            try:
                await request.approve(by="the last owner")
            except CallboardError as error:
                world.log.tell("error", verb="approve", error=type(error).__name__, text=str(error))


def new_seed() -> str:
    """A seed that nobody gave."""
    return str(secrets.randbelow(1_000_000))
