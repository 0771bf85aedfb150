"""What is to be sent, before it has an id: checked where the sender stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .content import Pinned, as_content, check_text
from .errors import UsageError
from .messages import Selection

if TYPE_CHECKING:
    from .content import Content
    from .messages import Lane

MAX_TTL_S: Final = 1e9
"""Some thirty years."""


class Letter:
    """What is to be sent, before it has an id."""

    __slots__ = ("content", "interrupt", "key", "lane", "output", "pinned", "select", "ttl_s")

    def __init__(
        self,
        content: object,
        lane: Lane,
        *,
        key: str | None = None,
        output: object = None,
        interrupt: bool = False,
        select: Selection | None = None,
        ttl: float | None = None,
    ) -> None:
        number = isinstance(ttl, int | float) and not isinstance(ttl, bool)
        if ttl is not None and not (number and 0 < ttl <= MAX_TTL_S):
            msg = f"ttl= is seconds from now, above 0 and at most {MAX_TTL_S:.0f}, or None for no end; got {ttl!r}"
            raise UsageError(msg)
        if key is not None:
            check_text(key, "key=")
        if select is not None and not isinstance(select, Selection):
            raise UsageError(f"select= is a Selection, such as Selection(model={str(select)!r}); got {select!r}")
        self.content: Content = as_content(content)
        self.pinned = isinstance(content, Pinned)
        self.select = select
        self.lane = lane
        self.key = key
        self.output = output
        self.interrupt = bool(interrupt)
        self.ttl_s = ttl
