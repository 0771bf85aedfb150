"""An agent whose turn is parked for approval, for the tests of approvals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from tests.supervisor.promises.world import quiet

if TYPE_CHECKING:
    from actors import Agent
    from supervisor import Supervisor


WAITS = "waits for approval of delete (a:t1.1.0)"


async def stopped(sup: Supervisor, spec: Agent, task: str = "go") -> Any:
    """An agent whose turn is parked: its handle."""
    ref = await sup.start(spec, task)
    await quiet()
    while ref.state != "approval":  # noqa: ASYNC110 - the tools of a batch take their time
        await trio.sleep(1)
    return ref
