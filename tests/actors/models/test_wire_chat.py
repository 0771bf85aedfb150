import hashlib
import json

import httpx
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.errors import Broken, ProviderError
from actors.models.http_chat import ChatModel, open_chat_model
from actors.models.profile import ChatProfile
from actors.models.spec import parse_model
from actors.models.wire_answer import Answer, BodyReader, End
from actors.models.wire_chat import ChatDecoder
from actors.ports import (
    ALIVE,
    PROGRESS,
    BlockDone,
    Piece,
    ReasoningPiece,
    ReportedUsage,
    TextPiece,
    ToolOffer,
    WireCall,
)
from actors.transcript import ReasoningBlock, Stop, TextBlock
from tests.actors.models.wire_chats import a_request
from tests.actors.models.wire_samples import Sample, SampleTransport, differences, neutral, read, samples

CHAT = [sample for sample in samples() if sample.protocol == "openai.chat"]
FEEDS = [pytest.param(sample, mode, id=f"{sample.file}-{mode}") for sample in CHAT for mode in sample.modes]


def chunk(delta: dict[str, object], finish: str | None = None, **more: object) -> bytes:
    """One chunk of a stream, as an event."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"model": "m", "choices": [choice], **more}).encode() + b"\n\n"


def answer_of(*parts: bytes, profile: ChatProfile | None = None, told: list[Piece] | None = None) -> Answer:
    """The answer of a stream that ends after these bytes."""
    pieces = [] if told is None else told
    decoder = ChatDecoder(
        profile or ChatProfile(), emit=pieces.append, origin="m", tools=(), new_id=lambda number: f"made-up-{number}"
    )
    reader = BodyReader(decoder, pieces.append, 1 << 20)
    for part in parts:
        if not decoder.over:
            reader.feed(part)
    return reader.close(End.EOF)


DONE = b"data: [DONE]\n\n"


# -- the samples ---------------------------------------------------------------------------------------------------


def test_the_samples_are_the_ones_that_were_written() -> None:
    """Every sample has the bytes of its digest, so no editor or checkout has changed a line end."""
    for sample in samples():
        assert hashlib.sha256(sample.data).hexdigest() == sample.sha256, sample.file


@pytest.mark.parametrize(("sample", "mode"), FEEDS)
def test_each_sample_becomes_its_neutral_answer(sample: Sample, mode: str) -> None:
    """What a server sent becomes the answer that the sample names, however the bytes are cut."""
    found = list(differences(sample.expected, neutral(read(sample, mode, []))))
    assert not found, f"{sample.quirk}: {found}"


@pytest.mark.parametrize(("sample", "mode"), FEEDS)
def test_the_pieces_of_each_sample_are_its_text(sample: Sample, mode: str) -> None:
    """CHAT-1, CHAT-2: the pieces, joined, are the answer's text, and so are the blocks called done, if it is whole."""
    told: list[Piece] = []
    answer = read(sample, mode, told)
    if not isinstance(answer, Answer):
        return
    text = "".join(block.text for block in answer.blocks if isinstance(block, TextBlock))
    assert "".join(piece.text for piece in told if isinstance(piece, TextPiece)) == text
    if answer.error is None:
        done = [piece.block for piece in told if isinstance(piece, BlockDone)]
        assert "".join(block.text for block in done if isinstance(block, TextBlock)) == text
        valid = [block for block in answer.blocks if isinstance(block, WireCall) and block.invalid is None]
        assert [block for block in done if isinstance(block, WireCall)] == valid


async def through_http(sample: Sample, mode: str) -> dict[str, object]:
    """The sample through the real client, with a timer around it as the gate has one."""
    transport = SampleTransport(sample, mode)
    async with httpx.AsyncClient(transport=transport) as client:
        model: ChatModel = open_chat_model(
            parse_model("openai-chat:m@http://127.0.0.1/v1"), key=None, profile=sample.profile, client=client
        )
        offers = tuple(ToolOffer(name, "", '{"type":"object"}') for name in sample.tools)
        result: dict[str, object]
        try:
            with trio.fail_after(30):
                result = neutral(await model.request(replace(a_request(), tools=offers), lambda piece: None))
        except ProviderError as error:
            result = neutral(error)
        except trio.TooSlowError:
            result = neutral(Broken("the stream stalled", reason="timeout"))
    assert transport.closed == 1, "the answer was closed, and closed one time"
    return result


@pytest.mark.parametrize(("sample", "mode"), FEEDS)
async def test_each_sample_through_the_client(sample: Sample, mode: str, autojump_clock: object) -> None:
    """HTTP-1, HTTP-3: over httpx each sample gives its response, or its typed error, and its connection is closed."""
    got = await through_http(sample, mode)
    expected = dict(sample.expected)
    if expected["error"] is not None:
        said = expected["error"]["message"]  # an error for people says more than the server's own words
        assert said == "@any" or said in str(got["error"])
        expected = {"stop": "error", "error": {**expected["error"], "message": "@any"}}
    found = list(differences(expected, got))
    assert not found, f"{sample.quirk}: {found}"


# -- beyond the samples --------------------------------------------------------------------------------------------


def test_q3_an_id_that_stands_at_two_indexes_is_two_calls() -> None:
    """P-ID: the second call of one id gets an id of its own, and arguments are never joined."""
    entry = {"id": "same", "function": {"name": "w", "arguments": '{"a":1}'}}
    answer = answer_of(
        chunk({"tool_calls": [{**entry, "index": 0}]}),
        chunk({"tool_calls": [{**entry, "index": 1}]}),
        chunk({}, "stop"),
    )
    assert [(call.wire_id, call.arguments) for call in answer.blocks if isinstance(call, WireCall)] == [
        ("same", '{"a":1}'),
        ("made-up-1", '{"a":1}'),
    ]


def test_q39_a_legacy_function_call_is_a_call() -> None:
    """P-LEGACY: its fragments are one call with an id that was made up."""
    answer = answer_of(
        chunk({"function_call": {"name": "w", "arguments": ""}}),
        chunk({"function_call": {"arguments": '{"a":1}'}}),
        chunk({}, "function_call"),
    )
    assert answer.blocks == (WireCall("made-up-0", "w", '{"a":1}'),)
    assert answer.stop is Stop.TOOL_CALLS


@pytest.mark.parametrize(
    ("arguments", "kept", "invalid"),
    [
        (None, "{}", None),
        ("null", "{}", None),
        (" \n", "{}", None),
        ("[1]", "[1]", "not_an_object"),
        ('"x"', '"x"', "not_an_object"),
        ('{"a":', '{"a":', "malformed_json"),
        ('{"a":NaN}', '{"a":NaN}', "malformed_json"),
        ('{"ä":"\u2028"}', '{"ä":"\u2028"}', None),
    ],
)
def test_q7_q8_arguments(arguments: str | None, kept: str, invalid: str | None) -> None:
    """P-ARGS: arguments are an object, or raw text with the reason why they may not run."""
    call = {"index": 0, "id": "a", "function": {"name": "w", "arguments": arguments}}
    answer = answer_of(chunk({"tool_calls": [call]}), chunk({}, "tool_calls"), DONE)
    assert answer.blocks == (WireCall("a", "w", kept, invalid),)


def test_q16_an_empty_unfinished_call_is_truncated() -> None:
    """P-ARGS: under max_tokens the last call without arguments is not whole, and an earlier one is."""
    first = {"index": 0, "id": "a", "function": {"name": "w", "arguments": ""}}
    last = {"index": 1, "id": "b", "function": {"name": "w", "arguments": ""}}
    answer = answer_of(chunk({"tool_calls": [first, last]}), chunk({}, "length"), DONE)
    assert [call.invalid for call in answer.blocks if isinstance(call, WireCall)] == [None, "truncated"]
    assert answer.stop is Stop.MAX_TOKENS


def test_q14_done_without_a_finish_reason_is_an_answer() -> None:
    """P-EOF: `[DONE]` behind content is proof enough."""
    answer = answer_of(chunk({"content": "Hi"}), DONE)
    assert (answer.stop, answer.error) == (Stop.END_TURN, None)


@pytest.mark.parametrize(
    "stream", [b"", b": x\n\n", DONE, chunk({"role": "assistant", "content": ""}), b"\xef\xbb\xbf"]
)
def test_q51_a_stream_without_content_is_an_empty_response(stream: bytes) -> None:
    """P-EMPTY: success with nothing in it is an error that may be retried, never an empty answer."""
    answer = answer_of(stream)
    assert answer.error is not None
    assert answer.error.kind == "empty_response"


def test_q18_reasoning_under_two_names_counts_once_and_its_details_are_kept() -> None:
    """The same reasoning under several names is one block, with its replay data whole again."""
    detail = {"type": "reasoning.text", "index": 0, "format": "f"}
    answer = answer_of(
        chunk({"reasoning": "Six ", "reasoning_content": "Six ", "reasoning_details": [{**detail, "text": "Six "}]}),
        chunk({"reasoning": "seven", "reasoning_details": [{**detail, "text": "seven", "signature": "s"}]}),
        chunk({"content": "42"}, "stop"),
    )
    opaque = {"reasoning_details": [{**detail, "text": "Six seven", "signature": "s"}]}
    reasoning = answer.blocks[0]
    assert isinstance(reasoning, ReasoningBlock)
    assert (reasoning.text, reasoning.origin, json.loads(reasoning.opaque or "")) == ("Six seven", "m", opaque)


def test_q19_a_closing_tag_alone_makes_what_came_before_it_reasoning() -> None:
    """P-THINK: a template that opened the tag itself does not turn reasoning into text."""
    answer = answer_of(
        chunk({"content": "Six by seven.</th"}),
        chunk({"content": "ink>\n42"}, "stop"),
        profile=ChatProfile(inline_think="tags"),
    )
    assert answer.blocks == (ReasoningBlock("Six by seven.", "m"), TextBlock("42"))


def test_q46_two_objects_in_one_line_are_both_taken() -> None:
    """P-GLUE."""
    glued = chunk({"content": "a"}).rstrip() + chunk({"content": "b"}, "stop").removeprefix(b"data: ")
    assert answer_of(glued).blocks == (TextBlock("ab"),)


def test_q43_a_last_event_that_is_cut_is_malformed_and_no_harm_behind_a_finish() -> None:
    """P-SSE-EOF: half an event breaks an answer, unless its end was seen."""
    half = b'data: {"choices":[{"ind'
    cut = answer_of(chunk({"content": "a"}), half)
    assert cut.error is not None
    assert cut.error.kind == "malformed_stream"
    assert answer_of(chunk({"content": "a"}, "stop"), half).error is None


def test_q33_what_comes_behind_a_finish_reason_counts() -> None:
    """P-AFTER-FINISH: a call behind the finish reason is a call, and the last reason is the one."""
    call = {"index": 0, "id": "a", "function": {"name": "w", "arguments": "{}"}}
    answer = answer_of(chunk({}, "stop"), chunk({"tool_calls": [call]}), chunk({}, "length"), DONE)
    assert [block.name for block in answer.blocks if isinstance(block, WireCall)] == ["w"]
    assert answer.stop is Stop.MAX_TOKENS


def test_a_character_whose_halves_come_in_two_deltas_is_whole() -> None:
    """Servers that cut by UTF-16 units send half a pair; no half reaches a reader."""
    told: list[Piece] = []
    answer = answer_of(
        b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\ude00"},"finish_reason":"stop"}]}\n\n',
        told=told,
    )
    assert answer.blocks == (TextBlock("a😀"),)
    assert [piece.text for piece in told if isinstance(piece, TextPiece)] == ["a", "😀"]


def test_usage_that_says_nothing_does_not_replace_what_is_known() -> None:
    """P-USAGE: an object of nulls is no news, and an unknown number stays unknown."""
    answer = answer_of(
        chunk({"content": "a"}, "stop", usage={"prompt_tokens": 3, "completion_tokens": 1.0, "total_tokens": 4}),
        chunk({}, usage={"prompt_tokens": None, "completion_tokens": None}),
        DONE,
    )
    assert answer.usage == ReportedUsage(input=3, output=1)


def test_req_5_comments_and_progress_are_told_apart() -> None:
    """A comment says only that the line is open; a call's arguments say that the model works."""
    told: list[Piece] = []
    call = {"index": 0, "id": "a", "function": {"name": "w", "arguments": "{}"}}
    answer_of(b": ping\n\n", chunk({"tool_calls": [call]}), chunk({"content": "x"}), chunk({}, "stop"), told=told)
    assert told[:4] == [ALIVE, PROGRESS, TextPiece("x"), PROGRESS]


def test_trn_8_a_block_is_done_when_the_next_channel_begins() -> None:
    """What an interrupted response keeps is told as soon as it is whole."""
    told: list[Piece] = []
    answer_of(
        chunk({"reasoning_content": "Hm"}),
        chunk({"content": "Text"}),
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "w", "arguments": "{}"}}]}),
        chunk({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "w", "arguments": "{"}}]}),
        told=told,
    )
    assert [piece.block for piece in told if isinstance(piece, BlockDone)] == [
        ReasoningBlock("Hm", "m"),
        TextBlock("Text"),
        WireCall("a", "w", "{}"),
    ]
    assert ReasoningPiece("Hm") in told


def test_q1_q50_fragments_find_their_call() -> None:
    """P-INDEX: without index and id, a name opens a call, and a name that comes late belongs to the open one."""
    answer = answer_of(
        chunk({"tool_calls": [{"function": {"arguments": '{"a":'}}]}),
        chunk({"tool_calls": [{"function": {"name": "one", "arguments": "1}"}}]}),
        chunk({"tool_calls": [{"function": {"name": "two", "arguments": "{}"}}, {"function": {}}, {"index": 9}, "x"]}),
        chunk({}, "stop"),
    )
    assert answer.blocks == (WireCall("made-up-0", "one", '{"a":1}'), WireCall("made-up-1", "two", "{}"))


def test_an_id_that_comes_late_belongs_to_its_call() -> None:
    """P-ID: the id that was made up when the call opened stays, and no second call opens."""
    answer = answer_of(
        chunk({"tool_calls": [{"index": 0, "function": {"name": "w", "arguments": '{"a":'}}]}),
        chunk({"tool_calls": [{"index": 0, "id": "late", "function": {"arguments": "1"}}]}),
        chunk({"tool_calls": [{"index": [], "id": "late", "function": {"arguments": "}"}}]}, "stop"),
    )
    assert answer.blocks == (WireCall("made-up-0", "w", '{"a":1}'),)


def test_p_index_an_id_that_was_seen_goes_before_its_index() -> None:
    """A fragment that names its call goes there, at whatever index it comes; one without an id goes by index."""
    answer = answer_of(
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "w", "arguments": '{"a":'}}]}),
        chunk({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "w", "arguments": '{"b":'}}]}),
        chunk({"tool_calls": [{"index": 1, "id": "a", "function": {"arguments": "1}"}}]}),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": "2}"}}]}, "stop"),
    )
    assert answer.blocks == (WireCall("a", "w", '{"a":1}'), WireCall("b", "w", '{"b":2}'))


def test_chat_2_text_that_goes_on_behind_a_call_is_told_done_once() -> None:
    """CHAT-2: all text is one block at the place where it began, and what was told done is not told again."""
    told: list[Piece] = []
    call = {"index": 0, "id": "a", "function": {"name": "w", "arguments": "{}"}}
    answer = answer_of(
        chunk({"content": "one "}), chunk({"tool_calls": [call]}), chunk({"content": "two"}, "stop"), told=told
    )
    assert answer.blocks == (TextBlock("one two"), WireCall("a", "w", "{}"))
    done = [piece.block for piece in told if isinstance(piece, BlockDone)]
    assert [block.text for block in done if isinstance(block, TextBlock)] == ["one ", "two"]


def test_doubled_ids_in_a_whole_body_are_two_calls() -> None:
    """P-ID: each entry of a whole message is a call of its own."""
    entry = {"id": "same", "function": {"name": "w", "arguments": {"a": 1}}}
    message = {"content": "x", "tool_calls": [entry, entry, 7], "function_call": {"name": "w", "arguments": "{}"}}
    answer = answer_of(json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode())
    assert [block.wire_id for block in answer.blocks if isinstance(block, WireCall)] == ["same", "made-up-1"]


def test_custom_tool_calls_are_kept_and_never_run() -> None:
    """A call of a kind that was not offered keeps its text."""
    custom = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "w", "input": "free text"}}
    assert answer_of(chunk({"tool_calls": [custom]}, "stop")).blocks == (WireCall("a", "w", "free text", "custom"),)
    body = {"choices": [{"message": {"tool_calls": [custom]}, "finish_reason": "stop"}]}
    assert answer_of(json.dumps(body).encode()).blocks == (WireCall("a", "w", "free text", "custom"),)


def test_q52_a_call_that_the_server_rejected_is_never_run() -> None:
    """The call is there, whole, and marked; the answer is an error worth asking again."""
    call = {"index": 0, "id": "a", "function": {"name": "w", "arguments": "{}"}}
    told: list[Piece] = []
    last = {"index": 0, "delta": {}, "finish_reason": "stop", "native_finish_reason": "UNEXPECTED_TOOL_CALL"}
    answer = answer_of(
        chunk({"tool_calls": [call]}), b"data: " + json.dumps({"choices": [last]}).encode() + b"\n\n", told=told
    )
    assert answer.blocks == (WireCall("a", "w", "{}", "rejected_by_model_server"),)
    assert answer.error is not None
    assert answer.error.kind == "malformed_tool_call"
    assert not [piece for piece in told if isinstance(piece, BlockDone)]


def test_q50_a_call_without_a_name_is_marked() -> None:
    """It is answered with an error result, and never run."""
    call = {"index": 0, "id": "a", "function": {"arguments": "{}"}}
    assert answer_of(chunk({"tool_calls": [call]}, "stop")).blocks == (WireCall("a", "", "{}", "no_name"),)


def test_p_cum_arguments_may_repeat_too() -> None:
    """With `cumulative`, arguments that repeat what came before are taken once."""
    parts = [{"index": 0, "id": "a", "function": {"name": "w", "arguments": text}} for text in ('{"a"', '{"a":1}')]
    chunks = [chunk({"tool_calls": [part]}) for part in parts]
    assert answer_of(*chunks, DONE, profile=ChatProfile(cumulative=True)).blocks == (WireCall("a", "w", '{"a":1}'),)


def test_q47_content_in_parts() -> None:
    """Text and thinking in a list are taken; a refusal is one; what is not known is left."""
    parts = [
        "a",
        {"type": "text", "text": "b"},
        {"text": "c"},
        {"type": "thinking", "thinking": "Hm"},
        {"type": "image"},
    ]
    answer = answer_of(chunk({"content": parts}), chunk({"content": [{"type": "refusal", "refusal": "No"}]}, "stop"))
    assert answer.blocks == (TextBlock("abcNo"), ReasoningBlock("Hm", "m"))
    assert answer.stop is Stop.REFUSAL


@pytest.mark.parametrize("reasoning", [{"text": "Hm"}, {"content": "Hm"}, {"summary": "Hm"}, "Hm"])
def test_q18_reasoning_may_be_an_object(reasoning: object) -> None:
    """Under whatever key its text is."""
    assert answer_of(chunk({"reasoning": reasoning}), chunk({}, "stop")).blocks == (ReasoningBlock("Hm", "m"),)


def test_q18_encrypted_reasoning_is_a_block_without_text() -> None:
    """It is kept for the next request, and its entries are not joined."""
    details = [{"type": "reasoning.encrypted", "data": "x"}, {"type": "reasoning.encrypted", "data": "y"}, {}]
    answer = answer_of(chunk({"reasoning_details": details}), chunk({"content": "42"}, "stop"))
    assert answer.blocks[0] == ReasoningBlock(
        "", "m", json.dumps({"reasoning_details": details[:2]}, separators=(",", ":"))
    )
    summary = [{"type": "reasoning.summary", "summary": "So."}]
    assert answer_of(chunk({"reasoning_details": summary}), DONE).blocks[0] == ReasoningBlock(
        "So.", "m", '{"reasoning_details":[{"type":"reasoning.summary","summary":"So."}]}'
    )


@pytest.mark.parametrize(
    ("event", "kind", "message"),
    [
        (b'event: error\ndata: {"message":"boom","code":"server_error"}\n\n', "server", "boom"),
        (b"event: error\ndata: it broke\n\n", "server", "it broke"),
        (b'event: error\ndata: "it broke"\n\n', "server", "it broke"),
        (b'data: [{"error":{"code":429,"message":"slow"}}]\n\n', "rate_limit", "slow"),
        (b'data: {"choices":[{"index":0,"error":{"code":502,"message":"up"}}]}\n\n', "server", "up"),
        (b'data: {"object":"error","message":"m","code":40303}\n\n', "server", "m"),
        (b'data: {"detail":"Not authenticated"}\n\n', "server", "Not authenticated"),
        (b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}\n\n', "server", "@any"),
    ],
)
def test_q28_q29_errors_in_a_stream_in_any_dress(event: bytes, kind: str, message: str) -> None:
    """An error inside a 200 answer is an error, and what follows it is not read."""
    answer = answer_of(event, chunk({"content": "more"}, "stop"))
    assert answer.error is not None
    assert answer.error.kind == kind
    assert message in {"@any", answer.error.message}


def test_q27_a_body_that_is_only_an_error_is_one() -> None:
    """JSON without choices where a stream was asked for is an error, not an empty answer."""
    error = answer_of(b'{"detail":"no"}').error
    assert error is not None
    assert (error.kind, error.message) == ("server", "no")


def test_q48_unknown_events_are_skipped() -> None:
    """Events that are no chunks change nothing."""
    unknown = b'event: ping\ndata: {"type":"ping"}\n\ndata: 7\n\ndata: {}\n\ndata:\n\ndata: {"choices":{}}\n\n'
    assert answer_of(unknown, chunk({"content": "a"}, "stop"), unknown).blocks == (TextBlock("a"),)


def test_a_message_in_a_chunk_is_taken_where_nothing_was_said() -> None:
    """Some servers send the whole message in place of a delta, or once more at the end."""
    last = b'data: {"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'
    assert answer_of(last).blocks == (TextBlock("Hi"),)
    assert answer_of(chunk({"content": "Hi"}), last).blocks == (TextBlock("Hi"),)


def test_half_a_character_at_the_end_is_replaced() -> None:
    """What cannot be encoded never leaves."""
    answer = answer_of(b'data: {"choices":[{"delta":{"content":"a\\ud83d"},"finish_reason":"stop"}]}\n\n')
    assert answer.blocks == (TextBlock("a\ufffd"),)


def test_the_whole_body_is_bounded() -> None:
    """A body without end, in one piece or in many, becomes an error and not endless memory."""
    for part in (b"{" + b" " * 4096, b"data: {}\n\n" * 400):
        told: list[Piece] = []
        decoder = ChatDecoder(ChatProfile(), emit=told.append, origin="m", tools=(), new_id=str)
        reader = BodyReader(decoder, told.append, 1 << 14)
        for _ in range(100):
            if not decoder.over:
                reader.feed(part)
        answer = reader.close(End.EOF)
        assert answer.error is not None
        assert answer.error.kind == "malformed_stream"


@pytest.mark.parametrize("cut", range(1, 30))
def test_p_think_wherever_the_tags_are_cut(cut: int) -> None:
    """Splitting changes nothing: not inside a tag, not at white space, not where a tag only seems to begin."""
    text = "a <b <think> x < y </thin \n</think>\n done <"
    whole = (TextBlock("a <b done <"), ReasoningBlock("x < y </thin", "m"))
    profile = ChatProfile(inline_think="tags")
    parts = [text[start : start + cut] for start in range(0, len(text), cut)]
    answer = answer_of(*(chunk({"content": part}) for part in parts), chunk({}, "stop"), profile=profile)
    assert answer.blocks == whole


def test_p_think_content_that_begins_inside() -> None:
    """Where the template has opened the tag, the content begins as reasoning."""
    answer = answer_of(chunk({"content": " Hm.\n</think>\n\n42"}, "stop"), profile=ChatProfile(inline_think="open"))
    assert answer.blocks == (ReasoningBlock("Hm.", "m"), TextBlock("42"))


KEYS = (
    "choices delta message content tool_calls function_call function name arguments id index finish_reason usage error"
    " reasoning reasoning_details type text refusal custom input code message x_groq prompt_tokens"
)
keys = st.sampled_from(sorted(set(KEYS.split())))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(keys, json_values, max_size=5), max_size=4), st.sampled_from(["sse", "json"]))
def test_no_json_of_any_shape_breaks_the_decoder(values: list[object], form: str) -> None:
    """Whatever JSON comes, in whatever shape, the result is an answer with a stop, and an error if that is `error`."""
    dumped = [json.dumps({"choices": [value], "more": value}).encode() for value in values]
    parts = [b"data: " + text + b"\n\n" for text in dumped] if form == "sse" else dumped[:1]
    answer = answer_of(*parts)
    assert (answer.stop is Stop.ERROR) == (answer.error is not None)
    ids = [block.wire_id for block in answer.blocks if isinstance(block, WireCall)]
    assert len(set(ids)) == len(ids)
    assert all(ids)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    """Whatever bytes come, the result is an answer or a typed problem."""
    answer = answer_of(data, data[:7])
    assert (answer.stop is Stop.ERROR) == (answer.error is not None)
