"""What `callboard show` says of a store: its trees as rows, or one agent on one screen.

Pure: rows and records in, lines out.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
from rich.text import Text

from actors.content import File, Image, Part, text_of
from actors.transcript import (
    CallBlock,
    MessageRecord,
    NoteRecord,
    ReasoningBlock,
    Record,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    SummaryRecord,
    TextBlock,
)
from actors.usage import NO_USAGE

from .screen_layout import UNICODE, Columns, Glyphs, lay_out
from .screen_nodes import LOOKS, Look, Node, said
from .screen_rows import picture
from .screen_words import clean, clean_lines, count, crop, gist, money, plural, suspended

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actors.changes import AgentRow, KvRow
    from actors.content import Content
    from actors.messages import Outcome

    from .store.base import StoredAgent

State: TypeAlias = tuple[Look, str]
"""How an agent looks, and why."""

KV_SHOWN: Final = 5
TEXT_LINES: Final = 4
"""Lines of a message or an answer that one screen shows."""


# -- trees -------------------------------------------------------------------------------------------------------


def tree_lines(
    rows: Iterable[tuple[AgentRow, State]], width: int, limit: int, *, owner: str = "", glyphs: Glyphs = UNICODE
) -> list[Text]:
    """The trees of a store in at most `limit` lines: state, tokens and cost of every agent and all below it.

    Args:
        rows: agents, parents before their children, each with its state.
        width: cells of a line.
        limit: how many lines.
        owner: who has the store open, or nothing.
        glyphs: signs.
    """
    nodes: dict[str, Node] = {}
    roots: list[Node] = []
    tokens = cost = 0
    known = True
    for row, state in rows:
        parent = nodes.get(row.parent)
        node = _node(row, state, parent, len(nodes))
        nodes[row.agent] = node
        tokens += row.usage.total_tokens
        cost += row.spent.cost
        known = known and row.cost_known
        if parent is None:
            roots.append(node)
    for node in reversed(nodes.values()):  # children before their parents: sums, then places
        if node.parent is not None:
            node.parent.tokens += node.tokens
            node.parent.cost += node.cost
            node.parent.cost_known = node.parent.cost_known and node.cost_known
    for node in nodes.values():
        node.rehome()
    columns = Columns(cost=bool(cost) or not known, time=False)
    shown = picture(roots, max(1, limit - 1), 0.0)
    lines = [lay_out(row, width, glyphs, columns) for row in shown]
    total = [plural(len(nodes), "agent"), plural(tokens, "token"), money(cost, known=known)]
    if owner:
        total.append(f"in use by {clean(owner)}")
    return [*lines, Text(crop(glyphs.dot.join(total), width), style="bold")]


def _node(row: AgentRow, state: State, parent: Node | None, place: int) -> Node:
    look, doing = state
    return Node(
        row.agent,
        parent,
        place,
        0.0,
        key=row.key,
        look=look,
        doing=doing,
        tokens=row.usage.total_tokens,
        cost=row.spent.cost,
        cost_known=row.cost_known,
        recent=deque(),
        failed=deque(),
    )


@attrs.frozen
class Owed:
    """What a store owes in trees that nobody runs.

    Attributes:
        agents: those with work. messages: that wait at these. persons: how many of these wait for a person.
    """

    agents: int
    messages: int = 0
    persons: int = 0


def owed_lines(owed: Owed, store: str, width: int) -> list[Text]:
    """What a store owes that nobody goes on with, and what to type; nothing where it owes nothing.

    Args:
        owed: how much.
        store: its file.
        width: cells of a line.
    """
    if not owed.agents:
        return []
    count = owed.messages
    waits = f", {plural(count, 'message')} {'waits' if count == 1 else 'wait'}" if count else ""
    owes = (
        f"{plural(owed.agents, 'agent')} {'owes' if owed.agents == 1 else 'owe'} work{waits}, and no process goes on:"
    )
    lines = [owes, f"  callboard run FILE.py --store {clean(store)} --resume", "  or in Python: sup.resume()"]
    if owed.persons:
        lines.append(f"  and then a person must act for {owed.persons:,}: approve, or wake()")
    return [Text(crop(line, width), style="yellow") for line in lines]


def state_of(row: AgentRow, last: Outcome | None, *, owned: bool, waiting: int = 0) -> State:
    """How a stored agent looks, and why, as far as the store tells.

    Args:
        row: as its loop wrote it last.
        last: how its last turn ended, or None.
        owned: a process has the store open, so that an open turn is under way and not cut off.
        waiting: how many messages it has yet to read.
    """
    look, doing = _state_of(row, last, owned=owned)
    if not waiting:
        return look, doing
    waits = f"{plural(waiting, 'message')} {'waits' if waiting == 1 else 'wait'}"
    if look in {Look.STILL, Look.BUSY}:
        return look, f"{doing}; {waits}"
    return Look.WAITING, f"{waits}; {doing}" if doing else waits


def _state_of(row: AgentRow, last: Outcome | None, *, owned: bool) -> State:
    if row.suspended is not None:
        return Look.STILL, suspended(row.suspended)
    if row.open is not None:
        where = f"in turn {row.open.number}, step {row.open.step}"
        return (Look.BUSY, where) if owned else (Look.STILL, f"{'left' if row.open.left else 'cut off'} {where}")
    if row.owes:
        return Look.WAITING, "owes work"
    if last is None:
        return Look.WAITING, "was asked nothing yet"
    return LOOKS[last.status], said(last, row.key)


# -- one agent -----------------------------------------------------------------------------------------------------


def agent_lines(
    stored: StoredAgent,
    records: Sequence[tuple[int, Record]],
    *,
    state: State,
    kv: Sequence[KvRow],
    children: int,
    width: int,
    limit: int | None,
) -> list[Text]:
    """One agent: its state, then its conversation, of which the end is shown where not all of it fits.

    Args:
        stored: the agent.
        records: the end of its conversation, at least as many as `limit`, each with its place.
        state: of `state_of`.
        kv: its own key-value store.
        children: how many agents are right below it.
        width: cells of a line.
        limit: lines, from 10; None for everything, texts whole.
    """
    head = [_title(stored, width), *_state_lines(stored, state, kv, children, width)]
    blocks = [_record_lines(at, record, width, limit is None) for at, record in records]
    if limit is None:
        return [*head, *(line for block in blocks for line in block)]
    head = head[: max(1, limit - 4)]
    room = max(1, limit - len(head) - 1)
    shown: deque[list[Text]] = deque()
    for block in reversed(blocks):
        if len(block) > room:
            if not shown:
                shown.append(block[:room])
            break
        room -= len(block)
        shown.appendleft(block)
    missing = stored.length - len(shown)
    cut = [Text(crop(f"… {plural(missing, 'earlier record')}; --all shows everything", width), style="dim")]
    return [*head, *(cut if missing else []), *(line for block in shown for line in block)]


def _title(stored: StoredAgent, width: int) -> Text:
    return Text(crop(clean(stored.row.agent), width), style="bold")


_SAYS_IT: Final = frozenset({Look.STILL, Look.FAILED, Look.STOPPED})
"""Looks of several states, of which the words that come with them say which."""


def _state_lines(stored: StoredAgent, state: State, kv: Sequence[KvRow], children: int, width: int) -> list[Text]:
    row = stored.row
    look, doing = state
    facts = [
        doing if doing and look in _SAYS_IT else f"{look.value}{': ' + doing if doing else ''}",
        f"mailbox {stored.intake.value}: {_queue(stored)}",
        f"{plural(row.turns, 'turn')}, {plural(row.runs, 'run')}, {plural(stored.length, 'record')}"
        + (f", {plural(children, 'child').replace('childs', 'children')}" if children else ""),
        _spent(row),
    ]
    if row.key is not None:
        facts.append(f"key {clean(row.key)}")
    if row.budget is not None:
        facts.append(f"budget {clean(row.budget)}")
    if row.started_by is not None:
        facts.append(f"started by {clean(row.started_by)}")
    facts += [f"call {clean(call.name)} {call.state.value}: {gist(call.arguments)}" for call in stored.calls]
    facts += [f"{clean(pair.key)} = {clean(pair.value)}" for pair in kv[:KV_SHOWN]]
    if len(kv) > KV_SHOWN:
        facts.append(f"… {len(kv) - KV_SHOWN} more values in its store")
    return [
        *(Text(crop(f"  {fact}", width), style="dim") for fact in facts),
        Text("─" * min(width, 40), style="dim"),
    ]


def _spent(row: AgentRow) -> str:
    used = row.usage
    cached = f" ({count(used.cached)} cached)" if used.cached else ""
    cost = money(row.spent.cost, known=row.cost_known)
    calls = plural(row.spent.tool_calls, "tool call")
    return f"{count(used.input_tokens)} tokens in{cached}, {count(used.output_tokens)} out, {cost}, {calls}"


def _queue(stored: StoredAgent) -> str:
    waiting = [queued for queued in stored.queued if queued.state.value == "queued"]
    held = len(stored.queued) - len(waiting)
    words = f"{plural(len(waiting), 'message')} waiting" if waiting else "nothing waiting"
    return f"{words}, {held} held" if held else words


def _record_lines(index: int, record: Record, width: int, whole: bool) -> list[Text]:  # noqa: FBT001 - one of two ways to show
    match record:
        case MessageRecord(content=content, sender=sender, steer=steer):
            who = f"from {clean(sender)}" if sender else "asked"
            return _said(
                index, f"{who}{' (steer)' if steer else ''}", _words(content), "cyan", width=width, whole=whole
            )
        case ResponseRecord():
            return _response_lines(index, record, width, whole=whole)
        case ResultRecord(name=name, status=status, content=content):
            good = status is ResultStatus.OK
            title = f"{clean(name)} {'returned' if good else status.value}"
            return _said(index, title, _words(content), "dim" if good else "red", width=width, whole=whole)
        case NoteRecord(kind=kind, text=text):
            return _said(index, f"note ({kind})", text, "yellow", width=width, whole=whole)
        case SummaryRecord(text=text, upto=upto, handover=handover):
            title = "hand-over note" if handover else f"summary of all before {upto}"
            return _said(index, title, text or "(the conversation begins anew)", "yellow", width=width, whole=whole)


def _response_lines(index: int, record: ResponseRecord, width: int, *, whole: bool) -> list[Text]:
    used = "" if record.usage == NO_USAGE else f", {count(record.usage.total_tokens)} tokens"
    lines: list[Text] = []
    for block in record.blocks:
        match block:
            case TextBlock(text=text, half=half):
                lines += _said(index, f"said{' (cut off)' if half else ''}{used}", text, "", width=width, whole=whole)
            case ReasoningBlock(text=text):
                lines += _said(
                    index, "thought", text or "(kept by the provider)", "dim italic", width=width, whole=whole
                )
            case CallBlock(name=name, arguments=arguments, invalid=invalid):
                wrong = f" ({invalid})" if invalid else ""
                title = f"calls {clean(name)}{wrong}{used}"
                shown = arguments if whole else gist(arguments)
                lines += _said(index, title, shown, "magenta", width=width, whole=whole)
        used = ""
    return lines


def _said(index: int, title: str, text: str, style: str, *, width: int, whole: bool) -> list[Text]:
    """A title with the text behind it where that is one short line, below it where it is more."""
    lines = clean_lines(text.strip("\n"))
    head = f"{index:4} {title}"
    if len(lines) == 1 and not whole:
        return [_two(head, lines[0], style, width)]
    cut = len(lines) if whole else TEXT_LINES
    shown = [Text(line if whole else crop(f"     {line}", width), style=style) for line in lines[:cut]]
    if len(lines) > cut:
        shown.append(Text(crop(f"     … {plural(len(lines) - cut, 'more line')}", width), style="dim"))
    return [Text(crop(head, width), style=f"bold {style}".strip()), *shown]


def _two(head: str, text: str, style: str, width: int) -> Text:
    line = Text(crop(head, width), style=f"bold {style}".strip())
    room = width - line.cell_len - 2
    if room > 0:
        line.append(f"  {crop(text, room)}", style=f"not bold {style}".strip())
    return line


def _words(content: Content) -> str:
    """The text of content; of images and files what they are."""
    if all(not isinstance(part, Image | File) for part in content):
        return text_of(content)
    return "\n".join(_word(part) for part in content)


def _word(part: Part) -> str:
    match part:
        case Image(media_type=kind, url=url):
            return f"[image {kind}{' ' + url if url else ''}]"
        case File(name=name, media_type=kind):
            return f"[file {name}, {kind}]"
        case _:
            return part.text
