"""The conformance suite of stores: what every `Store` must do, whatever it keeps its rows in.

`check_store` runs all of it; `CHECKS` are its parts, for a test per part. A store that passes may be given to
`open_supervisor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .store_mail import (
    check_bounds,
    check_claims,
    check_dead_letters,
    check_dedupe,
    check_intake,
    check_moves,
    check_order,
    check_share,
    check_work,
)
from .store_rows import check_agents, check_awaiting, check_empty, check_keys, check_records, check_rows, check_text
from .store_sets import (
    check_cancelled,
    check_closed,
    check_conditions,
    check_fence,
    check_founding,
    check_together,
    check_whole,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from supervisor.store.base import Store

CHECKS: Final[tuple[Callable[[Store], Awaitable[None]], ...]] = (
    check_empty,
    check_rows,
    check_keys,
    check_awaiting,
    check_agents,
    check_records,
    check_text,
    check_order,
    check_dedupe,
    check_bounds,
    check_intake,
    check_claims,
    check_moves,
    check_dead_letters,
    check_share,
    check_work,
    check_conditions,
    check_whole,
    check_fence,
    check_founding,
    check_cancelled,
    check_together,
    check_closed,
)
"""The parts of the suite; each is given a new, empty store."""


async def check_store(open_store: Callable[[], AbstractAsyncContextManager[Store]]) -> None:
    """Check that a store does all that a `Store` must.

    Args:
        open_store: opens a new, empty store each time.

    Raises:
        AssertionError: it does not; the message or the line says what.
    """
    for check in CHECKS:
        async with open_store() as store:
            await check(store)
