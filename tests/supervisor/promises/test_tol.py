"""TOL: tool calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import trio

from actors import Context, Hooks, Limits, ToolEnded, ToolLate, ToolProgress, ToolStarted, UsageError, call, tool
from actors.changes import Append, CallRow, CallState, Erase, Put
from actors.models.script import Script
from actors.transcript import ResponseRecord, ResultRecord, problems
from tests.supervisor.promises.world import agent, check, has, ops, quiet, texts, watched

if TYPE_CHECKING:
    from typing import Any

    from trio.testing import MockClock

    from actors import Tool
    from actors.changes import ChangeSet
    from actors.transcript import Record
    from tests.supervisor.promises.world import World


def results(records: tuple[Record, ...]) -> list[tuple[str, str]]:
    """The results of a conversation: status and text."""
    return [
        (record.status.value, "".join(part.text for part in record.content if hasattr(part, "text")))
        for record in records
        if isinstance(record, ResultRecord)
    ]


class Ran:
    """Tools that note when they run."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.now = 0
        self.most = 0

    def tool(self, effect: str = "once", **options: Any) -> Tool[..., Any]:
        """A tool `work(name, seconds)`."""

        @tool(effect=effect, **options)  # type: ignore[call-overload,untyped-decorator]  # any options
        async def work(name: str = "x", seconds: float = 1.0) -> str:
            """Work."""
            self.log.append(f"+{name}")
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await trio.sleep(seconds)
            finally:
                self.now -= 1
            self.log.append(f"-{name}")
            return name

        return cast("Tool[..., Any]", work)


async def test_tol_1_what_cannot_be_answered_is_settled_while_it_is_last(
    world: World, autojump_clock: MockClock
) -> None:
    """An abort in the middle of a batch settles every call in the commit that ends the turn."""
    ran = Ran()
    spec = agent(tools=[ran.tool()], limits=Limits(parallel_calls=1))
    async with world.open({"a": [[call("work", name="1"), call("work", name="2")], "later"]}) as sup:
        ref = await sup.start(spec, "go")
        await trio.sleep(0.5)
        await ref.abort("enough")
        await ref.wait_idle()
        await ref.send("on")
        await ref.wait_idle()
        records = await ref.transcript()
        assert problems(records) == []
        assert [status for status, _ in results(records)] == ["aborted", "skipped"]
        for one in world.spy.sets:  # results and what stands behind them are never without each other
            added = [record for op in ops(one, Append) for record in op.records]
            assert not added or problems([*_owed_before(world, one), *added]) == [] or _ends_in_calls(added)


def _owed_before(world: World, until: ChangeSet) -> list[Record]:
    found: list[Record] = []
    for one in world.spy.sets:
        if one is until:
            return found
        found += [record for op in ops(one, Append) for record in op.records]
    return found


def _ends_in_calls(records: list[Record]) -> bool:
    last = records[-1]
    return isinstance(last, ResponseRecord) and bool(last.calls)


async def test_tol_1_nothing_is_appended_behind_a_batch_whose_settling_failed(
    world: World, autojump_clock: MockClock
) -> None:
    """Where even the settling write fails, the call stays last, and the next owner settles it first."""
    ran = Ran()
    spec = agent(tools=[ran.tool("once")])
    async with world.open({"a": [call("work"), "later"]}) as sup:
        ref = await sup.start(spec, "go")
        await quiet()
        world.spy.refuse = lambda one: has(one, Append) or has(one, Put)
        await trio.sleep(5)
        assert texts(await ref.transcript())[-1] == "> work()"
        await ref.send("meanwhile")
        await quiet()
        assert texts(await ref.transcript())[-1] == "> work()"
    async with world.open({"a": ["later", "and this"]}, agents=[spec]) as sup:
        await sup.resume()
        ref = await sup.find("a")
        await ref.wait_idle()
        records = await ref.transcript()
        assert problems(records) == []
        assert results(records)[0][0] == "unknown"
        assert ran.log == ["+x", "-x"], "a `once` call never runs again"


async def test_tol_2_a_batch_is_committed_before_any_call_runs(world: World, autojump_clock: MockClock) -> None:
    """No call runs while its batch's commit is under way, and none at all if that commit fails."""
    ran = Ran()
    spec = agent(tools=[ran.tool()])

    async def before(one: ChangeSet) -> None:
        if has(one, Append, lambda op: _ends_in_calls(list(op.records))):
            await trio.sleep(3)
            assert ran.log == []

    async with world.open({"a": [call("work"), "done"]}) as sup:
        ref = await sup.start(spec)
        world.spy.before = before
        await ref.send("go")
        await ref.wait_idle()
        assert ran.log == ["+x", "-x"]


async def test_tol_2_an_uncommitted_batch_has_not_run_and_is_dispatched_as_new(
    world: World, autojump_clock: MockClock
) -> None:
    """A batch whose commit failed has not run; the next owner asks again and runs what it then gets."""
    ran = Ran()
    spec = agent(tools=[ran.tool()])
    async with world.open({"a": [call("work", name="lost")]}) as sup:
        ref = await sup.start(spec)
        world.spy.refuse = lambda one: has(one, Append, lambda op: _ends_in_calls(list(op.records)))
        await ref.send("go")
        await quiet()
        assert ran.log == []
    async with world.open({"a": [call("work", name="new"), "done"]}, agents=[spec]) as sup:
        await sup.resume()
        ref = await sup.find("a")
        await ref.wait_idle()
        assert ran.log == ["+new", "-new"]
        assert texts(await ref.transcript()) == ["<go", "> work()", "=ok:new", ">done"]


async def test_tol_3_that_a_call_starts_is_on_disk_before_it_starts(world: World, autojump_clock: MockClock) -> None:
    """When a tool's code runs, the store has its row as started; also for calls that start later in the batch."""
    states: list[object] = []

    @tool(effect="once")
    async def look(ctx: Context) -> str:
        """Look at the store."""
        stored = await world.spy.load_agent(ctx.agent)
        assert stored is not None
        states.append({row.call: row.state for row in stored.calls}[ctx.call_id])
        return "looked"

    script = {"a": [[call("look"), call("look"), call("look")], "done"]}
    async with world.open(script) as sup:
        ref = await sup.start(agent(tools=[look], limits=Limits(parallel_calls=1)), "go")
        await ref.wait_idle()
        assert states == [CallState.STARTED] * 3


@pytest.mark.parametrize(
    ("effect", "status", "times"), [("pure", "ok", 2), ("idempotent", "ok", 2), ("once", "unknown", 1)]
)
async def test_tol_3_a_call_found_started_goes_on_by_its_effect_class(
    world: World, autojump_clock: MockClock, effect: str, status: str, times: int
) -> None:
    """After a crash a `pure` and an `idempotent` call run again, the latter under the same key; a `once` call never."""
    keys: list[str] = []

    @tool(effect=effect)  # type: ignore[call-overload,untyped-decorator]  # any of the three
    async def act(ctx: Context) -> str:
        """Act."""
        keys.append(ctx.idempotency_key)
        await trio.sleep(10 if len(keys) == 1 else 0)
        return "acted"

    spec = agent(tools=[act])
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the raise is the crash
        async with world.open({"a": [call("act")]}, hard=0.1) as sup:
            await sup.start(spec, "go")
            await trio.sleep(1)
            world.spy.refuse = lambda _: True  # from here on the process is as good as dead
            raise ZeroDivisionError
    async with world.open({"a": ["unused", "done"]}, agents=[spec]) as sup:
        (ref,) = await sup.resume()
        await ref.wait_idle()
        records = await ref.transcript()
        assert results(records)[0][0] == status
        assert len(keys) == times
        assert len(set(keys)) == 1
        assert problems(records) == []
        await check(sup.store)


async def test_tol_4_calls_run_side_by_side_up_to_the_limit_and_results_stand_in_call_order(
    world: World, autojump_clock: MockClock
) -> None:
    """Five calls under a limit of two: never more than two at once, and their results in the order asked."""
    ran = Ran()
    script = {"a": [[call("work", name=str(n), seconds=5 - n) for n in range(5)], "done"]}
    async with world.open(script) as sup:
        ref = await sup.start(agent(tools=[ran.tool()], limits=Limits(parallel_calls=2)), "go")
        await ref.wait_idle()
        assert ran.most == 2
        assert [text for _, text in results(await ref.transcript())] == ["0", "1", "2", "3", "4"]


async def test_tol_4_one_resource_one_after_another_and_an_exclusive_call_alone(
    world: World, autojump_clock: MockClock
) -> None:
    """Calls that share a key run in the order asked; others beside them; an exclusive call beside nobody."""
    ran = Ran()
    shared = ran.tool(resource=lambda name, seconds: name[0])
    alone: list[int] = []

    @tool(exclusive=True)
    async def lone() -> str:
        """Be alone."""
        alone.append(ran.now)
        await trio.sleep(1)
        alone.append(ran.now)
        return "alone"

    step = [call("work", name=name) for name in ("a1", "a2", "b1", "a3")] + [call("lone"), call("work", name="c1")]
    async with world.open({"a": [step, "done"]}) as sup:
        ref = await sup.start(agent(tools=[shared, lone]), "go")
        await ref.wait_idle()
        assert [one for one in ran.log if one[1] == "a"] == ["+a1", "-a1", "+a2", "-a2", "+a3", "-a3"]
        assert ran.log.index("+b1") < ran.log.index("-a1"), "another key runs beside it"
        assert alone == [0, 0]
        assert ran.log[-2:] == ["+c1", "-c1"]


async def test_tol_4_each_result_is_in_one_commit_with_the_clearing_of_its_call(
    world: World, autojump_clock: MockClock
) -> None:
    """The set that appends a result erases its call's row, and no other set does either."""
    ran = Ran()
    async with world.open({"a": [[call("work", name="1"), call("work", name="2")], "done"]}) as sup:
        ref = await sup.start(agent(tools=[ran.tool()]), "go")
        await ref.wait_idle()
        for one in world.spy.sets:
            appended = [r.call for op in ops(one, Append) for r in op.records if isinstance(r, ResultRecord)]
            erased = [op.prefix[0] for op in ops(one, Erase) if op.table is CallRow]
            assert appended == erased
        stored = await sup.store.load_agent(ref.path)
        assert stored is not None
        assert stored.calls == ()


async def test_tol_4_a_failure_is_data_and_cancels_no_sibling_unless_it_is_fatal(
    world: World, autojump_clock: MockClock
) -> None:
    """A failing call leaves its siblings alone; a fatal tool's failure skips what had not started."""
    ran = Ran()

    @tool
    async def breaks() -> str:
        """Break."""
        msg = "broken"
        raise RuntimeError(msg)

    @tool(fatal=True)
    async def breaks_all() -> str:
        """Break for good."""
        msg = "broken"
        raise RuntimeError(msg)

    script = {
        "a": [
            [call("breaks"), call("work", name="1"), call("work", name="2")],
            [call("breaks_all"), call("work", name="3")],
            "done",
        ]
    }
    async with world.open(script) as sup:
        ref = await sup.start(agent(tools=[ran.tool(), breaks, breaks_all], limits=Limits(parallel_calls=1)), "go")
        report = await ref.wait_report()
        assert report.text == "done"
        assert [status for status, _ in results(await ref.transcript())] == ["error", "ok", "ok", "error", "skipped"]
        assert ran.log == ["+1", "-1", "+2", "-2"]


async def test_tol_5_a_call_id_used_twice_stands_once(world: World, autojump_clock: MockClock) -> None:
    """Of two calls of one id the first is taken, the second refused before anything runs, and the model is told."""
    ran = Ran()
    step = [call("work", name="first").known_as("id"), call("work", name="second").known_as("id")]
    async with world.open({"a": [step, "done"]}) as sup:
        ref = await sup.start(agent(tools=[ran.tool()]), "go")
        await ref.wait_idle()
        records = await ref.transcript()
        assert ran.log == ["+first", "-first"]
        assert len([record for record in records if isinstance(record, ResultRecord)]) == 1
        assert any("used more than once" in text for text in texts(records))
        assert problems(records) == []


async def test_tol_6_whatever_goes_wrong_is_a_result_and_ends_no_turn(world: World, autojump_clock: MockClock) -> None:
    """Unknown tool, no JSON, arguments that do not fit, a result of another type, an exception, a timeout.

    A foreign cancellation: each is an error result that says what to do, and the turn goes on.
    """

    @tool(timeout=2)
    async def slow() -> str:
        """Sleep."""
        await trio.sleep(100)
        return ""

    @tool
    async def lies() -> int:
        """Promise a number."""
        return "no number"  # type: ignore[return-value]  # on purpose

    @tool
    async def raises(a: int) -> int:
        """Raise."""
        msg = f"cannot do {a}"
        raise ValueError(msg)

    @tool
    async def leaks() -> int:
        """Let a cancellation escape."""
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.sleep_forever()
            except trio.Cancelled as error:  # noqa: ASYNC103 - what is not ours is told, not raised: our own cancellation goes on
                kept = error
        raise kept

    step = [
        call("nobody"),
        call.raw("raises", "{not json"),
        call("raises", b=1),
        call("lies"),
        call("raises", a=7),
        call("slow"),
        call("leaks"),
    ]
    async with world.open({"a": [step, "on it goes"]}) as sup:
        ref = await sup.start(agent(tools=[slow, lies, raises, leaks]), "go")
        report = await ref.wait_report()
        found = results(await ref.transcript())
        assert report.text == "on it goes"
        assert [status for status, _ in found] == ["error"] * 5 + ["timeout", "error"]
        for (_, text), part in zip(
            found, ("no tool 'nobody'", "JSON", "a", "", "cannot do 7", "longer than 2", "cancellation"), strict=True
        ):
            assert part in text
        assert all(text for _, text in found)


async def test_tol_7_each_call_has_its_own_scope_deadline_store_and_progress(
    world: World, autojump_clock: MockClock
) -> None:
    """One call is cancelled and its sibling not; a call's values are its own; progress is an event."""
    seen: list[object] = []

    @tool
    async def keep(ctx: Context, value: str) -> str:
        """Keep a value."""
        await ctx.kv.call.set("v", value)
        ctx.progress("half way", done=1, total=2)
        await trio.sleep(2)
        seen.append(await ctx.kv.call.get("v"))
        return value

    script = {"a": [[call("keep", value="1"), call("keep", value="2"), call("keep", value="3")], "done"]}
    async with world.open(script) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[keep]), "go")
        await trio.sleep(1)
        started = [event.call for event in log.of(ToolStarted)]
        ref.cancel_call(started[1], "not needed")
        await ref.wait_idle()
        assert sorted(seen) == ["1", "3"]  # type: ignore[type-var]  # texts
        found = results(await ref.transcript())
        assert [status for status, _ in found] == ["ok", "error", "ok"]
        assert "not needed" in found[1][1]
        assert sorted(event.call for event in log.of(ToolProgress)) == sorted(started)
        with pytest.raises(UsageError):
            ref.cancel_call(started[0])


async def test_tol_9_two_tools_of_one_name_fail_before_the_model_sees_either(
    world: World, autojump_clock: MockClock
) -> None:
    """Written into an agent they are refused at once; chosen by a hook they fail the turn, and nothing is asked."""

    @tool(name="same")
    async def one() -> str:
        """One."""
        return "1"

    @tool(name="same")
    async def two() -> str:
        """Two."""
        return "2"

    with pytest.raises(UsageError, match="same"):
        agent(tools=[one, two])

    class Twice(Hooks):
        async def tools(self, at: object) -> list[Tool[..., Any]]:
            return [one, two]

    async with world.open({"a": ["never asked"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(hooks=Twice()), "go")
        report = await ref.wait_report()
        assert (report.status, type(report.error)) == ("failed", UsageError)
        assert not [event for event in log.events if type(event).__name__ == "RequestStarted"]


async def test_tol_10_the_first_failed_commit_closes_the_batch(world: World, autojump_clock: MockClock) -> None:
    """Once a commit of the batch's results fails, no later result of it is committed and nothing new starts."""
    ran = Ran()
    spec = agent(tools=[ran.tool("pure")], limits=Limits(parallel_calls=2))
    script = {"a": [[call("work", name=str(n), seconds=n + 1) for n in range(4)], "done"]}
    async with world.open(script) as sup:
        ref = await sup.start(spec, "go")
        await quiet()
        written = len(world.spy.sets)
        world.spy.refuse = lambda _: True
        await trio.sleep(1.5)  # the first result could not be written
        world.spy.refuse = lambda _: False
        await trio.sleep(20)
        assert len(world.spy.sets) == written
        assert sorted(one for one in ran.log if one[0] == "+") == ["+0", "+1"]
        assert ref.state == "suspended"
    async with world.open(Script(script), agents=[spec]) as sup:
        await sup.resume()
        ref = await sup.find("a")
        await ref.wait_idle()
        assert [text for _, text in results(await ref.transcript())] == ["0", "1", "2", "3"]
        await check(sup.store)


async def test_tol_14_what_an_abandoned_call_returns_is_late_and_never_enters(
    world: World, autojump_clock: MockClock
) -> None:
    """A call that does not notice the abort and returns later is an event, not a record."""

    @tool
    async def deaf() -> str:
        """Notice nothing."""
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return "late news"

    async with world.open({"a": [call("deaf"), "next"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[deaf]), "go")
        await trio.sleep(1)
        await ref.abort("enough")
        await ref.wait_aborted()
        assert log.of(ToolLate) == []
        await ref.send("on")
        await ref.wait_idle()
        (late,) = log.of(ToolLate)
        assert late.text == "late news"
        assert not any("late news" in text for text in texts(await ref.transcript()))
        assert len(log.of(ToolEnded)) == 1
