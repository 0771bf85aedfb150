"""A mutant: one place of one file, changed; and how it is put into modules that are loaded already."""

from __future__ import annotations

import ast
import marshal
import sys
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


@cache
def source(file: str) -> str:
    """A file as it is when it is first asked for: whoever changes it while the mutants run changes nothing here."""
    return (ROOT / file).read_text("utf-8")


class Mutant(NamedTuple):
    """A change of one place in a file, and what it breaks."""

    breaks: str
    file: str
    old: str
    new: str

    @property
    def module(self) -> str:
        """The name of the module it changes."""
        return ".".join(Path(self.file).with_suffix("").parts)

    def wrong(self) -> str | None:
        """Why it cannot be made, or None."""
        found = source(self.file).count(self.old)
        if found == 1:
            return None
        return "its place is gone" if not found else f"its place is there {found} times"

    def text(self) -> str:
        """The file as the mutant has it."""
        return source(self.file).replace(self.old, self.new)

    def lines(self) -> set[int]:
        """The lines of the statements that it changes."""
        text = source(self.file)
        at = text.index(self.old)
        first, last = text.count("\n", 0, at) + 1, text.count("\n", 0, at + len(self.old.rstrip())) + 1
        found: set[int] = set()
        for line in range(first, last + 1):
            spans = [
                (node.end_lineno - node.lineno, node.lineno, node.end_lineno)
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.stmt) and node.end_lineno and node.lineno <= line <= node.end_lineno
            ]
            if spans:
                found.update(range(min(spans)[1], min(spans)[2] + 1))
        return found


def put(mutant: Mutant) -> int:
    """Put a mutant into its module, which is loaded; returns how many functions and constants it changes.

    Whoever holds a function of the module has the mutant's from now on: its code is exchanged, not the function.
    """
    module = sys.modules[mutant.module]
    made = ModuleType(module.__name__)
    made.__dict__.update(__file__=module.__file__, __package__=module.__package__)
    exec(compile(mutant.text(), str(ROOT / mutant.file), "exec", dont_inherit=True), made.__dict__)  # noqa: S102 - ours
    return sum(_exchange(found, broken) for found, broken in _functions(module, made)) + _constants(module, made)


def _functions(module: object, made: object) -> Iterator[tuple[FunctionType, FunctionType]]:
    """The functions of a module or class, each with its counterpart."""
    name = getattr(module, "__name__", None)
    for key, found in list(vars(module).items()):
        broken = vars(made).get(key)
        for one, other in zip(_inside(found), _inside(broken), strict=False):
            if isinstance(one, FunctionType) and isinstance(other, FunctionType):
                yield one, other
            elif isinstance(one, type) and isinstance(other, type) and one.__module__ == name and one is not other:
                yield from _class(one, other)


def _class(found: type, broken: type) -> Iterator[tuple[FunctionType, FunctionType]]:
    for key, member in list(vars(found).items()):
        for one, other in zip(_inside(member), _inside(vars(broken).get(key)), strict=False):
            if isinstance(one, FunctionType) and isinstance(other, FunctionType):
                yield one, other


def _inside(found: object) -> tuple[object, ...]:
    """What is behind a property or a method of a class."""
    match found:
        case property():
            return found.fget, found.fset
        case staticmethod() | classmethod():
            return (found.__func__,)
        case cached_property():
            return (found.func,)
        case _:
            return (getattr(found, "__wrapped__", found),)


def _exchange(found: FunctionType, broken: FunctionType) -> int:
    same = _bare(found.__code__) == _bare(broken.__code__) and found.__kwdefaults__ == broken.__kwdefaults__
    if same and found.__defaults__ == broken.__defaults__:
        return 0
    found.__code__, found.__defaults__, found.__kwdefaults__ = (
        broken.__code__,
        broken.__defaults__,
        broken.__kwdefaults__,
    )
    return 1


def _bare(code: CodeType) -> bytes:
    """Code without the lines it stands on."""
    inner = tuple(_bare(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return marshal.dumps(code.replace(co_consts=(), co_firstlineno=1, co_linetable=b"")) + repr(inner).encode()


_PLAIN = (str, int, float, tuple, frozenset, dict)


def _constants(module: ModuleType, made: ModuleType) -> int:
    """Put other constants in place, also where they were imported to."""
    changed = 0
    for key, new in vars(made).items():
        old = vars(module).get(key)
        if key.startswith("__") or type(old) not in _PLAIN or repr(old) == repr(new):
            continue
        changed += 1
        for holder in [one for name, one in sys.modules.items() if name.startswith(("actors", "tests", "supervisor"))]:
            if vars(holder).get(key) is old:
                setattr(holder, key, new)
    return changed
