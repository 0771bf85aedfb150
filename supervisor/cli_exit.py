"""What a run's end means to whoever started the command: the exit code, and words for a person. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.errors import (
    Aborted,
    AgentClosed,
    BudgetError,
    CallboardError,
    Exhausted,
    Killed,
    MissingKey,
    StoreError,
    UsageError,
)
from actors.messages import Status

if TYPE_CHECKING:
    from actors.messages import Outcome
    from actors.reports import Report

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
ENVIRONMENT: Final = 3
EXHAUSTED: Final = 4
ABORTED: Final = 5
PARKED: Final = 6
UNHEARD: Final = 7
INTERRUPTED: Final = 130
UNREAD: Final = 141

MEANINGS: Final = {
    DONE: "done",
    FAILED: "failed; of `store check`: it has found something",
    USAGE: "usage: the command line, FILE.py, or a path that the store does not have",
    ENVIRONMENT: "environment: a key, a module, the store or the output is missing, or cannot be used",
    EXHAUSTED: "exhausted: a budget, also where it parks the run",
    ABORTED: "aborted, killed or closed",
    PARKED: "parked: it waits for a person, who approves, answers, or ends a pause",
    UNHEARD: "no report yet when the seconds of `--wait` are over",
    INTERRUPTED: "interrupted, by Ctrl-C or SIGTERM",
    UNREAD: "nobody reads the output any more, as behind `head`",
}
"""What each exit code says: the table of `--help` and of the README."""

_OF_STATUS: Final = {
    Status.DONE: DONE,
    Status.NEEDS_INPUT: PARKED,
    Status.PARKED: PARKED,
    Status.EXHAUSTED: EXHAUSTED,
    Status.ABORTED: ABORTED,
    Status.FAILED: FAILED,
    Status.CLOSED: ABORTED,
}


class Unheard(CallboardError):
    """No report came as long as was waited for one; the message stays accepted."""

    kind = "unheard"


def code_of_report(report: Report) -> int:
    """The exit code for how a run ended; one that is parked because its budget is exhausted is exhausted."""
    return _code_of(report.status, exhausted=isinstance(report.error, BudgetError))


def code_of_outcome(outcome: Outcome) -> int:
    """The same for an outcome as the store keeps it."""
    return _code_of(outcome.status, exhausted=outcome.failure is not None and outcome.failure.kind == Exhausted.kind)


def _code_of(status: Status, *, exhausted: bool) -> int:
    return EXHAUSTED if status is Status.PARKED and exhausted else _OF_STATUS[status]


def code_of_error(error: BaseException) -> int:
    """The exit code for what was raised instead of a report."""
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED
        case MissingKey() | StoreError():
            return ENVIRONMENT
        case UsageError():
            return USAGE
        case CallboardError(kind="environment"):
            return ENVIRONMENT
        case Exhausted():
            return EXHAUSTED
        case Unheard():
            return UNHEARD
        case Aborted() | Killed() | AgentClosed():
            return ABORTED
        case _:
            return FAILED


def words_for_report(report: Report) -> str:
    """What a person is told of a run that is not done; empty for one that is."""
    if report.status is Status.DONE:
        return ""
    if report.question is not None:
        return f"{report.path} asks: {report.question.text}"
    why = f": {report.error}" if report.error is not None else ""
    return f"{report.path} {report.status.value.replace('_', ' ')}{why}"


def only(error: BaseException) -> BaseException:
    """The one error out of nested groups, if it is one; of several, the first that a person can act on."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = list(_leaves(error))
    return next((leaf for leaf in leaves if isinstance(leaf, CallboardError)), leaves[0] if len(leaves) == 1 else error)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
