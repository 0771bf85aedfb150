"""Tries mutants in copies of the product, one after another, and prints what became of each."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.place import ROOT, Mutant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FOUND = "found"
"""What begins with it has been seen; a mutant that does not even run has not: nothing was learnt from it."""


def try_all(
    mutants: Sequence[Mutant],
    words: Sequence[str],
    copied: Sequence[str],
    tried: Callable[[Path], tuple[str, str]],
) -> int:
    """Break one place, see what `tried` sees in the copy, mend it; for all that are chosen.

    Args:
        mutants: all there are.
        words: those whose name has one of them; none: all.
        copied: folders that a copy needs.
        tried: looks at the copy; what became of it, and what was seen first.

    Returns:
        The exit code: 1 where one was not found, or its place is gone.
    """
    chosen = [one for one in mutants if not words or any(word in one.breaks for word in words)]
    left = 0
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        for name in copied:
            shutil.copytree(ROOT / name, where / name)
        for mutant in chosen:
            begun = time.monotonic()
            became, seen = mutant.wrong() or "", ""
            if not became:
                path = where / mutant.file
                whole = path.read_text("utf-8")
                path.write_text(mutant.text(), "utf-8")
                try:
                    became, seen = tried(where)
                finally:
                    path.write_text(whole, "utf-8")
            left += not became.startswith(FOUND)
            print(f"{mutant.breaks:<45} {became:<36} {time.monotonic() - begun:5.0f} s  {seen}", flush=True)
    print(f"{len(chosen) - left} of {len(chosen)} found")
    return 1 if left else 0


def parser(about: str | None) -> argparse.ArgumentParser:
    """A command line that takes words."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("words", nargs="*")
    return made
