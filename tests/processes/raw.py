"""Reads of a store file beside its `Reader`: what no method of a store says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apsw

if TYPE_CHECKING:
    from pathlib import Path

BUSY_MS = 2_000


def asked(store: Path, *queries: str) -> list[list[tuple[Any, ...]]]:
    """The rows of each query, over a connection of its own that is closed again: nothing is open over a fork.

    Raises:
        apsw.BusyError: another has locked the file.
    """
    db = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.set_busy_timeout(BUSY_MS)
        return [db.execute(query).fetchall() for query in queries]
    finally:
        db.close()
