"""Waiting for reports: asks, replies to messages, the ends of runs, the first of several (REE-1, REE-2)."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, final

import trio

from actors.errors import UsageError
from actors.ids import MessageId, turn_id
from actors.messages import ReceiptState, skipped_of
from actors.parking import BUDGET
from actors.ref import Receipt
from actors.reports import Report, report_of

from .cause import dead_error
from .remote import Remote
from .replies import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from actors.ids import AgentId
    from actors.letters import Letter
    from actors.messages import Outcome
    from actors.ref import AgentRef
    from actors.waiting import Wait

    from .parts import Parts


def _nobody(_: MessageId) -> None:
    """Nobody hears."""


@final
class Awaiting:
    """Whoever waits for a report does it here."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._remote = Remote(parts)

    # -- asking ----------------------------------------------------------------------------------------------------

    async def ask(self, path: AgentId, letter: Letter, timeout_s: float | None) -> Report:
        """Send, and wait for the reply; an ancestor that waits for us is asked through its wait (REE-2)."""
        if timeout_s is None:
            return await self._ask(path, letter)
        with trio.fail_after(timeout_s):
            return await self._ask(path, letter)

    async def _ask(self, path: AgentId, letter: Letter) -> Report:
        parts = self._parts
        frame = parts.frames.current_owner()
        waits = () if frame is None else parts.graph.ancestor_waits(frame, path)
        if frame is not None and waits:
            return self._heard(await parts.questions.ask(frame, path, letter, waits))
        with parts.replies.hold(path) as held:  # before anything is sent: a refused wait has changed nothing
            if frame is None or held is None or not parts.graph.is_above(path, frame):
                return await self._sent(path, letter, held, _nobody)
            with parts.questions.by_message(frame, path, letter, held) as landed:
                return await self._sent(path, letter, held, landed)

    async def _sent(
        self, path: AgentId, letter: Letter, held: Wait | None, landed: Callable[[MessageId], None]
    ) -> Report:
        """Send, and wait for the reply. `landed`: hears when the message is accepted."""
        parts = self._parts
        (receipt,) = await parts.post.send(path, (letter,))
        landed(receipt.id)
        with self._giving_up(path):
            _, outcome = await parts.replies.first((self._wanted(receipt),), held=held)
        return self._heard(outcome)

    # -- waiting ---------------------------------------------------------------------------------------------------

    async def wait_any(self, waited: Sequence[AgentRef | Receipt]) -> tuple[int, Report]:
        """The first report of several."""
        parts = self._parts
        wanted = tuple(self._wanted(one) if isinstance(one, Receipt) else self._run(one.path) for one in waited)
        frame = parts.frames.current_owner()

        async def asked() -> tuple[int, Outcome] | None:
            return None if frame is None else await parts.questions.taken(frame, [one.target for one in wanted])

        with self._giving_up(*[one.target for one in wanted]):
            index, outcome = await parts.replies.first(wanted, instead=asked)
        return index, self._heard(outcome)

    @contextmanager
    def _giving_up(self, *targets: AgentId) -> Iterator[None]:
        """A wait that ends with its call leaves behind whom it waited for: these are aborted with the call (SUP-4)."""
        try:
            yield
        except trio.Cancelled:
            frame = self._parts.own_frame()
            life = None if frame is None else self._parts.lives.get(frame.agent)
            if frame is not None and life is not None and frame.call is not None:
                life.calls.gave_up(frame.call, targets)
            raise

    def _wanted(self, receipt: Receipt) -> Wanted:
        if receipt.state is ReceiptState.WITHDRAWN:
            msg = f"{receipt.id} was withdrawn; it has no report"
            raise UsageError(msg)
        return Wanted(receipt.path, receipt.id, partial(self._stored_reply, receipt))

    async def _stored_reply(self, receipt: Receipt) -> Outcome | None:
        """The reply where its turn has ended already; read from the store, so that it outlives everything (ACC-9)."""
        actor = self._parts.kernel.actors.get(receipt.path)
        if actor is not None and actor.lost:  # what is remembered of it is not so any more
            actor = None
        if actor is not None and actor.mailbox.has(receipt.id):
            return self._told(receipt.path)
        store = self._parts.kernel.store
        view = await store.message_state(receipt.id)
        here = actor is not None and actor.mailbox.has(receipt.id)
        if (
            view is not None
            and view.state.final
            and not here
            and (receipt.state, receipt.turn) != (view.state, view.turn)
        ):
            # another process has decided it, perhaps before its tree came here
            receipt.turn, receipt.reason, receipt.skipped = view.turn, view.reason, skipped_of(view.reason)
            receipt.decide(view.state)
        row = None if view is None or view.turn is None else await store.outcome(view.turn)
        if row is not None:
            return row.outcome
        if view is not None and view.state is ReceiptState.DEAD:
            raise dead_error(receipt.id, receipt.path, view.reason or "")
        if view is not None and view.state is ReceiptState.WITHDRAWN:
            raise UsageError(f"{receipt.id} was withdrawn; it has no report")
        if view is None or view.turn is None:
            return None
        return None if actor is None else self._told(receipt.path)

    def _run(self, path: AgentId) -> Wanted:
        return Wanted(path, None, partial(self._last, path))

    async def _last(self, path: AgentId) -> Outcome | None:
        """The outcome of the last run, where none is in progress."""
        parts = self._parts
        actor = await self._remote.here(path)
        if actor is None:
            return await self._last_elsewhere(path)
        if actor.owes or actor.loop is not None:
            return self._told(path)
        if actor.last is not None:
            return actor.last
        row = await parts.kernel.store.outcome(turn_id(path, actor.row.turns)) if actor.row.turns else None
        if row is not None:
            return row.outcome
        if actor.active:
            return None
        msg = f"{path} never had a run: send() it something first"
        raise UsageError(msg)

    async def _last_elsewhere(self, path: AgentId) -> Outcome | None:
        """The outcome of the last run of an agent that another process runs; None while one is in progress."""
        stored = await self._remote.stored(path)
        row = stored.row
        if row.open is not None or row.owes or any(one.state is ReceiptState.QUEUED for one in stored.queued):
            return None
        found = await self._parts.kernel.store.outcome(turn_id(path, row.turns)) if row.turns else None
        if found is None:
            msg = f"{path} never had a run: send() it something first"
            raise UsageError(msg)
        return found.outcome

    def _told(self, path: AgentId) -> Outcome | None:
        """What whoever begins to wait for an agent that owes an answer is told at once; None where it should wait.

        Raises:
            CallboardError: it stopped here, and nothing will move it on but `wake`, `grant` or `resume`.
        """
        actor = self._parts.kernel.actors.get(path)
        if actor is None:  # its tree was lost while the store was asked
            return None
        told = self._parts.standing.outcome(path)
        if told is not None:
            return told
        stopped = None if actor.lost else self._parts.lives[path].stopped(actor)
        if stopped is None:
            return None
        if actor.suspended == BUDGET:
            return self._parts.standing.parked(actor)
        raise stopped

    def _heard(self, outcome: Outcome) -> Report:
        """A report as it is handed to whoever waited; what a tool or a hook makes of it is believed no more."""
        self._parts.frames.hear(outcome.trust)
        return self.report(outcome)

    # -- reading ---------------------------------------------------------------------------------------------------

    def report(self, outcome: Outcome) -> Report:
        """An outcome as people read it."""
        output: object = None
        if outcome.output is not None and outcome.output_type is not None:
            actor = self._parts.kernel.actors.get(outcome.path)
            spec = self._parts.output(outcome.output_type, None if actor is None else actor.agent)
            output = None if spec is None else spec.kept(outcome.output)
        question = outcome.question
        answer = partial(self._parts.questions.answer, question.id if question is not None else MessageId(""))
        return report_of(outcome, output, answer)
