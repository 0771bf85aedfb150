"""Reads all agents of a store for `callboard show`, with what each owes: for its tree, or as JSON for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import msgspec

from actors.changes import AgentRow
from actors.errors import UnknownPath
from actors.ids import tree_of, turn_id
from actors.messages import ReceiptState
from actors.parking import PERSON
from actors.usage import dollars

from .show_lines import Owed, State, state_of
from .standstill import state_of as state_in_a_word
from .store.leases import described
from .stores import agents_in, open_reader

if TYPE_CHECKING:
    from actors.ids import AgentId
    from actors.messages import Outcome

    from .store.base import Reader, StoredAgent

ROOTS_MAX: Final = 1_000


@attrs.frozen
class Seen:
    """What a store holds.

    Attributes:
        rows: of all trees, parents first, each with how it looks. owners: processes that run trees of it.
        owed: what trees owe that nobody runs.
        lost: agents that are there and were not found by their paths: the store is damaged.
    """

    rows: tuple[tuple[AgentRow, State], ...]
    owners: tuple[str, ...]
    owed: Owed
    lost: int


async def see(store: str) -> Seen:
    """Read the trees of a store.

    Raises:
        StoreError: there is none, or it cannot be read.
    """
    rows: list[tuple[AgentRow, State]] = []
    owners: dict[str, None] = {}
    owing = waiting = persons = 0
    async with open_reader(store) as reader:
        count = agents_in(store)  # before the rest: what is born meanwhile is no loss
        busy = await _busy(reader)
        roots = await reader.roots(limit=ROOTS_MAX)
        for root in roots:
            lease = await reader.lease(tree_of(root.agent))
            if lease is not None:
                owners[described(lease.holder)] = None
            for row in await reader.tree_rows(tree_of(root.agent)):
                stored = await reader.load_agent(row.agent) if busy is None or row.agent in busy else None
                queued = 0 if stored is None else queued_at(stored)
                look = state_of(row, await last_of(reader, row), owned=lease is not None, waiting=queued)
                rows.append((row, look))
                if lease is None and (row.owes or queued):
                    owing, waiting = owing + 1, waiting + queued
                    persons += row.suspended in PERSON
    lost = max(0, count - len(rows)) if len(roots) < ROOTS_MAX else 0
    return Seen(tuple(rows), tuple(owners), Owed(owing, waiting, persons), lost)


async def _busy(reader: Reader) -> frozenset[AgentId] | None:
    """The agents with work; None where that cannot be read, as a path is no text: then all are looked at."""
    try:
        return frozenset(await reader.agents_with_work())
    except UnicodeDecodeError:
        return None


async def see_json(store: str, path: AgentId | None) -> list[str]:
    """One JSON object for each agent of a store, or for the one of this path.

    Raises:
        UnknownPath: there is no such agent. StoreError: there is no store, or it cannot be read.
    """
    async with open_reader(store) as reader:
        found: list[str] = []
        for root in await reader.roots(limit=ROOTS_MAX):
            tree = tree_of(root.agent)
            if path is None or tree_of(path) == tree:
                lease = await reader.lease(tree)
                owner = None if lease is None else described(lease.holder)
                for row in await reader.tree_rows(tree):
                    stored = await reader.load_agent(row.agent) if path in {None, row.agent} else None
                    if stored is not None:
                        found.append(json_agent(stored, await last_of(reader, row), owner))
        if path is not None and not found:
            raise UnknownPath(f"no agent {path} in {store}; `callboard show {store}` lists them")
        return found


def json_agent(stored: StoredAgent, last: Outcome | None, owner: str | None) -> str:
    """An agent as one JSON line. `cost`: dollars as text, null where no price is known."""
    row = stored.row
    queued = queued_at(stored)
    value = {
        "v": 1,
        "path": row.agent,
        "name": row.name,
        "key": row.key,
        "state": state_in_a_word(stored),
        "doing": state_of(row, last, owned=owner is not None, waiting=queued)[1],
        "owes": row.owes or queued > 0,
        "waiting": queued,
        "held": sum(one.state is ReceiptState.HELD for one in stored.queued),
        "suspended": row.suspended,
        "last": None if last is None else last.status.value,
        "turns": row.turns,
        "runs": row.runs,
        "records": stored.length,
        "tokens": row.usage.total_tokens,
        "cost": f"{dollars(row.spent.cost):f}" if row.cost_known else None,
        "owner": owner,
    }
    return msgspec.json.encode(value).decode()


def queued_at(stored: StoredAgent) -> int:
    """How many messages wait to be read by an agent; orders are none."""
    return sum(one.state is ReceiptState.QUEUED and bool(one.envelope.content) for one in stored.queued)


async def last_of(reader: Reader, row: AgentRow) -> Outcome | None:
    """How an agent's last turn ended, or None."""
    ended = row.turns if row.open is None else row.turns - 1
    found = await reader.outcome(turn_id(row.agent, ended)) if ended > 0 else None
    return None if found is None else found.outcome
