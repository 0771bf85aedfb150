import httpx
import pytest
import trio
from msgspec.structs import replace

from actors.errors import Broken, Malformed, Overloaded, ProviderError, Rejected
from actors.models.http_chat import open_chat_model, open_client
from actors.models.script import Script, broken, malformed, overloaded, thought
from actors.models.script import call as asks
from actors.models.spec import parse_model
from actors.ports import ModelRequest, Response, WireCall
from actors.testing.chat_server import ChatServer, serve_chat
from actors.testing.check_model import request_of
from actors.transcript import ReasoningBlock, Stop, TextBlock


async def ask(server: ChatServer, request: ModelRequest | None = None) -> Response:
    """Ask a server once."""
    async with open_client() as client:
        model = open_chat_model(parse_model(f"openai-chat:m@{server.url}"), key=None, client=client)
        return await model.request(request or request_of(), lambda piece: None)


async def test_a_script_over_http_answers_what_it_answers_itself() -> None:
    """`serve_chat` makes any model reachable: the same script gives the same blocks, stop and usage."""
    steps = {"reviewer": [(thought("Hm"), "I add.", asks("add", a=1), asks("add", a=2)), "It is 3."]}
    own = Script(steps)
    async with serve_chat(Script(steps)) as server:
        for step in (1, 2):
            here = await own.request(request_of(step=step), lambda piece: None)
            there = await ask(server, request_of(step=step))
            blocks = tuple(replace(b, origin="") if isinstance(b, ReasoningBlock) else b for b in there.blocks)
            assert (blocks, there.stop, there.usage) == (here.blocks, here.stop, here.usage)


@pytest.mark.parametrize(
    ("step", "family", "reason"),
    [
        (("half an ans", broken()), Broken, "stream_truncated"),
        (("half", Broken("reset", reason="connection")), Broken, "connection"),
        (Broken("reset", reason="connection"), Broken, "connection"),
        (("half", malformed()), Malformed, "malformed_stream"),
        (Malformed("nothing", reason="empty_response"), Malformed, "empty_response"),
        (("half", overloaded()), Overloaded, "rate_limit"),
        (("half", Rejected("no", reason="content_filter")), Rejected, "content_filter"),
        (Rejected("no", reason="a reason of its own"), Rejected, "invalid_request"),
    ],
    ids=str,
)
async def test_a_model_s_error_is_seen_as_a_real_server_s(
    step: object, family: type[ProviderError], reason: str
) -> None:
    """Before the first piece an error is an HTTP status; behind it, an event or a cut stream."""
    async with serve_chat(Script({"reviewer": [step]})) as server:
        with pytest.raises(family) as caught:
            await ask(server)
    assert caught.value.reason == reason


@pytest.mark.parametrize("stop", [Stop.REFUSAL, Stop.MAX_TOKENS, Stop.CONTENT_FILTER, Stop.END_TURN])
async def test_stops_pass_through(stop: Stop) -> None:
    """An answer that was cut or refused arrives as one, with blocks that were never told as pieces."""
    given = Response((ReasoningBlock("Hm", opaque='{"reasoning_details":[{"a":1}]}'), TextBlock("No.")), stop)

    class Silent:
        id = name = "silent"
        free = True
        context_window = None

        async def request(self, request: ModelRequest, emit: object) -> Response:
            return given

    async with serve_chat(Silent()) as server:
        there = await ask(server)
    assert (there.stop, there.usage) == (stop, None)
    assert [type(block) for block in there.blocks] == [ReasoningBlock, TextBlock]
    assert isinstance(there.blocks[0], ReasoningBlock)
    assert there.blocks[0].opaque == '{"reasoning_details":[{"a":1}]}'


async def test_a_call_without_a_name_stays_without() -> None:
    """What the client must mark, the server does not repair."""
    given = Response((WireCall("a", "", "{}", "no_name"),), Stop.TOOL_CALLS)

    async with serve_chat(Script({"reviewer": [given]})) as server:
        assert (await ask(server)).blocks == given.blocks


async def test_what_is_not_served_is_refused_and_in_the_journal() -> None:
    """Another path, no stream, an invalid conversation: each is an error with a message, and stands in the journal."""
    async with serve_chat(Script({"reviewer": ["Hello."]})) as server, httpx.AsyncClient() as client:
        url = f"{server.url}/chat/completions"
        assert (await client.get(url)).status_code == 404
        said = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        plain = await client.post(url, json=said)
        assert (plain.status_code, "stream" in plain.json()["error"]["message"]) == (400, True)
        bad = await client.post(url, json={**said, "stream": True, "messages": [{"role": "tool", "content": "x"}]})
        assert bad.status_code == 400
        assert [exchange.status for exchange in server.journal] == [404, 400, 400]
        with trio.fail_after(5):  # the client has the last byte before the server's task goes on
            while not all(exchange.whole for exchange in server.journal):  # noqa: ASYNC110 - the journal has no event
                await trio.lowlevel.checkpoint()
        assert all(exchange.refusal for exchange in server.journal)
        assert server.opened == 1, "refusals keep the connection"


async def test_the_block_s_own_error_leaves_as_it_is() -> None:
    """An error in the block is not wrapped in a group."""
    with pytest.raises(KeyError, match="mine"):
        async with serve_chat(Script({})):
            raise KeyError("mine")
