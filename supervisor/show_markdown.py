"""A conversation as text: Markdown for people, JSON lines for programs, one record at a time. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from actors import codec
from actors.content import File, Image, Text
from actors.transcript import (
    CallBlock,
    MessageRecord,
    NoteRecord,
    ReasoningBlock,
    ResponseRecord,
    ResultRecord,
    SummaryRecord,
    TextBlock,
)

if TYPE_CHECKING:
    from actors.changes import AgentRow
    from actors.content import Content
    from actors.transcript import Block, Record

VERSION: Final = 1
"""Of the lines and of their fields; a record's own class and version stand in it, as the store writes them."""


def json_head(row: AgentRow, store: str, length: int) -> str:
    """The first line: whose conversation it is. `records`: of the whole, the archive included."""
    head = {
        "v": VERSION,
        "kind": "conversation",
        "agent": row.agent,
        "name": row.name,
        "store": store,
        "records": length,
    }
    return msgspec.json.encode(head).decode()


def json_record(index: int, record: Record, *, archived: bool) -> str:
    """One record as one line. `archived`: a compaction has replaced it (CMP-4)."""
    head = msgspec.json.encode({"v": VERSION, "kind": "record", "index": index, "archived": archived}).decode()
    return f'{head[:-1]},"record":{codec.RECORD.encode(record).decode()}}}'


def markdown_head(row: AgentRow, length: int, shown: int) -> str:
    """The title."""
    known = f"{length} records" if shown == length else f"{shown} records in force of {length}"
    return f"# {row.agent}\n\n{known}, {row.turns} turns.\n"


def markdown_record(record: Record, *, archived: bool) -> str:
    """One record as a section. `archived`: a compaction has replaced it."""
    old = " (archived)" if archived else ""
    match record:
        case MessageRecord(content=content, sender=sender, steer=steer):
            kind = "Steering" if steer else "Message"
            return _section(f"{kind}{f' from `{sender}`' if sender else ''}{old}", _content(content))
        case ResponseRecord(blocks=blocks, model=model, stop=stop):
            cut = ", interrupted" if stop.value == "interrupted" else ""
            told = f" ({model}{cut})" if model or cut else ""
            return _section(f"Answer{told}{old}", *(_block(block) for block in blocks))
        case ResultRecord(name=name, status=status, content=content):
            return f"### Result of `{name}`: {status.value}{old}\n\n{_fenced(_content(content))}\n"
        case NoteRecord(kind=kind, text=text):
            return _section(f"Note ({kind}){old}", text)
        case SummaryRecord(handover=handover, text=text):
            kind = "Hand-over note" if handover else "Summary of what came before"
            return _section(f"{kind}{old}", _quoted(text) if text else "*Nothing is said of it.*")
        case _:
            assert_never(record)


def _section(title: str, *parts: str) -> str:
    return "\n\n".join((f"## {title}", *(part for part in parts if part))) + "\n"


def _block(block: Block) -> str:
    match block:
        case TextBlock(text=text):
            return text
        case ReasoningBlock(text=text):
            return f"*Reasoning*\n\n{_quoted(text)}" if text else ""
        case CallBlock(name=name, arguments=arguments):
            return f"**Call** `{name}`\n\n{_fenced(arguments, 'json')}"


def _content(content: Content) -> str:
    return "\n\n".join(_part(part) for part in content)


def _part(part: Text | Image | File) -> str:
    match part:
        case Text(text=text):
            return text
        case Image(media_type=kind, url=url):
            return f"[image {kind}{f' {url}' if url else ''}]"
        case File(name=name, media_type=kind):
            return f"[file {name} {kind}]"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _fenced(text: str, language: str = "") -> str:
    """Text in a fence that is longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
