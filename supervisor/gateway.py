"""The gateway: the one way to a model (REQ-1): budget, admission, attempts, accounting.

The rules are elsewhere (`gate`, `pools`, `ledger`); this shell waits, sends and makes sure that every path out gives
back the permit and ends the reservation. No task is started for a call.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, final

import attrs
import trio
from msgspec.structs import replace

from actors.budget import DEFAULT_LIMITS, Dimension, Limits
from actors.errors import Broken, Exhausted, InternalError, ProviderError
from actors.ports import ModelRequest, Response, Served
from actors.usage import MICROSECONDS

from .books import PERMITS, Books
from .gate import Again, next_delay, passes_on, slows_the_pool
from .pools import PoolStatistics, Waiting
from .received import checked, readable
from .tickets import Attempt, Expired, GateTicket, State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.ids import AgentId
    from actors.ports import Model, Ticket, Watch
    from actors.usage import Amounts, Price

    from .ledger import Ledger
    from .pools import Rate
    from .tickets import Accounted
    from .waits import WaitGraph

FOREVER: Final = float("inf")


@attrs.frozen(kw_only=True)
class Statistics:
    """Counts of a gateway. `discarded`: attempts that failed; `cut`: cancelled ones."""

    admitted: int
    waited: int
    attempts: int
    discarded: int
    cut: int
    pools: tuple[PoolStatistics, ...]


@final
class Gateway:
    """Lets requests in, and asks models: an `actors.ports.Gate`.

    GATEWAY-1 when nothing is under way, no permit is held and nothing is reserved.
    (GATEWAY-2 is the books'.)

    Args:
        ledger: the accounts.
        prices: dollars per million tokens, by model id or name.
        permits: requests to one model at once, for all or by model id.
        rates: what a model's pool may send, by model id.
        waits: the wait-for graph, for priority; None gives none.
        clock: seconds; the one that deadlines are on.
        rng: the dice of delays.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        prices: Mapping[str, Price] | None = None,
        permits: int | Mapping[str, int] = PERMITS,
        rates: Mapping[str, Rate] | None = None,
        waits: WaitGraph | None = None,
        clock: Callable[[], float] = trio.current_time,
        rng: random.Random | None = None,
    ) -> None:
        self._ledger = ledger
        self._books = Books(ledger, prices or {}, permits, rates or {}, clock)
        self._waits = waits
        self._clock = clock
        self._rng = random.Random() if rng is None else rng  # noqa: S311 - jitter is no secret
        self._admitted = self._waited = self._attempts = 0
        if waits is not None:
            waits.watch(self.promote)

    # -- admission -------------------------------------------------------------------------------------------------

    def admit_nowait(
        self,
        agent: AgentId,
        models: tuple[Model, ...],
        request_bytes: int,
        *,
        max_output_tokens: int | None = None,
        wrap_up: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        within: Ticket | None = None,
    ) -> GateTicket | None:
        """Let a request in if it need not wait; see `actors.ports.Gate`."""
        chain, borrowed = self._books.chain(agent, models), within is not None
        ticket = GateTicket(agent, models, chain, request_bytes, max_output_tokens, limits, borrowed=borrowed)
        asked = self._books.asked(ticket)
        if wrap_up:
            self._books.extend(agent, asked)
        self._books.reserve(ticket, asked)
        if not ticket.borrowed:  # GAT-3: a helper request uses the permit of the one it is made within
            if not ticket.book.pool.take(asked.tokens, self._now(ticket)):
                self._books.release(ticket)
                return None
            ticket.has_permit = True
        self._admitted += 1
        return ticket

    async def admit(
        self,
        agent: AgentId,
        models: tuple[Model, ...],
        request_bytes: int,
        *,
        max_output_tokens: int | None = None,
        wrap_up: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        within: Ticket | None = None,
    ) -> GateTicket:
        """Like `admit_nowait`, but wait for a place. If cancelled: nothing is held."""
        await trio.lowlevel.checkpoint()
        ticket = self.admit_nowait(
            agent,
            models,
            request_bytes,
            max_output_tokens=max_output_tokens,
            wrap_up=wrap_up,
            limits=limits,
            within=within,
        )
        if ticket is not None:
            return ticket
        chain = self._books.chain(agent, models)
        ticket = GateTicket(agent, models, chain, request_bytes, max_output_tokens, limits, borrowed=False)
        self._waited += 1
        began = self._clock()
        await self._take_permit(ticket, urgent=self._waits is not None and self._waits.is_waited_for(agent))
        try:
            self._books.reserve(ticket, self._books.asked(ticket))  # nothing is held while it waits: asked anew
        except BaseException:
            self._give_permit_back(ticket)
            raise
        ticket.queued_s = self._clock() - began
        self._admitted += 1
        return ticket

    def abandon(self, ticket: Ticket) -> None:
        """Give back what an admitted ticket holds, where it was not called."""
        assert isinstance(ticket, GateTicket), "it let the request in itself"
        if ticket.state is State.ADMITTED:
            self._finish(ticket)

    def beyond(self, agent: AgentId, written: Amounts) -> Amounts:
        """What the account has and the row has not; see `actors.ports.Gate`."""
        return self._books.beyond(agent, written)

    def promote(self, agent: AgentId) -> None:
        """Somebody waits for this agent: its requests go first (GAT-1)."""
        self._books.promote(agent)

    # -- what a ticket holds ---------------------------------------------------------------------------------------

    async def _take_permit(self, ticket: GateTicket, *, urgent: bool) -> None:
        """Wait for a permit. If cancelled: none is held."""
        pool, tokens = ticket.book.pool, self._books.asked(ticket).tokens
        if pool.take(tokens, self._clock()):
            ticket.has_permit = True
            return
        event = trio.Event()

        def wake() -> None:
            event.set()

        waiting = Waiting(ticket.agent, tokens, wake, urgent=urgent)
        pool.join(waiting)
        try:
            pool.let_in(self._clock())
            while not waiting.granted:
                event = trio.Event()
                with trio.CancelScope(deadline=pool.look_again_at(waiting, self._clock())):
                    await event.wait()
                if not waiting.granted:
                    pool.let_in(self._clock())
        except BaseException:
            pool.quit(waiting, self._clock())
            raise
        ticket.has_permit = True

    def _give_permit_back(self, ticket: GateTicket) -> None:
        if ticket.has_permit:
            ticket.has_permit = False
            ticket.book.pool.give_back(self._now(ticket))

    def _now(self, ticket: GateTicket) -> float:
        """The time, where the ticket's pool asks for it: reading the clock costs as much as a permit does."""
        return self._clock() if ticket.book.pool.timed else 0.0

    def _finish(self, ticket: GateTicket) -> None:
        """Every path out ends here (GAT-1, TICKET-1, TICKET-2)."""
        self._books.release(ticket)
        self._give_permit_back(ticket)
        ticket.state = State.ENDED

    # -- the call --------------------------------------------------------------------------------------------------

    async def call(self, ticket: Ticket, request: ModelRequest, watch: Watch) -> Served | None:
        """Ask: attempts, delays and fallbacks included; see `actors.ports.Gate`."""
        assert isinstance(ticket, GateTicket), "it let the request in itself"
        held = ticket
        if held.state is not State.ADMITTED:
            raise InternalError(f"{held!r} is used up: each call needs a ticket of its own")
        held.state = State.CALLED
        try:
            left = self._ledger.remaining(held.agent, Dimension.SECONDS)
            budget_at = FOREVER if left is None else self._clock() + left / MICROSECONDS
            number = tries = 0
            while True:
                number += 1
                tries += 1
                await trio.lowlevel.checkpoint_if_cancelled()  # what is not sent is not charged
                if held.cut:
                    return None
                attempt = self._begin(held, request, number, budget_at, watch)
                try:
                    return await self._attempt(held, attempt, request)
                except ProviderError as error:
                    place = held.place
                    await self._prepare_next(held, error, tries, budget_at, watch)
                    tries = tries if held.place == place else 0
        finally:
            self._finish(held)

    def _begin(self, ticket: GateTicket, request: ModelRequest, number: int, budget_at: float, watch: Watch) -> Attempt:
        if budget_at < FOREVER and self._clock() >= budget_at:
            raise self._books.out_of_time(ticket.agent, 0)
        attempt = Attempt(request.id, number, ticket.limits, budget_at=budget_at, watch=watch, clock=self._clock)
        ticket.attempt = attempt
        self._attempts += 1
        watch.attempt(number, ticket.model, ticket.estimate)
        return attempt

    async def _attempt(self, ticket: GateTicket, attempt: Attempt, request: ModelRequest) -> Served | None:
        model = ticket.models[ticket.place]
        if request.model != model.name:
            request = replace(request, model=model.name)
        response: Response | None = None
        try:
            with attempt.scope:
                response = checked(await model.request(request, attempt.emit), model.id)
            if response is None and not ticket.cut:
                raise self._expired(ticket, attempt)
        except ProviderError as error:
            self._books.account_failed(ticket, attempt, error)
            raise readable(error, model.id) from error.__cause__
        finally:  # a success is accounted below; what is still open here was cancelled, or is a bug of the model's
            if response is None and attempt.open:
                self._books.account_failed(ticket, attempt, None)
        if response is None:
            return None
        usage, cost = self._books.account(ticket, attempt, response)
        return Served(response, usage, cost, attempt.number, model.id)

    def _expired(self, ticket: GateTicket, attempt: Attempt) -> Exception:
        """The error of an attempt whose deadline passed: a failed attempt (REQ-5), or the end of the budget."""
        which = attempt.expired()
        limits = ticket.limits
        if which is Expired.BUDGET:
            asked = round((self._clock() - attempt.started_at) * MICROSECONDS)
            return self._books.out_of_time(ticket.agent, asked)
        text = which.value.format(limits.first_event_s if which is Expired.FIRST else limits.between_events_s)
        return Broken(f"{ticket.model}: {text}", reason="timeout")

    async def _prepare_next(
        self, ticket: GateTicket, error: ProviderError, tries: int, budget_at: float, watch: Watch
    ) -> None:
        """Be ready for the next attempt, or raise (REQ-3, REQ-4). The permit is not held while it waits."""
        now = self._clock()
        deadline = min(budget_at, trio.current_effective_deadline())
        verdict = next_delay(error, tries, ticket.limits.attempts, now=now, deadline=deadline, unit=self._rng.random())
        if slows_the_pool(error):
            ticket.book.pool.slow(now + (error.retry_after_s or 0.0))
        again = isinstance(verdict, Again)
        following = ticket.place if again else ticket.place + 1
        if ticket.cut or not (again or (following < len(ticket.chain) and passes_on(error))):
            watch.discarded(error, None)
            raise error
        delay = verdict.delay_s if isinstance(verdict, Again) else 0.0
        watch.discarded(error, delay)
        self._give_permit_back(ticket)
        ticket.place, ticket.book = following, ticket.chain[following]
        with trio.CancelScope() as ticket.pause:
            await trio.sleep(delay)
            if not ticket.borrowed:
                await self._take_permit(ticket, urgent=True)
        if ticket.cut:
            raise error
        try:
            self._books.reserve(ticket, self._books.asked(ticket))
        except Exhausted as refused:
            raise refused from error

    def cut(self, ticket: Ticket) -> None:
        """Account a call that is about to be cancelled, now, with what came of it so far (REQ-7)."""
        assert isinstance(ticket, GateTicket), "it let the request in itself"
        ticket.cut = True
        if ticket.attempt is not None and ticket.attempt.open:
            self._books.account_failed(ticket, ticket.attempt, None)
        else:
            self._books.release(ticket)

    def stop(self, ticket: Ticket | None) -> None:
        """Cancel a call that was cut; see `actors.ports.Gate`."""
        if isinstance(ticket, GateTicket):
            ticket.stop()

    def watch_spending(self, told: Callable[[AgentId, Amounts], None]) -> None:
        """Call `told` after each accounted attempt, with what it took more than was reserved; cheaper than a record."""
        self._books.watch_spending(told)

    def observe(self, observer: Callable[[Accounted], None]) -> None:
        """Call `observer` with each accounted attempt; it neither waits nor raises (GAT-6)."""
        self._books.observe(observer)

    # -- reading ---------------------------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Counts."""
        return Statistics(
            admitted=self._admitted,
            waited=self._waited,
            attempts=self._attempts,
            discarded=self._books.discarded,
            cut=self._books.cut,
            pools=self._books.pools(),
        )

    def __repr__(self) -> str:
        return f"<Gateway {len(self._books.pools())} models, {self._attempts} attempts, {self._ledger!r}>"
