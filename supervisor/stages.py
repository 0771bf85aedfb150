"""What is said of budgets: overruns, and the stages that they pass, to watchers, the agent and its parent (BUD-4).

Where no budget is, nothing here runs. The ledger knows which stages were passed, each once per grant; whoever spends
asks it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import attrs
from msgspec.structs import asdict

from actors.changes import Enqueue, Move
from actors.content import Text
from actors.errors import CallboardError
from actors.happenings import BudgetStage, Overrun
from actors.ids import AgentId, parent_path, tree_of
from actors.messages import Envelope, Lane, LaneBound, Purpose, ReceiptState
from actors.usage import NOTHING

from .roster import TOP

if TYPE_CHECKING:
    from actors.usage import Amounts

    from .ledger import StageCrossed
    from .parts import Parts

_NO_BOUND: Final = LaneBound()


@final
class Stages:
    """Tells who must hear of it that a budget runs low.

    Attributes:
        pending: what agents are told with their next request, by path.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._kernel = parts.kernel
        self.pending: dict[AgentId, tuple[str, ...]] = {}

    def spent(self, agent: AgentId, overrun: Amounts = NOTHING) -> None:
        """Something was accounted or refused: say what it overran (BUD-2), and the stages that were passed."""
        if overrun is not NOTHING:
            for dimension, amount in asdict(overrun).items():
                if amount > 0:
                    self._kernel.tell(agent, Overrun, {"dimension": dimension, "amount": amount, **self._within(agent)})
        if self._parts.ledger.crossed:
            self._say()

    def _say(self) -> None:
        said: dict[AgentId, tuple[str, ...]] = {}
        for crossed in self._parts.ledger.take_stages():
            values = attrs.asdict(crossed)
            node: AgentId = values.pop("node")
            self._kernel.tell(node, BudgetStage, values | self._within(node))
            said[node] = (*said.get(node, ()), _line(crossed))
        for node, lines in said.items():
            if node == TOP:
                continue
            self.pending[node] = (*self.pending.get(node, ()), *lines)
            if parent_path(node):
                self._kernel.nursery.start_soon(self._notify, node, lines)

    def take(self, agent: AgentId) -> tuple[str, ...]:
        """What the agent's next request says; once."""
        return self.pending.pop(agent, ())

    def granted(self, agent: AgentId) -> None:
        """A grant: what was to be said is so no more."""
        self.pending.pop(agent, None)

    async def _notify(self, node: AgentId, lines: tuple[str, ...]) -> None:
        """Tell the parent, on a reserved place (ACC-6): at its next boundary, or with the next turn it has anyway."""
        parent = AgentId(parent_path(node))
        message = self._kernel.new_message_id()
        text = Text(f"Notice of {node}. " + " ".join(lines))
        envelope = Envelope(message, parent, Lane.STEER, (text,), node, purpose=Purpose.NOTICE, reserved=True)
        held = Move(parent, (ReceiptState.QUEUED,), ReceiptState.HELD, (message,))  # a notice wakes nobody
        with suppress(CallboardError):  # a parent that is closed, a store that is down: watchers were told
            await self._kernel.commit(tree_of(parent), (Enqueue(envelope, _NO_BOUND), held))

    def _within(self, agent: AgentId) -> dict[str, object]:
        """The run and the turn that it is in."""
        actor = self._kernel.actors.get(agent)
        opened = None if actor is None else (actor.row if actor.loop is None else actor.loop.state.row).open
        return {} if opened is None else {"run": opened.run, "turn": opened.number}

    def __repr__(self) -> str:
        return f"<Stages {len(self.pending)} pending>"


def _line(crossed: StageCrossed) -> str:
    what = "is exhausted" if crossed.stage == "exhausted" else f"has reached its {crossed.stage} limit"
    return (
        f"The budget of {crossed.node} and all below it {what}: {crossed.spent} of {crossed.limit}"
        f" {crossed.dimension} are spent."
    )
