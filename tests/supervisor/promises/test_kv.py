"""Key-value stores of agents, runs and calls: what may be written, and when it is erased (HOK-4, TOL-7)."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from actors import Context, UsageError, call, tool
from actors.changes import Erase, KvRow
from actors.kv import VALUE_BYTES
from tests.supervisor.promises.test_stages import plays
from tests.supervisor.promises.world import agent, has, texts

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from supervisor.store.base import Reader
    from tests.supervisor.promises.world import World


@attrs.frozen
class Place:
    """A class that tools may have parameters of."""

    name: str
    visits: int = 0


async def scopes(store: Reader, *names: str) -> dict[str, list[str]]:
    """The keys of the agent's scopes that hold something."""
    found = {name: [row.key for row in await store.kv("a", name)] for name in names}  # type: ignore[arg-type]  # a path
    return {name: keys for name, keys in found.items() if keys}


async def test_hok_4_values_are_json_and_are_read_as_the_type_they_are_asked_as(
    world: World, autojump_clock: MockClock
) -> None:
    """Classes, dates and plain JSON come back; what has no JSON form, fits no type, or is too large is refused."""
    refused: list[str] = []

    @tool
    async def keep(ctx: Context) -> str:
        """Keep things."""
        kv = ctx.kv.agent
        day = dt.date(2026, 11, 29)
        for key, value in (("place", Place("x", 2)), ("day", day), ("list", [1, "a", None]), ("n", 3)):
            await kv.set(key, value)
        assert await kv.get("place", Place) == Place("x", 2)
        assert await kv.get("place") == {"name": "x", "visits": 2}
        assert await kv.get("day", dt.date) == day
        assert await kv.get("list") == [1, "a", None]
        assert await kv.get("n", int, 0) == 3
        assert await kv.get("none", int, 7) == 7
        assert await kv.get("none", int) is None
        bad: list[tuple[str, Any]] = [
            ("nan", float("nan")), ("bytes", b"x"), ("object", object()), ("half", "\ud800"), ("", 1),
            ("k" * 201, 1), ("big", "x" * VALUE_BYTES),
        ]  # fmt: skip
        for key, value in bad:
            with pytest.raises(UsageError) as caught:
                await kv.set(key, value)
            refused.append(str(caught.value))
        with pytest.raises(UsageError, match="int"):
            await kv.get("list", int)
        await kv.delete("n")
        await kv.delete("never")
        assert await kv.get("n") is None
        return "kept"

    async with world.open(plays(call("keep"))) as sup:
        ref = await sup.start(agent(tools=[keep]), "go")
        await ref.wait_idle()
        assert "=ok:kept" in texts(await ref.transcript())
        assert len(refused) == 7
        assert await scopes(sup.store, "agent") == {"agent": ["day", "list", "place"]}


@pytest.mark.parametrize("ending", ["returns", "fails", "is aborted"])
async def test_hok_4_a_calls_store_is_erased_in_the_commit_that_settles_its_batch(
    world: World, autojump_clock: MockClock, ending: str
) -> None:
    """However it ends: it is there until the results are in the conversation, and gone with them; by one range."""
    ids: list[str] = []
    there: list[dict[str, list[str]]] = []

    @tool
    async def work(ctx: Context) -> str:
        """Work."""
        ids.append(ctx.call_id)
        for key in ("one", "two"):
            await ctx.kv.call.set(key, 1)
        if ending == "fails":
            raise ValueError("no")
        await trio.sleep(5 if ending == "returns" else 50)
        return "worked"

    async def before(one: ChangeSet) -> None:
        if has(one, Erase, lambda erase: erase.table is KvRow and erase.prefix[1] in ids):
            there.append(await scopes(world.spy, *ids))

    async with world.open(plays(call("work"))) as sup:
        ref = await sup.start(agent(tools=[work]))
        world.spy.before = before
        await ref.send("go")
        await trio.sleep(1)
        if ending == "is aborted":
            await ref.abort("enough")
        await ref.wait_idle()
        assert there == [{ids[0]: ["one", "two"]}]
        erased = [one for one in world.spy.sets if has(one, Erase, lambda erase: erase.prefix == ("a", ids[0]))]
        assert len(erased) == 1
        assert has(erased[0], Erase, lambda erase: erase.prefix == (ids[0],)), "with the clearing of its call"
        assert await scopes(sup.store, *ids) == {}


async def test_hok_4_a_call_without_values_costs_no_erasure(world: World, autojump_clock: MockClock) -> None:
    """What was not used is not erased."""

    @tool
    async def work(ctx: Context) -> str:
        """Work."""
        await ctx.kv.agent.set("kept", ctx.call_id)
        return "worked"

    async with world.open(plays(call("work"))) as sup:
        ref = await sup.start(agent(tools=[work]), "go")
        await ref.wait_idle()
        assert not [one for one in world.spy.sets if has(one, Erase, lambda e: e.prefix[1:] == (f"{ref.path}:t1.1.0",))]


async def test_hok_4_a_call_that_runs_again_finds_its_store_and_it_is_erased_then(
    world: World, autojump_clock: MockClock
) -> None:
    """TOL-7: keyed by the call, it outlives the process; the next owner erases what this one wrote."""
    found: list[object] = []

    @tool(effect="idempotent")
    async def work(ctx: Context) -> str:
        """Work."""
        found.append(await ctx.kv.call.get("page", int))
        if len(found) == 1:
            await ctx.kv.call.set("page", 7)
            await trio.sleep(100)
        return "worked"

    spec = agent(tools=[work])
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the raise is the crash
        async with world.open(plays(call("work")), hard=0.1) as sup:
            await sup.start(spec, "go")
            await trio.sleep(1)
            raise ZeroDivisionError
    async with world.open(plays(call("work")), agents=[spec]) as sup:
        assert await scopes(sup.store, "a:t1.1.0") == {"a:t1.1.0": ["page"]}
        (ref,) = await sup.resume()
        await ref.wait_idle()
        assert found == [None, 7]
        assert await scopes(sup.store, "a:t1.1.0") == {}


async def test_hok_4_a_call_that_is_over_writes_no_more(world: World, autojump_clock: MockClock) -> None:
    """Left behind by an abort, its code may go on: what it writes to its own store is refused, and nothing stays."""
    late: list[str] = []
    contexts: list[Context] = []

    @tool
    async def work(ctx: Context) -> str:
        """Work on, whatever happens."""
        contexts.append(ctx)
        with trio.CancelScope(shield=True):
            await trio.sleep(3)
            for kv in (ctx.kv.call, ctx.kv.run):
                with pytest.raises(UsageError, match="over"):
                    await kv.set("late", 1)
                late.append("refused")
        return "worked"

    async with world.open(plays(call("work"))) as sup:
        ref = await sup.start(agent(tools=[work]), "go")
        await trio.sleep(1)
        await ref.abort("enough")
        await trio.sleep(5)
        assert late == ["refused", "refused"]
        with pytest.raises(UsageError, match="over"):
            await contexts[0].kv.call.delete("late")
        assert await scopes(sup.store, contexts[0].call_id, "a:r1") == {}


async def test_tol_3_a_store_calls_own_store_is_never_written(world: World, autojump_clock: MockClock) -> None:
    """It would be erased by the commit it landed in; the call sees it while it runs."""

    @tool(effect="store")
    async def work(ctx: Context) -> str:
        """Work."""
        await ctx.kv.call.set("n", 1)
        await ctx.kv.agent.set("n", await ctx.kv.call.get("n", int))
        return "worked"

    async with world.open(plays(call("work"))) as sup:
        ref = await sup.start(agent(tools=[work]), "go")
        await ref.wait_idle()
        assert await scopes(sup.store, "agent", "a:t1.1.0") == {"agent": ["n"]}


async def test_tol_7_a_tool_reads_the_conversation_before_its_call(world: World, autojump_clock: MockClock) -> None:
    """It ends in the response that asks for it; what is committed later changes nothing of what was read."""
    seen: list[list[str]] = []

    @tool
    async def read(ctx: Context, wait: int = 0) -> str:
        """Read."""
        window = ctx.conversation
        await trio.sleep(wait)
        seen.append(texts(list(window)))
        return "read"

    async with world.open({"a": [[call("read", wait=5), call("read")], "done", call("read"), "so"]}) as sup:
        ref = await sup.start(agent(tools=[read]), "go")
        await ref.wait_idle()
        await ref.ask("again")
        assert seen[:2] == [["<go", "> read() read()"]] * 2
        assert seen[2] == ["<go", "> read() read()", "=ok:read", "=ok:read", ">done", "<again", "> read()"]
