"""SEL: what messages choose; and HOK-3, what the hook of a change writes beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import (
    HookFailed,
    Hooks,
    Pinned,
    Script,
    Selection,
    SelectionChanged,
    SelectionRejected,
    UsageError,
    call,
    tool,
)
from actors.changes import Claim, Put
from actors.transcript import ReasoningBlock, SummaryRecord, TextBlock
from tests.supervisor.promises.world import agent, check, has, quiet, texts, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from actors import Model, ModelRequest, Response
    from actors.changes import ChangeSet
    from actors.kv import Kv
    from actors.ports import Emit
    from tests.supervisor.promises.world import World


class Named:
    """A model that says its name and what it was asked with; it goes along with others, or not."""

    free = True
    context_window = None

    def __init__(self, name: str, *, alone: bool = False) -> None:
        self.id, self.name = f"named:{name}", name
        self.asked: list[ModelRequest] = []
        self._alone = alone
        self._script = Script({"a": self._answer}, name=name)

    def compatible_with(self, other: Model) -> bool:
        """Whether a conversation of the other's can be gone on with."""
        return not self._alone or other is self

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        """Answer."""
        self.asked.append(request)
        return await self._script.request(request, emit)

    def _answer(self, request: ModelRequest) -> object:
        return f"{self.name} {request.model} {request.effort} {request.tier}"


def two(*, alone: bool = False, **options: Any) -> tuple[Named, Named, Any]:
    """Two models, and an agent that asks the first where nothing else is chosen."""
    one, other = Named("one"), Named("other", alone=alone)
    return one, other, agent(model=[one, other], **options)


# -- 1: from that message on ----------------------------------------------------------------------------------------


async def test_sel_1_model_effort_and_tier_apply_from_their_message_on(world: World, autojump_clock: MockClock) -> None:
    """Chosen with a send, they hold for it and what follows, also behind a restart, until a message chooses again."""
    one, _, spec = two(effort="low")
    async with world.open(one) as sup, watched(sup) as log:
        ref = await sup.start(spec, "first")
        assert (await ref.wait_report()).text == "one one low None"
        chosen = Selection("named:other", "high", "flex")
        assert (await ref.ask("second", select=chosen)).text == "other other high flex"
        assert (await ref.ask("third")).text == "other other high flex"
        assert (await ref.ask("fourth", select=Selection(effort=""))).text == "other other low flex"
        assert len(log.of(SelectionChanged)) == 2
        assert texts(await ref.transcript())[:2] == ["<first", ">one one low None"], "the conversation went along"
    if world.kind == "memory":
        return
    async with world.open(one, agents=[spec]) as sup:
        ref = await sup.find("a")
        assert (await ref.ask("fifth")).text == "other other low flex"
        assert (await ref.ask("sixth", select=Selection(model="", tier=""))).text == "one one low None"
        assert sup._parts.kernel.actors[ref.path].row.selection is None


async def test_sel_1_a_steer_changes_the_model_inside_the_turn(world: World, autojump_clock: MockClock) -> None:
    """The request behind the steer is the new model's, on the same conversation; the batch before was the old one's."""

    @tool
    async def slow() -> str:
        """Take a while."""
        await trio.sleep(5)
        return "done"

    asked: list[str] = []

    def play(name: str) -> Callable[[ModelRequest], object]:
        def answer(request: ModelRequest) -> object:
            asked.append(name)
            return call("slow") if len(asked) == 1 else f"{name}: {len(request.window)}"

        return answer

    one, other = Script({"a": play("one")}, name="one"), Script({"a": play("other")}, name="other")
    async with world.open(one) as sup:
        ref = await sup.start(agent(model=[one, other], tools=[slow]), "go")
        await trio.sleep(1)
        await ref.steer("use the other", select=Selection("script:other"))
        assert (await ref.wait_report()).text == "other: 4"
        assert asked == ["one", "other"]


async def test_sel_1_the_change_and_the_message_are_one_commit(world: World, autojump_clock: MockClock) -> None:
    """CON-4: refused, neither has happened, and the message waits; written, both have."""
    one, other, spec = two()
    async with world.open(one) as sup:
        ref = await sup.start(spec, "first")
        await ref.wait_report()
        world.spy.refuse = lambda one: has(one, Claim)
        await ref.send("second", select=Selection("named:other"))
        await quiet()
        stored = await sup.store.load_agent(ref.path)
        assert stored is not None
        assert stored.row.selection is None
        assert len(stored.queued) == 1
        world.spy.refuse = lambda _: False
        await ref.wake()
        await ref.wait_idle()
        assert len(other.asked) == 1
        (made,) = [one for one in world.spy.sets if has(one, Put, _selects)]
        assert has(made, Claim)


def _selects(put: Put) -> bool:
    selection = getattr(put.row, "selection", None)
    row_open = getattr(put.row, "open", None)
    return selection is not None and row_open is not None and row_open.asking


async def test_sel_1_a_model_that_is_not_known_is_rejected_and_the_message_answered(
    memory: World, autojump_clock: MockClock
) -> None:
    """Nothing changes for it, the rejection is told, with the ways on."""
    one, _, spec = two()
    async with memory.open(one) as sup, watched(sup) as log:
        ref = await sup.start(spec, "first")
        await ref.wait_report()
        assert (await ref.ask("second", select=Selection("nobody:x"))).text == "one one None None"
        (told,) = log.of(SelectionRejected)
        assert "nobody:x" in told.error


def test_sel_1_what_is_no_text_is_refused_where_it_is_written() -> None:
    """A model object has an id to be named by."""
    with pytest.raises(UsageError, match="pass its id"):
        Selection(Named("one"))  # type: ignore[arg-type]  # that is the point


# -- 2: compatible or not ------------------------------------------------------------------------------------------


class Hands(Hooks):
    """Writes a note, and something beside it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.seen: list[Any] = []
        self.kept: Kv | None = None

    async def model_changed(self, at: Any, before: str, after: str) -> str:
        """Hand over."""
        self.seen.append((before, after, texts(list(at.conversation))))
        await at.kv.agent.set("handed", after)
        assert await at.kv.agent.get("handed") == after, "it sees what it staged"
        self.kept = at.kv.agent
        if self.fails:
            raise ValueError("no words")
        return "mind the gap"


async def test_sel_2_an_incompatible_change_resets_with_a_note(world: World, autojump_clock: MockClock) -> None:
    """The new model sees the note, the pinned message and the one that chose; the old conversation is the archive."""
    one, other, spec = two(alone=True, hooks=Hands())
    async with world.open(one) as sup, watched(sup) as log:
        ref = await sup.start(spec, Pinned("the task"))
        await ref.wait_report()
        await ref.ask("second")
        await ref.ask("third", select=Selection("named:other"))
        shown = list(other.asked[0].window)
        assert texts(shown) == ["<the task", "!mind the gap", "<third"]
        assert isinstance(shown[1], SummaryRecord)
        assert "hand-over note" in shown[1].shown
        assert spec.hooks.seen == [("named:one", "named:other", texts((await ref.transcript(archived=True))[:4]))]
        assert len(await ref.transcript(archived=True)) == 7
        assert [event.reset for event in log.of(SelectionChanged)] == [True]
        assert [row.value for row in await sup.store.kv(ref.path, "agent")] == ['"named:other"']
        await check(sup.store)


async def test_sel_2_the_notes_failure_rejects_the_change_and_keeps_the_history(
    world: World, autojump_clock: MockClock
) -> None:
    """HOK-3: the message is answered by the model in force on the whole conversation; what the hook staged vanishes."""
    one, other, spec = two(alone=True, hooks=Hands(fails=True))
    async with world.open(one) as sup, watched(sup) as log:
        ref = await sup.start(spec, "first")
        await ref.wait_report()
        report = await ref.ask("second", select=Selection("named:other"))
        assert report.text == "one one None None"
        assert other.asked == []
        assert len(one.asked[-1].window) == 3
        assert "no words" in log.of(SelectionRejected)[0].error
        assert log.of(HookFailed)
        assert await sup.store.kv(ref.path, "agent") == ()


async def test_hok_3_the_stage_lands_or_vanishes_with_the_commit_and_ends_with_the_hook(
    world: World, autojump_clock: MockClock
) -> None:
    """Refused with the commit, the hook's write is nowhere; kept for later, its store refuses to be written."""
    one, _, spec = two(alone=True, hooks=Hands())
    async with world.open(one) as sup:
        ref = await sup.start(spec, "first")
        await ref.wait_report()
        world.spy.refuse = lambda one: has(one, Claim)
        await ref.send("second", select=Selection("named:other"))
        await quiet()
        assert len(spec.hooks.seen) == 1
        assert await sup.store.kv(ref.path, "agent") == ()
        with pytest.raises(UsageError, match="the hook is over"):
            await spec.hooks.kept.set("late", 1)
        world.spy.refuse = lambda _: False
        await ref.wake()
        await ref.wait_idle()
        assert [row.key for row in await sup.store.kv(ref.path, "agent")] == ["handed"]


async def test_sel_2_opaque_state_never_crosses(world: World, autojump_clock: MockClock) -> None:
    """BR-133: A, B, A: each model's own reasoning keeps its origin, so a wire can send it to its maker only (REQ-8)."""
    seen: dict[str, list[str]] = {"one": [], "other": []}

    def play(name: str) -> Callable[[ModelRequest], object]:
        def answer(request: ModelRequest) -> object:
            blocks = [block for record in request.window for block in getattr(record, "blocks", ())]
            seen[name].append(" ".join(block.origin for block in blocks if isinstance(block, ReasoningBlock)))
            return [ReasoningBlock("hm", f"script:{name}", '{"s":1}'), TextBlock(f"from {name}")]

        return answer

    one, other = Script({"a": play("one")}, name="one"), Script({"a": play("other")}, name="other")
    async with world.open(one) as sup:
        ref = await sup.start(agent(model=[one, other]), "first")
        await ref.wait_report()
        await ref.ask("second", select=Selection("script:other"))
        await ref.ask("third", select=Selection("script:one"))
        assert seen == {"one": ["", "script:one script:other"], "other": ["script:one"]}


# -- 3: the measure -------------------------------------------------------------------------------------------------


async def test_sel_3_the_measured_size_dies_with_the_conversation(world: World, autojump_clock: MockClock) -> None:
    """After a reset the next request is measured anew; nothing is compacted for a size that is gone."""
    one, other, spec = two(alone=True)
    sizes: list[int] = []

    async def note(change_set: ChangeSet) -> None:
        rows = [operation.row for operation in change_set.operations if isinstance(operation, Put)]
        sizes.extend(row.context for row in rows if hasattr(row, "context"))

    async with world.open(one) as sup:
        ref = await sup.start(spec, "first " + "long " * 200)
        await ref.wait_report()
        measured = sup._parts.kernel.actors[ref.path].row.context
        assert measured > 200
        world.spy.after = note
        await ref.ask("second", select=Selection("named:other"))
        assert sizes[0] == 0
        assert 0 < sizes[-1] < measured
        assert len(other.asked[0].window) == 2
