"""What a scripted model reads of a request: only what a model's server is sent too, so a script can stand behind one.

That is the instructions, the tools, and the conversation's words; no ids of ours, no status, no turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from actors.content import text_of
from actors.transcript import MessageRecord, ResponseRecord, ResultRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.ports import ModelRequest
    from actors.transcript import Record


@attrs.frozen
class Seen:
    """A call of the last batch with its result: the tool's name, its arguments as JSON text, the result's text."""

    name: str
    arguments: str
    text: str


def last_message(request: ModelRequest) -> str:
    """The text of the last message that the model was sent; empty where there is none."""
    for record in _backwards(request):
        if isinstance(record, MessageRecord):
            return text_of(record.content)
    return ""


def messages(request: ModelRequest) -> list[str]:
    """The texts of all messages, the oldest first."""
    return [text_of(record.content) for record in request.window if isinstance(record, MessageRecord)]


def results(request: ModelRequest) -> list[Seen]:
    """The results that the model is to look at now: of the last batch, in call order; none once it has answered."""
    texts: dict[str, str] = {}
    for record in _backwards(request):
        match record:
            case ResultRecord():
                texts[record.wire_id] = text_of(record.content)
            case ResponseRecord():
                return [
                    Seen(one.name, one.arguments, texts[one.wire_id]) for one in record.calls if one.wire_id in texts
                ]
            case _:
                continue
    return []


def replies(request: ModelRequest) -> list[str]:
    """The texts of what the model said so far, the oldest first; a reply of calls only is an empty text."""
    return [record.text for record in request.window if isinstance(record, ResponseRecord)]


def step(request: ModelRequest) -> int:
    """How many times the model has answered since the last message: 0 where the message is still to be answered."""
    count = 0
    for record in _backwards(request):
        if isinstance(record, MessageRecord):
            break
        count += isinstance(record, ResponseRecord)
    return count


def offered(request: ModelRequest) -> list[str]:
    """The names of the tools that may be called, in order."""
    return [] if request.tool_choice == "none" else [tool.name for tool in request.tools]


def _backwards(request: ModelRequest) -> Iterator[Record]:
    window = request.window
    for index in range(len(window) - 1, -1, -1):
        yield window[index]
