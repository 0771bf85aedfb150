"""A SQLite store with many idle agents and some that have work, made in seconds: one is lived, the rest are copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import apsw
import trio

from actors import Agent, Script
from actors.models.script import hang
from supervisor import open_supervisor

if TYPE_CHECKING:
    from pathlib import Path

IDLE: Final = Agent("idle", "Answer.")
BUSY: Final = Agent("busy", "Answer.")
_TEMPLATE: Final = "idle#2"
"""The lived one; its path is not its spec's name, so that a copy's path can stand in its place."""

_TABLES: Final = {
    "trees": "NAMED(tree), epoch, NULL",
    "agents": """n + 1000 + i, NAMED(agent), NAMED(tree), epoch, parent, key, owes, intake, seq, queued, control_n,
        control_bytes, steer_n, steer_bytes, send_n, send_bytes, BODY""",
    "messages": """n + 1000 + i, id || '-' || i, NAMED(agent), seq, NAMED(tree), epoch, lane, state, sender, key,
        places, bytes, NAMED(turn), reason, at, CAST(replace(CAST(BODY AS TEXT), id, id || '-' || i) AS BLOB)""",
    "records": "k + ((1000 + i) << 32), NAMED(tree), epoch, BODY",
    "outcomes": "NAMED(turn), NAMED(tree), epoch, BODY",
}
"""Of each table the columns of a copy: NAMED has the copy's path, BODY too."""


def _copies(table: str, columns: str) -> str:
    """The statement that copies a table's rows of the lived agent."""
    columns = columns.replace("BODY", "CAST(NAMED(CAST(body AS TEXT)) AS BLOB)")
    while (at := columns.find("NAMED(")) >= 0:
        end = at + len("NAMED(")
        depth = 1
        while depth:
            depth += {"(": 1, ")": -1}.get(columns[end], 0)
            end += 1
        inside = columns[at + len("NAMED(") : end - 1]
        columns = f"{columns[:at]}replace({inside}, '{_TEMPLATE}', 'idle#' || (i + 2)){columns[end:]}"
    many = "WITH RECURSIVE many(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM many WHERE i < ?)"
    return f"{many} INSERT INTO {table} SELECT {columns} FROM many, {table} WHERE tree = '{_TEMPLATE}'"  # noqa: S608 - of constants


async def make(path: Path, *, idle: int, busy: int) -> None:
    """Make a store.

    Args:
        path: its file, which is not there yet.
        idle: agents that have answered a message, three at least.
        busy: agents that are in the middle of a turn, and have a message waiting; at most 900.
    """
    script = Script({"idle": lambda _: "done", "busy": lambda _: ("half", hang())})
    async with open_supervisor(model=script, store=path, grace=0, inline=True) as sup:
        for _ in range(2):
            ref = await sup.start(IDLE, "go")
            await ref.wait_idle()
        for number in range(busy):
            ref = await sup.start(BUSY, f"go {number}")
            await ref.send("more")
        await trio.lowlevel.checkpoint()
    db = apsw.Connection(str(path))
    with db:
        for table, columns in _TABLES.items():
            db.execute(_copies(table, columns), (idle - 2,))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
