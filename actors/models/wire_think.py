"""Splits `<think>…</think>` off streamed text, wherever the pieces are cut (P-THINK)."""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class Side(enum.Enum):
    """Where a piece belongs."""

    TEXT = enum.auto()
    REASONING = enum.auto()
    ALL_BEFORE = enum.auto()
    """No piece: a closing tag came that nothing had opened, so all text before it was reasoning."""


Split: TypeAlias = tuple[Side, str]


class ThinkSplitter:
    """Text in, pieces with their side out; white space next to the tags is dropped.

    Args:
        inside: the text begins as reasoning.
    """

    __slots__ = ("_held", "_inside", "_opened", "_space", "_strip")

    def __init__(self, *, inside: bool = False) -> None:
        self._held = ""  # the end of what came, as long as it may be the beginning of a tag
        self._inside = inside
        self._opened = inside  # a tag was seen, so a closing one is no surprise
        self._strip = inside  # drop white space until something else comes
        self._space = ""  # white space at the end of reasoning, dropped if the closing tag follows

    def feed(self, text: str) -> list[Split]:
        """The pieces that are sure after this text."""
        rest = self._held + text
        self._held = ""
        found: list[Split] = []
        while rest:
            tag, at = self._next_tag(rest)
            if at < 0:
                keep = _tail_of_tag(rest)
                self._put(rest[: len(rest) - keep], found)
                self._held = rest[len(rest) - keep :]
                break
            self._put(rest[:at], found)
            rest = rest[at + len(tag) :]
            if tag == _CLOSE and not self._opened:
                found.append((Side.ALL_BEFORE, ""))
            self._inside = tag == _OPEN
            self._opened = True
            self._strip = True
            self._space = ""
        return found

    def close(self) -> list[Split]:
        """What was held back at the end of the text."""
        found: list[Split] = []
        self._put(self._held, found)
        self._held = ""
        return found

    def _next_tag(self, rest: str) -> tuple[str, int]:
        if self._inside:
            return _CLOSE, rest.find(_CLOSE)
        opening = rest.find(_OPEN)
        closing = -1 if self._opened else rest.find(_CLOSE)
        if closing >= 0 and (opening < 0 or closing < opening):
            return _CLOSE, closing
        return _OPEN, opening

    def _put(self, piece: str, found: list[Split]) -> None:
        if self._strip:
            piece = piece.lstrip()
        if not piece:
            return
        self._strip = False
        if not self._inside:
            found.append((Side.TEXT, piece))
            return
        kept = piece.rstrip()
        if kept:
            found.append((Side.REASONING, self._space + kept))
            self._space = ""
        self._space += piece[len(kept) :]


def _tail_of_tag(text: str) -> int:
    """How many characters at the end of the text may begin a tag."""
    at = text.rfind("<", max(0, len(text) - len(_CLOSE) + 1))
    if at < 0:
        return 0
    tail = text[at:]
    return len(tail) if _OPEN.startswith(tail) or _CLOSE.startswith(tail) else 0
