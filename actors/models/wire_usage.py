"""Token counts of a chat-completions answer as the wire gave them: the last object wins, nothing is added (P-USAGE)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.ports import ReportedUsage

from .wire_json import as_count, as_map

if TYPE_CHECKING:
    from collections.abc import Mapping


def usage_in(holder: Mapping[str, object], known: ReportedUsage | None) -> ReportedUsage | None:
    """The usage that a chunk, or a choice, carries; what was known where it carries none."""
    found = holder.get("usage") or as_map(holder.get("x_groq")).get("usage")
    if not isinstance(found, dict):
        return known
    usage = _read(found)
    empty = usage == ReportedUsage()
    return known if empty and known is not None else usage


def _read(usage: dict[str, object]) -> ReportedUsage:
    prompt = as_map(usage.get("prompt_tokens_details"))
    completion = as_map(usage.get("completion_tokens_details"))
    cached = _first(prompt.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens"))
    return ReportedUsage(
        input=as_count(usage.get("prompt_tokens")),
        output=as_count(usage.get("completion_tokens")),
        cached=cached,
        reasoning=as_count(completion.get("reasoning_tokens")),
        cache_write=as_count(prompt.get("cache_write_tokens")),
    )


def _first(*values: object) -> int | None:
    return next((count for value in values if (count := as_count(value)) is not None), None)
