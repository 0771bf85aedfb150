"""A changed copy of a frozen struct: `msgspec.structs.replace`, which copies in C, with its type kept."""

from __future__ import annotations

from msgspec.structs import replace as evolve

__all__ = ["evolve"]
