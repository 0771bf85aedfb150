"""Breaks the product on purpose, one place at a time, and counts the lives that it takes to see it.

python -m tests.life.mutants               all of them; a table
python -m tests.life.mutants --owners      those that only several owners find
python -m tests.life.mutants permit CLS    those whose name has one of these words in it
python -m tests.life.mutants --seeds 400   look at so many lives at most

Exit code 1 where one survives or its place is gone. It takes minutes; CI leaves it out.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from tests.mutants.copies import parser, try_all
from tests.mutants.place import Mutant

if TYPE_CHECKING:
    from pathlib import Path

COPIED: Final = ("actors", "supervisor", "tests/life", "tests/supervisor/promises")
TIMEOUT_S: Final = 240

MUTANTS: Final = (
    Mutant(
        "SUP-6 no fence",
        "supervisor/store/memory_tables.py",
        "(change_set.tree)) != epoch:",
        "(change_set.tree)) == -1:",
    ),
    Mutant(
        "CON-3 no claim",
        "actors/ending.py",
        "        claim = _claims(row, row.open, state.mail)\n",
        "        claim = ()\n",
    ),
    Mutant(
        "CON-3 claim of what is gone passes",
        "supervisor/store/memory_tables.py",
        "            raise self._not_waiting(operation.agent, message_id)",
        "            continue",
    ),
    Mutant(
        "TOL-3 once runs again",
        "actors/batch.py",
        "CallState.STARTED and (call.tool is None or call.tool.effect is Effect.ONCE)",
        "CallState.STARTED and call.tool is None",
    ),
    Mutant("TOL-3 unknown is forgotten", "actors/batching.py", " and not _unknown(call)", ""),
    Mutant("TOL-3 effect before record", "actors/turn.py", "(*commit, *rows_of(state, state.calls))", "commit"),
    Mutant("TOL-12 a decision needs no approval", "actors/approving.py", "Verdict.APPROVED", "Verdict.DENIED"),
    Mutant(
        "ABT-4 held messages are forgotten",
        "actors/actor.py",
        "        if not (self.mailbox.held and self.mailbox.wants_turn):\n",
        "        if True:\n",
    ),
    Mutant(
        "GAT-1 permit never returned",
        "supervisor/gateway.py",
        "        self._give_permit_back(ticket)\n        ticket.state",
        "        ticket.state",
    ),
    Mutant(
        "GAT-1 permit returned twice", "supervisor/pools.py", "        self._free += 1\n", "        self._free += 2\n"
    ),
    Mutant(
        "GAT-1 permit of a pausing turn kept",
        "actors/loop.py",
        "            if self._admitted is not None:  # nothing",
        "            if self.over is None and self._admitted is not None:  # nothing",
    ),
    Mutant(
        "BUD-2 reservation lost",
        "supervisor/gateway.py",
        "        self._books.release(ticket)\n        self._give",
        "        self._give",
    ),
    Mutant(
        "BUD-7 settled twice",
        "supervisor/ledger.py",
        "        self._spend(reservation.account, values, delta)\n",
        "        self._spend(reservation.account, values, delta)\n"
        "        self._spend(reservation.account, values, values)\n",
    ),
    Mutant(
        "CLS-2 close does not drain",
        "supervisor/closing.py",
        '            Move(path, _WAITING, ReceiptState.DEAD, reason="agent_closed"),\n',
        "",
    ),
    Mutant(
        "CLS-1 a turn begins in a close",
        "supervisor/closing.py",
        '            Require(AgentRow, (path,), "open", None),\n',
        "",
    ),
    Mutant(
        "CLS-1 a close dies of an order",
        "supervisor/closing.py",
        "            except Conflict:  #",
        "            except KeyError:  #",
    ),
    Mutant(
        "CON-6 put back, and forgotten",
        "actors/actor.py",
        "self.behind |= self.row.singly",
        "self.behind = self.row.singly",
    ),
    Mutant(
        "ACC-7 accepted again, said to wait",
        "supervisor/post.py",
        "                await self._again(receipt)\n",
        "                pass\n",
    ),
    Mutant(
        "SUP-2 a failing store is a crash",
        "actors/crashes.py",
        'return "store" if isinstance',
        'return "crashed" if isinstance',
    ),
    Mutant("ACC-5 spinning on a death", "supervisor/expiry.py", "when if when > now else now + RETRY_MS", "when"),
    Mutant("TOL-1 a cut batch has no results", "actors/cutting.py", "(record, *batch.results(skipped))", "(record,)"),
    Mutant(
        "REC-1 memory trusted behind a failed commit",
        "actors/actor.py",
        "            self.memory.stale = over.failure is not None\n",
        "",
    ),
)

SHARED: Final = (
    Mutant(
        "SUP-6 an owner writes without its epoch",
        "supervisor/kernel.py",
        "epoch = self.ownership.epoch(tree) if fenced else None",
        "epoch = None",
    ),
    Mutant(
        "SUP-6 no fence in memory",
        "supervisor/store/memory_tables.py",
        "(change_set.tree)) != epoch:",
        "(change_set.tree)) == -1:",
    ),
    Mutant(
        "SUP-6 no fence in the file",
        "supervisor/store/sqlite_writer.py",
        "if epoch is not None and (found := on.epoch(tree)) != epoch:",
        "if epoch is not None and (found := on.epoch(tree)) == -1:",
    ),
    Mutant(
        "SUP-6 an epoch that does not rise",
        "supervisor/store/memory.py",
        "epochs[tree] = epochs.get(tree, 0) + 1",
        "epochs[tree] = epochs.get(tree, 1)",
    ),
    Mutant(
        "SUP-6 whoever asks has the tree",
        "supervisor/store/memory.py",
        "        if before is not None and not over:",
        "        if before is not None and before.until is None and not over:",
    ),
    Mutant(
        "SUP-6 a lease acted upon, and not renewed",
        "supervisor/ownership.py",
        "        if not self.epochs and not self._lost:\n            return ()",
        "        if self.epochs or not self._lost:\n            return ()",
    ),
    Mutant(
        "SUP-6 a tree left is not given back",
        "supervisor/ownership.py",
        "            await self._store.release(self.holder)\n            for lock",
        "            for lock",
    ),
    Mutant(
        "OWN-3 a tree being taken is kept",
        "supervisor/ownership.py",
        "            for lock in tuple(self._taking.values()):",
        "            for lock in ():",
    ),
    Mutant(
        "SUP-6 an actor of a lost tree goes on",
        "supervisor/peers.py",
        "actor.suspended, actor.lost = ELSEWHERE, True\n            parts.stopping.cut_off(node)",
        "actor.suspended = ELSEWHERE",
    ),
    Mutant(
        "SUP-6 orders of a lost tree",
        "actors/actor.py",
        "        if self.lost or mailbox.orders:\n            return not self.lost\n",
        "        if mailbox.orders:\n            return True\n",
    ),
    Mutant(
        "SUP-6 an agent of the next owner is read in",
        "supervisor/kernel.py",
        "            if stored is not None and not self.ledger.has(agent):  #",
        "            if stored is None and not self.ledger.has(agent):  #",
    ),
    Mutant(
        "SUP-6 read while it was lost",
        "supervisor/kernel.py",
        "            if self.ownership.epochs.get(tree) != epoch:  #",
        "            if self.ownership.epochs.get(tree, epoch) != epoch:  #",
    ),
    Mutant(
        "PEER-1 accounts of a lost tree stay", "supervisor/peers.py", "        parts.ledger.lose(AgentId(tree))\n", ""
    ),
    Mutant(
        "PEER-1 agents of a lost tree stay",
        "supervisor/peers.py",
        "            parts.kernel.actors.pop(node, None)\n",
        "",
    ),
    Mutant(
        "PEER-2 what others send is not looked at",
        "supervisor/peers.py",
        "                await kernel.discover(agent)",
        "                await kernel.store.version()",
    ),
    Mutant(
        "PEER-2 what others send is not read",
        "supervisor/kernel.py",
        "        await self._reload(actor)\n        actor.wake()\n\n    async def refresh",
        "        actor.wake()\n\n    async def refresh",
    ),
    Mutant(
        "ACC-9 no answer of another process",
        "supervisor/peers.py",
        "            if found is not None:\n                waiter.complete(found)\n            elif",
        "            if",
    ),
    Mutant(
        "ACC-9 a receipt of before",
        "supervisor/awaiting.py",
        "            and (receipt.state, receipt.turn) != (view.state, view.turn)",
        "            and actor is None",
    ),
    Mutant(
        "ABT-4 a takeover forgets what is held",
        "supervisor/kernel.py",
        "        actor.mailbox.reload(stored.queued, stored.seq + 1)\n        self.actors[",
        "        queued = tuple([q for q in stored.queued if q.state is ReceiptState.QUEUED])\n"
        "        actor.mailbox.reload(queued, stored.seq + 1)\n        self.actors[",
    ),
    Mutant(
        "TOL-3 once runs again",
        "actors/batch.py",
        "CallState.STARTED and (call.tool is None or call.tool.effect is Effect.ONCE)",
        "CallState.STARTED and call.tool is None",
    ),
    Mutant(
        "CON-3 claim of what is gone passes",
        "supervisor/store/memory_tables.py",
        "            raise self._not_waiting(operation.agent, message_id)",
        "            continue",
    ),
    Mutant(
        "CON-3 a claim of what another took, in the file",
        "supervisor/store/sqlite_mailbox.py",
        "            raise _not_waiting(db, agent, message)",
        "            continue",
    ),
    Mutant(
        "REE-5 a ring over processes is not seen",
        "supervisor/peers.py",
        "        if ring and ring[0].holder == holder.id:",
        "        if ring and not ring[0].holder:",
    ),
    Mutant(
        "REE-5 waits of other processes are not read",
        "supervisor/peers.py",
        "        ring = hopeless(published) if others else ()",
        "        ring = ()",
    ),
    Mutant(
        "TOL-12 a call is decided twice",
        "supervisor/approvals.py",
        "            id=_message(call),",
        '            id=MessageId(f"{call}:{decision.verdict.value}"),',
    ),
)
"""Defects that show where several processes have one store."""
OWNERS: Final = 3


def tried(where: Path, seeds: int, owners: int, seconds: float) -> tuple[str, str]:
    """Live in a copy that is broken. Returns what became of it, and what was seen first."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.life", "--owners", str(owners), "--seeds", f"0:{seeds}", "--stop",
             "--seconds", str(seconds)],
            cwd=where, env={"PYTHONPATH": str(where), "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True,
            check=False, timeout=2 * seconds + 60,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "found: it does not end", ""
    found = re.search(r"seed (\d+) BROKE.*\n\s*(.*)", done.stdout)
    if found is not None:
        return f"found at seed {found[1]}", found[2][:60]
    lived = re.search(r"^(\d+) seeds, ", done.stdout, re.MULTILINE)
    return (f"SURVIVED {lived[1]} seeds", "") if lived else ("nothing runs", done.stderr[-60:].replace("\n", " "))


def main(arguments: list[str]) -> int:
    """Try the chosen ones; the exit code."""
    made = parser(__doc__)
    made.add_argument("--seeds", type=int, default=400)
    made.add_argument("--owners", action="store_true")
    made.add_argument("--seconds", type=float, default=TIMEOUT_S, help="of lives for each")
    options = made.parse_args(arguments)
    mutants, owners = (SHARED, OWNERS) if options.owners else (MUTANTS, 1)
    return try_all(mutants, options.words, COPIED, lambda where: tried(where, options.seeds, owners, options.seconds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
