"""Server-sent events from bytes: a strict decoder that no chunking can confuse.

It follows the WHATWG event-stream grammar (HTML standard, "Interpreting an event stream") with one departure on
purpose: a last event without its blank line is handed out by `close()`, because servers do leave the blank line
away (P-SSE-EOF). Only CR, LF and CRLF end a line; U+2028 and its like are data. It knows nothing of what events mean.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """One event has more bytes than the decoder may hold."""


@attrs.frozen
class Event:
    """One event. `name`: of its `event:` line, empty where it had none. `data`: its data lines, joined by LF."""

    data: bytes
    name: str = ""


@attrs.frozen
class Comment:
    """A comment line, or a block without data: the peer lives, but says nothing."""


COMMENT: Final = Comment()

Item: TypeAlias = Event | Comment


class SseDecoder:
    """Bytes in, events and comments out.

    Invariants:
        SSE-1 the items are the same however the bytes are cut into chunks.
        SSE-2 it holds at most `max_event_bytes` and one chunk.

    Args:
        max_event_bytes: how large one event, or one line, may be.
    """

    __slots__ = ("_data", "_held", "_max", "_name", "_skip_lf", "_started", "_tail", "_tail_bytes")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._tail: list[bytes] = []  # pieces of a line that has no end yet
        self._tail_bytes = 0
        self._data: list[bytes] = []
        self._held = 0  # bytes in _data
        self._name = ""
        self._skip_lf = False  # the last chunk ended in CR: an LF right behind it belongs to the same line end
        self._started = False  # the place where a byte order mark may stand is behind us

    def feed(self, chunk: bytes) -> list[Item]:
        """The items that this chunk completes.

        Raises:
            EventTooLarge: a line or an event is larger than `max_event_bytes`.
        """
        if self._skip_lf and chunk:
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._tail:
            self._tail.append(lines[0])
            lines[0] = b"".join(self._tail)
            self._tail.clear()
            self._tail_bytes = 0
        if rest:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
        found: list[Item] = []
        for line in lines:
            self._line(line, found)
        if self._tail_bytes + self._held > self._max:
            msg = f"an event of more than {self._max} bytes"
            raise EventTooLarge(msg)
        return found

    def close(self) -> list[Item]:
        """The event that the end of the stream cut off before its blank line, if there is one (P-SSE-EOF)."""
        found: list[Item] = []
        if self._tail:
            line = b"".join(self._tail)
            self._tail.clear()
            self._line(line, found)
        self._line(b"", found)
        return [item for item in found if isinstance(item, Event)]

    def _line(self, line: bytes, found: list[Item]) -> None:
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                found.append(Event(data, self._name))
                self._data.clear()
                self._held = 0
            elif self._name:
                found.append(COMMENT)
            self._name = ""
        elif line.startswith(b"data:"):
            value = line[6:] if line.startswith(b"data: ") else line[5:]
            self._data.append(value)
            self._held += len(value) + 1
            if self._held > self._max:
                msg = f"an event of more than {self._max} bytes"
                raise EventTooLarge(msg)
        elif line.startswith(b":"):
            found.append(COMMENT)
        elif line.startswith(b"event:"):
            self._name = line[6:].removeprefix(b" ").decode("utf-8", "replace")
        elif line == b"data":  # a field name alone has an empty value
            self._data.append(b"")
        elif line == b"event":
            self._name = ""
        # `id`, `retry` and unknown fields mean nothing here
