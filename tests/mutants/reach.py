"""Which tests reach which line of the core, and whether every line and branch of it is reached.

python tests/mutants/reach.py          run tests/actors under coverage; exit code 1 under 100 %
python tests/mutants/reach.py WORD...  only tests whose name has one of these words in it, and no verdict

The core are the layers `vocabulary` and `rules` of tests/tidy/layers.toml. The machines search at random, so what only
they reach does not count: each line and each branch has a test that reaches it every time. What is left out of the
count stands in pyproject.toml: what cannot be reached (`assert_never`), protocols' bodies, imports for types.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ROOT / "tests/tidy/layers.toml"
KEPT = ROOT / ".coverage-reach.json"
CORE = ("vocabulary", "rules")
MACHINES = ("test_turn_machine.py",)
QUIET = "ignore::pytest.PytestAssertRewriteWarning"  # hypothesis is loaded already, on purpose
OPTIONS = ("-q", "-s", "-p", "no:cacheprovider", "-W", QUIET)
NOT_OURS = ("tests/actors/models", "tests/actors/testing")  # the wire, and what is for tests


def core_files() -> list[str]:
    """The files of the core, as paths from the root."""
    layers = tomllib.loads(LAYERS.read_text("utf-8"))
    patterns = [pattern for layer in CORE for pattern in layers[layer]["modules"]]
    files = [path.relative_to(ROOT) for path in sorted((ROOT / "actors").rglob("*.py"))]
    return [
        str(path)
        for path in files
        if any(fnmatch.fnmatchcase(".".join(path.with_suffix("").parts), pattern) for pattern in patterns)
    ]


def digest() -> str:
    """What the answer depends on."""
    made = hashlib.sha256()
    for folder in ("actors", "tests/actors", "supervisor/store"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            made.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return made.hexdigest()


class Tracer:
    """A pytest plugin: runs every test under coverage, with the test's name for its context."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.seconds: dict[str, float] = {}
        self.cover = coverage.Coverage(
            data_file=None,
            branch=True,
            config_file=str(ROOT / "pyproject.toml"),
            source_pkgs=[],
            source=[str(ROOT / "actors")],
        )

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the machines out, and what was not asked for."""
        items[:] = [
            item
            for item in items
            if item.path.name not in MACHINES and (not self.words or any(word in item.nodeid for word in self.words))
        ]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Say whose lines come now."""
        self.cover.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what a test takes."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def lines(self) -> dict[str, dict[str, list[str]]]:
        """By file and line, the tests that reach it."""
        data = self.cover.get_data()
        return {
            str(Path(file).relative_to(ROOT)): {
                str(line): sorted(found)
                for line, names in data.contexts_by_lineno(file).items()
                if (found := set(names) - {""})
            }
            for file in map(str, map(ROOT.joinpath, (*core_files(), "actors/mailbox.py")))
        }


def run(words: list[str]) -> Tracer:
    """Run the tests; exits where one fails."""
    tracer = Tracer(words)
    os.environ["CI"] = "1"  # Hypothesis finds the same examples every time
    os.chdir(ROOT)
    tracer.cover.start()
    code = pytest.main([*OPTIONS, *(f"--ignore={path}" for path in NOT_OURS), "tests/actors"], plugins=[tracer])
    tracer.cover.stop()
    if code != 0:
        sys.exit(f"the tests fail as the code stands (exit code {code}); mend them first")
    return tracer


def reached(*, old: bool = False) -> tuple[dict[str, dict[str, list[str]]], dict[str, float]]:
    """By file and line the tests that reach it, and what each test takes; kept until the code changes, or longer."""
    key = digest()
    if KEPT.exists():
        kept = json.loads(KEPT.read_text("utf-8"))
        if old or kept["key"] == key:
            return kept["lines"], kept["seconds"]
    child = os.fork()  # this process goes on without what the tests have loaded
    if child == 0:
        try:
            tracer = run([])
            KEPT.write_text(json.dumps({"key": key, "lines": tracer.lines(), "seconds": tracer.seconds}), "utf-8")
        except BaseException as error:  # noqa: BLE001, ASYNC103 - nothing of a child may go on in here
            print(error, flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("no map of the tests was made")
    kept = json.loads(KEPT.read_text("utf-8"))
    return kept["lines"], kept["seconds"]


def main(words: list[str]) -> int:
    """Run the tests, print what is not reached; the exit code."""
    tracer = run(words)
    if words:
        tracer.cover.report(show_missing=True, skip_covered=True)
        return 0
    KEPT.write_text(json.dumps({"key": digest(), "lines": tracer.lines(), "seconds": tracer.seconds}), "utf-8")
    files = core_files()
    share = tracer.cover.report(include=[str(ROOT / path) for path in files], show_missing=True, skip_covered=True)
    print(f"\nthe core: {len(files)} modules, {share:.2f} % of lines and branches reached")
    return 0 if share >= 100 else 1


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    sys.exit(main(sys.argv[1:]))
