"""What must hold when all has healed: the store beside what was really done and acknowledged outside it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import attrs

from actors.changes import Intake
from actors.content import Text
from actors.ids import AgentId, agent_of, tree_of
from actors.messages import ReceiptState
from actors.transcript import Record, ResponseRecord, ResultRecord, ResultStatus, entered, problems
from supervisor.store.base import StoredAgent
from supervisor.store.sqlite import open_sqlite_reader
from tests.processes.raw import asked
from tests.processes.world import KINDS

if TYPE_CHECKING:
    from pathlib import Path

    from supervisor.store.base import Reader

EVERY_STATE: Final = tuple(state for state in ReceiptState if state not in {ReceiptState.PENDING, ReceiptState.REFUSED})
_NEVER_RAN: Final = frozenset({ResultStatus.SKIPPED, ResultStatus.DENIED, ResultStatus.REFUSED})


@attrs.frozen
class Seen:
    """One agent as the store has it in the end."""

    stored: StoredAgent
    records: tuple[Record, ...]


@attrs.define
class Verdict:
    """What was found wrong, and how much was looked at."""

    problems: list[str] = attrs.field(factory=list)
    counts: Counter[str] = attrs.field(factory=Counter)


async def judge(store: Path, facts: tuple[dict[str, Any], ...]) -> Verdict:
    """Hold the store against the log."""
    verdict = Verdict()
    agents: dict[AgentId, Seen] = {}
    async with open_sqlite_reader(store) as reader:
        after = None
        while roots := await reader.roots(after=after):
            after = roots[-1].agent
            for root in roots:
                for row in await reader.tree_rows(tree_of(root.agent)):
                    stored = await reader.load_agent(row.agent)
                    assert stored is not None, "a row of the tree is an agent"
                    agents[row.agent] = Seen(stored, await reader.read_records(row.agent))
        for check in (_messages, _outcomes, _notes):
            verdict.problems += await check(reader, agents, facts)
    for path, seen in agents.items():
        verdict.problems += _agent(path, seen)
    verdict.problems += [*_effects(facts), *_results(agents, facts), *_repeats(agents, facts), *_rows(store)]
    _count(verdict, agents, facts)
    return verdict


def _of(facts: tuple[dict[str, Any], ...], what: str) -> list[dict[str, Any]]:
    return [fact for fact in facts if fact["what"] == what]


# -- messages ----------------------------------------------------------------------------------------------------------


async def _messages(reader: Reader, agents: dict[AgentId, Seen], facts: tuple[dict[str, Any], ...]) -> list[str]:
    """What was acknowledged has come to one end, and one key is one message (ACC-2, ACC-7)."""
    found: list[str] = []
    stand = {path: Counter(entered(seen.records)) for path, seen in agents.items()}
    tried = {fact["message"] for fact in _of(facts, "withdrawing")}
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    for fact in _of(facts, "accepted"):
        message, agent = fact["message"], fact["agent"]
        if fact["key"] is not None:
            keys[agent, fact["key"]].add(message)
        view = await reader.message_state(message)
        if view is None:
            found.append(f"ACC-2: {message} to {agent} was acknowledged and is lost")
            continue
        times = stand[agent][message]
        match view.state:
            case ReceiptState.CONSUMED if times != 1:
                found.append(f"CON-3: {message} is consumed and stands {times} times in the conversation of {agent}")
            case ReceiptState.CONSUMED if view.turn is None or await reader.outcome(view.turn) is None:
                found.append(f"ACC-8: {message} to {agent} was consumed by {view.turn}, which has no outcome")
            case ReceiptState.WITHDRAWN if message not in tried:
                found.append(f"ACC-2: {message} to {agent} is withdrawn, and nobody did that")
            case ReceiptState.DEAD if not view.reason:
                found.append(f"CON-6: {message} to {agent} is dead without a reason")
            case ReceiptState.WITHDRAWN | ReceiptState.DEAD if times:
                found.append(f"CON-4: {message} to {agent} is {view.state.value} and stands in the conversation")
            case _:
                pass
    found += [f"ACC-7: {key} of {agent} is {sorted(ids)}" for (agent, key), ids in keys.items() if len(ids) > 1]
    return found


async def _outcomes(reader: Reader, agents: dict[AgentId, Seen], _: tuple[dict[str, Any], ...]) -> list[str]:
    """Each message stands in one place, its number without a gap, whoever sent it (CON-3, STORE-2)."""
    found = []
    everywhere: Counter[str] = Counter()
    for path, seen in agents.items():
        stand = Counter(entered(seen.records))
        everywhere.update(stand)
        seqs, after = [], 0
        while page := await reader.messages(path, EVERY_STATE, after=after):
            seqs += [one.seq for one in page]
            after = seqs[-1]
            ids = {one.envelope.id for one in page}
            stand = Counter({message: n for message, n in stand.items() if message not in ids})
        if seqs != list(range(1, len(seqs) + 1)):
            found.append(f"STORE-2: the messages of {path} are numbered {seqs}")
        if stand:
            found.append(f"ACC-1: {sorted(stand)} stand in the conversation of {path} and were never accepted")
    found += [f"CON-3: {message} was answered {n} times" for message, n in everywhere.items() if n > 1]
    return found


# -- agents ------------------------------------------------------------------------------------------------------------


def _agent(path: AgentId, seen: Seen) -> list[str]:
    """Valid for a provider, at rest, and nothing that was spent is forgotten."""
    row = seen.stored.row
    found = [f"TRN-5: {path}: {problem}" for problem in problems(seen.records)]
    if row.open is not None:
        found.append(f"ACC-8: {path} has an open turn in the end")
    waiting = [one for one in seen.stored.queued if one.state is ReceiptState.QUEUED]
    if waiting:
        found.append(f"ACC-8: {path} ({seen.stored.intake.value}) has {waiting} in the end")
    if seen.stored.intake is Intake.CLOSING:
        found.append(f"CLS-1: {path} is closing in the end")
    responses = [record for record in seen.records if isinstance(record, ResponseRecord)]
    used = sum(record.usage.total_tokens for record in responses)
    if row.usage.total_tokens < used or row.spent.model_calls < len(responses) or row.spent.tokens < used:
        found.append(
            f"BUD-7: {path} has {len(responses)} responses of {used} tokens, and spent {row.spent} and used {row.usage}"
        )
    return found


# -- calls -------------------------------------------------------------------------------------------------------------


def _effects(facts: tuple[dict[str, Any], ...]) -> list[str]:
    """A `once` body is entered once; an attempt has its call's key (TOL-3)."""
    found = []
    calls: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for fact in _of(facts, "effect"):
        calls[fact["call"]].append(fact)
    for call, entries in calls.items():
        if KINDS[entries[0]["tool"]] == "once" and len(entries) > 1:
            told = ", ".join(f"process {one['pid']} at epoch {one['epoch']}" for one in entries)
            found.append(f"TOL-3: {call} is `once`, and its body was entered {len(entries)} times: {told}")
        keys = {one["key"] for one in entries}
        if len(keys) > 1 or call not in entries[0]["key"]:
            found.append(f"TOL-3: {call} had the keys {sorted(keys)}")
    return found


def _results(agents: dict[AgentId, Seen], facts: tuple[dict[str, Any], ...]) -> list[str]:
    """A result says what happened: its body ran, or it did not, or nobody knows."""
    found = []
    marks: dict[str, set[str]] = defaultdict(set)
    for fact in _of(facts, "effect"):
        marks[fact["call"]].add(fact["mark"])
    settled = set()
    for path, seen in agents.items():
        for record in seen.records:
            if not isinstance(record, ResultRecord) or record.name not in KINDS:
                continue
            settled.add(str(record.call))
            ran = marks.get(record.call, set())
            if record.status is ResultStatus.OK and _text(record) not in ran:
                found.append(f"TOL-3: the result of {record.call} is of no body that ran: {_text(record)} of {ran}")
            if record.status in _NEVER_RAN and ran and KINDS[record.name] == "once":
                found.append(f"TOL-3: {record.call} was settled {record.status.value}, and its body was entered")
            # an idempotent call may be: its turn was given up behind too many crashes (CON-6), or ended by an order
            if record.status is ResultStatus.UNKNOWN and KINDS[record.name] == "pure":
                found.append(f"TOL-3: {record.call} of {path} is pure, and unknown")
    for call in marks.keys() - settled:
        seen_of = agents.get(agent_of(call))
        # an attempt that was never committed leaves no trace, and no `once` call is begun in one (TOL-2)
        if seen_of is None or not any(
            block.id == call for one in seen_of.records if isinstance(one, ResponseRecord) for block in one.calls
        ):
            found.append(f"TOL-2: the body of {call} was entered, and its batch is not in the conversation")
    return found


def _text(record: ResultRecord) -> str:
    return "".join(part.text for part in record.content if isinstance(part, Text))


def _repeats(agents: dict[AgentId, Seen], facts: tuple[dict[str, Any], ...]) -> list[str]:
    """Behind an unknown end the same call runs only with a person's word (TOL-3)."""
    found = []
    approved = {fact["call"] for fact in _of(facts, "approving")}
    begun = {fact["call"] for fact in _of(facts, "effect")}
    for path, seen in agents.items():
        asked: dict[str, tuple[str, str]] = {}
        unknown: set[tuple[str, str]] = set()
        for record in seen.records:
            if isinstance(record, ResponseRecord):
                for block in record.calls:
                    asked[block.id] = (block.name, block.arguments)
                    if asked[block.id] in unknown and block.id in begun and block.id not in approved:
                        found.append(f"TOL-3: {block.id} of {path} ran unasked, and one like it is unknown")
            elif isinstance(record, ResultRecord) and record.status is ResultStatus.UNKNOWN:
                unknown.add(asked[record.call])
            elif isinstance(record, ResultRecord) and record.call in approved:
                unknown.discard(asked[record.call])
    return found


async def _notes(reader: Reader, agents: dict[AgentId, Seen], _: tuple[dict[str, Any], ...]) -> list[str]:
    """What a `store` call wrote is there with its result, once, or not at all (HOK-3)."""
    found = []
    for path, seen in agents.items():
        notes: Counter[str] = Counter()
        for row in await reader.kv(path, "agent"):
            notes.update(json.loads(row.value))
        done = {
            str(record.call)
            for record in seen.records
            if isinstance(record, ResultRecord) and record.name == "note" and record.status is ResultStatus.OK
        }
        found += [f"HOK-3: {path} noted {call} {n} times" for call, n in notes.items() if n > 1]
        if set(notes) != done:
            found.append(f"HOK-3: {path} noted {sorted(set(notes) - done)}, and not {sorted(done - set(notes))}")
    return found


# -- rows --------------------------------------------------------------------------------------------------------------


def _rows(store: Path) -> list[str]:
    """What no read of a store says: epochs in the order of writing, leases, the file itself."""
    check, owners, holders, trees, written = asked(
        store,
        "PRAGMA integrity_check",
        "SELECT holder, until FROM owners",
        "SELECT tree, holder FROM trees WHERE holder IS NOT NULL",
        "SELECT tree, epoch FROM trees",
        "SELECT a.agent, r.epoch FROM records r JOIN agents a ON a.n = r.k >> 32 ORDER BY r.k",
    )
    found = [f"file: {line[0]}" for line in check if line != ("ok",)]
    found += [f"lease: {row} is left" for row in owners]
    found += [f"lease: tree {tree} has holder {holder}" for tree, holder in holders]
    newest: dict[str, int] = dict(trees)
    epochs: dict[AgentId, list[int]] = defaultdict(list)
    for agent, epoch in written:
        epochs[agent].append(epoch)
    for path, wrote in epochs.items():
        if (
            any(later < earlier for earlier, later in pairwise(wrote))
            or not 1 <= wrote[0] <= wrote[-1] <= newest[tree_of(path)]
        ):
            found.append(f"SUP-6: the records of {path} were written with the epochs {wrote}")
    return found


def _count(verdict: Verdict, agents: dict[AgentId, Seen], facts: tuple[dict[str, Any], ...]) -> None:
    counts = verdict.counts
    entries = Counter(fact["call"] for fact in _of(facts, "effect"))
    counts["acknowledged messages"] = len({fact["message"] for fact in _of(facts, "accepted")})
    counts["agents"] = len(agents)
    counts["calls"] = len(entries)
    counts["calls begun again"] = sum(n > 1 for n in entries.values())
    counts["model calls"] = len(_of(facts, "request"))
    counts["unknown"] = sum(
        isinstance(record, ResultRecord) and record.status is ResultStatus.UNKNOWN
        for seen in agents.values()
        for record in seen.records
    )
    verdict.problems += [f"broken: {fact['verb']}: {fact['error']}: {fact['text']}" for fact in _of(facts, "broken")]
