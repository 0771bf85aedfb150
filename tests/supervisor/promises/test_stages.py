"""Stages: what code writes beside a commit lands with it or vanishes (TOL-3 of `store` calls)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Agent, AgentStarted, CallboardError, Context, Hooks, Script, UsageError, call, tool
from actors.changes import AgentRow, CallRow, Put
from actors.messages import ReceiptState
from actors.transcript import MessageRecord, ResultRecord, ResultStatus
from supervisor.store.faults import Fault, FaultyStore
from tests.supervisor.promises.scheduling import Sched, simulate
from tests.supervisor.promises.world import World, agent, check, has, messages, ops, quiet, said, texts, watched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from trio.testing import MockClock

    from actors.changes import ChangeSet
    from actors.ids import AgentId
    from actors.ports import ModelRequest
    from supervisor import AgentRef, Receipt
    from supervisor.store.base import Reader, Store

KID = Agent("kid", "Help.")


class Notes:
    """A `store` tool that keeps a value, sends its own agent a message and starts a child, and then does as told.

    Attributes:
        ran: ids of its calls, at each run. seen: what it found staged. receipts, kids: what it was handed.
    """

    def __init__(self, ending: Any = None) -> None:
        self.ran: list[str] = []
        self.receipts: list[Receipt] = []
        self.kids: list[AgentRef] = []
        self.ending = ending

        @tool(effect="store")
        async def note(ctx: Context, to: str = "") -> str:
            """Note it."""
            self.ran.append(ctx.call_id)
            await ctx.kv.agent.set("noted", ctx.call_id)
            assert await ctx.kv.agent.get("noted") == ctx.call_id, "it sees what it staged"
            self.receipts.append(await ctx.send(to or ctx.agent, "remember"))
            self.kids.append(await ctx.start(KID, "help"))
            if self.ending is not None:
                await self.ending(ctx)
            return "noted"

        self.tool = note


def plays(first: object) -> Script:
    """What `a` is asked first it answers so, with `done` behind its results; all else is `heard`."""

    def lead(request: ModelRequest) -> object:
        last = request.window[-1]
        if isinstance(last, ResultRecord):
            return "done"
        assert isinstance(last, MessageRecord)
        return first if said(last.content) == "go" else "heard"

    return Script({"a": lead, "kid": lambda _: "helped"})


async def kept(store: Reader) -> list[str]:
    """What stands in the store of a call: its value, its message, its child."""
    found = [row.key for row in await store.kv("a", "agent")]  # type: ignore[arg-type]  # paths are text here
    found += [text for text in await messages(store, "a") if text == "remember"]
    return found + [row.agent for row in await store.children("a")]  # type: ignore[arg-type]  # likewise


EVERYTHING = ["noted", "remember", "a/kid"]


def lands(change_set: ChangeSet) -> bool:
    """Whether a commit carries what `note` staged."""
    return has(change_set, Put, lambda put: isinstance(put.row, AgentRow) and put.fresh and put.row.agent == "a/kid")


def settles(change_set: ChangeSet) -> bool:
    """Whether a commit carries a result, in the conversation or in the row of its call."""
    rows = [put.row for put in ops(change_set, Put) if isinstance(put.row, CallRow)]
    records = [record for one in change_set.operations for record in getattr(one, "records", ())]
    return any(row.result is not None for row in rows) or any(isinstance(one, ResultRecord) for one in records)


@pytest.mark.parametrize("batch", ["alone", "beside"])
async def test_tol_3_what_a_store_call_writes_lands_in_the_commit_with_its_result(
    world: World, autojump_clock: MockClock, batch: str
) -> None:
    """Its message, its child and its value are nowhere while it runs; one commit has them and the result."""
    notes = Notes()

    async def ending(_: Context) -> None:
        assert await kept(world.spy) == []
        assert notes.receipts[0].state is ReceiptState.PENDING

    notes.ending = ending

    @tool(effect="pure")
    async def look() -> str:
        """Look, for long."""
        await trio.sleep(5)
        return "looked"

    first = call("note") if batch == "alone" else [call("note"), call("look")]
    async with world.open(plays(first)) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[notes.tool, look]), "go")
        await ref.wait_idle()
        assert await kept(world.spy) == EVERYTHING
        (landing,) = [one for one in world.spy.sets if lands(one)]
        assert settles(landing)
        assert landing is next(one for one in world.spy.sets if settles(one)), "the first that has a result"
        assert [event.path for event in log.of(AgentStarted)] == ["a", "a/kid"]
        assert notes.receipts[0].state is ReceiptState.CONSUMED
        assert (await notes.receipts[0].wait_report()).text == "heard"
        assert (await notes.kids[0].wait_report()).text == "helped"
        rows = [put.row for one in world.spy.sets for put in ops(one, Put) if isinstance(put.row, CallRow)]
        assert [row.state.value for row in rows if row.name == "note"] == ([] if batch == "alone" else ["settled"])
        await check(sup.store)


async def test_tol_3_a_store_call_that_died_is_as_if_it_had_never_run_and_runs_again(
    world: World, autojump_clock: MockClock
) -> None:
    """Killed while it runs, nothing of it is in the store; the next owner runs it, and one child and message come."""

    async def forever(_: Context) -> None:
        await trio.sleep_forever()

    dying = Notes(forever)
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the raise is the crash
        async with world.open(plays(call("note")), hard=0.1) as sup:
            await sup.start(agent(tools=[dying.tool]), "go")
            await trio.sleep(1)
            raise ZeroDivisionError
    notes = Notes()
    async with world.store() as store:
        assert await kept(store) == []
    async with world.open(plays(call("note")), agents=[agent(tools=[notes.tool])]) as sup:
        (ref,) = await sup.resume()
        await ref.wait_idle()
        assert await kept(sup.store) == EVERYTHING
        assert notes.ran == dying.ran
        assert "=ok:noted" in texts(await ref.transcript())


@pytest.mark.parametrize("how", ["fails", "times out", "is cancelled", "is aborted"])
async def test_tol_3_a_store_call_that_comes_to_nothing_leaves_nothing(
    world: World, autojump_clock: MockClock, how: str
) -> None:
    """Raised, cut off at its deadline, cancelled or aborted: nothing lands, and its places are free."""

    async def ending(ctx: Context) -> None:
        if how == "fails":
            raise ValueError("no ink")
        await trio.sleep(20)

    notes = Notes(ending)
    timed = notes.tool if how != "times out" else tool(effect="store", timeout=3)(notes.tool.fn)
    async with world.open(plays(call("note"))) as sup:
        ref = await sup.start(agent(tools=[timed]), "go")
        await trio.sleep(1)
        if how == "is cancelled":
            ref.cancel_call(notes.ran[0])  # type: ignore[arg-type]  # ids are text here
        if how == "is aborted":
            await ref.abort("enough")
        await ref.wait_idle()
        assert await kept(sup.store) == []
        assert notes.receipts[0].state is ReceiptState.REFUSED
        assert sup._parts.ledger.snapshot(ref.path).live == 0
        assert not sup._parts.staging._stages
        await check(sup.store)


async def test_tol_3_a_stage_that_is_refused_as_it_lands_is_an_error_result(
    world: World, autojump_clock: MockClock
) -> None:
    """The target is closed: the call has failed with what the store said, all of it is undone, and the turn goes on."""
    notes = Notes()
    script = plays(call("note", to="b"))
    async with world.open(script) as sup:
        other = await sup.start(agent("b"))
        await other.close()
        await other.wait_closed()
        sup._parts.kernel.actors.pop(other.path)  # as in another process: what is known here is no help
        ref = await sup.start(agent(tools=[notes.tool]), "go")
        await ref.wait_idle()
        told = texts(await ref.transcript())
        assert told[-1] == ">done"
        assert told[-2].startswith("=error:Nothing of this call was done: b is closed")
        assert await kept(sup.store) == []
        assert (await ref.wait_report()).calls[0].status == "error"
        assert notes.receipts[0].state is ReceiptState.REFUSED
        assert not sup._parts.staging._stages
        await check(sup.store)


@pytest.mark.parametrize("wait", ["ask", "wait_report", "wait_idle", "wait_closed", "wait_accepted", "post"])
async def test_tol_3_a_store_call_may_not_wait(world: World, autojump_clock: MockClock, wait: str) -> None:
    """Each wait is refused at once, in words, with nothing sent; the call can go on."""
    refused: list[str] = []

    async def ending(ctx: Context) -> None:
        async def post() -> None:
            ctx.ref("b").post("psst")
            await trio.lowlevel.checkpoint()

        waits: dict[str, Callable[..., Awaitable[Any]]] = {
            "ask": partial(ctx.ask, "b", "well?"),
            "wait_report": notes.kids[0].wait_report,
            "wait_idle": ctx.ref("b").wait_idle,
            "wait_closed": ctx.ref("b").wait_closed,
            "wait_accepted": notes.receipts[0].wait_accepted,
            "post": post,
        }
        with pytest.raises(UsageError, match="effect='store'") as caught:
            await waits[wait]()
        refused.append(str(caught.value))

    notes = Notes(ending)
    async with world.open(plays(call("note"))) as sup:
        await sup.start(agent("b"))
        ref = await sup.start(agent(tools=[notes.tool]), "go")
        await ref.wait_idle()
        assert len(refused) == 1
        assert await messages(sup.store, "b") == {}
        assert await kept(sup.store) == EVERYTHING


async def test_tol_3_a_stage_ends_with_its_call(world: World, autojump_clock: MockClock) -> None:
    """What a call's code writes once it has returned is refused, by way of its context and by way of its store."""
    contexts: list[Context] = []

    async def ending(ctx: Context) -> None:
        contexts.append(ctx)

    notes = Notes(ending)
    async with world.open(plays(call("note"))) as sup:
        ref = await sup.start(agent(tools=[notes.tool]), "go")
        await ref.wait_idle()
        with pytest.raises(UsageError, match="is over"):
            await contexts[0].kv.agent.set("late", 1)
        assert await kept(sup.store) == EVERYTHING


async def test_tol_3_a_hook_around_a_store_call_writes_into_its_stage(world: World, autojump_clock: MockClock) -> None:
    """It is the call's own code: refused with it, nothing of the hook's is in the store."""

    class Around(Hooks):
        async def around_tool(self, at: Any, call: Any, proceed: Any) -> object:
            await at.kv.agent.set("around", 1)
            await proceed()
            raise ValueError("not like this")

    notes = Notes()
    async with world.open(plays(call("note"))) as sup:
        ref = await sup.start(agent(tools=[notes.tool], hooks=Around()), "go")
        await ref.wait_idle()
        assert texts(await ref.transcript())[-2].startswith("=error:ValueError: not like this")
        assert await kept(sup.store) == []


async def test_tol_3_two_starts_under_one_key_in_a_call_are_one_child(world: World, autojump_clock: MockClock) -> None:
    """CHILD-2 holds before it is in the store, too; another task under the key is refused."""

    async def ending(ctx: Context) -> None:
        one = await ctx.start(KID, "more", key="k")
        assert await ctx.start(KID, "more", key="k") == one
        with pytest.raises(UsageError, match="another task"):
            await ctx.start(KID, "less", key="k")

    notes = Notes(ending)
    async with world.open(plays(call("note"))) as sup:
        ref = await sup.start(agent(tools=[notes.tool]), "go")
        await ref.wait_idle()
        assert await kept(sup.store) == [*EVERYTHING, "a/kid#2"]


# -- any crash -----------------------------------------------------------------------------------------------------


async def fail_at(world: World, at: int, *, when: Fault, forever: bool) -> bool:
    """Run a batch with two `store` calls, the n-th commit failing, and go on; whether there was such a commit."""
    faulty: list[FaultyStore] = []

    def wrap(store: Store) -> Store:
        faulty.append(FaultyStore(store, at=at, when=when, forever=forever))
        return faulty[0]

    notes, more = Notes(), Notes()
    spec = agent(tools=[notes.tool, tool(effect="store", name="more")(more.tool.fn)])
    script = [call("note"), call("more")]
    async with world.open(plays(script), wrap=wrap, grace=5.0, hard=2.0) as sup:
        try:
            with trio.fail_after(200):
                await (await sup.start(spec, "go", key="k")).wait_idle()
        except (CallboardError, trio.TooSlowError):
            pass
    async with world.store() as store:
        await whole(store)
    async with world.open(plays(script), agents=[spec]) as sup:
        ref = await sup.start(spec, "go", key="k")
        await sup.resume()
        await ref.wait_idle()
        await quiet()
        await whole(sup.store)
        assert len(await sup.store.children(ref.path)) == 2
        texts_of = [said(one.envelope.content) for one in await sup.store.messages(ref.path, (ReceiptState.CONSUMED,))]
        assert texts_of.count("remember") == 2
    return bool(faulty[0].faults)


async def whole(store: Reader) -> None:
    """A child and a message for each good result, and for no other."""
    await check(store)
    for root in await store.roots():
        await whole_agent(store, root.agent)


async def whole_agent(store: Reader, path: AgentId) -> None:
    """The same of one agent."""
    stored = await store.load_agent(path)
    assert stored is not None
    good = {r.call for r in await store.read_records(stored.row.agent) if isinstance(r, ResultRecord)}
    good |= {row.call for row in stored.calls if row.result is not None and row.result.status is ResultStatus.OK}
    assert len(await store.children(stored.row.agent)) == len(good)
    sent = await store.messages(stored.row.agent, tuple(s for s in ReceiptState if s not in _NEVER))
    assert [said(one.envelope.content) for one in sent].count("remember") == len(good)


_NEVER = (ReceiptState.PENDING, ReceiptState.REFUSED)


@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-ever"])
@pytest.mark.parametrize("when", list(Fault), ids=[fault.value for fault in Fault])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_tol_3_a_store_call_survives_a_failure_of_any_commit(
    kind: str,
    when: Fault,
    forever: bool,  # noqa: FBT001 - parametrised
    tmp_path: Path,
) -> None:
    """Failed at commit 1, 2, 3 …, before it was written or ambiguously after: results and what they staged are one."""
    at = 1
    while True:
        folder = tmp_path / str(at)
        folder.mkdir()
        if not simulate(partial(fail_at, World(kind, folder), at, when=when, forever=forever), Sched(0)):
            break
        at += 1
    assert at > 5, "there are more commits than that"


# -- the other classes ---------------------------------------------------------------------------------------------


async def test_tol_3_an_idempotent_call_that_runs_again_gets_its_first_receipts_and_children(
    world: World, autojump_clock: MockClock
) -> None:
    """Elsewhere send and start commit at once, keyed by call and ordinal: the second run adds nothing (ACC-7)."""
    runs: list[tuple[list[str], list[str]]] = []

    @tool(effect="idempotent")
    async def act(ctx: Context) -> str:
        """Act."""
        receipts = [await ctx.send("b", text) for text in ("one", "two")]
        kids = [await ctx.start(KID, task) for task in ("help", "help")]
        runs.append(([receipt.id for receipt in receipts], [kid.path for kid in kids]))
        assert set(await messages(world.spy, "b")) == {"one", "two"}, "at once"
        if len(runs) == 1:
            await trio.sleep(100)
        return "acted"

    spec, other = agent(tools=[act]), agent("b")
    model = Script(
        {
            "a": lambda r: "done" if isinstance(r.window[-1], ResultRecord) else call("act"),
            "b": lambda _: "b",
            "kid": lambda _: "k",
        }
    )
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the raise is the crash
        async with world.open(model, hard=0.1) as sup:
            await sup.start(other)
            await sup.start(spec, "go")
            await trio.sleep(1)
            raise ZeroDivisionError
    async with world.open(model, agents=[spec, other, KID]) as sup:
        for ref in await sup.resume():
            await ref.wait_idle()
        assert runs[0] == runs[1]
        assert runs[0][1] == ["a/kid", "a/kid#2"]
        assert list(await messages(sup.store, "b")) == ["one", "two"]
        assert len(await sup.store.children((await sup.find("a")).path)) == 2
