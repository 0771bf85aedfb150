"""The quick copy of frozen instances."""

from __future__ import annotations

import attrs
import pytest

from actors.changes import AgentRow, OpenTurn
from actors.evolve import evolve
from actors.ids import AgentId
from actors.moves import TurnState
from tests.actors.turnkit import open_row, row, spec


def test_a_copy_is_what_attrs_would_make_and_the_original_stays() -> None:
    """Equal to `attrs.evolve`, of the same class, another object."""
    before = row(turns=2)
    after = evolve(before, turns=3, owes=True)
    assert after == attrs.evolve(before, turns=3, owes=True)
    assert type(after) is AgentRow
    assert (before.turns, before.owes) == (2, False)
    assert evolve(before) == before


def test_a_copy_is_frozen_too() -> None:
    """The way round `__init__` is no way round being frozen."""
    made = evolve(row(), turns=1)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made.turns = 2  # type: ignore[misc]


def test_a_name_that_is_no_field_is_a_bug() -> None:
    """A misspelt change never passes silently."""
    with pytest.raises(AssertionError, match="turn_count"):
        evolve(row(), turn_count=1)


def test_every_class_that_is_copied_so_keeps_its_fields_in_a_dictionary() -> None:
    """No converter and no validator is left out by it."""
    for kind in (AgentRow, OpenTurn):
        for field in attrs.fields(kind):
            assert field.converter is None
            assert field.validator is None
    assert vars(evolve(row(), turns=1))["turns"] == 1
    assert evolve(row(), agent=AgentId("x")).agent == "x"


def test_a_struct_is_copied_likewise() -> None:
    """Its own copy, the original stays, and a misspelt change never passes silently."""
    state = TurnState(spec(), open_row(), 0)
    after = evolve(state, head=1)
    assert (after.head, state.head, after.row) == (1, 0, state.row)
    with pytest.raises(TypeError, match="heads"):
        evolve(state, heads=1)
