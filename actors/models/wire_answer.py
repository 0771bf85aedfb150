"""A whole answer in neutral words, and the body it is read from: what the wire modules of all protocols share."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from actors.ports import ALIVE, PROGRESS, ReportedUsage, Response, WireCall
from actors.transcript import ReasoningBlock, Stop, TextBlock

from .sse import Event, EventTooLarge, SseDecoder
from .wire_errors import Problem, problem

if TYPE_CHECKING:
    from actors.ports import Emit

_BOM: Final = b"\xef\xbb\xbf"


class End(enum.Enum):
    """How the bytes ended."""

    EOF = enum.auto()
    RESET = enum.auto()
    STALL = enum.auto()


@attrs.frozen
class Answer:
    """What a server answered, whole or not.

    Attributes:
        blocks: in the order of the first appearance of each channel: reasoning, text, each call.
        error: why it is no answer (`stop` is then `error`), or None.
    """

    blocks: tuple[ReasoningBlock | TextBlock | WireCall, ...]
    stop: Stop
    usage: ReportedUsage | None
    error: Problem | None = None
    model: str = ""

    def response(self, request_id: str | None) -> Response:
        """The answer as the port wants it."""
        return Response(self.blocks, self.stop, self.usage, self.model, request_id)


class Decoder(Protocol):
    """What folds the events of one protocol into an answer."""

    @property
    def over(self) -> bool:
        """Whether nothing that still comes is read."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the answer is proved whole, though more may follow."""
        ...

    def event(self, data: bytes, name: str = "", *, last: bool = False) -> None:
        """Take one event in; `last`: the stream ended before its blank line, so it may be half."""
        ...

    def body(self, data: bytes) -> None:
        """Take a whole JSON body in."""
        ...

    def fail(self, trouble: Problem) -> None:
        """End with an error that this side found, unless the answer has ended already."""
        ...

    def flush(self) -> bool:
        """Emit what came since the last flush; whether anything was emitted since then."""
        ...

    def finish(self, end: End) -> Answer:
        """The answer, as far as it came."""
        ...


class BodyReader:
    """The body of a 200 answer, whichever it is: an event stream, or one JSON object. The first bytes decide (Q76).

    Args:
        decoder: what the events are folded by.
        max_bytes: of the whole body.
    """

    __slots__ = ("_body", "_bytes", "_decoder", "_emit", "_head", "_max", "_sse")

    def __init__(self, decoder: Decoder, emit: Emit, max_bytes: int) -> None:
        self._decoder = decoder
        self._emit = emit
        self._max = max_bytes
        self._bytes = 0
        self._sse: SseDecoder | None = None
        self._head = b""  # what came before it was clear which it is
        self._body: bytearray | None = None

    def feed(self, chunk: bytes) -> None:
        """Take bytes in, and emit what they bring."""
        self._bytes += len(chunk)
        if self._bytes > self._max:
            self._decoder.fail(problem("malformed_stream", f"a body of more than {self._max} bytes"))
        elif self._sse is not None:
            self._events(self._sse, chunk)
        elif self._body is not None:
            self._body += chunk
            self._emit(PROGRESS)
        else:
            self._head += chunk
            begin = self._head.removeprefix(_BOM).lstrip()
            if begin[:1] in {b"{", b"["}:
                self._body = bytearray(begin)
            elif begin[:1] == b"<":
                self._decoder.fail(
                    problem("unexpected_content_type", "a page came where an event stream was asked for")
                )
            elif begin and not _BOM.startswith(begin):
                self._sse = SseDecoder(self._max)
                self._events(self._sse, self._head)

    def _events(self, sse: SseDecoder, chunk: bytes) -> None:
        emit = self._emit
        try:
            items = sse.feed(chunk)
        except EventTooLarge as error:
            self._decoder.fail(problem("malformed_stream", str(error)))
            return
        progress = False
        for item in items:
            if isinstance(item, Event):
                self._decoder.event(item.data, item.name)
                progress = True
        if not self._decoder.flush() and items:
            # Calls have no pieces of their own, and comments say nothing: both show that the stream lives (REQ-5).
            emit(PROGRESS if progress else ALIVE)

    def close(self, end: End) -> Answer:
        """The answer, after the last byte."""
        if self._body is not None and end is End.EOF:
            self._decoder.body(bytes(self._body))
        if self._sse is not None and end is End.EOF:
            for item in self._sse.close():  # P-SSE-EOF
                if isinstance(item, Event):
                    self._decoder.event(item.data, item.name, last=True)
        return self._decoder.finish(end)
