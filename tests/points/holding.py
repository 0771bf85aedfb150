"""What must hold at the end of a life: of its messages, its calls, what it spent, and of its scene."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from actors.changes import Intake
from actors.messages import ReceiptState
from actors.pages import READER
from actors.transcript import NoteRecord, ResultRecord, ResultStatus
from tests.supervisor.promises.lives import in_order
from tests.supervisor.promises.world import EVERY_STATE, check, said

if TYPE_CHECKING:
    from actors.changes import AgentRow
    from supervisor.store.base import Store
    from tests.points.kit import Scene
    from tests.points.outside import Outside


async def rows_of(store: Store) -> tuple[AgentRow, ...]:
    """The rows of all agents."""
    found: list[AgentRow] = []
    for root in await store.roots():
        found += await store.tree_rows(root.agent)  # type: ignore[arg-type]  # a root's path is its tree's id
    return tuple(found)


async def problems(scene: Scene, store: Store, outside: Outside) -> list[str]:
    """Whatever is wrong with a life that has come to rest."""
    try:
        await check(store)
        if "put back" not in outside.done:  # what is put back was overtaken before
            await in_order(store)
    except AssertionError as error:
        return [f"CON-4, ACC-4, TOL-1: {error!s}"[:600]]
    found = [*await _messages(store, outside), *await _calls(store, outside)]
    for row in await rows_of(store):
        if row.open is not None:
            found.append(f"REC-3: {row.agent} is left with an open turn")
        found += _spending(row, outside)
    if scene.most is not None and outside.asked.total() > scene.most + outside.granted:
        found.append(f"BUD-7: {outside.asked.total()} requests under a limit of {scene.most} and {outside.granted}")
    if scene.holds is not None:
        found += await scene.holds(store, outside)
    found += [f"REC-3: watchers of {agent} were left with half a response" for agent in sorted(outside.half)]
    return found


def _spending(row: AgentRow, outside: Outside) -> list[str]:
    """Never less than what was true, and nothing twice (BUD-7)."""
    found = []
    if row.spent.model_calls > outside.held[row.agent] + outside.again[row.agent]:
        found.append(f"BUD-7: {row.agent} reserved {outside.held[row.agent]} times, and is charged {row.spent}")
    if row.spent.model_calls < outside.asked[row.agent]:
        found.append(f"BUD-7: {row.agent} asked {outside.asked[row.agent]} times, and is charged {row.spent}")
    if row.spent.output_tokens < outside.output[row.agent]:
        found.append(f"BUD-7: {row.agent} was answered {outside.output[row.agent]} tokens, and is charged {row.spent}")
    return found


async def _messages(store: Store, outside: Outside) -> list[str]:
    """No accepted message is lost or accepted twice, and each has come to an end (ACC-1, ACC-7)."""
    found = []
    for text, message in outside.accepted.items():
        view = await store.message_state(message)  # type: ignore[arg-type]  # a message's id
        if view is None:
            found.append(f"ACC-1: {text!r} was accepted, and is nowhere")
        elif view.turn is not None and await store.outcome(view.turn) is None:
            found.append(f"ACC-9: {text!r} was consumed by {view.turn}, of which nobody is told")
        elif view.state in (ReceiptState.QUEUED, ReceiptState.HELD):
            stored = await store.load_agent(view.agent)
            if view.state is ReceiptState.QUEUED or stored is None or stored.intake is Intake.CLOSED:
                found.append(f"ACC-8: {text!r} still waits")
    for row in await rows_of(store):
        texts = [said(one.envelope.content) for one in await store.messages(row.agent, EVERY_STATE)]
        keyed = [text for text in texts if text and (text in outside.accepted or text.startswith(("told", "go")))]
        found += [f"ACC-7: {row.agent} was sent {text!r} twice" for text in set(keyed) if keyed.count(text) > 1]
    return found


async def _calls(store: Store, outside: Outside) -> list[str]:
    """What the conversation says of each call is what happened outside (TOL-3)."""
    found = []
    effects: dict[str, list[str]] = {}
    keys: dict[str, set[str]] = {}
    for ran in outside.effects:
        effects.setdefault(ran.call, []).append(ran.effect)
        keys.setdefault(ran.call, set()).add(ran.key)
    found += [
        f"TOL-3: once call {c} ran {len(times)} times" for c, times in effects.items() if times[1:] and "once" in times
    ]
    found += [f"TOL-3: call {call} had keys {sorted(those)}" for call, those in keys.items() if len(those) > 1]
    for row in await rows_of(store):
        records = await store.read_records(row.agent)
        notes = [one.text for one in records if isinstance(one, NoteRecord)]
        found += [f"a scene is broken: {text}" for text in notes if " raised " in text]
        results = [one for one in records if isinstance(one, ResultRecord)]
        for one in results:
            if one.status is ResultStatus.OK and one.name not in _OURS and one.call not in effects:
                found.append(f"TOL-3: {one.call} is settled ok, and never ran")
            if one.status is ResultStatus.UNKNOWN and one.call not in outside.started:
                found.append(f"TOL-3: {one.call} is unknown, and was never started")
            if one.status not in _RAN and one.call in outside.decided:
                found.append(f"TOL-12: {one.call} was approved, and is {one.status.value}")
        found += await _stored(store, row, results)
    starts = Counter(row.started_by for row in await rows_of(store) if row.started_by is not None)
    found += [f"CHILD-2: call {call} started {number} children" for call, number in starts.items() if number > 1]
    return found


async def _stored(store: Store, row: AgentRow, results: list[ResultRecord]) -> list[str]:
    """What `store` calls wrote and sent is there as often as they settled (HOK-3)."""
    found = []
    kept = [one.value for one in await store.kv(row.agent, "agent") if one.key == "kept"]
    good = Counter(one.name for one in results if one.status is ResultStatus.OK)
    if good["keep"] and kept != [str(good["keep"])]:
        found.append(f"TOL-3: {good['keep']} calls of a store tool settled, and it kept {kept}")
    sent = [said(one.envelope.content) for one in await store.messages(row.agent, EVERY_STATE)]
    told = sum(text.startswith("told by a store") for text in sent)
    if told != good["tell"]:
        found.append(f"HOK-3: a store tool's message is there {told} times, its result says {good['tell']}")
    return found


_OURS: Final = frozenset({"kid", READER})
"""Tools that have no body of a scene's."""
_RAN: Final = frozenset({ResultStatus.OK, ResultStatus.UNKNOWN})
