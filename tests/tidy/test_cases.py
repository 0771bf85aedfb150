"""The map of cases: it names tests that exist, and every test that bears a case's number stands in it."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.tidy.sources import ROOT, files, relative
from tests.tidy.test_words import functions

MAP = "tests/cases/README.md"
ROW = re.compile(r"^\| BR-(\d{3}) \| ([^|]+) \| ([^|]+) \|$")
NAMED = re.compile(r"`([^`]+\.py|…)(?:::(test_\w+)(…?))?`")
REQUIRED = frozenset(range(92, 115))
"""Cases that are to have tests whatever the map says: durability, resume, restarts."""
NUMBERS = re.compile(r"test_(br(?:_\d{3})+(?:_br(?:_\d{3})+)*)")


class Named(NamedTuple):
    """A test that the map names. `case`: for which. `test`: its name, or how it begins."""

    case: str
    path: str
    test: str
    whole: bool


def read(text: str) -> Iterator[Named]:
    """What a map names; `…::test_x` is in the file that was named before it."""
    for line in text.splitlines():
        row = ROW.match(line)
        path = ""
        for file, test, more in NAMED.findall(row[3]) if row else ():
            path = path if file == "…" else file
            yield Named(row[1] if row else "", path, test, whole=not more)


def known_tests() -> dict[str, set[str]]:
    """The tests of each file."""
    found = [path for path in files(".py", under=ROOT / "tests") if path.name.startswith("test_")]
    return {relative(path): {test.name for test in functions(path)} for path in found}


def wrong(named: list[Named], known: dict[str, set[str]]) -> list[str]:
    """What a map names that is not there."""
    return [
        f"BR-{one.case}: {one.path}::{one.test}"
        for one in named
        if one.path not in known
        or not any(
            test == one.test if one.whole and one.test else test.startswith(one.test) for test in known[one.path]
        )
    ]


def test_the_map_of_cases_names_tests_that_exist() -> None:
    """Each row has a case of its own, in order, and each test that it names is there."""
    text = (ROOT / MAP).read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| BR-")]
    cases = [row[1] for line in rows if (row := ROW.match(line))]
    assert len(cases) == len(rows), "a row is not of the form `| BR-001 | what went wrong | tests |`"
    assert cases == sorted(set(cases)), "one row for each case, in order"
    named = list(read(text))
    assert {one.case for one in named} == set(cases), "each case names a test"
    assert not wrong(named, known_tests())
    missing = REQUIRED - set(map(int, cases))
    assert not missing, f"these have no row: {sorted(missing)}"


def test_every_case_with_a_test_stands_in_the_map() -> None:
    """A test's numbers are rows of the map which name that test."""
    named = list(read((ROOT / MAP).read_text("utf-8")))
    missing = []
    for path, found in known_tests().items():
        if not path.startswith("tests/cases/"):
            continue
        for test in sorted(found):
            begins = NUMBERS.match(test)
            for case in re.findall(r"\d{3}", begins[1]) if begins else ():
                rows = [one for one in named if (one.case, one.path) == (case, path)]
                if not any(test.startswith(one.test) for one in rows):
                    missing.append(f"BR-{case}: {path}::{test}")
    assert not missing, "\n".join(missing)


# ------------------------------------------------------------------------------------------ the tests tested


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("`tests/a.py::test_one`", []),
        ("`tests/a.py::test_o…`, `…::test_two`", []),
        ("`tests/a.py`", []),
        ("`tests/a.py::test_o`", ["BR-001: tests/a.py::test_o"]),
        ("`tests/a.py::test_three…`", ["BR-001: tests/a.py::test_three"]),
        ("`tests/b.py::test_one`, `…::test_two…`", ["BR-001: tests/b.py::test_one", "BR-001: tests/b.py::test_two"]),
    ],
)
def test_a_name_that_is_wrong_is_seen(cell: str, names: list[str]) -> None:
    """A file or a test that is not there is named, whole names and beginnings alike."""
    found = list(read(f"| BR-001 | something | {cell} |"))
    assert wrong(found, {"tests/a.py": {"test_one", "test_two"}}) == names
