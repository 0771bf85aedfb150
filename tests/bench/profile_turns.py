"""Where a model call's time goes: the hot path's functions by own time and by calls; a helper, not a benchmark.

`python tests/bench/profile_turns.py [memory|sqlite|floor] [--messages 500] [--sort tottime|ncalls|cumtime]` prints a
table per model call. A profile makes functions look dear and built-ins cheap: trust the numbers of calls, and
take times as a hint where to look. `--instructions` counts the processor's instructions per model call instead, under
valgrind (twice, with and without the messages, so that the start is taken off); this figure has no noise.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import re
import subprocess
import sys
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.turn_work import CALLS_PER_MESSAGE, SUBJECTS

ROOT = Path(__file__).resolve().parents[2]
WARM = 3


async def played(subject: str, messages: int, profile: cProfile.Profile | None) -> None:
    """One conversation."""
    async with SUBJECTS[subject]() as opened:
        say = await opened()
        for _ in range(WARM):
            await say("warm")
        if profile is not None:
            profile.enable()
        for number in range(messages):
            await say(f"message {number}")
        if profile is not None:
            profile.disable()


def table(profile: cProfile.Profile, calls: int, *, sort: str, lines: int) -> str:
    """The functions, per model call."""
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    rows = [
        (name, ncalls / calls, own / calls * 1e6, cumulative / calls * 1e6)
        for name, (_, ncalls, own, cumulative, _) in stats.items()
    ]
    key = {"ncalls": 1, "tottime": 2, "cumtime": 3}[sort]
    rows.sort(key=lambda row: row[key], reverse=True)
    python = sum(row[1] for row in rows if row[0][0] != "~")
    builtin = sum(row[1] for row in rows if row[0][0] == "~")
    all_us = sum(row[2] for row in rows)
    text = [
        f"per model call: {python:.1f} Python and {builtin:.1f} built-in calls, {all_us:.0f} us under the profile",
        f"{'calls':>8} {'own us':>8} {'with us':>8}  function",
    ]
    text += [f"{ncalls:8.2f} {own:8.2f} {with_:8.1f}  {shown(name)}" for name, ncalls, own, with_ in rows[:lines]]
    text.append("by file:")
    files: dict[str, tuple[float, float]] = {}
    for name, ncalls, own, _ in rows:
        file = shown(name).partition(":")[0]
        had = files.get(file, (0.0, 0.0))
        files[file] = (had[0] + ncalls, had[1] + own)
    ordered = sorted(files.items(), key=lambda item: item[1][1], reverse=True)
    text += [f"{ncalls:8.2f} {own:8.2f}           {file}" for file, (ncalls, own) in ordered[: lines // 2]]
    return "\n".join(text)


def shown(name: tuple[str, int, str]) -> str:
    """A function, by the end of its file's path."""
    file, line, function = name
    if file == "~":
        return f"built-in: {function}"
    path = Path(file)
    short = path.relative_to(ROOT) if path.is_relative_to(ROOT) and ".venv" not in file else Path(*path.parts[-2:])
    return f"{short}:{line} {function}"


def instructions(subject: str, messages: int) -> float:
    """Instructions per model call, by valgrind."""
    counts = []
    for times in (1, 1 + messages):
        command = [sys.executable, __file__, subject, "--messages", str(times), "--plain"]
        tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        # valgrind runs one thread at a time: without fair turns the store's thread may wait long for its own
        ended = subprocess.run(
            [*tool, "--fair-sched=yes", *command],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": "0"},
        )
        found = re.search(r"I\s+refs:\s+([\d,]+)", ended.stderr)
        assert found is not None, ended.stderr
        counts.append(int(found[1].replace(",", "")))
    return (counts[1] - counts[0]) / (messages * CALLS_PER_MESSAGE)


def main() -> None:
    """Print a table, or the count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", nargs="?", choices=SUBJECTS, default="memory")
    parser.add_argument("--messages", type=int)
    parser.add_argument("--sort", choices=("tottime", "ncalls", "cumtime"), default="tottime")
    parser.add_argument("--lines", type=int, default=45)
    parser.add_argument("--instructions", action="store_true", help="count instructions under valgrind")
    parser.add_argument("--plain", action="store_true", help="only play, for other tools to watch")
    options = parser.parse_args()
    messages = options.messages or (100 if options.instructions else 500)
    if options.instructions:
        print(f"{options.subject}: {instructions(options.subject, messages):,.0f} instructions per model call")
        return
    profile = None if options.plain else cProfile.Profile()
    trio.run(played, options.subject, messages, profile)
    if profile is not None:
        print(table(profile, messages * CALLS_PER_MESSAGE, sort=options.sort, lines=options.lines))


if __name__ == "__main__":
    main()
