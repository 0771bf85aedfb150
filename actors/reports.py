"""How a run ended, as people read it: a report, its error, a child's question."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import attrs

from .content import Trust
from .errors import BY_KIND, AnswerUnfit, CallboardError, DeadLettered, Exhausted, MailboxError, Unfinished, WaitCycle
from .ids import AgentId, MessageId, RunId, TurnId
from .messages import CallDone, Outcome, Status
from .usage import Usage, dollars

if TYPE_CHECKING:
    from .messages import Failure

Answer = Callable[[str], Awaitable[None]]


@attrs.frozen
class Question:
    """What a child asked an ancestor that was waiting for it (REE-2).

    Attributes:
        id: of the child's message. path: the child. text: what it asks.
    """

    id: MessageId
    path: AgentId
    text: str
    _answer: Answer = attrs.field(repr=False, eq=False)

    async def answer(self, text: str) -> None:
        """Answer it: the child's `ask` returns with this text.

        Raises:
            UsageError: it was answered already, or the child no longer waits.
        """
        await self._answer(text)


@attrs.frozen
class Report:
    """The outcome of a run.

    A run of several turns (several messages, one after another) answers each message with the report of the turn that
    consumed it, so that whoever asked gets the answer to what was asked.

    Attributes:
        status: one of the seven outcomes. text: of the last response. output: the structured answer, or None.
        usage: tokens of the run so far, without children's. cost: dollars, None where no price is known.
        path, run, turn: where. error: what ended it, or None. question: an open one, or None.
        calls: the run's tool calls, the last 64. trust: the least of what the agent had read: its words have it, too.
    """

    status: Status
    text: str
    output: object
    usage: Usage
    cost: Decimal | None
    path: AgentId
    run: RunId
    turn: TurnId
    error: CallboardError | None = None
    question: Question | None = None
    calls: tuple[CallDone, ...] = ()
    trust: Trust = Trust.TRUSTED

    def raise_for_status(self) -> Report:
        """Return the report if its status is `done`.

        Raises:
            CallboardError: the run's error, or `Unfinished` where it has none.
        """
        if self.status is Status.DONE:
            return self
        if self.error is not None:
            raise self.error
        what = f"; it asks: {self.question.text}" if self.question is not None else ""
        msg = f"{self.path} is not done but {self.status.value}{what}"
        raise Unfinished(msg)


def report_of(outcome: Outcome, output: object, answer: Answer) -> Report:
    """A report from a stored outcome. `output`: its structured answer, built."""
    asked = outcome.question
    return Report(
        status=outcome.status,
        text=outcome.text,
        output=output,
        usage=outcome.usage,
        cost=dollars(outcome.spent.cost) if outcome.cost_known else None,
        path=outcome.path,
        run=outcome.run,
        turn=outcome.turn,
        error=None if outcome.failure is None else error_of(outcome.failure),
        question=None if asked is None else Question(asked.id, asked.child, asked.text, answer),
        calls=outcome.calls,
        trust=outcome.trust,
    )


def error_of(failure: Failure) -> CallboardError:
    """The error that a stored failure was made of; facts that are text stay text."""
    facts = dict(failure.facts)
    cls = BY_KIND.get(failure.kind, CallboardError)
    if cls is Exhausted:
        return _exhausted(failure.message, facts)
    if cls is AnswerUnfit:
        tried = json.loads(facts.get("attempts", "[]"))
        return AnswerUnfit(failure.message, tuple((answer, problem) for answer, problem in tried))
    error = cls.__new__(cls)
    Exception.__init__(error, failure.message)
    for name, value in (*_DEFAULTS.get(cls, ()), *facts.items()):
        setattr(error, name, value)
    for name in ("retry_after_s", "status"):
        if name in facts:
            setattr(error, name, float(facts[name]) if name == "retry_after_s" else int(facts[name]))
    return error


_PROVIDER: Final = (
    ("reason", "server"),
    ("retry_after_s", None),
    ("status", None),
    ("request_id", None),
    ("code", None),
)
_DEFAULTS: Final[dict[type[CallboardError], tuple[tuple[str, object], ...]]] = {
    WaitCycle: (("path", ()),),
    **{cls: (("message", None),) for cls in BY_KIND.values() if issubclass(cls, MailboxError)},
    DeadLettered: (("message", None), ("reason", "")),
    **{cls: _PROVIDER for kind, cls in BY_KIND.items() if hasattr(cls, "retryable") and kind},
}


def _exhausted(message: str, facts: dict[str, str]) -> Exhausted:
    error = Exhausted(
        facts.get("node", ""),
        facts.get("dimension", ""),
        limit=facts.get("limit"),
        spent=facts.get("spent"),
        asked=facts.get("asked"),
        on_exhausted=facts.get("on_exhausted", "wrap_up"),
    )
    error.args = (message,)
    return error
