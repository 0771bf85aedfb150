"""An agent's life in this process: when turns may begin, what is told when they end, when it has settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from actors.changes import Claim, Intake, Move
from actors.conversation import Conversation
from actors.errors import Aborted, CallboardError, Conflict, Corrupt, Crashed, Unfinished
from actors.happenings import AgentCrashed, AgentSettled, AgentSuspended, AttemptDiscarded, MessagePutBack
from actors.hooked import Point
from actors.ids import MessageId, run_id, tree_of, turn_id
from actors.messages import Outcome, Purpose, ReceiptState, Status, failure_of
from actors.parking import APPROVAL, BUDGET, PAUSED
from actors.reports import error_of
from actors.transcript import SummaryRecord
from actors.waiting import Need

from .orphans import bereave
from .stopping import abort_born_since

if TYPE_CHECKING:
    from actors.actor import Actor
    from actors.changes import AgentRow
    from actors.ids import RunId
    from actors.messages import Envelope, Queued
    from actors.moves import Over

    from .calls import Calls
    from .hooking import Hooking
    from .parts import Parts
    from .services import Services
    from .store.base import Reader


@final
class Life:
    """The keeper of one agent."""

    def __init__(self, parts: Parts, host: Services, calls: Calls, hooking: Hooking) -> None:
        self._parts = parts
        self._kernel = parts.kernel
        self.host = host
        self.calls = calls
        self.hooking = hooking
        self._run_over: RunId | None = None
        """The last run whose hooks behind it were called."""
        self._why: CallboardError | None = None
        self._grants = 0  # before its turn began
        """What stopped it here with an answer owed; until a turn begins again."""

    def spawn(self, actor: Actor) -> None:
        """Start its task in a clean context: the waker's frame is not ours."""
        nursery = self._parts.actors_nursery
        self._parts.frames.clean_context().run(nursery.start_soon, actor.main)
        self.turn_begins(actor)

    def may_begin(self, actor: Actor) -> bool:
        """Leaving forbids new turns, but for agents that a turn under way waits for; a barrier forbids all."""
        parts = self._parts
        if parts.stopping.keeps(actor.path):
            return False
        if parts.leaving is None:
            return True
        return parts.leaving == "finish" and parts.graph.is_waited_for(actor.path)

    async def conversation(self, actor: Actor) -> Conversation:
        """The agent's records that are in force; what a compaction replaced is not read (CMP-4)."""
        kernel = self._kernel
        return await kernel.patience.through(read_conversation, kernel.store, actor.row)

    async def refresh(self, actor: Actor) -> None:
        """Take row, calls and mailbox from the store anew."""
        await self._kernel.refresh(actor)

    async def obey(self, actor: Actor) -> None:
        """Control messages that no turn carried out: an abort or a decision that came too late, a close, a kill."""
        try:
            await self._obey(actor)
        except Conflict:  # a close took one along, and will say so; the store knows what is left
            actor.memory.stale = True

    async def _obey(self, actor: Actor) -> None:
        if actor.intake is Intake.CLOSED:  # its end has carried them all out
            claim = Claim(
                actor.path, tuple([q.envelope.id for q in actor.mailbox.orders]), turn_id(actor.path, actor.row.turns)
            )
            await self._kernel.commit(tree_of(actor.path), (claim,))
            return
        if stale := actor.memory.stale_decisions(actor.row, actor.mailbox.decisions):
            await self._bury_decisions(actor, stale)
        aborts = tuple(queued for queued in actor.mailbox.orders if queued.envelope.purpose is Purpose.ABORT)
        for queued in aborts:
            await abort_born_since(self._parts, queued.envelope)
        if aborts and actor.row.open is not None:  # parked, or found open: its calls are settled with the abort (ABT-3)
            await self._parts.stopping.take_along(actor.path, aborts[0].envelope.reason or "aborted")
            await actor.end_open(aborts[0].envelope.reason or "aborted", aborts)
            return
        for queued in actor.mailbox.orders:
            envelope = queued.envelope
            if envelope.purpose in _PAUSES:
                await self._pause(actor, queued)
                continue
            if envelope.purpose is Purpose.PUT_BACK:
                await self._put_back(actor, envelope)
                continue
            if envelope.purpose is not Purpose.ABORT:
                actor.mailbox.remove((envelope.id,))  # the store keeps it until the close is done
                self._parts.closing.go_on_closing(actor, envelope)
                continue
            claim = Claim(actor.path, (envelope.id,), turn_id(actor.path, actor.row.turns))
            await self._kernel.commit(tree_of(actor.path), (claim,))
            aborted = failure_of(error_of_abort(actor, envelope.reason))
            outcome = Outcome(
                path=actor.path,
                run=run_id(actor.path, max(actor.row.runs, 1)),
                turn=turn_id(actor.path, actor.row.turns + 1),
                status=Status.ABORTED,
                failure=aborted,
            )
            self._aborted(actor, outcome)

    async def _put_back(self, actor: Actor, order: Envelope) -> None:
        """Another process put a dead letter back: it waits in the mailbox by now, and whoever watches here hears it."""
        claim = Claim(actor.path, (order.id,), turn_id(actor.path, actor.row.turns))
        await self._kernel.commit(tree_of(actor.path), (claim,))
        message = MessageId(order.target or "")
        receipt = self._kernel.receipts.get(message)
        if receipt is not None and receipt.state is ReceiptState.DEAD and actor.mailbox.has(message):
            receipt.turn, receipt.reason = None, None
            receipt.decide(ReceiptState.QUEUED)
        was, _, by = (order.reason or "").partition("\n")
        self.host.tell(MessagePutBack, {"message": message, "by": by, "reason": was})

    async def _pause(self, actor: Actor, order: Queued) -> None:
        """Pause the agent, or end its pause; those who wait for it are told."""
        await actor.pause(order)
        if actor.suspended == PAUSED:
            self.host.tell(AgentSuspended, {"reason": PAUSED})
        self._parts.standing.look(actor.path)

    def turn_begins(self, actor: Actor) -> None:
        """Whoever stood still does so no more; what waits below for calls that are lost is aborted before them."""
        if actor.memory.calls and actor.loop is not None and not _aborting(actor):  # an abort takes all of them along
            self.calls.aborting |= bereave(self._parts, actor, self.host.toolbox())
        self._why, self._grants = None, self._parts.ledger.grants(actor.path)
        self._parts.timekeeper.begins(actor)
        self._parts.seconds.begins(actor)
        standing = self._parts.standing
        if standing.any:
            standing.look(actor.path)

    async def _bury_decisions(self, actor: Actor, decisions: tuple[MessageId, ...]) -> None:
        """The calls were settled meanwhile: decisions that nobody carried out are dead letters (TOL-12)."""
        why = "the call was settled before the decision was carried out"
        move = Move(actor.path, (ReceiptState.QUEUED,), ReceiptState.DEAD, decisions, reason=why)
        await self._kernel.commit(tree_of(actor.path), (move,))

    def turn_over(self, actor: Actor, over: Over) -> None:
        """Tell those who wait how it ended."""
        self._parts.seconds.over(actor.path)
        self._parts.timekeeper.over(actor.path, parked=over.suspended is not None)
        if over.suspended is not None:
            self._void(actor, f"the turn stopped ({over.suspended}) before the response was kept")
        if over.suspended == APPROVAL:
            self._parked(actor, over)
            return
        parts = self._parts
        goes_on = over.suspended == BUDGET and self._parts.ledger.grants(actor.path) > self._grants
        if goes_on:  # a grant came, perhaps while it was being parked (BUD-5)
            actor.suspended = None
        outcome = None if goes_on else over.outcome
        self.hooking.leave_behind()
        parts.questions.turn_over(actor.path)
        if outcome is not None:
            actor.last = outcome
            if over.suspended is not None:
                parts.replies.parked(outcome, [queued.envelope.id for queued in actor.mailbox.waiting], inside=True)
                parts.replies.fulfil(actor.path, Need.IDLE, Unfinished(f"{actor.path} is parked ({over.suspended})"))
            else:
                parts.replies.turn_over(outcome)
            if over.suspended is None and not actor.mailbox.wants_turn:
                parts.replies.run_over(outcome)
            if outcome.cut:
                self._aborted(actor, outcome)
        if over.suspended not in _TOLD and not _pausing(actor) and not goes_on:
            self.host.tell(AgentSuspended, {"reason": over.suspended})
            if outcome is None and over.suspended not in _GOES_ON:
                self._give_up(actor, over)  # those who wait through a leave are told at its end
        parts.replies.fulfil(actor.path, Need.UNWIND)

    def _void(self, actor: Actor, why: str) -> None:
        """What watchers saw of a response that is asked for again is void, also where they saw its end (REC-3)."""
        if actor.row.open is not None and actor.row.open.asking:
            self.host.tell(AttemptDiscarded, {"error": why})

    def _parked(self, actor: Actor, over: Over) -> None:
        """It waits for a person: its parent waits on, and who else is told depends on who may decide here (TOL-12)."""
        actor.last = over.outcome
        self.host.tell(AgentSuspended, {"reason": APPROVAL})
        self._parts.standing.look(actor.path)
        self._parts.replies.fulfil(actor.path, Need.UNWIND)

    async def after_turn(self, actor: Actor, over: Over) -> None:
        """The hooks behind a turn."""
        if over.outcome is None or over.suspended is not None:
            return
        if Point.AFTER_TURN in actor.spec.hooks:
            report = self._parts.desk.report(over.outcome)
            await self.hooking.call(Point.AFTER_TURN, report, wanted=lambda: not _aborting(actor))

    async def after_run(self, actor: Actor) -> None:
        """The hooks behind a run that is over, once for each, and those of an agent that has settled."""
        points, last = actor.spec.hooks, actor.last
        if Point.AFTER_RUN in points and last is not None and last.run != self._run_over:
            self._run_over = last.run
            report = self._parts.desk.report(last)
            await self.hooking.call(Point.AFTER_RUN, report, wanted=lambda: not _aborting(actor))
        if Point.SETTLED in points and not actor.owes:
            await self.hooking.call(Point.SETTLED, wanted=lambda: not _aborting(actor))

    def _aborted(self, actor: Actor, outcome: Outcome) -> None:
        """Whoever waits for a message that the abort holds hears of the abort; the message stays held (ABT-4)."""
        for message in tuple(actor.mailbox.held):  # what came behind the cut-off will be answered
            self._parts.replies.reply(message, outcome)
        if not actor.mailbox.wants_turn:
            self._parts.replies.run_over(outcome)

    def _give_up(self, actor: Actor, over: Over) -> None:
        """Suspended with nothing to report: whoever waits here hears why; the store owes the work."""
        error: CallboardError
        if over.failure is not None:
            error = error_of(over.failure)
        else:
            error = Unfinished(f"{actor.path} was suspended ({over.suspended}); the store owes the work: resume() it")
        self.fail_waiters(actor, error)

    def stopped(self, actor: Actor) -> CallboardError | None:
        """What to tell whoever begins to wait for an agent that nothing here moves on; None while something may.

        An agent that waits for a person is none of these: what is asked of it waits, too (TOL-12).
        """
        if actor.active or actor.due or actor.suspended is None or actor.suspended in _STAND:
            return None
        way = "grant() more, or abort()" if actor.suspended == BUDGET else "wake() it, or resume()"
        return self._why or Unfinished(f"{actor.path} is suspended ({actor.suspended}); the store owes the work: {way}")

    def fail_waiters(self, actor: Actor, error: CallboardError) -> None:
        """End every wait for this agent with an error, and those that begin while it stays as it is."""
        self._why = error
        waiting = [queued.envelope.id for queued in actor.mailbox.waiting]
        opened = actor.row.open
        consumed = () if opened is None else opened.consumed
        self._parts.replies.fail_agent(actor.path, (*waiting, *consumed), error)
        self._parts.replies.fulfil(actor.path, Need.IDLE, error)

    def compacted(self, actor: Actor, error: CallboardError | None) -> None:
        """A compaction is over, or nobody will carry it out: all who wait share it (CMP-3)."""
        if error is None:
            self._parts.replies.fulfil(actor.path, Need.STEP)
        else:
            self._parts.replies.fulfil(actor.path, Need.STEP, error)

    def settled(self, actor: Actor) -> None:
        """No turn runs and none is requested."""
        if not actor.owes and actor.run_open:
            actor.run_open = False
            self.host.tell(AgentSettled, {})

    def passive(self, actor: Actor) -> None:
        """It has no task now; those who waited for idleness go on."""
        parts = self._parts
        parts.staging.forget(actor.path)
        if not actor.owes:
            parts.ledger.ended(actor.path)
            if actor.last is not None:
                parts.replies.run_over(actor.last)  # whoever came between the turn's end and now
            else:
                why = "what it was asked was withdrawn, or has expired, before a turn began"
                parts.replies.fail_agent(actor.path, (), Unfinished(f"{actor.path} has no report: {why}"))
            parts.replies.fulfil(actor.path, Need.IDLE)
            parts.board.settled(actor.path)
        parts.replies.fulfil(actor.path, Need.UNWIND)
        parts.stopping.moved()
        if parts.options.durable and not actor.owes and actor.intake is not Intake.OPEN:
            actor.memory.conversation = None

    def crashed(self, actor: Actor, error: Exception) -> None:
        """A bug in the loop: named, and no end of anything else; those who wait are told where it does not go on."""
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        self._void(actor, "the agent's loop crashed before the response was kept")
        if isinstance(error, CallboardError) and actor.suspended == "store":  # no bug, and no crash (SUP-2)
            self.host.tell(AgentSuspended, {"reason": "store"})
            self.fail_waiters(actor, error)
            return
        self.host.tell(AgentCrashed, {"error": f"{type(error).__name__}: {error}"})
        if actor.suspended is None:
            return
        then = "its messages are kept, and wake() goes on"
        if isinstance(error, Corrupt):
            then = "restore the store from a copy: `callboard store check` says what else is damaged"
        crashed = Crashed(f"{actor.path} crashed: {type(error).__name__}: {error}; {then}")
        crashed.__cause__ = error
        self.fail_waiters(actor, crashed)


async def read_conversation(store: Reader, row: AgentRow) -> Conversation:
    """The conversation of a row, read from the last summary on: it costs what is kept, not what is archived."""
    conversation = Conversation()
    if row.summary < 0:
        conversation.extend(await store.read_records(row.agent))
        return conversation
    (summary,) = await store.read_records(row.agent, row.summary, row.summary + 1)
    if not isinstance(summary, SummaryRecord):
        msg = f"record {row.summary} of {row.agent} is no summary, as its row says; it is {type(summary).__name__}"
        raise Corrupt(msg)
    pinned = [record for at in summary.pinned for record in await store.read_records(row.agent, at, at + 1)]
    return Conversation.behind(row.summary, summary, pinned, await store.read_records(row.agent, summary.upto))


_GOES_ON: Final = frozenset({"leaving", "fenced"})
"""Whoever waits for such a turn waits on: until the end of the leave, or for the process that has the tree now."""
_TOLD: Final = frozenset({None, "fenced"})
"""Nothing to tell: it goes on, or whoever noticed that the tree was lost has told it (SUP-6)."""
_STAND: Final = frozenset({APPROVAL, PAUSED})
_PAUSES: Final = frozenset({Purpose.PAUSE, Purpose.WAKE})


def _aborting(actor: Actor) -> bool:
    """Whether an abort has come: what a hook behind a turn answers now is dropped (ABT-6)."""
    return any(order.envelope.purpose is Purpose.ABORT for order in actor.mailbox.orders)


def _pausing(actor: Actor) -> bool:
    """Whether the turn stopped for a pause that is about to be carried out."""
    return actor.suspended == "leaving" and any(q.envelope.purpose is Purpose.PAUSE for q in actor.mailbox.orders)


def error_of_abort(actor: Actor, reason: str | None) -> CallboardError:
    """The error of an abort that met no turn."""
    return Aborted(f"{actor.path} was aborted before its turn began: {reason or 'aborted'}")
