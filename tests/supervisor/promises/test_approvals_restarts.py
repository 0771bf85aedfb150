"""TOL-12: approvals over restarts, in races, and with a store that fails."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import ApprovalAsked, ApprovalDecided, CallboardError, MessageDead, Script, UsageError, call
from actors.changes import Enqueue
from actors.ids import AgentId
from actors.messages import Purpose, ReceiptState, Verdict
from actors.transcript import ResultRecord
from supervisor.store.faults import Fault, FaultyStore
from tests.supervisor.promises.approving import Ask, approve_all, first, script
from tests.supervisor.promises.scheduling import Sched, simulate
from tests.supervisor.promises.world import World, check, has, messages, quiet, watched

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from supervisor.store.base import Store

from tests.supervisor.promises.parked import WAITS, stopped

# -- restarts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loads", [False, True])
async def test_tol_12_a_later_process_decides(world: World, autojump_clock: MockClock, loads: bool) -> None:  # noqa: FBT001
    """What one process asked another shows, with its age, and decides: the call runs there, once, as it was shown."""
    ask = Ask()
    spec = ask.agent()
    async with world.open(script()) as sup:
        sup._parts.kernel.wall = lambda: 1_000.0
        await stopped(sup, spec)
    async with world.open(script(), agents=[spec]) as sup, watched(sup) as log:
        if loads:
            assert [ref.path for ref in await sup.resume()] == ["a"]
            await quiet()
            assert len(log.of(ApprovalAsked)) == 1
        request = await first(sup)
        assert (request.path, request.arguments, request.asked_at) == ("a", {"path": "x", "deep": False}, 1_000.0)
        assert ask.ran == []
        await request.approve(by="an operator")
        ref = await sup.find("a")
        report = await ref.wait_report()
        assert (report.status, report.text, ask.paths) == ("done", "deleted x", ["x"])
        assert len(log.of(ApprovalAsked)) == len(log.of(ApprovalDecided)) == 1
        await check(sup.store)


async def test_tol_12_a_decision_outlives_the_process_that_accepted_it(world: World, autojump_clock: MockClock) -> None:
    """Accepted, and the process ends before it is carried out: the next one runs the call, and asks nobody."""
    ask = Ask()
    spec = ask.agent()
    async with world.open(script()) as sup:
        await stopped(sup, spec)
        request = await first(sup)
        sup._parts.leaving = "suspend"  # nothing begins any more
        await request.approve(by="an operator")
        await quiet()
        assert ask.ran == []
    async with world.open(script(), agents=[spec]) as sup, watched(sup) as log:
        async with sup.approvals() as inbox:
            with trio.move_on_after(10) as scope:
                async for asked in inbox:
                    raise AssertionError(asked)
            assert scope.cancelled_caught
        await sup.resume()
        ref = await sup.find("a")
        assert (await ref.wait_report()).text == "deleted x"
        assert log.of(ApprovalAsked) == []
        assert ask.paths == ["x"]


async def test_tol_12_a_turn_goes_on_where_it_was(world: World, autojump_clock: MockClock) -> None:
    """Three requests in one turn, each decided by another process: what ran before a pause never runs again."""
    ask = Ask()
    spec = ask.agent()

    def model(request: ModelRequest) -> object:
        done = sum(isinstance(record, ResultRecord) for record in request.window)
        return [call("delete", path=f"x{done // 2}"), call("look")] if done < 6 else "all done"

    async with world.open(Script({"a": model})) as sup:
        await stopped(sup, spec)
    last = ""
    for _ in range(3):
        async with world.open(Script({"a": model}), agents=[spec]) as sup:
            await (await first(sup)).approve()
            ref = await sup.find("a")
            last = (await ref.wait_report()).text
    assert last == "all done"
    assert ask.paths == ["x0", "x1", "x2"]
    assert [name for name, _ in ask.ran].count("look") == 3


async def test_tol_12_a_key_goes_on_with_what_is_parked(world: World, autojump_clock: MockClock) -> None:
    """`run` under the same key says parked again, by a process that knows nothing else of it, and done once decided."""
    ask = Ask()
    spec = ask.agent()
    for _ in range(2):
        async with world.open(script(), agents=[spec]) as sup:
            report = await sup.run(spec, "go", key="nightly")
            assert (report.status, WAITS in str(report.error)) == ("parked", True)
    async with world.open(script(), agents=[spec]) as sup, trio.open_nursery() as nursery:
        nursery.start_soon(approve_all, sup)
        await quiet()
        assert (await sup.run(spec, "go", key="nightly")).text == "deleted x"
        nursery.cancel_scope.cancel()
    assert ask.paths == ["x"]


# -- races, crashes ----------------------------------------------------------------------------------------------------


async def race(world: World, sched: Sched) -> None:
    """A person approves while another aborts and a third denies."""
    del sched
    ask = Ask()
    async with world.open(script(call("delete", path="x"), call("look"))) as sup:
        ref = await sup.start(ask.agent(), "go")
        request = await first(sup)

        async def quietly(verb: Any) -> None:
            with suppress(UsageError):
                await verb()

        async with trio.open_nursery() as nursery:
            for verb in (request.approve, request.deny, ref.abort):
                nursery.start_soon(quietly, verb)
        await ref.wait_idle()
        await quiet()
        await holds(sup.store, ask)
        assert (await ref.ask("hello")).text == "heard hello"
        mail = await messages(sup.store, "a")
        assert ReceiptState.QUEUED not in mail.values()
        for one in await sup.store.messages(AgentId("a"), (ReceiptState.DEAD,)):
            assert one.envelope.purpose is Purpose.DECISION


async def holds(store: Any, ask: Ask) -> None:
    """What holds whatever raced: one run at most, none without an approval, and the record says what happened."""
    await check(store)
    records = await store.read_records(AgentId("a"))
    statuses = [r.status.value for r in records if isinstance(r, ResultRecord) and r.name == "delete"]
    decided = [
        one.envelope.decision.verdict
        for one in await store.messages(AgentId("a"), tuple(ReceiptState)[1:6])
        if one.envelope.decision is not None
    ]
    assert len(decided) <= 1
    assert len(ask.paths) <= 1
    if ask.paths:
        assert decided == [Verdict.APPROVED]
    for status in statuses:
        assert status in ({"ok", "aborted", "unknown"} if ask.paths else {"denied", "skipped", "aborted", "unknown"})


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_tol_12_races_leave_one_decision_and_one_run(kind: str, tmp_path: Path) -> None:
    """Approve, deny and abort at once, in many orders of the tasks: one decision at most, and it is what happened."""
    for seed in range(60 if kind == "memory" else 15):
        folder = tmp_path / str(seed)
        folder.mkdir()
        sched = Sched(seed, defer=0.5)
        try:
            simulate(lambda: race(World(kind, folder), sched), sched)  # noqa: B023 - run at once
        except BaseException as error:
            error.add_note(f"replay: race(World({kind!r}), Sched({seed}, defer=0.5))")
            raise


async def decided_life(world: World, at: int, *, when: Fault) -> bool:
    """Ask, approve, go on, with the n-th commit failing; then another process finishes. Whether there was one."""
    ask = Ask()
    spec = ask.agent()
    faulty: list[FaultyStore] = []

    def wrap(store: Store) -> Store:
        faulty.append(FaultyStore(store, at=at, when=when, forever=True))
        return faulty[0]

    model = script(call("delete", path="x"), call("look"))
    async with world.open(model, wrap=wrap, grace=5.0, hard=2.0) as sup:
        with suppress(CallboardError, trio.TooSlowError), trio.fail_after(100):
            ref = await sup.start(spec, "go")
            await (await first(sup)).approve()
            await ref.wait_idle()
    async with world.open(model, agents=[spec]) as sup:
        await sup.resume()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(approve_all, sup)
            while await sup.store.agents_with_work():  # noqa: ASYNC110 - the store has no event for it
                await trio.sleep(1)
            nursery.cancel_scope.cancel()
        await holds(sup.store, ask)
        assert await sup.store.awaiting_calls() == ()
    return bool(faulty[0].faults)


@pytest.mark.parametrize("when", list(Fault), ids=[fault.value for fault in Fault])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_tol_12_a_store_that_fails_at_any_commit_runs_nothing_unasked(kind: str, when: Fault, tmp_path: Path) -> None:
    """From commit n on the store fails, for n = 1, 2, 3 …; the next process finishes: one approved run at most."""
    at = 1
    while True:
        folder = tmp_path / str(at)
        folder.mkdir()
        try:
            hit = simulate(lambda: decided_life(World(kind, folder), at, when=when), Sched(0))  # noqa: B023 - run at once
        except BaseException as error:
            error.add_note(f"replay: decided_life(World({kind!r}), {at}, when={when})")
            raise
        if not hit:
            break
        at += 1
    assert at > 5, "such a life has more commits than that"


async def test_tol_12_a_decision_that_came_too_late_is_a_dead_letter(memory: World, autojump_clock: MockClock) -> None:
    """Accepted, and the call was settled by an abort before it was carried out: it is named, and nothing runs."""
    ask = Ask()
    async with memory.open(script()) as sup, watched(sup) as log:
        ref = await stopped(sup, ask.agent())
        request = await first(sup)

        async def abort_too(one: Any) -> None:
            if has(one, Enqueue, lambda o: o.envelope.purpose is Purpose.DECISION):
                memory.spy.after = nothing
                await ref.abort("never mind")

        async def nothing(_: Any) -> None:
            pass

        memory.spy.after = abort_too
        await request.approve()
        await ref.wait_idle()
        await quiet()
        assert [event.reason for event in log.of(MessageDead)] == [
            "the call was settled before the decision was carried out"
        ]
        assert log.statuses("a") == ["aborted"]
        assert (await ref.ask("hello")).text == "heard hello"
    assert ask.ran == []
