"""What a handle says of its agent without asking anybody."""

from __future__ import annotations

import attrs

from actors.mailbox import MailboxStatistics
from actors.usage import Amounts, Usage


@attrs.frozen
class View:
    """An agent as last known here.

    `state`: `idle`, `running`, `held`, `approval`, `paused`, `suspended`, `closing`, `closed`; of an agent that another
    process runs, as it was read last; `unloaded` where it never was.
    """

    state: str
    usage: Usage
    spent: Amounts
    mailbox: MailboxStatistics
    as_of: float
