"""TOL-13: a hook around a call may change its arguments, refuse it, fail; the call runs at most once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from actors import AroundCall, Hooks, Limits, Moment, Proceed, Refuse, ToolChanged, UsageError, call, tool
from actors.transcript import ResultRecord, problems
from tests.supervisor.promises.world import agent, check, said, watched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock

    from tests.supervisor.promises.world import World

    Body = Callable[[AroundCall, Proceed], Awaitable[object]]


class Around(Hooks):
    """Wraps every call with a function."""

    def __init__(self, body: Body) -> None:
        self._body = body

    async def around_tool(self, at: Moment, call: AroundCall, proceed: Proceed) -> object:
        assert at.agent == "a"
        return await self._body(call, proceed)


@attrs.frozen
class Line:
    """A line of an order."""

    item: str
    count: int = 1


class Shop:
    """Tools that note what ran."""

    def __init__(self) -> None:
        self.ran: list[object] = []
        self.now: set[str] = set()
        self.together = False

        @tool(approve=lambda lines: len(lines) > 2)
        async def order(lines: list[Line], note: object = self) -> str:
            """Order."""
            self.ran.append([(line.item, line.count) for line in lines])
            return "ordered"

        @tool(resource=lambda path: path)
        async def write(path: str) -> str:
            """Write."""
            self.together |= path in self.now
            self.now.add(path)
            await trio.sleep(1)
            self.now.discard(path)
            self.ran.append(path)
            return path

        self.order, self.write = order, write


async def outcome(world: World, body: Body, *calls: object, shop: Shop) -> list[tuple[str, str]]:
    """What became of the calls of one response: status and text."""
    async with world.open({"a": [list(calls), "done"]}) as sup:
        spec = agent(tools=[shop.order, shop.write], hooks=Around(body), limits=Limits(parallel_calls=4))
        ref = await sup.start(spec, "go")
        report = await ref.wait_report()
        records = await ref.transcript()
        assert report.text == "done"
        assert problems(records) == []
        await check(sup.store)
        return [(one.status.value, said(one.content)) for one in records if isinstance(one, ResultRecord)]


async def test_tol_13_a_hook_changes_the_arguments(world: World, autojump_clock: MockClock) -> None:
    """They are read as a model's are, so the tool gets its own classes; the event says what ran; defaults stay."""
    shop = Shop()

    async def more(call: AroundCall, proceed: Proceed) -> object:
        lines = call.arguments["lines"]
        assert isinstance(lines, list)
        return await proceed({**call.arguments, "lines": [*lines, {"item": "tea", "count": 2}]})

    async with world.open({"a": [call("order", lines=[{"item": "milk"}]), "done"]}) as sup, watched(sup) as log:
        await sup.run(agent(tools=[shop.order], hooks=Around(more)), "go")
        assert shop.ran == [[("milk", 1), ("tea", 2)]]
        (changed,) = log.of(ToolChanged)
        assert changed.call == "a:t1.1.0"
        assert '"tea"' in changed.arguments


async def test_tol_13_arguments_that_do_not_fit_run_nothing_and_may_be_mended(
    world: World, autojump_clock: MockClock
) -> None:
    """What the hook gets is told; asked again with what fits, the call runs, once."""
    shop = Shop()
    heard: list[str] = []

    async def wrong_first(call: AroundCall, proceed: Proceed) -> object:
        for wrong in ({"lines": "none"}, {}, {**call.arguments, "more": 1}, {"lines": [object()]}):
            with pytest.raises(UsageError) as caught:
                await proceed(wrong)
            heard.append(str(caught.value))
        first = await proceed()
        assert await proceed({"lines": []}) == first, "it ran; later changes come too late"
        return first

    found = await outcome(world, wrong_first, call("order", lines=[{"item": "milk"}]), shop=shop)
    assert found == [("ok", "ordered")]
    assert shop.ran == [[("milk", 1)]]
    assert len(heard) == 4


async def test_tol_13_a_hook_that_fails_is_the_calls_error(world: World, autojump_clock: MockClock) -> None:
    """Before it asks, or after: the model reads what it raised, siblings go on."""
    shop = Shop()

    async def fails(call: AroundCall, proceed: Proceed) -> object:
        if call.arguments["path"] == "before":
            raise ValueError("not today")
        given = await proceed()
        if call.arguments["path"] == "after":
            raise ValueError("not that")
        return given

    calls = [call("write", path=path) for path in ("before", "after", "fine")]
    found = await outcome(world, fails, *calls, shop=shop)
    assert found == [("error", "ValueError: not today"), ("error", "ValueError: not that"), ("ok", "fine")]
    assert sorted(shop.ran, key=str) == ["after", "fine"]


async def test_tol_13_a_hook_refuses(world: World, autojump_clock: MockClock) -> None:
    """Before the call it is refused, and nothing ran; behind it, its result is withheld, and that is no refusal."""
    shop = Shop()

    async def refuses(call: AroundCall, proceed: Proceed) -> object:
        if call.arguments["path"] == "after":
            await proceed()
        return Refuse("it is late")

    found = await outcome(world, refuses, call("write", path="before"), call("write", path="after"), shop=shop)
    assert found[0] == ("refused", "Not run: it is late")
    assert found[1] == ("error", "write ran, and a hook withholds its result: it is late")
    assert shop.ran == ["after"]


async def test_tol_13_what_is_approved_is_what_runs(world: World, autojump_clock: MockClock) -> None:
    """A change after the approval is refused, the approved arguments themselves are not; what needs one is not run."""
    shop = Shop()
    three = [{"item": name, "count": 1} for name in "abc"]

    async def changes(call: AroundCall, proceed: Proceed) -> object:
        if call.id.endswith(".0"):
            return await proceed({"lines": [*three[:2], {"item": "gold", "count": 9}]})
        return await proceed({"lines": three})

    calls = [call("order", lines=three), call("order", lines=three), call("order", lines=[])]
    spec = agent(tools=[shop.order], hooks=Around(changes))
    async with world.open({"a": [calls, "done"]}) as sup:
        ref = await sup.start(spec, "go")
        async with sup.approvals() as inbox:
            for _ in range(2):
                await (await anext(inbox)).approve()
            await ref.wait_report()
        found = [one for one in await ref.transcript() if isinstance(one, ResultRecord)]
        assert [one.status.value for one in found] == ["error", "ok", "error"]
        assert "approved" in said(found[0].content)
        assert "needs approval" in said(found[2].content)
        assert shop.ran == [[("a", 1), ("b", 1), ("c", 1)]]


async def test_tol_13_a_change_takes_no_resource_that_the_call_does_not_hold(
    world: World, autojump_clock: MockClock
) -> None:
    """Else it would run beside another that holds it (TOL-4)."""
    shop = Shop()

    async def to_x(call: AroundCall, proceed: Proceed) -> object:
        return await proceed({"path": "x"})

    found = await outcome(world, to_x, call("write", path="x"), call("write", path="y"), shop=shop)
    assert [status for status, _ in found] == ["ok", "error"]
    assert "the resource x" in found[1][1]
    assert shop.ran == ["x"]
    assert not shop.together
