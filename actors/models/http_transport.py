"""The shared HTTP client, and what its failures mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, final

import httpx

from .wire_errors import Problem, problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

IDLE_S: Final = 30.0
"""How long an idle connection is kept."""

_KINDS: Final[Mapping[str, str]] = {
    # by name, so that the classes of a client that is httpx in all but its module are known too
    "TimeoutException": "timeout",
    "UnsupportedProtocol": "invalid_request",
    "LocalProtocolError": "invalid_request",
    "InvalidURL": "invalid_request",
    "DecodingError": "malformed_stream",
}


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


def open_client() -> httpx.AsyncClient:
    """The client that all models share: its pool has no bound, because the gate's permits are the bound.

    A bounded pool of httpx 0.28 keeps a dead place for each request that is cancelled while it waits for one; the
    gate's permits do not. Use it as an async context manager.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE_S)
    return httpx.AsyncClient(limits=limits)


def transport_problem(error: Exception) -> Problem:
    """What an exception of the client, its backend or the socket means: always a problem, never an escape (Q88)."""
    names = [cls.__name__ for cls in type(error).__mro__]
    kind = next((_KINDS[name] for name in names if name in _KINDS), "connection")
    said = str(error).strip() or "no more is known"
    text = f"{type(error).__name__}: {said}"
    # A certificate does not become good by asking again.
    retryable = False if "CERTIFICATE_VERIFY_FAILED" in said else None
    return problem(kind, text, retryable=retryable)
