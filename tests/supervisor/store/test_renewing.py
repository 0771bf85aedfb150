"""SUP-6: a lease is kept at one price however many trees it is of, and what another took is found all the same."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from actors.errors import Fenced, OwnedElsewhere
from actors.ids import TreeId
from supervisor.ownership import Ownership
from supervisor.patience import Patience
from supervisor.store.faults import PassingStore
from supervisor.store.memory import open_memory_store
from supervisor.store.sqlite import open_sqlite_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from supervisor.store.base import Store
    from supervisor.store.leases import Holder

A, B, C = TreeId("a"), TreeId("b"), TreeId("c")
LEASE_S = 10


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store whose leases end."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            yield open_memory_store(lease_s=LEASE_S)
        else:
            opened = open_sqlite_store(tmp_path / "agents.db", owner="tests", inline=True, lease_s=LEASE_S)
            yield await stack.enter_async_context(opened)


async def test_sup_6_a_renewal_looks_at_its_trees_only_where_one_was_taken(
    store: Store, autojump_clock: trio.testing.MockClock
) -> None:
    """None while all is as it was, however late the renewal; behind a loss those that are left, once."""
    mine, other = store.new_holder(), store.new_holder()
    epochs = {tree: await store.own(tree, mine) for tree in (A, B)}
    assert await store.renew(mine) is None
    await trio.sleep(2 * LEASE_S)
    assert await store.renew(mine) is None
    await trio.sleep(2 * LEASE_S)
    await store.own(A, other)
    assert await store.renew(mine) == {B: epochs[B]}
    assert await store.renew(mine) is None
    assert await store.renew(other) is None


async def test_sup_6_a_lease_that_a_tree_was_taken_from_is_over_until_its_holder_has_looked(
    store: Store, autojump_clock: trio.testing.MockClock
) -> None:
    """To take another tree meanwhile hides no loss; the lease lasts again behind the look."""
    mine, other = store.new_holder(), store.new_holder()
    await store.own(A, mine)
    await trio.sleep(2 * LEASE_S)
    await store.own(A, other)
    assert await store.own(B, mine) == 1
    assert await store.lease(B) is None
    assert await store.renew(mine) == {B: 1}
    lease = await store.lease(B)
    assert lease is not None
    assert lease.holder.id == mine.id


async def test_sup_6_a_lease_that_ran_out_begins_again_as_its_holder_takes_the_tree_again(
    store: Store, autojump_clock: trio.testing.MockClock
) -> None:
    """What a process took, and could not read, it kept no lease for: it has one again before it runs anything.

    Found by `python -m tests.life --owners 3` at seed 1,004,656.
    """
    mine, other = store.new_holder(), store.new_holder()
    assert await store.own(A, mine) == 1
    await trio.sleep(2 * LEASE_S)
    assert await store.own(A, mine) == 1
    with pytest.raises(OwnedElsewhere):
        await store.own(A, other)


class Meanwhile(PassingStore):
    """A store in which something happens around a renewal."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.before: Callable[[], Awaitable[object]] | None = None
        self.behind: Callable[[], Awaitable[object]] | None = None

    async def renew(self, holder: Holder) -> dict[TreeId, int] | None:
        """Keep a lease."""
        if self.before is not None:
            await self.before()
        held = await super().renew(holder)
        if self.behind is not None:
            await self.behind()
        return held


async def _opened(_tree: TreeId, __: int) -> bool:
    return False


@asynccontextmanager
async def lost_a(store: Store) -> AsyncIterator[tuple[Meanwhile, Ownership, Holder]]:
    """An owner of `a`, which another has just taken."""
    around = Meanwhile(store)
    mine = Ownership(around, _opened, Patience(1, trio.current_time, lambda _: None))
    await mine.own(A)
    await trio.sleep(2 * LEASE_S)
    other = store.new_holder()
    await store.own(A, other)
    yield around, mine, other
    assert await mine.renew() == (), "a loss is told until it is known, and not again"


async def test_sup_6_a_tree_that_is_taken_while_the_lease_is_kept_is_not_lost(
    store: Store, autojump_clock: trio.testing.MockClock
) -> None:
    """What the renewal could not know yet stays; what is lost is told."""
    async with lost_a(store) as (around, mine, _):
        around.behind = lambda: mine.own(B)
        assert await mine.renew() == (A,)
        around.behind = None
        assert mine.lost(A)
        assert not mine.lost(A)
        assert mine.epoch(B) == 1


async def test_sup_6_a_tree_that_is_taken_and_lost_while_the_lease_is_kept_is_lost(
    store: Store, autojump_clock: trio.testing.MockClock
) -> None:
    """A tree of a lease that is over changes hands again at once: the renewal behind that tells both."""
    async with lost_a(store) as (around, mine, other):

        async def won_and_lost() -> None:
            await mine.own(C)
            await store.own(C, other)

        around.before = won_and_lost
        assert set(await mine.renew()) == {A, C}
        around.before = None
        assert mine.lost(A)
        assert mine.lost(C)
        with pytest.raises(Fenced):
            mine.epoch(C)
