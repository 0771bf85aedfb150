"""Hooks: what an agent's owner may do at the boundaries of its runs, turns, requests and tool calls.

One object per agent, every method optional. `instructions`, `tools` and `context` decide what is sent, so their
failure fails the turn; the others observe, so theirs is an event, unless the method is marked with `@guard`. They run
in the supervisor's tool nursery, each call in order, by a task of their own; an abort leaves them behind like tools,
and drops what they answer later (ABT-6). What they return (`Steer`, `Send`, or a list) is accepted as one commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, final

import attrs

from .calling import Kv, ToolHost
from .conversation import Window
from .errors import UsageError
from .ids import AgentId
from .points import Point

if TYPE_CHECKING:
    from .ref import AgentRef
    from .reports import Report
    from .tools import Tool
    from .transcript import Record

F = TypeVar("F", bound=Callable[..., Any])


@attrs.frozen
class Steer:
    """A hook's answer: steer this agent."""

    content: object


@attrs.frozen
class Send:
    """A hook's answer: send this agent a message."""

    content: object


@attrs.frozen
class Compact:
    """A hook's answer: compact this agent's conversation at the next boundary (CMP-6)."""


@attrs.frozen
class Refuse:
    """The answer of `around_tool`: the call is not to be run, and the model reads why."""

    reason: str


Answer: TypeAlias = "Steer | Send | Compact | Sequence[Steer | Send | Compact] | None"


class Proceed(Protocol):
    """What runs a call that a hook wraps, once."""

    async def __call__(self, arguments: Mapping[str, object] | None = None) -> object:
        """Run it and return what it gives; asked again, return what came of it.

        Args:
            arguments: instead of the model's: all of them; they are checked as a model's are.

        Raises:
            UsageError: with these it may not run: they do not fit, are not what was approved, or need approval or
                resources that the call does not have. Exception: what the tool raised.
        """
        ...


@final
@attrs.frozen
class Moment:
    """Where a hook is called.

    Attributes:
        agent: whose hook it is. run, turn: numbers from 1.
        conversation: as it stands; reading it copies nothing.
        kv: the agent's store. run_kv: the run's, erased when the run settles.
    """

    agent: AgentId
    run: int
    turn: int
    conversation: Window
    kv: Kv
    run_kv: Kv
    _host: ToolHost = attrs.field(repr=False)

    def ref(self, path: str) -> AgentRef:
        """The handle of another agent."""
        return self._host.ref(AgentId(path))


@final
@attrs.frozen
class AroundCall:
    """A call that `around_tool` wraps. `arguments`: as checked, a copy; changed ones are handed to `proceed`."""

    id: str
    name: str
    arguments: dict[str, object]


class Hooks:
    """Override what you need; all others cost nothing."""

    async def instructions(self, at: Moment) -> str | None:
        """The instructions of the next request; None for the agent's own. Its failure fails the turn."""

    async def tools(self, at: Moment) -> Sequence[Tool[..., Any]] | None:
        """The tools of the next request; None for the agent's own. Its failure fails the turn."""

    async def context(self, at: Moment) -> Sequence[Record] | None:
        """What the next request shows of the conversation; None for all. What is stored never changes by it."""

    async def before_run(self, at: Moment) -> Answer:
        """A run begins."""

    async def before_turn(self, at: Moment) -> Answer:
        """A turn begins."""

    async def model_changed(self, at: Moment, before: str, after: str) -> str | None:
        """A message chose a model that cannot go on with the conversation, which is about to be reset (SEL-2).

        What is written to the stores of `at` lands with the change, or not at all (HOK-3). `before`, `after`: ids of
        the models. Returns a hand-over note for the model that takes over, or None; its failure rejects the change.
        """

    async def before_request(self, at: Moment) -> Answer:
        """A request is about to be admitted."""

    async def after_response(self, at: Moment) -> Answer:
        """A whole response came, and is about to be committed."""

    async def around_tool(self, at: Moment, call: AroundCall, proceed: Proceed) -> object:
        """Wrap a tool call: `return await proceed()`; it runs at most once however often it is asked (TOL-13).

        `proceed({**call.arguments, "path": "x"})` runs it with other arguments, `return Refuse("why")` not at all. What
        this raises is the call's error result. Called by a task of the call's own, within the call's deadline.
        """
        del at, call
        return await proceed()

    async def after_turn(self, at: Moment, report: Report) -> Answer:
        """A turn ended."""

    async def after_run(self, at: Moment, report: Report) -> Answer:
        """A run ended."""

    async def settled(self, at: Moment) -> Answer:
        """No turn runs and none is requested."""


def guard(method: F) -> F:
    """Mark an observing hook as a guard: its failure fails the turn (HOK-1)."""
    method.__callboard_guard__ = True  # type: ignore[attr-defined]  # a mark on a function
    return method


def is_guard(method: object) -> bool:
    """Whether a hook was marked."""
    return bool(getattr(method, "__callboard_guard__", False))


METHODS: Final = {
    Point.BEFORE_RUN: ("before_run",),
    Point.BEFORE_TURN: ("before_turn",),
    Point.PREPARE: ("instructions", "tools", "context"),
    Point.MODEL_CHANGED: ("model_changed",),
    Point.BEFORE_REQUEST: ("before_request",),
    Point.AFTER_RESPONSE: ("after_response",),
    Point.AFTER_TURN: ("after_turn",),
    Point.AFTER_RUN: ("after_run",),
    Point.SETTLED: ("settled",),
}
AROUND: Final = "around_tool"
_KNOWN: Final = frozenset(name for names in METHODS.values() for name in names) | {AROUND}


def method_of(hooks: object, name: str) -> Callable[..., Awaitable[Any]] | None:
    """A hook's method where it was overridden, else None."""
    own = getattr(type(hooks), name, None)
    if own is None or own is getattr(Hooks, name):
        return None
    method: Callable[..., Awaitable[Any]] = getattr(hooks, name)
    return method


def points_of(hooks: object) -> frozenset[Point]:
    """The points at which an agent's hooks must be called.

    Raises:
        UsageError: a public method that is no hook: a misspelt name would be silently never called.
    """
    if hooks is None:
        return frozenset()
    public = {name for name in vars(type(hooks)) if not name.startswith("_")}
    unknown = sorted(name for name in public - _KNOWN if callable(getattr(hooks, name, None)))
    if unknown:
        msg = f"{type(hooks).__name__}: {', '.join(unknown)} is no hook; hooks are {', '.join(sorted(_KNOWN))}"
        raise UsageError(msg)
    return frozenset(point for point, names in METHODS.items() if any(method_of(hooks, name) for name in names))


def answers(value: object) -> tuple[Steer | Send | Compact, ...]:
    """What a hook returned, as a list.

    Raises:
        UsageError: something else than None, Steer, Send, Compact or a list of them.
    """
    if value is None:
        return ()
    listed = tuple(value) if isinstance(value, list | tuple) else (value,)
    for item in listed:
        if not isinstance(item, Steer | Send | Compact):
            msg = f"a hook returns None, Steer(...), Send(...), Compact() or a list of them; got {item!r}"
            raise UsageError(msg)
    return listed
