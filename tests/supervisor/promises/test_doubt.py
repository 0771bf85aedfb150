"""ACC-2 and CLS: a store that cannot say whether it wrote, and agents whose specs are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors import AgentClosed, AgentEnded, Child, InDoubt, MessageAccepted, PostRefused, SpecMissing, call, tool
from actors.changes import Claim, Enqueue, Intake, OutcomeRow, Put
from actors.ids import AgentId, MessageId
from actors.messages import ReceiptState
from actors.models.script import hang
from actors.transcript import ResultRecord
from supervisor import AgentRef
from tests.supervisor.promises.world import Spy, agent, check, enqueues, has, messages, quiet, texts, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from actors.changes import ChangeSet, Values
    from supervisor.store.base import MessageView, Store, Then
    from tests.supervisor.promises.world import World


class Doubtful(Spy):
    """A store that writes what `lost` names, or does not, and cannot say which.

    Attributes:
        writes: it does. deaf: it answers no reads of messages either.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.lost: Callable[[ChangeSet], bool] = lambda _: False
        self.writes = True
        self.deaf = False

    async def commit(self, change_set: ChangeSet, then: Then | None = None) -> Values:
        if not self.lost(change_set):
            return await self._store.commit(change_set, then)
        if self.writes:
            await self._store.commit(change_set)
        text = "the line went dead"
        raise InDoubt(text)

    async def message_state(self, message: MessageId) -> MessageView | None:
        if self.deaf:
            text = "the line is dead"
            raise InDoubt(text)
        return await self._store.message_state(message)


def doubtful(made: list[Doubtful]) -> Callable[[Store], Store]:
    """What goes between the spy and the store."""

    def wrap(store: Store) -> Store:
        made.append(Doubtful(store))
        return made[0]

    return wrap


async def test_acc_2_a_commit_in_doubt_that_was_written_is_an_acceptance(
    world: World, autojump_clock: MockClock
) -> None:
    """The store is read by the message's id before its sender is told: it has it, so it is accepted, and answered once.

    A message that is accepted behind it does not overtake it.
    """
    made: list[Doubtful] = []
    async with world.open({"a": lambda _: "ok"}, wrap=doubtful(made)) as sup, watched(sup) as log:
        ref = await sup.start(agent())
        made[0].lost = enqueues("one")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.send, "one")
            nursery.start_soon(ref.send, "two")
        await ref.wait_idle()
        asked = [text for text in texts(await ref.transcript()) if text.startswith("<")]
        stored = await sup.store.messages(ref.path, (ReceiptState.CONSUMED,))
        assert asked == ["<" + one.envelope.content[0].text for one in stored]  # type: ignore[union-attr]
        assert sorted(asked) == ["<one", "<two"]
        assert len(log.of(MessageAccepted)) == 2
        receipt = await ref.send("one")
        assert receipt.state is ReceiptState.QUEUED
        assert (await receipt.wait_report()).text == "ok"
        posted = ref.post("one")
        await posted.wait_accepted()
        assert (await posted.wait_report()).text == "ok"
        await check(sup.store)


async def test_acc_2_a_commit_that_stays_in_doubt_says_so_and_names_the_message(
    world: World, autojump_clock: MockClock
) -> None:
    """Neither "accepted" nor "refused" is told where the store does not answer; a posted receipt stays pending.

    Once it answers, its word is what a receipt says.
    """
    made: list[Doubtful] = []
    async with world.open({"a": lambda _: "ok"}, wrap=doubtful(made)) as sup, watched(sup) as log:
        ref = await sup.start(agent())
        made[0].lost, made[0].deaf = enqueues("one"), True
        with pytest.raises(InDoubt, match="is not known") as caught:
            await ref.send("one")
        (message,) = caught.value.messages
        posted = ref.post("one")
        with pytest.raises(InDoubt):
            await posted.wait_accepted()
        assert posted.state is ReceiptState.PENDING
        assert len(log.of(PostRefused)) == 1
        made[0].deaf = False
        made[0].lost = lambda _: False
        await ref.send("two")  # shows that something is missing: the store is read
        await ref.wait_idle()
        asked = [text for text in texts(await ref.transcript()) if text.startswith("<")]
        assert asked == ["<one", "<one", "<two"]
        again = await sup.receipt(message)
        assert again.state is ReceiptState.CONSUMED
        assert (await again.wait_report()).text == "ok"
        assert (await posted.wait_report()).text == "ok"


async def test_acc_2_a_commit_in_doubt_that_was_not_written_is_not_an_acceptance(
    world: World, autojump_clock: MockClock
) -> None:
    """The store has no such message: the sender is told that it is not known, and nothing is answered."""
    made: list[Doubtful] = []
    async with world.open({"a": lambda _: "ok"}, wrap=doubtful(made)) as sup:
        ref = await sup.start(agent())
        made[0].lost, made[0].writes = enqueues("one"), False
        with pytest.raises(InDoubt):
            await ref.send("one")
        await ref.wait_idle()
        assert await messages(sup.store, "a") == {}


async def test_acc_2_a_withdrawal_an_abort_and_a_close_in_doubt_are_carried_out(
    world: World, autojump_clock: MockClock
) -> None:
    """What the store turns out to have is true in memory, whatever the set was for."""
    made: list[Doubtful] = []
    async with world.open({"a": [hang(), "never"]}, wrap=doubtful(made)) as sup:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        receipt, held = await ref.send_many(["taken back", "held"])
        made[0].lost = lambda one: not has(one, Claim)
        assert await receipt.withdraw() is True
        assert receipt.state is ReceiptState.WITHDRAWN
        await ref.abort("enough")
        await ref.wait_aborted()
        states = [held.state]
        await ref.close()
        await ref.wait_closed()
        states.append(held.state)
        assert states == [ReceiptState.HELD, ReceiptState.DEAD]
        assert await sup.store.agents_with_work() == ()
        await check(sup.store)


async def test_rec_1_an_end_in_doubt_that_was_written_is_the_end_once_the_store_is_well(
    world: World, autojump_clock: MockClock
) -> None:
    """The store says that nothing is owed: `resume` has the agent believe it, though there is no work to find."""
    made: list[Doubtful] = []
    asked: list[object] = []

    def answer(request: object) -> str:
        asked.append(request)
        return "ok"

    async with world.open({"a": answer}, wrap=doubtful(made)) as sup:
        ref = await sup.start(agent())
        made[0].lost = lambda one: has(one, Put, lambda put: isinstance(put.row, OutcomeRow))
        receipt = await ref.send("go")
        with pytest.raises(InDoubt):
            await ref.wait_idle()
        made[0].lost = lambda _: False
        assert await sup.resume() == ()
        await ref.wait_idle()
        assert (await receipt.wait_report()).text == "ok"
        assert (await ref.ask("and now?")).text == "ok"
        assert len(asked) == 2
        await check(sup.store)


async def test_acc_8_what_is_told_while_an_agent_is_read_in_is_in_force(
    world: World, autojump_clock: MockClock
) -> None:
    """A message that arrives while its agent is read is not lost, and one that is withdrawn does not come back."""
    spec = agent()
    async with world.open({"a": [hang()]}) as sup:
        ref = await sup.start(spec)
        receipt = await ref.send("taken back")
    async with world.open({"a": lambda _: "ok"}, agents=[spec]) as sup:
        load = world.spy.load_agent

        async def slow(path: AgentId) -> object:
            found = await load(path)
            await trio.sleep(5)
            return found

        world.spy.load_agent = slow  # type: ignore[assignment,method-assign]  # the read takes its time
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sup.find, "a")
            await trio.sleep(1)
            again = await sup.receipt(receipt.id)
            assert await again.withdraw() is True
            await AgentRef(sup._parts.desk, AgentId("a")).send("came")
        world.spy.load_agent = load  # type: ignore[method-assign]
        ref = await sup.find("a")
        await ref.wait_idle()
        assert texts(await ref.transcript()) == ["<came", ">ok"]


# -- agents whose specs are missing ----------------------------------------------------------------------------------


@tool
async def forever() -> str:
    """Take a thousand seconds."""
    await trio.sleep(1_000)
    return ""


@pytest.mark.parametrize("verb", ["close", "kill"])
async def test_cls_1_an_agent_whose_spec_is_missing_is_closed_like_any_other(
    world: World, autojump_clock: MockClock, verb: str
) -> None:
    """Its open call is settled, what was queued is dead, whoever looks finds it closed, and a restart owes nothing."""
    spec = agent(tools=[forever])
    async with world.open({"a": [call("forever")]}, grace=0) as sup:
        ref = await sup.start(spec, "go")
        await trio.sleep(1)
        await ref.send("queued")
    async with world.open({}) as sup, watched(sup) as log:
        (ref,) = await sup.resume()
        with pytest.raises(SpecMissing):
            await sup.find("a")
        if verb == "close":
            await ref.close(grace=5)
        else:
            await ref.kill("now")
        with pytest.raises(AgentClosed):
            await ref.send("late")
        with pytest.raises(SpecMissing):
            await sup.find("a")
        await ref.wait_closed()
        assert [event.path for event in log.of(AgentEnded)] == ["a"]
        (row,) = await sup.tree()
        assert (row.open, row.owes) == (None, False)
        records = await ref.transcript()
        (result,) = [record for record in records if isinstance(record, ResultRecord)]
        assert result.status.value == "unknown"
        assert (await messages(sup.store, "a"))["queued"] is ReceiptState.DEAD
        assert await sup.store.agents_with_work() == ()
        await check(sup.store)
    async with world.open({"a": ["never"]}, agents=[spec]) as sup:
        assert await sup.resume() == ()
        assert (await sup.find("a")).state == "closed"


async def test_cls_3_a_close_reaches_children_whose_specs_are_missing(world: World, autojump_clock: MockClock) -> None:
    """A lead that lost a child from its spec closes it too, and hears of it as of any other."""
    kid = agent("kid")
    lead = agent("lead", children=[Child(kid, background=True)])
    async with world.open({"lead": [call("kid", task="x"), "ok"], "kid": [hang()]}, grace=0) as sup:
        await sup.start(lead, "go")
        await trio.sleep(1)
    async with world.open({"lead": lambda _: "ok"}, agents=[agent("lead")]) as sup:
        ref = await sup.find("lead")
        await ref.close(grace=5)
        await ref.wait_closed()
        for path in ("lead", "lead/kid"):
            stored = await sup.store.load_agent(AgentId(path))
            assert stored is not None
            assert (stored.intake, stored.row.open) == (Intake.CLOSED, None)
        assert await sup.store.agents_with_work() == ()
        await check(sup.store)


async def test_cls_1_a_close_that_was_begun_is_ended_by_the_next_owner_without_the_spec(
    world: World, autojump_clock: MockClock
) -> None:
    """The barrier was durable, the process died: `resume()` closes it, though nobody has the spec any more."""
    async with world.open({"a": [hang()]}, grace=0) as sup:
        ref = await sup.start(agent(), "go")
        await trio.sleep(1)
        await ref.close(grace=1_000)
        world.spy.refuse = lambda one: not has(one, Enqueue)  # and the process is gone
    async with world.open({}) as sup:
        (ref,) = await sup.resume()
        await ref.wait_closed()
        stored = await sup.store.load_agent(AgentId("a"))
        assert stored is not None
        assert stored.intake is Intake.CLOSED
        await quiet()
        assert await sup.store.agents_with_work() == ()
