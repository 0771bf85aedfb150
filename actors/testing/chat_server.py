"""A chat-completions server for tests: any `Model` behind HTTP on this machine, with scripted faults and a journal.

`async with serve_chat(Script({...})) as server:` serves it at `server.url`. Each conversation that comes in is checked
as strictly as the real servers check theirs, and refused with 400 where they would. It streams only.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeAlias, final
from urllib.parse import unquote

import attrs
import h11
import trio

from actors.errors import Broken, Malformed, ProviderError

from .chat_reading import ChatAsked, Refused, read_request
from .chat_writing import ChunkWriter, error_event, error_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from actors.ports import Model, Piece

Headers: TypeAlias = tuple[tuple[str, str], ...]

MAX_READ: Final = 65_536
_SSE: Final = [("content-type", "text/event-stream")]
_NOT_JSON: Final = b"data: {oops\n\n"


@attrs.frozen
class Raw:
    """Answer this, whatever is asked: a status, headers and a body."""

    status: int = 200
    headers: Headers = (("content-type", "application/json"),)
    body: bytes = b""


@attrs.frozen
class CutAfter:
    """Close the connection after so many bytes of the body; `clean`: as if the answer had ended there."""

    body_bytes: int
    clean: bool = False


@attrs.frozen
class StallAfter:
    """Send nothing more after so many bytes of the body, and keep the connection open."""

    body_bytes: int


@attrs.frozen
class EachByte:
    """Send each byte of the body as a chunk of its own."""


Fault: TypeAlias = Raw | CutAfter | StallAfter | EachByte


@attrs.define
class Exchange:
    """One request as the journal has it.

    Attributes:
        asked: the request read back, or None where it was refused. status: of the answer, 0 where none was begun.
        whole: the answer was sent to its end. refusal: why it was refused.
    """

    method: str
    path: str
    headers: Headers
    body: bytes
    request_id: str
    asked: ChatAsked | None = None
    status: int = 0
    whole: bool = False
    refusal: str = ""

    def header(self, name: str) -> str | None:
        """A header of the request, by its lower-case name."""
        return next((value for key, value in self.headers if key == name), None)


class _Gone(Exception):
    """The connection is to be closed; it never leaves this module."""


@final
class ChatServer:
    """A model behind HTTP; made by `serve_chat`.

    Attributes:
        url: the base URL for a model string, ending in `/v1`.
        journal: every request that came, in order of arrival.
        connections: how many are open. opened: how many there ever were.
    """

    __slots__ = ("_faults", "_key", "_left", "_model", "connections", "journal", "opened", "url")

    def __init__(self, model: Model, url: str, key: str | None) -> None:
        self._model = model
        self._key = key
        self._faults: deque[Fault | None] = deque()
        self._left = trio.lowlevel.ParkingLot()
        self.url = url
        self.journal: list[Exchange] = []
        self.connections = 0
        self.opened = 0

    def script(self, *faults: Fault | None) -> None:
        """Let the next requests meet these faults, one each, in order; None is a request that meets none."""
        self._faults.extend(faults)

    async def handle(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until it ends.

        Args:
            stream: a socket, or one half of a pair in memory.
        """
        self.connections += 1
        self.opened += 1
        try:
            async with stream:
                line = _Line(stream)
                while await self._exchange(line) and line.reusable():
                    pass
        except* (trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError, _Gone):
            pass  # a client may go at any time
        finally:
            self.connections -= 1
            self._left.unpark_all()

    async def wait_unused(self) -> None:
        """Wait until no connection is open."""
        while self.connections:
            await self._left.park()
        await trio.lowlevel.checkpoint()

    async def _exchange(self, line: _Line) -> bool:
        came = await line.request()
        if came is None:
            return False
        self.journal.append(came)
        fault = self._faults.popleft() if self._faults else None
        if isinstance(fault, Raw):
            await line.whole(came, fault.status, fault.headers, fault.body)
            return True
        trouble = self._refusal(came)
        if trouble is not None:
            await line.whole(came, *trouble)
            return True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.watch, nursery.cancel_scope)
            await _Answering(self._model, line, came, fault).run()
            nursery.cancel_scope.cancel()
        return True

    def _refusal(self, came: Exchange) -> tuple[int, Iterable[tuple[str, str]], bytes] | None:
        """What a real server would refuse, as its answer."""
        if (came.method, came.path) != ("POST", "/v1/chat/completions"):
            came.refusal = f"{came.method} {came.path} is not served here"
            return _refused(404, "not_found_error", came.refusal)
        if self._key is not None and came.header("authorization") != f"Bearer {self._key}":
            came.refusal = "Incorrect API key provided"
            return _refused(401, "invalid_api_key", came.refusal)
        try:
            came.asked = read_request(came.body, came.request_id or "agent:t1.1")
        except Refused as error:
            came.refusal = str(error)
        else:
            if came.asked.stream:
                return None
            came.refusal = "only streams are served here: stream must be true"
        return _refused(400, "invalid_request_error", came.refusal)


@final
class _Answering:
    """One answer under way: the model's pieces go out as they come, until its fault strikes."""

    def __init__(self, model: Model, line: _Line, came: Exchange, fault: Fault | None) -> None:
        assert came.asked is not None, "a request that was not understood is not answered by the model"
        self._asked = came.asked
        self._came = came
        self._model = model
        self._line = line
        self._fault = fault
        self._sent = 0  # bytes of the body

    async def run(self) -> None:
        """Ask the model and send what it says."""
        send, receive = trio.open_memory_channel[bytes](float("inf"))  # the model's emit never blocks
        cut = False
        writer = ChunkWriter(self._asked.request.model, len(self._came.request_id))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask, writer, send)
            async for data in receive:
                if not await self._send(data + _waiting(receive)):
                    cut = True
                    nursery.cancel_scope.cancel()
                    break
        if not cut and not self._came.whole:
            if not self._came.status:
                await self._line.begin(self._came, 200, _SSE)
            await self._line.end()
            self._came.whole = True

    async def _ask(self, writer: ChunkWriter, send: trio.MemorySendChannel[bytes]) -> None:
        began = False

        def put(data: bytes) -> None:
            nonlocal began
            if not began:
                began = True
                send.send_nowait(writer.begin())
            if data:
                send.send_nowait(data)

        def emit(piece: Piece) -> None:
            put(writer.piece(piece))

        with send:
            try:
                response = await self._model.request(self._asked.request, emit)
            except ProviderError as error:
                await self._broken(error, put, began=began)
                return
            put(writer.end(response, usage=self._asked.include_usage))

    async def _broken(self, error: ProviderError, put: Callable[[bytes], None], *, began: bool) -> None:
        """Let the client see the error as it would come from a real server."""
        if isinstance(error, Broken) and error.reason != "stream_truncated":
            raise _Gone
        if not began and not isinstance(error, Broken | Malformed):
            status, headers, body = error_json(error)
            await self._line.whole(self._came, status, headers, body)
            return
        if isinstance(error, Malformed):
            if error.reason != "empty_response":
                put(_NOT_JSON)
        elif not isinstance(error, Broken):  # a stream that is cut says nothing more
            put(error_event(error))

    async def _send(self, data: bytes) -> bool:
        """Send a part of the body as the fault lets it; whether more may follow."""
        if not self._came.status:
            await self._line.begin(self._came, 200, _SSE)
        match self._fault:
            case CutAfter(body_bytes=limit, clean=clean) if self._sent + len(data) > limit:
                await self._line.data(data[: limit - self._sent])
                if not clean:
                    raise _Gone
                await self._line.end()
                return False
            case StallAfter(body_bytes=limit) if self._sent + len(data) > limit:
                await self._line.data(data[: limit - self._sent])
                await trio.sleep_forever()
            case EachByte():
                for at in range(len(data)):
                    await self._line.data(data[at : at + 1])
            case _:
                await self._line.data(data)
        self._sent += len(data)
        return True


def _waiting(receive: trio.MemoryReceiveChannel[bytes]) -> bytes:
    """What has come besides: pieces that came together go out together."""
    found = []
    with suppress(trio.WouldBlock, trio.EndOfChannel):
        while True:
            found.append(receive.receive_nowait())
    return b"".join(found)


@final
class _Line:
    """One connection: HTTP/1.1 with keep-alive over any stream."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER)

    def reusable(self) -> bool:
        """Whether another request may come on it."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def request(self) -> Exchange | None:
        """The next request, or None where the client ends the connection."""
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
        headers = tuple((name.decode(), value.decode("latin-1")) for name, value in head.headers)
        path = head.target.decode().partition("?")[0]
        named = next((value for name, value in headers if name == "x-client-request-id"), "")
        return Exchange(head.method.decode(), path, headers, bytes(body), unquote(named))

    async def watch(self, scope: trio.CancelScope) -> None:
        """Cancel the answer when the client goes away, as a real server stops to generate."""
        try:
            data = await self._stream.receive_some(MAX_READ)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if data:
            self._http.receive_data(bytes(data))
        else:
            scope.cancel()

    async def whole(self, came: Exchange, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """A whole answer with its length."""
        given = list(headers)
        if not any(name.lower() == "content-length" for name, _ in given):
            given.append(("content-length", str(len(body))))
        await self.begin(came, status, given)
        await self.data(body)
        await self.end()
        came.whole = True

    async def begin(self, came: Exchange, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Status and headers."""
        came.status = status
        await self._out(
            h11.Response(status_code=status, headers=[*headers, ("x-request-id", f"req-{came.request_id}")])
        )

    async def data(self, data: bytes) -> None:
        """A piece of the body."""
        if data:
            await self._out(h11.Data(data=data))

    async def end(self) -> None:
        """The end of the body."""
        await self._out(h11.EndOfMessage())

    async def _out(self, event: h11.Event) -> None:
        out = self._http.send(event)
        if out:
            await self._stream.send_all(out)

    async def _event(self) -> h11.Event | object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(bytes(await self._stream.receive_some(MAX_READ)))
        assert not isinstance(event, type) or event is h11.PAUSED, "data was asked for until there was some"
        return event


def _refused(status: int, kind: str, message: str) -> tuple[int, Iterable[tuple[str, str]], bytes]:
    error = ProviderError(message, reason={404: "not_found", 401: "auth"}.get(status, "invalid_request"), code=kind)
    return error_json(error)


@asynccontextmanager
async def serve_chat(model: Model, *, key: str | None = None) -> AsyncIterator[ChatServer]:
    """Serve a model on this machine while the block runs.

    Args:
        model: who answers; it is asked at once for every request that comes.
        key: what a client must send; None asks for none.

    If cancelled: all connections are closed.
    """
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    server = ChatServer(model, f"http://127.0.0.1:{port}/v1", key)
    failed: Exception | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, server.handle, listeners)
        try:
            yield server
        except Exception as error:  # noqa: BLE001 - the block's own error leaves as it is, not wrapped in a group of ours
            failed = error
        nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed
