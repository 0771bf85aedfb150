"""What holds for a whole turn: the points at which it has hooks, and the agent's spec as the turn needs it."""

from __future__ import annotations

import attrs

from .agent import Drain
from .budget import Limits
from .compaction import DEFAULT_COMPACTION, Compaction
from .hooked import Point
from .output import OutputSpec


@attrs.frozen
class TurnSpec:
    """What holds for the whole turn.

    Attributes:
        hooks: the points at which the agent has hooks.
        keeps: code of its own may write to its run's key-value store, which is erased as the run settles (HOK-4).
        reports_to: the parent that gets a background child's report as a message, or None.
    """

    limits: Limits
    drain: Drain
    hooks: frozenset[Point] = frozenset()
    output: OutputSpec | None = None
    reports_to: str | None = None
    compaction: Compaction = DEFAULT_COMPACTION
    keeps: bool = False
