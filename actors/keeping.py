"""What is kept whole of results that were too long to be shown, and when it goes (TOL-8).

The whole stands in the agent's key-value rows, in pieces, so that a page of it costs what the page is long; the agent's
row lists what is kept, oldest first, within its bounds. Both land in the commit that settles the call.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from .changes import Erase, KeptResult, KvRow, Put
from .evolve import evolve
from .pages import PIECE_CHARS, PIECE_KEY, scopes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .callview import CallOutcome
    from .changes import Operation
    from .ids import AgentId
    from .moves import TurnState

KEPT_MAX: Final = 32
"""How many results of one agent are kept at once."""


def keep(state: TurnState, outcomes: Iterable[CallOutcome]) -> None:
    """Stage what these outcomes keep, and the end of what has no place any more, for the next commit."""
    for outcome in outcomes:
        if outcome.whole is not None:
            name = next((call.block.name for call in state.calls if call.block.id == outcome.call), "")
            new = KeptResult(outcome.call, name, len(outcome.whole), outcome.trust)
            _add(state, new, outcome.whole)


def _add(state: TurnState, new: KeptResult, whole: str) -> None:
    row, limit = state.row, state.spec.limits.kept_chars
    kept = [one for one in row.kept if one.call != new.call]
    gone = [one for one in row.kept if one.call == new.call]  # run again after a crash: the pieces of before go
    while len(kept) >= KEPT_MAX or sum(one.chars for one in kept) + new.chars > limit:
        gone.append(kept.pop(0))
    state.row = evolve(row, kept=(*kept, new))
    erased = [Erase(KvRow, (row.agent, scope)) for one in gone for scope in scopes(one)]
    state.staged = (*state.staged, *erased, *_pieces(row.agent, new, whole))


def _pieces(agent: AgentId, new: KeptResult, whole: str) -> Iterable[Put]:
    for number, scope in enumerate(scopes(new)):
        piece = whole[number * PIECE_CHARS : (number + 1) * PIECE_CHARS]
        yield Put(KvRow(agent, scope, PIECE_KEY, json.dumps(piece, ensure_ascii=False)))


def drained(state: TurnState) -> tuple[Operation, ...]:
    """What is staged, with the row that lists it, for a commit that would not carry the row otherwise."""
    staged, state.staged = state.staged, ()
    return (*staged, Put(state.row)) if staged else ()
