"""A whole life, cut off at every checkpoint, at every commit, and under many orders of its tasks."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from actors import CallboardError
from supervisor.store.faults import Fault, FaultyStore
from tests.supervisor.promises.lives import HANG, Life, go_on, hold, model
from tests.supervisor.promises.scheduling import CancelAt, Sched, simulate
from tests.supervisor.promises.world import World, watched

if TYPE_CHECKING:
    from pathlib import Path

    from supervisor import AgentRef, Supervisor
    from supervisor.store.base import Store

EVERY = {"memory": 1, "sqlite": 9}
EVERY_COMMIT = {"memory": 1, "sqlite": 4}
"""In the file every so many; in memory all."""


async def pause(_: object) -> None:
    """A commit takes a moment before it is written, and one until it is told."""
    await trio.lowlevel.checkpoint()


# -- every checkpoint ------------------------------------------------------------------------------------------------


async def cut_at(world: World, cancel: CancelAt) -> None:
    """Live until the n-th step, be cancelled, look at what is left, and let the next owner go on."""
    life = Life()
    with trio.CancelScope() as scope:
        cancel.arm(scope)
        async with world.open(model(life)) as sup:
            world.spy.before = world.spy.after = pause
            await life.live(sup)
        cancel.disarm()
    cancel.disarm()
    async with world.store() as store:
        await hold(store, life)
    async with world.open(model(life), agents=[life.lead]) as sup:
        await go_on(sup, life)


@pytest.mark.parametrize("kind", EVERY)
def test_checkpoints_a_life_cancelled_at_any_step_loses_nothing(kind: str, tmp_path: Path) -> None:
    """Cancelled behind step 1, 2, 3 … until the life is over: the store is whole, and the next owner finishes."""
    at = 1
    while True:
        cancel = CancelAt(at)
        folder = tmp_path / str(at)
        folder.mkdir()
        try:
            simulate(partial(cut_at, World(kind, folder), cancel), Sched(0), cancel)
        except BaseException as error:
            error.add_note(f"replay: simulate(cut_at, Sched(0), CancelAt({at})) over a {kind} store")
            raise
        if not cancel.hit:
            break
        at += EVERY[kind]
    assert at > 100, "a life has more steps than that"


# -- every commit ----------------------------------------------------------------------------------------------------


async def fail_at(world: World, at: int, *, when: Fault, forever: bool) -> bool:
    """Live with the n-th commit failing; returns whether there was one."""
    life = Life()
    faulty: list[FaultyStore] = []

    def wrap(store: Store) -> Store:
        faulty.append(FaultyStore(store, at=at, when=when, forever=forever))
        return faulty[0]

    async with world.open(model(life), wrap=wrap, grace=5.0, hard=2.0) as sup:
        world.spy.before = world.spy.after = pause
        try:
            with trio.fail_after(200):
                await life.live(sup)
        except (CallboardError, trio.TooSlowError):
            pass
        if not forever:
            await go_on(sup, life)  # the same supervisor, too, goes on
    async with world.store() as store:
        await hold(store, life)
    async with world.open(model(life), agents=[life.lead]) as sup:
        await go_on(sup, life)
    return bool(faulty[0].faults)


@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-ever"])
@pytest.mark.parametrize("when", list(Fault), ids=[fault.value for fault in Fault])
@pytest.mark.parametrize("kind", EVERY)
def test_commits_a_life_whose_nth_commit_fails_loses_nothing(
    kind: str,
    when: Fault,
    forever: bool,  # noqa: FBT001 - parametrised
    tmp_path: Path,
) -> None:
    """Failed at commit 1, 2, 3 …, before it was written or ambiguously after, once or from then on.

    Nothing that was accepted is lost, nothing is done twice, and the next owner finishes.
    """
    step = EVERY_COMMIT[kind]
    at = 1 if kind == "memory" else 1 + 2 * list(Fault).index(when) + forever  # in the file, one in four of each
    while True:
        folder = tmp_path / str(at)
        folder.mkdir()
        try:
            hit = simulate(partial(fail_at, World(kind, folder), at, when=when, forever=forever), Sched(0))
        except BaseException as error:
            error.add_note(
                f"replay: fail_at(world, {at}, when={when}, forever={forever}) over a {kind} store, Sched(0)"
            )
            raise
        if not hit:
            break
        at += step
    assert at > 10, "a life has more commits than that"


# -- many orders -----------------------------------------------------------------------------------------------------


async def wild(sup: Supervisor, life: Life, seed: int) -> None:
    """Three tasks do what the dice say to one tree."""
    lead = await sup.start(life.lead, "work", key="wild")

    async def task(dice: random.Random) -> None:
        for _ in range(6):
            try:
                with trio.fail_after(300):
                    await act(dice, lead)
            except (CallboardError, trio.TooSlowError):
                pass

    async def act(dice: random.Random, ref: AgentRef) -> None:
        match dice.randrange(11):
            case 0 | 1:
                life.took(await ref.send(f"m{dice.random()}"))
            case 2:
                life.took(await ref.steer(f"s{dice.random()}", interrupt=dice.random() < 0.5))
            case 3:
                receipt = ref.post(f"p{dice.random()}")
                await receipt.wait_accepted()
                life.took(receipt)
            case 4:
                for receipt in await ref.send_many(["work", f"n{dice.random()}"]):
                    life.took(receipt)
            case 5:
                await ref.ask("?", timeout=dice.random())
            case 6:
                await ref.abort("dice", subtree=dice.random() < 0.5)
                if dice.random() < 0.5:
                    await ref.wait_aborted()
            case 7:
                await ref.wake()
            case 8:
                await trio.sleep(dice.random() * 0.3)
            case 9:
                receipt = life.took(await ref.send(HANG))
                if dice.random() < 0.5:
                    await receipt.withdraw()
            case _:
                await ref.wait_idle()

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(task, random.Random(f"{seed}:{number}"))
    if seed % 3 == 0:
        await lead.close(grace=3)
        if seed % 2 == 0:
            await lead.wait_closed()


async def wild_life(world: World, seed: int) -> str:
    """One random life and what comes after; returns its log, for comparing."""
    life = Life()
    async with world.open(model(life), grace=2.0, hard=1.0) as sup, watched(sup) as log:
        world.spy.before = world.spy.after = pause
        await wild(sup, life, seed)
        told = [f"{type(event).__name__} {event.path} {event.seq}" for event in log.events]
    async with world.store() as store:
        await hold(store, life)
    async with world.open(model(life), agents=[life.lead]) as sup:
        await go_on(sup, life)
    return "\n".join(told)


@pytest.mark.parametrize("seed", range(60))
def test_orders_a_random_life_keeps_its_promises_under_any_order_of_tasks(seed: int, tmp_path: Path) -> None:
    """Under a seeded scheduler that may hold any task back, a random life leaves a whole store, and its work ends."""
    kind = "sqlite" if seed % 10 == 0 else "memory"
    try:
        simulate(lambda: wild_life(World(kind, tmp_path), seed), Sched(seed, defer=(seed % 4) / 4))
    except BaseException as error:
        error.add_note(f"replay: wild_life(World({kind!r}, …), {seed}) under Sched({seed}, defer={seed % 4}/4)")
        raise


def test_orders_the_scheduler_hook_still_works(tmp_path: Path) -> None:
    """The canary: Trio asks the hook, the same seed is the same life to the last event, other seeds are others."""
    logs = []
    for number, seed in enumerate((1, 1, 2, 3)):
        folder = tmp_path / str(number)
        folder.mkdir()
        sched = Sched(seed, defer=0.5)
        logs.append(simulate(partial(wild_life, World("memory", folder), 4), sched))
        assert sched.batches > 100
    assert logs[0] == logs[1]
    assert len(set(logs)) >= 2
