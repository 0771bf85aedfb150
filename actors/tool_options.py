"""What `tool` may be told beside the function, judged where it is written."""

from __future__ import annotations

import enum
import functools
import inspect
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar

from .content import Trust
from .errors import UsageError
from .ports import ANSWER_TOOL
from .usage import MOST

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")

TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Effect(enum.StrEnum):
    """What a tool does outside, which decides what a restart may do with a call whose end nobody saw (TOL-3)."""

    ONCE = "once"
    """Anything: it is never started twice."""
    IDEMPOTENT = "idempotent"
    """Repeatable under one key."""
    PURE = "pure"
    """Nothing."""
    STORE = "store"
    """Only our store: what it sends, starts and keeps is staged, and lands in the commit that settles the call."""
    CHILD = "child"
    """The runtime's own: it waits for a child agent, and waits again after a restart."""

    @property
    def harmless(self) -> bool:
        """Whether nothing is done where a call is cut: nothing outside, and in the store only with its result."""
        return self is Effect.PURE or self is Effect.STORE


class ToolOptions(TypedDict, total=False):
    """What `tool` may be told beside the function.

    Attributes:
        name: as the model sees it; the function's own by default. description: the docstring's by default.
        effect: `once` (default), `idempotent`, `pure`, `store`; choose `once` in doubt.
        resource: gives the key or keys (a tuple) of what a call uses; calls that share one run one after another. It
            is called with those arguments that it names; None is no key.
        exclusive: the call runs alone in its batch.
        approve: whether a call needs approval; a function is called with those arguments that it names.
        approve_timeout: seconds until a request for approval counts as denied; None: as the agent's `Limits` say.
        timeout: seconds until the call is cut off, above 0; None is no limit.
        trust: how far the result may be believed: `trusted`, `workspace`, `external`.
        fatal: a failure of this tool ends its batch: what runs is cancelled, what has not started is skipped.
    """

    name: str
    description: str
    effect: Effect | Literal["once", "idempotent", "pure", "store"]
    resource: Callable[..., object]
    exclusive: bool
    approve: bool | Callable[..., bool]
    approve_timeout: float | None
    timeout: float | None
    trust: Trust | Literal["trusted", "workspace", "external"]
    fatal: bool


def plain_function(fn: object) -> Any:
    """The function that may become a tool.

    Raises:
        UsageError: it is none, or it yields.
    """
    if isinstance(fn, staticmethod):
        return fn.__func__
    if isinstance(fn, classmethod | property) or not callable(fn) or isinstance(fn, type):
        raise UsageError(f"tool() makes a tool of a function or a bound method; got {fn!r}")
    inner = fn.func if isinstance(fn, functools.partial) else fn
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise UsageError(
            f"{fn!r} yields, and a tool has one result: return it, and tell of progress by ctx.progress(...)"
        )
    return fn


def is_async(fn: object) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def checked_name(name: object, fn: object = None) -> str:
    """The name of a tool.

    Raises:
        UsageError: a model's server would not take it.
    """
    if isinstance(name, str) and TOOL_NAME.fullmatch(name) and name != ANSWER_TOOL:
        return name
    of = "" if fn is None else f" of {fn!r}"
    raise UsageError(
        f"the tool name {name!r}{of} cannot be used: a name is 1 to 64 letters, digits, `_` and `-`,"
        f" and not {ANSWER_TOOL}, by which models give structured answers;"
        ' give one: @tool(name="...")'
    )


def check_options(options: ToolOptions, where: str) -> None:
    """Refuse options that cannot be meant.

    Raises:
        UsageError: names the option, what it got, and what it takes.
    """
    known = ToolOptions.__annotations__
    for option in options:
        if option not in known:
            raise UsageError(f"{where}: there is no option {option!r}; there are {', '.join(known)}")
    offered = [effect.value for effect in Effect if effect is not Effect.CHILD]
    effect = options.get("effect", Effect.ONCE)
    if effect not in offered:
        raise UsageError(f"{where}: effect= is one of {', '.join(offered)}; got {effect!r}")
    trust = options.get("trust", Trust.TRUSTED)
    if trust not in list(Trust):
        raise UsageError(f"{where}: trust= is one of {', '.join(Trust)}; got {trust!r}")
    for name, timeout in (
        ("timeout", options.get("timeout")),
        ("approve_timeout", options.get("approve_timeout")),
    ):
        if timeout is not None and not (is_number(timeout) and timeout > 0):
            raise UsageError(f"{where}: {name}= is seconds above 0, or None for no limit; got {timeout!r}")
    for flag in ("exclusive", "fatal"):
        if not isinstance(options.get(flag, False), bool):
            raise UsageError(f"{where}: {flag}= is True or False; got {options.get(flag)!r}")
    if not isinstance(options.get("description", ""), str):
        raise UsageError(f"{where}: description= is text; got {options.get('description')!r}")
    if options.get("exclusive") and "resource" in options:
        raise UsageError(f"{where}: an exclusive call runs alone, so resource= says nothing; keep one of the two")


def is_number(value: object) -> bool:
    """Whether it is a number that can be reckoned with, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST <= value <= MOST


def narrowed(fn: Callable[..., R], given: tuple[str, ...], where: str) -> Callable[..., R]:
    """The function, called with those arguments that it names."""
    written: object = fn
    if not callable(written) or inspect.iscoroutinefunction(written):
        raise UsageError(f"{where} takes a plain function of the tool's arguments; got {fn!r}")
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:
        raise UsageError(f"{where} takes a plain function whose arguments can be read; got {fn!r}") from None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return fn
    wanted = tuple(parameter.name for parameter in parameters if parameter.name in given)
    for parameter in parameters:
        if parameter.name not in given and parameter.default is parameter.empty:
            raise UsageError(
                f"{where}: the function asks for {parameter.name!r}; the tool takes {', '.join(given) or 'nothing'}"
            )
    if wanted == given:
        return fn

    def call(**arguments: Any) -> R:
        return fn(**{name: arguments[name] for name in wanted})

    return call
