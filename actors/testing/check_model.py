"""The conformance suite of `actors.ports.Model`: what every model does, scripted or behind a network.

`await check_model(opened)` runs all checks. `opened(answer)` is an async context manager that gives a model which
answers each request with what `answer(request)` returns or raises; it is opened anew for each check.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, TypeAlias, final

import trio
import trio.testing
from msgspec.structs import replace

from actors.content import Text
from actors.conversation import Conversation
from actors.errors import ContextOverflow, Malformed, Overloaded, ProviderError, Rejected
from actors.ids import AgentId, CallId, MessageId, RequestId, TurnId
from actors.ports import (
    Alive,
    BlockDone,
    ModelRequest,
    ReasoningPiece,
    ReportedUsage,
    Response,
    TextPiece,
    ToolOffer,
    WireCall,
)
from actors.transcript import (
    CallBlock,
    MessageRecord,
    ReasoningBlock,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    Stop,
    TextBlock,
)

if TYPE_CHECKING:
    from actors.ports import Emit, Model, Piece
    from actors.transcript import Record

Answer: TypeAlias = Callable[[ModelRequest], Response]
"""What a request is answered with; it may raise a `ProviderError`."""
Opened: TypeAlias = Callable[[Answer], AbstractAsyncContextManager["Model"]]

LIMIT_S: Final = 10.0
"""How long one check may take."""
TURN: Final = TurnId("lead/reviewer#2:t1")


@final
class Answering:
    """The simplest model: a function's answer, told piece by piece. It is what the checks are served from.

    Args:
        answer: what each request is answered with. piece_chars: how much of a text one piece holds.
    """

    __slots__ = ("_answer", "_piece", "asked", "context_window", "free", "id", "name")

    def __init__(self, answer: Answer, *, piece_chars: int = 5) -> None:
        self._answer = answer
        self._piece = piece_chars
        self.asked = 0
        self.id = "answering:m"
        self.name = "m"
        self.free = True
        self.context_window: int | None = None

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        """Answer as the function says.

        If cancelled: nothing more is told.
        """
        self.asked += 1
        await trio.lowlevel.checkpoint()
        response = self._answer(request)
        for block in response.blocks:
            if not isinstance(block, WireCall):
                kind = TextPiece if isinstance(block, TextBlock) else ReasoningPiece
                for at in range(0, len(block.text), self._piece):
                    emit(kind(block.text[at : at + self._piece]))
                    await trio.lowlevel.checkpoint()
            emit(BlockDone(block))
        return response


async def check_model(opened: Opened) -> None:
    """Check a model against the contract of its port.

    Args:
        opened: gives a model that answers as it is told; see the module.

    Raises:
        AssertionError: the model breaks the contract; the message says how.
    """
    for check in CHECKS:
        with trio.fail_after(LIMIT_S):
            await check(opened)


def request_of(*records: Record, step: int = 1, text: str = "Hello?") -> ModelRequest:
    """A request as the checks send it."""
    said = records or (MessageRecord(TURN, MessageId("m-1"), (Text(text),)),)
    return ModelRequest(
        RequestId(f"{TURN}.{step}"),
        AgentId("lead/reviewer#2"),
        "m",
        "Be brief.",
        Conversation(said).window(),
        tools=(ToolOffer("add", "Add two numbers.", '{"type":"object"}'),),
    )


USAGE: Final = ReportedUsage(input=40, output=7, cached=30, reasoning=2, cache_write=0)
CALLS: Final = (WireCall("call_1", "add", '{"a":1,"b":2}'), WireCall("call_2", "add", '{"a":3,"b":"ü"}'))
WHOLE: Final = Response(
    (ReasoningBlock("First the sum."), TextBlock("I add.\u2028Twice. 😀"), *CALLS), Stop.TOOL_CALLS, USAGE, "m"
)


def _always(response: Response) -> Answer:
    def answer(_: ModelRequest) -> Response:
        return response

    return answer


def _ignored(_: Piece) -> None:
    """Not streaming is this."""


async def _answer_of(
    opened: Opened, answer: Answer, request: ModelRequest | None = None
) -> tuple[Response, list[Piece]]:
    told: list[Piece] = []
    async with opened(answer) as model:
        response = await model.request(request or request_of(), told.append)
    return response, told


async def names_are_told(opened: Opened) -> None:
    """A model says what it is, and the same each time."""
    async with opened(_always(WHOLE)) as model:
        assert isinstance(model.id, str), "id is text"
        assert model.id, "id is not empty: it keys permits, prices and opaque state"
        assert model.name, "name is not empty"
        assert isinstance(model.free, bool), "free is a bool"
        assert model.context_window is None or model.context_window > 0, "context_window counts tokens, or is None"
        assert (model.id, model.name) == (model.id, model.name), "names do not change"


async def the_answer_is_whole(opened: Opened) -> None:
    """Blocks, stop and usage are those that the server gave; calls keep their order, ids and arguments."""
    response, _ = await _answer_of(opened, _always(WHOLE))
    got = [replace(block, origin="") if isinstance(block, ReasoningBlock) else block for block in response.blocks]
    assert got == list(WHOLE.blocks), f"the blocks are {got}, expected {WHOLE.blocks}"
    assert response.stop is Stop.TOOL_CALLS, f"the stop is {response.stop}"
    assert response.usage == USAGE, f"the usage is {response.usage}, expected {USAGE}"


async def the_pieces_are_the_answer(opened: Opened) -> None:
    """The pieces of a channel, joined, are its block; each block is told done, one time, before the answer returns."""
    response, told = await _answer_of(opened, _always(WHOLE))
    count = len(told)
    for piece, block in ((TextPiece, TextBlock), (ReasoningPiece, ReasoningBlock)):
        joined = "".join(one.text for one in told if isinstance(one, piece))
        whole = "".join(one.text for one in response.blocks if isinstance(one, block))
        assert joined == whole, f"the pieces say {joined!r}, the blocks {whole!r}"
    done = [one.block for one in told if isinstance(one, BlockDone)]
    assert done == list(response.blocks), f"told done: {done}, answered: {response.blocks}"
    assert all(isinstance(one, TextPiece | ReasoningPiece | BlockDone | Alive) for one in told), "only pieces are told"
    await trio.testing.wait_all_tasks_blocked()
    assert len(told) == count, "nothing is told once the answer has returned"


async def stops_are_kept(opened: Opened) -> None:
    """An answer that was cut is not told as a whole one."""
    for stop in (Stop.END_TURN, Stop.MAX_TOKENS, Stop.CONTENT_FILTER):
        response, _ = await _answer_of(opened, _always(Response((TextBlock("Half"),), stop, USAGE)))
        assert response.stop is stop, f"the stop is {response.stop}, expected {stop}"


async def unknown_usage_stays_unknown(opened: Opened) -> None:
    """A number that the server did not give is None or counted by the model itself, never below what is there."""
    response, _ = await _answer_of(opened, _always(Response((TextBlock("x"),), Stop.END_TURN)))
    usage = response.usage
    assert usage is None or usage.output is None or usage.output > 0, f"something was said and {usage} says nothing was"


async def invalid_calls_are_marked(opened: Opened) -> None:
    """A call whose arguments are not a JSON object keeps its text and says so; nothing is repaired."""
    bad = WireCall("call_1", "add", '{"a":', "malformed_json")
    response, _ = await _answer_of(opened, _always(Response((bad,), Stop.TOOL_CALLS, USAGE)))
    assert response.blocks == (bad,), f"the call is {response.blocks}, expected {bad}"


async def errors_are_typed(opened: Opened) -> None:
    """A failed call raises its family of `ProviderError`, with the delay that the server asked for."""
    errors: tuple[ProviderError, ...] = (
        Overloaded("busy", reason="rate_limit", retry_after_s=1.5, status=429),
        Overloaded("broken server", reason="server", status=500),
        Rejected("bad key", reason="auth", status=401),
        ContextOverflow("too long", reason="context_overflow", status=400),
        Malformed("bad stream", reason="malformed_stream"),
    )
    for error in errors:
        caught = await _failure_of(opened, error)
        assert caught is not None, f"{error!r} was answered as if nothing had happened"
        assert type(caught) is type(error), f"{error!r} became {caught!r}"
        assert caught.retryable == error.retryable, f"{caught!r} is as retryable as {error!r}"
        assert caught.reason == error.reason, f"the reason is {caught.reason}, expected {error.reason}"
        assert caught.retry_after_s == error.retry_after_s, f"the delay is {caught.retry_after_s}"


async def _failure_of(opened: Opened, error: ProviderError) -> ProviderError | None:
    def answer(_: ModelRequest) -> Response:
        raise error

    try:
        await _answer_of(opened, answer)
    except ProviderError as caught:
        return caught
    return None


async def requests_do_not_mix(opened: Opened) -> None:
    """Many at once each get their own answer, and their own pieces."""

    def answer(request: ModelRequest) -> Response:
        last = request.window[-1]
        assert isinstance(last, MessageRecord), "the conversation came as it was sent"
        part = last.content[0]
        assert isinstance(part, Text), "its message too"
        return Response((TextBlock(f"You said {part.text}."),), Stop.END_TURN, USAGE)

    async def ask(model: Model, number: int) -> None:
        told: list[Piece] = []
        response = await model.request(request_of(text=f"number {number}", step=number), told.append)
        text = "".join(piece.text for piece in told if isinstance(piece, TextPiece))
        assert response.blocks == (TextBlock(f"You said number {number}."),), f"{number} got {response.blocks}"
        assert text == f"You said number {number}.", f"{number} was told {text!r}"

    async with opened(answer) as model, trio.open_nursery() as nursery:
        for number in range(1, 21):
            nursery.start_soon(ask, model, number)


async def a_conversation_is_carried(opened: Opened) -> None:
    """Calls and results of earlier steps reach the model; the window is not changed."""
    block = CallBlock(CallId(f"{TURN}.1.0"), "call_1", "add", '{"a":1,"b":2}')
    records: tuple[Record, ...] = (
        MessageRecord(TURN, MessageId("m-1"), (Text("1 + 2?"),)),
        ResponseRecord(TURN, (TextBlock("I add."), block), Stop.TOOL_CALLS, "m"),
        ResultRecord(TURN, block.id, "call_1", "add", ResultStatus.OK, (Text("3"),)),
    )
    request = request_of(*records, step=2)
    seen: list[Record] = []

    def answer(asked: ModelRequest) -> Response:
        seen.extend(asked.window)
        assert asked.instructions == "Be brief.", "the instructions came"
        assert [tool.name for tool in asked.tools] == ["add"], "the tools came"
        return Response((TextBlock("It is 3."),), Stop.END_TURN, USAGE)

    response, _ = await _answer_of(opened, answer, request)
    assert response.blocks == (TextBlock("It is 3."),), f"answered {response.blocks}"
    assert [type(record) for record in seen] == [type(record) for record in records], f"the model saw {seen}"
    result = seen[2]
    assert isinstance(result, ResultRecord), "the result came last"
    assert (result.wire_id, result.content) == ("call_1", (Text("3"),)), f"the result came as {result}"
    assert tuple(request.window) == records, "asking changes nothing in the window"


async def cancelling_leaves_it_whole(opened: Opened) -> None:
    """Cancelled before, at and behind its first piece, a request ends at once, tells no more and harms no other."""
    async with opened(_always(WHOLE)) as model:
        for after in range(4):
            told: list[Piece] = []
            with trio.CancelScope() as scope:
                if after == 0:
                    scope.cancel()

                def emit(
                    piece: Piece, told: list[Piece] = told, scope: trio.CancelScope = scope, after: int = after
                ) -> None:
                    told.append(piece)
                    if len(told) == after:
                        scope.cancel()

                await model.request(request_of(), emit)
            count = len(told)
            response = await model.request(request_of(), _ignored)
            assert response.stop is Stop.TOOL_CALLS, "the next request is answered"
            assert len(told) == count, "a cancelled request tells nothing more"


async def it_always_checkpoints(opened: Opened) -> None:
    """A request never holds the loop: other tasks run, and cancellation is seen."""
    async with opened(_always(WHOLE)) as model:
        with trio.testing.assert_checkpoints():
            await model.request(request_of(), _ignored)


CHECKS: Final[tuple[Callable[[Opened], Awaitable[None]], ...]] = (
    names_are_told,
    the_answer_is_whole,
    the_pieces_are_the_answer,
    stops_are_kept,
    unknown_usage_stays_unknown,
    invalid_calls_are_marked,
    errors_are_typed,
    requests_do_not_mix,
    a_conversation_is_carried,
    cancelling_leaves_it_whole,
    it_always_checkpoints,
)
