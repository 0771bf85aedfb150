import json
from typing import Any

import pytest

from actors.content import File, Image, Text
from actors.testing.chat_reading import problems_of, read_request
from actors.transcript import MessageRecord, NoteRecord, ReasoningBlock, ResponseRecord, ResultRecord

CALL = {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{}"}}
USER = {"role": "user", "content": "Hello?"}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWERS = {"role": "tool", "tool_call_id": "a", "content": "2"}
TOOL = {"type": "function", "function": {"name": "add", "description": "d", "parameters": {"type": "object"}}}


def body_of(*messages: object, **more: Any) -> bytes:
    """A request's body."""
    return json.dumps({"model": "m", "stream": True, "messages": list(messages), **more}).encode()


def changed(**function: Any) -> dict[str, Any]:
    """The call, changed."""
    return {**ASKS, "tool_calls": [{**CALL, "function": {**CALL["function"], **function}}]}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "model"),
        (json.dumps({"model": "m"}).encode(), "messages"),
        (body_of(), "messages"),
        (body_of({"role": "robot", "content": "x"}), "is not one of"),
        (body_of(USER, {"role": "system", "content": "x"}), "must come first"),
        (body_of({"role": "user", "content": None}), "text or an array"),
        (body_of({"role": "user", "content": []}), "text or an array"),
        (body_of({"role": "user", "content": [{"type": "audio"}]}), "not understood"),
        (body_of({"role": "user", "content": [{"type": "file", "file": {"file_data": "x"}}]}), "not understood"),
        (body_of(USER, {"role": "assistant", "content": None}), "null is only allowed"),
        (body_of(USER, {"role": "assistant", "content": ""}), "empty"),
        (body_of(USER, {"role": "assistant", "content": "x", "tool_calls": []}), "at least one call"),
        (body_of(USER, ASKS), "did not have response messages: a"),
        (body_of(USER, ASKS, USER), "did not have response messages: a"),
        (body_of(USER, ASKS, USER, ANSWERS), "did not have response messages: a"),
        (body_of(USER, ANSWERS), "must be a response to a preceding message"),
        (body_of(USER, ASKS, ANSWERS, ANSWERS), "must be a response to a preceding message"),
        (body_of(USER, ASKS, {**ANSWERS, "tool_call_id": "b"}), "must be a response to a preceding message"),
        (body_of(USER, ASKS, {**ANSWERS, "content": [{"type": "image_url", "image_url": {"url": "x"}}]}), "text only"),
        (body_of(USER, {**ASKS, "tool_calls": [CALL, CALL]}, ANSWERS), "stands twice"),
        (body_of(USER, {**ASKS, "tool_calls": [{**CALL, "id": ""}]}, ANSWERS), "1 to 40"),
        (body_of(USER, {**ASKS, "tool_calls": [{**CALL, "id": "x" * 41}]}, ANSWERS), "1 to 40"),
        (body_of(USER, {**ASKS, "tool_calls": [{**CALL, "type": "x"}]}, ANSWERS), "not 'function'"),
        (body_of(USER, changed(name="a b"), ANSWERS), "does not match"),
        (body_of(USER, changed(arguments={}), ANSWERS), "a string is wanted"),
        (body_of(USER, changed(arguments=""), ANSWERS), "not JSON"),
        (body_of(USER, changed(arguments="[]"), ANSWERS), "not an object"),
        (body_of(USER, tools=[]), "at least one tool"),
        (body_of(USER, tool_choice="auto"), "only allowed when"),
        (body_of(USER, tools=[TOOL, TOOL]), "stands twice"),
        (body_of(USER, tools=[{"function": {"name": "a b"}}]), "does not match"),
        (body_of(USER, tools=[{"function": {"name": "a"}}]), "an object is wanted"),
        (body_of(USER, response_format={"json_schema": {"name": "a b", "schema": {}}}), "a name and a schema"),
    ],
)
def test_what_a_real_server_refuses_is_refused(body: bytes, says: str) -> None:
    """Each way in which a conversation or a request is invalid is named, as the API names it."""
    assert [says in problem for problem in problems_of(body)] == [True]


def test_a_request_is_read_back() -> None:
    """What a request says about agent, conversation, tools and limits stands in what the model is asked."""
    url = {"type": "image_url", "image_url": {"url": "http://h/i.png"}}
    inline = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    file = {"type": "file", "file": {"filename": "f", "file_data": "data:text/plain;base64,AA"}}
    asked = read_request(
        body_of(
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "see"}, url, inline, file]},
            {"role": "user", "content": "[runtime] old"},
            {**ASKS, "content": "I add.", "reasoning_content": "Hm", "reasoning_details": [{"a": 1}]},
            ANSWERS,
            {"role": "user", "content": "[runtime] now"},
            tools=[TOOL],
            tool_choice="required",
            response_format={"type": "json_schema", "json_schema": {"name": "S", "schema": {"type": "object"}}},
            max_completion_tokens=9,
            reasoning_effort="low",
            service_tier="flex",
            stream_options={"include_usage": True},
        ),
        "lead/kid#2:t3.4",
    )
    request = asked.request
    assert (asked.stream, asked.include_usage) == (True, True)
    assert (request.agent, request.instructions, request.notes) == ("lead/kid#2", "Be brief.", ("now",))
    assert (request.tool_choice, request.max_output_tokens, request.effort, request.tier) == (
        "required",
        9,
        "low",
        "flex",
    )
    assert [tool.name for tool in request.tools] == ["add"]
    assert request.output is not None
    said, note, answered, result = request.window
    assert isinstance(said, MessageRecord)
    parts = (Text("see"), Image("", None, "http://h/i.png"), Image("image/png", "AA"), File("f", "text/plain", "AA"))
    assert said.content == parts
    assert isinstance(note, NoteRecord)
    assert isinstance(answered, ResponseRecord)
    assert answered.blocks[0] == ReasoningBlock("Hm", opaque='{"reasoning_details":[{"a":1}]}')
    assert isinstance(result, ResultRecord)
    assert result.call == answered.calls[0].id
