"""One scene, crashed at chosen moments of one process after another, then left in peace; and what must hold then."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors import Agent, CallboardError, Price, Script
from actors.changes import Intake
from actors.errors import InternalError
from actors.messages import ReceiptState
from actors.transcript import NoteRecord, ResultRecord, ResultStatus
from supervisor import open_supervisor
from supervisor.store.memory import open_memory_store
from supervisor.store.sqlite import open_sqlite_store
from tests.points.dying import Failing, MortalModel, MortalStore, Outside, Process, Viewer
from tests.points.scenes import Person, Scene, decide
from tests.points.table import Moment
from tests.supervisor.promises.lives import in_order
from tests.supervisor.promises.scheduling import Sched, simulate
from tests.supervisor.promises.world import EVERY_STATE, check, said

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from actors.changes import AgentRow
    from actors.ports import ModelRequest
    from supervisor import Supervisor
    from supervisor.store.base import Store

REST_S: Final = 900.0
MOST_PROCESSES: Final = 12
PRICES: Final = {"m": Price(1, 2)}


@attrs.define(eq=False)
class Cast:
    """Who plays in a scene: its agents, made once for all lives of it, as making them costs as much as a life.

    Attributes:
        process: the one that lives now; what a tool of theirs does is its.
    """

    scene: Scene
    process: Process = attrs.field(init=False)
    agents: tuple[Agent, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the agents."""
        self.agents = self.scene.agents(lambda: self.process)


@attrs.frozen
class Lived:
    """What came of it.

    Attributes:
        seen: of each process, how many moments it came to. hits: where processes died.
        problems: promises that were broken.
    """

    seen: tuple[int, ...]
    hits: tuple[Moment, ...]
    problems: tuple[str, ...]


def live(cast: Cast, ats: tuple[int, ...], path: Path | None = None) -> Lived:
    """Live a scene whose n-th process dies at its `ats[n]`-th moment; in memory, or in a file."""
    return simulate(partial(_live, cast, ats, path), Sched(0))


def limp(cast: Cast, failing: Failing | None, path: Path | None = None) -> Lived:
    """Live a scene whose first process has a store that fails, and go on in it where the store does.

    Returns:
        What came of it; `seen` is how many operations each process asked the store for.
    """
    return simulate(partial(_limp, cast, failing, path), Sched(0))


@asynccontextmanager
async def opened(bare: Store, path: Path | None) -> AsyncIterator[Store]:
    """The store, as one process after another opens it."""
    if path is None:
        yield bare
        return
    async with open_sqlite_store(path, owner="a scene", inline=True, lease_s=None) as store:
        yield store


async def _live(cast: Cast, ats: tuple[int, ...], path: Path | None) -> Lived:
    outside, processes = Outside(), list[Process]()
    memory = open_memory_store(store_id="points")
    try:
        while not processes or processes[-1].dead:
            number = len(processes)
            process = Process(outside, ats[number] if number < len(ats) else 0)
            processes.append(process)
            async with opened(memory, path) as store:
                await _process(cast, store, process, again=number > 0)
                if outside.problems or number > MOST_PROCESSES:
                    break
        async with opened(memory, path) as store:
            await _idle(cast, store, outside)
            outside.problems += await _problems(cast.scene, store, outside)
    except Exception as error:  # noqa: BLE001 - whatever ends it is what was looked for
        outside.problems.append(f"it ended with {error!r}"[:600])
    return Lived(tuple(len(one.seen) for one in processes), tuple(outside.hits), tuple(outside.problems))


async def _limp(cast: Cast, failing: Failing | None, path: Path | None) -> Lived:
    outside = Outside()
    processes = [Process(outside, failing=failing), Process(outside)]
    memory = open_memory_store(store_id="points")
    try:
        for process in processes:
            async with opened(memory, path) as store:
                await _lame(cast, store, process)
        async with opened(memory, path) as store:
            await _idle(cast, store, outside)
            outside.problems += await _problems(cast.scene, store, outside)
    except Exception as error:  # noqa: BLE001 - whatever ends it is what was looked for
        outside.problems.append(f"it ended with {error!r}"[:600])
    return Lived(tuple(one.operations for one in processes), (), tuple(outside.problems))


# -- one process -----------------------------------------------------------------------------------------------------


async def _process(cast: Cast, bare: Store, process: Process, *, again: bool) -> None:
    store = MortalStore(bare, process)
    await _look(bare, process.outside)
    try:
        with process.scope:
            await _run(cast, store, process, again=again)
    except Exception:
        if not process.dead:  # what a dead one raises never happened
            raise
    if not process.dead:
        assert not process.scope.cancelled_caught, "nobody cancels it"
        return
    assert store.holder is not None, "a supervisor makes its holder first"
    await bare.release(store.holder)  # its process is known to be gone


async def _lame(cast: Cast, bare: Store, process: Process) -> None:
    """A process that lives on whatever its store does; where that failed once, the same one goes on."""
    store = MortalStore(bare, process)
    await _look(bare, process.outside)
    for_ever = process.failing is not None and process.failing.forever
    try:
        async with _supervisor(cast, store, process) as sup:
            try:
                await _drive(cast, sup, process, again=True)
            except Exception as error:
                if not process.failed or not _expected(error):
                    raise
                if not for_ever:
                    await _insist(cast, sup, process)
            if not for_ever:
                process.outside.problems += at_rest(sup)
    except Exception as error:
        if not process.failed or not _expected(error):
            raise
    assert store.holder is not None, "a supervisor makes its holder first"
    await bare.release(store.holder)  # its process has ended


async def _insist(cast: Cast, sup: Supervisor, process: Process) -> None:
    """The store is well again: the same process does it all."""
    try:
        await _drive(cast, sup, process, again=True)
    except Exception as error:  # noqa: BLE001 - leaving may say that the store failed, this may not
        process.outside.problems.append(f"SUP-2: the process does not go on: {error!r}"[:600])


def _expected(error: BaseException) -> bool:
    """Whether it says that the store failed, or that somebody waited in vain for what it did not take."""
    if isinstance(error, BaseExceptionGroup):
        return all(_expected(inner) for inner in error.exceptions)
    return isinstance(error, (CallboardError, trio.TooSlowError)) and not isinstance(error, InternalError)


async def _look(store: Store, outside: Outside) -> None:
    """What the dead process left open is to be taken up."""
    outside.found.clear()
    for row in await _rows(store):
        if row.open is None:
            outside.half.discard(row.agent)  # whatever comes next, they are told by how the turn ended
        elif row.suspended is None and not row.open.left:
            outside.found[row.agent] = row
        if row.open is not None and not row.open.asking:
            outside.half.discard(row.agent)  # its response is whole, and in the conversation


async def _rows(store: Store) -> tuple[AgentRow, ...]:
    found: list[AgentRow] = []
    for root in await store.roots():
        found += await store.tree_rows(root.agent)  # type: ignore[arg-type]  # a root's path is its tree's id
    return tuple(found)


async def _run(cast: Cast, store: MortalStore, process: Process, *, again: bool) -> None:
    async with _supervisor(cast, store, process) as sup:
        await _drive(cast, sup, process, again=again)
        if not process.dead:
            process.outside.problems += at_rest(sup)


@asynccontextmanager
async def _supervisor(cast: Cast, store: MortalStore, process: Process) -> AsyncIterator[Supervisor]:
    cast.process, scene = process, cast.scene

    def play(request: ModelRequest) -> object:
        return scene.play(request, process)

    model = MortalModel(Script({spec.name: play for spec in cast.agents}), process)
    async with open_supervisor(
        model=model, store=store, agents=cast.agents, prices=PRICES, inline=True, grace=5, hard=2
    ) as sup:
        sup._parts.board.add(Viewer(process))  # type: ignore[arg-type]  # it has what is used
        yield sup


async def _drive(cast: Cast, sup: Supervisor, process: Process, *, again: bool) -> None:
    """Do all of it, and wait until nothing is owed."""
    with trio.fail_after(REST_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(decide, sup, process)
            if again:
                await sup.resume()
            await cast.scene.drive(Person(process), sup, cast.agents[0])
            while await sup.store.agents_with_work() or _active(sup):  # noqa: ASYNC110 - a store has no event
                await trio.sleep(1)
            nursery.cancel_scope.cancel()


def _active(sup: Supervisor) -> bool:
    return any(actor.active for actor in sup._parts.kernel.actors.values())


def at_rest(sup: Supervisor) -> list[str]:
    """What a supervisor must not have any more once nothing is owed."""
    parts = sup._parts
    found = []
    if parts.graph.statistics().open:
        found.append(f"27: {parts.graph.statistics().open} waits are open at rest")
    if parts.ledger.statistics().reservations:
        found.append(f"47: {parts.ledger.statistics().reservations} reservations are open at rest")
    return found


async def _idle(cast: Cast, bare: Store, outside: Outside) -> None:
    """Whoever comes next has nothing to do, and asks no model."""
    process = Process(outside)
    asked = outside.asked.total()
    model = MortalModel(Script({}), process)
    async with open_supervisor(model=model, store=bare, agents=cast.agents, prices=PRICES, inline=True) as sup:
        resumed = await sup.resume()
        await trio.sleep(10)
    if resumed or outside.asked.total() != asked:
        outside.problems.append(f"REC-1: at rest, and yet {resumed} is resumed")


# -- what must hold --------------------------------------------------------------------------------------------------


async def _problems(scene: Scene, store: Store, outside: Outside) -> list[str]:
    try:
        await check(store)
        await in_order(store)
    except AssertionError as error:
        return [f"CON-4, ACC-4, TOL-1: {error!s}"[:600]]
    found = [*await _messages(store, outside), *await _calls(store, outside)]
    for row in await _rows(store):
        if row.open is not None:
            found.append(f"REC-3: {row.agent} is left with an open turn")
        found += _spending(row, outside)
    if scene.most is not None and outside.asked.total() > scene.most:
        found.append(f"BUD-7: {outside.asked.total()} requests under a limit of {scene.most}")
    found += [f"REC-3: watchers of {agent} were left with half a response" for agent in sorted(outside.half)]
    return found


def _spending(row: AgentRow, outside: Outside) -> list[str]:
    """Never less than what was true (BUD-7)."""
    found = []
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
        elif view.state in (ReceiptState.QUEUED, ReceiptState.HELD):
            stored = await store.load_agent(view.agent)
            if view.state is ReceiptState.QUEUED or stored is None or stored.intake is Intake.CLOSED:
                found.append(f"ACC-8: {text!r} still waits")
    for row in await _rows(store):
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
    for row in await _rows(store):
        notes = [one.text for one in await store.read_records(row.agent) if isinstance(one, NoteRecord)]
        found += [f"a scene is broken: {text}" for text in notes if " raised " in text]
        results = [one for one in await store.read_records(row.agent) if isinstance(one, ResultRecord)]
        for one in results:
            if one.status is ResultStatus.OK and one.name != "kid" and one.call not in effects:
                found.append(f"TOL-3: {one.call} is settled ok, and never ran")
            if one.status is ResultStatus.UNKNOWN and one.call not in outside.started:
                found.append(f"TOL-3: {one.call} is unknown, and was never started")
        kept = [one.value for one in await store.kv(row.agent, "agent") if one.key == "kept"]
        good = sum(one.name == "keep" and one.status is ResultStatus.OK for one in results)
        if good and kept != [str(good)]:
            found.append(f"TOL-3: {good} calls of a store tool settled, and it kept {kept}")
        told = [
            one
            for one in await store.messages(row.agent, EVERY_STATE)
            if said(one.envelope.content).startswith("told by a store")
        ]
        if len(told) != sum(one.name == "tell" and one.status is ResultStatus.OK for one in results):
            found.append(f"HOK-3: a store tool's message is there {len(told)} times, its result says otherwise")
    return found
