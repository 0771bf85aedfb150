"""REE-2: a child asks an ancestor that waits for it, is answered through that wait, and the ancestor waits again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from actors import Child, UsageError, WaitCycle, call, tool
from actors.changes import Move
from actors.errors import Aborted
from actors.messages import ReceiptState
from actors.models.script import hang
from tests.supervisor.promises.world import agent, has, messages, texts, until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors import Context
    from actors.changes import ChangeSet
    from actors.ports import ModelRequest
    from actors.reports import Report
    from tests.supervisor.promises.world import World


def after_tool(text: str, name: str, **arguments: object) -> object:
    """Call a tool first, then answer."""
    return lambda request: call(name, **arguments) if request.window.responses == 0 else text


@tool(effect="pure")
async def consult(ctx: Context, whom: str = "lead", what: str = "which?") -> str:
    """Ask above."""
    return (await ctx.ask(whom, what)).text


@tool(effect="pure")
async def consult_twice(ctx: Context) -> str:
    """Ask above twice at once."""
    said: dict[str, str] = {}

    async def one(what: str) -> None:
        said[what] = (await ctx.ask("lead", what)).text

    async with trio.open_nursery() as nursery:
        for what in ("first?", "second?"):
            nursery.start_soon(one, what)
    return f"{said['first?']} and {said['second?']}"


async def served(ref: object) -> tuple[list[str], Report]:
    """Answer whatever is asked until there is a report."""
    asked: list[str] = []
    while True:
        report = await ref.wait_report()  # type: ignore[attr-defined]
        if report.question is None:
            return asked, report
        asked.append(f"{report.question.path}: {report.question.text}")
        await report.question.answer(f"answer to {report.question.text}")


@pytest.mark.parametrize("late", [0, 5], ids=["waits first", "asked first"])
async def test_ree_2_who_was_faster_makes_no_difference(world: World, autojump_clock: MockClock, late: float) -> None:
    """The parent's tool begins to wait before or after its child has asked: it is handed the question either way.

    An `ask` that came first was a message; it is answered once, as the question, and never enters the conversation.
    """
    seen: list[str] = []

    @tool
    async def delegate(ctx: Context) -> str:
        """Start a child, do something else, then wait for it."""
        ref = await ctx.start(kid, "go")
        await trio.sleep(late)
        asked, report = await served(ref)
        seen.extend(asked)
        return report.text

    kid = agent("kid", tools=[consult])
    script = {"lead": after_tool("done", "delegate"), "kid": after_tool("kid is done", "consult")}
    async with world.open(script) as sup:
        lead = await sup.start(agent("lead", tools=[delegate]), "go")
        with trio.fail_after(60):
            await lead.wait_idle()
        assert seen == ["lead/kid: which?"]
        assert texts(await lead.transcript()) == ["<go", "> delegate()", "=ok:kid is done", ">done"]
        assert "=ok:answer to which?" in texts(await (await sup.find("lead/kid")).transcript())
        found = {one.envelope.id: one.state for one in await sup.store.messages(lead.path, tuple(ReceiptState))}
        assert sorted(found.values()) == ["consumed"] + ["withdrawn"] * bool(late)
        assert sup._parts.graph.statistics().open == 0


async def test_ree_2_a_mailbox_that_is_read_as_a_message_becomes_the_question_tells_nobody_that_it_is_gone(
    world: World, autojump_clock: MockClock
) -> None:
    """The store has it as withdrawn before memory does: its asker waits on, for the answer."""
    read: list[bool] = []

    @tool
    async def delegate(ctx: Context) -> str:
        """Start a child, do something else, then wait for it."""
        ref = await ctx.start(kid, "go")
        await trio.sleep(5)
        return (await served(ref))[1].text

    kid = agent("kid", tools=[consult])
    script = {"lead": after_tool("done", "delegate"), "kid": after_tool("kid is done", "consult")}
    async with world.open(script) as sup:

        async def after(one: ChangeSet) -> None:
            if has(one, Move, lambda move: move.to is ReceiptState.WITHDRAWN):
                await sup._parts.kernel.discover(lead.path)
                await trio.sleep(1)
                read.append(sup._parts.kernel.actors[lead.path].mailbox.wants_turn)

        world.spy.after = after
        lead = await sup.start(agent("lead", tools=[delegate]), "go")
        with trio.fail_after(60):
            await lead.wait_idle()
        assert read == [False]
        assert "=ok:answer to which?" in texts(await (await sup.find("lead/kid")).transcript())


async def test_ree_2_two_questions_of_one_child_come_one_after_another(world: World, autojump_clock: MockClock) -> None:
    """A child's tool asks twice at once: the parent is handed both, and neither wait is refused."""
    seen: list[str] = []

    @tool
    async def delegate(ctx: Context) -> str:
        """Start a child, and wait for it."""
        asked, report = await served(await ctx.start(kid, "go"))
        seen.extend(asked)
        return report.text

    kid = agent("kid", tools=[consult_twice])
    script = {"lead": after_tool("done", "delegate"), "kid": after_tool("kid is done", "consult_twice")}
    async with world.open(script) as sup:
        lead = await sup.start(agent("lead", tools=[delegate]), "go")
        with trio.fail_after(60):
            await lead.wait_idle()
        assert sorted(seen) == ["lead/kid: first?", "lead/kid: second?"]
        found = texts(await (await sup.find("lead/kid")).transcript())
        assert "=ok:answer to first? and answer to second?" in found


async def test_ree_2_children_that_ask_at_the_same_time_are_answered_each_by_its_tool(
    world: World, autojump_clock: MockClock
) -> None:
    """Three children in one batch ask: the parent's model sees three questions, and answers each by its own tool."""
    offered: list[list[str]] = []

    def lead(request: ModelRequest) -> object:
        offered.append(sorted(offer.name for offer in request.tools if offer.name.startswith("answer_")))
        match request.window.responses:
            case 0:
                return [call("kid", task=str(at)) for at in range(3)]
            case 1:
                return [
                    call("answer_kid", answer="red"),
                    call("answer_kid_2", answer="green"),
                    call("answer_kid_3", answer="blue"),
                ]
            case _:
                return "done"

    def kid(request: ModelRequest) -> object:
        return call("consult") if request.window.responses == 0 else texts(list(request.window))[-1]

    child = agent("kid", tools=[consult])
    async with world.open({"lead": lead, "kid": kid}) as sup:
        ref = await sup.start(agent("lead", children=[child]), "go")
        with trio.fail_after(60):
            await ref.wait_idle()
        assert offered == [[], ["answer_kid", "answer_kid_2", "answer_kid_3"], []]
        assert texts(await ref.transcript())[-4:] == ["=ok:=ok:red", "=ok:=ok:green", "=ok:=ok:blue", ">done"]


@pytest.mark.parametrize("levels", [1, 2, 4])
async def test_ree_2_a_question_goes_several_levels_up(world: World, autojump_clock: MockClock, levels: int) -> None:
    """Asked from any depth over the heads of those between, who wait on; everybody ends."""
    spec = agent("leaf", tools=[consult])
    script: dict[str, object] = {"leaf": after_tool("leaf is done", "consult")}
    for level in range(levels - 1):
        below, spec = spec, agent(f"m{level}", children=[spec])
        script[spec.name] = after_tool("passed on", below.name, task="go")
    top = spec.name
    script["lead"] = [call(top, task="go"), call("answer_leaf", answer="yes"), "all done"]
    async with world.open(script) as sup:
        ref = await sup.start(agent("lead", children=[spec]), "go")
        with trio.fail_after(60):
            assert (await ref.wait_report()).text == "all done"
        found = texts(await ref.transcript())
        assert "which?" in found[2]
        assert found[4] == "=ok:" + ("leaf is done" if levels == 1 else "passed on")


async def test_ree_2_a_background_child_that_is_waited_for_may_ask(world: World, autojump_clock: MockClock) -> None:
    """A background child's question ends its parent's wait like any other's; its reports come as messages."""

    @tool
    async def wait_for_it(ctx: Context) -> str:
        """Wait for the child in the background."""
        asked, report = await served(ctx.ref("lead/kid"))
        return f"{asked} {report.text}"

    async def kid(request: ModelRequest) -> object:
        await trio.sleep(1)
        return call("consult") if request.window.responses == 0 else "kid is done"

    script = {"lead": [call("kid", task="x"), call("wait_for_it"), "one", "two"], "kid": kid}
    child = Child(agent("kid", tools=[consult]), background=True)
    async with world.open(script) as sup:
        ref = await sup.start(agent("lead", tools=[wait_for_it], children=[child]), "go")
        with trio.fail_after(60):
            await ref.wait_idle()
        found = texts(await ref.transcript())
        assert "=ok:['lead/kid: which?'] kid is done" in found


async def test_ree_2_a_typed_question_gets_a_typed_answer(world: World, autojump_clock: MockClock) -> None:
    """`ask(output=...)` upward: the answer's text is read as the type."""
    got: list[object] = []

    @attrs.frozen
    class Colour:
        """A colour."""

        name: str

    @tool
    async def typed(ctx: Context) -> str:
        """Ask for a type."""
        report = await ctx.ref("lead").ask("which?", output=Colour)
        got.append(report.output)
        return "asked"

    @tool
    async def delegate(ctx: Context) -> str:
        """Answer in JSON."""
        ref = await ctx.start(agent("kid", tools=[typed]), "go")
        report = await ref.wait_report()
        assert report.question is not None
        await report.question.answer('{"name": "blue"}')
        return (await ref.wait_report()).text

    script = {"lead": after_tool("done", "delegate"), "kid": after_tool("kid is done", "typed")}
    async with world.open(script) as sup:
        ref = await sup.start(agent("lead", tools=[delegate]), "go")
        await ref.wait_idle()
        assert got == [Colour("blue")]


@pytest.mark.parametrize("ending", ["abort", "close", "kill", "timeout"])
async def test_ree_2_a_question_is_withdrawn_with_its_asker(
    world: World, autojump_clock: MockClock, ending: str
) -> None:
    """The child is aborted, closed or killed, or its `ask` times out, with the question open: it is open no more.

    The parent cannot answer it, its model is offered no tool for it, and its own wait for the child's end is let in.
    """
    said: list[str] = []

    @tool
    async def impatient(ctx: Context) -> str:
        """Ask above, for a while, deaf."""
        text = "nobody answered"
        with trio.CancelScope(shield=True):
            try:
                text = (await ctx.ask("lead", "which?", timeout=3)).text
            except (trio.TooSlowError, Aborted) as error:
                said.append(type(error).__name__)
        return text

    @tool
    async def end_it(ctx: Context) -> str:
        """Have the child started, and ended."""
        ref = await ctx.start(agent("kid", tools=[impatient]), "go")
        report = await ref.wait_report()
        assert report.question is not None
        match ending:
            case "abort":
                await ref.abort("enough")
                await ref.wait_aborted()
            case "close":
                with pytest.raises(WaitCycle):
                    await ref.wait_closed()  # within its grace the child's answer comes from us
                await ref.close(grace=1)
                await trio.sleep(2)
            case "kill":
                await ref.kill()
                await trio.sleep(1)
            case _:
                await trio.sleep(5)
        with pytest.raises(UsageError, match="not open"):
            await report.question.answer("too late")
        assert not sup._parts.questions.any
        await ref.wait_idle()
        return "ended"

    def lead(request: ModelRequest) -> object:
        assert not [offer.name for offer in request.tools if offer.name.startswith("answer_")]
        return call("end_it") if request.window.responses == 0 else "done"

    async with world.open({"lead": lead, "kid": after_tool("kid is done", "impatient")}) as sup:
        ref = await sup.start(agent("lead", tools=[end_it]), "go")
        with trio.fail_after(60):
            await ref.wait_idle()
        assert "=ok:ended" in texts(await ref.transcript())
        await trio.sleep(20)
        assert said == ["TooSlowError" if ending == "timeout" else "Aborted"]


async def test_ree_2_a_question_through_a_sibling_is_refused_with_the_way_round(
    world: World, autojump_clock: MockClock
) -> None:
    """One child waits for its sibling, whose question could only be answered when the first has reported: refused."""
    caught: list[str] = []

    @tool
    async def ask_sibling(ctx: Context) -> str:
        """Ask the other child."""
        return (await ctx.ask("lead/two", "help?")).text

    @tool
    async def ask_lead(ctx: Context) -> str:
        """Ask above, once the sibling waits."""
        await trio.sleep(2)
        try:
            return (await ctx.ask("lead", "which?")).text
        except WaitCycle as error:
            caught.append(str(error))
            return "refused"

    async def one(request: ModelRequest) -> object:
        await trio.sleep(1)
        return call("ask_sibling") if request.window.responses == 0 else "one is done"

    children = [agent("one", tools=[ask_sibling]), agent("two", tools=[ask_lead])]
    script = {
        "lead": [[call("one", task="x"), call("two", task="y")], "done"],
        "one": one,
        "two": after_tool("two is done", "ask_lead"),
    }
    async with world.open(script) as sup:
        ref = await sup.start(agent("lead", children=children), "go")
        with trio.fail_after(60):
            await ref.wait_idle()
        (error,) = caught
        assert "lead/two (turn 1, tool ask_lead) waits for lead (turn 1, tool one) waits for lead/one" in error
        assert list(await messages(sup.store, "lead")) == ["go"], "the refused question stands nowhere"


@pytest.mark.parametrize("when", ["question open", "asked first"])
async def test_ree_2_a_restart_with_a_question_open_loses_nobody(
    world: World, autojump_clock: MockClock, when: str
) -> None:
    """The process ends while a question is open, or waits as a message: the next one asks again, and all ends."""
    hangs = [True]

    def lead(request: ModelRequest) -> object:
        shown = texts(list(request.window))
        if request.window.responses == 0:
            return call("kid", task="go") if when == "question open" else call("delegate")
        if hangs[0]:
            return ("half", hang())
        if shown[-1].startswith("<which?"):
            return "blue"
        names = [offer.name for offer in request.tools]
        return call("answer_kid", answer="blue") if "answer_kid" in names and "which?" in shown[-1] else "done"

    @tool(effect="pure")
    async def delegate(ctx: Context) -> str:
        """Start a child, and wait for it, late."""
        ref = await ctx.start(kid, "go", key="kid")
        if hangs[0]:
            await trio.sleep(100)
        asked, report = await served(ref)
        return f"{asked} {report.text}"

    kid = agent("kid", tools=[consult])
    spec = agent("lead", tools=[delegate], children=[kid])
    script = {"lead": lead, "kid": lambda r: "kid is done" if r.window.responses else call("consult")}
    async with world.open(script, agents=[spec], on_exit="suspend", grace=1) as sup:
        ref = await sup.start(spec, "go")
        await until(lambda: sup._parts.graph.statistics().begun >= 1)
        await trio.sleep(1)
    hangs[0] = False
    async with world.open(script, agents=[spec]) as sup:
        with trio.fail_after(200):
            for ref in await sup.resume():
                await ref.wait_idle()
            for path in ("lead", "lead/kid"):
                await (await sup.find(path)).wait_idle()
        child = texts(await (await sup.find("lead/kid")).transcript())
        assert child[-1] == ">kid is done", child
        assert any(line.startswith("=ok:") for line in child), child
        assert sup._parts.graph.statistics().open == 0
