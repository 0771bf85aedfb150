"""What is written to standard output, and what is told where it cannot be."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from actors.errors import CallboardError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Unwritten(CallboardError):
    """Standard output takes nothing more: a full disk, say."""

    kind = "environment"


class Unread(CallboardError):
    """Nobody reads standard output any more, as behind `head`: whoever ended that knows, and nobody is told."""

    kind = "unread"


@contextmanager
def to_output() -> Iterator[None]:
    """What is written to standard output within has been taken when it ends.

    Raises:
        Unread: its reader has gone. Unwritten: it cannot be written.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError as error:
        _drop()
        raise Unread("nobody reads standard output any more") from error
    except OSError as error:
        _drop()
        raise Unwritten(f"standard output cannot be written: {error.strerror or error}") from error


def _drop() -> None:
    """Let what is still to be written go nowhere, or the interpreter would fail for it once more at its end."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, sys.stdout.fileno())
        finally:
            os.close(nowhere)
