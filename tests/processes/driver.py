"""Forks owners, kills them, stops them and lets them go on, as drawn from a seed; it never takes part itself.

It runs no thread and no event loop while it forks, and has no store open then: a fork would share both.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Final, final

import apsw
import attrs
import trio

from actors import codec
from tests.processes.owner import live
from tests.processes.raw import asked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actors.changes import AgentRow
    from tests.processes.world import World

OWNERS: Final = 4
LIVES_S: Final = (3.0, 12.0)
STOPS_S: Final = (0.3, 3.5)
LONG_STOP_S: Final = 6.5
"""Longer than others wait for a place in the queue of writers."""
EVERY_S: Final = (0.2, 1.4)
SAMPLE_S: Final = 0.5


@attrs.define
class Child:
    """A process that was forked. `on_at`: when it is let go on, or None where it runs."""

    pid: int
    name: str
    on_at: float | None = None


@final
class Driver:
    """Owners in slots, and what became of them.

    Invariants:
        DRIVER-1 a process is signalled by its own number, and only before it was waited for.
    """

    def __init__(self, world: World, folder: Path, *, say: Callable[[str], None]) -> None:
        self._world = world
        self._folder = folder
        self._say = say
        self._dice = random.Random(f"{world.seed}:driver")
        self._slots: list[Child | None] = [None] * OWNERS
        self._made = 0
        self._sample = Sample(world.store)
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.ended = 0

    def run(self, seconds: float) -> None:
        """Let them live for so long, then end them all."""
        end = time.monotonic() + seconds
        hit_at = sample_at = say_at = time.monotonic() + 1.0
        try:
            while (now := time.monotonic()) < end:
                self._refill()
                self._let_on(now)
                if now >= hit_at:
                    self._hit(now)
                    hit_at = now + self._dice.uniform(*EVERY_S)
                if now >= sample_at:
                    self.problems += self._sample.take()
                    sample_at = now + SAMPLE_S
                if now >= say_at:
                    self._say(f"{end - now:5.0f} s to go; {counted(self.counts)}; {len(self.problems)} problems")
                    say_at = now + 5.0
                time.sleep(0.02)
        finally:
            self._end_all()
        self.problems += self._sample.take()

    def _refill(self) -> None:
        for slot, child in enumerate(self._slots):
            if child is not None:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if not pid:
                    continue
                self._ended(child, status)
            self._slots[slot] = self._fork()

    def _fork(self) -> Child:
        self._made += 1
        name = f"p{self._made}"
        seconds = self._dice.uniform(*LIVES_S)
        pid = os.fork()
        if pid:
            return Child(pid, name)
        code = 70
        try:
            errors = os.open(self._folder / f"{name}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(errors, 2)
            trio.run(live, self._world, name, seconds)
            code = 0
        except BaseException:  # noqa: BLE001, ASYNC103 - of a child: it is written down, and its exit code tells
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _hit(self, now: float) -> None:
        chosen = self._dice.choice(self._slots)
        if chosen is None:
            return
        draw = self._dice.random()
        if draw < 0.45 or (chosen.on_at is not None and draw < 0.7):
            self.counts["kills"] += 1
            self.counts["kills of stopped"] += chosen.on_at is not None
            os.kill(chosen.pid, signal.SIGKILL)
        elif chosen.on_at is None:
            self.counts["stops"] += 1
            span = LONG_STOP_S if self._dice.random() < 0.1 else self._dice.uniform(*STOPS_S)
            os.kill(chosen.pid, signal.SIGSTOP)
            chosen.on_at = now + span

    def _let_on(self, now: float) -> None:
        for child in self._slots:
            if child is not None and child.on_at is not None and now >= child.on_at:
                child.on_at = None
                os.kill(child.pid, signal.SIGCONT)

    def _ended(self, child: Child, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            return
        self.counts["left"] += 1
        told = (self._folder / f"{child.name}.err").read_text("utf-8", "replace").strip()
        if code != 0:
            self.ended += 1
            self.problems.append(f"owner {child.name} ended with {code}: {told[-3000:]}")
        elif told:
            self.counts["left with a word"] += 1

    def _end_all(self) -> None:
        for slot, child in enumerate(self._slots):
            if child is not None:
                os.kill(child.pid, signal.SIGKILL)
                _, status = os.waitpid(child.pid, 0)
                self._ended(child, status)
                self._slots[slot] = None


@final
class Sample:
    """What was seen of a store while it ran: epochs rise, and what was spent stays so."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._epochs: dict[str, int] = {}
        self._spent: dict[str, tuple[int, ...]] = {}

    def take(self) -> list[str]:
        """Look once more."""
        found: list[str] = []
        try:
            trees, rows = asked(
                self._store, "SELECT tree, epoch FROM trees", "SELECT agent, body FROM agents ORDER BY n DESC LIMIT 40"
            )
        except apsw.BusyError:
            return []
        epochs: dict[str, int] = dict(trees)
        for tree, epoch in self._epochs.items():
            if epochs.get(tree, 0) < epoch:
                found.append(f"SUP-6: the epoch of {tree} was {epoch}, and is {epochs.get(tree)}")
        self._epochs = epochs
        for agent, body in rows:
            row = codec.AGENT.decode(body)
            spent = spent_of(row)
            before = self._spent.get(agent, spent)
            if any(now < then for now, then in zip(spent, before, strict=True)):
                found.append(f"BUD-7: {agent} had spent {before}, and has {spent}")
            self._spent[agent] = spent
        return found


def spent_of(row: AgentRow) -> tuple[int, ...]:
    """What an agent's row says that it has spent."""
    spent = row.spent
    return (spent.input_tokens, spent.output_tokens, spent.model_calls, spent.tool_calls, row.usage.total_tokens)


def counted(counts: Counter[str]) -> str:
    """Counts as one line."""
    return ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
