"""A SQLite store whose files are deleted, renamed or replaced while it is open: nothing more is said to be durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.changes import Bump, ChangeSet
from actors.errors import Unavailable
from actors.ids import TreeId
from supervisor.store import sqlite_turn
from supervisor.store.sqlite import open_sqlite_reader, open_sqlite_store

if TYPE_CHECKING:
    from pathlib import Path

TREE = TreeId("lead")
COUNT = ChangeSet(TREE, None, (Bump("n"),))


@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
@pytest.mark.parametrize("replaced", [False, True], ids=["gone", "replaced"])
async def test_acc_1_nothing_is_accepted_into_a_file_that_nobody_finds_again(
    tmp_path: Path, ending: str, *, replaced: bool
) -> None:
    """ACC-1: with a file of the store gone or replaced commits fail, naming it, and go on once it is put back."""
    file, aside = tmp_path / f"agents.db{ending}", tmp_path / "aside"
    async with open_sqlite_store(tmp_path / "agents.db", owner="tests", inline=True) as store:
        assert await store.commit(COUNT) == (1,)
        file.rename(aside)
        if replaced:
            file.write_bytes(aside.read_bytes())
        for _ in range(2):
            with pytest.raises(Unavailable, match="was replaced" if replaced else "was deleted or renamed") as caught:
                await store.commit(COUNT)
            assert str(file) in str(caught.value)
            assert caught.value.passing, "agents stand still for it, and go on by themselves"
        aside.replace(file)
        assert await store.commit(COUNT) == (2,), "what failed has left nothing"


async def test_a_log_that_was_deleted_is_written_back_by_an_orderly_end(tmp_path: Path) -> None:
    """What was durable before the log's name went is in the store when the process has closed it."""
    async with open_sqlite_store(tmp_path / "agents.db", owner="tests", inline=True) as store:
        await store.commit(COUNT)
        (tmp_path / "agents.db-wal").unlink()
        with pytest.raises(Unavailable, match="end this process in order"):
            await store.commit(COUNT)
    async with open_sqlite_store(tmp_path / "agents.db", owner="tests", inline=True) as store:
        assert await store.commit(COUNT) == (2,)
    async with open_sqlite_reader(tmp_path / "agents.db", inline=True) as reader:
        assert await reader.roots() == ()


async def test_a_process_that_stands_before_the_write_lock_is_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process that is about to write fails a commit as trouble that may pass."""
    monkeypatch.setattr(sqlite_turn, "WAIT_S", 0.0)
    async with open_sqlite_store(tmp_path / "agents.db", owner="tests", inline=True) as store:
        with sqlite_turn.Turnstile(tmp_path / "agents.db"):
            with pytest.raises(Unavailable, match="has been about to write") as caught:
                await store.commit(COUNT)
            assert caught.value.passing
        assert await store.commit(COUNT) == (1,)
