"""What importing all of callboard takes, beside `import trio, attrs, cattrs`, in fresh interpreters that take turns.

`import supervisor` alone is lazy and says nothing: what `open_supervisor` and an agent need is imported here.

`python tests/bench/bench_import.py [--rounds 20]` prints one line of JSON: wall and CPU milliseconds of the import (the
interpreter's start is in neither), medians, the ratio pair by pair, and, by `-X importtime`, what takes them. Bytecode
is compiled and files are cached before anything is measured.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import measuring

ROOT: Final = Path(__file__).resolve().parents[2]
OURS: Final = "supervisor.system, actors"
THEIRS: Final = "trio, attrs, cattrs"
PROGRAM: Final = (
    "import json, sys, time; sys.path.insert(0, {root!r}); "
    "w, c = time.perf_counter(), time.process_time(); import {what}; "
    "print(json.dumps({{'wall_ms': (time.perf_counter() - w) * 1e3, 'cpu_ms': (time.process_time() - c) * 1e3, "
    "'modules': len(sys.modules)}}))"
)
LINE: Final = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")


def importing(what: str, *options: str) -> list[str]:
    """The command that imports it in a fresh interpreter."""
    return [sys.executable, *options, "-c", PROGRAM.format(root=str(ROOT), what=what)]


def taken_by(what: str) -> dict[str, int]:
    """Microseconds of own time by top package, the dearest first; those under a hundredth of the whole left out."""
    ended = subprocess.run(importing(what, "-X", "importtime"), capture_output=True, text=True, check=True)
    found: dict[str, int] = {}
    for own, module in LINE.findall(ended.stderr):
        top = module.partition(".")[0]
        name = top if top in _named() else "standard library and the rest"
        found[name] = found.get(name, 0) + int(own)
    whole = sum(found.values())
    return {name: own for name, own in sorted(found.items(), key=lambda item: -item[1]) if own * 100 >= whole}


def _named() -> frozenset[str]:
    """Top packages that are told apart: ours, and what we depend on."""
    ours = {"actors", "supervisor"}
    outer = {
        "apsw",
        "attr",
        "attrs",
        "cattr",
        "cattrs",
        "docstring_parser",
        "httpx",
        "httpcore",
        "anyio",
        "h11",
        "idna",
    }
    more = {"jsonschema_rs", "msgspec", "outcome", "rich", "sniffio", "sortedcontainers", "trio", "typing_extensions"}
    return frozenset(ours | outer | more)


def dearest(what: str, most: int = 15) -> dict[str, int]:
    """Microseconds of own time of the dearest modules."""
    ended = subprocess.run(importing(what, "-X", "importtime"), capture_output=True, text=True, check=True)
    found = sorted(((int(own), module) for own, module in LINE.findall(ended.stderr)), reverse=True)
    return {module: own for own, module in found[:most]}


def compared(rounds: int) -> dict[str, Any]:
    """Both in turns."""
    found: dict[str, list[dict[str, float]]] = {OURS: [], THEIRS: []}
    for number in range(rounds + 1):
        for what, many in found.items():
            one = measuring.in_child(importing(what))
            if number:  # the first compiles and warms the file cache
                many.append(one)
    result: dict[str, Any] = {
        what: {key: measuring.middle([one[key] for one in many]) for key in many[0]} for what, many in found.items()
    }
    for key in ("wall_ms", "cpu_ms"):
        result[f"ratio_{key}"] = measuring.ratios(*([one[key] for one in many] for many in found.values()))
    result["own_us_by_package"] = {what: taken_by(what) for what in found}
    result["own_us_of_dearest"] = dearest(OURS)
    return result


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    measuring.emit("import", compared(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
