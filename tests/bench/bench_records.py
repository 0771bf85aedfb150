"""A turn on a conversation of 10,000 records beside a turn on one of 10: time, and bytes written.

`python tests/bench/bench_records.py [--records 10,10000] [--rounds 40]` prints one line of JSON.

Both conversations are of one supervisor on SQLite, and take turns; each turn is a message, a tool call and an answer,
which adds four records. The short one is a new agent each round, so that it stays short; the long one grows. `cpu_us`
is of the whole process, the store's thread too; `took_us` is from the message to the answer, flushes included;
`written_bytes` is what the process handed to the system to write (the log, and what checkpoints copy from it). The
ratio is the median over pairs; of bytes it is also the ratio of the sums, for a checkpoint meets few turns and is dear.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors import Script
from supervisor import open_supervisor
from tests.bench import measuring
from tests.bench.turn_work import ADDER, play

if TYPE_CHECKING:
    from supervisor import AgentRef, Supervisor

PER_MESSAGE: Final = 4
FIGURES: Final = ("cpu_us", "took_us", "written_bytes")


def written() -> int:
    """Bytes that this process has handed to the system to write, all threads together (Linux's /proc)."""
    for line in Path("/proc/self/io").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "wchar":
            return int(value)
    msg = "the system does not count what a process writes: /proc/self/io has no wchar"
    raise RuntimeError(msg)


async def grown(sup: Supervisor, records: int) -> AgentRef:
    """A new agent with about so many records."""
    ref = await sup.start(ADDER)
    for number in range(records // PER_MESSAGE):
        await ref.ask(f"message {number}")
    return ref


async def turn(ref: AgentRef) -> dict[str, float]:
    """What one message costs, to its answer."""
    bytes_, cpu, took = written(), time.process_time(), time.perf_counter()
    report = await ref.ask("one more")
    took, cpu, bytes_ = time.perf_counter() - took, time.process_time() - cpu, written() - bytes_
    assert report.text == "It is 3."
    return {"cpu_us": cpu * 1e6, "took_us": took * 1e6, "written_bytes": bytes_}


async def compared(short: int, long: int, rounds: int) -> dict[str, Any]:
    """Pairs of turns."""
    found: dict[str, list[dict[str, float]]] = {str(short): [], str(long): []}
    with tempfile.TemporaryDirectory(prefix="bench-records-") as folder:
        model = Script({"adder": play}, delta_chars=0)
        async with open_supervisor(model=model, store=Path(folder) / "records.db", agents=[ADDER]) as sup:
            aged = await grown(sup, long)
            for _ in range(rounds):
                found[str(short)].append(await turn(await grown(sup, short)))
                found[str(long)].append(await turn(aged))
    result: dict[str, Any] = {
        name: {figure: measuring.middle([one[figure] for one in many]) for figure in FIGURES}
        for name, many in found.items()
    }
    few, many = found[str(short)], found[str(long)]
    result["long_over_short"] = {
        figure: measuring.ratios([one[figure] for one in many], [one[figure] for one in few]) for figure in FIGURES
    }
    sums = [sum(one["written_bytes"] for one in turns) for turns in (many, few)]
    result["long_over_short"]["all_written_bytes"] = measuring.rounded(sums[0] / sums[1])
    return result


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", default="10,10000")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    short, long = (int(number) for number in options.records.split(","))
    measuring.emit("records", trio.run(compared, short, long, options.rounds))


if __name__ == "__main__":
    main()
