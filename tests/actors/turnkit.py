"""A turn without a shell: gives inputs to `step`, commits what it decides to a list, remembers what it asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from actors.agent import Drain
from actors.budget import Limits
from actors.callview import CallOutcome
from actors.changes import AgentRow, Append, OpenTurn, Put
from actors.content import Text
from actors.errors import Exhausted, Unavailable
from actors.evolve import evolve
from actors.ids import AgentId, CallId, MessageId
from actors.inputs import (
    Admitted,
    Begin,
    CallsReturned,
    CommitFailed,
    Cut,
    Looked,
    MustWait,
    Phase,
    Responded,
    SuspendAsked,
)
from actors.messages import Envelope, Lane, Queued
from actors.moves import Ask, Over, StartCall, Tell, TurnState
from actors.points import TurnSpec
from actors.ports import Response, Served, WireCall
from actors.tools import tool, toolbox
from actors.transcript import (
    MessageRecord,
    NoteRecord,
    ReasoningBlock,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    Stop,
    TextBlock,
    problems,
)
from actors.turn import step
from actors.usage import Amounts, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.changes import Operation
    from actors.errors import CallboardError
    from actors.happenings import Event
    from actors.inputs import Input
    from actors.messages import Outcome
    from actors.moves import Action, Step
    from actors.output import OutputSpec
    from actors.tools import Toolbox
    from actors.transcript import Record

AGENT = AgentId("lead")
R = TypeVar("R")


@tool(effect="pure")
def look(at: str = "") -> str:
    """Look at something."""
    return at


@tool(resource=lambda path: path)
def write(path: str, text: str = "") -> str:
    """Write a file."""
    return path + text


@tool(effect="idempotent")
def put(key: str) -> str:
    """Put a thing."""
    return key


@tool(effect="store")
def note(text: str) -> str:
    """Note something in the store."""
    return text


@tool(exclusive=True)
def deploy() -> None:
    """Deploy, alone."""


@tool(fatal=True)
def mount(disk: str = "") -> str:
    """Mount what all that follows needs."""
    return disk


TOOLS = toolbox([look, write, put, note, deploy, mount])


def row(**changes: Any) -> AgentRow:
    """The row of an agent that never had a turn."""
    return evolve(AgentRow(AGENT, "", "lead", "digest"), **changes)


def open_row(*, step: int = 1, **changes: Any) -> AgentRow:
    """The row of an agent whose first turn the store has open."""
    return row(turns=1, runs=1, owes=True, open=evolve(OpenTurn(1, 1, step), **changes))


def spec(*hooks: Any, output: Any = None, reports_to: Any = None, **limits: Any) -> TurnSpec:
    """What holds for a turn: its hooks, and `Limits` by name."""
    return TurnSpec(Limits(**limits), Drain(), frozenset(hooks), output, reports_to)


def message(name: str, *, lane: Lane = Lane.SEND, seq: int = 1, **fields: Any) -> Queued:
    """A message whose id and text are its name."""
    return Queued(seq, Envelope(MessageId(name), AGENT, lane, (Text(name),), **fields))


def steer(name: str, seq: int = 1, **fields: Any) -> Queued:
    """A steering message."""
    return message(name, lane=Lane.STEER, seq=seq, **fields)


def call(name: str, arguments: str = "{}", *, wire: str = "", invalid: str | None = None) -> WireCall:
    """A call as a model asks for it; its wire id is made of what it is where none is given."""
    return WireCall(wire or f"w-{name}-{arguments}", name, arguments, invalid)


def exhausted(dimension: str = "tokens", on_exhausted: str = "wrap_up") -> Exhausted:
    """What the budget says when it refuses."""
    return Exhausted("lead", dimension, limit=1, spent=1, asked=1, on_exhausted=on_exhausted)


USAGE = Usage(fresh=7, visible=3)
SPENT = Amounts(input_tokens=7, output_tokens=3, cost=11, model_calls=1)
HELD = Amounts(input_tokens=50, output_tokens=50, cost=100, model_calls=1)


def served(
    *blocks: ReasoningBlock | TextBlock | WireCall | str, stop: Stop | None = None, cost: int | None = 11
) -> Served:
    """A whole response; strings are text blocks."""
    whole = tuple(TextBlock(block) if isinstance(block, str) else block for block in blocks)
    if stop is None:
        stop = Stop.TOOL_CALLS if any(isinstance(block, WireCall) for block in whole) else Stop.END_TURN
    return Served(Response(whole, stop), USAGE, cost, 1, "script:x")


class Drive:
    """One turn, driven by hand.

    Attributes:
        state: as it stands. records: what was committed. commits: the operations of each step that had some.
        told: all events; made: the last step.
    """

    def __init__(
        self, spec: TurnSpec | None = None, row_: AgentRow | None = None, records: Sequence[Record] = (), **state: Any
    ) -> None:
        self.records: list[Record] = list(records)
        self.state = TurnState(
            TurnSpec(Limits(), Drain()) if spec is None else spec,
            row() if row_ is None else row_,
            len(self.records),
            **state,
        )
        self.commits: list[tuple[Operation, ...]] = []
        self.actions: list[Action] = []
        self.made: Step
        self.tools: Toolbox = TOOLS
        self.now = 100.0

    # -- inputs --------------------------------------------------------------------------------------------------

    def give(self, event: Input) -> Step:
        """Take a step; its commit works."""
        before = evolve(self.state)
        made = step(self.state, event)
        assert self.state == before, "TURN-4: a step changes a copy"
        if made.commit:
            self.commits.append(made.commit)
            for operation in made.commit:
                if isinstance(operation, Append):
                    assert operation.at == len(self.records)
                    self.records += operation.records
        self.state, self.made = made.state, made
        self.actions += made.actions
        return made

    def fail(self, event: Input, error: CallboardError | None = None) -> Step:
        """Take a step whose commit fails, and the step that hears of it."""
        failed = step(self.state, event)
        assert failed.commit
        ticket = None if failed.state.ticket is self.state.ticket else failed.state.ticket
        error = Unavailable("no disk") if error is None else error
        self.made = made = step(self.state, CommitFailed(self.now, error, ticket, event))
        self.state = made.state
        self.actions += made.actions
        return made

    def begin(self, *mail: Queued) -> Step:
        """Begin, and come to the gate with this mail."""
        self.give(Begin(self.now))
        return self.look(*mail)

    def look(self, *mail: Queued, output: OutputSpec | None = None) -> Step:
        """Answer `Look`; nothing was asked where the admission was claimed at once."""
        if self.phase is Phase.ASKING and self.all(Ask):
            return self.made
        return self.give(Looked(self.now, mail, self.tools, output))

    def admit(self, ticket: object = "ticket") -> Step:
        """Let the request in."""
        return self.give(Admitted(self.now, ticket, HELD))

    def admit_later(self, ticket: object = "ticket") -> Step:
        """Let it in after a wait: then the mailbox is looked at once more, for the claim."""
        self.give(MustWait(self.now))
        return self.admit(ticket)

    def ask(self, *mail: Queued, output: OutputSpec | None = None) -> Step:
        """From `Look` to `Ask`, with this mail."""
        self.look(*mail, output=output)
        self.admit()
        return self.look(*mail, output=output)

    def start(self, *mail: Queued) -> Drive:
        """Begin, and ask with this mail (else with one send)."""
        self.give(Begin(self.now))
        self.ask(*(mail or (message("m"),)))
        return self

    def reply(
        self,
        *blocks: ReasoningBlock | TextBlock | WireCall | str,
        stop: Stop | None = None,
        granted: int | None = None,
        short: Exhausted | None = None,
        cost: int | None = 11,
    ) -> Step:
        """The model answers."""
        return self.give(Responded(self.now, served(*blocks, stop=stop, cost=cost), SPENT, granted, short))

    def ends(self, *outcomes: tuple[int, ResultStatus] | int) -> Step:
        """Calls of the open batch return, by their index."""
        return self.give(CallsReturned(self.now, tuple(self.outcome(one) for one in outcomes)))

    def outcome(self, one: tuple[int, ResultStatus] | int) -> CallOutcome:
        """What the call of an index gave."""
        index, status = one if isinstance(one, tuple) else (one, ResultStatus.OK)
        return CallOutcome(self.state.calls[index].block.id, status, (Text(f"result {index}"),))

    def cut(self, reason: str | None = "enough", **fields: Any) -> Step:
        """Abort, or (no reason) interrupt."""
        return self.give(Cut(self.now, reason=reason, **fields))

    def suspend(self) -> Step:
        """Ask it to stop at its next commit."""
        return self.give(SuspendAsked(self.now))

    # -- what came of it -----------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """What it waits for."""
        return self.state.phase

    def last(self, kind: type[R]) -> R:
        """The one action of a kind in the last step."""
        (found,) = self.all(kind)
        return found

    def all(self, kind: type[R]) -> list[R]:
        """The actions of a kind in the last step."""
        return [action for action in self.made.actions if isinstance(action, kind)]

    def told(self, kind: type[Event]) -> list[dict[str, Any]]:
        """The events of a kind, of all steps."""
        tells = [action for action in self.actions if isinstance(action, Tell)]
        return [dict(tell.values) for tell in tells if tell.event is kind]

    @property
    def started(self) -> list[CallId]:
        """The calls that the last step starts."""
        return [action.call.block.id for action in self.all(StartCall)]

    @property
    def over(self) -> Over:
        """How the turn is over."""
        assert self.phase is Phase.OVER
        return self.last(Over)

    @property
    def outcome_told(self) -> Outcome:
        """The outcome that those who wait are told."""
        told = self.over.outcome
        assert told is not None
        return told

    @property
    def asked(self) -> Ask:
        """The request of the last step."""
        assert self.phase is Phase.ASKING
        return self.last(Ask)

    def offers_tools(self) -> bool:
        """Whether the request of the last step offers tools."""
        return not self.asked.toolless

    def wrote(self, kind: type[R]) -> list[R]:
        """The operations, or rows of a class, in the last commit."""
        rows = [operation.row for operation in self.made.commit if isinstance(operation, Put)]
        return [found for found in (*self.made.commit, *rows) if isinstance(found, kind)]

    @property
    def written(self) -> AgentRow:
        """The agent's row in the last commit: there is one."""
        (found,) = self.wrote(AgentRow)
        return found

    def notes(self, kind: str) -> list[str]:
        """The texts of committed notes of a kind."""
        return [record.text for record in self.records if isinstance(record, NoteRecord) and record.kind == kind]

    @property
    def results(self) -> list[ResultStatus]:
        """The status of each committed result, in order."""
        return [record.status for record in self.records if isinstance(record, ResultRecord)]

    @property
    def shape(self) -> str:
        """The committed records, a letter each: message, response (calls), result, note."""
        return "".join(LETTER[type(record)] for record in self.records)

    def check(self) -> None:
        """The committed conversation is one that providers take."""
        assert problems(self.records) == []


LETTER = {MessageRecord: "M", ResponseRecord: "R", ResultRecord: "r", NoteRecord: "n"}
