"""BUD-4, BUD-6 and BUD-8: what is done where a budget refuses, when its time is up, and what the refusal names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import AgentSuspended, Budget, BudgetStage, Context, Exhausted, Limits, Unfinished, call, tool
from actors.changes import Put
from actors.models.script import hang
from actors.transcript import NoteRecord, ResponseRecord, ResultRecord, problems
from tests.supervisor.promises.world import agent, check, has, said, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors import Agent
    from actors.changes import ChangeSet
    from actors.ports import ModelRequest
    from tests.supervisor.promises.world import World

PATIENT = Limits(first_event_s=10_000, between_events_s=10_000)


@tool(effect="pure")
async def work(seconds: float) -> str:
    """Work."""
    await trio.sleep(seconds)
    return "worked"


def at_work(name: str = "a", **options: Any) -> Agent:
    """An agent that works, with nothing but its budget to end it."""
    return agent(name, **{"tools": [work], "limits": PATIENT, **options})


def works(request: ModelRequest) -> object:
    """Goes on working for as long as it may."""
    return "summed up" if request.tool_choice == "none" else call("work", seconds=1)


def exhausted(report: Any) -> tuple[object, ...]:
    """What a refusal names."""
    assert isinstance(report.error, Exhausted), report
    return report.error.node, report.error.dimension, str(report.error.limit), str(report.error.spent)


# -- which budget decides ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [None, Budget(model_calls=50, on_exhausted="park"), Budget(on_exhausted="park")])
@pytest.mark.parametrize(("how", "status"), [("wrap_up", "exhausted"), ("fail", "exhausted"), ("park", "parked")])
async def test_bud_4_the_budget_that_refuses_says_what_is_done(
    world: World, autojump_clock: MockClock, how: str, status: str, own: Budget | None
) -> None:
    """A child does what the budget says whose limit it met, its lead's here, whatever its own would have it do."""
    kid = at_work("kid", budget=own)
    lead = agent("lead", children=[kid], budget=Budget(model_calls=3, on_exhausted=how))
    async with world.open({"lead": [call("kid", task="x"), "led", "led"], "kid": works}) as sup:
        ref = await sup.start(lead, "go")
        below = await (await _child(ref, sup)).wait_report()
        assert (below.status, below.text) == (status, "summed up" if how == "wrap_up" else "")
        assert exhausted(below) == ("lead", "model_calls", "3", "3")
        await ref.wait_report()
        await check(sup.store)


async def _child(ref: Any, sup: Any) -> Any:
    """The handle of the child, once it has begun."""
    async with ref.events() as events:
        async for event in events:
            if event.path == "lead/kid":
                break
    return await sup.find("lead/kid")


async def test_bud_4_a_childs_own_limit_does_what_the_child_says(world: World, autojump_clock: MockClock) -> None:
    """Its lead's setting is for the lead's own limits."""
    kid = at_work("kid", budget=Budget(model_calls=2))
    lead = agent("lead", children=[kid], budget=Budget(model_calls=10, on_exhausted="fail"))
    async with world.open({"lead": [call("kid", task="x"), "led"], "kid": works}) as sup:
        report = await sup.run(lead, "go")
        assert (report.status, report.text) == ("done", "led")
        below = await (await sup.find("lead/kid")).wait_report()
        assert (below.status, below.text, *exhausted(below)[:2]) == (
            "exhausted",
            "summed up",
            "lead/kid",
            "model_calls",
        )


async def test_bud_4_a_budget_that_fails_lends_nothing_to_one_that_wraps_up(
    world: World, autojump_clock: MockClock
) -> None:
    """A last response that would pass a limit above is not made, unless that budget wraps up too."""
    kid = at_work("kid", budget=Budget(model_calls=2))
    lead = agent("lead", children=[kid], budget=Budget(model_calls=3, on_exhausted="fail"))
    async with world.open({"lead": [call("kid", task="x"), "never"], "kid": works}) as sup:
        report = await sup.run(lead, "go")
        assert exhausted(report) == ("lead", "model_calls", "3", "3")
        below = await (await sup.find("lead/kid")).wait_report()
        assert (below.status, below.text, exhausted(below)[0]) == ("exhausted", "", "lead/kid")


# -- what the refusal names ----------------------------------------------------------------------------------------


async def test_bud_8_a_refusal_names_the_limit_that_was_set(world: World, autojump_clock: MockClock) -> None:
    """Last responses may pass a limit, once for each agent; whoever is refused behind them reads the limit as set."""
    kid = at_work("kid")
    lead = agent("lead", children=[kid], budget=Budget(model_calls=3))
    script = {"lead": [[call("kid", task="x"), call("kid", task="y")], "led"], "kid": works}
    async with world.open(script) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        report = await ref.wait_report()
        await ref.wait_idle()
        assert (report.status, report.text) == ("exhausted", "led")
        assert exhausted(report) == ("lead", "model_calls", "3", "5")
        for name in ("lead/kid", "lead/kid#2"):
            below = await (await sup.find(name)).wait_report()
            assert (below.status, below.text, exhausted(below)[2]) == ("exhausted", "summed up", "3")
        (bound,) = sup._parts.ledger.snapshot(ref.path).limits
        assert (bound.limit, bound.used, bound.left) == (3, 6, 0)
        stages = [(event.stage, event.limit) for event in log.of(BudgetStage)]
        assert stages == [("soft", "3"), ("critical", "3"), ("exhausted", "3")], "each once, whatever was lent"


# -- tool calls ----------------------------------------------------------------------------------------------------


def asks_for_two(request: ModelRequest) -> object:
    """Two calls at a time, for as long as it may."""
    if request.tool_choice == "none":
        return "summed up"
    return [call("work", seconds=1), call("work", seconds=2)]


@pytest.mark.parametrize(
    ("how", "status", "text"),
    [("wrap_up", "exhausted", "summed up"), ("fail", "exhausted", ""), ("park", "parked", "")],
)
async def test_bud_4_tool_calls_that_run_out_do_what_the_budget_says(
    world: World, autojump_clock: MockClock, how: str, status: str, text: str
) -> None:
    """Those that fit are run, the others refused where the model reads it; then it wraps up, parks or fails."""
    async with world.open({"a": asks_for_two}) as sup:
        ref = await sup.start(at_work(budget=Budget(tool_calls=3, on_exhausted=how)), "go")
        report = await ref.wait_report()
        assert (report.status, report.text) == (status, text)
        assert exhausted(report) == ("a", "tool_calls", "3", "3")
        records = await ref.transcript()
        found = [record for record in records if isinstance(record, ResultRecord)]
        assert [record.status.value for record in found] == ["ok", "ok", "ok", "refused"]
        assert said(found[-1].content) == "Not run: the budget of tool calls is exhausted."
        assert problems(records) == []
        await check(sup.store)


async def test_bud_4_a_grant_of_tool_calls_goes_on_with_a_parked_run(world: World, autojump_clock: MockClock) -> None:
    """It is asked again, reads which call was refused, and has what was granted."""
    script = {"a": [[call("work", seconds=1), call("work", seconds=2)], call("work", seconds=2), "done"]}
    async with world.open(script) as sup:
        ref = await sup.start(at_work(budget=Budget(tool_calls=1, on_exhausted="park")), "go")
        assert (await ref.wait_report()).status == "parked"
        await sup.grant(ref, Budget(tool_calls=1), by="a test")
        report = await ref.wait_report()
        assert (report.status, report.text) == ("done", "done")
        assert [done.status for done in report.calls] == ["ok", "refused", "ok"]


@pytest.mark.parametrize("whose", ["a", "/"])
async def test_bud_5_a_grant_that_lands_while_the_run_is_being_parked_is_not_lost(
    world: World, autojump_clock: MockClock, whose: str
) -> None:
    """It goes on at once, and nobody hears that it was parked."""
    granted: list[str] = []

    async def before(change_set: ChangeSet) -> None:
        if not granted and has(change_set, Put, lambda op: getattr(op.row, "suspended", None) == "budget"):
            granted.append(whose)
            await sup.grant(whose, Budget(model_calls=1), by="a test")

    limits = {whose: Budget(model_calls=1, on_exhausted="park")}
    async with (
        world.open({"a": [call("work", seconds=1), "done"]}, budget=limits.get("/")) as sup,
        watched(sup) as log,
    ):
        world.spy.before = before
        report = await sup.run(at_work(budget=limits.get("a")), "go")
        assert (report.status, report.text, granted) == ("done", "done", [whose])
        assert log.of(AgentSuspended) == []
        await check(sup.store)


async def test_bud_4_a_call_refused_for_something_else_is_no_exhaustion(
    world: World, autojump_clock: MockClock
) -> None:
    """Where every call that could run is granted, the budget has refused nothing."""
    script = {"a": [[call("work", seconds=1), call("unknown")], "done"]}
    async with world.open(script) as sup:
        report = await sup.run(at_work(budget=Budget(tool_calls=1, on_exhausted="fail")), "go")
        assert (report.status, report.text) == ("done", "done")


# -- seconds -------------------------------------------------------------------------------------------------------


async def test_bud_6_a_stream_is_cut_when_the_seconds_are_used_up(world: World, autojump_clock: MockClock) -> None:
    """Also where time has passed since the account was told last; what came stays."""
    async with world.open({"a": [call("work", seconds=4), ("half", hang())]}) as sup:
        began = trio.current_time()
        report = await sup.run(at_work(budget=Budget(seconds=10)), "go")
        assert trio.current_time() - began == pytest.approx(10, abs=0.01)
        assert (report.text, *exhausted(report)[:3]) == ("half", "a", "seconds", "10")


async def test_bud_6_running_calls_are_cut_when_the_seconds_are_used_up(
    world: World, autojump_clock: MockClock
) -> None:
    """They are settled as timed out, those not begun as skipped, and a deaf one holds nothing up."""

    @tool
    async def deaf() -> str:
        """Notice nothing."""
        with trio.CancelScope(shield=True):
            await trio.sleep(50)
        return "late"

    limits = Limits(parallel_calls=1)
    script = {"a": [[call("deaf"), call("work", seconds=1)], "never"]}
    async with world.open(script) as sup:
        ref = await sup.start(at_work(tools=[work, deaf], limits=limits, budget=Budget(seconds=10)), "go")
        began = trio.current_time()
        report = await ref.wait_report()
        assert trio.current_time() - began == pytest.approx(10, abs=0.01)
        assert report.status == "exhausted"
        assert exhausted(report)[:3] == ("a", "seconds", "10")
        found = [one for one in await ref.transcript() if isinstance(one, ResultRecord)]
        assert [one.status.value for one in found] == ["timeout", "skipped"]
        assert said(found[0].content).startswith("The time of the budget was used up while this call was running. It")
        (bound,) = sup._parts.ledger.snapshot(ref.path).limits
        assert float(str(bound.used)) == pytest.approx(10, abs=0.01)
        await check(sup.store)


async def test_bud_6_the_time_of_all_turns_below_a_budget_is_one_sum(world: World, autojump_clock: MockClock) -> None:
    """A lead that waits and three children that work use up twelve seconds in three, and all of them end."""
    lead = agent("lead", children=[at_work("kid")], budget=Budget(seconds=12), limits=PATIENT)
    script = {"lead": [[call("kid", task=str(n)) for n in range(3)], "never"], "kid": [call("work", seconds=1_000)]}
    async with world.open(script) as sup:
        began = trio.current_time()
        ref = await sup.start(lead, "go")
        report = await ref.wait_report()
        assert trio.current_time() - began == pytest.approx(3, abs=0.01)
        assert exhausted(report)[:3] == ("lead", "seconds", "12")
        for name in ("lead/kid", "lead/kid#2", "lead/kid#3"):
            below = await (await sup.find(name)).wait_report()
            assert exhausted(below)[:3] == ("lead", "seconds", "12"), "by its own turn, not by its lead's"
        assert sup._parts.seconds._nodes == {}  # type: ignore[attr-defined]  # the real one
        await check(sup.store)


async def test_bud_6_what_begins_and_ends_beside_moves_the_time(world: World, autojump_clock: MockClock) -> None:
    """One that has ended uses none: two agents below one budget of the supervisor's, one of them for two seconds."""
    script = {"a": [call("work", seconds=2), "done"], "b": [call("work", seconds=1_000)]}
    async with world.open(script, budget=Budget(seconds=10)) as sup:
        began = trio.current_time()
        first, second = await sup.start(at_work("a"), "go"), await sup.start(at_work("b"), "go")
        assert (await first.wait_report()).status == "done"
        report = await second.wait_report()
        assert trio.current_time() - began == pytest.approx(8, abs=0.02)
        assert exhausted(report)[:3] == ("/", "seconds", "10")


async def test_bud_6_a_lead_that_does_something_else_beside_a_child_has_that_cut(
    world: World, autojump_clock: MockClock
) -> None:
    """Its own call ends with a result, its child with a report, and its next request is refused."""
    lead = at_work("lead", children=[at_work("kid")], budget=Budget(seconds=10))
    script = {
        "lead": [[call("kid", task="x"), call("work", seconds=1_000)], "never"],
        "kid": [call("work", seconds=1_000)],
    }
    async with world.open(script) as sup:
        began = trio.current_time()
        ref = await sup.start(lead, "go")
        report = await ref.wait_report()
        assert trio.current_time() - began == pytest.approx(5, abs=0.01)
        assert exhausted(report)[:2] == ("lead", "seconds")
        found = [one for one in await ref.transcript() if isinstance(one, ResultRecord)]
        assert "exhausted" in said(found[0].content)
        assert said(found[1].content) == "The call was cancelled: the seconds of the budget are used up"


async def test_bud_6_a_tool_that_waits_for_an_agent_is_a_call_like_others(
    world: World, autojump_clock: MockClock
) -> None:
    """It is cut with its turn, and the agent ends by itself."""

    @tool
    async def ask(ctx: Context) -> str:
        """Have it done."""
        started = await ctx.start(kid, "x")
        return (await started.wait_report()).text

    kid = at_work("kid")
    lead = agent("lead", tools=[ask], budget=Budget(seconds=10), limits=PATIENT)
    async with world.open({"lead": [call("ask"), "never"], "kid": [call("work", seconds=1_000)]}) as sup:
        ref = await sup.start(lead, "go")
        assert exhausted(await ref.wait_report())[:2] == ("lead", "seconds")
        below = await (await sup.find("lead/kid")).wait_report()
        assert exhausted(below)[:2] == ("lead", "seconds")


@pytest.mark.parametrize("step", ["stream", "call"])
async def test_bud_6_time_that_is_up_parks_where_the_budget_says_so(
    world: World, autojump_clock: MockClock, step: str
) -> None:
    """What is under way is cut and kept; a grant of seconds goes on with the run."""
    first: object = ("half", hang()) if step == "stream" else call("work", seconds=1_000)
    async with world.open({"a": [first, "done"]}) as sup:
        ref = await sup.start(at_work(budget=Budget(seconds=10, on_exhausted="park")), "go")
        began = trio.current_time()
        assert exhausted(await ref.wait_report())[:3] == ("a", "seconds", "10")
        assert trio.current_time() - began == pytest.approx(10, abs=0.01)
        await trio.sleep(5_000)  # parked, no time passes
        await sup.grant(ref, Budget(seconds=5), by="a test")
        report = await ref.wait_report()
        assert (report.status, report.text) == ("done", "done")
        await check(sup.store)


async def test_bud_6_a_parked_tree_goes_on_with_a_grant_at_its_root(world: World, autojump_clock: MockClock) -> None:
    """The child parks with its call cut, its lead at its next request; both go on when the lead has more."""
    budget = Budget(seconds=10, on_exhausted="park")
    lead = agent("lead", children=[at_work("kid")], budget=budget, limits=PATIENT)
    script = {"lead": [call("kid", task="x"), "led"], "kid": [call("work", seconds=1_000), "did"]}
    async with world.open(script) as sup:
        ref = await sup.start(lead, "go")
        assert (await ref.wait_report()).status == "parked"
        below = await sup.find("lead/kid")
        assert (await below.wait_report()).status == "parked"
        await sup.grant(ref, Budget(seconds=10), by="a test")
        await ref.wait_idle()
        assert ((await ref.wait_report()).text, (await below.wait_report()).text) == ("led", "did")


async def test_bud_6_no_time_of_a_budget_passes_while_a_person_is_waited_for(
    world: World, autojump_clock: MockClock
) -> None:
    """However long an approval takes; what is left after it is as much as before."""

    @tool(approve=True)
    async def risky() -> str:
        """Risk it."""
        await trio.sleep(1_000)
        return "done"

    kid = at_work("kid", tools=[risky])
    lead = agent("lead", children=[kid], budget=Budget(seconds=10), limits=PATIENT)
    script = {"lead": [call("kid", task="go"), "never"], "kid": [call("risky")]}
    async with world.open(script) as sup, sup.approvals() as inbox:
        ref = await sup.start(lead, "go")
        request = await anext(inbox)
        await trio.sleep(5_000)
        began = trio.current_time()
        await request.approve()
        assert exhausted(await ref.wait_report())[:2] == ("lead", "seconds")
        assert trio.current_time() - began == pytest.approx(5, abs=1.01), "looked at once a second while it stands"


async def test_bud_6_the_model_is_told_before_the_seconds_are_used_up(world: World, autojump_clock: MockClock) -> None:
    """At a boundary behind the critical stage it reads so, and may answer in time."""
    notes: list[str] = []

    def model(request: ModelRequest) -> object:
        notes.extend(request.notes)
        return "in time" if any("critical" in note for note in request.notes) else call("work", seconds=4.6)

    async with world.open({"a": model}) as sup:
        report = await sup.run(at_work(budget=Budget(seconds=10)), "go")
        assert (report.status, report.text) == ("done", "in time")
        assert "9.2 of 10 seconds" in notes[-1]


async def test_bud_6_without_a_limit_of_seconds_nothing_is_kept(world: World, autojump_clock: MockClock) -> None:
    """Another limit has no clock, and no turn is looked at."""
    async with world.open({"a": [call("work", seconds=100_000), "done"]}) as sup:
        limits = Limits(turn_s=None)
        assert (await sup.run(at_work(limits=limits, budget=Budget(model_calls=5)), "go")).status == "done"
        assert sup._parts.timekeeper._running is False


async def test_bud_6_what_came_of_a_cut_response_stays(world: World, autojump_clock: MockClock) -> None:
    """Its half text is in the conversation, marked as interrupted, with the note that says why the turn ended."""
    script = {"a": [("half", hang()), "well"], "b": [call("work", seconds=1)] * 4}
    async with world.open(script, budget=Budget(seconds=4)) as sup:
        ref = await sup.start(at_work(), "go")
        await sup.start(at_work("b"), "go")
        report = await ref.wait_report()
        assert (report.status, report.text) == ("exhausted", "half")
        records = await ref.transcript()
        assert [record.text for record in records if isinstance(record, ResponseRecord)] == ["half"]
        assert isinstance(records[-1], NoteRecord)


async def test_bud_4_a_parked_run_says_so_in_the_next_process_too(world: World, autojump_clock: MockClock) -> None:
    """Whoever takes it up again, or waits for it, has the report that it is parked, and for want of what."""
    spec = at_work(budget=Budget(model_calls=1, on_exhausted="park"))
    script = {"a": [call("work", seconds=1), "done"]}
    async with world.open(script) as sup:
        first = await sup.run(spec, "go", key="k")
    async with world.open(script, agents=[spec]) as sup:
        ref = await sup.find("a")
        for report in (await sup.run(spec, "go", key="k"), await ref.wait_report()):
            assert (report.status, report.run) == ("parked", first.run)
            assert exhausted(report)[:2] == exhausted(first)[:2] == ("a", "model_calls")
            assert "grant() it, or abort(); spent or held are model_calls of a, 1 of 1" in str(report.error)
        with pytest.raises(Unfinished, match="grant"):
            await ref.wait_idle()
        await sup.grant(ref, Budget(model_calls=1), by="a test")
        assert (await ref.wait_report()).text == "done"
