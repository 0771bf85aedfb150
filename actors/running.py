"""Runs foreign code (tools, hooks) in the supervisor's tool nursery: a cancel scope and a guard each.

What a tool raises is data for the model and cancels no sibling. A `Cancelled` that is not ours must never reach the
nursery, where it would silently cancel every sibling; the guard turns it into an error. A call that is left behind is
watched until its code has really ended, threads included.
"""

from __future__ import annotations

import sys
import threading
import traceback
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

import attrs
import trio

from .callview import CallOutcome
from .content import Text, Trust, least, text_of
from .evolve import evolve
from .guarding import goes_on, safely_told, stack_of
from .leaks import leaving_none
from .results import Given, Keep, Output
from .transcript import ResultStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .calling import Context
    from .callview import CallView
    from .frames import Frames
    from .ids import AgentId
    from .tools import Effect
    from .waiting import Frame

Run: TypeAlias = "Callable[[dict[str, object] | None], Awaitable[object]]"
"""Runs a call with its arguments (None), or with others."""
Around: TypeAlias = "Callable[[Run], Awaitable[object]]"

ERROR_CHARS: Final = 2_000
"""How much of an exception's text the model reads."""


@final
class Running:
    """One call that runs, or was left behind and still runs.

    Attributes:
        abandoned: its task ended, and a thread that it had started has not. late: hears what that returns (TOL-14).
        waited: agents whose reports it waited for when it was cut. aborted: agents that were aborted with it.
        unwound: awaited by its own task once a cancellation has ended it, with a result to come; gives what is said of
            those that were aborted with it.
    """

    __slots__ = (
        "abandoned",
        "aborted",
        "call",
        "cancelled",
        "done",
        "frame",
        "late",
        "left_behind",
        "scope",
        "task",
        "thread",
        "unwound",
        "waited",
    )

    def __init__(self, call: CallView, frame: Frame) -> None:
        self.call = call
        self.frame = frame
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.cancelled: str | None = None
        self.left_behind = False
        self.task: trio.lowlevel.Task | None = None
        self.thread: int | None = None
        self.abandoned = False
        self.late: Callable[[object], None] | None = None
        self.waited: list[AgentId] = []
        self.aborted: tuple[AgentId, ...] = ()
        self.unwound: Callable[[], Awaitable[str]] = _nothing

    def stack(self) -> str:
        """Where its code is now: of its thread, else of its task."""
        if self.thread is not None:
            found = sys._current_frames().get(self.thread)  # noqa: SLF001 - the documented way to see a thread's stack
            return "".join(traceback.format_stack(found)[-3:]) if found is not None else ""
        if self.task is None or self.done.is_set():
            return ""
        return stack_of(self.task)

    def __repr__(self) -> str:
        state = "done" if self.done.is_set() else "left behind" if self.left_behind else "running"
        return f"<Running {self.call.block.name} {self.call.block.id}: {state}>"


@final
class RunningHook:
    """Hooks of one point that run, or were left behind and still run."""

    __slots__ = ("done", "frame", "scope", "task")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.task: trio.lowlevel.Task | None = None

    def stack(self) -> str:
        """Where its code is now."""
        return "" if self.task is None or self.done.is_set() else stack_of(self.task)

    def __repr__(self) -> str:
        return f"<RunningHook {self.frame.name} of {self.frame.agent}>"


@attrs.frozen
class Room:
    """How much of a result the model is shown, and of how long a one the whole is kept, in characters (TOL-8)."""

    shown_chars: int
    kept_chars: int = 0


@final
class Runner:
    """Starts foreign code in the tool nursery, each with its own scope.

    Args:
        nursery: the supervisor's tool nursery.
        frames: the registry of what an agent's loop waits for.
        inline: run sync tools on the Trio thread (for virtual clocks, under which threads break determinism).

    Attributes:
        hooks: those that run.
    """

    def __init__(self, nursery: trio.Nursery, frames: Frames, *, inline: bool = False) -> None:
        self._nursery = nursery
        self._frames = frames
        self._inline = inline
        self._limiter = trio.CapacityLimiter(40)
        self.hooks: set[RunningHook] = set()

    def start(
        self,
        running: Running,
        context: Context,
        room: Room,
        *,
        deliver: Callable[[CallOutcome], None],
        late: Callable[[CallOutcome], None],
        around: Around | None = None,
    ) -> None:
        """Run a call; `deliver` hears its outcome, or `late` where it had been left behind (TOL-14).

        `around`: a hook's wrapper of the execution, or None (TOL-13).
        """

        async def body() -> None:
            outcome = await self._outcome(running, context, room, around)
            heard = self._frames.heard(running.frame)
            if heard is not Trust.TRUSTED:
                outcome = evolve(outcome, trust=least(outcome.trust, heard))
            if not running.left_behind:
                deliver(outcome)
            elif not running.scope.cancelled_caught:  # one that ended as it was cancelled returned nothing
                late(outcome)

        running.late = lambda value: late(self._late(running, value, room))
        self._spawn(running.frame, body, running)

    def start_hook(self, frame: Frame, body: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Run hooks; the body catches what they raise. Returns what cancels them."""
        hook = RunningHook(frame)
        self.hooks.add(hook)

        async def whole() -> None:
            hook.task = trio.lowlevel.current_task()
            try:
                with hook.scope:
                    await body()
            finally:
                self.hooks.discard(hook)
                hook.done.set()

        def cut() -> None:
            if not hook.done.is_set():  # it may be over
                self._frames.cut(frame)
            hook.scope.cancel()

        self._spawn(frame, whole, None)
        return cut

    def _spawn(self, frame: Frame, body: Callable[[], Awaitable[None]], running: Running | None) -> None:
        async def task() -> None:
            if running is not None:
                running.task = trio.lowlevel.current_task()
            try:
                with self._frames.enter(frame):
                    await body()
            finally:
                if running is not None and not self._frames.is_open(frame):
                    running.done.set()

        self._frames.clean_context().run(self._nursery.start_soon, task)

    async def _outcome(self, running: Running, context: Context, room: Room, around: Around | None) -> CallOutcome:
        call = running.call
        tool = call.tool
        assert tool is not None, "a call without a tool is settled before it starts"
        timeout = tool.timeout_s
        if timeout is not None:
            running.scope.deadline = trio.current_time() + timeout
        try:
            with running.scope:
                if around is None:
                    code: Awaitable[object] = self._call(running, context)
                else:
                    code = around(lambda given: self._call(running, context, given))
                value = await leaving_none(code, tool.name)
        except BaseException as error:  # whatever a tool raises is data for the model (TOL-6)  # noqa: ASYNC103 - what is not ours is told, not raised: our own cancellation goes on
            if goes_on(error):
                raise
            return self._error(running, safely_told(error), tool.trust)  # noqa: ASYNC104 - likewise
        if running.scope.cancelled_caught:
            if running.cancelled is not None:
                status, text = ResultStatus.ERROR, f"The call was cancelled: {running.cancelled}"[:ERROR_CHARS]
            else:
                status = ResultStatus.TIMEOUT
                text = f"The call took longer than {timeout} s and was cut off.{_may_have(tool.effect)}"
            had = so_far(context, room, "" if running.left_behind else await running.unwound())
            shown, trust = (f"{text}\n{had}", tool.trust) if had else (text, Trust.TRUSTED)
            return CallOutcome(call.block.id, status, (Text(shown),), trust)
        given = value if isinstance(value, Given) else Given(value)
        keep = Keep(call.block.id, room.kept_chars) if room.kept_chars and given.keep else None
        shape = tool.shape if given.status is ResultStatus.OK else Output(tool.name).shape  # a failure has no type
        shaped = shape(given.value, room.shown_chars, keep)
        status = ResultStatus.ERROR if shaped.error else given.status
        trust = given.trust or tool.trust  # of an error's words too: they may show what came from outside
        return CallOutcome(call.block.id, status, shaped.content, trust, shaped.whole if shaped.kept else None)

    async def _call(self, running: Running, context: Context, given: dict[str, object] | None = None) -> object:
        call = running.call
        tool = call.tool
        assert tool is not None, "see _outcome"
        arguments = tool.bind(call.arguments or {} if given is None else given, context)
        if tool.is_async:
            return await cast("Awaitable[object]", tool.fn(**arguments))
        if self._inline:
            return tool.fn(**arguments)
        return await self._in_thread(running, lambda: tool.fn(**arguments))

    async def _in_thread(self, running: Running, fn: Callable[[], object]) -> object:
        """A sync tool: its task is free at once when cancelled, its thread stays known until it ends.

        One of two takes `claim`: the thread, whose work so begins, or this task, which then gives up for good.
        """
        token = trio.lowlevel.current_trio_token()
        claim = threading.Lock()
        self._frames.keep(running.frame)  # a thread left behind is still the tool's code (REE-3, REE-5)

        def work() -> object:
            if not claim.acquire(blocking=False):
                return None  # given up before it had begun
            running.thread = threading.get_ident()
            value: object = None
            try:
                value = fn()
            except BaseException as error:  # it goes on to whoever waits; where nobody does, it is told as late
                value = error
                raise
            finally:
                token.run_sync_soon(ended, value)
            return value

        def ended(value: object) -> None:
            running.thread = None
            self._frames.close(running.frame)
            running.done.set()
            if running.abandoned and running.late is not None:
                running.late(value)

        try:
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)
        finally:
            if claim.acquire(blocking=False):  # no thread took it up: nothing runs, so nothing is left behind (REQ-2)
                ended(None)
            else:
                running.abandoned = not running.done.is_set()

    def _late(self, running: Running, value: object, room: Room) -> CallOutcome:
        """What a thread returned that nobody waits for any more."""
        tool = running.call.tool
        assert tool is not None, "a call without a tool is settled before it starts"
        if isinstance(value, BaseException):
            return self._error(running, safely_told(value))
        return CallOutcome(
            running.call.block.id, ResultStatus.OK, Output(tool.name).shape(value, room.shown_chars).content
        )

    @staticmethod
    def _error(running: Running, text: str, trust: Trust = Trust.TRUSTED) -> CallOutcome:
        return CallOutcome(running.call.block.id, ResultStatus.ERROR, (Text(text[:ERROR_CHARS]),), trust)


def so_far(context: Context, room: Room, ended: str) -> str:
    """What is said of a call that was cut off: what `ended` with it, and what it had, within what a result shows."""
    if context.so_far is None:
        return ended
    try:
        value = str(context.so_far())
    except Exception:  # foreign code: what it cannot say is not shown  # noqa: BLE001 - see there
        return ended
    if not value:
        return ended
    had = text_of(Output(context.name).shape(value, room.shown_chars).content)
    return f"{ended}\nUntil then:\n{had}".lstrip("\n")


async def _nothing() -> str:
    """Nothing was aborted with it."""
    return ""


def _may_have(effect: Effect) -> str:
    return "" if effect.harmless else " It may have taken effect: check before you repeat it."


def beginning(outcome: CallOutcome, chars: int) -> str:
    """The first characters of an outcome's text, for events."""
    return text_of(outcome.content)[:chars]
