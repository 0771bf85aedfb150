"""The wait-for graph by example: what is refused, what is let in, and what is said. The rule: `test_knots.py`."""

from __future__ import annotations

import itertools

import pytest

from actors.errors import UsageError, WaitCycle
from actors.ids import AgentId
from actors.waiting import Frame, Mode, Need, Wait
from supervisor.knots import Web, node_of
from supervisor.waits import WaitGraph

LEAD, MID, LEAF = (AgentId(name) for name in ("a", "a/b", "a/b/c"))


def frame(agent: str, tool: str = "ask_agent", turn: int = 1) -> Frame:
    """A tool call's frame."""
    return Frame(AgentId(agent), turn, "tool", tool)


def begin(graph: WaitGraph, waiter: str, *targets: str, needs: Need = Need.REPLY, mode: Mode = Mode.ALL) -> Wait:
    """Open a wait of an agent's only tool call."""
    return graph.begin(frame(waiter), tuple(AgentId(t) for t in targets), needs=needs, mode=mode)


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
    ("needs", "form"),
    [("reply", "send()"), ("idle", "send()"), ("step", "compact()"), ("unwind", "abort()"), ("exit", "close()")],
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
    found = graph.ancestor_waits(frame(LEAF), LEAD)
    assert found == (lead,)
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
    found = graph.ancestor_waits(frame("a/b"), AgentId("a"))
    assert found == (lead,)
    with pytest.raises(WaitCycle):
        graph.begin(frame("a/b"), (AgentId("a"),), completing=found)
    assert lead in graph.waits_of(AgentId("a"))


def test_ree_2_every_wait_for_the_child_or_its_branch_is_completed() -> None:
    """Two calls that wait for one branch, and one that waits for any of several, all end by its question."""
    graph = WaitGraph()
    one, two = begin(graph, "a", "a/b"), begin(graph, "a", "a/b", "a/d", mode=Mode.ANY)
    begin(graph, "a", "a/d")
    assert graph.ancestor_waits(frame(LEAF), LEAD) == (one, two)
    graph.begin(frame(LEAF), (LEAD,), completing=(one, two))
    assert graph.statistics().open == 2


def test_ree_2_only_a_wait_for_a_report_of_the_branch_is_an_ancestors_wait() -> None:
    """Waits for others, for idleness or an exit, and of agents that are no ancestors, are not the child's."""
    graph = WaitGraph()
    begin(graph, "a", "a/d")
    begin(graph, "a", "a/b", needs=Need.EXIT)
    begin(graph, "a", "a/b", needs=Need.IDLE)
    begin(graph, "a/b", "e")
    for child, ancestor in ((LEAF, LEAD), (LEAF, MID), ("e", LEAD), ("a/bee", LEAD)):
        assert graph.ancestor_waits(frame(child), AgentId(ancestor)) == ()


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


def test_ree_3_code_that_stands_apart_holds_up_only_who_needs_its_resource() -> None:
    """Given up, it is refused nothing and nobody is for it; but a call that waits for it is, where that never ends."""
    graph = WaitGraph()
    given_up, call = frame("a", "deaf"), frame("a", "again")
    kept = graph.begin(given_up, (AgentId("e"),))
    with pytest.raises(WaitCycle):
        begin(graph, "e", "a")
    graph.set_apart(given_up, "c1")
    graph.set_apart(given_up, "c1")
    asking = begin(graph, "e", "a")
    own = graph.begin(given_up, (LEAD,))
    with pytest.raises(WaitCycle, match="another resource key") as caught:
        graph.begin_behind(call, (given_up,))
    assert "a (turn 1, tool again) waits for a (turn 1, tool deaf) waits for" in str(caught.value)
    graph.end(own)
    with pytest.raises(WaitCycle):  # by way of e, which waits for the agent
        graph.begin_behind(call, (given_up,))
    graph.end(asking)
    behind = graph.begin_behind(call, (given_up,))
    with pytest.raises(WaitCycle):  # now it holds up its agent again
        begin(graph, "e", "a")
    graph.end(behind)
    begin(graph, "e", "a")
    graph.leave(given_up)
    graph.end(kept)
    assert graph.statistics().open == 1


def test_waits_4_one_graph_for_several_stores_tells_their_paths_apart() -> None:
    """A ring over two stores is refused, and named with its stores; the same path in another store is another agent."""
    web = Web()
    here, there = WaitGraph(web, "s1"), WaitGraph(web, "s2")
    told: list[AgentId] = []
    here.watch(told.append)
    out = there.begin(Frame(LEAD, 1, "tool", "call_out", place="s1"), (LEAD,))
    assert told == []
    assert here.targets_of(out) == ()
    assert there.waiters_of(LEAD) == ()
    assert there.is_waited_for(LEAD)
    assert not here.is_waited_for(LEAD)
    assert here.ancestor_waits(Frame(MID, 1, "tool", place="s2"), LEAD) == ()
    with pytest.raises(WaitCycle) as caught:
        here.begin(Frame(LEAD, 3, "tool", "call_back", place="s2"), (LEAD,))
    assert "a (turn 3, tool call_back) of store s2 waits for a (turn 1, tool call_out) of store s1" in str(caught.value)
    there.begin(Frame(MID, 1, "tool", place="s1"), (MID,))
    assert told == []


def test_waits_1_what_is_said_of_an_any_wait_names_all_that_would_end_it() -> None:
    """On the path of a refusal, a wait for any of several says so."""
    graph = WaitGraph()
    begin(graph, "a", "e", "f", mode=Mode.ANY)
    begin(graph, "e", "a")
    with pytest.raises(WaitCycle, match="waits for any of e, f, so for"):
        begin(graph, "f", "a")


def test_the_sweeper_reports_cycle_and_tail() -> None:
    """If a cycle ever got in (here: past the check), the sweep names it and all who wait into it, at each asking."""
    web = Web()
    graph = WaitGraph(web)
    begin(graph, "tail", "a")
    begin(graph, "a", "e")
    web.add(Wait(frame("e"), (LEAD,), Need.REPLY, Mode.ALL, "", (node_of("", LEAD),)))
    assert graph.deadlocked() == (":a", ":e", ":tail")
    assert graph.deadlocked() == (":a", ":e", ":tail")


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
