"""Defects that the run over lives met (`tests/life`), each shown small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from actors import AgentCrashed, AgentSuspended, tool
from actors.changes import Claim, Put
from actors.errors import Unavailable
from actors.messages import ReceiptState
from actors.ports import ReportedUsage, Response, WireCall
from actors.transcript import ResultRecord, Stop
from tests.supervisor.promises.test_races import Gated
from tests.supervisor.promises.world import World, agent, has, quiet, started, until, watched

if TYPE_CHECKING:
    from actors.changes import ChangeSet
    from actors.ports import Emit, ModelRequest


CALL = Response((WireCall("c", "look", "{}"),), Stop.TOOL_CALLS, ReportedUsage(10, 1))


class Busy(Gated):
    """Asked by `b` first, it calls a tool; whoever asks then waits for the gate."""

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        if request.agent == "b" and not any(isinstance(record, ResultRecord) for record in request.window):
            return CALL
        return await super().request(request, emit)


async def test_gat_1_a_place_given_while_the_turn_stops_for_a_pause_is_given_back(memory: World) -> None:
    """One permit; who waits for it is paused, and gets it during the commit of that: the next request has a place."""
    model, looked, written = Busy(), trio.Event(), trio.Event()

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        await looked.wait()
        return "seen"

    async with memory.open(model, permits=1) as sup:
        second = await started(sup, agent("b", tools=[look]), "go")
        await quiet()
        first = await started(sup, agent("a"), "go")
        await until(lambda: model.asked)
        looked.set()
        await quiet()  # its result is written, and it waits for a place

        async def held_up(change_set: ChangeSet) -> None:
            if change_set.tree == "b" and has(change_set, Put):
                model.gate.set()
                await written.wait()

        memory.spy.before = held_up
        await second.pause()
        await until(model.gate.is_set)
        await quiet()
        written.set()
        await quiet()
        assert second.state == "paused"
        with trio.fail_after(60):
            assert (await first.ask("again")).text == "whole"


async def test_acc_7_a_message_accepted_again_after_a_restart_says_where_it_is(world: World) -> None:
    """The second acceptance under a key, in a later process, returns a receipt that knows who consumed the first."""
    spec = agent("a")
    async with world.open({"a": ["one"]}, agents=[spec]) as sup:
        receipt = await (await started(sup, spec)).send("once", key="k")
        await receipt.wait_report()
    async with world.open({"a": ["two"]}, agents=[spec]) as sup:
        again = await (await sup.find("a")).send("once", key="k")
        assert (again.id, again.state, again.turn) == (receipt.id, ReceiptState.CONSUMED, receipt.turn)


async def test_sup_2_a_store_that_fails_an_order_is_no_crash_and_what_was_written_is_not_done_twice(
    world: World,
) -> None:
    """A pause that is written, and told as failed, suspends for the store; woken, the agent answers."""
    async with world.open({"a": ["one"]}) as sup, watched(sup) as log:
        ref = await started(sup, agent("a"))
        world.spy.after = _fails
        await ref.pause()
        await quiet()
        assert [event.reason for event in log.of(AgentSuspended, "a")] == ["store"]
        world.spy.after = _quietly
        await ref.wake()
        assert (await ref.ask("go")).text == "one"
        assert not log.of(AgentCrashed)


async def _fails(change_set: ChangeSet) -> None:
    """What was claimed is written, and whoever wrote it hears that it is not."""
    if has(change_set, Claim):
        msg = "the disk is full"
        raise Unavailable(msg)


async def _quietly(_: ChangeSet) -> None:
    """Nothing stands between."""
