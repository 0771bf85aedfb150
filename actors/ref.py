"""The handle: what others hold of an agent, and the receipt of a message.

A verb returns when what it asks for is accepted; only `ask` and `wait_*` wait for a loop, and only these are checked
for cycles. A handle holds no state of the agent: it is a path and a way to the supervisor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import trio

from .errors import UsageError
from .letters import Letter
from .messages import Lane, ReceiptState
from .reading import AgentReads, Reads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .ids import AgentId, CallId, MessageId, TurnId
    from .messages import Outcome, Selection
    from .reports import Report


# ruff: noqa: D102 - the handle's own methods say what each verb of the Protocols does


@final
class Receipt:
    """What the sender of a message holds.

    Attributes:
        id: of the message. path: of the agent.
        state: as last known here; the last four are final.
        error: why a posted message was refused, or why nobody knows (`InDoubt`, while it is pending), or None.
        reason: why it is dead, or None.
        staged: it is sent with the result of the `store` call that made it.
        turn: that consumed it, or None. skipped: ids of the calls that it ended, an interrupting steer, as it entered.
    """

    def __init__(self, desk: Desk, message: MessageId, path: AgentId, state: ReceiptState) -> None:
        self._desk = desk
        self.id = message
        self.path = path
        self.state = state
        self.error: Exception | None = None
        self.reason: str | None = None
        self.turn: TurnId | None = None
        self.skipped: tuple[CallId, ...] = ()
        self.staged = False
        self._decided: trio.Event | None = None

    async def wait_accepted(self) -> None:
        """Wait until a posted message is durable.

        Raises:
            MailboxError, StoreError: it was refused, and stands nowhere. InDoubt: the store does not say.
            UsageError: it is staged: its sender has to return first.
        """
        if self.staged and self.state is ReceiptState.PENDING:
            raise UsageError(f"{self.id} is staged by a tool with effect='store': it is sent with the call's result")
        while self.state is ReceiptState.PENDING and self.error is None:
            if self._decided is None:
                self._decided = trio.Event()
            await self._decided.wait()
        if self.error is not None:
            raise self.error

    def decide(self, state: ReceiptState, error: Exception | None = None) -> None:
        """Set what became of the message. For the supervisor."""
        self.state = state
        self.error = error
        if self._decided is not None and (error is not None or state is not ReceiptState.PENDING):
            self._decided.set()

    async def wait_report(self) -> Report:
        """Wait for the report of the turn that consumed the message.

        Raises:
            WaitCycle: the wait could never end; nothing has changed.
            UsageError: the message was withdrawn. DeadLettered, AgentClosed: it died unanswered. StoreError.

        If cancelled: the message stays where it is.
        """
        await self.wait_accepted()
        _, report = await self._desk.wait_any((self,))
        return report

    async def withdraw(self) -> bool:
        """Take the message back if nothing has consumed it yet. Returns whether it was taken back."""
        await self.wait_accepted()
        return await self._desk.withdraw(self)

    def __repr__(self) -> str:
        return f"<Receipt {self.id} to {self.path}: {self.state.value}>"


class Desk(Reads, Protocol):
    """The supervisor, as handles and receipts see it."""

    async def send(self, path: AgentId, letters: Sequence[Letter]) -> tuple[Receipt, ...]: ...
    def post(self, path: AgentId, letter: Letter) -> Receipt: ...
    async def ask(self, path: AgentId, letter: Letter, timeout_s: float | None) -> Report: ...
    async def withdraw(self, receipt: Receipt) -> bool: ...
    async def wait_any(self, waited: Sequence[AgentRef | Receipt]) -> tuple[int, Report]: ...
    async def wait_idle(self, path: AgentId) -> None: ...
    async def abort(self, path: AgentId, reason: str, *, subtree: bool) -> None: ...
    async def wait_aborted(self, path: AgentId) -> None: ...
    async def close(self, path: AgentId, grace_s: float | None) -> None: ...
    async def wait_closed(self, path: AgentId) -> None: ...
    async def kill(self, path: AgentId, reason: str) -> None: ...
    async def wake(self, path: AgentId) -> None: ...
    async def pause(self, path: AgentId) -> None: ...
    def cancel_call(self, path: AgentId, call: CallId, reason: str) -> None: ...
    def report(self, outcome: Outcome) -> Report: ...
    async def compact(self, path: AgentId) -> None: ...
    async def wait_compacted(self, path: AgentId) -> None: ...


@final
class AgentRef(AgentReads):
    """An agent, to those who may talk to it. Equal to another handle of the same agent."""

    __slots__ = ("_desk",)

    def __init__(self, desk: Desk, path: AgentId) -> None:
        super().__init__(desk, path)
        self._desk = desk

    # -- messages --------------------------------------------------------------------------------------------------

    async def send(
        self,
        content: object,
        *,
        key: str | None = None,
        output: object = None,
        select: Selection | None = None,
        ttl: float | None = None,
    ) -> Receipt:
        """Send a message that waits until the agent would otherwise stop.

        Args:
            content: text, or Text, Image, File, or a list of these; `Pinned(...)` of it stays through compactions.
            key: an idempotency key of yours: a second acceptance under it returns the first one's receipt.
            output: a type that the answer owes; such a message opens a turn of its own.
            select: model, effort and tier from this message on (SEL-1).
            ttl: seconds of the time of day after which it is dead (`expired`) if nothing has consumed it; None: never.

        Raises:
            MailboxError: it is not accepted, and stands nowhere. StoreError: likewise.

        If cancelled: it is accepted or not, all or none; what a receipt was returned for is accepted.

        Durable: the message, and that the agent owes work.
        """
        letter = Letter(content, Lane.SEND, key=key, output=output, select=select, ttl=ttl)
        (receipt,) = await self._desk.send(self._path, (letter,))
        return receipt

    async def steer(
        self,
        content: object,
        *,
        key: str | None = None,
        interrupt: bool = False,
        select: Selection | None = None,
        ttl: float | None = None,
    ) -> Receipt:
        """Send a message that joins at the next boundary: after the response in progress and its tool calls.

        Args:
            content: as for `send`.
            key: as for `send`.
            interrupt: cut the response and cancel running calls; what had not started is settled as skipped, and what
                waits for approval is denied. Without it a steer waits behind an open approval. The receipt's `skipped`
                names the calls that this ended.
            select: as for `send`.
            ttl: as for `send`.

        Raises, cancelled, durable: as for `send`.
        """
        letter = Letter(content, Lane.STEER, key=key, interrupt=interrupt, select=select, ttl=ttl)
        (receipt,) = await self._desk.send(self._path, (letter,))
        return receipt

    async def send_many(self, contents: Sequence[object]) -> tuple[Receipt, ...]:
        """Send messages in one commit: all or none, side by side in their lane (ACC-3)."""
        if not contents or not isinstance(contents, list | tuple):
            msg = f"send_many takes a list of one message or more; got {contents!r}; of one message use send()"
            raise UsageError(msg)
        return await self._desk.send(self._path, tuple(Letter(content, Lane.SEND) for content in contents))

    def post(
        self, content: object, *, steer: bool = False, key: str | None = None, ttl: float | None = None
    ) -> Receipt:
        """Send from sync code on the Trio thread (ACC-2).

        Returns:
            A pending receipt: `wait_accepted()` tells its end; bounds that are known here are checked at once.

        Raises:
            MailboxError: a bound is reached, or the agent is closing.
        """
        return self._desk.post(self._path, Letter(content, Lane.STEER if steer else Lane.SEND, key=key, ttl=ttl))

    async def ask(
        self,
        content: object,
        *,
        output: object = None,
        timeout: float | None = None,
        select: Selection | None = None,
    ) -> Report:
        """Send a message and wait for its report.

        Args:
            content: as for `send`.
            output: a type that the answer owes.
            timeout: seconds to wait; then `trio.TooSlowError`, and the message stays where it is.
            select: as for `send`.

        Raises:
            WaitCycle: waiting would never end; nothing was sent. MailboxError, StoreError: as for `send`.
        """
        return await self._desk.ask(self._path, Letter(content, Lane.SEND, output=output, select=select), timeout)

    # -- waiting ---------------------------------------------------------------------------------------------------

    async def wait_report(self) -> Report:
        """Wait for the report of the run in progress; at once the last one's where none is.

        Raises:
            UsageError: the agent never had a run. WaitCycle: the wait would never end.
        """
        _, report = await self._desk.wait_any((self,))
        return report

    async def wait_idle(self) -> None:
        """Wait until no turn runs and none is requested; messages held by an abort do not keep it.

        An agent that waits for a person, or is paused with work before it, is not idle: this waits as long as it does.
        `wait_report` hears that it is parked.

        Raises:
            Unfinished: it is suspended, and nothing here goes on with it.
            WaitCycle: the wait would never end.
        """
        await self._desk.wait_idle(self._path)

    # -- ending ----------------------------------------------------------------------------------------------------

    async def abort(self, reason: str = "aborted", *, subtree: bool = False) -> None:
        """End the turn in progress; where nothing runs, nothing changes. Returns when the abort is durable (ABT-2)."""
        await self._desk.abort(self._path, reason, subtree=subtree)

    async def wait_aborted(self) -> None:
        """Wait until the aborted turn has unwound. Raises `WaitCycle` where that would never be."""
        await self._desk.wait_aborted(self._path)

    async def compact(self) -> None:
        """Have the conversation compacted at the next boundary; asked for again before, it is the same one (CMP-3).

        The request lives in memory: what nobody carries out is rejected, and nothing is owed after a restart.

        Raises:
            NotCompacted: the agent is closing, suspended or being stopped: nobody would carry it out.
        """
        await self._desk.compact(self._path)

    async def wait_compacted(self) -> None:
        """Wait for the compaction that was asked for last; at once where that is over, or none ever was.

        Raises:
            NotCompacted: it came to nothing; the conversation is as it was. WaitCycle: it would never be: from inside
                the agent's own turn, `compact()` is carried out at the next boundary.
        """
        await self._desk.wait_compacted(self._path)

    async def close(self, *, grace: float | None = None) -> None:
        """Accept nothing more, answer what was accepted, then stop. Returns when the barrier is durable (CLS-1).

        Args:
            grace: seconds for what was accepted; then the rest goes to the dead letters. None: the supervisor's.
        """
        await self._desk.close(self._path, grace)

    async def wait_closed(self) -> None:
        """Wait until it is closed, with all below it. Raises `WaitCycle` where that would never be."""
        await self._desk.wait_closed(self._path)

    async def kill(self, reason: str = "killed") -> None:
        """End it at once; what waits goes to the dead letters."""
        await self._desk.kill(self._path, reason)

    async def pause(self) -> None:
        """Stop at the next step boundary, until `wake()`, also after a restart; calls that run are finished first.

        Messages are accepted and wait, decisions on approvals too; the budget's clock stands (BUD-6). Code outside of
        agents that waits for a report is told `parked`; a parent's wait goes on. An abort of the open turn ends the
        pause. An agent that does nothing is paused as well: it begins no turn.

        Raises:
            StoreError: it is not paused.

        Durable: that it is to pause, on return.
        """
        await self._desk.pause(self._path)

    async def wake(self) -> None:
        """Ask for a turn: a pause ends, and messages held by an abort are queued again (ABT-4).

        Durable: on return.
        """
        await self._desk.wake(self._path)

    def cancel_call(self, call: CallId, reason: str = "cancelled") -> None:
        """Cancel one running tool call; its result says so, and the turn goes on.

        Raises:
            UsageError: no such call is running.
        """
        self._desk.cancel_call(self._path, call, reason)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AgentRef) and other._path == self._path and other._desk is self._desk

    def __hash__(self) -> int:
        return hash(self._path)

    def __repr__(self) -> str:
        return f"<AgentRef {self._path}>"
