"""Rows laid out in the cells of a terminal: columns, colours, the progress bar, and the line that sums up.

Pure, apart from rich's text class. Invariants:
    LAYOUT-1 no line is wider than the width that was asked for, whatever is in names, paths and texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
from rich.cells import cell_len
from rich.text import Text

from .screen_nodes import Look
from .screen_words import clock, count, crop, crop_left, crop_path, money, plural

if TYPE_CHECKING:
    from .screen import Board
    from .screen_rows import Row

TOKENS_CELLS: Final = 6
SECONDS_CELLS: Final = 7
COST_CELLS: Final = 9
NAME_SHARE: Final = 0.46
NAME_WIDTH: Final = 100
"""Names take a share of a line, but not of what is wider than this."""
ACTIVITY_MIN: Final = 6
BAR_MIN: Final = 4
FIGURES_WIDTH_MIN: Final = 40
WIDTH_MAX: Final = 140
INDENT_SHARE: Final = 3
"""Branches take at most one part in three of a line."""

STYLES: Final = {
    Look.WAITING: "dim",
    Look.BUSY: "bold cyan",
    Look.DONE: "green",
    Look.FAILED: "bold red",
    Look.STOPPED: "yellow",
    Look.STILL: "bold yellow",
}


@attrs.frozen
class Glyphs:
    """The signs of a picture, for terminals that have them and for those that have not."""

    marks: tuple[tuple[Look, str], ...]
    bar: str
    rest: str
    dot: str
    plain_branches: bool = False

    def mark(self, look: Look) -> str:
        """The sign of a look."""
        return dict(self.marks)[look]


UNICODE: Final = Glyphs(
    marks=(
        (Look.WAITING, "○"),
        (Look.BUSY, "●"),
        (Look.DONE, "✓"),
        (Look.FAILED, "✗"),
        (Look.STOPPED, "■"),
        (Look.STILL, "◐"),
    ),
    bar="━",
    rest="─",
    dot=" · ",
)
ASCII: Final = Glyphs(
    marks=(
        (Look.WAITING, "."),
        (Look.BUSY, "*"),
        (Look.DONE, "+"),
        (Look.FAILED, "x"),
        (Look.STOPPED, "#"),
        (Look.STILL, "="),
    ),
    bar="#",
    rest="-",
    dot=" | ",
    plain_branches=True,
)
_BRANCHES: Final = str.maketrans("├└│─", "|`|-")
_CUT: Final = str.maketrans({"…": "~"})


@attrs.frozen
class Columns:
    """Which figures stand behind a row, beside its tokens."""

    cost: bool = False
    time: bool = True


def lay_out(row: Row, width: int, glyphs: Glyphs = UNICODE, columns: Columns = Columns()) -> Text:
    """One row in at most `width` cells (LAYOUT-1).

    Args:
        row: what to show.
        width: cells; below 40 the figures are left out.
        glyphs: signs.
        columns: which figures there are.
    """
    figures = _figures(row, columns) if width >= FIGURES_WIDTH_MIN else Text()
    room = width - figures.cell_len
    line = Text(no_wrap=True)
    indent = row.indent.translate(_BRANCHES) if glyphs.plain_branches else row.indent
    line.append(crop_left(indent, width // INDENT_SHARE), style="dim")
    line.append(glyphs.mark(row.look) + " ", style=STYLES[row.look])
    if row.counts:
        line.append(crop(row.name, max(0, room - line.cell_len)), style="dim")
    elif row.progress is not None:
        _name(line, row, room)
        _bar(line, row, room - line.cell_len, glyphs)
    else:
        _name(line, row, min(room, max(8, int(min(width, NAME_WIDTH) * NAME_SHARE))))
        line.append(" " * (int(min(width, NAME_WIDTH) * NAME_SHARE) - line.cell_len))
        _activity(line, row, room - line.cell_len)
    line.truncate(max(0, room))
    line.append(" " * (room - line.cell_len))
    line.append_text(figures)
    if glyphs.plain_branches:
        line.plain = line.plain.translate(_CUT)
    return line


def _figures(row: Row, columns: Columns) -> Text:
    text = Text()
    text.append(f"{count(row.tokens) if row.tokens else '':>{TOKENS_CELLS}}", style="dim")
    if columns.cost:
        cost = money(row.cost, known=row.cost_known) if row.cost else ("" if row.cost_known else "?")
        text.append(f"{crop(cost, COST_CELLS):>{COST_CELLS}}", style="dim")
    if columns.time:
        text.append(f"{clock(row.seconds) if row.seconds is not None else '':>{SECONDS_CELLS}}", style="dim")
    return text


def _name(line: Text, row: Row, width: int) -> None:
    """Name and key, up to `width` of the line; of a key that does not fit the end is shown."""
    room = width - line.cell_len
    calm = "" if row.look is Look.BUSY else "dim"
    if not row.key:
        line.append(crop(row.name, max(0, room)), style=calm or "bold")
        return
    name = crop(row.name, max(0, min(room, max(room // 2, room - 2 - cell_len(row.key)))))
    line.append(name, style="dim")
    left = room - cell_len(name) - 1
    if left > 1:
        line.append(" " + crop_path(row.key, left), style=calm)


def _activity(line: Text, row: Row, width: int) -> None:
    if width < ACTIVITY_MIN:
        return
    style = {Look.FAILED: "red", Look.STILL: "yellow", Look.BUSY: ""}.get(row.look, "dim")
    line.append("  " + crop(row.doing, width - 2), style=style)


def _bar(line: Text, row: Row, width: int, glyphs: Glyphs) -> None:
    """The running call's name, a bar, and its figures, as far as there is room."""
    assert row.progress is not None
    done, total = row.progress
    figures = f" {done:,}/{total:,}"
    tool = crop(row.doing.partition(" ")[0], max(0, min(24, width - cell_len(figures) - BAR_MIN - 4)))
    bar = width - cell_len(figures) - cell_len(tool) - 4
    if bar < BAR_MIN:
        line.append(crop(figures, max(0, width)))
        return
    filled = min(bar, bar * done // max(1, total))
    line.append(f"  {tool}  ")
    line.append(glyphs.bar * filled, style="cyan")
    line.append(glyphs.rest * (bar - filled), style="dim")
    line.append(figures)


_WORDS: Final = (
    (Look.BUSY, "at work"),
    (Look.WAITING, "waiting"),
    (Look.STILL, Look.STILL.value),
    (Look.DONE, "done"),
    (Look.FAILED, "failed"),
    (Look.STOPPED, "stopped"),
)


def totals(board: Board, seconds: float) -> list[str]:
    """The parts of the line that sums up: agents, tokens, cost, time."""
    looks = [f"{board.counts[look]:,} {word}" for look, word in _WORDS if board.counts[look]]
    agents = plural(len(board), "agent")
    parts = [
        f"{agents}: {', '.join(looks)}" if len(looks) > 1 else f"{agents} {''.join(looks).partition(' ')[2]}".rstrip()
    ]
    parts.append(plural(board.tokens, "token"))
    if board.responses:
        parts.append(money(board.cost, known=board.cost_known))
    if board.missed:
        parts.append(f"{board.missed:,} events not shown")
    parts.append(clock(seconds))
    return parts


def lay_out_totals(board: Board, seconds: float, width: int, *, glyphs: Glyphs = UNICODE, hint: str = "") -> Text:
    """The line that sums up, shorter where there is little room, with a hint at the right where there is enough."""
    parts = totals(board, seconds)
    short = [parts[0].partition(": ")[2] or parts[0], f"{count(board.tokens)} tokens", *parts[2:]]
    lines = [glyphs.dot.join(parts), glyphs.dot.join(short), glyphs.dot.join(short[1:])]
    text = crop(next((line for line in lines if cell_len(line) <= width), lines[-1]), width)
    gap = width - cell_len(text) - cell_len(hint)
    line = Text(text, no_wrap=True, style="bold")
    if hint and gap >= 2:
        line.append(" " * gap + hint, style="not bold dim")
    return line


def lay_out_board(
    board: Board, width: int, height: int, *, now: float, glyphs: Glyphs = UNICODE, hint: str = ""
) -> list[Text]:
    """The whole picture: the tree, the last notes, the line that sums up.

    Args:
        board: what to show.
        width: cells; a line is never wider than 140.
        height: lines, from 2.
        now: on the events' clock.
        glyphs: signs.
        hint: a word for the person at the keyboard.
    """
    width = min(width, WIDTH_MAX)
    notes = [Text(crop(f"! {note}", width), no_wrap=True, style="yellow") for note in board.notes]
    notes = notes[-max(0, min(len(notes), height - 3)) :] if height > 3 else []
    columns = Columns(cost=bool(board.cost) or not board.cost_known)
    rows = board.rows(max(1, height - 1 - len(notes)), now)
    lines = [lay_out(row, width, glyphs, columns) for row in rows]
    seconds = max(0.0, now - board.since) if board.since is not None else 0.0
    return [*lines, *notes, lay_out_totals(board, seconds, width, glyphs=glyphs, hint=hint)]
