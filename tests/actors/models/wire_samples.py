"""The wire samples, fed to the pure readers and to the real client, and their answers in the samples' neutral form."""

import itertools
import json
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import httpx
import msgspec
import trio

from actors.errors import ProviderError
from actors.models.profile import ChatProfile, InlineThink
from actors.models.wire_answer import Answer, BodyReader, End
from actors.models.wire_chat import ChatDecoder
from actors.models.wire_errors import Problem, classify_http
from actors.ports import Piece, ReportedUsage, Response, WireCall
from actors.transcript import ReasoningBlock, TextBlock

FOLDER = Path(__file__).parents[2] / "wire" / "samples"
MAX_BYTES = 1 << 20


@attrs.frozen
class Sample:
    """One sample: what comes, and what it must become."""

    file: str
    kind: str
    protocol: str
    expected: dict[str, Any] = attrs.field(repr=False)
    quirk: str = ""
    options: dict[str, Any] = attrs.Factory(dict)
    end: str | None = None
    chunks: Any = None
    sha256: str = attrs.field(default="", repr=False)
    policy: str = ""
    quirk_ref: str = ""

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return (FOLDER / self.file).read_bytes()

    def head(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        if self.kind == "sse":
            return 200, {"content-type": "text/event-stream"}, self.data
        head, _, body = self.data.partition(b"\r\n\r\n")
        if not _:
            head, _, body = self.data.partition(b"\n\n")
        first, *lines = head.decode().splitlines()
        return int(first.split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}, body

    def cuts(self, mode: str) -> Sequence[int]:
        """Where the body is cut: nowhere, everywhere, or where the sample says."""
        everywhere = range(1, len(self.head()[2]))
        if mode == "each-byte" or (mode == "given" and self.chunks == "each-byte"):
            return everywhere
        return self.chunks if mode == "given" else ()

    @property
    def modes(self) -> Iterator[str]:
        """The ways in which it is fed."""
        yield "whole"
        yield "each-byte"
        if self.chunks:
            yield "given"

    @property
    def profile(self) -> ChatProfile:
        """The profile that its options ask for."""
        think = InlineThink.TAGS if self.options.get("inline_think") else InlineThink.OFF
        return ChatProfile(inline_think=think, cumulative=self.options.get("cumulative", False))

    @property
    def tools(self) -> list[str]:
        """The tools that were offered."""
        return list(self.options.get("tools", []))


def samples() -> list[Sample]:
    """All samples of the manifest."""
    return [Sample(**entry) for entry in json.loads((FOLDER / "manifest.json").read_text())]


def pieces_of(body: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The body, cut."""
    edges = [0, *cuts, len(body)]
    return [body[a:b] for a, b in itertools.pairwise(edges)]


def read(sample: Sample, mode: str, told: list[Piece]) -> Answer | Problem:
    """The sample through the pure readers."""
    status, headers, body = sample.head()
    if status != 200:
        return classify_http(status, headers, body, now_s=0.0)
    decoder = ChatDecoder(
        sample.profile, emit=told.append, origin="m", tools=sample.tools, new_id=lambda number: f"made-up-{number}"
    )
    reader = BodyReader(decoder, told.append, MAX_BYTES)
    unzip = zlib.decompressobj(47) if headers.get("content-encoding") == "gzip" else None
    for chunk in pieces_of(body, sample.cuts(mode)):
        data = unzip.decompress(chunk) if unzip else chunk
        if data and not decoder.over:
            reader.feed(data)
    return reader.close({"reset": End.RESET, "stall": End.STALL}.get(sample.end or "", End.EOF))


class SampleTransport(httpx.AsyncBaseTransport):
    """A server that answers every request with one sample."""

    def __init__(self, sample: Sample, mode: str) -> None:
        self._sample = sample
        self._mode = mode
        self.closed = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        status, headers, body = self._sample.head()
        await trio.lowlevel.checkpoint()
        chunks = pieces_of(body, self._sample.cuts(self._mode))
        return httpx.Response(status, headers=headers, stream=_SampleBody(self, chunks, self._sample.end))


class _SampleBody(httpx.AsyncByteStream):
    def __init__(self, owner: SampleTransport, chunks: list[bytes], end: str | None) -> None:
        self._owner = owner
        self._chunks = chunks
        self._end = end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            await trio.lowlevel.checkpoint()
            yield chunk
        if self._end == "reset":
            raise httpx.ReadError("connection reset by peer")
        if self._end == "stall":
            await trio.sleep_forever()

    async def aclose(self) -> None:
        self._owner.closed += 1


# -- the neutral form ----------------------------------------------------------------------------------------------


def neutral(result: Answer | Problem | Response | ProviderError) -> dict[str, Any]:
    """A result in the samples' form; the one adapter."""
    match result:
        case Answer(blocks=blocks, stop=stop, usage=usage, error=error):
            found = None if error is None else _problem(error)
            return {
                "blocks": [_block(block) for block in blocks],
                "stop": stop.value,
                "usage": _usage(usage),
                "error": found,
            }
        case Response(blocks=blocks, stop=stop, usage=usage):
            return {
                "blocks": [_block(block) for block in blocks],
                "stop": stop.value,
                "usage": _usage(usage),
                "error": None,
            }
        case Problem():
            return {"blocks": [], "stop": "error", "usage": None, "error": _problem(result)}
        case ProviderError():
            return {"stop": "error", "error": _error(result)}


def _block(block: TextBlock | ReasoningBlock | WireCall) -> dict[str, Any]:
    match block:
        case TextBlock(text=text):
            return {"type": "text", "text": text}
        case ReasoningBlock(text=text):
            return {"type": "reasoning", "text": text}
        case WireCall(wire_id=wire_id, name=name, arguments=arguments, invalid=invalid):
            found = {"type": "tool_call", "id": wire_id, "name": name or None, "arguments": arguments}
            if invalid is not None:
                return {**found, "invalid": invalid}
            return {**found, "arguments": json.loads(arguments)}


def _usage(usage: ReportedUsage | None) -> dict[str, Any] | None:
    return None if usage is None else msgspec.structs.asdict(usage)


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "kind": problem.kind,
        "message": problem.message,
        "retryable": problem.retryable,
        "code": problem.code,
        "status": problem.status,
        "retry_after": problem.retry_after_s,
        "request_id": problem.request_id,
    }


def _error(error: ProviderError) -> dict[str, Any]:
    return {
        "kind": error.reason,
        "message": str(error),
        "retryable": error.retryable,
        "code": error.code,
        "status": error.status,
        "retry_after": error.retry_after_s,
        "request_id": error.request_id,
    }


def differences(expected: Any, got: Any, where: str = "") -> Iterator[str]:
    """Where a neutral form is not what was expected: the keys of the expectation are compared."""
    if expected == "@any":
        if not (isinstance(got, str) and got):
            yield f"{where}: some text was expected, got {got!r}"
    elif isinstance(expected, dict) and isinstance(got, dict):
        for key, value in expected.items():
            # codes are text with us, and numbers with some servers
            one, other = (str(value), str(got.get(key))) if key == "code" else (value, got.get(key))
            yield from differences(one, other, f"{where}.{key}")
        if "type" in expected and expected.get("invalid") != got.get("invalid"):
            yield f"{where}: invalid {got.get('invalid')!r}, expected {expected.get('invalid')!r}"
    elif isinstance(expected, list) and isinstance(got, list):
        if len(expected) != len(got):
            yield f"{where}: {len(got)} items, expected {len(expected)}"
        for place, (one, other) in enumerate(zip(expected, got, strict=False)):
            yield from differences(one, other, f"{where}[{place}]")
    elif expected != got:
        yield f"{where}: {got!r}, expected {expected!r}"
