"""What this machine says about itself and its processes, for leases."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
import socket
import time
from pathlib import Path
from typing import Final

from .leases import LEASE_S, Holder

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_ENDED: Final = ("Z", "X")
_SPACE: Final = Path("/proc/self/ns/pid")


def boot_seconds() -> float:
    """Seconds of a clock that no one sets, and that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """What tells this boot of this machine from every other; where the system has no such name, the machine's."""
    with contextlib.suppress(OSError):
        return _BOOT.read_text("ascii").strip()
    return socket.gethostname()


def pid_space() -> str:
    """Where this process's pid is known: containers on one machine number their processes each for itself."""
    with contextlib.suppress(OSError):
        return str(_SPACE.readlink())
    return socket.gethostname()


def started_at(pid: int) -> str:
    """When a process started, in the kernel's own unit; empty where that cannot be told."""
    return _facts(pid)[1]


def _facts(pid: int) -> tuple[str, str]:
    """A process's state, one letter, and when it started; empty where that cannot be told."""
    with contextlib.suppress(OSError, IndexError):
        # the name in brackets may hold spaces and brackets; the first field behind it is the state, the 20th the time
        # of the start (proc(5))
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    return "", ""


def new_holder(command: str, *, lease_s: float | None = LEASE_S) -> Holder:
    """A holder for a supervisor of this process."""
    pid = os.getpid()
    return Holder(
        id=secrets.token_hex(8),
        command=command,
        since=dt.datetime.now().astimezone().isoformat(timespec="seconds"),
        pid=pid,
        started=started_at(pid),
        space=pid_space(),
        boot=boot_id(),
        lease_s=lease_s,
    )


def gone(holder: Holder) -> bool:
    """Whether a holder's process is known to have ended; False where that cannot be told."""
    if not holder.pid or holder.space != pid_space():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # another user's: it lives
        return False
    state, started = _facts(holder.pid)
    if state in _ENDED:  # killed, and its parent has not asked what became of it
        return True
    return bool(started and holder.started and started != holder.started)  # its number was given again
