"""A keyed run is its task's: the report that is handed out again is the one that answered it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors import Agent, Script
from supervisor import open_supervisor

if TYPE_CHECKING:
    from pathlib import Path


async def test_the_same_key_returns_the_report_of_its_own_task(tmp_path: Path) -> None:
    """What the agent was asked since does not come back as the keyed run's result, in this process or the next."""
    scout = Agent("scout", "Look around.")
    store = tmp_path / "agents.db"
    async with open_supervisor(model=Script({"scout": ["one", "two"]}), store=store, agents=[scout]) as sup:
        assert (await sup.run(scout, "first", key="k")).text == "one"
        ref = await sup.find("scout")
        assert (await ref.ask("second")).text == "two"
        assert (await sup.run(scout, "first", key="k")).text == "one"
    async with open_supervisor(model=Script({"scout": []}), store=store, agents=[scout]) as sup:
        assert (await sup.run(scout, "first", key="k")).text == "one"
