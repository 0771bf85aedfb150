"""Who answers slowly, for the tests of mailboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from actors.messages import ReceiptState
from actors.transcript import MessageRecord
from tests.supervisor.promises.world import said

if TYPE_CHECKING:
    from actors.ports import ModelRequest


CONSUMED, QUEUED, HELD = ReceiptState.CONSUMED, ReceiptState.QUEUED, ReceiptState.HELD
DEAD, WITHDRAWN = ReceiptState.DEAD, ReceiptState.WITHDRAWN


async def slow(request: ModelRequest) -> str:
    """Answer after a second."""
    await trio.sleep(1)
    return f"re: {said(request.window[-1].content)}" if isinstance(request.window[-1], MessageRecord) else "ok"
