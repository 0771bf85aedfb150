"""REQ: model requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio
from msgspec.structs import replace

from actors import AttemptDiscarded, Budget, Limits, RequestStarted, Script, ToolStuck, call, overloaded, rejected, tool
from actors.models.script import broken, hang
from actors.usage import Amounts
from tests.supervisor.promises.world import agent, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from supervisor import Supervisor
    from supervisor.tickets import Accounted
    from tests.supervisor.promises.world import World


@attrs.define
class Verdict:
    """What a judge says."""

    good: bool


def accounts(sup: Supervisor) -> list[Accounted]:
    """Every attempt that is accounted from now on."""
    found: list[Accounted] = []
    sup._parts.gateway.observe(found.append)  # type: ignore[attr-defined]  # the gateway behind the port
    return found


class Asked:
    """A model that notes what it is asked, and when."""

    def __init__(self, steps: dict[str, object], **options: object) -> None:
        self.script = Script(steps, **options)  # type: ignore[arg-type]  # a script
        self.id, self.name, self.free, self.context_window = "asked:m", "m", True, None
        self.requests: list[ModelRequest] = []
        self.at: list[float] = []

    async def request(self, request: ModelRequest, emit: object) -> object:
        self.requests.append(request)
        self.at.append(trio.current_time())
        return await self.script.request(request, emit)  # type: ignore[arg-type]  # as it came


async def test_req_1_every_request_passes_the_one_gateway(world: World, autojump_clock: MockClock) -> None:
    """Answers, retries, repairs, a child's requests and a budget's wrap-up: what the model saw, the gateway counted."""
    kid = agent("kid", output=Verdict)
    lead = agent("lead", children=[kid], budget=Budget(model_calls=5))
    model = Asked(
        {
            "lead": [overloaded(), call("kid", task="judge"), lambda _: call("kid", task="again"), "summed up"],
            "kid": ["no json", '{"good": true}'],
        }
    )
    async with world.open(model) as sup:
        counted = accounts(sup)
        ref = await sup.start(lead, "go")
        report = await ref.wait_report()
        assert report.status == "exhausted"
        assert report.text == "summed up"
        assert len(model.requests) == len(counted) == sup._parts.gateway.statistics().attempts == 6  # type: ignore[attr-defined]  # behind the port
        assert [one.agent for one in counted] == ["lead", "lead", "lead/kid", "lead/kid", "lead", "lead"]
        assert [(one.request, one.number) for one in counted] != []


async def test_req_2_the_next_request_waits_for_the_stream_of_the_aborted_one(
    world: World, autojump_clock: MockClock
) -> None:
    """With one permit, the request behind an abort is sent only when the cut stream has let its connection go."""
    open_now: list[int] = []
    sent: list[int] = []

    async def connection(_: ModelRequest) -> str:
        sent.append(len(open_now))
        open_now.append(1)
        try:
            await trio.sleep(100 if len(sent) == 1 else 0)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)  # closing takes time
            open_now.pop()
        return "answer"

    async with world.open({"a": connection}, permits=1) as sup:
        ref = await sup.start(agent(), "1")
        await trio.sleep(1)
        await ref.abort("enough")
        await ref.send("2")
        await ref.wait_idle()
        assert sent == [0, 0], "nothing of the earlier request held its connection"
        assert texts(await ref.transcript())[-2:] == ["<2", ">answer"]


async def test_req_2_the_next_request_waits_for_tools_left_behind_at_most_hard_seconds(
    world: World, autojump_clock: MockClock
) -> None:
    """A deaf tool holds the next request up until it is done, at most `hard_s`.

    Then it is named, the model is told, and the tool keeps its resource keys; a new abort waits for neither.
    """
    order: list[str] = []

    @tool(resource=lambda name, seconds: "one")
    async def deaf(name: str, seconds: float) -> str:
        """Notice nothing."""
        order.append(f"+{name}")
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
        order.append(f"-{name}")
        return name

    model = Asked({"a": [call("deaf", name="1", seconds=4), call("deaf", name="2", seconds=60), "x", "y"]})
    spec = agent(tools=[deaf], limits=Limits(hard_s=10))
    async with world.open(model) as sup, watched(sup) as log:
        ref = await sup.start(spec, "go")
        await trio.sleep(1)
        began = trio.current_time()
        await ref.abort("enough")
        await ref.wait_aborted()
        assert trio.current_time() - began < 0.1
        await ref.send("on")
        await trio.sleep(5)
        assert 2.9 < model.at[1] - began < 3.1, "the first tool was done after four seconds"
        assert model.requests[1].notes == ()
        began = trio.current_time()
        await ref.abort("again")
        await ref.send("and on")
        await trio.sleep(1)
        assert len(model.at) == 2
        await ref.abort("a new abort waits for neither")
        await ref.wait_aborted()
        assert trio.current_time() - began < 1.1
        assert log.of(ToolStuck) == []
        began = trio.current_time()
        await ref.send("now")
        await ref.wait_idle()
        assert 9.9 < model.at[2] - began < 10.1
        (stuck,) = log.of(ToolStuck)
        assert stuck.name == "deaf"
        assert stuck.stack
        assert len(model.requests[2].notes) == 1
        assert "deaf" in model.requests[2].notes[0]


async def test_req_2_a_tool_left_behind_keeps_its_resource_keys(world: World, autojump_clock: MockClock) -> None:
    """A later call of the same key starts only when the stuck one has really ended."""
    order: list[str] = []

    @tool(resource=lambda name, seconds: "one")
    async def deaf(name: str, seconds: float) -> str:
        """Notice nothing."""
        order.append(f"+{name}")
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
        order.append(f"-{name}")
        return name

    script = {"a": [call("deaf", name="1", seconds=40), call("deaf", name="2", seconds=1), "done"]}
    async with world.open(script) as sup:
        ref = await sup.start(agent(tools=[deaf]), "go")
        await trio.sleep(1)
        await ref.abort("enough")
        await ref.send("on")
        await ref.wait_idle()
        assert order == ["+1", "-1", "+2", "-2"]


async def test_req_4_retry_follows_the_servers_word_and_what_cannot_pass_is_not_retried(
    world: World, autojump_clock: MockClock
) -> None:
    """A retry waits at least what the server said; a refusal is asked once; a deadline before it is not waited for."""
    model = Asked({"a": [overloaded(retry_after=7), "fine", rejected("bad key")]})
    async with world.open(model) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "1")
        assert (await ref.wait_report()).text == "fine"
        assert 7 <= model.at[1] - model.at[0] < 15
        (discarded,) = log.of(AttemptDiscarded)
        assert discarded.retry_in_s >= 7
        report = await (await ref.send("2")).wait_report()
        assert report.status == "failed"
        assert len(model.at) == 3


async def test_req_4_attempts_are_bounded_as_the_agent_says(world: World, autojump_clock: MockClock) -> None:
    """`Limits(attempts=...)` of the agent is how often one request is tried."""
    model = Asked({"a": lambda _: overloaded()})
    async with world.open(model) as sup:
        ref = await sup.start(agent(limits=Limits(attempts=2)), "go")
        report = await ref.wait_report()
        assert report.status == "failed"
        assert len(model.at) == 2


@pytest.mark.parametrize("part", ["first", "between"])
async def test_req_5_a_stalled_stream_is_a_failed_attempt(world: World, autojump_clock: MockClock, part: str) -> None:
    """Nothing at all, or nothing more, for as long as the agent's limits say: the attempt fails and is retried."""
    stall = hang() if part == "first" else ("some text", hang())
    model = Asked({"a": [stall, "whole"]})
    spec = agent(limits=Limits(first_event_s=5, between_events_s=3))
    async with world.open(model) as sup, watched(sup) as log:
        ref = await sup.start(spec, "go")
        report = await ref.wait_report()
        assert report.text == "whole"
        waited = model.at[1] - model.at[0]
        assert waited < (15 if part == "first" else 13)
        assert waited >= (5 if part == "first" else 3)
        (discarded,) = log.of(AttemptDiscarded)
        assert "no" in discarded.error
        assert texts(await ref.transcript()) == ["<go", ">whole"]


async def test_req_7_every_attempt_is_accounted_once(world: World, autojump_clock: MockClock) -> None:
    """Success, failure and abort: each attempt once, under an id of its own, and row, ledger and report agree."""
    script = {"a": [broken(), "one", ("half an answer", hang()), rejected()]}
    async with world.open(script) as sup, watched(sup) as log:
        counted = accounts(sup)
        ref = await sup.start(agent(), "1")
        await ref.wait_idle()
        await ref.send("2")
        await trio.sleep(1)
        await ref.abort("enough")
        await ref.wait_idle()
        await ref.send("3")
        await ref.wait_idle()
        assert [one.outcome for one in counted] == ["failed", "ok", "cut", "failed"]
        assert len({(one.request, one.number) for one in counted}) == len(counted) == len(log.of(RequestStarted))
        row = (await sup.tree())[0]
        spent = sum((one.usage.input_tokens for one in counted), 0), sum(one.usage.output_tokens for one in counted)
        assert (row.spent.input_tokens, row.spent.output_tokens, row.spent.model_calls) == (*spent, 4)
        own = sup._parts.ledger.snapshot(ref.path)
        assert replace(own.own, active_us=0) == replace(row.spent, active_us=0)
        assert own.held == Amounts()
        assert all(one.latency_s >= 0 for one in counted)
