"""Make `tree.svg`, the picture of a live tree, from a real run: python3 dev.py python examples/picture.py.

It reviews the sources of callboard with the script of `review.py` and takes the picture in the middle; it also shows
how to watch a tree from code: a `Board` is fed with the events of a supervisor.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tempfile
from pathlib import Path

import trio
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from actors.happenings import ToolProgress
from supervisor import open_supervisor
from supervisor.cli_demo import demo_arguments
from supervisor.cli_load import load
from supervisor.screen import Board
from supervisor.screen_layout import lay_out_board

WIDTH, HEIGHT = 88, 20
SHARE = 0.6  # of the files done when the picture is taken
CALM = TerminalTheme(
    (22, 24, 29),
    (214, 218, 224),
    [
        (60, 64, 72),
        (224, 108, 117),
        (126, 190, 128),
        (222, 180, 100),
        (97, 160, 230),
        (190, 130, 210),
        (86, 182, 194),
        (200, 204, 210),
    ],
    [
        (92, 99, 112),
        (240, 128, 136),
        (150, 210, 150),
        (236, 200, 130),
        (120, 180, 245),
        (205, 150, 225),
        (110, 205, 215),
        (240, 244, 250),
    ],
)


async def picture(folder: Path) -> str:
    """The live tree as SVG, in the middle of a review of our own sources."""
    path, options = demo_arguments(folder, paced=True)
    review = load(path)
    assert review.arguments is not None
    assert review.main is not None
    parser = argparse.ArgumentParser()
    review.arguments(parser)
    args = parser.parse_args(options, argparse.Namespace(key=None))
    board = Board()
    async with (
        open_supervisor(model=review.model_for(args), agents=review.agents_for(args)) as sup,
        sup.events() as events,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(review.main, sup, args)
        async for event in events:
            board.apply(event)
            if isinstance(event, ToolProgress) and event.total and (event.done or 0) >= SHARE * event.total:
                break
        nursery.cancel_scope.cancel()
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lay_out_board(board, WIDTH, HEIGHT, now=board.clock, hint="Ctrl-C suspends"):
        console.print(line)
    svg = console.export_svg(title="callboard demo", theme=CALM, unique_id="callboard")
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # it loads nothing from elsewhere


def main() -> None:
    """Write the picture beside this file, or where the first argument says."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "tree.svg"
    with tempfile.TemporaryDirectory() as folder:
        target.write_text(trio.run(picture, Path(folder)), "utf-8")
    print(target)


if __name__ == "__main__":
    main()
