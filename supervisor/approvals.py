"""Requests for approval, from every depth of every tree, and the decisions on them (TOL-12).

A decision is a durable message on a reserved place in the control lane; it is accepted once per call, by whichever
process comes first, and carried out by the agent's own turn. A request that nobody decides in time is decided by us,
in the same way, as expired: so a decision and its expiry cannot both count.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, final

import trio

from actors.changes import CallRow, CallState, Enqueue, Require
from actors.errors import CallboardError, Conflict, StoreError, UsageError
from actors.happenings import ApprovalAsked, ApprovalDecided
from actors.ids import AgentId, MessageId, parent_path, tree_of
from actors.messages import Decision, Envelope, Lane, LaneBound, Purpose, ReceiptState, Verdict

from .approval import Approval, Inbox

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actors.actor import Actor
    from actors.happenings import Event
    from actors.ids import CallId

    from .parts import Parts

_NO_BOUND: Final = LaneBound()
_ANYWHERE: Final = (ReceiptState.QUEUED, ReceiptState.CONSUMED, ReceiptState.DEAD)
_AGAIN_S: Final = 1.0
"""How long the timer waits after a store did not take an expiry."""
US: Final = "the supervisor"
"""Who decides that a request has expired."""


@final
class Approvals:
    """The open requests that this process knows of.

    Invariants:
        ASK-1 a request is in `pending` from when its call is durable as awaiting until its end is told, or is decided
            from here. One of another process comes, and goes, as the store is looked at: at most a second later
            while an inbox is open.
        ASK-2 at most one task waits for deadlines, and only while a request has one.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._kernel = parts.kernel
        self.pending: dict[CallId, Approval] = {}
        self._deadlines: dict[CallId, float] = {}
        self._sooner: trio.CancelScope | None = None
        self.changed = trio.Event()
        self.listening = 0
        self.over = False

    # -- what is open ----------------------------------------------------------------------------------------------

    @contextmanager
    def open(self) -> Iterator[Inbox]:
        """An inbox. While one is open, those who wait for a parked agent go on waiting: it will be decided here."""
        self.listening += 1
        try:
            yield Inbox(self)
        finally:
            self.listening -= 1
            if not self.listening:
                self._parts.standing.tell_all()

    def of(self, path: AgentId) -> tuple[Approval, ...]:
        """What an agent asks."""
        return tuple(request for request in self.pending.values() if request.path == path)

    def heard(self, path: AgentId, event: type[Event], values: Mapping[str, object]) -> None:
        """An agent asks, or a request has come to its end; this is never missed, whoever watches."""
        if event is ApprovalAsked:
            asked = ApprovalAsked(path=path, **values)  # type: ignore[arg-type]  # the values of this very event
            self._add(Approval(
                path, asked.name, json.loads(asked.arguments), asked.call, asked.why, asked.asked, asked.expires, self
            ))  # fmt: skip
        elif event is ApprovalDecided:
            call: Any = values["call"]
            self._over(call)

    def _over(self, call: CallId) -> None:
        self.pending.pop(call, None)
        self._deadlines.pop(call, None)

    async def find(self) -> None:
        """Learn of all requests of the store, from before and of other processes too, and of which are over.

        One indexed read finds them.
        """
        known = tuple(self.pending)
        rows = await self._kernel.store.awaiting_calls()
        for call in set(known).difference([row.call for row in rows]):
            self._over(call)
        for row in rows:
            if row.call not in self.pending and await self._first(row.agent, row.call) is None:
                self._add_row(row)

    def adopt(self, actor: Actor) -> None:
        """An agent was read in: what it asks is asked again."""
        decided = {queued.envelope.target for queued in actor.mailbox.decisions}
        for row in actor.memory.calls or ():
            if row.state is CallState.AWAITING and row.call not in decided:
                self._add_row(row)

    def _add_row(self, row: CallRow) -> None:
        asking = row.asking
        if asking is None or row.call in self.pending:
            return
        expires = None if asking.expires_ms is None else asking.expires_ms / 1000
        values = {
            "call": row.call,
            "name": row.name,
            "arguments": asking.arguments,
            "why": asking.why,
            "asked": asking.asked_ms / 1000,
            "expires": expires,
        }
        self._kernel.tell(row.agent, ApprovalAsked, values)
        self.heard(row.agent, ApprovalAsked, values)

    def _add(self, request: Approval) -> None:
        self.pending[request.call_id] = request
        self.changed.set()
        self.changed = trio.Event()
        if request.expires is not None:
            self._deadlines[request.call_id] = trio.current_time() + request.expires - self._kernel.wall()
            if self._sooner is None:
                self._sooner = trio.CancelScope()
                self._kernel.nursery.start_soon(self._watch)
            else:
                self._sooner.cancel()

    def end(self) -> None:
        """The supervisor is left: inboxes end."""
        self.over = True
        self.changed.set()

    # -- deciding --------------------------------------------------------------------------------------------------

    async def decide(self, request: Approval, decision: Decision) -> None:
        """Accept a decision, durably, if it is the first."""
        if self._parts.frames.current_owner() is not None:
            raise UsageError(
                "an agent's tools and hooks may not decide on approvals: decide from code outside of agents"
            )
        if request.expires is not None and self._kernel.wall() >= request.expires:
            decision = Decision(Verdict.EXPIRED, US)  # nobody's any more, whatever the timer has done until now
        await self._accept(request.path, request.call_id, decision)
        if decision.verdict is Verdict.EXPIRED:
            raise UsageError(f"the request for {request.tool} ({request.call_id}) has expired; its call is not run")

    async def _accept(self, path: AgentId, call: CallId, decision: Decision) -> None:
        envelope = Envelope(
            id=_message(call),
            to=path,
            lane=Lane.CONTROL,
            content=(),
            purpose=Purpose.DECISION,
            target=call,
            reserved=True,
            decision=decision,
        )
        waits = Require(CallRow, (call,), "state", CallState.AWAITING)
        try:
            await self._kernel.commit(tree_of(path), (waits, Enqueue(envelope, _NO_BOUND)), fenced=False)
        except Conflict:
            self._over(call)
            raise await self._refusal(path, call) from None
        self._over(call)  # whoever runs the agent hears more of it; it is asked no more (TOL-12)
        self._parts.standing.look(path)
        await self._wake_above(path)

    async def _wake_above(self, path: AgentId) -> None:
        """The turns that wait for the agent, and that the end of another process cut off, go on with it."""
        node = parent_path(path)
        while node:
            with suppress(CallboardError):  # such as a missing spec: the decision stands all the same
                (await self._kernel.resident(AgentId(node))).wake()
            node = parent_path(node)

    async def _first(self, path: AgentId, call: CallId) -> Decision | None:
        """The decision that a call has, or None."""
        store = self._kernel.store
        view = await store.message_state(_message(call))
        if view is None:
            return None
        (found,) = await store.messages(path, _ANYWHERE, after=view.seq - 1, limit=1)
        return found.envelope.decision

    async def _refusal(self, path: AgentId, call: CallId) -> UsageError:
        first = await self._first(path, call)
        if first is None:
            return UsageError(f"the call {call} of {path} does not wait for approval: it was settled, or never asked")
        by = f" by {first.by}" if first.by else ""
        why = f" ({first.message})" if first.message else ""
        return UsageError(f"the call {call} of {path} is decided already: {first.verdict.value}{by}{why}")

    # -- deadlines -------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Decide what expires; one task for all agents, and none while nothing can expire."""
        while self._deadlines:
            self._sooner = trio.CancelScope()
            with self._sooner:
                await trio.sleep_until(min(self._deadlines.values()))
            now = trio.current_time()
            for call in [call for call, deadline in self._deadlines.items() if deadline <= now]:
                await self._expire(call)
        self._sooner = None

    async def _expire(self, call: CallId) -> None:
        request = self.pending.get(call)
        try:
            if request is not None:
                await self._accept(request.path, call, Decision(Verdict.EXPIRED, US))
        except UsageError:
            pass  # a person was faster, or it is settled
        except StoreError:
            self._deadlines[call] = trio.current_time() + _AGAIN_S  # nothing runs before it is decided: it can wait
            return
        self._deadlines.pop(call, None)

    def __repr__(self) -> str:
        return f"<Approvals {len(self.pending)} open, {self.listening} inboxes>"


def _message(call: CallId) -> MessageId:
    """The id of the decision on a call: an id is used once, so a call is decided once."""
    return MessageId(f"decision-{call}")
