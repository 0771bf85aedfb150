"""A conversation's records with their places, which stay when the oldest of its archive are removed (CMP-4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .store.base import PAGE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from actors.ids import AgentId
    from actors.transcript import Record

    from .store.base import Reader


async def numbered(reader: Reader, agent: AgentId, start: int, stop: int) -> AsyncIterator[tuple[int, Record]]:
    """Each record that is there from `start` up to, not with, `stop`, with its index.

    It is read a page at a time: what is in memory does not grow with the conversation, and what was removed costs one
    read for a thousand.
    """
    for at in range(start, stop, PAGE):
        end = min(at + PAGE, stop)
        page = await reader.read_records(agent, at, end)
        if len(page) == end - at:
            for index, record in enumerate(page, at):
                yield index, record
        elif page:  # some were removed: which are there is asked one by one
            for index in range(at, end):
                for record in await reader.read_records(agent, index, index + 1):
                    yield index, record
