"""Two copies of one store in one process: what is in one has nothing to do with the other."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import trio

from actors import Agent, Context, Script, call, tool
from supervisor import Supervisor, open_supervisor

if TYPE_CHECKING:
    from pathlib import Path


@tool
async def ask(ctx: Context, whom: str) -> str:
    """Ask another."""
    await trio.sleep(1)
    return (await ctx.ask(whom, "well?")).text


async def test_ree_1_agents_of_two_copies_of_a_store_form_no_ring(
    tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    """In one copy a asks b, in the other b asks a, at the same time: neither wait is refused."""
    a, b = Agent("a", tools=[ask]), Agent("b", tools=[ask])
    steps = [call("ask", whom="b"), lambda request: request.window[-1].content[0].text]
    first = Script({"a": ["ready", *steps], "b": ["ready", "b of the first"]})
    async with open_supervisor(model=first, store=tmp_path / "1.db", agents=[a, b], inline=True) as sup:
        await sup.run(a, "be ready")
        await sup.run(b, "be ready")
    shutil.copy(tmp_path / "1.db", tmp_path / "2.db")
    steps = [call("ask", whom="a"), lambda request: request.window[-1].content[0].text]
    second = Script({"b": ["ready", *steps], "a": ["ready", "a of the second"]})
    told: list[str] = []

    async def go(sup: Supervisor, path: str) -> None:
        ref = await sup.find(path)
        told.append((await ref.ask("go")).text)

    async with (
        open_supervisor(model=first, store=tmp_path / "1.db", agents=[a, b], inline=True) as one,
        open_supervisor(model=second, store=tmp_path / "2.db", agents=[a, b], inline=True) as two,
        trio.open_nursery() as nursery,
    ):
        assert one.store.id != two.store.id
        nursery.start_soon(go, one, "a")
        nursery.start_soon(go, two, "b")
    assert sorted(told) == ["a of the second", "b of the first"]
