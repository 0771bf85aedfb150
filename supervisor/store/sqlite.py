"""A store in one SQLite file: durable, written by the processes of one machine, read by any.

Two threads serve it: one writes in groups (`sqlite_writer`), one reads (`sqlite_reads`). With `inline=True` both run
on the caller's thread instead, for tests under a virtual clock, where a thread would let timeouts fire.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, cast

import outcome
import trio

from actors.errors import Corrupt, Unavailable, UsageError

from .base import PAGE, StoreStatistics
from .leases import LEASE_S, Lease
from .sqlite_file import (
    DURABILITIES,
    Owner,
    existing,
    open_reader,
    open_writer,
    refuse_strangers,
    resolved,
    several_may_write,
)
from .sqlite_machine import boot_seconds, new_holder
from .sqlite_owners import Look, cross, found, release, renew, take
from .sqlite_reads import Reads, damaged
from .sqlite_thread import Thread
from .sqlite_turn import Turnstile
from .sqlite_writer import Writer

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from actors.changes import AgentRow, CallRow, ChangeSet, KvRow, OutcomeRow, Values
    from actors.ids import AgentId, MessageId, TreeId, TurnId
    from actors.messages import DeadLetter, Queued, ReceiptState
    from actors.transcript import Record

    from .base import MessageView, StoredAgent, Then
    from .crossing import Crossing, Published
    from .leases import Holder
    from .sqlite_owners import Owning
    from .sqlite_thread import Result

CLOSE_S: Final = 30.0
"""How long a close waits for a commit under way; a disk that takes longer is reported."""


class SqliteReader:
    """The reads of a store, on a thread of their own, or on the caller's where `thread` is None."""

    def __init__(self, reads: Reads, *, inline: bool) -> None:
        self._reads = reads
        # under a virtual clock leases run out on that, too
        self._clock = trio.current_time if inline else boot_seconds
        self._inline = inline
        self._closed = False
        self._thread: Thread[Callable[[], Any]] | None = (
            None if inline else Thread("callboard-reads", _each, last=reads.close)
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._reads.id}{' closed' if self._closed else ''}>"

    @property
    def id(self) -> str:
        """The random name of the store, and the file that it is in."""
        return self._reads.id

    async def load_agent(self, agent: AgentId) -> StoredAgent | None:
        """Read an agent, as `Reader.load_agent`."""
        found: StoredAgent | None = await self._read(lambda: self._reads.load_agent(agent))
        return found

    async def read_records(self, agent: AgentId, start: int = 0, stop: int | None = None) -> tuple[Record, ...]:
        """Read records, as `Reader.read_records`."""
        found: tuple[Record, ...] = await self._read(lambda: self._reads.read_records(agent, start, stop))
        return found

    async def outcome(self, turn: TurnId) -> OutcomeRow | None:
        """Read how a turn ended, as `Reader.outcome`."""
        found: OutcomeRow | None = await self._read(lambda: self._reads.outcome(turn))
        return found

    async def message_state(self, message: MessageId) -> MessageView | None:
        """Read where a message is, as `Reader.message_state`."""
        found: MessageView | None = await self._read(lambda: self._reads.message_state(message))
        return found

    async def find_key(self, parent: str, key: str) -> AgentId | None:
        """Find the child started under a key, as `Reader.find_key`."""
        found: AgentId | None = await self._read(lambda: self._reads.find_key(parent, key))
        return found

    async def agents_with_work(self) -> tuple[AgentId, ...]:
        """Find the agents with work, as `Reader.agents_with_work`."""
        found: tuple[AgentId, ...] = await self._read(self._reads.agents_with_work)
        return found

    async def awaiting_calls(self) -> tuple[CallRow, ...]:
        """Find the calls that wait for a decision, as `Reader.awaiting_calls`."""
        found: tuple[CallRow, ...] = await self._read(self._reads.awaiting_calls)
        return found

    async def children(self, parent: AgentId) -> tuple[AgentRow, ...]:
        """Read the agents right below one, as `Reader.children`."""
        found: tuple[AgentRow, ...] = await self._read(lambda: self._reads.children(parent))
        return found

    async def tree_rows(self, tree: TreeId) -> tuple[AgentRow, ...]:
        """Read a tree's agents, as `Reader.tree_rows`."""
        found: tuple[AgentRow, ...] = await self._read(lambda: self._reads.tree_rows(tree))
        return found

    async def roots(self, *, after: AgentId | None = None, limit: int = PAGE) -> tuple[AgentRow, ...]:
        """Read root agents, as `Reader.roots`."""
        found: tuple[AgentRow, ...] = await self._read(lambda: self._reads.roots(after, limit))
        return found

    async def kv(self, agent: AgentId, scope: str) -> tuple[KvRow, ...]:
        """Read a key-value scope, as `Reader.kv`."""
        found: tuple[KvRow, ...] = await self._read(lambda: self._reads.kv(agent, scope))
        return found

    async def messages(
        self, agent: AgentId, states: tuple[ReceiptState, ...], *, after: int = 0, limit: int = PAGE
    ) -> tuple[Queued, ...]:
        """Read an agent's messages, as `Reader.messages`."""
        found: tuple[Queued, ...] = await self._read(
            lambda: self._reads.messages(agent, states, after=after, limit=limit)
        )
        return found

    async def dead_letters(self, agent: AgentId | None = None, *, limit: int = PAGE) -> tuple[DeadLetter, ...]:
        """Read dead letters, as `Reader.dead_letters`."""
        found: tuple[DeadLetter, ...] = await self._read(lambda: self._reads.dead_letters(agent, limit))
        return found

    async def news(self, after: int) -> tuple[int, tuple[AgentId, ...]]:
        """Find which agents got messages, as `Reader.news`."""
        found: tuple[int, tuple[AgentId, ...]] = await self._read(lambda: self._reads.news(after))
        return found

    async def lease(self, tree: TreeId) -> Lease | None:
        """Read who has a tree, as `Reader.lease`."""
        found: Lease | None = await self._read(lambda: self._reads.lease(tree, self._clock))
        return found

    async def version(self) -> int:
        """Whether anything was committed, as `Reader.version`."""
        found: int = await self._read(self._reads.version)
        return found

    async def close(self) -> None:
        """Close it, as `Reader.close`."""
        if self._closed:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        self._closed = True
        if self._thread is None:
            self._reads.close()
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await self._thread.close()

    async def _read(self, read: Callable[[], Any]) -> Any:
        self._check_open()
        try:
            if self._thread is not None:
                return await self._thread.do(read, given_up=True)
            await trio.lowlevel.checkpoint()
            return read()
        except Corrupt as error:
            raise damaged(self._reads.path, error) from None

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the store is closed; open it again")


def _each(reads: list[Callable[[], Any]]) -> list[Result]:
    return [outcome.capture(read) for read in reads]


class SqliteStore(SqliteReader):
    """A `Store` in a SQLite file; the same invariants as `Store`.

    Rows are encoded in the writer's thread. With a hundred callers that carries out a tenth to a half more sets a
    second than encoding on the caller's side: the two threads then do not contend for Python, and groups are larger.
    """

    def __init__(
        self, writer: Writer, reads: Reads, *, inline: bool, command: str = "", lease_s: float | None = LEASE_S
    ) -> None:
        super().__init__(reads, inline=inline)
        self._writer = writer
        self._command = command
        self._lease_s = lease_s
        self._writes: Thread[ChangeSet | Owning | Look] | None = (
            None if inline else Thread("callboard-writes", writer.write, last=writer.close)
        )

    async def commit(self, change_set: ChangeSet, then: Then | None = None) -> Values:
        """Write a change set, as `Store.commit`."""
        one = change_set if change_set.founder is None else found(change_set, self._clock)
        if self._writes is None or self._closed:
            return await self._write(one, then)
        values: Values = await self._writes.do(one, then=then)  # one coroutine less, of the most frequent
        return values

    def commit_nowait(self, change_set: ChangeSet) -> Values:
        """Write a change set from synchronous code; for a store opened with `inline=True` only."""
        self._check_open()
        assert self._inline, "commit_nowait would block the event loop: open the store with inline=True"
        return cast("Values", self._writer.write([change_set])[0].unwrap())

    def new_holder(self) -> Holder:
        """A new owner of trees, as `Store.new_holder`."""
        return new_holder(self._command, lease_s=self._lease_s)

    async def own(self, tree: TreeId, holder: Holder) -> int:
        """Take ownership of a tree, as `Store.own`."""
        (epoch,) = await self._write(take(tree, holder, self._clock))
        assert isinstance(epoch, int)
        return epoch

    async def renew(self, holder: Holder) -> dict[TreeId, int] | None:
        """Keep a lease, as `Store.renew`."""
        (held,) = await self._write(renew(holder, self._clock))
        return None if held is None else dict(cast("tuple[tuple[TreeId, int], ...]", held))

    async def release(self, holder: Holder, trees: tuple[TreeId, ...] | None = None) -> None:
        """Give trees back, as `Store.release`."""
        await self._write(release(holder, trees))

    async def cross(self, holder: Holder, waits: tuple[Crossing, ...]) -> tuple[Published, ...]:
        """Publish open waits, as `Store.cross`."""
        (found,) = await self._write(cross(holder, waits, self._clock))
        return cast("tuple[Published, ...]", found)

    async def version(self) -> int:
        """Whether another process has committed; what this one does changes nothing, as its writer knows."""
        (found,) = await self._write(Look())
        assert isinstance(found, int)
        return found

    async def _write(self, one: ChangeSet | Owning | Look, then: Then | None = None) -> Values:
        self._check_open()
        if self._writes is not None:
            return cast("Values", await self._writes.do(one, then=then))
        await trio.lowlevel.cancel_shielded_checkpoint()
        values = cast("Values", self._writer.write([one])[0].unwrap())
        if then is not None:
            then(values)
        return values

    def statistics(self) -> StoreStatistics:
        """What it has done so far."""
        writer = self._writer
        return StoreStatistics(writer.commits, writer.refused, writer.flushes, writer.bytes_encoded)

    async def close(self) -> None:
        """Close it: commits under way are finished first."""
        first = not self._closed
        await super().close()
        if self._writes is not None:
            await self._writes.close()
        elif first:
            self._writer.close()


@contextlib.asynccontextmanager
async def open_sqlite_store(
    path: str | os.PathLike[str],
    *,
    owner: str,
    durability: str = "full",
    inline: bool = False,
    lease_s: float | None = LEASE_S,
) -> AsyncIterator[SqliteStore]:
    """Open a store in a SQLite file, made where it is not there; other processes may have it open, too.

    Args:
        path: the file. Beside it stand its log (`-wal`, `-shm`) and two locks (`-owner`, `-queue`).
        owner: what this process is, for the message to another that wants one of its trees: its command line.
        durability: `full`: what was acknowledged survives a loss of power. `normal` is faster and gives that up: the
            last commits may be lost with the power, also that a `once` tool had started. In doubt, leave it.
        inline: no threads; for tests under a virtual clock.
        lease_s: seconds that a supervisor keeps its trees without renewing its lease; None: until it gives them back.

    Raises:
        OwnedElsewhere: another process has it, and one of the two has a SQLite that may not write beside others.
        UsageError: the path is no file name, or there is no such durability.
        Corrupt: the file is no store. NewerSchema: a newer callboard wrote it.
        Unavailable: the path is a folder, there is no such folder, or it cannot be written.

    If cancelled: it is closed first; commits under way are finished.
    """
    if durability not in DURABILITIES:
        raise UsageError(f"durability= is one of {', '.join(DURABILITIES)}; got {durability!r}")
    file = resolved(path)
    lock, writer, reads = await _in_thread(lambda: _opened(file, owner, durability), inline=inline)
    store = SqliteStore(writer, reads, inline=inline, command=owner, lease_s=lease_s)
    try:
        yield store
    finally:
        await _closed(store, file)  # noqa: ASYNC102 - it is bounded where it waits, or does not wait at all
        lock.release()


def _opened(file: Path, owner: str, durability: str = "full") -> tuple[Owner, Writer, Reads]:
    refuse_strangers(file)
    lock = Owner.take(file, owner, alone=not several_may_write())
    try:
        turnstile = Turnstile(file)
        try:
            with turnstile:  # one at a time: two that found no schema would both make it
                db = open_writer(file, durability)
        except BaseException:
            turnstile.close()
            raise
        writer = Writer(file.name, db, turnstile, helped=several_may_write())
        try:
            return lock, writer, Reads(file.name, open_reader(file))
        except BaseException:
            writer.close()
            raise
    except BaseException:
        lock.release()
        raise


@contextlib.asynccontextmanager
async def open_sqlite_reader(path: str | os.PathLike[str], *, inline: bool = False) -> AsyncIterator[SqliteReader]:
    """Open a store for reading, also while another process owns it.

    Args:
        path: the file.
        inline: no threads; for tests under a virtual clock.

    Raises:
        UsageError: the path is no file name.
        Corrupt: the file is no store. NewerSchema: a newer callboard wrote it.
        Unavailable: there is no such store, it is a folder, or it cannot be read.
    """
    file = existing(path)
    reads = await _in_thread(lambda: Reads(file.name, open_reader(file)), inline=inline)
    reader = SqliteReader(reads, inline=inline)
    try:
        yield reader
    finally:
        await _closed(reader, file)  # noqa: ASYNC102 - it is bounded where it waits, or does not wait at all


async def _in_thread(work: Callable[[], Any], *, inline: bool) -> Any:
    """Open files away from the event loop; what was opened is never lost to a cancellation."""
    if inline:
        await trio.lowlevel.checkpoint()
        return work()
    return await trio.to_thread.run_sync(work)


async def _closed(store: SqliteReader, file: Path) -> None:
    with trio.move_on_after(CLOSE_S, shield=True) as scope:
        await store.close()
    if scope.cancelled_caught:
        msg = f"store {file}: the disk has not answered for {CLOSE_S:.0f} s; what was under way may still be written"
        raise Unavailable(msg)
