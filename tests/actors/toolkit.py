"""Tools, and how their arguments are read, for the tests of tools."""

from __future__ import annotations

from typing import Any

import attrs

from actors.tools import Parsed, Refusal, tool


class Context:
    """Stands for the real one, which is told by this mark."""

    __callboard_context__ = True


@attrs.frozen
class Point:
    """A place."""

    x: int
    y: float = 0.0


@tool
async def add(a: int, b: int = 0) -> int:  # noqa: D417 - b goes undescribed on purpose
    """Add two numbers.

    Args:
        a: the first term
    """
    return a + b


@tool(effect="pure", resource=lambda path: path, approve=lambda path: not path.startswith("scratch/"), timeout=30)
def delete(ctx: Context, path: str, points: list[Point] | None = None) -> str:
    """Delete a file."""
    del ctx, points
    return path


def arguments(parsed: Parsed | Refusal) -> dict[str, Any]:
    """The arguments of a parse that must have worked."""
    assert isinstance(parsed, Parsed), parsed
    return parsed.arguments


def refusal(parsed: Parsed | Refusal) -> str:
    """The text of a parse that must have failed."""
    assert isinstance(parsed, Refusal), parsed
    return parsed.text
