"""Frames and waits: what stands between agents that wait for each other.

A frame is code that an agent's loop waits for; a wait is opened by a frame and names the agents that it needs. The
graph that refuses a wait which could never end is the host's (`Waits`).
"""

from __future__ import annotations

import enum
from typing import Protocol

import attrs

from .ids import AgentId, CallId


@attrs.frozen(eq=False)
class Frame:
    """One stretch of code that an agent's loop waits for. Two frames are never equal.

    Attributes:
        turn: its number, from 1. kind: `turn`, `hook` or `tool`. name: of the hook or tool.
        call: of a tool call, or None.
    """

    agent: AgentId
    turn: int
    kind: str
    name: str = ""
    call: CallId | None = None


class Need(enum.StrEnum):
    """What a wait needs of its target."""

    LOOP = "loop"
    """The target must start or finish a turn: a reply, a report, idleness."""
    STEP = "step"
    """The target must reach a boundary: a compaction."""
    UNWIND = "unwind"
    """The target's turn must unwind: an abort."""
    EXIT = "exit"
    """The target and all below it must stop: a close, a kill."""


class Mode(enum.StrEnum):
    """Which of its targets a wait waits for."""

    ALL = "all"
    ANY = "any"


@attrs.frozen(eq=False)
class Wait:
    """An open wait of one frame."""

    waiter: Frame
    targets: tuple[AgentId, ...]
    needs: Need = Need.LOOP
    mode: Mode = Mode.ALL


class Waits(Protocol):
    """The wait-for graph, asked before anything waits for what only a loop can give."""

    def begin(
        self,
        waiter: Frame,
        targets: tuple[AgentId, ...],
        *,
        needs: Need = Need.LOOP,
        mode: Mode = Mode.ALL,
        completing: Wait | None = None,
    ) -> Wait:
        """Open a wait, in one step with its check.

        Args:
            waiter: the frame that will wait.
            targets: of whom it waits for.
            needs: what must happen there.
            mode: of all targets, or of any one.
            completing: an open wait that ends if this one begins (see `ancestor_wait`).

        Raises:
            WaitCycle: it could never end; nothing has changed, `completing` included.
            UsageError: no target.
        """
        ...

    def end(self, wait: Wait) -> None:
        """Close a wait, however it ended; closing it again does nothing."""

    def leave(self, frame: Frame) -> None:
        """Close all waits of a frame whose code ended: what outlives it holds nobody up (REE-3)."""

    def ancestor_wait(self, child: AgentId, ancestor: AgentId) -> Wait | None:
        """The open wait of the ancestor that waits for the child, or for one between them (REE-2)."""
        ...
