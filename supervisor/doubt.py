"""A commit of which the store cannot say whether it was written: read again by what it did to a message (ACC-2).

A set is written whole or not at all, so one message that it accepts or moves tells for all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

import trio

from actors.changes import Append, Bump, Claim, Enqueue, Erase, Forget, Move, Placed, Put, Require, Shut
from actors.errors import InDoubt, StoreError
from actors.messages import ReceiptState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from actors.changes import Operation, Value, Values
    from actors.ids import AgentId, MessageId

    from .store.base import Reader

READ_S: Final = 10.0
"""How long the store is asked."""


async def settled(
    store: Reader,
    operations: tuple[Operation, ...],
    waiting: dict[AgentId, tuple[MessageId, ...]],
    doubt: InDoubt,
    doubted: Callable[[AgentId], None],
) -> Values:
    """What a commit in doubt returned, where the store turns out to have it.

    Args:
        store: is read.
        operations: of the commit.
        waiting: what waits for the agents whose whole mailboxes it moves, as last known.
        doubt: raised where the store has not the commit, does not answer, or nothing tells.
        doubted: called then with each agent whose mailbox it would have changed.

    Raises:
        InDoubt: whether it was written is still not known; it names the messages that were to be accepted.

    If cancelled: goes on to its end, in bounded time, as the commit does.
    """
    with trio.move_on_after(READ_S, shield=True):
        try:
            if await _written(store, operations):
                return tuple([await _value(store, operation, waiting) for operation in operations])
        except StoreError:
            pass  # it is the doubt that is told
    for operation in operations:
        if isinstance(operation, Enqueue | Claim | Move | Shut):
            doubted(operation.envelope.to if isinstance(operation, Enqueue) else operation.agent)
    messages = tuple(operation.envelope.id for operation in operations if isinstance(operation, Enqueue))
    if not messages:
        raise doubt
    names = " and ".join(messages)
    text = f"{doubt}; whether {names} was accepted is not known: ask receipt(...) of the store when it is open again"
    raise InDoubt(text, messages) from doubt


async def _written(store: Reader, operations: tuple[Operation, ...]) -> bool:
    """Whether a message that the set would have changed is as the set would have made it."""
    for operation in operations:
        match operation:
            case Enqueue(envelope=envelope):
                return await store.message_state(envelope.id) is not None
            case Claim(messages=(message, *_), turn=turn):
                view = await store.message_state(message)
                return view is not None and view.state is ReceiptState.CONSUMED and view.turn == turn
            case Move(messages=(message, *_), to=to):
                view = await store.message_state(message)
                return view is not None and view.state is to
            case _:
                pass
    return False


async def _value(store: Reader, operation: Operation, waiting: dict[AgentId, tuple[MessageId, ...]]) -> Value:
    """What an operation of a set that was written had returned, as far as anybody asks."""
    match operation:
        case Enqueue(envelope=envelope):
            view = await store.message_state(envelope.id)
            assert view is not None, "STORE-1: a set is written whole"
            return Placed(view.id, view.seq)
        case Move(agent=agent, to=to, messages=messages):
            return await _are(store, waiting.get(agent, ()) if messages is None else messages, to)
        case Append(at=at, records=records):
            return at + len(records)
        case Shut():
            return True
        case Put() | Erase() | Forget() | Claim() | Require() | Bump():
            return None
        case _:
            assert_never(operation)


async def _are(store: Reader, messages: Collection[MessageId], to: ReceiptState) -> tuple[MessageId, ...]:
    views = [await store.message_state(message) for message in messages]
    return tuple(view.id for view in views if view is not None and view.state is to)
