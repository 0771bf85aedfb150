"""The gateway where calls are cancelled, cut, or crash: what they are charged, and what they give back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from actors.errors import Broken, InternalError, Overloaded, ProviderError
from actors.ports import ModelRequest, Response, TextPiece
from actors.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.ports import Emit

    Step = Callable[[ModelRequest, Emit], Awaitable[Response]]

from tests.supervisor.gatekit import HELLO, LEAD, Rig, Steps, pieces, request


@pytest.mark.parametrize("after", [0.0, 1.0, 2.5, 4.0, 9.0])
async def test_req_7_a_cancelled_call_charges_what_came_and_gives_everything_back(
    autojump_clock: trio.testing.MockClock, after: float
) -> None:
    """Cancelled while it waits for the first piece, streams, or sleeps between attempts: Cancelled goes on."""
    rig = Rig(permits=1)
    broken = Overloaded("busy", retry_after_s=5, reason="overloaded")
    model = Steps(pieces(2, TextPiece("abcdef"), 1, end=broken), pieces(TextPiece("x"), 100))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.ask, model)
        await trio.sleep(after)  # not a deadline, for before one no retry is begun
        nursery.cancel_scope.cancel()
    rig.check_even()
    outcomes = [(record.outcome, record.usage.visible) for record in rig.accounted]
    assert (
        outcomes
        == {0.0: [], 1.0: [("cut", 0)], 2.5: [("cut", 2)], 4.0: [("failed", 2)], 9.0: [("failed", 2), ("cut", 1)]}[
            after
        ]
    )


async def test_req_7_a_cut_accounts_at_once_and_only_once(autojump_clock: trio.testing.MockClock) -> None:
    """The figures stand before the stream has unwound; its permit is held until it has; no retry follows."""
    rig = Rig(permits=1)
    stuck = trio.Event()

    async def slow_to_die(request: ModelRequest, emit: Emit) -> Response:
        emit(TextPiece("abc"))
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(5, shield=True):
                await stuck.wait()
            raise Broken("closed under us", reason="connection")

    ticket = rig.gateway.admit_nowait(LEAD, (Steps(slow_to_die, HELLO),), 300)
    assert ticket is not None
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def ask() -> None:
            with scope, pytest.raises(Broken):
                await rig.gateway.call(ticket, request(), rig.notes)

        nursery.start_soon(ask)
        await trio.sleep(1)
        rig.gateway.cut(ticket)
        assert ticket.usage == Usage(fresh=116, visible=1)
        assert ticket.charged == rig.ledger.snapshot(LEAD).spent
        assert rig.gateway.admit_nowait(LEAD, (Steps(HELLO),), 300) is None
        rig.gateway.cut(ticket)
        scope.cancel()
    assert rig.notes.failed == [("connection", None)]
    rig.check_even()


async def test_req_7_a_cut_before_the_call_takes_the_reservation_back(autojump_clock: trio.testing.MockClock) -> None:
    """A ticket that was cut asks nobody, and its permit comes back."""
    rig = Rig(permits=1)
    model = Steps(HELLO)
    ticket = rig.gateway.admit_nowait(LEAD, (model,), 300)
    assert ticket is not None
    rig.gateway.cut(ticket)
    assert rig.ledger.statistics().reservations == 0
    assert await rig.gateway.call(ticket, request(), rig.notes) is None
    assert model.asked == []
    rig.check_even()


async def test_req_7_a_cut_between_attempts_ends_the_call_with_the_last_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Cut while it waits to try again, it does not try again even if nobody cancels it."""
    rig = Rig()
    model = Steps(Overloaded("busy", retry_after_s=5, reason="overloaded"))
    ticket = rig.gateway.admit_nowait(LEAD, (model,), 300)
    assert ticket is not None
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            with pytest.raises(Overloaded):
                await rig.gateway.call(ticket, request(), rig.notes)

        nursery.start_soon(ask)
        await trio.sleep(1)
        rig.gateway.cut(ticket)
    assert len(model.asked) == 1
    rig.check_even()


@pytest.mark.parametrize("after", [0.5, 2.5, 4.0])
async def test_req_7_a_call_that_is_cut_and_stopped_ends_at_once_with_no_answer(
    autojump_clock: trio.testing.MockClock, after: float
) -> None:
    """Before its first piece, in the stream, between two attempts: it unwinds by itself, and nobody is cancelled."""
    rig = Rig(permits=1)
    broken = Overloaded("busy", retry_after_s=5, reason="overloaded")
    model = Steps(pieces(2, TextPiece("abcdef"), 1, end=broken), HELLO)
    ticket = rig.gateway.admit_nowait(LEAD, (model,), 300)
    assert ticket is not None
    ended: list[object] = []

    async def ask() -> None:
        try:
            ended.append(await rig.gateway.call(ticket, request(), rig.notes))
        except Overloaded as error:
            ended.append(error.reason)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(after)
        rig.gateway.cut(ticket)
        rig.gateway.stop(ticket)
    assert trio.current_time() == after
    assert ended == (["overloaded"] if after > 3 else [None])
    assert len(model.asked) == 1
    rig.check_even()


@pytest.mark.parametrize("end", [HELLO, Overloaded("busy", reason="overloaded")])
async def test_req_7_what_comes_after_a_cut_is_not_counted_again(
    autojump_clock: trio.testing.MockClock, end: Response | ProviderError
) -> None:
    """A stream that ends before its cancellation reaches it: the answer or the error goes to the caller, uncounted."""
    rig = Rig()
    ticket = rig.gateway.admit_nowait(LEAD, (Steps(pieces(2, end=end)),), 300)
    assert ticket is not None
    came: list[object] = []

    async def ask() -> None:
        try:
            came.append((await rig.call(ticket, request())).response)
        except Overloaded as error:
            came.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(1)
        rig.gateway.cut(ticket)
        charged = ticket.charged
    assert came == [end]
    assert ticket.charged is charged
    assert trio.current_time() == 2
    assert [delay for _, delay in rig.notes.failed] in ([], [None])
    rig.check_even()


async def test_req_7_a_model_that_crashes_is_accounted_too(autojump_clock: trio.testing.MockClock) -> None:
    """A bug in a model comes through as it is, with the permit and the reservation given back."""
    rig = Rig(permits=1)
    with pytest.raises(ZeroDivisionError):
        await rig.ask(Steps(ZeroDivisionError("bug")))
    assert [record.outcome for record in rig.accounted] == ["cut"]
    rig.check_even()


async def test_gat_1_an_abandoned_ticket_gives_everything_back(autojump_clock: trio.testing.MockClock) -> None:
    """Once or twice, before the call or after it; and a ticket is used once."""
    rig = Rig(permits=1)
    ticket = rig.gateway.admit_nowait(LEAD, (Steps(HELLO),), 300)
    assert ticket is not None
    rig.gateway.abandon(ticket)
    rig.gateway.abandon(ticket)
    rig.check_even()
    with pytest.raises(InternalError, match="used up"):
        await rig.gateway.call(ticket, request(), rig.notes)
    await rig.ask(Steps(HELLO))
    assert rig.ticket is not None
    rig.gateway.abandon(rig.ticket)
    rig.check_even()
