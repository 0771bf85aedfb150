"""Bytes and build time of an idle agent, and that none of them has a task.

`python tests/bench/bench_memory.py [--agents 10000] [--store memory|sqlite]` prints one line of JSON. `started`: each
was started and asked nothing yet. `settled`: each has answered one message (two model calls, one tool call) and is idle
again; what the store in memory holds of it is counted too, as is what the supervisor keeps per tree. Bytes are resident
memory of the process, after a collection of garbage, over the number of agents.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors import Script
from supervisor import AgentRef, open_supervisor
from tests.bench import measuring
from tests.bench.turn_work import ADDER, play

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

WARM = 20
AT_ONCE = 64


def resident_bytes() -> int:
    """Resident memory, after a collection."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def tasks() -> int:
    """All of Trio's tasks."""
    found, todo = 0, [trio.lowlevel.current_root_task()]
    while todo:
        task = todo.pop()
        if task is not None:
            found += 1
            todo += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


async def some_at_once(jobs: list[Callable[[], Awaitable[object]]]) -> None:
    """Do all of them, some at a time, so that a store can flush them in groups."""
    waiting = iter(jobs)

    async def hand() -> None:
        for job in waiting:
            await job()

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(hand)


async def measured(agents: int, store: Path | None) -> dict[str, Any]:
    """Build them, let them answer, and weigh them."""
    refs: list[AgentRef] = []
    async with open_supervisor(
        model=Script({"adder": play}, delta_chars=0), store=store, agents=[ADDER], permits=AT_ONCE
    ) as sup:

        async def started() -> None:
            refs.append(await sup.start(ADDER))

        for _ in range(WARM):
            await (await sup.start(ADDER)).ask("warm")
        tasks_before, bytes_before = tasks(), resident_bytes()
        found: dict[str, Any] = {}
        steps: list[tuple[str, list[Callable[[], Awaitable[object]]]]] = [
            ("started", [started] * agents),
            ("settled", []),
        ]
        for name, jobs in steps:
            begun, cpu = time.perf_counter(), time.process_time()
            await some_at_once(jobs or [lambda ref=ref: ref.ask("2 + 3?") for ref in refs])  # type: ignore[misc]
            took, cpu = time.perf_counter() - begun, time.process_time() - cpu
            await trio.lowlevel.checkpoint()  # the last tasks end
            found[name] = {
                "bytes_per_agent": round((resident_bytes() - bytes_before) / agents),
                "us_per_agent": round(took / agents * 1e6, 1),
                "cpu_us_per_agent": round(cpu / agents * 1e6, 1),
                "tasks": tasks() - tasks_before,
            }
            assert found[name]["tasks"] == 0, "an idle agent has no task"
    return found


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--store", choices=("memory", "sqlite"), default="memory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-memory-") as folder:
        store = Path(folder) / "memory.db" if options.store == "sqlite" else None
        found = trio.run(measured, options.agents, store)
    measuring.emit("memory", {"agents": options.agents, "store": options.store, **found})


if __name__ == "__main__":
    main()
