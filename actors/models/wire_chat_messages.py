"""Chat completions, what is sent: the messages, each record encoded once and kept beside its conversation (TRN-1).

The rules of a valid conversation are OpenAI's and those of the compatible servers, read 2026-11-29: each call is
answered right behind its message, arguments are JSON text of an object, content is null where only calls are.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

import attrs
import msgspec

from actors.content import File, Image, Text
from actors.transcript import (
    CallBlock,
    MessageRecord,
    NoteRecord,
    ReasoningBlock,
    ResponseRecord,
    ResultRecord,
    Stop,
    SummaryRecord,
    TextBlock,
)

from .profile import ChatProfile, EchoReasoning
from .wire_json import as_map, decode_lenient, heal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actors.content import Content, Part
    from actors.transcript import Record

NOTE_PREFIX: Final = "[runtime] "
"""What the runtime's lines begin with, so that the model can tell them from what people say."""

_PASSING: Final = frozenset({"failure", "limit"})
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder()
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_SHORT: Final = re.compile(r"[a-zA-Z0-9]{9}")
_MAX_ID_CHARS: Final = 40
_LETTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def dumps(value: object) -> bytes:
    """The value as JSON; half surrogates, which JSON in UTF-8 cannot hold, are replaced."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(_healed(value))


def _healed(value: object) -> object:
    match value:
        case str():
            return heal(value)
        case dict():
            return {key: _healed(item) for key, item in value.items()}
        case list():
            return [_healed(item) for item in value]
        case _:
            return value


def made_up_id(request_id: str, number: int, *, short: bool) -> str:
    """An id for the `number`-th call of a request, where the server gave none (P-ID)."""
    return _hashed(f"{request_id}/{number}", short=short)


def wire_id(given: str, *, short: bool) -> str:
    """A call's id as the server takes it; both sides of a call map to the same."""
    fits = _SHORT.fullmatch(given) if short else given and len(given) <= _MAX_ID_CHARS
    return given if fits else _hashed(given, short=short)


def _hashed(text: str, *, short: bool) -> str:
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12)
    if not short:
        return f"call_{digest.hexdigest()}"
    number = int.from_bytes(digest.digest(), "big")
    return "".join(_LETTERS[number // len(_LETTERS) ** place % len(_LETTERS)] for place in range(9))


@attrs.frozen
class _Item:
    """What one record adds to a user message. `json`: a string, or an array of parts."""

    json: bytes
    passing: str = ""
    """The kind of a note that is not shown for good: `failure`, until its turn succeeds; `limit`, while it lasts."""
    turn: str = ""

    @property
    def plain(self) -> bool:
        return self.json.startswith(b'"')


class _Run:
    """A user message and the records it is made of; its place in the entries."""

    __slots__ = ("index", "items")

    def __init__(self, index: int, items: list[_Item]) -> None:
        self.index = index
        self.items = items


class Messages:
    """The encoded messages of one conversation, kept up to date as records are appended.

    Invariants:
        MSG-1 each record is encoded when it is first met; after that only a dropped note, or reasoning whose turn is
        over, changes what stands, and each of them once.
        MSG-2 no message stands between a call and its result.
    """

    __slots__ = ("_echoed", "_images", "_last_run", "_origin", "_profile", "_turn", "_with_notes", "count", "entries")

    def __init__(self, profile: ChatProfile, origin: str) -> None:
        self._profile = profile
        self._origin = origin
        self.count = 0  # records taken in
        self.entries: list[bytes] = []  # a message each, with a comma before it; empty for what is not sent
        self._turn = ""
        self._last_run: _Run | None = None  # the last entry, if it is a user message
        self._with_notes: list[_Run] = []  # those that hold a note which is not shown for good
        self._echoed: list[tuple[int, ResponseRecord]] = []  # reasoning that goes back within its turn only
        self._images: list[dict[str, object]] = []  # of results, which take text only: they follow the batch

    def extend(self, records: Iterable[Record]) -> None:
        """Take in the records behind the last."""
        for record in records:
            self.count += 1
            if record.turn != self._turn:
                self._turn = record.turn
                self._end_echo()
                self._drop("limit", lambda turn: turn != record.turn)  # noqa: B023 - it is called at once
            match record:
                case ResultRecord():
                    self._result(record)
                case ResponseRecord():
                    self._settle_images()
                    self._response(record)
                case MessageRecord(content=content):
                    self._settle_images()
                    self._say(_Item(_content(content)))
                case NoteRecord(kind=kind, text=text, turn=turn):
                    self._settle_images()
                    passing = kind if kind in _PASSING else ""
                    self._say(_Item(dumps(NOTE_PREFIX + text), passing, turn))
                case SummaryRecord(shown=shown):
                    self._settle_images()
                    if shown:
                        self._say(_Item(dumps(NOTE_PREFIX + shown)))

    def with_notes(self, notes: Sequence[str]) -> list[bytes]:
        """The entries, with lines behind them that are for one request only."""
        items = [_Item(dumps(NOTE_PREFIX + note)) for note in notes]
        if self._images:
            items.insert(0, _Item(dumps(self._images)))
        if not items:
            return self.entries
        if not self._profile.merge_user:
            return [*self.entries, *(_user([item]) for item in items)]
        run = self._last_run
        if run is None:
            return [*self.entries, _user(items)]
        return [*self.entries[: run.index], _user([*run.items, *items])]

    def _say(self, item: _Item) -> None:
        run = self._last_run
        if run is None or not self._profile.merge_user:
            run = _Run(len(self.entries), [])
            self.entries.append(b"")
            self._last_run = run
        run.items.append(item)
        self.entries[run.index] = _user(run.items)
        if item.passing and run not in self._with_notes:
            self._with_notes.append(run)

    def _response(self, record: ResponseRecord) -> None:
        if record.stop not in {Stop.INTERRUPTED, Stop.ERROR}:
            self._drop("failure", lambda turn: turn == record.turn)  # they have served
        entry = self._assistant(record, echo=self._profile.echo_reasoning is not EchoReasoning.NEVER)
        if self._profile.echo_reasoning is EchoReasoning.WITHIN_TURN:
            self._echoed.append((len(self.entries), record))
        self.entries.append(entry)
        if entry:
            self._last_run = None

    def _drop(self, kind: str, over: Callable[[str], bool]) -> None:
        """The notes of a kind go whose turn is of these."""
        if not self._with_notes:
            return
        for run in self._with_notes:
            kept = [item for item in run.items if item.passing != kind or not over(item.turn)]
            if len(kept) < len(run.items):
                run.items[:] = kept
                self.entries[run.index] = _user(kept)
        self._with_notes = [run for run in self._with_notes if any(item.passing for item in run.items)]

    def _end_echo(self) -> None:
        for index, record in self._echoed:
            self.entries[index] = self._assistant(record, echo=False)
        self._echoed.clear()

    def _assistant(self, record: ResponseRecord, *, echo: bool) -> bytes:
        """The assistant's message; nothing where only reasoning, or nothing, would stand in it (TRN-6)."""
        text = "".join(block.text for block in record.blocks if isinstance(block, TextBlock))
        calls = [self._call(block) for block in record.blocks if isinstance(block, CallBlock)]
        if not calls and not text.strip():
            return b""
        message: dict[str, object] = {"role": "assistant", "content": text if text.strip() else None}
        if calls:
            message["tool_calls"] = calls
        for block in record.blocks:
            if isinstance(block, ReasoningBlock) and block.origin == self._origin:  # REQ-8
                if block.opaque is not None:
                    message |= as_map(decode_lenient(block.opaque.encode()))
                if echo and block.text:
                    message[self._profile.reasoning_field] = block.text
        return b"," + dumps(message)

    def _call(self, block: CallBlock) -> dict[str, object]:
        name = block.name if _NAME.fullmatch(block.name) else _NOT_NAME.sub("_", block.name)[:64] or "unknown"
        return {
            "id": wire_id(block.wire_id, short=self._profile.short_ids),
            "type": "function",
            "function": {"name": name, "arguments": _arguments(block)},
        }

    def _result(self, record: ResultRecord) -> None:
        texts = [part.text for part in record.content if isinstance(part, Text)]
        others = [_part(part) for part in record.content if not isinstance(part, Text)]
        if others:
            self._images += [{"type": "text", "text": f"From the result of {record.name}:"}, *others]
        message = {
            "role": "tool",
            "tool_call_id": wire_id(record.wire_id, short=self._profile.short_ids),
            "content": "\n".join(texts) if texts else "(see below)" if others else "",
        }
        self.entries.append(b"," + dumps(message))
        self._last_run = None

    def _settle_images(self) -> None:
        """The batch is answered: what its results showed follows as a message."""
        if self._images:
            item = _Item(dumps(self._images))
            self._images = []
            self._say(item)


def _arguments(block: CallBlock) -> str:
    """Arguments for replay: never anything but a JSON object."""
    if block.invalid is not None:
        return "{}"
    try:
        value = _DECODER.decode(block.arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return "{}"
    return block.arguments if isinstance(value, dict) else "{}"


def _user(items: Sequence[_Item]) -> bytes:
    if not items:
        return b""
    if len(items) == 1:
        content = items[0].json
    elif all(item.plain for item in items):
        content = b'"' + b"\\n\\n".join(item.json[1:-1] for item in items) + b'"'
    else:
        parts = (b'{"type":"text","text":' + item.json + b"}" if item.plain else item.json[1:-1] for item in items)
        content = b"[" + b",".join(parts) + b"]"
    return b',{"role":"user","content":' + content + b"}"


def _content(content: Content) -> bytes:
    if len(content) == 1 and isinstance(content[0], Text):
        return dumps(content[0].text)
    return dumps([_part(part) for part in content])


def _part(part: Part) -> dict[str, object]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(media_type=media_type, data=data, url=url):
            return {
                "type": "image_url",
                "image_url": {"url": url if data is None else f"data:{media_type};base64,{data}"},
            }
        case File(name=name, media_type=media_type, data=data):
            return {"type": "file", "file": {"filename": name, "file_data": f"data:{media_type};base64,{data}"}}
