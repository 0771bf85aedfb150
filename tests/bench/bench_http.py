"""What a streamed delta and a request cost over HTTP: a `ChatModel`, and beside it plain httpx with json, in one run.

Run it with `python tests/bench/bench_http.py`; it prints one line of JSON. Figures are microseconds of CPU of this
process (the server is another one): per delta in a burst and when each delta wakes the reader, per request one after
another and side by side, and per request body by the length of the conversation.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors.content import Text
from actors.conversation import Conversation
from actors.ids import AgentId, CallId, MessageId, RequestId, TurnId
from actors.models.http_chat import open_chat_model, open_client
from actors.models.profile import DEFAULT_PROFILE
from actors.models.spec import parse_model
from actors.models.wire_chat_request import ChatEncoder
from actors.ports import ModelRequest, Piece
from actors.transcript import (
    CallBlock,
    MessageRecord,
    Record,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    Stop,
    TextBlock,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

DELTAS = 400
TURN = TurnId("lead:t1")
CHOICES = b'"choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]'
DELTA = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",%s}\n\n' % CHOICES
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def serve(ports: multiprocessing.Queue[int]) -> None:
    """A server that answers every request with as many deltas as its path says, all at once or one by one."""

    def framed(data: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(data), data)

    async def handle(stream: trio.SocketStream) -> None:
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                came = await stream.receive_some(65536)
                if not came:
                    return
                data += came
            head, _, data = data.partition(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            while len(data) < length:
                data += await stream.receive_some(65536)
            data = data[length:]
            _, count, pace = head.split(b" ")[1].split(b"/")[:3]
            start = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            if pace == b"burst":
                body = b"".join(framed(DELTA * 20) for _ in range(int(count) // 20)) or framed(DELTA)
                await stream.send_all(start + body + framed(FINISH) + framed(b""))
            else:
                await stream.send_all(start)
                for _ in range(int(count)):
                    await stream.send_all(framed(DELTA))
                    await trio.sleep(0.001)
                await stream.send_all(framed(FINISH) + framed(b""))

    async def main() -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=4096)
        ports.put(listeners[0].socket.getsockname()[1])
        await trio.serve_listeners(handle, listeners)

    trio.run(main)


def records_of(count: int) -> list[Record]:
    """A conversation of so many records."""
    found: list[Record] = []
    while len(found) < count:
        number = len(found)
        call = CallBlock(CallId(f"c{number}"), f"call_{number}", "read_file", '{"path":"src/main.py"}')
        found += [
            MessageRecord(TURN, MessageId(f"m-{number}"), (Text("Please look at this file. " * 4),)),
            ResponseRecord(TURN, (TextBlock("I look."), call), Stop.TOOL_CALLS, "m"),
            ResultRecord(TURN, call.id, call.wire_id, call.name, ResultStatus.OK, (Text("line of code\n" * 20),)),
            ResponseRecord(TURN, (TextBlock("It is a file with lines of code. " * 4),), Stop.END_TURN, "m"),
        ]
    return found[:count]


def request_on(conversation: Conversation) -> ModelRequest:
    """A request on a conversation."""
    return ModelRequest(RequestId(f"{TURN}.1"), AgentId("lead"), "m", "Be brief.", conversation.window())


async def cpu_us(run: Callable[[], Awaitable[object]], per: int, repeats: int = 5) -> float:
    """Microseconds of CPU of the best of some runs, divided."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        await run()
        best = min(best, time.process_time() - start)
    return round(best / per * 1e6, 1)


async def side_by_side(ask: Callable[[], Awaitable[object]], count: int) -> None:
    """Ask many times at once."""

    async def one() -> None:
        await ask()

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(one)


async def measure(port: int) -> dict[str, Any]:
    """All figures."""
    found: dict[str, Any] = {"deltas": DELTAS}
    request = request_on(Conversation(records_of(4)))
    unbounded = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with open_client() as ours, httpx.AsyncClient(limits=unbounded, timeout=60) as plain:

        def asker(count: int, pace: str) -> Callable[[], Awaitable[object]]:
            spec = parse_model(f"openai-chat:m@http://127.0.0.1:{port}/{count}/{pace}/v1")
            model = open_chat_model(spec, key=None, client=ours)
            pieces: list[Piece] = []

            async def ask() -> None:
                pieces.clear()
                response = await model.request(request, pieces.append)
                assert response.stop is Stop.END_TURN

            return ask

        def plain_asker(count: int, pace: str) -> Callable[[], Awaitable[object]]:
            url = f"http://127.0.0.1:{port}/{count}/{pace}/v1/chat/completions"
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hello?"}]}

            async def ask() -> None:
                text = []
                async with plain.stream("POST", url, json=body) as response:
                    async for line in response.aiter_lines():
                        if line.startswith("data: {"):
                            delta = json.loads(line[6:])["choices"][0]["delta"]
                            text.append(delta.get("content", ""))

            return ask

        for name, make in (("ours", asker), ("httpx_json", plain_asker)):
            one = make(1, "burst")
            await cpu_us(one, 1)
            request_us = await cpu_us(one, 1, repeats=100)
            found[name] = {
                "request": request_us,
                "delta_in_burst": await cpu_us(make(DELTAS, "burst"), DELTAS, repeats=20),
                "delta_paced": await cpu_us(make(DELTAS, "paced"), DELTAS, repeats=4),
                "request_100_at_once": await cpu_us(lambda ask=one: side_by_side(ask, 100), 100, repeats=3),  # type: ignore[misc]
                "request_500_at_once": await cpu_us(lambda ask=one: side_by_side(ask, 500), 500, repeats=1),  # type: ignore[misc]
            }
    found["encode"] = encode_us()
    return found


def encode_us() -> dict[str, float]:
    """Microseconds to make a request's body: at the first request on a conversation, and at each later one."""
    encoder = ChatEncoder(DEFAULT_PROFILE, "here")
    found: dict[str, float] = {}
    for count in (4, 100, 1000):
        request = request_on(Conversation(records_of(count)))
        start = time.perf_counter()
        encoder.encode(request)
        found[f"first_{count}"] = round((time.perf_counter() - start) * 1e6, 1)
        start = time.perf_counter()
        for _ in range(100):
            encoder.encode(request)
        found[f"again_{count}"] = round((time.perf_counter() - start) * 1e4, 1)
    return found


def main() -> None:
    """Start the server, measure, print."""
    ports: multiprocessing.Queue[int] = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    print(json.dumps(trio.run(measure, ports.get())))
    server.kill()


if __name__ == "__main__":
    main()
