"""Permits and rates, driven by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.ids import AgentId
from supervisor.pools import FAIR_AFTER, Bucket, Pool, Rate, Waiting


class Queue:
    """A pool and those who wait at it, by number."""

    def __init__(self, size: int, rate: Rate | None = None) -> None:
        self.pool = Pool("m", size, rate, 0.0)
        self.waiting: list[Waiting] = []
        self.woken: list[int] = []

    def join(self, *, urgent: bool = False, tokens: int = 0, agent: str = "") -> Waiting:
        number = len(self.waiting)
        name = AgentId(agent or f"a{number}")
        one = Waiting(name, tokens, lambda: self.woken.append(number), urgent=urgent)
        self.waiting.append(one)
        self.pool.join(one)
        return one

    def granted(self) -> list[int]:
        return [number for number, one in enumerate(self.waiting) if one.granted]


ACTION = st.tuples(st.sampled_from(["take", "join", "urgent", "quit", "back", "promote"]), st.integers(0, 30))


@given(st.integers(1, 3), st.lists(ACTION, max_size=60))
def test_pools_1_2_3_permits_are_conserved_and_the_queue_is_kept(size: int, actions: list[tuple[str, int]]) -> None:
    """Permits never exceed the size, none lies idle while one waits, nobody passes the queue, equals go in order."""
    queue = Queue(size)
    direct = 0
    held: list[Waiting] = []
    lines: dict[bool, list[Waiting]] = {True: [], False: []}
    for action, pick in actions:
        line = [one for one in queue.waiting if not one.granted and (one in lines[True] or one in lines[False])]
        match action:
            case "take":
                taken = queue.pool.take(0, 0.0)
                assert taken == (not line and direct + len(held) < size)
                direct += taken
            case "join" | "urgent":
                one = queue.join(urgent=action == "urgent")
                lines[one.urgent].append(one)
                queue.pool.let_in(0.0)
            case "quit" if line:
                one = line[pick % len(line)]
                queue.pool.quit(one, 0.0)
                lines[one.urgent].remove(one)
            case "back" if direct or held:
                if held:
                    held.pop(pick % len(held))
                else:
                    direct -= 1
                queue.pool.give_back(0.0)
            case "promote" if line:
                one = line[pick % len(line)]
                was = one.urgent
                queue.pool.promote(one.agent)
                lines[was].remove(one)
                lines[True].insert(len(lines[True]) if not was else sorted_place(lines[True], one, queue), one)
            case _:
                pass
        for urgent in (True, False):
            while lines[urgent] and lines[urgent][0].granted:
                held.append(lines[urgent].pop(0))
            assert not any(one.granted for one in lines[urgent]), "POOLS-3: one went before an equal that was first"
        statistics = queue.pool.statistics()
        assert statistics.held == direct + len(held) <= size
        waits = len(lines[True]) + len(lines[False])
        assert statistics.waiting == waits
        assert not (waits and statistics.held < size), "POOLS-2: a permit lies idle"


def sorted_place(line: list[Waiting], one: Waiting, queue: Queue) -> int:
    """Where one that was urgent already stood."""
    order = list(queue.pool._urgent)
    return len([other for other in line if order.index(other) < order.index(one)])


def test_gat_1_priority_is_not_starvation() -> None:
    """After so many urgent ones in a row one that is not goes, though urgent ones still wait."""
    queue = Queue(1)
    assert queue.pool.take(0, 0.0)
    queue.join()
    for _ in range(FAIR_AFTER + 3):
        queue.join(urgent=True)
    for _ in range(FAIR_AFTER):
        queue.pool.give_back(0.0)
    assert 0 not in queue.granted()
    queue.pool.give_back(0.0)
    assert 0 in queue.granted()
    assert queue.pool.statistics().overtaken == FAIR_AFTER


def test_gat_1_a_permit_that_comes_as_its_waiter_leaves_goes_on() -> None:
    """Whoever quits with a permit in hand gives it to the next."""
    queue = Queue(1)
    assert queue.pool.take(0, 0.0)
    one, two = queue.join(), queue.join()
    queue.pool.give_back(0.0)
    assert one.granted
    queue.pool.quit(one, 0.0)
    assert two.granted
    queue.pool.give_back(0.0)
    with pytest.raises(AssertionError, match="POOLS-1"):
        queue.pool.give_back(0.0)
    assert repr(queue.pool) == "<Pool m 0/1 held, 0 agents waiting>"


def test_gat_1_all_requests_of_a_promoted_agent_go_first() -> None:
    """Promotion moves every request of that agent and nobody else's, and twice is once."""
    queue = Queue(1)
    assert queue.pool.take(0, 0.0)
    for agent in ("x", "y", "z", "y"):
        queue.join(agent=agent)
    queue.pool.promote(AgentId("y"))
    queue.pool.promote(AgentId("y"))
    order = []
    for _ in range(4):
        queue.pool.give_back(0.0)
        order.append(next(n for n in queue.granted() if n not in order))
    assert order == [1, 3, 0, 2]


def test_gat_2_the_next_in_line_watches_the_time_for_all() -> None:
    """Slowed, nobody is let in; only the first has a time to look again, and whoever becomes first is woken to it."""
    queue = Queue(2)
    queue.pool.slow(5.0)
    queue.pool.slow(3.0)
    assert not queue.pool.take(0, 1.0)
    one, two = queue.join(), queue.join()
    assert queue.pool.look_again_at(one, 1.0) == 5.0
    assert queue.pool.look_again_at(two, 1.0) == float("inf")
    queue.pool.quit(one, 1.0)
    assert queue.woken == [1]
    assert queue.pool.look_again_at(two, 1.0) == 5.0
    assert not queue.pool.take(0, 5.0), "POOLS-2: past the one that waits"
    queue.pool.let_in(5.0)
    assert two.granted
    assert queue.pool.look_again_at(two, 5.0) == float("inf")


@given(
    st.integers(1, 600),
    st.lists(st.tuples(st.integers(0, 400), st.floats(0, 30)), min_size=1, max_size=40),
)
def test_gat_2_a_bucket_never_gives_more_than_its_rate(per_minute: int, asks: list[tuple[int, float]]) -> None:
    """Over any stretch: at most a full bucket and what refilled, and one request that is larger than it."""
    bucket, now, taken = Bucket(per_minute, 0.0), 0.0, 0
    largest = max(amount for amount, _ in asks)
    for amount, pause in asks:
        now = max(now + pause, bucket.ready_at(amount, now + pause))
        assert bucket.ready_at(amount, now) == pytest.approx(now)
        bucket.take(amount, now)
        taken += amount
        assert taken <= per_minute + now * per_minute / 60 + max(largest - per_minute, 0) + 1e-3


def test_gat_2_tokens_are_estimated_before_and_corrected_after() -> None:
    """What a call took less than its estimate is there for the next; what it took more is owed."""
    queue = Queue(9, Rate(tokens_per_minute=600))
    assert queue.pool.take(500, 0.0)
    assert not queue.pool.take(200, 0.0)
    queue.pool.correct(500, 400, 0.0)
    assert queue.pool.take(200, 0.0)
    queue.pool.correct(200, 260, 0.0)
    assert queue.pool.ready_at(40, 0.0) == pytest.approx(10.0)
    assert queue.pool.ready_at(10**9, 0.0) == pytest.approx(66.0)
