"""Processes that write one store without a pause: how long each waits for its turn, beside SQLite's own waiting.

`python tests/bench/bench_writers.py [--seconds 5] [--writers 1,2,4]` prints one line of JSON. `ours` commits a counter
through a store, one commit after the other; `bare` does the same on a bare connection with `BEGIN IMMEDIATE` and
SQLite's busy timeout. `wait_ms` is a commit's time, flush included, of all writers together; `most_ms` the longest of
the run; `least_share` the commits of the slowest process by those of the fastest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import apsw
import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors.changes import Bump, ChangeSet
from actors.ids import TreeId
from supervisor.store.sqlite import open_sqlite_store
from tests.bench import measuring

BUSY_MS = 60_000


async def ours(store: str, until: float) -> list[float]:
    """Seconds of each commit."""
    times = []
    async with open_sqlite_store(store, owner="bench_writers") as opened:
        await opened.commit(ChangeSet(TreeId(""), None, (Bump("n"),)))
        while time.time() < until:
            began = time.perf_counter()
            await opened.commit(ChangeSet(TreeId(""), None, (Bump("n"),)))
            times.append(time.perf_counter() - began)
    return times


def bare(store: str, until: float) -> list[float]:
    """Seconds of each commit, on a bare connection."""
    times = []
    db = apsw.Connection(store)
    db.set_busy_timeout(BUSY_MS)
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        db.execute(f"PRAGMA {pragma}").fetchall()
    db.execute("CREATE TABLE IF NOT EXISTS n (n INTEGER)")
    while time.time() < until:
        began = time.perf_counter()
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO n VALUES (1)")
        db.execute("COMMIT")
        times.append(time.perf_counter() - began)
    db.close()
    return times


def together(kind: str, writers: int, seconds: float) -> dict[str, Any]:
    """So many processes, all at a time."""
    with tempfile.TemporaryDirectory() as folder:
        until = time.time() + 2.0 + seconds  # two seconds to begin
        command = [sys.executable, __file__, "--write", kind, "--store", f"{folder}/n.db", "--until", str(until)]
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(writers)]
        said: list[list[float]] = [json.loads(process.communicate()[0]) for process in processes]
    times = sorted(second * 1e3 for one in said for second in one)
    counts = [len(one) for one in said]
    return {
        "commits": len(times),
        "wait_ms": {
            "median": measuring.rounded(statistics.median(times)),
            "p99": measuring.rounded(times[len(times) * 99 // 100]),
        },
        "most_ms": measuring.rounded(times[-1]),
        "least_share": measuring.rounded(min(counts) / max(counts)),
    }


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--writers", default="1,2,4")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        until = options.until
        times = trio.run(ours, options.store, until) if options.write == "ours" else bare(options.store, until)
        print(json.dumps(times))
        return
    found = {
        f"{writers} writers": {kind: together(kind, int(writers), options.seconds) for kind in ("ours", "bare")}
        for writers in options.writers.split(",")
    }
    measuring.emit("writers", found)


if __name__ == "__main__":
    main()
