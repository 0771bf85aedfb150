"""One agent's hooks: calls them at their points, takes what they decide, accepts what they send in one commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import trio

from actors.conversation import Conversation, Window
from actors.errors import CallboardError, UsageError
from actors.guarding import goes_on, safely_told, speaks
from actors.happenings import HookFailed
from actors.hooked import AROUND, METHODS, Point
from actors.hooks import Compact, Moment, Send, Steer, answers, is_guard, method_of
from actors.inputs import HookReturned
from actors.leaks import leaving_none
from actors.letters import Letter
from actors.messages import Lane
from actors.preparing import shown
from actors.settling import BESIDE
from actors.tools import Tool, Toolbox, toolbox
from actors.transcript import Record
from actors.waiting import Frame

from .staging import Stage
from .wrapping import wrapper

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from actors.agent import Agent
    from actors.callview import CallView
    from actors.changes import AgentRow
    from actors.happenings import Event
    from actors.hosting import DeliverHook
    from actors.ids import AgentId
    from actors.moves import CallHook
    from actors.running import Around

    from .calls import Calls
    from .parts import Parts


_DECIDE: Final = frozenset({Point.PREPARE, Point.MODEL_CHANGED})


def _always() -> bool:
    return True


@final
@attrs.define(eq=False)
class _Chosen:
    """What the deciding hooks chose for the next request; None stands for the agent's own.

    Attributes:
        coming: records that the request's commit will add. ahead: the conversation with them, once somebody read it.
        upto: how many records of the conversation the hooks saw.
    """

    coming: tuple[Record, ...] = ()
    instructions: str | None = None
    box: Toolbox | None = None
    window: Window | None = None
    upto: int = 0
    ahead: Window | None = None


@final
class _Ahead:
    """What the deciding hooks see: the conversation with what is about to be added, or what one of them made of it."""

    def __init__(self, hooking: Hooking, calls: Calls, chosen: _Chosen) -> None:
        self._hooking = hooking
        self._calls = calls
        self._chosen = chosen

    def whole(self) -> Window:
        """The conversation as the request's commit will leave it; copied when it is first asked for."""
        chosen = self._chosen
        if chosen.ahead is None:
            chosen.ahead = self._calls.conversation(chosen.coming)
        return chosen.ahead

    def conversation(self) -> Window:
        """As chosen so far."""
        return self.whole() if self._chosen.window is None else self._chosen.window

    def instructions(self) -> str:
        """As chosen so far."""
        return self._hooking.instructions()

    def tools(self) -> Toolbox:
        """As chosen so far."""
        return self._hooking.tools()


@final
class Hooking:
    """The hooks of one agent, and the supervisor's around them.

    Attributes:
        change: the models of a change that is about to reset the conversation, before and after.
    """

    def __init__(self, parts: Parts, agent: Agent, path: AgentId, calls: Calls) -> None:
        self._parts = parts
        self._agent = agent
        outer, inner = parts.options.hooks, agent.hooks
        self._inwards = tuple(one for one in (outer, inner) if one is not None)
        self._outwards = self._inwards[::-1]
        self._path = path
        self._calls = calls
        self._row: Callable[[], AgentRow]
        self._tell: Callable[[type[Event], Mapping[str, object]], None]
        self._offered: Callable[[], Toolbox]
        self._chosen = _Chosen()
        self._note = ""
        self._stage: Stage | None = None
        self._asked: Frame | None = None
        """Of the hooks that the loop waits for, or of the last that it did."""
        self.change = ("", "")
        self._sent = (0, 0)
        """A run, and how many messages hooks have sent this agent in it."""

    def bind(
        self,
        row: Callable[[], AgentRow],
        tell: Callable[[type[Event], Mapping[str, object]], None],
        offered: Callable[[], Toolbox],
    ) -> None:
        """How it sees its agent: its row, its events, and the tools that it has by itself."""
        self._row = row
        self._tell = tell
        self._offered = offered

    def sends(self) -> None:
        """A hook is about to send this agent a message, which keeps the run going (HOK-2).

        Raises:
            UsageError: hooks have sent as many in this run, in this process, as they may.
        """
        limit, (before, sent), run = self._agent.limits.hook_messages, self._sent, self._row().runs
        sent = sent if run == before else 0
        if sent >= limit:
            raise UsageError(
                f"hooks have sent {self._path} {sent} messages in this run, and each keeps it going: send on a"
                f" condition that comes to an end, or raise Limits(hook_messages={limit})"
            )
        self._sent = (run, sent + 1)

    # -- what was chosen, for the request and for hooks that are called later ----------------------------------------

    def instructions(self) -> str:
        """The instructions of the next request."""
        own = self._chosen.instructions
        return self._agent.instructions.text if own is None else own

    def tools(self) -> Toolbox:
        """Its tools."""
        own = self._chosen.box
        return self._offered() if own is None else own

    def window(self, window: Window) -> Window:
        """What it shows of a conversation: what was chosen, and what the runtime added since."""
        chosen = self._chosen
        if chosen.window is None:
            return window
        added = window[chosen.upto :]
        return Conversation((*chosen.window, *added)).window() if added else chosen.window

    def conversation(self) -> Window:
        """The conversation as it stands."""
        return self._calls.conversation()

    # -- calling them ------------------------------------------------------------------------------------------------

    def start(self, call: CallHook, deliver: DeliverHook, wanted: Callable[[], bool]) -> Callable[[], None]:
        """Call the hooks of a point in the tool nursery; `deliver` hears the error of one that decides.

        `wanted`: whether the turn still asks; what a hook answers behind an abort is dropped (ABT-6).

        Returns:
            What cancels them.
        """
        self.leave_behind()
        point = call.point
        frame = self._asked = self._frame(point)
        if point is Point.PREPARE:
            self._chosen = _Chosen(call.coming)

        async def body() -> None:
            if point in BESIDE:
                deliver(await self._beside(point, wanted))
                return
            error = await self._guarded(point, wanted=wanted)
            box = self._chosen.box if point is Point.PREPARE else None
            deliver(HookReturned(self._parts.kernel.now(), error, box))

        return self._parts.runner.start_hook(frame, body)

    def leave_behind(self) -> None:
        """The loop waits for no hook that it asked before: what runs of it still holds up nobody (ABT-6, REE-3)."""
        frame, self._asked = self._asked, None
        if frame is not None and self._parts.frames.is_open(frame):
            self._parts.graph.set_apart(frame, frame.name)

    def _frame(self, point: Point) -> Frame:
        return Frame(self._path, self._row().turns, "hook", point.value, place=self._parts.graph.place)

    async def _beside(self, point: Point, wanted: Callable[[], bool]) -> HookReturned:
        """Call a hook that writes beside a commit: what it writes lands with it or not at all (HOK-3)."""
        change = self.change if point is Point.MODEL_CHANGED else ()
        self._note, self._stage = "", Stage(self._calls.scopes, "the hook")
        try:
            error = await self._guarded(point, *change, wanted=wanted)
            return HookReturned(self._parts.kernel.now(), error, None, self._note, self._stage.end())
        finally:
            self._stage.end()
            self._stage = None

    async def call(self, point: Point, *arguments: object, wanted: Callable[[], bool] = _always) -> None:
        """Call the hooks of a point behind a turn, and wait for them.

        If cancelled: they are too, and are left behind; what they answer then is dropped (ABT-3, ABT-6).
        """
        over = trio.Event()
        waits = True

        async def body() -> None:
            try:
                await self._guarded(point, *arguments, wanted=lambda: waits and wanted())
            finally:
                over.set()

        cancel = self._parts.runner.start_hook(self._frame(point), body)
        try:
            await over.wait()
        finally:
            waits = False
            cancel()

    async def _guarded(
        self, point: Point, *arguments: object, wanted: Callable[[], bool] = _always
    ) -> CallboardError | None:
        layers = self._inwards if point in _BEFORE else self._outwards
        for name in METHODS[point]:
            for hooks in layers:
                method = method_of(hooks, name)
                if method is None:
                    continue
                error = await self._one(point, name, method, arguments, wanted)
                if error is not None:
                    return error
                if not wanted():
                    return None
        return None

    async def _one(
        self,
        point: Point,
        name: str,
        method: Callable[..., Awaitable[Any]],
        arguments: tuple[object, ...],
        wanted: Callable[[], bool],
    ) -> CallboardError | None:
        """Call one; returns why the turn must fail, or None."""
        chosen = self._chosen  # by the point's name: what decorates a method may have another, or none
        try:
            value = await leaving_none(method(self._moment(point), *arguments), name)
            if not wanted():
                return None
            await self._take(name, value, chosen)
        except BaseException as error:  # a hook is foreign code: what it raises is an event, or the turn's end  # noqa: ASYNC103 - what is not ours is told, not raised: our own cancellation goes on
            if goes_on(error):
                raise
            told = f"hook {name} of {self._path} raised {safely_told(error)}"
            self._tell(HookFailed, {"hook": name, "error": told})
            if self._stage is not None:
                self._stage.vanish(told)
            if point in _DECIDE or is_guard(method):
                return error if isinstance(error, CallboardError) and speaks(error) else UsageError(told)  # noqa: ASYNC104 - likewise
        return None

    async def _take(self, name: str, value: object, chosen: _Chosen) -> None:
        match name:
            case "instructions" | "tools" | "context" if value is None:
                pass
            case "instructions":
                if not isinstance(value, str):
                    raise UsageError(f"instructions returns a text or None; got {value!r}")
                chosen.instructions = value
            case "tools":
                listed = tuple(value) if isinstance(value, Iterable) else (value,)
                if not all(isinstance(one, Tool) for one in listed):
                    raise UsageError(f"tools returns a list of tools or None; got {value!r}")
                chosen.box = toolbox(listed)
            case "context":
                chosen.upto = len(_Ahead(self, self._calls, chosen).whole())
                chosen.window = shown(value)
            case "model_changed":
                if not isinstance(value, str | None):
                    raise UsageError(f"model_changed returns a text or None; got {value!r}")
                self._note = "\n\n".join(note for note in (self._note, value) if note)
            case _:
                await self._accept(answers(value))

    async def _accept(self, sent: tuple[Steer | Send | Compact, ...]) -> None:
        """Carry out what a hook returns as one decision: all that it sends in one commit, or nothing (HOK-2)."""
        if not sent:
            return
        letters = [
            Letter(item.content, Lane.STEER if isinstance(item, Steer) else Lane.SEND)
            for item in sent
            if not isinstance(item, Compact)
        ]
        if len(letters) == len(sent):
            await self._parts.post.send(self._path, letters)
            return
        actor = await self._parts.kernel.resident(self._path)
        actor.check_compacts()  # what it sends is not accepted where that will be refused
        if letters:
            await self._parts.post.send(self._path, letters)
        actor.compact()

    def _moment(self, point: Point | None = None, stage: Stage | None = None) -> Moment:
        row = self._row()
        actor = self._parts.kernel.actors.get(self._path) if point is Point.AFTER_RESPONSE else None
        answer = None if actor is None or actor.loop is None else actor.loop.state.response
        return Moment(
            agent=self._path,
            run=max(row.runs, 1),
            turn=max(row.turns, 1),
            kv=self._calls.scopes.of_hook(stage or self._stage),
            response=None if answer is None else answer.served.response,
            seen=_Ahead(self, self._calls, self._chosen) if point is Point.PREPARE else self,
            host=self._calls,
        )

    def around(self, call: CallView) -> Around | None:
        """The wrapper of a call, or None where nobody wraps it (TOL-13); the supervisor's is the outermost."""
        methods = [method for hooks in self._inwards if (method := method_of(hooks, AROUND)) is not None]
        if not methods:
            return None

        def moment() -> Moment:
            return self._moment(stage=self._parts.staging.of(call.block.id))  # it is the call's own code

        return wrapper(methods, moment, call, self._tell)


_BEFORE: Final = frozenset({Point.BEFORE_RUN, Point.BEFORE_TURN, Point.BEFORE_REQUEST})
"""Where the supervisor's hooks are called first; elsewhere they are called last."""
