"""Every store passes the conformance suite."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from supervisor.store.faults import FaultyStore
from supervisor.store.memory import open_memory_store
from supervisor.store.sqlite import open_sqlite_store
from supervisor.testing.check_store import CHECKS, check_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from supervisor.store.base import Store

KINDS = ("memory", "faultless", "inline", "threads")


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Store]:
    """A new store of a kind."""
    if kind in {"memory", "faultless"}:
        memory = open_memory_store()
        yield memory if kind == "memory" else FaultyStore(memory, at=0)
        return
    async with open_sqlite_store(folder / "agents.db", owner="tests", inline=kind == "inline") as store:
        yield store


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", KINDS)
async def test_store_conforms(kind: str, check: Callable[[Store], Awaitable[None]], tmp_path: Path) -> None:
    """A store does what the check says."""
    async with opened(kind, tmp_path) as store:
        await check(store)


async def test_check_store_runs_every_check() -> None:
    """The whole suite passes for a store that passes its parts, and opens a new store for each."""
    opens = 0

    @asynccontextmanager
    async def open_store() -> AsyncIterator[Store]:
        nonlocal opens
        opens += 1
        async with open_memory_store() as store:
            yield store

    await check_store(open_store)
    assert opens == len(CHECKS)


def test_every_check_is_listed() -> None:
    """No function of the suite is forgotten in its list."""
    module = inspect.getmodule(check_store)
    named = {value for name, value in vars(module).items() if name.startswith("check_") and name != "check_store"}
    assert named == set(CHECKS)
