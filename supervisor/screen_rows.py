"""From the board's nodes to the rows of a picture: what is shown when not everything fits.

Pure. The cost is that of the rows asked for, however many agents there are: finished children fold into counts, the
last of them stay in sight while there is room, and open ones that do not fit are counted.

Invariants:
    BOARD-3 a picture has at most the rows that were asked for; below an agent with room for one line, every child is
    shown or counted.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import attrs

from actors.ids import name_of

from .screen_nodes import Look, Node
from .screen_words import clean

if TYPE_CHECKING:
    from collections.abc import Sequence


@attrs.frozen(kw_only=True)
class Row:
    """One line of a picture, without its width.

    Attributes:
        indent: the branches before it. name: of the agent, or the whole text of a line that counts agents.
        progress: done and total of its running call, or None.
        tokens, cost (picodollars): of its subtree. seconds: since it began, or that it took; None when counting.
    """

    indent: str
    look: Look
    name: str
    counts: bool = False
    key: str = ""
    doing: str = ""
    progress: tuple[int, int] | None = None
    tokens: int = 0
    cost: int = 0
    cost_known: bool = True
    seconds: float | None = None


def picture(roots: Sequence[Node], limit: int, now: float) -> list[Row]:
    """The trees in at most `limit` rows, roots in order, as of `now` on the events' clock."""
    if limit <= 0:
        return []
    shown = roots if len(roots) <= limit else roots[: limit - 1]
    hidden = len(roots) - len(shown)
    rows = _below(shown, limit - (hidden > 0), now, None)
    if hidden:
        rows.append(Row(indent="", look=Look.WAITING, name=f"{hidden:,} more", counts=True))
    return rows


def _below(children: Sequence[Node], room: int, now: float, stems: tuple[str, bool] | None) -> list[Row]:
    """Siblings in at most `room` rows: each has one, and what is left over is shared out.

    `stems`: the branches before them, and whether a line follows the last; None for roots.
    """
    rows: list[Row] = []
    spare = room - len(children)
    for index, child in enumerate(children):
        share = spare // (len(children) - index)
        last = index == len(children) - 1 and not (stems and stems[1])
        own, stem = ("", "") if stems is None else _branches(stems[0], last=last)
        part = _subtree(child, 1 + share, now, (own, stem))
        spare -= len(part) - 1
        rows += part
    return rows


def _subtree(node: Node, limit: int, now: float, branches: tuple[str, str]) -> list[Row]:
    own, stem = branches
    rows = [_row(node, now, own)]
    room = limit - 1
    if room <= 0 or not (node.active or node.folds):
        return rows
    finished = _finished_in_sight(node, room)
    counted = _counted(node, finished)
    if len(counted) > 1 and len(counted) + len(finished) + len(node.active) > room:
        counted = [_one_line(counted)]
    room -= len(counted)
    places = room - len(finished)
    hidden = len(node.active) - max(0, places - 1) if len(node.active) > places else 0
    if hidden and room == 0:  # a single line must say it all
        text = ", ".join([*(line.text for line in counted), f"{hidden:,} more at work"])
        return [*rows, _counting(_Count(text, Look.BUSY, sum(line.tokens for line in counted)), stem + "└─ ")]
    active = islice(node.active.values(), len(node.active) - hidden)
    children = sorted([*finished, *active], key=_place)
    for index, line in enumerate(counted):
        last = index == len(counted) - 1 and not children and not hidden
        rows.append(_counting(line, _branches(stem, last=last)[0]))
    rows += _below(children, room - (hidden > 0), now, (stem, hidden > 0))
    if hidden:
        rows.append(_counting(_Count(f"{hidden:,} more at work", Look.BUSY), stem + "└─ "))
    return rows


def _place(node: Node) -> int:
    return node.place


def _branches(stem: str, *, last: bool) -> tuple[str, str]:
    return (stem + "└─ ", stem + "   ") if last else (stem + "├─ ", stem + "│  ")


def _finished_in_sight(node: Node, room: int) -> list[Node]:
    """The last finished children, as many as there is room for beside the open ones; failed ones first."""
    room -= len(node.active) + len(node.folds)
    if room <= 0:
        return []
    kept = list(node.failed)[-room:]
    good = room - len(kept)
    return [*kept, *(list(node.recent)[-good:] if good else ())]


@attrs.frozen
class _Count:
    text: str
    look: Look
    tokens: int = 0


def _counted(node: Node, shown: list[Node]) -> list[_Count]:
    """The lines that count finished children which are not in sight, with their tokens."""
    lines = []
    for name, fold in node.folds.items():
        mine = [child for child in shown if name_of(child.path) == name]
        good = sum(child.look is Look.DONE for child in mine)
        done, failed = fold.done - good, fold.failed - (len(mine) - good)
        parts = [f"{number:,} {word}" for number, word in ((done, "done"), (failed, "not done")) if number]
        if parts:
            tokens = fold.tokens - sum(child.folded.tokens for child in mine if child.folded)
            lines.append(_Count(f"{name}: {', '.join(parts)}", Look.FAILED if failed else Look.DONE, tokens))
    return lines


def _one_line(counted: list[_Count]) -> _Count:
    worst = Look.FAILED if any(line.look is Look.FAILED for line in counted) else Look.DONE
    return _Count("; ".join(line.text for line in counted), worst, sum(line.tokens for line in counted))


def _counting(line: _Count, indent: str) -> Row:
    return Row(indent=indent, look=line.look, name=clean(line.text), counts=True, tokens=line.tokens)


def _row(node: Node, now: float, indent: str) -> Row:
    measured = node.measured if node.look is Look.BUSY else None
    return Row(
        indent=indent,
        look=node.look,
        name=clean(node.path.rpartition("/")[2]),
        key=clean(node.key or ""),
        doing=node.activity(),
        progress=(measured.done, measured.total) if measured and measured.total else None,
        tokens=node.tokens,
        cost=node.cost,
        cost_known=node.cost_known,
        seconds=(now if node.ended is None else node.ended) - node.started,
    )
