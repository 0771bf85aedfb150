"""What a memory store keeps, and how each operation changes it and is undone.

Nothing here yields. Every change notes how it is taken back, so a set that fails half-way leaves nothing (STORE-1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from msgspec.structs import replace

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
    KvRow,
    Move,
    Operation,
    OutcomeRow,
    Placed,
    Put,
    Require,
    Row,
    Shut,
    Value,
    Values,
)
from actors.ids import MessageId, TurnId, agent_of, tree_of
from actors.messages import Lane, ReceiptState

from . import checks
from .memory_rows import Agent, Message, Owners

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actors.errors import Conflict
    from actors.ids import AgentId, TreeId


_WAITING: Final = (ReceiptState.QUEUED, ReceiptState.HELD)
_MOVABLE: Final = (Lane.STEER, Lane.SEND)
_Key = TypeVar("_Key")
_R = TypeVar("_R")
_Undo: TypeAlias = "list[tuple[Callable[..., None], tuple[object, ...]]]"


class Tables:
    """The rows of a memory store; `carry_out` is the only way to change them."""

    __slots__ = (
        "_carry",
        "agents",
        "below",
        "calls",
        "commits",
        "counters",
        "epochs",
        "first",
        "keys",
        "kv",
        "messages",
        "outcomes",
        "owners",
        "trees",
        "work",
    )

    def __init__(self) -> None:
        self.commits = 0
        self.epochs: dict[TreeId, int] = {}
        self.owners = Owners()
        self.agents: dict[AgentId, Agent] = {}
        self.below: dict[str, list[AgentId]] = {}
        self.trees: dict[TreeId, list[AgentId]] = {}
        self.keys: dict[tuple[str, str], AgentId] = {}
        self.work: set[AgentId] = set()
        self.messages: dict[MessageId, Message] = {}
        self.first: dict[tuple[AgentId, AgentId | None, str], Message] = {}
        self.calls: dict[AgentId, dict[str, CallRow]] = {}
        self.outcomes: dict[str, OutcomeRow] = {}
        self.kv: dict[AgentId, dict[tuple[str, str], KvRow]] = {}
        self.counters: dict[str, int] = {}
        self._carry: dict[type[Operation], Callable[..., Value]] = {
            Append: self._append,
            Forget: self._forget,
            Put: self._put,
            Erase: self._erase,
            Enqueue: self._enqueue,
            Claim: self._claim,
            Move: self._move,
            Shut: self._shut,
            Require: self._require,
            Bump: self._bump,
        }

    def carry_out(self, change_set: ChangeSet) -> Values:
        """Carry out a change set, all or none; raises what `Store.commit` raises."""
        undo: _Undo = []
        carry = self._carry
        try:
            checks.check(change_set)
            epoch = change_set.epoch
            if epoch is not None and (current := self.epochs.get(change_set.tree)) != epoch:
                raise checks.fenced(change_set.tree, epoch, current)  # noqa: TRY301 - one undo for every failure
            values = []
            for operation in change_set.operations:
                values.append(carry[type(operation)](operation, undo))  # noqa: PERF401 - a call less per commit
            return tuple(values)
        except BaseException:
            for restore, arguments in reversed(undo):
                restore(*arguments)
            raise

    def _append(self, operation: Append, undo: _Undo) -> int:
        records = self._agent(operation.agent).places
        at = operation.at
        if len(records) != at:
            raise checks.appended(operation.agent, at, len(records))
        records += operation.records
        undo.append((records.__delitem__, (slice(at, None),)))
        return len(records)

    def _forget(self, operation: Forget, undo: _Undo) -> int:
        return self._agent(operation.agent).forget(operation, undo)

    def _put(self, operation: Put, undo: _Undo) -> None:
        row = operation.row
        match row:
            case AgentRow():
                self._put_agent(row, undo, fresh=operation.fresh)
            case CallRow():
                _set(self.calls.setdefault(row.agent, {}), row.call, row, undo, fresh=operation.fresh)
            case OutcomeRow():
                _set(self.outcomes, row.turn, row, undo, fresh=operation.fresh)
            case KvRow():
                _set(self.kv.setdefault(row.agent, {}), (row.scope, row.key), row, undo, fresh=operation.fresh)

    def _put_agent(self, row: AgentRow, undo: _Undo, *, fresh: bool) -> None:
        agent = self.agents.get(row.agent)
        if agent is None:
            self._make_agent(row, undo)
            return
        if fresh:
            raise checks.stands(row)
        before = agent.row
        if row.parent != before.parent or row.key != before.key:
            raise checks.moved_identity(row)
        undo.append((self._set_row, (agent, before)))
        self._set_row(agent, row)

    def _make_agent(self, row: AgentRow, undo: _Undo) -> None:
        key = None if row.key is None else (row.parent, row.key)
        if key in self.keys:
            raise checks.stands(row)
        agent = self.agents[row.agent] = Agent(row)
        below = self.below.setdefault(row.parent, [])
        below.append(row.agent)
        self.trees.setdefault(tree_of(row.agent), []).append(row.agent)
        if key is not None:
            self.keys[key] = row.agent
        self._note_work(agent)
        undo.append((self._unmake_agent, (agent, below, key)))

    def _unmake_agent(self, agent: Agent, below: list[AgentId], key: tuple[str, str] | None) -> None:
        del self.agents[agent.row.agent]
        below.pop()
        self.trees[tree_of(agent.row.agent)].pop()
        if key is not None:
            del self.keys[key]
        self.work.discard(agent.row.agent)

    def _set_row(self, agent: Agent, row: AgentRow) -> None:
        changed = agent.row.owes is not row.owes
        agent.row = row
        if changed:
            self._note_work(agent)

    def _note_work(self, agent: Agent) -> None:
        if agent.row.owes or agent.queued:
            self.work.add(agent.row.agent)
        else:
            self.work.discard(agent.row.agent)

    def _erase(self, operation: Erase, undo: _Undo) -> int:
        prefix = operation.prefix
        if operation.table is CallRow:
            return _unset(self.calls.get(agent_of(prefix[0]), {}), prefix[:1], undo)
        if operation.table is OutcomeRow:
            return _unset(self.outcomes, prefix[:1], undo)
        rows = self.kv.get(cast("AgentId", prefix[0]), {})
        within = prefix[1:]
        return _unset(rows, [key for key in rows if key[: len(within)] == within], undo)

    def _enqueue(self, operation: Enqueue, undo: _Undo) -> Placed:
        envelope = operation.envelope
        agent = self._agent(envelope.to)
        key = None if envelope.key is None else (envelope.to, envelope.sender, envelope.key)
        if key is not None and (first := self.first.get(key)) is not None:
            if not checks.same_body(first.envelope, envelope):
                raise checks.reused_key(envelope)
            return Placed(first.envelope.id, first.seq, again=True)
        refused = agent.refusal(envelope, operation.bound)
        if refused is not None:
            raise refused
        if envelope.id in self.messages:
            raise checks.used_id(envelope.id)
        message = Message(len(agent.messages) + 1, envelope, 0 if envelope.reserved else envelope.size_bytes)
        agent.messages.append(message)
        self.messages[envelope.id] = message
        if key is not None:
            self.first[key] = message
        self._count(agent, message, 1)
        undo.append((self._unenqueue, (agent, message, key)))
        return Placed(envelope.id, message.seq)

    def _unenqueue(self, agent: Agent, message: Message, key: tuple[AgentId, AgentId | None, str] | None) -> None:
        self._count(agent, message, -1)
        if key is not None:
            del self.first[key]
        del self.messages[message.envelope.id]
        agent.messages.pop()

    def _count(self, agent: Agent, message: Message, sign: int) -> None:
        """Count a message in (1) or out (-1) of its lane, if it is in a state that stands there."""
        state, envelope = message.state, message.envelope
        if state not in _WAITING:
            return
        if not envelope.reserved:
            lane = agent.lane(envelope.lane)
            lane.depth += sign
            lane.size += sign * message.size
        if sign > 0:
            agent.waiting[envelope.id] = message
        else:
            del agent.waiting[envelope.id]
        if state is ReceiptState.QUEUED:
            agent.queued += sign
            self._note_work(agent)

    def _claim(self, operation: Claim, undo: _Undo) -> None:
        agent = self._agent(operation.agent)
        if not operation.messages:
            raise checks.claims_nothing(operation.agent)
        for message_id in operation.messages:
            message = agent.waiting.get(message_id)
            if message is None:
                raise self._not_waiting(operation.agent, message_id)
            self._turn_to(
                agent, message, undo, state=ReceiptState.CONSUMED, turn=operation.turn, reason=operation.reason
            )

    def _not_waiting(self, agent: AgentId, message_id: MessageId) -> Conflict:
        message = self.messages.get(message_id)
        known = message is not None and message.envelope.to == agent
        return checks.not_waiting(agent, message_id, message.state.value if known and message else "not there")

    def _turn_to(
        self,
        agent: Agent,
        message: Message,
        undo: _Undo,
        *,
        state: ReceiptState,
        turn: TurnId | None = None,
        reason: str | None = None,
    ) -> None:
        undo.append((self._set_state, (agent, message, message.state, message.turn, message.reason)))
        self._set_state(agent, message, state, turn, reason)

    def _set_state(
        self, agent: Agent, message: Message, state: ReceiptState, turn: TurnId | None, reason: str | None
    ) -> None:
        self._count(agent, message, -1)
        message.state, message.turn, message.reason = state, turn, reason
        self._count(agent, message, 1)

    def _move(self, operation: Move, undo: _Undo) -> tuple[MessageId, ...]:
        agent = self._agent(operation.agent)
        moved: list[Message] = []
        for message in self._meant(agent, operation):
            if message.state not in operation.frm:
                raise checks.not_waiting(operation.agent, message.envelope.id, message.state.value)
            # a message that a turn consumed remembers it, unless it waits again
            waits = operation.to in _WAITING
            turn = None if waits else message.turn
            if waits and message.state is ReceiptState.DEAD and message.envelope.expires_ms is not None:
                undo.append((setattr, (message, "envelope", message.envelope)))
                message.envelope = replace(message.envelope, expires_ms=None)
            self._turn_to(agent, message, undo, state=operation.to, turn=turn, reason=operation.reason)
            undo.append((setattr, (message, "at", message.at)))
            message.at = operation.at
            moved.append(message)
        moved.sort(key=lambda message: message.seq)
        return tuple(message.envelope.id for message in moved)

    def _meant(self, agent: Agent, operation: Move) -> Iterable[Message]:
        if operation.messages is None:
            frm = operation.frm
            among = agent.waiting.values() if set(frm) <= set(_WAITING) else agent.messages
            return [message for message in among if message.state in frm and message.envelope.lane in _MOVABLE]
        found = []
        for message_id in operation.messages:
            message = self.messages.get(message_id)
            if message is None or message.envelope.to != operation.agent:
                raise checks.not_waiting(operation.agent, message_id, "not there")
            found.append(message)
        return found

    def _shut(self, operation: Shut, undo: _Undo) -> bool:
        return self._agent(operation.agent).shut(operation, undo)

    def _require(self, operation: Require, undo: _Undo) -> None:
        del undo
        key = operation.key
        row: Row | None
        if operation.table is AgentRow:
            agent = self.agents.get(cast("AgentId", key[0]))
            row = None if agent is None else agent.row
        elif operation.table is CallRow:
            row = self.calls.get(agent_of(key[0]), {}).get(key[0])
        elif operation.table is OutcomeRow:
            row = self.outcomes.get(key[0])
        else:
            row = self.kv.get(cast("AgentId", key[0]), {}).get((key[1], key[2]))
        failed = checks.required(operation.table, key, operation.field, row=row, equals=operation.equals)
        if failed is not None:
            raise failed

    def _bump(self, operation: Bump, undo: _Undo) -> int:
        before = self.counters.get(operation.counter)
        value = (before or 0) + operation.by
        refused = checks.counted(operation.counter, value, operation.bound)
        if refused is not None:
            raise refused
        undo.append((_restore, (self.counters, operation.counter, before)))
        self.counters[operation.counter] = value
        return value

    def _agent(self, agent: AgentId) -> Agent:
        found = self.agents.get(agent)
        if found is None:
            raise checks.unknown(agent)
        return found


def _set(rows: dict[_Key, _R], key: _Key, row: _R, undo: _Undo, *, fresh: bool) -> None:
    before = rows.get(key)
    if fresh and before is not None:
        raise checks.stands(cast("Row", row))
    undo.append((_restore, (rows, key, before)))
    rows[key] = row


def _unset(rows: dict[_Key, _R], keys: Iterable[_Key], undo: _Undo) -> int:
    gone = 0
    for key in keys:
        before = rows.pop(key, None)
        if before is not None:
            undo.append((_restore, (rows, key, before)))
            gone += 1
    return gone


def _restore(rows: dict[_Key, _R], key: _Key, before: _R | None) -> None:
    if before is None:
        del rows[key]
    else:
        rows[key] = before
