"""What messages choose, as data of the turn: a choice, and what was decided on it."""

from __future__ import annotations

from typing import Final

import attrs

from .changes import Operation
from .errors import CallboardError
from .messages import Selection

OWN: Final = Selection()
"""Nothing chosen: the agent's own."""


@attrs.frozen
class Choice:
    """What the mail chooses, where that is something else than what holds.

    Attributes:
        selection: that would hold. compatible: the conversation goes along.
        error: why it cannot be followed, or None.
        pinned, responses: of the conversation, for the record that resets it.
    """

    selection: Selection
    compatible: bool = True
    error: CallboardError | None = attrs.field(default=None, eq=False)
    pinned: tuple[int, ...] = attrs.field(default=(), eq=False)
    responses: int = attrs.field(default=0, eq=False)


@attrs.frozen
class Choosing:
    """A choice that waits for the commit that consumes its message.

    Attributes:
        note: for the model that takes over. staged: what the hook writes beside it (HOK-3).
        error: why it is rejected, or None.
    """

    choice: Choice
    note: str = ""
    staged: tuple[Operation, ...] = ()
    error: CallboardError | None = None
