"""What a store is: the Protocol, and what its reads hand out.

A store keeps rows; it decides nothing about agents. It refuses what would break its own promises (`checks.py`): a set
that is not its owner's, a row written twice, a message claimed twice, a lane over its bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from msgspec import Struct

from actors.changes import AgentRow, CallRow, ChangeSet, Intake, KvRow, OutcomeRow, Values
from actors.ids import AgentId, MessageId, TurnId
from actors.messages import DeadLetter, Lane, Queued, ReceiptState

if TYPE_CHECKING:
    from actors.ids import TreeId
    from actors.transcript import Record

    from .crossing import Crossing, Published
    from .leases import Holder, Lease

Then: TypeAlias = Callable[[Values], None]
"""Hears of a commit, in the order of commits."""

PAGE: Final = 1_000
"""How many rows a read of something that grows for ever hands out at once."""


# -- what reads hand out -----------------------------------------------------------------------------------------


class StoredAgent(Struct, frozen=True):
    """All that a loop needs to go on with an agent, but for its records; read in one transaction.

    Attributes:
        row: as its loop wrote it last. intake: whether it accepts messages.
        length: how many records its conversation has.
        queued: its queued and held messages, in the order of acceptance, all lanes.
        calls: its call rows, in call order, those of unknown end included.
        seq: of the last message that it accepted, whatever became of it; 0 for none.
    """

    row: AgentRow
    intake: Intake
    length: int = 0
    queued: tuple[Queued, ...] = ()
    calls: tuple[CallRow, ...] = ()
    seq: int = 0


class MessageView(Struct, frozen=True):
    """Where a message is. `turn`: that consumed it, or None. `reason`: as it was claimed or moved with, or None."""

    id: MessageId
    agent: AgentId
    seq: int
    lane: Lane
    state: ReceiptState
    turn: TurnId | None = None
    reason: str | None = None


class StoreStatistics(Struct, frozen=True):
    """What a store has done since it was opened.

    Attributes:
        commits: change sets written. refused: change sets that failed.
        flushes: times the disk was waited for (0 in memory); commits / flushes is how well they are grouped.
        bytes_encoded: of rows and messages as they were written (0 in memory).
    """

    commits: int = 0
    refused: int = 0
    flushes: int = 0
    bytes_encoded: int = 0


# -- the Protocol ------------------------------------------------------------------------------------------------


class Reader(Protocol):
    """Reads of a store. Each is one short read transaction that sees every commit that has returned.

    Every read raises `Corrupt` for a row that cannot be read, and `Unavailable` where the store does not answer.
    If cancelled: the read is given up; nothing has changed. Lists of agents are in the order they were made.
    """

    @property
    def id(self) -> str:
        """A random name of the store, made with it: what keys sent to others are made unique with."""
        ...

    async def load_agent(self, agent: AgentId) -> StoredAgent | None:
        """Read an agent with its waiting messages and its calls; None where there is none."""
        ...

    async def read_records(self, agent: AgentId, start: int = 0, stop: int | None = None) -> tuple[Record, ...]:
        """Read a conversation's records from `start` up to, not with, `stop` (None: to its end).

        An index never changes its record. Those that were removed from the archive are not among them (CMP-4).
        """
        ...

    async def outcome(self, turn: TurnId) -> OutcomeRow | None:
        """Read how a turn ended; None where it has not, or is not known."""
        ...

    async def message_state(self, message: MessageId) -> MessageView | None:
        """Read where a message is; None where it was never accepted."""
        ...

    async def find_key(self, parent: str, key: str) -> AgentId | None:
        """Find the child of `parent` (``""``: the root) that was started under a key."""
        ...

    async def agents_with_work(self) -> tuple[AgentId, ...]:
        """Find, in order of path, the agents that owe work or have a queued message; held ones do not count (REC-2).

        One indexed read: it costs what is found, whatever the number of idle agents.
        """
        ...

    async def awaiting_calls(self) -> tuple[CallRow, ...]:
        """Find the calls that wait for a person's decision, in order of path and call (TOL-12).

        One indexed read: it costs what is found.
        """
        ...

    async def children(self, parent: AgentId) -> tuple[AgentRow, ...]:
        """Read the agents right below one."""
        ...

    async def tree_rows(self, tree: TreeId) -> tuple[AgentRow, ...]:
        """Read all agents of a tree, the root first. A tree is bounded by its spawn limits."""
        ...

    async def roots(self, *, after: AgentId | None = None, limit: int = PAGE) -> tuple[AgentRow, ...]:
        """Read root agents, at most `limit`, those made after root `after`."""
        ...

    async def kv(self, agent: AgentId, scope: str) -> tuple[KvRow, ...]:
        """Read a key-value scope of an agent, in order of key."""
        ...

    async def messages(
        self, agent: AgentId, states: tuple[ReceiptState, ...], *, after: int = 0, limit: int = PAGE
    ) -> tuple[Queued, ...]:
        """Read messages of an agent in any of `states`, in order of acceptance.

        Args:
            agent: whose.
            states: which; dead letters are `(DEAD,)`.
            after: those accepted after this seq.
            limit: at most so many.
        """
        ...

    async def dead_letters(self, agent: AgentId | None = None, *, limit: int = PAGE) -> tuple[DeadLetter, ...]:
        """Read dead letters of an agent and all below it (None: of all), by agent, then in order of acceptance."""
        ...

    async def news(self, after: int) -> tuple[int, tuple[AgentId, ...]]:
        """Find which agents got messages, whoever sent them.

        Args:
            after: what an earlier call returned first; -1 only to learn where the store stands.

        Returns:
            Where it stands now, and the agents, each once.
        """
        ...

    async def lease(self, tree: TreeId) -> Lease | None:
        """Read who has a tree; None where nobody has, or whoever had it is gone."""
        ...

    async def version(self) -> int:
        """A number that changes with commits of other processes, if not also with others; it is cheap to read."""
        ...

    async def close(self) -> None:
        """Close it. Closing twice is allowed; any other use afterwards raises `Unavailable`."""
        ...


class Store(Reader, Protocol):
    """A store: its reads, commits and ownership.

    Invariants, checked by `supervisor.testing.check_store` for every store:
        STORE-1 a set is written whole or not at all, and later reads see it whole.
        STORE-2 seq of an agent's messages counts from 1 without a gap, in the order of acceptance.
        STORE-3 a lane's depth and bytes are those of its queued and held messages that took no reserved place.
        STORE-4 a message is consumed by one turn at most.
        STORE-5 a conversation's records stand at 0, 1, 2 … and never change; archived ones may be removed.
        STORE-6 epochs of a tree rise; a set of an old one writes nothing.
    """

    async def commit(self, change_set: ChangeSet, then: Then | None = None) -> Values:
        """Write a change set, all or none.

        Args:
            change_set: what to write.
            then: called with what the operations return, on the Trio thread, once the set is durable: in the order
                of commits, whatever order the tasks that wait for them go on in. It does not wait; what it raises
                is raised here.

        Returns:
            What each operation returns, in order.

        Raises:
            Fenced: another owner has the tree.
            Conflict: a row was not as an operation requires.
            MailboxError: a message is not accepted; the envelope is attached.
            UnknownPath: no such agent.
            UsageError: the set breaks the rules of change sets, or a key was used for another body.
            Unavailable: the disk is full, read-only, failing or busy; nothing was written.
            InDoubt: an `Unavailable` of which the store cannot say whether the set was written; every other error says
            that nothing was.

        If cancelled: never raises `Cancelled`. The commit goes on to its end and its outcome is returned or raised;
        the cancellation comes at the caller's next checkpoint (ACC-2).

        Durable: when it returns, the set survives a crash of the process and a loss of power (in memory: of neither).
        """
        ...

    def new_holder(self) -> Holder:
        """A new owner of trees, as this store tells one from another; each supervisor makes its own."""
        ...

    async def own(self, tree: TreeId, holder: Holder) -> int:
        """Take ownership of a tree, known or new; every earlier owner is fenced off (SUP-6).

        Args:
            tree: which.
            holder: who takes it, with the lease that begins or is renewed now.

        Returns:
            The epoch for this owner's change sets: higher than any before, or the same where it has the tree already.

        Raises:
            OwnedElsewhere: another has it, whose lease is not over and who is not known to be gone.

        If cancelled: as for `commit`.

        Durable: the new epoch.
        """
        ...

    async def renew(self, holder: Holder) -> dict[TreeId, int] | None:
        """Keep a lease, and show that the holder lives: where it lost a tree, that was no crash (SUP-6, CON-6).

        What that costs does not grow with the number of trees, unless one was taken.

        Returns:
            None: it has what it had. Else, as another took a tree of its, those that it still has, each with its epoch.

        If cancelled: as for `commit`.
        """
        ...

    async def release(self, holder: Holder, trees: tuple[TreeId, ...] | None = None) -> None:
        """Give trees back (None: all), so that another may take them at once; the holder writes nothing more there.

        If cancelled: as for `commit`.
        """
        ...

    async def cross(self, holder: Holder, waits: tuple[Crossing, ...]) -> tuple[Published, ...]:
        """Publish the open waits of a process, in place of those it had published, and read everybody's (REE-5).

        Those of a holder whose lease is over, or who is gone, are not among them.

        If cancelled: as for `commit`.
        """
        ...

    def statistics(self) -> StoreStatistics:
        """What it has done so far."""
        ...
