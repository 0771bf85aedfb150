"""What is in force of a conversation, through any number of compactions; and where each of them cuts."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors.compaction import WORTH_BYTES, plan
from actors.content import Text, Trust
from actors.conversation import Conversation, Window
from actors.ids import CallId, MessageId, TurnId
from actors.transcript import (
    CallBlock,
    MessageRecord,
    NoteRecord,
    Record,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    Stop,
    SummaryRecord,
    TextBlock,
    entered,
    owes_response,
    problems,
    record_bytes,
)

TURN = TurnId("a:t1")


def said(text: str = "asked", *, pinned: bool = False, name: str = "m", trust: Trust = Trust.TRUSTED) -> MessageRecord:
    """A message."""
    return MessageRecord(TURN, MessageId(name), (Text(text),), pinned=pinned, trust=trust)


def answer(text: str = "answered") -> ResponseRecord:
    """A response."""
    return ResponseRecord(TURN, (TextBlock(text),), Stop.END_TURN, "m")


def batch(number: int, calls: int, text: str = "result") -> list[Record]:
    """A response with calls, and their results."""
    blocks = tuple(CallBlock(CallId(f"a:t1.{number}.{n}"), f"w{n}", "look", "{}") for n in range(calls))
    results = [ResultRecord(TURN, block.id, block.wire_id, "look", ResultStatus.OK, (Text(text),)) for block in blocks]
    return [ResponseRecord(TURN, blocks, Stop.TOOL_CALLS, "m"), *results]


def summary_for(conversation: Conversation, keep: float, *, owed: bool) -> SummaryRecord | None:
    """The record by which a compaction of it would be written."""
    chosen = plan(conversation, keep, owed=owed, least=0)
    if chosen is None:
        return None
    return SummaryRecord(TURN, "summary", chosen.upto, chosen.pinned, chosen.responses, trust=chosen.trust)


def reloaded(stored: list[Record]) -> Conversation:
    """The conversation as a restart reads it: from the last summary on."""
    at = max((n for n, record in enumerate(stored) if isinstance(record, SummaryRecord)), default=-1)
    if at < 0:
        return Conversation(stored)
    summary = stored[at]
    assert isinstance(summary, SummaryRecord)
    return Conversation.behind(at, summary, [stored[n] for n in summary.pinned], stored[summary.upto :])


PIECE = st.one_of(
    st.builds(
        lambda pinned, size, name: [said("x" * size, pinned=pinned, name=name)],
        st.booleans(),
        st.integers(0, 60),
        st.sampled_from("mnop"),
    ),
    st.builds(
        lambda names: [NoteRecord(TURN, "failure", "given up", tuple(MessageId(name) for name in names))],
        st.sets(st.sampled_from("mnop"), min_size=1, max_size=2),
    ),
    st.builds(lambda size: [answer("y" * size)], st.integers(0, 60)),
    st.builds(lambda calls, size: batch(0, calls, "z" * size), st.integers(1, 3), st.integers(0, 60)),
    st.just([NoteRecord(TURN, "limit", "few left")]),
    st.builds(lambda keep, owed: (keep, owed), st.sampled_from([0.0, 0.2, 0.5, 0.9]), st.booleans()),
)


@given(st.lists(PIECE, max_size=24))
def test_cmp_5_whatever_is_compacted_pairs_and_pinned_messages_stay_whole(pieces: list[object]) -> None:
    """BR-118, BR-125: each batch in force is whole, each pinned message stands once, and a restart reads the same."""
    conversation, stored = Conversation(), list[Record]()
    for piece in pieces:
        before = conversation.window()
        seen = list(before)
        if isinstance(piece, tuple):
            made = summary_for(conversation, piece[0], owed=piece[1])
            records: list[Record] = [] if made is None else [made]
        else:
            assert isinstance(piece, list)
            records = piece
        conversation.extend(records)
        stored += records
        window = list(conversation.window())
        assert list(before) == seen, "CONV-2"
        assert list(reloaded(stored).window()) == window, "CONV-1"
        again = Conversation()
        again.extend(stored)
        assert list(again.window()) == window
        for one in (conversation, reloaded(stored)):
            assert [stored[one.index(at)] for at in range(len(one))] == window
            assert one.stored == len(stored)
            assert one.window().size_bytes == sum(record_bytes(record) for record in window)
            assert one.window().responses == sum(isinstance(r, ResponseRecord | SummaryRecord) for r in stored)
        assert problems(window) == []
        pinned: list[MessageRecord] = []
        for record in stored:
            if isinstance(record, MessageRecord) and record.pinned:
                pinned.append(record)
            elif isinstance(record, NoteRecord):
                pinned = [one for one in pinned if one.message not in record.without]
        assert [record for record in window if isinstance(record, MessageRecord) and record.pinned] == pinned
        assert [r.message for r in window if isinstance(r, MessageRecord)] == list(entered(window))
        assert sum(isinstance(record, SummaryRecord) for record in window) <= 1


@given(st.lists(PIECE.filter(lambda piece: isinstance(piece, list)), max_size=12), st.sampled_from([0.0, 0.3, 0.9]))
def test_rec_1_what_is_owed_is_owed_behind_a_compaction_too(pieces: list[list[Record]], keep: float) -> None:
    """A compaction while an answer is owed keeps all that no response has seen; so the last record owes it still."""
    conversation = Conversation([record for piece in pieces for record in piece])
    last = conversation.last
    made = summary_for(conversation, keep, owed=owes_response(last))
    if made is not None:
        conversation.extend([made])
        assert owes_response(conversation.last) == owes_response(last)
        if owes_response(last):
            assert conversation.last is last


def test_con_4_core_what_is_taken_back_is_in_force_no_more_and_may_come_again() -> None:
    """A note names messages before it: they leave, pinned or not, windows stay, and one that comes again stands."""
    conversation = Conversation([said("1", name="a"), said("2", name="b", pinned=True), answer()])
    before = conversation.window()
    conversation.extend(
        [NoteRecord(TURN, "failure", "given up", (MessageId("a"), MessageId("b"))), said("1", name="a")]
    )
    assert len(before) == 3
    assert entered(conversation.window()) == ("a",)
    assert len(conversation) == 3
    assert [conversation.index(at) for at in range(3)] == [2, 3, 4]
    assert conversation.pinned() == ()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.floats(0, 0.99))
def test_cmp_5_core_no_cut_is_between_a_call_and_its_result(batches: list[int], keep: float) -> None:
    """Whatever share is to stay: what stays begins with a message, a note or a response, never with a result."""
    records = [said(), *(record for number, calls in enumerate(batches, 1) for record in batch(number, calls))]
    chosen = plan(Conversation(records), keep, owed=False, least=0)
    assert chosen is not None
    assert not isinstance([*records, answer()][chosen.cut], ResultRecord)
    assert problems(records[chosen.cut :]) == []


@given(st.integers(1, 4), st.integers(0, 4), st.booleans())
def test_tol_1_core_what_has_no_result_at_the_end_is_found(calls: int, kept: int, answered: bool) -> None:  # noqa: FBT001 - drawn
    """The calls behind the results that are there; none where all are answered, or something else stands last."""
    made = batch(1, calls)
    stored = [said(), *made[: 1 + kept]]
    if answered:
        stored.append(said("next"))
    lost = [block.id for block in Conversation(stored).unanswered()]
    assert lost == ([] if answered else [CallId(f"a:t1.1.{n}") for n in range(kept, calls)])
    assert bool(lost) == (not answered and bool(problems(stored)))
    assert Conversation().unanswered() == Conversation([said(), answer()]).unanswered() == ()
    assert Conversation(made[1:]).unanswered() == (), "nothing but results: they are nobody's"


def test_conv_2_core_a_window_is_a_sequence_of_the_records_it_was_made_of() -> None:
    """By index from either end, by slice and in order; what stands behind it is not in it, and it says so."""
    records: list[Record] = [said(), answer(), said("again")]
    conversation = Conversation(records)
    window = conversation.window()
    conversation.extend([answer("later")])
    assert [*window] == window[:] == records
    assert (window[0], window[-1]) == (records[0], records[-1])
    assert window[1:5] == records[1:]
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"record {index} of 3|record -1 of 3"):
            window[index]
    assert repr(window) == f"<Window 3 records, {sum(map(record_bytes, records))} bytes>"
    assert repr(conversation).startswith("<Conversation 4 records of 4, ")


def test_trn_1_core_what_encoders_keep_lives_as_long_as_the_records_it_was_made_of() -> None:
    """All windows on one conversation share it; where other records are in force, nothing of it is left."""
    conversation = Conversation([said(), answer()])
    kept = conversation.window().memo
    kept["encoder"] = 1
    conversation.extend([said("more")])
    assert conversation.window().memo is kept
    conversation.extend([SummaryRecord(TURN, "summary", 3)])
    assert conversation.window().memo == {}
    assert Window([], 0, 0, 0).memo == {}


def test_conv_1_core_a_restart_passes_over_older_summaries() -> None:
    """A summary that stands among what a later one keeps is in force no more, and the places of the rest stay."""
    stored: list[Record] = [
        said(),
        answer(),
        SummaryRecord(TURN, "first", 1),
        said("b"),
        SummaryRecord(TURN, "then", 1),
    ]
    extended, found = Conversation(), reloaded(stored)
    extended.extend(stored)
    assert [*found.window()] == [*extended.window()] == [stored[4], stored[1], stored[3]]
    assert [found.index(at) for at in range(4)] == [extended.index(at) for at in range(4)] == [4, 1, 3, 5]


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), max_size=6))
def test_conv_2_core_what_is_ahead_is_what_will_be(now: list[int], then: list[int]) -> None:
    """The window of records that are not committed yet is the one that stands when they are; the present one stays."""
    kinds = (said("a"), answer("b"), NoteRecord(TURN, "notice", "c"), SummaryRecord(TURN, "d", 0))
    conversation = Conversation([kinds[kind] for kind in now])
    before = [*conversation.window()]
    coming = [kinds[kind] for kind in then]
    ahead = conversation.ahead(coming)
    assert [*conversation.window()] == before
    conversation.extend(coming)
    after = conversation.window()
    assert ([*ahead], ahead.size_bytes, ahead.responses) == ([*after], after.size_bytes, after.responses)


def test_cmp_2_what_comes_behind_the_plan_stays() -> None:
    """BR-123: the summary says up to where it holds; records appended after that was fixed are kept."""
    conversation = Conversation([said("x" * 900), answer(), said("later")])
    made = summary_for(conversation, 0.2, owed=False)
    assert made is not None
    meanwhile: list[Record] = [answer("meanwhile"), said("and more")]
    conversation.extend([*meanwhile, made])
    assert list(conversation.window())[-2:] == meanwhile
    assert next(iter(conversation.window())) is made


def test_a_plan_keeps_the_newest_share_by_size() -> None:
    """The suffix that stays is as large as its share allows, and no larger."""
    conversation = Conversation([said("x" * 76) for _ in range(20)])
    for keep, kept in ((0.0, 0), (0.26, 5), (0.5, 10), (0.99, 19)):
        chosen = plan(conversation, keep, owed=False, least=0)
        assert chosen is not None
        assert chosen.cut == 20 - kept


def test_there_is_nothing_to_replace_where_little_stands() -> None:
    """An empty conversation, a summary alone, and less than is worth asking for have no plan."""
    assert plan(Conversation(), 0.2, owed=False) is None
    small = Conversation([said("x" * (WORTH_BYTES // 2))])
    assert plan(small, 0.0, owed=False) is None
    conversation = Conversation([said("x" * 2 * WORTH_BYTES), answer()])
    made = summary_for(conversation, 0.0, owed=False)
    assert made is not None
    conversation.extend([made])
    assert plan(conversation, 0.0, owed=False, least=0) is None, "only its own summary stands in it"


def test_pinned_messages_alone_are_nothing_to_replace() -> None:
    """What must stay frees nothing."""
    assert plan(Conversation([said("x" * 5_000, pinned=True)]), 0.0, owed=False) is None


@pytest.mark.parametrize(
    ("trusts", "least"),
    [
        ([Trust.TRUSTED, Trust.TRUSTED], Trust.TRUSTED),
        ([Trust.TRUSTED, Trust.WORKSPACE], Trust.WORKSPACE),
        ([Trust.EXTERNAL, Trust.WORKSPACE], Trust.EXTERNAL),
    ],
)
def test_a_summary_is_believed_as_the_least_of_what_it_was_made_from(trusts: list[Trust], least: Trust) -> None:
    """BR-180: the label survives a compaction, and the next one too."""
    conversation = Conversation([said("x" * 900, trust=trust) for trust in trusts])
    made = summary_for(conversation, 0.0, owed=False)
    assert made is not None
    assert made.trust is least
    conversation.extend([made, said("y" * 900)])
    again = summary_for(conversation, 0.0, owed=False)
    assert again is not None
    assert again.trust is least


def test_con_4_core_what_is_taken_back_stands_nowhere_also_before_the_summary() -> None:
    """A pinned message that is taken back makes room for no other: what the next compaction keeps is what stands."""
    stored: list[Record] = [said("old", name="a", pinned=True), answer("x" * 90), said("more", name="b"), answer("y")]
    conversation = Conversation(stored)
    conversation.extend([SummaryRecord(TURN, "short", 2, (0,))])
    conversation.extend([NoteRecord(TURN, "failure", "given up", (MessageId("a"),))])
    assert [*entered([*stored, NoteRecord(TURN, "failure", "given up", (MessageId("a"),))])] == ["b"]
    kept = [record for record in conversation.window() if not isinstance(record, SummaryRecord)]
    assert said("more", name="b") in kept
    again = SummaryRecord(TURN, "shorter", 2, ())
    conversation.extend([again])
    assert [*conversation.window()] == [again, *kept]
