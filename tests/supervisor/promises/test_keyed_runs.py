"""A keyed run is its task's: the report that is handed out again is the one that answered it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors import Agent, Script, UsageError
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


async def test_a_key_is_no_other_agents(tmp_path: Path) -> None:
    """One key for two agents is refused, with the agent that has it: never one's report as the other's."""
    clerk, auditor = Agent("clerk"), Agent("auditor")
    script = Script({"clerk": ["from the clerk"], "auditor": ["from the auditor"]})
    async with open_supervisor(model=script, store=tmp_path / "agents.db", agents=[clerk, auditor]) as sup:
        assert (await sup.run(clerk, "go", key="monday")).text == "from the clerk"
        with pytest.raises(UsageError, match=r"'monday' was used for another agent \(clerk\), not for 'auditor'"):
            await sup.run(auditor, "go", key="monday")
        assert (await sup.run(auditor, "go", key="monday, auditor")).text == "from the auditor"
