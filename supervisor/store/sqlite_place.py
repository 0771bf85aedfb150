"""Whether the files of a store still stand under their names.

A file that was deleted, renamed or replaced goes on taking what is written to it, and nobody finds that again: SQLite
holds on to what it has opened, and looks for its name no more once it keeps a log. So the writer looks, before it says
that anything is durable.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TypeAlias, final

from actors.errors import Unavailable

if TYPE_CHECKING:
    import apsw

_Identity: TypeAlias = tuple[int, int]

_ADVICE: Final = {
    "": "put back what stood there, or end this process and open the store again from a copy",
    "-wal": "end this process in order, which writes what it holds into the store; do not kill it",
    "-shm": "end this process, and all others that have the store open, in order; do not kill them",
}
"""What to do, by the ending of the file that is missing."""


@final
class Place:
    """The names of a store's file, its log and the log's index, and what stood under them when it was opened.

    Args:
        db: a connection that has the store open.
    """

    __slots__ = ("_files",)

    def __init__(self, db: apsw.Connection) -> None:
        db.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # before that it knows of no log
        self._files: tuple[tuple[str, str, _Identity], ...] = tuple(
            (ending, name, found)
            for ending in _ADVICE
            if (found := identity_of(name := f"{db.filename}{ending}")) is not None
        )

    def check(self) -> None:
        """Look whether all stand where they stood.

        Raises:
            Unavailable: one does not. It passes where the file is put back.
        """
        for ending, name, opened in self._files:
            found = identity_of(name)
            if found != opened:
                what = "deleted or renamed" if found is None else "replaced by another file"
                raise Unavailable(
                    f"store: {name} was {what} while this process had it open; {_ADVICE[ending]}",
                    passing=True,
                )


def identity_of(name: str) -> _Identity | None:
    """The file that stands under a name, whatever it is called; None: there is none."""
    try:
        found = os.stat(name)  # noqa: PTH116 - once a commit: a Path costs more than the look
    except OSError:
        return None
    return found.st_dev, found.st_ino
