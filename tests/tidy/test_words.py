"""What no file of the project says, and what its tests and public names must."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGES, ROOT, files, relative, tree_of

# Spelt in pieces, so that this file does not hold them.
MARKERS = "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X"))
FORBIDDEN = {
    rf"\b({MARKERS})\b": "a leftover marker",
    r"(?<![\w.~-])/(work|root)/": "a path of one machine",
    r"(?<![\w.~-])/(home|Users)/\w": "a path of one person",
    r"\b(files\.)?py" + r"thon" + r"hosted\.org|\bpy" + r"pi\.org|\bregistry\.npm" + r"js\.org": "a registry's host",
    r"\bdeb\.deb" + r"ian\.org|\bcrates\." + r"io\b": "a registry's host",
    r"(?i)\bexactly[\s-]+" + r"once\b": "a promise nobody can keep; say what happens after a crash",
    r"(?i)\bcrash[\s-]?" + r"proof\b": "a promise nobody can keep; say what happens after a crash",
    r"(?i)\bguaranteed\s+" + r"delivery\b": "a promise nobody can keep; say what happens after a crash",
}
UNREAD = frozenset({"requirements.lock"})  # hashes


def texts() -> Iterator[tuple[str, str]]:
    """Every text file of the checkout: its name, and what it says."""
    for path in files():
        if path.name not in UNREAD:
            data = path.read_bytes()
            if b"\0" not in data:
                yield relative(path), data.decode("utf-8")


def said(text: str, name: str = "") -> Iterator[str]:
    """Each forbidden thing that a text says, with its line."""
    for pattern, why in FORBIDDEN.items():
        if name.startswith("examples/") and why == "a leftover marker":
            continue
        for match in re.finditer(pattern, text):
            yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}: {why}"


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every test function of a file."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def exported(path: Path) -> list[str] | None:
    """The names in a module's `__all__`, or None where it has none."""
    for node in tree_of(path).body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=value)
                | ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value)
            ):
                return list(ast.literal_eval(value))
            case _:
                pass
    return None


def kind_then_name(name: str) -> tuple[int, str]:
    """The order of ruff's RUF022: constants, then classes, then the rest."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


def test_no_file_says_what_none_may() -> None:
    """No text of the project holds a leftover marker, a machine's path, a registry's host, or an empty promise."""
    found = [line for name, text in texts() for line in said(text, name)]
    assert not found, "\n".join(found)


def test_every_test_states_its_property() -> None:
    """Every test function has a docstring."""
    tests = [path for path in files(".py", under=ROOT / "tests") if path.name.startswith("test_")]
    silent = [f"{relative(path)}:{test.lineno} {test.name}" for path in tests for test in functions(path)
              if not ast.get_docstring(test)]  # fmt: skip
    assert not silent, "\n".join(silent)


def test_public_names_are_sorted() -> None:
    """Every `__all__` lists each name one time, constants first, then classes, then functions, each by name."""
    packages = [ROOT / package for package in PACKAGES if (ROOT / package).exists()]
    everything = [path for package in packages for path in files(".py", under=package)]
    unsorted = [relative(path) for path in everything if (names := exported(path)) is not None
                and names != sorted(set(names), key=kind_then_name)]  # fmt: skip
    assert not unsorted


# ------------------------------------------------------------------------------------------ the tests tested


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # TO" + "DO: later",
        "see /wo" + "rk/main",
        "'/ro" + "ot/.cache'",
        "(/ho" + "me/anna/x)",
        "https://py" + "pi.org/simple",
        "answered exactly\n    on" + "ce",
        "It is Crash-" + "proof.",
        "with guaranteed " + "delivery",
    ],
)
def test_each_forbidden_thing_is_seen(text: str) -> None:
    """A forbidden thing is found, also at a line's break and in capitals."""
    assert len(list(said(text))) == 1


@pytest.mark.parametrize(
    "text", ["a/" + "work/item", "the /home page", "once, and exactly so", "~/" + "work/", "MAXXXL"]
)
def test_what_only_looks_so_is_let_be(text: str) -> None:
    """Words that merely resemble a forbidden thing pass."""
    assert not list(said(text))


def test_order_of_public_names() -> None:
    """Constants sort before classes, and classes before functions."""
    assert sorted(["tool", "Agent", "LIMIT", "Budget", "call"], key=kind_then_name) == [
        "LIMIT", "Agent", "Budget", "call", "tool",
    ]  # fmt: skip
