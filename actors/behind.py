"""The hooks behind a turn or a run: foreign code that an abort, or the supervisor's leaving, ends (ABT-1, CLS-5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

from .messages import Purpose

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from .messages import Queued


@final
class Behind:
    """The hooks that run behind the last turn of one actor, if any do."""

    __slots__ = ("_scope",)

    def __init__(self) -> None:
        self._scope: trio.CancelScope | None = None

    async def run(self, hooks: Awaitable[None], orders: Sequence[Queued]) -> None:
        """Run them; `orders`: those that wait, for an abort may have come when the turn was over already."""
        with trio.CancelScope() as self._scope:
            for order in orders:
                self.ordered(order)
            await hooks
        self._scope = None

    def ordered(self, order: Queued) -> None:
        """An order came; an abort ends them."""
        if order.envelope.purpose is Purpose.ABORT:
            self.cancel()

    def cancel(self) -> None:
        """End them."""
        if self._scope is not None:
            self._scope.cancel()
