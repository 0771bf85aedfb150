"""Every error that callboard raises, drawn as a tree, in families by who must act.

    CallboardError
    ├── UsageError            fix the calling code
    │   ├── UnknownPath         no such agent in this store
    │   ├── MissingKey          a model's server wants a key and none is set
    │   ├── InsideLoop          a sync entry was called where an event loop runs
    │   └── WaitCycle           the wait would never end; send instead
    ├── ProviderError         the model's side; `retry_after_s` where the server named one
    │   ├── Rejected            it will never accept this (bad key, bad request, quota gone)
    │   ├── Overloaded          it may pass: rate limit, overload, server error
    │   ├── Malformed           what came is not what the protocol says
    │   ├── Broken              the connection failed, stalled or ended early
    │   └── ContextOverflow     the conversation does not fit the model's window
    ├── BudgetError           raise the limit, or stop
    │   ├── Exhausted           node, dimension, limit, spent, asked
    │   ├── SpawnLimit          breadth, depth or number of agents
    │   └── LimitReached        a bound of one turn (model calls, failing calls)
    │       ├── AnswerCut         the model's output limit cut the answer: it is not whole
    │       └── AnswerUnfit       no answer fitted the type it owes; `attempts`: each, with what is wrong with it
    ├── MailboxError          the message, which is attached, was not accepted
    │   ├── MailboxFull
    │   ├── MessageTooLarge
    │   ├── AgentClosed
    │   └── DeadLettered        it was accepted, and will not be answered: it is in the dead letters
    ├── LifecycleError        the agent did not come to an answer
    │   ├── Aborted, Killed, Crashed, Unfinished, NotCompacted, SpecMissing
    │   └── AnswerRefused       the model, or a filter of its server, refused to answer
    ├── StoreError            the store's side
    │   ├── Fenced, Corrupt, Unavailable, NewerSchema, OwnedElsewhere, Conflict
    │   └── InDoubt             below Unavailable: it may have been written, or not
    └── InternalError         a bug of ours: report it

A message says what happened, the value met, what would be accepted, and what to do next.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Sequence


class CallboardError(Exception):
    """Above every error of callboard.

    Attributes:
        kind: a stable word for programs and for stored reports; never the class name by accident.
    """

    kind: ClassVar[str] = "error"


class UsageError(CallboardError):
    """The calling code is wrong; the message says what to write instead."""

    kind = "usage"


class UnknownPath(UsageError):
    """No agent of this path is in the store."""

    kind = "unknown_path"


class MissingKey(UsageError):
    """The server of a model wants a key, and the environment has none."""

    kind = "missing_key"


class InsideLoop(UsageError):
    """A synchronous entry was called in a thread that already runs an event loop."""

    kind = "inside_loop"


class WaitCycle(UsageError):
    """A wait that could never end was refused; nothing has changed (REE-2).

    Attributes:
        path: who waits for whom, from the one that asked, round to itself; each entry names agent, turn and tool.
    """

    kind = "wait_cycle"

    def __init__(self, message: str, path: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.path = tuple(path)


class ProviderError(CallboardError):
    """A model call failed.

    Attributes:
        reason: the neutral kind (`rate_limit`, `auth`, `stream_truncated`, …).
        retry_after_s: seconds the server asked to wait, or None. status: the HTTP status, or None.
        request_id: the server's id of the request, or None. code: its own error code, or None.
    """

    kind = "provider"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        reason: str = "server",
        retry_after_s: float | None = None,
        status: int | None = None,
        request_id: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.status = status
        self.request_id = request_id
        self.code = code


class Rejected(ProviderError):
    """It cannot pass by asking again: key, request, model name, quota, content filter."""

    kind = "rejected"


class Overloaded(ProviderError):
    """It may pass later: rate limit, overload, server error, timeout of the server."""

    kind = "overloaded"
    retryable = True


class Malformed(ProviderError):
    """The answer breaks the protocol: bad JSON, no content, a malformed tool call."""

    kind = "malformed"
    retryable = True


class Broken(ProviderError):
    """The connection was refused, reset, stalled or ended before the answer was whole."""

    kind = "broken"
    retryable = True


class ContextOverflow(ProviderError):
    """The conversation does not fit the window; it is compacted once, then this is raised."""

    kind = "context_overflow"


class BudgetError(CallboardError):
    """A limit binds: raise it, or stop."""

    kind = "budget"


class Exhausted(BudgetError):
    """A reservation was refused (BUD-8).

    Attributes:
        node: path of the agent whose budget binds. dimension: `tokens`, `usd`, `model_calls`, …
        limit, spent, asked: in the dimension's own unit (cost in dollars, time in seconds), as text-exact numbers.
        on_exhausted: what that budget says is to be done now (BUD-4).
    """

    kind = "exhausted"

    def __init__(
        self, node: str, dimension: str, *, limit: object, spent: object, asked: object, on_exhausted: str = "wrap_up"
    ) -> None:
        super().__init__(
            f"budget of {node} exhausted: {dimension} limit {plain(limit)}, spent or held {plain(spent)}, asked"
            f" {plain(asked)}; raise it with grant({node!r}, Budget({dimension}=...)), or start anew with more"
        )
        self.node = node
        self.dimension = dimension
        self.limit = limit
        self.spent = spent
        self.asked = asked
        self.on_exhausted = on_exhausted


class SpawnLimit(BudgetError):
    """A tree may not grow further: depth, live agents or agents ever."""

    kind = "spawn_limit"


class LimitReached(BudgetError):
    """A bound of one turn was reached (TRN-7)."""

    kind = "limit_reached"


class AnswerCut(LimitReached):
    """The model's output limit cut the answer; the report's text is what came of it."""

    kind = "answer_cut"


class AnswerUnfit(LimitReached):
    """No answer fitted the type that it owes, as often as it was asked for.

    Attributes:
        attempts: every answer, in order, each with what is wrong with it.
    """

    kind = "answer_unfit"

    def __init__(self, text: str, attempts: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(text)
        self.attempts = tuple(attempts)


class MailboxError(CallboardError):
    """A message was not accepted and stands nowhere.

    Attributes:
        message: what was to be sent, as given.
    """

    kind = "mailbox"

    def __init__(self, text: str, message: object = None) -> None:
        super().__init__(text)
        self.message = message


class MailboxFull(MailboxError):
    """The lane holds as many messages or bytes as it may; nothing was written."""

    kind = "mailbox_full"


class MessageTooLarge(MailboxError):
    """One message is larger than a message may be; nothing was written."""

    kind = "message_too_large"


class AgentClosed(MailboxError):
    """The agent is closing or closed and accepts nothing new."""

    kind = "agent_closed"


class DeadLettered(MailboxError):
    """The message was accepted, and will not be answered unless it is put back.

    Attributes:
        message: its id. reason: why.
    """

    kind = "dead_letter"

    def __init__(self, text: str, message: object = None, reason: str = "") -> None:
        super().__init__(text, message)
        self.reason = reason


class LifecycleError(CallboardError):
    """An agent did not come to an answer."""

    kind = "lifecycle"


class Aborted(LifecycleError):
    """The run was aborted."""

    kind = "aborted"


class Killed(LifecycleError):
    """The agent was killed."""

    kind = "killed"


class Crashed(LifecycleError):
    """The agent's loop ended with an unexpected exception."""

    kind = "crashed"


class Unfinished(LifecycleError):
    """The run has no answer yet: it needs input, is parked, suspended or closed."""

    kind = "unfinished"


class AnswerRefused(LifecycleError):
    """The model refused to answer, or its server stopped the answer; the report's text is what was said.

    Attributes:
        by: `model` or `filter`.
    """

    kind = "answer_refused"

    def __init__(self, text: str, by: str = "model") -> None:
        super().__init__(text)
        self.by = by


class NotCompacted(LifecycleError):
    """A compaction came to nothing; the conversation is as it was (CMP-2, CMP-3)."""

    kind = "not_compacted"


class SpecMissing(LifecycleError):
    """A stored agent's spec is not in the registry; pass it in `agents=`."""

    kind = "spec_missing"


class StoreError(CallboardError):
    """The store could not do what was asked."""

    kind = "store"


class Fenced(StoreError):
    """Another owner has the tree: this one writes nothing more and stops."""

    kind = "fenced"


class Conflict(StoreError):
    """A row was not as the change set required; nothing of the set was written."""

    kind = "conflict"


class Corrupt(StoreError):
    """The file is not a store, or a row cannot be read."""

    kind = "corrupt"


class Unavailable(StoreError):
    """The store cannot be reached or written now; nothing was written, but see `InDoubt`. `passing`: try once more."""

    kind = "unavailable"

    def __init__(self, text: str, *, passing: bool = False) -> None:
        super().__init__(text)
        self.passing = passing


class InDoubt(Unavailable):
    """Whether a commit was written is not known: the store failed in the middle of it, and does not say.

    `messages`: ids of those that it would have accepted; `receipt(id)` tells, once the store answers.
    """

    kind = "in_doubt"

    def __init__(self, text: str, messages: tuple[str, ...] = (), *, passing: bool = False) -> None:
        super().__init__(text, passing=passing)
        self.messages = messages


class NewerSchema(StoreError):
    """The store was written by a newer callboard."""

    kind = "newer_schema"


class OwnedElsewhere(StoreError):
    """Another process owns the store."""

    kind = "owned_elsewhere"


class InternalError(CallboardError):
    """A bug of ours; please report it with the message."""

    kind = "internal"


def plain(value: object) -> str:
    """A number without an exponent: `0.00000001`, not `1E-8`."""
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _tree(root: type[CallboardError]) -> dict[str, type[CallboardError]]:
    found = {root.kind: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


BY_KIND: Final = _tree(CallboardError)
