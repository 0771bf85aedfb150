"""One agent's loop, as the supervisor serves it: commits, the mailbox, requests, hooks, events."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from actors.changes import AgentRow, Claim, Enqueue, Move, Put
from actors.errors import AgentClosed, Conflict, Exhausted, UsageError
from actors.happenings import (
    ApprovalAsked,
    ApprovalDecided,
    AttemptDiscarded,
    RequestFailed,
    RequestStarted,
    RequestStuck,
    ResponseEnded,
)
from actors.ids import request_id, tree_of, turn_id
from actors.inputs import Looked
from actors.messages import Envelope, Purpose
from actors.poison import last_try
from actors.ports import ModelRequest, goes_along
from actors.selection import OWN, Choice
from actors.tools import Effect, toolbox
from actors.usage import Amounts
from actors.waiting import Frame, Need

from .pages import READER_BYTES, reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.actor import Actor
    from actors.agent import Agent
    from actors.callview import CallView
    from actors.changes import Operation, Values
    from actors.conversation import Window
    from actors.happenings import Event
    from actors.hosting import DeliverCall, DeliverHook
    from actors.ids import AgentId, CallId, TreeId
    from actors.messages import Queued, Selection
    from actors.moves import CallHook
    from actors.output import OutputSpec
    from actors.ports import Gate, Model
    from actors.tools import Toolbox

    from .calls import Calls
    from .hooking import Hooking
    from .parts import Parts
    from .staging import Stage


_END_OF_AN_ATTEMPT: Final[frozenset[type[Event]]] = frozenset({AttemptDiscarded, ResponseEnded, RequestFailed})
CHARGED_US: Final = 10_000
"""How many active microseconds are charged at once."""


def _is_report(operation: Operation, closed: AgentClosed) -> bool:
    """Whether it is the report that a parent takes no more, or keeps it from waking that."""
    report = closed.message
    if not isinstance(report, Envelope) or report.purpose is not Purpose.REPORT:
        return False
    match operation:
        case Enqueue(envelope=envelope):
            return envelope == report
        case Move(messages=messages):
            return messages == (report.id,)
        case _:
            return False


def _land(stages: tuple[Stage, ...]) -> None:
    for stage in stages:
        stage.land()


def _unknown_type(key: str) -> UsageError:
    name = key.rpartition("-")[0]
    return UsageError(
        f"the answer owes the type {name}, which this process does not know as it was: send the message again with"
        f" output={name}, or have an agent with it in agents="
    )


@final
class Services:
    """The host of one agent's loop.

    `charged_us`: active time of the agent that its account has.
    """

    def __init__(self, parts: Parts, agent: Agent, path: AgentId, calls: Calls, hooking: Hooking) -> None:
        self._parts = parts
        self._kernel = parts.kernel
        self._agent = agent
        self._calls = calls
        self._hooking = hooking
        self._tree: TreeId = tree_of(path)
        self._prompt_bytes = len(agent.instructions.text)
        self._actor: Actor
        self.charged_us: int
        self._still: float | None = None
        self._stood = 0.0
        self._attempt: object = 0
        self._token = trio.lowlevel.current_trio_token()
        self.agent: AgentId = path
        self.models: tuple[Model, ...] = parts.models_of(agent)

    def bind(self, actor: Actor) -> None:
        """Whom it serves."""
        self._actor = actor
        self.charged_us = actor.row.spent.active_us

    @property
    def gate(self) -> Gate:
        """The one way to a model (REQ-1)."""
        return self._parts.gateway

    def chain(self, selection: Selection | None) -> tuple[Model, ...]:
        """What a selection asks: its model alone, or the agent's own chain (SEL-1)."""
        if selection is None or not selection.model:
            return self.models
        return (self._parts.options.resolve(selection.model),)

    def _choice(self, mail: tuple[Queued, ...], held: Selection | None) -> Choice | None:
        """What messages choose that does not hold yet, and whether the conversation goes along (SEL-2)."""
        before = wanted = held or OWN
        for queued in mail:
            wanted = wanted.then(queued.envelope.select)
        if wanted == before:
            return None
        try:
            old, new = self.chain(before), self.chain(wanted)
        except UsageError as error:
            return Choice(wanted, error=error)
        conversation = self._actor.memory.conversation
        if conversation is None or not old or not new or goes_along(old[0], new[0]):
            return Choice(wanted)
        self._hooking.change = (old[0].id, new[0].id)
        pinned, responses = conversation.pinned(), conversation.window().responses
        return Choice(wanted, compatible=False, pinned=pinned, responses=responses)

    def _asked(self, held: Selection | None, choice: Choice | None) -> tuple[Model, ...]:
        """Who is asked next; nobody, where that is no known model: the admission says so."""
        try:
            return self.chain(held if choice is None or choice.error is not None else choice.selection)
        except UsageError:
            return ()

    def now(self) -> float:
        """Seconds on a clock of the agent's own, which stands while only a person can move the agent on (BUD-6)."""
        return (self._kernel.now() if self._still is None else self._still) - self._stood

    def stand(self, *, still: bool) -> None:
        """Stop the clock, or let it go on."""
        if still:
            self._still = self._kernel.now()
        elif self._still is not None:
            self._stood += self._kernel.now() - self._still
            self._still = None

    def row(self) -> AgentRow:
        """The agent's row as last committed."""
        actor = self._actor
        return actor.row if actor.loop is None else actor.loop.row

    def open_row(self) -> AgentRow:
        """The agent's row with the turn that has begun, committed or not: what hooks see."""
        actor = self._actor
        return actor.row if actor.loop is None else actor.loop.state.row

    async def commit(self, operations: tuple[Operation, ...]) -> Values:
        """Make operations durable, then true in memory; active seconds are charged with the row that counts them."""
        if self._calls.aborting:
            await self._calls.aborts_written()
        staging = self._parts.staging
        landing = staging.landing(operations)
        if landing:
            with self._parts.children.bearing(*[path for stage in landing for path in stage.births]):
                operations, values = await self._written(operations, partial(_land, landing))
            staging.landed(landing, operations, values, self._parts.post.placed)
        else:
            operations, values = await self._written(operations, None)
        standing = self._parts.standing
        if standing.any:  # its loop will wait again; then it may be only for such as stand still
            self._token.run_sync_soon(standing.look, self.agent, idempotent=True)
        last = operations[-1]
        if isinstance(last, Put) and isinstance(last.row, AgentRow):
            self._charge_active(last.row)
        return values

    async def _written(
        self, operations: tuple[Operation, ...], first: Callable[[], None] | None
    ) -> tuple[tuple[Operation, ...], Values]:
        """Write operations, but for the report to a parent that is gone: it has no reader. Returns those written.

        Where a claim is refused the mailbox is read anew, before the turn looks at it again (CON-4).
        """
        try:
            return operations, await self._kernel.commit(self._tree, operations, first=first)
        except AgentClosed as closed:
            rest = tuple(operation for operation in operations if not _is_report(operation, closed))
            if len(rest) == len(operations):
                raise
            return await self._written(rest, first)
        except Conflict:
            if any(type(one) is Claim for one in operations):  # another process withdrew a message, and told nobody
                with trio.CancelScope(shield=True):  # PATIENCE-2 bounds it
                    await self._kernel.discover(self.agent)
            raise

    def _charge_active(self, row: AgentRow) -> None:
        """Charge active seconds once they add up, or the turn is over: accounts need no finer grain (BUD-6)."""
        active = row.spent.active_us - self.charged_us
        if active >= CHARGED_US or (active > 0 and row.open is None):
            self.charged_us += active
            self._parts.ledger.charge(self.agent, Amounts(active_us=active))
            if self._parts.ledger.crossed:
                self._parts.stages.spent(self.agent)

    def look(self, *, sends: bool) -> Looked:
        """Choose what the next request takes."""
        row, mailbox = self.row(), self._actor.mailbox
        if mailbox.mortal.at_ms:
            self._kernel.mirror.mortal(self._actor)
        alone = last_try(row, self._agent.limits.poison_limit)  # CON-6
        mail = () if alone else mailbox.choose(self._agent.drain, sends=sends, singly=row.singly)
        name = mail[0].envelope.output if mail else None
        opened = self._actor.row.open
        if not mail and opened is not None:
            name = opened.output
        held = self.row().selection
        choice = None
        if any(queued.envelope.select is not None for queued in mail):
            choice = self._choice(mail, held)
        models = self.models if held is None and choice is None else self._asked(held, choice)
        room = models[0].context_window if models else None
        output = self._parts.output(name, self._agent)
        problem = None if output is not None or name is None else _unknown_type(name)
        now = self.now()
        day_s = self._kernel.wall() - now
        waits = mailbox.waits if self._actor.spec.keeps else 0
        return Looked(now, mail, self.toolbox(), output, day_s, choice, room, problem, waits)

    def toolbox(self) -> Toolbox:
        """What the agent may call now: its tools, its children, answers to open questions."""
        box = self._parts.children.toolbox(self.agent, self._agent)
        return toolbox((*box.values(), reader(self._agent.limits.result_chars))) if self.open_row().kept else box

    def request_bytes(self, window: Window) -> int:
        """The window, and what goes before it."""
        offers = self._parts.children.offers_bytes(self.agent, self._agent) + READER_BYTES * bool(self.row().kept)
        return window.size_bytes + self._prompt_bytes + offers

    def request(self, window: Window, step: int, output: OutputSpec | None, *, toolless: bool) -> ModelRequest:
        """The request of a step of the open turn, as the deciding hooks chose it."""
        hooking, selection = self._hooking, self.row().selection or OWN
        models = self.chain(selection)
        return ModelRequest(
            id=request_id(turn_id(self.agent, self.row().turns), step),
            agent=self.agent,
            model=models[0].name if models else "",
            instructions=hooking.instructions(),
            window=hooking.window(window),
            tools=hooking.tools().offers,
            tool_choice="none" if toolless else "auto",
            output=output.offer if output is not None else None,
            effort=selection.effort or self._agent.effort,
            tier=selection.tier or self._agent.tier,
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        """What this request says beside the conversation: calls that are stuck, budgets that run low (BUD-4)."""
        notes, stages = self._calls.notes(), self._parts.stages
        return (*notes, *stages.take(self.agent)) if stages.pending else notes

    def grant_calls(self, count: int) -> tuple[int, Exhausted | None]:
        """Charge as many of the calls as the budget admits; and why not all (BUD-2)."""
        ledger, granted, short = self._parts.ledger, 0, None
        try:
            while granted < count:
                ledger.take_calls(self.agent, 1)
                granted += 1
        except Exhausted as refused:
            short = refused
        if ledger.crossed:
            self._parts.stages.spent(self.agent)
        return granted, short

    def start_call(self, call: CallView, deliver: DeliverCall) -> Callable[[], str]:
        """Run a call in the tool nursery; what it has so far is in what is returned."""
        place = self._parts.graph.place
        frame = Frame(self.agent, self.row().turns, "tool", call.block.name, call.block.id, place)
        if call.tool is not None and call.tool.effect is Effect.CHILD:
            self._parts.children.reserve(self.agent, call.block.name, call.block.id)
        return self._calls.start(call, frame, deliver, self._hooking.around(call))

    def cancel_calls(self, calls: tuple[CallId, ...], why: str) -> None:
        """Cancel running calls and leave them behind; what does not end is named though no request waits for it."""
        self._calls.leave_behind(calls, why)
        if self._calls.left_behind():
            self._parts.actors_nursery.start_soon(self.settle_left_behind)

    def left_behind(self) -> bool:
        """Whether calls that an abort left behind still run."""
        return bool(self._calls.left_behind())

    async def settle_left_behind(self) -> None:
        """Wait for them, a bounded time."""
        await self._calls.settle_left_behind(self._agent.limits.hard_s)

    def start_hook(self, call: CallHook, deliver: DeliverHook, wanted: Callable[[], bool]) -> Callable[[], None]:
        """Call the hooks of a point."""
        return self._hooking.start(call, deliver, wanted)

    def _let_go(self) -> None:
        """A request that was cut does not end: whoever waits for the turn that has ended hears of that now."""
        loop, replies = self._actor.loop, self._parts.replies
        if loop is not None and loop.over is not None and loop.over.outcome is not None:
            replies.turn_over(loop.over.outcome)
        replies.fulfil(self.agent, Need.UNWIND)

    def watched(self) -> bool:
        """Whether anybody watches this agent."""
        return self._parts.board.concerns(self.agent)

    def tell(self, event: type[Event], values: Mapping[str, object]) -> None:
        """Emit an event of this agent, in causal order (EVT-1)."""
        if event is ApprovalAsked or event is ApprovalDecided:
            self._parts.approvals.heard(self.agent, event, values)
        elif event is RequestStuck:
            self._let_go()
        actor = self._actor
        row = actor.row if actor.loop is None else actor.loop.state.row
        if event is RequestStarted:
            self._attempt = values["attempt"]
        elif event in _END_OF_AN_ATTEMPT:
            values = {"attempt": self._attempt, **values}
        self._parts.board.tell(event, self.agent, values, run=row.runs, turn=row.turns)
