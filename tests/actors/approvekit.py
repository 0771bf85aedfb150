"""Turns whose calls need approval, for the tests of approvals in the turn's core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors import approving
from actors.changes import AgentRow, CallRow, CallState
from actors.ids import CallId, MessageId
from actors.inputs import Begin, Decided
from actors.messages import Decision, Envelope, Lane, Purpose, Queued, Verdict
from actors.tools import tool, toolbox
from tests.actors.turnkit import AGENT, TOOLS, Drive

if TYPE_CHECKING:
    from actors.points import TurnSpec


PLANNED, AWAITING, STARTED, SETTLED = CallState.PLANNED, CallState.AWAITING, CallState.STARTED, CallState.SETTLED


@tool(approve=True)
def delete(path: str, deep: bool = False) -> str:  # noqa: FBT001, FBT002 - a model gives it by name
    """Delete."""
    return path + str(deep)


@tool(approve=lambda path: path != "scratch", resource=lambda path: path, approve_timeout=60)
def erase(path: str) -> str:
    """Erase."""
    return path


@tool(approve=True, exclusive=True)
def wipe() -> None:
    """Wipe everything, alone."""


BOX = toolbox([*TOOLS.values(), delete, erase, wipe])


def drive(*calls: Any, spec_: TurnSpec | None = None, **state: Any) -> Drive:
    """A turn whose first response has these calls."""
    made = Drive(spec_, **state)
    made.tools = BOX
    made.start()
    made.reply(*calls)
    return made


def states(made: Drive) -> list[CallState]:
    """Where the calls of the open batch are."""
    return [one.state for one in made.state.calls]


def decision(which: str | CallId, verdict: Verdict = Verdict.APPROVED, message: str = "", seq: int = 5) -> Queued:
    """A decision on a call, as it stands in the mailbox."""
    target = CallId(which) if ":" in which else CallId(f"lead:t1.1.{which}")
    envelope = Envelope(
        MessageId(f"d-{target}-{verdict}"), AGENT, Lane.CONTROL, (), purpose=Purpose.DECISION, target=target,
        decision=Decision(verdict, "an operator", message),
    )  # fmt: skip
    return Queued(seq, envelope)


def decide(made: Drive, *decisions: Queued) -> None:
    """The decisions come."""
    made.give(Decided(made.now, decisions))


def again(made: Drive, *, more: bool = True, box: Any = BOX) -> Drive:
    """Another process goes on with what the store has of a turn that was parked or cut off."""
    rows = {one.call: one for commit in made.commits for put in commit if isinstance(one := row_in(put), CallRow)}
    row = next(
        found
        for commit in reversed(made.commits)
        for put in reversed(commit)
        if isinstance(found := row_in(put), AgentRow)
    )
    other = Drive(made.state.spec, row, made.records, new_run=False)
    other.tools, other.now, other.commits = box, made.now, list(made.commits)
    response = made.records[-1]
    views = tuple(approving.found(block, rows.get(block.id), box) for block in response.calls)  # type: ignore[union-attr]
    other.give(Begin(other.now, views, more=more))
    return other


def row_in(operation: Any) -> Any:
    """The row of a Put."""
    return getattr(operation, "row", None)
