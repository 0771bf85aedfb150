"""Hooks: what an agent's owner may do at the boundaries of its runs, turns, requests and tool calls.

One object per agent, and one of the supervisor for all of its agents, every method optional. `instructions`, `tools`
and `context` decide what is sent, so their failure fails the turn; the others observe, so theirs is an event, unless
the method is marked with `@guard`. They run in the supervisor's tool nursery, each call in order, by a task of their
own; an abort cancels them, leaves them behind like tools where they do not notice, and drops what they answer later
(ABT-6). What they return (`Steer`, `Send`, `Compact`, or a list) is carried out as one decision (HOK-2).

The supervisor's hooks stand around the agent's: at `before_…` they are called first, at `after_…` and `settled` last;
its `around_tool` wraps the agent's; what decides is asked of the agent's first, and the supervisor's, which see what
these chose, have the last word.

How often: `before_run` and `after_run` once for each run, `before_turn` and `after_turn` once for each turn, whatever
pauses, parks or restarts it; the deciding ones and `before_request` once for each request, not for each attempt (the
deciding ones again where other mail has come since); `after_response` once for each whole response. None is called for
a summary's request. Two limits: a turn that a crash ended before its first commit begins anew, with its hooks; and the
hooks behind a turn are not called again where the process ended before them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, final

import attrs

from .calling import ToolHost
from .errors import UsageError
from .hooked import GUARD, METHODS, Point
from .ids import AgentId
from .kv import Stores
from .ports import Response

if TYPE_CHECKING:
    from .conversation import Window
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


class Seen(Protocol):
    """What stands when a hook is called, looked up where it is asked for."""

    def conversation(self) -> Window:
        """The conversation."""
        ...

    def instructions(self) -> str:
        """The instructions of the next request."""
        ...

    def tools(self) -> Mapping[str, Tool[..., Any]]:
        """Its tools."""
        ...


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
        kv: key-value stores: `kv.run` of the run, erased in the commit that settles it, `kv.agent` of the agent.
        response: what the model said, in `after_response`; else None.
    """

    agent: AgentId
    run: int
    turn: int
    kv: Stores
    response: Response | None
    _seen: Seen = attrs.field(repr=False)
    _host: ToolHost = attrs.field(repr=False)

    @property
    def conversation(self) -> Window:
        """The conversation; to `instructions`, `tools` and `context` as their request will show it.

        Reading it copies nothing, but for these three, to whom it shows what is about to be added.
        """
        return self._seen.conversation()

    @property
    def instructions(self) -> str:
        """The instructions of the next request, as chosen so far."""
        return self._seen.instructions()

    @property
    def tools(self) -> Mapping[str, Tool[..., Any]]:
        """The tools of the next request by name, as chosen so far."""
        return self._seen.tools()

    def ref(self, path: str) -> AgentRef:
        """The handle of another agent, or of this one. What waits is checked for cycles (REE-2)."""
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
        """The instructions of the next request; None for those chosen so far. Its failure fails the turn."""

    async def tools(self, at: Moment) -> Sequence[Tool[..., Any]] | None:
        """The tools of the next request; None for those chosen so far. Its failure fails the turn."""

    async def context(self, at: Moment) -> Sequence[Record] | None:
        """What the next request shows of the conversation, `at.conversation`; None for that as it is.

        What is stored never changes by it. It must leave a conversation that providers take: a call with its result
        behind it, or neither. Where an agent has one, each request costs a copy of the history.
        """

    async def before_run(self, at: Moment) -> Answer:
        """A run begins."""

    async def before_turn(self, at: Moment) -> Answer:
        """A turn begins.

        What it steers, here or in `before_request`, is answered before a task that no turn has taken yet: steer where
        something is new, or each turn ends with that alone, and the next begins with another.
        """

    async def model_changed(self, at: Moment, before: str, after: str) -> str | None:
        """A message chose a model that cannot go on with the conversation, which is about to be reset (SEL-2).

        What is written to the stores of `at` lands with the change, or not at all (HOK-3). `before`, `after`: ids of
        the models. Returns a hand-over note for the model that takes over, or None; its failure rejects the change.
        """

    async def before_request(self, at: Moment) -> Answer:
        """A request is about to be admitted."""

    async def after_response(self, at: Moment) -> Answer:
        """A whole response came (`at.response`), and is about to be committed."""

    async def around_tool(self, at: Moment, call: AroundCall, proceed: Proceed) -> object:
        """Wrap a tool call: `return await proceed()`; it runs at most once however often it is asked (TOL-13).

        `proceed({**call.arguments, "path": "x"})` runs it with other arguments, `return Refuse("why")` not at all. What
        this raises is the call's error result. Called by a task of the call's own, within the call's deadline.
        """
        del at, call
        return await proceed()

    async def after_turn(self, at: Moment, report: Report) -> Answer:
        """A turn ended; one that was parked, when it has gone on."""

    async def after_run(self, at: Moment, report: Report) -> Answer:
        """A run ended."""

    async def settling(self, at: Moment) -> Answer:
        """A run is about to settle: the turn has its answer, or has failed, and no message waits.

        What is written to the stores of `at` lands with the commit that settles the run, or not at all (HOK-3): where
        it fails, or a message came meanwhile and the run goes on, nothing of it is kept, and it is called again then.
        An abort ends a run without it.
        """

    async def settled(self, at: Moment) -> Answer:
        """No turn runs and none is requested."""


def guard(method: F) -> F:
    """Mark an observing hook as a guard: its failure fails the turn, of which one behind it finds none (HOK-1)."""
    setattr(method, GUARD, True)
    return method


def is_guard(method: object) -> bool:
    """Whether a hook was marked."""
    return bool(getattr(method, GUARD, False))


def method_of(hooks: object, name: str) -> Callable[..., Awaitable[Any]] | None:
    """A hook's method where it was overridden, else None."""
    own = getattr(type(hooks), name, None)
    if own is None or own is getattr(Hooks, name):
        return None
    method: Callable[..., Awaitable[Any]] = getattr(hooks, name)
    return method


def points_of(*hooks: object) -> frozenset[Point]:
    """The points at which an agent's hooks, or its supervisor's, must be called."""
    return frozenset(
        point for point, names in METHODS.items() if any(method_of(one, name) for one in hooks for name in names)
    )


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
