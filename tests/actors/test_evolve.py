"""The copy of frozen structs."""

from __future__ import annotations

import pytest

from actors.changes import AgentRow
from actors.evolve import evolve
from actors.moves import TurnState
from tests.actors.turnkit import open_row, row, spec


def test_a_copy_has_what_changed_and_the_original_stays() -> None:
    """Of the same class, another object, and nothing else is changed."""
    before = row(turns=2)
    after = evolve(before, turns=3, owes=True)
    assert type(after) is AgentRow
    assert (after.turns, after.owes) == (3, True)
    assert (before.turns, before.owes) == (2, False)
    assert evolve(after, turns=2, owes=False) == before


def test_a_copy_is_frozen_too() -> None:
    """A copy is no way round being frozen."""
    made = evolve(row(), turns=1)
    with pytest.raises(AttributeError, match="immutable"):
        made.turns = 2  # type: ignore[misc]


def test_a_name_that_is_no_field_is_a_bug() -> None:
    """A misspelt change never passes silently."""
    with pytest.raises(TypeError, match="turn_count"):
        evolve(row(), turn_count=1)
    with pytest.raises(TypeError, match="heads"):
        evolve(TurnState(spec(), open_row(), 0), heads=1)
