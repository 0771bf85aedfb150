"""The store that fails on purpose: which commits fail, and what is written then."""

from __future__ import annotations

import pytest

from actors.changes import Bump, ChangeSet
from actors.errors import Conflict, Fenced, StoreError, Unavailable, UsageError
from actors.ids import TreeId
from supervisor.store.faults import Fault, FaultyStore
from supervisor.store.memory import open_memory_store

COUNT = ChangeSet(TreeId("lead"), None, (Bump("n"),))


async def commits(store: FaultyStore, times: int) -> list[object]:
    """What so many commits come to: the counter, or `failed`."""
    found: list[object] = []
    for _ in range(times):
        try:
            found.append((await store.commit(COUNT))[0])
        except Unavailable:
            found.append("failed")
    return found


@pytest.mark.parametrize(
    ("when", "forever", "expected"),
    [
        (Fault.BEFORE, False, [1, "failed", 2, 3]),
        (Fault.AFTER, False, [1, "failed", 3, 4]),
        (Fault.BEFORE, True, [1, "failed", "failed", "failed"]),
        (Fault.AFTER, True, [1, "failed", "failed", "failed"]),
    ],
)
async def test_the_second_commit_fails(when: Fault, *, forever: bool, expected: list[object]) -> None:
    """Once or for ever; before it is written, or after, and then what it wrote stands."""
    memory = open_memory_store()
    store = FaultyStore(memory, at=2, when=when, forever=forever)
    assert await commits(store, 4) == expected
    assert (store.commits, store.faults) == (4, expected.count("failed"))
    written = 4 if when is Fault.AFTER else 4 - expected.count("failed")
    assert memory.commit_nowait(COUNT) == (written + 1,)


async def test_every_commit_can_be_the_one() -> None:
    """Counting up `at` until no fault is hit goes through every commit of a run."""
    at, hit = 0, []
    while True:
        at += 1
        store = FaultyStore(open_memory_store(), at=at)
        found = await commits(store, 3)
        if not store.faults:
            break
        hit.append(found.index("failed"))
    assert hit == [0, 1, 2]


async def test_it_heals() -> None:
    """After healing everything passes."""
    store = FaultyStore(open_memory_store(), at=1, forever=True)
    assert await commits(store, 2) == ["failed", "failed"]
    store.heal()
    assert await commits(store, 2) == [1, 2]


async def test_the_error_is_the_testers_choice() -> None:
    """Any store error can be raised, a new one each time; the store's own errors come through."""
    store = FaultyStore(open_memory_store(), at=1, forever=True, error=lambda: Fenced("taken"))
    errors: list[StoreError] = []
    for _ in range(2):
        with pytest.raises(Fenced) as caught:
            await store.commit(COUNT)
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    store.heal()
    with pytest.raises(Conflict):
        await store.commit(ChangeSet(TreeId("lead"), None, (Bump("n", bound=0),)))


def test_commits_are_counted_from_one() -> None:
    """A negative number is a mistake."""
    with pytest.raises(UsageError, match="counts commits from 1"):
        FaultyStore(open_memory_store(), at=-1)
