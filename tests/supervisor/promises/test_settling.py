"""The commit that settles a run: what its hook writes beside it, and the end of the run's store (HOK-3, HOK-4)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import CallboardError, Context, Hooks, Steer, UsageError, call, guard, tool
from actors.changes import Append, Claim, Erase, KvRow, OutcomeRow, Put
from actors.happenings import HookFailed
from actors.transcript import MessageRecord
from supervisor.store.faults import Fault, FaultyStore
from tests.supervisor.promises.scheduling import Sched, simulate
from tests.supervisor.promises.test_kv import scopes
from tests.supervisor.promises.world import World, agent, check, has, said, texts, watched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from supervisor import AgentRef
    from supervisor.store.base import Store


class Books(Hooks):
    """Counts in the run's store, and books the count beside the commit that settles the run.

    Attributes:
        settling_does: what else the hook does. moments: those that it was handed.
    """

    def __init__(self, settling_does: Callable[[Any], Awaitable[object]] | None = None) -> None:
        self.settling_does = settling_does
        self.moments: list[Any] = []

    async def before_request(self, at: Any) -> None:
        await at.kv.run.set("asked", await at.kv.run.get("asked", int, 0) + 1)

    async def settling(self, at: Any) -> Any:
        self.moments.append(at)
        booked = await at.kv.agent.get("booked", int, 0)
        await at.kv.agent.set("booked", booked + await at.kv.run.get("asked", int, 0))
        return None if self.settling_does is None else await self.settling_does(at)


def lands(one: ChangeSet) -> bool:
    """Whether a commit has what the hook wrote."""
    return has(one, Put, lambda put: isinstance(put.row, KvRow) and put.row.key == "booked")


def ends(one: ChangeSet) -> bool:
    """Whether a commit ends a turn."""
    return has(one, Put, lambda put: isinstance(put.row, OutcomeRow))


def erases(one: ChangeSet, run: int) -> bool:
    """Whether a commit erases a run's store."""
    return has(one, Erase, lambda erase: erase.table is KvRow and erase.prefix == ("a", f"a:r{run}"))


async def booked(world: World) -> list[str]:
    """What is booked."""
    return [row.value for row in await world.spy.kv("a", "agent") if row.key == "booked"]  # type: ignore[arg-type]  # a path


async def test_hok_3_what_the_settling_hook_writes_lands_with_the_commit_that_settles_the_run(
    world: World, autojump_clock: MockClock
) -> None:
    """HOK-4: the same commit ends the turn and erases the run's store; with the next run both begin anew."""
    hooks = Books()
    async with world.open({"a": ["one", "two"]}) as sup:
        ref = await sup.start(agent(hooks=hooks), "go")
        await ref.wait_idle()
        (landing,) = [one for one in world.spy.sets if lands(one)]
        assert ends(landing)
        assert erases(landing, 1)
        assert await booked(world) == ["1"]
        assert await scopes(sup.store, "a:r1") == {}
        await ref.ask("more")
        await ref.wait_idle()
        assert await booked(world) == ["2"]
        assert await scopes(sup.store, "a:r1", "a:r2") == {}
        assert [at.run for at in hooks.moments] == [1, 2]
        with pytest.raises(UsageError, match="over"):
            await hooks.moments[0].kv.agent.set("late", 1)
        await check(sup.store)


@pytest.mark.parametrize("lane", ["send", "steer", "returned"])
async def test_hok_3_a_message_that_comes_while_it_runs_undoes_it_and_the_run_goes_on(
    world: World, autojump_clock: MockClock, lane: str
) -> None:
    """What it wrote vanishes, the run keeps its store, and the hook is called again when the run does settle."""
    refs: list[AgentRef] = []

    async def once(_: Any) -> object:
        if len(hooks.moments) > 1:
            return None
        if lane == "returned":
            return Steer("more")
        await (refs[0].send if lane == "send" else refs[0].steer)("more")
        return None

    hooks = Books(once)
    async with world.open({"a": ["one", "two"]}) as sup:
        refs.append(await sup.start(agent(hooks=hooks)))
        await refs[0].send("go")
        await refs[0].wait_idle()
        assert [at.run for at in hooks.moments] == [1, 1]
        assert len([one for one in world.spy.sets if lands(one)]) == 1
        assert await booked(world) == ["2"], "both requests are of one run"
        assert texts(await refs[0].transcript()) == ["<go", ">one", "<more", ">two"]
        assert await scopes(sup.store, "a:r1", "a:r2") == {}


@pytest.mark.parametrize("guards", [False, True], ids=["observes", "guards"])
async def test_hok_1_a_settling_hook_that_fails_is_an_event_or_fails_the_turn(
    world: World, autojump_clock: MockClock, *, guards: bool
) -> None:
    """Either way what it had written vanishes, and the run is settled with its store erased."""

    async def fails(_: Any) -> object:
        raise ValueError("no ink")

    class Guarded(Books):
        @guard
        async def settling(self, at: Any) -> Any:
            return await super().settling(at)

    hooks = Guarded(fails) if guards else Books(fails)
    async with world.open({"a": ["one"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(hooks=hooks), "go")
        report = await ref.wait_report()
        await ref.wait_idle()
        assert report.status == ("failed" if guards else "done")
        assert ("no ink" in str(report.error)) == guards
        assert len(log.of(HookFailed)) == 1
        assert len(hooks.moments) == 1
        assert await booked(world) == []
        assert await scopes(sup.store, "a:r1") == {}


async def test_hok_4_a_run_that_fails_or_is_aborted_erases_its_store(world: World, autojump_clock: MockClock) -> None:
    """A failed turn settles its run as an answer does, hook included; an abort waits for no hook."""

    @tool
    async def work(ctx: Context) -> str:
        """Work."""
        await ctx.kv.run.set("at", "work")
        await trio.sleep(20)
        return "worked"

    def answer(request: Any) -> object:
        last = request.window[-1]
        if isinstance(last, MessageRecord) and said(last.content) == "work":
            return call("work")
        raise RuntimeError("down")

    hooks = Books()
    async with world.open({"a": answer}) as sup:
        ref = await sup.start(agent(hooks=hooks, tools=[work]), "fail")
        assert (await ref.wait_report()).status == "failed"
        await ref.wait_idle()
        assert await scopes(sup.store, "a:r1") == {}
        assert await booked(world) == ["1"]
        await ref.send("work")
        await trio.sleep(1)
        assert await scopes(sup.store, "a:r2") == {"a:r2": ["asked", "at"]}
        await ref.abort("enough")
        await ref.wait_idle()
        assert await scopes(sup.store, "a:r2") == {}
        assert len(hooks.moments) == 1


async def test_hok_4_the_runs_store_lives_through_all_its_turns(world: World, autojump_clock: MockClock) -> None:
    """A message that waits behind a turn is of the same run: the store is there, and is erased once, at the end."""
    hooks = Books()
    async with world.open({"a": ["one", "two"]}) as sup:
        ref = await sup.start(agent(hooks=hooks))
        await ref.send_many(["go", "on"])
        await ref.wait_idle()
        assert await booked(world) == ["2"]
        assert [erases(one, 1) for one in world.spy.sets if ends(one)] == [False, True]


async def test_hok_4_an_agent_without_hooks_and_stores_erases_nothing(world: World, autojump_clock: MockClock) -> None:
    """What cannot have been written costs nothing."""
    async with world.open({"a": ["one"]}) as sup:
        ref = await sup.start(agent(), "go")
        await ref.wait_idle()
        assert world.spy.with_op(Erase) == []


async def fail_at(world: World, at: int, *, when: Fault) -> bool:
    """A run with the n-th commit failing, gone on with by the next owner; whether there was such a commit."""
    faulty: list[FaultyStore] = []

    def wrap(store: Store) -> Store:
        faulty.append(FaultyStore(store, at=at, when=when, forever=True))
        return faulty[0]

    spec = agent(hooks=Books())
    model: Any = {"a": lambda _: "said"}
    async with world.open(model, wrap=wrap, grace=5.0, hard=2.0) as sup:
        try:
            with trio.fail_after(200):
                await (await sup.start(spec, "go", key="k")).wait_idle()
        except (CallboardError, trio.TooSlowError):
            pass
    async with world.open(model, agents=[spec]) as sup:
        ref = await sup.start(spec, "go", key="k")
        await sup.resume()
        await ref.wait_idle()
        rows = await sup.store.kv(ref.path, "agent")
        assert len(rows) == 1
        assert int(rows[0].value) >= 1
        assert await sup.store.kv(ref.path, f"{ref.path}:r1") == ()
        await check(sup.store)
    return bool(faulty[0].faults)


@pytest.mark.parametrize("when", list(Fault), ids=[fault.value for fault in Fault])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_hok_4_the_end_of_a_run_survives_a_failure_of_any_commit(kind: str, when: Fault, tmp_path: Path) -> None:
    """From commit 1, 2, 3 … on nothing is written, or nobody knows: the next owner books once, and nothing stays."""
    at = 1
    while True:
        folder = tmp_path / str(at)
        folder.mkdir()
        if not simulate(partial(fail_at, World(kind, folder), at, when=when), Sched(0)):
            break
        at += 1
    assert at > 3, "there are more commits than that"


async def test_hok_4_a_turn_of_which_nothing_was_written_opens_no_run(world: World, autojump_clock: MockClock) -> None:
    """The store fails as a run's first message is taken: tried again it is a run of its own, with a store of its own.

    Once it counted as the run before, which had settled: its report named that one and had its costs, too.
    """
    hooks = Books()
    refused: list[ChangeSet] = []

    def claims_more(one: ChangeSet) -> bool:
        found = not refused and has(one, Claim) and has(one, Append)
        refused.extend([one] if found else [])
        return found

    async with world.open({"a": ["one", "two"]}) as sup:
        ref = await sup.start(agent(hooks=hooks), "go")
        first = await ref.wait_report()
        await ref.wait_idle()
        world.spy.refuse = claims_more
        more = await ref.send("more")
        with pytest.raises(CallboardError, match="the disk is full"):
            await more.wait_report()
        await sup.resume()
        second = await more.wait_report()
        await ref.wait_idle()
        assert (first.run, second.run, second.text) == ("a:r1", "a:r2", "two")
        last = await sup.store.outcome(second.turn)
        assert last is not None
        assert last.outcome.spent.model_calls == 1
        assert [at.run for at in hooks.moments] == [1, 2]
        assert await scopes(sup.store, "a:r1", "a:r2") == {}
        await check(sup.store)
