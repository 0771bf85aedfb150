"""The crash points of the design's list, each with where it lies here, and what a moment of a life is called.

A moment is before or behind a commit, or at the edge of something outside: a tool's body, a request, a person.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import attrs

from actors.changes import AgentRow, Append, CallRow, CallState, Claim, Enqueue, Intake, Move, OutcomeRow, Put, Shut
from actors.messages import Lane, Purpose, ReceiptState
from actors.transcript import ResponseRecord, ResultRecord, SummaryRecord

if TYPE_CHECKING:
    from actors.changes import ChangeSet, Operation


class Phase(enum.StrEnum):
    """Where a moment lies."""

    BEFORE = "before"
    """The commit: nothing of it is written."""
    AFTER = "after"
    """The commit: all of it is written, and nobody was told."""
    AT = "at"
    """An edge of something outside."""


@attrs.frozen
class Moment:
    """Where a process can die. `labels`: what the commit carries, or the name of the edge."""

    phase: Phase
    labels: frozenset[str]

    def __str__(self) -> str:
        return f"{self.phase} {'+'.join(sorted(self.labels)) or 'other'}"

    def fits(self, phase: Phase, label: str) -> bool:
        """Whether it is of this phase and has the label."""
        return self.phase is phase and label in self.labels


@attrs.frozen
class CrashPoint:
    """One of the list.

    Attributes:
        between: as the design has it. where: as it lies here.
        moments: any of these covers it; none: it waits for `where`.
    """

    number: int
    between: str
    where: str
    moments: tuple[tuple[Phase, str], ...]


_B, _A, _AT = Phase.BEFORE, Phase.AFTER, Phase.AT

POINTS: Final = tuple(
    CrashPoint(number, between, where, moments)
    for number, (between, where, moments) in enumerate(
        (
            ("send: before commit", "`Enqueue` of a task (post)", ((_B, "accept"),)),
            ("send: COMMIT sent, ack lost", "the same, written and untold (kernel.commit)", ((_A, "accept"),)),
            ("send: commit, then wake", "one stretch with its commit (mirror)", ((_A, "accept"),)),
            ("acquire: commit, then first action", "`own` (ownership)", ((_A, "own"),)),
            ("deliver: before commit", "`Claim` with its records and the open turn (turn)", ((_B, "claim"),)),
            ("deliver: commit, then model start", "the same, written", ((_A, "claim"),)),
            ("model started, then request sent", "admitted and `asking`; the model is called", ((_AT, "model:start"),)),
            ("request sent, then first byte", "the model has the request", ((_AT, "model:sent"),)),
            ("mid-stream", "the first piece was emitted", ((_AT, "model:first"),)),
            ("whole response in memory, then commit", "`Append` of the response",
             ((_AT, "model:end"), (_B, "response"))),
            ("response commit, then approval insert", "one commit here: the response with its awaiting call",
             ((_B, "awaiting"), (_A, "awaiting"))),
            ("approval pending", "a person sees the request", ((_AT, "person:sees"),)),
            ("approved, then dispatched commit", "the decision is accepted, its call not started", ((_A, "decision"),)),
            ("dispatch commit, then body entry", "`CallRow` started, written; before the first line of the body",
             ((_A, "started"), (_AT, "tool:entry"))),
            ("inside body", "its effect has happened", ((_AT, "tool:inside"),)),
            ("body returned, then settle commit", "behind its last line", ((_AT, "tool:exit"), (_B, "settled"))),
            ("settle COMMIT ambiguous", "the results' commit, written and untold; `InDoubt` in failing.py",
             ((_A, "settled"),)),
            ("some of n parallel calls settled", "a result's commit while others of its batch run", ((_A, "partly"),)),
            ("settle, then result entries", "one commit here: `Append` of results and the calls' rows",
             ((_B, "settled"), (_A, "settled"))),
            ("next step start, steer consumed", "one commit: `Claim` of a steer", ((_B, "steered"), (_A, "steered"))),
            ("spawn: planned, then settle", "the child's row, before (births)", ((_B, "birth"),)),
            ("spawn commit, then child loop starts", "the child's row and task, written", ((_A, "birth"),)),
            ("child ends turn, then parent woken", "the child's outcome, written", ((_A, "child ends"),)),
            ("end-turn before commit", "the outcome's commit (ending)", ((_B, "end"),)),
            ("compaction: summary computed, then commit", "`Append` of the summary", ((_B, "summary"),)),
            ("timer fired, then message insert", "timers", ()),
            ("close: intake shut, then drained", "`Shut` to closing, written", ((_A, "closing"),)),
            ("close: children closed, then self closed", "`Shut` to closed of a child, written",
             ((_A, "child closed"),)),
            ("abort committed, then scope unwound", "`Enqueue` of the abort, written", ((_A, "abort"),)),
            ("restart recorded, then child started", "restarts of crashed children (SUP-1)", ()),
            ("dead-letter commit, then notify parent", "`Move` to the dead letters with the outcome, written",
             ((_A, "dead"),)),
            ("ledger settle, model settle", "one commit: the row with what was spent, and the response",
             ((_B, "response"), (_A, "response"))),
            ("migration step i, then i+1", "a second version of the schema (one step is one transaction)", ()),
            ("blob written, then row commit", "blobs", ()),
        ),
        start=1,
    )
)  # fmt: skip


def covered(moment: Moment) -> frozenset[int]:
    """The numbers of the points that a moment covers."""
    return frozenset(point.number for point in POINTS if any(moment.fits(*one) for one in point.moments))


@attrs.define
class Labels:
    """Says what a commit carries; it remembers what that needs.

    Attributes:
        steers: messages of the steer lane. open: calls of each agent that have no result yet.
    """

    steers: set[str] = attrs.field(factory=set)
    open: dict[str, set[str]] = attrs.field(factory=dict)

    def of(self, change_set: ChangeSet) -> frozenset[str]:
        """The labels of a commit that is about to be written."""
        return frozenset(label for one in change_set.operations for label in self._of(one))

    def written(self, change_set: ChangeSet) -> None:
        """Remember what was written."""
        for one in change_set.operations:
            match one:
                case Enqueue(envelope=envelope) if envelope.lane is Lane.STEER:
                    self.steers.add(envelope.id)
                case Append(agent=agent, records=records):
                    for record in records:
                        if isinstance(record, ResponseRecord):
                            self.open[agent] = {call.id for call in record.calls}
                        elif isinstance(record, ResultRecord):
                            self.open.setdefault(agent, set()).discard(record.call)
                case _:
                    pass

    def _of(self, one: Operation) -> tuple[str, ...]:
        match one:
            case Enqueue(envelope=envelope):
                return (_PURPOSES.get(envelope.purpose, envelope.purpose.value),)
            case Claim(messages=messages):
                return ("claim", "steered") if self.steers.intersection(messages) else ("claim",)
            case Append(agent=agent, records=records):
                return self._appended(agent, records)
            case Put(row=AgentRow(agent=agent), fresh=True):
                return ("birth",) if "/" in agent else ("root",)
            case Put(row=OutcomeRow(agent=agent)):
                return ("end", "child ends") if "/" in agent else ("end",)
            case Put(row=CallRow(state=state)):
                return ("partly",) if state is CallState.SETTLED else (state.value,)
            case Shut(agent=agent, to=Intake.CLOSED):
                return ("closed", "child closed") if "/" in agent else ("closed",)
            case Shut(to=Intake.CLOSING):
                return ("closing",)
            case Move(to=ReceiptState.DEAD):
                return ("dead",)
            case _:
                return ()

    def _appended(self, agent: str, records: tuple[object, ...]) -> tuple[str, ...]:
        found: list[str] = []
        results = {record.call for record in records if isinstance(record, ResultRecord)}
        if results:
            found.append("partly" if self.open.get(agent, set()) - results else "settled")
        found += ["response" for record in records if isinstance(record, ResponseRecord)]
        found += ["summary" for record in records if isinstance(record, SummaryRecord)]
        return tuple(found)


_PURPOSES: Final = {Purpose.TASK: "accept", Purpose.DECISION: "decision", Purpose.ABORT: "abort"}
