"""A simulated shell for the turn's core: a real store, a gate that may refuse, tools that end in any order.

It commits what a step decided, performs its actions, and checks after each step what must hold whatever comes. A
crash forgets all but the store; what was started outside of it stays started.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar, assert_never

import attrs

from actors import approving, callview, inputs, moves
from actors.changes import AgentRow, CallRow, CallState, ChangeSet, Claim, Enqueue, Move, OutcomeRow, Put
from actors.compaction import ASKED, Compacting, CompactionOver, Summarise
from actors.content import Text
from actors.conversation import Conversation
from actors.errors import CallboardError, Conflict, Unavailable, UsageError
from actors.evolve import evolve
from actors.happenings import (
    CompactionEnded,
    CompactionStarted,
    RequestFailed,
    ResponseEnded,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from actors.ids import MessageId, TreeId, turn_id
from actors.inputs import Phase
from actors.mailbox import Mailbox
from actors.messages import Decision, Envelope, Lane, LaneBound, Purpose, Queued, ReceiptState, Selection, Verdict
from actors.output import output_spec
from actors.poison import last_try
from actors.selection import OWN, Choice
from actors.staging import REFUSED
from actors.tools import Effect, tool, toolbox
from actors.transcript import (
    MessageRecord,
    NoteRecord,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    SummaryRecord,
    owes_response,
    problems,
)
from actors.turn import step
from actors.usage import NOTHING, Amounts
from supervisor.store.memory import open_memory_store
from tests.actors.turnkit import AGENT, TOOLS, row

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from actors.changes import Operation
    from actors.ids import CallId
    from actors.points import TurnSpec
    from actors.transcript import Record
    from supervisor.store.memory_rows import Agent

R = TypeVar("R")
TREE = TreeId("lead")
NUMBER = output_spec(int, "a simulation")


@tool(approve=True)
def erase(path: str = "") -> str:
    """Erase something, if a person agrees."""
    return path


BOX = toolbox([*TOOLS.values(), erase])
REPEATABLE = frozenset({Effect.PURE, Effect.IDEMPOTENT, Effect.STORE})


def at_once(coroutine: Coroutine[object, object, R]) -> R:
    """The value of a coroutine that never yields."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: R = stop.value
        return value
    raise AssertionError("it yielded")


class Sim:
    """One agent, its store, and what the world outside remembers of it.

    Attributes:
        state: of the turn under way, or None. admit, hook, looking: what is asked for and not answered.
        running: calls that run. tickets: each ticket ever admitted, and what became of it.
        summary: one is being written. window: the model's context window, or None.
        fault: how the next commit fails, if it has one: `lost`, `applied`, `fenced`, `conflict`.
    """

    def __init__(self, spec: TurnSpec) -> None:
        self.spec = spec
        self.store = open_memory_store(store_id="sim")
        self.epoch = self.take_over()
        self.write(Put(row()))
        self.now = 0.0
        self.state: moves.TurnState | None = None
        self.fault: str | None = None
        self.admit: moves.Admit | None = None
        self.hook = self.looking = False
        self.sends = False
        self.running: dict[CallId, callview.CallView] = {}
        self.tickets: dict[str, str] = {}
        self.starts: Counter[CallId] = Counter()
        self.approved: set[str] = set()
        self.told: Counter[tuple[str, str]] = Counter()
        self.ends: Counter[str] = Counter()
        self.open_request = False
        self.messages: dict[MessageId, Envelope] = {}
        self.before: list[Record] = []
        self.given_up: Counter[MessageId] = Counter()
        self.outcomes: dict[str, OutcomeRow] = {}
        self.spent = self.floor = NOTHING
        self.summary = False
        self.window: int | None = None
        self.step_asked: dict[str, int] = {}

    # -- the store -----------------------------------------------------------------------------------------------

    def write(self, *operations: Operation, fenced: bool = True) -> None:
        """Commit, as the owner or as anyone."""
        self.store.commit_nowait(ChangeSet(TREE, self.epoch if fenced else None, operations))

    @property
    def stored(self) -> Agent:
        """What the store has of the agent."""
        return self.store._tables.agents[AGENT]

    @property
    def mail(self) -> list[Queued]:
        """What waits, in order."""
        found = self.stored.waiting.values()
        return sorted((Queued(m.seq, m.envelope, m.state) for m in found), key=lambda queued: queued.seq)

    @property
    def rows(self) -> dict[str, CallRow]:
        """The call rows."""
        return self.store._tables.calls.get(AGENT, {})

    def post(
        self, lane: Lane, *, output: str | None = None, interrupt: bool = False, select: Selection | None = None
    ) -> None:
        """Someone sends a message; every third is pinned."""
        name = MessageId(f"m{len(self.messages)}")
        envelope = Envelope(
            name,
            AGENT,
            lane,
            (Text(name),),
            purpose=Purpose.ABORT if lane is Lane.CONTROL else Purpose.TASK,
            output=output,
            interrupt=interrupt,
            select=select,
            pinned=len(self.messages) % 3 == 0,
        )
        self.messages[name] = envelope
        self.write(Enqueue(envelope, LaneBound()), fenced=False)

    def move(self, frm: ReceiptState, to: ReceiptState, number: int) -> None:
        """Someone withdraws, holds or wakes a message."""
        found = [queued for queued in self.mail if queued.state is frm and queued.envelope.lane is not Lane.CONTROL]
        if found:
            one = found[number % len(found)].envelope.id
            self.write(Move(AGENT, (frm,), to, (one,)), fenced=False)

    # -- the turn ------------------------------------------------------------------------------------------------

    def take_over(self) -> int:
        """Another owner takes the tree, as after a restart; its lease is over at once, so that the next may."""
        return at_once(self.store.own(TREE, attrs.evolve(self.store.new_holder(), lease_s=0.0)))

    def begin(self, *, new_run: bool, more: bool = False) -> None:
        """A turn begins, or goes on with what the store has (as an actor does it)."""
        self.told.clear()
        self.epoch = self.take_over()
        control = tuple(queued.envelope.id for queued in self.mail if queued.envelope.lane is Lane.CONTROL)
        if control:  # an abort that no turn carried out
            self.write(Claim(AGENT, control, turn_id(AGENT, self.stored.row.turns)))
        found, records = self.stored.row, self.stored.records
        opened = found.open
        unknown = approving.unknown_in(self.rows.values(), BOX)
        self.spent = without_time(found.spent)
        if opened is None:
            self.state = moves.TurnState(self.spec, found, len(records), new_run=new_run, unknown=unknown)
            self.take(inputs.Begin(self.now))
            return
        self.spent += opened.held
        last = self.in_force.last
        blocks = last.calls if isinstance(last, ResponseRecord) else ()
        for block in blocks:
            tool = BOX.get(block.name)
            assert block.id in self.rows or (tool is not None and tool.effect is Effect.STORE), "TOL-2: it has its row"
        calls = tuple(approving.found(block, self.rows.get(block.id), BOX) for block in blocks)
        output = NUMBER if opened.output is not None else None
        self.state = moves.TurnState(self.spec, found, len(records), new_run=False, output=output, unknown=unknown)
        response = last if isinstance(last, ResponseRecord) else None
        owed = bool(opened.step) and owes_response(last)
        self.take(inputs.Begin(self.now, calls, owed, response, more, unwritten=opened.held))

    @property
    def in_force(self) -> Conversation:
        """The conversation as a restart reads it."""
        found = Conversation()
        found.extend(self.stored.records)
        return found

    def begin_alone(self) -> None:
        """An idle agent is compacted."""
        self.epoch = self.take_over()
        found = self.stored.row
        self.spent = without_time(found.spent)
        self.state = moves.TurnState(self.spec, found, len(self.stored.records), compacting=Compacting(ASKED))
        self.take(inputs.Begin(self.now, compact=True))

    @property
    def awaiting(self) -> list[str]:
        """The calls that wait for a decision."""
        return sorted(call for call, found in self.rows.items() if found.state is CallState.AWAITING)

    def decide(self, call: str, verdict: Verdict) -> None:
        """A person decides; a turn that is parked goes on."""
        if self.state is None or self.state.phase is Phase.OVER:
            fault, self.fault = self.fault, None
            self.begin(new_run=False, more=True)
            self.fault = fault
            if self.stored.row.open is None:  # given up as it began (CON-6): a loop that is over takes no input more
                return
        name = MessageId(f"m{len(self.messages)}")
        decision = Decision(verdict)
        envelope = Envelope(name, AGENT, Lane.CONTROL, (), purpose=Purpose.DECISION, target=call, decision=decision)
        self.messages[name] = envelope
        self.write(Enqueue(envelope, LaneBound()), fenced=False)
        if verdict is Verdict.APPROVED:
            self.approved.add(call)
        self.take(inputs.Decided(self.now, tuple(queued for queued in self.mail if queued.envelope.id == name)))

    def look(self) -> inputs.Looked:
        """What the mailbox offers."""
        found = self.state.row if self.state is not None else self.stored.row
        alone = last_try(found, self.spec.limits.poison_limit)
        mail = () if alone else Mailbox(self.mail).choose(self.spec.drain, sends=self.sends, singly=found.singly)
        typed = mail[0].envelope.output if mail else None
        output = NUMBER if typed else None
        return inputs.Looked(self.now, mail, BOX, output, 0.0, self.choice(mail), self.window)

    def choice(self, mail: tuple[Queued, ...]) -> Choice | None:
        """What the mail chooses that does not hold yet: models `n…` take no other's conversation, `?` is not known."""
        before = wanted = self.stored.row.selection or OWN
        for queued in mail:
            wanted = wanted.then(queued.envelope.select)
        if wanted == before:
            return None
        model, held = wanted.model or "", self.in_force
        if model == "?":
            return Choice(wanted, error=UsageError("no such model"))
        along = not model.startswith("n") or model == before.model
        return Choice(wanted, compatible=along, pinned=held.pinned(), responses=held.window().responses)

    def crash(self) -> None:
        """The process is gone: only the store, and what was done outside, remain."""
        self.state = None
        self.admit, self.hook, self.looking, self.open_request = None, False, False, False
        self.summary = False
        self.running.clear()
        self.tickets = {name: "gone" if what == "held" else what for name, what in self.tickets.items()}

    def take(self, event: inputs.Input) -> None:
        """One step: decide, commit, and perform what rests on the commit."""
        assert self.state is not None
        before = self.state
        as_given = evolve(before)
        made = step(before, event)
        assert before == as_given, "TURN-4: a step changes a copy"
        self.spent += cost_of(before, event)
        if made.commit:
            cut = [one for one in made.actions if isinstance(one, moves.CancelCalls) and one.why and one.calls]
            assert not cut, "SUP-4: what a call waits for is aborted before a commit settles it"
            try:
                self.commit(made)
            except CallboardError as error:
                self.spent -= cost_of(before, event)  # nothing of it is written; what is, is read again
                ticket = None if made.state.ticket is before.ticket else made.state.ticket
                made = step(before, inputs.CommitFailed(self.now, error, ticket, event))
                assert made.commit == ()
        self.state = made.state
        for action in made.actions:
            self.perform(action)
        self.check()

    def commit(self, made: moves.Step) -> None:
        """Write, or fail as the fault says."""
        fault, self.fault = self.fault, None
        if fault == "fenced":
            self.take_over()
        elif fault in {"lost", "conflict"}:
            raise Unavailable("lost") if fault == "lost" else Conflict("another was faster")
        self.write(*made.commit)
        self.check_commit(made)
        if fault == "applied":
            raise Unavailable("written, and nobody knows")

    # -- actions -------------------------------------------------------------------------------------------------

    def perform(self, action: moves.Action) -> None:
        """Do what a step asks for, and see that it may be asked for now."""
        match action:
            case moves.Tell():
                self.hear(action)
            case moves.Look(sends=sends):
                self.looking, self.sends = True, sends
            case moves.Admit():
                self.admit = action
            case moves.CallHook():
                self.hook = True
            case moves.Ask():
                self.ask(action)
            case Summarise():
                self.summarise(action)
            case CompactionOver():
                pass
            case moves.StartCall(call=call):
                self.start(call)
            case moves.CancelCalls(calls=calls):
                for call_id in calls:
                    self.running.pop(call_id, None)
            case moves.CutStream():
                pass
            case moves.Again(event=event):
                self.take(event)
            case moves.Abandon(ticket=ticket):
                assert self.tickets[str(ticket)] == "held", "TURN-3"
                self.tickets[str(ticket)] = "abandoned"
            case moves.Over():
                self.over(action)
            case _:
                assert_never(action)

    def hear(self, told: moves.Tell) -> None:
        """Each thing is told once, and what is told is so."""
        assert self.state is not None
        if told.event in (CompactionStarted, CompactionEnded):
            assert self.summary == (told.event is CompactionEnded), "one end for each that started"
            self.summary = told.event is CompactionStarted
        elif told.event in (ResponseEnded, RequestFailed):
            assert self.open_request, "TRN-4: an end of a response that was not open"
            self.open_request = False
        elif told.event is TurnEnded:
            outcome = told.values["outcome"]
            turn = turn_id(AGENT, self.stored.row.turns)
            assert self.store._tables.outcomes[turn].outcome == outcome, "it is told after it is written"
            self.ends[turn] += 1
            assert self.ends[turn] == 1, "TRN-4"
        elif told.event in (ToolStarted, ToolEnded):
            self.told[told.event.__name__, str(told.values["call"])] += 1
            if told.event is ToolEnded:
                corrected = str(told.values["text"]).startswith(REFUSED)  # what it had staged was refused as it landed
                assert self.told["ToolEnded", str(told.values["call"])] <= 1 + corrected

    def summarise(self, action: Summarise) -> None:
        """A summary is asked for on a settled conversation, and what it holds is in the row (CMP-1, BUD-7)."""
        assert self.tickets[str(action.ticket)] == "held", "TURN-3"
        self.tickets[str(action.ticket)] = "asked"
        assert problems(self.stored.records) == [], "CMP-1"
        opened = self.stored.row.open
        assert opened is not None
        assert opened.asking
        assert opened.held != NOTHING
        assert self.state is not None
        assert self.state.pending == ()

    def ask(self, ask: moves.Ask) -> None:
        """A request shows the provider a valid conversation that ends in something to answer."""
        assert self.tickets[str(ask.ticket)] == "held", "TURN-3"
        self.tickets[str(ask.ticket)] = "asked"
        records = self.stored.records
        assert records, "a request on nothing"
        assert problems(records) == []
        assert problems(self.in_force.window()) == []
        last = self.in_force.last
        assert not isinstance(last, SummaryRecord), "REC-1: what it is to answer stands behind the summary"
        opened = self.stored.row.open
        assert opened is not None
        assert opened.asking
        assert opened.held != NOTHING, "CON-4: the request that is owed is in the commit, with what it holds"
        turn = turn_id(AGENT, opened.number)
        assert self.step_asked.get(turn, 0) < ask.step == opened.step
        assert ask.step <= self.spec.limits.model_calls_per_turn, "TRN-7"
        self.step_asked[turn] = ask.step
        assert not self.open_request
        self.open_request = True

    def start(self, call: callview.CallView) -> None:
        """A call starts only from its row, and a once call once in its life."""
        found, tool = self.rows.get(call.block.id), call.tool
        assert tool is not None
        if tool.effect is Effect.STORE:
            assert found is None or (found.asking is not None and found.state is CallState.PLANNED), "nothing of it is"
        else:
            assert found is not None
            assert found.state is CallState.STARTED, "TOL-3: on disk before it starts"
            assert found.tries == call.tries
        assert call.block.id not in self.running
        batch = call.block.id.rpartition(".")[0]
        unknown = {
            approving.likeness(tool, row)
            for name, row in self.rows.items()
            if row.state is CallState.UNKNOWN and name.rpartition(".")[0] != batch
        }
        if tool.approve or approving.likeness(tool, call.block) in unknown:
            assert call.block.id in self.approved, "TOL-12, TOL-3: a person decides first"
        self.starts[call.block.id] += 1
        if tool.effect not in REPEATABLE:
            assert self.starts[call.block.id] == 1, "TOL-3: never again"
        self.running[call.block.id] = call
        assert len(self.running) <= self.spec.limits.parallel_calls, "TOL-4"
        assert len(self.running) == 1 or not any(other.exclusive for other in self.running.values())
        keys = [key for other in self.running.values() for key in other.keys]
        assert len(set(keys)) == len(keys), "TOL-4: one at a time per key"

    def over(self, over: moves.Over) -> None:
        """Nothing is left in hand when a turn is over."""
        assert self.state is not None
        assert self.state.phase is Phase.OVER
        assert self.state.calls == (), "TURN-1"
        assert "held" not in self.tickets.values(), "TURN-3: a ticket was forgotten"
        failed = over.failure is not None
        if not failed:
            assert self.state.pending == (), "TURN-2: something was not committed"
            assert over.outcome is None or self.state.row == self.stored.row
            assert not self.open_request, "TRN-4"
            assert not self.summary
            assert not self.running
        if over.suspended is None:
            assert self.stored.row.open is None
            assert not self.stored.row.owes
        self.open_request = self.summary = False
        self.running.clear()
        self.admit, self.hook, self.looking = None, False, False

    # -- what always holds ---------------------------------------------------------------------------------------

    def check_commit(self, made: moves.Step) -> None:
        """What a commit may write."""
        records = self.stored.records
        assert records[: len(self.before)] == self.before, "records are append-only"
        assert records[len(self.before) :] == list(made.records), "memory is what a reload would rebuild"
        self.before = list(records)
        assert made.state.head == len(records)
        self.check_in_force()
        for found in (operation.row for operation in made.commit if isinstance(operation, Put)):
            if isinstance(found, AgentRow):
                assert without_time(found.spent) == self.spent, "BUD-7: what was fed in is in the row, once"
                assert all(getattr(found.spent, name) >= getattr(self.floor, name) for name in AMOUNTS)
                self.floor = found.spent
                held = found.open.held if found.open is not None else NOTHING
                assert (held != NOTHING) == (found.open is not None and found.open.asking)
            elif isinstance(found, OutcomeRow):
                assert found.turn not in self.outcomes, "one outcome per turn"
                self.outcomes[found.turn] = found
        for operation in made.commit:
            if isinstance(operation, Move):  # CON-6: a turn that is given up has its messages no more
                assert operation.messages is not None
                self.given_up.update(operation.messages)
        consumed = Counter(record.message for record in records if isinstance(record, MessageRecord))
        for name, envelope in self.messages.items():
            state = self.store._tables.messages[name].state
            if envelope.lane is not Lane.CONTROL:
                given_up = self.given_up[name]
                assert given_up <= consumed[name] <= given_up + 1, "CON-3: once, and once again for its last try"
                assert (consumed[name] > given_up) == (state is ReceiptState.CONSUMED), "CON-4: in one place"
                assert given_up <= 2, "CON-6: it was given up for good"

    def check_in_force(self) -> None:
        """CMP-4, CMP-5: the row knows the last summary; pinned messages stand, whatever was compacted or reset.

        But for those of a turn that was given up: they are dead, or come again (CON-6).
        """
        records, found = self.stored.records, self.in_force
        summaries = [at for at, record in enumerate(records) if isinstance(record, SummaryRecord)]
        assert self.stored.row.summary == (summaries[-1] if summaries else -1)
        pinned: list[MessageRecord] = []
        for record in records:
            if isinstance(record, MessageRecord) and record.pinned:
                pinned.append(record)
            elif isinstance(record, NoteRecord):  # CON-6: a turn was given up, and its messages with it
                pinned = [one for one in pinned if one.message not in record.without]
        assert [r for r in found.window() if isinstance(r, MessageRecord) and r.pinned] == pinned
        assert [records[found.index(at)] for at in range(len(found))] == list(found.window())

    def check(self) -> None:
        """TURN-1..3, and that what waits fits behind what is committed."""
        state = self.state
        assert state is not None
        assert bool(state.calls) == (state.phase is Phase.RUNNING), "TURN-1"
        held = [name for name, what in self.tickets.items() if what == "held"]
        if state.phase not in (Phase.ASKING, Phase.COMPACTING):
            assert held == ([] if state.ticket is None else [state.ticket]), "TURN-3"
        if state.phase is Phase.RUNNING:
            last = self.stored.records[-1]
            assert isinstance(last, ResponseRecord), "TURN-1"
            assert [call.block for call in state.calls] == list(last.calls)
            for call in state.calls:
                assert (call.state is CallState.STARTED) == (call.block.id in self.running)
                unknown = call.result is not None and call.result.status is ResultStatus.UNKNOWN
                found = self.rows.get(call.block.id)
                if call.tool is None or call.tool.effect is not Effect.STORE or call.result is not None:
                    assert found is not None
                    assert found.state is (CallState.UNKNOWN if unknown else call.state)
                else:
                    assert found is None or found.state in (CallState.PLANNED, CallState.AWAITING)
            assert self.running or self.awaiting, "a batch under way has something that it waits for"
        elif state.phase is not Phase.OVER and state.response is None:
            assert problems([*self.stored.records, *state.pending]) == [], "TURN-2"
        self.check_staged()
        if self.stored.row.open is None:
            for found in self.rows.values():
                assert found.result is not None
                assert found.result.status is ResultStatus.UNKNOWN, "only calls of unknown end keep their row"
            assert problems(self.stored.records) == []
            results = [record for record in self.stored.records if isinstance(record, ResultRecord)]
            assert len({record.call for record in results}) == len(results)

    def check_staged(self) -> None:
        """HOK-3, TOL-3: what a call staged is in the store if its good result is, and else nothing of it is."""
        kept = {key for _, key in self.store._tables.kv.get(AGENT, {})}
        results = [record for record in self.stored.records if isinstance(record, ResultRecord)]
        results += [found.result for found in self.rows.values() if found.result is not None]
        good = {result.call for result in results if result.status is ResultStatus.OK and result.name == "note"}
        assert kept == good


AMOUNTS = ("input_tokens", "output_tokens", "cost", "model_calls", "tool_calls", "active_us")


def without_time(spent: Amounts) -> Amounts:
    """Amounts but for active time, which the simulation does not foretell."""
    return spent - Amounts(active_us=spent.active_us)


def cost_of(state: moves.TurnState, event: inputs.Input) -> Amounts:
    """What an input says was spent."""
    if state.phase not in (Phase.ASKING, Phase.COMPACTING):
        return NOTHING
    spent: Amounts = getattr(event, "spent", NOTHING)
    granted: int | None = getattr(event, "granted", None)
    return spent + Amounts(tool_calls=granted or 0)
