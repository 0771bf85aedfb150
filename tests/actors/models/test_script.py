"""The scripted model: what each agent is answered, how it streams, what it counts, what it tells at the end."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, cast

import attrs
import hypothesis.strategies as st
import pytest
import trio
from hypothesis import given
from msgspec.structs import replace

from actors.content import Text
from actors.conversation import Conversation
from actors.errors import (
    Broken,
    ContextOverflow,
    Malformed,
    Overloaded,
    ProviderError,
    Rejected,
    UsageError,
)
from actors.ids import AgentId, CallId, MessageId, RequestId, TurnId
from actors.models.reading import Seen, last_message, messages, offered, replies, results, step
from actors.models.script import (
    KEPT_SCENES,
    Script,
    broken,
    call,
    hang,
    malformed,
    overflow,
    overloaded,
    rejected,
    thought,
)
from actors.ports import (
    BlockDone,
    Model,
    ModelRequest,
    Piece,
    ReasoningPiece,
    ReportedUsage,
    Response,
    TextPiece,
    ToolOffer,
    WireCall,
)
from actors.testing.check_model import check_model
from actors.transcript import (
    CallBlock,
    MessageRecord,
    NoteRecord,
    Record,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    Stop,
    TextBlock,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from actors.testing.check_model import Answer

TURN = TurnId("a:t1")


def said(text: str) -> MessageRecord:
    """A message."""
    return MessageRecord(TURN, MessageId("m-1"), (Text(text),))


def replied(text: str, *calls: str) -> ResponseRecord:
    """A response; its calls are named, and their wire ids are their names."""
    blocks = (*((TextBlock(text),) if text else ()), *(CallBlock(CallId(f"a:{n}"), n, n, "{}") for n in calls))
    return ResponseRecord(TURN, blocks, Stop.END_TURN, "script")


def result(name: str, text: str) -> ResultRecord:
    """The result of a call."""
    return ResultRecord(TURN, CallId(f"a:{name}"), name, name, ResultStatus.OK, (Text(text),))


def ask(agent: str = "adder", *records: Record, **options: object) -> ModelRequest:
    """A request of an agent with a conversation."""
    window = Conversation(records or (said("2 + 3?"),)).window()
    request = ModelRequest(RequestId("a:t1.1"), AgentId(agent), "script", "Add.", window)
    return replace(request, **options)


def nothing(piece: Piece) -> None:
    """Watch nothing."""


async def texts(script: Script, *agents: str) -> list[str]:
    """What agents are answered, one request each, as text."""
    found = []
    for agent in agents:
        response = await script.request(ask(agent), nothing)
        found.append("".join(block.text for block in response.blocks if isinstance(block, TextBlock)))
    return found


@attrs.frozen
class Verdict:
    file: str
    score: int


async def test_each_kind_of_step_is_what_a_model_would_send() -> None:
    """Text, calls, both side by side, an object, reasoning, a whole response: blocks, stop and ids as on a wire."""
    whole = Response((TextBlock("cut"),), Stop.MAX_TOKENS, ReportedUsage(1, 2), "other", "r1")
    script: Model = Script(
        {
            "adder": [
                call("add", a=2, b=Verdict("x", 1)),
                [
                    "Both:",
                    call("add", a=1),
                    call("add", a=2).known_as("same"),
                    call.raw("add", "{a"),
                    call.raw("add", "1"),
                ],
                Verdict("a.py", 3),
                (thought("hm"), "Five."),
                whole,
                ({"a": 1}, WireCall("id", "add", "{}")),
                Response((), Stop.END_TURN),
            ]
        }
    )
    got = [await script.request(ask(), nothing) for _ in range(7)]
    assert [(one.blocks, one.stop) for one in got] == [
        ((WireCall("call_1", "add", '{"a":2,"b":{"file":"x","score":1}}'),), Stop.TOOL_CALLS),
        (
            (
                TextBlock("Both:"),
                WireCall("call_2", "add", '{"a":1}'),
                WireCall("same", "add", '{"a":2}'),
                WireCall("call_4", "add", "{a", "malformed_json"),
                WireCall("call_5", "add", "1", "not_an_object"),
            ),
            Stop.TOOL_CALLS,
        ),
        ((TextBlock('{"file":"a.py","score":3}'),), Stop.END_TURN),
        (got[3].blocks, Stop.END_TURN),
        ((TextBlock("cut"),), Stop.MAX_TOKENS),
        ((TextBlock('{"a":1}'), WireCall("id", "add", "{}")), Stop.TOOL_CALLS),
        ((), Stop.END_TURN),
    ]
    assert [type(block).__name__ for block in got[3].blocks] == ["ReasoningBlock", "TextBlock"]
    assert got[4] == whole
    assert (got[0].model, got[0].request_id, got[1].request_id) == ("script", "adder~1", "adder~2")


async def test_errors_are_raised_one_per_attempt() -> None:
    """Each error step is one failed attempt with its own kind and hints; what had come before it has come."""
    steps = [overloaded(retry_after=2), rejected(), malformed(), overflow(), ("half an ans", broken()), "Five."]
    script = Script({"adder": steps}, delta_chars=4)
    caught: list[ProviderError] = []
    pieces: list[Piece] = []
    for _ in range(5):
        with pytest.raises(ProviderError) as error:
            await script.request(ask(), pieces.append)
        caught.append(error.value)
    assert [type(error) for error in caught] == [Overloaded, Rejected, Malformed, ContextOverflow, Broken]
    assert (caught[0].retry_after_s, caught[0].status, caught[0].reason) == (2, 429, "rate_limit")
    assert caught[4] is not steps[4][1]  # type: ignore[index]
    assert pieces == [TextPiece("half"), TextPiece(" an "), TextPiece("ans")]
    assert await texts(script, "adder") == ["Five."]
    script.assert_done()


async def test_a_function_answers_from_the_request() -> None:
    """A step, or a whole script, may be a function, sync or async, that gives any step or raises an error."""

    async def later(request: ModelRequest) -> object:
        await trio.lowlevel.checkpoint()
        return f"later {last_message(request)}"

    def fails(request: ModelRequest) -> object:
        raise overloaded()

    script = Script(
        {"adder": [lambda request: [call("add"), last_message(request)], later, fails], "echo": last_message}
    )
    response = await script.request(ask(), nothing)
    assert response.blocks == (WireCall("call_1", "add", "{}"), TextBlock("2 + 3?"))
    assert await texts(script, "adder", "echo", "echo") == ["later 2 + 3?", "2 + 3?", "2 + 3?"]
    with pytest.raises(Overloaded):
        await script.request(ask(), nothing)
    script.assert_done()


async def test_what_functions_give_again_and_again_is_kept_ready_for_a_while_only() -> None:
    """The same call gets a wire id of its own each time; of many different texts each is answered, and few are kept."""
    given: list[object] = [call("add", a=1), call("add", a=1), *[f"text {number}" for number in range(2 * KEPT_SCENES)]]
    script = Script({"adder": lambda _request: given.pop(0)})
    answers = [await script.request(ask(), nothing) for _ in range(len(given))]
    assert [answer.blocks for answer in answers[:2]] == [(WireCall(f"call_{n}", "add", '{"a":1}'),) for n in (1, 2)]
    assert [answer.blocks for answer in answers[2:]] == [(TextBlock(f"text {n}"),) for n in range(2 * KEPT_SCENES)]
    assert len(script._ready) <= KEPT_SCENES


async def test_a_function_that_fails_is_told() -> None:
    """A mistake in a script's function is a rejected request that names it, and stands in `assert_done`."""

    def wrong(request: ModelRequest) -> object:
        return {}["missing"]  # type: ignore[index]

    script = Script({"adder": [wrong, lambda request: None]})
    with pytest.raises(Rejected, match="step for adder failed: KeyError"):
        await script.request(ask(), nothing)
    with pytest.raises(Rejected, match="None is no part of an answer"):
        await script.request(ask(), nothing)
    with pytest.raises(AssertionError, match=r"adder: the step .*wrong failed: KeyError: 'missing'"):
        script.assert_done()


async def test_script_1_every_agent_plays_its_own_script() -> None:
    """Instances of one name each begin at the start, a whole path goes first, and no agent moves another's place."""
    script = Script({"reviewer": ["one", "two"], "lead/reviewer#2": ["own"], "lead": ["lead"]})
    order = ["lead/reviewer", "lead/reviewer#2", "lead/reviewer#3", "lead", "lead/reviewer", "lead/reviewer#3"]
    assert await texts(script, *order) == ["one", "own", "one", "lead", "two", "two"]
    script.assert_done()


@given(st.permutations(["a", "a", "b", "b", "b", "x/b", "x/b"]))
def test_script_1_the_order_of_agents_does_not_matter(order: list[str]) -> None:
    """Whatever the interleaving, each agent is answered the same, wire ids included."""
    script = Script({"a": ["1", call("t")], "b": [call("t"), call("t"), "3"]})

    async def play() -> dict[str, list[Response]]:
        found: dict[str, list[Response]] = {}
        for agent in order:
            found.setdefault(agent, []).append(await script.request(ask(agent), nothing))
        return found

    found = trio.run(play)
    assert [one.blocks for one in found["a"]] == [(TextBlock("1"),), (WireCall("call_1", "t", "{}"),)]
    calls = [(WireCall("call_1", "t", "{}"),), (WireCall("call_2", "t", "{}"),)]
    assert [one.blocks for one in found["b"]] == [*calls, (TextBlock("3"),)]
    assert [one.blocks for one in found["x/b"]] == calls


async def test_a_resumed_agent_goes_on_behind_its_responses(autojump_clock: trio.abc.Clock) -> None:
    """In a new process the place is read from the conversation: errors left no response, calls keep counting."""
    script = Script({"adder": [overloaded(), "one", call("add"), broken(), call("add"), "end"]})
    records = (said("x"), replied("one"), replied("", "add"), result("add", "5"))
    with pytest.raises(Broken):
        await script.request(ask("adder", *records), nothing)
    response = await script.request(ask("adder", *records), nothing)
    assert response.blocks == (WireCall("call_2", "add", "{}"),)
    assert await texts(script, "adder") == ["end"]
    stalled = Script({"adder": [hang(), ("half", hang()), "two"]})
    with trio.fail_after(1):
        resumed = await stalled.request(ask("adder", said("x"), replied("half")), nothing)
    assert resumed.blocks == (TextBlock("two"),)
    fresh = Script({"adder": ["one", "two"]})
    with pytest.raises(Rejected, match="all 2 steps"):
        await fresh.request(ask("adder", said("x"), replied("one"), replied("two"), replied("three")), nothing)


async def test_it_streams_in_pieces() -> None:
    """Deltas join to the block, each block is announced whole behind them, and pieces come in the blocks' order."""
    script = Script({"adder": [(thought("abcde"), "It is five.", call("add"))]}, delta_chars=4)
    pieces: list[Piece] = []
    response = await script.request(ask(), pieces.append)
    assert pieces == [
        ReasoningPiece("abcd"),
        ReasoningPiece("e"),
        BlockDone(response.blocks[0]),
        TextPiece("It i"),
        TextPiece("s fi"),
        TextPiece("ve."),
        BlockDone(response.blocks[1]),
        BlockDone(response.blocks[2]),
    ]
    pieces.clear()
    await Script({"adder": ["x" * 1000]}, delta_chars=0).request(ask(), pieces.append)
    assert pieces == [TextPiece("x" * 1000), BlockDone(TextBlock("x" * 1000))]


async def test_usage_is_counted_from_bytes() -> None:
    """Input is instructions, conversation, tools and notes; output is what was said; all of it is known."""
    script = Script({"adder": ["x" * 40, (thought("y" * 10), call("add", a=1))]})
    plain = (await script.request(ask(), nothing)).usage
    tools = (ToolOffer("add", "Add.", "{}" * 100),)
    more = (await script.request(ask(tools=tools, notes=("n" * 40,)), nothing)).usage
    assert plain is not None
    assert more is not None
    assert plain == ReportedUsage(plain.input, 10, 0, 0, 0)
    assert (more.output, more.reasoning) == (3 + 3, 3)
    assert plain.input is not None
    assert more.input is not None
    assert 11 < plain.input < 20
    assert 61 <= more.input - plain.input <= 63


async def test_latency_is_slept_and_spread(autojump_clock: trio.abc.Clock) -> None:
    """A request takes its seconds, half of them before the first piece; a range is drawn by seed and agent."""
    script = Script({"adder": ["12345678", "x"]}, latency_s=8, delta_chars=4)
    times: list[float] = []
    began = trio.current_time()
    await script.request(ask(), lambda piece: times.append(trio.current_time() - began))
    assert [round(time, 3) for time in times] == [5.333, 6.667, 8.0]

    async def took(seed: int, agent: str) -> float:
        ranged = Script({"adder": ["x"]}, latency_s=(1, 3), seed=seed)
        start = trio.current_time()
        await ranged.request(ask(agent), nothing)
        return round(trio.current_time() - start, 6)

    first = await took(1, "adder")
    assert 1 <= first <= 3
    assert await took(1, "adder") == first
    assert await took(2, "adder") != first
    assert await took(1, "lead/adder") != first


async def test_no_latency_takes_no_time_but_lets_others_run(autojump_clock: trio.abc.Clock) -> None:
    """Without latency the clock stands still, and yet a request is a checkpoint and can be cancelled."""
    script = Script({"adder": ["x", "y"]})
    began = trio.current_time()
    await texts(script, "adder")
    assert trio.current_time() == began
    with trio.CancelScope() as scope:
        scope.cancel()
        await script.request(ask(), nothing)
    assert scope.cancelled_caught


async def test_a_hanging_step_can_be_cancelled(autojump_clock: trio.abc.Clock) -> None:
    """What stands before the stall has come; nothing more does, until the request is cancelled."""
    script = Script({"adder": [("half", hang()), hang(), "Five."]})
    pieces: list[Piece] = []
    for _ in range(2):
        with trio.move_on_after(1000) as scope:
            await script.request(ask(), pieces.append)
        assert scope.cancelled_caught
    assert pieces == [TextPiece("half")]
    assert await texts(script, "adder") == ["Five."]


async def test_a_request_without_a_step_names_agent_and_question() -> None:
    """No step left, or no script at all: rejected with words on who asked what, and listed at the end."""
    script = Script({"adder": ["one"], "idle": ["a", call("b", c=1)]})
    await texts(script, "adder")
    with pytest.raises(
        Rejected, match=r"no step left for adder, .* asked '2 \+ 3\?': all 1 steps of 'adder' are played"
    ):
        await texts(script, "adder")
    with pytest.raises(Rejected, match="asked the results of add, sub"):
        await script.request(
            ask("adder", said("x"), replied("", "add", "sub"), result("add", "1"), result("sub", "2")), nothing
        )
    with pytest.raises(Rejected, match="it has no steps for 'other'; it has some for adder, idle"):
        await texts(script, "lead/other")
    with pytest.raises(AssertionError) as caught:
        script.assert_done()
    assert str(caught.value).splitlines() == [
        "the script is not done:",
        "- adder: unexpected request, asked '2 + 3?'",
        "- adder: unexpected request, asked the results of add, sub",
        "- lead/other: unexpected request, asked '2 + 3?'",
        "- idle: never asked; 2 steps not played",
    ]


async def test_steps_left_are_listed_per_agent() -> None:
    """`assert_done` shows what each agent did not play."""
    script = Script(
        {"adder": ["one", "two", call("add", a=1), (thought("hm"), broken()), last_message], "echo": last_message}
    )
    await texts(script, "x/adder")
    with pytest.raises(AssertionError) as caught:
        script.assert_done()
    assert str(caught.value).splitlines()[1:] == [
        "- x/adder: not played: 'two'",
        '- x/adder: not played: call add({"a":1})',
        "- x/adder: not played: ReasoningBlock(text='hm', origin='', opaque=None), Broken",
        "- x/adder: not played: last_message",
        "- echo: never asked",
    ]
    assert repr(script) == "<Script script for adder, echo, 1 playing>"


@pytest.mark.parametrize(
    ("steps", "options", "says"),
    [
        (["one"], {}, "Script takes a dict"),
        ({"a": 5}, {}, "the script of 'a' is a list of steps"),
        ({5: ["x"]}, {}, "keyed by agent names"),
        ({"a": [None]}, {}, "None is no part of an answer"),
        ({"a": [[]]}, {}, "an empty list is no step"),
        ({"a": [[broken(), "x"]]}, {}, "is no part of an answer"),
        ({"a": [Verdict]}, {}, "is no part of an answer"),
        ({"a": [thought(3)]}, {}, "a text or a thought of a script is text"),  # type: ignore[arg-type]
        ({"a": [("x", TextBlock(3))]}, {}, "a text or a thought of a script is text"),  # type: ignore[arg-type]
        ({"a": [object()]}, {}, "cannot be written as JSON"),
        ({}, {"latency_s": -1}, "latency_s from 0"),
        ({}, {"latency_s": (2, 1)}, "latency_s from 0"),
        ({}, {"delta_chars": -1}, "delta_chars from 0"),
    ],
    ids=str,
)
def test_what_is_no_script_is_refused_where_it_is_written(steps: object, options: dict[str, float], says: str) -> None:
    """A step that cannot be played is an error of the script, before any agent runs."""
    with pytest.raises(UsageError) as caught:
        Script(steps, **options)  # type: ignore[arg-type]
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: call(cast("str", 3)),
        lambda: call("half a \ud800"),
        lambda: call.raw(cast("str", 3), "{}"),
        lambda: call.raw("x", cast("str", {"a": 1})),
        lambda: call("x").known_as(cast("str", 3)),
    ],
)
def test_a_call_that_no_model_could_send_is_refused_where_it_is_written(make: Callable[[], object]) -> None:
    """A name, a wire id or raw arguments that are no text: not only where the call is played."""
    with pytest.raises(UsageError, match="is text that UTF-8 can hold"):
        make()


def test_a_script_is_a_free_model_with_a_name() -> None:
    """It has what a model has; text alone is one step."""
    script = Script({"a": "Hello."}, name="small", context_window=100)
    assert (script.id, script.name, script.free, script.context_window) == ("script:small", "small", True, 100)
    assert trio.run(texts, script, "a") == ["Hello."]


@contextlib.asynccontextmanager
async def opened(answer: Answer) -> AsyncIterator[Model]:
    """A script in which one function answers everything."""
    yield Script({"reviewer": answer}, delta_chars=5)


async def test_a_script_is_what_every_model_is(autojump_clock: trio.abc.Clock) -> None:
    """It passes the conformance suite that models behind a network pass."""
    await check_model(opened)


# -- what scripts read of a request ------------------------------------------------------------------------------

CONVERSATION = (
    said("first"),
    replied("thinking", "add", "sub"),
    result("add", "5"),
    result("sub", "1"),
    NoteRecord(TURN, "notice", "late"),
)


def test_reading_what_a_server_could_see() -> None:
    """Last message, all messages, the last batch's results with their calls, replies, steps since the message."""
    request = ask("a", *CONVERSATION, tools=(ToolOffer("add", "", "{}"),))
    assert (last_message(request), messages(request), replies(request)) == ("first", ["first"], ["thinking"])
    assert results(request) == [Seen("add", "{}", "5"), Seen("sub", "{}", "1")]
    assert (step(request), offered(request)) == (1, ["add"])
    assert offered(replace(request, tool_choice="none")) == []


def test_results_are_those_not_answered_yet() -> None:
    """Steering that came meanwhile does not hide them; an answer does."""
    assert [one.text for one in results(ask("a", *CONVERSATION, said("hurry")))] == ["5", "1"]
    assert results(ask("a", *CONVERSATION, replied("so it is"))) == []
    assert results(ask("a", said("x"))) == []
    assert step(ask("a", *CONVERSATION, replied("so it is"), said("and?"))) == 0
    assert last_message(ask("a", replied("x"))) == ""
    assert step(ask("a", replied("x"))) == 1
