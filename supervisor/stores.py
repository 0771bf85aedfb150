"""Opens the store that a caller named: none, one that is open already, or a file."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from actors.errors import UsageError

from .store.leases import LEASE_S
from .store.memory import open_memory_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from .store.audit import Violation
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
        if not hasattr(store, "commit"):
            raise UsageError(
                f"store= is the path of an SQLite file, an opened store, or None for memory; got {store!r}"
            )
        return nullcontext(store)
    name = _file_name(store)
    from .store.sqlite import open_sqlite_store  # noqa: PLC0415 - memory needs nothing of SQLite

    command = " ".join(sys.argv)[:200] or "python"
    return open_sqlite_store(name, owner=command, inline=inline, lease_s=None if inline else LEASE_S)


def _file_name(store: str | os.PathLike[str]) -> str:
    name = os.fspath(store)
    if name.startswith(("postgresql://", "postgres://")):
        msg = f"store={name!r}: PostgreSQL is not in this release; give the path of an SQLite file"
        raise UsageError(msg)
    return name


def check_store_file(
    store: str | os.PathLike[str], told: Callable[[str, int, int], None] | None = None
) -> Iterator[Violation]:
    """Everything that is wrong with a store, also while other processes write to it; it is only read.

    Args:
        store: the path of an SQLite file.
        told: hears how far it is: of what, how many rows of how many.

    Raises:
        UsageError: it is no file name. StoreError: it is no store, or cannot be read.
    """
    from .store.sqlite_check import check_file  # noqa: PLC0415 - what checks a store is for nobody else
    from .store.sqlite_file import existing  # noqa: PLC0415 - as above

    return check_file(existing(_file_name(store)), told)


def agents_in(store: str | os.PathLike[str]) -> int:
    """How many agents a store holds, whatever they are called.

    Raises:
        StoreError: there is none, or it cannot be read.
    """
    from .store.sqlite_file import count_agents, existing  # noqa: PLC0415 - as above

    return count_agents(existing(_file_name(store)))


def existing_store(store: str | os.PathLike[str]) -> None:
    """Refuse a store that is not there, for those who would make it by opening it.

    Raises:
        UsageError: it is no file name. Unavailable: there is no such file.
    """
    from .store.sqlite_file import existing  # noqa: PLC0415 - as above

    existing(_file_name(store))


def open_reader(store: str | os.PathLike[str]) -> AbstractAsyncContextManager[Reader]:
    """Open a store for reading only, also while other processes run its trees.

    Args:
        store: the path of an SQLite file.

    Raises:
        UsageError: it is no file name. Corrupt, NewerSchema, Unavailable: it is no store, or cannot be read.
    """
    from .store.sqlite import open_sqlite_reader  # noqa: PLC0415 - as above

    return open_sqlite_reader(_file_name(store))
