"""What a tool's function takes: its arguments, the parameter that gets the context, what it returns.

The context parameter is found by its class (`__callboard_context__ = True`); where its annotation cannot be resolved
at run time (`if TYPE_CHECKING`), by its name. It is never part of what a model sees or sends (TOL-11).
"""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONTEXT_MARK: Final = "__callboard_context__"
_CONTEXT_NAMES: Final = ("ctx", "context")
_EMPTY: Final = inspect.Parameter.empty


class Argument(Struct, frozen=True):
    """One argument that a model gives. `default`: what stands where it is left out; None where it is required."""

    name: str
    annotation: object
    default: tuple[object] | None


class Signature(Struct, frozen=True):
    """What a function takes and returns.

    Attributes:
        arguments: in the function's order. context: name of the parameter that gets the context, or None.
        returns: the resolved annotation; `Any` where there is none, or it cannot be resolved.
    """

    arguments: tuple[Argument, ...]
    context: str | None
    returns: object


def read_signature(fn: Callable[..., object], where: str, names: Mapping[str, object]) -> Signature:
    """What a function takes and returns.

    Args:
        fn: a plain, partial or bound function.
        where: names the tool in an error.
        names: what stood beside the function where it was decorated, for annotations that name local classes.

    Raises:
        UsageError: a parameter cannot be offered to a model.
    """
    given = fn.keywords if isinstance(fn, functools.partial) else {}  # not the model's to give
    resolve = _Resolver(fn, names)
    signature = inspect.signature(fn)
    arguments: list[Argument] = []
    context: str | None = None
    for position, parameter in enumerate(signature.parameters.values()):
        if parameter.name in given:
            continue
        _check_kind(parameter, position, where)
        annotation = resolve(parameter.annotation)
        if _is_context(parameter, annotation):
            if context is not None:
                raise UsageError(f"{where}: both {context!r} and {parameter.name!r} are a context; keep one")
            context = parameter.name
            continue
        place = f"{where}, parameter {parameter.name!r}"
        if annotation is _EMPTY:
            hint = "Context" if parameter.name in _CONTEXT_NAMES else "str"
            raise UsageError(f"{place} has no annotation; write its type, for example `{parameter.name}: {hint}`")
        if isinstance(annotation, _Unresolved):
            raise UsageError(
                f"{place}: the annotation {annotation.text!r} cannot be resolved at run time ({annotation.why});"
                " import what it names outside `if TYPE_CHECKING`"
            )
        default = None if parameter.default is _EMPTY else (parameter.default,)
        arguments.append(Argument(parameter.name, annotation, default))
    returns = resolve(signature.return_annotation)
    unknown = returns is _EMPTY or isinstance(returns, _Unresolved)
    return Signature(tuple(arguments), context, Any if unknown else returns)


def names_beside() -> Mapping[str, object]:
    """What stands where our caller was called, for annotations that name local classes."""
    frame = sys._getframe(2)  # noqa: SLF001 - the one way to see it; without frames there are no local names
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)


class _Unresolved(Struct, frozen=True):
    text: str
    why: str


class _Resolver:
    """Annotations written as text, each by itself, so that one that cannot be resolved spoils no other."""

    __slots__ = ("_globals", "_locals")

    def __init__(self, fn: Callable[..., object], names: Mapping[str, object]) -> None:
        inner: Any = inspect.unwrap(fn.func if isinstance(fn, functools.partial) else fn)
        inner = getattr(inner, "__func__", inner)
        if not hasattr(inner, "__globals__"):
            inner = getattr(type(inner).__call__, "__func__", type(inner).__call__)
        self._globals: dict[str, Any] = getattr(inner, "__globals__", {})
        self._locals = dict(names)
        closure = getattr(inner, "__closure__", None) or ()
        for name, cell in zip(inner.__code__.co_freevars if closure else (), closure, strict=False):
            try:
                self._locals[name] = cell.cell_contents
            except ValueError:  # an empty cell: the name is not bound yet
                continue

    def __call__(self, annotation: object) -> object:
        if annotation is _EMPTY or isinstance(annotation, type):
            return annotation
        try:
            holder = type("_", (), {"__annotations__": {"value": annotation}})
            return typing.get_type_hints(holder, self._globals, self._locals, include_extras=True)["value"]
        except Exception as error:  # noqa: BLE001 - an annotation is code, which may raise anything
            return _Unresolved(str(annotation), f"{type(error).__name__}: {error}")


def _is_context(parameter: inspect.Parameter, annotation: object) -> bool:
    if isinstance(annotation, _Unresolved):
        last = annotation.text.partition("[")[0].rpartition(".")[2].strip()
        return parameter.name in _CONTEXT_NAMES and last.endswith("Context")
    candidates = (annotation, typing.get_origin(annotation), *typing.get_args(annotation))
    return any(getattr(candidate, CONTEXT_MARK, False) is True for candidate in candidates)


def _check_kind(parameter: inspect.Parameter, position: int, where: str) -> None:
    name = parameter.name
    if position == 0 and name in ("self", "cls") and parameter.annotation is _EMPTY:
        raise UsageError(
            f"{where} is a method of a class, and a model has no {name!r} to give;"
            " decorate the bound method instead: tool(instance.method)"
        )
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: (name, "is positional only", "take away the `/`"),
        inspect.Parameter.VAR_POSITIONAL: (f"*{name}", "takes any number", f"write `{name}: list[str]`"),
        inspect.Parameter.VAR_KEYWORD: (f"**{name}", "takes any name", f"write `{name}: dict[str, str]`"),
    }
    if parameter.kind in kinds:
        written, what, instead = kinds[parameter.kind]
        raise UsageError(f"{where}, parameter {written!r} {what}; a model gives arguments by name: {instead}")
