"""`callboard show STORE [PATH]`: reads a store without owning it, and prints what it holds on one screen."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import trio
from rich.console import Console
from rich.text import Text

from actors.errors import Unavailable, UnknownPath
from actors.ids import AgentId, tree_of, turn_id

from .cli_output import to_output
from .numbered import numbered
from .screen_layout import ASCII, UNICODE
from .show_lines import State, agent_lines, state_of, tree_lines
from .store.leases import described
from .stores import open_reader

if TYPE_CHECKING:
    from actors.changes import AgentRow
    from actors.messages import Outcome

    from .store.base import Reader

PIPED_WIDTH: Final = 120
PIPED_LINES: Final = 120
EVERYTHING: Final = 1_000_000
ROOTS_MAX: Final = 1_000


def show(store: str, path: str | None, *, whole: bool) -> int:
    """Print a store's trees, or one agent.

    Args:
        store: the file, or an address.
        path: of an agent, or None for all.
        whole: everything, not what fits one screen.

    Returns:
        The exit code 0; what is wrong is raised.

    Raises:
        UnknownPath: no such agent. StoreError: no such file, it is no store, or cannot be read.
    """
    console = Console(soft_wrap=True, highlight=False)
    screen = sys.stdout.isatty()
    width = console.width if screen else PIPED_WIDTH
    limit = None if whole else console.height - 1 if screen else PIPED_LINES
    glyphs = ASCII if console.options.ascii_only else UNICODE
    if path is None:
        rows, owner = trio.run(_tree, store)
        lines = tree_lines(rows, width, limit or EVERYTHING, owner=owner, glyphs=glyphs)
        if not rows:
            lines = [Text("the store holds no agents yet")]
    else:
        lines = trio.run(_agent, store, path, width, limit)
    with console.capture() as captured:
        for line in lines:
            console.print(line)
    with to_output():
        sys.stdout.write(captured.get())
    return 0


async def _tree(store: str) -> tuple[list[tuple[AgentRow, State]], str]:
    """The rows of all trees, and by which processes they are run."""
    found: list[tuple[AgentRow, State]] = []
    owners: dict[str, None] = {}
    async with open_reader(store) as reader:
        for root in await reader.roots(limit=ROOTS_MAX):
            tree = tree_of(root.agent)
            lease = await reader.lease(tree)
            if lease is not None:
                owners[described(lease.holder)] = None
            found += [
                (row, state_of(row, await _last(reader, row), owned=lease is not None))
                for row in await reader.tree_rows(tree)
            ]
    return found, ", ".join(owners)


async def _last(reader: Reader, row: AgentRow) -> Outcome | None:
    ended = row.turns if row.open is None else row.turns - 1
    found = await reader.outcome(turn_id(row.agent, ended)) if ended > 0 else None
    return None if found is None else found.outcome


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
                stored.row, await _last(reader, stored.row), owned=await reader.lease(tree_of(agent)) is not None
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
