"""Rows that a group writes at its end, table by table, many with one statement.

What nearly every commit writes (records, an agent's row and counters, calls, the outcome of a turn, a message that
arrives or is taken) is kept here while a group is carried out, and goes in few statements, whatever the number of
commits. A statement costs more than what it does: it is looked up by its text, and gives Python's lock away, which a
thread beside a busy event loop gets back in milliseconds only.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import apsw

from actors.changes import Intake

from . import checks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_AT_ONCE: Final = (32, 16, 8, 4, 2, 1)
"""How many rows a statement writes: any number goes in few statements, and few are ever prepared.

One that fails leaves what it had written (`OR FAIL`), for the group is rolled back then; to undo it alone, SQLite would
copy each page beforehand.
"""

_Statements: TypeAlias = tuple[tuple[int, str], ...]


def _many(before: str, row: str, behind: str = "") -> _Statements:
    return tuple((size, before + ", ".join((row,) * size) + behind) for size in _AT_ONCE)


def _inserts(table: str, columns: tuple[str, ...], behind: str = "") -> _Statements:
    places = ", ".join("?" * len(columns))
    return _many(f"INSERT OR FAIL INTO {table}({', '.join(columns)}) VALUES ", f"({places})", behind)  # noqa: S608 - our own names


def _updates(table: str, columns: tuple[str, ...]) -> _Statements:
    """Rows of new values, the key `n` first."""
    sets = ", ".join(f"{column} = new.column{number}" for number, column in enumerate(columns, 2))
    places = ", ".join("?" * (len(columns) + 1))
    before, behind = f"UPDATE OR FAIL {table} SET {sets} FROM (VALUES ", f") AS new WHERE {table}.n = new.column1"  # noqa: S608
    return _many(before, f"({places})", behind)


_COUNTERS: Final = ("seq", "queued", "control_n", "control_bytes", "steer_n", "steer_bytes", "send_n", "send_bytes")
_OURS: Final = ("tree", "epoch", "body")
_RECORDS: Final = _inserts("records", ("k", *_OURS))
_MESSAGES: Final = _inserts(
    "messages", ("n", "state", "agent", "seq", "id", "lane", "sender", "key", "places", "bytes", *_OURS)
)
_TAKEN: Final = _updates("messages", ("state", "turn", "reason", "epoch"))
_CALLS: Final = _inserts(
    "calls",
    ("call", "awaits", *_OURS),
    " ON CONFLICT DO UPDATE SET epoch = excluded.epoch, awaits = excluded.awaits, body = excluded.body",
)
_ERASED: Final = _many("DELETE FROM calls WHERE call IN (", "?", ")")
_OUTCOMES: Final = _inserts(
    "outcomes", ("turn", *_OURS), " ON CONFLICT DO UPDATE SET epoch = excluded.epoch, body = excluded.body"
)
_ROWS: Final = _updates("agents", ("epoch", "body"))
_COUNTED: Final = _updates("agents", _COUNTERS)
_ALL: Final = _updates("agents", (*_COUNTERS, "owes", "epoch", "body"))


@final
class Known:
    """An agent as its columns say, with what of them waits to be written.

    Attributes:
        n: its number. length: how many records its conversation has.
        counts: its queued messages, then the messages and bytes of each lane, as its counters are.
        epoch, body: of its row, where that waits to be written, else 0 and None.
        counted: whether its counters, or what it owes, wait to be written.
    """

    __slots__ = ("body", "counted", "counts", "epoch", "intake", "key", "length", "n", "owes", "parent", "seq")

    def __init__(self, columns: Sequence[Any]) -> None:
        self.n: int
        self.parent: str
        self.key: str | None
        self.intake: Intake
        self.owes: int
        self.seq: int
        self.counts: list[int]
        self.length: int
        self.n, self.parent, self.key, intake, self.owes, self.seq, *self.counts, self.length = columns
        self.intake = Intake(intake)
        self.epoch = 0
        self.body: bytes | None = None
        self.counted = False


@final
class Behind:
    """What waits to be written through one connection.

    Invariants:
        BEHIND-1 no statement that could meet what waits runs before it is written.

    Args:
        connection: that writes.

    Attributes:
        noted: how often something was to be written; never less.
        singly: sets are carried out each for itself, so messages do not wait: the one that cannot be written is known.
        size: bytes of the bodies that were written since whoever carries out sets set it to 0.
        stuck: it is being written, or could not be: then what was written of it must be rolled back.
    """

    __slots__ = (
        "_agents", "_calls", "_connection", "_done", "_erased", "_execute", "_messages", "_outcomes", "_records",
        "_taken", "_written", "noted", "singly", "size", "stuck",
    )  # fmt: skip

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._execute: Callable[..., object] = connection.cursor().execute
        self.noted = 0
        self.singly = False
        self.size = 0
        self._written = 0
        self.clear()

    def clear(self) -> None:
        """Nothing waits any more."""
        self._done = self.noted
        self.stuck = False
        self._records: list[tuple[Any, ...]] = []
        self._agents: list[Known] = []
        self._messages: list[tuple[Any, ...]] = []
        self._taken: list[tuple[Any, ...]] = []
        self._calls: dict[str, tuple[Any, ...]] = {}
        self._erased: dict[str, tuple[Any, ...]] = {}
        self._outcomes: dict[str, tuple[Any, ...]] = {}

    def touched(self) -> int:
        """A number that changes whenever something is noted, or written by others than this."""
        return self.noted + self._connection.total_changes() - self._written

    # -- what is to be written -------------------------------------------------------------------------------------

    def record(self, row: tuple[Any, ...]) -> None:
        """Add a record: key, tree, epoch, body."""
        self.noted += 1
        self._records.append(row)

    def message(self, message: str, row: tuple[Any, ...]) -> None:
        """Add a message: its id, and the values of its columns as `_MESSAGES` names them.

        Raises:
            Conflict: the id is used; told at once only with `singly`, else that is an error as all is written.
        """
        self.noted += 1
        if not self.singly:
            self._messages.append(row)
            return
        self.size += len(row[-1])
        try:
            self._execute(_MESSAGES[-1][1], row)
        except apsw.ConstraintError:
            raise checks.used_id(message) from None

    def take(self, row: tuple[Any, ...]) -> None:
        """Change a message: its number, state, turn, reason, epoch."""
        self.noted += 1
        self._taken.append(row)

    def row(self, known: Known, owes: int, epoch: int, body: bytes) -> None:
        """Write an agent's row."""
        self.noted += 1
        if known.body is None and not known.counted:
            self._agents.append(known)
        known.epoch, known.body = epoch, body
        if known.owes != owes:
            known.owes, known.counted = owes, True

    def count(self, known: Known) -> None:
        """Write an agent's counters, as they are then."""
        self.noted += 1
        if known.body is None and not known.counted:
            self._agents.append(known)
        known.counted = True

    def call(self, call: str, row: tuple[Any, ...]) -> None:
        """Write a call: its id, whether it awaits a decision, tree, epoch, body."""
        if call in self._erased:
            self.write()
        self.noted += 1
        self._calls[call] = row

    def erase(self, call: str) -> None:
        """Remove a call that stands, or waits to: what waits is written first."""
        self.noted += 1
        self._erased[call] = (call,)

    def outcome(self, turn: str, row: tuple[Any, ...]) -> None:
        """Write the outcome of a turn: its id, tree, epoch, body."""
        self.noted += 1
        self._outcomes[turn] = row

    # -- writing it ------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write what waits.

        Raises:
            apsw.Error: it cannot be written; see `stuck`.
        """
        if self._done == self.noted:
            return
        self.stuck = True
        before = self._connection.total_changes()
        self._rows(_MESSAGES, self._messages)
        self._rows(_TAKEN, self._taken)
        self._rows(_RECORDS, self._records)
        self._rows(_CALLS, [*self._calls.values()])
        self._rows(_ERASED, [*self._erased.values()])
        self._rows(_OUTCOMES, [*self._outcomes.values()])
        if self._agents:
            self._write_agents()
        self._written += self._connection.total_changes() - before
        self.clear()

    def _write_agents(self) -> None:
        rows: list[tuple[Any, ...]] = []
        counted: list[tuple[Any, ...]] = []
        both: list[tuple[Any, ...]] = []
        for one in self._agents:
            if not one.counted:
                rows.append((one.n, one.epoch, one.body))
            elif one.body is None:
                counted.append((one.n, one.seq, *one.counts))
            else:
                both.append((one.n, one.seq, *one.counts, one.owes, one.epoch, one.body))
            one.body, one.counted = None, False
        self._rows(_ROWS, rows)
        self._rows(_COUNTED, counted)
        self._rows(_ALL, both)

    def _rows(self, statements: _Statements, rows: list[tuple[Any, ...]]) -> None:
        left = len(rows)
        if not left:
            return
        at = 0
        if type(rows[0][-1]) is bytes:
            self.size += sum([len(row[-1]) for row in rows])
        for size, sql in statements:
            while left >= size:
                self._execute(sql, rows[at] if size == 1 else [*chain.from_iterable(rows[at : at + size])])
                at += size
                left -= size
