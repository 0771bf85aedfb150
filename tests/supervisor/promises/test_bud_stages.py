"""BUD-1 and BUD-4: what a budget binds, and who is told that it runs low."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import (
    AgentSettled,
    Budget,
    BudgetStage,
    Child,
    Exhausted,
    MessageAccepted,
    MessageHeld,
    Price,
    RequestStarted,
    Script,
    TurnEnded,
    TurnStarted,
    call,
    tool,
)
from actors.transcript import MessageRecord, ResultRecord
from tests.supervisor.promises.test_bud import Priced
from tests.supervisor.promises.world import agent, quiet, said, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from tests.supervisor.promises.world import World


@tool(effect="pure")
async def add(a: int) -> int:
    """Add."""
    return a


class Worker:
    """A child that calls tools as often as it is told, and its lead; both remember what they are asked.

    Attributes:
        notes: what the child's requests said beside the conversation. told: what the lead's newest requests held.
    """

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.notes: list[tuple[str, ...]] = []
        self.told: list[list[str]] = []

    def kid(self, request: ModelRequest) -> object:
        """Asked for the n-th time."""
        self.notes.append(request.notes)
        return "done" if len(self.notes) > self.calls else call("add", a=len(self.notes))

    def lead(self, request: ModelRequest) -> object:
        """Hands the task on, and then is done."""
        texts = [said(record.content) for record in request.window if isinstance(record, MessageRecord)]
        self.told.append([text for text in texts if text.startswith("Notice")])
        return "done" if any(isinstance(record, ResultRecord) for record in request.window) else call("kid", task="x")

    def script(self) -> Script:
        """Of both."""
        return Script({"lead": self.lead, "kid": self.kid})


async def test_bud_4_each_stage_is_told_once_to_the_agent_its_parent_and_watchers(
    world: World, autojump_clock: MockClock
) -> None:
    """Soft, critical, exhausted: an event, a line in the agent's next request, a message at the parent's boundary."""
    work = Worker(9)
    kid = agent("kid", tools=[add], budget=Budget(model_calls=10))
    lead = agent("lead", children=[kid])
    async with world.open(work.script()) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        assert (await ref.wait_report()).status == "done"
        await ref.wait_idle()
        stages = log.of(BudgetStage)
        assert [(event.path, event.stage, event.spent, event.limit) for event in stages] == [
            ("lead/kid", "soft", "7", "10"),
            ("lead/kid", "critical", "9", "10"),
            ("lead/kid", "exhausted", "10", "10"),
        ]
        assert {(event.run, event.turn) for event in stages} == {(1, 1)}
        noted = {number: notes for number, notes in enumerate(work.notes, 1) if notes}
        assert set(noted) == {8, 10}, "each in the next request, and in no other"
        assert "soft limit: 7 of 10 model_calls" in noted[8][0]
        assert "critical limit: 9 of 10 model_calls" in noted[10][0]
        assert work.told[0] == []
        assert len(work.told) == 2, "the notices cost no request of their own"
        for word, text in zip(("soft limit", "critical limit", "is exhausted"), work.told[1], strict=True):
            assert word in text
        assert all("lead/kid" in text for text in work.told[1])


async def test_bud_4_a_grant_has_the_stages_told_anew(world: World, autojump_clock: MockClock) -> None:
    """After more was granted, the same stages of the new limit are told again, and what is no more so is not said."""
    notes: list[tuple[str, ...]] = []

    def play(request: ModelRequest) -> str:
        notes.append(request.notes)
        return "ok"

    async with world.open({"a": play}) as sup, watched(sup) as log:
        ref = await sup.start(agent(budget=Budget(model_calls=4, soft=0.5, critical=0.5)))
        for number in range(2):
            await ref.ask(str(number))
        assert [event.stage for event in log.of(BudgetStage)] == ["soft", "critical"]
        await sup.grant(ref, Budget(model_calls=4), by="me")
        for number in range(3):
            await ref.ask(str(number))
        assert [event.stage for event in log.of(BudgetStage)] == ["soft", "critical"] * 2
        assert [len(one) for one in notes] == [0, 0, 0, 0, 2]
        assert all("4 of 8 model_calls" in note for note in notes[4])


async def test_bud_4_a_notice_wakes_no_parent(world: World, autojump_clock: MockClock) -> None:
    """A parent that has settled is not asked for a notice: it is held until the report opens a turn."""
    work = Worker(3)
    kid = agent("kid", tools=[add], budget=Budget(model_calls=4, soft=0.5, critical=1.0))
    lead = agent("lead", children=[Child(kid, background=True)])
    script = Script({"lead": work.lead, "kid": work.kid}, latency_s=1)
    async with world.open(script) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        await trio.sleep(100)
        await ref.wait_idle()
        assert [event.stage for event in log.of(BudgetStage)] == ["soft", "critical", "exhausted"]
        asked = [event.turn for event in log.of(RequestStarted, "lead")]
        assert asked[:3] == [1, 1, 2], "two for its task, and none before the report"
        (report,) = [event for event in log.of(MessageAccepted, "lead") if event.message.startswith("r-")]
        began = [event.seq for event in log.of(TurnStarted, "lead")]
        assert report.seq < began[1]
        assert log.of(MessageHeld, "lead")
        assert len(log.of(AgentSettled, "lead")) == 2, "one run more, and no other"
        record = texts(await ref.transcript())
        assert sum(text.startswith("<Notice") for text in record) == 2
        assert ref.state == "idle"


async def test_bud_4_a_refusal_is_told_before_the_turn_ends(world: World, autojump_clock: MockClock) -> None:
    """Exhausted by what was never sent, so that nothing is accounted: watchers hear of it all the same, in order."""
    async with world.open({"a": ["never"]}, budget=Budget(tokens=1)) as sup, watched(sup) as log:
        report = await sup.run(agent(budget=Budget(tokens=10_000, on_exhausted="fail")), "go")
        assert report.status == "exhausted"
        kinds = [type(event) for event in log.events]
        (stage,) = log.of(BudgetStage)
        assert (stage.path, stage.stage, stage.dimension) == ("/", "exhausted", "tokens")
        assert kinds.index(BudgetStage) < kinds.index(TurnEnded)
        assert not log.of(RequestStarted)


async def test_bud_4_without_a_budget_nothing_is_said(world: World, autojump_clock: MockClock) -> None:
    """No stage, no note, no message, and no commit more than there are."""
    work = Worker(9)
    async with world.open(work.script()) as sup, watched(sup) as log:
        await sup.run(agent("lead", children=[agent("kid", tools=[add])]), "go")
        assert not log.of(BudgetStage)
        assert not any(work.notes)
        assert work.told == [[], []]
        assert len(log.of(MessageAccepted)) == 2, "the two tasks"
        assert sup._parts.stages.pending == {}


LONG = "x" * 2_000


@pytest.mark.parametrize(
    ("dimension", "limit"),
    [
        ("model_calls", 4),
        ("tool_calls", 3),
        ("tokens", 9_000),
        ("input_tokens", 3_000),
        ("output_tokens", 6_000),
        ("usd", "0.02"),
        ("seconds", 4.0),
    ],
)
async def test_bud_1_every_dimension_binds_the_subtree(
    world: World, autojump_clock: MockClock, dimension: str, limit: object
) -> None:
    """What a child spends counts against the limit of the agent above, and ends both, with that node named."""

    def kid(request: ModelRequest) -> object:
        return (LONG, call("add", a=len(request.window)))

    script = Priced({"lead": [call("kid", task="x"), "fine"], "kid": kid}, latency_s=0.5)
    budget = Budget(**{dimension: limit}, on_exhausted="fail")  # type: ignore[arg-type]  # as parametrized
    lead = agent("lead", children=[agent("kid", tools=[add])], budget=budget)
    prices = {"m": Price(input="1.00", output="1.00")}
    async with world.open(script, prices=prices) as sup, watched(sup) as log:
        ref = await sup.start(lead, "go")
        with trio.fail_after(1_000):
            await ref.wait_report()
            await ref.wait_idle()
        below = await (await sup.find("lead/kid")).wait_report()
        assert below.status == "exhausted"
        assert isinstance(below.error, Exhausted)
        assert (below.error.node, below.error.dimension) == ("lead", dimension)
        assert ("lead", "exhausted", dimension) in {(e.path, e.stage, e.dimension) for e in log.of(BudgetStage)}
        account = sup._parts.ledger.snapshot(ref.path)
        (bound,) = account.limits
        assert account.spent.model_calls > account.own.model_calls, "the child's counts above"
        if dimension != "seconds":  # time that passes is not refused
            assert bound.used <= bound.limit
    await quiet()


@pytest.mark.parametrize(("budget", "kids"), [(Budget(agents=1), 2), (Budget(depth=1), 1)])
async def test_bud_1_agents_and_depth_bind_the_subtree(
    world: World, autojump_clock: MockClock, budget: Budget, kids: int
) -> None:
    """One agent too many, or one level too deep, is refused, and its call says why."""
    grandkid = agent("grandkid")
    kid = agent("kid", children=[grandkid])
    lead = agent("lead", children=[kid], budget=budget)
    script = {
        "lead": [[call("kid", task=str(n)) for n in range(kids)], "fine"],
        "kid": [call("grandkid", task="x"), "fine"],
        "grandkid": ["deep"],
    }
    async with world.open(script) as sup:
        await sup.run(lead, "go")
        rows = {str(row.agent) for row in await sup.tree()}
        assert len(rows) == 2
        (below,) = [row for row in rows if row != "lead"]
        records = texts(await (await sup.find(below)).transcript())
        assert any("may start no agent" in text for text in records), records
