"""Frames and waits: what stands between agents that wait for each other.

A frame is code that an agent's loop waits for; a wait is opened by a frame and names the agents that it needs. The
graph that refuses a wait which could never end is the host's.
"""

from __future__ import annotations

import enum

import attrs

from .ids import AgentId, CallId


@attrs.frozen(eq=False)
class Frame:
    """One stretch of code that an agent's loop waits for. Two frames are never equal.

    Attributes:
        turn: its number, from 1. kind: `turn`, `hook` or `tool`. name: of the hook or tool.
        call: of a tool call, or None.
        place: the id of the agent's store: paths are unique inside it only, and one process may have several open.
    """

    agent: AgentId
    turn: int
    kind: str
    name: str = ""
    call: CallId | None = None
    place: str = ""


class Need(enum.StrEnum):
    """What a wait needs of its target."""

    REPLY = "reply"
    """The target must end a turn: a reply, a report."""
    IDLE = "idle"
    """The target must settle."""
    STEP = "step"
    """The target must reach a boundary: a compaction."""
    UNWIND = "unwind"
    """The target's turn must unwind: an abort."""
    EXIT = "exit"
    """The target and all below it must stop: a close, a kill."""
    RELEASE = "release"
    """Code that was given up must end: it holds a resource of the call that waits."""


class Mode(enum.StrEnum):
    """Which of its targets a wait waits for."""

    ALL = "all"
    ANY = "any"


@attrs.frozen(eq=False)
class Wait:
    """An open wait of one frame. Two waits are never equal.

    Attributes:
        targets: agents of one store. place: its id.
        nodes: the same, in the graph.
    """

    waiter: Frame
    targets: tuple[AgentId, ...]
    needs: Need
    mode: Mode
    place: str
    nodes: tuple[str, ...]
