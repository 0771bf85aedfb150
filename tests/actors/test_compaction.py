"""How a compaction is written down, what a model is shown of the conversation, and what is taken for a summary."""

from __future__ import annotations

from typing import Any

import pytest

from actors.compaction import (
    DEFAULT_COMPACTION,
    PART_CHARS,
    Compaction,
    Plan,
    check_room,
    plan,
    request_bytes,
    summary_of,
    summary_request,
)
from actors.content import File, Image, Pinned, Text, Trust, as_content
from actors.conversation import Conversation
from actors.errors import UsageError
from actors.ids import AgentId, CallId, MessageId, TurnId
from actors.messages import Selection
from actors.ports import goes_along
from actors.transcript import (
    CallBlock,
    MessageRecord,
    NoteRecord,
    ReasoningBlock,
    Record,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    Stop,
    SummaryRecord,
    TextBlock,
)
from tests.actors.turnkit import served

TURN = TurnId("a:t2")
CALL = CallId("a:t2.1.0")
RECORDS: tuple[Record, ...] = (
    SummaryRecord(TURN, "all before", 0),
    MessageRecord(TURN, MessageId("m"), (Text("look at this"), Image("image/png", url="u")), AgentId("lead")),
    MessageRecord(TURN, MessageId("m2"), (File("f.txt", "text/plain", "aGk="),)),
    ResponseRecord(
        TURN,
        (ReasoningBlock("secret thoughts", "openai:m", "{}"), TextBlock("I will"), CallBlock(CALL, "w", "look", "{}")),
        Stop.TOOL_CALLS,
        "m",
    ),
    ResultRecord(TURN, CALL, "w", "look", ResultStatus.ERROR, (Text("not there"),)),
    NoteRecord(TURN, "limit", "few left"),
)
SHOWN = """\
[earlier]
The conversation before this point, summarised:
all before

[message from lead]
look at this
[image image/png]

[message from the user]
[file f.txt, text/plain]

[the agent said]
I will

[the agent called look]
{}

[look returned: error]
not there

[note of the runtime]
few left"""


@pytest.mark.parametrize(
    "wrong", [{"at": 0}, {"at": 1.01}, {"at": -1}, {"keep": 1}, {"keep": -0.1}, {"tokens": 0}], ids=str
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    """Shares are within their bounds; a summary has at least one token."""
    with pytest.raises(UsageError):
        Compaction(**wrong)


def test_a_threshold_needs_room_for_what_cannot_be_freed() -> None:
    """BR-121: only where a window is known and a threshold set; at the limit it is refused, below it is not."""
    check_room("a", Compaction(at=None), 10**9, 1_000)
    check_room("a", DEFAULT_COMPACTION, 10**9, None)
    check_room("a", Compaction(at=0.5), 499 * 4, 1_000)
    with pytest.raises(UsageError, match="agent 'a': its instructions and tools are about 500 tokens"):
        check_room("a", Compaction(at=0.5), 500 * 4, 1_000)


def shown(records: tuple[Record, ...], limit: int | None = None, cut: int | None = None) -> str:
    """What the model is shown of these records."""
    conversation = Conversation(records)
    chosen = Plan(len(records) if cut is None else cut, 9, (), 100, Trust.EXTERNAL, 3)
    request = summary_request(conversation, chosen, DEFAULT_COMPACTION, agent=AgentId("a"), turn=TURN, limit=limit)
    (record,) = request.window
    assert isinstance(record, MessageRecord)
    assert record.trust is Trust.EXTERNAL
    assert (request.purpose, request.tools, request.max_output_tokens) == ("compaction", (), 4_000)
    assert request.instructions == DEFAULT_COMPACTION.instructions
    assert request.id == f"a:t2.c{len(records)}"
    assert request.window.responses == conversation.window().responses
    (part,) = record.content
    assert isinstance(part, Text)
    return part.text


def test_req_8_the_model_is_shown_a_record_of_what_was_said() -> None:
    """As one text, which any model reads: no call without its tool, and no thought or opaque state crosses."""
    assert shown(RECORDS) == SHOWN
    assert shown(RECORDS, cut=1) == SHOWN.split("\n\n", 1)[0]


def test_long_parts_are_shown_from_both_ends() -> None:
    """A part over its length keeps its beginning and its end, and says how much is left out; the whole likewise."""
    long = "a" * PART_CHARS + "b" * PART_CHARS
    text = shown((MessageRecord(TURN, MessageId("m"), (Text(long),)),))
    assert text.startswith("[message from the user]\naaaa")
    assert text.endswith("bbbb")
    assert f"[... {PART_CHARS:,} characters left out ...]" in text
    assert len(text) < PART_CHARS + 100
    many = tuple(MessageRecord(TURN, MessageId(f"m{n}"), (Text("c" * 4_000),)) for n in range(20))
    assert len(shown(many, limit=10_000)) < 20_100 < len(shown(many))
    assert len(shown(many, limit=10)) >= PART_CHARS


def test_what_it_takes_is_estimated_by_what_it_replaces() -> None:
    """The gate is told about how large the request will be."""
    assert request_bytes(Plan(1, 1, (), 100, Trust.TRUSTED, 1), Compaction(instructions="x" * 7)) == 107


def test_reasoning_alone_is_nothing_to_show() -> None:
    """A response of thoughts only leaves no line."""
    assert shown((ResponseRecord(TURN, (ReasoningBlock("hm"),), Stop.END_TURN, "m"),)) == ""


@pytest.mark.parametrize("text", ["in short", " in short \n"])
def test_a_summary_is_the_text_of_the_answer(text: str) -> None:
    """Its blocks of text, without the blanks around; reasoning is left out."""
    chosen = Plan(3, 7, (1, 2), 1_000, Trust.WORKSPACE, 5)
    made = summary_of(chosen, served(ReasoningBlock("hm"), text), TURN)
    assert isinstance(made, SummaryRecord)
    assert (made.text, made.upto, made.pinned, made.responses, made.trust) == (
        "in short",
        7,
        (1, 2),
        5,
        Trust.WORKSPACE,
    )


def test_a_summary_must_be_smaller_than_what_it_replaces() -> None:
    """At nine tenths it is taken, over them it is not."""
    size = len(SummaryRecord(TURN, "x" * 100, 1).shown) + 24
    for replaces, kind in ((size * 10 // 9 + 1, SummaryRecord), (size, str)):
        assert isinstance(summary_of(Plan(1, 1, (), replaces, Trust.TRUSTED, 1), served("x" * 100), TURN), kind)


def test_a_summary_counts_the_responses_that_were_given_before() -> None:
    """Kept ones are not counted twice, the summary itself once."""
    said = [ResponseRecord(TURN, (TextBlock("x" * 400),), Stop.END_TURN, "m") for _ in range(6)]
    chosen = plan(Conversation(said), 0.4, owed=False)
    assert chosen is not None
    assert (chosen.cut, chosen.responses) == (4, 5)


def test_a_hand_over_note_and_an_empty_one_are_shown_as_such() -> None:
    """The model is told whose words these are; nothing said is nothing shown."""
    assert SummaryRecord(TURN, "mind the gap", 1, handover=True).shown.endswith("hand-over note:\nmind the gap")
    assert SummaryRecord(TURN, "", 1, handover=True).shown == ""


def test_a_pinned_message_has_the_content_it_wraps() -> None:
    """What can be sent can be pinned."""
    assert as_content(Pinned("x")) == (Text("x"),)
    assert as_content(Pinned(["x", Text("y")])) == (Text("x"), Text("y"))
    with pytest.raises(UsageError):
        as_content(Pinned(1))


def test_choices_follow_each_other() -> None:
    """None leaves a choice, text changes it, empty text takes it back."""
    first = Selection("m", "high", None)
    assert first.then(None) is first
    assert first.then(Selection()) == first
    assert first.then(Selection(effort="", tier="flex")) == Selection("m", None, "flex")
    assert first.then(Selection(model="")) == Selection(None, "high")
    assert Selection().then(Selection("n", "low", "")) == Selection("n", "low", None)


class Choosy:
    """A model that may say whose conversations it goes along with."""

    free, name, context_window = True, "m", None

    def __init__(self, identity: str, *agrees: str) -> None:
        self.id = identity
        if agrees:
            self.compatible_with = lambda other: other.id in agrees


def test_sel_2_models_go_along_unless_one_of_them_says_otherwise() -> None:
    """Neither says a thing: yes; either refuses: no."""
    plain, other = Choosy("plain"), Choosy("other")
    strict, friend = Choosy("strict", "friend"), Choosy("friend", "strict", "plain")
    assert goes_along(plain, other)  # type: ignore[arg-type]  # all that is asked of it is here
    assert goes_along(strict, friend)  # type: ignore[arg-type]  # likewise
    assert goes_along(plain, friend)  # type: ignore[arg-type]  # likewise
    assert not goes_along(plain, strict)  # type: ignore[arg-type]  # likewise
    assert not goes_along(strict, plain)  # type: ignore[arg-type]  # likewise
