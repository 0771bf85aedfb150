"""TOL-8: a result that is too long is cut; the whole is kept beside the conversation, for the model and for Python."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Context, File, Limits, Text, Trust, UsageError, call, tool
from actors.changes import AgentRow, Append, CallRow, KvRow, Put
from actors.content import text_of
from actors.pages import PIECE_CHARS, READER
from actors.transcript import ResultRecord
from tests.supervisor.promises.world import agent, check, ops, said

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors import Tool
    from actors.changes import ChangeSet
    from actors.ports import ModelRequest
    from tests.supervisor.promises.world import World

WHOLE = "".join(f"line {number:05}\n" for number in range(7_000))
"""Three pieces long."""
assert 2 * PIECE_CHARS < len(WHOLE) < 3 * PIECE_CHARS


def giving(*results: object, **options: Any) -> Tool[..., Any]:
    """A tool that gives these, one after another."""
    waiting = list(results)

    @tool(**options)
    async def give() -> object:
        """Give."""
        return waiting.pop(0)

    return give


def offered(request: ModelRequest) -> bool:
    """Whether the model may read on."""
    return READER in [offer.name for offer in request.tools]


def last(request: ModelRequest) -> str:
    """The last result of a request."""
    record = request.window[-1]
    assert isinstance(record, ResultRecord)
    return said(record.content)


async def test_tol_8_the_model_reads_what_is_missing_page_by_page(world: World, autojump_clock: MockClock) -> None:
    """Cut with a line that says how much is missing and how to read on; the tool is offered then, and not before."""
    got: list[str] = []
    seen: list[bool] = []

    def model(request: ModelRequest) -> object:
        seen.append(offered(request))
        if not request.window.responses:
            return call("give")
        text = last(request)
        if not got:
            cut = re.fullmatch(
                r"(.*)\n\[cut: ([\d,]+) of ([\d,]+) characters are missing here; (.*)\]", text, re.DOTALL
            )
            assert cut is not None
            assert len(text) <= 20_000
            assert (cut[3], cut[2]) == (f"{len(WHOLE):,}", f"{len(WHOLE) - len(cut[1]):,}")
            where = re.fullmatch(r'read_result\(reference="(.*)", start=(\d+)\) reads on', cut[4])
            assert where is not None
            got.append(cut[1])
            return call(READER, reference=where[1], start=int(where[2]), chars=50_000)
        page = re.fullmatch(r"(.*)\n\[characters ([\d,]+) to ([\d,]+) of [\d,]+; (.*)\]", text, re.DOTALL)
        assert page is not None
        assert len(text) <= 20_000
        got.append(page[1])
        if page[4] == "the end":
            return "read"
        return call(READER, reference="t1.1.0", start=int(page[4].removeprefix("go on with start=")), chars=50_000)

    async with world.open({"a": model}) as sup:
        ref = await sup.start(agent(tools=[giving(WHOLE)], limits=Limits(result_chars=20_000)), "go")
        report = await ref.wait_report()
        assert report.text == "read"
        assert "".join(got) == WHOLE
        assert seen == [False] + [True] * (len(seen) - 1)
        await check(sup.store)


async def test_tol_8_python_reads_it_by_the_handle_and_inside_a_tool(world: World, autojump_clock: MockClock) -> None:
    """By the reference or the call's id; only pages that the result has."""
    inside: list[str] = []

    @tool
    async def look(ctx: Context) -> str:
        """Look."""
        page = await ctx.read_result("t1.1.0", start=len(WHOLE) - 10, chars=1_000)
        assert page.next is None
        inside.append(page.text)
        return "looked"

    async with world.open({"a": [call("give"), call("look"), "done"]}) as sup:
        ref = await sup.start(agent(tools=[giving(WHOLE), look], limits=Limits(result_chars=1_000)), "go")
        await ref.wait_report()
        assert inside == [WHOLE[-10:]]
        (kept,) = await ref.kept()
        assert (kept.call, kept.name, kept.chars) == ("a:t1.1.0", "give", len(WHOLE))
        text, start = "", 0
        while True:
            page = await ref.read_result(kept.call, start=start, chars=9_999)
            assert (page.start, page.total, page.reference) == (start, len(WHOLE), "t1.1.0")
            text += page.text
            if page.next is None:
                break
            start = page.next
        assert text == WHOLE
        for reference, start, chars in (
            ("t9.9.9", 0, 5),
            ("t1.1.0", len(WHOLE), 5),
            ("t1.1.0", -1, 5),
            ("t1.1.0", 0, 0),
        ):
            with pytest.raises(UsageError):
                await ref.read_result(reference, start=start, chars=chars)


async def test_tol_8_what_is_kept_lands_in_the_commit_that_settles_the_call(
    world: World, autojump_clock: MockClock
) -> None:
    """With the row of a call whose siblings still run, with the record of the last; never the one without the other."""

    @tool
    async def slow() -> str:
        """Take long, and give much."""
        await trio.sleep(5)
        return WHOLE

    async with world.open({"a": [[call("give"), call("slow")], "done"]}) as sup:
        await sup.run(agent(tools=[giving(WHOLE), slow], limits=Limits(result_chars=1_000)), "go")
        settling = {one.call: one for one in _settled(world.spy.sets)}
        assert set(settling) == {"a:t1.1.0", "a:t1.1.1"}
        for name, one in settling.items():
            put = [op.row for op in ops(one.change_set, Put)]
            pieces = [row for row in put if isinstance(row, KvRow) and row.scope.startswith(f"kept:{name}:")]
            listed = [kept.call for row in put if isinstance(row, AgentRow) for kept in row.kept]
            assert len(pieces) == 3
            assert name in listed


class _Settled:
    def __init__(self, name: str, change_set: ChangeSet) -> None:
        self.call, self.change_set = name, change_set


def _settled(sets: list[ChangeSet]) -> list[_Settled]:
    """The first set that has the result of a call."""
    found: dict[str, _Settled] = {}
    for one in sets:
        rows = [op.row for op in ops(one, Put) if isinstance(op.row, CallRow) and op.row.result is not None]
        records = [record for op in ops(one, Append) for record in op.records if isinstance(record, ResultRecord)]
        for name in [row.call for row in rows] + [record.call for record in records]:
            found.setdefault(name, _Settled(name, one))
    return list(found.values())


async def test_tol_8_what_is_kept_outlives_the_process(world: World, autojump_clock: MockClock) -> None:
    """The next owner offers the tool, and reads the same."""
    spec = agent(tools=[giving(WHOLE)], limits=Limits(result_chars=1_000))
    async with world.open({"a": [call("give"), "done"]}, on_exit="suspend") as sup:
        await (await sup.start(spec, "go", key="k")).wait_report()
    seen: list[bool] = []

    def model(request: ModelRequest) -> object:
        seen.append(offered(request))
        return "again" if isinstance(request.window[-1], ResultRecord) else call(READER, reference="t1.1.0", start=5)

    async with world.open({"a": model}, agents=[spec]) as sup:
        ref = await sup.find("a")
        assert (await ref.ask("more")).text == "again"
        results = [one for one in await ref.transcript() if isinstance(one, ResultRecord)]
        assert said(results[-1].content).startswith(WHOLE[5:100])
        assert seen == [True, True]


@pytest.mark.parametrize("limit", [0, len(WHOLE) - 1])
async def test_tol_8_where_nothing_is_kept_nothing_is_offered(
    world: World, autojump_clock: MockClock, limit: int
) -> None:
    """Keeping is off, or the result is longer than all that may be kept: it is cut, with no word of reading on."""
    seen: list[bool] = []

    def model(request: ModelRequest) -> object:
        seen.append(offered(request))
        return "done" if request.window.responses else call("give")

    async with world.open({"a": model}) as sup:
        limits = Limits(result_chars=1_000, kept_chars=limit)
        ref = await sup.start(agent(tools=[giving(WHOLE)], limits=limits), "go")
        await ref.wait_report()
        (record,) = [one for one in await ref.transcript() if isinstance(one, ResultRecord)]
        assert "characters are missing here]" in said(record.content)
        assert seen == [False, False]
        assert await ref.kept() == ()
        assert not [op for one in world.spy.sets for op in ops(one, Put) if isinstance(op.row, KvRow)]


async def test_tol_8_the_oldest_go_first(world: World, autojump_clock: MockClock) -> None:
    """Within the bound of characters: what is dropped is gone from the store, and asking for it says what is there."""
    whole = [letter * 40_000 for letter in "abc"]
    limits = Limits(result_chars=1_000, kept_chars=90_000)
    script = {"a": [call("give"), call("give"), call("give"), call(READER, reference="t1.1.0"), "done"]}
    async with world.open(script) as sup:
        ref = await sup.start(agent(tools=[giving(*whole)], limits=limits), "go")
        await ref.wait_report()
        assert [one.call for one in await ref.kept()] == ["a:t1.2.0", "a:t1.3.0"]
        assert (await ref.read_result("t1.3.0", start=39_999)).text == "c"
        assert await sup.store.kv(ref.path, "kept:a:t1.1.0:0") == ()
        assert await sup.store.kv(ref.path, "kept:a:t1.1.0:1") == ()
        record = [one for one in await ref.transcript() if isinstance(one, ResultRecord)][-1]
        assert record.status.value == "error"
        assert "t1.2.0, t1.3.0" in said(record.content)


async def test_tol_8_a_page_is_trusted_as_its_result_is(world: World, autojump_clock: MockClock) -> None:
    """What came from outside stays so when it is read on (GAT-4)."""
    script = {"a": [call("give"), call(READER, reference="t1.1.0"), "done"]}
    async with world.open(script) as sup:
        limits = Limits(result_chars=1_000)
        ref = await sup.start(agent(tools=[giving(WHOLE, trust="external")], limits=limits), "go")
        await ref.wait_report()
        found = [one for one in await ref.transcript() if isinstance(one, ResultRecord)]
        assert [one.trust for one in found] == [Trust.EXTERNAL] * 2
        assert [len(await ref.kept())] == [1], "a page is not kept again"


async def test_tol_8_of_many_parts_all_text_is_kept(world: World, autojump_clock: MockClock) -> None:
    """Parts that are no text stay as they are; the texts are kept together, and the result says so at its end."""
    parts = [Text("a" * 900), File("f.txt", "text/plain", data="aGk="), Text("b" * 900)]
    async with world.open({"a": [call("give"), "done"]}) as sup:
        ref = await sup.start(agent(tools=[giving(parts)], limits=Limits(result_chars=1_000)), "go")
        await ref.wait_report()
        (record,) = [one for one in await ref.transcript() if isinstance(one, ResultRecord)]
        assert 'read_result(reference="t1.1.0") reads on' in text_of(record.content)
        assert len([one for one in record.content if isinstance(one, File)]) == 1
        assert (await ref.read_result("t1.1.0")).text == "a" * 900 + "\n" + "b" * 900


async def test_tol_8_what_an_abort_meets_is_kept_with_it(world: World, autojump_clock: MockClock) -> None:
    """A call had returned when the abort came: its result is whole in the same commit as the end of the turn."""
    async with world.open({"a": [[call("give"), call("hang")], "on"]}) as sup:

        @tool
        async def hang() -> str:
            """Hang."""
            await ref.abort("enough")
            await trio.sleep(1_000)
            return ""

        ref = await sup.start(agent(tools=[giving(WHOLE), hang], limits=Limits(result_chars=1_000)))
        await ref.send("go")
        await ref.wait_idle()
        found = [one for one in await ref.transcript() if isinstance(one, ResultRecord)]
        kept = await ref.kept()
        assert [one.call for one in kept] == [one.call for one in found if one.status.value == "ok"]
        await check(sup.store)


def test_tol_9_a_tool_by_the_name_of_the_reader_is_refused() -> None:
    """Where the agent is written; unless nothing is ever kept."""

    @tool(name=READER)
    async def mine() -> str:
        """Read."""
        return ""

    with pytest.raises(UsageError, match="kept_chars=0"):
        agent(tools=[mine])
    agent(tools=[mine], limits=Limits(kept_chars=0))
