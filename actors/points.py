"""What holds for a whole turn: the points at which hooks are called, and the agent's spec as the turn needs it."""

from __future__ import annotations

import enum

import attrs

from .agent import Drain
from .budget import Limits
from .compaction import DEFAULT_COMPACTION, Compaction
from .output import OutputSpec


class Point(enum.StrEnum):
    """Where hooks are called."""

    BEFORE_RUN = "before_run"
    BEFORE_TURN = "before_turn"
    PREPARE = "prepare"
    """`instructions`, `tools` and `context`, which decide what is sent."""
    MODEL_CHANGED = "model_changed"
    """which writes the hand-over note of a change that resets the conversation"""
    BEFORE_REQUEST = "before_request"
    AFTER_RESPONSE = "after_response"
    AFTER_TURN = "after_turn"
    AFTER_RUN = "after_run"
    SETTLED = "settled"


@attrs.frozen
class TurnSpec:
    """What holds for the whole turn.

    Attributes:
        hooks: the points at which the agent has hooks. on_exhausted: `wrap_up`, `park`, `fail`.
        reports_to: the parent that gets a background child's report as a message, or None.
    """

    limits: Limits
    drain: Drain
    hooks: frozenset[Point] = frozenset()
    on_exhausted: str = "wrap_up"
    output: OutputSpec | None = None
    reports_to: str | None = None
    compaction: Compaction = DEFAULT_COMPACTION
