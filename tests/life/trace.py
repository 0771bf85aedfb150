"""What happened in one life, in order: a story to read, counts, and a hash to compare."""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Final, final

import trio

from actors.happenings import AttemptDiscarded

if TYPE_CHECKING:
    from actors import Event

HASH_CHARS = 16
LOST = "the process that asked has ended"


@final
class Trace:
    """The lines of one life. The same seed gives the same lines, and so the same hash.

    Attributes:
        lines: with the virtual time of each. counts: what was exercised, by name.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()

    def say(self, *words: object) -> None:
        """Add a line."""
        self.lines.append(f"{trio.current_time():10.4f}  {' '.join(map(str, words))}")

    def count(self, what: str, more: int = 1) -> None:
        """Something was exercised."""
        self.counts[what] += more

    @property
    def hash(self) -> str:
        """Of all lines."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:HASH_CHARS]


@final
class Ear:
    """A watcher that hears every event at once, and never has to be read; it stands on the board of one process.

    Invariant 22 of events (EVT-1): the numbers of one agent's events never fall, and rise by at most one.

    Attributes:
        problems: gaps that were met. crashed: agents whose loop ended with a bug.
        cut: agents with a request that was under way as an earlier process ended.
    """

    def __init__(self, trace: Trace, process: int, cut: set[str]) -> None:
        self._trace = trace
        self._process = process
        self.path = ""
        self._seq: dict[str, int] = {}
        self.problems: list[str] = []
        self.crashed: list[str] = []
        self.cut = cut

    def offer(self, numbered: tuple[int, Event]) -> None:
        """Hear it."""
        event = numbered[1]
        kind = type(event).__name__
        self._trace.count(kind)
        self._trace.say(f"p{self._process}", event.path, kind, event.seq, _detail(event))
        last = self._seq.get(event.path, 0)
        if event.seq and event.seq not in (last, last + 1):
            self.problems.append(f"EVT-1: {event.path}: event {kind} has number {event.seq} behind {last}")
        self._seq[event.path] = event.seq or last
        if isinstance(event, AttemptDiscarded) and event.error == LOST:
            self.cut.add(event.path)
        if kind == "AgentCrashed":
            self.crashed.append(f"{event.path}: {getattr(event, 'error', '')}")

    def settle(self) -> None:
        """It follows for ever."""

    def end(self) -> None:
        """Nothing more comes."""


NAMES: Final = ("message", "call", "name", "status", "reason", "error", "verdict", "note", "text", "estimate", "model")


@cache
def _told(kind: type[Event]) -> tuple[str, ...]:
    """What a kind of event has of all that may tell one from others of its kind."""
    return tuple(name for name in NAMES if hasattr(kind, name))


def _detail(event: Event) -> str:
    """What tells this event from others of its kind."""
    outcome = getattr(event, "outcome", None)
    if outcome is not None:
        failure = "" if outcome.failure is None else f" {outcome.failure.kind}: {outcome.failure.message[:200]}"
        return f"turn {event.turn} {outcome.status.value}{failure}"
    found = [getattr(event, name) for name in _told(type(event))]
    return " ".join([str(value)[:200].replace("\n", "⏎") for value in found if value])
