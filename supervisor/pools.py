"""Places at a model: permits, who is next, and the rate that a whole pool keeps.

Pure: it is told the time, and answers who may go now and when to ask again. Whoever holds a permit holds it for the
life of a stream, and never across a wait for another agent.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.ids import AgentId

FAIR_AFTER: Final = 8
"""So many urgent ones in a row go before one that is not: priority never becomes starvation."""
SLACK: Final = 1e-6
"""Of a bucket's level: what rounding may lack is not worth another wait."""
NEVER: Final = float("-inf")


@attrs.frozen(kw_only=True)
class Rate:
    """What a pool may send. None is no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class Bucket:
    """A rate as a level that refills evenly; it may go below zero by one request that is larger than it."""

    __slots__ = ("_at", "_capacity", "_level", "_per_second")

    def __init__(self, per_minute: int, now: float) -> None:
        self._capacity = float(per_minute)
        self._per_second = per_minute / 60
        self._level = self._capacity
        self._at = now

    def _refill(self, now: float) -> None:
        self._level = min(self._capacity, self._level + max(now - self._at, 0.0) * self._per_second)
        self._at = max(now, self._at)

    def ready_at(self, amount: int, now: float) -> float:
        """When so much may be taken."""
        self._refill(now)
        missing = min(float(amount), self._capacity) - self._level
        return now if missing <= SLACK else now + missing / self._per_second

    def take(self, amount: int, now: float) -> None:
        """Take it; what was estimated wrong is corrected by taking the difference, which may be negative."""
        self._refill(now)
        self._level = min(self._capacity, self._level - amount)


@attrs.frozen
class PoolStatistics:
    """Counts of a pool. `held`, `size`: permits. `granted`: so far, `overtaken`: of them the urgent ones."""

    model: str
    size: int
    held: int
    waiting: int
    granted: int
    overtaken: int


class Waiting:
    """One who waits for a permit. `wake` is called when it has one, or when it should look at the time anew."""

    __slots__ = ("agent", "granted", "tokens", "urgent", "wake")

    def __init__(self, agent: AgentId, tokens: int, wake: Callable[[], object], *, urgent: bool) -> None:
        self.agent = agent
        self.tokens = tokens
        self.wake = wake
        self.urgent = urgent
        self.granted = False


class Pool:
    """The permits of one model.

    POOLS-1 permits held and free add up to the size; none is held twice.
    POOLS-2 while somebody waits, nobody is let in past the queue.
    POOLS-3 among equals the first goes first; the urgent go before the others, but not for ever.
    """

    def __init__(self, model: str, size: int, rate: Rate | None, now: float) -> None:
        self._model = model
        self._size = size
        self._free = size
        self._urgent: OrderedDict[Waiting, None] = OrderedDict()
        self._others: OrderedDict[Waiting, None] = OrderedDict()
        self._of: dict[AgentId, list[Waiting]] = {}
        self._in_a_row = 0
        self._not_before = NEVER
        self.timed = rate is not None
        """Whether it matters what time it is told: a rate is kept, or a server asked for time."""
        self._requests = Bucket(rate.requests_per_minute, now) if rate and rate.requests_per_minute else None
        self._tokens = Bucket(rate.tokens_per_minute, now) if rate and rate.tokens_per_minute else None
        self._granted = self._overtaken = 0

    # -- taking and giving back ------------------------------------------------------------------------------------

    def take(self, tokens: int, now: float) -> bool:
        """Take a permit if one is free, nobody waits, and the rate allows it; False: nothing has changed."""
        if not self._free or self._urgent or self._others or (self.timed and self.ready_at(tokens, now) > now):
            return False
        self._grant(tokens, now)
        return True

    def give_back(self, now: float) -> None:
        """A stream has ended: let in who is next."""
        assert self._free < self._size, f"POOLS-1: {self!r}"
        self._free += 1
        self.let_in(now)

    def _grant(self, tokens: int, now: float) -> None:
        self._free -= 1
        self._granted += 1
        if self._requests is not None:
            self._requests.take(1, now)
        if self._tokens is not None:
            self._tokens.take(tokens, now)

    def correct(self, estimate: int, actual: int, now: float) -> None:
        """Count what a call really took against the rate."""
        if self._tokens is not None:
            self._tokens.take(actual - estimate, now)

    def slow(self, until: float) -> None:
        """Let nobody in before `until`: the server said that the pool asks too much (GAT-2)."""
        self._not_before = max(self._not_before, until)
        self.timed = True

    # -- waiting ---------------------------------------------------------------------------------------------------

    def join(self, waiting: Waiting) -> None:
        """Wait, last of one's kind."""
        (self._urgent if waiting.urgent else self._others)[waiting] = None
        self._of.setdefault(waiting.agent, []).append(waiting)

    def quit(self, waiting: Waiting, now: float) -> None:
        """Wait no more; a permit that came in the same moment is given back."""
        if waiting.granted:
            waiting.granted = False
            self.give_back(now)
            return
        self._remove(waiting)
        self.let_in(now)  # it may have been the one that watched the time for all

    def promote(self, agent: AgentId) -> None:
        """Somebody waits for this agent now: its requests go before those of others (GAT-1)."""
        for waiting in self._of.get(agent, ()):
            if not waiting.urgent:
                del self._others[waiting]
                waiting.urgent = True
                self._urgent[waiting] = None

    def _remove(self, waiting: Waiting) -> None:
        del (self._urgent if waiting.urgent else self._others)[waiting]
        of = self._of[waiting.agent]
        of.remove(waiting)
        if not of:
            del self._of[waiting.agent]

    def _next(self) -> Waiting | None:
        if self._urgent and not (self._others and self._in_a_row >= FAIR_AFTER):
            return next(iter(self._urgent))
        return next(iter(self._others), None)

    def let_in(self, now: float) -> None:
        """Give permits to those who are next, as far as permits and rate go."""
        while self._free and (waiting := self._next()) is not None:
            if self.ready_at(waiting.tokens, now) > now:
                waiting.wake()  # it is next, so it watches the time
                return
            self._remove(waiting)
            self._in_a_row = self._in_a_row + 1 if waiting.urgent and self._others else 0
            self._overtaken += waiting.urgent
            self._grant(waiting.tokens, now)
            waiting.granted = True
            waiting.wake()

    def ready_at(self, tokens: int, now: float) -> float:
        """When the rate allows a request of so many tokens."""
        at = max(now, self._not_before)
        if self._requests is not None:
            at = max(at, self._requests.ready_at(1, now))
        if self._tokens is not None:
            at = max(at, self._tokens.ready_at(tokens, now))
        return at

    def look_again_at(self, waiting: Waiting, now: float) -> float:
        """When one who waits should call `let_in` itself: infinity, unless it is next and only time lacks."""
        if self._free and self._next() is waiting:
            return self.ready_at(waiting.tokens, now)
        return float("inf")

    def statistics(self) -> PoolStatistics:
        """Counts."""
        held, waiting = self._size - self._free, len(self._urgent) + len(self._others)
        return PoolStatistics(self._model, self._size, held, waiting, self._granted, self._overtaken)

    def __repr__(self) -> str:
        return f"<Pool {self._model} {self._size - self._free}/{self._size} held, {len(self._of)} agents waiting>"
