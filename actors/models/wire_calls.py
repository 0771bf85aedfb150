"""Tool calls put together from deltas, by P-INDEX, P-ID, P-ARGS and P-NAME of the wire samples' README.

An id or a name is never concatenated, arguments are never joined across ids, and nothing is repaired: a call whose
arguments are not whole keeps its raw text and says why it may not run.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import msgspec

from actors.ports import WireCall

from .wire_json import as_map, as_text, heal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder()


class Cut(enum.Enum):
    """How far the arguments can be trusted to be all that the model wanted to say."""

    WHOLE = enum.auto()
    TRUNCATED = enum.auto()
    """The answer was cut: arguments that are not JSON are cut arguments."""
    REJECTED = enum.auto()
    """The model's server says that its call is malformed."""


class OpenCall:
    """One call while it is streamed."""

    __slots__ = ("custom", "done", "given", "id", "index", "name", "parts")

    def __init__(self, call_id: str, given: str, index: object) -> None:
        self.id = call_id
        self.given = given  # the id on the wire, empty where none came
        self.index = index
        self.name = ""
        self.parts: list[str] = []
        self.custom = False
        self.done = False

    def add(self, name: str, arguments: object, *, cumulative: bool) -> None:
        """Take a fragment in: the first name wins, arguments are appended."""
        if not self.name:
            self.name = name
        if arguments is None:
            return
        if isinstance(arguments, str):
            if cumulative and self.parts and arguments.startswith("".join(self.parts)):
                self.parts = [arguments]
            elif arguments:
                self.parts.append(arguments)
            return
        text = _ENCODER.encode(arguments).decode()  # an object where a string belongs: taken as it is
        if self.parts != [text]:
            self.parts.append(text)

    @property
    def bare(self) -> bool:
        """Whether no arguments came."""
        return not "".join(self.parts).strip()

    @property
    def whole(self) -> bool:
        """Whether nothing can be missing: it has a name and its arguments are a JSON object."""
        return bool(self.name) and not self.custom and _judge("".join(self.parts), Cut.TRUNCATED)[1] is None

    def finish(self, tools: Collection[str], cut: Cut) -> WireCall:
        """The call as it stands."""
        raw = "".join(self.parts)
        if self.custom:
            return WireCall(self.id, self.name, raw, "custom")
        text, invalid = _judge(raw, cut)
        name = _offered(self.name, tools)
        if cut is Cut.REJECTED:
            text, invalid = raw, "rejected_by_model_server"
        elif not name:
            text, invalid = raw, invalid or "no_name"
        return WireCall(self.id, name, text, invalid)


class Calls:
    """The calls of one answer, in the order in which they first appeared.

    Args:
        new_id: makes the id of the n-th call, from 0, that came without one.
    """

    __slots__ = ("_by_id", "_by_index", "_legacy", "_new_id", "opened")

    def __init__(self, new_id: Callable[[int], str]) -> None:
        self.opened: list[OpenCall] = []
        self._by_id: dict[str, OpenCall] = {}
        self._by_index: dict[object, OpenCall] = {}
        self._legacy: OpenCall | None = None
        self._new_id = new_id

    def take(self, entry: dict[str, object], *, cumulative: bool = False) -> OpenCall | None:
        """Route one entry of `tool_calls` to its call, opening it where it is new; None for an empty one."""
        function = as_map(entry.get("function"))
        custom = as_map(entry.get("custom"))
        body = custom or function
        name = as_text(body.get("name"))
        arguments = custom.get("input") if custom else function.get("arguments")
        call_id = as_text(entry.get("id"))
        index = entry.get("index")
        if isinstance(index, list | dict):
            index = None
        call = self._route(call_id, index, name)
        if call is None:
            if not call_id and not name and not arguments:
                return None
            call = self._open(call_id, index)
        if custom:
            call.custom = True
        call.add(name, arguments, cumulative=cumulative)
        return call

    def take_legacy(self, value: dict[str, object], *, cumulative: bool = False) -> OpenCall | None:
        """Route a `function_call`; an empty stub opens nothing (P-LEGACY)."""
        name = as_text(value.get("name"))
        arguments = value.get("arguments")
        if self._legacy is None:
            if not name and not arguments:
                return None
            self._legacy = self._open("", None)
        self._legacy.add(name, arguments, cumulative=cumulative)
        return self._legacy

    def take_whole(self, entry: dict[str, object], *, cumulative: bool = False) -> OpenCall:
        """Take an entry of a whole message: each one is a call of its own."""
        del cumulative
        call_id = as_text(entry.get("id"))
        call = self._open("" if call_id in self._by_id else call_id, len(self.opened))
        custom = as_map(entry.get("custom"))
        function = as_map(entry.get("function"))
        call.custom = bool(custom)
        call.add(
            as_text((custom or function).get("name")),
            custom.get("input") if custom else function.get("arguments"),
            cumulative=False,
        )
        return call

    def finish(self, tools: Collection[str], cut: Cut) -> list[WireCall]:
        """All calls as they stand; only of the last one can arguments be missing that never began."""
        last = len(self.opened) - 1
        return [
            call.finish(tools, Cut.WHOLE if cut is Cut.TRUNCATED and number < last and call.bare else cut)
            for number, call in enumerate(self.opened)
        ]

    def _route(self, call_id: str, index: object, name: str) -> OpenCall | None:
        """P-INDEX."""
        if call_id:
            known = self._by_id.get(call_id)
            if known is not None:
                # One id at two indexes, with a name: two calls, and the second needs an id of its own (P-ID).
                there = self._by_index.get(index) if index is not None else None
                if there is not None:
                    return there if there.given == call_id else known
                again = name and index is not None and known.index is not None
                return None if again else known
            late = self._by_index.get(index) if index is not None else None
            if late is not None and not late.given and not name:
                self._by_id[call_id] = late  # its id comes late; the one that was made up stays
                return late
            return None
        if index is not None:
            return self._by_index.get(index)
        last = self.opened[-1] if self.opened else None
        return None if last is not None and name and last.name else last

    def _open(self, call_id: str, index: object) -> OpenCall:
        given = call_id
        if not call_id or call_id in self._by_id:
            call_id = self._new_id(len(self.opened))
        call = OpenCall(call_id, given, index)
        self.opened.append(call)
        self._by_id[call_id] = call
        if index is not None:
            self._by_index[index] = call
        return call


def _judge(raw: str, cut: Cut) -> tuple[str, str | None]:
    """Arguments by P-ARGS: the text to keep, and why it may not run."""
    bare = raw.strip()
    if bare in {"", "null"}:
        return (raw, "truncated") if cut is Cut.TRUNCATED else ("{}", None)
    if not raw.isascii():
        raw = heal(raw)
    try:
        value = _DECODER.decode(raw.encode())
    except (msgspec.DecodeError, RecursionError):
        return raw, "truncated" if cut is Cut.TRUNCATED else "malformed_json"
    return raw, None if isinstance(value, dict) else "not_an_object"


def _offered(name: str, tools: Collection[str]) -> str:
    """P-NAME: a `<|…` tail is cut if the rest is an offered tool."""
    head, mark, _ = name.partition("<|")
    return head if mark and head in tools else name
