"""Runs every check of the project: `python3 dev.py test`, in its own environment.

ruff comes first, for it takes a moment. Then pytest runs beside mypy and flake8-async, which are nice to it: what they
say is printed behind it. The summary has each check's seconds; the exit code is that of the first that failed.
"""

import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CHECKED = ("actors", "supervisor", "tests", "examples", ".ci", "dev.py")


class Ended(NamedTuple):
    """A check that ran, and what it said, unless it was printed at once."""

    name: str
    seconds: float
    code: int
    said: str


def checks() -> dict[str, list[str]]:
    """The command of each check, in the order of the summary."""
    names = [name for name in CHECKED if (ROOT / name).exists()]
    sources = [file for name in names for file in sorted((ROOT / name).glob("**/*.py"))]
    waiting = [str(file) for file in sources if re.search(r"\b(async|trio)\b", file.read_text("utf-8"))]
    return {
        "ruff": ["ruff", "check", *names],
        "mypy": ["mypy", *names],
        # Half a second a file, so only where it has something to see. 109: `timeout=` is ours; 124: tools; 127: httpx.
        "flake8-async": ["flake8-async", "--disable", "ASYNC109,ASYNC124,ASYNC127,ASYNC9", *waiting],
        "pytest": ["pytest"],
    }


def run(name: str, *, beside: bool = False) -> Ended:
    """Run a check, `beside` another: it gives way to that, and its words are kept."""
    if not beside:
        print(f"== {name}", flush=True)
    command, began = checks()[name], time.monotonic()
    program = [str(Path(sys.executable).parent / command[0]), *command[1:]]
    if beside:
        program = ["nice", *program]
    out, err = (subprocess.PIPE, subprocess.STDOUT) if beside else (None, None)
    done = subprocess.run(program, cwd=ROOT, check=False, stdout=out, stderr=err, text=True)
    return Ended(name, time.monotonic() - began, done.returncode, done.stdout or "")


def main() -> int:
    """Run them all, also after one failed."""
    pool = ThreadPoolExecutor(1)
    try:
        ended = [run("ruff")]
        beside = [pool.submit(run, name, beside=True) for name in ("mypy", "flake8-async")]
        last = run("pytest")
        ended += [*[one.result() for one in beside], last]
    finally:
        pool.shutdown(cancel_futures=True)
    for one in ended:
        if one.said:
            print(f"== {one.name}\n{one.said}", end="")
    print("== summary")
    for one in ended:
        print(f"{one.name:<13}{one.seconds:6.1f} s  " + (f"FAILED (exit code {one.code})" if one.code else "ok"))
    return next((one.code for one in ended if one.code), 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
