"""What a new owner of a tree writes before anything of it runs: whose turns the last one was lost in (REC, CON-6).

One commit for the whole tree, at the start of ownership: each turn that was at work is counted as crashed, and what its
lost request had reserved is charged. It comes before an agent is read in, so that a turn which kills its process
whatever it does, even by being read, reaches its limit all the same. Only this needs to come first. What else a turn
that is taken up has to settle (calls in flight by their effect class, with results; waits; questions) is its own
agent's: it stands in the commit that takes the turn up (`actors.recovering`), and no agent's recovery reads what
another's has still to write. So a crash between two of them leaves some taken up and the others as they were, each as
after one crash. A tree of thousands of agents is recovered without reading a conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.evolve import evolve
from actors.poison import at_work
from actors.usage import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from actors.changes import AgentRow


def recovered(
    rows: Iterable[AgentRow], epoch: int, lived: Collection[int], limit_of: Callable[[str], int | None]
) -> tuple[AgentRow, ...]:
    """The rows that a tree's new owner writes first; none where they are written already.

    Args:
        rows: of the tree's agents.
        epoch: the new owner's.
        lived: epochs of owners that lost the tree and came back: those crashes were none (SUP-6).
        limit_of: how often a turn of an agent of this name may crash; None where its spec is missing.
    """
    before = epoch - 1
    working = [row for row in rows if at_work(row)]
    counted = {row.agent: _counted(row, before, lived) for row in working}
    limits = {row.agent: limit_of(row.name) for row in working}
    last = [agent for agent, row in counted.items() if _tries(row) >= (limits[agent] or _tries(row) + 1)]
    found = []
    for row in working:
        new = counted[row.agent]
        if row.agent in last and any(other.startswith(f"{row.agent}/") for other in last):
            assert new.open is not None, "it is at work"
            new = evolve(new, open=evolve(new.open, tries=(limits[row.agent] or 1) - 1))
        if new != row:
            found.append(new)
    return tuple(found)


def _counted(row: AgentRow, before: int, lived: Collection[int]) -> AgentRow:
    """A row whose turn was at work when the owner of epoch `before` was lost."""
    turn = row.open
    assert turn is not None, "it is at work"
    if before in turn.lost:  # the commit that was in doubt is there
        return row
    lost = tuple([one for one in turn.lost if one not in lived])
    tries = max(turn.tries - (len(turn.lost) - len(lost)), 0) + 1
    return evolve(
        row,
        open=evolve(turn, tries=tries, lost=(*lost, before), held=NOTHING),
        spent=row.spent + turn.held,  # BUD-7
        run_spent=row.run_spent + turn.held,
    )


def _tries(row: AgentRow) -> int:
    return 0 if row.open is None else row.open.tries
