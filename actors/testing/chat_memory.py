"""The chat-completions server without a network: connections are pairs of streams in memory.

Nothing here waits for a system, so a test under a virtual clock runs the same each time: HTTP, faults and time-outs.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, final

import httpcore
import trio
import trio.testing

from actors.models.http_transport import open_client

from .chat_server import ChatServer

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterable

    import httpx

    from actors.ports import Model

URL: Final = "http://memory.localhost/v1"
"""The base URL of the server in memory: by its name a server on this machine, so it is free and needs no key."""


@asynccontextmanager
async def serve_chat_in_memory(
    model: Model, *, key: str | None = None
) -> AsyncIterator[tuple[ChatServer, httpx.AsyncClient]]:
    """Serve a model in memory while the block runs: the server, and a client that reaches it at `server.url`.

    Args:
        model: who answers; it is asked at once for every request that comes.
        key: what a client must send; None asks for none.

    If cancelled: all connections are closed.
    """
    server = ChatServer(model, URL, key)
    failed: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            async with open_client(network=_Memory(server, nursery)) as client:
                yield server, client
        except Exception as error:  # noqa: BLE001 - the block's own error leaves as it is, not wrapped in a group of ours
            failed = error
        nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed


@final
class _Memory(httpcore.AsyncNetworkBackend):
    """Every connection is a pair in memory, with the server at its other end."""

    def __init__(self, server: ChatServer, nursery: trio.Nursery) -> None:
        self._server = server
        self._nursery = nursery

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        del host, port, timeout, local_address, socket_options
        await trio.lowlevel.checkpoint()
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._server.handle, theirs)
        return _MemoryStream(ours)

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


@final
class _MemoryStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            with trio.fail_after(float("inf") if timeout is None else timeout):
                return bytes(await self._stream.receive_some(max_bytes))
        except trio.TooSlowError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        try:
            with trio.fail_after(float("inf") if timeout is None else timeout):
                await self._stream.send_all(buffer)
        except trio.TooSlowError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        del ssl_context, server_hostname, timeout
        raise httpcore.ConnectError("there is no TLS in memory: write http:// in the base URL")

    def get_extra_info(self, info: str) -> object:
        return False if info == "is_readable" else None  # this server never closes a connection that is idle
