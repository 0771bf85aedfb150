"""The shared HTTP client, its pool, and what its failures mean.

httpx's own pool looks at all its connections for each request, in places at all pairs of them: with a thousand streams
open one request costs 25 ms of CPU there, and under a millisecond here. The connections themselves are httpx's own
(`httpcore.AsyncHTTPConnection`). There is no bound on how many are open: the gate's permits are the bound.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, Self, cast, final
from urllib.request import getproxies

import httpcore
import httpx
import trio

from .wire_errors import Problem, problem

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping

IDLE_S: Final = 30.0
"""How long an idle connection is kept."""
MAX_IDLE: Final = 1024
"""How many idle connections are kept over all servers; beyond it the one that is idle longest is closed."""
CLOSE_S: Final = 2.0
"""How long closing a connection may take; it is shielded from cancellation."""

_KINDS: Final[Mapping[str, str]] = {
    # by name: httpx, httpcore and what is httpx in all but its module name them alike
    "TimeoutException": "timeout",
    "UnsupportedProtocol": "invalid_request",
    "LocalProtocolError": "invalid_request",
    "InvalidURL": "invalid_request",
    "DecodingError": "malformed_stream",
}


def open_client(*, network: httpcore.AsyncNetworkBackend | None = None) -> httpx.AsyncClient:
    """The client that all models share. Use it as an async context manager.

    Where the environment names a proxy, it is httpx's own client with a pool that has no bound: a bounded one of httpx
    0.28 keeps a dead place for each request that is cancelled while it waits for one.

    Args:
        network: makes the connections; None connects over TCP.
    """
    if network is None and getproxies().keys() & {"http", "https", "all"}:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE_S)
        return httpx.AsyncClient(limits=limits)
    return httpx.AsyncClient(transport=PoolTransport(network))


def transport_problem(error: Exception) -> Problem:
    """What an exception of the client, its backend or the socket means: always a problem, never an escape (Q88)."""
    names = [cls.__name__ for cls in type(error).__mro__]
    kind = next((_KINDS[name] for name in names if name in _KINDS), "connection")
    said = str(error).strip() or "no more is known"
    # A certificate does not become good by asking again.
    retryable = False if "CERTIFICATE_VERIFY_FAILED" in said else None
    return problem(kind, f"{type(error).__name__}: {said}", retryable=retryable)


@final
class PoolTransport(httpx.AsyncBaseTransport):
    """Connections kept per origin: taking one and giving it back costs the same, however many are open.

    Invariants:
        POOL-1 a connection is in use by one request, or idle here, or closed.
        POOL-2 at most `MAX_IDLE` are idle.

    Args:
        network: makes the connections; None connects over TCP.
    """

    __slots__ = ("_idle", "_idle_count", "_network", "_tls", "in_use")

    def __init__(self, network: httpcore.AsyncNetworkBackend | None = None) -> None:
        self._network = network
        self._tls: ssl.SSLContext | None = None
        self._idle: dict[tuple[bytes, bytes, int | None], deque[httpcore.AsyncHTTPConnection]] = {}
        self._idle_count = 0
        self.in_use = 0

    @property
    def idle(self) -> int:
        """How many connections are open and wait for a request."""
        return self._idle_count

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request on an idle connection, or on a new one.

        Args:
            request: its body may be sent once.

        Raises:
            Exception: of httpcore, which names them as httpx does.

        If cancelled: the connection is closed first.
        """
        url = request.url
        place = (url.raw_scheme, url.raw_host, url.port)
        sent = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        connection = await self._take(place) or self._connect(sent.url.origin)
        self.in_use += 1
        try:
            response = await connection.handle_async_request(sent)
        except BaseException:  # cancellation too: what was half sent is never used again
            self.in_use -= 1
            with trio.move_on_after(CLOSE_S, shield=True):
                await connection.aclose()
            raise
        body = _Body(self, place, connection, cast("_Closable", response.stream))
        return httpx.Response(response.status, headers=response.headers, stream=body, extensions=response.extensions)

    async def give_back(self, place: tuple[bytes, bytes, int | None], connection: httpcore.AsyncHTTPConnection) -> None:
        """Keep a connection whose answer was read to its end; close any other."""
        self.in_use -= 1
        if not connection.is_idle():
            await close(connection)
            return
        idle = self._idle.setdefault(place, deque())
        idle.append(connection)
        self._idle_count += 1
        surplus = []
        if self._idle_count > MAX_IDLE:
            surplus.append(idle.popleft())
        while len(idle) > 1 and idle[0].has_expired():
            surplus.append(idle.popleft())
        self._idle_count -= len(surplus)
        for old in surplus:
            await close(old)

    async def aclose(self) -> None:
        """Close what is idle; connections in use are closed by their requests."""
        every = [connection for idle in self._idle.values() for connection in idle]
        self._idle.clear()
        self._idle_count = 0
        for connection in every:
            await close(connection)

    async def _take(self, place: tuple[bytes, bytes, int | None]) -> httpcore.AsyncHTTPConnection | None:
        """The connection that was idle for the shortest time, if one still lives."""
        idle = self._idle.get(place)
        while idle:
            connection = idle.pop()
            self._idle_count -= 1
            if not connection.has_expired():
                return connection
            await close(connection)
        return None

    def _connect(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        if origin.scheme == b"https" and self._tls is None:
            self._tls = httpx.create_ssl_context()  # reads all certificates: once, and only where they are needed
        return httpcore.AsyncHTTPConnection(
            origin, ssl_context=self._tls, keepalive_expiry=IDLE_S, network_backend=self._network
        )

    def __repr__(self) -> str:
        return f"<PoolTransport {self.in_use} in use, {self._idle_count} idle>"


@final
class _Body(httpx.AsyncByteStream):
    """An answer's body; closing it gives its connection back."""

    __slots__ = ("_closed", "_connection", "_place", "_pool", "_stream")

    def __init__(
        self,
        pool: PoolTransport,
        place: tuple[bytes, bytes, int | None],
        connection: httpcore.AsyncHTTPConnection,
        stream: _Closable,
    ) -> None:
        self._pool = pool
        self._place = place
        self._connection = connection
        self._stream = stream
        self._closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.__aiter__()

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            with trio.move_on_after(CLOSE_S, shield=True):
                await self._stream.aclose()
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await self._pool.give_back(self._place, self._connection)


class _Closable(Protocol):
    """What httpcore's response streams are."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    async def aclose(self) -> None: ...


async def close(connection: httpcore.AsyncHTTPConnection) -> None:
    """Close a connection, within a time limit, whatever is cancelled."""
    with trio.move_on_after(CLOSE_S, shield=True):
        await connection.aclose()


@final
class OneChunk(httpx.AsyncByteStream):
    """A request's body. Its iterator is no generator: a request that is cut while sending leaves none to clean up."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _Once(self._data)


@final
class _Once:
    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        data, self._data = self._data, None
        if data is None:
            raise StopAsyncIteration
        return data
