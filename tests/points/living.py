"""One scene, crashed at chosen moments of one process after another, then left in peace; and what must hold then."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors import Agent, CallboardError, Price, Script
from actors.errors import InternalError
from supervisor import open_supervisor
from supervisor.store.memory import open_memory_store
from supervisor.store.sqlite import open_sqlite_store
from supervisor.stores import check_store_file
from tests.points.dying import Failing, MortalModel, MortalStore, Process, Stretch, Viewer
from tests.points.holding import problems, rows_of
from tests.points.kit import Person, Scene, decide
from tests.points.outside import Outside
from tests.points.table import Moment
from tests.supervisor.promises.scheduling import Sched, simulate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

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
        seen: of each process, the moments it came to, by what it would have left. hits: where processes died.
        problems: promises that were broken.
    """

    seen: tuple[tuple[Stretch, ...], ...]
    hits: tuple[Moment, ...]
    problems: tuple[str, ...]


@attrs.frozen
class Limped:
    """What came of a store that fails.

    Attributes:
        operations: how many the first process asked for. writes: the numbers of those that write.
    """

    operations: int
    writes: frozenset[int]
    problems: tuple[str, ...]


def live(cast: Cast, ats: tuple[int, ...], path: Path | None = None) -> Lived:
    """Live a scene whose n-th process dies at its `ats[n]`-th moment; in memory, or in a file."""
    return simulate(partial(_live, cast, ats, path), Sched(0))


def limp(cast: Cast, failing: Failing | None, path: Path | None = None) -> Limped:
    """Live a scene whose first process has a store that fails, and go on in it where the store does."""
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
            outside.problems += await problems(cast.scene, store, outside)
        if path is not None:
            outside.problems += [f"the file: {violation}" for violation in check_store_file(path)]
    except Exception as error:  # noqa: BLE001 - whatever ends it is what was looked for
        outside.problems.append(f"it ended with {error!r}"[:600])
    return Lived(tuple(tuple(one.stretches) for one in processes), tuple(outside.hits), tuple(outside.problems))


async def _limp(cast: Cast, failing: Failing | None, path: Path | None) -> Limped:
    outside = Outside()
    processes = [Process(outside, failing=failing), Process(outside)]
    memory = open_memory_store(store_id="points")
    try:
        for process in processes:
            async with opened(memory, path) as store:
                await _lame(cast, store, process)
        async with opened(memory, path) as store:
            await _idle(cast, store, outside)
            outside.problems += await problems(cast.scene, store, outside)
        if path is not None:
            outside.problems += [f"the file: {violation}" for violation in check_store_file(path)]
    except Exception as error:  # noqa: BLE001 - whatever ends it is what was looked for
        outside.problems.append(f"it ended with {error!r}"[:600])
    return Limped(processes[0].operations, frozenset(processes[0].writes), tuple(outside.problems))


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
                if process.settles and not for_ever:
                    process.outside.problems.append(f"ACC-2: it was written, and somebody heard {error!r}"[:600])
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
    outside.crashed.clear()
    for row in await rows_of(store):
        if row.open is None:
            outside.half.discard(row.agent)  # whatever comes next, they are told by how the turn ended
        elif row.suspended is None and not row.open.left:
            outside.found[row.agent] = row
            outside.crashed[row.agent] = row.open.tries
        if row.open is not None and not row.open.asking:
            outside.half.discard(row.agent)  # its response is whole, and in the conversation


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
