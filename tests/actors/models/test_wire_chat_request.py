import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.content import File, Image, Text
from actors.conversation import Conversation
from actors.errors import UsageError
from actors.ids import AgentId, CallId, MessageId, RequestId, TurnId
from actors.models.profile import ChatProfile, EchoReasoning, OutputForm
from actors.models.wire_chat_messages import made_up_id, wire_id
from actors.models.wire_chat_request import ChatEncoder
from actors.ports import ANSWER_TOOL, ModelRequest, OutputOffer, ToolOffer
from actors.testing.chat_reading import problems_of, read_request
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
    TextBlock,
    problems,
)

T1, T2 = TurnId("lead:t1"), TurnId("lead:t2")
ADD = ToolOffer("add", "Add two numbers.", '{"type":"object","properties":{"a":{"type":"integer"}}}')


def message(text: str, turn: TurnId = T1) -> MessageRecord:
    """A user's message."""
    return MessageRecord(turn, MessageId("m"), (Text(text),))


def response(
    *blocks: TextBlock | ReasoningBlock | CallBlock, turn: TurnId = T1, stop: Stop = Stop.END_TURN
) -> ResponseRecord:
    """What the model said."""
    return ResponseRecord(turn, blocks, stop, "m")


def call(number: int, arguments: str = '{"a":1}', **more: Any) -> CallBlock:
    """A call."""
    return CallBlock(CallId(f"c{number}"), f"call_{number}", more.pop("name", "add"), arguments, **more)


def result(number: int, text: str = "2", turn: TurnId = T1) -> ResultRecord:
    """Its result."""
    return ResultRecord(turn, CallId(f"c{number}"), f"call_{number}", "add", ResultStatus.OK, (Text(text),))


def request(conversation: Conversation, **more: Any) -> ModelRequest:
    """A request on a conversation."""
    return ModelRequest(RequestId("lead:t1.1"), AgentId("lead"), "m-1", "Be brief.", conversation.window(), **more)


def sent(*records: Record, profile: ChatProfile | None = None, **more: Any) -> dict[str, Any]:
    """What is sent for a conversation."""
    encoder = ChatEncoder(profile or ChatProfile(), "here")
    body = encoder.encode(request(Conversation(records), **more))
    found: dict[str, Any] = json.loads(body)
    return found


def test_a_whole_request() -> None:
    """The golden form: instructions, conversation, notes, tools and limits, each in its place."""
    body = sent(
        message("2 + 3?"),
        response(ReasoningBlock("Hm.", "here"), TextBlock("Let me add."), call(1), stop=Stop.TOOL_CALLS),
        result(1),
        NoteRecord(T1, "limit", "two requests left"),
        tools=(ADD,),
        tool_choice="required",
        output=OutputOffer("Sum", '{"type":"object"}'),
        notes=("sum up now",),
        max_output_tokens=50,
        effort="low",
        tier="flex",
    )
    assert body == {
        "model": "m-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {"name": "add", "description": ADD.description,
                   "parameters": json.loads(ADD.schema)}}],
        "tool_choice": "required",
        "response_format": {"type": "json_schema", "json_schema": {"name": "Sum", "schema": {"type": "object"}}},
        "max_tokens": 50,
        "reasoning_effort": "low",
        "service_tier": "flex",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "2 + 3?"},
            {"role": "assistant", "content": "Let me add.", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "2"},
            {"role": "user", "content": "[runtime] two requests left"},
            {"role": "user", "content": "[runtime] sum up now"},
        ],
    }  # fmt: skip


def test_q69_content_is_null_beside_calls_and_never_empty() -> None:
    """Only calls: content is null; only white space counts as nothing; nothing at all is no message (TRN-6)."""
    body = sent(
        message("a"),
        response(TextBlock(" \n"), call(1)),
        result(1),
        response(ReasoningBlock("Hm", "here")),
        message("b"),
    )
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "tool", "user"]
    assert body["messages"][2]["content"] is None


@pytest.mark.parametrize(
    ("arguments", "invalid"), [("{", "malformed_json"), ("[1]", "not_an_object"), ("{", None), ("", None), ("[]", None)]
)
def test_invalid_arguments_are_replayed_as_an_empty_object(arguments: str, invalid: str | None) -> None:
    """Servers refuse a conversation whose arguments are not JSON of an object (Q7, Q8)."""
    body = sent(message("a"), response(call(1, arguments, invalid=invalid)), result(1))
    assert body["messages"][2]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("name", "shown"), [("", "unknown"), ("a.b c", "a_b_c"), ("x" * 80, "x" * 64), ("ok-1", "ok-1")]
)
def test_a_name_that_no_server_takes_is_made_takeable(name: str, shown: str) -> None:
    """What a model called wrongly stays in the conversation without making the next request invalid."""
    body = sent(message("a"), response(call(1, name=name, invalid="no_name")), result(1))
    assert body["messages"][2]["tool_calls"][0]["function"]["name"] == shown


def test_req_8_opaque_state_goes_back_to_its_origin_only() -> None:
    """Reasoning, its text and its replay data, is sent to the model that made it and to no other."""
    opaque = '{"reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]}'
    profile = ChatProfile(echo_reasoning="always")
    mine = sent(message("a"), response(ReasoningBlock("Hm", "here", opaque), TextBlock("b")), profile=profile)
    assert mine["messages"][2]["reasoning_details"] == [{"type": "reasoning.encrypted", "data": "x"}]
    assert mine["messages"][2]["reasoning_content"] == "Hm"
    other = sent(message("a"), response(ReasoningBlock("Hm", "there", opaque), TextBlock("b")), profile=profile)
    assert other["messages"][2] == {"role": "assistant", "content": "b"}


@pytest.mark.parametrize(
    ("echo", "old", "new"), [("never", False, False), ("within_turn", False, True), ("always", True, True)]
)
def test_q83_reasoning_text_is_echoed_as_the_profile_says(echo: str, old: bool, new: bool) -> None:  # noqa: FBT001
    """Within a turn it goes back until the turn is over."""
    conversation = Conversation([message("a"), response(ReasoningBlock("1", "here"), call(1)), result(1)])
    encoder = ChatEncoder(ChatProfile(echo_reasoning=EchoReasoning(echo)), "here")
    before = json.loads(encoder.encode(request(conversation)))["messages"]
    assert ("reasoning_content" in before[2]) == new
    conversation.extend([message("b", T2), response(ReasoningBlock("2", "here"), call(2), turn=T2), result(2, turn=T2)])
    after = json.loads(encoder.encode(request(conversation)))["messages"]
    assert ["reasoning_content" in m for m in after if m["role"] == "assistant"] == [old, new]


def test_trn_2_a_failure_note_is_dropped_once_its_turn_succeeds() -> None:
    """A failure is shown until a response of the same turn comes; an interrupted one is no success."""
    conversation = Conversation(
        [message("a"), NoteRecord(T1, "failure", "boom"), NoteRecord(T1, "notice", "by the way")]
    )
    encoder = ChatEncoder(ChatProfile(), "here")

    def said() -> list[str]:
        return [
            m["content"] for m in json.loads(encoder.encode(request(conversation)))["messages"] if m["role"] == "user"
        ]

    assert said() == ["a", "[runtime] boom", "[runtime] by the way"]
    conversation.extend([response(TextBlock("half", half=True), stop=Stop.INTERRUPTED)])
    assert said() == ["a", "[runtime] boom", "[runtime] by the way"]
    conversation.extend([response(TextBlock("other"), turn=T2)])
    assert said() == ["a", "[runtime] boom", "[runtime] by the way"]
    conversation.extend([response(TextBlock("done"))])
    assert said() == ["a", "[runtime] by the way"]


@pytest.mark.parametrize("merge", [False, True])
def test_trn_7_what_is_said_of_a_turns_bound_is_not_shown_behind_it(merge: bool) -> None:  # noqa: FBT001
    """BR-007: "answer now, without tools" is for the turn that has one call left, and for no later one."""
    conversation = Conversation([message("a"), response(call(1)), result(1), NoteRecord(T1, "limit", "no more tools")])
    encoder = ChatEncoder(ChatProfile(merge_user=merge), "here")

    def said() -> str:
        return encoder.encode(request(conversation)).decode()

    assert "no more tools" in said()
    conversation.extend([response(TextBlock("done"))])
    assert "no more tools" in said(), "the turn is not over: what was sent stays as it was"
    conversation.extend([message("b", T2)])
    assert "no more tools" not in said()
    assert problems_of(said().encode()) == []


def test_merge_user_makes_roles_alternate() -> None:
    """Consecutive user messages go as one, also where a note is dropped or a part is an image."""
    profile = ChatProfile(merge_user=True)
    body = sent(message("a"), NoteRecord(T1, "failure", "boom"), message('b"'), profile=profile, notes=("now",))
    assert [m["content"] for m in body["messages"]] == ["Be brief.", 'a\n\n[runtime] boom\n\nb"\n\n[runtime] now']
    body = sent(
        message("a"), NoteRecord(T1, "failure", "boom"), message("b"), response(TextBlock("c")), profile=profile
    )
    assert [m["content"] for m in body["messages"]] == ["Be brief.", "a\n\nb", "c"]
    picture = MessageRecord(T1, MessageId("m"), (Text("see"), Image("image/png", "AAAA")))
    body = sent(message("a"), picture, profile=profile)
    assert [part["type"] for part in body["messages"][1]["content"]] == ["text", "text", "image_url"]


def test_images_and_files_are_parts_and_follow_results() -> None:
    """Tool messages hold text only, so what a result shows follows the whole batch."""
    seen = replace(
        result(1), content=(Text("two pictures"), Image("image/png", "AAAA"), File("f.pdf", "application/pdf", "BB"))
    )
    body = sent(message("a"), response(call(1), call(2)), seen, result(2), response(TextBlock("ok")))
    roles = [m["role"] for m in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user", "assistant"]
    assert body["messages"][5]["content"] == [
        {"type": "text", "text": "From the result of add:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "file", "file": {"filename": "f.pdf", "file_data": "data:application/pdf;base64,BB"}},
    ]
    at_the_end = sent(message("a"), response(call(1), call(2)), seen, result(2))
    assert [m["role"] for m in at_the_end["messages"]] == roles[:-1]


def test_profile_switches() -> None:
    """Field names, roles and added fields are the profile's."""
    profile = ChatProfile(
        max_tokens_field="max_completion_tokens",
        system_role="developer",
        include_usage=False,
        strict_output=True,
        extra_body='{"temperature":0,"model":"other"}',
    )
    body = sent(message("a"), profile=profile, max_output_tokens=9, output=OutputOffer("S", '{"type":"object"}'))
    assert (body["max_completion_tokens"], body["temperature"], body["model"]) == (9, 0, "other")
    assert "max_tokens" not in body
    assert "stream_options" not in body
    assert body["response_format"]["json_schema"]["strict"] is True
    assert body["messages"][0]["role"] == "developer"
    with pytest.raises(UsageError, match="extra_body"):
        ChatProfile(extra_body="[1]")
    with pytest.raises(UsageError, match="add"):
        sent(message("a"), tools=(replace(ADD, schema="{"),))


def test_q79_ids_are_mapped_for_servers_with_short_ones() -> None:
    """Both sides of a call map to the same nine letters and digits; ids that fit stay."""
    body = sent(message("a"), response(call(1), call(2)), result(1), result(2), profile=ChatProfile(short_ids=True))
    asked = [c["id"] for c in body["messages"][2]["tool_calls"]]
    assert asked == [m["tool_call_id"] for m in body["messages"][3:]]
    assert all(len(one) == 9 and one.isalnum() for one in asked)
    assert len(set(asked)) == 2
    assert wire_id("D681PevKs", short=True) == "D681PevKs"
    assert len(wire_id("x" * 60, short=False)) <= 40
    assert made_up_id("lead:t1.1", 0, short=False) != made_up_id("lead:t1.1", 1, short=False)


# -- any conversation ----------------------------------------------------------------------------------------------

TURNS = st.sampled_from([T1, T2])
TEXTS = st.text(max_size=12) | st.just("\ud83d half")
CONTENTS = st.lists(
    TEXTS.map(Text) | st.just(Image("image/png", "AAAA")) | st.just(Image("image/png", None, "http://h/i.png")),
    min_size=1, max_size=3,
).map(tuple)  # fmt: skip
ARGUMENTS = st.sampled_from(['{"a":1}', "{}", "{", "", "[1]", "null", '{"a":"\\ud83d"}', '{"ä":1}'])
NAMES = st.sampled_from(["add", "", "a.b", "x" * 70, "ü"])
IDS = st.sampled_from(["call_1", "x" * 60, "D681PevKs", "ü", "a b"])


@st.composite
def conversations(draw: st.DrawFn) -> list[Record]:
    """Valid conversations, of whatever content: each batch answered in order."""
    records: list[Record] = []
    for number in range(draw(st.integers(0, 6))):
        turn = draw(TURNS)
        kind = draw(st.sampled_from(["message", "note", "response", "batch"]))
        if kind == "message":
            records.append(MessageRecord(turn, MessageId(f"m{number}"), draw(CONTENTS)))
        elif kind == "note":
            records.append(NoteRecord(turn, draw(st.sampled_from(["failure", "limit"])), draw(TEXTS)))
        else:
            blocks: list[Any] = [ReasoningBlock(draw(TEXTS), draw(st.sampled_from(["here", "there"])))]
            blocks += [TextBlock(text) for text in draw(st.lists(TEXTS, max_size=2))]
            ids = draw(st.lists(IDS, max_size=3, unique=True)) if kind == "batch" else []
            calls = [
                CallBlock(CallId(f"c{number}.{place}"), one, draw(NAMES), draw(ARGUMENTS))
                for place, one in enumerate(ids)
            ]
            stop = draw(st.sampled_from([Stop.END_TURN, Stop.INTERRUPTED, Stop.MAX_TOKENS]))
            records.append(ResponseRecord(turn, (*blocks, *calls), stop, "m"))
            records += [
                ResultRecord(turn, one.id, one.wire_id, one.name, ResultStatus.OK, draw(CONTENTS)) for one in calls
            ]
    return records


PROFILES = st.builds(
    ChatProfile,
    merge_user=st.booleans(), short_ids=st.booleans(), echo_reasoning=st.sampled_from(EchoReasoning),
)  # fmt: skip


@given(conversations(), PROFILES, st.lists(TEXTS, max_size=2).map(tuple))
def test_a_valid_conversation_is_one_that_a_strict_server_takes(
    records: list[Record], profile: ChatProfile, notes: tuple[str, ...]
) -> None:
    """TRN-2: whatever stands in a valid conversation, what is sent of it is valid too."""
    assert problems(records) == []
    body = ChatEncoder(profile, "here").encode(request(Conversation(records), notes=notes, tools=(ADD,)))
    assert problems_of(body) == []
    if profile.merge_user:
        roles = [m["role"] for m in json.loads(body)["messages"]]
        assert all(not a == b == "user" for a, b in itertools.pairwise(roles))


@given(conversations(), PROFILES, st.data())
def test_trn_1_what_is_kept_gives_what_encoding_anew_gives(
    records: list[Record], profile: ChatProfile, data: st.DataObject
) -> None:
    """A conversation that grew request by request is sent as one encoded from its start; old windows too."""
    encoder = ChatEncoder(profile, "here")
    conversation = Conversation()
    windows = []
    cuts = sorted(data.draw(st.sets(st.integers(0, len(records)))))
    for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
        conversation.extend(records[start:end])
        windows.append(request(conversation))
        assert encoder.encode(windows[-1]) == ChatEncoder(profile, "here").encode(request(Conversation(records[:end])))
    for one in windows:
        again = request(Conversation(records[: len(one.window)]))
        assert encoder.encode(one) == ChatEncoder(profile, "here").encode(again)


def test_trn_1_a_record_is_encoded_when_it_is_first_met() -> None:
    """What a second request costs is what is new: the messages of the first are kept, not made again."""
    conversation = Conversation([message("a" * 100), response(TextBlock("b"))])
    encoder = ChatEncoder(ChatProfile(), "here")
    encoder.encode(request(conversation))
    kept = next(iter(conversation.window().memo.values()))
    before = list(kept.messages.entries)  # type: ignore[attr-defined]  # a look inside
    conversation.extend([message("c")])
    encoder.encode(request(conversation))
    after = kept.messages.entries  # type: ignore[attr-defined]
    assert all(one is other for one, other in zip(before, after, strict=False))
    assert len(after) == 3


@given(conversations())
def test_the_server_reads_back_what_was_sent(records: list[Record]) -> None:
    """The records that a test server hands its model are the ones that were sent, as far as the wire can tell."""
    asked = read_request(ChatEncoder(ChatProfile(), "here").encode(request(Conversation(records))), "lead/kid#2:t3.4")
    assert (asked.request.agent, asked.request.id) == ("lead/kid#2", "lead/kid#2:t3.4")
    assert problems(asked.request.window) == []
    sent_results = [record for record in records if isinstance(record, ResultRecord)]
    assert len([record for record in asked.request.window if isinstance(record, ResultRecord)]) == len(sent_results)


OWED = OutputOffer("Sum", '{"type":"object","properties":{"total":{"type":"integer"}}}')


def test_an_answer_by_tool_is_asked_for_as_one() -> None:
    """It is offered behind the tools and something must be called; alone, or with no tools, it must be."""
    profile = ChatProfile(output_form=OutputForm.TOOL)
    both = sent(message("go"), profile=profile, tools=(ADD,), output=OWED)
    assert [tool["function"]["name"] for tool in both["tools"]] == ["add", ANSWER_TOOL]
    assert both["tools"][1]["function"]["parameters"] == json.loads(OWED.schema)
    assert both["tool_choice"] == "required"
    only = {"type": "function", "function": {"name": ANSWER_TOOL}}
    assert sent(message("go"), profile=profile, output=OWED)["tool_choice"] == only
    assert sent(message("go"), profile=profile, tools=(ADD,), tool_choice="none", output=OWED)["tool_choice"] == only
    assert "response_format" not in both
    assert "tool_choice" not in sent(message("go"), profile=profile, tools=(ADD,))


def test_an_answer_by_prompt_is_asked_for_in_words() -> None:
    """The schema stands behind the instructions, and nowhere else; without a type nothing is added."""
    profile = ChatProfile(output_form=OutputForm.PROMPT)
    body = sent(message("go"), profile=profile, output=OWED)
    said = body["messages"][0]["content"]
    assert said.startswith("Be brief.\n\n")
    assert said.endswith(OWED.schema)
    assert not body.keys() & {"response_format", "tools"}
    assert sent(message("go"), profile=profile)["messages"][0]["content"] == "Be brief."


def test_the_form_of_an_answer_is_one_that_is_known() -> None:
    """Another word is refused where it is written."""
    with pytest.raises(ValueError, match="xml"):
        ChatProfile(output_form="xml")
