"""What went wrong elsewhere when a process died: effects done twice, results lost, half a conversation kept.

A process of these tests dies at a named moment, before or behind a commit or at an edge of something outside
(`dying.py`); the next one opens the same store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from actors import (
    Agent,
    AgentCrashed,
    ApprovalAsked,
    Budget,
    Context,
    Limits,
    RequestStarted,
    Script,
    call,
    rejected,
    tool,
)
from actors.changes import Append
from actors.ids import AgentId
from actors.messages import ReceiptState
from actors.models.script import hang
from actors.tools import Effect
from actors.transcript import MessageRecord, ResponseRecord, ResultRecord, problems
from tests.cases.dying import AFTER, AT, BEFORE, Mortal, at_rest, dies, lives, living
from tests.points.dying import MortalModel
from tests.points.outside import Outside
from tests.points.table import Labels
from tests.supervisor.promises.approving import first
from tests.supervisor.promises.test_con_6 import Bug
from tests.supervisor.promises.world import World, check, has, quiet, texts, watched

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from actors import Tool
    from actors.changes import ChangeSet
    from actors.ports import ModelRequest
    from supervisor import Supervisor
    from tests.points.table import Phase


@attrs.define
class Till:
    """Where money goes out: what no crash forgets.

    Attributes:
        paid: ids of the calls whose money went out, in order. process: the one that lives now.
    """

    paid: list[str] = attrs.field(factory=list)
    process: Mortal = attrs.field(factory=lives)

    def refund(self, **options: Any) -> Tool[..., Any]:
        """The tool: it takes a second, and the money goes out in the middle of it."""

        @tool(name="refund", **{"effect": "once", **options})
        async def refund(ctx: Context, order: str = "1") -> str:
            """Refund."""
            self.process.passes("tool:entry")
            await trio.sleep(0.5)
            self.paid.append(ctx.call_id)
            self.process.passes("tool:inside")
            await trio.sleep(0.5)
            self.process.passes("tool:exit")
            return f"refunded {order}"

        return refund


def once(*calls: Any) -> Any:
    """A model that makes these calls when it is asked something, and then says what came of them."""

    def model(request: ModelRequest) -> object:
        last = request.window[-1]
        if isinstance(last, MessageRecord):
            return list(calls)
        found = [record.status.value for record in request.window if isinstance(record, ResultRecord)]
        return " ".join(found[-len(calls) :])

    return model


UNKNOWN, OK = "unknown", "ok"


@pytest.mark.parametrize(
    ("phase", "label", "nth", "status"),
    [
        (BEFORE, "response", 1, OK),
        (BEFORE, "started", 1, OK),
        (AFTER, "started", 1, UNKNOWN),
        (AT, "tool:entry", 1, UNKNOWN),
        (AT, "tool:inside", 1, UNKNOWN),
        (AT, "tool:exit", 1, UNKNOWN),
        (BEFORE, "settled", 1, UNKNOWN),
        (AFTER, "settled", 1, OK),
        (AT, "model:start", 2, OK),
        (BEFORE, "response", 2, OK),
        (BEFORE, "end", 1, OK),
    ],
)
async def test_br_092_a_refund_is_not_made_twice(
    world: World, autojump_clock: MockClock, phase: Phase, label: str, nth: int, status: str
) -> None:
    """Wherever the process dies: what was recorded is kept, what nobody saw the end of is unknown, and told so."""
    till = Till(process=dies(phase, label, nth))
    spec = Agent("a", "Refund.", tools=[till.refund()])
    model = {"a": once(call("refund"))}
    async with living(world, model, till.process) as sup:
        await sup.start(spec, "go", key="k")
        await trio.sleep(60)
    before = list(till.paid)
    till.process = lives()
    async with living(world, model, till.process, agents=[spec]) as sup:
        report = await sup.run(spec, "go", key="k")
        assert report.text == status, "the model reads what is known"
        assert [done.status for done in report.calls] == [status]
        await check(sup.store)
    assert len(till.paid) == (len(before) if status == UNKNOWN or before else 1)
    assert len(till.paid) <= 1
    assert label in ("response", "started", "tool:entry") or before, "it died when the money was out"


async def test_br_092_what_may_have_been_refunded_is_asked_about(world: World, autojump_clock: MockClock) -> None:
    """The model asks for the same refund again: a person decides, who is told why; denied, nothing goes out."""
    till = Till(process=dies(AT, "tool:inside"))
    spec = Agent("a", "Refund.", tools=[till.refund()])

    def insists(request: ModelRequest) -> object:
        results = [record.status.value for record in request.window if isinstance(record, ResultRecord)]
        return " ".join(results) if len(results) == 2 else call("refund")

    async with living(world, {"a": insists}, till.process) as sup:
        await sup.start(spec, "go", key="k")
        await trio.sleep(60)
    till.process = lives()
    async with living(world, {"a": insists}, till.process, agents=[spec]) as sup:
        assert (await sup.run(spec, "go", key="k")).status == "parked"
        request = await first(sup)
        assert request.reason == "repeat"
        await request.deny("it was refunded")
        assert (await sup.run(spec, "go", key="k")).text == "unknown denied"
    assert len(till.paid) == 1


async def test_br_092_a_step_that_fails_behind_a_refund_does_not_make_it_again(
    world: World, autojump_clock: MockClock
) -> None:
    """The turn fails when the refund is recorded; asked to try again, the model is shown its result."""
    till = Till()
    spec = Agent("a", "Refund.", tools=[till.refund()])

    def sees(request: ModelRequest) -> object:
        return "refunded" if "=ok:refunded 1" in texts(list(request.window)) else call("refund")

    steps = [call("refund"), rejected(), sees]
    async with living(world, {"a": steps}, till.process) as sup:
        assert (await sup.run(spec, "go")).status == "failed"
        assert (await (await sup.find("a")).ask("try again")).text == "refunded"
    assert len(till.paid) == 1


@pytest.mark.parametrize(
    ("parallel", "expected", "ran"),
    [
        (8, ["ok", "ok", "unknown", "unknown"], 4),
        (1, ["ok", "ok", "unknown", "ok"], 3),  # that the third starts is written with the second's result
    ],
)
async def test_br_093_of_a_batch_only_what_never_started_is_run(
    world: World, autojump_clock: MockClock, parallel: int, expected: list[str], ran: int
) -> None:
    """Four calls, and the process dies when two are recorded: these keep their results, whatever ran beside them."""
    till = Till(process=dies(AFTER, "partly", 2))
    times: list[str] = []

    @tool(effect="once")
    async def act(ctx: Context, seconds: float) -> str:
        """Act outside."""
        till.process.passes("tool:entry")
        times.append(ctx.call_id)
        await trio.sleep(seconds)
        return "acted"

    spec = Agent("a", "Act.", tools=[act], limits=Limits(parallel_calls=parallel))
    model = {"a": once(*(call("act", seconds=1.0 + n) for n in range(4)))}
    async with living(world, model, till.process) as sup:
        await sup.start(spec, "go", key="k")
        await trio.sleep(60)
    till.process = lives()
    async with living(world, model, till.process, agents=[spec]) as sup:
        report = await sup.run(spec, "go", key="k")
        assert [done.status for done in report.calls] == expected
        await check(sup.store)
    assert len(times) == len(set(times)) == ran


@pytest.mark.parametrize(
    ("phase", "label", "nth"),
    [(AFTER, "settled", 1), (AT, "model:start", 2), (AT, "model:end", 2), (BEFORE, "response", 2), (BEFORE, "end", 1)],
)
async def test_br_094_what_a_person_approved_and_was_run_is_not_run_or_asked_again(
    world: World, autojump_clock: MockClock, phase: Phase, label: str, nth: int
) -> None:
    """It ran, and then the process died before the answer: the next one goes on from the result."""
    till = Till(process=dies(phase, label, nth))
    spec = Agent("a", "Refund.", tools=[till.refund(approve=True)])
    model = {"a": once(call("refund"))}
    async with living(world, model, till.process) as sup:
        await sup.start(spec, "go", key="k")
        await (await first(sup)).approve()
        await trio.sleep(60)
    assert len(till.paid) == 1
    till.process = lives()
    async with living(world, model, till.process, agents=[spec]) as sup, watched(sup) as log:
        report = await sup.run(spec, "go", key="k")
        assert (report.status, report.text) == ("done", "ok")
        assert log.of(ApprovalAsked) == []
        assert await sup.store.awaiting_calls() == ()
    assert len(till.paid) == 1


@pytest.mark.parametrize("effect", [Effect.STORE, Effect.IDEMPOTENT, Effect.ONCE])
async def test_br_099_a_brief_is_sent_once_wherever_the_sender_dies(
    kind: str, tmp_path: Path, autojump_clock: MockClock, effect: Effect
) -> None:
    """The sender dies at every moment of its life: the worker has the brief once, or a `once` sender says unknown."""
    # in a file, which takes its time: some moments, from where the brief is asked for
    number, step = (0, 1) if kind == "memory" else (29 + len(effect.value) % 3, 3)
    dead, briefs = True, 0

    @tool(name="brief", effect=effect)
    async def brief(ctx: Context) -> str:
        """Send the brief."""
        await ctx.send(f"{ctx.agent}/w", "the brief")
        return "sent"

    def leads(request: ModelRequest) -> object:
        results = [one.status.value for one in request.window if isinstance(one, ResultRecord)]
        return (call("w", task="stand by"), call("brief"), " ".join(results))[min(len(results), 2)]

    lead = Agent("lead", "Lead.", tools=[brief], children=[Agent("w", "Work.")])
    model = {"lead": leads, "w": lambda _: "ok"}
    while dead:
        number += step
        folder = tmp_path / str(number)
        folder.mkdir()
        world, process = World(kind, folder), Mortal(Outside(), at=number)
        async with living(world, model, process) as sup:
            await sup.run(lead, "go", key="k")
            await at_rest(sup)
        dead = process.dead
        async with living(world, model, lives(), agents=[lead]) as sup:
            await sup.resume()
            report = await sup.run(lead, "go", key="k")
            await at_rest(sup)
            received = texts(await (await sup.find(f"{report.path}/w")).transcript()).count("<the brief")
            assert report.text in ("ok ok", "ok unknown" if effect is Effect.ONCE else "ok ok"), process.seen[-1]
            assert received == 1 if report.text == "ok ok" else received <= 1, process.seen[-1]
            briefs += received
            await check(sup.store)
    assert number > 40, "it was cut off everywhere"
    assert briefs > 2


async def test_br_108_each_item_is_kept_when_it_is_made(kind: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    """The process is killed at every moment: what is in the store is a valid beginning of the whole, and grows."""

    @tool(effect="pure")
    async def look(seconds: float) -> str:
        """Look."""
        await trio.sleep(seconds)
        return f"looked for {seconds:g} s"

    spec = Agent("a", "Look.", tools=[look])
    steps = [["I look.", call("look", seconds=1), call("look", seconds=2)], call("look", seconds=3), "seen"]
    found: list[list[str]] = []
    number, dead = 0, True
    while dead:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        world, process = World(kind, folder), Mortal(Outside(), at=number)
        async with living(world, {"a": steps}, process) as sup:
            ref = await sup.start(spec, "go", key="k")
            await ref.wait_report()
            await ref.wait_idle()
        dead = process.dead
        async with world.store() as store:
            records = await store.read_records(AgentId("a"))
        assert [one for one in problems(records) if not one.startswith("at the end")] == []
        found.append(texts(records))
    whole = found[-1]
    assert whole[-1] == ">seen"
    assert all(one == whole[: len(one)] for one in found)
    lengths = [len(one) for one in found]
    assert lengths == sorted(lengths)
    assert set(lengths) == {0, 1, 2, 4, 5, 6, 7}, "the two results of a batch come together, in call order"


@pytest.mark.parametrize("label", ["claim", "response", "partly", "settled", "end"])
async def test_br_114_a_crash_and_a_new_process_recover_alike(
    kind: str, tmp_path: Path, autojump_clock: MockClock, label: str
) -> None:
    """A bug in the loop and the death of its process, before the same commit: the same is settled and kept."""
    states, tokens = [], list[int]()
    for dying in (False, True):
        folder = tmp_path / str(dying)
        folder.mkdir()
        states.append(await recovered(World(kind, folder), label, tokens, dying=dying))
    assert states[0] == states[1]
    assert tokens[0] <= tokens[1], "only a process that lives on knows what a lost answer really took"


async def recovered(world: World, label: str, tokens: list[int], *, dying: bool) -> tuple[object, ...]:
    """Live with one crash, in the loop or of the process; all that is there afterwards."""
    ran: list[str] = []

    @tool(effect="once")
    async def act(seconds: float) -> str:
        """Act."""
        ran.append(f"act {seconds:g}")
        await trio.sleep(seconds)
        return "acted"

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        ran.append("look")
        await trio.sleep(3)
        return "looked"

    spec = Agent("a", "Act.", tools=[act, look], budget=Budget(model_calls=9, tool_calls=3))
    model = {"a": once(call("act", seconds=1), call("act", seconds=2), call("look"))}

    async def go(sup: Supervisor) -> tuple[object, ...]:
        ref = await sup.start(spec, key="k")
        receipt = await ref.send("go", key="go")
        with trio.fail_after(900):
            report = await receipt.wait_report()
            await ref.wait_idle()
        (row,) = await sup.tree()
        await check(sup.store)
        calls = [(done.name, done.status) for done in report.calls]
        tokens.append(row.spent.output_tokens)
        assert row.spent.tool_calls == 3, "calls of an answer that was never written did not run, and are given back"
        assert sup._parts.ledger.snapshot(row.agent).own.tool_calls == 3
        return report.text, calls, sorted(ran), texts(await ref.transcript()), row.spent.model_calls, row.open, row.owes

    if dying:
        process = dies(BEFORE, label)
        async with living(world, model, process) as sup:
            ref = await sup.start(spec, key="k")
            await ref.send("go", key="go")
            await trio.sleep(60)
        async with living(world, model, lives(), agents=[spec]) as sup:
            await sup.resume()
            return await go(sup)
    labels, left = Labels(), 1

    async def before(one: ChangeSet) -> None:
        nonlocal left
        if left and label in labels.of(one):
            left = 0
            msg = "a bug"
            raise RuntimeError(msg)
        labels.written(one)

    async with world.open(MortalModel(Script(model), lives())) as sup, watched(sup) as log:
        world.spy.before = before
        state = await go(sup)
        assert len(log.of(AgentCrashed)) == 1
        return state


async def test_br_114_crashes_of_the_loop_and_of_its_process_are_counted_together(
    world: World, autojump_clock: MockClock
) -> None:
    """A bug in the loop, the death of the process, and the bug again: the third in a row, so the message is dead."""
    spec, asked = Agent("a", "Answer."), list[int]()

    def model(_: ModelRequest) -> str:
        asked.append(1)
        return "ok"

    def answers(one: ChangeSet) -> bool:
        return has(one, Append, lambda op: any(isinstance(record, ResponseRecord) for record in op.records))

    async with world.open({"a": model}) as sup:
        ref = await sup.start(spec)
        world.spy.before = bug = Bug(("poison",), left=1)
        world.spy.refuse = lambda one: bug.left is not None and bug.left == 0 and len(asked) == 2 and answers(one)
        bad = await ref.send("poison")
        await quiet()
        world.spy.refuse = lambda _: True  # and with this the process is gone
        assert (list(bug.times.values()), len(asked)) == ([1], 2)
    bug.left = 1
    async with world.open({"a": model}, agents=[spec]) as sup:
        world.spy.before = bug
        await sup.resume()
        late = await sup.receipt(bad.id)
        assert (await late.wait_report()).status == "failed"
        assert late.state is ReceiptState.DEAD
        assert (list(bug.times.values()), len(asked)) == ([2], 3)
        await check(sup.store)


@pytest.mark.parametrize("how", ["late", "fatal", "fatal, leaving"])
async def test_br_022_no_crash_behind_a_call_that_was_cut_leaves_its_child_running(
    world: World, autojump_clock: MockClock, how: str
) -> None:
    """A turn's time is up, or a sibling fails for all: the process dies as soon as the call is settled in the store.

    The child that it waited for is aborted by then, and asks for nothing in the next process.
    """

    @tool(fatal=True)
    async def breaks() -> str:
        """Break."""
        await trio.sleep(2)
        msg = "broken"
        raise RuntimeError(msg)

    kid = Agent("kid", "Help.")
    limits = Limits(turn_s=2 if how == "late" else None)
    lead = Agent("lead", "Lead.", tools=[breaks], children=[kid], limits=limits)
    steps = [call("kid", task="x"), *([call("breaks")] if how.startswith("fatal") else [])]
    model: dict[str, Any] = {"lead": lambda r: "on" if r.window.responses else steps, "kid": lambda _: hang()}
    process = dies(AFTER, "settled")
    async with living(world, model, process) as sup:
        ref = await sup.start(lead, "go")
        await trio.sleep(1.5)
        if how == "fatal, leaving":
            await ref.pause()
        await trio.sleep(100)
    async with world.open({**model, "kid": lambda _: "goes on"}, agents=[lead]) as sup, watched(sup) as log:
        await sup.resume()
        await trio.sleep(10)
        assert log.of(RequestStarted, "lead/kid") == []
        assert (await (await sup.find("lead/kid")).wait_report()).status == "aborted"
        await check(sup.store)


@pytest.mark.parametrize("effect", [Effect.ONCE, Effect.PURE])
async def test_br_022_065_what_a_call_waited_for_that_a_crash_has_lost_does_not_go_on(
    world: World, autojump_clock: MockClock, effect: Effect
) -> None:
    """A `once` tool that waits for a child is settled unknown, or its turn is given up: the child is aborted first.

    One that reports by message goes on.
    """
    kid, aside = Agent("kid", "Help."), Agent("aside", "Help.")

    @tool(effect=effect)
    async def delegate(ctx: Context) -> str:
        """Hand it on."""
        await ctx.start(aside, "y", background=True)
        return (await (await ctx.start(kid, "x")).wait_report()).text

    limits = Limits(poison_limit=3 if effect is Effect.ONCE else 1)
    lead = Agent("lead", "Lead.", tools=[delegate], limits=limits)
    model: dict[str, Any] = dict.fromkeys(("kid", "aside"), lambda _: hang())
    model["lead"] = lambda r: "on" if r.window.responses else call("delegate")
    process = lives()
    async with living(world, model, process) as sup:
        await sup.start(lead, "go")
        await trio.sleep(1)
        process.die()
    settled: list[str] = []

    async def before(one: ChangeSet) -> None:
        settled.extend(Labels().of(one) & {"abort", "settled", "unknown"})

    model["aside"] = lambda _: "goes on"
    async with world.open(model, agents=[lead, kid, aside]) as sup, watched(sup) as log:
        world.spy.before = before
        await sup.resume()
        await trio.sleep(10)
        assert (settled[0], "settled" in settled or "unknown" in settled) == ("abort", True)
        assert len(log.of(RequestStarted, "lead/kid")) <= 1
        report = await (await sup.find("lead/kid")).wait_report()
        assert (report.status, "was lost with its process" in str(report.error)) == ("aborted", True)
        assert (await (await sup.find("lead/aside")).wait_report()).text == "goes on"
        await check(sup.store)
