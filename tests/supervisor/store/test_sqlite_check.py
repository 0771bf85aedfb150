"""`callboard store check`: what real runs leave is clean; each thing that is broken by hand is named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import apsw
import pytest

from actors import Agent, Child, Hooks, Moment, Script, call, tool
from actors.errors import Corrupt
from supervisor import open_supervisor
from supervisor.store.schema import APPLICATION_ID, MIGRATIONS, VERSION
from supervisor.store.sqlite import open_sqlite_store
from supervisor.store.sqlite_check import STEP, check_file

# ruff: noqa: S608 - statements of our own, to break a store with

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from supervisor.store.audit import Violation


@tool
async def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


@tool(approve=True)
async def delete(what: str) -> str:
    """Delete."""
    return f"deleted {what}"


class Noting(Hooks):
    """It keeps something of the agent's."""

    async def before_turn(self, at: Moment) -> None:
        await at.kv.agent.set("turns", at.turn)


KID = Agent("kid", "Look.", tools=[look])
LEAD = Agent("lead", "Lead.", tools=[look, delete], children=[Child(KID)], hooks=Noting())


async def made(path: Path) -> Path:
    """A store of real runs: a tree that has worked, a call that waits for approval, a message that waits."""
    script: dict[str, list[object]] = {
        "lead": [
            [call("look", what="a"), call("kid", task="look")],
            "well",
            call("delete", what="b"),
        ],
        "lead/kid": [call("look", what="c"), "seen"],
        "lead#2": ["done"],
        "lead#3": ["never"],
    }
    file = path / "agents.db"
    async with open_supervisor(model=Script(script), store=file, agents=[LEAD], inline=True) as sup:
        lead = await sup.start(LEAD, "go")
        await lead.wait_report()
        done = await sup.start(LEAD, "go")
        await done.wait_report()
        await done.close()
        await done.wait_closed()
        await lead.send("go on")
        async with sup.approvals() as inbox:
            await anext(inbox)
        idle = await sup.start(LEAD)
        await idle.pause()
        await idle.send("wait")
    return file


def found(file: Path) -> list[Violation]:
    """Everything that is wrong."""
    return list(check_file(file))


def broken(file: Path, sql: str) -> None:
    """Break it by hand."""
    db = apsw.Connection(str(file))
    try:
        for statement in sql.split(";"):
            db.execute(statement).fetchall()
            assert db.total_changes() or "DROP" in sql, f"{statement!r} changed nothing"
    finally:
        db.close()


async def test_what_real_runs_leave_is_clean(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Nothing is wrong with a store that callboard wrote, and all its tables are told of."""
    file = await made(tmp_path)
    told: list[str] = []
    assert list(check_file(file, lambda what, *_: told.append(what))) == []
    assert told == ["the file", "messages", "calls", "agents", "outcomes", "values", "counters"]
    db = apsw.Connection(str(file))
    waiting = db.execute("SELECT count(*) FROM messages WHERE state = 'queued'").get
    assert (waiting, db.execute("SELECT count(*) FROM calls WHERE awaits = 1").get) == (1, 1)
    db.close()


@pytest.mark.parametrize("sql", ["DELETE FROM meta WHERE {}", "UPDATE meta SET value = CAST(x'ff' AS TEXT) WHERE {}"])
async def test_a_store_without_its_name_is_damaged(tmp_path: Path, autojump_clock: MockClock, sql: str) -> None:
    """The check says so, and whoever opens it has an error that does, too."""
    file = await made(tmp_path)
    broken(file, sql.format("key = 'store_id'"))
    (violation,) = found(file)
    assert (violation.rule, "store_id" in violation.what) == ("51", True)
    with pytest.raises(Corrupt, match="lost its name"):
        async with open_sqlite_store(file, owner="a test", inline=True):
            pass


BODY: Final = "UPDATE {} SET body = CAST(json_set(CAST(body AS TEXT), {}) AS BLOB) WHERE {}"


def body(table: str, change: str, where: str) -> str:
    """A statement that changes a row's body."""
    return BODY.format(table, change, where)


BROKEN: Final = {
    "a gap in the messages": ("4", "UPDATE messages SET seq = 9 WHERE agent = 'lead' AND seq = 2"),
    "a message lost": ("4", "DELETE FROM messages WHERE agent = 'lead#3'"),
    "another sender": ("1", "UPDATE messages SET sender = 'x' WHERE agent = 'lead' AND seq = 1"),
    "a size": ("7", "UPDATE messages SET bytes = 1 WHERE agent = 'lead#3'"),
    "a state": ("3", "UPDATE messages SET state = 'eaten' WHERE agent = 'lead' AND seq = 1"),
    "consumed by nobody": ("2", "UPDATE messages SET turn = NULL WHERE agent = 'lead' AND seq = 1"),
    "consumed by another": ("2", "UPDATE messages SET turn = 'lead/kid:t1' WHERE agent = 'lead' AND seq = 1"),
    "consumed by another turn": ("CON-4", "UPDATE messages SET turn = 'lead:t7' WHERE agent = 'lead' AND seq = 1"),
    "in two places": (
        "CON-4",
        ("UPDATE messages SET state = 'queued', turn = NULL WHERE agent = 'lead' AND seq = 1;"
        "UPDATE agents SET queued = queued + 1 WHERE agent = 'lead'"),
    ),
    "dead without a reason": (
        "10",
        "UPDATE messages SET state = 'dead', reason = NULL WHERE agent = 'lead#3'",
    ),
    "a message of nobody": ("39", "UPDATE messages SET agent = 'lead/nobody' WHERE agent = 'lead#3'"),
    "a lane's depth": ("7", "UPDATE agents SET send_n = send_n + 1 WHERE agent = 'lead'"),
    "the queue": ("REC-2", "UPDATE agents SET queued = 0 WHERE agent = 'lead#3'"),
    "waiting on a closed agent": ("8", "UPDATE agents SET intake = 'closed' WHERE agent = 'lead#3'"),
    "owes": ("REC-2", "UPDATE agents SET owes = 0 WHERE agent = 'lead'"),
    "an open turn that owes nothing": (
        "REC-2",
        body("agents", "'$.owes', json('false')", "agent = 'lead'") + "; UPDATE agents SET owes = 0",
    ),
    "an open turn ahead": ("19", body("agents", "'$.open.number', 9", "agent = 'lead'")),
    "a parent": ("39", "UPDATE agents SET parent = 'other' WHERE agent = 'lead/kid'"),
    "an orphan": ("39", "DELETE FROM agents WHERE agent = 'lead'"),
    "a closed parent": ("44", "UPDATE agents SET intake = 'closed' WHERE agent = 'lead'"),
    "spending": ("47", body("agents", "'$.spent', json('{}')", "agent = 'lead/kid'")),
    "a budget": ("51", body("agents", "'$.budget', 'much'", "agent = 'lead'")),
    "a later epoch": ("14", "UPDATE agents SET epoch = 99 WHERE agent = 'lead'"),
    "another tree": ("14", "UPDATE records SET tree = 'x' WHERE k & 4294967295 = 0"),
    "a holder of no name": ("13", "UPDATE trees SET holder = 'h' WHERE tree = 'lead'"),
    "a record lost": ("20", "DELETE FROM records WHERE k = 1 << 32"),
    "a record in the middle lost": ("20", "DELETE FROM records WHERE k = (1 << 32) + 1"),
    "the last record lost": ("TOL-1", "DELETE FROM records WHERE k = (SELECT max(k) FROM records WHERE k < 2 << 32)"),
    "a record of nobody": ("20", "UPDATE records SET k = k + (99 << 32) WHERE k = (SELECT max(k) FROM records)"),
    "an older epoch behind": ("20", "UPDATE trees SET epoch = 9; UPDATE records SET epoch = 9 WHERE k = 1 << 32"),
    "a record of another's turn": ("20", body("records", "'$.turn', 'x:t1'", "k = 1 << 32")),
    "a result of no call": ("21", body("records", "'$.call', 'lead:t1.1.7'", "k = (1 << 32) + 2")),
    "a summary that is none": ("20", body("agents", "'$.summary', 0", "agent = 'lead'")),
    "a call of another turn": ("23", body("calls", "'$.turn', 'lead:t1'", "1")),
    "a call of another agent": ("23", body("calls", "'$.agent', 'x'", "1")),
    "a call of nobody": ("39", "UPDATE calls SET call = 'lead/nobody:t1.1.0'"),
    "awaiting": ("TOL-12", "UPDATE calls SET awaits = 0"),
    "an outcome of an open turn": (
        "23",
        ("INSERT INTO outcomes SELECT 'lead:t2', tree, epoch,"
        " CAST(replace(CAST(body AS TEXT), 'lead:t1', 'lead:t2') AS BLOB) FROM outcomes WHERE turn = 'lead:t1'"),
    ),
    "an outcome of another turn": ("23", body("outcomes", "'$.turn', 'lead:t9'", "turn = 'lead:t1'")),
    "an outcome of nobody": ("39", "UPDATE outcomes SET turn = 'lead/nobody:t1' WHERE turn = 'lead:t1'"),
    "a value of a run that is over": (
        "HOK-4",
        "UPDATE kv SET scope = 'lead#2:r0' WHERE agent = 'lead#2';"
        + body("kv", "'$.scope', 'lead#2:r0'", "agent = 'lead#2'"),
    ),
    "a value of a call that is over": (
        "HOK-4",
        "UPDATE kv SET scope = 'lead:t1.1.0' WHERE agent = 'lead';"
        + body("kv", "'$.scope', 'lead:t1.1.0'", "agent = 'lead'"),
    ),
    "a result kept no more": (
        "TOL-8",
        "UPDATE kv SET scope = 'kept:lead:t1.1.0:0' WHERE agent = 'lead';"
        + body("kv", "'$.scope', 'kept:lead:t1.1.0:0'", "agent = 'lead'"),
    ),
    "a value under another key": ("51", "UPDATE kv SET key = 'other' WHERE agent = 'lead'"),
    "a counter": ("14", "INSERT INTO counters VALUES ('n', 'lead', 99, 1)"),
    **{f"{table} that cannot be read": ("51", f"UPDATE {table} SET body = x'7b'") for table in (
        "messages", "records", "agents", "calls", "outcomes", "kv",
    )},
}  # fmt: skip


async def test_each_thing_that_is_broken_is_named(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Whatever invariant is broken with SQL, a violation of its number names the place; a check writes nothing."""
    file = await made(tmp_path)
    whole = file.read_bytes()
    missed = []
    for name, (rule, sql) in BROKEN.items():
        file.write_bytes(whole)
        broken(file, sql)
        before = file.read_bytes()
        violations = found(file)
        if rule not in {violation.rule for violation in violations}:
            missed.append((name, rule, [str(violation) for violation in violations]))
        assert file.read_bytes() == before
        assert all(violation.where and violation.what for violation in violations)
    assert missed == []


async def test_text_that_is_none_is_a_violation_and_the_check_goes_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Wherever bytes stand that are no text, in whichever row, that is named, and what stands behind it is checked."""
    file = await made(tmp_path)
    broken(file, "INSERT INTO counters VALUES ('z', 'lead', 99, 1)")
    whole = file.read_bytes()
    db = apsw.Connection(str(file))
    columns = [
        (table, column, key)
        for table in ("trees", "agents", "messages", "records", "calls", "outcomes", "kv")
        for column, kind, key in db.execute(
            "SELECT name, type, (SELECT name FROM pragma_table_info(?1) WHERE pk = 1) FROM pragma_table_info(?1)",
            (table,),
        ).fetchall()
        if kind == "TEXT"
    ]
    db.close()
    assert len(columns) >= 20
    for table, column, key in columns:
        for which in ("min", "max"):
            file.write_bytes(whole)
            changed = f"{column} = CAST(ifnull({column}, '') || x'ff' AS TEXT)"
            broken(file, f"UPDATE {table} SET {changed} WHERE {key} = (SELECT {which}({key}) FROM {table})")
            violations = [str(violation) for violation in found(file)]
            assert any(
                line.startswith(f"{table}, ") and f"in {column} stand bytes that are no text" in line
                for line in violations
            ), (table, column, violations)
            assert any(line.startswith("counter z: ") for line in violations), "it goes on to the end"


async def test_an_index_that_lies_is_found(tmp_path: Path, autojump_clock: MockClock) -> None:
    """51: what SQLite's own check finds is told, such as an index without its rows."""
    file = await made(tmp_path)
    db = apsw.Connection(str(file))
    db.execute("PRAGMA writable_schema = 1")
    db.execute("UPDATE sqlite_schema SET sql = replace(sql, '(parent)', '(intake)') WHERE name = 'agents_parent'")
    assert db.total_changes() == 1
    db.close()
    assert "51" in {violation.rule for violation in found(file)}


async def test_no_store_is_checked_as_one(tmp_path: Path) -> None:
    """A file of something else is refused, and so is an empty one."""
    file = tmp_path / "x.db"
    file.write_bytes(b"nothing of ours" * 100)
    with pytest.raises(Corrupt):
        found(file)
    file.write_bytes(b"")
    with pytest.raises(Corrupt):
        found(file)


async def test_it_checks_one_moment_while_others_write(tmp_path: Path) -> None:
    """A check that is under way sees nothing of what is written beside it, and holds no writer up."""
    file = await made(tmp_path)
    async with open_sqlite_store(file, owner="tests", inline=True):
        db = apsw.Connection(str(file))
        steps: list[str] = []

        def told(what: str, *_: int) -> None:
            steps.append(what)
            if what == "messages":
                db.execute("UPDATE agents SET queued = 9")

        assert list(check_file(file, told)) == []
        assert "agents" in steps
        db.close()
    assert {violation.rule for violation in found(file)} == {"REC-2"}


def test_a_large_store_is_told_of_as_it_is_read(tmp_path: Path) -> None:
    """It costs one pass, and says how far that is."""
    file = tmp_path / "agents.db"
    db = apsw.Connection(str(file))
    for statement in MIGRATIONS[0].statements:
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; BEGIN")
    db.execute("INSERT INTO meta VALUES ('store_id', 'large')")
    for n in range(1, STEP + 2):
        fill(db, n)
    db.execute("COMMIT")
    db.close()
    told: list[tuple[str, int, int]] = []
    assert list(check_file(file, lambda *far: told.append(far))) == []
    assert [far for far in told if far[0] == "agents"] == [("agents", 0, STEP + 1), ("agents", STEP, STEP + 1)]


def fill(db: apsw.Connection, n: int) -> None:
    """One agent that has answered one message."""
    name = f"a#{n}"
    agent = {"#": "agent", "agent": name, "parent": "", "name": "a", "digest": "d", "turns": 1, "runs": 1}
    sent = {"#": "envelope", "id": f"m{n}", "to": name, "lane": "send", "content": [{"#": "text", "text": "go"}]}
    record = {"#": "message", "turn": f"{name}:t1", "message": f"m{n}", "content": [{"#": "text", "text": "go"}]}
    said = {
        "#": "response",
        "turn": f"{name}:t1",
        "blocks": [{"#": "said", "text": "ok"}],
        "stop": "end_turn",
        "model": "m",
    }
    rows = [json.dumps(one).encode() for one in (agent, sent, record, said)]
    db.execute(
        "INSERT INTO agents(n, agent, tree, epoch, parent, owes, seq, body) VALUES (?, ?, ?, 0, '', 0, 1, ?)",
        (n, name, name, rows[0]),
    )
    db.execute(
        "INSERT INTO messages VALUES (?, ?, ?, 1, ?, 0, 'send', 'consumed', '', NULL, 1, ?, ?, NULL, NULL, ?)",
        (n, f"m{n}", name, name, 2 + 16 + 64, f"{name}:t1", rows[1]),
    )
    for index, row in enumerate(rows[2:]):
        db.execute("INSERT INTO records VALUES (?, ?, 0, ?)", ((n << 32) + index, name, row))
