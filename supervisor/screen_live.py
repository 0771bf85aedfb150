"""The shell of what people see: takes events in, and draws, prints or writes them.

Taking an event in is synchronous and cheap. One task draws or writes what has gathered, at most ten times a second and
in a thread, so that neither a burst of events nor a terminal that stands still (Ctrl-S, a pager) slows an agent
(EVT-2). Nothing here decides what is shown.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TextIO

import trio
from rich.console import Console, Group
from rich.live import Live

from .screen import Board
from .screen_layout import ASCII, UNICODE, Glyphs, lay_out_board, totals
from .screen_lines import PlainLog, json_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.text import Text

    from actors.happenings import Event

REDRAW_S: Final = 0.1
CLOCK_REDRAW_S: Final = 1.0
"""With no event, only the clock moves on."""
LINES_MAX: Final = 50_000
"""Lines that wait for a reader who stands still; the oldest go first."""


class Screen(Protocol):
    """Somewhere events are shown."""

    @property
    def board(self) -> Board:
        """What is known of the agents."""
        ...

    def feed(self, event: Event) -> None:
        """Take an event in."""

    def tell(self, text: str) -> None:
        """Tell the person one thing."""

    async def ask(self, text: str) -> str | None:
        """Ask the person at the terminal; the line that is typed, or None where there will be none."""
        ...

    async def run(self) -> None:
        """Show what comes, until cancelled."""

    async def finish(self) -> None:
        """Show what is left, and leave the terminal as it was."""


async def _typed() -> str | None:
    """The next line that is typed, or None at the end of all. If cancelled: the line is lost with its thread."""
    line = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    return line or None


class LiveScreen:
    """A live tree on a terminal; the last picture is left standing.

    Args:
        console: the terminal.
        hint: what the keyboard does, at the right of the last line.
    """

    def __init__(self, console: Console, hint: str = "") -> None:
        self.board = Board()
        self._console = console
        self._glyphs: Glyphs = ASCII if console.options.ascii_only else UNICODE
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._dirty = True
        self._hint = hint
        self._offset = 0.0
        self._drawing = trio.Lock()

    def feed(self, event: Event) -> None:
        """Take an event in."""
        self.board.apply(event)
        self._dirty = True

    def tell(self, text: str) -> None:
        """Say what the keyboard does now, at the right of the last line."""
        self._hint = text
        self._dirty = True

    def picture(self, now: float) -> list[Text]:
        """The lines as they stand."""
        width, height = self._console.size
        return lay_out_board(self.board, width, height - 1, now=now, glyphs=self._glyphs, hint=self._hint)

    async def run(self) -> None:
        """Redraw when something happened, at most ten times a second; each second for the clock."""
        drawn = trio.current_time()
        self._live.start()
        while True:
            await trio.sleep(REDRAW_S)
            now = trio.current_time()
            if self._dirty:  # the events' clock need not be ours: ours goes on from the last event
                self._offset = self.board.clock - now
            elif now - drawn < CLOCK_REDRAW_S:
                continue
            self._dirty = False
            drawn = now
            async with self._drawing:
                await trio.to_thread.run_sync(self._draw, self.picture(now + self._offset))

    async def ask(self, text: str) -> str | None:
        """Ask below the tree, which stands still meanwhile."""
        async with self._drawing:
            self._live.stop()
            try:
                self._console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
                return await _typed()
            finally:
                self._live.start()

    def _draw(self, lines: list[Text]) -> None:
        self._live.update(Group(*lines), refresh=True)

    async def finish(self) -> None:
        """Draw once more, and give the terminal back."""
        self._hint = ""
        if self._live.is_started:
            try:
                self._draw(self.picture(self.board.clock))
            finally:
                self._live.stop()


class LineScreen:
    """Lines: plain ones for people, or JSON ones for programs.

    Args:
        out: where lines go.
        lines: makes an event's lines.
        told: where what a person should know goes; with plain lines, the same.
    """

    def __init__(self, out: TextIO, lines: Callable[[Event], Iterable[str]], told: TextIO) -> None:
        self.board = Board()
        self._out: TextIO | None = out
        self._lines = lines
        self._told = told
        self._waiting: deque[str] = deque(maxlen=LINES_MAX)

    def feed(self, event: Event) -> None:
        """Take an event in."""
        self.board.apply(event)
        self._waiting.extend(self._lines(event))

    def tell(self, text: str) -> None:
        """Say it at once where programs do not read."""
        if self._told is self._out or self._out is None:
            self._waiting.append(text)
        else:
            with suppress(OSError, ValueError):  # nobody is there to be told
                print(text, file=self._told, flush=True)

    async def ask(self, text: str) -> str | None:
        """Ask behind the lines that wait."""
        await self._write()
        with suppress(OSError, ValueError):
            print(text, end="", file=self._told, flush=True)
        return await _typed()

    async def run(self) -> None:
        """Write what gathers, ten times a second."""
        while True:
            await trio.sleep(REDRAW_S)
            await self._write()

    async def finish(self) -> None:
        """Write the rest."""
        await self._write()

    async def _write(self) -> None:
        if self._waiting and self._out is not None:
            batch = "\n".join(self._waiting) + "\n"
            self._waiting.clear()
            await trio.to_thread.run_sync(self._put, self._out, batch)

    def _put(self, out: TextIO, batch: str) -> None:
        try:
            out.write(batch)
            out.flush()
        except (OSError, ValueError):  # the reader has gone; the work goes on
            self._out = None


class _Plain(LineScreen):
    async def finish(self) -> None:
        """Sum up, and write the rest."""
        if len(self.board):
            self._waiting.append(", ".join(totals(self.board, self.board.seconds)))
        await super().finish()


def plain_screen(out: TextIO) -> Screen:
    """Plain lines; the last one sums up."""
    return _Plain(out, PlainLog().lines, out)


def json_screen(out: TextIO, told: TextIO) -> Screen:
    """JSON lines, one per event; words for people go to `told`."""
    return LineScreen(out, lambda event: (json_line(event),), told)
