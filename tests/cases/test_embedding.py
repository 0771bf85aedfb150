"""Cases of embedding: other event loops, generators that are left, threads that would block everything."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from actors import Script, TextDelta, call, tool
from actors.errors import InsideLoop
from supervisor import run_sync
from tests.supervisor.promises.world import World, agent, check, until, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.ports import ModelRequest

ROOT = Path(__file__).parents[2]

NO_ASYNCIO = """
import asyncio, sys

def refuse(*_, **__):
    raise AssertionError("an asyncio loop was asked for")

for owner in (asyncio, asyncio.events):
    for name in ("new_event_loop", "get_event_loop", "set_event_loop", "run"):
        if hasattr(owner, name):
            setattr(owner, name, refuse)
asyncio.BaseEventLoop.__init__ = refuse

import trio
from actors import Agent, Script, call, tool
from supervisor import open_supervisor, run_sync

@tool(effect="pure")
def add(a: int, b: int) -> int:
    '''Add, in a thread.'''
    return a + b

adder = Agent("adder", "Add.", tools=[add])

async def main():
    script = Script({"adder": [call("add", a=2, b=3), "It is five."]})
    async with open_supervisor(model=script, store=sys.argv[1], agents=[adder]) as sup:
        async with sup.events() as events:
            report = await sup.run(adder, "2 + 3?")
        print(report.text)

trio.run(main)
print(run_sync(adder, "2 + 3?", model=Script({"adder": ["Five again."]})).text)
"""


def test_br_155_nothing_asks_for_an_asyncio_loop(tmp_path: Path) -> None:
    """Imported and run, with a store in a file, a tool in a thread and a watcher, where no such loop can be made."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", NO_ASYNCIO, str(tmp_path / "agents.db")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )
    assert (ran.stdout.splitlines(), ran.stderr) == (["It is five.", "Five again."], "")


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A store of either kind."""
    return World(request.param, tmp_path)


class Left(Exception):
    """Raised by the one who watches."""


@pytest.mark.parametrize("how", ["break", "raise", "cancel", "return", "left open"])
async def test_br_156_a_watcher_may_be_left_in_any_way(world: World, autojump_clock: MockClock, how: str) -> None:
    """In the middle of a stream, out of the loop that reads it: the agent goes on, no scope ends in another task."""

    async def watch(ref: object) -> None:
        async with ref.events() as events:  # type: ignore[attr-defined]  # a handle
            async for event in events:
                if not isinstance(event, TextDelta):
                    continue
                if how == "raise":
                    raise Left
                if how == "cancel":
                    await trio.sleep_forever()
                if how == "return":
                    return
                break

    async with world.open(Script({"a": ["a long answer", "another"]}, delta_chars=1)) as sup, AsyncExitStack() as open_:
        ref = await sup.start(agent())
        async with trio.open_nursery() as nursery:
            receipt = await ref.send("go")
            if how == "left open":  # its iterator is dropped with the scope still open, and never closed
                await anext(aiter(await open_.enter_async_context(ref.events())))
            else:
                with trio.move_on_after(1):
                    try:
                        await watch(ref)
                    except Left:
                        assert how == "raise"
            assert (await receipt.wait_report()).text == "a long answer"
            nursery.cancel_scope.cancel()
        await open_.aclose()
        assert not sup._parts.board.concerns(ref.path), "nobody watches any more"
        assert (await ref.ask("more")).text == "another"
        await check(sup.store)


def test_br_157_a_blocking_run_is_refused_where_it_would_wait_for_itself() -> None:
    """In a task of Trio's thread or in a sync callback there: an error at once that says what to do."""
    told: list[str] = []
    spec = agent()

    def blocking() -> None:
        try:
            run_sync(spec, "go", model=Script({"a": ["never"]}))
        except InsideLoop as error:
            told.append(str(error))

    async def main() -> None:
        with trio.fail_after(5):
            blocking()
            called = trio.Event()
            token = trio.lowlevel.current_trio_token()

            def callback() -> None:
                blocking()
                called.set()

            token.run_sync_soon(callback)
            await called.wait()
            await trio.to_thread.run_sync(lambda: trio.from_thread.run_sync(blocking))

    trio.run(main)
    assert len(told) == 3
    assert all("inside a trio event loop" in text and "await sup.run(...)" in text for text in told)


async def test_br_157_a_blocking_run_in_a_thread_of_its_own_is_another_run() -> None:
    """From a worker thread it blocks nobody but that thread."""
    spec = agent()

    def blocking() -> str:
        return run_sync(spec, "go", model=Script({"a": ["done"]})).text

    with trio.fail_after(20):
        assert await trio.to_thread.run_sync(blocking) == "done"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_br_161_a_sync_tool_holds_up_nobody_and_an_abort_does_not_wait_for_it(tmp_path: Path, kind: str) -> None:
    """While it blocks its thread another agent works and answers; an abort leaves it behind."""
    release, inside = threading.Event(), threading.Event()
    beats: list[int] = []

    @tool
    def blocks() -> str:
        """Block."""
        inside.set()
        time.sleep(0.01)
        release.wait(20)
        return "late"

    @tool(effect="pure")
    async def beat() -> str:
        """Beat."""
        beats.append(1)
        return "beat"

    def other(request: ModelRequest) -> object:
        return call("beat") if request.window.responses < 5 else "alive"

    script = {"a": [call("blocks"), "went on"], "b": other}
    world = World(kind, tmp_path)
    try:
        async with world.open(script, threads=True, hard=0.05) as sup, watched(sup) as log:
            with trio.fail_after(20):
                ref = await sup.start(agent(tools=[blocks]), "go")
                await until(inside.is_set)
                report = await sup.run(agent("b", tools=[beat]), "go")
                assert (report.text, len(beats)) == ("alive", 5)
                await ref.abort("enough")
                await ref.wait_aborted()
                assert log.statuses("a") == ["aborted"]
                assert not release.is_set()
                release.set()
                assert (await ref.ask("again")).text == "went on"
                await check(sup.store)
    finally:
        release.set()
