"""REE-5 through two processes: each has an event loop and a supervisor of its own, over one store, in real time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from actors import Agent, Script, call, tool
from actors.errors import SpecMissing, UnknownPath, WaitCycle
from supervisor import open_supervisor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from supervisor import Supervisor


def asker(name: str, other: str, sup: list[Supervisor], told: list[str]) -> Agent:
    """An agent that asks another tree's, once, in a tool."""

    @tool
    async def consult() -> str:
        """Ask the other."""
        await until(partial(known, sup[0], other))
        try:
            return (await (await sup[0].find(other)).ask("what do you say?")).text
        except WaitCycle as cycle:
            told.append(f"{name}: {cycle}")
            return "refused"

    return Agent(name, "Consult.", tools=[consult])


async def until(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for what another process does: there is no event for that here."""
    while True:
        found = holds()
        if found if isinstance(found, bool) else await found:
            return
        await trio.sleep(0.01)


async def known(sup: Supervisor, path: str) -> bool:
    """Whether the other process has begun."""
    try:
        await sup.find(path)
    except (UnknownPath, SpecMissing):
        return False
    return True


async def process(path: Path, name: str, other: str, told: list[str], texts: dict[str, str]) -> None:
    """One process: its agent consults the other's, and then answers what it was asked."""
    sup: list[Supervisor] = []
    spec = asker(name, other, sup, told)
    script = Script({name: [call("consult"), f"{name} is done", f"{name} answers"]})
    async with open_supervisor(model=script, store=path, agents=[spec]) as opened:
        sup.append(opened)
        texts[name] = (await opened.run(spec, "go", key=name)).text
        await until(lambda: len(texts) == 2)  # what the other asked is answered meanwhile


async def test_ree_5_a_ring_over_two_processes_is_refused(tmp_path: Path) -> None:
    """Two agents whose turns ask each other from two processes: one of them is refused, and both come to an end."""
    told: list[str] = []
    texts: dict[str, str] = {}
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for name, other in (("a", "b"), ("b", "a")):
                nursery.start_soon(
                    trio.to_thread.run_sync, trio.run, process, tmp_path / "agents.db", name, other, told, texts
                )
    assert texts == {"a": "a is done", "b": "b is done"}
    (refused,) = told
    assert "over several processes" in refused
    assert "a (turn 1, tool consult)" in refused
    assert "b (turn 1, tool consult)" in refused
