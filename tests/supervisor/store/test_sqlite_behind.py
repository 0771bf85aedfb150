"""What a group writes at its end: the same as its sets would write one after the other, with few statements."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import outcome
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.changes import (
    AgentRow,
    Append,
    Bump,
    CallRow,
    CallState,
    ChangeSet,
    Claim,
    Enqueue,
    Erase,
    Intake,
    Move,
    OutcomeRow,
    Put,
    Require,
    Shut,
)
from actors.content import Text
from actors.errors import CallboardError, Conflict
from actors.ids import AgentId, MessageId, TreeId, call_id, run_id, turn_id
from actors.messages import Envelope, Lane, LaneBound, Outcome, ReceiptState, Status
from actors.transcript import NoteRecord
from supervisor.store.leases import Holder
from supervisor.store.memory import open_memory_store
from supervisor.store.sqlite_file import open_reader, open_writer
from supervisor.store.sqlite_owners import take
from supervisor.store.sqlite_reads import Reads
from supervisor.store.sqlite_turn import Turnstile
from supervisor.store.sqlite_writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TREE = TreeId("a")
AGENTS = (AgentId("a"), AgentId("a/b"))
MISCOUNTED = """
    SELECT * FROM agents a
    WHERE queued != (SELECT count(*) FROM messages m WHERE m.agent = a.agent AND state = 'queued')
    OR control_n + steer_n + send_n
    != (SELECT count(*) FROM messages m WHERE m.agent = a.agent AND state IN ('queued', 'held'))
"""
"""STORE-3: the agents whose counters are not those of their messages."""
ROWS = tuple([Put(AgentRow(agent, agent.rpartition("/")[0], "w", "d"), fresh=True) for agent in AGENTS])
TABLES = ("agents", "messages", "records", "calls", "outcomes", "counters")


@contextmanager
def opened() -> Iterator[Writer]:
    """A writer of a new store with two agents."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agents.db"
        writer = Writer("agents.db", open_writer(path), Turnstile(path))
        own = take(TREE, Holder("h", boot="b", lease_s=None), lambda: 0.0)
        for result in writer.write([own, ChangeSet(TREE, 1, ROWS)]):
            result.unwrap()
        yield writer
        writer.close()


def message(name: str, agent: AgentId, *, key: str | None = None, lane: Lane = Lane.SEND) -> Enqueue:
    """A message for an agent whose lanes hold three."""
    return Enqueue(Envelope(MessageId(name), agent, lane, (Text("x"),), key=key), LaneBound(messages=3))


agents = st.sampled_from(AGENTS)
names = st.sampled_from([f"m{number}" for number in range(5)])
turns = st.builds(turn_id, agents, st.integers(1, 2))
calls = st.builds(lambda turn: call_id(turn, 1, 0), turns)


def call_row(call: Any, state: CallState) -> Put:
    """Write a call."""
    agent, _, _ = call.partition(":")
    return Put(CallRow(call, AgentId(agent), call.partition(".")[0], "tool", "{}", state))


def ended(turn: Any, text: str) -> Put:
    """Write the outcome of a turn."""
    agent = AgentId(turn.partition(":")[0])
    return Put(OutcomeRow(turn, agent, run_id(agent, 1), Outcome(agent, run_id(agent, 1), turn, Status.DONE, text)))


def row(agent: AgentId, turns_begun: int, *, owes: bool) -> Put:
    """Write an agent's row."""
    return Put(AgentRow(agent, agent.rpartition("/")[0], "w", "d", owes=owes, turns=turns_begun))


operations = st.one_of(
    st.builds(message, names, agents, key=st.sampled_from([None, None, "k"]), lane=st.sampled_from(Lane)),
    st.builds(lambda agent, name, turn: Claim(agent, (MessageId(name),), turn), agents, names, turns),
    st.builds(lambda agent, at: Append(agent, at, (NoteRecord(turn_id(agent, 1), "n", str(at)),)), agents,
              st.integers(0, 3)),
    st.builds(row, agents, st.integers(0, 9), owes=st.booleans()),
    st.builds(call_row, calls, st.sampled_from([CallState.STARTED, CallState.AWAITING])),
    st.builds(lambda call: Erase(CallRow, (call,)), calls),
    st.builds(ended, turns, st.sampled_from(["x", "y"])),
    st.builds(lambda agent: Move(agent, (ReceiptState.QUEUED,), ReceiptState.HELD), agents),
    st.builds(lambda agent, name: Move(agent, (ReceiptState.HELD, ReceiptState.CONSUMED), ReceiptState.QUEUED,
                                       (MessageId(name),)), agents, names),
    st.builds(lambda agent, turns_begun: Require(AgentRow, (agent,), "turns", turns_begun), agents, st.integers(0, 3)),
    st.just(Bump("n", bound=3)),
    st.builds(Shut, agents, st.just(Intake.CLOSING)),
)  # fmt: skip


@st.composite
def groups(draw: st.DrawFn) -> list[list[ChangeSet]]:
    """Groups of sets that nearly all succeed, each in need of what one before it has written, and a few that fail."""
    found: list[list[ChangeSet]] = [[]]
    length = dict.fromkeys(AGENTS, 0)
    for number in range(draw(st.integers(1, 12))):
        agent, name = draw(agents), f"n{number}"
        turn = turn_id(agent, number + 1)
        call, begun = call_id(turn, 1, 0), draw(st.integers(0, 9))
        appended = Append(agent, length[agent], (NoteRecord(turn, "n", name),))
        length[agent] += 1
        operations_of: list[list[Any]] = [
            [[message(name, agent)], [Claim(agent, (MessageId(name),), turn), appended]],
            [[message(name, agent, key=name), appended], [message(f"{name}b", agent, key=name)]],
            [
                [message(name, agent, lane=Lane.STEER), Move(agent, (ReceiptState.QUEUED,), ReceiptState.HELD)],
                [Claim(agent, (MessageId(name),), turn), appended],
            ],
            [
                [call_row(call, CallState.STARTED)],
                [call_row(call, CallState.AWAITING), appended],
                [Erase(CallRow, (call,))],
            ],
            [
                [call_row(call, CallState.STARTED), Erase(CallRow, (call,)), call_row(call, CallState.STARTED)],
                [appended],
            ],
            [[row(agent, begun, owes=True), appended], [Require(AgentRow, (agent,), "turns", begun)]],
            [
                [ended(turn, "x"), row(agent, begun, owes=False)],
                [ended(turn, "y"), row(agent, begun, owes=True), appended],
            ],
            [[row(agent, begun, owes=True), Require(AgentRow, (agent,), "turns", -1)], [appended]],
            [[appended], draw(st.lists(operations, min_size=1, max_size=2)) if draw(st.integers(0, 3)) == 0 else []],
        ]
        for one in draw(st.sampled_from(operations_of)):
            found[-1].append(ChangeSet(TREE, 1, tuple(one)))
            if draw(st.integers(0, 4)) == 0:
                found.append([])
    return [group for group in found if group]


def carried_out(groups: Sequence[Sequence[ChangeSet]]) -> tuple[list[Any], list[Any], dict[str, list[Any]]]:
    """What the sets come to, group by group; the agents that are then read; and what stands in the tables."""
    with opened() as writer:
        told = [
            type(result.error) if isinstance(result, outcome.Error) else result.value
            for group in groups
            for result in writer.write(group)
        ]
        left = {table: writer._db.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}  # noqa: S608
        assert writer._db.pragma("integrity_check") == "ok"
        assert not writer._db.execute(MISCOUNTED).fetchall()
        reads = Reads("agents.db", open_reader(Path(writer._db.filename)))
        stored = [reads.load_agent(agent) for agent in AGENTS]
        reads.close()
        return told, stored, left


async def in_memory(sets: Sequence[ChangeSet]) -> tuple[list[Any], list[Any]]:
    """What the sets come to in a store in memory, and the agents that are then read."""
    store = open_memory_store()
    await store.own(TREE, store.new_holder())
    store.commit_nowait(ChangeSet(TREE, 1, ROWS))
    told: list[Any] = []
    for one in sets:
        try:
            told.append(store.commit_nowait(one))
        except CallboardError as error:
            told.append(type(error))
    return told, [await store.load_agent(agent) for agent in AGENTS]


@settings(max_examples=60, deadline=None)
@given(groups=groups())
def test_store_1_a_group_writes_what_its_sets_would_one_by_one(groups: list[list[ChangeSet]]) -> None:
    """Whatever a group holds, refused sets among it: the values, the errors and the rows are those of single sets."""
    sets = [one for group in groups for one in group]
    told, stored, left = carried_out(groups)
    assert (told, stored) == trio.run(in_memory, sets)
    assert (told, stored, left) == carried_out([[one] for one in sets])


def test_a_used_id_fails_its_set_alone() -> None:
    """Two messages of one id in one group: the second is refused, whole, and the rest of the group is written."""
    first, again = message("m", AGENTS[0]), message("m", AGENTS[1])
    with opened() as writer:
        found = writer.write([ChangeSet(TREE, None, one) for one in ((first,), (Bump("n"), again), (Bump("n"),))])
        assert found[2].unwrap() == (1,)
        with pytest.raises(Conflict, match="message m is in the store already"):
            found[1].unwrap()
        assert (writer.commits, writer.refused) == (4, 1)


def statements(writer: Writer, group: Sequence[ChangeSet]) -> int:
    """How many statements a group takes."""
    seen: list[str] = []

    def trace(_: object, sql: str, _bindings: object) -> bool:
        seen.append(sql)
        return True

    writer._db.exec_trace = trace
    for result in writer.write(group):
        result.unwrap()
    writer._db.exec_trace = None
    return len(seen)


def test_many_commits_take_few_statements() -> None:
    """What nearly every commit writes goes table by table: 31 turns, 124 commits, take 28 statements."""

    def turns_of(first: int, last: int) -> list[ChangeSet]:
        found = []
        for number in range(first, last):
            agent = AGENTS[0]
            turn, name = turn_id(agent, number + 1), MessageId(f"m-{number}")
            record = Append(agent, number, (NoteRecord(turn, "n", "x"),))
            put = row(agent, number, owes=True)
            call = call_id(turn, 1, 0)
            found += [
                ChangeSet(TREE, None, (message(name, agent),)),
                ChangeSet(TREE, 1, (record, Claim(agent, (name,), turn), put)),
                ChangeSet(TREE, 1, (put, call_row(call, CallState.STARTED))),
                ChangeSet(TREE, 1, (ended(turn, "x"), put)),
            ]
        return found

    with opened() as writer:
        writer.write(turns_of(0, 1))
        assert statements(writer, turns_of(1, 2)) == 2 + 5 + 1, "BEGIN, COMMIT; messages come, are taken; the agent"
        assert statements(writer, turns_of(2, 33)) == 2 + 5 * 5 + 1, "31 rows of a table take five"
