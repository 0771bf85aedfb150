"""The journal by itself: what it weighs, what it says of itself, which positions it knows (EVT-3)."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors.happenings import AgentSettled, ToolEnded, TurnEnded
from actors.ids import AgentId, RunId, TurnId
from actors.journal import ENTRY_BYTES, EventJournal, JournalBound
from actors.messages import Outcome, Status

AGENT = AgentId("lead")


def outcome(text: str, output: str | None) -> Outcome:
    """How a turn ended that said this."""
    return Outcome(
        path=AGENT, run=RunId("lead:r1"), turn=TurnId("lead:t1"), status=Status.DONE, text=text, output=output
    )


@given(st.text(max_size=9), st.none() | st.text(max_size=9), st.text(max_size=9))
def test_evt_3_core_what_is_long_is_weighed(said: str, output: str | None, result: str) -> None:
    """The texts of a result and of an outcome count, other values do not."""
    journal = EventJournal("j", JournalBound(events=1_000, size_bytes=1_000_000))
    journal.put(AgentSettled, AGENT, 0.0, 1, 1, {})
    assert journal.statistics().size_bytes == ENTRY_BYTES
    journal.put(ToolEnded, AGENT, 0.0, 1, 1, {"text": result, "number": 5})
    journal.put(TurnEnded, AGENT, 0.0, 1, 1, {"outcome": outcome(said, output)})
    heavy = len(result) + len(said) + len(output or "")
    assert journal.statistics().size_bytes == 3 * ENTRY_BYTES + heavy
    assert repr(journal) == "<EventJournal j 1 to 3>"


@pytest.mark.parametrize("after", ["j.0.0.", "j.1.1.lead", "j.2.9.lead/kid"])
def test_evt_3_core_a_position_of_this_journal_is_known(after: str) -> None:
    """Its number, how many of the agent's events were seen, and whose."""
    journal = EventJournal("j")
    for _ in range(2):
        journal.put(AgentSettled, AGENT, 0.0, 1, 1, {})
    found = journal.position(after)
    assert found is not None
    assert after == f"j.{found.number}.{found.seen}.{found.path}"


@pytest.mark.parametrize(
    "after", ["", "j", "k.0.0.", "j.x.0.", "j.0.x.", "j.3.0.", f"j.{'9' * 30}.0.", "j.-1.0.", "j.0"]
)
def test_evt_3_core_a_position_that_it_cannot_have_given_is_none_of_its_own(after: str) -> None:
    """Of another journal, no number, or from behind what has happened."""
    journal = EventJournal("j")
    for _ in range(2):
        journal.put(AgentSettled, AGENT, 0.0, 1, 1, {})
    assert journal.position(after) is None
