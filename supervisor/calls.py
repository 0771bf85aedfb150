"""One agent's tool calls while they run, and what their contexts may ask of the supervisor."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from actors.calling import Context
from actors.content import check_text
from actors.conversation import Conversation
from actors.errors import UsageError
from actors.evolve import evolve
from actors.happenings import ToolLate, ToolProgress, ToolStuck
from actors.ref import AgentRef
from actors.running import Room, Running, beginning, so_far
from actors.tools import Effect
from actors.transcript import ResultStatus

from .cause import Cause
from .offspring import held_by
from .pages import read_page
from .scopes import Scopes
from .starting import Start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actors.agent import Agent
    from actors.budget import Budget
    from actors.callview import CallOutcome, CallView
    from actors.conversation import Window
    from actors.happenings import Event
    from actors.hosting import DeliverCall
    from actors.ids import AgentId, CallId
    from actors.pages import Page
    from actors.running import Around, Run
    from actors.transcript import Record
    from actors.waiting import Frame

    from .parts import Parts

EVENT_CHARS: Final = 200
AGENTS_NAMED: Final = 10
"""How many agents that were aborted with a call its result names."""
_EMPTY: Final = Conversation()


@final
class Calls:
    """The running calls of one agent.

    Invariants:
        CALLS-1 a call is in `running` from its start until its code has ended, or was given up as stuck.
        CALLS-2 what a call waited for that was cut is barred from the cut until its abort is written (ABT-5).

    Attributes:
        aborting: aborts of what calls waited for that are being written.
    """

    def __init__(self, parts: Parts, agent: AgentId, room: Room) -> None:
        self._parts = parts
        self._room = room
        self.agent = agent
        self.running: dict[CallId, Running] = {}
        self.stuck: dict[CallId, Running] = {}
        self.aborting: set[trio.Event] = set()
        self.scopes = Scopes(parts, agent, self.running)
        self._token = trio.lowlevel.current_trio_token()
        self.tell: Callable[[type[Event], Mapping[str, object]], None]

    # -- running ---------------------------------------------------------------------------------------------------

    def start(self, call: CallView, frame: Frame, deliver: DeliverCall, around: Around | None) -> Callable[[], str]:
        """Run a call; what it has so far is in what is returned."""
        staging, stage = self._parts.staging, None
        if call.tool is not None and call.tool.effect is Effect.STORE:
            stage = staging.open(self.scopes, call.block.id, call.block.name)
        running = Running(call, frame)
        self.running[call.block.id] = running

        def delivered(outcome: CallOutcome) -> None:
            self.running.pop(call.block.id, None)
            staged = staging.returned(call.block.id, good=outcome.status is ResultStatus.OK)
            kept = self.scopes.kept(call.block.id)
            deliver(evolve(outcome, staged=staged, kept=kept) if staged or kept else outcome)
            self._moves()

        def late(outcome: CallOutcome) -> None:
            values = {"call": outcome.call, "name": call.block.name, "text": beginning(outcome, EVENT_CHARS)}
            self.tell(ToolLate, values)

        left = [other for other in self._still_running() if _share(other.call, call)]
        if left:
            around = self._behind(left, frame, around)
        context = Context(self, call.block.id, call.block.name, self.scopes.of_call(call.block.id, stage))
        running.unwound = partial(self._unwound, running)
        self._parts.runner.start(running, context, self._room, deliver=delivered, late=late, around=around)
        self._moves()
        return lambda: so_far(context, self._room, _aborted_with(self._held((running,))))

    def leave_behind(self, calls: tuple[CallId, ...], why: str) -> None:
        """Cancel running calls; their results are late, and the next request waits for them a while (REQ-2).

        `why`: what they wait for is aborted with them, where it is not empty.
        """
        cut = [running for call in calls if (running := self.running.get(call)) is not None]
        if why:
            self._abort(cut, why)
        for running in cut:
            running.left_behind = True
            self._parts.frames.cut(running.frame)
            running.scope.cancel()
        for call in calls:
            self._parts.staging.vanish(call, "its call was cut, or refused")
        self._moves()

    # -- what they wait for ----------------------------------------------------------------------------------------

    def _held(self, cut: Sequence[Running]) -> tuple[AgentId, ...]:
        """Who is aborted with these calls: those that they wait for, all the way down, as far as they do anything."""
        held = held_by(self._parts, self.agent, cut)
        works = self._parts.stopping.to_abort(held)
        actors = self._parts.kernel.actors
        return tuple(sorted(path for path in held if path in works or path not in actors))  # not in: being born

    def _abort(self, cut: Sequence[Running], why: str) -> None:
        """Abort what these calls wait for, behind one barrier that is up on return (ABT-5, SUP-4)."""
        held = self._held(cut)
        if not held:
            return
        for one in cut:
            one.aborted = held
        names = " and ".join([one.call.block.name for one in cut])
        cause = Cause(why.rstrip(","), self.agent, f"the call {names} of {self.agent} that waited for it was cut off")
        self.aborting.add(self._parts.stopping.abort_aside(held, cause))

    async def _unwound(self, running: Running) -> str:
        """A call has ended by its own time, or by hand: what it waited for is aborted before its result is there."""
        if running.cancelled is None:
            self._abort((running,), "The time for the call was up")
        await self.aborts_written()
        return _aborted_with(running.aborted)

    async def aborts_written(self) -> None:
        """Wait until what calls had waited for is aborted: no result says so before it is durable.

        That is bounded by the patience with the store, whose failure it does not raise: the next commit meets it too.
        """
        with trio.move_on_after(self._parts.options.hard_s, shield=True):
            for done in tuple(self.aborting):
                await done.wait()
        self.aborting.clear()

    def gave_up(self, call: CallId, targets: Sequence[AgentId]) -> None:
        """A call gave up a wait; where that is because it was cut, whom it waited for is aborted with it."""
        running = self.running.get(call)
        if running is not None and running.scope.cancel_called:
            below = f"{self.agent}/"
            running.waited += [target for target in targets if target.startswith(below)]

    def _moves(self) -> None:
        """Something runs, or has ended: the agent may stand still no more."""
        standing = self._parts.standing
        if standing.any:
            standing.look(self.agent)

    def cancel(self, call: CallId, reason: str) -> None:
        """Cancel one call; its result says so.

        Raises:
            UsageError: it is not running.
        """
        running = self.running.get(call)
        if running is None or running.left_behind:
            names = ", ".join(self.running) or "none"
            msg = f"{self.agent} has no running call {call!r}; running: {names}"
            raise UsageError(msg)
        running.cancelled = reason
        self._abort((running,), reason)
        running.scope.cancel()

    def left_behind(self) -> tuple[Running, ...]:
        """Calls left behind whose code still runs."""
        if not self.running:
            return ()
        left = [running for running in self.running.values() if running.left_behind]
        for running in left:
            if running.done.is_set():
                self.running.pop(running.call.block.id, None)
        return tuple(running for running in left if not running.done.is_set())

    async def settle_left_behind(self, hard_s: float) -> None:
        """Wait, at most `hard_s`, until calls left behind are done; then name them with their stacks and go on."""
        with trio.move_on_after(hard_s):
            for running in self.left_behind():
                await running.done.wait()
        for running in self.left_behind():
            block = running.call.block
            self.running.pop(block.id, None)
            self.stuck[block.id] = running
            self._parts.graph.set_apart(running.frame, block.id)
            self.tell(ToolStuck, {"call": block.id, "name": block.name, "stack": running.stack()})

    def _behind(self, left: Sequence[Running], frame: Frame, around: Around | None) -> Around:
        """A call's wrapper that first waits for given up calls that hold its resource keys (TOL-4, REE-2)."""
        graph = self._parts.graph

        async def wrapper(run: Run) -> object:
            wait = graph.begin_behind(frame, [running.frame for running in left])
            try:
                for running in left:
                    await running.done.wait()
            finally:
                graph.end(wait)
            return await (run(None) if around is None else around(run))

        return wrapper

    def _still_running(self) -> tuple[Running, ...]:
        """Calls that were given up as stuck and run still: they keep their resource keys (REQ-2)."""
        if self.stuck:
            self.stuck = {call: running for call, running in self.stuck.items() if not running.done.is_set()}
        return tuple(self.stuck.values())

    def notes(self) -> tuple[str, ...]:
        """What the model is told of calls that still run (REQ-2)."""
        if not self.stuck:
            return ()
        return tuple(
            f"The call {running.call.block.name} ({running.call.block.wire_id}), aborted before, still runs."
            for running in self._still_running()
        )

    # -- what a context asks ---------------------------------------------------------------------------------------

    @property
    def idempotency_scope(self) -> str:
        """What makes call ids unique outside this store."""
        return self._parts.kernel.store.id

    @property
    def caller(self) -> str:
        """The parent, where it gave the task."""
        actor = self._parts.kernel.actors.get(self.agent)
        return "" if actor is None else actor.row.parent

    def conversation(self, coming: tuple[Record, ...] = ()) -> Window:
        """The conversation as it stands; with records that are about to be committed, a copy."""
        actor = self._parts.kernel.actors.get(self.agent)
        conversation = (None if actor is None else actor.memory.conversation) or _EMPTY
        return conversation.ahead(coming) if coming else conversation.window()

    def ref(self, path: AgentId) -> AgentRef:
        """A handle."""
        check_text(path, "the path of an agent, such as 'lead/reviewer',")
        return AgentRef(self._parts.desk, path)

    async def start_child(
        self, agent: Agent, task: object, *, key: str, budget: Budget | None, background: bool, call: CallId
    ) -> AgentRef:
        """Start a child of this agent."""
        started = await self._parts.children.start(
            Start(agent, task, parent=self.agent, key=key, budget=budget, background=background, call=call)
        )
        return self.ref(started.path)

    async def read_result(self, reference: str, *, start: int, chars: int) -> Page:
        """A page of a result that is kept whole."""
        actor = self._parts.kernel.actors[self.agent]
        row = actor.row if actor.loop is None else actor.loop.row
        page = await read_page(self._parts.kernel.store, row, reference, start=start, chars=chars)
        self._parts.frames.hear(page.trust)
        return page

    def tell_progress(self, values: dict[str, object]) -> None:
        """A call's progress; from a tool's own thread too, by way of ours."""
        if trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self._token:
            self.tell(ToolProgress, values)
            return
        with suppress(trio.RunFinishedError):  # a thread that outlived everything: nobody watches
            self._token.run_sync_soon(self.tell, ToolProgress, values)


def _aborted_with(agents: Sequence[AgentId]) -> str:
    """What is said of those that are aborted with a call; nothing where there is nobody."""
    if not agents:
        return ""
    more = f" and {len(agents) - AGENTS_NAMED} more" if len(agents) > AGENTS_NAMED else ""
    return f"Aborted with it, before they came to an answer: {', '.join(agents[:AGENTS_NAMED])}{more}."


def _share(one: CallView, other: CallView) -> bool:
    """Whether two calls must not run side by side (TOL-4)."""
    return one.exclusive or other.exclusive or not set(one.keys).isdisjoint(other.keys)
