"""One agent on the board: how it looks, what it is doing, and where it stands among its parent's children.

Pure. Invariants:
    BOARD-2 `active` of a node holds exactly its children that are open or have something active below them; all
    other children are counted in `folds`, and nowhere twice.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

import attrs

from actors.ids import name_of
from actors.messages import Outcome, Status

from .screen_words import clean, gist, named_gist

RECENT: Final = 3
"""How many finished, and how many failed, children of an agent stay in sight."""


class Look(enum.Enum):
    """How an agent looks from outside."""

    WAITING = "waiting"
    BUSY = "busy"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    STILL = "standing still"


OPEN: Final = frozenset({Look.WAITING, Look.BUSY, Look.STILL})
"""Looks that keep an agent in sight: something is still to come, or a person is asked."""

LOOKS: Final = {
    Status.DONE: Look.DONE,
    Status.FAILED: Look.FAILED,
    Status.EXHAUSTED: Look.FAILED,
    Status.ABORTED: Look.STOPPED,
    Status.CLOSED: Look.STOPPED,
    Status.PARKED: Look.STILL,
    Status.NEEDS_INPUT: Look.STILL,
}


@attrs.define(eq=False)
class Call:
    """A tool call that runs. `done`, `total`: how far it says it is, or None."""

    name: str
    arguments: str
    text: str = ""
    done: int = 0
    total: int | None = None


@attrs.define(eq=False)
class Fold:
    """Finished children of one name: how many, and what they used."""

    done: int = 0
    failed: int = 0
    tokens: int = 0


@attrs.frozen(eq=False)
class Folded:
    """How a finished child was counted, so that it can be counted out again."""

    good: bool
    tokens: int


@attrs.define(eq=False)
class Node:
    """One agent.

    Attributes:
        place: the order of first sight. started, ended: on the events' clock.
        after: the call that ended last in its turn.
        tokens, cost (picodollars), cost_known: of its subtree. written: characters of the response in progress.
        active: children with something to come, in order. folds: the others, by name; recent and failed: the last.
    """

    path: str
    parent: Node | None
    place: int
    started: float
    key: str | None = None
    look: Look = Look.WAITING
    doing: str = ""
    ended: float | None = None
    tokens: int = 0
    cost: int = 0
    cost_known: bool = True
    written: int = 0
    thinking: bool = False
    after: str = ""
    folded: Folded | None = None
    calls: dict[str, Call] = attrs.Factory(dict)
    active: dict[str, Node] = attrs.Factory(dict)
    folds: dict[str, Fold] = attrs.Factory(dict)
    recent: deque[Node] = attrs.Factory(lambda: deque[Node](maxlen=RECENT))
    failed: deque[Node] = attrs.Factory(lambda: deque[Node](maxlen=RECENT))

    @property
    def open(self) -> bool:
        """Whether something is still to come from it or below it."""
        return self.look in OPEN or bool(self.active)

    @property
    def measured(self) -> Call | None:
        """The running call that says how far it is, if one does."""
        return next((call for call in reversed(self.calls.values()) if call.total), None)

    def activity(self) -> str:
        """What it is doing now, in a few words."""
        if self.look is not Look.BUSY:
            return self.doing
        call = next(reversed(self.calls.values()), None)
        if call is not None:
            more = f" (+{len(self.calls) - 1})" if len(self.calls) > 1 else ""
            return f"{call.name}{more} {call.text or gist(call.arguments, leave_out=self.key)}".rstrip()
        if self.written:
            return f"{'thinking' if self.thinking else 'writing'}, {self.written:,} characters"
        return self.doing

    def turn_to(self, look: Look, now: float) -> None:
        """Change how it looks, and what its ancestors show of it."""
        if look in OPEN:
            self.ended = None
        else:
            self.ended = now
            self.calls.clear()
            self.written = 0
        if look is not self.look:
            self.look = look
            self.rehome()

    def rehome(self) -> None:
        """Stand where it belongs among its parent's children, and so on upwards while that changes anything."""
        here = self
        while (parent := here.parent) is not None:
            before = parent.open
            here._unfold(parent)
            if here.open:
                parent.active.setdefault(here.path, here)
            else:
                parent.active.pop(here.path, None)
                here._fold(parent)
            if parent.open is before:
                return
            here = parent

    def _fold(self, parent: Node) -> None:
        good = self.look is Look.DONE
        self.folded = Folded(good, self.tokens)
        fold = parent.folds.setdefault(name_of(self.path), Fold())
        fold.tokens += self.tokens
        if good:
            fold.done += 1
            parent.recent.append(self)
        else:
            fold.failed += 1
            parent.failed.append(self)

    def _unfold(self, parent: Node) -> None:
        counted, self.folded = self.folded, None
        if counted is None:
            return
        fold = parent.folds[name_of(self.path)]
        fold.tokens -= counted.tokens
        if counted.good:
            fold.done -= 1
        else:
            fold.failed -= 1
        shown = parent.recent if counted.good else parent.failed
        if self in shown:
            shown.remove(self)


def said(outcome: Outcome, key: str | None = None) -> str:
    """How a turn ended, in one line: what is wrong or asked, else the answer's beginning (without the `key`)."""
    if outcome.failure is not None:
        return f"{outcome.status.value}: {clean(outcome.failure.message)}"
    if outcome.question is not None:
        return f"asks: {clean(outcome.question.text)}"
    if outcome.status is not Status.DONE:
        return outcome.status.value.replace("_", " ")
    if outcome.output is not None:
        return named_gist(outcome.output, leave_out=key)
    return clean(next((line for line in outcome.text.split("\n") if line.strip(" |#*-")[:1] and line[0] != "|"), ""))
