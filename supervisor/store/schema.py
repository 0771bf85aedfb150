"""The tables of a SQLite store, their version, and the steps from one version to the next.

Every row has the tree it belongs to and the epoch of the set that wrote it (0: a set without an owner). What a class
of `actors.changes` holds stands in `body` as `actors.codec` writes it; beside it stand only columns that are looked
for. An agent's intake and counters are columns of their own, because others than its loop change them.
"""

from __future__ import annotations

from typing import Final

import attrs

APPLICATION_ID: Final = 0x63_62_6F_64
"""Marks the file as ours ("cbod"), so that another program's database is never taken for a store."""

_FIRST: Final = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID
    """,
    # holder: of `owners`, or NULL where the tree is nobody's; its epoch stands all the same (SUP-6).
    """
    CREATE TABLE trees (tree TEXT PRIMARY KEY, epoch INTEGER NOT NULL, holder TEXT) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX trees_holder ON trees(holder) WHERE holder IS NOT NULL",
    # until: on the clock of the holder's boot; NULL: for ever.
    """
    CREATE TABLE owners (holder TEXT PRIMARY KEY, until REAL, body BLOB NOT NULL) STRICT, WITHOUT ROWID
    """,
    # Epochs that ended because a lease was over. holder: NULL once it has shown that it lives (CON-6).
    """
    CREATE TABLE lost (
        tree TEXT NOT NULL, epoch INTEGER NOT NULL, holder TEXT, PRIMARY KEY (tree, epoch)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX lost_holder ON lost(holder) WHERE holder IS NOT NULL",
    # Waits that go from one process to another (REE-5): few, and only while there are some.
    """
    CREATE TABLE waits (
        holder TEXT NOT NULL, id INTEGER NOT NULL, since REAL NOT NULL, at REAL NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (holder, id)
    ) STRICT, WITHOUT ROWID
    """,
    # n: the order in which agents were made. seq: of the last message. *_n, *_bytes: STORE-3.
    """
    CREATE TABLE agents (
        n INTEGER PRIMARY KEY, agent TEXT NOT NULL UNIQUE, tree TEXT NOT NULL, epoch INTEGER NOT NULL,
        parent TEXT NOT NULL, key TEXT, owes INTEGER NOT NULL,
        intake TEXT NOT NULL DEFAULT 'open', seq INTEGER NOT NULL DEFAULT 0, queued INTEGER NOT NULL DEFAULT 0,
        control_n INTEGER NOT NULL DEFAULT 0, control_bytes INTEGER NOT NULL DEFAULT 0,
        steer_n INTEGER NOT NULL DEFAULT 0, steer_bytes INTEGER NOT NULL DEFAULT 0,
        send_n INTEGER NOT NULL DEFAULT 0, send_bytes INTEGER NOT NULL DEFAULT 0,
        body BLOB NOT NULL
    ) STRICT
    """,
    "CREATE INDEX agents_parent ON agents(parent)",
    "CREATE UNIQUE INDEX agents_key ON agents(parent, key) WHERE key IS NOT NULL",
    # REC-2: what recovery reads holds only agents with work, so idle ones cost it nothing.
    "CREATE INDEX agents_work ON agents(agent) WHERE owes = 1 OR queued > 0",
    # In order of acceptance, so that what a group of commits sends or claims lies together: few pages for one flush.
    # There is no index over all of an agent's messages, only over those that are looked for: such an index would be
    # one more page to write for each message. places: 0 for a reserved place, which counts nowhere.
    """
    CREATE TABLE messages (
        n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, seq INTEGER NOT NULL,
        tree TEXT NOT NULL, epoch INTEGER NOT NULL, lane TEXT NOT NULL, state TEXT NOT NULL, sender TEXT NOT NULL,
        key TEXT, places INTEGER NOT NULL, bytes INTEGER NOT NULL, turn TEXT, reason TEXT, at REAL, body BLOB NOT NULL
    ) STRICT
    """,
    "CREATE UNIQUE INDEX messages_key ON messages(agent, sender, key) WHERE key IS NOT NULL",
    "CREATE UNIQUE INDEX messages_waiting ON messages(agent, seq) WHERE state IN ('queued', 'held')",
    "CREATE UNIQUE INDEX messages_dead ON messages(agent, seq) WHERE state = 'dead'",
    # k: the agent's n times 2^32, and the record's index: whole numbers, so that a tree of few pages finds them.
    """
    CREATE TABLE records (
        k INTEGER PRIMARY KEY, tree TEXT NOT NULL, epoch INTEGER NOT NULL, body BLOB NOT NULL
    ) STRICT
    """,
    # A call's id begins with its agent's path and a colon, so one range holds an agent's calls.
    """
    CREATE TABLE calls (
        call TEXT PRIMARY KEY, tree TEXT NOT NULL, epoch INTEGER NOT NULL, awaits INTEGER NOT NULL, body BLOB NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    # TOL-12: what waits for a person is found by what waits, whatever runs.
    "CREATE INDEX calls_awaiting ON calls(call) WHERE awaits = 1",
    """
    CREATE TABLE outcomes (
        turn TEXT PRIMARY KEY, tree TEXT NOT NULL, epoch INTEGER NOT NULL, body BLOB NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE kv (
        agent TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, tree TEXT NOT NULL, epoch INTEGER NOT NULL,
        body BLOB NOT NULL, PRIMARY KEY (agent, scope, key)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE counters (
        counter TEXT PRIMARY KEY, tree TEXT NOT NULL, epoch INTEGER NOT NULL, value INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)


@attrs.frozen
class Migration:
    """The statements from one version to the next; they run in one transaction with the new version's number."""

    summary: str
    statements: tuple[str, ...]


MIGRATIONS: Final = (Migration("as first released", _FIRST),)
"""The n-th, from 0, leads from version n to n + 1; a released one never changes."""

VERSION: Final = len(MIGRATIONS)
