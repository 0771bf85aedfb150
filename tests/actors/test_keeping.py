"""What is kept whole: its bounds, its pieces and its pages (TOL-8)."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors import bounds, keeping, pages
from actors.callview import CallOutcome, CallView
from actors.changes import CallState, Erase, KeptResult, KvRow, Put
from actors.content import Text, Trust
from actors.errors import UsageError
from actors.ids import CallId, turn_id
from actors.moves import TurnState
from actors.pages import Page, span
from actors.transcript import CallBlock, ResultRecord, ResultStatus
from tests.actors.turnkit import open_row, spec

OK = ResultStatus.OK


def outcome(index: int, whole: str | None) -> CallOutcome:
    """What a call gave; some of it is shown."""
    return CallOutcome(CallId(f"lead:t1.{index}.0"), OK, (Text("some"),), Trust.WORKSPACE, whole)


def store_of(state: TurnState, store: dict[str, str]) -> None:
    """Carry out what is staged."""
    for op in state.staged:
        if isinstance(op, Put) and isinstance(op.row, KvRow):
            store[op.row.scope] = json.loads(op.row.value)
        elif isinstance(op, Erase):
            store.pop(op.prefix[1])
    state.staged = ()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=60), st.integers(1, 12))
def test_tol_8_core_what_is_listed_is_whole_in_the_store_and_nothing_else_is(
    steps: list[tuple[int, int]], limit: int
) -> None:
    """Whatever is kept in whatever order, the same call again included: within bounds, newest last, whole."""
    unit = pages.PIECE_CHARS // 2
    state = TurnState(spec(kept_chars=limit * unit), open_row(), 0)
    store: dict[str, str] = {}
    for call, units in steps:
        fits = 0 < units <= limit
        keeping.keep(state, [outcome(call, f"{call}" * (units * unit) if fits else None)])
        assert bool(state.staged) == fits
        store_of(state, store)
        kept = state.row.kept
        assert sum(one.chars for one in kept) <= limit * unit
        assert len({one.call for one in kept}) == len(kept) <= keeping.KEPT_MAX
        assert not fits or kept[-1].call == f"lead:t1.{call}.0"
        assert set(store) == {scope for one in kept for scope in pages.scopes(one)}
        for one in kept:
            assert "".join(store[scope] for scope in pages.scopes(one)) == one.call.split(".")[1] * one.chars


def test_tol_8_core_so_many_are_kept_and_no_more() -> None:
    """However short they are."""
    state = TurnState(spec(), open_row(), 0)
    for index in range(keeping.KEPT_MAX + 2):
        keeping.keep(state, [outcome(index, "short")])
    assert [one.call for one in state.row.kept] == [f"lead:t1.{index}.0" for index in range(2, keeping.KEPT_MAX + 2)]


def test_tol_8_core_what_is_staged_is_drained_once_with_the_row_that_lists_it() -> None:
    """And nothing where nothing is."""
    state = TurnState(spec(), open_row(), 0)
    assert keeping.drained(state) == ()
    keeping.keep(state, [outcome(1, "x")])
    piece, row = keeping.drained(state)
    assert isinstance(piece, Put)
    assert row == Put(state.row)
    assert state.row.kept == (KeptResult(CallId("lead:t1.1.0"), "", 1, Trust.WORKSPACE),)
    assert keeping.drained(state) == ()


def test_tol_8_core_what_is_kept_is_found_by_its_reference_or_its_whole_id() -> None:
    """And what is not kept, or no more, is refused with what is."""
    state = TurnState(spec(), open_row(), 0)
    keeping.keep(state, [outcome(1, "x"), outcome(2, "y")])
    for one in state.row.kept:
        assert pages.found(state.row, pages.reference(one.call)) is pages.found(state.row, one.call) is one
    with pytest.raises(UsageError, match=r"kept as 'gone'.*kept are: t1\.1\.0, t1\.2\.0"):
        pages.found(state.row, "gone")
    with pytest.raises(UsageError, match="kept are: none"):
        pages.found(open_row(), "t1.1.0")


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9))
def test_tol_8_core_a_page_says_where_the_next_begins(start: int, length: int, total: int) -> None:
    """Page by page the whole is read, and the last says that it is the end."""
    text = ("abcdefghi"[:total])[start : start + length]
    page = Page("t1.1.0", "look", start, text, total)
    end = start + len(text)
    assert page.next == (end if end < total else None)
    assert ("; the end]" in page.shown()) == (page.next is None)
    assert page.shown().startswith(text)
    assert len(page.shown()) <= len(text) + pages.SHOWN_CHARS
    assert (f"start={page.next}" in page.shown()) == (page.next is not None)


def test_tol_8_core_the_hint_names_the_call_and_what_is_missing() -> None:
    """Without a place where nothing says which part is missing."""
    call = CallId("lead/kid:t1.1.0")
    assert pages.hint(call, None) == '; read_result(reference="t1.1.0") reads on'
    assert pages.hint(call, 7) == '; read_result(reference="t1.1.0", start=7) reads on'


SIZES = st.integers(0, 3 * pages.PIECE_CHARS)


@given(SIZES, SIZES, st.integers(1, 3 * pages.PIECE_CHARS))
def test_tol_8_core_a_page_is_the_text_it_names(start: int, chars: int, total: int) -> None:
    """For any result and any page: its pieces, cut where the span says, are that stretch of the whole."""
    whole = "".join(chr(65 + index % 61) for index in range(total))
    kept = KeptResult(CallId("a:t1.1.0"), "give", total)
    if start >= total or chars < 1:
        with pytest.raises(UsageError):
            span(kept, start, chars)
        return
    numbers, first, last = span(kept, start, chars)
    pieces = [whole[n * pages.PIECE_CHARS : (n + 1) * pages.PIECE_CHARS] for n in numbers]
    text = "".join(pieces)[first:last]
    assert text == whole[start : start + chars]
    assert len(pieces) <= -(-len(text) // pages.PIECE_CHARS) + 1
    page = Page("t1.1.0", "give", start, text, total)
    assert page.next == (None if start + chars >= total else start + chars)
    assert len(page.shown()) - len(text) <= pages.SHOWN_CHARS


def test_trn_7_core_results_that_are_kept_are_compared_without_their_references() -> None:
    """Each call's result names the call by which the rest is read: two of the same text are the same (a circle)."""
    state = TurnState(spec(), open_row(), 0)
    keeping.keep(state, [outcome(1, "x"), outcome(2, "x")])
    done = []
    for one in state.row.kept:
        block = CallBlock(one.call, "p", "look", "{}")
        text = f"x{pages.hint(one.call, None)}"
        result = ResultRecord(turn_id("lead", 1), one.call, "p", "look", ResultStatus.OK, (Text(text),))
        done.append(bounds._done(state, CallView(block, CallState.SETTLED, result=result)))
    assert done[0] == done[1]
    assert state.row.kept[0].call not in str(done[0])
