"""Whether a turn goes round in circles: the same calls with the same results, A, B, A, B, … (TRN-7).

What is compared is a round, one response's calls with what came of each: calls of one response could not know each
other's results. A few of the last rounds are remembered, however long the turn is.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from .content import Content

Done: TypeAlias = tuple[str, str, str, Content]
"""A call's name and arguments, its result's status and content."""
Round: TypeAlias = tuple[Done, ...]

PERIOD_MAX: Final = 8
"""The longest circle that is seen, in rounds."""


class Rounds(Struct, frozen=True):
    """The last rounds of a turn.

    Attributes:
        last: the latest, oldest first. same: by period from 1, how many rounds in a row were as those so long before.
    """

    last: tuple[Round, ...] = ()
    same: tuple[int, ...] = (0,) * PERIOD_MAX

    def then(self, new: Round) -> Rounds:
        """With one more round."""
        known = len(self.last)
        same = [
            count + 1 if period <= known and self.last[-period] == new else 0
            for period, count in enumerate(self.same, 1)
        ]
        return Rounds((*self.last, new)[-PERIOD_MAX:], tuple(same))

    @property
    def times(self) -> int:
        """How often the last circle was gone round, of whatever period; 1 where none was."""
        return max([count // period for period, count in enumerate(self.same, 1)]) + 1


NO_ROUNDS: Final = Rounds()
