"""What code writes beside a commit: kept until it lands with it, or vanishes (HOK-3, TOL-3).

A stage belongs to a hook that writes beside a commit, or to a `store` call. What it holds are operations, and what is
to become true in memory as they land: agents that were started, receipts of what was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

import attrs
import trio

from actors.changes import AgentRow, Enqueue, Erase, KvRow, Operation, Put
from actors.errors import UsageError
from actors.ids import AgentId, MessageId
from actors.messages import ReceiptState

from .knots import within

if TYPE_CHECKING:
    from actors.changes import Value, Values
    from actors.frames import Frames
    from actors.ids import CallId
    from actors.kv import KvHost
    from actors.ref import Receipt


@attrs.frozen
class Birth:
    """An agent that is about to be committed.

    Attributes:
        task: id of its first message, or None. row: as it is committed.
        operations: that make it. born: makes it true in memory; called as it lands. undone: it came to nothing.
    """

    path: AgentId
    task: MessageId | None
    row: AgentRow
    operations: tuple[Operation, ...]
    born: Callable[[], None]
    undone: Callable[[], None]


@final
class Stage:
    """Writes that land with a commit, or not at all.

    Invariants:
        STAGE-1 once it has ended, nothing is added to it.
        STAGE-2 its births and receipts become true as it lands, or are undone; one of the two, once.

    Args:
        host: reads what is in the store.
        what: whose it is, for messages.
    """

    def __init__(self, host: KvHost, what: str) -> None:
        self._host = host
        self._what = what
        self._open = True
        self.operations: list[Operation] = []
        self.births: dict[AgentId, Birth] = {}
        self.receipts: dict[MessageId, Receipt] = {}
        self.agent: AgentId = host.agent

    async def read_kv(self, scope: str) -> dict[str, str]:
        """The values of a scope, with what was staged."""
        values = await self._host.read_kv(scope)
        for operation in self.operations:
            match operation:
                case Put(row=KvRow(scope=where, key=key, value=value)) if where == scope:
                    values[key] = value
                case Erase(prefix=(_, where, key)) if where == scope:
                    values.pop(key, None)
                case _:
                    pass
        return values

    async def write_kv(self, operations: tuple[Operation, ...]) -> None:
        """Stage values."""
        await trio.lowlevel.checkpoint()
        self.add(*operations)

    def add(self, *operations: Operation) -> None:
        """Stage operations.

        Raises:
            UsageError: it has ended.
        """
        if not self._open:
            raise UsageError(f"what {self._what} writes lands beside a commit; {self._what} is over")
        self.operations += operations

    def bear(self, birth: Birth) -> None:
        """Stage an agent."""
        if not self._open:
            birth.undone()
        self.add(*birth.operations)
        self.births[birth.path] = birth

    def sent(self, operation: Enqueue, receipt: Receipt) -> None:
        """Stage a message."""
        self.add(operation)
        receipt.staged = True
        self.receipts[receipt.id] = receipt

    def end(self) -> tuple[Operation, ...]:
        """Nothing is added any more. Returns what it holds."""
        self._open = False
        return tuple(self.operations)

    def land(self) -> None:
        """Its operations are durable: who was started is here."""
        for birth in self.births.values():
            birth.born()
        self.births = {}

    def vanish(self, why: str) -> None:
        """Its operations will not be written."""
        self._open = False
        for birth in self.births.values():
            birth.undone()
        for receipt in self.receipts.values():
            receipt.decide(ReceiptState.REFUSED, UsageError(f"{receipt.id} was never sent: {why}"))
        self.births, self.receipts, self.operations = {}, {}, []


def _of_call(operation: Operation, call: CallId) -> bool:
    """Whether it writes to the call's own store, which is erased as it lands (HOK-4)."""
    match operation:
        case Put(row=KvRow(scope=scope)) | Erase(prefix=(_, scope, _)):
            return scope == call
        case _:
            return False


@final
class Staging:
    """The stages of all `store` calls of one supervisor.

    Invariants:
        STAGING-1 a stage stands here from its call's start until it has landed or vanished.
    """

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._stages: dict[CallId, Stage] = {}

    def open(self, host: KvHost, call: CallId, name: str) -> Stage:
        """The stage of a `store` call that starts."""
        stage = self._stages[call] = Stage(host, f"the call of {name!r} ({call})")
        return stage

    def of(self, call: CallId) -> Stage | None:
        """The stage of a call, if it has one."""
        return self._stages.get(call)

    def here(self) -> Stage | None:
        """The stage of the `store` call whose code runs now, or None."""
        if not self._stages:
            return None
        frame = self._frames.current_owner()
        return None if frame is None or frame.call is None else self._stages.get(frame.call)

    def may_not_wait(self, verb: str) -> None:
        """Refuse to wait inside of a `store` call: what it sends and starts is there only behind its result.

        Raises:
            UsageError: a `store` call's code runs now.
        """
        if self.here() is not None:
            raise UsageError(
                f"a tool with effect='store' may not {verb}: what it sends and starts lands with its result, so"
                " nothing could come of the wait; return first, or make it effect='once' or 'idempotent'"
            )

    def birth(self, path: AgentId) -> Birth | None:
        """The agent of a path that is staged.

        Raises:
            UsageError: another call staged it, and has not settled.
        """
        for call, stage in self._stages.items():
            found = stage.births.get(path)
            if found is not None and stage is self.here():
                return found
            if found is not None:
                raise UsageError(f"the key of {path} was used by {call}, which has not settled; use it afterwards")
        return None

    def bears(self, path: AgentId) -> bool:
        """Whether agents at or below a path are staged."""
        return any(within(birth, path) for stage in self._stages.values() for birth in stage.births)

    # -- landing ---------------------------------------------------------------------------------------------------

    def landing(self, operations: tuple[Operation, ...]) -> tuple[Stage, ...]:
        """The stages that a commit carries."""
        if not self._stages:
            return ()
        carried = {id(operation) for operation in operations}
        return tuple(s for s in self._stages.values() if s.operations and id(s.operations[0]) in carried)

    def landed(
        self,
        stages: tuple[Stage, ...],
        operations: tuple[Operation, ...],
        values: Values,
        place: Callable[[Receipt, Value], Receipt],
    ) -> None:
        """The commit has returned: receipts hear where their messages stand."""
        placed = {
            operation.envelope.id: value
            for operation, value in zip(operations, values, strict=True)
            if isinstance(operation, Enqueue)
        }
        for stage in stages:
            for message, receipt in stage.receipts.items():
                place(receipt, placed[message])
            self._forget(stage)

    def returned(self, call: CallId, *, good: bool) -> tuple[Operation, ...]:
        """The call is over. Returns what lands with its result; nothing of a call that failed."""
        stage = self._stages.get(call)
        if stage is None:
            return ()
        stage.operations = [op for op in stage.end() if not _of_call(op, call)]
        staged = tuple(stage.operations)
        if not good or not staged:
            self.vanish(call, "its call failed")
        return staged if good else ()

    def vanish(self, call: CallId, why: str) -> None:
        """A call's writes come to nothing: it was cut, left behind, or refused as it landed."""
        stage = self._stages.pop(call, None)
        if stage is not None:
            stage.vanish(why)

    def forget(self, agent: AgentId) -> None:
        """An agent has no turn: what has not landed will not land; its calls run again."""
        for call in [call for call, stage in self._stages.items() if stage.agent == agent]:
            self.vanish(call, "its turn was cut off")

    def _forget(self, stage: Stage) -> None:
        self._stages = {call: other for call, other in self._stages.items() if other is not stage}
