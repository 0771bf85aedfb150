"""CPU per model call at message 1, 100 and 1,000 of one conversation, beside a bare loop and, where given, a peer.

`python tests/bench/bench_turns.py [--rounds 5] [--messages 1000] [--peer PYTHON SCRIPT]` prints one line of JSON.

Each subject runs in a process of its own, in turns (memory, sqlite, floor, peer, memory, …); ratios are taken within a
round. CPU is of the whole process (the store's threads too) in microseconds. `at_1` is the mean over fresh
conversations of one message; `at_100` and `at_1000` are medians over the last messages up to there; `mean` is over
the whole conversation, collections of garbage included. Opening a conversation is in none of them. A peer's script
takes `turns --n MESSAGES --reps 1` and prints a JSON object whose `cpu_us_per_call` and `cpu_us_per_call_at_end` have
a `med`.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import measuring
from tests.bench.turn_work import CALLS_PER_MESSAGE, SUBJECTS

WARM = 3
FRESH = 100
COUNTED = 50


async def measured(subject: str, messages: int, fresh: int) -> dict[str, float]:
    """Microseconds of CPU per model call of one subject in this process."""
    async with SUBJECTS[subject]() as opened:
        say = await opened()
        for _ in range(WARM):
            assert "3" in await say("warm")
        alone = 0.0
        for number in range(fresh):
            say = await opened()
            before = time.process_time()
            await say(f"message {number}")
            alone += time.process_time() - before
        say = await opened()
        took: list[float] = []
        for number in range(messages):
            before = time.process_time()
            await say(f"message {number}")
            took.append(time.process_time() - before)
        assert "3" in await say("last"), "the last message is answered like the first"
    found = {"at_1": alone / fresh, "mean": statistics.fmean(took)}
    for point in (100, 1_000):
        if messages >= point:
            found[f"at_{point}"] = statistics.median(took[point - max(10, point // 20) : point])
    return {name: seconds / CALLS_PER_MESSAGE * 1e6 for name, seconds in found.items()}


async def counted(subject: str) -> dict[str, float]:
    """Calls of functions per model call on the Trio thread, Python's and built-in ones: figures without noise."""
    async with SUBJECTS[subject]() as opened:
        say = await opened()
        for _ in range(WARM):
            await say("warm")
        profile = cProfile.Profile()
        profile.enable()
        for number in range(COUNTED):
            await say(f"message {number}")
        profile.disable()
    python = builtin = 0
    for (file, _, _), (_, calls, _, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if file == "~":
            builtin += calls
        else:
            python += calls
    calls_made = COUNTED * CALLS_PER_MESSAGE
    return {"python": round(python / calls_made, 1), "builtin": round(builtin / calls_made, 1)}


def of_peer(python: str, script: str, messages: int) -> dict[str, float]:
    """The same three points of a peer; `cpu_us_per_call_at_end` is its median over the last messages."""
    found: dict[str, float] = {}
    for point in (1, 100, 1_000):
        if point <= messages:
            asked = ["turns", "--n", str(point), "--reps", "1", "--inner", str(FRESH)]
            said = measuring.in_child([python, script, *asked])
            found[f"at_{point}"] = said["cpu_us_per_call" if point == 1 else "cpu_us_per_call_at_end"]["med"]
            found["version"] = said.get("version", "?")
    return found


def compared(options: argparse.Namespace) -> dict[str, Any]:
    """All subjects in turns."""
    rounds: list[dict[str, dict[str, float]]] = []
    for _ in range(options.rounds):
        found = {}
        for subject in SUBJECTS:
            one = ["--one", subject, "--messages", str(options.messages), "--fresh", str(options.fresh)]
            found[subject] = measuring.in_child([sys.executable, __file__, *one])
        if options.peer:
            found["peer"] = of_peer(options.peer[0], options.peer[1], options.messages)
        rounds.append(found)
    result: dict[str, Any] = {"cpu_us_per_model_call": {}, "over_floor": {}, "over_peer": {}, "growth": {}}
    for subject, first in rounds[0].items():
        points = [point for point in first if point != "version"]
        of = {point: [one[subject][point] for one in rounds] for point in points}
        result["cpu_us_per_model_call"][subject] = {point: measuring.middle(of[point]) for point in points}
        if "at_1000" in of:
            result["growth"][subject] = measuring.ratios(of["at_1000"], of["at_1"])
        for other in ("floor", "peer"):
            if other in rounds[0] and subject not in {"floor", "peer"}:
                result[f"over_{other}"][subject] = {
                    point: measuring.ratios(of[point], [one[other][point] for one in rounds])
                    for point in points
                    if point in rounds[0][other]
                }
    if options.peer:
        result["peer"] = {"script": Path(options.peer[1]).name, "version": rounds[0]["peer"].get("version")}
    result["function_calls_per_model_call"] = {subject: trio.run(counted, subject) for subject in SUBJECTS}
    return result


def main() -> None:
    """One subject (in a child), or all in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--fresh", type=int, default=FRESH, help="conversations of one message, for at_1")
    parser.add_argument("--peer", nargs=2, metavar=("PYTHON", "SCRIPT"))
    parser.add_argument("--one", choices=SUBJECTS, help="one subject in this process only")
    options = parser.parse_args()
    if options.one:
        sys.stdout.write(json.dumps(trio.run(measured, options.one, options.messages, options.fresh)) + "\n")
    else:
        measuring.emit("turns", compared(options))


if __name__ == "__main__":
    main()
