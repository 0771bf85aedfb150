"""Accepting messages: from handles, from tools, from sync code; receipts; taking a message back."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from actors.changes import Enqueue, Intake, Move, Placed
from actors.errors import (
    Aborted,
    AgentClosed,
    CallboardError,
    Conflict,
    InDoubt,
    MailboxFull,
    MessageTooLarge,
    UsageError,
)
from actors.happenings import PostRefused
from actors.ids import AgentId, name_of, tree_of
from actors.messages import Envelope, Lane, LaneBound, ReceiptState, skipped_of
from actors.output import output_spec
from actors.ref import Receipt

from .births import trust_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.letters import Letter
    from actors.waiting import Frame

    from .parts import Parts
    from .staging import Stage

MAX_POSTS: Final = 1_000
"""How many posts of one agent may be on their way at once."""


@attrs.define(eq=False)
class _Posted:
    """One agent's posts on their way.

    Attributes:
        waiting: oldest first. decided: how many have left it. lock: held by whoever accepts them, one after another.
        done: all of them are decided.
    """

    waiting: deque[tuple[Envelope, Receipt]] = attrs.field(factory=deque)
    decided: int = 0
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    done: trio.Event = attrs.field(factory=trio.Event)


@final
class Post:
    """The way into mailboxes.

    Invariants:
        POST-1 a receipt that was returned is for an accepted message, or pending with its acceptance under way.
        POST-2 posts to one agent are accepted in the order they were made, and before later sends of the same code.
        POST-3 a post stands in `_posts` until its acceptance is decided.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._trio = trio.lowlevel.current_trio_token()
        self._posts: dict[AgentId, _Posted] = {}

    async def send(self, path: AgentId, letters: Sequence[Letter]) -> tuple[Receipt, ...]:
        """Accept messages in one commit (ACC-1, ACC-3).

        Raises:
            MailboxError, StoreError, UnknownPath: nothing was accepted.

        Durable: the messages, on return.
        """
        self._parts.check_open()
        await self.flush(path)
        envelopes = tuple([self._envelope(path, letter) for letter in letters])
        stage = self._parts.staging.here()
        if stage is None:
            return await self._accept(path, envelopes)
        await trio.lowlevel.checkpoint()
        return self._stage(stage, path, envelopes)

    def _stage(self, stage: Stage, path: AgentId, envelopes: tuple[Envelope, ...]) -> tuple[Receipt, ...]:
        """Messages of a `store` call: they are accepted with its result, or not at all; what is known is said now."""
        for envelope in envelopes:
            self._check_now(path, envelope)
        receipts = []
        for envelope in envelopes:
            receipt = Receipt(self._parts.desk, envelope.id, path, ReceiptState.PENDING)
            self._parts.kernel.receipts[receipt.id] = receipt
            stage.sent(Enqueue(envelope, self._bound(path, envelope.lane)), receipt)
            receipts.append(receipt)
        return tuple(receipts)

    async def _accept(
        self, path: AgentId, envelopes: tuple[Envelope, ...], known: tuple[Receipt, ...] = ()
    ) -> tuple[Receipt, ...]:
        receipts = known or tuple(
            [Receipt(self._parts.desk, envelope.id, path, ReceiptState.PENDING) for envelope in envelopes]
        )
        for receipt in receipts:
            self._parts.kernel.receipts[receipt.id] = receipt  # before the commit: a turn may consume at once
        operations = tuple([Enqueue(envelope, self._bound(path, envelope.lane)) for envelope in envelopes])
        values = await self._parts.kernel.commit(tree_of(path), operations, fenced=False)
        placed = tuple([self.placed(receipt, value) for receipt, value in zip(receipts, values, strict=True)])
        for receipt, value in zip(receipts, values, strict=True):
            if isinstance(value, Placed) and value.again:
                await self._again(receipt)
        return placed

    async def _again(self, receipt: Receipt) -> None:
        """It was accepted before, in an earlier process perhaps: where it is now, the store knows (ACC-7, ACC-9)."""
        view = await self._parts.kernel.store.message_state(receipt.id)
        if view is not None and view.state.final and not receipt.state.final:
            receipt.turn, receipt.reason, receipt.skipped = view.turn, view.reason, skipped_of(view.reason)
            receipt.decide(view.state)

    def placed(self, receipt: Receipt, value: object) -> Receipt:
        """The receipt of a message that was accepted."""
        assert isinstance(value, Placed), "Enqueue returns the place"
        if value.again:  # ACC-7: the first acceptance's receipt
            first = self._parts.kernel.receipts.get(value.message)
            if receipt.state is ReceiptState.PENDING:  # one that was posted is in its sender's hands
                receipt.id = value.message
                known = ReceiptState.QUEUED if first is None else first.state
                receipt.decide(ReceiptState.QUEUED if known is ReceiptState.PENDING else known)  # PENDING: on its way
            if first is not None:
                return first
            self._parts.kernel.receipts[value.message] = receipt
        elif receipt.state is ReceiptState.PENDING:
            receipt.decide(ReceiptState.QUEUED)
        return receipt

    def post(self, path: AgentId, letter: Letter) -> Receipt:
        """Accept from sync code: a pending receipt now, its acceptance behind it, in order (ACC-2).

        Raises:
            MailboxError: a bound is reached as far as is known here, or the agent is closing.
            UsageError: this is another thread than the supervisor's, or the supervisor was left.
        """
        self._check_here(path)
        if self._parts.staging.here() is not None:
            raise UsageError(
                f"post() to {path} from a tool with effect='store': use `await ctx.send()`, which is staged"
            )
        envelope = self._envelope(path, letter)
        self._check_now(path, envelope)
        receipt = Receipt(self._parts.desk, envelope.id, path, ReceiptState.PENDING)
        posted = self._posts.get(path)
        if posted is None:
            self._parts.kernel.nursery.start_soon(self._flush_all, path)
            posted = self._posts[path] = _Posted()
        posted.waiting.append((envelope, receipt))
        return receipt

    def _check_here(self, path: AgentId) -> None:
        if not trio.lowlevel.in_trio_run() or trio.lowlevel.current_trio_token() is not self._trio:
            msg = (
                f"post() to {path} was called outside of the supervisor's thread;"
                " in a thread that Trio started use trio.from_thread.run(ref.send, ...)"
            )
            raise UsageError(msg)
        self._parts.check_open()

    def _check_now(self, path: AgentId, envelope: Envelope) -> None:
        bound = self._bound(path, envelope.lane)
        if envelope.size_bytes > bound.message_bytes:
            msg = f"a message of {envelope.size_bytes} bytes; {path} takes {bound.message_bytes}"
            raise MessageTooLarge(msg, envelope)
        posted = self._posts.get(path)
        if posted is not None and len(posted.waiting) >= MAX_POSTS:
            msg = f"{MAX_POSTS} posts to {path} are on their way; await send() instead, or slow down"
            raise MailboxFull(msg, envelope)
        actor = self._parts.kernel.actors.get(path)
        if actor is None:
            return
        if actor.intake is not Intake.OPEN:
            msg = f"{path} is {actor.intake.value} and accepts nothing new"
            raise AgentClosed(msg, envelope)
        counts = actor.mailbox.statistics()
        if (counts.steer if envelope.lane is Lane.STEER else counts.send) >= bound.messages:
            msg = f"the {envelope.lane.value} lane of {path} holds {bound.messages} messages, as many as it may"
            raise MailboxFull(msg, envelope)

    async def _flush_all(self, path: AgentId) -> None:
        while path in self._posts:
            await self.flush(path)

    async def flush(self, path: AgentId) -> None:
        """Accept what was posted until now, in order; each failure is its receipt's end and an event."""
        posted = self._posts.get(path)
        if posted is None:
            return
        upto = posted.decided + len(posted.waiting)
        async with posted.lock:
            while posted.decided < upto:
                envelope, receipt = posted.waiting[0]
                try:
                    await self._accept(path, (envelope,), (receipt,))
                except CallboardError as error:
                    in_doubt = isinstance(error, InDoubt)  # then it may come to be answered: that is no refusal (ACC-2)
                    receipt.decide(ReceiptState.PENDING if in_doubt else ReceiptState.REFUSED, error)
                    self._parts.kernel.tell(path, PostRefused, {"message": envelope.id, "error": str(error)})
                posted.waiting.popleft()
                posted.decided += 1
                if not posted.waiting:
                    del self._posts[path]
                    posted.done.set()

    def pending(self) -> bool:
        """Whether posts are on their way."""
        return bool(self._posts)

    async def decided(self) -> None:
        """Wait until no posts are on their way."""
        for posted in tuple(self._posts.values()):
            await posted.done.wait()

    async def withdraw(self, receipt: Receipt) -> bool:
        """Take a message back if nothing has consumed it."""
        move = Move(receipt.path, (ReceiptState.QUEUED, ReceiptState.HELD), ReceiptState.WITHDRAWN, (receipt.id,))
        try:
            await self._parts.kernel.commit(tree_of(receipt.path), (move,), fenced=False)
        except Conflict:
            return False
        actor = self._parts.kernel.actors.get(receipt.path)
        if actor is not None:
            actor.eased()
        return True

    def _envelope(self, path: AgentId, letter: Letter) -> Envelope:
        frame = self._parts.own_frame()
        cut = self._parts.frames.cut_off()
        if cut is not None and (cut.place, cut.agent) == (self._parts.graph.place, path):
            raise _cut_off(cut)
        if frame is not None and frame.agent == path:
            self._check_own(frame)
        output = None
        if letter.output is not None:
            spec = output_spec(letter.output, "output=")
            self._parts.outputs[spec.key] = spec
            output = spec.key
        return Envelope(
            id=self._parts.kernel.new_message_id(),
            to=path,
            lane=letter.lane,
            content=letter.content,
            sender=None if frame is None else frame.agent,
            trust=trust_of(self._parts, "" if frame is None else frame.agent),
            key=letter.key,
            output=output,
            interrupt=letter.interrupt,
            select=letter.select,
            pinned=letter.pinned,
            expires_ms=None if letter.ttl_s is None else self._parts.kernel.wall_ms() + int(letter.ttl_s * 1000),
        )

    def _check_own(self, frame: Frame) -> None:
        """Refuse what an agent's own code sends it where that would bring back what was ended (TOL-14, ABT-6, HOK-2).

        Raises:
            Aborted: the call, or the hook, was cut. UsageError: hooks have sent it as many messages as they may.
        """
        parts, life = self._parts, self._parts.lives.get(frame.agent)  # None: its tree was lost
        actor = parts.kernel.actors.get(frame.agent)
        loop = None if actor is None else actor.loop
        runs = frame.call is not None and life is not None and frame.call in life.calls.running
        if runs and loop is not None and loop.aborting:
            raise _cut_off(frame)
        if frame.kind == "hook" and life is not None:
            life.hooking.sends()

    def _bound(self, path: AgentId, lane: Lane) -> LaneBound:
        kernel = self._parts.kernel
        actor = kernel.actors.get(path)
        spec = kernel.registry.get(name_of(path)) if actor is None else actor.agent
        if spec is None:
            return LaneBound()
        limits = spec.limits
        return limits.steer if lane is Lane.STEER else limits.send


def _cut_off(frame: Frame) -> Aborted:
    what = f"hook {frame.name}" if frame.call is None else f"call {frame.call}"
    return Aborted(f"the {what} of {frame.agent} was cut off; it sends its own agent nothing any more")
