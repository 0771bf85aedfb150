"""What a script is written with: calls, errors, stalls; and a step made ready to be played.

A step is made ready where the script is written, so that playing it costs next to nothing. This module plays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

import attrs
import msgspec
from msgspec import Struct

from actors.building import encode
from actors.content import check_text
from actors.errors import Broken, ContextOverflow, Malformed, Overloaded, ProviderError, Rejected, UsageError
from actors.ports import BlockDone, Piece, ReasoningPiece, Response, TextPiece, WireCall
from actors.transcript import ReasoningBlock, Stop, TextBlock

if TYPE_CHECKING:
    from actors.ports import ModelRequest

Step: TypeAlias = object
"""Text; `call(...)`; a list or tuple of these (calls in one are parallel); an object, which is sent as JSON, or
`answer(...)` where it is a list, a tuple or text itself; an error such as `overloaded()`; `hang()`; a `Response`; or a
function of the `ModelRequest`, sync or async, that gives one."""
Steps: TypeAlias = Sequence[Step] | Callable[["ModelRequest"], Step]


@attrs.frozen
class ScriptedCall:
    """A tool call in a script; made by `call`."""

    name: str
    arguments: str
    invalid: str | None = None
    wire_id: str | None = None

    def known_as(self, wire_id: str) -> ScriptedCall:
        """The same call under a wire id of your own, for example one that stands twice."""
        check_text(wire_id, "the wire id of a scripted call")
        return attrs.evolve(self, wire_id=wire_id)


class _Calls:
    """Makes tool calls for a script: `call("add", a=2, b=3)`."""

    __slots__ = ()

    def __call__(self, name: str, /, **arguments: object) -> ScriptedCall:
        """A call of a tool; arguments may be what has a JSON form.

        Raises:
            UsageError: the name is no text, or an argument has no JSON form.
        """
        check_text(name, "the name of the tool in call(NAME, ...)")
        return ScriptedCall(name, encode(arguments))

    def raw(self, name: str, text: str, /) -> ScriptedCall:
        """A call whose arguments are this text, JSON or not, as a model may send it.

        Raises:
            UsageError: one of them is no text.
        """
        check_text(name, "the name of the tool in call.raw(NAME, TEXT)")
        check_text(text, "what call.raw(NAME, TEXT) has for arguments")
        try:
            value = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            return ScriptedCall(name, text, "malformed_json")
        return ScriptedCall(name, text, None if isinstance(value, dict) else "not_an_object")


call: Final = _Calls()


def answer(value: object, /) -> TextBlock:
    """A typed answer, sent as JSON, of whatever type: a list or a tuple by itself would be the parts of an answer."""
    return TextBlock(encode(value))


@attrs.frozen
class Hang:
    """Nothing more comes, for ever; made by `hang`."""


def hang() -> Hang:
    """The stream stalls here; what stands before it in its tuple has come."""
    return Hang()


def thought(text: str) -> ReasoningBlock:
    """Reasoning that the model shows; put it first in a tuple."""
    return ReasoningBlock(text)


def overloaded(message: str = "the scripted model is overloaded", *, retry_after: float | None = None) -> Overloaded:
    """The server is busy. `retry_after`: seconds it asks to wait."""
    return Overloaded(message, reason="rate_limit", retry_after_s=retry_after, status=429)


def rejected(message: str = "the scripted model refuses the request") -> Rejected:
    """The server will never take it."""
    return Rejected(message, reason="bad_request", status=400)


def broken(message: str = "the scripted connection broke") -> Broken:
    """The connection fails; at the end of a tuple, when what stands before it has come."""
    return Broken(message, reason="stream_truncated")


def malformed(message: str = "the scripted answer breaks the protocol") -> Malformed:
    """What comes is not what the protocol says."""
    return Malformed(message, reason="protocol")


def overflow(message: str = "the conversation does not fit the scripted window") -> ContextOverflow:
    """The conversation is too long for the model."""
    return ContextOverflow(message, reason="context_overflow", status=400)


# -- steps made ready ----------------------------------------------------------------------------------------------


class Part(Struct, frozen=True):
    """One block of an answer with the pieces it is streamed in; a call gets its id when it is played."""

    block: TextBlock | ReasoningBlock | WireCall | ScriptedCall
    pieces: tuple[Piece, ...] = ()


class Scene(Struct, frozen=True):
    """A step made ready.

    Attributes:
        parts: in order. blocks: of the parts, where no call needs an id; else None.
        end: an error or a stall that comes behind the parts; None: the answer is whole.
        given: the whole response, where the step was one.
        said, reasoned: bytes of text and calls, and of reasoning. stop: why it ends.
    """

    parts: tuple[Part, ...]
    blocks: tuple[TextBlock | ReasoningBlock | WireCall, ...] | None
    end: ProviderError | Hang | None = None
    given: Response | None = None
    said: int = 0
    reasoned: int = 0
    stop: Stop = Stop.END_TURN

    @property
    def fails(self) -> bool:
        """Whether it leaves no response: an error voids what came; a stall with nothing before it has nothing."""
        return isinstance(self.end, ProviderError) or (self.end is not None and not self.parts)


def as_steps(agent: object, script: object, delta_chars: int) -> Steps:
    """An agent's script with every step made ready that is not a function.

    Raises:
        UsageError: something in it is no step.
    """
    if not isinstance(agent, str) or not agent:
        raise UsageError(f"a script is keyed by agent names or paths; got {agent!r}")
    if callable(script) and not isinstance(script, type):
        return script
    if isinstance(script, str):
        return (as_scene(script, delta_chars),)
    if isinstance(script, list | tuple):
        functions = [callable(step) and not isinstance(step, type) for step in script]
        return tuple(
            step if function else as_scene(step, delta_chars) for step, function in zip(script, functions, strict=True)
        )
    raise UsageError(f"the script of {agent!r} is a list of steps, or one function of the request; got {script!r}")


def as_scene(step: Step, delta_chars: int) -> Scene:
    """A step made ready.

    Raises:
        UsageError: it is no step.
    """
    match step:
        case Response(blocks=blocks):
            return _scene(blocks, None, delta_chars, given=step)
        case ProviderError() | Hang():
            return _scene((), step, delta_chars)
        case list() | tuple() if not hasattr(step, "_fields"):  # a NamedTuple is one object
            return _of_many(step, delta_chars)
        case _:
            return _scene((_as_block(step),), None, delta_chars)


def _of_many(items: list[Any] | tuple[Any, ...], delta_chars: int) -> Scene:
    if not items:
        raise UsageError("an empty list is no step; an answer with nothing in it is Response((), Stop.END_TURN)")
    *before, last = items
    if isinstance(last, ProviderError | Hang):
        return _scene(tuple(_as_block(item) for item in before), last, delta_chars)
    return _scene(tuple(_as_block(item) for item in items), None, delta_chars)


def _as_block(item: object) -> TextBlock | ReasoningBlock | WireCall | ScriptedCall:
    match item:
        case str():
            return TextBlock(item)
        case ScriptedCall() | WireCall():
            return item
        case TextBlock(text=text) | ReasoningBlock(text=text):
            check_text(text, "a text or a thought of a script")
            return item
        case None | type() | ProviderError() | Hang() | Response():
            raise UsageError(
                f"{item!r} is no part of an answer; a step is text, call(...), an object, or an error at its end"
            )
        case _:
            return TextBlock(encode(item))


def _scene(
    blocks: tuple[TextBlock | ReasoningBlock | WireCall | ScriptedCall, ...],
    end: ProviderError | Hang | None,
    delta_chars: int,
    *,
    given: Response | None = None,
) -> Scene:
    last = len(blocks) - 1
    parts = []
    said = reasoned = 0
    ready: list[TextBlock | ReasoningBlock | WireCall] = []
    for index, block in enumerate(blocks):
        whole = index < last or end is None
        match block:
            case TextBlock(text=text):
                said += len(text)
                done = (BlockDone(block),) if whole else ()
                parts.append(Part(block, (*map(TextPiece, _chunks(text, delta_chars)), *done)))
            case ReasoningBlock(text=text):
                reasoned += len(text)
                parts.append(Part(block, (*map(ReasoningPiece, _chunks(text, delta_chars)), BlockDone(block))))
            case WireCall(name=name, arguments=arguments):
                said += len(name) + len(arguments)
                parts.append(Part(block, (BlockDone(block),)))
            case ScriptedCall(name=name, arguments=arguments):
                said += len(name) + len(arguments)
                parts.append(Part(block))
            case _:
                assert_never(block)
        if not isinstance(block, ScriptedCall):
            ready.append(block)
    stop = Stop.TOOL_CALLS if any(isinstance(block, WireCall | ScriptedCall) for block in blocks) else Stop.END_TURN
    fixed = tuple(ready) if len(ready) == len(blocks) else None
    return Scene(tuple(parts), fixed, end, given, said, reasoned, stop)


def _chunks(text: str, size: int) -> Sequence[str]:
    if not size or len(text) <= size:
        return (text,) if text else ()
    return [text[start : start + size] for start in range(0, len(text), size)]


def shown(step: Step) -> str:
    """A step, short, for a message."""
    match step:
        case Scene(parts=parts, end=end):
            return ", ".join([*(shown(part.block) for part in parts), *([type(end).__name__] if end else [])])
        case TextBlock(text=text):
            return repr(text[:80])
        case ScriptedCall(name=name, arguments=arguments):
            return f"call {name}({arguments[:80]})"
        case _:
            return getattr(step, "__qualname__", None) or repr(step)[:80]
