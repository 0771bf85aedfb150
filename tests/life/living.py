"""One life: several processes over one store, one after another, then healing, rest, and the checks."""

from __future__ import annotations

import gc
import random
import tempfile
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from actors import Budget, Price
from actors.changes import Intake
from actors.errors import StoreError
from actors.messages import Lane
from supervisor import AgentRef, open_supervisor, peers, remote
from supervisor.store.memory import open_memory_store
from supervisor.store.sqlite import open_sqlite_store
from tests.life import after, reading
from tests.life.events import FAITHFUL, FITFUL, Process, decide, drive
from tests.life.faults import LifeStore
from tests.life.players import Player
from tests.life.schedule import Bounded, Tasks
from tests.life.trace import Ear
from tests.life.world import WORLD, World
from tests.supervisor.promises.scheduling import Sched, simulate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from actors.changes import AgentRow
    from actors.ids import AgentId
    from supervisor import Supervisor
    from supervisor.store.base import Store

REST_S: Final = 600.0
"""How long a healed life may take to come to rest, in virtual seconds."""
CLOSE_S: Final = 200.0
LEAVE_S: Final = 200.0
SQLITE_EVERY: Final = 12
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where it is there: no life asks whether a disk keeps what it flushed
MUCH: Final = 100_000
POLLS_S: Final = (0.4, 0.8, 1.6)
"""How often the processes of a life look at the store: seldom, or it would be looks for the most part."""


def over_a_file(seed: int) -> bool:
    """Whether a life has a file as its store: it costs twice as much as one in memory."""
    return seed % SQLITE_EVERY == 5


class Broken(AssertionError):
    """A life broke a promise. `problems`: which, one a line, each beginning with the number of its invariant."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@attrs.frozen
class Lived:
    """A whole life. `problems`: promises that it broke."""

    seed: int
    world: World
    problems: tuple[str, ...]

    @property
    def hash(self) -> str:
        """Of its trace."""
        return self.world.trace.hash


def live(seed: int) -> Lived:
    """Live one life; whatever it breaks is in what is returned, with the bug that ended it, if one did."""
    world = World(str(seed))
    tasks = Tasks()
    return lived(
        seed, world, lambda path: partial(_life, world, path, tasks, seed), Bounded(seed, defer=(seed % 4) / 4), tasks
    )


def folder() -> tempfile.TemporaryDirectory[str]:
    """Where the file of a life is, as long as it is lived."""
    return tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)


@contextmanager
def looking_every(seconds: float) -> Iterator[None]:
    """Processes look so often at a store that others write to."""
    before = peers.POLL_S
    for module in (peers, remote):
        vars(module)["POLL_S"] = seconds
    try:
        yield
    finally:
        for module in (peers, remote):
            vars(module)["POLL_S"] = before


def lived(
    seed: int, world: World, life: Callable[[Path], Callable[[], Awaitable[list[str]]]], sched: Sched, tasks: Tasks
) -> Lived:
    """Live a life, some seeds over a file; what became of it."""
    filed = over_a_file(seed)
    problems: list[str] = []
    token = WORLD.set(world)
    gc.disable()  # what holds nobody but weakly is let go at the same moment in each life of a seed
    try:
        with folder() if filed else nullcontext() as where, looking_every(world.dice("poll").choice(POLLS_S)):
            problems += simulate(life(Path(where or "nowhere") / "life.db"), sched, tasks)
    except BaseException as error:  # noqa: ASYNC103 - whatever ends a life is what was looked for; no loop runs here
        if isinstance(error, KeyboardInterrupt):
            raise
        problems += [*getattr(error, "problems", ()), *_told(error)]
    finally:
        WORLD.reset(token)
        gc.collect(0)
        gc.enable()
    return Lived(seed, world, tuple(dict.fromkeys((*world.problems, *problems))))


def _told(error: BaseException) -> list[str]:
    if isinstance(error, Broken):
        return []
    if isinstance(error, BaseExceptionGroup):
        return [line for inner in error.exceptions for line in _told(inner)]
    at = error.__traceback__
    where = ""
    while at is not None:
        where = f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}"
        at = at.tb_next
    return [f"54: it ended with {type(error).__name__}: {str(error)[:400]} (at {where})"]


async def _life(world: World, path: Path, tasks: Tasks, seed: int) -> list[str]:
    dice = world.dice("life")
    memory = open_memory_store(store_id="life")
    async with memory as bare:
        many = dice.choice((1, 2, 2, 3))
        problems: list[str] = []
        for number in range(1, many + 1):
            async with _store(bare, path, sqlite=over_a_file(seed)) as store:
                before = tasks.alive.total()
                problems += await _process(world, store, number, last=number == many)
                if tasks.alive.total() != before:
                    problems.append(f"53: {tasks.alive.total() - before} tasks are left behind by process {number}")
                problems += await reading.check(store, world)
                if number > 1:
                    problems += await reading.fenced(store, world)
            if problems:
                break
    return problems


@asynccontextmanager
async def _store(bare: Store, path: Path, *, sqlite: bool) -> AsyncIterator[Store]:
    if not sqlite:
        yield bare
        return
    async with open_sqlite_store(path, owner="a life", inline=True) as store:
        yield store


# -- one process -----------------------------------------------------------------------------------------------------


async def _process(world: World, bare: Store, number: int, *, last: bool) -> list[str]:
    """Open a supervisor, let things happen, leave it in some way; the last one heals and rests."""
    dice = world.dice(f"process:{number}")
    store = LifeStore(bare, world.history, world.trace, number, world.seed)
    crash_s = None if last or dice.random() < 0.4 else dice.random() * dice.choice((1, 5, 20))
    mode = dice.choice(("suspend", "suspend", "finish", "close")) if not last else "suspend"
    world.trace.say(f"p{number} opens; leaves by {mode if crash_s is None else f'a crash after {crash_s:.2f} s'}")
    found: list[str] = []
    with trio.CancelScope() as scope, trio.fail_after(10 * REST_S), forgiven(world, last=last):
        async with open_supervisor(store=store, on_exit=mode, **options(world, store, number, dice)) as sup:
            process = Process(world, number, sup, store)
            ear = wire(process, dice)
            async with trio.open_nursery() as nursery:
                store.meets = partial(order, process, nursery)
                if crash_s is not None:
                    nursery.start_soon(_crash, process, crash_s, scope)
                await _happen(process, dice, nursery)
                if crash_s is not None:
                    await trio.sleep_forever()
                if last:
                    found += await _heal(process)
                    world.trace.say(f"p{number} is at rest")
                store.meets = None
                nursery.cancel_scope.cancel()
            world.trace.say(f"p{number} leaves")
            scope.deadline = trio.current_time() + LEAVE_S
    await store.buried()
    if scope.cancelled_caught and not store.dead:
        found.append(f"37: leaving process {number} by {mode} took more than {LEAVE_S:.0f} s")
    world.trace.say(f"p{number} is left")
    return [*found, *process.broken, *ear.problems, *(f"SUP-2: a loop crashed: {crash}" for crash in ear.crashed)]


def options(world: World, store: LifeStore, number: int, dice: random.Random) -> dict[str, Any]:
    """What one process is opened with."""
    apart = world.dice("apart").random() < 0.5
    return {
        "model": [Player(world, store, number, "one"), Player(world, store, number, "two", apart=apart)],
        "agents": world.specs,
        "inline": True,
        "prices": {"one": Price(1, 2), "two": Price(3, 4)},
        "grace": dice.choice((0.0, 2.0, 20.0)),
        "hard": dice.choice((1.0, 5.0)),
        "permits": dice.choice((1, 2, 8)),
        "budget": Budget(model_calls=MUCH) if dice.random() < 0.3 else None,
    }


@contextmanager
def forgiven(world: World, *, last: bool) -> Iterator[None]:
    """Leaving may say that the store failed, where it was made to; the last process is healed."""
    try:
        yield
    except StoreError as error:
        if last or not world.history.faults:
            raise
        world.trace.say(f"leaving raised {error!r}")


def wire(process: Process, dice: random.Random) -> Ear:
    """Take out of a supervisor what chance it has of its own, and listen."""
    parts = process.sup._parts
    parts.kernel.token = f"p{process.number}"
    process.store.runs = parts.kernel.ownership.epochs.__contains__
    parts.gateway._rng = random.Random(dice.random())  # type: ignore[attr-defined]  # behind the port
    ear = Ear(process.world.trace, process.number, process.world.cut)
    parts.board.add(ear)  # type: ignore[arg-type]  # it has what is used
    return ear


async def _crash(process: Process, after_s: float, scope: trio.CancelScope) -> None:
    await trio.sleep(after_s)
    process.world.trace.count("crashes")
    process.world.trace.say(f"p{process.number} crashes")
    process.world.dead.add(f"p{process.number}")
    process.world.crashes += 1
    process.store.dead = True
    scope.cancel()


async def _happen(process: Process, dice: random.Random, nursery: trio.Nursery) -> None:
    """Everything at once: roots begin or go on, people decide, drivers drive."""
    world, sup = process.world, process.sup
    if dice.random() < 0.7:
        await nursery.start(decide, process, world.dice(f"decide:{process.number}"), FITFUL)
    if process.number > 1:
        await survive(process, sup.resume)
    else:
        for spec in world.specs:
            await survive(process, partial(sup.start, spec, "begin", key="one"))
    async with trio.open_nursery() as drivers:
        for driver in range(dice.choice((1, 2, 3))):
            name = f"driver:{process.number}:{driver}"
            drivers.start_soon(drive, process, world.dice(name), dice.randint(2, 10), name=name)


async def survive(process: Process, verb: Any) -> None:
    """Ask for something that may fail as it may for anybody."""
    try:
        await verb()
    except after.EXPECTED as error:
        process.world.trace.say(f"p{process.number} {error!r}"[:200])


def order(process: Process, nursery: trio.Nursery, path: AgentId, dice: random.Random) -> None:
    """Let an order, or a message, come to an agent at once."""
    ref = AgentRef(process.sup._parts.desk, path)
    verb = dice.choice((ref.abort, ref.pause, ref.wake, ref.close, partial(ref.send, "are you there?")))
    nursery.start_soon(survive, process, verb)


# -- healing ---------------------------------------------------------------------------------------------------------


async def _heal(process: Process) -> list[str]:
    """Nothing fails any more, people decide, everything paused goes on: it must come to rest (invariant 37)."""
    world, sup = process.world, process.sup
    world.trace.say(f"p{process.number} heals")
    await process.store.heal()
    await trio.sleep(1)  # whoever it failed has stopped by then
    world.healed = True
    with trio.move_on_after(REST_S) as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(decide, process, world.dice("heal"), FAITHFUL)
            await sup.resume()
            await _wake_all(process)
            while not await rests(process):  # noqa: ASYNC110 - a store has no event
                await trio.sleep(1)
            nursery.cancel_scope.cancel()
    if scope.cancelled_caught:
        return [f"37: after {REST_S:.0f} s of healing there is still work: {line}" for line in await still(sup)]
    found = await after.at_rest(process)
    if not found and world.dice("end").random() < 0.6:
        found += await close_all(process)
    return found


async def _wake_all(process: Process) -> None:
    sup = process.sup
    for row in await sup.tree():
        await wake(process, row)


async def wake(process: Process, row: AgentRow) -> None:
    """Let an agent go on, with as much budget as it takes."""
    stored = await process.sup.store.load_agent(row.agent)
    if stored is None or stored.intake is not Intake.OPEN:
        return
    ref = await process.sup.find(row.agent)
    if row.budget is not None:
        await survive(process, partial(_grant, process, ref, row))
    await ref.wake()


async def _grant(process: Process, ref: AgentRef, row: AgentRow) -> None:
    """As much as it takes, in each dimension that has a limit."""
    for dimension in ("model_calls", "tokens", "tool_calls"):
        if f'"{dimension}"' in (row.budget or "") and f'"{dimension}":null' not in (row.budget or ""):
            await process.sup.grant(ref, Budget(**{dimension: MUCH}), by="the operator")  # type: ignore[arg-type]  # one of its names


async def rests(process: Process) -> bool:
    """Nothing is owed in the store, nothing runs here."""
    actors = process.sup._parts.kernel.actors.values()
    if (
        any(one.active or (one.due and one.intake is not Intake.CLOSED) for one in actors)
        or process.sup._parts.post.pending()
        or not process.store.told
    ):
        return False
    for path in await process.sup.store.agents_with_work():
        stored = await process.sup.store.load_agent(path)
        if stored is None or stored.intake is not Intake.CLOSED:  # an order that came behind the end stays (README)
            return False
    return True


async def still(sup: Supervisor) -> list[str]:
    """What does not come to rest, in words."""
    work = await sup.store.agents_with_work()
    actors = sup._parts.kernel.actors
    lines = []
    for path in work:
        stored = await sup.store.load_agent(path)
        assert stored is not None, "what has work is stored"
        queued = [(one.envelope.id, one.envelope.purpose.value, one.state.value) for one in stored.queued]
        lines.append(f"the store owes {path}: {stored.row.owes=} open={stored.row.open} {queued}")
    for path, actor in actors.items():
        if actor.active or actor.due or path in work:
            phase = None if actor.loop is None else actor.loop.state.phase
            lines.append(f"{actor!r} {actor.suspended=} {actor.intake=} {phase=} open={actor.row.open}")
    return lines


async def close_all(process: Process) -> list[str]:
    """Everything is closed in the end, and nothing waits any more."""
    sup = process.sup
    roots = [row.agent for row in await sup.tree() if not row.parent]
    with trio.move_on_after(CLOSE_S) as scope:
        for root in roots:
            ref = await sup.find(root)
            await ref.close(grace=5)
            await ref.wait_closed()
    if scope.cancelled_caught:
        return [f"43: closing everything took more than {CLOSE_S:.0f} s: {line}" for line in await still(sup)]
    found = []
    for row in await sup.tree():
        stored = await sup.store.load_agent(row.agent)
        waits = stored is None or any(one.envelope.lane is not Lane.CONTROL for one in stored.queued)
        if stored is None or stored.intake is not Intake.CLOSED or waits or row.open is not None:
            found.append(f"44: {row.agent} below a closed root is not closed whole: {stored}")
    return found
