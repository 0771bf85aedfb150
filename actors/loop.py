"""Performs a turn: takes inputs one by one, commits what each step decided, then does what rests on it.

It decides nothing (`turn.py` does) and keeps no rule. A driver takes inputs and, while the model answers, is the stream
itself: a task less for each request. A cut relieves it: another driver goes on at once, while the first unwinds inside
the turn's nursery, which so holds the next turn until nothing of the request holds its connection (REQ-2). Tools and
hooks run in the supervisor's tool nursery, so that none of them can hold the turn open (ABT-3).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never, cast, final

import trio
from msgspec.structs import replace

from . import batch, turn
from .asking import Collector, admission, answered, summarised
from .batching import told
from .compaction import CompactAsked, CompactionOver, NotSummarised, Summarise
from .errors import BudgetError, CallboardError, InternalError, ProviderError, UsageError
from .happenings import AdmissionWaited, ToolLate
from .inputs import Admitted, CallsReturned, CommitFailed, Cut, Decided, MustWait, NotAdmitted, Phase, SuspendAsked
from .moves import Abandon, Admit, Again, Ask, CallHook, CancelCalls, CutStream, Look, Over, StartCall, Tell
from .streams import Streams
from .transcript import ResultRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .callview import CallOutcome, CallView
    from .conversation import Conversation
    from .hosting import Host
    from .ids import CallId
    from .inputs import Begin, Input
    from .messages import Queued
    from .moves import Action, TurnState
    from .ports import Ticket
    from .transcript import Record

Orders: TypeAlias = "Callable[[], tuple[Queued, ...]]"
"""Gives the messages that a cut carries out."""
_ASKING: Final = frozenset({Phase.ASKING, Phase.COMPACTING})
CUT_OFF: Final = "leaving"
"""Why a turn that was cut off is suspended."""


@final
class TurnLoop:
    """One turn of one agent, from its first input to `Over`.

    Invariants:
        LOOP-1 one input at a time: nothing of the state changes while a commit is under way.
        LOOP-2 an answer asked for before a cut is not taken in after it (`_generation`): what it brought is the cut's.
        LOOP-3 what the conversation in memory holds has been committed.
        LOOP-4 one driver: who takes inputs holds `_driver`, and it is handed over before anybody else runs.
    """

    def __init__(
        self,
        host: Host,
        state: TurnState,
        conversation: Conversation,
        compacted: Callable[[CallboardError | None], None],
    ) -> None:
        self._host, self._compacted = host, compacted
        self.state, self.row = state, state.row
        self._conversation = conversation
        self._inbox: deque[Input] = deque()
        self._sleeper: trio.lowlevel.Task | None = None
        self._generation, self._driver = 0, object()
        self._had: dict[CallId, Callable[[], str]] = {}  # what calls that run have so far
        self._cut: tuple[str | None, Orders, BudgetError | None] | None = None
        self._collector: Collector | None = None
        self._asking = self._leaving = self.aborting = False  # aborting: it ends, whatever its tools wait for
        self._waiting: trio.CancelScope | None = None  # of a wait for a place: made where there is one
        self._nursery: trio.Nursery | None = None
        self._admitted: Ticket | None = None  # the last one
        self._end_hook: Callable[[], None] = _nothing  # cancels the last one, which may be over
        self.streams = Streams(host, state.spec.limits.hard_s)
        self.over: Over | None = None

    async def run(self, begin: Begin) -> Over:
        """Perform the turn.

        Returns:
            How it ended; the row and the conversation are as committed.

        If cancelled: the turn stays open in the store; nothing is half-done (its commits are all or none).
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await self._drive(begin, self._driver)
        finally:
            if self.over is None:  # cut off: what runs in other nurseries hears of it from us
                self._generation += 1
                self._host.cancel_calls(tuple(call.block.id for call in self.state.calls), "")
                self._end_hook()
            if self._admitted is not None:  # nothing, where a request was made with it
                self._host.gate.abandon(self._admitted)
        if self.over is None and not self._leaving:
            raise InternalError(f"a turn of {self.row.agent} stopped in phase {self.state.phase}, not by anybody")
        return Over(CUT_OFF) if self.over is None else self.over

    async def _drive(self, event: Input | None, me: object) -> None:
        """Take inputs until the turn is over, or this driver was relieved (LOOP-4)."""
        while self._driver is me:
            event = await self._next() if event is None else event
            if event is None:
                return
            await self._take(event)
            event = None

    # -- what others may ask; all of it is sync and returns at once ------------------------------------------------

    def cut(self, reason: str | None, control: Orders, *, late: BudgetError | None = None) -> None:
        """End what is under way: an abort (with its reason), a steer that interrupts, the end of its time."""
        if self._cut is None or reason is not None:  # a steer does not soften an abort that is due
            self._cut, self.aborting = (reason, control, late), self.aborting or (late, reason) != (None, None)
        if self._asking and not self._leaving:  # leaving: it is cut off already, stream and all
            assert self._nursery is not None, "a turn that asks is running"
            self._asking, self._driver = False, object()  # who is in the stream is relieved now, whenever it comes back
            self._nursery.start_soon(self._drive, None, self._driver)
            self.streams.cut(self._nursery)
        else:
            self._wake()

    def cut_off(self) -> None:
        """Stop here and now, undecided: the turn stays open in the store for the next owner."""
        self._leaving = True
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def decide(self, decisions: tuple[Queued, ...]) -> None:
        """Decisions on calls that wait for approval came (TOL-12)."""
        self._push(Decided(self._host.now(), decisions))

    @property
    def cutting(self) -> bool:
        """Whether the calls that run now are to be cut, which may not have reached them."""
        return self._cut is not None or self.aborting

    @property
    def sleeping(self) -> bool:
        """Whether it waits for an input, with none at hand."""
        return self._sleeper is not None

    def suspend(self) -> None:
        """Stop at the next commit."""
        self._push(SuspendAsked(self._host.now()))

    def compact(self) -> None:
        """Compact at the next boundary."""
        self._push(CompactAsked(self._host.now()))

    # -- inputs ----------------------------------------------------------------------------------------------------

    def _push(self, event: Input) -> None:
        self._inbox.append(event)
        self._wake()

    def _answer(self, generation: int, event: Input) -> None:
        """An answer to something asked: dropped where a cut came in between (LOOP-2, HOK, ABT-6)."""
        if generation == self._generation and self.over is None:
            self._push(event)

    def _asks(self, generation: int) -> bool:
        """Whether what was asked in a generation is still wanted (ABT-6)."""
        return generation == self._generation and self._cut is None and self.over is None

    def _deliver_call(self, generation: int, outcome: CallOutcome) -> None:
        self._had.pop(outcome.call, None)
        if generation == self._generation and self.over is None:
            so_far = _so_far(self._had) if batch.ends_all(self.state.calls, outcome) else ()
            _put(self._inbox, self._host.now, outcome, so_far)
            self._wake()

    def _wake(self) -> None:
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None

    async def _next(self) -> Input | None:
        """The next input, or None once the turn is over."""
        while self.over is None and self._cut is None and not self._inbox:
            self._sleeper = trio.lowlevel.current_task()

            def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
                self._sleeper = None
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
        if self.over is not None:
            return None
        return self._inbox.popleft() if self._cut is None else self._take_cut(*self._cut)

    def _take_cut(self, reason: str | None, control: Orders, late: BudgetError | None) -> Cut:
        """The cut with all that came until now: a whole answer, finished blocks, half text, results of calls."""
        self._generation += 1
        inbox, self._inbox, self._cut = self._inbox, deque(), None
        outcomes: tuple[CallOutcome, ...] = ()
        so_far = _so_far(self._had)
        for event in inbox:
            match event:
                case CallsReturned():
                    outcomes, so_far = outcomes + event.outcomes, so_far + event.so_far
                case Admitted(ticket=ticket):  # nobody has it yet: its permit would be held for ever (GATEWAY-1)
                    self._host.gate.abandon(cast("Ticket", ticket))
                case CompactAsked() | SuspendAsked() if reason is None and late is None:
                    self._inbox.append(event)
        _cancel(self._waiting)
        self._end_hook()
        now, claimed = self._host.now(), control()
        collector, self._collector = self._collector, None
        if collector is not None and self.state.phase in _ASKING:
            return replace(collector.cut(now, claimed, reason), late=late)
        return Cut(now, claimed, reason, outcomes=outcomes, late=late, so_far=so_far)

    # -- one step --------------------------------------------------------------------------------------------------

    async def _take(self, event: Input) -> None:
        """Decide, commit, and then, memory changing after the commit, perform (CON-4)."""
        made = turn.step(self.state, event)
        if made.commit:
            try:
                await self._host.commit(made.commit)
            except CallboardError as error:
                ticket = None if made.state.ticket is self.state.ticket else made.state.ticket
                made = turn.step(self.state, CommitFailed(self._host.now(), error, ticket, event))
            else:
                self.row = made.state.row
                self._conversation.extend(made.records)
        self.state = made.state
        ask: Ask | Summarise | None = None
        for action in made.actions:
            if type(action) is Ask or type(action) is Summarise:
                ask = action
            else:
                self._perform(action)
        if ask is not None:
            await self._ask(ask, self._generation)

    def _perform(self, action: Action) -> None:
        host = self._host
        match action:
            case Tell(event=event, values=values):
                host.tell(event, values)
            case Look(sends=sends):
                self._inbox.appendleft(host.look(sends=sends))
            case Admit():
                self._admit(action)
            case StartCall(call=call):
                self._start(call)
            case CancelCalls():
                _give_up(host, action, self._inbox, self.state.pending)
            case CallHook():
                answer, wanted = partial(self._answer, self._generation), partial(self._asks, self._generation)
                self._end_hook = host.start_hook(action, answer, wanted)
            case CutStream():
                host.gate.stop(self._admitted)
            case Again(event=event):
                self._inbox.appendleft(event)
            case Abandon(ticket=ticket):
                host.gate.abandon(cast("Ticket", ticket))
            case Over():
                _cancel(self._waiting)
                self.over = action
                self._wake()
            case CompactionOver(error=error):
                self._compacted(error)
            case Ask() | Summarise():
                raise AssertionError("the driver asks by itself")
            case _:
                assert_never(action)

    def _start(self, call: CallView) -> None:
        if self._cut is None:  # an abort that is durable starts nothing more (ABT-2)
            self._had[call.block.id] = self._host.start_call(call, partial(self._deliver_call, self._generation))

    # -- the gate --------------------------------------------------------------------------------------------------

    def _admit(self, action: Admit) -> None:
        host, limits = self._host, self.state.spec.limits
        try:
            wanted = admission(host, self._conversation, self.state, action)
            if wanted is None:
                self._inbox.appendleft(NotSummarised(host.now(), None))
                return
            models, size, tokens = wanted
            if action.wait:
                assert self._nursery is not None, "a turn that asks is running"
                self._waiting = scope = trio.CancelScope()
                host.tell(AdmissionWaited, {"model": models[0].id if models else ""})
                admit = partial(
                    host.gate.admit, host.agent, models, size, max_output_tokens=tokens, wrap_up=action.wrap_up
                )
                self._nursery.start_soon(self._admit_later, admit, scope, self._generation)
                return
            ticket = None
            if not host.left_behind():
                ticket = host.gate.admit_nowait(
                    host.agent, models, size, max_output_tokens=tokens, wrap_up=action.wrap_up, limits=limits
                )
        except (BudgetError, UsageError, ProviderError) as error:
            self._inbox.appendleft(NotAdmitted(host.now(), error))
            return
        if ticket is None:
            self._inbox.appendleft(MustWait(host.now()))
        else:
            self._admitted = ticket
            self._inbox.appendleft(Admitted(host.now(), ticket, ticket.held))

    async def _admit_later(
        self, admit: Callable[..., Awaitable[Ticket]], scope: trio.CancelScope, generation: int
    ) -> None:
        host = self._host
        with scope:
            await host.settle_left_behind()  # REQ-2
            try:
                ticket = await admit(limits=self.state.spec.limits)
            except (BudgetError, UsageError, ProviderError) as error:
                self._answer(generation, NotAdmitted(host.now(), error))
                return
            if generation != self._generation or self.over is not None:
                host.gate.abandon(ticket)
                return
            self._admitted = ticket
            self._push(Admitted(host.now(), ticket, ticket.held))

    async def _ask(self, action: Ask | Summarise, generation: int) -> None:
        """Ask the model; deltas go straight to watchers, the whole answer comes back as an input."""
        host, ticket = self._host, cast("Ticket", action.ticket)
        if self._cut is not None:  # an abort came with the commit: it never reaches the model (ABT-1)
            host.gate.abandon(ticket)
            self._collector = None
            return
        self._collector = collector = Collector(host, ticket, quiet=isinstance(action, Summarise))
        self._asking = True
        with self.streams:
            if isinstance(action, Summarise):
                said: Input | None = await summarised(host, self._conversation, self.state, collector)
            else:
                said = await answered(host, self._conversation, action, collector, partial(self._asks, generation))
            if said is not None:
                self._answer(generation, said)
        if generation == self._generation:  # the collector stays until the answer is taken in: a cut may come first
            self._asking = False


def _put(
    inbox: deque[Input], now: Callable[[], float], outcome: CallOutcome, so_far: tuple[tuple[CallId, str], ...]
) -> None:
    """Add what a call gave: behind others that were not taken in yet it is one input with them, and one commit."""
    if inbox and isinstance(last := inbox[-1], CallsReturned):
        inbox[-1] = CallsReturned(last.now, (*last.outcomes, outcome), last.so_far + so_far)
    else:
        inbox.append(CallsReturned(now(), (outcome,), so_far))


def _give_up(host: Host, action: CancelCalls, inbox: deque[Input], settled: tuple[Record, ...]) -> None:
    """End these calls; what came from them and was not taken in before they were settled is late (TOL-14)."""
    calls = action.calls
    host.cancel_calls(calls, action.why)
    if not any(isinstance(event, CallsReturned) for event in inbox):
        return
    names = {record.call: record.name for record in settled if isinstance(record, ResultRecord)}
    for _ in range(len(inbox)):  # once round
        event = inbox.popleft()
        if isinstance(event, CallsReturned):
            for late in [one for one in event.outcomes if one.call in calls]:
                host.tell(ToolLate, {"call": late.call, "name": names.get(late.call, ""), "text": told(late)})
            event = replace(event, outcomes=tuple(one for one in event.outcomes if one.call not in calls))
            if not event.outcomes:
                continue
        inbox.append(event)


def _so_far(had: dict[CallId, Callable[[], str]]) -> tuple[tuple[CallId, str], ...]:
    """What is said of the calls that run, which is asked for once."""
    found = tuple((call, text) for call, so_far in had.items() if (text := so_far()))
    had.clear()
    return found


def _nothing() -> None:
    """There was no hook."""


def _cancel(scope: trio.CancelScope | None) -> None:
    if scope is not None:
        scope.cancel()
