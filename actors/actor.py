"""The live side of an agent: woken by work, it runs turns until nothing is owed, then is passive again.

An idle agent has no task. Whether work waits and the return to passivity are decided in one stretch without a
checkpoint, behind the last await, and from the mailbox itself, not from a signal. So no message can fall between idle
and woken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from .behind import Behind
from .changes import Claim, Intake, Move, Put
from .compaction import ASKED, Compacting
from .crashes import Crashes, leave_in_order, stopped_by
from .errors import NotCompacted, Unavailable
from .evolve import evolve
from .ids import turn_id
from .loop import TurnLoop
from .mailbox import Mailbox
from .memory import Memory
from .messages import Purpose, ReceiptState
from .parking import APPROVAL, PAUSED, paused

if TYPE_CHECKING:
    from collections.abc import Callable

    from .agent import Agent
    from .changes import AgentRow
    from .errors import CallboardError
    from .ids import AgentId
    from .keeper import Keeper
    from .messages import Outcome, Queued
    from .moves import Over
    from .points import TurnSpec


@final
class Actor:
    """One agent in this process.

    Invariants:
        ACTOR-1 at most one task runs its turns. ACTOR-2 passive means: nothing is due, or nothing may begin.
        ACTOR-3 `row` is as last committed.

    Attributes:
        suspended: why no turn may begin (`leaving`, `budget`, `store`, `crashed`, `approval`, `paused`, …), or None.
        memory: what is known of its turns. behind: the store has messages waiting that the mailbox does not show yet.
        lost: another process runs its tree: nothing begins here any more, not even an order is carried out (SUP-6).
        run_open: a run is under way. run_over: the store has it as settled.
        last: the outcome of the last turn that ended in this process, or None. pausing: a pause is being written.
    """

    __slots__ = (
        "_behind",
        "active",
        "agent",
        "asking_output",
        "behind",
        "compacting",
        "crashes",
        "intake",
        "keeper",
        "last",
        "loop",
        "lost",
        "mailbox",
        "memory",
        "not_compacted",
        "path",
        "pausing",
        "row",
        "run_open",
        "run_over",
        "spec",
        "suspended",
    )

    def __init__(self, agent: Agent, row: AgentRow, keeper: Keeper[Actor], spec: TurnSpec) -> None:
        self.path: AgentId = row.agent
        self.agent = agent
        self.row = row
        self.keeper = keeper
        self.spec = spec
        self.mailbox = Mailbox()
        self.memory = Memory()
        self.intake = Intake.OPEN
        self.loop: TurnLoop | None = None
        self.suspended: str | None = row.suspended
        self.run_open, self.run_over = row.open is not None, False
        self.behind = self.lost = False
        self.crashes = Crashes(spec.limits.poison_limit)
        self.last: Outcome | None = None
        self.active = self.compacting = False
        self.not_compacted: str | None = None
        self._behind, self.pausing = Behind(), False

    # -- work arrives ----------------------------------------------------------------------------------------------

    def arrived(self, queued: Queued) -> None:
        """A message is durable, and in its lane: wake."""
        self._behind.ordered(queued)
        self.wake()

    def cut_off(self) -> None:
        """Stop the turn here and now, or what runs behind it."""
        if self.loop is not None:
            self.loop.cut_off()
        self._behind.cancel()

    def wake(self) -> None:
        """See that what is due gets a task; sync, from anywhere on the Trio thread. An active one sees it by itself."""
        if not self.active and self.due:
            self.active = True
            self.keeper.spawn(self)

    @property
    def due(self) -> bool:
        """Whether there is something to do now."""
        mailbox = self.mailbox
        if self.lost or mailbox.orders:
            return not self.lost
        if self.suspended is not None and not (
            self.suspended == APPROVAL and (mailbox.decisions or mailbox.interrupts)  # what brings it back (TOL-12)
        ):
            return False
        return self._wanted and self.keeper.may_begin(self)

    @property
    def _wanted(self) -> bool:
        return self._wants_turn or bool(self.mailbox.decisions) or self.compacting

    def compact(self) -> None:
        """Have the conversation compacted at the next boundary; while one is asked for, it is that one (CMP-3).

        Raises:
            NotCompacted: nobody would carry it out.
        """
        self.check_compacts()
        if self.compacting:
            return
        self.compacting, self.not_compacted = True, None
        if self.loop is not None:
            self.loop.compact()
        self.wake()

    def check_compacts(self) -> None:
        """Raise `NotCompacted` where nobody would carry a compaction out."""
        if self.suspended is not None or self.intake is not Intake.OPEN or not self.keeper.may_begin(self):
            why = self.suspended or (self.intake.value if self.intake is not Intake.OPEN else "being stopped")
            raise NotCompacted(f"{self.path} is {why}: nobody would compact it")

    def _compacted(self, error: CallboardError | None) -> None:
        self.compacting = False
        self.not_compacted = None if error is None else str(error)
        if self.loop is not None:
            self.row = self.loop.row  # whoever waits sees what it cost
        self.keeper.compacted(self, error)

    @property
    def owes(self) -> bool:
        """Whether an answer is owed, whoever may begin it (ACC-8)."""
        return self._wants_turn or bool(self.mailbox.mortal.expired)

    @property
    def _wants_turn(self) -> bool:
        return self.row.open is not None or self.mailbox.wants_turn or self.behind

    def eased(self) -> None:
        """Messages left without being answered: where nothing is owed any more, whoever waits for that hears it."""
        if not self.active and not self.owes:
            self.keeper.settled(self)
            self.keeper.passive(self)

    # -- the task --------------------------------------------------------------------------------------------------

    async def main(self) -> None:
        """Run turns until nothing is due."""
        try:
            while True:
                try:
                    await self._work()
                    await self._run_over()
                    self.keeper.settled(self)
                except Exception as error:  # noqa: BLE001 - an actor's one supervision point: a bug in it is no end of all
                    again = self.crashes.goes_on(error)
                    self.memory.stale = True  # what is in memory may be half of something
                    self.suspended = self.suspended if again else stopped_by(error)
                    self.keeper.crashed(self, error)
                    if not again:
                        return
                if not self.due:  # no checkpoint from here until it is passive (ACTOR-2)
                    return
        finally:
            self.active = False
            self.loop = None
            if self.compacting:  # CMP-3: nobody will carry it out
                self._compacted(NotCompacted(f"{self.path} was not compacted: it is {self.suspended or 'stopped'}"))
            self.keeper.passive(self)

    async def _work(self) -> None:
        while self.due:
            if self.mailbox.orders:
                if self.memory.stale:  # some of them may have been carried out (TRN-1)
                    await self._catch_up()
                await self.keeper.obey(self)
                continue
            await self._turn()

    async def _turn(self, cut: str | None = None, orders: tuple[Queued, ...] = ()) -> None:
        """Run a turn, or, with `cut`, only settle the open one, and claim `orders` with it."""
        if await self._ready() and cut is None and (not self.due or self.mailbox.orders):
            return  # something came while we read
        if cut is None and self.memory.stale_decisions(self.row, self.mailbox.decisions):
            await self.keeper.obey(self)
            return
        at_once = _at_once(self, cut, orders)
        self.suspended = None
        host, row, memory = self.keeper.host, self.row, self.memory
        assert memory.conversation is not None, "it was read"
        alone = self.compacting and not (row.open is not None or self.mailbox.wants_turn)
        look = memory.look(host, row)
        begin = memory.begin(host, row, look, crashed=self.crashes.uncounted)
        if alone or at_once is not None:
            begin = evolve(begin, compact=alone, more=at_once is not None)
        state = memory.state(self.spec, row, look, now=begin.now, new_run=self.run_over or not self.run_open)
        if self.compacting:
            state.compacting = Compacting(ASKED)
        opened, self.run_open = self.run_open, self.run_open or not alone
        self.loop = loop = TurnLoop(host, state, memory.conversation, self._compacted)
        if not alone:
            self.keeper.turn_begins(self)
        if at_once is not None:
            at_once(loop)
        try:
            over = await loop.run(begin)
        finally:
            self._take_over(loop, row, opened)
        if loop.over is None:
            self.row = await leave_in_order(host, self.row)
        self._ended(over, row)
        self.keeper.turn_over(self, over)
        if self.spec.hooks:
            await self._behind.run(self.keeper.after_turn(self, over), self.mailbox.orders)

    async def _run_over(self) -> None:
        """A run is over: its hooks are called; what they send, or what came meanwhile, begins the next one."""
        if self.spec.hooks and self.run_open and not self.owes:
            await self._behind.run(self.keeper.after_run(self), self.mailbox.orders)
            self.run_open = not self.owes

    def _take_over(self, loop: TurnLoop, before: AgentRow, opened: bool) -> None:  # noqa: FBT001 - private
        """What the loop left behind, however it ended; a turn of which nothing was written has opened no run."""
        self.run_open = opened if loop.row is before else self.run_open
        self.crashes.ran(before, loop.row)
        self.row, self.loop = loop.row, None
        self.memory.ran(self.row, loop.state.unknown)

    def _ended(self, over: Over, before: AgentRow) -> None:
        """What the end of a turn means for the next."""
        if over.suspended is not None:
            self.suspended = over.suspended
            self.memory.stale = over.failure is not None
        elif over.outcome is None:
            self.behind |= self.row.singly != before.singly  # its messages wait again (CON-6)
        else:
            self.crashes.ended(before)
        self.run_over = self.run_over if self.row is before else over.run_over
        if self.compacting and over.outcome is not None and over.outcome.cut:  # ABT-4
            self._compacted(NotCompacted(f"{self.path} was not compacted: it was aborted"))

    async def _ready(self) -> bool:
        """Catch up, and let held messages join what a later one asked for (ABT-4). Returns whether it waited."""
        waited = await self._catch_up()
        if not (self.mailbox.held and self.mailbox.wants_turn):
            return waited
        move = Move(self.path, (ReceiptState.HELD,), ReceiptState.QUEUED)
        await self.keeper.host.commit((move,))
        return True

    async def _catch_up(self) -> bool:
        """Read what memory does not have, or cannot be sure of. Returns whether anything was read."""
        memory = self.memory
        read = memory.doubted or self.behind
        if read:
            await self.keeper.refresh(self)
            if memory.stale and self.row.suspended == PAUSED:  # that was written, and told as failed
                self.suspended = PAUSED
            memory.read_anew()
        if memory.conversation is not None:
            return read
        memory.conversation = await self.keeper.conversation(self)
        return True

    async def end_open(self, reason: str, orders: tuple[Queued, ...]) -> None:
        """Settle the open turn as aborted, and claim the abort with it; for the keeper that obeys, in our own task.

        Raises:
            CallboardError: it could not be written.
        """
        await self._catch_up()
        if self.row.open is not None:
            await self._turn(reason, orders)
        if self.suspended == "store":
            raise Unavailable(f"{self.path}: its abort could not be written; it is carried out when it is resumed")

    async def pause(self, order: Queued) -> None:
        """Pause, or end the pause, in one commit with the claim of the order; for the keeper that obeys (TOL-12)."""
        pausing = order.envelope.purpose is Purpose.PAUSE
        row = paused(self.row, pausing=pausing)
        claim = Claim(self.path, (order.envelope.id,), turn_id(self.path, self.row.turns))
        self.pausing = True
        try:
            await self.keeper.host.commit((claim, Put(row)))
        finally:
            self.pausing = False
        self.row = row
        if pausing or self.suspended == PAUSED:
            self.suspended = row.suspended

    async def bury(self, reason: str) -> None:
        """End an open turn that nothing will go on with: its calls are settled, and whoever asked is told (CLS-2).

        Only for a passive actor. Raises `StoreError`: it could not be written, so the turn is open still.
        """
        assert not self.active, "ACTOR-1: its task ends its turn itself"
        self.active, suspended = True, self.suspended
        try:
            await self._catch_up()
            if self.row.open is not None:
                await self._turn(reason)
            if self.row.open is not None:
                raise Unavailable(f"{self.path}: its turn could not be ended in the store; resume() goes on with that")
        finally:
            self.active, self.suspended = False, suspended  # what kept it from a turn still does

    def __repr__(self) -> str:
        return f"<Actor {self.path} {'active' if self.active else 'passive'}, {self.mailbox.statistics()}>"


def may_be_paused(actor: Actor) -> bool:
    """Whether only an order ends a pause: it is paused, about to be, or it is not known what the store has."""
    ordered = any(queued.envelope.purpose is Purpose.PAUSE for queued in actor.mailbox.orders)
    return actor.suspended == PAUSED or actor.pausing or ordered or actor.memory.stale


def _at_once(actor: Actor, cut: str | None, orders: tuple[Queued, ...]) -> Callable[[TurnLoop], None] | None:
    """What the turn hears as soon as it has begun: a cut, a steer that interrupts a parked one, decisions."""
    if cut is not None:
        return lambda loop: loop.cut(cut, lambda: orders)
    if actor.suspended == APPROVAL and actor.mailbox.interrupts:
        return lambda loop: loop.cut(None, tuple)
    decisions = actor.mailbox.decisions
    return (lambda loop: loop.decide(decisions)) if decisions else None
