"""What must hold of the store's rows after every process, however it ended: read by queries, not from any memory.

Each problem begins with the number of its invariant in the design's list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.changes import AgentRow, CallState, ChangeSet, Erase, Intake, KvRow
from actors.errors import Fenced, StoreError
from actors.ids import AgentId, parent_path, tree_of
from actors.messages import Lane, Queued, ReceiptState
from actors.transcript import MessageRecord, Record, problems
from supervisor.store.base import StoredAgent
from tests.life import doing, history
from tests.supervisor.promises.world import EVERY_STATE

if TYPE_CHECKING:
    from supervisor.store.base import Store
    from tests.life.world import World

_WAITING: Final = (ReceiptState.QUEUED, ReceiptState.HELD)


@attrs.frozen
class Kept:
    """All that the store keeps of one agent."""

    stored: StoredAgent
    records: tuple[Record, ...]
    messages: tuple[Queued, ...]

    @property
    def row(self) -> AgentRow:
        """Its row."""
        return self.stored.row


async def kept(store: Store) -> dict[AgentId, Kept]:
    """Every agent of a store."""
    found: dict[AgentId, Kept] = {}
    for root in await store.roots():
        for row in await store.tree_rows(tree_of(root.agent)):
            stored = await store.load_agent(row.agent)
            assert stored is not None, "a row of the tree is an agent"
            messages = await store.messages(row.agent, EVERY_STATE)
            found[row.agent] = Kept(stored, await store.read_records(row.agent), messages)
    return found


async def check(store: Store, world: World) -> list[str]:
    """Every invariant that is a query, and those of the history and of the effects outside."""
    agents = await kept(store)
    works = set(await store.agents_with_work())
    dead = {letter.message: letter for letter in await store.dead_letters()}
    again = history.came_back(world.history)
    found: list[str] = []
    for path, one in agents.items():
        found += _conversation(path, one)
        found += _mailbox(path, one, again)
        found += _turn(path, one, works=path in works)
        found += _place(path, one, agents)
        found += [
            f"10: {message.envelope.id} of {path} is dead without a letter or a reason"
            for message in one.messages
            if message.state is ReceiptState.DEAD
            and not (message.envelope.id in dead and dead[message.envelope.id].reason)
        ]
    found += history.check(world.history, agents)
    return [*found, *doing.check(world, agents)]


def _conversation(path: AgentId, one: Kept) -> list[str]:
    """20, 21: valid at every boundary; a batch that is owed stands last in an open turn."""
    found = [f"21: {path}: {problem}" for problem in problems(one.records)]
    if one.row.open is not None:
        found = [problem for problem in found if "at the end" not in problem]
    if one.stored.length != len(one.records):
        found.append(f"20: {path} has {len(one.records)} records, and says {one.stored.length}")
    return found


def _mailbox(path: AgentId, one: Kept, again: set[str]) -> list[str]:
    """1 to 8: each message in one place, numbered without gaps, consumed in its lane's order.

    `again`: messages that were consumed or dead, and wait again: they stand at their old place in the lane.
    """
    found = []
    entered = [record.message for record in one.records if isinstance(record, MessageRecord)]
    place = {message: index for index, message in enumerate(entered)}
    seqs = [message.seq for message in one.messages]
    if seqs != list(range(1, len(seqs) + 1)):
        found.append(f"4: {path} has messages numbered {seqs}")
    keys = [(one.envelope.sender, one.envelope.key) for one in one.messages if one.envelope.key is not None]
    if len(set(keys)) != len(keys):
        found.append(f"1: {path} has a key twice: {keys}")
    for message in one.messages:
        envelope = message.envelope
        if envelope.lane is Lane.CONTROL:
            continue
        inside = envelope.id in place
        if message.state is ReceiptState.CONSUMED and not inside:
            found.append(f"2: {envelope.id} was consumed by {path}, and is not in its conversation")
        if message.state is ReceiptState.WITHDRAWN and inside:
            found.append(f"2: {envelope.id} is {message.state.value}, and in the conversation of {path}")
        if message.state in _WAITING and one.stored.intake is Intake.CLOSED:
            found.append(f"8: {envelope.id} waits for {path}, which is closed")
    twice = {message for message in entered if entered.count(message) > 1} - again
    if twice:
        found.append(f"2: messages entered the conversation of {path} twice: {twice}")
    for lane in (Lane.STEER, Lane.SEND):
        envelopes = (m.envelope for m in one.messages if m.state is ReceiptState.CONSUMED)
        ids = [envelope.id for envelope in envelopes if envelope.lane is lane and envelope.id not in again]
        places = [place[message] for message in ids if message in place]
        if places != sorted(places):
            found.append(f"5: {path} consumed its lane {lane.value} out of order: {places}")
    return found


def _turn(path: AgentId, one: Kept, *, works: bool) -> list[str]:
    """19, 23, 24: what is open and what is over; work that a restart finds (REC-2, ACC-8)."""
    found = []
    rows = [call for call in one.stored.calls if call.state is not CallState.UNKNOWN]
    if one.row.open is None and rows:
        found.append(f"23: {path} has no open turn, and calls {[(call.call, call.state.value) for call in rows]}")
    if one.row.open is not None and one.row.open.tries > 4:
        found.append(f"24: the open turn of {path} was tried {one.row.open.tries} times")
    if one.row.open is not None and one.stored.intake is Intake.CLOSED:
        found.append(f"23: {path} is closed, and its turn is open")
    queued = any(m.state is ReceiptState.QUEUED for m in one.messages)
    if (queued or one.row.open is not None) and not works:
        found.append(f"ACC-8: {path} has work that a restart would not find")
    return found


def _place(path: AgentId, one: Kept, agents: dict[AgentId, Kept]) -> list[str]:
    """39, 44: no agent lives without its parent."""
    above = parent_path(path)
    if not above:
        return []
    if above not in agents:
        return [f"39: {path} has no parent"]
    if agents[AgentId(above)].stored.intake is Intake.CLOSED and one.stored.intake is not Intake.CLOSED:
        return [f"44: {path} is {one.stored.intake.value} below {above}, which is closed"]
    return []


async def fenced(store: Store, world: World) -> list[str]:
    """15: a set of an earlier owner writes nothing."""
    found = []
    newest = {tree: epoch for tree, epoch, _ in world.history.owned}
    for tree, epoch, process in world.history.owned:
        if epoch == newest[tree]:
            continue
        probe = ChangeSet(tree, epoch, (Erase(KvRow, (tree, "agent", "nothing")),))
        try:
            await store.commit(probe)
        except Fenced:
            continue
        except StoreError as error:
            found.append(f"15: an old owner of {tree} met {error!r}")
            continue
        found.append(f"15: process {process} wrote to {tree} with its epoch {epoch} of {newest[tree]}")
    return found
