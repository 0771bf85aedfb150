"""The turn's core under everything that can come, legal and not, in any order, with commits that fail and restarts.

A quick search by default; `CALLBOARD_SEARCH=20` looks through twenty times as much.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Search
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec.structs import replace

from actors import bounds
from actors.agent import Drain
from actors.budget import Limits
from actors.callview import CallOutcome
from actors.changes import CallState, Enqueue, KvRow, Put
from actors.compaction import CompactAsked, NotSummarised, Summarised, plan
from actors.content import Text
from actors.errors import Broken, ContextOverflow, InternalError, UsageError
from actors.evolve import evolve
from actors.hooked import Point
from actors.ids import AgentId, CallId, MessageId
from actors.inputs import (
    Admitted,
    Begin,
    CallsReturned,
    CommitFailed,
    Cut,
    Failed,
    HookReturned,
    Looked,
    MustWait,
    NotAdmitted,
    Phase,
    Responded,
    SuspendAsked,
)
from actors.messages import Envelope, Lane, LaneBound, ReceiptState, Selection, Verdict
from actors.points import TurnSpec
from actors.ports import Response, Served, WireCall
from actors.tools import Effect
from actors.transcript import ReasoningBlock, ResultStatus, Stop, TextBlock
from actors.turn import step
from actors.usage import Amounts, Usage
from tests.actors.turnkit import AGENT, HELD, SPENT, TOOLS, exhausted
from tests.actors.turnsim import NUMBER, Sim

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.callview import CallView
    from actors.changes import Operation
    from actors.moves import TurnState

SEARCH = int(os.environ.get("CALLBOARD_SEARCH", "1"))
FAULT = st.sampled_from([None] * 32 + ["lost", "applied", "fenced", "conflict"])
CALL = st.builds(
    WireCall,
    st.sampled_from("stuvwxyz"),
    st.sampled_from(["look", "look", "put", "write", "write", "deploy", "mount", "note", "fly", "erase"]),
    st.sampled_from(['{"path": "a", "key": "a", "text": "a"}', '{"path": "a"}', '{"key": "b"}', "{}", "{}", ""]),
    st.sampled_from([None] * 7 + ["malformed_json"]),
)
TEXT = st.sampled_from(["", "so", "41", "41"]).map(TextBlock)
BLOCKS = st.lists(st.one_of(CALL, CALL, TEXT, TEXT, st.just(ReasoningBlock("why"))), max_size=4).map(tuple)
STOP = st.sampled_from([Stop.END_TURN] * 6 + list(Stop))
QUICK = st.sampled_from([True, True, False])
GATE = st.sampled_from(["admit", "admit", "admit", "wait", "refuse"])
VALID = {"note": '{"text": "a"}'}
VERDICT = st.sampled_from([Verdict.APPROVED, Verdict.APPROVED, Verdict.DENIED, Verdict.EXPIRED])
STATUS = st.sampled_from([ResultStatus.OK] * 3 + [ResultStatus.ERROR, ResultStatus.TIMEOUT])
HOWS = st.sampled_from(["wrap_up", "wrap_up", "park", "fail"])
SPEC = st.builds(
    TurnSpec,
    st.builds(
        Limits,
        model_calls_per_turn=st.integers(1, 5),
        invalid_responses=st.integers(1, 3),
        identical_failures=st.integers(1, 2),
        parallel_calls=st.integers(1, 3),
        approvals=st.integers(1, 2),
        calls_per_response=st.integers(1, 4),
        output_repairs=st.integers(0, 1),
    ),
    st.builds(Drain, st.sampled_from(["one", "all"]), st.sampled_from(["one", "all"])),
    st.one_of(st.just(frozenset()), st.frozensets(st.sampled_from(list(Point)))),
    st.sampled_from([None, None, NUMBER]),
)
EVENTS = (
    Begin(0.0),
    HookReturned(0.0),
    Looked(0.0, (), TOOLS),
    Admitted(0.0, "never", HELD),
    MustWait(0.0),
    NotAdmitted(0.0, exhausted()),
    Responded(0.0, Served(Response((), Stop.END_TURN), Usage(), 0, 1, "x"), SPENT),
    Failed(0.0, Broken("x")),
    Cut(0.0, reason="x"),
    SuspendAsked(0.0),
    CommitFailed(0.0, Broken("x")),
    CompactAsked(0.0),
    NotSummarised(0.0, None),
)
WANTED = {
    Begin: {Phase.OPENING},
    HookReturned: {Phase.HOOK},
    Looked: {Phase.LOOKING},
    Admitted: {Phase.ADMITTING},
    MustWait: {Phase.ADMITTING},
    NotAdmitted: {Phase.ADMITTING},
    Responded: {Phase.ASKING},
    Failed: {Phase.ASKING},
    Cut: set(Phase) - {Phase.OPENING, Phase.OVER},
    SuspendAsked: set(Phase) - {Phase.OPENING, Phase.OVER},
    CommitFailed: set(Phase) - {Phase.OVER},
    CompactAsked: set(Phase) - {Phase.OPENING, Phase.OVER},
    NotSummarised: {Phase.ADMITTING, Phase.COMPACTING},
}


F = TypeVar("F", bound="Callable[..., Any]")


def waits_for(*phases: Phase) -> Callable[[F], F]:
    """The turn is in one of these phases."""
    return precondition(lambda self: self.sim.state is not None and self.sim.state.phase in phases)


WAY_TO_THE_MODEL = frozenset({Phase.HOOK, Phase.LOOKING, Phase.ADMITTING})
UNDER_WAY = (Phase.HOOK, Phase.LOOKING, Phase.ADMITTING, Phase.ASKING, Phase.COMPACTING, Phase.RUNNING)


class TurnMachine(RuleBasedStateMachine):
    """The rules; `Sim` holds what must hold."""

    sim: Sim

    @initialize(spec=SPEC, window=st.sampled_from([None, None, 1, 1_000]))
    def set_up(self, spec: TurnSpec, window: int | None) -> None:
        """An agent with a message."""
        self.sim = Sim(spec)
        self.sim.window = window
        self.sim.post(Lane.SEND)

    def take(self, event: Any, fault: str | None) -> None:
        """Take an input at a later time; a commit of it fails so."""
        self.sim.fault = fault
        self.sim.take(event)

    # -- the turn's own way ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.sim.state is None or self.sim.state.phase is Phase.OVER)
    @rule(new_run=st.booleans(), fault=FAULT, quick=QUICK)
    def begin(self, new_run: bool, fault: str | None, quick: bool) -> None:  # noqa: FBT001
        """A turn begins, or recovery."""
        if not self.sim.mail and self.sim.stored.row.open is None:
            self.sim.post(Lane.SEND)
        self.sim.now += 1
        self.sim.fault = fault
        self.sim.begin(new_run=new_run)
        self.hurry(quick)

    @precondition(lambda self: self.sim.state is None or self.sim.state.phase is Phase.OVER)
    @rule(fault=FAULT)
    def begin_alone(self, fault: str | None) -> None:
        """An idle agent is compacted."""
        if self.sim.stored.row.open is None and not any(q.envelope.lane is Lane.CONTROL for q in self.sim.mail):
            self.sim.now += 1
            self.sim.fault = fault
            self.sim.begin_alone()

    @waits_for(Phase.COMPACTING)
    @rule(what=st.sampled_from(["taken", "taken", "taken", "empty", "failed", "nothing"]), fault=FAULT, quick=QUICK)
    def summary_comes(self, what: str, fault: str | None, quick: bool) -> None:  # noqa: FBT001
        """The model summarises, or not."""
        sim = self.sim
        assert sim.state is not None
        chosen = plan(sim.in_force, 0.2, owed=sim.state.owed, least=0)
        sim.now += 0.5
        if chosen is None or what == "nothing":
            self.take(NotSummarised(sim.now, None), fault)
        elif what == "failed":
            self.take(NotSummarised(sim.now, Broken("gone"), Usage(fresh=1), Amounts(cost=1), cost_known=False), fault)
        else:
            text = TextBlock("in short" if what == "taken" else " ")
            served = Served(Response((text,), Stop.END_TURN), Usage(fresh=1), 3, 1, "x")
            self.take(Summarised(sim.now, served, SPENT, replace(chosen, size_bytes=9_999), 9_999), fault)
        self.hurry(quick)

    def hurry(self, quick: bool) -> None:  # noqa: FBT001
        """Straight to the next request, so that a search comes to what lies behind it."""
        self.sim.fault = None
        while quick and self.sim.state is not None and self.sim.state.phase in WAY_TO_THE_MODEL:
            match self.sim.state.phase:
                case Phase.HOOK:
                    self.hook_answers(None, None)
                case Phase.LOOKING:
                    self.looks(None, None)
                case _:
                    self.gate_answers("admit", 0, None)

    @waits_for(Phase.HOOK)
    @rule(error=st.sampled_from([None, None, None, UsageError("hook")]), fault=FAULT, quick=QUICK)
    def hook_returns(self, error: UsageError | None, fault: str | None, quick: bool) -> None:  # noqa: FBT001
        """Hooks are done, or one of them fails."""
        self.hook_answers(error, fault)
        self.hurry(quick)

    def hook_answers(self, error: UsageError | None, fault: str | None) -> None:
        """The answer to CallHook."""
        assert self.sim.hook
        self.sim.hook = False
        note = "" if error else "mind the gap"
        self.take(HookReturned(self.sim.now, error, None if error else TOOLS, note), fault)

    @waits_for(Phase.LOOKING)
    @rule(withdrawn=st.sampled_from([None] * 5 + [0, 1]), fault=FAULT, quick=QUICK)
    def look(self, withdrawn: int | None, fault: str | None, quick: bool) -> None:  # noqa: FBT001
        """The mailbox answers; someone may withdraw one of the messages before the commit."""
        self.looks(withdrawn, fault)
        self.hurry(quick)

    def looks(self, withdrawn: int | None, fault: str | None) -> None:
        """The answer to Look."""
        assert self.sim.looking
        self.sim.looking = False
        looked = self.sim.look()
        if withdrawn is not None:
            self.sim.move(ReceiptState.QUEUED, ReceiptState.WITHDRAWN, withdrawn)
        self.take(looked, fault)

    @waits_for(Phase.ADMITTING)
    @rule(what=GATE, which=st.integers(0, 3), how=HOWS, fault=FAULT, quick=QUICK)
    def gate(self, what: str, which: int, how: str, fault: str | None, quick: bool) -> None:  # noqa: FBT001
        """The gate lets the request in, has no place, or the budget refuses."""
        self.gate_answers(what, which, fault, how)
        self.hurry(quick)

    def gate_answers(self, what: str, which: int, fault: str | None, how: str = "wrap_up") -> None:
        """The answer to Admit."""
        sim, admit = self.sim, self.sim.admit
        assert admit is not None
        sim.admit = None
        if what == "wait" and not admit.wait:
            self.take(MustWait(sim.now), fault)
        elif admit.helper and which == 3:
            self.take(NotSummarised(sim.now, None), fault)
        elif what == "refuse":
            refusal = UsageError("no price") if which == 3 else exhausted(("tokens", "usd", "seconds")[which], how)
            self.take(NotAdmitted(sim.now, refusal), fault)
        else:
            ticket = f"t{len(sim.tickets)}"
            sim.tickets[ticket] = "held"
            self.take(Admitted(sim.now, ticket, HELD), fault)

    @waits_for(Phase.ASKING)
    @rule(
        blocks=BLOCKS,
        stop=STOP,
        refused=st.tuples(st.sampled_from([0, 0, 0, 1, 2]), HOWS),
        cost=st.sampled_from([3, None]),
        fault=FAULT,
    )
    def respond(
        self, blocks: tuple[Any, ...], stop: Stop, refused: tuple[int, str], cost: int | None, fault: str | None
    ) -> None:
        """The model answers; the budget may not grant all of its calls."""
        self.sim.now += 0.5
        calls = sum(isinstance(block, WireCall) for block in blocks)
        served = Served(Response(blocks, stop), Usage(fresh=1, visible=len(blocks)), cost, 1, "x")
        granted = max(calls - refused[0], 0) if calls else None
        short = exhausted("tool_calls", refused[1]) if granted is not None and granted < calls else None
        self.take(Responded(self.sim.now, served, SPENT, granted, short), fault)

    @waits_for(Phase.ASKING)
    @rule(
        names=st.lists(st.sampled_from(["look", "note", "deploy", "mount", "erase"]), min_size=1, max_size=3),
        fault=FAULT,
    )
    def call_tools(self, names: list[str], fault: str | None) -> None:
        """The model calls tools, validly."""
        blocks = tuple(WireCall(f"w{n}", name, VALID.get(name, "{}")) for n, name in enumerate(names))
        served = Served(Response(blocks, Stop.TOOL_CALLS), Usage(fresh=1), 3, 1, "x")
        self.take(Responded(self.sim.now, served, SPENT, len(blocks)), fault)

    @waits_for(Phase.RUNNING)
    @rule(picks=st.lists(st.integers(0, 3), min_size=1, max_size=3), status=STATUS, fault=FAULT, quick=QUICK)
    def calls_end(self, picks: list[int], status: ResultStatus, fault: str | None, quick: bool) -> None:  # noqa: FBT001
        """Some of the calls that run return, in any order, together."""
        self.take(CallsReturned(self.sim.now, self.outcomes(picks, status)), fault)
        self.hurry(quick)

    def outcomes(self, picks: list[int], status: ResultStatus) -> tuple[CallOutcome, ...]:
        """What some of the running calls gave; they do not run any more."""
        running = list(self.sim.running)
        found = {call: self.sim.running[call] for call in (running[pick % len(running)] for pick in picks)}
        for call in found:
            del self.sim.running[call]
        refused = 3 in picks
        return tuple(
            CallOutcome(call, status, (Text(f"of {call}"),), staged=staged(view, status, refused=refused))
            for call, view in found.items()
        )

    @precondition(lambda self: bool(self.sim.awaiting))
    @rule(number=st.integers(0, 3), verdict=VERDICT, fault=FAULT)
    def decide(self, number: int, verdict: Verdict, fault: str | None) -> None:
        """A person decides on a call."""
        waiting = self.sim.awaiting
        self.sim.fault = fault
        self.sim.decide(waiting[number % len(waiting)], verdict)

    # -- what comes in between -------------------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(["steer", "send", "typed", "choose", "withdraw", "hold", "wake"]), number=st.integers(0, 3)
    )
    def mail(self, what: str, number: int) -> None:
        """Someone sends a message, takes one back, holds or wakes one."""
        queued, held = ReceiptState.QUEUED, ReceiptState.HELD
        moves = {"withdraw": (queued, ReceiptState.WITHDRAWN), "hold": (queued, held), "wake": (held, queued)}
        if what in moves:
            self.sim.move(*moves[what], number)
        elif len(self.sim.messages) < 16:
            lane = Lane.STEER if what == "steer" else Lane.SEND
            select = Selection(("", "along", "new", "?")[number]) if what == "choose" else None
            self.sim.post(lane, output=NUMBER.key if what == "typed" else None, select=select)

    @precondition(lambda self: self.sim.state is not None)
    @rule(
        what=st.sampled_from(["nothing"] * 3 + ["abort", "interrupt", "leave", "crash", "fail", "overflow", "compact"]),
        blocks=BLOCKS,
        half=st.sampled_from(["", " ", "ha"]),
        picks=st.lists(st.integers(0, 3), max_size=2),
        fault=FAULT,
    )
    def disturb(self, what: str, blocks: tuple[Any, ...], half: str, picks: list[int], fault: str | None) -> None:
        """The process dies, the turn is cut, asked to leave, its request fails; or an input comes out of place."""
        sim = self.sim
        assert sim.state is not None
        if what == "crash":
            sim.crash()
        elif what in {"abort", "interrupt"} and sim.state.phase in UNDER_WAY:
            self.cut(what == "abort", blocks, half, picks, fault)
        elif what == "leave" and sim.state.phase in UNDER_WAY:
            self.take(SuspendAsked(sim.now), fault)
        elif what == "compact" and sim.state.phase in UNDER_WAY:
            self.take(CompactAsked(sim.now), fault)
        elif what == "overflow" and sim.state.phase is Phase.ASKING:
            self.take(Failed(sim.now, ContextOverflow("too long"), Usage(fresh=1), Amounts(cost=1)), fault)
        elif what == "fail" and sim.state.phase is Phase.ASKING:
            error = exhausted() if picks else Broken("cut off")
            self.take(Failed(sim.now, error, Usage(fresh=1), Amounts(cost=1)), fault)
        else:
            refused_out_of_place(sim.state)

    def cut(self, abort: bool, blocks: tuple[Any, ...], half: str, picks: list[int], fault: str | None) -> None:  # noqa: FBT001
        """An abort, or a steer that interrupts."""
        sim = self.sim
        assert sim.state is not None
        sim.post(Lane.CONTROL if abort else Lane.STEER, interrupt=not abort)
        control = tuple(queued for queued in sim.mail if queued.envelope.lane is Lane.CONTROL) if abort else ()
        sim.admit, sim.hook, sim.looking = None, False, False
        fields: dict[str, Any] = {"control": control, "reason": "enough" if abort else None}
        if sim.state.phase in (Phase.ASKING, Phase.COMPACTING):
            fields |= {"blocks": blocks, "half": half, "usage": Usage(fresh=1), "spent": Amounts(cost=2), "model": "x"}
        if sim.state.phase is Phase.RUNNING and picks:
            fields["outcomes"] = self.outcomes(picks, ResultStatus.OK)
        self.take(Cut(sim.now, **fields), fault)
        if abort and fault is None:
            assert sim.state.phase is Phase.OVER
        assert not sim.running

    @waits_for(*UNDER_WAY)
    @rule(how=st.sampled_from(["turn", "fail", "park"]), picks=st.lists(st.integers(0, 3), max_size=2), fault=FAULT)
    def time_is_up(self, how: str, picks: list[int], fault: str | None) -> None:
        """The turn's own time, or that of a budget."""
        sim = self.sim
        assert sim.state is not None
        sim.admit, sim.hook, sim.looking = None, False, False
        late = bounds.late(sim.state) if how == "turn" else exhausted("seconds", how)
        outcomes = self.outcomes(picks, ResultStatus.OK) if sim.state.phase is Phase.RUNNING and picks else ()
        self.take(Cut(sim.now, late=late, outcomes=outcomes), fault)
        assert not sim.running


def staged(call: CallView, status: ResultStatus, *, refused: bool) -> tuple[Operation, ...]:
    """What a call has written beside its result: nothing, unless it is a `store` call that did not fail."""
    if call.tool is None or call.tool.effect is not Effect.STORE or status is not ResultStatus.OK:
        return ()
    lands = Put(KvRow(AGENT, "agent", call.block.id, "1"))
    nowhere = Envelope(MessageId(f"m-{call.block.id}"), AgentId(f"{AGENT}/nobody"), Lane.SEND, (Text("hear me"),))
    return (lands, Enqueue(nowhere, LaneBound())) if refused else (lands,)


def refused_out_of_place(state: TurnState) -> None:
    """Every input that nothing was asked for raises, and changes nothing."""
    before = evolve(state)
    settled = next((call for call in state.calls if call.state is not CallState.STARTED), None)
    call = CallId("lead:t1.9.9") if settled is None else settled.block.id
    late = CallsReturned(0.0, (CallOutcome(call, ResultStatus.OK, (Text("late"),)),))
    for event in (*EVENTS, late):
        if state.phase not in WANTED.get(type(event), ()):
            with pytest.raises(InternalError):
                step(state, event)
    assert state == before


TurnMachine.TestCase.settings = settings(
    max_examples=120 * SEARCH,
    stateful_step_count=40,
    phases=[Search.explicit, Search.reuse, Search.generate, Search.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
test_what_holds_whatever_comes = TurnMachine.TestCase


def twice_crashed(*names: str) -> TurnMachine:
    """A turn that consumed two messages, the first of them pinned, and crashed twice; it had called these tools."""
    machine = TurnMachine()
    machine.set_up(TurnSpec(Limits(), Drain("all", "all"), frozenset(), None), None)
    machine.mail("send", 0)
    machine.begin(new_run=True, fault=None, quick=True)
    machine.call_tools(list(names), None)
    machine.sim.crash()
    machine.begin(new_run=False, fault=None, quick=False)
    machine.sim.crash()
    assert machine.sim.stored.row.open is not None
    return machine


def test_con_6_a_pinned_message_of_a_turn_given_up_stands_no_more() -> None:
    """A pinned message leaves the conversation with the turn that took it, and stands there when it comes again.

    The simulation once took it for lost.
    """
    machine = twice_crashed("look")
    machine.begin(new_run=False, fault=None, quick=False)
    sim = machine.sim
    assert sim.stored.row.open is None, "the turn was taken apart"
    assert len(sim.in_force.pinned()) == 0
    assert [queued.envelope.pinned for queued in sim.mail] == [True, False]
    machine.begin(new_run=False, fault=None, quick=True)
    assert len(sim.in_force.pinned()) == 1


def test_con_6_a_decision_on_a_call_of_a_turn_that_is_given_up_changes_nothing() -> None:
    """A turn that is given up as it begins takes no decision: what it asked a person is settled with it.

    The simulation once handed it one more input than a loop does.
    """
    machine = twice_crashed("look", "erase")
    sim = machine.sim
    assert len(sim.awaiting) == 1
    machine.decide(0, Verdict.APPROVED, None)
    assert sim.stored.row.open is None
    assert sim.awaiting == []
    assert sim.approved == set()
