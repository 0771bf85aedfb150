"""A tool from a function: what a model is offered, the check of its arguments, the shape of its result.

Everything is compiled where the function is decorated; a call pays for reading its JSON, one check, and building
what is no plain JSON. What a model sends wrongly is a `Refusal` with words it can act on, never an exception (TOL-6).
This module runs no tool.
"""

from __future__ import annotations

import enum
import inspect
import math
import re
import sys
import typing
import unicodedata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, TypedDict, TypeVar, overload

import attrs
import msgspec

from .building import builder, plain, reasons, write
from .content import Content, File, Image, Text, Trust, as_content
from .errors import UsageError
from .fitting import Checker, Refusal, names_of
from .ports import ToolOffer
from .schema import Json, Schema, compact, default_of, object_schema, read_docstring, schema_of, type_name
from .signature import Argument, read_signature

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Unpack

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PARTS: Final = (Text, Image, File)
DONE: Final = "done"
"""What the model reads of a tool that returned None."""


class Effect(enum.StrEnum):
    """What a tool does outside, which decides what a restart may do with a call whose end nobody saw (TOL-3)."""

    ONCE = "once"
    """Anything: it is never started twice."""
    IDEMPOTENT = "idempotent"
    """Repeatable under one key."""
    PURE = "pure"
    """Nothing."""
    STORE = "store"
    """Only our store, inside the commit that settles the call."""
    CHILD = "child"
    """The runtime's own: it waits for a child agent, and waits again after a restart."""


class ToolOptions(TypedDict, total=False):
    """What `tool` may be told beside the function.

    Attributes:
        name: as the model sees it; the function's own by default. description: the docstring's by default.
        effect: `once` (default), `idempotent`, `pure`, `store`; choose `once` in doubt.
        resource: gives the key or keys (a tuple) of what a call uses; calls that share one run one after another. It
            is called with those arguments that it names; None is no key.
        exclusive: the call runs alone in its batch.
        approve: whether a call needs approval; a function is called with those arguments that it names.
        timeout: seconds until the call is cut off, above 0; None is no limit.
        trust: how far the result may be believed: `trusted`, `workspace`, `external`.
        fatal: a failure of this tool cancels the other calls of its batch.
    """

    name: str
    description: str
    effect: Effect | Literal["once", "idempotent", "pure", "store"]
    resource: Callable[..., object]
    exclusive: bool
    approve: bool | Callable[..., bool]
    timeout: float | None
    trust: Trust | Literal["trusted", "workspace", "external"]
    fatal: bool


@attrs.frozen
class Parsed:
    """Arguments that fit, built, with defaults. `repaired`: where a list or object had been sent as JSON text."""

    arguments: dict[str, Any]
    repaired: tuple[str, ...] = ()


@attrs.frozen
class Shaped:
    """A result as the model reads it.

    Attributes:
        cut: it was too long. whole: the full text where it was cut, else None.
        error: the value is no result (it does not fit the declared type, or has no JSON form); the text says why.
    """

    content: Content
    cut: bool = False
    whole: str | None = None
    error: bool = False


# -- compiled parts ----------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Input:
    """What a tool takes, compiled."""

    tool: str
    checker: Checker
    defaults: Mapping[str, object] = attrs.field(factory=dict)
    builders: tuple[tuple[str, Callable[[Any], Any]], ...] = ()

    def parse(self, arguments: str) -> Parsed | Refusal:
        try:
            value = _DECODE(arguments) if arguments else {}
            if type(value) is dict and self.checker.valid(value):  # the usual case
                return self._built(value)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            return self._not_json(error, arguments)
        return self._repaired(value)

    def _built(self, value: dict[str, Any], repaired: tuple[str, ...] = ()) -> Parsed | Refusal:
        kwargs = {**self.defaults, **value}
        for name, build in self.builders:
            if name in value:
                try:
                    kwargs[name] = build(value[name])
                except Exception as error:  # noqa: BLE001 - classes check their fields with code of their own
                    return self._refused(reasons(error, name))
        return Parsed(kwargs, repaired)

    def _repaired(self, value: Json) -> Parsed | Refusal:
        try:
            read, paths = self.checker.repaired(value)
            if isinstance(read, dict) and self.checker.valid(read):
                return self._built(read, paths)
            return self._refused(self.checker.errors(read))
        except (ValueError, RecursionError) as error:
            return self._not_json(error, "")

    def _refused(self, lines: tuple[str, ...]) -> Refusal:
        listed = "\n".join(f"- {line}" for line in lines)
        return Refusal(f"The arguments of {self.tool} do not fit, so it was not run:\n{listed}\n{self._again()}")

    def _not_json(self, error: Exception, arguments: str) -> Refusal:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        shown = f" They began: {arguments[:80]!r}." if arguments else ""
        return Refusal(f"The arguments of {self.tool} are not JSON, so it was not run: {why}.{shown} {self._again()}")

    def _again(self) -> str:
        return f"Call {self.tool} again with one JSON object of: {names_of(self.checker.schema) or 'nothing, {}'}."


@attrs.frozen(eq=False)
class _Output:
    """What a tool declared to return, compiled. `checker`: None where everything may come."""

    tool: str
    declared: str = "Any"
    text: bool = True
    parts: bool = True
    checker: Checker | None = None

    def shape(self, value: object, limit_chars: int) -> Shaped:
        if type(value) is str and self.text:
            return _cut(value, limit_chars)
        parts = _as_parts(value)
        if parts is not None and self.parts:
            return _cut_parts(parts, limit_chars)
        try:
            form = plain(value)
            text = DONE if value is None else form if isinstance(form, str) else write(form)
        except UsageError as error:
            return self._error(f"{self.tool} ran, but its result cannot be shown: {error}")
        if self.checker is not None and not self.checker.valid(form):
            lines = "; ".join(self.checker.errors(form)).replace("the arguments", "the result")
            return self._error(f"{self.tool} ran, but its result does not fit the declared {self.declared}: {lines}")
        return _cut(text, limit_chars)

    @staticmethod
    def _error(text: str) -> Shaped:
        return Shaped((Text(_safe(text)),), error=True)


def _as_parts(value: object) -> Content | None:
    if isinstance(value, _PARTS):
        return (value,)
    if isinstance(value, list | tuple) and value and any(isinstance(item, _PARTS) for item in value):
        return as_content(value) if all(isinstance(item, str | Text | Image | File) for item in value) else None
    return None


def _safe(text: str) -> str:
    """The text without half characters (from undecodable file names), which no UTF-8 can carry."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def _cut(text: str, limit_chars: int) -> Shaped:
    text = _safe(text)
    if len(text) <= limit_chars:
        return Shaped((Text(text),))
    kept, line = _kept(text, limit_chars)
    return Shaped((Text(text[:kept] + line),), cut=True, whole=text)  # TOL-8


def _kept(text: str, limit_chars: int) -> tuple[int, str]:
    """How much of a text stays, and the line that says how much is missing; together within the limit (TOL-8)."""
    room = max(0, limit_chars - len(_missing(len(text), len(text))))
    for _ in range(_CLUSTER_MAX):  # never between a letter and its accent, or inside a joined emoji
        if not 0 < room < len(text) or not _joins(text[room - 1], text[room]):
            break
        room -= 1
    return room, _missing(len(text) - room, len(text))


_CLUSTER_MAX: Final = 16
_JOINER: Final = "\u200d"


def _joins(before: str, after: str) -> bool:
    if before.isascii() and after.isascii():
        return before == "\r" and after == "\n"
    return (
        _JOINER in (before, after)
        or unicodedata.category(after) in ("Mn", "Me")
        or "\U0001f3fb" <= after <= "\U0001f3ff"
    )


def _missing(missing: int, total: int) -> str:
    return f"\n[cut: {missing:,} of {total:,} characters are missing here]"


def _cut_parts(parts: Content, limit_chars: int) -> Shaped:
    texts = [part.text for part in parts if isinstance(part, Text)]
    if sum(len(text) for text in texts) <= limit_chars:
        return Shaped(tuple(Text(_safe(part.text)) if isinstance(part, Text) else part for part in parts))
    kept: list[Text | Image | File] = []
    room = limit_chars
    for part in parts:
        if not isinstance(part, Text):
            kept.append(part)
        elif room > 0:
            shaped = _cut(part.text, room)
            kept += shaped.content
            room = 0 if shaped.cut else room - len(part.text)
        else:
            kept.append(Text(_missing(len(part.text), len(part.text)).strip()))
    return Shaped(tuple(kept), cut=True, whole="\n".join(texts))


# -- the tool ----------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class Tool(Generic[P, R]):
    """A function that a model may call; called from Python it is the function itself.

    Attributes:
        name, description: as the model sees them. offer: both with the schema of the arguments.
        fn: the function. context: name of the parameter that gets the context, or None.
        effect, resource, exclusive, approve, trust, fatal: as `ToolOptions` describes them.
        timeout_s: seconds, or None for no limit.
        is_async: the function is a coroutine function; others run in a thread.
    """

    name: str
    description: str
    fn: Callable[P, R]
    offer: ToolOffer
    effect: Effect
    resource: Callable[..., object] | None
    exclusive: bool
    approve: bool | Callable[..., bool]
    timeout_s: float | None
    trust: Trust
    fatal: bool
    context: str | None
    is_async: bool
    _input: _Input
    _output: _Output

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
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

    def shape(self, value: object, limit_chars: int) -> Shaped:
        """What the model reads of a result; never an exception (TOL-6, TOL-8).

        Text and content pass as they are, None is `done`, everything else is written as JSON.

        Args:
            value: what the function returned.
            limit_chars: how many characters are shown, the line about what is missing included.
        """
        return self._output.shape(value, limit_chars)

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
            name: as the model sees it. description: likewise.
            schema: JSON Schema of the arguments, an object; what fits is handed to `fn` as it came.
            fn: called with the arguments by name.
            effect: of a call. context: name of the parameter that gets the context, or None.
            trust: of its results.

        Raises:
            UsageError: the name or the schema cannot be used.
        """
        _check_name(name)
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
            trust=trust,
            fatal=False,
            context=context,
            is_async=_is_async(fn),
            input=_Input(name, checker),
            output=_Output(name),
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
    names = _names_beside()

    def decorate(function: Callable[P, R]) -> Tool[P, R]:
        return _make(function, options, names)

    return decorate if fn is None else decorate(fn)


def _names_beside() -> Mapping[str, object]:
    """What stands where `tool` was called, for annotations that name local classes."""
    frame = sys._getframe(2)  # noqa: SLF001 - the one way to see it; without frames there are no local names
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)


def _make(fn: Callable[P, R], options: ToolOptions, names: Mapping[str, object]) -> Tool[P, R]:
    fn = _function(fn)
    inner: Any = getattr(fn, "func", fn)
    name = options.get("name", getattr(inner, "__name__", None))
    _check_name(name, fn)
    where = f"tool {name!r}"
    _check_options(options, where)
    signature = read_signature(fn, where, names)
    said = read_docstring(inspect.getdoc(inner))
    description = options.get("description", said.text)
    schema, takes = _compile_input(name, signature.arguments, said.arguments)
    given = tuple(argument.name for argument in signature.arguments)
    approve = options.get("approve", False)
    timeout = options.get("timeout")
    return Tool(
        name=name,
        description=description,
        fn=fn,
        offer=ToolOffer(name, description, compact(schema)),
        effect=Effect(options.get("effect", Effect.ONCE)),
        resource=_chosen(options.get("resource"), given, f"{where}, resource="),
        exclusive=options.get("exclusive", False),
        approve=approve if isinstance(approve, bool) else _needed(approve, given, f"{where}, approve="),
        timeout_s=None if timeout is None else float(timeout),
        trust=Trust(options.get("trust", Trust.TRUSTED)),
        fatal=options.get("fatal", False),
        context=signature.context,
        is_async=_is_async(fn),
        input=takes,
        output=_compile_output(name, signature.returns, where),
    )


def _compile_input(name: str, arguments: tuple[Argument, ...], said: Mapping[str, str]) -> tuple[Schema, _Input]:
    properties: dict[str, Schema] = {}
    builders: list[tuple[str, Callable[[Any], Any]]] = []
    for argument in arguments:
        place = f"tool {name!r}, parameter {argument.name!r}"
        schema = schema_of(argument.annotation, place)
        if argument.name in said:
            schema.setdefault("description", said[argument.name])
        if argument.default is not None and (default := default_of(argument.default[0])) is not None:
            schema["default"] = default[0]
        properties[argument.name] = schema
        build = builder(argument.annotation, place)
        if build is not None:
            builders.append((argument.name, build))
    required = [argument.name for argument in arguments if argument.default is None]
    whole = object_schema(properties, required)
    defaults = {argument.name: argument.default[0] for argument in arguments if argument.default is not None}
    return whole, _Input(name, Checker(whole), defaults, tuple(builders))


def _compile_output(name: str, returns: object, where: str) -> _Output:
    """What the result is checked against; content parts are told apart by their classes, not by a schema."""
    declared = type_name(returns)
    members = _members(returns)
    if returns is Any or returns is object:
        return _Output(name)
    parts = any(member in _PARTS or member in (Any, object) for member in members)
    text = any(member in (str, Any, object) for member in members)
    if parts:
        return _Output(name, declared, text=text)
    place = f"{where}, its result"
    return _Output(
        name, declared, text=returns is str, parts=False, checker=Checker(schema_of(returns, place, closed=False))
    )


def _members(tp: object) -> tuple[object, ...]:
    """A type and all the types written inside it."""
    inner = [member for arg in typing.get_args(tp) for member in _members(arg)]
    return (tp, *inner)


# -- judging what was written ------------------------------------------------------------------------------------


def _function(fn: object) -> Any:
    if isinstance(fn, staticmethod):
        return fn.__func__
    if isinstance(fn, Tool):
        raise UsageError(f"{fn!r} is a tool already; decorate the function once")
    if isinstance(fn, classmethod | property) or not callable(fn) or isinstance(fn, type):
        raise UsageError(f"tool() makes a tool of a function or a bound method; got {fn!r}")
    inner = getattr(fn, "func", fn)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise UsageError(
            f"{fn!r} yields, and a tool has one result: return it, and tell of progress by ctx.progress(...)"
        )
    return fn


def _is_async(fn: object) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def _check_name(name: object, fn: object = None) -> None:
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        of = "" if fn is None else f" of {fn!r}"
        raise UsageError(
            f"the tool name {name!r}{of} cannot be used: a name is 1 to 64 letters, digits, `_` and `-`;"
            ' give one: @tool(name="...")'
        )


def _check_options(options: ToolOptions, where: str) -> None:
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
    timeout = options.get("timeout")
    if timeout is not None and not (is_number(timeout) and timeout > 0):
        raise UsageError(f"{where}: timeout= is seconds above 0, or None for no limit; got {timeout!r}")
    for flag in ("exclusive", "fatal"):
        if not isinstance(options.get(flag, False), bool):
            raise UsageError(f"{where}: {flag}= is True or False; got {options.get(flag)!r}")
    if not isinstance(options.get("description", ""), str):
        raise UsageError(f"{where}: description= is text; got {options.get('description')!r}")
    if options.get("exclusive") and "resource" in options:
        raise UsageError(f"{where}: an exclusive call runs alone, so resource= says nothing; keep one of the two")


def is_number(value: object) -> bool:
    """Whether it is a finite number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _chosen(fn: Callable[..., object] | None, given: tuple[str, ...], where: str) -> Callable[..., object] | None:
    return None if fn is None else _needed(fn, given, where)


def _needed(fn: Callable[..., R], given: tuple[str, ...], where: str) -> Callable[..., R]:
    """The function, called with those arguments that it names."""
    if not callable(fn) or inspect.iscoroutinefunction(fn):
        raise UsageError(f"{where} takes a plain function of the tool's arguments; got {fn!r}")
    parameters = inspect.signature(fn).parameters.values()
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

    def narrowed(**arguments: Any) -> R:
        return fn(**{name: arguments[name] for name in wanted})

    return narrowed


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


_DECODE: Final = msgspec.json.Decoder().decode
