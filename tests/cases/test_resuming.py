"""What went wrong elsewhere when something went on: after a cut, a failing provider, a lost reply, a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Agent, AttemptDiscarded, Child, Context, Script, call, tool
from actors.messages import ReceiptState
from actors.models.script import broken, hang, overloaded
from actors.transcript import MessageRecord, ResultRecord
from tests.cases.dying import AFTER, BEFORE, at_rest, dies, lives, living
from tests.supervisor.promises.approving import Ask, asks, pending
from tests.supervisor.promises.world import World, check, enqueues, messages, quiet, said, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from actors.ports import ModelRequest
    from tests.points.table import Phase


@pytest.mark.parametrize("restart", [False, True])
async def test_br_105_what_was_said_before_a_cancel_stands_in_the_next_request(
    world: World,
    autojump_clock: MockClock,
    restart: bool,  # noqa: FBT001 - parametrised
) -> None:
    """The next request has the half text, marked as cut off; so it has behind a restart."""
    asked: list[list[str]] = []

    def model(request: ModelRequest) -> object:
        asked.append(texts(list(request.window)))
        return ("The half of it", hang()) if len(asked) == 1 else "whole"

    spec = Agent("a", "Answer.")
    async with world.open({"a": model}) as sup:
        ref = await sup.start(spec, "go")
        await trio.sleep(1)
        await ref.abort("enough")
        await ref.wait_aborted()
        if not restart:
            await ref.ask("and?")
    if restart:
        async with world.open({"a": model}, agents=[spec]) as sup:
            await (await sup.find("a")).ask("and?")
    assert [one for one in asked[1] if "The half of it" in one]
    assert asked[1][-1] == "<and?"


async def test_br_107_progress_comes_in_order_across_restarts_whatever_the_clock_says(
    world: World, autojump_clock: MockClock
) -> None:
    """A background child tells its progress three times and then ends, each in a process with the same time of day."""

    @tool(effect="store")
    async def tell(ctx: Context, text: str) -> str:
        """Tell the lead."""
        await ctx.send("lead", text)
        return "told"

    def works(request: ModelRequest) -> object:
        told = sum(isinstance(one, ResultRecord) for one in request.window)
        asked = sum(isinstance(one, MessageRecord) for one in request.window)
        if told == 3:
            return "the end"
        return call("tell", text=f"step {told}") if told < asked else "more to do"

    def leads(request: ModelRequest) -> object:
        return "heard" if request.window.responses else call("kid", task="work")

    kid = Agent("kid", "Work.", tools=[tell])
    lead = Agent("lead", "Lead.", children=[Child(kid, background=True)])
    model = {"lead": leads, "kid": works}
    for process in range(3):
        async with world.open(model, agents=[lead]) as sup:
            sup._parts.kernel.wall = lambda: 1_000.0
            await sup.resume()
            if process == 0:
                await sup.start(lead, "go")
                await quiet()
            else:
                await (await sup.find("lead/kid")).send("go on")
            await at_rest(sup)
            heard = [one for one in texts(await (await sup.find("lead")).transcript()) if "step" in one]
            assert heard == [f"<step {n}" for n in range(process + 1)]
    async with world.open(model, agents=[lead]) as sup:
        await sup.resume()
        await at_rest(sup)
        found = texts(await (await sup.find("lead")).transcript())
        assert [one for one in found if "Report of lead/kid" in one][-1].endswith("the end")
        await check(sup.store)


async def test_br_109_two_runs_that_go_on_at_once_keep_apart(world: World, autojump_clock: MockClock) -> None:
    """Two trees of one shape wait for a person, each two levels down; one process takes both up, decided crosswise."""
    ask = Ask()
    lead = Agent("lead", "Pass it on.", children=[Agent("mid", "Pass it on.", children=[ask.agent()])])

    def leaf(request: ModelRequest) -> object:
        last = request.window[-1]
        if isinstance(last, MessageRecord):
            return call("delete", path="x")
        return f"{request.agent}: {said(last.content)}"  # type: ignore[union-attr]  # a result

    model = Script({"lead": asks(call("mid", task="go")), "mid": asks(call("a", task="go")), "a": leaf})
    async with world.open(model) as sup:
        for key in ("1", "2"):
            assert (await sup.run(lead, "go", key=key)).status == "parked"
    async with world.open(model, agents=[lead]) as sup:
        await sup.resume()
        one, two = sorted(await pending(sup, 2), key=lambda request: -len(request.path), reverse=True)
        assert (one.path, two.path) == ("lead/mid/a", "lead#2/mid/a")
        assert one.call_id != two.call_id
        await two.approve()
        await one.deny("not here")
        reports = [await sup.run(lead, "go", key=key) for key in ("1", "2")]
        assert reports[0].text == "lead/mid/a: Not approved: not here"
        assert reports[1].text == "lead#2/mid/a: deleted x"
        assert [name for name, _ in ask.ran] == [two.call_id]
        await at_rest(sup)
        assert sup._parts.graph.statistics().open == 0, "what a run waited with goes with it"
        await check(sup.store)


class Outage:
    """A first model that calls a tool and then fails for good, and a second that goes on. What each was asked."""

    def __init__(self, *fails: Any) -> None:
        self.fails = fails
        self.asked: dict[str, list[list[str]]] = {"one": [], "two": []}
        self.ran: list[str] = []

        @tool
        async def act(ctx: Context) -> str:
            """Commit."""
            self.ran.append(ctx.call_id)
            return f"committed {len(self.ran)}"

        self.spec = Agent("a", "Commit.", tools=[act])

    def models(self) -> list[Script]:
        """The fallback chain."""
        return [Script({"a": self._first}, name="one"), Script({"a": self._second}, name="two")]

    def _first(self, request: ModelRequest) -> object:
        self.asked["one"].append(texts(list(request.window)))
        return self.fails[min(len(self.asked["one"]), len(self.fails)) - 1]

    def _second(self, request: ModelRequest) -> object:
        self.asked["two"].append(texts(list(request.window)))
        return call("act") if isinstance(request.window[-1], MessageRecord) else "done"


async def test_br_111_another_provider_goes_on_from_the_results(world: World, autojump_clock: MockClock) -> None:
    """The first one fails behind the tool: the second is shown its result, and it is not run again."""
    outage = Outage(call("act"), broken())
    async with world.open(outage.models()) as sup:
        report = await sup.run(outage.spec, "go")
        assert (report.status, report.text) == ("done", "done")
        assert outage.asked["two"] == [["<go", "> act()", "=ok:committed 1"]]
        assert texts(await (await sup.find("a")).transcript()) == ["<go", "> act()", "=ok:committed 1", ">done"]
    assert len(outage.ran) == 1


async def test_br_111_calls_of_a_failed_attempt_are_void(world: World, autojump_clock: MockClock) -> None:
    """The first one fails while it streams, a call already made: only what the second one calls is run."""
    outage = Outage(("I commit.", call("act"), broken()))
    async with world.open(outage.models()) as sup, watched(sup) as log:
        assert (await sup.run(outage.spec, "go")).text == "done"
        assert log.of(AttemptDiscarded)
        assert outage.asked["two"][0] == ["<go"], "nothing of the failed attempt is shown"
        assert texts(await (await sup.find("a")).transcript()) == ["<go", "> act()", "=ok:committed 1", ">done"]
    assert len(outage.ran) == 1


async def test_br_111_a_process_that_dies_while_providers_fail_runs_nothing_again(
    world: World, autojump_clock: MockClock
) -> None:
    """The first provider is tried in vain, the process is left and the next one asks both anew: the tool ran once."""
    outage = Outage(call("act"), overloaded())
    async with world.open(outage.models(), grace=0) as sup:
        await sup.start(outage.spec, "go", key="k")
        while len(outage.asked["one"]) < 2:  # noqa: ASYNC110 - the model is looked at, not awaited
            await trio.sleep(0.01)
        world.spy.refuse = lambda _: True
        await trio.sleep(30)
    async with world.open(outage.models(), agents=[outage.spec]) as sup:
        assert (await sup.run(outage.spec, "go", key="k")).text == "done"
        assert outage.asked["two"][-1] == ["<go", "> act()", "=ok:committed 1"]
    assert len(outage.ran) == 1


@pytest.mark.parametrize(("phase", "nth"), [(BEFORE, 1), (AFTER, 1)])
@pytest.mark.parametrize("verb", ["send", "steer"])
async def test_br_112_a_send_whose_reply_was_lost_is_one_turn(
    world: World, autojump_clock: MockClock, verb: str, phase: Phase, nth: int
) -> None:
    """The process dies while it accepts; the client, told nothing, sends again under its key: it is there once."""
    spec, asked = Agent("a", "Answer."), list[str]()

    def model(request: ModelRequest) -> object:
        asked.append(texts(list(request.window))[-1])
        return "paid"

    async with living(world, {"a": model}, lives()) as sup:
        await sup.start(spec, key="k")
    process = dies(phase, "accept", nth)
    async with living(world, {"a": model}, process, agents=[spec]) as sup:
        await getattr(await sup.find("a"), verb)("pay", key="7")
    async with living(world, {"a": model}, lives(), agents=[spec]) as sup:
        await sup.resume()
        ref = await sup.find("a")
        receipt = await getattr(ref, verb)("pay", key="7")
        assert (await receipt.wait_report()).text == "paid"
        await ref.wait_idle()
        assert texts(await ref.transcript()) == ["<pay", ">paid"]
        again = await getattr(ref, verb)("pay", key="7")
        assert again.id == receipt.id
    assert asked == ["<pay"]


async def test_br_112_a_client_that_gave_up_waiting_sends_again(world: World, autojump_clock: MockClock) -> None:
    """The store takes longer than the client waits: the second send meets the first one's receipt."""
    async with world.open({"a": lambda _: "paid"}) as sup:
        ref = await sup.start(Agent("a", "Answer."))

        async def slow(one: ChangeSet) -> None:
            if enqueues("pay")(one):
                await trio.sleep(30)

        world.spy.after = slow
        with trio.move_on_after(5) as patience:
            await ref.send("pay", key="7")
            await trio.lowlevel.checkpoint()
        assert patience.cancelled_caught
        assert (await (await ref.send("pay", key="7")).wait_report()).text == "paid"
        assert texts(await ref.transcript()) == ["<pay", ">paid"]
        assert await messages(sup.store, "a") == {"pay": ReceiptState.CONSUMED}
