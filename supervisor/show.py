"""`callboard show STORE [PATH]`: reads a store without owning it, and prints what it holds on one screen."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import trio
from rich.console import Console
from rich.text import Text

from actors.errors import Unavailable, UnknownPath
from actors.ids import AgentId, tree_of

from . import cli_exit as codes
from .cli_output import to_output
from .numbered import numbered
from .screen_layout import ASCII, UNICODE
from .screen_words import plural
from .show_lines import agent_lines, owed_lines, state_of, tree_lines
from .show_tree import last_of, queued_at, see, see_json
from .stores import open_reader

if TYPE_CHECKING:
    from .store.base import Reader

PIPED_WIDTH: Final = 80
PIPED_LINES: Final = 120
EVERYTHING: Final = 1_000_000


def show(store: str, path: str | None, *, whole: bool) -> int:
    """Print a store's trees, or one agent.

    Args:
        store: the file, or an address.
        path: of an agent, or None for all.
        whole: everything, not what fits one screen.

    Returns:
        The exit code: 0, or that of a damaged store, where agents are missing from the trees.

    Raises:
        UnknownPath: no such agent. StoreError: no such file, it is no store, or cannot be read.
    """
    console = Console(soft_wrap=True, highlight=False)
    screen = sys.stdout.isatty()
    width = console.width if screen else _piped_width()
    limit = None if whole else console.height - 1 if screen else PIPED_LINES
    lost = 0
    if path is None:
        seen = trio.run(see, store)
        lost = seen.lost
        glyphs = ASCII if console.options.ascii_only else UNICODE
        owed = owed_lines(seen.owed, store, width)
        room = max(1, (limit or EVERYTHING) - len(owed))
        lines = [*tree_lines(seen.rows, width, room, owner=", ".join(seen.owners), glyphs=glyphs), *owed]
        if not seen.rows:
            lines = [Text("the store holds no agents yet")]
    else:
        lines = trio.run(_agent, store, path, width, limit)
    with console.capture() as captured:
        for line in lines:
            console.print(line)
    with to_output():
        sys.stdout.write(captured.get())
    if lost:
        what = f"{plural(lost, 'agent')} of {store} cannot be found by path"
        sys.stderr.write(f"callboard: {what}: it is damaged\n  callboard store check {store} says where\n")
    return codes.ENVIRONMENT if lost else codes.DONE


def show_json(store: str, path: str | None) -> int:
    """Print an object for each agent of a store, one a line. Args, Returns and Raises: as `show`."""
    lines = trio.run(see_json, store, None if path is None else AgentId(path.strip("/")))
    with to_output():
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    return codes.DONE


def _piped_width() -> int:
    told = os.environ.get("COLUMNS", "")
    return int(told) if told.isdecimal() and int(told) > 0 else PIPED_WIDTH


async def _agent(store: str, path: str, width: int, limit: int | None) -> list[Text]:
    async with open_reader(store) as reader:
        agent = AgentId(path.strip("/"))
        stored = await reader.load_agent(agent)
        if stored is None:
            raise UnknownPath(await _no_agent(reader, agent, store))
        first = 0 if limit is None else max(0, stored.length - limit)
        records = [found async for found in numbered(reader, agent, first, stored.length)]
        return agent_lines(
            stored,
            records,
            state=state_of(
                stored.row,
                await last_of(reader, stored.row),
                owned=await reader.lease(tree_of(agent)) is not None,
                waiting=queued_at(stored),
            ),
            kv=await reader.kv(agent, "agent"),
            children=len(await reader.children(agent)),
            width=width,
            limit=limit,
        )


async def unknown_agent(reader: Reader, agent: AgentId, store: str) -> None:
    """Raise `UnknownPath`, with paths that are there, where there is no such agent."""
    if await reader.load_agent(agent) is None:
        raise UnknownPath(await _no_agent(reader, agent, store))


async def _no_agent(reader: Reader, agent: AgentId, store: str) -> str:
    """Words for a path that is not there, with paths that are."""
    try:
        near = [row.agent for row in await reader.tree_rows(tree_of(agent))]
        near = near or [row.agent for row in await reader.roots(limit=8)]
    except Unavailable:
        near = []
    known = f"; it has {', '.join(near[:8])}{', …' if len(near) > 8 else ''}" if near else "; it has no agents"
    return f"no agent {agent} in {store}{known}"
