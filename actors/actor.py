"""The live side of an agent: woken by work, it runs turns until nothing is owed, then is passive again.

An idle agent has no task. Whether work waits and the return to passivity are decided in one stretch without a
checkpoint, behind the last await, and from the mailbox itself, not from a signal. So no message can fall between idle
and woken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from .changes import CallState, Intake
from .loop import TurnLoop
from .mailbox import Mailbox
from .moves import Begin, CallView, Over, TurnSpec, TurnState
from .transcript import CallBlock, Conversation, NoteRecord, ResponseRecord, owes_response

if TYPE_CHECKING:
    from .agent import Agent
    from .changes import AgentRow, CallRow
    from .hosting import Host
    from .ids import AgentId
    from .messages import Outcome, Queued
    from .tools import Toolbox


class Keeper(Protocol):
    """The supervisor, as an actor's life needs it."""

    @property
    def host(self) -> Host:
        """The loop's side of it."""
        ...

    def spawn(self, actor: Actor) -> None:
        """Start the actor's task, in a context of its own."""

    def may_begin(self, actor: Actor) -> bool:
        """Whether a new turn may begin now (leaving and closing forbid it)."""
        ...

    async def conversation(self, actor: Actor) -> Conversation:
        """The agent's records, read from the store where they are not in memory."""
        ...

    async def refresh(self, actor: Actor) -> None:
        """Take row, calls and mailbox from the store anew."""

    async def obey(self, actor: Actor) -> None:
        """Carry out control messages that no running turn carried out."""

    def turn_over(self, actor: Actor, over: Over) -> None:
        """A turn ended: tell those who wait."""

    async def after_turn(self, actor: Actor, over: Over) -> None:
        """The hooks behind a turn."""

    def settled(self, actor: Actor) -> None:
        """Nothing is due any more; the actor is about to be passive."""

    def passive(self, actor: Actor) -> None:
        """The actor has no task now."""

    def crashed(self, actor: Actor, error: Exception) -> None:
        """The loop ended with an exception that nothing expected."""


@final
class Actor:
    """One agent in this process.

    Invariants:
        ACTOR-1 at most one task runs its turns. ACTOR-2 passive means: nothing is due, or nothing may begin.
        ACTOR-3 `row` is as last committed.

    Attributes:
        suspended: why no turn may begin (`leaving`, `budget`, `store`, `crashed`, …), or None.
        stale: a commit failed that may have been written; the store is read before anything rests on memory (TRN-1).
        run_open: a run is under way. last: the outcome of the last turn that ended in this process, or None.
    """

    __slots__ = (
        "active",
        "agent",
        "asking_output",
        "calls",
        "conversation",
        "intake",
        "keeper",
        "last",
        "loop",
        "mailbox",
        "path",
        "row",
        "run_open",
        "seq",
        "spec",
        "stale",
        "suspended",
    )

    def __init__(self, agent: Agent, row: AgentRow, keeper: Keeper, spec: TurnSpec) -> None:
        self.path: AgentId = row.agent
        self.agent = agent
        self.row = row
        self.keeper = keeper
        self.spec = spec
        self.mailbox = Mailbox()
        self.conversation: Conversation | None = None
        self.calls: tuple[CallRow, ...] = ()
        self.intake = Intake.OPEN
        self.loop: TurnLoop | None = None
        self.suspended: str | None = row.suspended
        self.run_open = row.open is not None
        self.stale = False
        self.last: Outcome | None = None
        self.seq = 0
        self.active = False

    # -- work arrives ----------------------------------------------------------------------------------------------

    def arrived(self, queued: Queued) -> None:
        """A message is durable: put it in its lane, and wake."""
        self.mailbox.add(queued)
        self.wake()

    def wake(self) -> None:
        """See that what is due gets a task; sync, from anywhere on the Trio thread. An active one sees it by itself."""
        if not self.active and self.due:
            self.active = True
            self.keeper.spawn(self)

    @property
    def due(self) -> bool:
        """Whether there is something to do now."""
        if self.mailbox.control:
            return True
        if self.suspended is not None:
            return False
        return (self.row.open is not None or self.mailbox.wants_turn) and self.keeper.may_begin(self)

    @property
    def owes(self) -> bool:
        """Whether an answer is owed, whoever may begin it (ACC-8)."""
        return self.row.open is not None or self.mailbox.wants_turn

    # -- the task --------------------------------------------------------------------------------------------------

    async def main(self) -> None:
        """Run turns until nothing is due."""
        try:
            while True:
                await self._work()
                self.keeper.settled(self)
                if not self.due:  # no checkpoint from here until it is passive (ACTOR-2)
                    return
        except Exception as error:  # noqa: BLE001 - the one supervision point of an actor: a bug in one is no end of all
            self.suspended = "crashed"
            self.keeper.crashed(self, error)
        finally:
            self.active = False
            self.loop = None
            self.keeper.passive(self)

    async def _work(self) -> None:
        while self.due:
            if self.mailbox.control:
                await self.keeper.obey(self)
                continue
            await self._turn()

    async def _turn(self, cut: str | None = None) -> None:
        """Run a turn, or, with `cut`, only settle the open one."""
        if await self._catch_up() and cut is None and (not self.due or self.mailbox.control):
            return  # something came while we read
        assert self.conversation is not None, "it was read"
        host = self.keeper.host
        row = self.row
        resumed = row.open is not None
        state = TurnState(self.spec, row, self.conversation.stored, new_run=not self.run_open, toolbox=None)
        look = host.look(sends=False)
        last = self.conversation.last
        answer = last if resumed and isinstance(last, ResponseRecord) else None
        begin = Begin(host.now(), self._open_calls(look.toolbox) if resumed else (), resumed and self._owed(), answer)
        if resumed:
            state = TurnState(self.spec, row, self.conversation.stored, new_run=False, output=look.output)
        self.run_open = True
        self.loop = loop = TurnLoop(host, state, self.conversation)
        if cut is not None:
            loop.cut(cut, tuple)
        try:
            over = await loop.run(begin)
        finally:
            self.row = loop.row
            self.calls = ()
            self.loop = None
        if over.suspended is not None:
            self.suspended = over.suspended
            self.stale = over.failure is not None
        self.keeper.turn_over(self, over)
        if self.spec.hooks:
            await self.keeper.after_turn(self, over)

    async def _catch_up(self) -> bool:
        """Read what memory does not have, or cannot be sure of. Returns whether anything was read."""
        if self.stale:
            self.conversation = None
            await self.keeper.refresh(self)
            self.stale = False
        if self.conversation is not None:
            return False
        self.conversation = await self.keeper.conversation(self)
        return True

    async def bury(self, reason: str) -> None:
        """End an open turn that nothing will go on with: its calls are settled, and whoever asked is told (CLS-2).

        Only for a passive actor.
        """
        assert not self.active, "ACTOR-1: its task ends its turn itself"
        self.active = True
        try:
            await self._catch_up()
            if self.row.open is not None:
                await self._turn(reason)
        finally:
            self.active = False

    def _owed(self) -> bool:
        """Whether a turn found open owes a response, by the last durable record (REC-1)."""
        assert self.conversation is not None, "it was read"
        last = self.conversation.last
        if isinstance(last, ResponseRecord):
            return owes_response(last)
        return isinstance(last, NoteRecord) or owes_response(last)

    def _open_calls(self, toolbox: Toolbox) -> tuple[CallView, ...]:
        """The calls of the batch that the store has open, with their tools, in call order."""
        assert self.conversation is not None, "it was read"
        last = self.conversation.last
        if not isinstance(last, ResponseRecord):
            return ()
        rows = {row.call: row for row in self.calls}
        return tuple(_view(block, rows.get(block.id), toolbox) for block in last.calls)

    def __repr__(self) -> str:
        state = "active" if self.active else "passive"
        return f"<Actor {self.path} {state}, {self.mailbox.statistics()}>"


def _view(block: CallBlock, row: CallRow | None, toolbox: Toolbox) -> CallView:
    """A call as the store has it; one without a row was never started."""
    tool = toolbox.get(block.name)
    if row is not None and row.state is CallState.SETTLED:
        return CallView(block, CallState.SETTLED, tool, tries=row.tries, result=row.result)
    state = CallState.PLANNED if row is None else row.state
    parsed = None if tool is None else tool.parse(block.arguments)
    arguments = getattr(parsed, "arguments", None)
    if tool is None or arguments is None:
        return CallView(block, state, None, None, tries=1 if row is None else row.tries)
    keys, exclusive = tool.keys(arguments)
    return CallView(block, state, tool, arguments, keys, exclusive, 1 if row is None else row.tries)
