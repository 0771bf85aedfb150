"""What this process remembers of an agent beside its row and its mailbox, and whether a turn may rest on it (TRN-1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from .approving import unknown_in
from .batch import LOST, result
from .changes import CallState
from .ids import turn_id
from .inputs import Begin
from .moves import TurnState
from .reopening import open_calls, owed, so_far
from .transcript import ResponseRecord, ResultStatus

if TYPE_CHECKING:
    from .changes import AgentRow, CallRow
    from .conversation import Conversation
    from .hosting import Host
    from .ids import CallId, MessageId
    from .inputs import Looked
    from .messages import Queued
    from .points import TurnSpec


@final
class Memory:
    """What an actor knows of its agent's turns.

    Attributes:
        conversation: the records in force, None where they must be read.
        calls: rows of calls as they were read, None where the store knows better. unknown: as `TurnState` has it.
        stale: a commit failed that may have been written; the store is read before anything rests on memory (TRN-1).
    """

    __slots__ = ("calls", "conversation", "stale", "unknown")

    def __init__(self) -> None:
        self.conversation: Conversation | None = None
        self.calls: tuple[CallRow, ...] | None = ()
        self.unknown: tuple[tuple[str, CallId], ...] = ()
        self.stale = False

    @property
    def doubted(self) -> bool:
        """Whether the row and the calls must be read before anything rests on them."""
        return self.stale or self.calls is None

    def read_anew(self) -> None:
        """Row and calls were read; where a commit had failed, the conversation must be, too."""
        if self.stale:
            self.conversation = None
        self.stale, self.unknown = False, ()

    def ran(self, row: AgentRow, unknown: tuple[tuple[str, CallId], ...]) -> None:
        """A turn ran, and left this row."""
        self.calls = () if row.open is None else None
        self.unknown = unknown

    def begin(self, host: Host, row: AgentRow, look: Looked | None, *, crashed: bool) -> Begin:
        """The first input of a turn: a new one, or the one that the store has open. `look`: see there."""
        if self.calls:
            assert look is not None, "see `look`"
            self.unknown = unknown_in(self.calls, look.toolbox)
        assert self.conversation is not None, "it was read"
        if row.open is None:
            blocks, turn = self.conversation.unanswered(), turn_id(row.agent, row.turns + 1)
            lost = tuple([result(turn, block, ResultStatus.ERROR, LOST) for block in blocks])
            return Begin(host.now(), crashed=crashed, unanswered=lost)
        assert look is not None, "see `look`"
        last = self.conversation.last
        answer = last if isinstance(last, ResponseRecord) else None
        calls = open_calls(self.conversation, self.calls or (), look.toolbox)
        unwritten = host.gate.beyond(row.agent, row.spent)
        return Begin(host.now(), calls, owed(self.conversation), answer, crashed=crashed, unwritten=unwritten)

    def look(self, host: Host, row: AgentRow) -> Looked | None:
        """What is in force, for a turn that begins with more than mail: it is open, or calls are known."""
        return host.look(sends=False) if row.open is not None or self.calls else None

    def state(self, spec: TurnSpec, row: AgentRow, look: Looked | None, *, now: float, new_run: bool) -> TurnState:
        """The turn as it begins, or as the store has it open."""
        assert self.conversation is not None, "it was read"
        return TurnState(
            spec,
            row,
            self.conversation.stored,
            new_run=new_run and row.open is None,
            output=look.output if row.open is not None and look is not None else None,
            unknown=self.unknown,
            since=now,
            **({} if row.open is None else so_far(self.conversation, turn_id(row.agent, row.open.number))),
        )

    def stale_decisions(self, row: AgentRow, decisions: tuple[Queued, ...]) -> tuple[MessageId, ...]:
        """Decisions on calls that do not wait for one, as far as is known: none while the rows must be read first."""
        if not decisions or self.doubted:
            return ()
        rows = (self.calls or ()) if row.open is not None else ()
        waiting = {one.call for one in rows if one.state is CallState.AWAITING}
        return tuple(queued.envelope.id for queued in decisions if queued.envelope.target not in waiting)
