"""The wait-for graph against a checker that knows nothing of graphs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.errors import UsageError, WaitCycle
from actors.ids import AgentId
from actors.waiting import Frame, Mode, Need, Wait
from supervisor.waits import WaitGraph

AGENTS = tuple(AgentId(name) for name in ("a", "a/b", "a/b/c", "a/d", "e", "ab"))
LEAD, MID, LEAF = AGENTS[:3]


def frame(agent: str, tool: str = "ask_agent", turn: int = 1) -> Frame:
    """A tool call's frame."""
    return Frame(AgentId(agent), turn, "tool", tool)


def begin(graph: WaitGraph, waiter: str, *targets: str, needs: Need = Need.LOOP, mode: Mode = Mode.ALL) -> Wait:
    """Open a wait of an agent's only tool call."""
    return graph.begin(frame(waiter), tuple(AgentId(t) for t in targets), needs=needs, mode=mode)


def needed(wait: Wait, target: AgentId) -> set[AgentId]:
    """Whom a target stands for: itself, and what is below it where it must exit."""
    below = {agent for agent in AGENTS if agent.startswith(target + "/")}
    return {target} | (below if wait.needs is Need.EXIT else set())


def self_supporting(stuck: set[AgentId], waits: list[Wait]) -> bool:
    """Whether nobody of the set can ever go on, provided that nobody of the set does."""

    def blocked(wait: Wait) -> bool:
        parts = [bool(needed(wait, target) & stuck) for target in wait.targets]
        return any(parts) if wait.mode is Mode.ALL else all(parts)

    return all(any(blocked(wait) for wait in waits if wait.waiter.agent == agent) for agent in stuck)


def deadlocked(waits: list[Wait]) -> set[AgentId]:
    """Every agent of every self-supporting set, by trying all sets."""
    sets = itertools.chain.from_iterable(itertools.combinations(AGENTS, size) for size in range(1, len(AGENTS) + 1))
    return {agent for members in sets if self_supporting(set(members), waits) for agent in members}


WAIT = st.tuples(
    st.sampled_from(AGENTS),
    st.lists(st.sampled_from(AGENTS), min_size=1, max_size=3, unique=True).map(tuple),
    st.sampled_from([Need.LOOP, Need.LOOP, Need.LOOP, Need.UNWIND, Need.EXIT]),
    st.sampled_from(Mode),
)
STEP = st.one_of(WAIT, st.integers(min_value=0, max_value=20))


def replay(steps: list[tuple[AgentId, tuple[AgentId, ...], Need, Mode] | int]) -> int:
    """Open and close waits; each answer must be the brute-force checker's. Returns how many were refused."""
    graph = WaitGraph()
    held: list[Wait] = []
    refused = 0
    for step in steps:
        if isinstance(step, int):
            if held:
                graph.end(held.pop(step % len(held)))
            continue
        agent, targets, needs, mode = step
        expected = deadlocked([*held, Wait(frame(agent), targets, needs, mode)])
        before = repr(graph._of), repr(graph._for), graph.statistics().open
        try:
            held.append(graph.begin(frame(agent), targets, needs=needs, mode=mode))
        except WaitCycle as error:
            refused += 1
            path = error.path
            assert expected, f"false refusal of {step} while {held}"
            assert path[0].startswith(agent)
            assert path[-1] == agent
            assert len(path) >= 2
            assert before == (repr(graph._of), repr(graph._for), graph.statistics().open)
        else:
            assert not expected, f"missed deadlock of {expected} by {step} while {held[:-1]}"
        assert graph.deadlocked() == ()
    for wait in held:
        graph.end(wait)
    assert not graph._of
    assert not graph._for
    return refused


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=14))
def test_waits_1_no_deadlock_is_missed_and_no_wait_falsely_refused(steps: list[object]) -> None:
    """For AND, OR and mixed waits, with and without exits, each answer is that of trying all sets of agents."""
    replay(steps)  # type: ignore[arg-type]


def test_the_property_meets_refusals() -> None:
    """The generator is not vacuous: among all pairs and triples of simple waits some are refused and some are not."""
    ring = [(a, (b,), Need.LOOP, Mode.ALL) for a, b in itertools.permutations(AGENTS[:3], 2)]
    outcomes = {replay(list(three)) for three in itertools.product(ring, repeat=3)}
    assert outcomes >= {0, 1, 2}


@pytest.mark.parametrize("length", range(1, 7))
def test_ree_2_a_cycle_of_any_length_is_refused_with_its_whole_path(length: int) -> None:
    """The newest wait closes the ring and is told every agent, turn and tool on it; those who wait into it are not."""
    graph = WaitGraph()
    ring = [AgentId(f"n{i}") for i in range(length)]
    for i, (waiter, target) in enumerate(itertools.pairwise(ring)):
        graph.begin(Frame(waiter, i + 1, "tool", f"t{i}"), (target,))
    begin(graph, "tail2", "tail1")
    begin(graph, "tail1", ring[0])
    with pytest.raises(WaitCycle) as caught:
        graph.begin(Frame(ring[-1], length, "tool", "last"), (ring[0],))
    assert len(caught.value.path) == length + 1
    for i, agent in enumerate(ring[:-1]):
        assert f"{agent} (turn {i + 1}, tool t{i})" in str(caught.value)
    assert f"{ring[-1]} (turn {length}, tool last)" in str(caught.value)
    assert "tail" not in str(caught.value)
    assert "send()" in str(caught.value)
    assert graph.statistics().open == length - 1 + 2


@pytest.mark.parametrize(
    ("needs", "form"), [("loop", "send()"), ("step", "compact()"), ("unwind", "abort()"), ("exit", "close()")]
)
def test_ree_2_the_refusal_names_the_requesting_form(needs: str, form: str) -> None:
    """What to use instead fits what was to be waited for; waiting for oneself is a cycle of one."""
    with pytest.raises(WaitCycle, match="a \\(turn 1, tool ask_agent\\) waits for a;") as caught:
        begin(WaitGraph(), "a", "a", needs=Need(needs))
    assert form in str(caught.value)


def test_ree_2_a_childs_question_completes_its_ancestors_wait() -> None:
    """The ancestor's wait for the one between is found and ends in the same step in which the child's wait begins."""
    graph = WaitGraph()
    lead = begin(graph, LEAD, MID)
    begin(graph, MID, LEAF)
    with pytest.raises(WaitCycle):
        begin(graph, LEAF, LEAD)
    found = graph.ancestor_wait(LEAF, LEAD)
    assert found is lead
    asked = graph.begin(frame(LEAF), (LEAD,), completing=found)
    assert graph.waits_of(LEAD) == ()
    assert graph.waiters_of(LEAD) == (asked,)
    graph.end(lead)  # its own finally: nothing more happens
    with pytest.raises(WaitCycle):  # not before the answer, for the leaf still waits for it
        begin(graph, LEAD, MID)
    graph.end(asked)
    begin(graph, LEAD, MID)


def test_ree_2_an_ancestor_that_waits_for_someone_else_too_is_not_completed_into_a_cycle() -> None:
    """Where completing one wait leaves another way back, the question is refused and the ancestor's wait stays."""
    graph = WaitGraph()
    lead = begin(graph, "a", "a/b")
    begin(graph, "a", "e")
    begin(graph, "e", "a/b")
    assert graph.ancestor_wait(AgentId("a/b"), AgentId("a")) is lead
    with pytest.raises(WaitCycle):
        graph.begin(frame("a/b"), (AgentId("a"),), completing=lead)
    assert lead in graph.waits_of(AgentId("a"))


def test_ree_2_only_a_wait_for_the_child_itself_is_an_ancestors_wait() -> None:
    """Waits for others, for an exit, and of agents that are no ancestors are not the child's to complete."""
    graph = WaitGraph()
    begin(graph, "a", "a/d")
    begin(graph, "a", "a/b", needs=Need.EXIT)
    begin(graph, "a/b", "e")
    assert graph.ancestor_wait(LEAF, LEAD) is None
    assert graph.ancestor_wait(LEAF, MID) is None
    assert graph.ancestor_wait(AgentId("e"), LEAD) is None
    assert graph.ancestor_wait(AgentId("a/bee"), LEAD) is None


def test_ree_2_a_close_awaited_from_below_is_refused() -> None:
    """A tool anywhere below an agent cannot wait for the agent to stop, for the agent stops after it."""
    graph = WaitGraph()
    with pytest.raises(WaitCycle):
        begin(graph, LEAF, LEAD, needs=Need.EXIT)
    begin(graph, LEAF, "e")
    with pytest.raises(WaitCycle):
        begin(graph, "e", LEAD, needs=Need.EXIT)
    begin(graph, "f", LEAD, needs=Need.EXIT)
    with pytest.raises(WaitCycle):  # the other way round: somebody waits for the close already
        begin(graph, "a/d", "f")
    begin(graph, "ab", "f")  # its path begins alike, and it is not below


def test_ree_3_code_that_outlived_its_turn_is_not_counted() -> None:
    """When a frame's code has ended, its waits leave the graph, and what they would have refused is let in."""
    graph = WaitGraph()
    gone, left = frame("a", "gone"), frame("a", "left_behind")
    graph.begin(gone, (AgentId("e"),))
    with pytest.raises(WaitCycle):
        begin(graph, "e", "a")
    kept = graph.begin(left, (AgentId("f"),))  # a tool left behind by an abort: its frame is open, so it counts
    graph.leave(gone)
    begin(graph, "e", "a")
    with pytest.raises(WaitCycle):
        begin(graph, "f", "e")
    assert graph.waits_of(AgentId("a")) == (kept,)


def test_ree_4_one_agents_turn_may_wait_for_anothers() -> None:
    """Chains, diamonds and many waiters are let in: only a way back is refused."""
    graph = WaitGraph()
    begin(graph, "a", "a/b", "a/d")
    begin(graph, "a/b", "e")
    begin(graph, "a/d", "e")
    begin(graph, "e", "f")
    assert graph.statistics().refused == 0
    assert graph.deadlocked() == ()


def test_ree_2_a_cycle_through_one_branch_of_an_any_wait_is_no_deadlock() -> None:
    """A wait for any of two ends by the other branch; when that too leads back, the newest wait is refused."""
    graph = WaitGraph()
    begin(graph, "a", "e", "f", mode=Mode.ANY)
    begin(graph, "e", "a")
    with pytest.raises(WaitCycle):
        begin(graph, "f", "a")
    assert graph.deadlocked() == ()


def test_the_sweeper_reports_cycle_and_tail() -> None:
    """If a cycle ever got in (here: by hand), the sweep names it and all who wait into it, every time it is asked."""
    graph = WaitGraph()
    begin(graph, "tail", "a")
    begin(graph, "a", "e")
    forced = Wait(frame("e"), (AgentId("a"),))
    graph._of[AgentId("e")] = [forced]
    assert graph.deadlocked() == ("a", "e", "tail")
    assert graph.deadlocked() == ("a", "e", "tail")


def test_waits_2_a_refused_call_changes_nothing() -> None:
    """No target is a usage error, and the graph is as before."""
    graph = WaitGraph()
    with pytest.raises(UsageError, match="at least one"):
        begin(graph, "a")
    assert graph.statistics().begun == 0
    assert repr(graph) == "<WaitGraph 0 open, 0 begun, 0 refused>"


def test_waits_3_a_wait_is_there_from_begin_to_end() -> None:
    """Those who are waited for are told once per wait, and are waited for until the last wait ends."""
    graph = WaitGraph()
    told: list[AgentId] = []
    graph.watch(told.append)
    one, two = begin(graph, "a", "e"), begin(graph, "f", "e")
    assert told == ["e", "e"]
    graph.end(one)
    graph.end(one)
    assert graph.is_waited_for(AgentId("e"))
    assert graph.waiters_of(AgentId("e")) == (two,)
    graph.end(two)
    assert not graph.is_waited_for(AgentId("e"))
