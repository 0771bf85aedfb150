"""A process that dies at its n-th moment, its store and its model."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar, final

import attrs
import trio

from actors import AttemptDiscarded, RequestFailed, RequestStarted, ResponseEnded, TextDelta
from actors.changes import Claim, Enqueue, Move
from actors.errors import InDoubt, Unavailable
from supervisor.store.faults import PassingStore
from tests.points.outside import Effect, Outside
from tests.points.table import Moment, Phase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors import Context, Event
    from actors.changes import ChangeSet, Operation, Values
    from actors.ids import TreeId
    from actors.models.script import Script
    from actors.ports import Emit, ModelRequest, Piece, Response
    from supervisor.store.base import Store, StoreStatistics, Then
    from supervisor.store.crossing import Crossing, Published
    from supervisor.store.leases import Holder

T = TypeVar("T")


class GoneError(Exception):
    """The process is dead; nothing it does is real."""


class Fault(enum.StrEnum):
    """How an operation of the store fails."""

    BEFORE = "before"
    """Nothing is done, and that is told."""
    AFTER = "after"
    """It is done, and nobody can say so."""
    LOST = "lost"
    """It is not done, and nobody can say so."""


@attrs.frozen
class Failing:
    """Operation `at` of the store, counted from 1, reads too, fails; `forever`: every one from there on."""

    at: int
    fault: Fault
    forever: bool = False

    def hits(self, number: int) -> bool:
        """Whether this operation fails."""
        return number == self.at or (self.forever and number > self.at)


@attrs.define(eq=False)
class Stretch:
    """Moments of one process, one behind the other, between which nothing was written and nothing happened outside.

    Whichever of them it dies at, the next process finds the same, and does the same.

    Attributes:
        first: the number of the first of them. mark: what was written and had happened.
        bare: that is nothing, so it leaves what it found.
    """

    first: int
    mark: tuple[object, ...]
    bare: bool
    moments: list[Moment] = attrs.field(factory=list)


@attrs.define(eq=False)
class Process:
    """One process. It dies at moment `at`, counted from 1; 0: at none.

    Attributes:
        failing: what its store does not do. operations: how many its store was asked for. failed: how many of them did.
        settles: what failed was a commit that was written, and that a message tells of: nobody need hear of it.
        writes: the numbers of those that write.
        seen: the moments it came to; stretches: the same, by what it would leave. written: how much it wrote.
        dead: nothing it does counts any more.
    """

    outside: Outside
    at: int = 0
    failing: Failing | None = None
    operations: int = 0
    failed: int = 0
    settles: bool = False
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    writes: set[int] = attrs.field(factory=set)
    seen: list[Moment] = attrs.field(factory=list)
    stretches: list[Stretch] = attrs.field(factory=list)
    written: int = 0
    dead: bool = False
    _found: tuple[object, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Remember what it finds."""
        self._found = (0, *self.outside.mark())

    def reach(self, phase: Phase, labels: frozenset[str]) -> bool:
        """Come to a moment. Returns whether the process lives on."""
        if self.dead:
            return False
        moment = Moment(phase, labels)
        self.seen.append(moment)
        mark = (self.written, *self.outside.mark())
        if not self.stretches or self.stretches[-1].mark != mark:
            self.stretches.append(Stretch(len(self.seen), mark, mark == self._found))
        self.stretches[-1].moments.append(moment)
        if len(self.seen) == self.at:
            self.die()
        return not self.dead

    def operation(self) -> Fault | None:
        """The store is asked for something. Returns how that fails, or None."""
        self.operations += 1
        if self.failing is None or not self.failing.hits(self.operations):
            return None
        self.failed += 1
        return self.failing.fault

    def die(self) -> None:
        """Here and now."""
        self.dead = True
        self.outside.hits.append(self.seen[-1])
        self.scope.cancel()

    def passes(self, edge: str) -> None:
        """Come to an edge of something outside, in sync code.

        Raises:
            GoneError: it died.
        """
        if not self.reach(Phase.AT, frozenset((edge,))):
            raise GoneError(edge)

    async def enter(self, ctx: Context, effect: str) -> None:
        """A tool's body is entered, and has its effect."""
        self.passes("tool:entry")
        self.outside.works(ctx.agent)
        self.outside.effects.append(Effect(ctx.call_id, effect, ctx.idempotency_key))
        self.passes("tool:inside")


@final
class Viewer:
    """Who shows text as it comes, of one process; it stands on its board (REC-3)."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.path = ""

    def offer(self, numbered: tuple[int, Event]) -> None:
        """Hear of an event."""
        if self._process.dead:
            return
        half, event = self._process.outside.half, numbered[1]
        match event:
            case TextDelta():
                half.add(event.path)
            case ResponseEnded() | AttemptDiscarded() | RequestFailed():
                half.discard(event.path)
            case RequestStarted() if event.path in half:
                self._process.outside.problems.append(f"REC-3: watchers of {event.path} still show half a response")
            case _:
                pass

    def settle(self) -> None:
        """It follows for ever."""

    def end(self) -> None:
        """Nothing more comes."""


@final
class MortalStore(PassingStore):
    """The store as one process has it."""

    def __init__(self, store: Store, process: Process) -> None:
        self._process = process
        super().__init__(store)
        self.holder: Holder | None = None

    @property
    def id(self) -> str:
        return self.bare.id

    @property
    def _store(self) -> Store:
        """The bare one; a dead process reads nothing."""
        self._alive()
        if self._process.operation() is not None:
            _fail(Fault.BEFORE)
        return self.bare

    @_store.setter
    def _store(self, store: Store) -> None:
        self.bare = store

    async def commit(self, change_set: ChangeSet, then: Then | None = None) -> Values:
        outside = self._process.outside
        labels = outside.labels.of(change_set)

        async def write() -> Values:
            values = await self.bare.commit(change_set)
            outside.written(change_set)
            return values

        values = await self._does(labels, write, telling=any(map(_tells, change_set.operations)))
        if then is not None:
            then(values)
        return values

    def new_holder(self) -> Holder:
        self.holder = self.bare.new_holder()
        return self.holder

    async def own(self, tree: TreeId, holder: Holder) -> int:
        return await self._does(_OWN, lambda: self.bare.own(tree, holder))

    async def renew(self, holder: Holder) -> dict[TreeId, int] | None:
        return await self._does(_RENEW, lambda: self.bare.renew(holder))

    async def release(self, holder: Holder, trees: tuple[TreeId, ...] | None = None) -> None:
        await self._does(_RELEASE, lambda: self.bare.release(holder, trees))

    async def cross(self, holder: Holder, waits: tuple[Crossing, ...]) -> tuple[Published, ...]:
        return await self._does(frozenset(), lambda: self.bare.cross(holder, waits))

    def statistics(self) -> StoreStatistics:
        return self.bare.statistics()

    async def _does(self, labels: frozenset[str], write: Callable[[], Awaitable[T]], *, telling: bool = False) -> T:
        """Write something, where the process lives before and behind it, and nothing fails."""
        self._process.reach(Phase.BEFORE, labels)
        self._alive()
        fault = self._process.operation()
        self._process.writes.add(self._process.operations)
        self._process.settles |= fault is Fault.AFTER and telling
        if fault in (Fault.BEFORE, Fault.LOST):
            _fail(fault)
        value = await write()
        self._process.written += 1
        self._process.reach(Phase.AFTER, labels)
        self._alive()
        if fault is not None:
            _fail(fault)
        return value

    def _alive(self) -> None:
        if self._process.dead:
            msg = "the process is dead"
            raise Unavailable(msg)


def _tells(operation: Operation) -> bool:
    """Whether a message tells if a set with this operation was written."""
    match operation:
        case Enqueue():
            return True
        case Claim(messages=messages) | Move(messages=messages):
            return bool(messages)
        case _:
            return False


_OWN: Final = frozenset(("own",))
_RENEW: Final = frozenset(("renew",))
_RELEASE: Final = frozenset(("release",))


def _fail(fault: Fault) -> NoReturn:
    text = f"an injected fault: {fault}"
    raise Unavailable(text) if fault is Fault.BEFORE else InDoubt(text)


@final
class MortalModel:
    """A model that is asked by a process that may die meanwhile."""

    def __init__(self, script: Script, process: Process) -> None:
        self._script = script
        self._process = process
        self.id, self.name, self.free, self.context_window = "paid:m", "m", False, None

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        """Answer, if the process lives so long."""
        process, agent = self._process, request.agent
        process.passes("model:start")
        process.outside.works(agent)
        process.outside.asks(request)
        process.outside.asked[agent] += 1
        process.passes("model:sent")
        first = True

        def emitted(piece: Piece) -> None:
            nonlocal first
            emit(piece)
            if first:
                first = False
                process.passes("model:first")

        answer = await self._script.request(request, emitted)
        if not process.dead and answer.usage is not None:
            process.outside.output[agent] += answer.usage.output or 0
        process.passes("model:end")
        return answer
