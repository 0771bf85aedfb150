"""From nothing to every agent with work found and read in, in a SQLite store of many agents.

`python tests/bench/bench_startup.py [--agents 100000] [--busy 100] [--rounds 5]` prints one line of JSON. `many`: the
store has so many agents, of which `busy` have an open turn and a message waiting. `few`: the same busy ones and three
idle. Seconds from `open_supervisor` to what `resume()` returns; `loads` is how many agents were read. `ratio`: many
over few, pair by pair: what the idle ones cost.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors import Script
from actors.models.script import hang
from supervisor import open_supervisor
from supervisor.store.sqlite import open_sqlite_store
from tests.bench import many_agents, measuring

if TYPE_CHECKING:
    from supervisor.store.base import Store, StoredAgent


async def started(store: Path) -> tuple[float, int, int]:
    """Seconds until `resume()` has returned, how many it returned, and how many agents were read."""
    script = Script({name: lambda _: ("half", hang()) for name in ("idle", "busy")})
    loads: list[object] = []
    specs = (many_agents.IDLE, many_agents.BUSY)
    began = time.perf_counter()
    async with open_sqlite_store(store, owner="bench") as opened:
        _count(opened, loads)
        async with open_supervisor(model=script, store=opened, agents=specs, grace=0) as sup:
            found = await sup.resume()
            return time.perf_counter() - began, len(found), len(loads)


def _count(store: Store, loads: list[object]) -> None:
    load = store.load_agent

    async def counted(agent: Any) -> StoredAgent | None:
        loads.append(agent)
        return await load(agent)

    store.load_agent = counted  # type: ignore[method-assign]  # to count


def measured(agents: int, busy: int, rounds: int) -> dict[str, Any]:
    """All rounds, many and few in turns."""
    seconds: dict[str, list[float]] = {"many": [], "few": []}
    loads: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="bench-startup-") as name:
        folder = Path(name)
        for size, idle in (("many", agents - busy), ("few", 3)):
            trio.run(partial(many_agents.make, folder / f"{size}.db", idle=idle, busy=busy))
        for turn in range(rounds):
            for size, rounds_s in seconds.items():
                store = folder / f"{size}-{turn}.db"
                shutil.copy(folder / f"{size}.db", store)  # each round finds it as it was left
                took, found, loads[size] = trio.run(started, store)
                assert found == busy, "all that have work, and no other"
                rounds_s.append(took)
                store.unlink()
    return {
        "agents": agents,
        "busy": busy,
        **{f"{size}_s": measuring.middle(took) for size, took in seconds.items()},
        "loads": loads["many"],
        "ratio": measuring.ratios(seconds["many"], seconds["few"]),
    }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--busy", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    measuring.emit("startup", measured(options.agents, options.busy, options.rounds))


if __name__ == "__main__":
    main()
