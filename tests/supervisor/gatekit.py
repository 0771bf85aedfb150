"""A gateway over a model that plays steps, for the tests of the gateway."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import trio
import trio.testing

from actors.budget import Budget, Limits
from actors.conversation import Conversation
from actors.ids import AgentId, RequestId
from actors.ports import ModelRequest, ReportedUsage, Response
from actors.transcript import Stop, TextBlock
from actors.usage import NOTHING, Price
from supervisor.gateway import Gateway
from supervisor.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.errors import ProviderError
    from actors.ports import Emit, Model, Piece, Served
    from supervisor.tickets import Accounted, GateTicket

    Step = Callable[[ModelRequest, Emit], Awaitable[Response]]


STEPS = itertools.count(1)
LEAD, KID = AgentId("lead"), AgentId("lead/kid")
HELLO = Response((TextBlock("hello"),), Stop.END_TURN, ReportedUsage(10, 5, 4, 2, 1))
PRICE = Price(input="1", output="10", cached="0.1", cache_write="2")


def request(agent: AgentId = LEAD, model: str = "m") -> ModelRequest:
    """A request of its own, with an empty window."""
    return ModelRequest(RequestId(f"{agent}:t1.{next(STEPS)}"), agent, model, "Be brief.", Conversation().window())


class Steps:
    """A model that takes one step per request; the last is repeated."""

    def __init__(self, *steps: object, name: str = "m", free: bool = False) -> None:
        self.steps = list(steps)
        self.id = f"test:{name}"
        self.name = name
        self.free = free
        self.context_window = None
        self.asked: list[str] = []
        self.running = self.most = 0

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        self.asked.append(request.model)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
            await trio.lowlevel.checkpoint()
            match step:
                case Response():
                    return step
                case BaseException():
                    raise step
                case float() | int():
                    await trio.sleep(step)
                    return HELLO
                case _:
                    return await step(request, emit)  # type: ignore[no-any-return,operator]
        finally:
            self.running -= 1


def pieces(*plan: object, end: object = HELLO) -> Step:
    """A step that emits pieces and sleeps numbers, then answers, raises, or hangs on None."""

    async def step(request: ModelRequest, emit: Emit) -> Response:
        for part in plan:
            if isinstance(part, int | float):
                await trio.sleep(part)
            else:
                emit(part)  # type: ignore[arg-type]
        if isinstance(end, Exception):
            raise end
        if end is None:
            await trio.sleep_forever()
        assert isinstance(end, Response)
        return end

    return step


class Notes:
    """A watch that remembers."""

    def __init__(self) -> None:
        self.attempts: list[tuple[int, str]] = []
        self.pieces: list[Piece] = []
        self.failed: list[tuple[str, float | None]] = []

    def attempt(self, number: int, model_id: str, estimate: int) -> None:
        assert estimate > 0
        self.attempts.append((number, model_id))

    def piece(self, piece: Piece) -> None:
        self.pieces.append(piece)

    def discarded(self, error: ProviderError, retry_in_s: float | None) -> None:
        self.failed.append((error.reason, retry_in_s))


class Rig:
    """A gateway over a small tree, with all that must be even at the end."""

    def __init__(self, budget: Budget | None = None, **options: object) -> None:
        self.ledger = Ledger()
        self.ledger.open(LEAD, "", budget)
        self.ledger.open(KID, LEAD)
        options.setdefault("prices", {"m": PRICE, "n": PRICE})
        self.gateway = Gateway(self.ledger, rng=random.Random(7), **options)  # type: ignore[arg-type]
        self.accounted: list[Accounted] = []
        self.gateway.observe(self.accounted.append)
        self.notes = Notes()
        self.ticket: GateTicket | None = None

    async def ask(
        self, *models: Model, agent: AgentId = LEAD, limits: Limits | None = None, size: int = 300
    ) -> Response:
        self.ticket = await self.gateway.admit(agent, models, size, limits=limits or Limits())
        return (await self.call(self.ticket, request(agent, models[0].name))).response

    async def call(self, ticket: GateTicket, asked: ModelRequest) -> Served:
        """A call that nobody cuts."""
        served = await self.gateway.call(ticket, asked, self.notes)
        assert served is not None
        return served

    def check_even(self) -> None:
        """GATEWAY-1: nothing is held; and the ledger has what the tickets were charged (REQ-7)."""
        assert self.ledger.statistics().reservations == 0
        assert all(pool.held == 0 and pool.waiting == 0 for pool in self.gateway.statistics().pools)
        total = sum((self.ledger.snapshot(agent).own for agent in (LEAD, KID)), NOTHING)
        tokens = sum(record.usage.total_tokens for record in self.accounted)
        assert (total.tokens, total.model_calls) == (tokens, len(self.accounted))
        assert total.cost == sum(record.cost or 0 for record in self.accounted)
        assert len({(record.request, record.number, record.agent) for record in self.accounted}) == len(self.accounted)
