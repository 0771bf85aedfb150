"""What starting an agent needs to be told, and what it gives back."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import attrs

from actors.agent import Agent
from actors.budget import Budget
from actors.content import as_content, check_text
from actors.errors import UsageError
from actors.ids import AgentId, CallId, MessageId

if TYPE_CHECKING:
    from actors.content import Content


@attrs.frozen
class Start:
    """An agent to start.

    Attributes:
        task: its first message, or None for none. parent: path, `""` for a root.
        key: the same key under one parent is the same agent; None for always a new one.
        background: its reports come to the parent as messages. call: that starts it, or None.
    """

    agent: Agent
    task: object
    parent: str = ""
    key: str | None = None
    budget: Budget | None = None
    background: bool = False
    call: CallId | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse what cannot be meant, before anything is looked up."""
        if not isinstance(self.agent, Agent):
            raise UsageError(
                f"what is started is an Agent; got {self.agent!r}; of a child declared as Child, its agent"
            )
        if self.key is not None:
            check_text(self.key, "key=")
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise UsageError(f"budget= is a Budget, such as Budget(tokens=10_000), or None; got {self.budget!r}")
        self.content()

    def content(self) -> Content | None:
        """The task as content."""
        return None if self.task is None else as_content(self.task, "the task")

    def task_digest(self) -> str | None:
        """What tells one task from another under the same key."""
        content = self.content()
        return None if content is None else hashlib.sha256(repr(content).encode()).hexdigest()[:32]


@attrs.frozen
class Started:
    """An agent that was started, or was there under the key. `message`: of its task; None where it was there before."""

    path: AgentId
    message: MessageId | None


def task_message(path: AgentId) -> MessageId:
    """The id of an agent's first task: made of its path, so that its report is found again."""
    return MessageId(f"t-{path}")
