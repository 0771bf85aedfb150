"""Change sets: what one commit carries, all or none; and the rows they write.

A change set is handed over whole. Each operation returns a value or fails the set, and then nothing of it is
written. No user code runs inside. Every row the store keeps has the tree and the epoch of the set that wrote it.

Who writes what, so that no row has two writers: an `AgentRow` is written by the agent's own loop only (and once
by its maker); what others change (intake, counters, message states) changes by operations that the store
carries out itself.

Operations are structs, as a turn's moves are: they are made in C, ten for each model call.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias, assert_never

from msgspec import Struct

from .content import Trust
from .ids import AgentId, CallId, MessageId, RunId, TreeId, TurnId
from .kept import TAG, Kept
from .messages import Envelope, LaneBound, Outcome, ReceiptState, Selection
from .transcript import Record, ResultRecord
from .usage import NO_USAGE, NOTHING, Amounts, Usage


class Intake(enum.StrEnum):
    """Whether an agent accepts messages."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class CallState(enum.StrEnum):
    """Where a tool call of an open batch is."""

    PLANNED = "planned"
    AWAITING = "awaiting"
    """A person is asked whether it may run; nothing that depends on it runs (TOL-12)."""
    STARTED = "started"
    SETTLED = "settled"
    UNKNOWN = "unknown"
    """Its end was never seen; the row outlives the batch, so that the same call asks for approval (TOL-3)."""


class OpenTurn(Kept, frozen=True):
    """What the store must know of a turn that is under way.

    Attributes:
        number, run: counted per agent from 1. step: the last whose request was started, from 1.
        asking: a request is under way: its reservation is `held`.
        held: what the open request reserved; charged whole if the turn's process dies (REC, BUD-7).
        tries: how often it crashed, counted by recovery before it works (CON-6). left: it was left in order.
        lost: epochs of owners that were lost while it was at work, counted among `tries` until they come back.
        consumed: the messages it consumed, for the dead letters and the reply.
        skipped: calls that an interrupting steer ended which has not entered yet (CON-7).
        output: name of the type the answer owes.
        alone: it is open for a compaction only.
        began_us: active microseconds that the agent had spent when it began, None where not known (TRN-7).
    """

    number: int
    run: int
    step: int = 0
    asking: bool = False
    held: Amounts = NOTHING
    tries: int = 0
    consumed: tuple[MessageId, ...] = ()
    output: str | None = None
    alone: bool = False
    left: bool = False
    skipped: tuple[CallId, ...] = ()
    began_us: int | None = None
    lost: tuple[int, ...] = ()


class KeptResult(Kept, frozen=True):
    """A tool result that is kept whole, as it was too long to be shown (TOL-8).

    Attributes:
        call: whose. name: of its tool. chars: how long it is. trust: how far it may be believed.
    """

    call: CallId
    name: str
    chars: int
    trust: Trust = Trust.TRUSTED


class AgentRow(Kept, frozen=True, tag_field=TAG, tag="agent"):
    """An agent as the store keeps it; written by its own loop.

    Attributes:
        parent: path of the parent, `""` for a root. name: of the spec. digest: of the spec.
        owes: it has an open turn or was told to work; with queued messages, what recovery looks for.
        turns, runs: how many were begun. usage, spent: the agent's own, without its children's.
        budget: JSON text of the agent's own budget, or None. key: as given to `start`/`run`.
        task_digest: of the task given with `key`. suspended: why it is, or None.
        background: its reports come to the parent as messages, on reserved places.
        started_by: the call that started it, or None.
        run_usage, run_spent: of the run in progress or the last one.
        summary: index of the last summary among the records, -1 for none: what is before it need not be read.
        context: tokens that the conversation was measured with at the last request, 0 where not known (SEL-3).
        selection: what messages have chosen, or None.
        singly: messages that are on their last try, each in a turn of its own (CON-6).
        kept: tool results that are kept whole, oldest first (TOL-8).
        trust: the least of all that its conversation ever held: what it says has it (GAT-4).
    """

    agent: AgentId
    parent: str
    name: str
    digest: str
    owes: bool = False
    turns: int = 0
    runs: int = 0
    open: OpenTurn | None = None
    usage: Usage = NO_USAGE
    spent: Amounts = NOTHING
    cost_known: bool = True
    budget: str | None = None
    key: str | None = None
    task_digest: str | None = None
    suspended: str | None = None
    background: bool = False
    started_by: CallId | None = None
    run_usage: Usage = NO_USAGE
    run_spent: Amounts = NOTHING
    summary: int = -1
    context: int = 0
    selection: Selection | None = None
    singly: tuple[MessageId, ...] = ()
    kept: tuple[KeptResult, ...] = ()
    trust: Trust = Trust.TRUSTED


class Asking(Kept, frozen=True):
    """What a person is shown of a call, and what is bound to the decision (TOL-12). It never changes.

    Attributes:
        why: `tool`, or `repeat` of a call whose outcome is unknown (TOL-3).
        arguments: the final ones as JSON text, defaults included.
        binding: digest of the tool's name, its version and these arguments: what may run.
        asked_ms, expires_ms: milliseconds of the time of day (Unix); None: it never expires.
    """

    why: str
    arguments: str
    binding: str
    asked_ms: int
    expires_ms: int | None = None


class CallRow(Kept, frozen=True, tag_field=TAG, tag="call"):
    """A call of an open batch; erased in the commit that appends its result (TOL-4).

    Attributes:
        asking: of a call that needs approval, or did: one that is planned and has it was approved.
    """

    call: CallId
    agent: AgentId
    turn: TurnId
    name: str
    arguments: str
    state: CallState
    tries: int = 1
    result: ResultRecord | None = None
    asking: Asking | None = None


class OutcomeRow(Kept, frozen=True, tag_field=TAG, tag="turn_outcome"):
    """The outcome of a turn, kept for those who ask later (ACC-9)."""

    turn: TurnId
    agent: AgentId
    run: RunId
    outcome: Outcome


class KvRow(Kept, frozen=True, tag_field=TAG, tag="kv"):
    """A value of a key-value store. `scope`: `agent`, a run id or a call id. `value`: JSON text."""

    agent: AgentId
    scope: str
    key: str
    value: str


Row: TypeAlias = AgentRow | CallRow | OutcomeRow | KvRow
RowKey: TypeAlias = tuple[str, ...]


def row_key(row: Row) -> RowKey:
    """The primary key of a row within its class."""
    match row:
        case AgentRow(agent=agent):
            return (agent,)
        case CallRow(call=call):
            return (call,)
        case OutcomeRow(turn=turn):
            return (turn,)
        case KvRow(agent=agent, scope=scope, key=key):
            return (agent, scope, key)
        case _:
            assert_never(row)


# -- operations --------------------------------------------------------------------------------------------------


class Append(Struct, frozen=True):
    """Append records to an agent's conversation, the first at index `at`.

    Returns the new length. Fails (`Conflict`) unless the conversation has exactly `at` records: another wrote.
    """

    agent: AgentId
    at: int
    records: tuple[Record, ...]


FORGOTTEN: Final = 10_000
"""How many records a `Forget` removes at most: a commit never costs more than that."""


class Forget(Struct, frozen=True):
    """Remove an agent's oldest records, those at indices below `before` but for `keep`, the first 10,000 (CMP-4).

    Returns how many. The others keep their indices. Fails (`Conflict`) where none would be left behind `before`.
    """

    agent: AgentId
    before: int
    keep: tuple[int, ...] = ()


class Put(Struct, frozen=True):
    """Write a row, replacing the one of its key. With `fresh`, fails (`Conflict`) where one stands. Returns None."""

    row: Row
    fresh: bool = False


class Erase(Struct, frozen=True):
    """Remove rows of a class whose key begins with `prefix` (whole parts, one at least). Returns how many.

    An agent's row is never removed (`UsageError`): its path is never used again.
    """

    table: type[Row]
    prefix: RowKey


class Enqueue(Struct, frozen=True):
    """Put a message last in its lane, and mark that the agent owes work (ACC-1).

    Returns the place: a `Placed`, of the first acceptance where sender and key were seen before (ACC-7).
    Fails: no such agent (`UnknownPath`), intake not open (`AgentClosed`; while the agent is closing, the control lane
    and reserved places still take messages), over the bound (`MailboxFull`, `MessageTooLarge`; never for a reserved
    place), the key of another message (`UsageError`), a used id (`Conflict`). It may go to another tree's agent.
    """

    envelope: Envelope
    bound: LaneBound


class Placed(Struct, frozen=True):
    """Where a message stands. `again`: an earlier acceptance under the same key."""

    message: MessageId
    seq: int
    again: bool = False


class Claim(Struct, frozen=True):
    """Take messages out of the mailbox for a turn: each must be queued or held (CON-3). Returns None.

    Fails (`Conflict`) where one is not, or where `messages` is empty: a set that claims nothing changes nothing.
    No such agent: `UnknownPath`, here and for `Move`, `Shut` and `Append`. `reason` is kept with the messages.
    """

    agent: AgentId
    messages: tuple[MessageId, ...]
    turn: TurnId
    reason: str | None = None


class Move(Struct, frozen=True):
    """Change the state of messages from one of `frm` to `to`. Returns the ids moved, in order of acceptance.

    `messages`: those; None: all of the agent's send and steer lanes. Named ones in another state fail the set
    (`Conflict`). A message that waits again keeps its place, forgets the turn that had consumed it, and expires no more
    if it was dead. `at`: when, in seconds since 1970, kept for dead letters.
    """

    agent: AgentId
    frm: tuple[ReceiptState, ...]
    to: ReceiptState
    messages: tuple[MessageId, ...] | None = None
    reason: str | None = None
    at: float | None = None


class Shut(Struct, frozen=True):
    """Change an agent's intake (CLS-1). Returns True if it was changed, False where it was there already or beyond.

    Fails (`Conflict`) where it would be closed while an order waits for it: claim that in the same set, before.
    """

    agent: AgentId
    to: Intake


class Require(Struct, frozen=True):
    """Fail (`Conflict`) unless the row's field equals the value. Returns None."""

    table: type[Row]
    key: RowKey
    field: str
    equals: object


class Bump(Struct, frozen=True):
    """Add `by` to a counter (0 where there is none). Returns the new value; fails (`Conflict`) above `bound`."""

    counter: str
    by: int = 1
    bound: int | None = None


Operation: TypeAlias = Append | Forget | Put | Erase | Enqueue | Claim | Move | Shut | Require | Bump


class ChangeSet(Struct, frozen=True):
    """Operations that one commit carries.

    Attributes:
        tree: whose rows these are. epoch: the owner's, checked against the tree's (`Fenced`); None for what
        any process may do: `Enqueue`, `Move` (a withdrawal), `Shut`, `Bump` and `Require`.
        founder: who takes the tree with this very set, as the store's `new_holder` made it; then the epoch is 1. Fails
        (`Conflict`) where anybody has ever had the tree.
    """

    tree: TreeId
    epoch: int | None
    operations: tuple[Operation, ...]
    founder: object | None = None


Value: TypeAlias = int | bool | Placed | tuple[MessageId, ...] | None
Values: TypeAlias = tuple[Value, ...]

NO_OPERATIONS: Final[tuple[Operation, ...]] = ()
