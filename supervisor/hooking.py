"""One agent's hooks: calls them at their points, takes what they decide, accepts what they send in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from actors.calling import Kv
from actors.conversation import Conversation, Window
from actors.errors import CallboardError, UsageError
from actors.guarding import goes_on, safely_told, speaks
from actors.happenings import HookFailed
from actors.hooks import AROUND, METHODS, Compact, Moment, Send, Steer, answers, is_guard, method_of
from actors.ids import run_id
from actors.inputs import HookReturned
from actors.letters import Letter
from actors.messages import Lane
from actors.points import Point
from actors.tools import toolbox
from actors.waiting import Frame

from .staging import Stage
from .wrapping import wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.agent import Agent
    from actors.callview import CallView
    from actors.changes import AgentRow
    from actors.happenings import Event
    from actors.hosting import DeliverHook
    from actors.ids import AgentId
    from actors.running import Around
    from actors.tools import Toolbox

    from .calls import Calls
    from .parts import Parts


_DECIDE: Final = frozenset({Point.PREPARE, Point.MODEL_CHANGED})


def _always() -> bool:
    return True


@final
class Hooking:
    """The hooks of one agent.

    Attributes:
        instructions, box, window: what the deciding hooks chose for the next request, or None for the agent's own.
        change: the models of a change that is about to reset the conversation, before and after.
    """

    def __init__(self, parts: Parts, agent: Agent, path: AgentId, calls: Calls) -> None:
        self._parts = parts
        self._hooks = agent.hooks
        self._path = path
        self._calls = calls
        self._row: Callable[[], AgentRow]
        self._tell: Callable[[type[Event], Mapping[str, object]], None]
        self._sent: tuple[Steer | Send | Compact, ...] = ()
        self._note = ""
        self._stage: Stage | None = None
        self._asked: Frame | None = None
        """Of the hooks that the loop waits for, or of the last that it did."""
        self.change = ("", "")
        self.instructions: str | None = None
        self.box: Toolbox | None = None
        self.window: Window | None = None

    def bind(self, row: Callable[[], AgentRow], tell: Callable[[type[Event], Mapping[str, object]], None]) -> None:
        """How it sees its agent."""
        self._row = row
        self._tell = tell

    def start(self, point: Point, deliver: DeliverHook, wanted: Callable[[], bool]) -> None:
        """Call the hooks of a point in the tool nursery; `deliver` hears the error of one that decides.

        `wanted`: whether the turn still asks; what a hook answers behind an abort is dropped (ABT-6).
        """
        self.leave_behind()
        frame = self._asked = self._frame(point)

        async def body() -> None:
            if point is Point.MODEL_CHANGED:
                deliver(await self._hand_over(wanted))
                return
            error = await self._guarded(point, wanted=wanted)
            deliver(HookReturned(self._parts.kernel.now(), error, self.box if point is Point.PREPARE else None))

        self._parts.runner.start_hook(frame, body)

    def leave_behind(self) -> None:
        """The loop waits for no hook that it asked before: what runs of it still holds up nobody (ABT-6, REE-3)."""
        frame, self._asked = self._asked, None
        if frame is not None and self._parts.frames.is_open(frame):
            self._parts.graph.set_apart(frame, frame.name)

    def _frame(self, point: Point) -> Frame:
        return Frame(self._path, self._row().turns, "hook", point.value, place=self._parts.graph.place)

    async def _hand_over(self, wanted: Callable[[], bool]) -> HookReturned:
        """Have the note written; what is written beside it lands with the change or not at all (HOK-3)."""
        self._note, self._stage = "", Stage(self._calls, "the hook")
        try:
            error = await self._guarded(Point.MODEL_CHANGED, *self.change, wanted=wanted)
            return HookReturned(self._parts.kernel.now(), error, None, self._note, self._stage.end())
        finally:
            self._stage.end()
            self._stage = None

    async def call(self, point: Point, *arguments: object) -> None:
        """Call the hooks of a point by this task: behind a turn, where nothing waits for their answer."""
        frame = self._frame(point)
        with self._parts.frames.enter(frame):
            await self._guarded(point, *arguments)

    async def _guarded(
        self, point: Point, *arguments: object, wanted: Callable[[], bool] = _always
    ) -> CallboardError | None:
        for name in METHODS[point]:
            method = method_of(self._hooks, name)
            if method is None:
                continue
            decides = point in _DECIDE or is_guard(method)
            try:
                value = await method(self._moment(), *arguments)
                if not wanted():
                    return None
                self._take(name, value)
                await self._accept()
            except BaseException as error:  # a hook is foreign code: what it raises is an event, or the turn's end  # noqa: ASYNC103 - what is not ours is told, not raised: our own cancellation goes on
                if goes_on(error):
                    raise
                told = f"hook {name} of {self._path} raised {safely_told(error)}"
                self._tell(HookFailed, {"hook": name, "error": told})
                if decides:
                    return error if isinstance(error, CallboardError) and speaks(error) else UsageError(told)  # noqa: ASYNC104 - likewise
        return None

    def _take(self, name: str, value: object) -> None:
        match name:
            case "instructions":
                self.instructions = None if value is None else str(value)
            case "tools":
                self.box = None if value is None else toolbox(value)  # type: ignore[arg-type]  # it checks what it gets
            case "context":
                self.window = None if value is None else Conversation(value).window()  # type: ignore[arg-type]  # likewise
            case "model_changed":
                if not isinstance(value, str | None):
                    raise UsageError(f"model_changed returns a text or None; got {value!r}")
                self._note = value or ""
            case _:
                self._sent = answers(value)

    async def _accept(self) -> None:
        """Accept what a hook sends as one decision (HOK-2)."""
        sent, self._sent = self._sent, ()
        letters = [
            Letter(item.content, Lane.STEER if isinstance(item, Steer) else Lane.SEND)
            for item in sent
            if not isinstance(item, Compact)
        ]
        if letters:
            await self._parts.post.send(self._path, letters)
        if len(letters) < len(sent):
            await self._parts.desk.compact(self._path)

    def _moment(self, stage: Stage | None = None) -> Moment:
        row, values = self._row(), stage or self._stage or self._calls
        return Moment(
            self._path,
            max(row.runs, 1),
            max(row.turns, 1),
            self._calls.conversation(),
            Kv(values, "agent"),
            Kv(values, run_id(self._path, max(row.runs, 1))),
            self._calls,
        )

    def around(self, call: CallView) -> Around | None:
        """The wrapper of a call, or None where the agent wraps none (TOL-13)."""
        method = method_of(self._hooks, AROUND)
        if method is None:
            return None

        def moment() -> Moment:
            return self._moment(self._parts.staging.of(call.block.id))  # it is the call's own code

        return wrapper(method, moment, call, self._tell)
