"""Chat completions, what is sent: a request as JSON bytes, joined from parts that were encoded before.

The messages are kept in the window's memo, under the model's id and profile: they live as long as the conversation,
are shared by all its windows, and need no bound of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from actors.errors import UsageError
from actors.ports import ANSWER_TOOL, ToolOffer

from .profile import OutputForm
from .wire_chat_messages import Messages, dumps
from .wire_json import as_map, decode_lenient

if TYPE_CHECKING:
    from actors.conversation import Window
    from actors.ports import ModelRequest, OutputOffer

    from .profile import ChatProfile

_ENCODER: Final = msgspec.json.Encoder()
_NO_BYTES: Final = b""
_ANSWER_SAID: Final = "Give your answer by calling this, alone, once you need no other call."
_ONLY_ANSWER: Final = {"type": "function", "function": {"name": ANSWER_TOOL}}
_IN_WORDS: Final = (
    "Your answer, once you need no other call, is one JSON value that fits this JSON Schema, and nothing else: "
)


class _Kept:
    """What is kept beside one conversation for one model: its messages, and the parts that seldom change."""

    __slots__ = ("instructions", "messages", "output", "output_json", "system", "tools", "tools_json")

    def __init__(self, messages: Messages) -> None:
        self.messages = messages
        self.instructions = ""
        self.system = _NO_BYTES
        self.tools: tuple[ToolOffer, ...] = ()
        self.tools_json = _NO_BYTES
        self.output: OutputOffer | None = None
        self.output_json = _NO_BYTES


class ChatEncoder:
    """Requests to JSON bytes for one model.

    Args:
        profile: the server's switches.
        origin: id of the model: its own reasoning is recognised by it (REQ-8).
    """

    def __init__(self, profile: ChatProfile, origin: str) -> None:
        self._profile = profile
        self._origin = origin
        self._key = f"openai-chat {origin} {profile!r}"
        self._extra = as_map(decode_lenient(profile.extra_body.encode()))

    def encode(self, request: ModelRequest) -> bytes:
        """The request's body; it costs what is new in the conversation, and joining bytes (TRN-1).

        Raises:
            UsageError: a schema is not JSON.
        """
        kept = self._kept(request.window)
        head = self._head(request, kept)
        instructions = request.instructions
        if request.output is not None and self._profile.output_form is OutputForm.PROMPT:
            words = _IN_WORDS + request.output.schema
            instructions = f"{instructions}\n\n{words}" if instructions else words
        if instructions != kept.instructions:
            kept.instructions = instructions
            kept.system = b"," + dumps({"role": self._profile.system_role, "content": instructions})
        entries = kept.messages.with_notes(request.notes)
        parts = [head[:-1], b',"messages":[', kept.system if instructions else b"", *entries, b"]}"]
        first = next((at for at in range(2, len(parts) - 1) if parts[at]), None)
        if first is not None:
            parts[first] = parts[first][1:]  # the first message has no comma before it
        return b"".join(parts)

    def _kept(self, window: Window) -> _Kept:
        found = window.memo.get(self._key)
        kept = found if isinstance(found, _Kept) else None
        if kept is None or kept.messages.count > len(window):
            fresh = _Kept(Messages(self._profile, self._origin))
            if kept is None:
                window.memo[self._key] = fresh  # an older window than the one kept is encoded for itself
            kept = fresh
        if kept.messages.count < len(window):
            kept.messages.extend(window[kept.messages.count :])
        return kept

    def _head(self, request: ModelRequest, kept: _Kept) -> bytes:
        """All but the messages."""
        profile = self._profile
        head: dict[str, object] = {"model": request.model, "stream": True}
        if profile.include_usage:
            head["stream_options"] = {"include_usage": True}
        output = request.output
        by_tool = output is not None and profile.output_form is OutputForm.TOOL
        tools = request.tools
        if output is not None and by_tool:
            tools = (*tools, ToolOffer(ANSWER_TOOL, _ANSWER_SAID, output.schema))
        if tools:
            if tools is not kept.tools and tools != kept.tools:
                kept.tools_json = self._tools(tools)
            kept.tools = tools
            head["tools"] = msgspec.Raw(kept.tools_json)
            if by_tool:
                head["tool_choice"] = "required" if request.tools and request.tool_choice != "none" else _ONLY_ANSWER
            elif request.tool_choice != "auto":
                head["tool_choice"] = request.tool_choice
        if output is not None and profile.output_form is OutputForm.SCHEMA:
            if output != kept.output:
                kept.output_json = self._output(output)
                kept.output = output
            head["response_format"] = msgspec.Raw(kept.output_json)
        if request.max_output_tokens is not None:
            head[profile.max_tokens_field] = request.max_output_tokens
        if request.effort is not None:
            head["reasoning_effort"] = request.effort
        if request.tier is not None:
            head["service_tier"] = request.tier
        head |= self._extra
        return _ENCODER.encode(head)

    def _tools(self, tools: tuple[ToolOffer, ...]) -> bytes:
        offered = []
        for tool in tools:
            function: dict[str, object] = {"name": tool.name, "description": tool.description}
            function["parameters"] = _schema(tool.schema, tool.name)
            offered.append({"type": "function", "function": function})
        return dumps(offered)

    def _output(self, output: OutputOffer) -> bytes:
        schema: dict[str, object] = {"name": output.name, "schema": _schema(output.schema, output.name)}
        if self._profile.strict_output:
            schema["strict"] = True
        return dumps({"type": "json_schema", "json_schema": schema})


def _schema(text: str, name: str) -> object:
    value = decode_lenient(text.encode())
    if not isinstance(value, dict):
        msg = f"the schema of {name} is to be the JSON text of an object; got {text[:200]!r}"
        raise UsageError(msg)
    return value
