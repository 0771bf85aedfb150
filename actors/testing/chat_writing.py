"""A model's answer written as chat-completions chunks, and its errors as HTTP answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from actors.models.wire_chat_messages import dumps
from actors.ports import BlockDone, ReasoningPiece, TextPiece, WireCall
from actors.transcript import ReasoningBlock, Stop, TextBlock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.errors import ProviderError
    from actors.ports import Piece, ReportedUsage, Response

_FINISH: Final[Mapping[Stop, str]] = {
    Stop.TOOL_CALLS: "tool_calls",
    Stop.MAX_TOKENS: "length",
    Stop.CONTENT_FILTER: "content_filter",
    Stop.ERROR: "error",
}
_STATUS: Final[Mapping[str, tuple[int, str]]] = {
    "context_overflow": (400, "context_length_exceeded"),
    "request_too_large": (413, "request_too_large"),
    "invalid_request": (400, "invalid_request_error"),
    "content_filter": (400, "content_filter"),
    "auth": (401, "invalid_api_key"),
    "permission": (403, "permission_denied"),
    "not_found": (404, "model_not_found"),
    "quota": (429, "insufficient_quota"),
    "conflict": (409, "conflict_error"),
    "rate_limit": (429, "rate_limit_exceeded"),
    "overloaded": (503, "server_is_overloaded"),
    "server": (500, "server_error"),
    "timeout": (504, "timeout_error"),
    "malformed_tool_call": (400, "tool_use_failed"),
}
_BY_KIND: Final[Mapping[str, str]] = {"overloaded": "server", "context_overflow": "context_overflow"}
ARGUMENT_CHARS: Final = 24
"""How much of a call's arguments goes into one chunk."""


class ChunkWriter:
    """Pieces to chunks; what the pieces left out of the answer follows at its end.

    Args:
        model: as the chunks name it. number: of the request, for the chunks' id.
    """

    def __init__(self, model: str, number: int) -> None:
        self._head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 0, "model": model}
        self._text = 0  # characters sent
        self._reasoning = 0
        self._calls: list[WireCall] = []

    def begin(self) -> bytes:
        """The first chunk: it names the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> bytes:
        """The chunks of one piece; a comment for a mere sign of life."""
        match piece:
            case TextPiece(text=text):
                self._text += len(text)
                return self._chunk({"content": text})
            case ReasoningPiece(text=text):
                self._reasoning += len(text)
                return self._chunk({"reasoning_content": text})
            case BlockDone(block=WireCall() as call):
                return self._call(call)
            case BlockDone():
                return b""
            case _:
                return b": alive\n\n"

    def end(self, response: Response, *, usage: bool) -> bytes:
        """The rest of the answer, its end, and its usage if that is wanted and known."""
        reasoning = "".join(block.text for block in response.blocks if isinstance(block, ReasoningBlock))
        text = "".join(block.text for block in response.blocks if isinstance(block, TextBlock))
        calls = [block for block in response.blocks if isinstance(block, WireCall)]
        out = []
        if len(reasoning) > self._reasoning:
            out.append(self._chunk({"reasoning_content": reasoning[self._reasoning :]}))
        out += [
            self._chunk(_details(block.opaque))
            for block in response.blocks
            if isinstance(block, ReasoningBlock) and block.opaque is not None
        ]
        if len(text) > self._text:
            field = "refusal" if response.stop is Stop.REFUSAL else "content"
            out.append(self._chunk({field: text[self._text :]}))
        elif response.stop is Stop.REFUSAL:
            out.append(self._chunk({}, finish="refusal"))
        out += [self._call(call) for call in calls[len(self._calls) :]]
        out.append(self._chunk({}, finish=_FINISH.get(response.stop, "stop")))
        if usage and response.usage is not None:
            out.append(_event({**self._head, "choices": [], "usage": usage_json(response.usage)}))
        out.append(b"data: [DONE]\n\n")
        return b"".join(out)

    def _call(self, call: WireCall) -> bytes:
        index = len(self._calls)
        self._calls.append(call)
        opening: dict[str, object] = {"index": index, "id": call.wire_id, "type": "function"}
        opening["function"] = {"name": call.name or None, "arguments": ""}
        out = [self._chunk({"tool_calls": [opening]})]
        for at in range(0, len(call.arguments), ARGUMENT_CHARS):
            part = {"index": index, "function": {"arguments": call.arguments[at : at + ARGUMENT_CHARS]}}
            out.append(self._chunk({"tool_calls": [part]}))
        return b"".join(out)

    def _chunk(self, delta: dict[str, object], *, finish: str | None = None) -> bytes:
        return _event({**self._head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _event(value: object) -> bytes:
    return b"data: " + dumps(value) + b"\n\n"


def _details(opaque: str) -> dict[str, object]:
    value = msgspec.json.decode(opaque)
    return value if isinstance(value, dict) else {}


def usage_json(usage: ReportedUsage) -> dict[str, object]:
    """Usage as the wire has it; a number that is not known is left out."""
    found: dict[str, object] = {}
    if usage.input is not None:
        found["prompt_tokens"] = usage.input
    if usage.output is not None:
        found["completion_tokens"] = usage.output
    prompt = {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_write}
    if known := {key: value for key, value in prompt.items() if value is not None}:
        found["prompt_tokens_details"] = known
    if usage.reasoning is not None:
        found["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return found


def error_json(error: ProviderError) -> tuple[int, list[tuple[str, str]], bytes]:
    """Status, headers and body by which a client recognises the error."""
    reason = error.reason if error.reason in _STATUS else _BY_KIND.get(error.kind, "invalid_request")
    status, code = _STATUS[reason]
    headers = [("content-type", "application/json")]
    if error.retry_after_s is not None:
        headers.append(("retry-after-ms", f"{error.retry_after_s * 1000:.0f}"))
    body = {"error": {"message": str(error), "type": code, "param": None, "code": error.code or code}}
    return error.status or status, headers, dumps(body)


def error_event(error: ProviderError) -> bytes:
    """The error inside a stream that began well."""
    return _event(msgspec.json.decode(error_json(error)[2]))
