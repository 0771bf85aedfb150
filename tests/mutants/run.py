"""Breaks the turn's core on purpose, one place at a time, and sees that a test fails for each.

python tests/mutants/run.py            all mutants
python tests/mutants/run.py TOL-4 half those whose name has one of these words in it

It takes minutes, so CI's quick path leaves it out. Exit code 1 where a mutant survives, or its place is gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

# Loaded once, for all forks; nothing of ours is.
import attrs
import cattrs
import docstring_parser
import hypothesis.stateful
import jsonschema_rs
import msgspec
import pytest
import trio

sys.path[0] = str(Path(__file__).parent)

import approvals  # type: ignore[import-not-found]  # noqa: E402 - run as a script, from anywhere
import core  # type: ignore[import-not-found]  # noqa: E402 - likewise
from core import Mutant  # noqa: E402 - likewise

MUTANTS = (*core.MUTANTS, *approvals.MUTANTS)

ROOT = Path(__file__).resolve().parents[2]
LOADED = (attrs, cattrs, docstring_parser, hypothesis.stateful, jsonschema_rs, msgspec, trio)

COPIED = ("actors", "supervisor", "tests/actors", "tests/conftest.py", "pyproject.toml")
FIRST = {
    "actors/answers.py": "test_answers",
    "actors/approving.py": "test_approving",
    "actors/batch.py": "test_batch",
    "actors/batching.py": "test_batching",
    "actors/compaction.py": "test_compaction",
    "actors/conversation.py": "test_conversation",
    "actors/ending.py": "test_ending",
    "actors/evolve.py": "test_evolve",
    "actors/mailbox.py": "test_mailbox",
    "actors/parking.py": "test_approving",
    "actors/poison.py": "test_poison",
}
TIMEOUT_S = 300
REPORT = "report.txt"
QUIET = "ignore::pytest.PytestAssertRewriteWarning"  # hypothesis is loaded already, on purpose
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-W", QUIET)


def test_files(mutant: Mutant | None) -> list[str]:
    """The core's tests, those nearest to the mutant first, the search last."""
    names = [
        *dict.fromkeys(FIRST.values()),
        *(path.stem for path in sorted((ROOT / "tests/actors").glob("test_turn_*.py"))),
    ]
    near = FIRST.get(mutant.file) if mutant is not None else None
    names.sort(key=lambda name: (name == "test_turn_machine", name != near))
    return [f"tests/actors/{name}.py" for name in names]


def killed(where: Path, mutant: Mutant | None) -> bool:
    """Whether a test fails in a copy of the tree; run in a fork, which has the libraries loaded already."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.chdir(where)
            sys.path[0] = str(where)
            sys.dont_write_bytecode = mutant is not None
            os.environ["CI"] = "1"
            out = os.open(os.devnull if mutant is not None else REPORT, os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(out, 1)
            os.dup2(out, 2)
            code = int(pytest.main([*OPTIONS, *test_files(mutant)]))
        except BaseException:  # noqa: BLE001, ASYNC103 - nothing of a child may go on in here
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code not in {0, 1, 2}:  # 2: the tests could not even be collected
                sys.exit(
                    f"pytest could not run, exit code {code}: run it by hand: pytest {' '.join(test_files(mutant))}"
                )
            return code != 0
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True  # it does not come to an end: that is no pass


def try_one(where: Path, mutant: Mutant) -> str:
    """Break one place, test, mend it: `killed`, `SURVIVED` or `GONE`."""
    path = where / mutant.file
    text = path.read_text("utf-8")
    if text.count(mutant.old) != 1:
        return f"GONE: its place is there {text.count(mutant.old)} times"
    path.write_text(text.replace(mutant.old, mutant.new), "utf-8")
    try:
        return "killed" if killed(where, mutant) else "SURVIVED"
    finally:
        path.write_text(text, "utf-8")


def main(words: list[str]) -> int:
    """Try the chosen mutants; the exit code."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.breaks for word in words)]
    left = []
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        for name in COPIED:
            source = ROOT / name
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, where / name)
        if killed(where, None):
            sys.exit((where / REPORT).read_text("utf-8") + "\nthe tests fail without any mutant; mend them first")
        for number, mutant in enumerate(chosen, 1):
            begun = time.monotonic()
            result = try_one(where, mutant)
            if result != "killed":
                left.append(f"{mutant.breaks} ({mutant.file}): {result}")
            print(f"{number}/{len(chosen)} {mutant.breaks}: {result}, {time.monotonic() - begun:.1f} s", flush=True)
    print(f"\n{len(chosen) - len(left)} of {len(chosen)} mutants killed", *left, sep="\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
