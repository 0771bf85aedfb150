"""From what a model said to what the conversation keeps."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors import answers
from actors.ids import TurnId
from actors.ports import WireCall
from actors.transcript import CallBlock, ReasoningBlock, Stop, TextBlock, problems
from actors.usage import NO_USAGE, Usage
from tests.actors.turnkit import call

TURN = TurnId("lead:t1")
Blocks = tuple[ReasoningBlock | TextBlock | WireCall, ...]


def read(*blocks: ReasoningBlock | TextBlock | WireCall, stop: Stop = Stop.END_TURN) -> answers.Reading:
    """A response of step 2, as it is kept."""
    return answers.read(TURN, 2, blocks, stop=stop, model="x", usage=NO_USAGE)


def test_trn_5_core_blocks_are_ordered_reasoning_text_calls() -> None:
    """Within a kind the order is the model's."""
    reading = read(call("b"), TextBlock("1"), ReasoningBlock("r"), call("a"), TextBlock("2"))
    assert reading.record.blocks == (
        ReasoningBlock("r"),
        TextBlock("1"),
        TextBlock("2"),
        CallBlock(reading.calls[0].id, "w-b-{}", "b", "{}"),
        CallBlock(reading.calls[1].id, "w-a-{}", "a", "{}"),
    )
    assert [block.id for block in reading.calls] == ["lead:t1.2.0", "lead:t1.2.1"]


def test_tol_5_core_a_wire_id_is_taken_once() -> None:
    """The first of an id stays; ordinals have no gap; the others are named."""
    reading = read(call("a", wire="x"), call("b", wire="x"), call("c", wire="y"), call("d", wire="y"))
    assert [(block.name, block.id[-1]) for block in reading.calls] == [("a", "0"), ("c", "1")]
    assert reading.twice == ("x", "y")


def test_trn_6_core_empty_texts_are_left_out() -> None:
    """A response of an empty text has no block."""
    assert read(TextBlock("")).record.blocks == ()
    assert read(TextBlock(""), ReasoningBlock("")).record.blocks == (ReasoningBlock(""),)
    assert read(TextBlock("a")).record.blocks == (TextBlock("a"),)


@pytest.mark.parametrize("stop", Stop)
def test_a_last_call_without_arguments_in_a_response_cut_off_is_truncated(stop: Stop) -> None:
    """Only there: an empty text of arguments stands for none, and a cut one would run as if whole."""
    reading = read(call("a", " "), call("b", ""), stop=stop)
    cut_off = stop in {Stop.MAX_TOKENS, Stop.ERROR}
    assert [block.invalid for block in reading.calls] == [None, "truncated" if cut_off else None]
    whole = read(call("a", "{}"), stop=stop)
    assert whole.calls[0].invalid is None
    known = read(call("a", "", invalid="no_name"), stop=stop)
    assert known.calls[0].invalid == "no_name"


def test_a_whole_response_keeps_its_stop_model_and_tokens() -> None:
    """What it was served with is in the record, whether there is something to sort in it or not."""
    for blocks in ((TextBlock("a"),), (TextBlock("a"), TextBlock("b"))):
        reading = answers.read(TURN, 1, blocks, stop=Stop.STOP_SEQUENCE, model="x:y", usage=Usage(fresh=1))
        record = reading.record
        assert (record.turn, record.stop, record.model) == (TURN, Stop.STOP_SEQUENCE, "x:y")
        assert record.usage == Usage(fresh=1)


def test_trn_8_core_a_cut_response_keeps_whole_blocks_and_the_half_text() -> None:
    """Half text stands behind whole text, marked; blanks are no text."""
    reading = answers.interrupted(TURN, 1, (call("a"), TextBlock("one")), "tw", model="x", usage=Usage(visible=2))
    assert reading.record.blocks[:2] == (TextBlock("one"), TextBlock("tw", half=True))
    assert (reading.record.stop, reading.record.usage) == (Stop.INTERRUPTED, Usage(visible=2))
    assert len(reading.calls) == 1
    for blank in ("", " \n\t"):
        assert answers.interrupted(TURN, 1, (), blank, model="x", usage=NO_USAGE).record.blocks == ()


BLOCK = st.one_of(
    st.builds(ReasoningBlock, st.text(max_size=2)),
    st.builds(TextBlock, st.text(max_size=2)),
    st.builds(WireCall, st.sampled_from("abc"), st.sampled_from(["look", "fly"]), st.sampled_from(["", "{}"])),
)


@given(st.lists(BLOCK, max_size=6).map(tuple), st.sampled_from(Stop))
def test_what_is_kept_is_what_came_in_an_order_that_providers_take(blocks: Blocks, stop: Stop) -> None:
    """No block is lost but empty texts and repeated ids, none is made up."""
    reading = read(*blocks, stop=stop)
    kept = reading.record.blocks
    for kind in (ReasoningBlock, TextBlock):
        came = [block for block in blocks if isinstance(block, kind) and (kind is ReasoningBlock or block.text)]
        assert [block for block in kept if isinstance(block, kind)] == came
    wire = [block.wire_id for block in blocks if isinstance(block, WireCall)]
    assert [block.wire_id for block in reading.calls] == list(dict.fromkeys(wire))
    assert len(reading.calls) + len(reading.twice) == len(wire)
    if kept and not reading.calls:
        assert problems([reading.record]) == []
