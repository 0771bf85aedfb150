"""ACC-2: several tasks wait for one receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from tests.supervisor.promises.world import agent

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.supervisor.promises.world import World


async def test_acc_2_any_number_of_tasks_wait_for_one_post(world: World, autojump_clock: MockClock) -> None:
    """Several tasks wait for the acceptance of a posted message, and for its report."""
    heard: list[str] = []
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())
        receipt = ref.post("go")

        async def accepted() -> None:
            await receipt.wait_accepted()
            heard.append("accepted")

        async def reported() -> None:
            heard.append((await receipt.wait_report()).text)

        async with trio.open_nursery() as nursery:
            for task in (accepted, accepted, reported, reported):
                nursery.start_soon(task)
    assert sorted(heard) == ["accepted", "accepted", "ok", "ok"]
