"""Where a model call's time goes: the hot path's functions by own time and by calls; a helper, not a benchmark.

`python tests/bench/profile_turns.py [memory|sqlite|floor] [--messages 500] [--sort tottime|ncalls|cumtime]` prints a
table per model call. A profile makes functions look dear and built-ins cheap: trust the numbers of calls, and
take times as a hint where to look. Two figures have no noise: `--opcodes` counts the bytecodes that each function runs
itself on the Trio thread, and `--instructions` the processor's instructions in all, under valgrind (twice, with and
without the messages, so that the start is taken off).
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.turn_work import CALLS_PER_MESSAGE, SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[2]
WARM = 3


async def played(subject: str, messages: int, profile: cProfile.Profile | Opcodes | None) -> None:
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


class Opcodes:
    """Counts the bytecodes that each function runs, and how often it is entered or resumed."""

    def __init__(self) -> None:
        self.ran: Counter[CodeType] = Counter()
        self.entered: Counter[CodeType] = Counter()

    def enable(self) -> None:
        """Count from now on, in this thread."""
        sys.settrace(self._call)

    def disable(self) -> None:
        """Stop."""
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.entered[frame.f_code] += 1
        code, ran = frame.f_code, self.ran

        def inside(_frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
            if event == "opcode":
                ran[code] += 1
            return inside

        return inside

    def table(self, calls: int, *, lines: int) -> str:
        """The functions, per model call, and the files."""
        whole = sum(self.ran.values())
        text = [
            f"per model call: {whole / calls:,.0f} bytecodes",
            f"{'entered':>8} {'opcodes':>8} {'share':>6}  function",
        ]
        files: Counter[str] = Counter()
        for number, (code, ran) in enumerate(self.ran.most_common()):
            name = shown((code.co_filename, code.co_firstlineno, code.co_qualname))
            files[name.partition(":")[0]] += ran
            if number < lines:
                share = ran / whole
                text.append(f"{self.entered[code] / calls:8.2f} {ran / calls:8.1f} {share:6.1%}  {name}")
        text.append("by file:")
        text += [f"{'':8} {ran / calls:8.1f} {ran / whole:6.1%}  {file}" for file, ran in files.most_common(lines // 2)]
        return "\n".join(text)


def instructions(subject: str, messages: int) -> float:
    """Instructions per model call, by valgrind."""
    counts = []
    subprocess.run(
        [sys.executable, __file__, subject, "--messages", "1", "--plain"], check=True
    )  # compiles what is new
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
    parser.add_argument("--opcodes", action="store_true", help="count bytecodes per function")
    parser.add_argument("--instructions", action="store_true", help="count instructions under valgrind")
    parser.add_argument("--plain", action="store_true", help="only play, for other tools to watch")
    options = parser.parse_args()
    messages = options.messages or (100 if options.instructions or options.opcodes else 500)
    if options.instructions:
        print(f"{options.subject}: {instructions(options.subject, messages):,.0f} instructions per model call")
        return
    if options.opcodes:
        opcodes = Opcodes()
        trio.run(played, options.subject, messages, opcodes)
        print(opcodes.table(messages * CALLS_PER_MESSAGE, lines=options.lines))
        return
    profile = None if options.plain else cProfile.Profile()
    trio.run(played, options.subject, messages, profile)
    if profile is not None:
        print(table(profile, messages * CALLS_PER_MESSAGE, sort=options.sort, lines=options.lines))


if __name__ == "__main__":
    main()
