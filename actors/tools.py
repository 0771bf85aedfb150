"""A tool from a function: what a model is offered, the check of its arguments, the shape of its result.

Everything is compiled where the function is decorated; a call pays for reading its JSON, one check, and building
what is no plain JSON. What a model sends wrongly is a `Refusal` with words it can act on, never an exception (TOL-6).
This module runs no tool.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import attrs

from .arguments import Input, Parsed, compile_input
from .content import Trust, check_text
from .errors import UsageError
from .fitting import Checker, Refusal
from .ports import ToolOffer
from .results import Keep, Output, Shaped, compile_output
from .schema import Json, Schema, compact, read_docstring
from .signature import names_beside, read_signature
from .tool_options import (
    TOOL_NAME,
    Effect,
    ToolOptions,
    check_options,
    checked_name,
    is_async,
    is_number,
    narrowed,
    plain_function,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Unpack

__all__ = [
    "TOOL_NAME",
    "Effect",
    "Parsed",
    "Refusal",
    "Shaped",
    "Tool",
    "ToolOptions",
    "Toolbox",
    "is_number",
    "make_tool",
    "tool",
    "toolbox",
]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


# -- the tool ----------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class Tool(Generic[P, R_co]):
    """A function that a model may call; called from Python it is the function itself.

    Attributes:
        name, description: as the model sees them. offer: both with the schema of the arguments.
        fn: the function. context: name of the parameter that gets the context, or None.
        effect, resource, exclusive, approve, trust, fatal: as `ToolOptions` describes them.
        timeout_s, approve_timeout_s: seconds, or None for no limit.
        is_async: the function is a coroutine function; others run in a thread.
    """

    name: str
    description: str
    fn: Callable[P, R_co]
    offer: ToolOffer
    effect: Effect
    resource: Callable[..., object] | None
    exclusive: bool
    approve: bool | Callable[..., bool]
    timeout_s: float | None
    approve_timeout_s: float | None
    trust: Trust
    fatal: bool
    context: str | None
    is_async: bool
    _input: Input
    _output: Output

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""
        return self.fn(*args, **kwargs)

    @property
    def takes_context(self) -> bool:
        """Whether the function wants the context."""
        return self.context is not None

    def parse(self, arguments: str) -> Parsed | Refusal:
        """Arguments from the JSON text that a model sent; never an exception (TOL-6).

        Args:
            arguments: JSON text of an object; nothing at all stands for an empty one.

        Returns:
            The arguments by name, built and with defaults; or what the model is told.
        """
        return self._input.parse(arguments)

    def bind(self, arguments: Mapping[str, Any], context: object) -> dict[str, Any]:
        """The keyword arguments of the call: what the model gave, and the context, which it can not give (TOL-11)."""
        return dict(arguments) if self.context is None else {**arguments, self.context: context}

    def keys(self, arguments: Mapping[str, Any]) -> tuple[tuple[str, ...], bool]:
        """The resource keys of a call, and whether it runs alone, as it does where `resource` raises (TOL-4)."""
        if self.resource is None or self.exclusive:
            return (), self.exclusive
        try:
            return _as_keys(self.resource(**arguments)), False
        except Exception:  # noqa: BLE001 - whatever went wrong, running alone is safe
            return (), True

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call needs approval (TOL-12); it does where `approve` raises."""
        if isinstance(self.approve, bool):
            return self.approve
        try:
            return bool(self.approve(**arguments))
        except Exception:  # noqa: BLE001 - whatever went wrong, asking is safe
            return True

    def final(self, arguments: str) -> dict[str, Json]:
        """The arguments of a call that fits, as JSON values with the defaults that JSON has: what a person is shown."""
        return self._input.final(arguments)

    def without_defaults(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Built arguments but for those that are the function's own defaults, which need no JSON form."""
        return self._input.without_defaults(arguments)

    @property
    def version(self) -> str:
        """A digest of what the tool says of itself; it changes with its schema and its defaults (TOL-12)."""
        return hashlib.sha256(compact({**self.digest_form()}).encode()).hexdigest()[:32]

    def shape(self, value: object, limit_chars: int, keep: Keep | None = None) -> Shaped:
        """What the model reads of a result; never an exception (TOL-6, TOL-8).

        Text and content pass as they are, None is `done`, everything else is written as JSON.

        Args:
            value: what the function returned.
            limit_chars: how many characters are shown, the line about what is missing included.
            keep: the whole is kept aside where it is longer; the line says how to read it.
        """
        return self._output.shape(value, limit_chars, keep)

    @property
    def origin(self) -> str:
        """Where the function stands, for messages."""
        return f"{getattr(self.fn, '__module__', '?')}.{getattr(self.fn, '__qualname__', repr(self.fn))}"

    def digest_form(self) -> dict[str, Json]:
        """What makes this tool another one for an agent's digest; no addresses, no code."""
        return {
            "name": self.name,
            "description": self.description,
            "schema": self.offer.schema,
            "effect": self.effect.value,
            "resource": self.resource is not None,
            "exclusive": self.exclusive,
            "approve": self.approve if isinstance(self.approve, bool) else "by arguments",
            "timeout_s": self.timeout_s,
            "approve_timeout_s": self.approve_timeout_s,
            "trust": self.trust.value,
            "fatal": self.fatal,
        }

    def __repr__(self) -> str:
        return f"<Tool {self.name} of {self.origin}, {self.effect.value}>"

    @staticmethod
    def internal(
        name: str,
        description: str,
        schema: Schema,
        fn: Callable[..., Any],
        *,
        effect: Effect = Effect.ONCE,
        context: str | None = None,
        trust: Trust = Trust.TRUSTED,
    ) -> Tool[..., Any]:
        """A tool that the runtime makes itself: a child, `answer_NAME`, delegation.

        Args:
            name: as the model sees it.
            description: likewise.
            schema: JSON Schema of the arguments, an object; what fits is handed to `fn` as it came.
            fn: called with the arguments by name.
            effect: of a call.
            context: name of the parameter that gets the context, or None.
            trust: of its results.

        Raises:
            UsageError: the name or the schema cannot be used.
        """
        checked_name(name)
        checker = Checker(schema)
        return Tool(
            name=name,
            description=description,
            fn=fn,
            offer=ToolOffer(name, description, compact(schema)),
            effect=effect,
            resource=None,
            exclusive=False,
            approve=False,
            timeout_s=None,
            approve_timeout_s=None,
            trust=trust,
            fatal=False,
            context=context,
            is_async=is_async(fn),
            input=Input(name, checker),
            output=Output(name),
        )


@overload
def tool(fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a function a tool; `@tool` and `@tool(effect="pure")` both work.

    The model is told the function's name, its docstring, and its parameters with their types and defaults. A
    parameter annotated `Context` is hidden from it.

    Args:
        fn: a function, sync or async; `tool(instance.method)` for a method.
        **options: see `ToolOptions`.

    Raises:
        UsageError: something cannot be offered to a model; the message names it and says what to write.
    """
    names = names_beside()

    def decorate(function: Callable[P, R]) -> Tool[P, R]:
        return make_tool(function, options, names)

    return decorate if fn is None else decorate(fn)


def make_tool(fn: Callable[P, R], options: ToolOptions, names: Mapping[str, object]) -> Tool[P, R]:
    """As `tool`, with what stands beside the function."""
    if isinstance(fn, Tool):
        raise UsageError(f"{fn!r} is a tool already; decorate the function once")
    fn = plain_function(fn)
    inner: Any = fn.func if isinstance(fn, functools.partial) else fn
    name = checked_name(options.get("name", getattr(inner, "__name__", None)), fn)
    where = f"tool {name!r}"
    check_options(options, where)
    signature = read_signature(fn, where, names)
    said = read_docstring(inspect.getdoc(inner))
    description = options.get("description", said.text)
    check_text(description, f"{where}: its description")
    schema, takes = compile_input(name, signature.arguments, said.arguments)
    given = tuple(argument.name for argument in signature.arguments)
    approve = options.get("approve", False)
    resource = options.get("resource")
    timeout, decide = options.get("timeout"), options.get("approve_timeout")
    return Tool(
        name=name,
        description=description,
        fn=fn,
        offer=ToolOffer(name, description, compact(schema)),
        effect=Effect(options.get("effect", Effect.ONCE)),
        resource=None if resource is None else narrowed(resource, given, f"{where}, resource="),
        exclusive=options.get("exclusive", False),
        approve=approve if isinstance(approve, bool) else narrowed(approve, given, f"{where}, approve="),
        timeout_s=None if timeout is None else float(timeout),
        approve_timeout_s=None if decide is None else float(decide),
        trust=Trust(options.get("trust", Trust.TRUSTED)),
        fatal=options.get("fatal", False),
        context=signature.context,
        is_async=is_async(fn),
        input=takes,
        output=compile_output(name, signature.returns, where),
    )


def _as_keys(found: object) -> tuple[str, ...]:
    if found is None:
        return ()
    if isinstance(found, str):
        return (found,)
    if isinstance(found, tuple | list | set | frozenset):
        return tuple(dict.fromkeys(key for item in found for key in _as_keys(item)))
    hash(found)
    return (str(found),)


# -- many tools --------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class Toolbox(Mapping[str, Tool[..., Any]]):
    """The tools of one request by name; `offers` in order. Make one with `toolbox`."""

    offers: tuple[ToolOffer, ...]
    _tools: dict[str, Tool[..., Any]]

    def __getitem__(self, name: str) -> Tool[..., Any]:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"<Toolbox {', '.join(self._tools) or 'empty'}>"


def toolbox(tools: Iterable[Tool[..., Any]]) -> Toolbox:
    """The tools by name.

    Raises:
        UsageError: two share a name (TOL-9).
    """
    found: dict[str, Tool[..., Any]] = {}
    for one in tools:
        if one.name in found:
            raise UsageError(
                f"two tools are named {one.name!r}: {found[one.name].origin} and {one.origin};"
                ' rename one with @tool(name="...")'
            )
        found[one.name] = one
    return Toolbox(tuple(one.offer for one in found.values()), found)
