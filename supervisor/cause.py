"""Why agents are aborted together, and why a message has no answer, as those are told whom it concerns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.errors import AgentClosed, DeadLettered
from actors.ids import AgentId, parent_path

if TYPE_CHECKING:
    from collections.abc import Collection

    from actors.errors import CallboardError
    from actors.ids import MessageId


@attrs.frozen
class Cause:
    """Why agents are aborted together.

    Attributes:
        reason: in the words of who asked. whose: the one that was asked about, or None.
        part: what the others are told of whose end is part of that.
    """

    reason: str
    whose: AgentId | None = None
    part: str = ""

    def said(self, path: AgentId, targets: Collection[AgentId]) -> tuple[str, AgentId | None]:
        """What the order to one of them says: why; and its parent, if that is taken, too.

        To a parent that was stopped by the same abort a child's report is held: it begins no turn for it (ABT-5).
        """
        if not self.part or path == self.whose:
            return self.reason, None
        parent = AgentId(parent_path(path))
        return f"{self.reason} ({self.part})", parent if parent in targets else None


def abort_of(path: AgentId, reason: str) -> Cause:
    """One agent was to be aborted, and all others with it."""
    return Cause(reason, path, f"as part of the abort of {path}")


def born_from(number: int) -> str:
    """The target of an abort from another process that takes a whole subtree.

    Args:
        number: how many agents the tree had as the others were ordered: those that were made later got no order.
    """
    return f"{_BORN}{number}"


def first_unordered(target: str | None) -> int | None:
    """The number of agents that the target names; None where the abort takes no subtree, or is of this process."""
    return int(target.removeprefix(_BORN)) if target is not None and target.startswith(_BORN) else None


_BORN: Final = "born from "


def dead_error(message: MessageId, path: AgentId, reason: str) -> CallboardError:
    """The error of who waits for the reply to a message that is dead."""
    if reason == "agent_closed":
        return AgentClosed(f"{path} was closed before it answered {message}", message)
    return DeadLettered(
        f"{message} to {path} will not be answered ({reason}); put_back({message!r}, by=...) queues it again",
        message,
        reason,
    )
