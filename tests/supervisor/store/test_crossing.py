"""REE-5: a ring of waits over several processes is seen in what they publish, and nothing else is."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any

import attrs
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from actors.ids import TreeId
from supervisor.store.crossing import Crossing, Published, hopeless
from supervisor.store.memory import open_memory_store
from supervisor.store.sqlite import open_sqlite_store

if TYPE_CHECKING:
    from pathlib import Path

AGENTS = ("a", "a/x", "b", "c")


def wait(number: int, waiter: str, *targets: str, since: float = 0.0, at: float = 9.0, **more: Any) -> Published:
    """A wait as it is published; each process has one."""
    return Published(f"h{number}", since, at, Crossing(number, waiter, waiter, targets, **more))


def test_ree_5_a_ring_is_found_with_its_newest_wait_first() -> None:
    """Whoever closed it is told, and the way round is what is shown."""
    ring = (wait(1, "a", "b", since=1), wait(2, "b", "c", since=3), wait(3, "c", "a", since=2))
    for order in permutations(ring):
        assert [one.wait.waiter for one in hopeless(order)] == ["b", "c", "a"]
    assert hopeless(ring[:2]) == ()


def test_ree_5_a_wait_that_may_have_ended_closes_no_ring() -> None:
    """One that was seen last before the newest began may be over: its process was stopped, or is about to say so."""
    stale = (wait(1, "a", "b", since=1, at=2), wait(2, "b", "a", since=3))
    assert hopeless(stale) == ()
    assert hopeless((attrs.evolve(stale[0], at=3), stale[1]))


def test_ree_5_any_needs_all_ways_out_to_be_stuck_and_an_exit_all_below() -> None:
    """A wait for any of several goes on by one; a wait for a close is held up by whoever waits below."""
    any_of = wait(1, "a", "b", "c", any=True)
    assert hopeless((any_of, wait(2, "b", "a"))) == ()
    assert len(hopeless((any_of, wait(2, "b", "a"), wait(3, "c", "a")))) >= 2
    assert hopeless((wait(1, "b", "a"), wait(2, "a/x", "b"))) == ()
    assert hopeless((wait(1, "b", "a", exits=True), wait(2, "a/x", "b")))


waits = st.builds(
    lambda number, waiter, targets, any_, exits: wait(number, waiter, *targets, any=any_, exits=exits),
    st.integers(1, 99),
    st.sampled_from(AGENTS),
    st.lists(st.sampled_from(AGENTS), min_size=1, max_size=2, unique=True),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(waits, max_size=7, unique_by=lambda one: one.wait.id))
def test_ree_5_what_is_found_is_what_can_never_end(published: list[Published]) -> None:
    """Against a play of it: in any order agents whose waits are over go on, and end what waits for them."""
    open_waits = {one.wait.id: one.wait for one in published}

    def blocked(agent: str) -> bool:
        return any(one.waiter == agent for one in open_waits.values())

    def over(target: str, one: Crossing) -> bool:
        held = {other.waiter for other in open_waits.values()}
        return target not in held and not (one.exits and any(agent.startswith(f"{target}/") for agent in held))

    moved = True
    while moved:
        moved = False
        for number, one in tuple(open_waits.items()):
            ends = [over(target, one) for target in one.targets]
            if any(ends) if one.any else all(ends):
                del open_waits[number]
                moved = True
    assert bool(hopeless(published)) == bool(open_waits)
    assert all(blocked(one.wait.waiter) for one in hopeless(published))


async def test_ree_5_stores_keep_what_is_published(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """What a process publishes replaces what it had; `since` stays; a dead holder's waits are nobody's any more."""
    async with open_sqlite_store(tmp_path / "agents.db", owner="tests", inline=True, lease_s=10) as sqlite:
        for store in (sqlite, open_memory_store(lease_s=10)):
            one, two = store.new_holder(), store.new_holder()
            for holder, tree in ((one, "a"), (two, "b")):
                await store.own(TreeId(tree), holder)  # a lease is a lease of trees
            first, second = Crossing(1, "A", "a", ("b",)), Crossing(2, "B", "b", ("a",), any=True, exits=True)
            (found,) = await store.cross(one, (first,))
            assert (found.holder, found.wait, found.since) == (one.id, first, found.at)
            await trio.sleep(5)
            assert {published.wait for published in await store.cross(two, (second,))} == {first, second}
            again = {published.holder: published for published in await store.cross(one, (first,))}
            assert again[one.id].at - again[one.id].since == 5
            await trio.sleep(6)
            await store.renew(two)
            assert [published.holder for published in await store.cross(two, (second,))] == [two.id]
            await store.release(two)
            assert [published.holder for published in await store.cross(one, ())] == []
