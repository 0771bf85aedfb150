from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from actors.errors import Broken
from actors.models.http_chat import ChatModel, open_chat_model
from actors.models.script import Script
from actors.models.spec import parse_model
from actors.testing.chat_memory import serve_chat_in_memory
from actors.testing.chat_server import CutAfter, StallAfter
from actors.testing.check_model import Answer, Answering, check_model, request_of
from actors.transcript import TextBlock


@asynccontextmanager
async def model_of(answer: Answer) -> AsyncIterator[ChatModel]:
    """A model over HTTP in memory."""
    async with serve_chat_in_memory(Answering(answer)) as (server, client):
        yield open_chat_model(parse_model(f"openai-chat:m@{server.url}"), key=None, client=client)


async def test_a_model_in_memory_keeps_the_contract(autojump_clock: trio.testing.MockClock) -> None:
    """HTTP without a network is HTTP: the conformance suite passes, under a virtual clock."""
    await check_model(model_of)


async def test_minutes_pass_in_no_time(autojump_clock: trio.testing.MockClock) -> None:
    """A slow answer and a stalled one need virtual time only, so deadlines around a stream can be tested."""
    async with serve_chat_in_memory(Script({"reviewer": ["Slow.", "Stalled.", "Cut."]}, latency_s=120)) as (
        server,
        client,
    ):
        model = open_chat_model(parse_model(f"openai-chat:m@{server.url}"), key=None, client=client)
        start = trio.current_time()
        assert (await model.request(request_of(), lambda piece: None)).blocks == (TextBlock("Slow."),)
        assert trio.current_time() - start == pytest.approx(120)
        server.script(StallAfter(10), CutAfter(10))
        with trio.move_on_after(300) as scope:
            await model.request(request_of(), lambda piece: None)
        assert scope.cancelled_caught
        with pytest.raises(Broken):
            await model.request(request_of(), lambda piece: None)
        await trio.testing.wait_all_tasks_blocked()
        assert server.connections == 0


async def test_a_read_without_end_is_ended_by_the_transport(autojump_clock: trio.testing.MockClock) -> None:
    """Where nobody sets a deadline, the transport's own ends a dead stream, as a stall and not as an answer."""
    async with serve_chat_in_memory(Script({"reviewer": ["Never."]})) as (server, client):
        server.script(StallAfter(10))
        model = open_chat_model(parse_model(f"openai-chat:m@{server.url}"), key=None, client=client)
        with pytest.raises(Broken) as caught:
            await model.request(request_of(), lambda piece: None)
    assert caught.value.reason == "timeout"
