"""The other processes over the same store: the lease is kept, what they send is noticed, what they answer is found.

Whatever wakes a process up sooner is a hint; a look at the store every `POLL_S` is the guarantee. A look is one
question that SQLite answers from memory: has any other connection written? Only then is more read.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final, final

import trio

from actors.errors import CallboardError, Corrupt, OwnedElsewhere, StoreError, UsageError, WaitCycle
from actors.happenings import AgentSuspended
from actors.ids import AgentId, tree_of
from actors.messages import Purpose, ReceiptState
from actors.waiting import Mode, Need

from .cause import abort_of
from .offspring import waited_for
from .stopping import abort_born_since
from .store.crossing import Crossing, hopeless
from .waits import describe
from .waking import wake_tree

if TYPE_CHECKING:
    from actors.ids import MessageId, TreeId
    from actors.messages import Envelope, Queued
    from actors.waiting import Wait

    from .parts import Parts

POLL_S: Final = 0.05
"""How often the store is asked whether another process has written."""
CROSS_S: Final = 0.25
"""How often waits are shown to other processes, while some go from one to another."""
LOOK_S: Final = 1.0
"""How often answers of other processes are looked for where nothing was written: their owner may be gone. And how often
what they ask a person is looked for, while they write and an inbox is open here."""
ELSEWHERE: Final = "owned_elsewhere"


@final
class Peers:
    """What this supervisor knows of the others.

    Invariants:
        PEER-1 of a tree that was lost nothing runs here, once its tasks have unwound; nothing of it is in memory then.
        PEER-2 a message that another process sent to a tree of ours is in its mailbox at most one look after its
            commit, or the store was not to be read.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._version = -1
        self._read = 0  # the number of the last message that was looked for
        self._unread: dict[AgentId, None] = {}  # who got some of them, and could not be read then
        self._waits: dict[Wait, int] = {}  # those that were published, and their numbers
        self._numbers = count(1)

    def start(self) -> None:
        """Begin to look, where another process can reach the store at all."""
        kernel = self._parts.kernel
        kernel.lost, kernel.foreign, kernel.taken = self.lose, self._came, self._goes_on
        kernel.mirror.gone = self._went
        lease_s = self._parts.kernel.ownership.holder.lease_s
        if lease_s is not None:
            self._parts.actors_nursery.start_soon(self._main, lease_s)

    async def _main(self, lease_s: float) -> None:
        now = self._parts.kernel.now
        renew_at = look_at = cross_at = ask_at = now()
        known = written = unasked = False
        while True:
            try:
                if not known:
                    self._read, _ = await self._parts.kernel.store.news(-1)
                    known = True
                if now() >= renew_at:
                    await self._renew()
                    renew_at = now() + lease_s / 3
                wrote = await self._look()
                if wrote or now() >= look_at:
                    await self._find_answers()
                    look_at = now() + LOOK_S
                written, unasked = written or wrote, unasked or wrote
                if now() >= cross_at:
                    await self._cross(wrote=written)
                    written, cross_at = False, now() + CROSS_S
                if unasked and now() >= ask_at and self._parts.approvals.listening:
                    ask_at = now() + LOOK_S
                    await self._parts.approvals.find()  # an inbox has what is asked in all trees (TOL-12)
                    unasked = False
            except StoreError:
                pass  # whoever needs the store is told; the next look may find it well again
            await trio.sleep(POLL_S)

    # -- the lease -------------------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        for tree in await self._parts.kernel.ownership.renew():
            self.lose(tree)

    def lose(self, tree: TreeId) -> None:
        """Another process has the tree: stop at once and quietly; that is no crash (SUP-6)."""
        parts = self._parts
        if not parts.kernel.ownership.lost(tree):
            return
        nodes = parts.stopping.below(AgentId(tree))
        for node in nodes:
            parts.kernel.tell(node, AgentSuspended, {"reason": ELSEWHERE})
            actor = parts.kernel.actors[node]
            actor.suspended, actor.lost = ELSEWHERE, True
            parts.stopping.cut_off(node)
            for need in (Need.IDLE, Need.STEP, Need.UNWIND, Need.EXIT):  # who waits goes on with the next owner
                parts.replies.fulfil(node, need, OwnedElsewhere(f"tree {tree!r} was taken over by another process"))
        parts.actors_nursery.start_soon(self._forget, tree, nodes)

    async def _forget(self, tree: TreeId, nodes: tuple[AgentId, ...]) -> None:
        """What was read of a tree is no longer so: whoever asks for it reads it anew."""
        parts = self._parts
        while parts.stopping.busy(nodes):
            await parts.stopping.movement()
        for node in nodes:
            parts.kernel.actors.pop(node, None)
            parts.standing.left(node)
            life = parts.lives.pop(node, None)
            for code in () if life is None else (*life.calls.running.values(), *life.calls.stuck.values()):
                parts.frames.cut(code.frame)
        for hook in parts.runner.hooks:
            if hook.frame.agent in nodes:
                parts.frames.cut(hook.frame)
        parts.ledger.lose(AgentId(tree))
        parts.kernel.ownership.leaving.discard(tree)

    # -- what they wrote -------------------------------------------------------------------------------------------

    async def _look(self) -> bool:
        """Whether another process has written since the last look; what it sent to us is taken."""
        kernel = self._parts.kernel
        version = await kernel.store.version()
        if version == self._version and not self._unread:
            return False
        self._version = version
        self._read, agents = await kernel.store.news(self._read)
        self._unread.update(dict.fromkeys(agents))
        for agent in tuple(self._unread):
            if (tree := tree_of(agent)) in kernel.ownership.epochs:
                with suppress(Corrupt):  # whoever asks for it is told; the others are read all the same
                    await kernel.discover(agent)
            elif kernel.ownership.takes(tree):  # it may be here in a moment, and was read before this came
                continue
            del self._unread[agent]
        return True

    def _came(self, queued: Queued) -> None:
        """An abort from elsewhere takes all that the turn waits for, as one from here does (ABT-5)."""
        envelope = queued.envelope
        if envelope.purpose is Purpose.ABORT:
            above, *below = waited_for(self._parts, envelope.to)
            if below:
                self._parts.stopping.abort_aside(tuple(below), abort_of(above, envelope.reason or "aborted"))
            self._parts.actors_nursery.start_soon(self._late_born, envelope)

    async def _late_born(self, order: Envelope) -> None:
        with suppress(CallboardError):  # nobody could hear of it: the turns below meet that store, too
            await abort_born_since(self._parts, order)

    def _went(self, agent: AgentId, messages: tuple[MessageId, ...]) -> None:
        self._parts.actors_nursery.start_soon(self._tell_of, agent, messages)

    async def _tell_of(self, agent: AgentId, messages: tuple[MessageId, ...]) -> None:
        """What another process took out of a mailbox of ours ends waits as if it had been taken here (ACC-9)."""
        parts = self._parts
        kernel, replies = parts.kernel, parts.replies
        for message in messages:
            if message not in kernel.receipts and not replies.awaited(message):
                continue
            try:
                view = await kernel.patience.through(kernel.store.message_state, message)
            except CallboardError as error:
                replies.reply(message, error=error)
                continue
            if view is None or parts.questions.takes(message):
                continue
            if view.state is ReceiptState.WITHDRAWN:
                kernel.mirror.ended((message,), view.state)
                replies.reply(message, error=UsageError(f"{message} was withdrawn"))
        actor = kernel.actors.get(agent)
        if actor is not None and not actor.lost:
            actor.eased()

    # -- what they wait for ----------------------------------------------------------------------------------------

    async def _cross(self, *, wrote: bool) -> None:
        """Show the others what is waited for here, where that may concern them; end what can never end (REE-5)."""
        parts = self._parts
        kernel, owned = parts.kernel, parts.kernel.ownership.epochs
        waits = [wait for wait in parts.graph.open_here() if tree_of(wait.waiter.agent) in owned]
        outward = any(tree_of(target) not in owned for wait in waits for target in wait.targets)
        if not (outward or self._waits or wrote):
            return
        holder = kernel.ownership.holder
        if not outward and not self._waits and not await kernel.store.cross(holder, ()):
            return  # nobody waits across: to have asked wrote nothing, or two processes would wake each other for ever
        numbers = {wait: self._waits.get(wait) or next(self._numbers) for wait in waits}
        published = await kernel.store.cross(holder, tuple(map(_crossing, numbers, numbers.values())))
        others = any(one.holder != holder.id for one in published)
        if not outward and not others:
            numbers = {}
            await kernel.store.cross(holder, ())
        self._waits = numbers
        ring = hopeless(published) if others else ()
        if ring and ring[0].holder == holder.id:
            labels = tuple([one.wait.label for one in ring])
            shown = " waits for ".join((*labels, ring[0].wait.waiter))
            error = WaitCycle(
                f"this wait can never end: {shown}, over several processes. Use send() or post(), which return when the"
                " message is accepted, and finish the turn",
                (*labels, ring[0].wait.waiter),
            )
            for wait, number in numbers.items():
                if number == ring[0].wait.id:
                    parts.replies.refuse(wait, error)

    def _goes_on(self, tree: TreeId) -> None:
        """A tree was taken for the sake of one agent: whoever runs it runs all of it (SUP-6)."""
        if not self._parts.leaving:
            self._parts.frames.clean_context().run(self._parts.actors_nursery.start_soon, self._take, tree)

    # -- what they answered ----------------------------------------------------------------------------------------

    async def _find_answers(self) -> None:
        """End waits for what other processes have answered; a tree that nobody runs any more is taken (ACC-9)."""
        parts = self._parts
        owned = parts.kernel.ownership.epochs
        for waiter, find in parts.replies.elsewhere(lambda agent: tree_of(agent) in owned):
            try:
                found = await find()
                if found is None and not waiter.inside:
                    found = await parts.elsewhere.parked(waiter.target, listening=bool(parts.approvals.listening))
            except CallboardError as error:
                waiter.complete(error=error)
                continue
            if found is not None:
                waiter.complete(found)
            elif (tree := tree_of(waiter.target)) in owned or await parts.kernel.store.lease(tree) is None:
                parts.actors_nursery.start_soon(self._take, tree)  # nobody runs it, or it was taken to read this

    async def _take(self, tree: TreeId) -> None:
        """Go on with all of a tree that nobody ran: what is waited for may need the rest (SUP-6)."""
        try:
            await wake_tree(self._parts, AgentId(tree))
        except CallboardError as error:  # in a task of its own: nobody else could hear of it
            self._parts.kernel.tell(AgentId(tree), AgentSuspended, {"reason": error.kind})


def _crossing(wait: Wait, number: int) -> Crossing:
    return Crossing(
        number,
        describe(wait.waiter),
        wait.waiter.agent,
        wait.targets,
        exits=wait.needs is Need.EXIT,
        any=wait.mode is Mode.ANY,
    )
