"""The names of hooks and the points at which they are called. What is no hook is refused where an agent is written."""

from __future__ import annotations

import enum
import inspect
from typing import Final

from .errors import UsageError


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
    SETTLING = "settling"
    """which writes beside the commit that settles a run"""
    AFTER_TURN = "after_turn"
    AFTER_RUN = "after_run"
    SETTLED = "settled"


METHODS: Final = {
    Point.BEFORE_RUN: ("before_run",),
    Point.BEFORE_TURN: ("before_turn",),
    Point.PREPARE: ("instructions", "tools", "context"),
    Point.MODEL_CHANGED: ("model_changed",),
    Point.BEFORE_REQUEST: ("before_request",),
    Point.AFTER_RESPONSE: ("after_response",),
    Point.SETTLING: ("settling",),
    Point.AFTER_TURN: ("after_turn",),
    Point.AFTER_RUN: ("after_run",),
    Point.SETTLED: ("settled",),
}
BEHIND: Final = frozenset({Point.AFTER_TURN, Point.AFTER_RUN, Point.SETTLED})
"""Points behind a turn: nothing is left that a failure there could fail."""
AROUND: Final = "around_tool"
GUARD: Final = "__callboard_guard__"
_KNOWN: Final = frozenset(name for names in METHODS.values() for name in names) | {AROUND}
_TAKES: Final = {
    "model_changed": ("at", "before", "after"),
    AROUND: ("at", "call", "proceed"),
    "after_turn": ("at", "report"),
    "after_run": ("at", "report"),
}
"""What hooks are called with; the others with `at` alone."""
_NO_GUARDS: Final = frozenset(name for point in BEHIND for name in METHODS[point]) | {AROUND}


def check_hooks(hooks: object, where: str) -> None:
    """Refuse what could never be called, or could not do what it is marked for.

    Args:
        hooks: what was given.
        where: names the place in an error.

    Raises:
        UsageError: a class instead of an object; a public method that is no hook, which would be silently never called;
            a hook that is not async, or takes other arguments than it is called with; a hook behind the turn, or
            around a call, that is marked as a guard.
    """
    if hooks is None:
        return
    if isinstance(hooks, type):
        raise UsageError(f"{where} is an object: write {hooks.__name__}(), not the class")
    kind = type(hooks)
    public = [name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name, None))]
    known = f"hooks are {', '.join(sorted(_KNOWN))}; a helper of your own begins with `_`"
    if unknown := [name for name in public if name not in _KNOWN]:
        raise UsageError(f"{where}: {kind.__name__}.{', '.join(unknown)} is no hook; {known}")
    if not public:
        raise UsageError(f"{where} is a Hooks; got {hooks!r}; {known}")
    for name in public:
        _check_call(hooks, name, where)
    if guards := [name for name in public if name in _NO_GUARDS and getattr(getattr(kind, name), GUARD, False)]:
        raise UsageError(
            f"{where}: {kind.__name__}.{', '.join(guards)} cannot be a guard: it is called when no turn is left to"
            " fail, or around one call, whose error result its failure is"
        )


def _check_call(hooks: object, name: str, where: str) -> None:
    """Refuse a hook that could not be called: its failure would be an event at best, each time."""
    hook = getattr(hooks, name)
    takes = _TAKES.get(name, ("at",))
    written = f"write `async def {name}(self, {', '.join(takes)})`"
    if not inspect.iscoroutinefunction(hook):
        raise UsageError(f"{where}: {type(hooks).__name__}.{name} is no async method; {written}")
    try:
        inspect.signature(hook).bind(*takes)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{where}: {type(hooks).__name__}.{name} is called with {len(takes)} arguments, {written}: {error}"
        ) from None
