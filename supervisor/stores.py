"""Opens the store that a caller named: none, one that is open already, or a file."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from actors.errors import UsageError

from .store.leases import LEASE_S
from .store.memory import open_memory_store
from .store.sqlite import open_sqlite_reader, open_sqlite_store

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from .store.base import Reader, Store


def open_store(store: str | os.PathLike[str] | Store | None, *, inline: bool) -> AbstractAsyncContextManager[Store]:
    """Open a supervisor's store.

    Args:
        store: None for memory; the path of an SQLite file; or one that is open, which stays its opener's to close.
        inline: on this thread, under whatever clock runs here; its leases last until they are given back.

    Raises:
        UsageError: it is no store. StoreError: it cannot be opened.
    """
    if store is None:
        return open_memory_store()
    if not isinstance(store, str | os.PathLike):
        return nullcontext(store)
    name = os.fspath(store)
    if name.startswith(("postgresql://", "postgres://")):
        msg = f"store={name!r}: PostgreSQL is not in this release; give the path of an SQLite file"
        raise UsageError(msg)
    command = " ".join(sys.argv)[:200] or "python"
    return open_sqlite_store(name, owner=command, inline=inline, lease_s=None if inline else LEASE_S)


def open_reader(store: str | os.PathLike[str]) -> AbstractAsyncContextManager[Reader]:
    """Open a store for reading only, also while other processes run its trees.

    Args:
        store: the path of an SQLite file.

    Raises:
        UsageError: it is no file name. Corrupt, NewerSchema, Unavailable: it is no store, or cannot be read.
    """
    return open_sqlite_reader(store)
