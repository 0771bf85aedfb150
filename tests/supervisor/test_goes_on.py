"""A tree that is taken for the sake of one agent goes on whole (SUP-6, ACC-8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Agent, Child, call
from actors.models.script import hang
from actors.transcript import ResponseRecord
from tests.supervisor.test_peers import Shared

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from trio.testing import MockClock

    from actors.ports import ModelRequest
    from supervisor import AgentRef, Supervisor


@pytest.fixture(params=["memory", "sqlite"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    """A store of either kind."""
    return Shared(request.param, tmp_path)


WAYS: dict[str, Callable[[Supervisor, AgentRef], Awaitable[object]]] = {
    "find": lambda sup, _: sup.find("lead"),
    "send": lambda _, ref: ref.send("and now?"),
    "steer": lambda _, ref: ref.steer("and now?"),
    "wake": lambda _, ref: ref.wake(),
    "order": lambda _, ref: ref.abort("enough"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_sup_6_a_tree_that_is_taken_for_one_agent_goes_on_with_all(
    shared: Shared, autojump_clock: MockClock, way: str
) -> None:
    """Its owner died with two children at work: whoever takes it through their idle parent goes on with them.

    Nobody resumes; each child is asked once more, and its report reaches the parent.
    """
    kid = Agent("kid", "Help.")
    lead = Agent("lead", "Lead.", children=[Child(kid, background=True)])

    def leads(request: ModelRequest) -> object:
        if any(isinstance(record, ResponseRecord) for record in request.window):
            return "on"
        return [call("kid", task="x"), call("kid", task="y")]

    first: dict[str, Any] = {"lead": leads, "kid": lambda _: hang()}
    second: dict[str, Any] = {**first, "kid": lambda _: "helped"}
    async with shared.open(second, lead) as other:
        with pytest.raises(RuntimeError, match="dies"):  # noqa: PT012 - its life is what raises
            async with shared.open(first, lead) as owner:
                await owner.start(lead, "go")
                await trio.sleep(1)
                ref = await other.find("lead")
                raise RuntimeError("it dies")
        assert {row.agent for row in await other.tree() if row.open is not None} == {"lead/kid", "lead/kid#2"}
        await WAYS[way](other, ref)
        await trio.sleep(60)
        assert await other.store.agents_with_work() == ()
        for path in ("lead/kid", "lead/kid#2"):
            assert (await (await other.find(path)).wait_report()).text == "helped"
        said = [str(record) for record in await ref.transcript()]
        assert sum("Report of lead/kid" in one for one in said) == 2


async def test_rec_2_a_tree_of_which_nothing_is_owed_is_taken_and_asks_nobody(
    shared: Shared, autojump_clock: MockClock
) -> None:
    """What stands still for a person, or was ended, does so still."""
    lead = Agent("lead", "Lead.")
    script: dict[str, Any] = {"lead": lambda _: "done"}
    async with shared.open(script, lead) as owner:
        ref = await owner.start(lead, "go")
        await ref.wait_idle()
        await ref.pause()
        await ref.send("later")
        await trio.sleep(1)
    async with shared.open({}, lead) as owner:
        ref = await owner.find("lead")
        await trio.sleep(10)
        assert ref.state == "paused"
