"""A process that dies at a named moment, on the kit of `tests/points`; a case lives on in the next one."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import trio

from actors import Script
from supervisor import open_supervisor
from tests.points.dying import MortalModel, MortalStore, Process
from tests.points.outside import Outside
from tests.points.table import Moment, Phase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from supervisor import Supervisor
    from tests.supervisor.promises.world import World

When: TypeAlias = "tuple[Phase, str]"
BEFORE, AFTER, AT = Phase.BEFORE, Phase.AFTER, Phase.AT
REST_S = 900.0


@attrs.define(eq=False)
class Mortal(Process):
    """It dies when it comes to `when` for the `nth` time, or to its `at`-th moment; with neither it lives."""

    when: When | None = None
    nth: int = 1

    def reach(self, phase: Phase, labels: frozenset[str]) -> bool:
        """Come to a moment. Returns whether the process lives on."""
        if self.dead:
            return False
        self.seen.append(Moment(phase, labels))
        if self.when is not None and self.seen[-1].fits(*self.when):
            self.nth -= 1
            if self.nth == 0:
                self.die()
        elif len(self.seen) == self.at:
            self.die()
        return not self.dead


@asynccontextmanager
async def living(world: World, model: dict[str, Any], process: Mortal, **options: Any) -> AsyncIterator[Supervisor]:
    """A supervisor in this process, over the world's store. Its body is cut off where it dies, no more."""
    async with world.store() as bare:
        store = MortalStore(bare, process)
        try:
            with process.scope:
                async with open_supervisor(
                    model=MortalModel(Script(model), process), store=store, inline=True, **options
                ) as sup:
                    yield sup
        except Exception:
            if not process.dead:  # what a dead one raises never happened
                raise
        if process.dead:
            assert store.holder is not None, "a supervisor makes its holder first"
            await bare.release(store.holder)  # its process is known to be gone
        else:
            assert process.when is None, f"it never came to {process.when}: {process.seen}"


def dies(phase: Phase, label: str, nth: int = 1, *, outside: Outside | None = None) -> Mortal:
    """A process that dies there."""
    return Mortal(outside or Outside(), when=(phase, label), nth=nth)


def lives(outside: Outside | None = None) -> Mortal:
    """A process that is left in peace."""
    return Mortal(outside or Outside())


async def at_rest(sup: Supervisor) -> None:
    """Nothing is owed any more; a process that is to die dies on the way."""
    with trio.fail_after(REST_S):
        while await sup.store.agents_with_work():  # noqa: ASYNC110 - a store has no event
            await trio.sleep(1)
        for ref in [await sup.find(row.agent) for row in await sup.tree()]:
            await ref.wait_idle()
