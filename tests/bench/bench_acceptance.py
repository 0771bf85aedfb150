"""From `send()` to accepted, which is on disk: p50 and p99, beside a bare insert into the same disk's log.

`python tests/bench/bench_acceptance.py [--senders 1,10,100] [--seconds 2] [--rounds 3] [--busy 20]` prints one line of
JSON.

`ours` sends to agents that are paused, so that nothing but acceptance is measured; each sender sends again as soon as
the last message is accepted, and each has an agent of its own. `bare` inserts a row of the same size through the group
writer of ceiling.py. Both take turns; ratios are taken pair by pair. `busy` is one sender while so many other agents of
the same supervisor answer message after message.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors import Agent, LaneBound, Limits, Script
from supervisor import open_supervisor
from tests.bench import measuring
from tests.bench.ceiling import GroupWriter, send
from tests.bench.turn_work import ADDER, play

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BODY: Final = "x" * 440
ROOMY: Final = LaneBound(messages=1_000_000, size_bytes=1_000_000_000)


async def senders(sends: list[Callable[[], Awaitable[object]]], seconds: float) -> dict[str, float]:
    """Each again and again; milliseconds."""
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def one(send: Callable[[], Awaitable[object]]) -> None:
        while (began := time.perf_counter()) < end:
            await send()
            took.append((time.perf_counter() - began) * 1e3)

    async with trio.open_nursery() as nursery:
        for send in sends:
            nursery.start_soon(one, send)
    took.sort()
    return {"p50_ms": took[len(took) // 2], "p99_ms": took[len(took) * 99 // 100], "accepted_s": len(took) / seconds}


async def ours(folder: Path, count: int, seconds: float, busy: int) -> dict[str, float]:
    """A round of ours: `count` senders, and `busy` agents at work beside them."""
    patient = Agent("patient", "Wait.", limits=Limits(send=ROOMY))
    model = Script({"adder": play}, delta_chars=0)
    async with (
        open_supervisor(
            model=model, store=folder / "ours.db", agents=[ADDER, patient], permits=max(8, busy), on_exit="suspend"
        ) as sup,
        trio.open_nursery() as nursery,
    ):
        sends: list[Callable[[], Awaitable[object]]] = []
        for _ in range(count):
            ref = await sup.start(patient)
            await ref.pause()
            sends.append(partial(ref.send, BODY))

        async def works() -> None:
            ref = await sup.start(ADDER)
            while True:
                await ref.ask("go on")

        for _ in range(busy):
            nursery.start_soon(works)
        found = await senders(sends, seconds)
        nursery.cancel_scope.cancel()
    return found


async def bare(folder: Path, count: int, seconds: float) -> dict[str, float]:
    """A round of the group writer."""
    writer = GroupWriter(folder / "bare.db", count, BODY)

    def insert(to: int) -> Callable[[], Awaitable[object]]:
        return lambda: writer.do(lambda cursor: send(cursor, to, BODY))

    found = await senders([insert(to) for to in range(count)], seconds)
    writer.close()
    return found


def compared(count: int, seconds: float, rounds: int, busy: int) -> dict[str, Any]:
    """Both in turns."""
    found: dict[str, list[dict[str, float]]] = {"ours": [], "bare": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="bench-acceptance-") as folder:
            found["ours"].append(trio.run(ours, Path(folder), count, seconds, busy))
            found["bare"].append(trio.run(bare, Path(folder), count, seconds))
    result: dict[str, Any] = {
        name: {figure: measuring.middle([one[figure] for one in many]) for figure in many[0]}
        for name, many in found.items()
    }
    result["ours_over_bare"] = {
        figure: measuring.ratios(*([one[figure] for one in many] for many in found.values()))
        for figure in ("p50_ms", "p99_ms")
    }
    return result


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--senders", default="1,10,100")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", type=int, default=20)
    options = parser.parse_args()
    numbers = [int(number) for number in options.senders.split(",")]
    found = {f"{count} senders": compared(count, options.seconds, options.rounds, 0) for count in numbers}
    if options.busy:
        name = f"1 sender beside {options.busy} agents at work"
        found[name] = compared(1, options.seconds, options.rounds, options.busy)
    measuring.emit("acceptance", found)


if __name__ == "__main__":
    main()
