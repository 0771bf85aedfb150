"""Results that are kept whole: where their pieces stand, by what they are asked for, what a page of one is (TOL-8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from .content import Trust
from .errors import UsageError

if TYPE_CHECKING:
    from .changes import AgentRow, KeptResult
    from .ids import CallId

READER: Final = "read_result"
"""The tool by which the model reads on; it is offered while something is kept."""
PIECE_CHARS: Final = 32_768
PAGE_CHARS: Final = 16_000
"""How much is read at once where nobody says how much."""
PIECE_KEY: Final = "text"


def reference(call: CallId) -> str:
    """By what a result is asked for: the call's id without the agent's path."""
    return call.rpartition(":")[2]


HINT_CHARS: Final = 80
"""What `hint` takes at most; so much is reserved, so that equal results are cut at the same place."""


def hint(call: CallId, start: int | None) -> str:
    """What the model is told of how to read on. `start`: the first character that is missing, where that is one."""
    at = "" if start is None else f", start={start}"
    return f'; {READER}(reference="{reference(call)}"{at}) reads on'


def found(row: AgentRow, wanted: str) -> KeptResult:
    """What is kept under a reference, or under the whole id of a call.

    Raises:
        UsageError: nothing is, or no more.
    """
    for one in row.kept:
        if wanted in (one.call, reference(one.call)):
            return one
    known = ", ".join(reference(one.call) for one in row.kept) or "none"
    raise UsageError(f"no result of {row.agent} is kept as {wanted!r}: the oldest go first; kept are: {known}")


@attrs.frozen
class Page:
    """Some of a result that was kept whole.

    Attributes:
        reference: of the result. name: of the tool. text: from `start` on. total: characters of the whole.
        trust: how far it may be believed.
    """

    reference: str
    name: str
    start: int
    text: str
    total: int
    trust: Trust = Trust.TRUSTED

    @property
    def next(self) -> int | None:
        """Where the next page starts; None: this is the last."""
        end = self.start + len(self.text)
        return end if end < self.total else None

    def shown(self) -> str:
        """As the model reads it."""
        end = self.start + len(self.text)
        on = "the end" if self.next is None else f"go on with start={end}"
        return f"{self.text}\n[characters {self.start:,} to {end:,} of {self.total:,}; {on}]"


SHOWN_CHARS: Final = 100
"""What `Page.shown` adds to the text, at most."""


def span(kept: KeptResult, start: int, chars: int) -> tuple[range, int, int]:
    """Which pieces a page needs, and where in them, joined, it begins and ends.

    Raises:
        UsageError: the page begins outside of the result, or is empty.
    """
    if type(start) is not int or not 0 <= start < kept.chars:
        raise UsageError(f"start= is from 0 to {kept.chars - 1}, where the result ends; got {start!r}")
    if type(chars) is not int or chars < 1:
        raise UsageError(f"chars= is a whole number from 1; got {chars!r}")
    end = min(start + chars, kept.chars)
    first = start // PIECE_CHARS
    return range(first, -(-end // PIECE_CHARS)), start - first * PIECE_CHARS, end - first * PIECE_CHARS


def scopes(kept: KeptResult) -> tuple[str, ...]:
    """Where the pieces of a result stand among the agent's key-value rows, in order."""
    return tuple(scope(kept.call, number) for number in range(-(-kept.chars // PIECE_CHARS)))


def scope(call: CallId, number: int) -> str:
    """Where one piece of a result stands."""
    return f"kept:{call}:{number}"
