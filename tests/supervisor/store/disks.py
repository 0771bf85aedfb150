"""A disk that fails for real, under SQLite: what the file system would say, said by a VFS."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class FailingFile(apsw.VFSFile):
    """A file whose writes and flushes fail while its disk is told to."""

    def __init__(self, disk: FailingDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.pass_or_fail("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.pass_or_fail("sync")
        super().xSync(flags)


class FailingDisk(apsw.VFS):
    """A disk that fails what `broken` says, with the error that `error` makes.

    Attributes:
        failed: how often it did.
    """

    def __init__(self, name: str = "failing-disk", *, makedefault: bool = False) -> None:
        self.broken = ""
        self.error: Callable[[], Exception] = apsw.IOError
        self.failed = 0
        super().__init__(name, "unix", makedefault=makedefault)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return FailingFile(self, name, flags)

    def pass_or_fail(self, what: str) -> None:
        """Fail, if it is broken so."""
        if self.broken == what:
            self.failed += 1
            raise self.error()


@contextmanager
def failing_disk() -> Iterator[FailingDisk]:
    """A disk that every store is on that is opened inside."""
    disk = FailingDisk("failing-default", makedefault=True)
    try:
        yield disk
    finally:
        disk.unregister()
