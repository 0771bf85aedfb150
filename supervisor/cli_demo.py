"""What `callboard demo` runs: the review example on a copy of callboard's own sources."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import actors
from actors.errors import CallboardError

PARALLEL: Final = 8
SECONDS: Final = 15.0
"""About how long the demo takes where a person follows it."""
REQUESTS_PER_FILE: Final = 3


class DemoMissing(CallboardError):
    """The example is not where an installation or a checkout has it."""

    kind = "environment"


def demo_arguments(folder: Path, *, paced: bool) -> tuple[Path, list[str]]:
    """The file to run, and its options.

    Args:
        folder: an empty one, where the sources are copied to.
        paced: take the time that a person needs to follow.

    Raises:
        DemoMissing: this installation has no example.
    """
    target = folder / "callboard"
    for package in (Path(actors.__file__).parent, Path(__file__).parent):
        shutil.copytree(package, target / package.name, ignore=_only_python)
    files = sum(1 for _ in target.rglob("*.py"))
    pace = SECONDS * PARALLEL / max(1, files * REQUESTS_PER_FILE) if paced else 0.0
    return _example(), ["--input", str(target), "--parallel", str(PARALLEL), "--pace", f"{pace:.3f}"]


def _example() -> Path:
    """The review example: beside the packages in a checkout, inside this one where it is installed."""
    here = Path(__file__).parent
    for path in (here / "examples" / "review.py", here.parent / "examples" / "review.py"):
        if path.is_file():
            return path
    raise DemoMissing(f"the example review.py is missing from {here}; install callboard again")


def _only_python(folder: str, names: list[str]) -> set[str]:
    return {
        name for name in names if not (name.endswith(".py") or Path(folder, name).is_dir()) or name == "__pycache__"
    }
