"""A response, and what ends its request, in one step of the scheduler: every order of the two, forced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import Limits
from actors.changes import Enqueue
from actors.ids import AgentId
from actors.messages import Purpose
from actors.ports import BlockDone, ReportedUsage, Response, TextPiece
from actors.transcript import Stop, TextBlock
from tests.supervisor.promises.scheduling import Sched, simulate
from tests.supervisor.promises.world import World, agent, check, has, quiet, texts, until

if TYPE_CHECKING:
    from pathlib import Path

    from actors.changes import ChangeSet
    from actors.ports import Emit, ModelRequest
    from supervisor import Supervisor

STEPS = range(-3, 4)
"""How many steps behind the cut the answer comes: below 0 before it, and with 0 in the same step."""
SEEDS = range(6)
ANSWER = Response((TextBlock("whole"),), Stop.END_TURN, ReportedUsage(1000, 100))


class Gated:
    """A model that answers when its gate is opened. `asked`: how often it was."""

    id = name = "gated"
    free = True
    context_window = None

    def __init__(self) -> None:
        self.gate = trio.Event()
        self.asked = 0

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        self.asked += 1
        emit(TextPiece("whole"))
        await self.gate.wait()
        emit(BlockDone(TextBlock("whole")))
        return ANSWER


def cuts(one: ChangeSet) -> bool:
    """Whether a set makes an abort or an interrupting steer durable."""
    return has(one, Enqueue, lambda op: op.envelope.purpose is Purpose.ABORT or op.envelope.interrupt)


async def open_after(gate: trio.Event, steps: int) -> None:
    """Open a gate so many steps from now."""
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    gate.set()


def race(world: World, gate: trio.Event, steps: int, nursery: trio.Nursery) -> None:
    """Open the gate so many steps behind the moment in which a commit that cuts is told."""

    async def after(one: ChangeSet) -> None:
        if not cuts(one):
            return
        if steps > 0:
            nursery.start_soon(open_after, gate, steps)
            return
        gate.set()
        for _ in range(-steps):
            await trio.lowlevel.checkpoint()

    world.spy.after = after


async def balanced(sup: Supervisor) -> None:
    """The row holds what the accounts count, nothing is reserved, and no permit is held (BUD-7, REQ-7, GATEWAY-1)."""
    stored = await sup.store.load_agent(AgentId("a"))
    assert stored is not None
    counted = sup._parts.ledger.snapshot(AgentId("a"))
    row = stored.row.spent
    assert (row.input_tokens, row.output_tokens, row.model_calls, row.cost) == (
        counted.own.input_tokens,
        counted.own.output_tokens,
        counted.own.model_calls,
        counted.own.cost,
    )
    assert counted.held.model_calls == 0
    assert not any(pool.held for pool in sup._parts.gateway.statistics().pools)  # type: ignore[attr-defined]  # behind the port


async def cut_in_the_same_step(world: World, how: str, steps: int) -> None:
    """Ask, cut, and have the answer come so many steps from the commit; then ask again."""
    model = Gated()
    async with trio.open_nursery() as nursery, world.open(model) as sup:
        ref = await sup.start(agent(), "go")
        await until(lambda: model.asked)
        race(world, model.gate, steps, nursery)
        if how == "abort":
            await ref.abort("enough")
        else:
            await ref.steer("and this", interrupt=True)
        with trio.fail_after(60):
            await ref.wait_idle()
        await quiet()
        await balanced(sup)
        model.gate.set()
        with trio.fail_after(60):
            report = await ref.ask("again")
        assert report.text == "whole"
        await balanced(sup)
        await check(sup.store)
        said = texts(await ref.transcript())
        assert said[0] == "<go"
        assert said[-2:] == ["<again", ">whole"]


@pytest.mark.parametrize("how", ["abort", "steer"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_abt_2_a_response_in_the_same_step_as_the_cut_neither_hangs_the_turn_nor_is_lost(
    kind: str, how: str, tmp_path: Path
) -> None:
    """Whichever of response and cut runs first, the turn goes on, and row and ledger agree (LOOP-4, BUD-7, REQ-7)."""
    for steps in STEPS:
        for seed in SEEDS if kind == "memory" else SEEDS[:3]:
            folder = tmp_path / f"{steps}-{seed}"
            folder.mkdir()

            async def life(folder: Path = folder, steps: int = steps) -> None:
                await cut_in_the_same_step(World(kind, folder), how, steps)

            simulate(life, Sched(seed))


async def left_in_the_same_step(world: World, *, grace: float, steps: int) -> None:
    """Leave the supervisor while the answer comes so many steps later; then the next owner goes on."""
    spec, model = agent(), Gated()
    async with trio.open_nursery() as nursery, world.open(model, on_exit="suspend", grace=grace) as sup:
        await sup.start(spec, "go")
        await until(lambda: model.asked)
        nursery.start_soon(open_after, model.gate, steps + 3)
    async with world.open(model, agents=[spec]) as sup:
        await sup.resume()
        ref = await sup.find("a")
        with trio.fail_after(60):
            await ref.wait_idle()
        await balanced(sup)
        await check(sup.store)
        assert texts(await ref.transcript()) == ["<go", ">whole"]


@pytest.mark.parametrize("grace", [0.0, 5.0])
def test_cls_5_a_response_in_the_same_step_as_the_suspension_is_taken_or_asked_again(
    grace: float, tmp_path: Path
) -> None:
    """Suspended or cut off while the answer comes: it stands once in the end, and what it cost is in the row."""
    for steps in STEPS:
        for seed in SEEDS:

            async def life(steps: int = steps) -> None:
                await left_in_the_same_step(World("memory", tmp_path), grace=grace, steps=steps)

            simulate(life, Sched(seed))


def test_trn_8_a_response_that_was_whole_when_the_cut_came_is_kept_whole(tmp_path: Path) -> None:
    """A model that streams nothing answered in the step of the abort: its text stands, its tokens are in the row."""

    class Silent(Gated):
        async def request(self, request: ModelRequest, emit: Emit) -> Response:
            self.asked += 1
            await self.gate.wait()
            return ANSWER

    kept = 0
    for steps in STEPS:
        for seed in SEEDS:

            async def life(steps: int = steps) -> None:
                nonlocal kept
                model, world = Silent(), World("memory", tmp_path)
                async with trio.open_nursery() as nursery, world.open(model) as sup:
                    ref = await sup.start(agent(limits=Limits(attempts=1)), "go")
                    await until(lambda: model.asked)
                    race(world, model.gate, steps, nursery)
                    await ref.abort("enough")
                    with trio.fail_after(60):
                        await ref.wait_aborted()
                    await quiet()
                    await balanced(sup)
                    if ref.usage.input_tokens == 1000:
                        kept += 1
                        assert ">whole" in texts(await ref.transcript())

            simulate(life, Sched(seed))
    assert kept, "no order was met in which the answer was there, and the cut was not"
