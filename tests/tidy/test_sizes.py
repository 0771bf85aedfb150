"""The sizes of modules, functions and classes, and the ratchet of what is over them."""

import ast
import io
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from tests.tidy.sources import PACKAGES, ROOT, files, relative, tree_of

LIMITS = {
    "module lines": 400,
    "function lines": 60,  # of code: no docstring, comment or blank line
    "complexity": 12,
    "dispatcher complexity": 20,  # a function that is one flat `match`
    "parameters": 7,  # self and cls not counted
    "bool parameters": 1,
    "class lines": 300,
    "public methods": 15,
}
MODULE_LINES_MAX = 600  # no exception goes past this
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
NOT_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


class Size(NamedTuple):
    """One thing measured: `where` is a file, or file::Qualified.name."""

    rule: str
    where: str
    value: int


def sizes(path: Path, name: str) -> Iterator[Size]:
    """Everything that is measured of one file."""
    text = path.read_text("utf-8")
    yield Size("module lines", name, len(text.splitlines()))
    code = code_lines(text)
    for qualified, node in definitions(tree_of(path)):
        where = f"{name}::{qualified}"
        if isinstance(node, ast.ClassDef):
            yield Size("class lines", where, (node.end_lineno or node.lineno) - node.lineno + 1)
            yield Size("public methods", where, len(public_methods(node)))
        else:
            yield Size("function lines", where, len(code & set(span(node)) - docstring_span(node)))
            yield Size("dispatcher complexity" if is_dispatcher(node) else "complexity", where, complexity(node))
            yield Size("parameters", where, len(parameters(node)))
            yield Size("bool parameters", where, bool_parameters(node))


def definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Every function and class below a node, with its dotted name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + child.name, child
            yield from definitions(child, f"{prefix}{child.name}.")
        else:
            yield from definitions(child, prefix)


def code_lines(text: str) -> set[int]:
    """The numbers of the lines that hold more than a comment."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {line for token in tokens if token.type not in NOT_CODE for line in range(token.start[0], token.end[0] + 1)}


def span(node: ast.stmt) -> range:
    """The line numbers of a statement."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def docstring_span(node: Function) -> set[int]:
    """The line numbers of a function's docstring."""
    return set(span(node.body[0])) if ast.get_docstring(node, clean=False) is not None else set()


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below a node, but for what belongs to a function or class of its own."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from inside(child)


def branches(node: ast.AST) -> int:
    """How many ways a node adds to the paths through its function, without those below it."""
    match node:
        case ast.match_case(pattern=ast.MatchAs(pattern=None), guard=None):
            return 0  # `case _`, or a name: the way on
        case ast.If() | ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler() | ast.match_case():
            return 1
        case _:
            return 0


def complexity(node: Function) -> int:
    """McCabe's number of a function: 1 and one for each branch."""
    return 1 + sum(branches(child) for child in inside(node))


def is_dispatcher(node: Function) -> bool:
    """Whether all of a function's branches are the cases of one `match`."""
    matches = [child for child in inside(node) if isinstance(child, ast.Match)]
    return len(matches) == 1 and complexity(node) == 1 + sum(branches(case) for case in matches[0].cases)


def parameters(node: Function) -> list[ast.arg]:
    """The parameters that a caller can give."""
    named = [*node.args.posonlyargs, *node.args.args]
    if named and named[0].arg in {"self", "cls", "mcs"}:
        named = named[1:]
    return [*named, *node.args.kwonlyargs, *filter(None, [node.args.vararg, node.args.kwarg])]


def bool_parameters(node: Function) -> int:
    """How many parameters are flags, by annotation or by default."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaulted = positional[len(positional) - len(arguments.defaults) :]
    defaults = [*zip(defaulted, arguments.defaults, strict=True)]
    defaults += [(arg, value) for arg, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    flags = {arg.arg for arg, value in defaults if is_bool(value)}
    return len(flags | {arg.arg for arg in parameters(node) if is_bool_type(arg.annotation)})


def is_bool_type(node: ast.expr | None) -> bool:
    """Whether an annotation is bool, alone or in a union."""
    return node is not None and "bool" in ast.unparse(node).split(" | ")


def is_bool(node: ast.expr) -> bool:
    """Whether an expression is True or False."""
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def public_methods(node: ast.ClassDef) -> set[str]:
    """The names of a class's methods and properties that others may use."""
    functions = (child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if not function.name.startswith("_")}


def measured() -> Iterator[Size]:
    """All sizes of all product code and scripts; what is only for tests keeps the same limits."""
    places = [ROOT / name for name in (*PACKAGES, ".ci") if (ROOT / name).exists()]
    for path in [*(path for place in places for path in files(".py", under=place)), ROOT / "dev.py"]:
        yield from sizes(path, relative(path))


def ratchet() -> dict[tuple[str, str], int]:
    """What may be over a limit, by rule and place; each has a reason.

    Raises:
        KeyError: an entry lacks its place, size or reason, or names no rule.
    """
    found = {}
    for rule, entries in tomllib.loads(Path(__file__).with_name("ratchet.toml").read_text("utf-8")).items():
        assert rule in LIMITS, f"ratchet.toml: there is no rule {rule!r}"
        for entry in entries:
            assert entry["reason"].strip(), f"ratchet.toml: {entry['where']} has no reason"
            found[rule, entry["where"]] = entry["is"]
    return found


def complaints(found: list[Size], allowed: dict[tuple[str, str], int]) -> Iterator[str]:
    """What is too large, and what the ratchet allows without need."""
    over = {(rule, where): value for rule, where, value in found if value > LIMITS[rule]}
    for (rule, where), value in over.items():
        if allowed.get((rule, where), LIMITS[rule]) < value:
            yield f"{where}: {value} {rule}; at most {allowed.get((rule, where), LIMITS[rule])}"
        if rule == "module lines" and value > MODULE_LINES_MAX:
            yield f"{where}: {value} {rule}; never more than {MODULE_LINES_MAX}"
    for (rule, where), limit in allowed.items():
        now = over.get((rule, where), LIMITS[rule])
        if now < limit:
            yield f"{where}: {rule} shrank; lower {limit} to {now} in ratchet.toml (at {LIMITS[rule]}: take it out)"


def test_sizes_are_within_the_limits() -> None:
    """Nothing is larger than the house's limits, but for what the ratchet lists at exactly its present size."""
    wrong = list(complaints(list(measured()), ratchet()))
    assert not wrong, "\n".join(wrong)


# ------------------------------------------------------------------------------------------ the tests tested


def body(lines: int) -> str:
    """A function of so many lines of code, with a docstring, a comment and blank lines that do not count."""
    return 'def f():\n    """Doc.\n\n    More.\n    """\n\n    # why\n' + "    x = 1\n" * (lines - 1)


def cases(count: int, extra: str = "") -> str:
    """A function that matches so many cases, and does something extra before."""
    return f"def f(x):\n{extra}    match x:\n" + "".join(f"        case {n}:\n            pass\n" for n in range(count))


@pytest.mark.parametrize(
    ("text", "rule", "value"),
    [
        ("x = 1\n" * 401, "module lines", 401),
        (body(61), "function lines", 61),
        ("def f(x):\n" + "    if x:\n        pass\n" * 12, "complexity", 13),
        (cases(20), "dispatcher complexity", 21),
        (cases(12, "    for y in x:\n        pass\n"), "complexity", 14),
        ("def f(a, b, c, d, e, f, g, h): ...", "parameters", 8),
        ("def f(*, a: bool, b=False): ...", "bool parameters", 2),
        ("class A:\n" + "    x = 1\n" * 300, "class lines", 301),
        ("class A:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(16)), "public methods", 16),
    ],
)
def test_each_limit_is_seen(tmp_path: Path, text: str, rule: str, value: int) -> None:
    """One over a limit is a complaint of that rule only, with the size."""
    path = tmp_path / "made_up.py"
    path.write_text(text, "utf-8")
    wrong = list(complaints(list(sizes(path, "made_up.py")), {}))
    assert [f" {value} {rule}; at most {LIMITS[rule]}" in line for line in wrong] == [True]


def test_the_limit_itself_is_allowed(tmp_path: Path) -> None:
    """A function of exactly the limit's length passes, whatever its docstring, comments and blank lines add."""
    path = tmp_path / "made_up.py"
    path.write_text(body(60), "utf-8")
    assert not list(complaints(list(sizes(path, "made_up.py")), {}))


@pytest.mark.parametrize(
    ("now", "allowed", "wrong"), [(450, 450, 0), (451, 450, 1), (449, 450, 1), (399, 450, 1), (601, 601, 1)]
)
def test_the_ratchet_only_tightens(now: int, allowed: int, wrong: int) -> None:
    """An exception fails when it grew, when it shrank unnoticed, when it is stale, and past the hard limit."""
    found = [Size("module lines", "a.py", now)]
    assert len(list(complaints(found, {("module lines", "a.py"): allowed}))) == wrong
