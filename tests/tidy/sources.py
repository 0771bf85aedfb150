"""Reads the project's own source for the tidy tests: files, modules, imports; with nothing imported or run."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("actors", "supervisor")
# Never ours: what tools make.
CACHES = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
SKIPPED = frozenset({".git", ".venv", "build", "dist", "htmlcov", *CACHES})
IMPORTERS = frozenset({"import_module", "__import__"})


class Import(NamedTuple):
    """One thing that a module imports: the module meant, and the line."""

    module: str
    line: int


def files(*suffixes: str, under: Path = ROOT) -> Iterator[Path]:
    """Every file of the checkout with one of the suffixes (all files without any), sorted, tools' own left out."""
    for path in sorted(under.iterdir()):
        if path.is_dir() and path.name not in SKIPPED and not path.name.endswith(".egg-info"):
            yield from files(*suffixes, under=path)
        elif path.is_file() and (not suffixes or path.suffix in suffixes):
            yield path


def relative(path: Path) -> str:
    """The path as people write it."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a source file."""
    return ast.parse(path.read_text("utf-8"), str(path))


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Every module of the two packages, by dotted name; a package's `__init__` under the package's name."""
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str, path: Path, known: frozenset[str]) -> list[Import]:
    """All imports of a module, wherever they stand: at the top, for types only, in functions, by import_module()."""
    found: list[Import] = []
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Import(names=aliases):
                found += [Import(alias.name, node.lineno) for alias in aliases]
            case ast.ImportFrom():
                base = absolute(node, name, is_package=path.name == "__init__.py")
                full = [f"{base}.{alias.name}" for alias in node.names]
                found += [Import(dotted if dotted in known else base, node.lineno) for dotted in full]
            case ast.Call(func=func, args=[ast.Constant(value=str(target)), *_]) if called(func) in IMPORTERS:
                found.append(Import(target, node.lineno))
            case _:
                pass
    return found


def called(func: ast.expr) -> str:
    """The last part of what a call calls: `import_module` for `importlib.import_module(...)`."""
    match func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def absolute(node: ast.ImportFrom, name: str, *, is_package: bool) -> str:
    """The module that a `from … import` names, dots resolved."""
    if not node.level:
        return node.module or ""
    parts = name.split(".")
    kept = parts[: len(parts) - node.level + is_package]
    return ".".join([*kept, *([node.module] if node.module else [])])
