"""What must hold of a store's rows, of one agent at a time: the rules behind `callboard store check`.

They are pure: they are handed decoded rows and say what is wrong with them. The numbers are those of the invariants
that the design lists; what a number covers, and which are no questions to a store, `sqlite_check.py` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.changes import AgentRow, CallRow, CallState, Intake
from actors.ids import MessageId, agent_of, parent_path, run_id, tree_of, turn_id
from actors.messages import Lane, ReceiptState
from actors.pages import scopes
from actors.transcript import MessageRecord, NoteRecord, ResponseRecord, ResultRecord, SummaryRecord, problems
from actors.usage import Amounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from actors.changes import KvRow, OutcomeRow
    from actors.messages import Envelope
    from actors.transcript import Record

WAITING: Final = frozenset({ReceiptState.QUEUED, ReceiptState.HELD})
LANES: Final = tuple(lane.value for lane in Lane)


RULES: Final = {
    "1": "a message's row and its envelope are of one message",
    "2": "a message enters one turn of its own agent, once",
    "3": "an accepted message waits, is held, was consumed, taken back, or is a dead letter",
    "4": "an agent's messages are numbered as they were accepted, without a gap",
    "7": "what the bounds of a mailbox count is what waits in it",
    "8": "nothing waits at a closed agent",
    "10": "a dead letter has a reason",
    "13": "who runs a tree is among the owners",
    "14": "a row is of its agent's tree, and of no later epoch than that has had",
    "19": "one turn of an agent is open at most, the last",
    "20": "a conversation has no gap, and was written by one owner behind the other",
    "21": "every call of a model has its result, in the next place",
    "23": "calls and outcomes are of a turn that can have them",
    "39": "every row is of an agent that is there, below its parent",
    "44": "all below a closed agent is closed",
    "47": "no run has spent more than its agent",
    "51": "the file is sound, and every row can be read",
    "52": "the schema is of this version",
    "CON-4": "a message is in its mailbox or in the conversation, not in both, nor in neither",
    "TOL-1": "a batch of calls is kept until all have results",
    "TOL-8": "pieces of a result go with it",
    "TOL-12": "what waits for a person is found by that",
    "HOK-4": "values of a run or a call go with it",
    "REC-2": "what owes work is found by that",
}
"""What must hold, by the numbers and promises that violations name: also the table of supervisor/README.md."""


@attrs.frozen
class Violation:
    """Something that must hold and does not.

    Attributes:
        rule: number of the invariant, or the id of the promise. where: the agent, or what it is about.
        what: what was found, and what that means.
    """

    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        """One line for a person."""
        return f"{self.where}: {self.what} [{self.rule}]"


# -- messages ----------------------------------------------------------------------------------------------------


@attrs.define(slots=True)
class Tally:
    """What an agent's messages add up to. `lanes`: depth and bytes of each lane, as its bounds count them."""

    seq: int = 0
    queued: int = 0
    waiting: int = 0
    entered: int = 0
    lanes: list[int] = attrs.field(factory=lambda: [0] * (2 * len(LANES)))


@attrs.frozen
class MessageColumns:
    """A message's row without its body."""

    id: str
    agent: str
    seq: int
    lane: str
    state: str
    sender: str
    key: str | None
    places: int
    bytes: int
    turn: str | None
    reason: str | None


def message_faults(row: MessageColumns, envelope: Envelope, tally: Tally) -> Iterator[Violation]:
    """What is wrong with a message, read in the order of acceptance; the tally takes it in."""
    where = f"{row.agent}, message {row.id}"
    if row.seq != tally.seq + 1:
        yield Violation("4", where, f"its number is {row.seq} behind {tally.seq}: one is missing, or out of order")
    tally.seq = row.seq
    told = (envelope.id, envelope.to, envelope.lane.value, envelope.sender or "", envelope.key)
    if told != (row.id, row.agent, row.lane, row.sender, row.key):
        yield Violation("1", where, "its row and its envelope name different messages, lanes, senders or keys")
    if (row.places, row.bytes) != ((0, 0) if envelope.reserved else (1, envelope.size_bytes)):
        yield Violation(
            "7", where, f"places and bytes are counted as {row.places} and {row.bytes}, not as its envelope takes"
        )
    if row.state not in _STATES:
        yield Violation("3", where, f"it is {row.state!r}, which no accepted message is")
        return
    state = ReceiptState(row.state)
    if (state is ReceiptState.CONSUMED and row.turn is None) or (state in WAITING and row.turn is not None):
        yield Violation("2", where, f"it is {state.value}, and its turn is {row.turn}: who answers it is not known")
    elif row.turn is not None and agent_of(row.turn) != row.agent:
        yield Violation("2", where, f"it was consumed by {row.turn}, a turn of another agent")
    if state is ReceiptState.DEAD and not row.reason:
        yield Violation("10", where, "it is dead without a reason")
    if state in WAITING:
        tally.queued += state is ReceiptState.QUEUED
        tally.waiting += row.lane != Lane.CONTROL.value
        if row.lane in LANES:
            at = 2 * LANES.index(row.lane)
            tally.lanes[at] += row.places
            tally.lanes[at + 1] += row.bytes
    tally.entered += state is ReceiptState.CONSUMED and bool(envelope.content)


_STATES: Final = frozenset(
    state.value for state in ReceiptState if state not in (ReceiptState.PENDING, ReceiptState.REFUSED)
)


# -- agents ------------------------------------------------------------------------------------------------------


@attrs.frozen
class AgentColumns:
    """An agent's row without its body. `lanes`: depth and bytes, lane by lane."""

    agent: str
    tree: str
    parent: str
    key: str | None
    owes: int
    intake: str
    seq: int
    queued: int
    lanes: tuple[int, ...]


def agent_faults(columns: AgentColumns, row: AgentRow, tally: Tally) -> Iterator[Violation]:
    """What is wrong with an agent's row and with its counters."""
    where = columns.agent
    if (row.agent, row.parent, row.key) != (columns.agent, columns.parent, columns.key):
        yield Violation("39", where, "its row and its columns name different paths, parents or keys")
    if (parent_path(columns.agent), tree_of(columns.agent)) != (columns.parent, columns.tree):
        yield Violation("39", where, f"its parent {columns.parent!r} or tree {columns.tree!r} is not that of its path")
    if bool(columns.owes) != row.owes:
        yield Violation("REC-2", where, f"its row owes work: {row.owes}; the index that a restart reads says otherwise")
    if row.open is not None and not row.owes:
        yield Violation("REC-2", where, f"turn {row.open.number} is open, and it owes nothing: no restart goes on")
    if columns.queued != tally.queued:
        yield Violation(
            "REC-2", where, f"messages counted as queued: {columns.queued}; queued: {tally.queued}: work may be missed"
        )
    if columns.seq != tally.seq:
        yield Violation("4", where, f"its last message is to be {columns.seq}, and {tally.seq} is: messages are lost")
    if columns.lanes != tuple(tally.lanes):
        found = ", ".join(f"{lane} {tally.lanes[2 * at : 2 * at + 2]}" for at, lane in enumerate(LANES))
        yield Violation(
            "7", where, f"its lanes are counted as {list(columns.lanes)}; they hold {found}: bounds are off"
        )
    if columns.intake == Intake.CLOSED.value and tally.waiting:
        yield Violation("8", where, f"it is closed, and what waits nobody will answer: messages, {tally.waiting}")
    if not _within(row.run_spent, row.spent):
        yield Violation("47", where, f"its last run spent {row.run_spent}, more than all of them: {row.spent}")
    if row.open is not None and row.open.number > row.turns:
        yield Violation("19", where, f"turn {row.open.number} is open, and the last that was begun is {row.turns}")


def _within(part: Amounts, whole: Amounts) -> bool:
    names = Amounts.__struct_fields__
    return all(0 <= getattr(part, name) <= getattr(whole, name) for name in names)


# -- conversations -----------------------------------------------------------------------------------------------


@attrs.define
class Conversation:
    """A conversation, read record by record.

    Attributes:
        entered: the messages that stand in it, each with the turn that took it. owed: calls without a result, in order.
        summary: index of the last summary, -1 for none. in_force: indices that it says are in force, from where on and
            the pinned ones. length: of the conversation. missing: indices at which no record is.
        torn: what is behind a missing record may belong to it.
    """

    entered: dict[MessageId, str] = attrs.field(factory=dict)
    owed: list[str] = attrs.field(factory=list)
    summary: int = -1
    in_force: tuple[int, tuple[int, ...]] = (0, ())
    length: int = 0
    missing: list[range] = attrs.field(factory=list)
    torn: bool = False
    faults: list[Violation] = attrs.field(factory=list)

    def skip(self, to: int) -> None:
        """No record is there until index `to`."""
        self.missing.append(range(self.length, to))
        self.length, self.owed, self.torn = to, [], True

    def _result(self, where: str, record: ResultRecord) -> None:
        if not self.torn and self.owed[:1] != [record.call]:
            owed = self.owed[0] if self.owed else "none"
            self.faults.append(Violation("21", where, f"the result of {record.call} where {owed} is owed"))
        self.owed = [call for call in self.owed if call != record.call]

    def take(self, agent: str, record: Record) -> None:
        """One more record."""
        index, where = self.length, f"{agent}, record {self.length}"
        self.length += 1
        if agent_of(record.turn) != agent:
            self.faults.append(Violation("20", where, f"it is of {record.turn}, a turn of another agent"))
        if isinstance(record, ResultRecord):
            self._result(where, record)
            return
        self.torn = False
        if self.owed:
            text = f"it stands behind calls without results ({', '.join(self.owed)}): providers refuse that"
            self.faults.append(Violation("21", where, text))
            self.owed = []
        match record:
            case MessageRecord(message=message, turn=turn):
                if message in self.entered:
                    self.faults.append(Violation("2", where, f"message {message} entered a second time"))
                self.entered[message] = turn
            case NoteRecord(without=without):
                for message in without:
                    self.entered.pop(message, None)
            case ResponseRecord():
                self.owed = [block.id for block in record.calls]
                found = (fault for fault in problems([record]) if not fault.startswith("at the end"))
                self.faults += [Violation("21", where, fault.partition(": ")[2]) for fault in found]
            case SummaryRecord(upto=upto, pinned=pinned):
                self.summary, self.in_force = index, (upto, pinned)
                if not 0 <= upto <= index:
                    self.faults.append(Violation("20", where, f"a summary of all before {upto}, which is behind it"))


def conversation_faults(
    row: AgentRow, heard: Conversation, calls: Sequence[CallRow], tally: Tally
) -> Iterator[Violation]:
    """What is wrong with a whole conversation, and with the calls of its last batch."""
    where = row.agent
    yield from heard.faults
    if row.summary != heard.summary:
        yield Violation("20", where, f"its row names record {row.summary} as the last summary; {heard.summary} is")
    first, pinned = heard.in_force
    for gap in heard.missing:  # CMP-4: what a summary stands for may have been removed, and nothing else
        if gap.stop > first or any(at in gap for at in pinned):
            yield Violation("20", where, f"records {gap.start} to {gap.stop - 1} are missing, some of them in force")
    if len(heard.entered) > tally.entered or (len(heard.entered) < tally.entered and not heard.missing):
        text = f"messages consumed with content: {tally.entered}; in the conversation: {len(heard.entered)}"
        yield Violation("CON-4", where, text)
    number = None if row.open is None else row.open.number
    batch = {call.call for call in calls if call.state is not CallState.UNKNOWN}
    for call in calls:
        if call.state is not CallState.UNKNOWN and call.turn != turn_id(where, number or 0):
            yield Violation("23", f"{where}, call {call.call}", f"it is {call.state.value} in a turn that is not open")
    if heard.owed and number is None:
        yield Violation("21", where, f"no turn is open, and results are owed: {', '.join(heard.owed)}")
    elif not batch <= set(heard.owed):  # one that is owed and not kept has not started: it is dispatched as new
        text = f"its conversation owes the results of {heard.owed}; the calls that are kept are {sorted(batch)}"
        yield Violation("TOL-1", where, text)


# -- what is kept beside -----------------------------------------------------------------------------------------


@attrs.frozen
class Facts:
    """What other rows of an agent are held against."""

    intake: str
    turns: int
    run: int
    open: int | None
    spent: Amounts
    kept: frozenset[str]

    @classmethod
    def of(cls, columns: AgentColumns, row: AgentRow) -> Facts:
        """Those of a row."""
        kept = frozenset(scope for one in row.kept for scope in scopes(one))
        number = None if row.open is None else row.open.number
        return cls(columns.intake, row.turns, row.runs, number, row.spent, kept)


def outcome_faults(row: OutcomeRow, facts: Facts) -> Iterator[Violation]:
    """What is wrong with how a turn ended."""
    number = int(row.turn.rpartition(":t")[2])
    if number == facts.open:
        yield Violation("23", row.agent, f"turn {number} has an outcome, and is open")
    elif number > facts.turns:
        yield Violation("23", row.agent, f"turn {number} has an outcome, and the last that was begun is {facts.turns}")
    if not _within(row.outcome.spent, facts.spent):
        yield Violation("47", row.agent, f"{row.run} spent {row.outcome.spent}, more than its agent: {facts.spent}")


def kv_faults(row: KvRow, facts: Facts) -> Iterator[Violation]:
    """What is wrong with a value: of a run or a call that is over, or of a result that is kept no more."""
    where = f"{row.agent}, key {row.key!r} of {row.scope}"
    if row.scope.startswith("kept:"):
        if row.scope not in facts.kept:
            yield Violation("TOL-8", where, "the result is kept no more; its pieces were to go with it")
        return
    if not row.scope.startswith(f"{row.agent}:"):
        return
    kind = row.scope[len(row.agent) + 1 :]
    if kind.startswith("r"):
        begins = run_id(row.agent, facts.run + 1)  # a hook before a run writes before the row counts it
        if row.scope not in (run_id(row.agent, facts.run), begins):
            yield Violation("HOK-4", where, "the run is over; its store was to be erased with it")
    elif kind.startswith("t") and int(kind[1:].partition(".")[0]) != facts.open:
        yield Violation("HOK-4", where, "the call is over; its store was to be erased with it")
