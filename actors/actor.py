"""The live side of an agent: woken by work, it runs turns until nothing is owed, then is passive again.

An idle agent has no task. Whether work waits and the return to passivity are decided in one stretch without a
checkpoint, behind the last await, and from the mailbox itself, not from a signal. So no message can fall between idle
and woken.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, final

import trio

from .approving import found, unknown_in
from .changes import CallState, Claim, Intake, Put
from .compaction import ASKED, NO_COMPACTION, Compacting
from .errors import NotCompacted, StoreError, Unavailable
from .evolve import evolve
from .ids import turn_id
from .loop import TurnLoop
from .mailbox import Mailbox
from .messages import Purpose, Status
from .moves import CALLS_LISTED, Begin, CallView, Over, TurnState
from .parking import APPROVAL, PAUSED
from .transcript import NoteRecord, ResponseRecord, ResultRecord, owes_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from .agent import Agent
    from .changes import AgentRow, CallRow
    from .conversation import Conversation
    from .errors import CallboardError
    from .hosting import Host
    from .ids import AgentId, CallId, MessageId, TurnId
    from .messages import Outcome, Queued
    from .output import OutputSpec
    from .points import TurnSpec
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

    def turn_begins(self, actor: Actor) -> None:
        """A turn begins, or goes on."""

    async def release(self, actor: Actor) -> None:
        """Queue messages again that an abort holds."""

    def turn_over(self, actor: Actor, over: Over) -> None:
        """A turn ended: tell those who wait."""

    async def after_turn(self, actor: Actor, over: Over) -> None:
        """The hooks behind a turn."""

    def compacted(self, actor: Actor, error: CallboardError | None) -> None:
        """A compaction is over, or will not be: tell those who wait."""

    def settled(self, actor: Actor) -> None:
        """Nothing is due any more; the actor is about to be passive."""

    def passive(self, actor: Actor) -> None:
        """The actor has no task now."""

    def crashed(self, actor: Actor, error: Exception) -> None:
        """The loop ended with an exception that nothing expected; it is suspended, or goes on."""


@final
class Actor:
    """One agent in this process.

    Invariants:
        ACTOR-1 at most one task runs its turns. ACTOR-2 passive means: nothing is due, or nothing may begin.
        ACTOR-3 `row` is as last committed.

    Attributes:
        suspended: why no turn may begin (`leaving`, `budget`, `store`, `crashed`, `approval`, `paused`, …), or None.
        calls: rows of calls as they were read, None where the store knows better. unknown: as `TurnState` has it.
        stale: a commit failed that may have been written; the store is read before anything rests on memory (TRN-1).
        behind: the store has messages waiting that the mailbox does not show yet.
        crashed: the open turn was not left in order, and that is not counted yet. crashes: of the loop, in a row.
        run_open: a run is under way. last: the outcome of the last turn that ended in this process, or None.
    """

    __slots__ = (
        "_behind",
        "active",
        "agent",
        "asking_output",
        "behind",
        "calls",
        "compacting",
        "conversation",
        "crashed",
        "crashes",
        "intake",
        "keeper",
        "last",
        "loop",
        "mailbox",
        "not_compacted",
        "path",
        "row",
        "run_open",
        "seq",
        "spec",
        "stale",
        "suspended",
        "unknown",
    )

    def __init__(self, agent: Agent, row: AgentRow, keeper: Keeper, spec: TurnSpec) -> None:
        self.path: AgentId = row.agent
        self.agent = agent
        self.row = row
        self.keeper = keeper
        self.spec = spec
        self.mailbox = Mailbox()
        self.conversation: Conversation | None = None
        self.calls: tuple[CallRow, ...] | None = ()
        self.unknown: tuple[tuple[str, CallId], ...] = ()
        self.intake = Intake.OPEN
        self.loop: TurnLoop | None = None
        self.suspended: str | None = row.suspended
        self.run_open = row.open is not None
        self.stale = False
        self.behind = False
        self.crashed = True
        self.crashes = 0
        self.last: Outcome | None = None
        self.seq = 0
        self.active = False
        self.compacting = False
        self.not_compacted: str | None = None
        self._behind: trio.CancelScope | None = None  # around the hooks behind a turn

    # -- work arrives ----------------------------------------------------------------------------------------------

    def arrived(self, queued: Queued) -> None:
        """A message is durable: put it in its lane, and wake."""
        self.mailbox.add(queued)
        if self._behind is not None and queued.envelope.purpose is Purpose.ABORT:
            self._behind.cancel()
        self.wake()

    def cut_off(self) -> None:
        """Stop the turn here and now, or what runs behind it."""
        if self.loop is not None:
            self.loop.cut_off()
        if self._behind is not None:
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
        if mailbox.orders:
            return True
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
        if self.suspended is not None or self.intake is not Intake.OPEN or not self.keeper.may_begin(self):
            why = self.suspended or (self.intake.value if self.intake is not Intake.OPEN else "being stopped")
            raise NotCompacted(f"{self.path} is {why}: nobody would compact it")
        if self.compacting:
            return
        self.compacting, self.not_compacted = True, None
        if self.loop is not None:
            self.loop.compact()
        self.wake()

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
                    self.keeper.settled(self)
                except Exception as error:  # noqa: BLE001 - an actor's one supervision point: a bug in it is no end of all
                    if not self._goes_on(error):
                        return
                if not self.due:  # no checkpoint from here until it is passive (ACTOR-2)
                    return
        finally:
            self.active = False
            self.loop = None
            if self.compacting:  # CMP-3: nobody will carry it out
                self._compacted(NotCompacted(f"{self.path} was not compacted: it is {self.suspended or 'stopped'}"))
            self.keeper.passive(self)

    def _goes_on(self, error: Exception) -> bool:
        """Go on from the durable state, as often in a row as a turn may crash; then stop until somebody resumes it."""
        self.stale = True
        self.crashes += 1
        again = not isinstance(error, StoreError) and self.crashes <= self.spec.limits.poison_limit
        if again:
            self.crashed = True
        else:
            self.suspended, self.crashes = "crashed", 0
        self.keeper.crashed(self, error)
        return again

    async def _work(self) -> None:
        while self.due:
            if self.mailbox.orders:
                await self.keeper.obey(self)
                continue
            await self._turn()

    async def _turn(self, cut: str | None = None, orders: tuple[Queued, ...] = ()) -> None:
        """Run a turn, or, with `cut`, only settle the open one, and claim `orders` with it."""
        waited = await self._catch_up()
        if self.mailbox.held and self.mailbox.wants_turn:
            waited = True
            await self.keeper.release(self)  # ABT-4: they join the turn that a later message asked for
        if waited and cut is None and (not self.due or self.mailbox.orders):
            return  # something came while we read
        if cut is None and self.stale_decisions():
            await self.keeper.obey(self)
            return
        at_once = self._at_once(cut, orders)
        self.suspended = None
        assert self.conversation is not None, "it was read"
        host = self.keeper.host
        row = self.row
        resumed = row.open is not None
        alone = self.compacting and not (resumed or self.mailbox.wants_turn)
        look = host.look(sends=False)
        if self.calls:
            self.unknown = unknown_in(self.calls, look.toolbox)
        calls = self._open_calls(look.toolbox) if resumed else ()
        last = self.conversation.last
        answer = last if resumed and isinstance(last, ResponseRecord) else None
        owed = resumed and self._owed()
        begin = Begin(host.now(), calls, owed, answer, more=at_once is not None, compact=alone, crashed=self.crashed)
        state = self._state(self.conversation, look.output)
        self.run_open |= not alone
        self.loop = loop = TurnLoop(host, state, self.conversation, self._compacted)
        if not alone:
            self.keeper.turn_begins(self)
        if at_once is not None:
            at_once(loop)
        try:
            over = await loop.run(begin)
        finally:
            self.crashed = self.crashed and loop.row is row  # it is counted once recovery has written
            self.row = loop.row
            self.calls = () if self.row.open is None else None
            self.unknown = loop.state.unknown
            self.loop = None
        if over.suspended is not None:
            self.suspended = over.suspended
            self.stale = over.failure is not None
        elif over.outcome is None:
            self.behind = self.row.singly != row.singly  # its messages wait again (CON-6)
        elif not resumed or (row.open is not None and row.open.consumed):
            self.crashes = 0
        if loop.over is None:
            await self._left()
        aborted = over.outcome is not None and over.outcome.status is Status.ABORTED
        if self.compacting and aborted:  # ABT-4
            self._compacted(NotCompacted(f"{self.path} was not compacted: it was aborted"))
        self.keeper.turn_over(self, over)
        if self.spec.hooks:
            await self._after_turn(over)

    async def _after_turn(self, over: Over) -> None:
        """The hooks behind a turn: foreign code, which an abort ends here too (ABT-1)."""
        with trio.CancelScope() as self._behind:
            if any(order.envelope.purpose is Purpose.ABORT for order in self.mailbox.orders):
                self._behind.cancel()  # it came when the turn was over already
            await self.keeper.after_turn(self, over)
        self._behind = None

    def _state(self, conversation: Conversation, output: OutputSpec | None) -> TurnState:
        """The turn as it begins, or as the store has it open."""
        row = self.row
        return TurnState(
            self.spec,
            row,
            conversation.stored,
            new_run=row.open is None and not self.run_open,
            output=output if row.open is not None else None,
            unknown=self.unknown,
            done=() if row.open is None else _done(conversation, turn_id(row.agent, row.open.number)),
            compacting=Compacting(ASKED) if self.compacting else NO_COMPACTION,
        )

    async def _left(self) -> None:
        """The turn was cut off, but in order: to go on with it is no crash (CON-6)."""
        row = self.row
        if row.open is None or row.open.left:
            return
        left = evolve(row, open=evolve(row.open, left=True))
        with suppress(StoreError):  # then it counts as one
            await self.keeper.host.commit((Put(left),))
            self.row = left

    async def _catch_up(self) -> bool:
        """Read what memory does not have, or cannot be sure of. Returns whether anything was read."""
        read = self.stale or self.behind or self.calls is None
        if read:
            if self.stale:
                self.conversation = None
            await self.keeper.refresh(self)
            self.stale, self.behind, self.unknown = False, False, ()
        if self.conversation is not None:
            return read
        self.conversation = await self.keeper.conversation(self)
        return True

    def _at_once(self, cut: str | None, orders: tuple[Queued, ...]) -> Callable[[TurnLoop], None] | None:
        """What the turn hears as soon as it has begun: a cut, a steer that interrupts a parked one, decisions."""
        if cut is not None:
            return lambda loop: loop.cut(cut, lambda: orders)
        if self.suspended == APPROVAL and self.mailbox.interrupts:
            return lambda loop: loop.cut(None, tuple)
        decisions = self.mailbox.decisions
        return (lambda loop: loop.decide(decisions)) if decisions else None

    def stale_decisions(self) -> tuple[MessageId, ...]:
        """Decisions on calls that do not wait for one, as far as is known: none while the rows must be read first."""
        decisions = self.mailbox.decisions
        if not decisions or self.stale or self.calls is None:
            return ()
        rows = self.calls if self.row.open is not None else ()
        waiting = {row.call for row in rows if row.state is CallState.AWAITING}
        return tuple(queued.envelope.id for queued in decisions if queued.envelope.target not in waiting)

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
        if self.stale:
            await self._catch_up()
        pausing = order.envelope.purpose is Purpose.PAUSE
        turn = self.row.open
        if turn is not None and self.row.suspended is not None:  # it stands in order, whatever it is suspended for now
            turn = evolve(turn, left=True)
        row = evolve(self.row, suspended=PAUSED if pausing else None, open=turn)
        claim = Claim(self.path, (order.envelope.id,), turn_id(self.path, self.row.turns))
        await self.keeper.host.commit((claim, Put(row)))
        self.row = row
        if pausing:
            self.suspended = PAUSED
        elif self.suspended == PAUSED:
            self.suspended = None

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
        rows = {row.call: row for row in self.calls or ()}
        return tuple(found(block, rows.get(block.id), toolbox) for block in last.calls)

    def __repr__(self) -> str:
        state = "active" if self.active else "passive"
        return f"<Actor {self.path} {state}, {self.mailbox.statistics()}>"


def _done(conversation: Conversation, turn: TurnId) -> tuple[tuple[CallId, str, str], ...]:
    """The calls of a turn found open that are settled in its conversation: what its report lists."""
    done = [
        (record.call, record.name, record.status.value)
        for record in conversation.window()
        if isinstance(record, ResultRecord) and record.turn == turn
    ]
    return tuple(done[-CALLS_LISTED:])
