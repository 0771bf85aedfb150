"""What an answer has said so far: text, reasoning and calls in the order in which each first appeared.

It emits pieces once per flush (one per network read, not one per delta) and calls a block done as soon as another
channel begins, so that an interrupted response keeps it (TRN-8). Pure: `emit` is a function it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from actors.ports import BlockDone, ReasoningPiece, TextPiece, WireCall
from actors.transcript import ReasoningBlock, TextBlock

from .wire_json import as_text, heal
from .wire_think import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from actors.ports import Emit, Piece

    from .wire_calls import OpenCall
    from .wire_think import Split

_ENCODER: Final = msgspec.json.Encoder()
_NO_MAP: Final[dict[str, object]] = {}
_MERGED: Final = frozenset({"reasoning.text", "reasoning.summary"})


class Channel:
    """One text-like channel: its pieces, how many were emitted, and where the part that is not yet done begins."""

    __slots__ = ("done", "emitted", "half", "parts", "piece")

    def __init__(self, piece: Callable[[str], Piece]) -> None:
        self.piece = piece
        self.parts: list[str] = []
        self.emitted = 0
        self.done = 0
        self.half = ""  # the first half of a surrogate pair, whose second half has not come


class Said:
    """Text, reasoning and calls of one answer.

    Invariants:
        CHAT-1 the pieces of a channel, joined, are its block's text (but for an orphan `</think>`, P-THINK).
        CHAT-2 the blocks called done hold no text twice.

    Args:
        emit: gets the pieces. origin: id of the model, kept with its reasoning (REQ-8).
    """

    __slots__ = ("_current", "_details", "_emit", "_order", "_origin", "_reasoning", "_text", "_told")

    def __init__(self, emit: Emit, origin: str) -> None:
        self._emit = emit
        self._origin = origin
        self._text = Channel(TextPiece)
        self._reasoning = Channel(ReasoningPiece)
        self._order: list[Channel | OpenCall] = []
        self._current: Channel | OpenCall | None = None
        self._details: list[dict[str, object]] = []
        self._told = False  # a piece was emitted since the last flush

    def __bool__(self) -> bool:
        return bool(self._order)

    def say(self, piece: str) -> None:
        """Text came."""
        self._put(self._text, piece)

    def reason(self, piece: str) -> None:
        """Reasoning came."""
        self._put(self._reasoning, piece)

    def split(self, parts: Iterable[Split]) -> None:
        """Text came that a splitter has sorted."""
        for side, part in parts:
            if side is Side.TEXT:
                self._put(self._text, part)
            elif side is Side.REASONING:
                self._put(self._reasoning, part)
            elif self._text.parts:
                self._all_was_reasoning()

    def call(self, call: OpenCall) -> None:
        """A call came, or went on."""
        if call is self._current:
            return
        self._leave()
        self._current = call
        if call not in self._order:
            self._order.append(call)

    def detail(self, item: dict[str, object]) -> None:
        """Replay data of the reasoning came; the pieces of one entry become one again (Q18)."""
        last = self._details[-1] if self._details else _NO_MAP
        same = last.get("type") == item.get("type") and last.get("index") == item.get("index")
        if last and same and as_text(item.get("type")) in _MERGED:
            field = "text" if "text" in item else "summary"
            joined = as_text(last.get(field)) + as_text(item.get(field))
            last.update({key: value for key, value in item.items() if value is not None})
            last[field] = joined
        elif item:
            self._details.append(dict(item))
            if self._reasoning not in self._order:
                self._order.append(self._reasoning)  # encrypted reasoning has no text, and is a block all the same

    def flush(self) -> bool:
        """Emit what came since the last flush; whether anything was emitted since then."""
        if isinstance(self._current, Channel):
            self._flush(self._current)
        told = self._told
        self._told = False
        return told

    def close(self, *, whole: bool) -> None:
        """Nothing more comes: what stands is done, if the answer is whole."""
        for channel in (self._text, self._reasoning):
            if channel.half:
                channel.half = ""
                self._put(channel, "\ufffd")
        self.flush()
        if whole:
            self._leave()
        self._current = None

    def blocks(self, calls: Mapping[OpenCall, WireCall]) -> tuple[ReasoningBlock | TextBlock | WireCall, ...]:
        """All blocks; empty ones are dropped (P-EMPTYTEXT)."""
        found: list[ReasoningBlock | TextBlock | WireCall] = []
        for item in self._order:
            if item is self._text:
                text = "".join(item.parts)
                if text:
                    found.append(TextBlock(text))
            elif item is self._reasoning:
                text = "".join(item.parts)
                if text or self._details:
                    found.append(self._reasoning_block(text, whole=True))
            elif not isinstance(item, Channel):
                found.append(calls[item])
        return tuple(found)

    def _reasoning_block(self, text: str, *, whole: bool = False) -> ReasoningBlock:
        opaque = None
        if whole and self._details:
            opaque = _ENCODER.encode({"reasoning_details": self._details}).decode()
        return ReasoningBlock(text, self._origin, opaque)

    def _put(self, channel: Channel, piece: str) -> None:
        if channel.half or not piece.isascii():
            piece = _whole_characters(channel, piece)
        if not piece:
            return
        if channel is not self._current:
            self._leave()
            self._current = channel
            if channel not in self._order:
                self._order.append(channel)
        channel.parts.append(piece)

    def _leave(self) -> None:
        """Another channel begins, or the end has come: what stood in the current one is done."""
        last = self._current
        if not isinstance(last, Channel):
            return
        self._flush(last)
        text = "".join(last.parts[last.done :])
        whole = last.done == 0
        last.done = len(last.parts)
        if text and last is self._text:
            self._emit(BlockDone(TextBlock(text)))
        elif text:
            self._emit(BlockDone(self._reasoning_block(text, whole=whole)))

    def _flush(self, channel: Channel) -> None:
        parts = channel.parts
        if channel.emitted == len(parts):
            return
        fresh = parts[channel.emitted] if channel.emitted == len(parts) - 1 else "".join(parts[channel.emitted :])
        channel.emitted = len(parts)
        self._told = True
        self._emit(channel.piece(fresh))

    def _all_was_reasoning(self) -> None:
        """A closing tag came that nothing had opened: the text so far was reasoning, shown as text already."""
        moved = "".join(self._text.parts).strip()
        self._text.parts.clear()
        self._text.emitted = self._text.done = 0
        self._order = [item for item in self._order if item is not self._text]
        self._current = None
        if moved:
            self._reasoning.parts.insert(0, moved)
            self._reasoning.emitted += 1
            if self._reasoning not in self._order:
                self._order.insert(0, self._reasoning)


def _whole_characters(channel: Channel, piece: str) -> str:
    """The piece with its surrogate pairs whole; half a pair at its end waits for the next piece.

    Servers that cut text by UTF-16 units send the halves of one character in two deltas.
    """
    if not channel.half:
        try:
            piece.encode()
        except UnicodeEncodeError:
            pass
        else:
            return piece
    piece = channel.half + piece
    channel.half = ""
    if "\ud800" <= piece[-1:] <= "\udbff":
        channel.half = piece[-1]
        piece = piece[:-1]
    return heal(piece)
