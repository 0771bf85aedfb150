"""Loads the FILE.py of `callboard run`: what it exports, and plain words where it cannot be used."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import attrs

from actors import Agent
from actors.errors import CallboardError, UsageError

if TYPE_CHECKING:
    from types import ModuleType

    from typing_extensions import TypeIs

    from actors import Model

    Main: TypeAlias = Callable[[Any, argparse.Namespace], Awaitable[object]]


class Unusable(CallboardError):
    """The environment lacks what the file needs."""

    kind = "environment"


class Broken(CallboardError):
    """The file failed while it was loaded; the traceback stands in the message."""

    kind = "file"


@attrs.frozen
class Program:
    """What a FILE.py exports.

    Attributes:
        main: the coroutine function, or None where `agent` is asked TASK.
        arguments: adds the file's own options, or None.
        model, agents: a value, a function of the parsed arguments, or None.
    """

    path: Path
    main: Main | None
    agent: Agent | None
    arguments: Callable[[argparse.ArgumentParser], object] | None
    model: object
    agents: object

    def model_for(self, args: argparse.Namespace) -> Model | str | None:
        """The file's own model, or None."""
        model = self.model(args) if _is_factory(self.model) else self.model
        if model is not None and not isinstance(model, str) and not hasattr(model, "request"):
            raise UsageError(
                f"{self.path}: model is a model, its name, or a function of args that gives one; got {model!r}"
            )
        return cast("Model | str | None", model)

    def agents_for(self, args: argparse.Namespace) -> list[Agent]:
        """Whom stored agents are brought back with: `agents`, and `agent`."""
        value = self.agents(args) if _is_factory(self.agents) else self.agents
        if not (isinstance(value, list | tuple) and all(isinstance(item, Agent) for item in value)):
            raise UsageError(
                f"{self.path}: agents is a list of agents, or a function of args that makes one; got {value!r}"
            )
        return [*value, *(() if self.agent is None or self.agent in value else (self.agent,))]


def _is_factory(value: object) -> TypeIs[Callable[[argparse.Namespace], object]]:
    return inspect.isroutine(value)


def _takes(function: Callable[..., object], count: int) -> bool:
    """Whether a function can be called with so many values."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # one in C, of which nothing is known
        return True
    return True


_NAME: Final = "callboard_file_"


def load(path: Path) -> Program:
    """Load a file.

    Raises:
        UsageError: it is no file, does not parse, or exports neither `main` nor `agent`.
        Unusable: it imports what is not installed. Broken: it raised.
    """
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise UsageError(f"{path}: {found}; `callboard run` takes a Python file, and options behind it")
    module = _execute(path)
    main = getattr(module, "main", None)
    agent = getattr(module, "agent", None)
    arguments = getattr(module, "arguments", None)
    if main is not None and not (inspect.iscoroutinefunction(main) and _takes(main, 2)):
        raise UsageError(f"{path}: main is not `async def main(sup, args)`")
    if agent is not None and not isinstance(agent, Agent):
        raise UsageError(f"{path}: agent is an Agent; got {agent!r}")
    if arguments is not None and not (callable(arguments) and _takes(arguments, 1)):
        raise UsageError(f"{path}: arguments is `def arguments(parser)`; got {arguments!r}")
    for name in ("model", "agents"):
        factory = getattr(module, name, None)
        if _is_factory(factory) and not _takes(factory, 1):
            raise UsageError(f"{path}: as a function, {name} is `def {name}(args)`")
    if main is None and agent is None:
        raise UsageError(f"{path}: exports neither `async def main(sup, args)` nor `agent = Agent(...)`")
    agents = getattr(module, "agents", None)
    if agents is None:
        agents = [value for value in vars(module).values() if isinstance(value, Agent)]
    return Program(path, main, agent, arguments, getattr(module, "model", None), agents)


def _execute(path: Path) -> ModuleType:
    """Run the file as a module of its own, with its folder first on the path, as `python FILE.py` would."""
    name = _NAME + path.stem
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: not a Python file; its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # attrs and typing look classes up by their module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UsageError(f"{error.filename or path}:{error.lineno or 1}: {error.msg}") from error
    except ModuleNotFoundError as error:
        raise Unusable(f"{path}: needs the module {error.name}, which is not installed here") from error
    except CallboardError as error:
        raise UsageError(f"{path}: {error}") from error
    except Exception as error:  # whatever the file raises is the file's; its traceback says where
        raise Broken(f"{path}: failed while it was loaded\n{own_traceback(error)}") from error
    return module


_OURS: Final = ("supervisor.", "supervisor", "trio", "importlib", "_frozen", "contextlib", "__main__")


def own_traceback(error: BaseException) -> str:
    """The traceback without the frames above the file's own; whole where none is the file's: a bug of ours."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__)).rstrip()
