"""What comes late: a child's report to a parent that is closing (CLS-1), a dead letter that is put back (CON-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import Child, Compaction, Context, Pinned, call, tool
from actors.changes import Append
from actors.messages import ReceiptState
from actors.transcript import MessageRecord, ResponseRecord, ResultRecord, SummaryRecord, entered, problems
from tests.supervisor.promises.test_cmp import LONG, summaries
from tests.supervisor.promises.test_con_6 import Bug
from tests.supervisor.promises.world import EVERY_STATE, agent, check, has, quiet, said, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from actors.ports import ModelRequest
    from supervisor import Supervisor
    from tests.supervisor.promises.world import World

MOMENTS = tuple(half / 4 for half in range(1, 17))


def thinks(seconds: float, answer: Callable[[ModelRequest], object]) -> Callable[[ModelRequest], object]:
    """A model that takes its time."""

    async def model(request: ModelRequest) -> object:
        await trio.sleep(seconds)
        return answer(request)

    return model


def leads(request: ModelRequest) -> object:
    """Start the child, then say how much was asked so far."""
    if not request.window.responses:
        return call("kid", task="work")
    return f"heard {sum(isinstance(one, MessageRecord) for one in request.window)}"


@pytest.mark.parametrize("at", MOMENTS)
async def test_cls_1_a_report_that_comes_while_the_close_drains_is_answered(
    world: World, autojump_clock: MockClock, at: float
) -> None:
    """Whenever the child ends while its parent answers what was accepted: the report is taken, and answered."""
    lead = agent("lead", children=[Child(agent("kid"), background=True)])
    model = {"lead": thinks(1, leads), "kid": thinks(1 + at, lambda _: "worked")}
    async with world.open(model) as sup:
        ref = await sup.start(lead, "go")
        await trio.sleep(1.5)
        accepted = await ref.send("accepted")
        await ref.close(grace=30)
        await ref.wait_closed()
        found = texts(await ref.transcript())
        (report,) = [one for one in found if "Report of lead/kid (done)" in one]
        assert found[-1].startswith(">heard 3"), "all that was accepted is answered, the report too"
        assert found.index(report) < len(found) - 1
        assert (await accepted.wait_report()).status == "done"
        await ended(sup)


@pytest.mark.parametrize("at", MOMENTS)
async def test_cls_1_a_report_that_comes_when_the_grace_is_over_is_a_dead_letter_or_answered(
    world: World, autojump_clock: MockClock, at: float
) -> None:
    """However near to the end it comes, it is accepted; what could not be answered is dead, and nothing is lost."""
    lead = agent("lead", children=[Child(agent("kid"), background=True)])
    model = {"lead": thinks(1, leads), "kid": thinks(1 + at, lambda _: "worked")}
    async with world.open(model) as sup:
        ref = await sup.start(lead, "go")
        await trio.sleep(1.5)
        await ref.send("accepted")
        await ref.close(grace=2)
        await ref.wait_closed()
        reports = [
            one
            for one in await sup.store.messages(ref.path, EVERY_STATE)
            if "Report of lead/kid" in said(one.envelope.content)
        ]
        assert len(reports) == 1
        assert reports[0].state in (ReceiptState.CONSUMED, ReceiptState.DEAD)
        assert problems(await ref.transcript()) == []
        await ended(sup)


@pytest.mark.parametrize("at", MOMENTS[::4])
async def test_cls_1_a_report_to_a_close_that_the_next_process_ends_is_answered(
    world: World, autojump_clock: MockClock, at: float
) -> None:
    """The process is left while the close drains; the child ends in the next one, which goes on with both."""
    lead = agent("lead", children=[Child(agent("kid"), background=True)])
    model = {"lead": thinks(1, leads), "kid": thinks(1 + at, lambda _: "worked")}
    async with world.open(model, grace=0) as sup:
        ref = await sup.start(lead, "go")
        await trio.sleep(1.5)
        await ref.close(grace=30)
    async with world.open(model, agents=[lead]) as sup:
        await sup.resume()
        ref = await sup.find("lead")
        await ref.wait_closed()
        found = texts(await ref.transcript())
        assert [one for one in found if "Report of lead/kid (done)" in one]
        assert found[-1].startswith(">heard")
        await ended(sup)


async def ended(sup: Supervisor) -> None:
    """Closed, with nothing owed."""
    assert await sup.store.agents_with_work() == ()
    for row in await sup.tree():
        assert row.open is None
        waiting = await sup.store.messages(row.agent, (ReceiptState.QUEUED, ReceiptState.HELD))
        assert waiting == ()
    await check(sup.store)


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("again", ["at once", "after a restart", "after a compaction", "twice"])
async def test_con_6_a_letter_that_is_put_back_stands_once_whatever_its_old_turn_left(
    world: World,
    autojump_clock: MockClock,
    again: str,
    pinned: bool,  # noqa: FBT001 - parametrised
) -> None:
    """Its turn had called a tool before it crashed for the last time; the message stands once."""

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        return "seen"

    asked: list[list[str]] = []

    def model(request: ModelRequest) -> object:
        if request.purpose == "compaction":
            return "in short"
        asked.append(texts(list(request.window)))
        return {"<poison": call("look"), "<hello": LONG}.get(asked[-1][-1], "ok")

    class Late(Bug):
        """It breaks at the answer behind the results."""

        def meet(self, turn: str) -> None:
            if asked[-1][-1].startswith("="):
                super().meet(turn)

    spec = agent(tools=[look])
    async with world.open({"a": model}) as sup:
        ref = await sup.start(spec)
        world.spy.before = Late(("poison",), left=3)
        bad = await ref.send(Pinned("poison") if pinned else "poison")
        assert (await bad.wait_report()).status == "failed"
        assert bad.state is ReceiptState.DEAD
        assert any(isinstance(one, ResultRecord) for one in await ref.transcript()), "its old turn left something"
        if again == "twice":
            world.spy.before = Late(("poison",), left=3)
            await (await sup.put_back(bad.id, by="an operator")).wait_report()
            assert bad.state is ReceiptState.DEAD
        if again == "after a compaction":
            for _ in range(4):
                await ref.ask("hello")
            await ref.compact()
            await ref.wait_compacted()
            assert any(isinstance(one, SummaryRecord) for one in await ref.transcript())
            assert not any("<poison" in texts([one]) for one in await ref.transcript()), "it is dead, pinned or not"
        if again != "after a restart":
            await put_back_and_look(sup, bad.id, asked)
    if again == "after a restart":
        async with world.open({"a": model}, agents=[spec]) as sup:
            await put_back_and_look(sup, bad.id, asked)
    async with world.open({"a": model}, agents=[spec]) as sup:  # what a reload builds is what memory held
        await (await sup.find("a")).ask("and now?")
        assert asked[-1].count("<poison") == 1


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("restart", [False, True])
async def test_con_6_a_letter_whose_turn_was_compacted_before_it_crashed_stands_once(
    world: World,
    autojump_clock: MockClock,
    restart: bool,  # noqa: FBT001 - parametrised
    pinned: bool,  # noqa: FBT001 - parametrised
) -> None:
    """The summary stands for it, or names it as pinned, and then its turn crashes: put back, it is there once."""
    asked: list[list[str]] = []
    spoilt = 0

    @tool(effect="pure")
    async def look(ctx: Context) -> str:
        """Look, and have it compacted, the first time."""
        if not made:
            await ctx.ref(ctx.agent).compact()
        return "seen"

    def model(request: ModelRequest) -> object:
        if request.purpose == "compaction":
            return "in short"
        asked.append(texts(list(request.window)))
        return [LONG, call("look")] if asked[-1][-1] == "<poison" else "ok"

    made: list[ChangeSet] = []

    async def before(one: ChangeSet) -> None:
        nonlocal spoilt
        if summaries(one):
            made.append(one)
        elif made and spoilt < 3 and has(one, Append, lambda op: isinstance(op.records[-1], ResponseRecord)):
            spoilt += 1
            msg = "a bug"
            raise RuntimeError(msg)

    spec = agent(tools=[look], compaction=Compaction(keep=0.0))
    async with world.open({"a": model}) as sup:
        ref = await sup.start(spec)
        await ref.ask(LONG)
        world.spy.before = before
        bad = await ref.send(Pinned("poison") if pinned else "poison")
        assert (await bad.wait_report()).status == "failed"
        assert bad.state is ReceiptState.DEAD
        assert len(made) == 1
        assert "<poison" not in texts(await ref.transcript()), "it is dead, pinned or not"
        if not restart:
            await put_back_and_look(sup, bad.id, asked)
    async with world.open({"a": model}, agents=[spec]) as sup:
        if restart:
            await put_back_and_look(sup, bad.id, asked)
        await (await sup.find("a")).ask("and now?")
        assert asked[-1].count("<poison") == 1


async def put_back_and_look(sup: Supervisor, message: object, asked: list[list[str]]) -> None:
    """It is answered; each request that shows it shows it once, and so does the conversation."""
    before = len(asked)
    receipt = await sup.put_back(message, by="an operator")  # type: ignore[arg-type]  # a message's id
    assert (await receipt.wait_report()).text == "ok"
    await quiet()
    ref = await sup.find("a")
    await ref.wait_idle()
    records = await ref.transcript()
    assert texts(records).count("<poison") == 1
    assert entered(records).count(receipt.id) == 1
    assert problems(records) == []
    assert [one.count("<poison") for one in asked[before:]] == [1] * (len(asked) - before)
    assert [one[-6:] for one in texts(records)[-4:]] == ["poison", "look()", "k:seen", ">ok"]
    await check(sup.store)
