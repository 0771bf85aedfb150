"""A takeover in mid-turn: when it was a crash of the turn, and when the owner was only stopped (SUP-6, CON-6)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Aborted, Agent, Child, Context, call, tool
from actors.content import text_of
from actors.ids import AgentId
from actors.transcript import MessageRecord
from tests.supervisor.test_peers import LEASE_S, Shared

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from actors import ModelRequest
    from supervisor import Supervisor

A = Agent("a", "Answer.")


@pytest.fixture(params=["memory", "sqlite"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    """A store of either kind."""
    return Shared(request.param, tmp_path)


async def slow(_: object) -> str:
    """Answer late."""
    await trio.sleep(10_000)
    return "late"


async def nothing(*_: object) -> tuple[()]:
    """A stopped process does nothing."""
    return ()


class Stopped:
    """A supervisor that is stopped in the middle of a turn, as its process is by SIGSTOP or a host that sleeps."""

    def __init__(self, sup: Supervisor) -> None:
        self.sup = sup
        ownership: Any = sup._parts.kernel.ownership
        self._ownership, self._renew = ownership, ownership.renew
        ownership.renew = nothing

    async def comes_back(self) -> None:
        """It goes on, and finds that it lost its tree."""
        self._ownership.renew = self._renew
        await trio.sleep(LEASE_S)
        assert not self._ownership.epochs

    def is_killed(self) -> None:
        """It never does anything again."""
        self._ownership.give_back = nothing


async def crashes(sup: Supervisor) -> int:
    """How often the open turn has crashed, as the store has it."""
    stored = await sup.store.load_agent(AgentId("a"))
    assert stored is not None
    assert stored.row.open is not None
    return stored.row.open.tries


@pytest.mark.parametrize("late", [False, True])
async def test_con_6_an_owner_that_was_stopped_and_came_back_did_not_crash(
    shared: Shared, autojump_clock: MockClock, *, late: bool
) -> None:
    """One long turn is taken over five times from owners that were stopped: it is answered, and is no dead letter.

    Each comes back, soon or when the next one has been stopped already; what the last owner counts is one crash: that
    of the owner before it, of which nothing is known yet.
    """
    async with AsyncExitStack() as stack:
        stopped: list[Stopped] = []
        receipt = None
        for number in range(6):
            answers = slow if number < 5 else lambda _: "at last"
            sup = await stack.enter_async_context(shared.open({"a": answers}, A))  # type: ignore[dict-item]  # a script
            if number == 0:
                receipt = await (await sup.start(A)).send("go")
            else:
                assert len(await sup.resume()) == 1
                if number < 5:
                    assert await crashes(sup) <= 2
                    if not late:
                        await stopped[-1].comes_back()
            await trio.sleep(1)
            if late and number > 1:
                await stopped[-2].comes_back()
            stopped.append(Stopped(sup))
            await trio.sleep(LEASE_S + 1)
        assert receipt is not None
        last = stopped[-1].sup
        found = await last.receipt(receipt.id)
        assert (await found.wait_report()).text == "at last"
        assert await last.dead_letters() == ()


async def test_con_6_owners_that_never_come_back_crashed(shared: Shared, autojump_clock: MockClock) -> None:
    """Where nobody can say whether an owner was stopped or killed, three that are not seen again are three crashes."""
    async with AsyncExitStack() as stack:
        receipt = None
        for number in range(3):
            sup = await stack.enter_async_context(shared.open({"a": slow}, A))  # type: ignore[dict-item]  # a script
            if number == 0:
                receipt = await (await sup.start(A)).send("go")
            else:
                assert len(await sup.resume()) == 1
                assert await crashes(sup) == number
            await trio.sleep(1)
            Stopped(sup).is_killed()
            await trio.sleep(LEASE_S + 1)
        last = await stack.enter_async_context(shared.open({}, A))
        await last.resume()
        assert receipt is not None
        found = await last.receipt(receipt.id)
        assert (await found.wait_report()).status == "failed"
        assert [letter.message for letter in await last.dead_letters()] == [receipt.id]


async def test_con_6_a_tree_remembers_a_bounded_number_of_lost_owners(
    shared: Shared, autojump_clock: MockClock
) -> None:
    """What is kept of owners that lost a tree does not grow with how often it changes hands."""
    async with shared.store() as store:
        tree = A.name
        for _ in range(40):
            holder = store.new_holder()
            await store.own(tree, holder)  # type: ignore[arg-type]  # a root's path is its tree's id
            await trio.sleep(LEASE_S + 1)
            following = store.new_holder()
            await store.own(tree, following)  # type: ignore[arg-type]  # likewise
            await store.renew(holder)
            await store.release(following)
        await store.own(tree, store.new_holder())  # type: ignore[arg-type]  # likewise
        lease = await store.lease(tree)  # type: ignore[arg-type]  # likewise
        assert lease is not None
        assert 0 < len(lease.lived) <= 16
        assert lease.lived[-1] == 79


async def test_acc_8_whoever_takes_a_tree_over_goes_on_with_all_of_it(
    shared: Shared, autojump_clock: MockClock
) -> None:
    """Its owner was killed, and somebody waits for one agent of it: what another one owes is not left lying."""
    kid = Agent("kid", "Help.")
    lead = Agent("a", "Lead.", children=[Child(kid, background=True)])

    def leads(request: ModelRequest) -> object:
        return "said" if request.window.responses else call("kid", task="help")

    async def once(request: ModelRequest) -> object:
        return leads(request) if len(request.window) < 4 else await slow(request)

    async with shared.open({"a": once, "kid": slow}, lead) as owner:  # type: ignore[dict-item]  # scripts
        await (await owner.start(lead, "go")).wait_report()
        await trio.sleep(1)
        async with shared.open({"a": leads, "kid": lambda _: "helped"}, lead) as other:  # type: ignore[dict-item]  # scripts
            receipt = await (await other.find("a")).send("more")
            Stopped(owner)
            assert (await receipt.wait_report()).text == "said"
            assert other._parts.kernel.ownership.epochs, "it waited, and took the tree when the lease was over"
            await trio.sleep(LEASE_S)
            assert not await other.store.agents_with_work()
            assert (await (await other.find("a/kid")).wait_report()).text == "helped"


@pytest.mark.parametrize("back", [False, True])
async def test_tol_14_code_of_a_tree_that_was_lost_sends_its_own_agent_nothing(
    shared: Shared, autojump_clock: MockClock, *, back: bool
) -> None:
    """A call that notices nothing goes on in the process that lost the tree, or has it again: nobody is asked."""
    refused: list[BaseException] = []

    @tool
    async def deaf(ctx: Context) -> str:
        """Work on."""
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
            try:
                await ctx.send("a", "back again")
            except Aborted as error:
                refused.append(error)
        return "late"

    spec = Agent("a", "x", tools=[deaf])
    async with shared.open({"a": [call("deaf"), "mine", "again"]}, spec) as one:
        ref = await one.start(spec, "go")
        await trio.sleep(1)
        async with AsyncExitStack() as stack:
            two = await stack.enter_async_context(shared.open({"a": ["", *["theirs"] * 9]}, spec))
            stopped = Stopped(one)
            await trio.sleep(LEASE_S + 1)
            (theirs,) = await two.resume()
            assert (await theirs.wait_report()).text == "theirs"
            await stopped.comes_back()
            if not back:
                await trio.sleep(60)
        if back:
            assert (await (await one.find("a")).ask("hello")).text == "mine"
            await trio.sleep(60)
        (error,) = refused
        assert "it sends its own agent nothing any more" in str(error)
        said = [text_of(record.content) for record in await ref.transcript() if isinstance(record, MessageRecord)]
        assert said == ["go", *["hello"] * back]
