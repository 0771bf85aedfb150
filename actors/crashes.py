"""Crashes of one agent's loop: which of them is still to be counted, and when there were too many (CON-6)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, final

from .changes import Put
from .errors import Fenced, StoreError, Unavailable
from .evolve import evolve
from .usage import NOTHING

if TYPE_CHECKING:
    from .changes import AgentRow
    from .hosting import Host


@final
class Crashes:
    """What an actor knows of its crashes.

    Attributes:
        uncounted: the loop crashed in the open turn, and the commit that takes it up again has not counted that yet.
            Crashes of processes are counted by the next owner of the tree, before anything of it is read in.
        in_a_row: crashes without a turn that came to its end between them.
    """

    __slots__ = ("_limit", "in_a_row", "uncounted")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.uncounted = False
        self.in_a_row = 0

    def goes_on(self, error: Exception) -> bool:
        """Note a crash. Returns whether the actor goes on from the durable state: as often as a turn may crash."""
        self.in_a_row += 1
        if isinstance(error, StoreError) or self.in_a_row > self._limit:
            self.in_a_row = 0
            return False
        self.uncounted = True
        return True

    def ran(self, before: AgentRow, after: AgentRow) -> None:
        """A turn ran: recovery has counted its crash once it has written."""
        self.uncounted = self.uncounted and after is before

    def ended(self, before: AgentRow) -> None:
        """A turn came to its end; one that was given up without a message to blame ends no row of crashes."""
        if before.open is None or before.open.consumed:
            self.in_a_row = 0


def stopped_by(error: Exception) -> str:
    """Why an agent is suspended whose loop ended so: a store that fails is no crash (SUP-2)."""
    return "store" if isinstance(error, Unavailable | Fenced) else "crashed"


async def leave_in_order(host: Host, row: AgentRow) -> AgentRow:
    """Write that a turn was cut off on purpose, so that to go on with it is no crash; returns the row that stands.

    What it has taken is written too: nothing is lost, so nothing is charged as lost (BUD-7).
    """
    if row.open is None or row.open.left:
        return row
    took = host.gate.beyond(row.agent, row.spent)
    left = evolve(
        row,
        spent=row.spent + took,
        run_spent=row.run_spent + took,
        open=evolve(row.open, left=True, held=NOTHING),
    )
    with suppress(StoreError):  # then it counts as one
        await host.commit((Put(left),))
        return left
    return row
