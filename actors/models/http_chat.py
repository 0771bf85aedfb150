"""Chat completions over httpx: the one place that opens a connection, reads it, and closes it on every path.

It decides nothing about answers (`wire_chat.py`) and nothing about waiting: deadlines, permits and retries are the
gate's. All that a transport can raise is turned into a `ProviderError` here, while the body is read too (Q88).
"""

from __future__ import annotations

import time
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final, cast, final
from urllib.parse import quote

import attrs
import httpx
import trio

from actors.errors import MissingKey, UsageError

from .http_transport import OneChunk, open_client, transport_problem
from .profile import ChatProfile, profile_of
from .wire_answer import BodyReader, End
from .wire_chat import ChatDecoder
from .wire_chat_messages import made_up_id
from .wire_chat_request import ChatEncoder
from .wire_errors import Problem, classify_http, error_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from actors.errors import ProviderError
    from actors.ports import Emit, ModelRequest, Response

    from .spec import ModelSpec

__all__ = ["ChatModel", "open_chat_model", "open_client"]

CLOSE_S: Final = 2.0
"""How long closing a connection may take; it is shielded from cancellation."""
DRAIN_S: Final = 0.1
"""How long the end of a body is waited for once the answer is over, so that the connection can be used again."""
GRACE_S: Final = 5.0
"""How long more is waited for behind a finish reason: usage may follow, and some servers leave the line open (Q13)."""
ERROR_BODY_S: Final = 5.0
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_BODY_BYTES: Final = 64 * 1024 * 1024


@final
class ChatModel:
    """A model behind a chat-completions server: an `actors.ports.Model`.

    Invariants:
        HTTP-1 a request's connection is closed, or back in the pool, when `request` returns or raises.
        HTTP-2 the key stands in no error, repr or event (GAT-5).
        HTTP-3 only `ProviderError`, `UsageError` and cancellation leave `request`.
    """

    __slots__ = ("_client", "_encoder", "_headers", "_key", "_profile", "_spec", "_url", "context_window", "free", "id")

    def __init__(self, spec: ModelSpec, *, key: str | None, profile: ChatProfile, client: httpx.AsyncClient) -> None:
        self._spec = spec
        self._key = key
        self._profile = profile
        self._client = client
        self._url = httpx.URL(f"{spec.base_url}/chat/completions")
        self.id = spec.id
        self.free = spec.loopback
        self.context_window = profile.context_window
        self._encoder = ChatEncoder(profile, self.id)
        self._headers = [("host", self._url.netloc.decode()), *_headers(key, profile)]

    @property
    def name(self) -> str:
        """The bare model name."""
        return self._spec.name

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        """Ask once.

        Args:
            request: what is asked.
            emit: called for each piece as it comes.

        Raises:
            ProviderError: no whole answer came.
            UsageError: a tool's schema is not JSON.

        If cancelled: the connection is closed before the cancellation goes on.
        """
        body = self._encoder.encode(request)
        sent = httpx.Request(
            "POST",
            self._url,
            headers=[
                *self._headers,
                ("content-length", str(len(body))),
                ("x-client-request-id", quote(request.id, safe="/#:.~")),
            ],
            stream=OneChunk(body),
            extensions=_TIMEOUTS,
        )
        try:
            response = await self._client.send(sent, stream=True, auth=None, follow_redirects=False)
        except Exception as error:  # an httpx client raises its own, its backend's and the socket's; all mean: failed
            raise self._failed(transport_problem(error)) from error
        try:
            return await self._read(response, request, emit)
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):  # HTTP-1
                await response.aclose()

    async def _read(self, response: httpx.Response, request: ModelRequest, emit: Emit) -> Response:
        headers = response.headers
        request_id = headers.get("x-request-id") or headers.get("request-id")
        encoded = headers.get("content-encoding", "identity") != "identity"
        body = response.aiter_bytes() if encoded else response.aiter_raw()
        async with aclosing(cast("AsyncGenerator[bytes, None]", body)) as chunks:
            if response.status_code != httpx.codes.OK:
                said = await _error_body(chunks)
                raise self._failed(classify_http(response.status_code, headers, said, now_s=time.time()))
            decoder = ChatDecoder(
                self._profile,
                emit=emit,
                origin=self.id,
                tools=[tool.name for tool in request.tools],
                new_id=lambda number: made_up_id(request.id, number, short=self._profile.short_ids),
            )
            reader = BodyReader(decoder, emit, MAX_BODY_BYTES)
            end = await _pump(chunks, reader, decoder)
        answer = reader.close(end)
        if answer.error is not None:
            raise self._failed(attrs.evolve(answer.error, request_id=request_id))
        return answer.response(request_id)

    def _failed(self, problem: Problem) -> ProviderError:
        """The error to raise; a server that echoes the key is not quoted with it (HTTP-2)."""
        if self._key:
            problem = attrs.evolve(problem, message=problem.message.replace(self._key, "[key]"))
        return error_of(problem, self.id)

    def __repr__(self) -> str:
        return f"<ChatModel {self.id}>"


def open_chat_model(
    spec: ModelSpec, *, key: str | None, profile: ChatProfile | None = None, client: httpx.AsyncClient
) -> ChatModel:
    """A model of a chat-completions server.

    Args:
        spec: of `parse_model`.
        key: of the provider; None is right for a server on this machine that wants none.
        profile: the server's switches; None takes those that are known of its host.
        client: shared by all models (`open_client()`); its owner closes it.

    Raises:
        MissingKey: the server is elsewhere and there is no key.
        UsageError: the key cannot stand in a header.
    """
    if not key and not spec.loopback:
        names = " or ".join(spec.key_variables)
        aside = "" if "OPENAI_API_KEY" in spec.key_variables else " (OPENAI_API_KEY is sent to api.openai.com only)"
        msg = f"{spec.id} needs a key: set {names} in the environment{aside}, or use a server on this machine"
        raise MissingKey(msg)
    if key and (not key.isascii() or not key.isprintable() or key != key.strip()):
        msg = "the key has characters that a header cannot hold: spaces around it, line breaks, or none of ASCII"
        raise UsageError(msg)
    return ChatModel(spec, key=key or None, profile=profile or profile_of(spec.base_url), client=client)


_TIMEOUTS: Final = {"timeout": {"connect": 10.0, "read": 600.0, "write": 60.0, "pool": None}}
"""Safety only: the gate's deadlines are shorter."""


def _headers(key: str | None, profile: ChatProfile) -> list[tuple[str, str]]:
    headers = [
        ("accept", "text/event-stream, application/json"),
        ("accept-encoding", "identity"),  # an encoded stream is buffered on its way (Q77)
        ("content-type", "application/json"),
        ("user-agent", "callboard"),
    ]
    if key:
        bearer = profile.api_key_header.lower() == "authorization"
        headers.append((profile.api_key_header.lower(), f"Bearer {key}" if bearer else key))
    return headers + list(profile.headers)


async def _pump(chunks: AsyncGenerator[bytes, None], reader: BodyReader, decoder: ChatDecoder) -> End:
    """Feed the body to its reader until the answer is over, and say how it ended."""
    while not decoder.over:
        chunk = await _next(chunks, decoder)
        if isinstance(chunk, End):
            return chunk
        reader.feed(chunk)
    # Over before its end. What is suspended inside the client's generators is unwound from within: by the body's end,
    # which makes the connection free for the next request, or by this deadline, which closes it.
    with trio.move_on_after(DRAIN_S), suppress(Exception):  # the answer is known: how its connection ends is no matter
        async for _ in chunks:
            pass
    return End.EOF


async def _next(chunks: AsyncGenerator[bytes, None], decoder: ChatDecoder) -> bytes | End:
    """The next bytes of the body, or how it ended."""
    try:
        if not decoder.finished:
            return await anext(chunks)
        with trio.move_on_after(GRACE_S):
            return await anext(chunks)
    except StopAsyncIteration:
        return End.EOF
    except Exception as error:  # noqa: BLE001 - only the transport runs here, and all that it raises means: failed
        if not decoder.finished:
            decoder.fail(transport_problem(error))
        return End.RESET
    return End.EOF  # nothing more came in time: the answer is whole without it


async def _error_body(chunks: AsyncGenerator[bytes, None]) -> bytes:
    """What an error says, as far as it comes soon."""
    body = bytearray()
    with trio.move_on_after(ERROR_BODY_S), suppress(Exception):  # the status is known: a broken body only says less
        async for chunk in chunks:
            body += chunk[: MAX_ERROR_BYTES - len(body)]
    return bytes(body)
