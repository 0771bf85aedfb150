"""ACC-2: what could be written and never be read again is refused where its sender stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from actors import (
    Budget,
    Compaction,
    Context,
    File,
    Image,
    LaneBound,
    Limits,
    Price,
    Selection,
    Text,
    UsageError,
    call,
    tool,
)
from supervisor import wait_any
from tests.supervisor.promises.world import agent, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from tests.supervisor.promises.world import World

CONTENTS: list[Any] = [
    Image("image/png"),
    None,
    [],
    7,
    "half a character \ud83d",
    ["whole", Text("\udcff")],
    File("\udcff", "text/plain", "eA=="),
]
OPTIONS: list[dict[str, Any]] = [
    {"select": "openai-chat:small"},
    {"key": 7},
    {"key": ["k"]},
    {"key": "lone \udcff"},
    {"ttl": "5"},
    {"ttl": True},
    {"ttl": float("nan")},
]


async def test_acc_2_content_that_no_store_reads_back_is_refused(world: World, autojump_clock: MockClock) -> None:
    """A part whose fields are no texts is a usage error for every verb, and the agent goes on, after a restart too."""
    spec = agent()
    async with world.open({"a": lambda _: "ok"}, agents=[spec]) as sup:
        ref = await sup.start(spec, "first")
        for content in CONTENTS:
            for verb in (ref.send, ref.steer, ref.ask):
                with pytest.raises(UsageError):
                    await verb(content)
            with pytest.raises(UsageError):
                ref.post(content)
        with pytest.raises(UsageError, match="send_many takes a list"):
            await ref.send_many("abc")
        assert (await ref.ask("second")).text == "ok"
        assert list(await messages(sup.store, "a")) == ["first", "second"]


async def test_acc_2_a_task_that_no_store_reads_back_starts_nothing(world: World, autojump_clock: MockClock) -> None:
    """Half a character in a task, a reason or an answer is a usage error that names it, and nothing has changed."""
    spec, half = agent(), "task \ud83d"
    async with world.open({"a": ["ok"]}) as sup:
        for asked in (lambda: sup.start(spec, half), lambda: sup.run(spec, half), lambda: sup.run(spec, half, key="k")):
            with pytest.raises(UsageError, match="the task is text that UTF-8 can hold"):
                await asked()
        assert await sup.tree() == ()
        ref = await sup.start(spec, "go", key="k")
        for ended in (ref.abort, ref.kill):
            with pytest.raises(UsageError, match="the reason is text that UTF-8 can hold"):
                await ended(half)
        assert ref.path == "a"
        assert (await ref.wait_report()).text == "ok"


async def test_acc_2_options_that_no_store_reads_back_are_refused(world: World, autojump_clock: MockClock) -> None:
    """A selection, key or time to live of a wrong type is a usage error, and nothing of it stands in the mailbox."""
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())
        for options in OPTIONS:
            with pytest.raises(UsageError, match=f"{next(iter(options))}="):
                await ref.send("x", **options)
            if "select" not in options:
                with pytest.raises(UsageError):
                    ref.post("x", **options)
        assert await messages(sup.store, "a") == {}
        assert (await ref.ask("y", select=Selection(effort="low"))).text == "ok"


async def test_acc_2_verbs_say_what_they_take(world: World, autojump_clock: MockClock) -> None:
    """Wrong arguments of the verbs are usage errors, raised before anything has changed."""
    wrong: Any = object()
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())
        asked: list[Callable[[], Any]] = [
            lambda: ref.ask("x", timeout=wrong),
            lambda: ref.ask("x", timeout=-1),
            lambda: ref.abort(wrong),
            lambda: ref.kill(wrong),
            lambda: ref.close(grace=wrong),
            lambda: ref.close(grace=float("nan")),
            lambda: sup.start(wrong),
            lambda: sup.start(agent("b"), "x", key=wrong),
            lambda: sup.start(agent("b"), "x", budget=wrong),
            lambda: sup.find(wrong),
            lambda: sup.grant(wrong, Budget(tokens=1), by="me"),
            lambda: sup.grant(ref, wrong, by="me"),
            lambda: sup.dead_letters(wrong),
            lambda: sup.put_back(wrong, by="me"),
            lambda: sup.receipt(wrong),
            lambda: wait_any(wrong),
        ]
        for ask in asked:
            with pytest.raises(UsageError):
                await ask()
        with pytest.raises(UsageError):
            ref.cancel_call(wrong)
        assert [row.agent for row in await sup.tree()] == ["a"]
        assert (await ref.ask("still here?")).text == "ok"


def test_acc_6_bounds_that_cannot_be_meant_are_refused() -> None:
    """Limits, lane bounds, prices and compactions of wrong types are refused where they are written."""
    wrong: Any = "12"
    made: list[Callable[[], object]] = [
        lambda: Limits(poison_limit=0),
        lambda: Limits(poison_limit=wrong),
        lambda: Limits(send=wrong),
        lambda: LaneBound(messages=-1),
        lambda: LaneBound(message_bytes=wrong),
        lambda: LaneBound(share=wrong),
        lambda: Price(cast("Any", None), "1"),
        lambda: Budget(usd=cast("Any", b"1")),
        lambda: Compaction(at=wrong),
        lambda: Compaction(keep=wrong),
        lambda: Compaction(tokens=wrong),
        lambda: Compaction(instructions=cast("Any", None)),
        lambda: Compaction(model=cast("Any", 5)),
    ]
    for make in made:
        with pytest.raises(UsageError):
            make()


@pytest.mark.parametrize("wrong", [3, None, b"a", "\ud800"])
async def test_acc_2_a_tool_that_names_nobody_is_told_so(world: World, autojump_clock: MockClock, wrong: Any) -> None:
    """What is no path is refused by `ctx.send`, `ctx.ask` and `ctx.ref` in words that a model can act on."""
    told: list[str] = []

    @tool
    async def write(ctx: Context) -> None:
        """Write."""
        asked: list[Callable[[], Any]] = [
            lambda: ctx.send(wrong, "x"),
            lambda: ctx.ask(wrong, "x"),
            lambda: ctx.ref(wrong).send("x"),
        ]
        for ask in asked:
            try:
                await ask()
            except UsageError as error:
                told.append(str(error))

    async with world.open({"a": [call("write"), "ok"]}) as sup:
        assert (await sup.run(agent(tools=[write]), "go")).text == "ok"
    assert [text[:20] for text in told] == ["the path of an agent"] * 3
