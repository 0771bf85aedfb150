"""Verifies a store's file: every invariant that is a question to our tables, in one pass over each.

Read only, in one read transaction, so that what is checked is of one moment, also while other processes write. What is
remembered is a few numbers for each agent, never its records.

Checked, by the numbers of the design's list of invariants (`audit.RULES` says what each demands):
    messages: 1 (row and envelope agree; the unique keys are SQLite's own), 2, 3, 4, 5 and 6 (a number per agent, in the
    order of acceptance, without a gap), 7, 8, 10;
    ownership: 13 and 14 (no row is of a later epoch than its tree; a tree's holder is known; epochs never fall in a
    conversation);
    turns: 19, 20, 21, 23; calls: 33 (unique keys); supervision: 39, 44; money: 47, as far as rows say (no run
    spent more than its agent); store: 51, 52.
    And CON-4, TOL-1, TOL-8, HOK-4, REC-2: no message in two places, a batch kept until it is answered, nothing kept
    that was to be erased, work that a restart finds. Every stored class is decoded.

No questions to a store, and proven by tests alone: 9, 11, 15, 18, 22, 24, 32, 36 to 38, 40 to 43, 45, 46, 50, 53 to 56
(they are of a history, of time or of a process); 25, 26 (of the world outside); 12, 28 to 31, 34 (of what is erased
with its batch); 16 and 17 (whether a holder lives, its lease says); 27 and 35 (waits are their process's, also those
that it publishes); 48 and 49 (what a budget allows is derived when a tree is opened).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import apsw
import apsw.ext

from actors import codec
from actors.changes import CallState
from actors.errors import Corrupt
from actors.ids import AgentId, agent_of, tree_of, turn_id
from supervisor.budgets import GRANTS, read_budget, read_grant

from . import audit, schema
from .audit import AgentColumns, Conversation, Facts, MessageColumns, Tally, Violation
from .sqlite_file import open_reader
from .sqlite_reads import name_of
from .sqlite_steps import RECORDS
from .sqlite_writer import store_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from actors.changes import AgentRow, CallRow

STEP: Final = 10_000
"""Rows between two words on how far it is."""
_PAGES_TOLD: Final = 100

_MESSAGES: Final = (
    "SELECT id, agent, seq, lane, state, sender, key, places, bytes, turn, reason, tree, epoch, body"
    " FROM messages ORDER BY n"
)
_AGENTS: Final = (
    "SELECT n, tree, epoch, body, agent, parent, key, owes, intake, seq, queued, control_n, control_bytes, steer_n,"
    " steer_bytes, send_n, send_bytes FROM agents ORDER BY n"
)


def check_file(file: Path, told: Callable[[str, int, int], None] | None = None) -> Iterator[Violation]:
    """Everything that is wrong with a store.

    Args:
        file: the store.
        told: hears how far it is: of what, how many rows of how many.

    Raises:
        Corrupt: it is no store, or so damaged that it cannot be read on. Unavailable, NewerSchema: as when opened.
    """
    db = open_reader(file)
    try:
        db.execute("BEGIN")
        yield from _Check(db, told or (lambda *_: None)).run()
    except apsw.Error as error:
        raise store_error(file.name, error) from error
    finally:
        db.close()


class _Check:
    """One check of one store."""

    def __init__(self, db: apsw.Connection, told: Callable[[str, int, int], None]) -> None:
        self._db = db
        self._told = told
        self._epochs: dict[str, int] = {}
        self._tallies: dict[str, Tally] = {}
        self._calls: dict[str, list[CallRow]] = {}
        self._facts: dict[str, Facts] = {}
        self._garbled: list[Violation] = []

    def run(self) -> Iterator[Violation]:
        """All of it: what later parts are held against is read first."""
        yield from self._file()
        for part in (
            self._trees,
            self._messages,
            self._calls_kept,
            self._agents,
            self._strangers,
            self._outcomes,
            self._kv,
            self._counters,
        ):
            yield from part()
            yield from self._garbled
            self._garbled.clear()

    # -- the file --------------------------------------------------------------------------------------------------

    def _file(self) -> Iterator[Violation]:
        self._told("the file", 0, 1)
        for (found,) in self._db.execute(f"PRAGMA integrity_check({_PAGES_TOLD})"):
            if found != "ok":
                yield Violation("51", "the file", f"{found}: it is damaged; restore it from a copy")
        for found in self._db.execute("PRAGMA foreign_key_check"):
            yield Violation("51", "the file", f"row without its parent: {found}")
        if name_of(self._db) is None:
            yield Violation("51", "the file", "it has lost its name (store_id): restore the store from a copy")
        version = self._db.pragma("user_version")
        if version != schema.VERSION:
            yield Violation("52", "the file", f"it has schema {version}, this callboard writes {schema.VERSION}")

    def _trees(self) -> Iterator[Violation]:
        sql = "SELECT t.tree, t.epoch, t.holder, o.holder FROM trees t LEFT JOIN owners o ON o.holder = t.holder"
        for tree, epoch, holder, known in self._read("trees", sql):
            self._epochs[tree] = epoch
            if holder is not None and known is None:
                yield Violation("13", f"tree {tree}", f"its holder {holder} is not among the owners: who runs it?")

    def _of(self, where: str, agent: str, tree: str, epoch: int) -> Iterator[Violation]:
        """What every row has: its agent's tree, and an epoch that the tree has had."""
        if tree != tree_of(agent):
            yield Violation("14", where, f"it stands in tree {tree!r}")
        elif epoch > self._epochs.get(tree, 0):
            text = f"it was written with epoch {epoch}, and its tree has had {self._epochs.get(tree, 0)}"
            yield Violation("14", where, text)

    def _rows(self, what: str, table: str, sql: str) -> Iterator[tuple[Any, ...]]:
        ((total,),) = self._db.execute(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608 - our own names
        assert isinstance(total, int), "a count is a number"
        for number, row in enumerate(self._read(table, sql)):
            if number % STEP == 0:
                self._told(what, number, total)
            yield row

    def _read(self, what: str, sql: str, bindings: tuple[str, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a statement, also behind one whose text is none: that is a violation of its own."""
        read = 0
        try:
            for row in self._db.execute(sql, bindings):
                read += 1
                yield row
        except UnicodeDecodeError:
            yield from self._read_as_bytes(what, sql, bindings, read)

    def _read_as_bytes(self, what: str, sql: str, bindings: tuple[str, ...], after: int) -> Iterator[tuple[Any, ...]]:
        """Those behind the first `after`, in the same order; bytes that are no text are shown in hexadecimal."""
        names = [name for name, _ in apsw.ext.query_info(self._db, sql).description]
        columns = [f"c{at}" for at in range(len(names))]
        texts = ", ".join(f"iif(typeof({one}) = 'text', CAST({one} AS BLOB), {one}), typeof({one})" for one in columns)
        given = f"WITH given({', '.join(columns)}) AS ({sql}) SELECT {texts} FROM given LIMIT -1 OFFSET {after}"  # noqa: S608 - our own
        for found in self._db.execute(given, bindings):
            row: list[Any] = []
            for name, value, kind in zip(names, found[::2], found[1::2], strict=True):
                row.append(value)
                if kind == "text":
                    row[-1] = value.decode("utf-8", "backslashreplace")
                    if row[-1].encode() != value:
                        text = f"in {name} stand bytes that are no text: restore the store from a copy"
                        self._garbled.append(Violation("51", f"{what}, {row[-1]}", text))
            yield tuple(row)

    # -- messages and calls ----------------------------------------------------------------------------------------

    def _messages(self) -> Iterator[Violation]:
        for row in self._rows("messages", "messages", _MESSAGES):
            columns = MessageColumns(*row[:11])
            tree, epoch, body = row[11:]
            where = f"{columns.agent}, message {columns.id}"
            tally = self._tallies.setdefault(columns.agent, Tally())
            yield from self._of(where, columns.agent, tree, epoch)
            try:
                envelope = codec.ENVELOPE.decode(body)
            except Corrupt as error:
                tally.seq = columns.seq
                yield _unread(where, error)
                continue
            yield from audit.message_faults(columns, envelope, tally)

    def _calls_kept(self) -> Iterator[Violation]:
        for call, tree, epoch, awaits, body in self._rows("calls", "calls", "SELECT * FROM calls"):
            agent = agent_of(call)
            where = f"{agent}, call {call}"
            yield from self._of(where, agent, tree, epoch)
            try:
                row = codec.CALL.decode(body)
            except Corrupt as error:
                yield _unread(where, error)
                continue
            if (row.call, row.agent) != (call, agent):
                yield Violation("23", where, f"its row is of {row.call} of {row.agent}")
            if bool(awaits) != (row.state is CallState.AWAITING):
                text = f"it is {row.state.value}; the index of what waits for a person says otherwise"
                yield Violation("TOL-12", where, text)
            self._calls.setdefault(agent, []).append(row)

    # -- agents and their conversations ----------------------------------------------------------------------------

    def _agents(self) -> Iterator[Violation]:
        """Agents and records stand in the same order, and are read side by side."""
        records = self._read("records", "SELECT k, tree, epoch, body FROM records ORDER BY k")
        ahead = next(records, None)
        for n, tree, epoch, body, *rest in self._rows("agents", "agents", _AGENTS):
            agent, parent, key, owes, intake, seq, queued, *lanes = rest
            columns = AgentColumns(agent, tree, parent, key, owes, intake, seq, queued, tuple(lanes))
            while ahead is not None and ahead[0] < n * RECORDS:
                yield Violation("20", f"record {ahead[0]}", "it is of no agent")
                ahead = next(records, None)
            heard, last = Conversation(), 0
            while ahead is not None and ahead[0] < (n + 1) * RECORDS:
                yield from self._record(columns.agent, heard, ahead, last)
                last, ahead = ahead[2], next(records, None)
            yield from self._of(columns.agent, columns.agent, tree, epoch)
            yield from self._agent(columns, body, heard)
        if ahead is not None:
            yield Violation("20", f"record {ahead[0]}", "it is of no agent, as are those behind it")

    def _record(self, agent: str, heard: Conversation, found: tuple[Any, ...], last: int) -> Iterator[Violation]:
        k, tree, epoch, body = found
        if k % RECORDS != heard.length:
            heard.skip(k % RECORDS)
        where = f"{agent}, record {heard.length}"
        yield from self._of(where, agent, tree, epoch)
        if epoch < last:
            yield Violation("20", where, f"it was written with epoch {epoch}, behind one with {last}: by an old owner")
        try:
            heard.take(agent, codec.RECORD.decode(body))
        except Corrupt as error:
            heard.length += 1
            yield _unread(where, error)

    def _agent(self, columns: AgentColumns, body: bytes, heard: Conversation) -> Iterator[Violation]:
        tally = self._tallies.pop(columns.agent, None) or Tally()
        calls = self._calls.pop(columns.agent, [])
        try:
            row = codec.AGENT.decode(body)
            read_budget(row.budget)
        except Corrupt as error:
            yield _unread(columns.agent, error)
            return
        self._facts[columns.agent] = Facts.of(columns, row)
        yield from audit.agent_faults(columns, row, tally)
        yield from audit.conversation_faults(row, heard, calls, tally)
        for message, turn in heard.entered.items():
            yield from self._consumed(row, message, turn)
        if row.open is not None:
            for message in row.open.consumed:
                yield from self._consumed(row, message, turn_id(row.agent, row.open.number))

    def _consumed(self, row: AgentRow, message: str, turn: str) -> Iterator[Violation]:
        """The turn that a message entered in is the one that took it from the mailbox."""
        found = list(self._read("messages", "SELECT state, turn FROM messages WHERE id = ?", (message,)))
        if found != [("consumed", turn)]:
            told = "is in no mailbox" if not found else "is {} ({})".format(*found[0])
            yield Violation("CON-4", f"{row.agent}, message {message}", f"it entered with {turn}, and {told}")

    # -- what is held against agents -------------------------------------------------------------------------------

    def _strangers(self) -> Iterator[Violation]:
        for agent in self._tallies:
            yield Violation("39", agent, "it has messages, and there is no such agent")
        for agent in self._calls:
            yield Violation("39", agent, "it has calls, and there is no such agent")
        for agent, facts in self._facts.items():
            parent = agent.rpartition("/")[0]
            above = self._facts.get(parent)
            if parent and above is None:
                yield Violation("39", agent, f"there is no agent {parent}, its parent")
            elif above is not None and above.intake == "closed" and facts.intake != "closed":
                yield Violation("44", agent, f"it is {facts.intake}, and its parent is closed: nobody supervises it")

    def _outcomes(self) -> Iterator[Violation]:
        for turn, tree, epoch, body in self._rows("outcomes", "outcomes", "SELECT * FROM outcomes"):
            agent, where = agent_of(turn), f"the outcome of {turn}"
            yield from self._of(where, agent, tree, epoch)
            try:
                row = codec.OUTCOME.decode(body)
            except Corrupt as error:
                yield _unread(where, error)
                continue
            facts = self._facts.get(agent)
            if facts is None:
                yield Violation("39", where, "there is no such agent")
            elif (row.turn, row.agent, row.outcome.turn, row.outcome.path) != (turn, agent, turn, agent):
                yield Violation("23", where, f"its row is of {row.turn} and {row.outcome.turn}")
            else:
                yield from audit.outcome_faults(row, facts)

    def _kv(self) -> Iterator[Violation]:
        sql = "SELECT agent, scope, key, tree, epoch, body FROM kv"
        for agent, scope, key, tree, epoch, body in self._rows("values", "kv", sql):
            where = f"{agent}, key {key!r} of {scope}"
            yield from self._of(where, agent, tree, epoch)
            try:
                row = codec.KV.decode(body)
                if scope == GRANTS:
                    read_grant(row)
            except Corrupt as error:
                yield _unread(where, error)
                continue
            facts = self._facts.get(agent)
            if facts is None:
                yield Violation("39", where, "there is no such agent")
            elif (row.agent, row.scope, row.key) != (AgentId(agent), scope, key):
                yield Violation("51", where, f"its row is of {row.agent}, {row.scope}, {row.key!r}")
            else:
                yield from audit.kv_faults(row, facts)

    def _counters(self) -> Iterator[Violation]:
        for counter, tree, epoch in self._rows("counters", "counters", "SELECT counter, tree, epoch FROM counters"):
            if epoch > self._epochs.get(tree, 0):
                yield Violation("14", f"counter {counter}", f"it was written with epoch {epoch}, not one of its tree")


def _unread(where: str, error: Corrupt) -> Violation:
    return Violation("51", where, f"{error}: restore the store from a copy")
