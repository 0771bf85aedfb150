"""Chat completions, what comes back: streams and whole bodies to one neutral answer.

By the policies P-… of `tests/wire/samples/README.md`; sources: OpenAI's API reference and the compatible servers'
behaviour, read 2026-11-29. It knows no transport: bytes go in, pieces go to `emit`, an `Answer` comes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.ports import BlockDone
from actors.transcript import Stop

from .wire_answer import Answer, End
from .wire_calls import Calls, Cut, OpenCall
from .wire_errors import Problem, classify_event, looks_like_error, problem
from .wire_json import NotJson, as_list, as_map, as_text, decode_all
from .wire_said import Said
from .wire_think import ThinkSplitter
from .wire_usage import usage_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from actors.ports import Emit, ReportedUsage

    from .profile import ChatProfile

_STOPS: Final[Mapping[str, Stop]] = {
    "stop": Stop.END_TURN,
    "eos": Stop.END_TURN,
    "end_turn": Stop.END_TURN,
    "length": Stop.MAX_TOKENS,
    "max_tokens": Stop.MAX_TOKENS,
    "model_length": Stop.MAX_TOKENS,
    "tool_calls": Stop.TOOL_CALLS,
    "function_call": Stop.TOOL_CALLS,
    "content_filter": Stop.CONTENT_FILTER,
    "refusal": Stop.REFUSAL,
    "error": Stop.ERROR,
    "insufficient_system_resource": Stop.ERROR,
}
_REJECTED: Final = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"})
_CUT_SHORT: Final = frozenset({Stop.MAX_TOKENS, Stop.CONTENT_FILTER, Stop.REFUSAL, Stop.ERROR})


class ChatDecoder:
    """Chunks of one answer, folded.

    Args:
        emit: gets pieces as they come.
        origin: id of the model, kept with its reasoning.
        tools: names that were offered.
        new_id: makes the id of the n-th call, from 0, that came without one.
    """

    def __init__(
        self,
        profile: ChatProfile,
        *,
        emit: Emit,
        origin: str,
        tools: Collection[str],
        new_id: Callable[[int], str],
    ) -> None:
        self._emit = emit
        self._tools = tools
        self._cumulative = profile.cumulative
        self._seen: dict[str, str] = {}  # with `cumulative`: all that a channel has said
        self._think = None if profile.inline_think == "off" else ThinkSplitter(inside=profile.inline_think == "open")
        self._said = Said(emit, origin)
        self._calls = Calls(new_id)
        self._usage: ReportedUsage | None = None
        self._model = ""
        self._stop: Stop | None = None
        self._refused = False
        self._rejected = ""  # the word by which the model's server rejected its own model's call
        self._error: Problem | None = None
        self._ended = False

    @property
    def over(self) -> bool:
        """Whether nothing that still comes is read: `[DONE]` or an error was seen."""
        return self._ended or self._error is not None

    @property
    def finished(self) -> bool:
        """Whether a finish reason was seen: the answer is proved whole, though more may follow (P-AFTER-FINISH)."""
        return self._stop is not None

    # -- what comes ----------------------------------------------------------------------------------------------

    def event(self, data: bytes, name: str = "", *, last: bool = False) -> None:
        """Take one event in; what follows `[DONE]` or an error is ignored.

        Args:
            data: the event's data.
            name: the event's name, or empty.
            last: the stream ended before its blank line, so it may be half; that is no harm to a finished answer.
        """
        if self.over:
            return
        bare = data.strip()
        if bare == b"[DONE]":
            self._ended = True
        elif bare:
            try:
                values = decode_all(data)
            except NotJson as error:
                if last and self.finished:
                    return
                plain = data.decode("utf-8", "replace")
                said = f"a data line is not JSON: {error}"
                self._error = (
                    classify_event(None, plain=plain) if name == "error" else problem("malformed_stream", said)
                )  # P-BADJSON
                return
            for value in values:  # P-GLUE
                if not self.over:
                    self._value(value, name)

    def body(self, data: bytes) -> None:
        """Take a whole JSON body in (P-JSON200)."""
        try:
            value = decode_all(data)[0]
        except NotJson as error:
            self._error = problem("malformed_stream", f"the body is not JSON: {error}")
            return
        if "choices" in as_map(value):
            self._value(value, "")
            self._ended = True
        else:
            self._error = classify_event(value)

    def fail(self, trouble: Problem) -> None:
        """End with an error that this side found, unless the answer has ended already."""
        if not self.over:
            self._error = trouble

    def flush(self) -> bool:
        """Emit what came since the last flush; whether anything was emitted."""
        return self._said.flush()

    def _value(self, value: object, name: str) -> None:
        chunk = as_map(value)
        if not chunk:
            if name == "error" or any(as_map(item).get("error") for item in as_list(value)):
                self._error = classify_event(value, plain=as_text(value))
            return
        model = chunk.get("model")
        if isinstance(model, str) and model:
            self._model = model
        if "usage" in chunk or "x_groq" in chunk:
            self._usage = usage_in(chunk, self._usage)
        choices = chunk.get("choices")
        if isinstance(choices, list):
            for choice in choices:
                if isinstance(choice, dict) and (choice.get("index") or 0) == 0:
                    self._choice(choice)
        if name == "error" or looks_like_error(chunk):
            self._error = classify_event(chunk)

    def _choice(self, choice: dict[str, object]) -> None:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._delta(delta)
        elif isinstance(message := choice.get("message"), dict) and not self._said:
            self._delta(message, whole=True)
        if "usage" in choice:
            self._usage = usage_in(choice, self._usage)
        word = choice.get("finish_reason")
        if isinstance(word, str) and word and self._stop is not Stop.ERROR:  # an error is never upgraded
            self._stop = _STOPS.get(word.lower(), Stop.END_TURN)
        native = choice.get("native_finish_reason")
        if isinstance(native, str) and native in _REJECTED:
            self._rejected = native
        if choice.get("error"):
            self._error = classify_event(choice)

    def _delta(self, delta: dict[str, object], *, whole: bool = False) -> None:
        content = delta.get("content")
        if len(delta) == 1 and isinstance(content, str):  # nearly all deltas are this one
            if content:
                self._say(content)
            return
        self._reasoning(delta)
        if isinstance(content, str):
            if content:
                self._say(content)
        elif content:
            self._parts(content)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refuse(refusal)
        calls = delta.get("tool_calls")
        if isinstance(calls, list) and calls:
            for entry in calls:
                if isinstance(entry, dict):
                    before = len(self._calls.opened)
                    take = self._calls.take_whole if whole else self._calls.take
                    self._called(take(entry, cumulative=self._cumulative), before)
        elif isinstance(legacy := delta.get("function_call"), dict):  # P-LEGACY
            before = len(self._calls.opened)
            self._called(self._calls.take_legacy(legacy, cumulative=self._cumulative), before)

    def _reasoning(self, delta: dict[str, object]) -> None:
        """Reasoning under any of its names; where two come in one delta, it is counted once (Q18)."""
        piece = delta.get("reasoning_content") or delta.get("reasoning")
        details = [as_map(item) for item in as_list(delta.get("reasoning_details"))]
        for item in details:
            self._said.detail(item)
        if isinstance(piece, dict):
            piece = piece.get("text") or piece.get("content") or piece.get("summary")
        if not piece and details:
            piece = "".join(as_text(item.get("text")) or as_text(item.get("summary")) for item in details)
        if isinstance(piece, str) and piece:
            self._said.reason(self._fresh("reasoning", piece))

    def _parts(self, content: object) -> None:
        """Content as a list of parts (Q30, Q47): text and thinking are taken, others are not ours to understand."""
        for part in as_list(content):
            item = as_map(part)
            kind = item.get("type")
            if isinstance(part, str):
                self._say(part)
            elif kind == "thinking":
                thinking = item.get("thinking")
                inner = "".join(as_text(as_map(piece).get("text")) for piece in as_list(thinking))
                self._said.reason(as_text(thinking) or inner)
            elif kind == "refusal":
                self._refuse(as_text(item.get("refusal")))
            elif kind is None or as_text(kind) in {"text", "output_text"}:
                self._say(as_text(item.get("text")))

    def _say(self, piece: str) -> None:
        piece = self._fresh("content", piece)
        if self._think is None:
            self._said.say(piece)
        else:
            self._said.split(self._think.feed(piece))

    def _refuse(self, piece: str) -> None:
        if piece:
            self._refused = True
            self._said.say(piece)

    def _fresh(self, channel: str, piece: str) -> str:
        """What is new in a delta that may repeat all before it (P-CUM)."""
        if not self._cumulative:
            return piece
        seen = self._seen.get(channel, "")
        fresh = piece.removeprefix(seen)
        self._seen[channel] = seen + fresh
        return fresh

    def _called(self, call: OpenCall | None, before: int) -> None:
        """A call went on, or opened: then the ones before it are done."""
        if call is None:
            return
        self._said.call(call)
        if len(self._calls.opened) > before:
            for earlier in self._calls.opened[:before]:
                if not earlier.done and earlier.whole:
                    earlier.done = True
                    self._emit(BlockDone(earlier.finish(self._tools, Cut.WHOLE)))

    # -- the end -------------------------------------------------------------------------------------------------

    def finish(self, end: End) -> Answer:
        """The answer, as far as it came, and whether it is one (P-EOF, P-STOP)."""
        if self._think is not None:
            self._said.split(self._think.close())
        stop, error = self._verdict(end)
        self._said.close(whole=error is None)
        cut = Cut.TRUNCATED if stop in _CUT_SHORT else Cut.WHOLE
        if self._rejected and self._error is None:
            cut = Cut.REJECTED
        calls = self._calls.finish(self._tools, cut)
        if error is None:
            for opened, call in zip(self._calls.opened, calls, strict=True):
                if not opened.done and call.invalid is None:
                    self._emit(BlockDone(call))
        blocks = self._said.blocks(dict(zip(self._calls.opened, calls, strict=True)))
        return Answer(blocks, stop, self._usage, error, self._model)

    def _verdict(self, end: End) -> tuple[Stop, Problem | None]:
        error = self._error
        if error is None and self._rejected:
            error = problem("malformed_tool_call", self._rejected)
        if error is None and self._stop is Stop.ERROR:
            error = problem("server", "the server ended the answer with an error and no word about it")
        if error is None and self._stop is None:
            error = self._unproved(end)
        if error is not None:
            return Stop.ERROR, error
        return self._neutral_stop(), None

    def _unproved(self, end: End) -> Problem | None:
        """What it means that no finish reason came."""
        if self._ended and self._said:
            return None
        if not self._ended and end is End.RESET:
            return problem("connection", "the connection broke before the answer was whole")
        if not self._ended and end is End.STALL:
            return problem("timeout", "the stream stalled before the answer was whole")
        if not self._said:
            return problem("empty_response", "the server answered with success and sent nothing")  # P-EMPTY
        return problem("stream_truncated", "the stream ended before the answer was whole")

    def _neutral_stop(self) -> Stop:
        """P-STOP: the content decides, and nothing is upgraded."""
        stop = self._stop or Stop.END_TURN
        if stop is Stop.CONTENT_FILTER:
            return stop
        if self._refused or stop is Stop.REFUSAL:
            return Stop.REFUSAL
        if stop is Stop.MAX_TOKENS:
            return stop
        return Stop.TOOL_CALLS if self._calls.opened else Stop.END_TURN
