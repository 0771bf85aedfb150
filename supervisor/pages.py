"""Pages of results that were too long, and the tool by which a model reads on in one (TOL-8)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from actors.errors import Corrupt
from actors.pages import PAGE_CHARS, READER, SHOWN_CHARS, Page, found, reference, scope, span
from actors.results import Given
from actors.tools import Effect, Tool

if TYPE_CHECKING:
    from actors.calling import Context
    from actors.changes import AgentRow

    from .store.base import Reader


async def read_page(store: Reader, row: AgentRow, wanted: str, *, start: int, chars: int) -> Page:
    """A page of a result that is kept whole; it costs what the page is long.

    Raises:
        UsageError: nothing is kept under this reference, or the page begins outside of it. Corrupt, StoreError.
    """
    kept = found(row, wanted)
    numbers, first, last = span(kept, start, chars)
    pieces: list[str] = []
    for number in numbers:
        rows = await store.kv(row.agent, scope(kept.call, number))
        if len(rows) != 1:
            raise Corrupt(f"piece {number} of the result {kept.call}, which is listed as kept, is not in the store")
        pieces.append(json.loads(rows[0].value))
    text = "".join(pieces)[first:last]
    return Page(reference(kept.call), kept.name, start, text, kept.chars, kept.trust)


def reader(shown_chars: int) -> Tool[..., object]:
    """The tool by which the model reads on. `shown_chars`: what it is shown of a result, this one's too."""
    most = max(1, shown_chars - SHOWN_CHARS)
    schema = {
        "type": "object",
        "properties": {
            "reference": {"type": "string", "description": "as the line about what is missing says it"},
            "start": {"type": "integer", "minimum": 0, "description": "the first character"},
            "chars": {"type": "integer", "minimum": 1, "description": f"how many characters, at most {most}"},
        },
        "required": ["reference"],
        "additionalProperties": False,
    }

    async def read(ctx: Context, reference: str, start: int = 0, chars: int = PAGE_CHARS) -> Given:
        page = await ctx.read_result(reference, start=start, chars=min(chars, most))
        return Given(page.shown(), trust=page.trust, keep=False)

    description = "Read on in a result that was too long to be shown whole."
    return Tool.internal(READER, description, schema, read, effect=Effect.PURE, context="ctx")


READER_BYTES: Final = 500
"""About how much the tool adds to a request."""
