"""A store that cannot be written for a while: agents stand still and go on by themselves, within `hard` seconds.

A full disk, an I/O error, a disk turned read-only and another program's lock often pass, and none of them is an
agent's fault. So the commit that met one is tried again, with growing pauses, and nothing of this process is written
before it. No effect starts meanwhile, for each stands behind its commit. Past the time every commit fails as the store
says: the agents are suspended, and the store owes their work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple, final

import trio

from actors.errors import CallboardError, InDoubt, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
Args = TypeVarTuple("Args")

FIRST_S: Final = 0.05
"""The pause before the first new try; each next one is twice as long."""
LONGEST_S: Final = 1.0


@final
class Patience:
    """What one process knows of a store in trouble.

    Invariants:
        PATIENCE-1 while the store is in trouble one try at a time is made, in the order in which they were asked for.
        PATIENCE-2 nobody waits longer than `hard_s` from the begin of a trouble, and for one try.
        PATIENCE-3 a trouble is told when it begins and when it is over, once each.

    Args:
        hard_s: seconds from the begin of a trouble until it is an error.
        now: seconds on Trio's clock.
        tell: called with what is wrong, and with an empty text when it is over.
    """

    def __init__(self, hard_s: float, now: Callable[[], float], tell: Callable[[str], None]) -> None:
        self._hard_s = hard_s
        self._now = now
        self._tell = tell
        self._since: float | None = None
        self._given_up = 0  # how often, in this trouble or an earlier one
        self._last = ""
        self._line = trio.Lock()

    def __repr__(self) -> str:
        return f"<Patience {'well' if self._since is None else f'in trouble since {self._since:.1f}'}>"

    async def through(self, do: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Do something with the store, again and again while it is in trouble.

        Args:
            do: asks the store; what failed with a passing `Unavailable` has no effect that a second try would double,
                or the store refuses the second.
            args: what it is asked with.

        Raises:
            Unavailable: the trouble did not pass in time. Whatever else `do` raises.

        If cancelled: goes on to its end, as a commit does.
        """
        error: Unavailable | None = None
        if self._since is None:
            try:
                return await do(*args)
            except Unavailable as failed:
                if not failed.passing:
                    raise
                error = failed
                self._begins(failed)
        with trio.CancelScope(shield=True):  # PATIENCE-2 bounds it
            given_up = self._given_up
            async with self._line:
                if self._given_up != given_up and self._since is not None:  # while this one stood in line
                    raise error or Unavailable(self._last)
                value = await self._again(lambda: do(*args), error)
        return value

    async def insist(self, do: Callable[[], Awaitable[T]]) -> T:
        """Do what nothing may come after that rests on it, again and again, whatever the store says of its trouble.

        Args:
            do: asks the store; a second try, where the first was written all the same, does no harm.

        Raises:
            Unavailable: it failed for as long as a store is borne with. Whatever else `do` raises.
        """
        until, pause = self._now() + self._hard_s, FIRST_S
        while True:
            try:
                return await do()
            except Unavailable:
                if self._now() + pause > until:
                    raise
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_S)

    async def _again(self, do: Callable[[], Awaitable[T]], error: Unavailable | None) -> T:
        doubt = error if isinstance(error, InDoubt) else None
        pause = FIRST_S
        while True:
            if error is not None and self._since is not None:
                left = self._since + self._hard_s - self._now()
                if left <= 0:
                    self._given_up += 1
                    self._last = str(error)
                    raise doubt or error
                await trio.sleep(min(pause, left))
                pause = min(2 * pause, LONGEST_S)
            try:
                value = await do()
            except Unavailable as failed:
                if not failed.passing:
                    raise (doubt or failed) from failed
                error = failed
                doubt = doubt or (failed if isinstance(failed, InDoubt) else None)
                self._begins(failed)
            except CallboardError as refused:  # the store answers; what was in doubt may be what refuses it now
                self._over()
                if doubt is not None:
                    raise doubt from refused
                raise
            else:
                self._over()
                return value

    def _begins(self, error: Unavailable) -> None:
        if self._since is None:
            self._since = self._now()
            self._tell(str(error))

    def _over(self) -> None:
        if self._since is not None:
            self._since = None
            self._tell("")
