"""Checks of a store: the mailbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from actors.changes import (
    Claim,
    Enqueue,
    Intake,
    Move,
    Operation,
    Placed,
    Put,
    Shut,
)
from actors.errors import (
    AgentClosed,
    Conflict,
    MailboxError,
    MailboxFull,
    MessageTooLarge,
    UnknownPath,
    UsageError,
)
from actors.ids import AgentId, MessageId, turn_id
from actors.messages import Lane, LaneBound, Purpose, ReceiptState

from .store_hand import CHILD, LEAD, ROOMY, WAITING, Hand, agent_row, envelope

if TYPE_CHECKING:
    from supervisor.store.base import Store


async def check_order(store: Store) -> None:
    """Places are counted from 1 without a gap, over all lanes, as the store accepts (ACC-3, ACC-4, STORE-2)."""
    hand = Hand(store)
    await hand.begin()
    lanes = (Lane.SEND, Lane.CONTROL, Lane.STEER, Lane.SEND)
    for place, lane in enumerate(lanes, start=1):
        assert await hand.send(envelope(f"m-{place}", lane=lane)) == Placed(MessageId(f"m-{place}"), place)
    together = await hand(Enqueue(envelope("z"), ROOMY), Enqueue(envelope("a"), ROOMY))
    assert together == (Placed(MessageId("z"), 5), Placed(MessageId("a"), 6))
    await hand.refuses(Conflict, Enqueue(envelope("new"), ROOMY), Enqueue(envelope("a"), ROOMY))
    await hand.refuses(UnknownPath, Enqueue(envelope("m", to="lead/nobody"), ROOMY))
    await hand.refuses(UsageError, Enqueue(envelope("m", to=""), ROOMY))
    assert [name for name, _ in await hand.waiting()] == ["m-1", "m-2", "m-3", "m-4", "z", "a"]
    view = await store.message_state(MessageId("m-2"))
    assert view is not None
    assert (view.agent, view.seq, view.lane, view.state, view.turn) == (
        LEAD,
        2,
        Lane.CONTROL,
        ReceiptState.QUEUED,
        None,
    )
    assert [queued.seq for queued in await store.messages(LEAD, WAITING, after=2, limit=2)] == [3, 4]


async def check_dedupe(store: Store) -> None:
    """A key of a sender to an agent is accepted once, by either lane, also after a close (ACC-7)."""
    hand = Hand(store)
    await hand.begin()
    first = envelope("m-1", key="k", sender=CHILD)
    assert await hand.send(first) == Placed(MessageId("m-1"), 1)
    again = Placed(MessageId("m-1"), 1, again=True)
    assert await hand.send(replace(first, id=MessageId("m-2"))) == again
    await hand.refuses(UsageError, Enqueue(envelope("m-3", key="k", sender=CHILD, text="another"), ROOMY))
    assert await hand.send(replace(first, id=MessageId("m-3"), lane=Lane.STEER)) == again, "by whichever way it comes"
    for change in ({"purpose": Purpose.NOTICE}, {"output": "Verdict"}, {"target": "lead:t1"}):
        await hand.refuses(UsageError, Enqueue(replace(first, id=MessageId("m-3"), **change), ROOMY))
    assert await hand.send(envelope("m-4", key="k")) == Placed(MessageId("m-4"), 2)
    assert await hand.send(envelope("m-5", key="k", to=CHILD)) == Placed(MessageId("m-5"), 1)
    await hand(Claim(LEAD, (MessageId("m-1"),), turn_id(LEAD, 1)), Shut(LEAD, Intake.CLOSED))
    assert await hand.send(replace(first, id=MessageId("m-6"))) == again
    assert await hand.waiting() == [("m-4", "queued")]


async def check_bounds(store: Store) -> None:
    """A lane holds what its bound allows, in messages and bytes; a reserved place is never refused (ACC-6, STORE-3)."""
    hand = Hand(store)
    await hand.begin()
    two = LaneBound(messages=2)
    await hand.send(envelope("m-1"), two)
    await hand.send(envelope("m-2"), two)
    for operation in (
        Enqueue(envelope("m-3"), two),
        Enqueue(envelope("m-3", CHILD, text="x" * 100), LaneBound(2, 2, 100)),
    ):
        error = await hand.refuses(MailboxFull if operation.bound is two else MessageTooLarge, operation)
        assert isinstance(error, MailboxError)
        assert error.message == operation.envelope
    assert (await hand.send(envelope("m-4", lane=Lane.STEER), two)).seq == 3
    assert (await hand.send(envelope("m-5", reserved=True), two)).seq == 4
    assert (await hand.send(envelope("m-6", reserved=True, text="x" * 300_000), two)).seq == 5
    await hand(Claim(LEAD, (MessageId("m-5"),), turn_id(LEAD, 1)))
    await hand.refuses(MailboxFull, Enqueue(envelope("m-7"), two))
    await hand(Move(LEAD, (ReceiptState.QUEUED,), ReceiptState.HELD, (MessageId("m-1"),)))
    await hand.refuses(MailboxFull, Enqueue(envelope("m-7"), two))
    await hand(Claim(LEAD, (MessageId("m-1"),), turn_id(LEAD, 1)))
    await hand.send(envelope("m-7"), two)
    await hand(Move(LEAD, (ReceiptState.QUEUED,), ReceiptState.WITHDRAWN, (MessageId("m-7"),)))
    size = envelope("m-8").size_bytes
    await hand.refuses(MailboxFull, Enqueue(envelope("m-8"), LaneBound(size_bytes=2 * size - 1)))
    await hand.send(envelope("m-8"), LaneBound(size_bytes=2 * size))


async def check_intake(store: Store) -> None:
    """From a close on orders and reports on their places are accepted, once it is closed nothing (ACC-5, CLS-3)."""
    hand = Hand(store)
    await hand.begin()
    assert await hand(Shut(LEAD, Intake.OPEN), Shut(LEAD, Intake.CLOSING), Shut(LEAD, Intake.CLOSING)) == (
        False,
        True,
        False,
    )
    await hand.refuses(AgentClosed, Enqueue(envelope("m-1"), ROOMY))
    await hand.refuses(AgentClosed, Enqueue(envelope("m-1", lane=Lane.STEER), ROOMY))
    await hand.send(envelope("m-1", lane=Lane.CONTROL))
    await hand.send(envelope("m-2", reserved=True))
    await hand.refuses(Conflict, Shut(LEAD, Intake.CLOSED))  # an order waits, and nobody would meet it any more
    order = Claim(LEAD, (MessageId("m-1"),), turn_id(LEAD, 1))
    assert await hand(order, Shut(LEAD, Intake.CLOSED), Shut(LEAD, Intake.CLOSING)) == (None, True, False)
    await hand.refuses(AgentClosed, Enqueue(envelope("m-3", reserved=True), ROOMY))
    await hand.refuses(AgentClosed, Enqueue(envelope("m-3", lane=Lane.CONTROL), ROOMY))
    await hand.refuses(UnknownPath, Shut(AgentId("lead/nobody"), Intake.CLOSING))
    stored = await store.load_agent(LEAD)
    assert stored is not None
    assert (stored.intake, len(stored.queued)) == (Intake.CLOSED, 1)
    child = await store.load_agent(CHILD)
    assert child is not None
    assert child.intake is Intake.OPEN


async def check_claims(store: Store) -> None:
    """A message is taken by one turn, queued or held, whole sets or nothing (CON-3, STORE-4)."""
    hand = Hand(store)
    await hand.begin()
    for name in ("m-1", "m-2", "m-3"):
        await hand.send(envelope(name))
    first, second, third = MessageId("m-1"), MessageId("m-2"), MessageId("m-3")
    await hand(Move(LEAD, (ReceiptState.QUEUED,), ReceiptState.HELD, (second,)))
    assert await hand(Claim(LEAD, (second, first), turn_id(LEAD, 1))) == (None,)
    view = await store.message_state(second)
    assert view is not None
    assert (view.state, view.turn) == (ReceiptState.CONSUMED, turn_id(LEAD, 1))
    for claimed in ((first,), (third, first), (third, third), (), (MessageId("nowhere"),)):
        await hand.refuses(Conflict, Claim(LEAD, claimed, turn_id(LEAD, 2)))
    await hand.refuses(Conflict, Claim(CHILD, (third,), turn_id(CHILD, 1)))
    await hand.refuses(UnknownPath, Claim(AgentId("lead/nobody"), (third,), turn_id(LEAD, 2)))
    assert await hand.waiting() == [("m-3", "queued")]
    won = await _race(hand, [Claim(LEAD, (third,), turn_id(LEAD, number)) for number in range(2, 12)])
    assert won == 1


async def _race(hand: Hand, operations: list[Operation]) -> int:
    won = 0

    async def one(operation: Operation) -> None:
        nonlocal won
        try:
            await hand(operation)
        except Conflict:
            return
        won += 1

    async with trio.open_nursery() as nursery:
        for operation in operations:
            nursery.start_soon(one, operation)
    return won


async def check_moves(store: Store) -> None:
    """Messages are held, freed, withdrawn, buried and put back; named ones must be where they are said to (ABT-4)."""
    hand = Hand(store)
    await hand.begin()
    names = [MessageId(f"m-{number}") for number in range(1, 5)]
    for name, lane in zip(names, (Lane.SEND, Lane.CONTROL, Lane.STEER, Lane.SEND), strict=True):
        await hand.send(envelope(name, lane=lane))
    queued, held, dead = ReceiptState.QUEUED, ReceiptState.HELD, ReceiptState.DEAD
    assert await hand(Move(LEAD, (queued,), held)) == ((names[0], names[2], names[3]),)
    assert await hand.waiting() == [("m-1", "held"), ("m-2", "queued"), ("m-3", "held"), ("m-4", "held")]
    assert await hand(Move(LEAD, (held,), queued, (names[3], names[0]))) == ((names[0], names[3]),)
    await hand.refuses(Conflict, Move(LEAD, (held,), queued, (names[2], names[0])))
    await hand.refuses(Conflict, Move(LEAD, (held,), queued, (MessageId("nowhere"),)))
    await hand.refuses(Conflict, Move(CHILD, (held,), queued, (names[2],)))
    await hand.refuses(UnknownPath, Move(AgentId("lead/nobody"), (held,), queued))
    await hand.refuses(UsageError, Move(LEAD, (held,), ReceiptState.PENDING))
    assert await hand.anyone(Move(LEAD, WAITING, ReceiptState.WITHDRAWN, (names[3],))) == ((names[3],),)
    await hand(Claim(LEAD, (names[0],), turn_id(LEAD, 1)))
    assert await hand(Move(LEAD, (ReceiptState.CONSUMED,), dead, (names[0],), "poison")) == ((names[0],),)
    view = await store.message_state(names[0])
    assert view is not None
    assert (view.state, view.reason, view.turn) == (dead, "poison", turn_id(LEAD, 1))
    assert [letter.envelope.id for letter in await store.messages(LEAD, (dead,))] == [names[0]]
    assert await hand(Move(LEAD, (dead,), queued), Move(LEAD, (), dead)) == ((names[0],), ())
    view = await store.message_state(names[0])
    assert view is not None
    assert (view.state, view.reason, view.turn) == (queued, None, None)
    assert await hand.waiting() == [("m-1", "queued"), ("m-2", "queued"), ("m-3", "held")]


async def check_work(store: Store) -> None:
    """Who owes work or has a queued message is found, in order of path, and nobody else (ACC-8, REC-2)."""
    hand = Hand(store)
    await hand.begin()
    assert await store.agents_with_work() == ()
    await hand(Put(agent_row("lead/idle"), fresh=True), Put(agent_row("lead/busy", owes=True), fresh=True))
    await hand.send(envelope("m-1", CHILD))
    await hand.send(envelope("m-2", CHILD))
    assert await store.agents_with_work() == ("lead/busy", CHILD)
    await hand(Move(CHILD, (ReceiptState.QUEUED,), ReceiptState.HELD, (MessageId("m-1"),)))
    assert await store.agents_with_work() == ("lead/busy", CHILD)
    await hand(Claim(CHILD, (MessageId("m-2"),), turn_id(CHILD, 1)), Put(agent_row("lead/busy")))
    assert await store.agents_with_work() == ()
    await hand(Claim(CHILD, (MessageId("m-1"),), turn_id(CHILD, 2)), Put(agent_row(CHILD, owes=True)))
    assert await store.agents_with_work() == (CHILD,)


async def check_dead_letters(store: Store) -> None:
    """The dead are listed by agent, with why and when; one that waits again is none, and expires no more (CON-6)."""
    hand = Hand(store)
    await hand.begin()
    assert await store.dead_letters() == ()
    names = [MessageId(name) for name in ("m-1", "m-2", "m-3")]
    for name, to in zip(names, (CHILD, LEAD, LEAD), strict=True):
        await hand.send(envelope(name, to, expires_ms=7, sender=CHILD))
    await hand(Claim(LEAD, (names[1],), turn_id(LEAD, 1), "why it was taken"))
    view = await store.message_state(names[1])
    assert view is not None
    assert view.reason == "why it was taken"
    dead, queued = ReceiptState.DEAD, ReceiptState.QUEUED
    await hand(Move(LEAD, (ReceiptState.CONSUMED,), dead, (names[1],), "poison", 12.5))
    await hand(Move(LEAD, (queued,), dead, (names[2],), "expired"))
    await hand.anyone(Move(CHILD, (queued,), dead, (names[0],), "expired", 9.0))
    told = [(one.message, one.agent, one.reason, one.at, one.turn) for one in await store.dead_letters()]
    first = (names[1], LEAD, "poison", 12.5, turn_id(LEAD, 1))
    child = (names[0], CHILD, "expired", 9.0, None)
    assert told == [first, (names[2], LEAD, "expired", None, None), child]
    (only,) = await store.dead_letters(CHILD)
    sent = envelope("m-1", CHILD)
    assert (only.lane, only.content, only.sender) == (sent.lane, sent.content, CHILD)
    assert [one.message for one in await store.dead_letters(LEAD, limit=2)] == [names[1], names[2]]
    assert await store.dead_letters(AgentId("lead/chi")) == ()
    assert await hand.anyone(Move(CHILD, (dead,), queued, (names[0],), "put back")) == ((names[0],),)
    assert [one.message for one in await store.dead_letters()] == [names[1], names[2]]
    stored = await store.load_agent(CHILD)
    assert stored is not None
    assert [(one.envelope.id, one.envelope.expires_ms) for one in stored.queued] == [(names[0], None)]


async def check_share(store: Store) -> None:
    """One agent has at most its share of a lane, whoever else waits there; reserved places and code are free of it."""
    hand = Hand(store)
    await hand.begin()
    bound = LaneBound(messages=4, share=0.5)
    for number in (1, 2):
        await hand.send(envelope(f"a-{number}", sender=CHILD), bound)
    await hand.refuses(MailboxFull, Enqueue(envelope("a-3", sender=CHILD), bound))
    await hand.send(envelope("s-1", lane=Lane.STEER, sender=CHILD), bound)
    await hand.send(envelope("r-1", sender=CHILD, reserved=True), bound)
    await hand.send(envelope("b-1", sender=AgentId("lead/other")), bound)
    await hand(Move(LEAD, (ReceiptState.QUEUED,), ReceiptState.WITHDRAWN, (MessageId("a-1"),)))
    await hand.send(envelope("a-4", sender=CHILD), bound)
    await hand.refuses(MailboxFull, Enqueue(envelope("a-5", sender=CHILD), bound))
    await hand.send(envelope("c-1"), bound)
    await hand.refuses(MailboxFull, Enqueue(envelope("c-2"), bound))
    assert LaneBound(messages=1).of_one_sender == 1
