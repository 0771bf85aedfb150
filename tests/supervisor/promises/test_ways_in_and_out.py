"""The ways into a supervisor and out of it, where several meet: two trees, two senders, two starts, two askers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import Budget, Context, Script, call, tool
from actors.changes import Claim, Enqueue
from actors.errors import Crashed, Unavailable, Unfinished, UsageError
from actors.ids import AgentId
from actors.messages import ReceiptState
from actors.models.script import hang
from actors.transcript import ResultRecord
from supervisor import open_supervisor
from supervisor.store.faults import PassingStore
from supervisor.store.memory import open_memory_store
from tests.supervisor.promises.world import Spy, agent, has, quiet, said, started, texts

if TYPE_CHECKING:
    from trio.testing import MockClock

    from actors import Agent
    from actors.changes import ChangeSet
    from actors.ports import ModelRequest
    from supervisor import AgentRef
    from supervisor.store.base import Store
    from tests.supervisor.promises.world import World


# -- leaving ---------------------------------------------------------------------------------------------------------


async def test_cls_5_leaving_ends_every_tree(world: World, autojump_clock: MockClock) -> None:
    """Two roots that run past the grace are both aborted when the supervisor is left."""
    async with world.open({"a": [hang(), hang()]}, on_exit="finish", grace=1, hard=1) as sup:
        refs = [await sup.start(agent(), "go") for _ in range(2)]
        await quiet()
    for ref in refs:
        assert (await ref.wait_report()).status == "aborted"


async def test_cls_5_what_one_tree_refuses_holds_up_no_other(memory: World, autojump_clock: MockClock) -> None:
    """An abort of all that the store refuses for one tree is carried out in the other, and the refusal is told."""
    async with memory.open({"a": [hang(), hang()]}, on_exit="finish", grace=1, hard=1) as sup:
        for _ in range(2):
            await sup.start(agent(), "go")
        await quiet()
        memory.spy.refuse = lambda change_set: change_set.tree == "a"
        with pytest.raises(Unavailable):
            await sup._parts.stopping.abort(AgentId(""), "enough", subtree=True)
        await quiet()
        last = sup._parts.kernel.actors[AgentId("a#2")].last
        assert last is not None
        assert last.status == "aborted"
        memory.spy.refuse = lambda _: False


@pytest.mark.parametrize("durable", [False, True])
async def test_the_bodys_own_exception_comes_out(durable: bool, autojump_clock: MockClock) -> None:  # noqa: FBT001 - a case
    """What the block raised is what its caller catches, whatever runs while it is left."""
    store = open_memory_store(store_id="s")
    slow = Script({"a": [hang(), hang()]})
    with pytest.raises(KeyError, match="mine"):  # noqa: PT012 - what is raised inside is the point
        async with open_supervisor(model=slow, store=store if durable else None, inline=True, grace=1, hard=1) as sup:
            for _ in range(2):
                await sup.start(agent(), "go")
            await quiet()
            msg = "mine"
            raise KeyError(msg)


async def test_a_supervisor_that_was_left_says_so(memory: World, autojump_clock: MockClock) -> None:
    """Every way in is refused with words, and no wait hangs."""
    async with memory.open({"a": ["ok"]}) as sup:
        ref = await sup.start(agent(), "go")
        await ref.wait_idle()
    for way_in in (
        lambda: sup.start(agent(), "x"),
        lambda: sup.run(agent(), "x", key="k"),
        lambda: ref.send("x"),
        lambda: ref.ask("x"),
    ):
        with pytest.raises(UsageError, match="was left"):
            await way_in()
    with pytest.raises(UsageError, match="was left"):
        ref.post("x")


@pytest.mark.parametrize(
    "options", [{"permits": 0}, {"permits": "x"}, {"budget": "1"}, {"grace": None}, {"hard": -1}, {"on_exit": "stop"}]
)
async def test_wrong_options_are_refused_in_no_group(options: dict[str, object]) -> None:
    """What is wrong with an option is raised as it is, before anything was opened."""
    with pytest.raises(UsageError, match=next(iter(options))[:6]):
        async with open_supervisor(**options):  # type: ignore[arg-type]  # that is the point
            pass


async def test_a_cancelled_run_is_cut_off_at_the_grace(world: World, autojump_clock: MockClock) -> None:
    """A turn that does not stop by itself within the grace is cut off then, and goes on under the same key."""
    async with world.open({"a": [hang(), "ok"]}, grace=3, hard=1) as sup:
        with trio.move_on_after(10):
            await sup.run(agent(), "go", key="k")
        assert trio.current_time() == 13
        ref = await sup.find("a")
        assert ref.state == "suspended"
        assert (await sup.run(agent(), "go", key="k")).text == "ok"


# -- messages --------------------------------------------------------------------------------------------------------


async def test_acc_7_a_keyed_post_meets_a_keyed_send_that_is_not_answered_yet(memory: World) -> None:
    """The second of one key is accepted as the first, also while the first's sender has not heard of it."""
    async with memory.open({"a": ["ok"]}) as sup:
        ref = await started(sup, agent())
        written, hold = trio.Event(), trio.Event()

        async def after(change_set: ChangeSet) -> None:
            if has(change_set, Enqueue) and not written.is_set():
                written.set()
                await hold.wait()

        memory.spy.after = after
        sent: list[str] = []

        async def send() -> None:
            sent.append((await ref.send("m", key="k")).id)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await written.wait()
            receipt = ref.post("m", key="k")
            await receipt.wait_accepted()
            assert receipt.state is ReceiptState.QUEUED
            hold.set()
        assert sent == [receipt.id]
        assert (await receipt.wait_report()).text == "ok"


async def test_acc_2_a_post_from_another_thread_is_refused_and_harms_nothing(memory: World) -> None:
    """It names the way from a thread; the agent takes posts and sends as before."""
    async with memory.open({"a": ["one", "two"]}) as sup:
        ref = await started(sup, agent())
        with pytest.raises(UsageError, match="from_thread"):
            await trio.to_thread.run_sync(ref.post, "x")
        assert (await ref.post("y").wait_report()).text == "one"
        assert (await ref.ask("z")).text == "two"


# -- one key ---------------------------------------------------------------------------------------------------------


async def test_child_2_starts_of_one_key_at_once_are_one_agent(world: World) -> None:
    """Whoever comes second finds what the first made, and hears its report."""
    async with world.open({"a": ["ok"]}) as sup:
        paths: list[str] = []

        async def run() -> None:
            report = await sup.run(agent(), "go", key="k")
            assert report.text == "ok"
            paths.append(report.path)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(run)
        assert paths == ["a"] * 5
        assert len(await sup.tree()) == 1


class Late(PassingStore):
    """A store whose first look for a key comes before another process has written it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.looked = 0

    async def find_key(self, parent: str, key: str) -> AgentId | None:
        self.looked += 1
        return None if self.looked == 1 else await self._store.find_key(parent, key)


async def test_child_2_a_key_that_another_process_used_meanwhile_is_its_agent(world: World) -> None:
    """The start that lost the race returns the agent that is there."""
    async with world.open({"a": ["ok"]}) as sup:
        await sup.run(agent(), "go", key="k")
    async with world.open({}, wrap=Late, agents=[agent()]) as sup:
        ref = await sup.start(agent(), "go", key="k")
        assert ref.path == "a"
        assert (await ref.wait_report()).text == "ok"


# -- those that stopped ----------------------------------------------------------------------------------------------


async def test_whoever_asks_an_agent_that_crashed_is_told_and_wake_goes_on(world: World) -> None:
    """Nobody waits for what nothing will move on; the messages are kept, and answered behind the wake."""
    async with world.open({"a": ["ok", "again", "more"]}) as sup:
        ref = await started(sup, agent())

        async def broken(change_set: ChangeSet) -> None:
            if has(change_set, Claim):
                msg = "a bug"
                raise RuntimeError(msg)

        world.spy.before = broken
        with trio.fail_after(5):
            for wait in (lambda: ref.ask("one"), lambda: ref.ask("two"), ref.wait_report, ref.wait_idle):
                with pytest.raises(Crashed, match="crashed"):
                    await wait()
            receipt = await ref.send("three")
            with pytest.raises(Crashed):
                await receipt.wait_report()
            world.spy.before = Spy(world.spy).before
            await ref.wake()
            assert (await receipt.wait_report()).status == "done"
            await ref.wait_idle()


async def test_bud_6_whoever_asks_an_agent_that_is_parked_gets_the_parked_report(world: World) -> None:
    """Also one that asks later, and one that waits for idleness is told; a grant lets it go on."""
    budget = Budget(model_calls=0, on_exhausted="park")
    async with world.open({"a": ["one", "two", "three"]}) as sup:
        ref = await started(sup, agent(), budget=budget)
        with trio.fail_after(5):
            assert (await ref.ask("x")).status == "parked"
            assert (await ref.ask("y")).status == "parked"
            receipt = await ref.send("z")
            assert (await receipt.wait_report()).status == "parked"
            assert (await ref.wait_report()).status == "parked"
            with pytest.raises(Unfinished):
                await ref.wait_idle()
            await sup.grant(ref, Budget(model_calls=5), by="a test")
            assert (await receipt.wait_report()).status == "done"


# -- two that ask ----------------------------------------------------------------------------------------------------


def asking(name: str) -> tuple[Agent, dict[str, object]]:
    """A child that asks its lead which one it is."""

    @tool
    async def consult(ctx: Context) -> str:
        """Ask above."""
        return (await ctx.ask("lead", "which?")).text

    def says(request: ModelRequest) -> object:
        last = request.window[-1]
        return f"{request.agent} is {said(last.content)}" if isinstance(last, ResultRecord) else call("consult")

    return agent(name, tools=[consult]), {name: says}


async def test_ree_2_each_of_two_askers_gets_its_own_answer(memory: World, autojump_clock: MockClock) -> None:
    """Two children of one name ask at once: a tool for each, named and described by its path."""
    kid, script = asking("kid")
    lead = agent("lead", children=[kid])
    offered: list[dict[str, str]] = []

    def says(request: ModelRequest) -> object:
        if request.window.responses == 0:
            return [call("kid", task="x"), call("kid", task="y")]
        if request.window.responses == 1:
            offered.append({offer.name: offer.description for offer in request.tools})
            return [call("answer_kid_2", answer="two"), call("answer_kid", answer="one")]
        return "done"

    async with memory.open({"lead": says, **script}) as sup:
        ref: AgentRef = await sup.start(lead, "go")
        assert (await ref.wait_report()).text == "done"
        assert "lead/kid#2 " in offered[0]["answer_kid_2"]
        assert "lead/kid " in offered[0]["answer_kid"]
        found = texts(await ref.transcript())
        assert "=ok:lead/kid#2 is two" in found
        assert "=ok:lead/kid is one" in found


@pytest.mark.parametrize("length", [57, 58, 64])
async def test_ree_2_a_child_with_a_long_name_is_answered(
    memory: World, autojump_clock: MockClock, length: int
) -> None:
    """The answer's tool has a name that a provider takes, however long the child's is."""
    kid, script = asking("k" * length)
    lead = agent("lead", children=[kid])

    def says(request: ModelRequest) -> object:
        if request.window.responses == 0:
            return call("k" * length, task="x")
        names = [offer.name for offer in request.tools if offer.name.startswith("answer_")]
        if request.window.responses == 1:
            assert all(len(name) <= 64 for name in names)
            return call(names[0], answer="long")
        return "done"

    async with memory.open({"lead": says, **script}) as sup:
        ref = await sup.start(lead, "go")
        assert (await ref.wait_report()).text == "done"
        assert any(text.endswith("is long") for text in texts(await ref.transcript()))


async def test_a_run_brings_its_own_spec_back_with_it(world: World, autojump_clock: MockClock) -> None:
    """The same key with the same agent goes on and returns its report, with no `agents=` to bring it back with."""

    @tool(effect="pure")
    async def work() -> str:
        """Work."""
        await trio.sleep(5)
        return "worked"

    script, spec = {"a": [call("work"), "done"]}, agent("a", tools=[work])
    async with world.open(script, on_exit="suspend") as sup:
        await sup.start(spec, "go", key="k")
        await trio.sleep(1)
    for _ in range(2):  # cut off, and finished
        async with world.open(script) as sup:
            report = await sup.run(spec, "go", key="k")
            assert (report.status, report.text) == ("done", "done")
