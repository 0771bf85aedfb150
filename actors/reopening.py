"""A turn found open, as the store has it: whether it owes an answer, its calls, and what its report lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .answering import unfit
from .approving import found
from .moves import CALLS_LISTED
from .ports import ANSWER_TOOL
from .transcript import ResponseRecord, ResultRecord, owes_response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .callview import CallView
    from .changes import CallRow
    from .conversation import Conversation
    from .ids import CallId, TurnId
    from .tools import Toolbox


def owed(conversation: Conversation) -> bool:
    """Whether a turn found open owes a response, by the last durable record (REC-1)."""
    return owes_response(conversation.last)


def open_calls(conversation: Conversation, rows: Iterable[CallRow], toolbox: Toolbox) -> tuple[CallView, ...]:
    """The calls of the batch that the store has open, with their tools, in call order."""
    last = conversation.last
    if not isinstance(last, ResponseRecord):
        return ()
    by_call = {row.call: row for row in rows}
    return tuple(found(block, by_call.get(block.id), toolbox) for block in last.calls)


def so_far(conversation: Conversation, turn: TurnId) -> dict[str, Any]:
    """What the state of a turn found open knows of its conversation: calls that its report lists, answers refused."""
    return {"done": _done(conversation, turn), "unfit": unfit(conversation.window(), turn)}


def _done(conversation: Conversation, turn: TurnId) -> tuple[tuple[CallId, str, str], ...]:
    """The calls of a turn found open that are settled in its conversation: what its report lists."""
    settled = [
        (record.call, record.name, record.status.value)
        for record in conversation.window()
        if isinstance(record, ResultRecord) and record.turn == turn and record.name != ANSWER_TOOL
    ]
    return tuple(settled[-CALLS_LISTED:])
