"""Circles of calls: seen as a search through all of history would see them, at the cost of a few rounds (TRN-7)."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from actors.content import Text
from actors.cycles import NO_ROUNDS, PERIOD_MAX, Round, Rounds


def one(name: str, gave: str = "same") -> Round:
    """A round of one call."""
    return ((name, "{}", "ok", (Text(gave),)),)


def gone(history: list[Round]) -> Rounds:
    """After these rounds."""
    rounds = NO_ROUNDS
    for item in history:
        rounds = rounds.then(item)
    return rounds


def searched(history: list[Round]) -> int:
    """How often the end of a history is one circle, by search through all of it."""
    most = 1
    for period in range(1, PERIOD_MAX + 1):
        times = 1
        while history[-period:] == history[-(times + 1) * period : -times * period or None] and history[-period:]:
            times += 1
        most = max(most, times)
    return most


@given(st.lists(st.sampled_from("ABC"), max_size=40), st.lists(st.sampled_from("ABCD"), min_size=1, max_size=9),
       st.integers(0, 6))  # fmt: skip
def test_trn_7_core_a_circle_is_counted_as_a_search_would(before: list[str], circle: list[str], times: int) -> None:
    """Whatever came before, and whatever the circle; and no more than the longest circle is remembered."""
    history = [one(name) for name in [*before, *circle * times]]
    rounds = gone(history)
    assert rounds.times == searched(history)
    assert len(rounds.last) == min(len(history), PERIOD_MAX)
    if len(circle) <= PERIOD_MAX:
        assert rounds.times >= times


@given(st.lists(st.tuples(st.sampled_from("AB"), st.integers()), max_size=30, unique_by=lambda pair: pair[1]))
def test_trn_7_core_calls_whose_results_differ_are_no_circle(history: list[tuple[str, int]]) -> None:
    """Polling that brings something new each time goes on."""
    assert gone([one(name, str(gave)) for name, gave in history]).times == 1


def test_trn_7_core_name_arguments_status_and_content_all_count() -> None:
    """Another in any of these is another round."""
    base = ("a", "{}", "ok", (Text("x"),))
    others = [("b", *base[1:]), ("a", "[]", *base[2:]), (*base[:2], "error", base[3]), (*base[:3], (Text("y"),))]
    for other in others:
        assert gone([(base,), (other,)]).times == 1
    assert gone([(base,), (base,)]).times == 2
    assert gone([(base, others[0]), (others[0], base)]).times == 1
