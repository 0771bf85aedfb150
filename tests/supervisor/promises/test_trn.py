"""TRN: turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import (
    LimitReached,
    Limits,
    NoteWritten,
    RequestFailed,
    Response,
    ResponseEnded,
    Script,
    TurnEnded,
    TurnStarted,
    Unavailable,
    call,
    overloaded,
    rejected,
    tool,
)
from actors.changes import Append, OutcomeRow, Put
from actors.errors import AnswerCut, Rejected
from actors.models.script import hang, thought
from actors.transcript import NoteRecord, ResponseRecord, ResultRecord, Stop, TextBlock, problems
from supervisor.store.faults import PassingStore
from tests.supervisor.promises.world import agent, check, ops, quiet, texts, watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from tests.supervisor.promises.world import World


@tool(effect="pure")
async def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


@tool(effect="pure")
async def fails(a: int = 0) -> int:
    """Fail."""
    msg = "no such thing"
    raise ValueError(msg)


async def test_trn_1_a_turn_answers_the_durable_conversation(world: World, autojump_clock: MockClock) -> None:
    """What another supervisor over the same store has answered is in the next request, each record once."""
    spec = agent()
    seen: list[list[str]] = []

    def answer(request: ModelRequest) -> str:
        seen.append(texts(list(request.window)))
        return f"answer {request.window.responses + 1}"

    for text in ("1", "2", "3"):
        async with world.open({"a": answer}, agents=[spec]) as sup:
            ref = await sup.start(spec, key="one")
            await (await ref.send(text)).wait_report()
    assert seen == [["<1"], ["<1", ">answer 1", "<2"], ["<1", ">answer 1", "<2", ">answer 2", "<3"]]


async def test_trn_1_catching_up_costs_what_is_new(memory: World, autojump_clock: MockClock) -> None:
    """However long the conversation, a turn reads no record again and commits only its own."""
    reads: list[int] = []
    original = PassingStore.read_records

    async def counted(self: PassingStore, *args: object, **kwargs: object) -> object:
        found = await original(self, *args, **kwargs)  # type: ignore[arg-type]  # as they came
        reads.append(len(found))
        return found

    async with memory.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(agent())
        memory.spy.read_records = counted.__get__(memory.spy)  # type: ignore[method-assign]  # a counting reader
        sizes = []
        for number in range(30):
            memory.spy.sets.clear()
            await (await ref.send(str(number))).wait_report()
            sizes.append(sum(len(op.records) for one in memory.spy.sets for op in ops(one, Append)))
        assert set(sizes) == {2}
        assert sum(reads) == 0, "what is in memory is not read again"


async def test_trn_2_a_failure_ends_in_a_valid_conversation_and_one_note(
    world: World, autojump_clock: MockClock
) -> None:
    """A refused request ends the turn with one note, which the next request shows the model."""
    shown: list[list[str]] = []

    def second(request: ModelRequest) -> str:
        shown.append(texts(list(request.window)))
        return "better"

    async with world.open({"a": [call("add", a=1), rejected("bad request"), second]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[add]), "go")
        report = await ref.wait_report()
        assert report.status == "failed"
        assert isinstance(report.error, Rejected)
        records = await ref.transcript()
        assert problems(records) == []
        assert [type(record) for record in records].count(NoteRecord) == 1
        assert isinstance(records[-1], NoteRecord)
        assert len(log.of(NoteWritten)) == len(log.of(RequestFailed)) == 1
        assert (await (await ref.send("again")).wait_report()).text == "better"
        assert "bad request" in "".join(shown[0])


async def test_trn_2_a_later_success_in_the_turn_drops_the_need_for_the_note(
    world: World, autojump_clock: MockClock
) -> None:
    """An attempt that failed inside a request that then succeeded leaves no note."""
    async with world.open({"a": [overloaded(retry_after=2), "fine"]}) as sup:
        ref = await sup.start(agent(), "go")
        assert (await ref.wait_report()).text == "fine"
        assert texts(await ref.transcript()) == ["<go", ">fine"]


async def test_trn_3_a_turn_that_cannot_read_writes_nothing(world: World, autojump_clock: MockClock) -> None:
    """Where the conversation cannot be read, no commit is made and the message stays queued."""
    spec = agent()
    async with world.open({"a": lambda _: "ok"}) as sup:
        ref = await sup.start(spec, "1")
        await ref.wait_idle()
    async with world.open({"a": lambda _: "ok"}, agents=[spec]) as sup:

        async def broken(*_: object) -> tuple[()]:
            msg = "the disk is gone"
            raise Unavailable(msg)

        good, world.spy.read_records = world.spy.read_records, broken  # type: ignore[method-assign,assignment]  # a broken disk
        ref = await sup.find("a")
        await ref.send("2")
        await quiet()
        assert world.spy.commits == 1, "nothing but the message's acceptance was tried"
        assert ref.state == "suspended"
        world.spy.read_records = good  # type: ignore[method-assign]  # mended
        await sup.resume()
        await ref.wait_idle()
        assert texts(await ref.transcript()) == ["<1", ">ok", "<2", ">ok"]


async def test_trn_4_one_terminal_event_per_response_and_per_turn(world: World, autojump_clock: MockClock) -> None:
    """Answered, failed, aborted, steered.

    Each response has one ResponseEnded or RequestFailed, each turn one TurnEnded and one outcome in the store.
    """
    script = {"a": [call("add", a=1), "one", rejected(), ("half", hang()), "last"]}
    async with world.open(script) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[add]), "1")
        await ref.wait_idle()
        await ref.send("2")
        await ref.wait_idle()
        await ref.send("3")
        await trio.sleep(1)
        await ref.abort("enough")
        await ref.wait_idle()
        await ref.send("4")
        await ref.wait_idle()
        assert [len(log.of(TurnStarted)), len(log.of(TurnEnded))] == [4, 4]
        assert log.statuses("a") == ["done", "failed", "aborted", "done"]
        assert len(log.of(ResponseEnded)) + len(log.of(RequestFailed)) == 5
        outcomes = [put.row.turn for one in world.spy.sets for put in ops(one, Put) if isinstance(put.row, OutcomeRow)]
        assert outcomes == ["a:t1", "a:t2", "a:t3", "a:t4"]


async def test_trn_5_reasoning_text_calls_and_results_in_call_order(world: World, autojump_clock: MockClock) -> None:
    """However the model mixes its blocks, they are stored reasoning, text, calls; results follow in call order."""

    @tool(effect="pure")
    async def wait(seconds: float) -> str:
        """Wait."""
        await trio.sleep(seconds)
        return str(seconds)

    step = (call("wait", seconds=3), "text", call("wait", seconds=1), thought("hm"))
    async with world.open({"a": [step, "done"]}) as sup:
        ref = await sup.start(agent(tools=[wait]), "go")
        await trio.sleep(0.5)
        await ref.steer("nothing stands between")
        await ref.wait_report()
        records = await ref.transcript()
        assert [type(block).__name__ for block in records[1].blocks] == [  # type: ignore[union-attr]  # a response
            "ReasoningBlock",
            "TextBlock",
            "CallBlock",
            "CallBlock",
        ]
        assert texts(records)[2:5] == ["=ok:3.0", "=ok:1.0", "<nothing stands between"]
        assert problems(records) == []


async def test_trn_6_a_response_with_no_blocks_is_no_message(world: World, autojump_clock: MockClock) -> None:
    """An empty answer leaves no record, and the next request is still valid."""
    empty = Response((), Stop.END_TURN)
    async with world.open({"a": [empty, "words"]}) as sup:
        ref = await sup.start(agent(), "1")
        await ref.wait_idle()
        assert not [record for record in await ref.transcript() if isinstance(record, ResponseRecord)]
        await ref.send("2")
        await ref.wait_idle()
        assert texts(await ref.transcript())[-2:] == ["<2", ">words"]


async def test_trn_8_what_memory_holds_is_what_a_reload_would_rebuild(world: World, autojump_clock: MockClock) -> None:
    """A response cut by an abort keeps finished blocks and the half text, and a reload sees what memory saw."""
    spec = agent(tools=[add])
    script = {"a": [(thought("whole thought"), "a whole block", "half of a", hang()), "later"]}
    model = Script(script, delta_chars=4)
    seen: list[list[str]] = []
    async with world.open(model) as sup:
        ref = await sup.start(spec, "go")
        await trio.sleep(1)
        await ref.abort("enough")
        await ref.wait_aborted()
        await ref.wait_idle()
        actor = sup._parts.kernel.actors[ref.path]
        assert actor.memory.conversation is not None
        in_memory = list(actor.memory.conversation.window())
        records = await ref.transcript()
        assert in_memory == list(records)
        assert isinstance(records[1], ResponseRecord)
        assert records[1].stop is Stop.INTERRUPTED
        blocks = records[1].blocks
        assert [block.text for block in blocks] == ["whole thought", "a whole block", "half of a"]  # type: ignore[union-attr]  # no calls
        assert blocks[-1] == TextBlock("half of a", half=True)

    def answer(request: ModelRequest) -> str:
        seen.append(texts(list(request.window)))
        return "later"

    async with world.open({"a": answer}, agents=[spec]) as sup:
        ref = await sup.find("a")
        await (await ref.send("on")).wait_report()
        assert seen == [[*texts(in_memory), "<on"]]


async def test_trn_8_half_reasoning_and_half_calls_are_dropped(world: World, autojump_clock: MockClock) -> None:
    """Of an aborted response a whole call is settled as skipped, half reasoning is not kept."""
    script = {"a": [(call("add", a=1), hang())]}
    async with world.open(script) as sup:
        ref = await sup.start(agent(tools=[add]), "go")
        await trio.sleep(1)
        await ref.abort("enough")
        await ref.wait_idle()
        records = await ref.transcript()
        assert problems(records) == []
        assert [record.status.value for record in records if isinstance(record, ResultRecord)] == ["skipped"]
        await check(sup.store)


async def test_trn_7_the_bound_of_model_calls_is_said_first_and_then_an_error(
    world: World, autojump_clock: MockClock
) -> None:
    """The last request of the bound says so and offers no calls; going on is `LimitReached`, never an answer."""
    asked: list[str] = []

    def always(request: ModelRequest) -> object:
        asked.append(request.tool_choice + "|" + texts(list(request.window))[-1])
        return call("add", a=len(asked))

    async with world.open({"a": always, "b": always}) as sup:
        ref = await sup.start(agent(tools=[add], limits=Limits(model_calls_per_turn=4)), "go")
        report = await ref.wait_report()
        assert report.status == "failed"
        assert isinstance(report.error, LimitReached)
        assert len(asked) == 4
        assert asked[-1].startswith("none|!This is the last of 4")
        assert problems(await ref.transcript()) == []
        with pytest.raises(LimitReached):
            report.raise_for_status()
        only = await sup.start(agent("b", tools=[add], limits=Limits(model_calls_per_turn=1)), "go")
        assert isinstance((await only.wait_report()).error, LimitReached)
        assert len(asked) == 5


async def test_trn_7_the_bound_of_invalid_responses(world: World, autojump_clock: MockClock) -> None:
    """Responses in a row with nothing but invalid calls: the model is told, then the turn fails with a typed error."""
    asked: list[str] = []

    def always(request: ModelRequest) -> object:
        asked.append(request.tool_choice)
        return call("add", wrong=len(asked))

    async with world.open({"a": always}) as sup:
        ref = await sup.start(agent(tools=[add], limits=Limits(invalid_responses=3)), "go")
        report = await ref.wait_report()
        assert (report.status, type(report.error)) == ("failed", LimitReached)
        assert asked == ["auto", "auto", "auto", "none"]
        assert any("!3 responses in a row" in text for text in texts(await ref.transcript()))


async def test_trn_7_the_bound_of_identical_failing_calls(world: World, autojump_clock: MockClock) -> None:
    """The same call that failed so often is not run again: the model is told so in its result."""
    runs: list[int] = []

    @tool(effect="pure")
    async def broken(a: int) -> int:
        """Fail."""
        runs.append(a)
        msg = "no"
        raise ValueError(msg)

    def always(request: ModelRequest) -> object:
        return call("broken", a=1) if request.window.responses < 4 else "I give up"

    async with world.open({"a": always}) as sup:
        ref = await sup.start(agent(tools=[broken], limits=Limits(identical_failures=2)), "go")
        report = await ref.wait_report()
        assert report.text == "I give up"
        assert runs == [1, 1]
        results = [text for text in texts(await ref.transcript()) if text.startswith("=")]
        assert [text.split(":")[0] for text in results] == ["=error", "=error", "=refused", "=refused"]
        assert "failed 2 times in a row" in results[-1]


async def test_trn_7_a_cut_answer_is_never_dressed_as_a_whole_one(world: World, autojump_clock: MockClock) -> None:
    """An answer that the model's output limit cut is kept and said to be partial; the run fails."""
    cut = Response((TextBlock("the first ha"),), Stop.MAX_TOKENS)
    async with world.open({"a": [cut]}) as sup:
        ref = await sup.start(agent(), "go")
        report = await ref.wait_report()
        assert (report.status, type(report.error), report.text) == ("failed", AnswerCut, "the first ha")
        assert "not whole" in str(report.error)
