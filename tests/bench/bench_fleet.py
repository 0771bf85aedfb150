"""Durable turns per second of 1, 10, 100 and 1,000 agents on SQLite, beside a ceiling in the same run.

`python tests/bench/bench_fleet.py [--agents 1,10,100,1000] [--seconds 2] [--rounds 3]` prints one line of JSON.

Ours: for each agent one task that asks it again and again; a turn is two model calls (which take no time) and one
tool call, and everything we promise of it is on disk. The ceiling (ceiling.py) makes three commits a turn and promises
nothing. Both take turns; the ratio is taken pair by pair. Latency is from the message to the answer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors import Agent, Script
from actors.transcript import ResultRecord
from supervisor import open_supervisor
from tests.bench import measuring
from tests.bench.ceiling import GroupWriter, Ring
from tests.bench.turn_work import ADD, add

if TYPE_CHECKING:
    from collections.abc import Sequence

    from supervisor import AgentRef

BODY = "x" * 440
WORKER = Agent("worker", "Do what you are asked to.", tools=[add])


def play(request: Any) -> object:
    """Ask for the tool, then answer at length."""
    return BODY if isinstance(request.window[-1], ResultRecord) else ADD


def figures(
    latencies_s: Sequence[float], *, took_s: float, cpu_s: float, commits: int, flushes: int
) -> dict[str, float]:
    """One round's figures."""
    ordered = sorted(latencies_s)
    turns = len(ordered)
    return {
        "turns_s": turns / took_s,
        "cpu_us_per_turn": cpu_s / turns * 1e6,
        "commits_per_turn": commits / turns,
        "commits_per_flush": commits / flushes,
        "p50_ms": ordered[turns // 2] * 1e3,
        "p99_ms": ordered[min(turns - 1, turns * 99 // 100)] * 1e3,
    }


async def ours(folder: Path, agents: int, seconds: float) -> dict[str, float]:
    """A round of ours."""
    latencies: list[float] = []
    model = Script({"worker": play}, delta_chars=0)
    async with open_supervisor(model=model, store=folder / "fleet.db", agents=[WORKER], permits=max(8, agents)) as sup:
        refs: list[AgentRef] = []

        async def opened() -> None:
            ref = await sup.start(WORKER)
            await ref.ask(BODY)
            refs.append(ref)

        async with trio.open_nursery() as nursery:
            for _ in range(agents):
                nursery.start_soon(opened)
        before = sup.store.statistics()
        start, cpu = time.perf_counter(), time.process_time()

        async def asked(ref: AgentRef) -> None:
            while (began := time.perf_counter()) < start + seconds:
                await ref.ask(BODY)
                latencies.append(time.perf_counter() - began)

        async with trio.open_nursery() as nursery:
            for ref in refs:
                nursery.start_soon(asked, ref)
        took, cpu = time.perf_counter() - start, time.process_time() - cpu
        after = sup.store.statistics()
    commits, flushes = after.commits - before.commits, after.flushes - before.flushes
    return figures(latencies, took_s=took, cpu_s=cpu, commits=commits, flushes=flushes)


async def ceiling(folder: Path, agents: int, seconds: float) -> dict[str, float]:
    """A round of the ceiling."""
    writer = GroupWriter(folder / "ceiling.db", agents, BODY)
    start, cpu = time.perf_counter(), time.process_time()
    ring = Ring(writer, agents, seconds, BODY)
    await ring.run()
    took, cpu = time.perf_counter() - start, time.process_time() - cpu
    writer.close()
    return figures(ring.latencies_s, took_s=took, cpu_s=cpu, commits=writer.commits, flushes=writer.flushes)


def compared(agents: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Both in turns, with so many agents."""
    found: dict[str, list[dict[str, float]]] = {"ours": [], "ceiling": []}
    for _ in range(rounds):
        for name, of in (("ours", ours), ("ceiling", ceiling)):
            with tempfile.TemporaryDirectory(prefix="bench-fleet-") as folder:
                found[name].append(trio.run(of, Path(folder), agents, seconds))
    result: dict[str, Any] = {
        name: {key: measuring.middle([one[key] for one in many]) for key in many[0]} for name, many in found.items()
    }
    result["share_of_ceiling"] = measuring.ratios(*([one["turns_s"] for one in many] for many in found.values()))
    return result


def main() -> None:
    """Every number of agents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", default="1,10,100,1000")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    numbers = [int(number) for number in options.agents.split(",")]
    found = {str(number): compared(number, options.seconds, options.rounds) for number in numbers}
    measuring.emit("fleet", {"agents": found})


if __name__ == "__main__":
    main()
