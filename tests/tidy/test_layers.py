"""The arrows between modules, read from the syntax trees and held against layers.toml."""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tidy.sources import Import, called, imports_of, modules, relative, tree_of

# What a pure module cannot import: whatever waits, reads a clock, rolls dice or touches the machine.
IMPURE = re.compile(
    r"(apsw|asyncio|httpx|multiprocessing|os|random|secrets|shutil|signal|socket|sqlite3|subprocess|tempfile|threading"
    r"|time|trio|urllib\.request)\."
)
IMPURE_CALLS = frozenset({"now", "utcnow", "today", "uuid1", "uuid4", "open", "input", "print"})
MACHINE = frozenset({"datetime", "date", "uuid", "io"})  # a call of these by one of these names asks the machine
# Module names of the process manager that installs a package called `supervisor` too.
TAKEN = re.compile(
    r"childutils|compat|confecho|datatypes|dispatchers|events|http|http_client|loggers|medusa|options|pidproxy|poller"
    r"|process|rpcinterface|scripts|skel|socket_manager|states|supervisorctl|supervisord|templating|tests|ui|web|xmlrpc"
)


class Row(NamedTuple):
    """One row of the table: who is in it, which rows it may import besides itself, and whether it is pure."""

    name: str
    patterns: tuple[str, ...]
    may: frozenset[str]
    pure: bool

    def holds(self, module: str) -> bool:
        """Whether the module belongs here."""
        return any(fnmatchcase(module, pattern) for pattern in self.patterns)


def table() -> list[Row]:
    """The rows of layers.toml, in order."""
    text = Path(__file__).with_name("layers.toml").read_text("utf-8")
    return [
        Row(name, tuple(row["modules"]), frozenset(row["may"]), row.get("pure", False))
        for name, row in tomllib.loads(text).items()
    ]


def row_of(module: str, rows: Iterable[Row]) -> Row | None:
    """The first row that holds the module."""
    return next((row for row in rows if row.holds(module)), None)


def arrows(found: dict[str, Path]) -> dict[str, list[Import]]:
    """What each module imports."""
    known = frozenset(found)
    return {name: imports_of(name, path, known) for name, path in found.items()}


def wrong_arrows(found: dict[str, Path], rows: list[Row]) -> Iterator[str]:
    """Each import of one of our modules that the table does not allow, as a line to read."""
    for name, imports in arrows(found).items():
        row = row_of(name, rows)
        for target, line in imports:
            there = row_of(target, rows) if target in found else None
            if row and there and there is not row and not {there.name, "*"} & row.may:
                yield f"{name}:{line} ({row.name}) imports {target} ({there.name})"


def impurities(found: dict[str, Path], rows: list[Row]) -> Iterator[str]:
    """Each import or call in a pure module that makes it impure."""
    for name, imports in arrows(found).items():
        row = row_of(name, rows)
        if row and row.pure:
            yield from (f"{name}:{line} imports {target}" for target, line in imports if IMPURE.match(target + "."))
            for node in ast.walk(tree_of(found[name])):
                if isinstance(node, ast.Call) and called(node.func) in IMPURE_CALLS and not own_method(node.func):
                    yield f"{name}:{node.lineno} calls {called(node.func)}()"


def own_method(func: ast.expr) -> bool:
    """Whether a call goes to a value's method: `self.clock.now()` is a port's, `datetime.now()` is the machine's."""
    return isinstance(func, ast.Attribute) and called(func.value) not in MACHINE


def cycle(found: dict[str, Path]) -> list[str]:
    """A cycle of imports between our modules, or nothing."""
    graph = {name: {target for target, _ in imports if target in found} for name, imports in arrows(found).items()}
    try:
        TopologicalSorter({name: targets - {name} for name, targets in graph.items()}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.fixture(scope="module")
def ours() -> dict[str, Path]:
    """Every module of the two packages."""
    return modules()


def test_every_module_has_a_row(ours: dict[str, Path]) -> None:
    """A module that is in no row fails: whoever adds one places it in layers.toml."""
    rows = table()
    homeless = [name for name in ours if row_of(name, rows) is None]
    assert not homeless, f"place in tests/tidy/layers.toml: {', '.join(homeless)}"


def test_rows_name_rows() -> None:
    """A row may import only rows that exist."""
    rows = table()
    names = {row.name for row in rows} | {"*"}
    assert not [(row.name, other) for row in rows for other in row.may if other not in names]


def test_the_table_has_no_way_round() -> None:
    """The rows themselves are a hierarchy: no row can be reached from itself."""
    TopologicalSorter({row.name: row.may - {"*"} for row in table()}).prepare()


def test_arrows_are_in_the_table(ours: dict[str, Path]) -> None:
    """No module imports one that its row may not, at the top, under TYPE_CHECKING, or inside a function."""
    wrong = list(wrong_arrows(ours, table()))
    assert not wrong, "\n".join(wrong)


def test_actors_never_imports_supervisor(ours: dict[str, Path]) -> None:
    """Nothing in actors imports anything of supervisor, not even its testing part."""
    below = {name: path for name, path in ours.items() if name.split(".")[0] == "actors"}
    found = [(name, target) for name, path in below.items() for target, _ in imports_of(name, path, frozenset(ours))]
    assert not [(name, target) for name, target in found if target.split(".")[0] == "supervisor"]


def test_pure_modules_are_pure(ours: dict[str, Path]) -> None:
    """Vocabulary and rules import nothing that waits, tells the time or rolls dice, and do not ask the clock."""
    impure = list(impurities(ours, table()))
    assert not impure, "\n".join(impure)


def test_no_cycles(ours: dict[str, Path]) -> None:
    """Imports between modules have no cycle, not even under TYPE_CHECKING."""
    assert not cycle(ours)


def test_product_code_does_not_import_testing(ours: dict[str, Path]) -> None:
    """No module outside `testing` imports one inside it, ours or pytest's."""
    product = {name: imports for name, imports in arrows(ours).items() if "testing" not in name.split(".")}
    tests = {"pytest", "hypothesis", "tests"}
    assert not [
        (name, target)
        for name, imports in product.items()
        for target, _ in imports
        if "testing" in target.split(".") or target.split(".")[0] in tests
    ]


def test_no_name_of_the_other_supervisor(ours: dict[str, Path]) -> None:
    """No module of ours carries a name from the other package called supervisor, so a mixed-up install shows."""
    ours_there = [relative(path) for name, path in ours.items() if name.startswith("supervisor.")]
    assert not [path for path in ours_there if TAKEN.fullmatch(path.split("/")[1].removesuffix(".py"))]


# ------------------------------------------------------------------------------------------ the tests tested


def checkout(root: Path, sources: dict[str, str]) -> dict[str, Path]:
    """A made-up checkout with these modules."""
    for name, text in sources.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return modules(root)


@pytest.mark.parametrize(
    "text",
    [
        "import actors.loop",
        "from actors.loop import x",
        "from actors import loop",
        "from . import loop",
        "from .loop import x",
        "def f():\n    from .loop import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .loop import x",
        "import importlib\nimportlib.import_module('actors.loop')",
    ],
)
def test_an_arrow_is_seen_however_it_is_written(tmp_path: Path, text: str) -> None:
    """An import that goes up is found in every form that Python has for it."""
    found = checkout(tmp_path, {"actors/__init__.py": "", "actors/loop.py": "", "actors/ids.py": text})
    assert [line.split(" ", 1)[1] for line in wrong_arrows(found, table())] == [
        "(vocabulary) imports actors.loop (shell)"
    ]


@pytest.mark.parametrize(
    "text", ["import trio", "from os import path", "import datetime\ndatetime.datetime.now()", "def f():\n    open(p)"]
)
def test_an_impurity_is_seen(tmp_path: Path, text: str) -> None:
    """A clock, the machine or a wait in a pure module is found."""
    found = checkout(tmp_path, {"actors/ids.py": text})
    assert len(list(impurities(found, table()))) == 1


def test_a_cycle_is_seen(tmp_path: Path) -> None:
    """Two modules that import each other, one of them only for types, are found."""
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .ids import x"
    found = checkout(tmp_path, {"actors/ids.py": "from .usage import x", "actors/usage.py": typed})
    assert set(cycle(found)) == {"actors.ids", "actors.usage"}
