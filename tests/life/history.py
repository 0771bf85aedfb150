"""What must hold of the order in which everything was written: epochs, ends that stay, records that never change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.changes import Append, Claim, Enqueue, Erase, Intake, Move, Placed, Put, Shut
from actors.messages import Lane, ReceiptState

if TYPE_CHECKING:
    from actors.changes import ChangeSet, Operation, Value
    from actors.ids import AgentId
    from actors.transcript import Record
    from tests.life.faults import History
    from tests.life.reading import Kept

_OWNERS: Final = (Append, Claim, Erase, Put)
"""What only the owner of a tree may write; anybody sends, orders, withdraws."""
_RANK: Final = {Intake.OPEN: 0, Intake.CLOSING: 1, Intake.CLOSED: 2}
_LEGAL: Final = {
    ReceiptState.QUEUED: {ReceiptState.HELD, ReceiptState.CONSUMED, ReceiptState.WITHDRAWN, ReceiptState.DEAD},
    ReceiptState.HELD: {ReceiptState.QUEUED, ReceiptState.CONSUMED, ReceiptState.WITHDRAWN, ReceiptState.DEAD},
    ReceiptState.CONSUMED: {ReceiptState.QUEUED, ReceiptState.DEAD},  # what crashed its turns is tried alone, then dead
    ReceiptState.DEAD: {ReceiptState.QUEUED},  # somebody put it back
    ReceiptState.WITHDRAWN: set(),
}


def check(history: History, agents: dict[AgentId, Kept]) -> list[str]:
    """Replay the history, and compare where it comes to with what the store has."""
    replay = _Replay()
    for one in history.applied:
        replay.epoch(one.set)
        for operation, value in zip(one.set.operations, one.values, strict=True):
            replay.apply(operation, value)
    found = [*replay.problems, *_rising(history)]
    for path, kept in agents.items():
        if tuple(replay.records.get(path, ())) != kept.records:
            found.append(f"20: the conversation of {path} is not what was appended to it")
        found += [
            f"3: {message.envelope.id} is {message.state.value}, and was written otherwise"
            for message in kept.messages
            if replay.states.get(message.envelope.id) is not message.state
        ]
    seen = {message.envelope.id for kept in agents.values() for message in kept.messages}
    found += [f"3: {message} was accepted, and is nowhere" for message in replay.states if message not in seen]
    return found


def _rising(history: History) -> list[str]:
    """13: the epoch of a tree rises with each owner."""
    found: list[str] = []
    last: dict[str, int] = {}
    for tree, epoch, process in history.owned:
        if epoch <= last.get(tree, 0):
            found.append(f"13: process {process} took {tree} with epoch {epoch}, which had {last[tree]}")
        last[tree] = epoch
    return found


def came_back(history: History) -> set[str]:
    """Messages that waited again behind their end: put back, or tried alone."""
    states: dict[str, ReceiptState] = {}
    again: set[str] = set()
    for one in history.applied:
        for operation, value in zip(one.set.operations, one.values, strict=True):
            if isinstance(operation, Claim):
                states |= dict.fromkeys(operation.messages, ReceiptState.CONSUMED)
            elif isinstance(operation, Move) and isinstance(value, tuple):
                again.update(m for m in value if operation.to is ReceiptState.QUEUED and m in states)
                if operation.to.final:
                    states |= dict.fromkeys(value, operation.to)
    return again


class _Replay:
    """Where a history comes to. `problems`: what was written against the rules."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.records: dict[str, list[Record]] = {}
        self.states: dict[str, ReceiptState] = {}
        self._epochs: dict[str, int] = {}
        self._intake: dict[str, Intake] = {}

    def epoch(self, change_set: ChangeSet) -> None:
        """13, 14: an owner's write is of the newest epoch, and says so."""
        tree, epoch = change_set.tree, change_set.epoch
        if epoch is None:
            found = [type(one).__name__ for one in change_set.operations if isinstance(one, _OWNERS)]
            if found:
                self.problems.append(f"14: {', '.join(found)} in {tree} without an epoch")
            return
        if epoch < self._epochs.get(tree, 0):
            self.problems.append(f"14: epoch {epoch} wrote to {tree} behind {self._epochs[tree]}")
        self._epochs[tree] = epoch

    def apply(self, operation: Operation, value: Value) -> None:
        """One operation more."""
        match operation:
            case Append(agent=agent, at=at, records=records):
                stood = self.records.setdefault(agent, [])
                if len(stood) != at:
                    self.problems.append(f"20: {agent} got records at {at}, and has {len(stood)}")
                stood += records
            case Enqueue(envelope=envelope):
                if not (isinstance(value, Placed) and value.again):
                    self._accepted(envelope.to, envelope.id, control=envelope.lane is Lane.CONTROL,
                                   reserved=envelope.reserved)  # fmt: skip
            case Claim(messages=messages):
                for message in messages:
                    self._to(message, ReceiptState.CONSUMED)
            case Move(to=to):
                for message in value if isinstance(value, tuple) else ():
                    self._to(message, to)
            case Shut(agent=agent, to=to):
                before = self._intake.get(agent, Intake.OPEN)
                if value and _RANK[to] < _RANK[before]:
                    self.problems.append(f"9: {agent} opens again: {before.value} to {to.value}")
                self._intake[agent] = max(before, to, key=_RANK.__getitem__)
            case _:
                pass

    def _accepted(self, agent: str, message: str, *, control: bool, reserved: bool) -> None:
        if message in self.states:
            self.problems.append(f"1: {message} was accepted twice")
        shut = self._intake.get(agent, Intake.OPEN)
        if not control and (shut is Intake.CLOSED or (shut is Intake.CLOSING and not reserved)):
            self.problems.append(f"9: {message} was accepted by {agent}, which is {shut.value}")
        self.states[message] = ReceiptState.QUEUED

    def _to(self, message: str, to: ReceiptState) -> None:
        before = self.states.get(message)
        if before is None or to not in _LEGAL[before]:
            self.problems.append(f"11: {message} went from {None if before is None else before.value} to {to.value}")
        self.states[message] = to
