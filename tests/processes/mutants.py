"""Breaks the product on purpose, one place at a time, and looks how long real processes take to see it.

python -m tests.processes.mutants               all of them; a table
python -m tests.processes.mutants TOL SUP       those whose name has one of these words in it
python -m tests.processes.mutants --slices 6    so many stores of `--seconds` at most

Exit code 1 where one survives or its place is gone. It takes minutes; CI leaves it out.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from tests.mutants.copies import parser, try_all
from tests.mutants.place import Mutant

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

COPIED: Final = ("actors", "supervisor", "tests/processes")

MUTANTS: Final = (
    Mutant(
        "TOL-3 recovery runs once calls again",
        "actors/batch.py",
        "CallState.STARTED and (call.tool is None or call.tool.effect is Effect.ONCE)",
        "CallState.STARTED and call.tool is None",
    ),
    Mutant("TOL-3 effect before record", "actors/turn.py", "(*commit, *rows_of(state, state.calls))", "commit"),
    Mutant(
        "SUP-6 no fence",
        "supervisor/store/sqlite_writer.py",
        "(found := on.epoch(tree)) != epoch:",
        "(found := on.epoch(tree)) == -1:",
    ),
    Mutant(
        "CON-3 claim by read, then write",
        "supervisor/store/sqlite_mailbox.py",
        " WHERE id = ? AND agent = ? AND state = ? RETURNING",
        " WHERE id = ? AND agent = ? AND ? != '' RETURNING",
    ),
    Mutant(
        "TOL-3 a key for each attempt",
        "actors/calling.py",
        'f"{host.idempotency_scope}:{call}"',
        'f"{host.idempotency_scope}:{call}:{id(self)}"',
    ),
    Mutant(
        "ACC-7 keys are not looked for",
        "supervisor/store/sqlite_mailbox.py",
        "    if envelope.key is not None:\n",
        "    if envelope.key is not None and False:\n",
    ),
    Mutant(
        "SUP-6 a lost tree keeps its accounts",
        "supervisor/peers.py",
        "        parts.ledger.lose(AgentId(tree))\n",
        "",
    ),
    Mutant(
        "SUP-6 a lease of no tree",
        "supervisor/store/sqlite_owners.py",
        "    if held:\n        _keep",
        "    if True:\n        _keep",
    ),
    Mutant(
        "CLS-2 closed before an order was met",
        "supervisor/store/sqlite_mailbox.py",
        "    if operation.to is Intake.CLOSED and db.ask(",
        "    if operation.to is Intake.OPEN and db.ask(",
    ),
)


def tried(where: Path, options: argparse.Namespace) -> tuple[str, str]:
    """Run in a copy that is broken. Returns what became of it, and what was seen first."""
    for number in range(options.slices):
        done = subprocess.run(
            [sys.executable, "-m", "tests.processes", "--seconds", str(options.seconds), "--seed", f"m{number}"],
            cwd=where, env={"PYTHONPATH": str(where), "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        found = re.search(r"BROKE (\d+).*store and log: (\S+)\)\n\s*(.*)", done.stdout)
        if found is not None:
            shutil.rmtree(found[2])
            return f"found in store {number + 1}, {found[1]} violations", found[3][:90]
        if done.returncode:
            return "nothing runs", done.stderr[-90:].replace("\n", " ")
    return f"SURVIVED {options.slices} stores", ""


def main(arguments: list[str]) -> int:
    """Try the chosen ones; the exit code."""
    made = parser(__doc__)
    made.add_argument("--slices", type=int, default=4)
    made.add_argument("--seconds", type=float, default=15.0)
    options = made.parse_args(arguments)
    return try_all(MUTANTS, options.words, COPIED, lambda where: tried(where, options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
