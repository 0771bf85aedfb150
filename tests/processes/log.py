"""The log outside the store: what was really done and acknowledged, whoever was killed when.

One file that every process appends to, one line of JSON for each fact; a line is one write, so it is there whole or not
at all, and the order of lines is the order of writing.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE: Final = 0o600


@final
class Log:
    """Where facts are written.

    Invariants:
        LOG-1 a line is in the file before `tell` returns, and survives a kill of whoever wrote it.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE)

    def tell(self, what: str, **facts: object) -> None:
        """Write one fact."""
        os.write(self._descriptor, json.dumps({"what": what, "pid": os.getpid(), **facts}).encode() + b"\n")

    def close(self) -> None:
        """Write no more."""
        os.close(self._descriptor)


def read(path: Path) -> tuple[dict[str, Any], ...]:
    """Every fact, in the order of writing."""
    with path.open("rb") as lines:
        return tuple(json.loads(line) for line in lines if line.endswith(b"\n"))
