"""What tools did outside, beside what the store says they did: the log of effects is the judge."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import attrs

from actors.changes import AgentRow, CallRow, CallState, Enqueue, Put
from actors.ids import turn_id
from actors.messages import Envelope, Purpose, Verdict
from actors.transcript import ResponseRecord, ResultRecord, ResultStatus
from tests.life.world import EFFECTS

if TYPE_CHECKING:
    from actors.ids import AgentId
    from tests.life.reading import Kept
    from tests.life.world import Effect, World

_ENDED = (ResultStatus.OK, ResultStatus.ERROR, ResultStatus.TIMEOUT)
_NEVER_RAN = (ResultStatus.SKIPPED, ResultStatus.DENIED, ResultStatus.REFUSED)


@attrs.define
class _Call:
    """One call, as the history has it: indices of commits.

    Attributes:
        started: its start was recorded. approved: a decision let it run. arguments: bound to the request for approval.
        state: where it is; None: it was never there, or is gone. decided: so many decisions were accepted.
    """

    started: list[int] = attrs.field(factory=list)
    approved: list[int] = attrs.field(factory=list)
    arguments: str | None = None
    state: CallState | None = None
    decided: int = 0


def check(world: World, agents: dict[AgentId, Kept]) -> list[str]:
    """25, 26 and 28 to 34."""
    calls, aborts, wrong = _told(world)
    results = {r.call: r for one in agents.values() for r in one.records if isinstance(r, ResultRecord)}
    by_call: dict[str, list[Effect]] = defaultdict(list)
    for effect in world.effects:
        by_call[effect.call].append(effect)
    return [
        *wrong,
        *(p for effect in world.effects for p in _effect(effect, calls[effect.call], aborts, world.history.told)),
        *(p for call, effects in by_call.items() for p in _repeated(call, effects)),
        *_results(world, results, by_call, calls),
        *_repeats(world, agents, calls),
        *_children(agents),
    ]


def _told(world: World) -> tuple[dict[str, _Call], dict[tuple[str, int], list[int]], list[str]]:
    """The calls of the history; where turns were aborted, by the turn and the process that did it; wrong decisions."""
    calls: dict[str, _Call] = defaultdict(_Call)
    aborts: dict[tuple[str, int], list[int]] = defaultdict(list)
    turns: dict[str, int] = {}
    wrong = []
    for at, one in enumerate(world.history.applied):
        for op in one.set.operations:
            match op:
                case Put(row=CallRow() as row):
                    calls[row.call].state = row.state
                    if row.state is CallState.STARTED:
                        calls[row.call].started.append(at)
                    if row.asking is not None:
                        calls[row.call].arguments = row.asking.arguments
                case Put(row=AgentRow() as row):
                    if row.turns < turns.get(row.agent, 0):  # of a turn that was for a compaction only: given back
                        gone = turn_id(row.agent, row.turns + 1)
                        aborts = defaultdict(list, {key: places for key, places in aborts.items() if key[0] != gone})
                    turns[row.agent] = row.turns
                case Enqueue(envelope=envelope) if envelope.purpose is Purpose.DECISION:
                    wrong += _decided(calls[str(envelope.target)], envelope, at)
                case Enqueue(envelope=envelope) if envelope.purpose is Purpose.ABORT:
                    aborts[str(envelope.target), one.process].append(at)
                case _:
                    pass
    return calls, aborts, wrong


def _decided(call: _Call, envelope: Envelope, at: int) -> list[str]:
    """30: one decision for each call, and only where it waits for one."""
    assert envelope.decision is not None, "a decision says what"
    found = []
    if call.decided:
        found.append(f"30: {envelope.target} is decided again: {envelope.decision.verdict.value}")
    if call.state is not CallState.AWAITING:
        found.append(f"30: {envelope.target} is decided, and waits for nobody: {call.state}")
    call.decided += 1
    if envelope.decision.verdict is Verdict.APPROVED:
        call.approved.append(at)
    return found


def _effect(effect: Effect, call: _Call, aborts: dict[tuple[str, int], list[int]], told: dict[int, float]) -> list[str]:
    """30 to 32: recorded before it began, approved where that is asked, not begun behind an abort.

    A `store` call leaves no trace before its result, so its start is not recorded. What begins in the very moment in
    which its process hears of the abort counts as begun before. Of one that another process ordered it hears later.
    """
    found = []
    if effect.effect != "store" and not any(at < effect.place for at in call.started):
        found.append(f"32: {effect.call} began before its start was recorded")
    if effect.tool == "gated":
        if not any(at < effect.place for at in call.approved):
            found.append(f"30: {effect.call} began, and nobody had approved it")
        elif tuple(json.loads(call.arguments or "{}").values()) != effect.arguments:
            found.append(f"30: {effect.call} ran with {effect.arguments}, approved was {call.arguments}")
    turn = effect.call.rpartition(".")[0].rpartition(".")[0]
    if any(told.get(at, effect.at) < effect.at for at in aborts[turn, effect.process]):
        found.append(f"31: {effect.call} began behind the abort of {turn}")
    return found


def _repeated(call: str, effects: list[Effect]) -> list[str]:
    """25, 29: a `once` call begins once; all attempts at a call have one key."""
    found = []
    if len(effects) > 1 and effects[0].effect == "once":
        found.append(f"25: {call} ({effects[0].effect}) began {len(effects)} times")
    if len({effect.key for effect in effects}) > 1:
        found.append(f"29: {call} had several keys: {[effect.key for effect in effects]}")
    if any(call not in effect.key for effect in effects):
        found.append(f"29: the key of {call} is another call's: {effects[0].key}")
    return found


def _results(
    world: World, results: dict[Any, ResultRecord], by_call: dict[str, list[Effect]], calls: dict[str, _Call]
) -> list[str]:
    """26, 28: what a result says happened."""
    found = []
    disturbed = not world.healed or world.crashes or world.history.faults or len(world.history.owned) > 1
    for call, result in results.items():
        if result.name not in EFFECTS:
            continue
        effects = by_call.get(call, [])
        if result.status is ResultStatus.OK and not effects:
            found.append(f"26: {call} came to a result, and never began")
        if result.status in _NEVER_RAN and any(effect.effect != "store" for effect in effects):
            found.append(f"26: {call} was settled {result.status.value}, and began")
        if result.status is ResultStatus.UNKNOWN and not (calls[call].started and disturbed):
            found.append(f"28: {call} is unknown, and was never started or never interrupted")
    return found


def _repeats(world: World, agents: dict[AgentId, Kept], calls: dict[str, _Call]) -> list[str]:
    """34: behind an unknown end the same call runs only with a person's word, until one that had it has a known end."""
    found = []
    begun = {effect.call: effect for effect in world.effects}
    for path, one in agents.items():
        unknown: set[tuple[str, str]] = set()
        asked: dict[str, tuple[str, str]] = {}
        for record in one.records:
            if isinstance(record, ResponseRecord):
                asked |= {block.id: (block.name, _canonical(block.arguments)) for block in record.calls}
                for block in record.calls:
                    effect = begun.get(block.id)
                    if asked[block.id] in unknown and effect is not None and not calls[block.id].approved:
                        found.append(f"34: {block.id} of {path} ran, and one like it is unknown")
            elif isinstance(record, ResultRecord) and record.status is ResultStatus.UNKNOWN:
                unknown.add(asked[record.call])
            elif isinstance(record, ResultRecord) and record.status in _ENDED and calls[record.call].approved:
                unknown.discard(asked[record.call])
    return found


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return arguments


def _children(agents: dict[AgentId, Kept]) -> list[str]:
    """33: one start under one key is one child."""
    keys = Counter((one.row.parent, one.row.key) for one in agents.values() if one.row.key is not None)
    return [f"33: {key} of {parent or 'the store'} is {n} agents" for (parent, key), n in keys.items() if n > 1]
