"""From what a model said to what the conversation keeps (TRN-5, TRN-6, TRN-8, TOL-5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from msgspec import Struct

from .ids import TurnId, call_id
from .ports import WireCall
from .transcript import CallBlock, ReasoningBlock, ResponseRecord, Stop, TextBlock

if TYPE_CHECKING:
    from .transcript import Block
    from .usage import Usage

_CUT_OFF: Final = frozenset({Stop.MAX_TOKENS, Stop.ERROR})


class Reading(Struct, frozen=True):
    """A response as the conversation keeps it. `twice`: wire ids that came again and were refused."""

    record: ResponseRecord
    calls: tuple[CallBlock, ...]
    twice: tuple[str, ...] = ()


def read(
    turn: TurnId,
    step: int,
    blocks: tuple[ReasoningBlock | TextBlock | WireCall, ...],
    *,
    stop: Stop,
    model: str,
    usage: Usage,
) -> Reading:
    """Put blocks in the order reasoning, text, calls; number the calls; have each wire id once."""
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock) and blocks[0].text:
        return Reading(ResponseRecord(turn, (blocks[0],), stop, model, usage), ())  # the common case: nothing to sort
    reasoning: list[Block] = []
    texts: list[Block] = []
    calls: list[CallBlock] = []
    seen: set[str] = set()
    twice: list[str] = []
    for block in blocks:
        match block:
            case WireCall(wire_id=wire_id) if wire_id in seen:
                twice.append(wire_id)
            case WireCall(wire_id=wire_id, name=name, arguments=arguments, invalid=invalid):
                seen.add(wire_id)
                if invalid is None and stop in _CUT_OFF and block is blocks[-1] and not arguments.strip():
                    invalid = "truncated"
                calls.append(CallBlock(call_id(turn, step, len(calls)), wire_id, name, arguments, invalid))
            case ReasoningBlock():
                reasoning.append(block)
            case TextBlock(text=""):
                pass  # nothing was said
            case TextBlock():
                texts.append(block)
            case _:
                assert_never(block)
    record = ResponseRecord(turn, (*reasoning, *texts, *calls), stop, model, usage)
    return Reading(record, tuple(calls), tuple(twice))


def interrupted(
    turn: TurnId,
    step: int,
    blocks: tuple[ReasoningBlock | TextBlock | WireCall, ...],
    half: str,
    *,
    model: str,
    usage: Usage,
) -> Reading:
    """A response that was cut: its finished blocks and the half text; half reasoning and half calls never get here."""
    kept = blocks
    if half.strip():
        kept = (*kept, TextBlock(half, half=True))
    return read(turn, step, kept, stop=Stop.INTERRUPTED, model=model, usage=usage)
