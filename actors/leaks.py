"""Nurseries that foreign code opened by hand, or in a generator that it never closed, and left open in our task.

Trio ends a task that exits so with an error, and by that the nursery around it: all tools of a supervisor. So they are
closed here, and it is that code's own failure. Trio has no public way to close a nursery for whoever opened it: the two
private names that this needs stand in `_close`, which does what Trio itself does when such a task exits.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")
CLOSE_S: Final = 10.0
"""How long tasks in such a nursery are waited for, which were cancelled."""
POLL_S: Final = 0.01


async def leaving_none(code: Awaitable[T], what: str) -> T:
    """Run foreign code; nurseries that it leaves open are cancelled and closed, and waited for.

    Args:
        code: what runs in the current task.
        what: it is, for the message of the error.

    Raises:
        UsageError: it left one open. Else whatever it raises.

    If cancelled: the code is, and then what it left open.
    """
    task = trio.lowlevel.current_task()
    depth = len(task.child_nurseries)
    left = False
    try:
        value = await code
    finally:
        if len(task.child_nurseries) > depth:
            left = True
            await _close(task, depth)  # noqa: ASYNC102 - all that it waits for was cancelled
    if left:
        raise UsageError(
            f"{what} left a nursery open: its tasks were cancelled; open it with `async with trio.open_nursery()`, and"
            " close a generator that has one with `contextlib.aclosing()`"
        )
    return value


async def _close(task: trio.lowlevel.Task, depth: int) -> None:
    """Close the innermost nurseries of the current task until it has `depth` of them.

    What runs in them gets a bounded time to end. So does the finaliser of a generator, which closes its own nursery.
    """
    left = task.child_nurseries[depth:]
    for nursery in left:
        nursery._closed = True  # noqa: SLF001 - see the module
        nursery.cancel_scope.cancel()
    with trio.move_on_after(CLOSE_S, shield=True):
        while any(nursery.child_tasks for nursery in left):  # noqa: ASYNC110 - of others' tasks no event tells
            await trio.sleep(POLL_S)
        for _ in range(_FINALISING):
            await trio.lowlevel.cancel_shielded_checkpoint()
    for nursery in reversed(left):
        if nursery in task._child_nurseries:  # noqa: SLF001 - likewise
            task._child_nurseries.remove(nursery)  # noqa: SLF001 - likewise
        with suppress(RuntimeError):  # it had left a scope open, too: Trio has mended that as it could
            nursery.cancel_scope.__exit__(None, None, None)


_FINALISING: Final = 5
"""For how many turns of the scheduler a finaliser is waited for."""
