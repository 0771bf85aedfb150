"""The guard around foreign code (tools, hooks, models): whatever it raises is its own error, told safely.

An exception's text is foreign code too. What is not the foreign code's own is named here, in one place: an interrupt
from the keyboard, and a cancellation while one of ours is in force. A `Cancelled` that comes without one is stray; let
through, it would silently end the nursery that holds it.
"""

from __future__ import annotations

import trio


def safely_told(error: BaseException) -> str:
    """An exception in one line that can be stored; a group of one is that one. It never raises."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(safely_told(one) for one in error.exceptions)
    if isinstance(error, trio.Cancelled):
        return "a stray cancellation: none was in force"
    text = _text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def speaks(error: BaseException) -> bool:
    """Whether its text can be had and stored, so that others may format it as they like."""
    text = _text(error)
    return text is not None and text == str(error)


def goes_on(error: BaseException) -> bool:
    """Whether it is not the foreign code's own, and must be raised again."""
    if isinstance(error, BaseExceptionGroup):
        if error.subgroup(KeyboardInterrupt) is not None:
            return True
        cancelled = error.subgroup(lambda one: not isinstance(one, trio.Cancelled | BaseExceptionGroup)) is None
    else:
        cancelled = isinstance(error, trio.Cancelled)
    if cancelled:
        return trio.current_effective_deadline() == float("-inf")
    return isinstance(error, KeyboardInterrupt)


def _text(error: BaseException) -> str | None:
    try:
        return str.encode(str(error), "utf-8", "replace").decode()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001, ASYNC103 - `__str__` is foreign code, and we are telling an error already
        return None  # noqa: ASYNC104 - likewise


def stack_of(task: trio.lowlevel.Task) -> str:
    """Where a task waits: the innermost of its frames."""
    lines = [f"{frame.f_code.co_filename}:{line}" for frame, line in task.iter_await_frames()]
    return "\n".join(lines[-6:])
