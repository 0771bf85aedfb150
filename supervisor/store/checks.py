"""The rules that every store keeps alike: the shape of a change set, and what follows from what a store found.

They are pure, so that stores cannot differ in them: a store looks things up, these functions say what that means.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, assert_never

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
    Put,
    Require,
    Row,
    RowKey,
    Shut,
)
from actors.errors import (
    AgentClosed,
    Conflict,
    Fenced,
    MailboxError,
    MailboxFull,
    MessageTooLarge,
    UnknownPath,
    UsageError,
)
from actors.ids import agent_of
from actors.messages import Envelope, Lane, LaneBound, ReceiptState

if TYPE_CHECKING:
    from collections.abc import Callable

BIGGEST: Final = 2**63 - 1
"""The largest whole number a store keeps."""

# -- the shape of a change set -----------------------------------------------------------------------------------

_FOR_ANYONE: Final = frozenset({Enqueue, Move, Shut, Require, Bump})
_NAMED: Final[dict[type[Operation], Callable[[Operation], str]]] = {
    Append: attrgetter("agent"),
    Put: attrgetter("row.agent"),
    Claim: attrgetter("agent"),
}
"""The agent whose rows an operation changes, where there is nothing to check."""
_KEY_PARTS: Final[dict[type[Row], int]] = {AgentRow: 1, CallRow: 1, OutcomeRow: 1, KvRow: 3}
_NEVER_STORED: Final = (ReceiptState.PENDING, ReceiptState.REFUSED)
FIELDS: Final[dict[type[Row], frozenset[str]]] = {table: frozenset(table.__struct_fields__) for table in _KEY_PARTS}


def check(change_set: ChangeSet) -> None:
    """Refuse a change set that breaks the rules of change sets, before anything is touched.

    Raises:
        UsageError: an operation without epoch that needs one; one on another tree; a key of the wrong length; …
    """
    tree, unfenced = change_set.tree, change_set.epoch is None
    if change_set.founder is not None and change_set.epoch != 1:
        raise UsageError(f"who takes a new tree writes with its first epoch, 1; got {change_set.epoch}")
    for operation in change_set.operations:
        kind = type(operation)
        if unfenced and kind not in _FOR_ANYONE:
            msg = f"{kind.__name__} is the owner's: give the change set the epoch that own({tree!r}) returned"
            raise UsageError(msg)
        named = _NAMED.get(kind)  # a chain of patterns is slower, and nearly all are of these
        agent: str | None = _agent_of(operation) if named is None else named(operation)
        if agent is not None and agent != tree and not agent.startswith(f"{tree}/"):
            msg = f"{kind.__name__} of {agent!r} in a change set of tree {tree!r}: commit it with its own tree"
            raise UsageError(msg)


def _agent_of(operation: Operation) -> str | None:
    """The agent whose rows an operation changes, checked for shape; None where any tree's may be meant."""
    match operation:
        case Enqueue(envelope=envelope):
            if not envelope.to:
                raise UsageError("a message needs a path that it goes to")
            return None
        case Erase(table=table, prefix=prefix):
            return _erased(table, prefix)
        case Move(agent=agent, to=to):
            if to in _NEVER_STORED:
                msg = f"a message cannot be moved to {to.value}: no accepted message is"
                raise UsageError(msg)
            return agent
        case Require(table=table, key=key, field=field):
            _check_required(table, key, field)
            return None
        case Append(agent=agent) | Claim(agent=agent) | Shut(agent=agent) | Forget(agent=agent):
            return agent
        case Put(row=row):
            return row.agent
        case Bump(by=by):
            if not -BIGGEST <= by <= BIGGEST:
                raise UsageError(f"a counter changes by a 64-bit number; got {by}")
            return None
        case _:
            assert_never(operation)


def _erased(table: type[Row], prefix: RowKey) -> str:
    if table is AgentRow:
        raise UsageError("an agent's row is never erased: its path is never used again")
    if not 1 <= len(prefix) <= _KEY_PARTS[table]:
        msg = f"Erase({table.__name__}) takes 1 to {_KEY_PARTS[table]} parts of the key; got {prefix!r}"
        raise UsageError(msg)
    return prefix[0] if table is KvRow else agent_of(prefix[0])


def _check_required(table: type[Row], key: RowKey, field: str) -> None:
    if len(key) != _KEY_PARTS[table]:
        msg = f"Require({table.__name__}) takes a key of {_KEY_PARTS[table]} parts; got {key!r}"
        raise UsageError(msg)
    if field not in FIELDS[table]:
        msg = f"{table.__name__} has no field {field!r}; it has {', '.join(sorted(FIELDS[table]))}"
        raise UsageError(msg)


# -- what follows from what a store found ------------------------------------------------------------------------

_RANK: Final = {Intake.OPEN: 0, Intake.CLOSING: 1, Intake.CLOSED: 2}


def fenced(tree: str, epoch: int, current: int | None) -> Fenced:
    """The error for a set whose epoch is not the tree's (None: nobody has owned it yet)."""
    found = "nobody owns it" if current is None else f"its owner has epoch {current}"
    return Fenced(f"tree {tree!r}: this owner's epoch is {epoch}, {found}; stop its turns and write nothing more")


def unknown(agent: str) -> UnknownPath:
    """The error for an agent that is not there."""
    return UnknownPath(f"no agent {agent!r} in this store; start it first, or look for its path with show")


def shuts(current: Intake, to: Intake) -> bool:
    """Whether `Shut` changes anything: intake goes one way only."""
    return _RANK[to] > _RANK[current]


def order_waits(agent: str) -> Conflict:
    """The error for closing an agent that has not met an order yet: nobody would read it any more."""
    return Conflict(f"{agent} has an order that it has not met: it cannot be closed yet; nothing was written")


def refusal(
    envelope: Envelope,
    bound: LaneBound,
    intake: Intake,
    *,
    depth: int,
    size_bytes: int,
    of_sender: Callable[[], int],
) -> MailboxError | None:
    """Why a message is not accepted, or None (ACC-5, ACC-6).

    Args:
        envelope: the message.
        bound: of its lane.
        intake: of the agent.
        depth: messages its lane holds now, reserved places left out.
        size_bytes: bytes its lane holds now, likewise.
        of_sender: counts the messages of its sender among these; asked only where that can matter.
    """
    to, lane = envelope.to, envelope.lane
    closing = intake is Intake.CLOSING and envelope.reserved  # a closing child's report still lands (CLS-3)
    obeys = lane is Lane.CONTROL and intake is not Intake.CLOSED
    if intake is not Intake.OPEN and not obeys and not closing:
        return AgentClosed(f"{to} is {intake.value} and accepts nothing new; start another agent", envelope)
    if envelope.reserved:
        return None
    size = envelope.size_bytes
    if size > bound.message_bytes:
        text = f"a message of {size} bytes to {to}: one may have {bound.message_bytes}; send less, or raise the bound"
        return MessageTooLarge(text, envelope)
    if depth >= bound.messages or size_bytes + size > bound.size_bytes:
        text = (
            f"the {lane.value} lane of {to} holds {depth} messages and {size_bytes} bytes of at most {bound.messages}"
            f" and {bound.size_bytes}; wait until it has answered some, or raise its bound"
        )
        return MailboxFull(text, envelope)
    share = bound.of_one_sender
    if envelope.sender is not None and depth >= share and of_sender() >= share:
        text = (
            f"the {lane.value} lane of {to} holds at most {share} messages of one agent, and has as many of"
            f" {envelope.sender}; wait until it has answered some, or raise its LaneBound(share=...)"
        )
        return MailboxFull(text, envelope)
    return None


def same_body(first: Envelope, second: Envelope) -> bool:
    """Whether a message under a used key says the same as the first, so that the first's receipt answers it (ACC-7).

    By whichever way it came the second time: delivered by send and by steer, one message is one message.
    """
    return (
        first.content == second.content
        and first.purpose is second.purpose
        and first.output == second.output
        and first.target == second.target
    )


def reused_key(envelope: Envelope) -> UsageError:
    """The error for a key that was used for another body."""
    return UsageError(f"key {envelope.key!r} was used for another message to {envelope.to}; give each its own key")


def used_id(message: str) -> Conflict:
    """The error for a message id that stands in the store already."""
    return Conflict(f"message {message} is in the store already; an id is used once")


def appended(agent: str, at: int, length: int) -> Conflict:
    """The error for records that do not follow the last one."""
    return Conflict(f"{agent} has {length} records, not {at}: another wrote; read what is new and decide again")


def forgets_all(agent: str, before: int, length: int) -> Conflict:
    """The error for a removal of records that would leave none behind them (STORE-5)."""
    return Conflict(f"{agent} has {length} records; those before {before} are no archive: nothing was removed")


def founded(tree: str) -> Conflict:
    """The error for a new tree that somebody has had."""
    return Conflict(f"tree {tree!r} is not new: somebody has had it; nothing was written")


def claims_nothing(agent: str) -> Conflict:
    """The error for a claim of no message (CON-3)."""
    return Conflict(f"a turn of {agent} claims no message; nothing was written")


def not_waiting(agent: str, message: str, found: str) -> Conflict:
    """The error for a message that is not in a state to be taken or moved from."""
    return Conflict(f"message {message} of {agent} is {found}: it cannot be taken or moved; nothing was written")


def counted(counter: str, value: int, bound: int | None) -> Conflict | UsageError | None:
    """Why a counter may not have a value, or None."""
    if bound is not None and value > bound:
        return Conflict(f"counter {counter!r} would be {value}, above its bound {bound}")
    if not -BIGGEST <= value <= BIGGEST:
        return UsageError(f"counter {counter!r} would be {value}, more than 64 bits")
    return None


def required(table: type[Row], key: RowKey, field: str, *, row: Row | None, equals: object) -> Conflict | None:
    """Why a `Require` fails, or None."""
    if row is None:
        return Conflict(f"no {table.__name__} {'/'.join(key)}: {field} was to be {equals!r}")
    found: object = getattr(row, field)
    if found == equals:
        return None
    return Conflict(f"{table.__name__} {'/'.join(key)}: {field} is {found!r}, not {equals!r} as required")


def stands(row: Row) -> Conflict:
    """The error for a fresh row where one stands, or an agent's key used by a sibling."""
    if isinstance(row, AgentRow) and row.key is not None:
        return Conflict(f"agent {row.agent}, or another child of {row.parent!r} with key {row.key!r}, is there already")
    return Conflict(f"{type(row).__name__} of {row.agent} is there already")


def moved_identity(row: AgentRow) -> UsageError:
    """The error for a row that would give an agent another parent or key."""
    return UsageError(f"{row.agent}: parent and key of an agent are fixed when it is made")


def call_order(row: CallRow) -> tuple[int, int, int]:
    """Where a call stands among its agent's: turn, step, ordinal."""
    turn, step, ordinal = row.call.rpartition(":t")[2].split(".")
    return int(turn), int(step), int(ordinal)
