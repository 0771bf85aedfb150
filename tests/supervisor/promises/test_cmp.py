"""CMP: compaction; and the overflow of REQ-3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import (
    AgentClosed,
    Compact,
    Compaction,
    CompactionEnded,
    CompactionStarted,
    Context,
    ContextOverflow,
    Hooks,
    MessageConsumed,
    NotCompacted,
    Pinned,
    RequestFailed,
    RequestStarted,
    Script,
    TurnStarted,
    UsageError,
    WaitCycle,
    call,
    tool,
)
from actors.changes import Append
from actors.content import Text, Trust
from actors.messages import ReceiptState
from actors.models.script import broken, hang, overflow
from actors.transcript import MessageRecord, ResultRecord, SummaryRecord, problems
from tests.supervisor.promises.world import agent, check, has, quiet, texts, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from actors import ModelRequest
    from actors.changes import ChangeSet
    from supervisor import AgentRef
    from tests.supervisor.promises.world import World

LONG = "word " * 400
"""Worth a summary."""


def plays(**steps: Any) -> Callable[[ModelRequest], object]:
    """A model that summarises as `summary=` says, and answers what it is asked by `answer=`, long by default."""

    def play(request: ModelRequest) -> object:
        step = steps.get("summary", "in short") if request.purpose == "compaction" else steps.get("answer", LONG)
        return step(request) if callable(step) else step

    return play


def summaries(one: ChangeSet) -> bool:
    """Whether a set appends a summary."""
    return has(one, Append, lambda op: any(isinstance(record, SummaryRecord) for record in op.records))


# -- 1, 2: at a boundary, whole ------------------------------------------------------------------------------------


async def test_cmp_1_it_waits_for_the_batch_that_is_under_way(world: World, autojump_clock: MockClock) -> None:
    """Asked while calls run, it is made when their results are in the store, and the next request sees its summary."""
    seen: list[list[str]] = []

    @tool
    async def slow() -> str:
        """Take a while."""
        await trio.sleep(10)
        return LONG

    def answer(request: ModelRequest) -> object:
        seen.append(texts(list(request.window)))
        return call("slow") if len(seen) < 3 else "done"

    async with world.open({"a": plays(answer=answer)}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[slow], compaction=Compaction(keep=0.0)), "go " + LONG)
        await trio.sleep(15)
        await ref.compact()
        assert log.of(CompactionStarted) == [], "BR-124: a batch is open"
        report = await ref.wait_report()
        assert report.text == "done"
        await ref.wait_compacted()
        records = await sup.store.read_records("a")  # type: ignore[arg-type]  # paths are text here
        at = next(n for n, record in enumerate(records) if isinstance(record, SummaryRecord))
        assert isinstance(records[at - 1], ResultRecord)
        assert problems(records[:at]) == []
        assert seen[2] == ["!in short", "> slow()", "=ok:" + LONG], "the batch no response had seen is kept whole"
        await check(sup.store)


async def test_cmp_2_it_replaces_the_history_whole_or_not_at_all(world: World, autojump_clock: MockClock) -> None:
    """Its commit fails: nothing has changed, in memory or in the store, and whoever waits hears of it."""
    async with world.open({"a": plays()}) as sup:
        ref = await sup.start(agent(), "go")
        await ref.wait_report()
        before = await ref.transcript()
        world.spy.refuse = summaries
        await ref.compact()
        with pytest.raises(NotCompacted):
            await ref.wait_compacted()
        world.spy.refuse = lambda _: False
        assert await ref.transcript() == before
    async with world.open({"a": plays()}, agents=[agent()]) as sup:
        await sup.resume()
        again = await sup.find("a")
        await again.wait_idle()
        assert await again.transcript() == before
        assert (await again.ask("more")).text == LONG


async def test_cmp_2_a_message_sent_at_any_moment_of_it_survives(world: World, autojump_clock: MockClock) -> None:
    """BR-122: sent while the summary is admitted, asked for, written or committed, a message is consumed, after it."""
    for step in range(12):
        name = f"a{step}"
        script = Script({name: plays()}, latency_s=3)
        async with world.open(script) as sup, watched(sup) as log:
            ref = await sup.start(agent(name), "go")
            await ref.wait_report()
            await ref.compact()
            await trio.sleep(step / 3)
            receipt = await ref.send(f"more {step}")
            await ref.wait_compacted()
            await receipt.wait_report()
            assert log.consumed(name)[-1] == receipt.id
            shown = texts(await ref.transcript())
            assert shown[0] == "!in short" or step > 8
            assert f"<more {step}" in shown
            await check(sup.store)


# -- 3: once, shared, or rejected ----------------------------------------------------------------------------------


async def test_cmp_3_asked_for_twice_it_runs_once_and_all_who_wait_share_it(
    world: World, autojump_clock: MockClock
) -> None:
    """Requests before it is over are the same one; each wait ends with it."""
    async with world.open(Script({"a": plays()}, latency_s=2)) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "go")
        await ref.wait_report()
        ended = []

        async def wait() -> None:
            await ref.wait_compacted()
            ended.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                await ref.compact()
                nursery.start_soon(wait)
                await trio.sleep(0.5)
        assert len(log.of(CompactionStarted)) == len(log.of(CompactionEnded)) == 1
        assert len(set(ended)) == 1


async def test_cmp_3_rejected_where_nobody_will_carry_it_out(world: World, autojump_clock: MockClock) -> None:
    """Aborted, closed, or its agent closing: whoever waits hears it, and is not left waiting."""

    def summary(_: ModelRequest) -> object:
        return hang()

    async with world.open({"a": plays(summary=summary)}) as sup:
        ref = await sup.start(agent(), "go")
        await ref.wait_report()
        await ref.compact()
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:

                async def waits() -> None:
                    with pytest.raises(NotCompacted, match="stop it"):
                        await ref.wait_compacted()

                nursery.start_soon(waits)
                await quiet()
                await ref.abort("stop it")
        with pytest.raises(NotCompacted, match="stop it"):
            await ref.wait_compacted()
        assert (await ref.ask("still there?")).text == LONG
        await ref.compact()
        await quiet()
        await ref.close(grace=3)
        with pytest.raises(NotCompacted):
            await ref.wait_compacted()
        await ref.wait_closed()
        with pytest.raises(NotCompacted, match="closed"):
            await ref.compact()
        with pytest.raises(AgentClosed):
            await ref.send("too late")


async def test_cmp_3_a_request_that_fails_rejects_it_and_the_agent_goes_on(
    world: World, autojump_clock: MockClock
) -> None:
    """The summariser is broken: the wait raises, the event says so, the next message is answered."""
    async with world.open({"a": plays(summary=lambda _: broken("no luck"))}) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "go")
        await ref.wait_report()
        await ref.compact()
        with pytest.raises(NotCompacted, match="no luck"):
            await ref.wait_compacted()
        (told,) = log.of(CompactionEnded)
        assert "no luck" in told.error
        assert (await ref.ask("still there?")).text == LONG


async def test_cmp_3_nothing_to_compact_is_done_at_once(memory: World, autojump_clock: MockClock) -> None:
    """A short conversation asks for no summary; with none asked for, a wait returns."""
    async with memory.open({"a": ["short"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "go")
        await ref.wait_compacted()
        await ref.wait_report()
        await ref.compact()
        await ref.wait_compacted()
        assert log.of(CompactionStarted) == []
        assert len(log.of(RequestStarted)) == 1


async def test_ree_1_a_tool_may_ask_for_its_own_compaction_and_not_wait_for_it(
    world: World, autojump_clock: MockClock
) -> None:
    """Requested from inside a turn it is made at the next boundary; the wait would close a cycle and is refused."""
    refused: list[WaitCycle] = []

    @tool
    async def tidy(ctx: Context) -> str:
        """Compact the conversation."""
        await ctx.ref(ctx.agent).compact()
        try:
            await ctx.ref(ctx.agent).wait_compacted()
        except WaitCycle as error:
            refused.append(error)
        return "asked"

    def answer(request: ModelRequest) -> object:
        results = any(isinstance(record, ResultRecord) for record in request.window)
        return "done" if results else [LONG, call("tidy")] if len(request.window) > 1 else LONG

    async with world.open({"a": plays(answer=answer)}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[tidy]), "go")
        await ref.wait_report()
        assert (await ref.ask("tidy up")).text == "done"
        assert len(refused) == 1
        assert "compact()" in str(refused[0])
        await ref.wait_compacted()
        assert [event.error for event in log.of(CompactionEnded)] == [None]
        assert texts(await ref.transcript())[0] == "!in short"


# -- 4, 5: archive, pairs, pinned ----------------------------------------------------------------------------------


async def test_cmp_4_what_is_replaced_can_be_read(world: World, autojump_clock: MockClock) -> None:
    """The archive has every record in order; what is in force is the summary and what it keeps; a restart agrees."""
    async with world.open({"a": plays()}) as sup:
        ref = await sup.start(agent(), "one")
        await ref.wait_report()
        await ref.ask("two")
        whole = await ref.transcript(archived=True)
        await ref.compact()
        await ref.wait_compacted()
        force = await ref.transcript()
        assert (await ref.transcript(archived=True))[:-1] == whole
        assert isinstance(force[0], SummaryRecord)
        assert len(force) < len(whole)
        conversation = sup._parts.kernel.actors[ref.path].memory.conversation
        assert conversation is not None
        assert list(force) == list(conversation.window())
    if world.kind == "memory":
        return
    reads: list[tuple[int, int | None]] = []
    async with world.open({"a": plays(answer="after")}, agents=[agent()]) as sup:
        inner = world.spy.read_records

        async def read_records(path: Any, start: int = 0, stop: int | None = None) -> Any:
            reads.append((start, stop))
            return await inner(path, start, stop)

        world.spy.read_records = read_records  # type: ignore[method-assign,assignment]  # a spy on the spy
        again = await sup.find("a")
        assert (await again.ask("three")).text == "after"
        assert min(start for start, _ in reads) >= force[0].upto, "it costs what is kept, not what is archived"
        assert texts((await again.transcript())[-2:]) == ["<three", ">after"]


async def test_cmp_5_a_pinned_message_stays_through_every_compaction(world: World, autojump_clock: MockClock) -> None:
    """Pinned as a task or later, it stands in force word for word, once, whatever is compacted; also for the model."""
    seen: list[list[str]] = []

    def answer(request: ModelRequest) -> object:
        seen.append(texts(list(request.window)))
        return LONG

    async with world.open({"a": plays(answer=answer)}) as sup:
        ref = await sup.start(agent(), Pinned("the task"))
        await ref.wait_report()
        await ref.ask(Pinned(["leave docs alone", Text("please")]))
        for number in range(3):
            await ref.ask(f"more {number}")
            await ref.compact()
            await ref.wait_compacted()
        await ref.ask("last")
        assert seen[-1][:3] == ["<the task", "<leave docs aloneplease", "!in short"]
        force = await ref.transcript()
        assert sum(isinstance(record, MessageRecord) and record.pinned for record in force) == 2
        assert problems(force) == []


async def test_cmp_5_the_summary_keeps_the_label_of_what_it_was_made_from(
    world: World, autojump_clock: MockClock
) -> None:
    """BR-180: what came from outside is no more believed for having been summarised."""

    @tool(trust="external")
    async def fetch() -> str:
        """Fetch a page."""
        return LONG

    def answer(request: ModelRequest) -> object:
        return "read" if any(isinstance(record, ResultRecord) for record in request.window) else call("fetch")

    async with world.open({"a": plays(answer=answer)}) as sup:
        ref = await sup.start(agent(tools=[fetch], compaction=Compaction(keep=0.0)), "go")
        await ref.wait_report()
        await ref.compact()
        await ref.wait_compacted()
        (made,) = [r for r in await ref.transcript() if isinstance(r, SummaryRecord)]
        assert made.trust is Trust.EXTERNAL


# -- 6: when it runs ------------------------------------------------------------------------------------------------


class Asking(Hooks):
    """Has the agent compacted behind its third turn, and a message sent with it."""

    async def after_turn(self, at: Any, report: Any) -> Any:
        return Compact() if at.turn == 3 else None


async def test_cmp_6_a_hook_has_it_compacted(world: World, autojump_clock: MockClock) -> None:
    """HOK-2: what a hook returns is carried out; `Compact` stands beside the messages it sends."""
    async with world.open({"a": plays()}) as sup, watched(sup) as log:
        ref = await sup.start(agent(hooks=Asking()), "one")
        await ref.wait_report()
        await ref.ask("two")
        await ref.ask("three")
        await ref.wait_idle()
        assert [event.reason for event in log.of(CompactionStarted)] == ["asked"]
        assert texts(await ref.transcript())[0] == "!in short"


async def test_cmp_6_past_its_share_of_the_window_it_compacts_by_itself(
    world: World, autojump_clock: MockClock
) -> None:
    """Measured as too long, the conversation is compacted before the next request, and is short again for the model."""
    sizes: list[int] = []

    def answer(request: ModelRequest) -> object:
        sizes.append(request.window.size_bytes)
        return LONG

    script = Script({"a": plays(answer=answer)}, context_window=2_000)
    async with world.open(script) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "one")
        await ref.wait_report()
        for number in range(6):
            await ref.ask(f"more {number}")
        reasons = [event.reason for event in log.of(CompactionStarted)]
        assert reasons
        assert set(reasons) == {"window"}
        assert all(event.error is None for event in log.of(CompactionEnded))
        assert max(sizes) < 0.8 * 2_000 * 4 + 2_500
        assert len(log.of(TurnStarted)) == 7, "it is made inside the turn that needs it"
        await check(sup.store)


async def test_cmp_6_at_none_it_is_never_made_for_the_window(memory: World, autojump_clock: MockClock) -> None:
    """Switched off, only asking and an overflow compact."""
    script = Script({"a": plays()}, context_window=1_000)
    async with memory.open(script) as sup, watched(sup) as log:
        ref = await sup.start(agent(compaction=Compaction(at=None)), "one")
        for number in range(4):
            await ref.ask(f"more {number}")
        assert log.of(CompactionStarted) == []


async def test_req_3_an_overflow_compacts_once_and_is_answered(world: World, autojump_clock: MockClock) -> None:
    """Refused as too long, the conversation is compacted and asked about again, in the same turn."""
    asked: list[int] = []

    def answer(request: ModelRequest) -> object:
        asked.append(request.window.size_bytes)
        return overflow() if request.window.size_bytes > 4_500 else LONG

    async with world.open({"a": plays(answer=answer)}) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "one")
        await ref.wait_report()
        await ref.ask("two")
        report = await ref.ask("three " + LONG[:600])
        assert report.status.value == "done"
        assert [event.reason for event in log.of(CompactionStarted)] == ["overflow"]
        assert len(log.of(RequestFailed)) == 1
        assert asked[-2] > 4_500 > asked[-1]
        assert texts(await ref.transcript())[-2].startswith("<three"), "what was asked stands behind the summary"
        await check(sup.store)


async def test_req_3_an_overflow_that_compacting_does_not_cure_fails(world: World, autojump_clock: MockClock) -> None:
    """Compacted once and refused again, the turn fails with the overflow; it does not loop."""

    def answer(request: ModelRequest) -> object:
        return LONG if request.window.responses < 2 else overflow()

    async with world.open({"a": plays(answer=answer)}) as sup, watched(sup) as log:
        ref = await sup.start(agent(), "one")
        await ref.wait_report()
        await ref.ask("two")
        report = await ref.ask("three")
        assert report.status.value == "failed"
        assert isinstance(report.error, ContextOverflow)
        assert len(log.of(CompactionStarted)) == 1
        assert len(log.of(RequestFailed)) == 2


# -- accounting, recovery -------------------------------------------------------------------------------------------


async def test_req_1_the_summary_is_a_request_like_any_other(world: World, autojump_clock: MockClock) -> None:
    """It is accounted once, to the agent that it is for: the row, the ledger and the gate agree."""
    async with world.open({"a": plays()}) as sup:
        ref = await sup.start(agent(), "one")
        await ref.wait_report()
        before = ref.statistics().spent
        await ref.compact()
        await ref.wait_compacted()
        after = ref.statistics().spent
        assert after.model_calls == before.model_calls + 1
        assert after.input_tokens > before.input_tokens
        parts = sup._parts
        assert parts.ledger.snapshot(ref.path).own.model_calls == after.model_calls
        (pool,) = parts.gateway.statistics().pools  # type: ignore[attr-defined]  # it is the gateway
        assert pool.held == 0


async def test_rec_1_a_crash_while_it_is_made_owes_nothing_and_charges_what_was_held(
    world: World, autojump_clock: MockClock
) -> None:
    """Cut off while the summary is written: the agent is idle again, its conversation whole, the lost call charged."""
    async with world.open({"a": plays(summary=lambda _: hang())}, grace=1, on_exit="suspend") as sup:
        ref = await sup.start(agent(), "one")
        await ref.wait_report()
        spent = ref.statistics().spent
        await ref.compact()
        await quiet()
    async with world.open({"a": plays(answer="after")}, agents=[agent()]) as sup, watched(sup) as log:
        await sup.resume()
        ref = await sup.find("a")
        await ref.wait_idle()
        row = sup._parts.kernel.actors[ref.path].row
        assert row.open is None
        assert row.spent.model_calls == spent.model_calls + 1
        assert log.of(MessageConsumed) == log.of(RequestStarted) == []
        assert (await ref.ask("two")).text == "after"
        assert len(await ref.transcript(archived=True)) == 4
        await check(sup.store)


async def test_rec_1_compacted_inside_a_turn_it_still_owes_its_answer(world: World, autojump_clock: MockClock) -> None:
    """The process ends right behind the summary's commit: the next owner answers what was asked, on the summary."""
    refs: list[AgentRef] = []

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        await refs[0].compact()
        return LONG

    def answer(request: ModelRequest) -> object:
        return "done" if any(isinstance(record, SummaryRecord) for record in request.window) else [LONG, call("look")]

    spec = agent(tools=[look], compaction=Compaction(keep=0.0))
    async with world.open({"a": plays(answer=answer)}, on_exit="suspend", grace=1) as sup:
        refs.append(await sup.start(spec, "go " + LONG))
        with trio.CancelScope() as scope:

            async def leave(one: ChangeSet) -> None:
                if summaries(one):
                    scope.cancel()

            world.spy.after = leave
            await refs[0].wait_report()
        world.spy.refuse = lambda _: True
    async with world.open({"a": plays(answer=answer)}, agents=[spec]) as sup:
        await sup.resume()
        ref = await sup.find("a")
        await ref.wait_idle()
        shown = texts(await ref.transcript())
        assert shown[0] == "!in short"
        assert shown[-1] == ">done"
        await check(sup.store)


async def test_a_threshold_below_what_cannot_be_freed_is_refused(memory: World, autojump_clock: MockClock) -> None:
    """BR-121: instructions larger than the share of the window at which it would compact are an error at the start."""
    async with memory.open(Script({"a": ["x"]}, context_window=1_000)) as sup:
        with pytest.raises(UsageError, match="no compaction could ever"):
            await sup.start(agent(compaction=Compaction(at=0.002)), "go")
        assert await sup.store.roots() == ()


async def test_another_model_may_write_the_summary(memory: World, autojump_clock: MockClock) -> None:
    """`Compaction(model=...)` names who summarises; the conversation goes on with the agent's own."""
    asked: list[str] = []

    def note(name: str) -> Callable[[ModelRequest], object]:
        def play(request: ModelRequest) -> object:
            asked.append(f"{name}:{request.purpose}")
            return "in short" if request.purpose == "compaction" else LONG

        return play

    main, small = Script({"a": note("main")}, name="main"), Script({"a": note("small")}, name="small")
    spec = agent(model=[main, small], compaction=Compaction(model="script:small"))
    async with memory.open(main) as sup:
        ref = await sup.start(spec, "go")
        await ref.wait_report()
        await ref.compact()
        await ref.wait_compacted()
        await ref.ask("more")
        assert asked == ["main:turn", "small:compaction", "main:turn"]
        (made,) = [record for record in await ref.transcript() if isinstance(record, SummaryRecord)]
        assert made.model == "script:small"


async def test_con_6_a_letter_that_is_put_back_during_a_compaction_is_answered(
    world: World, autojump_clock: MockClock
) -> None:
    """Of an agent that has nothing else to do: what waits again is known behind the compaction, too."""
    async with world.open(Script({"a": plays()}, latency_s=3)) as sup:
        ref = await sup.start(agent(), "go")
        await ref.wait_report()
        await ref.pause()
        receipt = await ref.send("more", ttl=1)
        await trio.sleep(2)
        await ref.wake()
        await trio.sleep(1)
        assert receipt.state is ReceiptState.DEAD
        await ref.compact()
        await trio.sleep(1)
        await sup.put_back(receipt.id, by="x")
        await ref.wait_compacted()
        with trio.fail_after(30):
            await receipt.wait_report()
