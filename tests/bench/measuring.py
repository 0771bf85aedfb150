"""What the benchmarks share: child processes that take turns, medians, ratios pair by pair, and the machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PACKAGES = ("trio", "attrs", "cattrs", "msgspec", "apsw")


def in_child(command: Sequence[str]) -> dict[str, Any]:
    """Run a command; what its last line that is a JSON object says.

    Raises:
        RuntimeError: it failed, or said nothing.
    """
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    ended = subprocess.run([*command], capture_output=True, text=True, check=False, env=environment)
    said = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if ended.returncode or not said:
        msg = f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr[-2000:]}"
        raise RuntimeError(msg)
    found: dict[str, Any] = json.loads(said[-1])
    return found


def rounded(value: float) -> float:
    """Three digits that mean something; whole numbers from a hundred on."""
    return round(value) if abs(value) >= 100 else float(f"{value:.3g}")


def middle(values: Sequence[float]) -> dict[str, float]:
    """The median of some rounds, and how far they spread."""
    return {
        "median": rounded(statistics.median(values)),
        "min": rounded(min(values)),
        "max": rounded(max(values)),
    }


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Ours over theirs, pair by pair: both of a pair were measured right after one another."""
    return middle([our / their for our, their in zip(ours, theirs, strict=True)])


def machine() -> dict[str, object]:
    """What the figures hold for; the load says how much else ran."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        **{name: metadata.version(name) for name in PACKAGES},
    }


def emit(bench: str, found: Mapping[str, object]) -> None:
    """Print the one line of JSON."""
    sys.stdout.write(json.dumps({"bench": bench, **found, "on": machine()}) + "\n")
