import gc
import random
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
import trio
import trio.testing
from msgspec.structs import replace

from actors.errors import Broken, ContextOverflow, Malformed, Overloaded, ProviderError, Rejected, UsageError
from actors.models.http_chat import ChatModel, open_chat_model
from actors.models.http_transport import MAX_IDLE, PoolTransport, open_client, transport_problem
from actors.models.profile import ChatProfile
from actors.models.spec import parse_model
from actors.ports import Alive, BlockDone, ModelRequest, Piece, Response, TextPiece
from actors.testing.chat_server import ChatServer, CutAfter, EachByte, Fault, Raw, StallAfter, serve_chat
from actors.testing.check_model import WHOLE, Answer, Answering, check_model, request_of
from actors.transcript import ReasoningBlock, Stop, TextBlock

KEY = "sk-secret-0123456789"


def ignored(piece: Piece) -> None:
    """Not streaming is this."""


def opened_pool(client: httpx.AsyncClient) -> PoolTransport:
    """The pool of a client of ours."""
    pool = client._transport
    assert isinstance(pool, PoolTransport)
    return pool


@asynccontextmanager
async def served(
    answer: Answer, *, key: str | None = None
) -> AsyncIterator[tuple[ChatModel, ChatServer, PoolTransport]]:
    """A model over HTTP on this machine, its server, and its pool."""
    async with serve_chat(Answering(answer), key=key) as server, open_client() as client:
        model = open_chat_model(parse_model(f"openai-chat:m@{server.url}"), key=key, client=client)
        yield model, server, opened_pool(client)


@asynccontextmanager
async def model_of(answer: Answer) -> AsyncIterator[ChatModel]:
    """A model over HTTP, for the conformance suite."""
    async with served(answer) as (model, server, _):
        yield model
        assert not any(exchange.refusal for exchange in server.journal)


def whole(request: ModelRequest) -> Response:
    """Reasoning, text and two calls."""
    return WHOLE


async def test_a_model_over_http_keeps_the_contract_of_the_port() -> None:
    """What holds for any model holds for one behind HTTP."""
    await check_model(model_of)


async def test_the_simplest_model_keeps_the_contract_too() -> None:
    """The suite passes without a network between: what fails above fails in the network's part."""

    @asynccontextmanager
    async def opened(answer: Answer) -> AsyncIterator[Answering]:
        yield Answering(answer)

    await check_model(opened)


async def test_the_answer_over_http_is_the_model_s_own() -> None:
    """Served by `serve_chat`, a model answers over HTTP what it answers itself."""
    async with served(whole) as (model, server, _):
        response = await model.request(request_of(), ignored)
    own = await Answering(whole).request(request_of(), ignored)
    blocks = tuple(replace(b, origin="") if isinstance(b, ReasoningBlock) else b for b in response.blocks)
    assert replace(response, blocks=blocks, request_id=None) == own
    assert response.request_id == "req-lead/reviewer#2:t1.1"
    assert response.blocks[0] == ReasoningBlock("First the sum.", model.id), "reasoning names its model (REQ-8)"
    sent = server.journal[0]
    assert sent.header("x-client-request-id") == "lead/reviewer#2:t1.1"
    assert sent.header("accept-encoding") == "identity"
    assert sent.asked is not None
    assert sent.asked.request.agent == "lead/reviewer#2"


async def test_pieces_come_while_the_model_still_speaks() -> None:
    """It streams: a piece is told before the answer is whole."""
    heard = trio.Event()

    class Slow:
        id = name = "slow"
        free = True
        context_window = None

        async def request(self, request: ModelRequest, emit: object) -> Response:
            emit(TextPiece("first"))  # type: ignore[operator]
            await heard.wait()
            return Response((TextBlock("first and last"),), Stop.END_TURN)

    def emit(piece: Piece) -> None:
        if isinstance(piece, TextPiece):
            heard.set()

    async with serve_chat(Slow()) as server, open_client() as client:
        model = open_chat_model(parse_model(f"openai-chat:m@{server.url}"), key=None, client=client)
        with trio.fail_after(10):
            response = await model.request(request_of(), emit)
    assert response.blocks == (TextBlock("first and last"),)


# -- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "family", "reason"),
    [
        (CutAfter(0), Broken, "connection"),
        (CutAfter(400), Broken, "connection"),
        (CutAfter(400, clean=True), Malformed, "malformed_stream"),
        (CutAfter(0, clean=True), Malformed, "empty_response"),
        (Raw(200, (("content-type", "text/html"),), b"<html>hello</html>"), Rejected, "unexpected_content_type"),
        (Raw(200, (), b""), Malformed, "empty_response"),
        (Raw(200, (), b'{"choices":['), Malformed, "malformed_stream"),
        (Raw(200, (), b'data: {"error":{"code":"rate_limit_exceeded"}}\n\n'), Overloaded, "rate_limit"),
        (Raw(429, (("retry-after", "3"),), b""), Overloaded, "rate_limit"),
        (Raw(500, (), b"oops"), Overloaded, "server"),
        (Raw(503, (), b""), Overloaded, "overloaded"),
        (Raw(404, (), b'{"error":"model \\"x\\" not found"}'), Rejected, "not_found"),
        (Raw(307, (("location", "http://127.0.0.1:9/v2"),), b""), Rejected, "invalid_request"),
        (
            Raw(400, (), b'{"error":{"code":"context_length_exceeded","message":"m"}}'),
            ContextOverflow,
            "context_overflow",
        ),
    ],
    ids=str,
)
async def test_each_fault_is_a_typed_error_and_harms_no_later_request(
    fault: Fault, family: type[ProviderError], reason: str
) -> None:
    """HTTP-1, HTTP-3: the error is of its family, its connection is gone or free, and the next request is answered."""
    async with served(whole) as (model, server, pool):
        server.script(fault)
        with trio.fail_after(10), pytest.raises(family) as caught:
            await model.request(request_of(), ignored)
        assert type(caught.value) is family
        assert caught.value.reason == reason
        assert (model.id in str(caught.value), caught.value.status in {None, getattr(fault, "status", None)}) == (
            True,
            True,
        )
        assert pool.in_use == 0
        assert (await model.request(request_of(), ignored)).stop is Stop.TOOL_CALLS


async def test_req_4_the_delay_of_a_429_is_kept() -> None:
    """The server's word on how long to wait reaches whoever retries."""
    async with served(whole) as (model, server, _):
        server.script(Raw(429, (("retry-after-ms", "1500"), ("retry-after", "9")), b""))
        with pytest.raises(Overloaded) as caught:
            await model.request(request_of(), ignored)
    assert (caught.value.retry_after_s, caught.value.status) == (1.5, 429)
    assert caught.value.request_id == "req-lead/reviewer#2:t1.1"


async def test_each_byte_alone_gives_the_same_answer() -> None:
    """A stream that comes byte by byte is the same stream."""
    async with served(whole) as (model, server, _):
        server.script(None, EachByte())
        assert (await model.request(request_of(), ignored)).blocks == (
            await model.request(request_of(), ignored)
        ).blocks


async def test_a_whole_json_body_is_taken_for_the_stream() -> None:
    """P-JSON200: a server that does not stream is understood."""
    body = b'{"model":"n","choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}'
    async with served(whole) as (model, server, pool):
        server.script(Raw(200, (("content-type", "application/json"),), body))
        told: list[Piece] = []
        response = await model.request(request_of(), told.append)
        assert (response.blocks, response.model) == ((TextBlock("Hi"),), "n")
        assert [piece for piece in told if not isinstance(piece, Alive)] == [
            TextPiece("Hi"),
            BlockDone(TextBlock("Hi")),
        ]
        assert pool.idle == 1, "its connection is kept"


async def test_q13_an_answer_is_whole_though_the_line_stays_open(autojump_clock: trio.testing.MockClock) -> None:
    """Behind a finish reason usage is waited for, a while, and then the answer is what it is."""
    finish = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'

    class Open(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield finish
            await trio.sleep_forever()

    async def handler(request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        return httpx.Response(200, stream=Open())

    async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as client:
        model = open_chat_model(parse_model("openai-chat:m@http://localhost/v1"), key=None, client=client)
        start = trio.current_time()
        response = await model.request(request_of(), ignored)
        assert response.blocks == (TextBlock("Hi"),)
        assert trio.current_time() - start < 10


async def test_a_refused_connection_is_broken() -> None:
    """Nobody listens: a typed error that may be retried, and says where."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    async with open_client() as client:
        model = open_chat_model(parse_model(f"openai-chat:m@http://127.0.0.1:{port}/v1"), key=None, client=client)
        with pytest.raises(Broken) as caught:
            await model.request(request_of(), ignored)
    assert caught.value.reason == "connection"
    assert str(port) in str(caught.value)


async def test_a_stall_is_ended_by_its_deadline_and_closes_the_connection() -> None:
    """REQ-5: the gate's deadline cancels a stream that stalls; nothing of it is left, here or at the server."""
    async with served(whole) as (model, server, pool):
        server.script(StallAfter(500))
        started = trio.Event()

        def emit(piece: Piece) -> None:
            started.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(model.request, request_of(), emit)
            await started.wait()
            nursery.cancel_scope.cancel()
        assert (pool.in_use, pool.idle) == (0, 0)
        with trio.fail_after(10):
            await server.wait_unused()


# -- keys ----------------------------------------------------------------------------------------------------------


async def test_gat_5_the_key_is_in_no_error_and_no_repr() -> None:
    """HTTP-2: a server that echoes the key, a refused key, a broken line: none of it shows the key."""
    echo = Raw(401, (), f'{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}'.encode())
    async with served(whole, key=KEY) as (model, server, _):
        assert (await model.request(request_of(), ignored)).stop is Stop.TOOL_CALLS
        assert server.journal[0].header("authorization") == f"Bearer {KEY}"
        for fault in (echo, CutAfter(10), Raw(200, (), f"data: {KEY}\n\n".encode())):
            server.script(fault)
            with pytest.raises(ProviderError) as caught:
                await model.request(request_of(), ignored)
            shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(vars(caught.value))
            assert KEY not in shown + repr(model)


async def test_a_wrong_key_is_rejected() -> None:
    """401 is an error that asking again does not help."""
    async with serve_chat(Answering(whole), key="right") as server, open_client() as client:
        model = open_chat_model(parse_model(f"openai-chat:m@{server.url}"), key="wrong", client=client)
        with pytest.raises(Rejected) as caught:
            await model.request(request_of(), ignored)
    assert caught.value.reason == "auth"


async def test_keys_are_asked_for_where_they_are_needed() -> None:
    """A server elsewhere needs a key, and the error names the variable; one on this machine needs none, and is free."""
    async with open_client() as client:
        with pytest.raises(UsageError, match="OPENAI_API_KEY or CALLBOARD_API_KEY"):
            open_chat_model(parse_model("openai-chat:m"), key=None, client=client)
        with pytest.raises(UsageError, match="CALLBOARD_API_KEY"):
            open_chat_model(parse_model("openai-chat:m@https://h.example/v1"), key="", client=client)
        for bad in ("sk-\n7", " sk-7", "sk-7é"):
            with pytest.raises(UsageError) as caught:
                open_chat_model(parse_model("openai-chat:m"), key=bad, client=client)
            assert bad not in str(caught.value)
        local = open_chat_model(parse_model("openai-chat:m@http://localhost:1/v1"), key=None, client=client)
        away = open_chat_model(parse_model("openai-chat:m"), key="k", client=client)
        assert (local.free, away.free) == (True, False)
        assert (away.id, away.name) == ("openai-chat:m@https://api.openai.com/v1", "m")


async def test_the_key_s_header_and_more_headers_are_the_profile_s() -> None:
    """Azure takes `api-key`; gateways want headers of their own."""
    profile = ChatProfile(api_key_header="api-key", headers=(("x-team", "a"),), context_window=1000)
    async with serve_chat(Answering(whole)) as server, open_client() as client:
        spec = parse_model(f"openai-chat:m@{server.url}")
        model = open_chat_model(spec, key="k", profile=profile, client=client)
        await model.request(request_of(), ignored)
        headers = server.journal[0]
        assert (headers.header("api-key"), headers.header("x-team"), headers.header("authorization")) == (
            "k",
            "a",
            None,
        )
        assert model.context_window == 1000


# -- the pool ------------------------------------------------------------------------------------------------------


async def test_a_connection_is_used_again() -> None:
    """Requests one after another, failed ones with a whole answer too, go over one connection."""
    async with served(whole) as (model, server, pool):
        server.script(None, Raw(500, (), b"oops"))
        for _ in range(5):
            with suppress(Overloaded):
                await model.request(request_of(), ignored)
        assert (server.opened, pool.in_use, pool.idle) == (1, 0, 1)


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    """A server may close what is idle; the next request goes over a new one."""
    async with served(whole) as (model, server, pool):
        server.script(Raw(200, (("connection", "close"),), b'{"choices":[{"message":{"content":"a"}}]}'))
        await model.request(request_of(), ignored)
        assert pool.idle == 0
        await model.request(request_of(), ignored)
        assert server.opened == 2


async def test_pool_2_idle_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """POOL-2: beyond the bound, what is idle longest is closed."""
    assert MAX_IDLE > 100
    monkeypatch.setattr("actors.models.http_transport.MAX_IDLE", 3)
    async with served(whole) as (model, _, pool):
        async with trio.open_nursery() as nursery:
            for number in range(1, 9):
                nursery.start_soon(model.request, request_of(step=number), ignored)
        assert (pool.in_use, pool.idle) == (0, 3)


@pytest.mark.parametrize(
    "error", [OSError(5, "x"), trio.BrokenResourceError(), httpx.ReadError("x"), RuntimeError(), KeyError("x")]
)
def test_q88_whatever_a_transport_raises_is_a_problem(error: Exception) -> None:
    """No exception of a client, a backend or a socket is without a meaning."""
    assert transport_problem(error).kind == "connection"


def test_a_bad_certificate_is_not_retried() -> None:
    """It does not become good by asking again."""
    assert not transport_problem(httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed")).retryable
    assert transport_problem(httpx.ReadTimeout("x")).kind == "timeout"
    assert transport_problem(httpx.UnsupportedProtocol("x")).kind == "invalid_request"


async def test_tls_to_a_server_without_it_is_broken() -> None:
    """A handshake that fails is a typed error, and nothing of it is left."""
    async with serve_chat(Answering(whole)) as server, open_client() as client:
        url = server.url.replace("http://", "https://")
        model = open_chat_model(parse_model(f"openai-chat:m@{url}"), key=None, client=client)
        with trio.fail_after(10), pytest.raises(Broken) as caught:
            await model.request(request_of(), ignored)
        assert caught.value.reason == "connection"
        assert opened_pool(client).in_use == 0


async def test_where_the_environment_names_a_proxy_httpx_s_own_pool_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies are httpx's business; loopback is reached past them by NO_PROXY as everywhere."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with serve_chat(Answering(whole)) as server, open_client() as client:
        assert not isinstance(client._transport, PoolTransport)
        model = open_chat_model(parse_model(f"openai-chat:m@{server.url}"), key=None, client=client)
        assert (await model.request(request_of(), ignored)).stop is Stop.TOOL_CALLS


def open_files() -> int:
    """How many files this process has open; 0 where the system does not tell."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


async def cancel_many(count: int, *, side_by_side: int) -> None:
    """Cancel requests at random points; then one is answered, and no connection and no file is left."""
    dice = random.Random(7)
    outcomes = {"whole": 0, "cut": 0}

    async def one(model: ChatModel, limit: trio.CapacityLimiter, number: int) -> None:
        async with limit:
            how = dice.choice(["whole", "by piece", "by piece", "by time", "by time"])
            stop_at = dice.randrange(1, 8) if how == "by piece" else 0
            with trio.CancelScope() as scope:
                told = 0

                def emit(piece: Piece) -> None:
                    nonlocal told
                    told += 1
                    if told == stop_at:
                        scope.cancel()

                if how == "by time":  # at any moment: while connecting, sending, waiting for the head, reading
                    scope.deadline = trio.current_time() + dice.random() * 0.02
                await model.request(request_of(step=number), emit)
            outcomes["cut" if scope.cancelled_caught else "whole"] += 1

    async with serve_chat(Answering(whole, piece_chars=16)) as server:
        before = open_files()
        async with open_client() as client:
            model = open_chat_model(parse_model(f"openai-chat:m@{server.url}"), key=None, client=client)
            limit = trio.CapacityLimiter(side_by_side)
            async with trio.open_nursery() as nursery:
                for number in range(1, count + 1):
                    nursery.start_soon(one, model, limit, number)
            pool = opened_pool(client)
            assert pool.in_use == 0, "every connection is closed, or waits for a request"
            assert (await model.request(request_of(), ignored)).blocks[1:] == WHOLE.blocks[1:]
            assert outcomes["cut"] > count / 4, outcomes
            assert outcomes["whole"] > 0, outcomes
        assert pool.idle == 0
        with trio.fail_after(10):
            await server.wait_unused()
        gc.collect()  # what is left to the collector would warn here, and warnings are errors
        assert open_files() == before


async def test_http_1_cancelled_requests_leave_the_client_whole() -> None:
    """HTTP-1: three hundred requests cancelled at random points leave nothing behind, and the next one is answered."""
    await cancel_many(300, side_by_side=20)


@pytest.mark.slow
async def test_http_1_mass_cancellation_leaves_the_client_whole() -> None:
    """HTTP-1: three thousand requests cancelled at random points leave nothing behind, and the next one is answered."""
    await cancel_many(3000, side_by_side=100)
