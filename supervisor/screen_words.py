"""Small words for people: counts, money, times, and text that is safe to print in a given number of cells.

Pure. Widths are terminal cells as rich counts them, so wide characters take two and combining ones none.
"""

from __future__ import annotations

import json
from typing import Final

from rich.cells import cell_len, set_cell_size

from actors.usage import dollars

APPROVAL: Final = "waits for approval"
CUT: Final = "…"
UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"
GIST_CHARS: Final = 4_000
CLEAN_CHARS: Final = 1_000


def clean(text: str) -> str:
    """Text as one line that a terminal cannot take for a command: breaks become spaces, controls a mark.

    Only the beginning is kept (1,000 characters): a line on a screen shows no more.
    """
    text = text[:CLEAN_CHARS]
    if text.isprintable():
        return text
    text = " ".join(text.split())
    return text if text.isprintable() else "".join(char if char.isprintable() else UNPRINTABLE for char in text)


def clean_lines(text: str) -> list[str]:
    """All lines of a text, each without anything that a terminal takes for a command; tabs become spaces."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4).split("\n")
    return [
        line if line.isprintable() else "".join(char if char.isprintable() else UNPRINTABLE for char in line)
        for line in lines
    ]


def crop(text: str, width: int) -> str:
    """The beginning of a text in at most `width` cells, with a mark where something is missing."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return CUT[:width]
    return set_cell_size(text, width - 1).rstrip() + CUT


def crop_left(text: str, width: int) -> str:
    """The end of a text in at most `width` cells: of a long path the last part says most."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return CUT[:width]
    tail = text[-(width - 1) :]
    while cell_len(tail) > width - 1:
        tail = tail[1:]
    return CUT + tail


def crop_path(path: str, width: int) -> str:
    """The end of a path in at most `width` cells, cut between two of its parts where one fits."""
    if cell_len(path) <= width:
        return path
    short = crop_left(path, width)
    slash = short.find("/")
    return CUT + short[slash:] if 0 < slash < len(short) - 1 else short


def pad(text: str, width: int) -> str:
    """The text in exactly `width` cells, cropped or filled with spaces."""
    text = crop(text, width)
    return text + " " * (width - cell_len(text))


def count(number: int) -> str:
    """A count in at most five characters: `999`, `1.2k`, `151k`, `1.2M`."""
    if number < 1_000:
        return str(number)
    scaled = float(number)
    for unit in "kMGT":
        scaled /= 1_000
        if scaled < 9.95:
            return f"{scaled:.1f}{unit}"
        if scaled < 999.5:
            return f"{scaled:.0f}{unit}"
    return f"{scaled / 1_000:.0f}P"


def money(pico: int, *, known: bool = True) -> str:
    """A cost in words: `free`, `$0.0123`, and what is missing where a model had no known price."""
    if not known:
        return f"{_dollars(pico)} + unknown" if pico else "cost unknown"
    return _dollars(pico) if pico else "free"


def _dollars(pico: int) -> str:
    exact = dollars(pico)
    if exact >= 100:
        return f"${exact:.2f}"
    return f"${exact:.4f}" if exact >= 0.0001 else f"${exact.normalize():f}"


def clock(seconds: float) -> str:
    """A duration: `0:07`, `12:34`, `1:02:03`."""
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def suspended(reason: str) -> str:
    """Why an agent stands still, in a word of its own for each: who waits for a person, for a grant, for a process."""
    words = {"approval": APPROVAL, "paused": "paused", "budget": "parked: its budget is exhausted"}
    return words.get(reason, f"suspended: {clean(reason)}")


def plural(number: int, word: str) -> str:
    """A count with its word: `1 agent`, `2 agents`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def gist(text: str, *, leave_out: str | None = None) -> str:
    """What a call's arguments are about: the plain values of an object in a row; text that is no JSON as it is.

    Args:
        text: JSON text.
        leave_out: a value that the reader sees already.
    """
    return clean(" ".join(word for _, word in _pairs(text, leave_out)))


def named_gist(text: str, *, leave_out: str | None = None) -> str:
    """What a structured answer says: its plain values with their names. Args: as for `gist`."""
    return clean(", ".join(f"{name} {word}".strip() for name, word in _pairs(text, leave_out)))


def _pairs(text: str, leave_out: str | None) -> list[tuple[str, str]]:
    if len(text) > GIST_CHARS:
        return [("", text)]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [("", text)]
    found = value.items() if isinstance(value, dict) else [("", value)]
    pairs = [(name, _plain(item)) for name, item in found]
    return [(name, word) for name, word in pairs if word and word != leave_out]


def _plain(value: object) -> str:
    match value:
        case str():
            return value
        case bool() | None:
            return ""
        case int() | float():
            return str(value)
        case list():
            return " ".join(item for item in value if isinstance(item, str))
        case _:
            return ""
