"""The protocol holds in every world, and each of its requirements is needed."""

from __future__ import annotations

import attrs
import pytest

from tests.model.protocol import Protocol, Rules, World
from tests.model.search import search
from tests.model.worlds import MUTANTS, WORLDS


@pytest.mark.parametrize("name", WORLDS)
def test_the_protocol_holds_in_every_state(name: str) -> None:
    """In each world every state is sound, and from every state a state of rest can be reached."""
    found = search(Protocol(WORLDS[name]))
    assert not found.wrong, "\n".join((found.wrong, *found.trace))
    assert found.states > 5_000, "so few states mean that the world does not move"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_requirement_left_out_is_found(name: str) -> None:
    """Without any one requirement the search finds what breaks, and says so."""
    mutant = MUTANTS[name]
    found = search(Protocol(WORLDS[mutant.world], mutant.rules))
    assert mutant.finds in found.wrong, f"found {found.wrong!r} in {found.states} states"
    assert found.trace


def test_every_requirement_has_a_mutant() -> None:
    """No requirement is in the protocol that no mutant leaves out."""
    names = {field.name for field in attrs.fields(Rules)}
    without = {name for mutant in MUTANTS.values() for name in names if not getattr(mutant.rules, name)}
    assert without == names


def test_a_trace_is_a_shortest_one() -> None:
    """A message that is sent twice without a key is found in the fewest steps there are."""
    found = search(Protocol(World(lanes=("send",), ambiguous=1), Rules(retry_is_known_by_its_key=False)))
    assert found.trace == ("send 0, answer lost, again",)
