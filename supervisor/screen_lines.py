"""Events as lines of a log, for pipes and files: plain ones for people, JSON ones for programs.

Pure. A plain log says of every agent how it ended, and of the roots which tools they call; progress is said at most
every two seconds of a call, and deltas never: 1,000 agents make about 1,000 lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from actors.happenings import (
    AgentCrashed,
    AgentEnded,
    AgentStarted,
    AgentSuspended,
    ApprovalAsked,
    ApprovalDecided,
    AttemptDiscarded,
    Event,
    Missed,
    ReasoningDelta,
    ResponseEnded,
    SpecChanged,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEnded,
)
from actors.messages import Outcome, Status
from actors.transcript import ResultStatus

from .screen import notable
from .screen_nodes import said
from .screen_words import clean, crop, gist, plural, suspended

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRESS_S: Final = 2.0
TEXT_CELLS: Final = 160


class PlainLog:
    """Turns events into lines; it remembers keys, and when a call's progress was last told."""

    __slots__ = ("_keys", "_since", "_told")

    def __init__(self) -> None:
        self._since: float | None = None
        self._keys: dict[str, str] = {}
        self._told: dict[str, float] = {}

    def lines(self, event: Event) -> Iterator[str]:
        """The lines for an event: none, or one."""
        if self._since is None:
            self._since = event.at
        if isinstance(event, TextDelta | ReasoningDelta | ResponseEnded):  # most events, and nothing to say
            return
        if (text := self._text(event)) is not None:
            yield f"{event.at - self._since:7.1f}s  {clean(event.path)}  {crop(text, TEXT_CELLS)}"

    def _text(self, event: Event) -> str | None:
        root = "/" not in event.path
        match event:
            case AgentStarted(key=key, model=model):
                if key is not None:
                    self._keys[event.path] = key
                return f"started  {clean(model)}".rstrip() if root else None
            case TurnEnded(outcome=outcome):
                return self._ended(outcome)
            case ToolStarted(name=name, arguments=arguments):
                return f"{clean(name)} {gist(arguments)}".rstrip() if root else None
            case ToolProgress():
                return self._progress(event)
            case ToolEnded(call=call, name=name, status=status, text=text):
                self._told.pop(call, None)
                return None if status == ResultStatus.OK else f"{clean(name)} {status}: {clean(text)}"
            case AttemptDiscarded(error=error, retry_in_s=retry):
                return None if retry is None else f"tries again in {retry:.1f} s: {clean(error)}"
            case _:
                return _rare(event)

    def _ended(self, outcome: Outcome) -> str:
        if outcome.status is Status.DONE and "/" not in outcome.path:  # its answer stands in full where it is asked for
            return f"done  {plural(outcome.usage.total_tokens, 'token')}"
        key = self._keys.get(outcome.path)
        shown = f"({clean(key)})  " if key else ""
        text = said(outcome, key)
        word = f"done  {shown}{text}".rstrip() if outcome.status is Status.DONE else f"{shown}{text}"
        return f"{crop(word, TEXT_CELLS - 20)}  {plural(outcome.usage.total_tokens, 'token')}"

    def _progress(self, event: ToolProgress) -> str | None:
        last = self._told.get(event.call)
        whole = event.total is not None and event.done == event.total
        if last is not None and event.at - last < PROGRESS_S and not whole:
            return None
        self._told[event.call] = event.at
        share = f" {event.done or 0:,}/{event.total:,}" if event.total is not None else ""
        return f"{clean(event.name)}{share}  {clean(event.text)}".rstrip()


def _rare(event: Event) -> str | None:
    match event:
        case AgentSuspended(reason=reason):
            return suspended(reason)
        case ApprovalAsked(name=name, arguments=arguments):
            return f"needs approval: {clean(name)} {gist(arguments)}".rstrip()
        case ApprovalDecided(name=name, verdict=verdict, by=by):
            return f"{clean(name)} {clean(verdict)}{f' by {clean(by)}' if by else ''}"
        case AgentEnded(reason=reason):
            return f"closed: {clean(reason)}" if reason else None
        case AgentCrashed(error=error):
            return f"crashed: {clean(error)}"
        case SpecChanged():
            return "goes on with a changed spec"
        case Missed(count=count):
            return "events not shown" if count is None else f"{plural(count, 'event')} not shown"
        case _:
            return notable(event)


_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


def kind_of(event: Event) -> str:
    """The stable word for an event's class in JSON lines: `tool_started`."""
    return _WORD.sub("_", type(event).__name__).lower()


def json_line(event: Event) -> str:
    """An event as one line of JSON: `event` says what it is, the other fields are the event's own."""
    return msgspec.json.encode({"event": kind_of(event), **msgspec.to_builtins(event)}).decode()
