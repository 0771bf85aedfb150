"""What a model call costs beside the model: ledger, gateway, wait-for graph, frames.

`python tests/bench/bench_gate.py [--rounds 40]` prints one line of JSON: microseconds of this thread's CPU, the best of
many rounds. The model answers at once and streams nothing, one piece, or a hundred and one; chains of accounts are
three deep with two budgets; nothing waits for a permit. `scope_us` is Trio's own cancel scope with a deadline, of which
a call needs one: a yardstick for the machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import timeit
from pathlib import Path
from typing import TYPE_CHECKING

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors.budget import Budget
from actors.conversation import Conversation
from actors.frames import Frames
from actors.ids import AgentId, RequestId
from actors.ports import ModelRequest, ReportedUsage, Response, TextPiece
from actors.transcript import Stop, TextBlock
from actors.usage import Amounts, Price
from actors.waiting import Frame
from supervisor.gateway import Gateway
from supervisor.ledger import Ledger
from supervisor.waits import WaitGraph
from tests.bench import measuring

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.errors import ProviderError
    from actors.ports import Emit, Piece

LEAF = AgentId("lead/mid/leaf")
ANSWER = Response((TextBlock("hello"),), Stop.END_TURN, ReportedUsage(10, 5))
PIECE = TextPiece("hello")
CALLS = 200


class Instant:
    """A model that answers at once."""

    id, name, free, context_window = "test:m", "m", False, None

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        """Stream, and answer."""
        for _ in range(self.pieces):
            emit(PIECE)
        return ANSWER


class Deaf:
    """A watch that does nothing."""

    def attempt(self, number: int, model_id: str, estimate: int) -> None:
        """Nothing."""

    def piece(self, piece: Piece) -> None:
        """Nothing."""

    def discarded(self, error: ProviderError, retry_in_s: float | None) -> None:
        """Nothing."""


def ledger() -> Ledger:
    """Three accounts, two of them bounded."""
    made = Ledger()
    made.open(AgentId("lead"), "", Budget(usd="1000000", tokens=10**12, model_calls=10**9))
    made.open(AgentId("lead/mid"), "lead")
    made.open(LEAF, "lead/mid", Budget(usd="1000000", tokens=10**12))
    return made


def best(fn: Callable[[], object], rounds: int) -> float:
    """Microseconds of one call."""
    return round(min(timeit.repeat(fn, number=1000, repeat=rounds, timer=time.thread_time)) * 1000, 2)


async def per_call(pieces: int, rounds: int) -> float:
    """Microseconds of admission, call and the model itself."""
    gateway, model, watch = Gateway(ledger(), prices={"m": Price("1", "2")}), Instant(pieces), Deaf()
    request = ModelRequest(RequestId("lead/mid/leaf:t1.1"), LEAF, "m", "", Conversation().window())
    fastest = float("inf")
    for _ in range(rounds):
        began = time.thread_time()
        for _ in range(CALLS):
            ticket = gateway.admit_nowait(LEAF, (model,), 1000)
            assert ticket is not None
            await gateway.call(ticket, request, watch)
        fastest = min(fastest, time.thread_time() - began)
    return round(fastest / CALLS * 1e6, 1)


def over_a_chain(length: int, rounds: int) -> float:
    """Microseconds of opening and closing a wait that leads into a chain of others, and could lead back."""
    graph = WaitGraph()
    for i in range(length):
        graph.begin(Frame(AgentId(f"n{i}"), 1, "tool", "t"), (AgentId(f"n{i + 1}"),))
    mine, first = Frame(AgentId("x"), 1, "tool", "t"), (AgentId("n0"),)
    graph.begin(Frame(AgentId("user"), 1, "tool", "t"), (AgentId("x"),))
    return round(
        min(
            timeit.repeat(lambda: graph.end(graph.begin(mine, first)), number=20, repeat=rounds, timer=time.thread_time)
        )
        / 20
        * 1e6,
        1,
    )


async def measure(rounds: int) -> dict[str, object]:
    """All figures."""
    accounts, frames, frame = ledger(), Frames(), Frame(LEAF, 1, "tool", "t")
    asked, actual = Amounts(100, 50, 1000, 1), Amounts(90, 40, 900, 1)

    def enter() -> None:
        with frames.enter(frame):
            pass

    def scope() -> None:
        with trio.CancelScope(deadline=1e9):  # noqa: ASYNC100, ASYNC125 - it is the scope that is measured
            pass

    return {
        "scope_us": best(scope, rounds),
        "reserve_settle_us": best(lambda: accounts.settle(accounts.reserve(LEAF, asked), actual), rounds),
        "reserve_release_us": best(lambda: accounts.release(accounts.reserve(LEAF, asked)), rounds),
        "call_us": {pieces: await per_call(pieces, rounds) for pieces in (0, 1, 101)},
        "wait_over_chain_us": {length: over_a_chain(length, rounds) for length in (1, 10, 100, 1000)},
        "frame_us": best(enter, rounds),
        "owner_us": best(frames.current_owner, rounds),
        "machine": measuring.machine(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    print(json.dumps(trio.run(measure, parser.parse_args().rounds)))


if __name__ == "__main__":
    main()
