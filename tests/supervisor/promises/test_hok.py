"""Hooks: which failures end a turn, and what a hook's answer is (HOK)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from msgspec.structs import replace

from actors import HookFailed, Hooks, Limits, Send, Steer, Text, WaitCycle, call, guard, tool
from actors.changes import Enqueue
from actors.errors import MailboxFull, UsageError
from actors.hooks import Compact, Refuse
from actors.messages import LaneBound
from actors.models.script import broken, hang, overflow
from actors.transcript import MessageRecord, ResultRecord
from tests.supervisor.promises.world import agent, messages, ops, texts, watched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock

    from actors.hooks import AroundCall, Moment, Proceed
    from actors.ports import ModelRequest
    from actors.reports import Report
    from supervisor import Supervisor
    from tests.supervisor.promises.world import World


class Instructs(Hooks):
    """A hook that decides."""

    async def instructions(self, at: object) -> str | None:
        raise ValueError("no instructions today")


class Tools(Hooks):
    """Likewise."""

    async def tools(self, at: object) -> None:
        raise ValueError("no tools today")


class Context(Hooks):
    """Likewise."""

    async def context(self, at: object) -> None:
        raise ValueError("no context today")


class Guards(Hooks):
    """A hook that observes, marked as a guard."""

    @guard
    async def before_request(self, at: object) -> None:
        raise ValueError("not on Sundays")


@pytest.mark.parametrize("hooks", [Instructs(), Tools(), Context(), Guards()], ids=lambda one: type(one).__name__)
async def test_hok_1_a_deciding_hook_or_a_guard_fails_the_turn_loudly(
    world: World, hooks: Hooks, autojump_clock: MockClock
) -> None:
    """The model is never asked, and the report carries what the hook raised."""
    asked: list[object] = []

    def answer(request: object) -> str:
        asked.append(request)
        return "done"

    async with world.open({"a": answer}) as sup:
        report = await sup.run(agent(hooks=hooks), "go")
    assert report.status == "failed"
    assert "ValueError" in str(report.error)
    assert asked == []


class Speaks(Hooks):
    """A hook that answers with several messages."""

    async def before_run(self, at: object) -> list[Steer | Send]:
        return [Steer("keep it short"), Send("and then?")]


async def test_hok_2_what_a_hook_returns_is_one_decision(world: World, autojump_clock: MockClock) -> None:
    """Its messages are accepted in one commit, all or none."""
    async with world.open({"a": ["one", "two", "three"]}) as sup:
        ref = await sup.start(agent(hooks=Speaks()), "go")
        await ref.wait_idle()
        accepted = [[put.envelope.content[0].text for put in ops(one, Enqueue)] for one in world.spy.with_op(Enqueue)]
    assert ["keep it short", "and then?"] in accepted


@tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


class Logs(Hooks):
    """Writes down which of its methods is called, with run and turn."""

    def __init__(self, name: str = "", log: list[str] | None = None) -> None:
        self._name = name
        self.log = [] if log is None else log

    def _note(self, at: Moment, point: str) -> None:
        self.log.append(f"{self._name}{point} {at.run}.{at.turn}")

    async def instructions(self, at: Moment) -> str | None:
        self._note(at, "instructions")
        return None

    async def before_run(self, at: Moment) -> None:
        self._note(at, "before_run")

    async def before_turn(self, at: Moment) -> None:
        self._note(at, "before_turn")

    async def before_request(self, at: Moment) -> None:
        self._note(at, "before_request")

    async def after_response(self, at: Moment) -> None:
        assert at.response is not None
        self._note(at, "after_response")

    async def after_turn(self, at: Moment, report: Report) -> None:
        self._note(at, f"after_turn({report.status})")

    async def after_run(self, at: Moment, report: Report) -> None:
        self._note(at, f"after_run({report.text})")

    async def settled(self, at: Moment) -> None:
        self._note(at, "settled")


BEGIN = ["before_run 1.1", "before_turn 1.1"]
ASK = ["instructions 1.1", "before_request 1.1", "after_response 1.1"]
END = ["after_turn(done) 1.1", "after_run(done) 1.1", "settled 1.1"]


async def test_hok_2_each_hook_is_called_at_its_point_as_often_as_it_is_reached(
    world: World, autojump_clock: MockClock
) -> None:
    """Once for a run, a turn, a request; a retried attempt is no request, a batch begins another."""
    logs = Logs()
    async with world.open({"a": [broken(), call("look"), "done"]}) as sup:
        await sup.run(agent(tools=[look], hooks=logs), "go")
    assert logs.log == [*BEGIN, *ASK, *ASK, *END]


async def test_hok_2_a_request_that_compacts_first_is_another(world: World, autojump_clock: MockClock) -> None:
    """The overflowing request had its hooks, the one behind the compaction has its own; the summary's has none."""
    logs = Logs()
    script = {"a": ["first " * 400, overflow(), "a summary", "done"]}
    async with world.open(script) as sup:
        ref = await sup.start(agent(hooks=logs), "go")
        await ref.wait_idle()
        logs.log.clear()
        await ref.ask("again")
        await ref.wait_idle()
    asked = [line.split()[0] for line in logs.log]
    assert asked.count("before_turn") == asked.count("after_response") == 1
    assert asked.count("before_request") == asked.count("instructions") == 2


class Steering(Logs):
    """Somebody steers while the request's own hook runs."""

    def __init__(self, sup: list[Supervisor]) -> None:
        super().__init__()
        self.sup = sup
        self.sent = False

    async def before_request(self, at: Moment) -> None:
        """Note it, and the first time let a message come."""
        await super().before_request(at)
        if not self.sent:
            self.sent = True
            await (await self.sup[0].find("a")).steer("and this")


async def test_hok_2_a_request_that_is_chosen_again_has_its_own_hook_once(
    world: World, autojump_clock: MockClock
) -> None:
    """A message that comes behind the choice is chosen for, too; the request is still the one that was announced."""
    sup: list[Supervisor] = []
    logs = Steering(sup)
    async with world.open({"a": ["done", "done"]}) as opened:
        sup.append(opened)
        await opened.run(agent(hooks=logs), "go")
        assert logs.log[2:6] == [*ASK[:2], *ASK[::2]]


async def test_hok_2_a_turn_cut_off_by_a_restart_begins_once(world: World, autojump_clock: MockClock) -> None:
    """The process is left while the model answers: the next goes on with the turn, and ends it."""
    first, then = Logs(), Logs()
    async with world.open({"a": [(hang(),)]}) as sup:
        await sup.start(agent(hooks=first), "go")
        await trio.sleep(1)
    async with world.open({"a": ["done"]}, agents=[agent(hooks=then)]) as sup:
        (ref,) = await sup.resume()
        await ref.wait_idle()
    assert first.log == [*BEGIN, *ASK[:2]]
    assert then.log == [*ASK, *END]


async def test_hok_2_a_parked_turn_begins_and_ends_once(world: World, autojump_clock: MockClock) -> None:
    """Nothing is called while it waits for a person; approved, it goes on."""
    logs = Logs()

    @tool(approve=True)
    async def act() -> str:
        """Act."""
        return "acted"

    async with world.open({"a": [call("act"), "done"]}) as sup:
        ref = await sup.start(agent(tools=[act], hooks=logs), "go")
        async with sup.approvals() as inbox:
            async for request in inbox:
                assert logs.log == [*BEGIN, *ASK]
                await request.approve()
                break
        await ref.wait_idle()
    assert logs.log == [*BEGIN, *ASK, *ASK, *END]


async def test_hok_2_a_paused_turn_begins_and_ends_once(world: World, autojump_clock: MockClock) -> None:
    """Paused between two requests and woken, it goes on."""
    logs = Logs()

    @tool(effect="pure")
    async def slow() -> str:
        """Take a while."""
        await trio.sleep(5)
        return "slept"

    async with world.open({"a": [call("slow"), "done"]}) as sup:
        ref = await sup.start(agent(tools=[slow], hooks=logs), "go")
        await trio.sleep(1)
        await ref.pause()
        await trio.sleep(60)
        assert logs.log == [*BEGIN, *ASK]
        await ref.wake()
        await ref.wait_idle()
    assert logs.log == [*BEGIN, *ASK, *ASK, *END]


async def test_hok_2_a_run_whose_last_message_is_withdrawn_is_over_all_the_same(
    world: World, autojump_clock: MockClock
) -> None:
    """The turn had ended with a message waiting; taken back, the run is over, and its hooks hear it once."""
    ref_of: list[Any] = []

    class Withdraws(Logs):
        async def after_turn(self, at: Moment, report: Report) -> None:
            await super().after_turn(at, report)
            receipt = ref_of.pop()
            await receipt.withdraw()

    logs = Withdraws()
    async with world.open(
        {"a": [lambda _: "done"]},
    ) as sup:
        ref = await sup.start(agent(hooks=logs))
        await ref.pause()
        await ref.send("go")
        ref_of.append(await ref.send("and more"))
        await ref.wake()
        await ref.wait_idle()
    assert logs.log == [*BEGIN, *ASK, *END]


async def test_hok_2_a_turn_that_came_to_nothing_ends_no_run_twice(world: World, autojump_clock: MockClock) -> None:
    """The message of the next run is withdrawn while its hooks look: the last run's end is not told again."""
    taken: list[Any] = []

    class Withdraws(Logs):
        async def before_turn(self, at: Moment) -> None:
            await super().before_turn(at)
            if at.turn == 2:
                await taken[0].withdraw()

    logs = Withdraws()
    async with world.open({"a": ["done"]}) as sup:
        ref = await sup.start(agent(hooks=logs), "go")
        await ref.wait_idle()
        await ref.pause()
        taken.append(await ref.send("never mind"))
        await ref.wake()
        await ref.wait_idle()
    assert [line for line in logs.log if "after_run" in line] == ["after_run(done) 1.1", "after_run() 2.2"]
    assert logs.log[-1] == "settled 2.2", "it had begun, and so it ended (TRN-4)"


async def test_hok_2_what_is_sent_when_a_run_is_over_begins_the_next(world: World, autojump_clock: MockClock) -> None:
    """An answer of `after_run` is a run of its own, with its own hooks."""

    class Goes(Logs):
        async def after_run(self, at: Moment, report: Report) -> Send | None:  # type: ignore[override]  # narrower
            await super().after_run(at, report)
            return Send("once more") if at.run == 1 else None

    logs = Goes()
    async with world.open({"a": ["one", "two"]}) as sup:
        ref = await sup.start(agent(hooks=logs), "go")
        await ref.wait_idle()
    assert [line for line in logs.log if "run" in line or "settled" in line] == [
        "before_run 1.1",
        "after_run(one) 1.1",
        "before_run 2.2",
        "after_run(two) 2.2",
        "settled 2.2",
    ]


# -- what they see, and what is sent -----------------------------------------------------------------------------


def said(record: object) -> str:
    """The text of a message."""
    return record.content[0].text if isinstance(record, MessageRecord) else ""  # type: ignore[union-attr]  # a text


class Redacts(Hooks):
    """Hides a word from the model."""

    def __init__(self, word: str) -> None:
        self._word = word
        self.seen: list[list[str]] = []

    async def context(self, at: Moment) -> list[Any]:
        self.seen.append(texts(list(at.conversation)))
        return [self._hidden(record) for record in at.conversation]

    def _hidden(self, record: Any) -> Any:
        if not isinstance(record, MessageRecord | ResultRecord):
            return record
        hidden = tuple(Text(part.text.replace(self._word, "***")) for part in record.content)  # type: ignore[union-attr]  # texts
        return replace(record, content=hidden)


async def test_context_changes_what_is_sent_and_never_what_is_stored(world: World, autojump_clock: MockClock) -> None:
    """It sees the message and the results that the request is for; the store keeps what was said."""
    shown: list[list[str]] = []

    @tool(effect="pure")
    async def reveal() -> str:
        """Say it."""
        return "the secret"

    def answer(request: ModelRequest) -> object:
        shown.append(texts(list(request.window)))
        return call("reveal") if len(shown) == 1 else "done"

    hooks = Redacts("secret")
    async with world.open({"a": answer}) as sup:
        ref = await sup.start(agent(tools=[reveal], hooks=hooks), "a secret")
        await ref.wait_idle()
        assert texts(await ref.transcript()) == ["<a secret", "> reveal()", "=ok:the secret", ">done"]
    assert shown == [["<a ***"], ["<a ***", "> reveal()", "=ok:the ***"]]
    assert hooks.seen[1] == ["<a secret", "> reveal()", "=ok:the secret"]


async def test_nothing_is_sent_that_the_context_hook_has_not_seen(world: World, autojump_clock: MockClock) -> None:
    """A steer that comes while it works enters the same request, and the hook is asked again."""
    shown: list[list[str]] = []

    class Slow(Redacts):
        async def context(self, at: Moment) -> list[Any]:
            await trio.sleep(5)
            return await super().context(at)

    def answer(request: ModelRequest) -> object:
        shown.append(texts(list(request.window)))
        return "done"

    async with world.open({"a": answer}) as sup:
        ref = await sup.start(agent(hooks=Slow("secret")), "a secret")
        await trio.sleep(1)
        await ref.steer("one more secret")
        await ref.wait_idle()
    assert shown == [["<one more ***"], ["<one more ***", ">done", "<a ***"]]


async def test_a_context_that_no_provider_takes_fails_the_turn(world: World, autojump_clock: MockClock) -> None:
    """A result without its call is named before the model's server could refuse it."""

    class Drops(Hooks):
        async def context(self, at: Moment) -> list[Any]:
            return [record for record in at.conversation if not getattr(record, "calls", ())]

    async with world.open({"a": [call("look"), "never"]}) as sup:
        report = await sup.run(agent(tools=[look], hooks=Drops()), "go")
    assert (report.status, type(report.error)) == ("failed", UsageError)
    assert "no provider takes" in str(report.error)


# -- one decision ------------------------------------------------------------------------------------------------


async def test_hok_2_where_the_compaction_is_refused_nothing_is_sent(world: World, autojump_clock: MockClock) -> None:
    """A decision is carried out whole or not at all, and its failure is an event."""
    leave: list[Callable[[], None]] = []

    class Both(Hooks):
        async def after_turn(self, at: Moment, report: Report) -> list[Any]:
            leave[0]()  # what is sent is accepted, but nothing begins any more
            return [Send("never"), Compact()]

    async with world.open({"a": ["done"]}) as sup, watched(sup) as log:
        leave.append(sup.suspend)
        await sup.start(agent(hooks=Both()), "go")
        await trio.sleep(60)
        assert "never" not in await messages(sup.store, "a")
        assert [event.hook for event in log.of(HookFailed)] == ["after_turn"]


async def test_hok_2_messages_that_do_not_all_fit_are_not_sent(world: World, autojump_clock: MockClock) -> None:
    """All or none; an observer's answer that is refused fails no turn."""

    class Many(Hooks):
        async def before_turn(self, at: Moment) -> list[Any]:
            return [Send(str(n)) for n in range(5)]

    spec = agent(hooks=Many(), limits=Limits(send=LaneBound(messages=3)))
    async with world.open({"a": ["done"]}) as sup, watched(sup) as log:
        ref = await sup.start(spec, "go")
        await ref.wait_idle()
        assert list(await messages(sup.store, "a")) == ["go"]
        (failed,) = log.of(HookFailed)
        assert MailboxFull.__name__ in failed.error


# -- bounded by abort and close ----------------------------------------------------------------------------------


class Never(Hooks):
    """A hook that does not return."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def before_request(self, at: Moment) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.ended.append("cancelled")


async def test_abt_1_a_hook_that_never_returns_is_cancelled_by_an_abort(
    world: World, autojump_clock: MockClock
) -> None:
    """The abort ends the turn, and the hook's code with it."""
    hooks = Never()
    async with world.open({"a": ["never"]}) as sup:
        ref = await sup.start(agent(hooks=hooks), "go")
        await trio.sleep(1)
        await ref.abort("enough")
        with trio.fail_after(1):
            await ref.wait_aborted()
            await trio.sleep(0.1)
        assert hooks.ended == ["cancelled"]
        assert sup._parts.runner.hooks == set()


async def test_cls_4_a_hook_that_never_returns_holds_no_close(world: World, autojump_clock: MockClock) -> None:
    """Past the grace the close is an abort, which ends the hook."""
    hooks = Never()
    async with world.open({"a": ["never"]}) as sup:
        ref = await sup.start(agent(hooks=hooks), "go")
        await trio.sleep(1)
        await ref.close(grace=5)
        with trio.fail_after(60):
            await ref.wait_closed()
        assert hooks.ended == ["cancelled"]


async def test_cls_4_a_hook_that_ignores_its_cancellation_is_named(
    memory: World, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Leaving the supervisor gives up on it in bounded time and says which hook it was."""
    release = trio.Event()

    class Deaf(Hooks):
        async def before_turn(self, at: Moment) -> None:
            with trio.CancelScope(shield=True), trio.move_on_after(500):
                await release.wait()

    async with memory.open({"a": ["never"]}, on_exit="suspend", grace=1, hard=1) as sup:
        await sup.start(agent(hooks=Deaf()), "go")
        await trio.sleep(1)
    assert "hook before_turn of a" in capsys.readouterr().err


# -- waits from hooks --------------------------------------------------------------------------------------------


def waiting(point: str, wait: Callable[[Any], Awaitable[object]], refused: list[str]) -> Hooks:
    """Hooks that wait for their own agent at a point."""

    async def hook(_: Hooks, at: Moment, *__: object) -> None:
        try:
            await wait(at.ref(at.agent))
        except WaitCycle as error:
            refused.append(str(error))

    made: Hooks = type("Waits", (Hooks,), {point: hook})()
    return made


WAITS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "idle": lambda ref: ref.wait_idle(),
    "report": lambda ref: ref.wait_report(),
    "ask": lambda ref: ref.ask("me?"),
}


@pytest.mark.parametrize("what", WAITS)
@pytest.mark.parametrize("point", ["before_run", "before_request", "instructions", "after_response", "around_tool"])
async def test_ree_2_a_hook_that_waits_for_its_own_turn_is_refused(
    memory: World, point: str, what: str, autojump_clock: MockClock
) -> None:
    """The turn waits for the hook: the wait could never end, and the refusal names the hook."""
    refused: list[str] = []
    async with memory.open({"a": [call("look"), "done"]}) as sup:
        ref = await sup.start(agent(tools=[look], hooks=waiting(point, WAITS[what], refused)), "go")
        with trio.fail_after(100):
            await ref.wait_idle()
    assert refused
    assert ("tool look" if point == "around_tool" else "hook") in refused[0]


@pytest.mark.parametrize("point", ["after_turn", "after_run", "settled"])
async def test_ree_2_a_hook_behind_the_turn_that_waits_for_idleness_is_refused(
    memory: World, point: str, autojump_clock: MockClock
) -> None:
    """The agent is idle when its hooks are over: waiting for that from one of them could never end."""
    refused: list[str] = []
    async with memory.open({"a": ["done"]}) as sup:
        ref = await sup.start(agent(hooks=waiting(point, WAITS["idle"], refused)), "go")
        with trio.fail_after(100):
            await ref.wait_idle()
    assert len(refused) == 1


async def test_ree_4_a_hook_may_ask_another_agent(world: World, autojump_clock: MockClock) -> None:
    """Its answer is there before the request goes, with one permit for both."""
    asked: list[str] = []

    class Asks(Hooks):
        async def context(self, at: Moment) -> None:
            report = await at.ref("b").ask("how?")
            asked.append(report.text)

    async with world.open({"a": ["done"], "b": ["so"]}, permits=1) as sup:
        await sup.start(agent("b"))
        with trio.fail_after(100):
            report = await sup.run(agent(hooks=Asks()), "go")
    assert (asked, report.text) == (["so"], "done")


# -- the supervisor's hooks --------------------------------------------------------------------------------------


async def test_the_supervisors_hooks_stand_around_the_agents(world: World, autojump_clock: MockClock) -> None:
    """First before, last behind; what decides is asked of the agent's first."""
    log: list[str] = []
    async with world.open({"a": ["done"], "b": ["done"]}, hooks=Logs("sup:", log)) as sup:
        await sup.run(agent(hooks=Logs("own:", log)), "go")
        await trio.sleep(1)
        whole = [line.split()[0] for line in log]
        log.clear()
        await sup.run(agent("b"), "go")
    assert whole[:4] == ["sup:before_run", "own:before_run", "sup:before_turn", "own:before_turn"]
    assert whole[4:8] == ["own:instructions", "sup:instructions", "sup:before_request", "own:before_request"]
    assert whole[8:12] == ["own:after_response", "sup:after_response", "own:after_turn(done)", "sup:after_turn(done)"]
    assert all(line.startswith("sup:") for line in log)
    assert len(log) >= 6


async def test_the_supervisors_hooks_have_the_last_word(world: World, autojump_clock: MockClock) -> None:
    """They see what the agent's chose, and wrap what these wrap."""
    asked: list[ModelRequest] = []
    around: list[str] = []

    class Own(Hooks):
        async def instructions(self, at: Moment) -> str:
            return at.instructions + " Own."

        async def context(self, at: Moment) -> list[Any]:
            return list(at.conversation)[-1:]

        async def around_tool(self, at: Moment, call: AroundCall, proceed: Proceed) -> object:
            around.append("own")
            return f"own({await proceed()})"

    class Outer(Hooks):
        async def instructions(self, at: Moment) -> str:
            return at.instructions + " Sup."

        async def context(self, at: Moment) -> None:
            assert len(at.conversation) == 1

        async def tools(self, at: Moment) -> list[Any]:
            return [one for name, one in at.tools.items() if name != "hidden"]

        async def around_tool(self, at: Moment, call: AroundCall, proceed: Proceed) -> object:
            around.append("sup")
            return f"sup({await proceed()})"

    @tool
    async def hidden() -> None:
        """Do not offer this."""

    def answer(request: ModelRequest) -> object:
        asked.append(request)
        return "done" if len(asked) == 2 else [call("look")]

    class Calls(Own):
        async def context(self, at: Moment) -> None:  # type: ignore[override]  # nothing here
            return None

    class Sees(Outer):
        async def context(self, at: Moment) -> None:
            return None

    async with world.open({"a": answer}, hooks=Sees()) as sup:
        ref = await sup.start(agent(tools=[look, hidden], hooks=Calls()), "go")
        await ref.wait_idle()
        results = [text for text in texts(await ref.transcript()) if text.startswith("=")]
    assert results == ["=ok:sup(own(seen))"]
    assert around == ["sup", "own"]
    assert asked[0].instructions == "You are a. Own. Sup."
    assert [offer.name for offer in asked[0].tools] == ["look"]
    async with world.open({"b": ["done"]}, hooks=Outer()) as sup:
        assert (await sup.run(agent("b", hooks=Own()), "go")).text == "done"


async def test_wrong_hooks_of_a_supervisor_are_refused(memory: World) -> None:
    """Where they are written, in no group."""
    with pytest.raises(UsageError, match="hooks= is an object"):
        async with memory.open({"a": ["done"]}, hooks=Logs):
            pass


# -- arguments ---------------------------------------------------------------------------------------------------


async def test_tol_13_changed_arguments_are_those_that_run(world: World, autojump_clock: MockClock) -> None:
    """A hook inside another sees what that one made of them; the conversation keeps what the model asked."""

    @tool(effect="pure")
    async def double(n: int) -> int:
        """Double."""
        return 2 * n

    class Adds(Hooks):
        async def around_tool(self, at: Moment, call: AroundCall, proceed: Proceed) -> object:
            n = call.arguments["n"]
            assert isinstance(n, int)
            return await proceed({"n": n + 1})

    async with world.open({"a": [call("double", n=1), "done"]}, hooks=Adds()) as sup:
        ref = await sup.start(agent(tools=[double], hooks=Adds()), "go")
        await ref.wait_idle()
        assert texts(await ref.transcript()) == ["<go", "> double()", "=ok:6", ">done"]


async def test_tol_13_what_an_inner_hook_refuses_an_outer_one_passes_on(
    world: World, autojump_clock: MockClock
) -> None:
    """The call was not run, and the model reads why; an outer one that looks at it sees the refusal."""
    seen: list[object] = []

    class Refuses(Hooks):
        async def around_tool(self, at: Moment, call: AroundCall, proceed: Proceed) -> object:
            return Refuse("not today")

    class Passes(Hooks):
        async def around_tool(self, at: Moment, call: AroundCall, proceed: Proceed) -> object:
            seen.append(await proceed())
            return seen[-1]

    async with world.open({"a": [call("look"), "done"]}, hooks=Passes()) as sup:
        ref = await sup.start(agent(tools=[look], hooks=Refuses()), "go")
        await ref.wait_idle()
        assert texts(await ref.transcript())[2] == "=refused:Not run: not today"
    assert seen == [Refuse("not today")]
