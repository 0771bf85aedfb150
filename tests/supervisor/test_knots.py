"""The check of a new wait against a simulation that knows nothing of graphs: let whoever can go on do so, and see."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors.errors import WaitCycle
from actors.ids import AgentId
from actors.waiting import Frame, Mode, Need, Wait
from supervisor.knots import Web, node_of
from supervisor.waits import WaitGraph

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Sequence

PATHS = tuple(AgentId(name) for name in ("a", "a/b", "a/b/c", "a/d", "e", "ab"))
PLACES = ("s", "t")
SEARCH = int(os.environ.get("CALLBOARD_SEARCH", "1"))
Who = tuple[str, str]
"""A place and a path; or a place and the name of code that stands apart."""


@attrs.define(eq=False)
class Model:
    """What a frame is waiting for, as somebody would write it down who watched. `needs`: alternatives of parts."""

    who: Who
    frame: Frame
    place: str
    targets: tuple[str, ...]
    needs: Need
    mode: Mode
    wait: Wait | None = None


def below(place: str, root: str, known: Collection[Who]) -> list[Who]:
    """Whom an exit needs: all at and below a path."""
    return [who for who in known if who[0] == place and (who[1] == root or who[1].startswith(root + "/"))]


def goes_on(waits: Sequence[Model], dice: random.Random) -> set[Who]:
    """Everybody who goes on in the end: one after another, in any order, whoever has nothing left to wait for."""
    everybody = {(place, path) for place in PLACES for path in PATHS} | {model.who for model in waits}
    everybody |= {(model.place, target) for model in waits for target in model.targets}
    gone: set[Who] = set()

    def ended(model: Model) -> bool:
        parts = []
        for target in model.targets:
            whom = [(model.place, target)]
            if model.needs is Need.EXIT:
                whom = below(model.place, target, everybody)
            parts.append(all(one in gone for one in whom))
        return all(parts) if model.mode is Mode.ALL else any(parts)

    moved = True
    while moved:
        moved = False
        left = sorted(everybody - gone)
        dice.shuffle(left)
        for who in left:
            if all(ended(model) for model in waits if model.who == who):
                gone.add(who)
                moved = True
    return gone


class Graph(RuleBasedStateMachine):
    """Waits begin, end, are completed by a child's question, lose their code, or stand apart."""

    def __init__(self) -> None:
        super().__init__()
        self.web = Web()
        self.graphs = {place: WaitGraph(self.web, place) for place in PLACES}
        self.frames: list[Frame] = []
        self.begun = 0
        self.apart: dict[Frame, str] = {}
        self.held: list[Model] = []
        self.dice: random.Random

    @initialize(dice=st.randoms(use_true_random=False))
    def begins(self, dice: random.Random) -> None:
        """Chance is Hypothesis's."""
        self.dice = dice

    def who(self, frame: Frame) -> Who:
        """Whom a frame holds up."""
        return frame.place, self.apart.get(frame) or frame.agent

    def stuck(self, waits: Sequence[Model]) -> set[Who]:
        """Whoever never goes on."""
        return {model.who for model in waits} - goes_on(waits, self.dice)

    def tried(self, new: Model, completing: Sequence[Model] = ()) -> None:
        """Begin a wait; the answer is the simulation's, and a refusal leaves all as it was."""
        left = [model for model in self.held if model not in completing]
        expected = self.stuck([*left, new])
        before = self.shown()
        graph = self.graphs[new.place]
        refused: WaitCycle | None = None
        try:
            if new.needs is Need.RELEASE:
                new.wait = graph.begin_behind(new.frame, [self.named(name) for name in new.targets])
            else:
                targets = [AgentId(path) for path in new.targets]
                ending = [model.wait for model in completing if model.wait is not None]
                new.wait = graph.begin(new.frame, targets, needs=new.needs, mode=new.mode, completing=ending)
        except WaitCycle as error:
            refused = error
        if refused is not None:
            assert new.who in expected, f"false refusal: {refused}"
            assert self.shown() == before
            assert refused.path[0].startswith(new.frame.agent)
            assert refused.path[-1] == new.frame.agent
            return
        assert not expected, f"missed: {expected}"
        self.held = [*left, new]

    def named(self, name: str) -> Frame:
        """The frame that stands apart under a name."""
        return next(frame for frame, apart in self.apart.items() if apart == name)

    def shown(self) -> tuple[object, ...]:
        """The graph, as far as it can be looked at."""
        of = [(place, path, self.graphs[place].waits_of(path)) for place in PLACES for path in PATHS]
        named = [self.web.waiters_of(node_of(place, path)) for place in PLACES for path in PATHS]
        return len(self.web), tuple(of), tuple(named)

    # -- what happens ----------------------------------------------------------------------------------------------

    @rule(path=st.sampled_from(PATHS), place=st.sampled_from("sst"))
    def code_begins(self, path: AgentId, place: str) -> None:
        """A tool call or hook of an agent begins."""
        self.begun = number = self.begun + 1
        self.frames.append(Frame(path, number, "tool", f"t{number}", place=place))

    @precondition(lambda self: self.frames)
    @rule(
        pick=st.integers(0, 99),
        place=st.sampled_from("sst"),
        whom=st.lists(st.sampled_from(PATHS), min_size=1, max_size=3, unique=True),
        needs=st.sampled_from([Need.REPLY, Need.REPLY, Need.REPLY, Need.IDLE, Need.UNWIND, Need.EXIT]),
        mode=st.sampled_from(Mode),
    )
    def a_wait(self, pick: int, place: str, whom: list[AgentId], needs: Need, mode: Mode) -> None:
        """A frame begins to wait, also one that waits already, in another of its tasks."""
        frame = self.frames[pick % len(self.frames)]
        self.tried(Model(self.who(frame), frame, place, tuple(whom), needs, mode))

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 99))
    def a_wait_ends(self, pick: int) -> None:
        """By its condition, an error, or a cancellation."""
        model = self.held.pop(pick % len(self.held))
        assert model.wait is not None
        self.graphs[model.place].end(model.wait)
        self.graphs[model.place].end(model.wait)

    @precondition(lambda self: self.frames)
    @rule(pick=st.integers(0, 99))
    def code_ends(self, pick: int) -> None:
        """A frame's code has ended; what it left waiting holds up nobody (REE-3)."""
        frame = self.frames.pop(pick % len(self.frames))
        self.graphs[frame.place].leave(frame)
        name = self.apart.pop(frame, None)
        self.held = [model for model in self.held if model.frame is not frame]
        for model in [model for model in self.held if model.needs is Need.RELEASE and name in model.targets]:
            assert model.wait is not None
            self.graphs[model.place].end(model.wait)
            self.held.remove(model)

    @precondition(lambda self: self.frames)
    @rule(pick=st.integers(0, 99))
    def code_is_given_up(self, pick: int) -> None:
        """An agent's loop waits for a frame no more; its waits are its own from now on (REE-3)."""
        frame = self.frames[pick % len(self.frames)]
        name = self.apart.setdefault(frame, f"!{frame.agent}!{frame.name}")
        self.graphs[frame.place].set_apart(frame, frame.name)
        for model in self.held:
            if model.frame is frame:
                model.who = (frame.place, name)

    @precondition(lambda self: self.apart and len(self.apart) < len(self.frames))
    @rule(pick=st.integers(0, 99), other=st.integers(0, 99))
    def a_call_needs_its_resource(self, pick: int, other: int) -> None:
        """A later call of the same agent waits for code that was given up."""
        holder = sorted(self.apart, key=lambda frame: frame.turn)[pick % len(self.apart)]
        calls = [frame for frame in self.frames if frame not in self.apart and frame.place == holder.place]
        if calls:
            frame = calls[other % len(calls)]
            name = self.apart[holder]
            self.tried(Model(self.who(frame), frame, frame.place, (name,), Need.RELEASE, Mode.ALL))

    @precondition(lambda self: self.frames)
    @rule(pick=st.integers(0, 99), path=st.sampled_from(PATHS))
    def a_child_asks(self, pick: int, path: AgentId) -> None:
        """An `ask` upward: what of the ancestor waits for the asker's branch ends by it."""
        frame = self.frames[pick % len(self.frames)]
        waits = self.graphs[frame.place].ancestor_waits(frame, path)
        ending = [model for model in self.held if model.wait in waits]
        assert len(ending) == len(waits)
        for model in ending:
            assert model.needs is Need.REPLY
            assert (model.frame.agent, model.frame.place) == (path, frame.place)
        new = Model(self.who(frame), frame, frame.place, (path,), Need.REPLY, Mode.ALL)
        self.tried(new, ending)

    # -- what holds ------------------------------------------------------------------------------------------------

    @invariant()
    def nobody_is_stuck(self) -> None:
        """WAITS-1, by the simulation and by the sweep."""
        if self.held:
            assert not self.stuck(self.held)
        assert self.web.stuck() == ()
        assert len(self.web) == len(self.held)

    def teardown(self) -> None:
        """When all have ended, nothing is kept (WEB-2)."""
        for frame in self.frames:
            self.graphs[frame.place].leave(frame)
        for model in self.held:
            assert model.wait is not None
            self.graphs[model.place].end(model.wait)
        for table in (self.web._of, self.web._for, self.web._under, self.web._apart, self.web._open):
            assert not table


Graph.TestCase.settings = settings(
    max_examples=30 * SEARCH,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


TestWaits1NoDeadlockIsMissedAndNoWaitFalselyRefused = Graph.TestCase


def test_the_machine_meets_refusals() -> None:
    """The generator is not vacuous: among all triples of simple waits some have none refused, some one, some two."""
    outcomes = set()
    pairs = list(itertools.permutations(PATHS[:3], 2))
    for three in itertools.product(pairs, repeat=3):
        graph, refused = WaitGraph(), 0
        for waiter, target in three:
            try:
                graph.begin(Frame(waiter, 1, "tool"), (target,))
            except WaitCycle:
                refused += 1
        outcomes.add(refused)
    assert outcomes >= {0, 1, 2}


def test_web_3_a_check_looks_only_where_the_new_wait_leads() -> None:
    """Ten thousand waits elsewhere, and as many for the waiter, are not looked at: counted, not timed."""
    web = Web()
    graph = WaitGraph(web)
    for at in range(2_000):
        graph.begin(Frame(AgentId(f"w{at}"), 1, "tool"), (AgentId("hub"),))
        graph.begin(Frame(AgentId(f"x{at}"), 1, "tool"), (AgentId(f"y{at}"), AgentId(f"z{at}")), mode=Mode.ANY)
        graph.begin(Frame(AgentId(f"t{at}"), 1, "tool"), (AgentId(f"u{at}"),), needs=Need.EXIT)
    looked = 0
    of = web._of

    class Counting(dict):  # type: ignore[type-arg]
        """Counts what is looked up."""

        def get(self, *arguments: object) -> object:
            nonlocal looked
            looked += 1
            return super().get(*arguments)

    web._of = Counting(of)
    graph.begin(Frame(AgentId("hub"), 1, "tool"), (AgentId("u1"), AgentId("far")))
    assert looked <= 6
