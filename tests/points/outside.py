"""What no crash forgets: what tools did, what a model was asked, what a person was told; and what is broken by it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard

import attrs

from actors.changes import AgentRow, Append, CallRow, CallState, Put
from actors.ids import AgentId
from actors.transcript import ResponseRecord, ResultRecord, ResultStatus, Stop
from tests.points.table import Labels, Moment

if TYPE_CHECKING:
    from actors.changes import ChangeSet
    from actors.ports import ModelRequest
    from actors.transcript import Record
    from actors.usage import Amounts

POISON_LIMIT: Final = 3
FIGURES: Final = ("input_tokens", "output_tokens", "cost", "model_calls", "tool_calls")

Like: TypeAlias = tuple[AgentId, str, str]
"""What a call is like: its agent, its tool, its arguments."""


@attrs.frozen
class Effect:
    """A tool's effect outside."""

    call: str
    effect: str
    key: str


@attrs.define(eq=False)
class Outside:
    """What no crash forgets.

    Attributes:
        moments: of each process, in order. hits: where processes died.
        effects: what tools did. started: calls whose start is on disk, each with its agent, tool and arguments.
        unknown: what such calls are like whose outcome is unknown. approved: calls that a person approves; decided:
            those of which that was acknowledged. granted: model calls that a person grants.
        asked, again, output: per agent, attempts that a model had, those that were not the first at their request, and
            tokens of whole answers. held: per agent, requests that something was reserved for.
        accepted: by text, messages whose acceptance was returned.
        found: turns that a dead process left open, not yet taken up. crashed: how often all of those had.
        half: agents whose watchers saw half a response.
        problems: promises that were seen broken.
    """

    labels: Labels = attrs.field(factory=Labels)
    hits: list[Moment] = attrs.field(factory=list)
    effects: list[Effect] = attrs.field(factory=list)
    started: dict[str, Like] = attrs.field(factory=dict)
    unknown: set[Like] = attrs.field(factory=set)
    approved: set[str] = attrs.field(factory=set)
    decided: set[str] = attrs.field(factory=set)
    granted: int = 0
    held: Counter[str] = attrs.field(factory=Counter)
    asked: Counter[str] = attrs.field(factory=Counter)
    again: Counter[str] = attrs.field(factory=Counter)
    output: Counter[str] = attrs.field(factory=Counter)
    accepted: dict[str, str] = attrs.field(factory=dict)
    done: set[str] = attrs.field(factory=set)
    found: dict[str, AgentRow] = attrs.field(factory=dict)
    crashed: dict[str, int] = attrs.field(factory=dict)
    half: set[str] = attrs.field(factory=set)
    problems: list[str] = attrs.field(factory=list)
    _requests: set[str] = attrs.field(factory=set, init=False)
    _asking: dict[str, tuple[int, int] | None] = attrs.field(factory=dict, init=False)

    def works(self, agent: str) -> None:
        """An agent asks its model or a tool of it runs: its crash was counted before (REC, CON-6)."""
        if agent in self.found:
            self.problems.append(f"REC: {agent} worked before its crash was counted")

    def mark(self) -> tuple[object, ...]:
        """What has happened: of what only grows, how much there is."""
        grows = (self.effects, self.accepted, self.done, self.approved, self.decided, self.problems)
        counts = (self.granted, self.asked.total(), self.output.total())
        return (*map(len, grows), *counts, frozenset(self.half))

    def asks(self, request: ModelRequest) -> None:
        """A model is asked: not what it has answered (REC-1), and not while its agent is paused (TOL-12)."""
        self.again[request.agent] += request.id in self._requests
        self._requests.add(request.id)
        last = request.window[-1] if len(request.window) else None
        if request.purpose != "turn":
            return
        if isinstance(last, ResponseRecord) and last.stop is not Stop.INTERRUPTED and not last.calls:
            self.problems.append(f"REC-1: {request.agent} asks for what was answered")
        if "pause" in self.done and "waking" not in self.done:
            self.problems.append(f"TOL-12: {request.agent} asks though it is paused")

    def written(self, change_set: ChangeSet) -> None:
        """A commit is in the store: the first one of a turn that was found open takes it up whole."""
        self.labels.written(change_set)
        for one in change_set.operations:
            match one:
                case Append(records=records):
                    ended = [record.call for record in records if _is_unknown(record)]
                    self.unknown.update(self.started[call] for call in ended if call in self.started)
                case Put(row=CallRow(state=CallState.STARTED) as row):
                    self._starts(row)
                case Put(row=AgentRow() as row):
                    if (before := self.found.pop(row.agent, None)) is not None:
                        self._taken_up(before, row)
                    self._holds(row)
                case _:
                    pass

    def _holds(self, row: AgentRow) -> None:
        """Something is reserved for a request that was not the one of before."""
        asks = row.open is not None and bool(row.open.held.model_calls)
        request = (row.open.number, row.open.step) if row.open is not None and asks else None
        self.held[row.agent] += asks and request != self._asking.get(row.agent)
        self._asking[row.agent] = request

    def _starts(self, row: CallRow) -> None:
        """A call is to run: one like another whose outcome is unknown needs a person's word (TOL-3)."""
        like = (row.agent, row.name, row.arguments)
        if row.call not in self.started and like in self.unknown:
            if row.call not in self.approved:
                self.problems.append(f"TOL-3: {row.call} is like a call of unknown outcome, and nobody was asked")
            self.unknown.discard(like)
        self.started[row.call] = like

    def _taken_up(self, before: AgentRow, after: AgentRow) -> None:
        was, now = before.open, after.open
        assert was is not None, "only open turns are looked for"
        kids = [tries for agent, tries in self.crashed.items() if agent.startswith(f"{before.agent}/")]
        last = [tries + 1 >= POISON_LIMIT for tries in (was.tries, max(kids, default=0))]
        spared = POISON_LIMIT - 1 if all(last) else None  # its child is given up first
        if now is not None and now.number == was.number and now.tries not in (was.tries + 1, spared):
            self.problems.append(f"CON-6: {after.agent} had {was.tries} crashes, and then {now.tries}")
        if not covers(after.spent, before.spent + was.held):
            self.problems.append(
                f"BUD-7: {after.agent} forgot what was held: {before.spent}, {was.held}, {after.spent}"
            )


def _is_unknown(record: Record) -> TypeGuard[ResultRecord]:
    return isinstance(record, ResultRecord) and record.status is ResultStatus.UNKNOWN


def covers(more: Amounts, less: Amounts) -> bool:
    """Whether each figure is as large at least."""
    return all(getattr(more, name) >= getattr(less, name) for name in FIGURES)
