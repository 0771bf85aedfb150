"""A store that cannot be written: agents stand still, no effect starts, and all goes on when it heals in time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw
import pytest
import trio

from actors import Hooks, Moment, StoreTroubled, Unavailable, call, tool
from actors.errors import InDoubt
from supervisor.cli_exit import ENVIRONMENT, code_of_error
from supervisor.store import sqlite_file
from supervisor.stores import check_store_file
from tests.supervisor.promises.world import World, agent, check, texts, watched
from tests.supervisor.store.disks import failing_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trio.testing import MockClock

HARD_S = 10.0


class Trouble:
    """A store that can be made to fail, and healed."""

    def __init__(self, fail: Callable[[], None], heal: Callable[[], None]) -> None:
        self.fail, self.heal = fail, heal


@contextmanager
def trouble(kind: str, path: Path) -> Iterator[Trouble]:
    """Trouble of a kind, for the store of a world at `path`."""
    if kind == "busy":
        other: list[apsw.Connection] = []

        def lock() -> None:
            other.append(apsw.Connection(str(path / "agents.db")))
            other[-1].execute("BEGIN IMMEDIATE")

        def unlock() -> None:
            other.pop().close()

        yield Trouble(lock, unlock)
        for one in other:
            one.close()
        return
    what, error = {
        "full": ("write", apsw.FullError),
        "read only": ("write", apsw.ReadOnlyError),
        "no write": ("write", apsw.IOError),
        "no flush": ("sync", apsw.IOError),
    }[kind]
    with failing_disk() as disk:
        disk.error = error

        def fail() -> None:
            disk.broken = what

        def heal() -> None:
            disk.broken = ""

        yield Trouble(fail, heal)


KINDS = pytest.mark.parametrize("kind", ["full", "read only", "no write", "no flush", "busy"])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """SQLite's own waiting for a lock takes real time: here there is none. What the disk had left is clean."""
    monkeypatch.setattr(sqlite_file, "BUSY_MS", 0)
    yield
    assert [str(violation) for violation in check_store_file(tmp_path / "agents.db")] == []


def one_call(world: Trouble, effects: list[float]) -> tuple[Any, dict[str, Any]]:
    """An agent whose store fails when the model has asked for its `once` tool, and the script that it plays."""
    failed: list[str] = []

    @tool
    async def charge() -> str:
        """Take effect outside."""
        effects.append(trio.current_time())
        return "charged"

    class Failing(Hooks):
        """The response is there; before it is written the disk fails."""

        async def after_response(self, at: Moment) -> None:
            if not failed:
                failed.append(at.agent)
                world.fail()

    return agent(tools=[charge], hooks=Failing()), {"a": [call("charge"), "well"]}


@KINDS
async def test_a_store_that_heals_in_time_costs_nothing(kind: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    """No effect starts while it fails; then the turn goes on by itself; it is told once, and once that it is over."""
    world, effects = World("sqlite", tmp_path, checked=False), list[float]()
    with trouble(kind, tmp_path) as store:
        spec, script = one_call(store, effects)
        async with world.open(script, hard=HARD_S) as sup, watched(sup) as log:
            ref = await sup.start(spec, "go")
            began = trio.current_time()
            await trio.sleep(HARD_S - 2)
            assert effects == [], "an effect stands behind its commit"
            store.heal()
            report = await ref.wait_report()
            assert (report.status, report.text) == ("done", "well")
            assert len(effects) == 1
            assert effects[0] - began <= HARD_S
            told = log.of(StoreTroubled)
            assert [bool(event.error) for event in told] == [True, False]
            assert told[0].error.startswith("store agents.db")
            assert log.of(StoreTroubled, "a") == told
            assert texts(await ref.transcript()) == ["<go", "> charge()", "=ok:charged", ">well"]
            await check(sup.store)


@KINDS
async def test_a_store_that_does_not_heal_ends_the_run(kind: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    """After `hard` seconds it is the caller's `Unavailable` (exit code 3); the store owes the work, once it is well."""
    world, effects = World("sqlite", tmp_path, checked=False), list[float]()
    with trouble(kind, tmp_path) as store:
        spec, script = one_call(store, effects)
        began = trio.current_time()
        async with world.open(script, hard=HARD_S) as sup:
            with pytest.raises(Unavailable) as told:
                await sup.run(spec, "go", key="k")
            store.heal()  # so that the tree is given back: the next owner is in this process, too
        assert HARD_S <= trio.current_time() - began <= HARD_S + 1, "all wait for one trouble, not each for its own"
        assert code_of_error(told.value) == ENVIRONMENT
        assert isinstance(told.value, InDoubt) == (kind in ("no write", "no flush"))
        assert effects == []
        async with world.open({"a": [call("charge"), "well"]}, agents=[spec]) as sup:
            report = await sup.run(spec, "go", key="k")
            assert (report.status, len(effects)) == ("done", 1)
            await check(sup.store)


@KINDS
async def test_what_is_sent_waits_and_is_accepted_in_order(
    kind: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Whoever sends meanwhile waits with it, one after another, and no try is made for each."""
    world = World("sqlite", tmp_path, checked=False)
    with trouble(kind, tmp_path) as store:
        async with world.open({"a": ["one", "two", "three"]}, hard=HARD_S) as sup:
            ref = await sup.start(agent())
            store.fail()
            async with trio.open_nursery() as nursery:
                for text in ("1", "2", "3"):
                    nursery.start_soon(ref.send, text)
                    await trio.sleep(1)
                assert world.spy.commits < 15
                store.heal()
            await ref.wait_idle()
            assert [text for text in texts(await ref.transcript()) if text[0] == "<"] == ["<1", "<2", "<3"]
            await check(sup.store)


@KINDS
async def test_a_supervisor_is_left_in_bounded_time(kind: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    """The error comes out of the `async with`, though nothing can be written while it is left."""
    world = World("sqlite", tmp_path, checked=False)
    with trouble(kind, tmp_path) as store:
        spec, script = one_call(store, [])
        began = trio.current_time()
        with pytest.raises(Unavailable):
            async with world.open(script, hard=HARD_S, grace=0) as sup:
                await sup.run(spec, "go")
        assert trio.current_time() - began < 2 * HARD_S


async def test_it_goes_on_when_it_is_woken_later(tmp_path: Path, autojump_clock: MockClock) -> None:
    """An agent that was suspended for its store goes on in the same process once the store is well."""
    world, effects = World("sqlite", tmp_path, checked=False), list[float]()
    with trouble("no flush", tmp_path) as store:
        spec, script = one_call(store, effects)
        script["a"].insert(0, call("charge"))
        async with world.open(script, hard=HARD_S) as sup, watched(sup) as log:
            ref = await sup.start(spec, "go")
            with pytest.raises(Unavailable):
                await ref.wait_report()
            await trio.sleep(3 * HARD_S)
            with pytest.raises(Unavailable):
                await ref.send("more")
            store.heal()
            await ref.wake()
            report = await ref.wait_report()
            assert (report.status, len(effects)) == ("done", 1)
            assert [bool(event.error) for event in log.of(StoreTroubled)] == [True, False]
            await check(sup.store)


async def test_a_cancelled_sender_hears_its_outcome(tmp_path: Path, autojump_clock: MockClock) -> None:
    """ACC-2: a commit that waits for its disk is told, not given up; the cancellation comes behind it."""
    world = World("sqlite", tmp_path, checked=False)
    with trouble("full", tmp_path) as store:
        async with world.open({"a": ["one"]}, hard=HARD_S) as sup:
            ref = await sup.start(agent())
            store.fail()

            async def heal() -> None:
                await trio.sleep(3)
                store.heal()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(heal)
                with trio.move_on_after(1) as scope:
                    receipt = await ref.send("1")
                    assert trio.current_time() >= 3
                    await trio.lowlevel.checkpoint()
                assert scope.cancelled_caught
            assert (await receipt.wait_report()).text == "one"
