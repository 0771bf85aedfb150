"""Memory and store agree, whatever order the tasks of one flush go on in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from actors import Agent, Script
from actors.messages import Lane, ReceiptState
from actors.models.script import hang
from supervisor import open_supervisor

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 25


async def test_abt_4_memory_holds_what_the_store_holds(tmp_path: Path) -> None:
    """Aborts, wakes and sends at once: commits of one flush come true in memory in the order of the store."""
    script = Script({"scout": lambda _: hang()})
    async with open_supervisor(model=script, store=tmp_path / "agents.db", grace=0, hard=0) as sup:
        ref = await sup.start(Agent("scout", "Look around."), "now")

        async def send() -> None:
            await ref.send("now")

        for _ in range(ROUNDS):
            async with trio.open_nursery() as nursery:
                for verb in (send, ref.abort, ref.wake, send, ref.abort, ref.wake, send):
                    nursery.start_soon(verb)
            held = await sup.store.messages(ref.path, (ReceiptState.HELD,))
            waiting = await sup.store.messages(ref.path, (ReceiptState.QUEUED,))
            queued = [one for one in waiting if one.envelope.lane is not Lane.CONTROL]
            counts = ref.statistics().mailbox
            assert (counts.held, counts.send) == (len(held), len(held) + len(queued))
