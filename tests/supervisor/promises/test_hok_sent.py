"""HOK-1 and HOK-2: what hooks see and what is sent, in one decision; TOL-13: arguments that a hook changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from msgspec.structs import replace

from actors import HookFailed, Hooks, Limits, Send, Steer, Text, call, tool
from actors.errors import MailboxFull, UsageError
from actors.hooks import Compact, Refuse
from actors.messages import LaneBound
from actors.models.script import hang
from actors.transcript import MessageRecord, ResultRecord
from tests.supervisor.promises.world import agent, messages, texts, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from actors.hooks import AroundCall, Moment, Proceed
    from actors.ports import ModelRequest
    from actors.reports import Report
    from tests.supervisor.promises.world import World

from tests.supervisor.promises.hookkit import look

# -- what they see, and what is sent -----------------------------------------------------------------------------------


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


# -- one decision ------------------------------------------------------------------------------------------------------


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


# -- arguments ---------------------------------------------------------------------------------------------------------


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


class Steers(Hooks):
    """Sends its agent something at a point, whatever happens."""

    def __init__(self, point: str, how: str) -> None:
        async def always(_: Hooks, at: Moment, *__: object) -> Any:
            if how == "returned":
                return [Steer("go on"), Send("and on")]
            await (at.ref(at.agent).steer if how == "steered" else at.ref(at.agent).send)("go on")
            return None

        self.__class__ = type("Steers", (Steers,), {point: always})


@pytest.mark.parametrize("how", ["returned", "steered", "sent"])
@pytest.mark.parametrize("point", ["before_request", "after_response", "after_turn"])
async def test_hok_2_a_hook_that_sends_always_keeps_no_run_going_for_ever(
    world: World, autojump_clock: MockClock, point: str, how: str
) -> None:
    """Past `hook_messages` what it sends is refused, an event says what to do, and the run ends with its answer.

    The next run has as many again; what others send is not counted.
    """
    limits, left = Limits(hook_messages=6), iter(range(100))

    def answer(_: ModelRequest) -> object:
        return "ok" if next(left, None) is not None else hang()

    async with world.open({"a": answer}) as sup, watched(sup) as log:
        ref = await sup.start(agent(hooks=Steers(point, how), limits=limits))
        for runs in (1, 2):
            receipts = [await ref.send(f"{runs} {number}") for number in range(8)]
            with trio.fail_after(100):
                await ref.wait_idle()
            assert (await receipts[-1].wait_report()).text == "ok"
            by_hooks = [text for text in await messages(sup.store, "a") if text in ("go on", "and on")]
            assert by_hooks
            entered = [said(one) for one in await ref.transcript() if isinstance(one, MessageRecord)]
            assert sum(text in ("go on", "and on") for text in entered) == 6 * runs
        (failed, *_) = log.of(HookFailed)
        assert "send on a condition that comes to an end, or raise Limits(hook_messages=6)" in failed.error
