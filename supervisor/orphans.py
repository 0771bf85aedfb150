"""Children of calls that a crash has lost: they are aborted before these are settled without them (SUP-4).

A call that is found started, and that never runs again, will read no report. What it waited for would go on for nobody,
as behind a call that was cut (ABT-5).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from actors import approving, batch
from actors.changes import CallState
from actors.errors import CallboardError
from actors.poison import gives_up
from actors.reopening import open_calls

from .cause import Cause
from .offspring import bereft, read_in

if TYPE_CHECKING:
    from collections.abc import Collection

    from actors.actor import Actor
    from actors.callview import CallView
    from actors.ids import AgentId, CallId
    from actors.tools import Toolbox

    from .parts import Parts


def bereave(parts: Parts, actor: Actor, toolbox: Toolbox) -> set[trio.Event]:
    """Have the children aborted of calls that a turn which is taken up has lost.

    Returns:
        What is set once that is durable, or could not be written: no commit of the turn may come before it.
    """
    calls = {call.block.id: call.block.name for call in _lost(actor, toolbox)}
    if not calls:
        return set()
    done = trio.Event()
    why = f"the call {' and '.join(calls.values())} of {actor.path} that waited for it was lost with its process"
    cause = Cause("Nobody would read its report", actor.path, why)
    parts.frames.clean_context().run(parts.actors_nursery.start_soon, _abort, parts, actor.path, calls, cause, done)
    return {done}


def _lost(actor: Actor, toolbox: Toolbox) -> list[CallView]:
    """The calls of a turn found open that had started and never run again."""
    memory, row = actor.memory, actor.row
    if row.open is None:
        return []
    assert memory.conversation is not None, "it was read"
    calls = approving.recovered(open_calls(memory.conversation, memory.calls or (), toolbox))
    ends = gives_up(row, actor.spec.limits.poison_limit, crashed=actor.crashes.uncounted)
    return [call for call in calls if batch.is_lost(call) or (ends and call.state is CallState.STARTED)]


async def _abort(parts: Parts, path: AgentId, calls: Collection[CallId], cause: Cause, done: trio.Event) -> None:
    try:
        with suppress(CallboardError):  # nobody could hear of it: the turn above meets that store, too
            await parts.kernel.patience.insist(partial(read_in, parts, path))
            if tops := bereft(parts, path, calls):
                await parts.stopping.abort_aside(tops, cause).wait()
    finally:
        done.set()
