"""What a store does, written as plainly as it can be: the reference that the stores are compared with.

It copies everything before a set and puts the copy back where the set fails. It knows nothing of the stores' code but
the words of `actors.changes`, and of `checks` nothing at all.
"""

from __future__ import annotations

import copy
from typing import Any

from actors.changes import (
    AgentRow,
    Append,
    Bump,
    CallRow,
    ChangeSet,
    Claim,
    Enqueue,
    Erase,
    Forget,
    Intake,
    KvRow,
    Move,
    Operation,
    OutcomeRow,
    Placed,
    Put,
    Require,
    Shut,
    row_key,
)
from actors.errors import (
    AgentClosed,
    CallboardError,
    Conflict,
    Fenced,
    MailboxFull,
    MessageTooLarge,
    UnknownPath,
    UsageError,
)
from actors.messages import Lane, ReceiptState

WAITING = (ReceiptState.QUEUED, ReceiptState.HELD)
INTAKES = (Intake.OPEN, Intake.CLOSING, Intake.CLOSED)
OF_THE_OWNER = (Append, Put, Claim, Erase, Forget)
KEY_PARTS = {AgentRow: 1, CallRow: 1, OutcomeRow: 1, KvRow: 3}


class Refused(Exception):
    """The set fails with this kind of error."""


class Model:
    """A store as a few dicts."""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}
        self.rows: dict[type, dict[tuple[str, ...], Any]] = {AgentRow: {}, CallRow: {}, OutcomeRow: {}, KvRow: {}}
        self.intake: dict[str, Intake] = {}
        self.records: dict[str, list[Any]] = {}
        self.messages: list[dict[str, Any]] = []
        self.counters: dict[str, int] = {}

    def own(self, tree: str) -> int:
        """Raise the epoch."""
        self.epochs[tree] = self.epochs.get(tree, 0) + 1
        return self.epochs[tree]

    def commit(self, change_set: ChangeSet) -> tuple[Any, ...] | type[CallboardError]:
        """The values of a set, or the kind of error it fails with."""
        before = copy.deepcopy(self.__dict__)
        try:
            for operation in change_set.operations:
                self.check(operation, change_set)
            if change_set.epoch is not None and change_set.epoch != self.epochs.get(change_set.tree):
                raise Refused(Fenced)  # noqa: TRY301 - taken back like every failure
            return tuple([self.carry_out(operation) for operation in change_set.operations])
        except Refused as refused:
            self.__dict__ = before
            kind: type[CallboardError] = refused.args[0]
            return kind

    def check(self, operation: Operation, change_set: ChangeSet) -> None:
        """The shape of an operation."""
        agent: str | None = None
        match operation:
            case Append() | Claim() | Shut() | Move() | Forget():
                agent = operation.agent
            case Put():
                agent = operation.row.agent
            case Erase(table=table, prefix=prefix):
                if table is AgentRow or not 0 < len(prefix) <= KEY_PARTS[table]:
                    raise Refused(UsageError)
                agent = prefix[0] if table is KvRow else prefix[0].split(":")[0]
            case Require(table=table, key=key, field=field):
                if len(key) != KEY_PARTS[table] or not hasattr(table, "__struct_fields__") or field == "nothing":
                    raise Refused(UsageError)
            case Enqueue() | Bump():
                pass
        if change_set.epoch is None and isinstance(operation, OF_THE_OWNER):
            raise Refused(UsageError)
        if agent is not None and agent.split("/")[0] != change_set.tree:
            raise Refused(UsageError)
        if isinstance(operation, Move) and operation.to in {ReceiptState.PENDING, ReceiptState.REFUSED}:
            raise Refused(UsageError)

    def carry_out(self, operation: Operation) -> Any:
        """One operation."""
        match operation:
            case Append(agent=agent, at=at, records=records):
                self.need(agent)
                if len(self.records[agent]) != at:
                    raise Refused(Conflict)
                self.records[agent] += records
                return len(self.records[agent])
            case Forget(agent=agent, before=before, keep=keep):
                self.need(agent)
                places = self.records[agent]
                if before >= len(places):
                    raise Refused(Conflict)
                old = [at for at in range(before) if at not in keep and places[at] is not None]
                for at in old:
                    places[at] = None
                return len(old)
            case Put():
                return self.put(operation)
            case Erase(table=table, prefix=prefix):
                gone = [key for key in self.rows[table] if key[: len(prefix)] == prefix]
                for key in gone:
                    del self.rows[table][key]
                return len(gone)
            case Enqueue():
                return self.enqueue(operation)
            case Claim():
                return self.claim(operation)
            case Move():
                return self.move(operation)
            case Shut(agent=agent, to=to):
                self.need(agent)
                changed = INTAKES.index(to) > INTAKES.index(self.intake[agent])
                if changed and to is Intake.CLOSED and self.ordered(agent):
                    raise Refused(Conflict)
                self.intake[agent] = to if changed else self.intake[agent]
                return changed
            case Require(table=table, key=key, field=field, equals=equals):
                if key not in self.rows[table] or getattr(self.rows[table][key], field) != equals:
                    raise Refused(Conflict)
                return None
            case Bump(counter=counter, by=by, bound=bound):
                value = self.counters.get(counter, 0) + by
                if bound is not None and value > bound:
                    raise Refused(Conflict)
                self.counters[counter] = value
                return value

    def ordered(self, agent: str) -> bool:
        """Whether an order waits for it."""
        mine = (message for message in self.messages if message["envelope"].to == agent)
        return any(one["envelope"].lane is Lane.CONTROL and one["state"] in WAITING for one in mine)

    def need(self, agent: str) -> None:
        """There is such an agent."""
        if (agent,) not in self.rows[AgentRow]:
            raise Refused(UnknownPath)

    def put(self, operation: Put) -> None:
        """A row, fresh or not."""
        row, key = operation.row, row_key(operation.row)
        before = self.rows[type(row)].get(key)
        if before is not None and operation.fresh:
            raise Refused(Conflict)
        if isinstance(row, AgentRow):
            if before is not None and (before.parent, before.key) != (row.parent, row.key):
                raise Refused(UsageError)
            twins = [
                other for other in self.rows[AgentRow].values() if (other.parent, other.key) == (row.parent, row.key)
            ]
            if before is None and row.key is not None and twins:
                raise Refused(Conflict)
            if before is None:
                self.intake[row.agent] = Intake.OPEN
                self.records[row.agent] = []
        self.rows[type(row)][key] = row

    def enqueue(self, operation: Enqueue) -> Placed:
        """A message."""
        new, bound = operation.envelope, operation.bound
        self.need(new.to)
        if new.key is not None:
            for message in self.messages:
                old = message["envelope"]
                if (old.to, old.sender, old.key) == (new.to, new.sender, new.key):
                    said = [(one.content, one.purpose, one.output, one.target) for one in (old, new)]
                    if said[0] != said[1]:
                        raise Refused(UsageError)
                    return Placed(old.id, message["seq"], again=True)
        intake = self.intake[new.to]
        obeys = new.reserved or new.lane is Lane.CONTROL
        if not (intake is Intake.OPEN or (intake is Intake.CLOSING and obeys)):
            raise Refused(AgentClosed)
        mine = [message for message in self.messages if message["envelope"].to == new.to]
        lane = [
            message["envelope"].size_bytes
            for message in mine
            if message["envelope"].lane is new.lane and message["state"] in WAITING and not message["envelope"].reserved
        ]
        if not new.reserved and new.size_bytes > bound.message_bytes:
            raise Refused(MessageTooLarge)
        if not new.reserved and (len(lane) + 1 > bound.messages or sum(lane) + new.size_bytes > bound.size_bytes):
            raise Refused(MailboxFull)
        if any(message["envelope"].id == new.id for message in self.messages):
            raise Refused(Conflict)
        found = {"envelope": new, "seq": len(mine) + 1, "state": ReceiptState.QUEUED, "turn": None, "reason": None}
        self.messages.append(found)
        return Placed(new.id, len(mine) + 1)

    def claim(self, operation: Claim) -> None:
        """Messages for a turn."""
        self.need(operation.agent)
        if not operation.messages:
            raise Refused(Conflict)
        for name in operation.messages:
            message = self.message(operation.agent, name)
            if message["state"] not in WAITING:
                raise Refused(Conflict)
            message.update(state=ReceiptState.CONSUMED, turn=operation.turn, reason=None)

    def move(self, operation: Move) -> tuple[str, ...]:
        """Messages from state to state."""
        self.need(operation.agent)
        if operation.messages is None:
            meant = [
                message
                for message in self.messages
                if message["envelope"].to == operation.agent
                and message["envelope"].lane is not Lane.CONTROL
                and message["state"] in operation.frm
            ]
        else:
            meant = [self.message(operation.agent, name) for name in operation.messages]
        for message in meant:
            if message["state"] not in operation.frm:
                raise Refused(Conflict)
            message.update(state=operation.to, reason=operation.reason)
            if operation.to in WAITING:
                message["turn"] = None
        return tuple(message["envelope"].id for message in sorted(meant, key=lambda message: int(message["seq"])))

    def message(self, agent: str, name: str) -> dict[str, Any]:
        """An agent's message."""
        for message in self.messages:
            if message["envelope"].id == name and message["envelope"].to == agent:
                return message
        raise Refused(Conflict)
