"""What a tree's new owner writes first: which turns crashed, how often, and what they had reserved (REC, CON-6)."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from actors.changes import AgentRow, OpenTurn
from actors.evolve import evolve
from actors.ids import AgentId
from actors.poison import at_work
from actors.usage import NOTHING, Amounts
from supervisor.recovery import recovered

LIMIT = 3
HELD = Amounts(model_calls=1, input_tokens=7)
TURNS = st.builds(
    OpenTurn,
    number=st.just(1),
    run=st.just(1),
    tries=st.integers(0, LIMIT + 1),
    asking=st.booleans(),
    held=st.sampled_from((NOTHING, HELD)),
    left=st.booleans(),
    lost=st.lists(st.integers(1, 6), unique=True, max_size=3).map(lambda found: tuple(sorted(found))),
)
ROWS = st.builds(
    AgentRow,
    agent=st.just(AgentId("a")),
    parent=st.just(""),
    name=st.just("a"),
    digest=st.just(""),
    open=st.none() | TURNS,
    suspended=st.sampled_from((None, "budget")),
)


def row(path: str, tries: int = 0, **turn: object) -> AgentRow:
    """An agent whose turn was at work, and had crashed so often."""
    open_turn = OpenTurn(1, 1, tries=tries, **turn)  # type: ignore[arg-type]  # fields of it
    return AgentRow(AgentId(path), path.rpartition("/")[0], path.rpartition("/")[2], "", open=open_turn)


def tries(*rows: AgentRow, epoch: int = 7, lived: tuple[int, ...] = ()) -> dict[str, int]:
    """How often the turns that were written have crashed."""
    found = recovered(rows, epoch, lived, lambda _: LIMIT)
    return {one.agent: one.open.tries for one in found if one.open is not None}


@given(ROWS, st.sets(st.integers(1, 6)))
def test_con_6_only_a_turn_at_work_is_counted_once_and_charged(found: AgentRow, lived: set[int]) -> None:
    """Idle, suspended and left ones are not written; of the others the lost request is charged, and nothing is held."""
    written = recovered((found,), 8, lived, lambda _: LIMIT)
    assert len(written) == at_work(found)
    for new in written:
        assert found.open is not None
        assert new.open is not None
        assert new.spent == found.spent + found.open.held
        assert new.run_spent == found.run_spent + found.open.held
        assert new.open.held == NOTHING
        assert new.open.lost == (*(one for one in found.open.lost if one not in lived), 7)
        forgiven = len(lived.intersection(found.open.lost))
        assert new.open.tries == max(found.open.tries - forgiven, 0) + 1
        assert new.open.asking == found.open.asking, "watchers are told when the agent is read in (REC-3)"


@given(st.lists(st.tuples(ROWS, st.sampled_from(("a", "a/b", "a/b/c", "a/d"))), unique_by=lambda one: one[1]))
def test_rec_3_what_is_recovered_once_is_not_recovered_again(found: list[tuple[AgentRow, str]]) -> None:
    """The same owner that asks again, for its commit was in doubt, finds it written."""
    rows = tuple([evolve(one, agent=AgentId(path)) for one, path in found])
    first = {one.agent: one for one in recovered(rows, 8, (), lambda _: LIMIT)}
    assert recovered([first.get(one.agent, one) for one in rows], 8, (), lambda _: LIMIT) == ()
    assert len(recovered([first.get(one.agent, one) for one in rows], 9, (), lambda _: LIMIT)) == len(first)


def test_con_6_an_owner_that_came_back_was_not_gone() -> None:
    """What was counted for it is taken back by the next owner, which counts the last one only."""
    assert tries(row("a", 2, lost=(4, 5)), lived=(4, 5)) == {"a": 1}
    assert tries(row("a", 2, lost=(4, 5)), lived=(4,)) == {"a": 2}
    assert tries(row("a", 2, lost=(4, 5)), lived=(1,)) == {"a": 3}


def test_con_6_of_turns_that_reach_the_limit_together_the_deepest_are_given_up() -> None:
    """Who waits for a child that is at fault gets its failed report, and is not given up along with it."""
    assert tries(row("a", 2), row("a/b", 2)) == {"a": 2, "a/b": 3}
    assert tries(row("a", 2), row("a/b", 1)) == {"a": 3, "a/b": 2}, "it was there before the child was"
    assert tries(row("a", 2), row("a/b", 2), row("a/c", 2)) == {"a": 2, "a/b": 3, "a/c": 3}
    assert tries(row("a", 2), row("ab", 2)) == {"a": 3, "ab": 3}, "whose path only begins alike is nobody's child"
    unknown = recovered((row("a", 2), row("a/b", 9)), 7, (), lambda name: None if name == "b" else LIMIT)
    assert [one.open.tries for one in unknown if one.open is not None] == [3, 10], "nobody gives up what has no spec"
