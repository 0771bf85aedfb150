"""The stores against the model, over random change sets, legal and illegal."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

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
    Forget,
    Intake,
    KvRow,
    Move,
    OutcomeRow,
    Put,
    Require,
    Shut,
    row_key,
)
from actors.content import Text
from actors.errors import CallboardError
from actors.ids import AgentId, MessageId, TreeId, call_id, parent_path, run_id, turn_id
from actors.messages import Envelope, Lane, LaneBound, Outcome, ReceiptState, Status
from actors.transcript import NoteRecord
from supervisor.store.memory import open_memory_store
from supervisor.store.sqlite import SqliteStore, _opened
from tests.supervisor.store.store_model import WAITING, Model

if TYPE_CHECKING:
    from supervisor.store.base import Store

TREES = [TreeId("a"), TreeId("b")]
AGENTS = [AgentId(path) for path in ("a", "a/x", "a/x/y", "b", "b#2")]
MESSAGES = [MessageId(f"m{number}") for number in range(6)]
STATES = list(ReceiptState)

agents = st.sampled_from(AGENTS)
turns = st.builds(turn_id, agents, st.integers(1, 2))
keys = st.none() | st.sampled_from(["k", "l"])
named = st.lists(st.sampled_from(MESSAGES), max_size=3).map(tuple)
agent_rows = agents.flatmap(
    lambda path: st.builds(
        AgentRow,
        st.just(path),
        st.sampled_from([parent_path(path)] * 9 + ["elsewhere"]),
        st.just("name"),
        st.just("digest"),
        owes=st.booleans(),
        turns=st.integers(0, 2),
        key=keys,
    )
)
call_rows = turns.flatmap(
    lambda turn: st.builds(
        CallRow,
        st.builds(call_id, st.just(turn), st.integers(1, 11), st.integers(0, 1)),
        st.just(AgentId(turn.rpartition(":")[0])),
        st.just(turn),
        st.just("tool"),
        st.just("{}"),
        st.sampled_from(CallState),
    )
)
outcomes = turns.map(
    lambda turn: OutcomeRow(
        turn,
        AgentId(turn.rpartition(":")[0]),
        run_id("a", 1),
        Outcome(AgentId("a"), run_id("a", 1), turn, Status.DONE),
    )
)
kv_rows = st.builds(
    KvRow, agents, st.sampled_from(["s", "t"]), st.sampled_from(["k", "é"]), st.sampled_from(["1", "2"])
)
rows = st.one_of(agent_rows, agent_rows, call_rows, outcomes, kv_rows)
erasures = st.one_of(
    call_rows.map(lambda row: Erase(CallRow, row_key(row))),
    outcomes.map(lambda row: Erase(OutcomeRow, row_key(row))),
    kv_rows.flatmap(lambda row: st.integers(0, 3).map(lambda parts: Erase(KvRow, row_key(row)[:parts]))),
    agents.map(lambda agent: Erase(AgentRow, (agent,))),
)
envelopes = st.builds(
    Envelope,
    st.sampled_from(MESSAGES),
    agents,
    st.sampled_from(Lane),
    st.sampled_from([(Text("short"),), (Text("x" * 60),)]),
    sender=st.none() | agents,
    key=keys,
    reserved=st.booleans(),
)
bounds = st.builds(LaneBound, st.integers(0, 3), st.sampled_from([0, 200, 10_000]), st.sampled_from([100, 10_000]))
requirements = st.one_of(
    st.builds(Require, st.just(AgentRow), agents.map(lambda agent: (agent,)), st.just("turns"), st.integers(0, 1)),
    st.builds(Require, st.just(CallRow), call_rows.map(row_key), st.just("state"), st.sampled_from(CallState)),
    st.builds(Require, st.just(KvRow), kv_rows.map(row_key), st.sampled_from(["value", "nothing"]), st.just("1")),
    st.builds(Require, st.just(OutcomeRow), outcomes.map(row_key), st.just("run"), st.just("a:r1")),
    st.just(Require(KvRow, ("a",), "value", "1")),
)
appends = st.builds(
    Append,
    agents,
    st.integers(0, 3),
    st.lists(st.builds(NoteRecord, turns, st.just("n"), st.text()), max_size=2).map(tuple),
)
forgets = st.builds(Forget, agents, st.integers(-1, 3), st.lists(st.integers(0, 3), max_size=2, unique=True).map(tuple))
operations = st.one_of(
    appends,
    forgets,
    st.builds(Put, rows, st.booleans()),
    st.builds(Enqueue, envelopes, bounds),
    st.builds(Enqueue, envelopes, st.just(LaneBound())),
    st.builds(Claim, agents, named, turns),
    st.builds(
        Move,
        agents,
        st.lists(st.sampled_from(STATES), max_size=3).map(tuple) | st.just(WAITING),
        st.sampled_from(STATES),
        st.none() | named,
        st.none() | st.just("why"),
    ),
    st.builds(Shut, agents, st.sampled_from(Intake)),
    erasures,
    requirements,
    st.builds(Bump, st.sampled_from(["n", "o"]), st.integers(-2, 2), st.none() | st.integers(-1, 3)),
)


class StoresMachine(RuleBasedStateMachine):
    """The same change sets to the model, to memory and to SQLite; their answers are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.memory = open_memory_store(store_id="machine")
        self.folder = Path(tempfile.mkdtemp(prefix="store-machine-"))
        self.lock, writer, reads = _opened(self.folder / "agents.db", "tests")
        writer._db.pragma("synchronous", "OFF")  # nobody pulls the plug here
        self.sqlite = SqliteStore(writer, reads, inline=True)
        for path in AGENTS[:4]:
            tree = TreeId(path.partition("/")[0])
            if "/" not in path:
                self.own(tree)
            row = AgentRow(path, parent_path(path), "name", "digest")
            self.commit_all(ChangeSet(tree, self.model.epochs[tree], (Put(row, fresh=True),)))

    @rule(tree=st.sampled_from(TREES))
    def own(self, tree: TreeId) -> None:
        """Somebody takes a tree."""
        epoch = self.model.own(tree)
        for store in (self.memory, self.sqlite):
            holder = attrs.evolve(store.new_holder(), lease_s=0.0)  # over at once: whoever comes may take it
            assert trio.run(store.own, tree, holder) == epoch

    @rule(
        tree=st.sampled_from(TREES),
        off=st.sampled_from([0, 0, 0, 0, 0, 0, None, None, -1, 1]),
        several=st.lists(operations, min_size=1, max_size=4).map(tuple),
    )
    def commit(self, tree: TreeId, off: int | None, several: tuple[Any, ...]) -> None:
        """A change set, perhaps of an old owner or of nobody."""
        epoch = None if off is None else self.model.epochs[tree] + off
        self.commit_all(ChangeSet(tree, epoch, several))

    @rule(data=st.data())
    def commit_what_fits(self, data: st.DataObject) -> None:
        """A set that is likely to pass: claims what waits, appends where the conversation ends."""
        agent = data.draw(st.sampled_from([AgentId(key[0]) for key in self.model.rows[AgentRow]]))
        tree = TreeId(agent.partition("/")[0])
        if tree not in self.model.epochs:
            return
        waiting = [m["envelope"].id for m in self.model.messages if m["envelope"].to == agent and m["state"] in WAITING]
        several: list[Any] = [
            Append(agent, len(self.model.records[agent]), (NoteRecord(turn_id(agent, 1), "n", "fits"),)),
            Enqueue(data.draw(envelopes), LaneBound()),
        ]
        if waiting:
            taken = tuple(data.draw(st.lists(st.sampled_from(waiting), min_size=1, unique=True)))
            several += [
                Claim(agent, taken, turn_id(agent, 2)),
                Move(agent, (ReceiptState.CONSUMED,), ReceiptState.DEAD, taken),
            ]
        drawn = tuple(data.draw(st.lists(st.sampled_from(several), min_size=1, max_size=4, unique=True)))
        self.commit_all(ChangeSet(tree, self.model.epochs[tree], drawn))

    def commit_all(self, change_set: ChangeSet) -> None:
        """The same set to each; the same values or the same kind of error."""
        expected = self.model.commit(change_set)
        for store in (self.memory, self.sqlite):
            try:
                found: Any = store.commit_nowait(change_set)
            except CallboardError as error:
                found = type(error)
            assert found == expected, f"{store!r}: {found}, not {expected}, for {change_set}"

    def teardown(self) -> None:
        """All reads tell what the model holds; STORE-2 and STORE-3 stand in its columns."""
        try:
            trio.run(self.compare)
            self.check_columns()
        finally:
            self.sqlite._reads.close()
            self.sqlite._writer.close()
            self.lock.release()
            shutil.rmtree(self.folder)

    async def compare(self) -> None:
        """Every read of every agent and message."""
        for store in (self.memory, self.sqlite):
            for agent in AGENTS:
                await self.compare_agent(store, agent)
            for name in MESSAGES:
                await self.compare_message(store, name)
            rows = self.model.rows[AgentRow]
            waiting = {m["envelope"].to for m in self.model.messages if m["state"] is ReceiptState.QUEUED}
            work = sorted({row.agent for row in rows.values() if row.owes} | waiting)
            assert await store.agents_with_work() == tuple(work)
            roots = [row for row in rows.values() if not row.parent]
            assert await store.roots() == tuple(roots)
            for tree in TREES:
                inside = [row for row in rows.values() if row.agent.partition("/")[0] == tree]
                assert await store.tree_rows(tree) == tuple(inside)

    async def compare_agent(self, store: Store, agent: AgentId) -> None:
        """The reads of one agent."""
        model, row = self.model, self.model.rows[AgentRow].get((agent,))
        mine = [message for message in model.messages if message["envelope"].to == agent]
        stored = await store.load_agent(agent)
        assert (stored is None) == (row is None)
        if stored is not None:
            waiting = [(m["seq"], m["envelope"], m["state"]) for m in mine if m["state"] in WAITING]
            calls = sorted(
                (call for call in model.rows[CallRow].values() if call.agent == agent),
                key=lambda call: [int(part) for part in call.call.rpartition("t")[2].split(".")],
            )
            assert (stored.row, stored.intake, stored.length) == (row, model.intake[agent], len(model.records[agent]))
            assert [(one.seq, one.envelope, one.state) for one in stored.queued] == waiting
            assert stored.seq == len(mine)
            assert list(stored.calls) == calls
        records = model.records.get(agent, [])
        assert list(await store.read_records(agent)) == [one for one in records if one is not None]
        assert list(await store.read_records(agent, 1, 2)) == [one for one in records[1:2] if one is not None]
        below = [child for child in model.rows[AgentRow].values() if child.parent == agent]
        assert await store.children(agent) == tuple(below)
        for state in STATES:
            found = [one.envelope.id for one in await store.messages(agent, (state,))]
            assert found == [m["envelope"].id for m in mine if m["state"] is state]
        for scope in ("s", "t"):
            kept = sorted((r for r in model.rows[KvRow].values() if (r.agent, r.scope) == (agent, scope)), key=row_key)
            assert list(await store.kv(agent, scope)) == kept
        for number in (1, 2):
            turn = turn_id(agent, number)
            assert await store.outcome(turn) == model.rows[OutcomeRow].get((turn,))
        for key in ("k", "l"):
            under = [child.agent for child in below if child.key == key]
            assert await store.find_key(agent, key) == (under[0] if under else None)

    async def compare_message(self, store: Store, name: MessageId) -> None:
        """The state of one message."""
        view = await store.message_state(name)
        found = [message for message in self.model.messages if message["envelope"].id == name]
        assert (view is None) == (not found)
        if view is not None:
            (message,) = found
            envelope = message["envelope"]
            told = (view.agent, view.seq, view.lane, view.state, view.turn, view.reason)
            assert told == (
                envelope.to, message["seq"], envelope.lane, message["state"], message["turn"], message["reason"],
            )  # fmt: skip

    def check_columns(self) -> None:
        """STORE-3: the counters of an agent are those of its messages; STORE-6: no row is of a later epoch."""
        db = self.sqlite._writer._db
        assert db.pragma("integrity_check") == "ok"
        for agent, seq, queued, *lanes in db.execute(
            "SELECT agent, seq, queued, control_n, control_bytes, steer_n, steer_bytes, send_n, send_bytes FROM agents"
        ):
            mine = [message for message in self.model.messages if message["envelope"].to == agent]
            assert [message["seq"] for message in mine] == list(range(1, seq + 1))
            assert queued == sum(message["state"] is ReceiptState.QUEUED for message in mine)
            sizes = [
                [
                    m["envelope"].size_bytes
                    for m in mine
                    if m["envelope"].lane is lane and m["state"] in WAITING and not m["envelope"].reserved
                ]
                for lane in Lane
            ]
            assert lanes == [number for lane in sizes for number in (len(lane), sum(lane))]
        for table in ("agents", "messages", "records", "calls", "outcomes", "kv"):
            for tree, epoch in db.execute(f"SELECT tree, max(epoch) FROM {table} GROUP BY tree"):  # noqa: S608
                assert epoch <= self.model.epochs.get(tree, 0)


StoresMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
test_stores_do_as_the_model_does = StoresMachine.TestCase  # STORE-1 to STORE-6
