"""Who owns trees, and when another may take them: a lease, a rising epoch, and the facts that tell a dead owner.

A lease only decides when a tree may change hands. What keeps an old owner from writing is the epoch alone, so that a
clock that is wrong costs time, never a message (SUP-6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.errors import OwnedElsewhere

if TYPE_CHECKING:
    from collections.abc import Callable

REMEMBERED: Final = 16
"""How many of its last epochs a tree remembers whose owner was lost: turns forget a crash of such an epoch."""

LEASE_S: Final = 10.0
"""Seconds that an owner keeps its trees without renewing its lease. It renews three times in that span."""


@attrs.frozen
class Holder:
    """One supervisor of one process, as other processes must know it.

    Attributes:
        id: random, made anew for each supervisor.
        command: what its user started. since: when, in ISO 8601 with its zone.
        pid: of its process. started: tells it from a later process of this number; may be empty.
        space: where its pid is known; a pid of another space tells nothing. May be empty.
        boot: which boot of which machine its lease's clock counts from.
        lease_s: seconds that its lease lasts; None: for ever, for a store that no other process can reach.
    """

    id: str
    command: str = ""
    since: str = ""
    pid: int = 0
    started: str = ""
    space: str = ""
    boot: str = ""
    lease_s: float | None = LEASE_S


@attrs.frozen
class Lease:
    """A holder's right to a tree.

    Attributes:
        until: seconds of the clock of its boot; None: for ever.
        lived: epochs of earlier owners that lost the tree when their lease was over, and showed later that they live.
    """

    holder: Holder
    until: float | None
    lived: tuple[int, ...] = ()


OUSTED: Final = 0.0
"""The end of a lease from whose holder a tree was taken: it is over, until the holder has looked what it still has."""


def begun(holder: Holder, now: float) -> Lease:
    """The lease of a holder that has it, or renews it, now."""
    return Lease(holder, None if holder.lease_s is None else now + holder.lease_s)


def is_over(lease: Lease, *, boot: str, now: float, gone: Callable[[Holder], bool]) -> bool:
    """Whether the trees of a lease may be taken by another.

    Args:
        lease: as stored.
        boot: this machine's. Another boot's clock counts from elsewhere, and its processes are gone.
        now: seconds of this boot's clock.
        gone: whether a holder's process is known to have ended.
    """
    if lease.holder.boot != boot:
        return True
    if lease.until is not None:
        lasts = lease.holder.lease_s or 0.0
        if not now < lease.until <= now + lasts:  # over, or of a clock that was set back
            return True
    return gone(lease.holder)


def owned_elsewhere(tree: str, holder: Holder) -> OwnedElsewhere:
    """The error for a tree that a living owner has."""
    return OwnedElsewhere(
        f"tree {tree!r} is run by {described(holder)}; its agents take messages all the same, and `callboard show`"
        " reads them: send or steer, or end that process to run the tree here"
    )


def described(holder: Holder) -> str:
    """A holder as a person is told of it."""
    command = f" ({holder.command})" if holder.command else ""
    since = f" since {holder.since}" if holder.since else ""
    return f"process {holder.pid}{command}{since}"
