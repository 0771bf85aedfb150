"""Memory and store agree, whatever order the tasks of one flush go on in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from actors import Agent, MessageAccepted, Script
from actors.ids import AgentId
from actors.messages import Lane, ReceiptState
from actors.models.script import hang
from supervisor import open_supervisor
from tests.supervisor.promises.world import agent, enqueues, watched

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from tests.supervisor.promises.world import World

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


async def test_evt_1_a_message_that_is_read_while_its_commit_is_being_told_is_told_once(
    world: World, autojump_clock: MockClock
) -> None:
    """The store shows it to a read before its sender's commit has returned: it is no message of another process."""
    async with world.open({"a": ["one", "two"]}) as sup:
        await sup.run(agent(), "go")

        async def read_anew(change_set: ChangeSet) -> None:
            if enqueues("more")(change_set):
                await sup._parts.kernel.discover(AgentId("a"))

        world.spy.after = read_anew
        async with watched(sup) as log:
            receipt = await (await sup.find("a")).send("more")
            assert (await receipt.wait_report()).text == "two"
            assert [event.message for event in log.of(MessageAccepted)] == [receipt.id]
