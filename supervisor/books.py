"""What the gateway keeps per model, and how it counts: estimates before an attempt, accounting after it.

Sync throughout: between a decision here and the numbers of the ledger nothing else runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

from msgspec.structs import replace

from actors.budget import Dimension
from actors.errors import Exhausted, ProviderError, UsageError
from actors.usage import MICROSECONDS, NOTHING, Amounts, Usage

from .gate import Estimator, estimated_cost, no_price, price_of, usage_of, usage_of_failed
from .pools import Pool, PoolStatistics, Rate
from .tickets import Accounted, Attempt, Book, GateTicket

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.ids import AgentId
    from actors.ports import Model, Response
    from actors.usage import Price

    from .ledger import Ledger

PERMITS: Final = 8
WRAP_UP_SECONDS: Final = 60


@final
class Books:
    """The models that were asked, and the accounts of what they took.

    GATEWAY-2 each attempt is accounted once, on every path out (REQ-7).
    """

    def __init__(
        self,
        ledger: Ledger,
        prices: Mapping[str, Price],
        permits: int | Mapping[str, int],
        rates: Mapping[str, Rate],
        clock: Callable[[], float],
    ) -> None:
        sizes = permits.values() if isinstance(permits, Mapping) else (permits,)
        if any(size < 1 for size in sizes):
            raise UsageError(f"a model needs at least one permit, or nothing could ask it; got {permits!r}")
        self._ledger = ledger
        self._prices = dict(prices)
        self._permits = permits
        self._rates = dict(rates)
        self._clock = clock
        self._books: dict[str, Book] = {}
        self._observers: list[Callable[[Accounted], None]] = []
        self._told: list[Callable[[AgentId, Amounts], None]] = []
        self.discarded = self.cut = 0

    # -- models ----------------------------------------------------------------------------------------------------

    def chain(self, agent: AgentId, models: tuple[Model, ...]) -> tuple[Book, ...]:
        """The books of a fallback chain.

        Raises:
            UsageError: no model, or one without a price where a cost limit binds (BUD-9).
        """
        if not models:
            raise UsageError(
                f"{agent} has no model to ask; give one to open_supervisor(model=...) or Agent(model=...),"
                " such as 'openai:gpt-5-mini', or a Script"
            )
        chain = tuple([self._books.get(model.id) or self._open(model) for model in models])
        for book, model in zip(chain, models, strict=True):
            if book.price is None and self._ledger.remaining(agent, Dimension.COST) is not None:
                raise no_price(model, agent)
        return chain

    def _open(self, model: Model) -> Book:
        size = self._permits.get(model.id, PERMITS) if isinstance(self._permits, Mapping) else self._permits
        pool = Pool(model.id, size, self._rates.get(model.id), self._clock())
        book = self._books[model.id] = Book(model.id, pool, Estimator(), price_of(model, self._prices))
        return book

    def promote(self, agent: AgentId) -> None:
        """The agent's requests go first at every model."""
        for book in self._books.values():
            book.pool.promote(agent)

    def pools(self) -> tuple[PoolStatistics, ...]:
        """Counts of the pools."""
        return tuple(book.pool.statistics() for book in self._books.values())

    # -- before an attempt -----------------------------------------------------------------------------------------

    def asked(self, ticket: GateTicket) -> Amounts:
        """The estimate of the next attempt."""
        book = ticket.book
        ticket.estimate = fresh = book.estimator.input_tokens(ticket.request_bytes)
        out = book.estimator.output_tokens(ticket.max_output_tokens)
        return Amounts(fresh, out, estimated_cost(book.price, fresh, out), 1)

    def extend(self, agent: AgentId, asked: Amounts) -> None:
        """Make room for the one last response, time included where time is bounded (BUD-5)."""
        timed = self._ledger.remaining(agent, Dimension.SECONDS) is not None
        active = WRAP_UP_SECONDS * MICROSECONDS if timed else 0
        try:
            self._ledger.extend_once(agent, replace(asked, active_us=active))
        except Exhausted:
            self.refused(agent)
            raise

    def reserve(self, ticket: GateTicket, asked: Amounts) -> None:
        """Hold the estimate (BUD-2). Raises `Exhausted`."""
        try:
            ticket.reservation = self._ledger.reserve(ticket.agent, asked)
        except Exhausted:
            self.refused(ticket.agent)
            raise
        ticket.held = asked

    def out_of_time(self, agent: AgentId, asked: int) -> Exhausted:
        """The error of a request whose time has run out under way, `asked` microseconds in."""
        error = self._ledger.exhausted(agent, Dimension.SECONDS, asked)
        self.refused(agent)
        return error

    def refused(self, agent: AgentId) -> None:
        """The budget ended something: whoever watches spending may want to know now (BUD-4)."""
        for told in self._told:
            told(agent, NOTHING)

    def release(self, ticket: GateTicket) -> None:
        """Give back what was reserved and not used."""
        if ticket.reservation is not None:
            self._ledger.release(ticket.reservation)
            ticket.reservation = None
            ticket.held = NOTHING

    def beyond(self, agent: AgentId, written: Amounts) -> Amounts:
        """What the account has and the row has not: of requests that were cut, or whose commit failed (BUD-7).

        Tool calls are given back: they were granted to an answer that was never written, so none of them ran (TOL-2).
        """
        more = self._ledger.snapshot(agent).own - written
        if more.tool_calls > 0:
            self._ledger.take_calls(agent, -more.tool_calls)
        return Amounts(
            max(more.input_tokens, 0),
            max(more.output_tokens, 0),
            max(more.cost, 0),
            max(more.model_calls, 0),
        )

    # -- after an attempt ------------------------------------------------------------------------------------------

    def observe(self, observer: Callable[[Accounted], None]) -> None:
        """Call `observer` with each accounted attempt."""
        self._observers.append(observer)

    def watch_spending(self, told: Callable[[AgentId, Amounts], None]) -> None:
        """Call `told` after each accounted attempt, with its overrun."""
        self._told.append(told)

    def account(self, ticket: GateTicket, attempt: Attempt, response: Response) -> tuple[Usage, int | None]:
        """Count a whole answer. Returns its tokens, and its cost where a price is known."""
        reported, book = response.usage, ticket.book
        usage = usage_of(reported, ticket.estimate, attempt.output_bytes)
        cost = None if book.price is None else book.price.cost(usage)
        if attempt.open:  # not where it was cut in the moment in which it was whole
            if reported is not None:
                book.estimator.observe(ticket.request_bytes, reported)
            self._settle(ticket, attempt, usage, cost, outcome="ok")
        return usage, cost

    def account_failed(self, ticket: GateTicket, attempt: Attempt, error: ProviderError | None) -> None:
        """Count an attempt without a whole answer, unless that was done; `error` None: it was cancelled."""
        if not attempt.open:
            return
        usage = usage_of_failed(error, ticket.estimate, attempt.output_bytes)
        price = ticket.book.price
        cost = None if price is None else price.cost(usage)
        if error is None:
            self.cut += 1
            self._settle(ticket, attempt, usage, cost, outcome="cut")
        else:
            self.discarded += 1
            self._settle(ticket, attempt, usage, cost, outcome="failed", error=f"{error.kind}: {error.reason}")

    def _settle(
        self,
        ticket: GateTicket,
        attempt: Attempt,
        usage: Usage,
        cost: int | None,
        *,
        outcome: str,
        error: str | None = None,
    ) -> None:
        """Turn the reservation of an attempt into spending, once (GATEWAY-2)."""
        assert attempt.open, "GATEWAY-2: accounted before"
        assert ticket.reservation is not None, "TICKET-2: an open attempt has its reservation"
        attempt.open = False
        spent = Amounts(usage.input_tokens, usage.output_tokens, cost or 0, 1)
        overrun = self._ledger.settle(ticket.reservation, spent)
        if ticket.book.pool.timed:
            ticket.book.pool.correct(ticket.held.tokens, spent.tokens, self._clock())
        ticket.reservation = None
        ticket.held = NOTHING
        ticket.count(usage, cost, spent)
        for told in self._told:
            told(ticket.agent, overrun)
        if self._observers:
            record = Accounted(
                request=attempt.request,
                number=attempt.number,
                agent=ticket.agent,
                model=ticket.model,
                outcome=outcome,
                error=error,
                usage=usage,
                cost=cost,
                overrun=overrun,
                latency_s=self._clock() - attempt.started_at,
                queued_s=ticket.queued_s,
            )
            for observer in self._observers:
                observer(record)
