"""What the tests of promises share: one store that outlives supervisors, and a spy on its commits."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from actors import Agent, MessageConsumed, Script, Text, TurnEnded
from actors.changes import Claim, Enqueue
from actors.errors import Unavailable
from actors.ids import MessageId, tree_of
from actors.messages import ReceiptState
from actors.transcript import MessageRecord, ResponseRecord, ResultRecord, entered, problems
from supervisor import AgentRef, Supervisor, open_supervisor
from supervisor.store.base import Store, Then
from supervisor.store.faults import PassingStore
from supervisor.store.memory import open_memory_store
from supervisor.store.sqlite import open_sqlite_store
from supervisor.stores import check_store_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from actors import Event
    from actors.changes import AgentRow, ChangeSet, Values
    from actors.transcript import Record
    from actors.watching import Subscription
    from supervisor.store.base import Reader

EVERY_STATE: Final = tuple(state for state in ReceiptState if state not in (ReceiptState.PENDING, ReceiptState.REFUSED))


async def _nothing(_: ChangeSet) -> None:
    """What a spy does unless it is told otherwise."""


class Spy(PassingStore):
    """A store that lists the change sets of another, and lets a test stand between.

    Attributes:
        sets: those that were written. refuse: those for which it is true are not written, and fail.
        before, after: awaited around each commit, shielded, as a commit is.
        commits: how many were asked for.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.sets: list[ChangeSet] = []
        self.commits = 0
        self.refuse: Callable[[ChangeSet], bool] = lambda _: False
        self.before: Callable[[ChangeSet], Awaitable[None]] = _nothing
        self.after: Callable[[ChangeSet], Awaitable[None]] = _nothing

    async def commit(self, change_set: ChangeSet, then: Then | None = None) -> Values:
        self.commits += 1
        with trio.CancelScope(shield=True):
            await self.before(change_set)
        if self.refuse(change_set):
            msg = "the disk is full"
            raise Unavailable(msg)
        values = await self._store.commit(change_set)
        self.sets.append(change_set)
        with trio.CancelScope(shield=True):
            await self.after(change_set)
        if then is not None:
            then(values)
        return values

    def with_op(self, kind: type) -> list[ChangeSet]:
        """The sets that hold an operation of a kind."""
        return [one for one in self.sets if has(one, kind)]


def has(change_set: ChangeSet, kind: type, where: Callable[[Any], bool] = lambda _: True) -> bool:
    """Whether a set holds such an operation."""
    return any(isinstance(operation, kind) and where(operation) for operation in change_set.operations)


def ops(change_set: ChangeSet, kind: type) -> list[Any]:
    """The operations of a kind."""
    return [operation for operation in change_set.operations if isinstance(operation, kind)]


def enqueues(text: str) -> Callable[[ChangeSet], bool]:
    """Whether a set accepts a message of this text."""

    def check(change_set: ChangeSet) -> bool:
        return has(change_set, Enqueue, lambda operation: operation.envelope.content == (Text(text),))

    return check


@attrs.define(eq=False)
class World:
    """A store, in memory or in a file, and the supervisors opened over it, one after another.

    Attributes:
        spy: between the store and the supervisor that was opened last.
        checked: whether the file is checked each time it is closed.
    """

    kind: str
    path: Path
    checked: bool = attrs.field(default=True, kw_only=True)
    spy: Spy = attrs.field(init=False)
    _memory: Store | None = None

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        """The bare store."""
        if self.kind == "memory":
            self._memory = self._memory or open_memory_store(store_id="s")
            yield self._memory
            return
        file = self.path / "agents.db"
        async with open_sqlite_store(file, owner="a test", inline=True, lease_s=None) as store:
            yield store
        if self.checked:  # whatever a life was, what it leaves is clean
            found = [str(violation) for violation in check_store_file(file)]
            assert not found, "\n".join(found)

    @asynccontextmanager
    async def open(
        self, model: object, *, wrap: Callable[[Store], Store] | None = None, threads: bool = False, **options: Any
    ) -> AsyncIterator[Supervisor]:
        """A supervisor over it; `wrap` goes between the spy and the store. `threads`: sync tools run in threads."""
        model = Script(model) if isinstance(model, dict) else model
        async with self.store() as store:
            self.spy = Spy(store if wrap is None else wrap(store))
            whole = False
            async with open_supervisor(model=model, store=self.spy, inline=not threads, **options) as sup:  # type: ignore[arg-type]  # any model
                yield sup
                whole = True
            # A cancellation that escapes inside would end the body without a word, and its assertions with it.
            assert whole or trio.current_effective_deadline() == float("-inf"), "the body was cut off in silence"


# -- watching --------------------------------------------------------------------------------------------------------


class Log:
    """All events of a supervisor until now."""

    def __init__(self, watcher: Subscription) -> None:
        self._watcher = watcher

    @property
    def events(self) -> list[Event]:
        """In the order emitted; none is taken."""
        return [event for _, event in self._watcher._events]

    def of(self, kind: type, path: str | None = None) -> list[Any]:
        """Those of a kind."""
        return [event for event in self.events if isinstance(event, kind) and path in (None, event.path)]

    def consumed(self, path: str) -> list[MessageId]:
        """The messages that entered an agent's conversation, in order."""
        return [event.message for event in self.of(MessageConsumed, path)]

    def statuses(self, path: str) -> list[str]:
        """How its turns ended."""
        return [event.outcome.status.value for event in self.of(TurnEnded, path)]


@asynccontextmanager
async def watched(sup: Supervisor) -> AsyncIterator[Log]:
    """Watch everything from now on."""
    async with sup.events(after="now") as watcher:
        yield Log(watcher)


# -- reading ---------------------------------------------------------------------------------------------------------


def texts(records: tuple[Record, ...] | list[Record]) -> list[str]:
    """A conversation in short: `<` what was asked, `>` what was said, `=` results, `!` notes."""
    shown = []
    for record in records:
        match record:
            case MessageRecord(content=content):
                shown.append("<" + said(content))
            case ResultRecord(content=content, status=status):
                shown.append(f"={status.value}:{said(content)}")
            case ResponseRecord():
                calls = "".join(f" {block.name}()" for block in record.calls)
                shown.append(">" + record.text + calls)
            case _:
                shown.append("!" + record.text)
    return shown


def said(content: object) -> str:
    """The text of a content."""
    return "".join(part.text for part in content if isinstance(part, Text))  # type: ignore[attr-defined]  # of any parts


async def messages(store: Reader, agent: str) -> dict[str, ReceiptState]:
    """Every message that an agent was ever sent, with where it is, in order of acceptance."""
    found = await store.messages(agent, EVERY_STATE)  # type: ignore[arg-type]  # paths are text here
    return {said(one.envelope.content) or one.envelope.purpose.value: one.state for one in found}


async def quiet(ticks: int = 20) -> None:
    """Let everything run that can run now."""
    for _ in range(ticks):
        await trio.testing.wait_all_tasks_blocked()


async def until(condition: Callable[[], object]) -> None:
    """Wait, without time passing, until something holds."""
    for _ in range(10_000):
        if condition():
            return
        await trio.lowlevel.checkpoint()
    msg = "it never came to hold"
    raise AssertionError(msg)


# -- invariants ------------------------------------------------------------------------------------------------------


async def check(store: Reader) -> None:
    """What holds of a store whatever happened: valid conversations, each message in one place (CON-4, ACC-8)."""
    rows: list[AgentRow] = []
    for root in await store.roots():
        rows += await store.tree_rows(tree_of(root.agent))
    working = set(await store.agents_with_work())
    for row in rows:
        await _check_agent(store, row, works=row.agent in working)


async def _check_agent(store: Reader, row: AgentRow, *, works: bool) -> None:
    records = await store.read_records(row.agent)
    found = problems(records)
    if row.open is not None:  # its batch is owed, and stands last
        found = [problem for problem in found if not problem.startswith("at the end")]
    assert not found, (row.agent, found, texts(records))
    inside_now = entered(records)
    assert len(set(inside_now)) == len(inside_now), f"{row.agent}: a message entered twice: {inside_now}"
    queued = False
    for one in await store.messages(row.agent, EVERY_STATE):
        inside = one.envelope.id in inside_now
        assert inside == (one.state is ReceiptState.CONSUMED) or not one.envelope.content, (row.agent, one)
        queued |= one.state is ReceiptState.QUEUED
    if queued or row.open is not None:
        assert works, f"{row.agent} has work that a restart would not find"


# -- shorthand -------------------------------------------------------------------------------------------------------


def agent(name: str = "a", **options: Any) -> Agent:
    """An agent."""
    return Agent(name, f"You are {name}.", **options)


async def started(sup: Supervisor, spec: Agent, task: object = None, **options: Any) -> AgentRef:
    """Start it, without a task unless one is given."""
    return await sup.start(spec, task, **options)


def claims(change_set: ChangeSet) -> list[tuple[MessageId, ...]]:
    """What a set takes out of mailboxes."""
    return [operation.messages for operation in ops(change_set, Claim)]
