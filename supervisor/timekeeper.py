"""The time that turns may take: one task for all of them looks at what is due (TRN-7, BUD-6).

A turn costs it an entry, put in and taken out. The clock of a turn is its agent's own, which stands while a person is
waited for (BUD-6): what is due by ours is looked at by that one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, final

import attrs
import trio

from actors.bounds import late, left_s
from actors.budget import TURN_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.actor import Actor
    from actors.budget import Limits
    from actors.ids import AgentId

    Due: TypeAlias = Callable[[], float | None]
    """Looks at what is due; the seconds until it is to be looked at again, or None."""

RECHECK_S: Final = 1.0
"""How soon, at least, a turn is looked at again whose own clock had stood."""
_JUMPS_S: Final = 60.0
"""A clock that takes longer than this, in real time, for a second of its own does not run by itself: it jumps."""


def jumps(clock: trio.abc.Clock) -> bool:
    """Whether a clock is a virtual one, which jumps to the next deadline while nothing runs on Trio's thread."""
    return clock.deadline_to_sleep_time(clock.current_time() + 1.0) > _JUMPS_S


def kept(limits: Limits, *, timed: bool) -> Limits:
    """The limits as they are kept; not `timed`: a clock jumps while threads work, and would end whatever has a time.

    There only a time that was asked for is kept, not the default one.
    """
    return limits if timed or limits.turn_s != TURN_S else attrs.evolve(limits, turn_s=None)


@final
class Timekeeper:
    """What is to be looked at, and when: turns, and budgets whose time runs out, each by its name.

    Args:
        nursery: where its task runs. now: seconds on Trio's clock.
    """

    def __init__(self, nursery: trio.Nursery, now: Callable[[], float]) -> None:
        self._nursery = nursery
        self._now = now
        self._due: dict[str, tuple[float, Due]] = {}
        self._next = float("inf")
        self._earlier = trio.Event()
        self._running = False

    def begins(self, actor: Actor) -> None:
        """A turn begins, or goes on: it has a time, unless its agent's turns have none."""
        if actor.loop is None:
            return
        left = left_s(actor.loop.state, actor.keeper.host.now())
        if left is not None:
            self.watch(actor.path, self._now() + left, partial(_end, actor))

    def over(self, path: AgentId, *, parked: bool) -> None:
        """Its turn is over, or stopped. Where nothing else runs, and it waits for somebody, no timer does (TOL-12).

        Behind a turn that ended the timer stays, for the next one: to end it and begin anew would cost every turn.
        """
        self._due.pop(path, None)
        if parked and not self._due:
            self._earlier.set()

    def watch(self, name: str, at: float, due: Due) -> None:
        """Have something looked at, at a time of Trio's clock; it replaces what was to be under that name."""
        self._due[name] = (at, due)
        if not self._running:
            self._running = True
            self._nursery.start_soon(self._run)
        elif at < self._next:
            self._earlier.set()

    async def _run(self) -> None:
        try:
            while self._due:
                self._next = min(at for at, _ in self._due.values())
                self._earlier = trio.Event()
                with trio.move_on_at(self._next):
                    await self._earlier.wait()
                now = self._now()
                for name, (at, due) in list(self._due.items()):
                    if at <= now:
                        del self._due[name]
                        again = due()
                        if again is not None:
                            self._due[name] = (now + again, due)
        finally:
            self._running = False


def _end(actor: Actor) -> float | None:
    """End the turn, if its time is up by its own clock too."""
    if actor.loop is None:
        return None
    left = left_s(actor.loop.state, actor.keeper.host.now())
    if left is not None and left > 0:
        return max(left, RECHECK_S)
    actor.loop.cut(None, tuple, late=late(actor.loop.state))
    return None
