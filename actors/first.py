"""The first of several reports: a wait that any of them ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from .errors import UsageError
from .ref import AgentRef, Receipt

if TYPE_CHECKING:
    from .reports import Report

Waited = TypeVar("Waited", bound=AgentRef | Receipt)


async def wait_any(*waited: Waited) -> tuple[Waited, Report]:
    """Wait for the first report of several; the others are waited for no more, and go on.

    `kid, report = await wait_any(*kids)`. In a graph of waits this is one wait that any of them ends: it is refused
    only where none of them could ever come.

    Args:
        *waited: handles, for the report of the run in progress (else the last one's), and receipts, for that of the
            turn that consumes the message; all of one supervisor. The first of those that are there already.

    Returns:
        Which it was, and its report.

    Raises:
        WaitCycle: none of them could ever come; nothing has changed. UsageError: nothing to wait for, several
            supervisors, an agent that never had a run. Else what the one that ended first raises by itself.

    If cancelled: nothing has changed.
    """
    given: tuple[object, ...] = waited
    for item in given:
        if not isinstance(item, AgentRef | Receipt):
            raise UsageError(f"wait_any(*kids) takes handles and receipts; got {item!r}")
    desks = {one._desk for one in waited}  # noqa: SLF001 - a handle's supervisor is nobody's to name but ours
    if len(desks) != 1:
        msg = f"wait_any() takes handles and receipts of one supervisor; got those of {len(desks)}"
        raise UsageError(msg)
    for one in waited:
        if isinstance(one, Receipt):
            await one.wait_accepted()
    index, report = await desks.pop().wait_any(waited)
    return waited[index], report
