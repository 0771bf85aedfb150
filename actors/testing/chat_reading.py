"""A chat-completions request read back into a `ModelRequest`, checked as strictly as the real servers check it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs
import msgspec

from actors.content import File, Image, Text
from actors.conversation import Conversation
from actors.ids import AgentId, CallId, MessageId, RequestId, TurnId, agent_of
from actors.models.wire_chat_messages import NOTE_PREFIX, dumps
from actors.models.wire_json import as_list, as_map, as_text
from actors.ports import ModelRequest, OutputOffer, ToolOffer
from actors.transcript import (
    CallBlock,
    MessageRecord,
    NoteRecord,
    ReasoningBlock,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    Stop,
    TextBlock,
)

if TYPE_CHECKING:
    from actors.content import Content, Part
    from actors.transcript import Block, Record

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DATA_URL: Final = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")


class Refused(ValueError):
    """The request is one that a real server answers with 400; its text is the server's message."""


@attrs.frozen
class ChatAsked:
    """A request as it came: what the model is asked, and whether a stream is wanted."""

    request: ModelRequest
    stream: bool
    include_usage: bool


def problems_of(body: bytes) -> list[str]:
    """What a strict server would refuse in a request's body; empty for a good one."""
    try:
        read_request(body, "agent:t1.1")
    except Refused as error:
        return [str(error)]
    return []


def read_request(body: bytes, request_id: str) -> ChatAsked:
    """The request in a body.

    Args:
        body: as it came.
        request_id: of the `X-Client-Request-Id` header, such as `lead/reviewer#2:t1.3`: it names the agent.

    Raises:
        Refused: a real server would answer 400.
    """
    try:
        payload = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"the body is not JSON: {error}") from None
    fields = as_map(payload)
    model = as_text(fields.get("model"))
    messages = fields.get("messages")
    if not model:
        raise Refused("you must provide a model parameter")
    if not isinstance(messages, list) or not messages:
        raise Refused("messages must be an array of at least one message")
    tools = _tools(fields)
    turn = TurnId(request_id.rpartition(".")[0] or request_id)
    reader = _Reader(turn)
    for number, message in enumerate(messages):
        reader.message(number, as_map(message))
    reader.end()
    request = ModelRequest(
        id=RequestId(request_id),
        agent=AgentId(agent_of(request_id)),
        model=model,
        instructions=reader.instructions,
        window=Conversation(reader.records).window(),
        tools=tools,
        tool_choice=as_text(fields.get("tool_choice")) or "auto",
        output=_output(fields),
        notes=tuple(reader.notes),
        max_output_tokens=_count(fields, "max_tokens") or _count(fields, "max_completion_tokens"),
        effort=as_text(fields.get("reasoning_effort")) or None,
        tier=as_text(fields.get("service_tier")) or None,
    )
    usage = as_map(fields.get("stream_options")).get("include_usage") is True
    return ChatAsked(request, fields.get("stream") is True, usage)


class _Reader:
    """Messages to records, refusing what the API refuses: each call answered right behind its message, ids matching."""

    def __init__(self, turn: TurnId) -> None:
        self.instructions = ""
        self.records: list[Record] = []
        self.notes: list[str] = []  # the runtime's lines at the end
        self._turn = turn
        self._owed: dict[str, tuple[CallId, str]] = {}  # wire id -> call and name
        self._parent = -1

    def message(self, number: int, message: dict[str, object]) -> None:
        """Take one message in."""
        role = message.get("role")
        if role not in _ROLES:
            raise Refused(f"messages[{number}].role: {role!r} is not one of {', '.join(_ROLES)}")
        if role == "tool":
            self._result(number, message)
            return
        self._check_owed()
        if role == "assistant":
            self._settle_notes()
            self._assistant(number, message)
        elif role == "user":
            content = _content(number, message.get("content"))
            if len(content) == 1 and isinstance(first := content[0], Text) and first.text.startswith(NOTE_PREFIX):
                self.notes.append(first.text.removeprefix(NOTE_PREFIX))
                return
            self._settle_notes()
            self.records.append(MessageRecord(self._turn, MessageId(f"wire-{number}"), content))
        else:
            if number:
                raise Refused(f"messages[{number}]: a {role} message must come first")
            self.instructions = "".join(
                part.text for part in _content(number, message.get("content")) if isinstance(part, Text)
            )

    def end(self) -> None:
        """Check that nothing is owed at the end."""
        self._check_owed()

    def _check_owed(self) -> None:
        if self._owed:
            raise Refused(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
                f" 'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(self._owed)}"
                f" (messages[{self._parent}])"
            )

    def _settle_notes(self) -> None:
        """Lines that something stands behind are part of the conversation."""
        self.records += [NoteRecord(self._turn, "notice", note) for note in self.notes]
        self.notes.clear()

    def _assistant(self, number: int, message: dict[str, object]) -> None:
        blocks: list[Block] = []
        reasoning = as_text(message.get("reasoning_content"))
        details = message.get("reasoning_details")
        if reasoning or details:
            opaque = dumps({"reasoning_details": details}).decode() if details else None
            blocks.append(ReasoningBlock(reasoning, opaque=opaque))
        content = message.get("content")
        calls = message.get("tool_calls")
        if content is None and not calls:
            raise Refused(f"messages[{number}].content: null is only allowed beside tool_calls")
        if content == "":
            raise Refused(f"messages[{number}].content: empty; gateways refuse an empty text block")
        blocks += list(_texts(number, content))
        if calls is not None and not (isinstance(calls, list) and calls):
            raise Refused(f"messages[{number}].tool_calls: an array of at least one call is wanted")
        for place, entry in enumerate(as_list(calls)):
            blocks.append(self._call(number, place, as_map(entry)))
        self._parent = number
        stop = Stop.TOOL_CALLS if calls else Stop.END_TURN
        self.records.append(ResponseRecord(self._turn, tuple(blocks), stop, ""))

    def _call(self, number: int, place: int, entry: dict[str, object]) -> CallBlock:
        where = f"messages[{number}].tool_calls[{place}]"
        function = as_map(entry.get("function"))
        wire_id = as_text(entry.get("id"))
        name = as_text(function.get("name"))
        arguments = function.get("arguments")
        if entry.get("type") != "function":
            raise Refused(f"{where}.type: {entry.get('type')!r} is not 'function'")
        if not wire_id or len(wire_id) > 40:
            raise Refused(f"{where}.id: 1 to 40 characters are wanted, got {wire_id!r}")
        if wire_id in self._owed:
            raise Refused(f"{where}.id: {wire_id!r} stands twice")
        if not _NAME.fullmatch(name):
            raise Refused(f"{where}.function.name: {name!r} does not match ^[a-zA-Z0-9_-]{{1,64}}$")
        if not isinstance(arguments, str):
            raise Refused(f"{where}.function.arguments: a string is wanted, got {type(arguments).__name__}")
        try:
            value = msgspec.json.decode(arguments)
        except msgspec.DecodeError as error:
            raise Refused(f"{where}.function.arguments: not JSON: {error}") from None
        if not isinstance(value, dict):
            raise Refused(f"{where}.function.arguments: not an object: {arguments[:80]}")
        call = CallId(f"{self._turn}.w{number}.{place}")
        self._owed[wire_id] = (call, name)
        return CallBlock(call, wire_id, name, arguments)

    def _result(self, number: int, message: dict[str, object]) -> None:
        wire_id = as_text(message.get("tool_call_id"))
        if wire_id not in self._owed:
            raise Refused(
                f"messages[{number}]: messages with role 'tool' must be a response to a preceding message with"
                f" 'tool_calls'; {wire_id!r} is not asked for"
            )
        call, name = self._owed.pop(wire_id)
        content = _content(number, message.get("content"))
        if not all(isinstance(part, Text) for part in content):
            raise Refused(f"messages[{number}].content: a tool message holds text only")
        self.records.append(ResultRecord(self._turn, call, wire_id, name, ResultStatus.OK, content))


def _texts(number: int, content: object) -> list[TextBlock]:
    if content is None:
        return []
    return [TextBlock(part.text) for part in _content(number, content) if isinstance(part, Text)]


def _content(number: int, content: object) -> Content:
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, list) or not content:
        raise Refused(f"messages[{number}].content: text or an array of parts is wanted, got {content!r}")
    return tuple(_part(number, as_map(part)) for part in content)


def _part(number: int, part: dict[str, object]) -> Part:
    kind = part.get("type")
    if kind == "text" and isinstance(text := part.get("text"), str):
        return Text(text)
    if kind == "image_url" and isinstance(url := as_map(part.get("image_url")).get("url"), str):
        found = _DATA_URL.fullmatch(url)
        return Image(found[1], found[2]) if found else Image("", None, url)
    if kind == "file" and isinstance(data := as_map(part.get("file")).get("file_data"), str):
        found = _DATA_URL.fullmatch(data)
        if found:
            return File(as_text(as_map(part.get("file")).get("filename")), found[1], found[2])
    raise Refused(f"messages[{number}].content: a part of type {kind!r} is not understood: {part!r}"[:300])


def _tools(fields: dict[str, object]) -> tuple[ToolOffer, ...]:
    tools = fields.get("tools")
    if tools is None:
        if fields.get("tool_choice") is not None:
            raise Refused("'tool_choice' is only allowed when 'tools' are specified")
        return ()
    if not isinstance(tools, list) or not tools:
        raise Refused("tools: an array of at least one tool is wanted")
    offers = []
    for place, tool in enumerate(tools):
        function = as_map(as_map(tool).get("function"))
        name = as_text(function.get("name"))
        if not _NAME.fullmatch(name):
            raise Refused(f"tools[{place}].function.name: {name!r} does not match ^[a-zA-Z0-9_-]{{1,64}}$")
        schema = function.get("parameters")
        if not isinstance(schema, dict):
            raise Refused(f"tools[{place}].function.parameters: an object is wanted")
        offers.append(ToolOffer(name, as_text(function.get("description")), dumps(schema).decode()))
    if len({offer.name for offer in offers}) < len(offers):
        raise Refused("tools: a name stands twice")
    return tuple(offers)


def _output(fields: dict[str, object]) -> OutputOffer | None:
    schema = as_map(as_map(fields.get("response_format")).get("json_schema"))
    if not schema:
        return None
    if not _NAME.fullmatch(as_text(schema.get("name"))) or not isinstance(schema.get("schema"), dict):
        raise Refused("response_format.json_schema: a name and a schema are wanted")
    return OutputOffer(as_text(schema.get("name")), dumps(schema.get("schema")).decode())


def _count(fields: dict[str, object], name: str) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
