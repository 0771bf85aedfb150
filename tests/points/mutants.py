"""Breaks the product on purpose, one place at a time, and looks whether crashes at every moment show it.

python -m tests.points.mutants               all of them; a table
python -m tests.points.mutants BUD TOL-3     those whose name has one of these words in it

Every moment is crashed at once, and one fault and one pair in so many are tried. Exit code 1 where one survives or its
place is gone. It takes minutes; CI leaves it out.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.mutants.copies import parser, try_all
from tests.mutants.place import Mutant

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

COPIED: Final = ("actors", "supervisor", "tests/points", "tests/supervisor/promises")

MUTANTS: Final = (
    Mutant(
        "TOL-3 once runs again",
        "actors/batch.py",
        "(call.tool is None or call.tool.effect is Effect.ONCE)",
        "call.tool is None",
    ),
    Mutant("TOL-3 effect before record", "actors/turn.py", "(*commit, *rows_of(state, state.calls))", "commit"),
    Mutant(
        "TOL-3 a key for each attempt",
        "actors/calling.py",
        'f"{host.idempotency_scope}:{call}"',
        'f"{host.idempotency_scope}:{call}:{id(self)}"',
    ),
    Mutant(
        "TOL-3 the like of an unknown call is not asked about",
        "actors/recovering.py",
        "    state.unknown = (*state.unknown, *approving.ended_unknown(calls))\n",
        "",
    ),
    Mutant("TOL-3 unknown is forgotten", "actors/batching.py", " and not _unknown(call)", ""),
    Mutant(
        "TOL-2 planned calls wait for ever",
        "actors/recovering.py",
        "    started = parking.start_more(state)\n",
        "    started: tuple[object, ...] = ()\n",
    ),
    Mutant("TOL-12 a decision needs no approval", "actors/approving.py", "Verdict.APPROVED", "Verdict.DENIED"),
    Mutant(
        "CON-3 no claim",
        "actors/ending.py",
        "        claim = _claims(row, row.open, state.mail)\n",
        "        claim = ()\n",
    ),
    Mutant(
        "CON-6 crashes are not counted",
        "supervisor/recovery.py",
        "- (len(turn.lost) - len(lost)), 0) + 1",
        "- (len(turn.lost) - len(lost)), 0)",
    ),
    Mutant(
        "CON-6 a tree is read in before it is recovered",
        "supervisor/kernel.py",
        "rows = await recover(self.store, self.patience, tree, epoch, self.registry)",
        "rows = await self.store.tree_rows(tree)",
    ),
    Mutant(
        "CON-6 a turn is never given up",
        "actors/poison.py",
        "    return crashes >= limit - (len(turn_open.consumed) > 1)\n",
        "    return crashes >= limit + 100\n",
    ),
    Mutant(
        "BUD-7 what was held is not charged",
        "supervisor/recovery.py",
        "        spent=row.spent + turn.held,  # BUD-7\n",
        "        spent=row.spent,\n",
    ),
    Mutant("BUD-7 nothing is held for a request", "actors/turn.py", '"held": state.held, "output"', '"output"'),
    Mutant(
        "REC-1 memory trusted behind a failed commit",
        "actors/actor.py",
        "            self.memory.stale = over.failure is not None\n",
        "",
    ),
    Mutant(
        "BUD-7 an account without what was held",
        "supervisor/kernel.py",
        "row.spent if row.open is None else row.spent + row.open.held",
        "row.spent",
    ),
    Mutant(
        "BUD-7 what was held is charged at each crash",
        "supervisor/recovery.py",
        "lost=(*lost, before), held=NOTHING)",
        "lost=(*lost, before))",
    ),
    Mutant(
        "HOK-4 a turn of which nothing was written opens a run",
        "actors/actor.py",
        "self.run_open = opened if loop.row is before else self.run_open",
        "self.run_open = self.run_open",
    ),
    Mutant(
        "SUP-4 an abort that failed once is not ordered again",
        "supervisor/stopping.py",
        "await self._parts.kernel.patience.insist(abort)  #",
        "await abort()  #",
    ),
    Mutant(
        "REC-1 an answer is asked for again",
        "actors/recovering.py",
        "if opened(state).step and not event.owed and last is not None and last.stop is not Stop.INTERRUPTED:",
        "if not state.row.agent:",
    ),
    Mutant("REC-2 a claim owes nothing", "actors/turn.py", "opening=asking, owes=True)", "opening=asking, owes=False)"),
    Mutant(
        "REC-3 watchers are not told",
        "supervisor/kernel.py",
        "if row.open is not None and row.open.asking:",
        "if row.open is not None and row.open.step < 0:",
    ),
    Mutant(
        "ACC-2 what nobody could tell counts as failed",
        "supervisor/kernel.py",
        "        except InDoubt as doubt:  #",
        "        except ZeroDivisionError as doubt:  #",
    ),
    Mutant(
        "ACC-7 keys are not looked for",
        "supervisor/store/memory_tables.py",
        "if key is not None and (first := self.first.get(key)) is not None:",
        "if key is not None and (first := self.first.get(key)) is not None and not first:",
    ),
    Mutant(
        "ACC-7 keys are not looked for, in the file",
        "supervisor/store/sqlite_mailbox.py",
        "    if envelope.key is not None:\n",
        "    if envelope.key is not None and False:\n",
    ),
    Mutant(
        "CHILD-2 a start again is another child",
        "actors/calling.py",
        'key=f"{self.call_id}:{self._started}" if key is None else key,',
        'key=f"{self.call_id}:{id(self)}" if key is None else key,',
    ),
    Mutant(
        "CLS-2 close does not drain",
        "supervisor/closing.py",
        '            Move(path, _WAITING, ReceiptState.DEAD, reason="agent_closed"),\n',
        "",
    ),
    Mutant(
        "CLS-2 a close is not gone on with",
        "supervisor/waking.py",
        "    if actor.intake is Intake.CLOSING:\n",
        "    if actor.intake is Intake.CLOSING and not actor.path:\n",
    ),
    Mutant(
        "SUP-2 whose store failed goes on no more",
        "supervisor/waking.py",
        '_GOES_ON: Final = frozenset({"leaving", "cancelled", "store", "crashed"})',
        '_GOES_ON: Final = frozenset({"leaving", "cancelled", "crashed"})',
    ),
    Mutant(
        "SUP-6 a new root is nobody's",
        "supervisor/kernel.py",
        "founder = self.ownership.holder if tree in self.ownership.founding else None",
        "founder = None",
    ),
    Mutant(
        "HOK-3 what a store tool writes does not land",
        "actors/staging.py",
        "    landing = tuple(operation for staged in state.stages for operation in staged.operations)\n",
        "    landing: tuple[Operation, ...] = ()\n",
    ),
    Mutant("TOL-1 a cut batch has no results", "actors/cutting.py", "(record, *batch.results(skipped))", "(record,)"),
)


def tried(where: Path, options: argparse.Namespace, store: str) -> tuple[str, str]:
    """Sweep a copy that is broken. Returns what became of it, and what was seen first."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.points", "--store", store, "--stop", "--faults", str(options.faults),
             "--every", str(options.every)],
            cwd=where, env={"PYTHONPATH": str(where), "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True,
            check=False, timeout=options.seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "found: it does not end", ""
    lives = re.search(r"one crash \d+/\d+ in (\d+) lives, two \d+/\d+ in (\d+), a store that fails (\d+)/", done.stdout)
    broken = re.search(r"BROKEN (--scene (\S+)|(\S+) in).*?: (.*)", done.stdout)
    if lives is None:
        return "nothing runs", done.stderr[-90:].replace("\n", " ")
    number = sum(map(int, lives.groups()))
    if broken is None:
        return f"SURVIVED {number} lives", ""
    return f"found after {number} lives", f"{broken[2] or broken[3]}: {broken[4][:70]}"


def main(arguments: list[str]) -> int:
    """Try the chosen ones; the exit code."""
    made = parser(__doc__)
    made.add_argument("--faults", type=int, default=7, help="one in so many")
    made.add_argument("--every", type=int, default=31, help="one pair in so many")
    made.add_argument("--seconds", type=float, default=900.0, help="for each at most")
    options = made.parse_args(arguments)
    left = 0
    for store in ("memory", "sqlite"):
        mutants = [one for one in MUTANTS if ("sqlite" in one.file) == (store == "sqlite")]
        left |= try_all(mutants, options.words, COPIED, partial(tried, options=options, store=store))
    return left


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
