"""Foreign code (tools, hooks, models) that raises what nobody should: it ends itself, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
import trio

from actors import (
    AgentCrashed,
    AttemptDiscarded,
    Context,
    Crashed,
    HookFailed,
    Hooks,
    Limits,
    Script,
    ToolEnded,
    ToolProgress,
    call,
    tool,
)
from actors.changes import Claim
from actors.ids import AgentId
from actors.ports import Response, WireCall
from actors.transcript import Stop, TextBlock
from tests.supervisor.promises.world import agent, has, quiet, texts, until, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from actors.ports import Emit, ModelRequest
    from supervisor import Supervisor
    from tests.supervisor.promises.world import World

OK = Response((TextBlock("ok"),), Stop.END_TURN)


class Mute(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no text")


async def stale() -> BaseException:
    """A cancellation of a scope that is closed."""
    found: list[BaseException] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep(1)
        except trio.Cancelled as error:
            found.append(error)
            raise
    return found[0]


async def mixed() -> BaseException:
    """Such a cancellation, with an error beside it."""
    return BaseExceptionGroup("g", [await stale(), ValueError("v")])


async def given(error: BaseException) -> BaseException:
    """An error at hand."""
    return error


RAISED: dict[str, Callable[[], object]] = {
    "mute": lambda: given(Mute()),
    "exit": lambda: given(SystemExit(3)),
    "asyncio": lambda: given(asyncio.CancelledError()),
    "generator": lambda: given(GeneratorExit()),
    "stale": stale,
    "mixed": mixed,
}
every = pytest.mark.parametrize("raised", RAISED)


@every
async def test_tol_6_whatever_a_tool_raises_is_its_result(
    memory: World, raised: str, autojump_clock: MockClock
) -> None:
    """An exit, a foreign cancellation, an error without a text: data for the model, and the sibling goes on."""

    @tool
    async def bad() -> str:
        """Raise."""
        raise await RAISED[raised]()  # type: ignore[misc]  # an exception

    @tool
    async def good() -> str:
        """Take a moment."""
        await trio.sleep(1)
        return "fine"

    async with memory.open({"a": [[call("bad"), call("good")], "done"]}) as sup:
        with trio.fail_after(60):
            report = await sup.run(agent(tools=[bad, good]), "go")
        assert report.text == "done"
        ref = await sup.find("a")
        found = [text for text in texts(await ref.transcript()) if text.startswith("=")]
        assert [text.split(":")[0] for text in found] == ["=error", "=ok"]


async def test_tol_6_an_exit_of_a_sync_tool_is_its_result(memory: World) -> None:
    """`sys.exit` in a thread ends no supervisor."""

    @tool
    def bad() -> str:
        """Exit."""
        raise SystemExit(3)

    async with memory.open({"a": [call("bad"), "done"]}, threads=True) as sup:
        with trio.fail_after(10):
            assert (await sup.run(agent(tools=[bad]), "go")).text == "done"


@every
async def test_hok_1_whatever_an_observing_hook_raises_is_an_event(
    memory: World, raised: str, autojump_clock: MockClock
) -> None:
    """In the turn and behind it: an observer's error is told, and the answer comes."""

    class Bad(Hooks):
        async def before_run(self, at: object) -> None:
            raise await RAISED[raised]()  # type: ignore[misc]  # an exception

        async def after_turn(self, at: object, report: object) -> None:
            raise await RAISED[raised]()  # type: ignore[misc]  # an exception

    async with memory.open({"a": ["one", "two"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(hooks=Bad()))
        with trio.fail_after(60):
            assert (await ref.ask("go")).text == "one"
            assert (await ref.ask("again")).text == "two"
            await ref.wait_idle()
        assert {event.hook for event in log.of(HookFailed)} == {"before_run", "after_turn"}
        assert log.of(AgentCrashed) == []


class Odd:
    """A model that first does something odd, as often as it is told to."""

    id = name = "odd"
    free = True
    context_window = None

    def __init__(self, first: Callable[[], object], times: int = 1) -> None:
        self._first = first
        self._left = times

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        if self._left:
            self._left -= 1
            return await self._first()  # type: ignore[misc,no-any-return]  # whatever it is
        return OK


@every
async def test_req_5_whatever_a_model_raises_fails_the_turn_only(
    memory: World, raised: str, autojump_clock: MockClock
) -> None:
    """A stray cancellation from a model, above all, is not swallowed: it is told, and the next turn runs."""

    async def bad() -> Response:
        raise await RAISED[raised]()  # type: ignore[misc]  # an exception

    async with memory.open(Odd(bad)) as sup, watched(sup) as log:
        ref = await sup.start(agent())
        with trio.fail_after(60):
            assert (await ref.ask("go")).status.value == "failed"
            assert (await ref.ask("again")).text == "ok"
        assert log.of(AgentCrashed) == []
        pools = sup._parts.gateway.statistics().pools  # type: ignore[attr-defined]  # the gateway behind the port
        assert not any(pool.held for pool in pools)


async def test_req_3_a_malformed_response_is_a_failed_attempt(memory: World, autojump_clock: MockClock) -> None:
    """No response, text that is none, arguments that are no text: the attempt is made again, and the loop lives."""
    wrong = [None, Response((TextBlock(None),), Stop.END_TURN), Response((WireCall("1", "t", {}),), Stop.END_TURN)]  # type: ignore[arg-type]  # what it must refuse

    async def malformed() -> object:
        return wrong.pop()

    async with memory.open(Odd(malformed, 3)) as sup, watched(sup) as log:
        report = await sup.run(agent(limits=Limits(attempts=4)), "go")
        assert report.text == "ok"
        assert [event.error.split(":")[0] for event in log.of(AttemptDiscarded)] == ["malformed"] * 3
        assert sup._parts.gateway.statistics().discarded == 3  # type: ignore[attr-defined]  # behind the port


async def test_tol_7_a_sync_tool_tells_its_progress_from_its_thread(memory: World) -> None:
    """While a watcher sleeps, too: each is an event, in order, before the call has ended."""

    @tool
    def count(ctx: Context) -> str:
        """Count."""
        for done in range(5):
            ctx.progress("counting", done=done)
        return "counted"

    told: list[int | str | None] = []

    async def watch(sup: Supervisor, started: trio.Event) -> None:
        async with sup.events() as events:
            started.set()
            async for event in events:
                if isinstance(event, ToolProgress):
                    told.append(event.done)
                elif isinstance(event, ToolEnded):
                    told.append(event.status)

    async with memory.open({"a": [call("count"), "done"]}, threads=True) as sup, trio.open_nursery() as nursery:
        started = trio.Event()
        nursery.start_soon(watch, sup, started)
        await started.wait()
        with trio.fail_after(10):
            await sup.run(agent(tools=[count]), "go")
            await until(lambda: "ok" in told)
        nursery.cancel_scope.cancel()
    assert told == [0, 1, 2, 3, 4, "ok"]


async def test_req_2_a_sync_call_cancelled_before_it_had_a_thread_is_over(memory: World) -> None:
    """All threads are taken: the call that waits for one never ran, so an abort leaves nothing of it behind."""
    release, ran = threading.Event(), []

    @tool(effect="pure")
    def hold() -> str:
        """Keep a thread."""
        release.wait(10)
        return "held"

    @tool(exclusive=True)
    def last() -> str:
        """Run once there is a thread."""
        ran.append(1)
        return "ran"

    script = {"busy": [[call("hold") for _ in range(40)], "done"], "a": [call("last"), call("last"), "done"]}
    busy = agent("busy", tools=[hold], limits=Limits(parallel_calls=40, calls_per_response=40))
    async with memory.open(Script(script), threads=True) as sup:  # type: ignore[arg-type]  # steps
        try:
            await sup.start(busy, "go")
            limiter = sup._parts.runner._limiter
            with trio.fail_after(10):
                await until(lambda: limiter.available_tokens == 0)
                ref = await sup.start(agent(tools=[last]), "go")
                await until(lambda: limiter.statistics().tasks_waiting)
                calls = sup._parts.lives[AgentId("a")].calls
                await ref.abort("enough")
                await ref.wait_aborted()
                await quiet()
                assert all(running.done.is_set() for running in calls.running.values())
        finally:
            release.set()
        with trio.fail_after(10):
            assert (await ref.ask("again")).text == "done"
        assert ran == [1]


@pytest.mark.parametrize("way", ["again", "together", "timeout"])
async def test_tol_13_a_call_that_its_hook_asks_for_twice_runs_once(
    memory: World, way: str, autojump_clock: MockClock
) -> None:
    """After an error, at once from two tasks, or after the hook's own timeout: who asks later gets what came of it."""
    ran: list[int] = []
    heard: list[str] = []

    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        ran.append(1)
        await trio.sleep(5)
        raise ValueError("the bank")

    class Twice(Hooks):
        async def around_tool(self, at: object, call: object, proceed: Callable[[], object]) -> object:
            async def go() -> None:
                try:
                    await proceed()  # type: ignore[misc]  # it is awaited
                except Exception as error:  # noqa: BLE001 - what it is, is the question
                    heard.append(type(error).__name__)

            if way == "together":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(go)
                    nursery.start_soon(go)
            elif way == "timeout":
                with trio.move_on_after(1):
                    await go()
                await go()
            else:
                await go()
                await go()
            return "over"

    async with memory.open({"a": [call("pay"), "done"]}) as sup:
        with trio.fail_after(60):
            assert (await sup.run(agent(tools=[pay], hooks=Twice()), "go")).text == "done"
        assert ran == [1]
        assert heard == {"timeout": ["UsageError"]}.get(way, ["ValueError", "ValueError"])


@pytest.mark.parametrize("point", ["after_turn", "settled"])
async def test_abt_1_a_hook_behind_a_turn_is_ended_by_an_abort(
    memory: World, point: str, autojump_clock: MockClock
) -> None:
    """A hook that hangs where the turn is over holds neither the abort nor the next turn."""
    hung: list[int] = []

    async def hang_once(self: object, at: object, *_: object) -> None:
        if not hung:
            hung.append(1)
            await trio.sleep_forever()

    hooks = type("Hanging", (Hooks,), {point: hang_once})()
    async with memory.open({"a": ["one", "two"]}) as sup:
        ref = await sup.start(agent(hooks=hooks), "go")
        await until(lambda: hung)
        await ref.abort("enough")
        with trio.fail_after(60):
            await ref.wait_aborted()
            assert (await ref.ask("again")).text == "two"


async def test_cls_5_a_hook_behind_a_turn_is_cut_off_where_the_supervisor_is_left(
    memory: World, autojump_clock: MockClock
) -> None:
    """A suspension waits its grace for such a hook, not longer."""
    hung: list[int] = []

    class Hanging(Hooks):
        async def after_turn(self, at: object, report: object) -> None:
            hung.append(1)
            await trio.sleep_forever()

    with trio.fail_after(60):
        async with memory.open({"a": ["one"]}, on_exit="suspend", grace=5) as sup:
            await sup.start(agent(hooks=Hanging()), "go")
            await until(lambda: hung)
            began = trio.current_time()
    assert trio.current_time() - began == 5


async def test_trn_3_a_turn_that_stops_by_itself_is_a_crash(memory: World, autojump_clock: MockClock) -> None:
    """A stray cancellation out of a part of ours ends no turn in silence: it is named, and whoever asked hears it."""
    async with memory.open({"a": ["never"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent())

        async def before(one: ChangeSet) -> None:
            if has(one, Claim):
                raise await stale()

        memory.spy.before = before
        with trio.fail_after(60), pytest.raises(Crashed):
            await ref.ask("go")
        errors = [event.error for event in log.of(AgentCrashed)]  # one for each time that it was tried
        assert errors
        assert all("not by anybody" in error for error in errors)
