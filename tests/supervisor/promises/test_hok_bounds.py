"""Hooks are bounded by abort and close, may wait, and may be a supervisor's: ABT-1, CLS-4, REE-2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Hooks, WaitCycle, call, tool
from actors.errors import UsageError
from tests.supervisor.promises.world import agent, texts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock

    from actors.hooks import AroundCall, Moment, Proceed
    from actors.ports import ModelRequest
    from tests.supervisor.promises.world import World

from tests.supervisor.promises.hookkit import Logs, look

# -- bounded by abort and close ----------------------------------------------------------------------------------------


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


# -- waits from hooks --------------------------------------------------------------------------------------------------


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


# -- the supervisor's hooks --------------------------------------------------------------------------------------------


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
