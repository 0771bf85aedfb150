"""Which agent's code is this? The registry of frames: stretches of code that an agent's loop waits for.

Two witnesses, each alone wrong somewhere. Structure (the walk from a task up through its nurseries) cannot be forged
and says who will wait for this code; but it ends at foreign nurseries, abandoned threads and system tasks. The
context variable travels with threads and tokens, but outlives the code it was set for. So structure decides ownership,
and the variable only where structure finds nothing and its frame is still open.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Final, TypeAlias, final
from weakref import WeakKeyDictionary, WeakSet

import trio

from .content import Trust, least

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .waiting import Frame

_Stack: TypeAlias = "tuple[tuple[Frame, int], ...]"
"""The frames that a task runs, innermost first, each with how many nurseries the task had open when it began: those
are not the frame's."""

_FRAME: Final[contextvars.ContextVar[Frame | None]] = contextvars.ContextVar("callboard_frame", default=None)


@final
class Frames:
    """The open frames of all supervisors of a Trio run.

    FRAMES-1 while a frame is open, code of its task, of nurseries opened in it and of its nurseries is its own.
    FRAMES-2 a closed frame owns nothing, whatever still runs in its context.

    Args:
        closed: called once with each frame when it is closed, such as `Web.leave`; it neither waits nor raises.
    """

    def __init__(self, closed: Callable[[Frame], None] | None = None) -> None:
        self._tasks: dict[trio.lowlevel.Task, _Stack] = {}  # a task leaves it with its last frame
        self._nurseries: WeakKeyDictionary[trio.Nursery, Frame] = WeakKeyDictionary()
        self._open: set[Frame] = set()
        self._kept: set[Frame] = set()
        self._heard: WeakKeyDictionary[Frame, Trust] = WeakKeyDictionary()  # of those that heard less than trusted
        self._cut: WeakSet[Frame] = WeakSet()
        self._closed = closed

    # -- opening and closing ---------------------------------------------------------------------------------------

    def enter(self, frame: Frame) -> _Entered:
        """Run code of this task as the frame, in a `with` block; it is closed at the end, unless it was kept.

        Frames nest: inside, the innermost owns; at its end the outer one does again.
        """
        return _Entered(self, frame)

    def _begin(self, frame: Frame) -> tuple[trio.lowlevel.Task, _Stack, contextvars.Token[Frame | None]]:
        task = trio.lowlevel.current_task()
        outer = self._tasks.get(task, ())
        token = _FRAME.set(frame)
        self._open.add(frame)
        self._tasks[task] = ((frame, len(task.child_nurseries)), *outer)
        return task, outer, token

    def _end(
        self, frame: Frame, task: trio.lowlevel.Task, outer: _Stack, token: contextvars.Token[Frame | None]
    ) -> None:
        if outer:
            self._tasks[task] = outer
        else:
            self._tasks.pop(task, None)
        _FRAME.reset(token)
        if frame not in self._kept:
            self.close(frame)

    def register(self, nursery: trio.Nursery, frame: Frame) -> None:
        """Let all tasks of a nursery count as the frame's, which must be open: a turn's nursery, say."""
        assert frame in self._open, f"FRAMES-1: {frame} is closed"
        self._nurseries[nursery] = frame

    def keep(self, frame: Frame) -> None:
        """Keep the frame open beyond `enter`: a thread that an abort left behind still runs its code (REE-3).

        Whoever keeps it calls `close` when the code has ended.
        """
        if frame in self._open:
            self._kept.add(frame)

    def close(self, frame: Frame) -> None:
        """The frame's code has ended: it owns nothing more. Closing it again does nothing."""
        self._kept.discard(frame)
        if frame in self._open:
            self._open.discard(frame)
            if self._closed is not None:
                self._closed(frame)

    def cut(self, frame: Frame) -> None:
        """The frame's code was cut off, or lost its agent: what of it still runs sends its own agent nothing more."""
        self._cut.add(frame)

    def cut_off(self) -> Frame | None:
        """The frame that the code which runs now began in, where that was cut off, its end included; else None."""
        frame = _FRAME.get()
        return frame if frame is not None and frame in self._cut else None

    def is_open(self, frame: Frame) -> bool:
        """Whether the frame's code still runs."""
        return frame in self._open

    @staticmethod
    def clean_context() -> contextvars.Context:
        """A copy of the current context that belongs to no frame.

        A task started from a frame inherits its context, so a supervisor starts another agent's code with
        `frames.clean_context().run(nursery.start_soon, …)`: its work is not the starter's.
        """
        context = contextvars.copy_context()
        context.run(_FRAME.set, None)
        return context

    # -- asking ----------------------------------------------------------------------------------------------------

    def current_owner(self) -> Frame | None:
        """The open frame whose agent waits for the code that runs now, or None (REE-3, REE-5).

        The nearest registered task or nursery on the way up decides; where none is, the context's frame, if it is
        still open. May be called from a thread that Trio started, where only the context is left to ask.
        """
        try:
            task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        except RuntimeError:  # no task: a thread
            task = None
        nursery: trio.Nursery | None = None
        while task is not None:
            for frame, depth in self._tasks.get(task, ()):
                inside = nursery is None or task.child_nurseries.index(nursery) >= depth
                if inside and frame in self._open:
                    return frame
            nursery = task.parent_nursery
            if nursery is None:
                break
            registered = self._nurseries.get(nursery)
            if registered is not None and registered in self._open:
                return registered
            task = nursery.parent_task
        context = _FRAME.get()
        return context if context is not None and context in self._open else None

    def hear(self, trust: Trust) -> None:
        """The code that runs now was handed what is believed so far: what it says is believed no more (GAT-4)."""
        if trust is not Trust.TRUSTED and (frame := self.current_owner()) is not None:
            self._heard[frame] = least(trust, self.heard(frame))

    def heard(self, frame: Frame | None) -> Trust:
        """The least that a frame's code was handed; None: code outside of all frames, which is trusted."""
        return Trust.TRUSTED if frame is None else self._heard.get(frame, Trust.TRUSTED)

    @staticmethod
    def attribution() -> Frame | None:
        """The frame on whose behalf this code runs, open or closed, for spending and tracing; None outside all."""
        return _FRAME.get()

    def __repr__(self) -> str:
        return f"<Frames {len(self._open)} open, {len(self._kept)} kept>"


@final
class _Entered:
    """The `with` block of `Frames.enter`; a class, for a generator costs a tool call three times as much."""

    __slots__ = ("_begun", "_frame", "_frames")

    def __init__(self, frames: Frames, frame: Frame) -> None:
        self._frames = frames
        self._frame = frame

    def __enter__(self) -> Frame:
        self._begun = self._frames._begin(self._frame)  # noqa: SLF001 - a part of Frames
        return self._frame

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._frames._end(self._frame, *self._begun)  # noqa: SLF001 - a part of Frames
