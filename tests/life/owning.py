"""One life of several owners: processes side by side over one store, under one scheduler and one virtual clock.

Each has a supervisor of its own, a store connection of its own (a file: every few seeds) and a lease. They come and
go, crash, and stand still for longer than their leases last; everything is asked of any of them. Then all heals: no
process comes or goes any more, and the life must come to rest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors import CallboardError
from actors.ids import AgentId, tree_of
from actors.messages import ReceiptState
from supervisor import open_supervisor, system
from supervisor.store.base import Store
from supervisor.store.memory import open_memory_store
from supervisor.store.sqlite import open_sqlite_store
from tests.life import after, living, reading
from tests.life.events import FAITHFUL, FITFUL, Process, decide, drive
from tests.life.faults import History, LifeStore
from tests.life.schedule import Processes, Tasks, acting_for
from tests.life.trace import Ear
from tests.life.world import World

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator

    from actors.changes import AgentRow

LEASE_S: Final = 4.0
ANSWER_S: Final = 5.0
"""How long a receipt may take to say its end, where everything is over."""
CHECKED: Final = 0.2
"""The share of processes behind which the rows are read, with all others standing still."""


def live(seed: int, owners: int) -> living.Lived:
    """Live one life of so many owners at a time; whatever it breaks is in what is returned."""
    world = World(f"{owners}:{seed}", owners)
    sched, tasks = Processes(seed, defer=(seed % 4) / 8), Tasks()
    return living.lived(seed, world, lambda path: Life(seed, world, sched, tasks, path).live, sched, tasks)


def taken_alive(history: History) -> list[str]:
    """SUP-6: a process that neither ended nor stood still for its lease keeps its trees."""
    found = []
    for one in history.taken:
        ended = history.gone.get(one.before, math.inf)
        if not one.ran:  # it had taken it, and could not open it
            continue
        lately = one.at - 2 * LEASE_S  # it has renewed its lease since, whatever it was held up by
        if ended > one.at and not any(who == one.before and to > lately for who, _, to in history.still):
            found.append(f"SUP-6: p{one.by} took {one.tree} at {one.at:.2f} from p{one.before}, which was at work")
    return found


@attrs.define(eq=False)
class Life:
    """All processes of one life.

    Attributes:
        alive: supervisors that are open, by number. ears: what was heard from each.
        settled: all have come to stay. healing: nothing goes wrong from now on. healed: all of them know that.
        rested: all may leave.
    """

    seed: int
    world: World
    sched: Processes
    tasks: Tasks
    path: Path
    memory: Store = attrs.field(init=False)
    alive: dict[int, Process] = attrs.field(factory=dict)
    ears: list[Ear] = attrs.field(factory=list)
    problems: list[str] = attrs.field(factory=list)
    settled: trio.Event = attrs.field(factory=trio.Event)
    healed: trio.Event = attrs.field(factory=trio.Event)
    healing: trio.Event = attrs.field(factory=trio.Event)
    rested: trio.Event = attrs.field(factory=trio.Event)
    _errands: dict[int, trio.Nursery] = attrs.field(factory=dict)
    _opening: trio.Lock = attrs.field(factory=trio.Lock)
    _came: Counter[trio.Event] = attrs.field(factory=Counter)
    _looking: trio.Lock = attrs.field(factory=trio.Lock)
    _numbers: Iterator[int] = attrs.field(factory=lambda: count(1))

    async def live(self) -> list[str]:
        """Live it; what was broken."""
        async with open_memory_store(store_id="life", lease_s=LEASE_S) as self.memory:
            async with trio.open_nursery() as nursery:
                for slot in range(self.world.owners):
                    nursery.start_soon(self._slot, slot)
                try:
                    await self._trouble()
                    await self._heal()
                finally:  # whatever ended it, nobody stands still for ever
                    self.sched.thaw_all()
                self.rested.set()
            self.problems += [problem for ear in self.ears for problem in ear.problems]
            self.problems += [f"SUP-2: a loop crashed: {crash}" for ear in self.ears for crash in ear.crashed]
            async with self._store() as store:
                self.problems += await self._end(store)
        return self.problems

    async def _end(self, store: Store) -> list[str]:
        """What must hold once every process has left."""
        found = await reading.check(store, self.world)
        found += await reading.fenced(store, self.world)
        found += taken_alive(self.world.history)
        for tree in dict.fromkeys(tree for tree, _, _ in self.world.history.owned):
            lease = await store.lease(tree)
            if lease is not None:
                found.append(f"16: nobody runs {tree} any more, and {lease.holder.id} has it")
        return found

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[Store]:
        """The store, as one process has it."""
        if not living.over_a_file(self.seed):
            yield self.memory
            return
        async with open_sqlite_store(self.path, owner="a life", inline=True, lease_s=LEASE_S) as store:
            yield store

    # -- processes -------------------------------------------------------------------------------------------------

    async def _slot(self, slot: int) -> None:
        """Processes one after another; the last one stays."""
        dice = self.world.dice(f"slot:{slot}")
        many = dice.choice((1, 1, 2, 3))
        for turn in range(many):
            await trio.sleep(dice.random() * 3 if turn else 0)
            await self._one(next(self._numbers), stays=turn == many - 1)

    async def _one(self, number: int, *, stays: bool) -> None:
        """One process, from its beginning to its end, and what must hold behind it."""
        dice = self.world.dice(f"process:{number}")
        async with AsyncExitStack() as stack:
            bare = await stack.enter_async_context(self._store())
            store = LifeStore(bare, self.world.history, self.world.trace, number, self.world.seed, shared=True)
            scope = trio.CancelScope()
            async with trio.open_nursery() as nursery:
                with acting_for(number):
                    nursery.start_soon(self._run, number, store, scope, dice, stays)
                if not stays and dice.random() < 0.6:
                    after_s = dice.random() * dice.choice((3, 10, 30))
                    nursery.start_soon(self._crash, number, store, scope, after_s)
                await store.left.wait()
                nursery.cancel_scope.cancel()
            self.sched.thaw(number)
            if self.tasks.alive[number]:
                self.problems.append(f"53: {self.tasks.alive[number]} tasks are left behind by process {number}")
            if dice.random() < CHECKED:
                async with self._looking:
                    with self.sched.standstill():
                        self.problems += await reading.check(bare, self.world)
                        self.problems += await reading.fenced(bare, self.world)

    async def _crash(self, number: int, store: LifeStore, scope: trio.CancelScope, after_s: float) -> None:
        await trio.sleep(after_s)
        world = self.world
        world.trace.count("crashes")
        world.trace.say(f"p{number} crashes")
        world.dead.add(f"p{number}")
        world.crashes += 1
        world.history.gone.setdefault(number, trio.current_time())
        store.dead = True
        self.alive.pop(number, None)
        self._errands.pop(number, None)
        self.sched.thaw(number)  # what stands still dies all the same
        scope.cancel()
        if world.dice(f"buried:{number}").random() < 0.5:  # else its lease runs out
            await store.buried()

    async def _run(
        self,
        number: int,
        store: LifeStore,
        scope: trio.CancelScope,
        dice: random.Random,
        stays: bool,  # noqa: FBT001 - start_soon
    ) -> None:
        world = self.world
        mode = dice.choice(("suspend", "suspend", "finish", "close")) if not stays else "suspend"
        world.trace.say(f"p{number} opens; leaves by {mode}")
        try:
            with scope, trio.fail_after(10 * living.REST_S), living.forgiven(world, last=stays):
                async with AsyncExitStack() as stack:
                    process = await self._open(number, store, dice, mode, stack)
                    async with trio.open_nursery() as nursery:
                        self._errands[number] = nursery
                        store.meets = partial(living.order, process, nursery)
                        await self._happen(process, dice, nursery)
                        if stays:
                            await self._stay(process, nursery)
                        self._errands.pop(number, None)
                        store.meets = None
                        nursery.cancel_scope.cancel()
                    world.trace.say(f"p{number} leaves")
                    self.alive.pop(number, None)
                    scope.deadline = trio.current_time() + living.LEAVE_S
                    self.problems += process.broken
        finally:
            self.alive.pop(number, None)
            self._errands.pop(number, None)
            store.left.set()
        if scope.cancelled_caught and not store.dead:
            self.problems.append(f"37: leaving process {number} by {mode} took more than {living.LEAVE_S:.0f} s")
        world.trace.say(f"p{number} is left")

    async def _open(
        self, number: int, store: LifeStore, dice: random.Random, mode: str, stack: AsyncExitStack
    ) -> Process:
        async with self._opening:
            system._WAITING.set(system._Waiting())  # a process of its own knows of no wait of the others
            options = living.options(self.world, store, number, dice)
            sup = await stack.enter_async_context(open_supervisor(store=store, on_exit=mode, **options))
        process = self.alive[number] = Process(self.world, number, sup, store)
        self.ears.append(living.wire(process, dice))
        return process

    async def _happen(self, process: Process, dice: random.Random, nursery: trio.Nursery) -> None:
        """Everything at once: roots begin or go on, people decide, drivers drive."""
        world, sup = self.world, process.sup
        if dice.random() < 0.7:
            await nursery.start(decide, process, world.dice(f"decide:{process.number}"), FITFUL)
        for spec in world.specs:
            if dice.random() < 0.7:
                await living.survive(process, partial(sup.start, spec, "begin", key="one"))
        await living.survive(process, sup.resume)
        async with trio.open_nursery() as drivers:
            for driver in range(dice.choice((1, 1, 2))):
                name = f"driver:{process.number}:{driver}"
                drivers.start_soon(drive, process, world.dice(name), dice.randint(2, 7), name=name)
        if dice.random() < 0.5:
            await trio.sleep(dice.random() * 2 * LEASE_S)

    async def _stay(self, process: Process, nursery: trio.Nursery) -> None:
        self._count(self.settled)
        await self.healing.wait()
        await process.store.heal()
        await nursery.start(decide, process, self.world.dice(f"heal:{process.number}"), FAITHFUL)
        self._count(self.healed)
        await self.rested.wait()

    def _count(self, event: trio.Event) -> None:
        """One process more has come so far; the event is set by the last."""
        self._came[event] += 1
        if self._came[event] == self.world.owners:
            event.set()

    # -- trouble ---------------------------------------------------------------------------------------------------

    async def _trouble(self) -> None:
        """Processes stand still now and then, until all are there that stay."""
        async with trio.open_nursery() as nursery:
            for one in range(self.world.dice("trouble").choice((0, 1, 1, 2))):
                nursery.start_soon(self._freeze, self.world.dice(f"freeze:{one}"))
            await self.settled.wait()
            nursery.cancel_scope.cancel()
        self.sched.thaw_all()

    async def _freeze(self, dice: random.Random) -> None:
        while True:
            await trio.sleep(dice.random() * 6)
            if not self.alive:
                continue
            number = dice.choice(sorted(self.alive))
            if not await self._stop(number, dice):
                continue
            begun = trio.current_time()
            self.world.stopped = True
            try:
                await trio.sleep(dice.random() * dice.choice((0.5, 1.5, 3)) * LEASE_S)
                if dice.random() < 0.5:
                    await self._oust(number, dice)
            finally:
                self.world.stopped = False
                self.world.history.still.append((number, begun, trio.current_time()))
            if dice.random() < 0.7:
                await self._press(number, dice)
            self.world.trace.say(f"p{number} goes on")
            self.sched.thaw(number)

    async def _stop(self, number: int, dice: random.Random) -> bool:
        """Let a process stand still, at any moment or in the midst of something with its store, if it does anything."""
        stopped = trio.Event()

        def stop() -> None:
            self.world.trace.say(f"p{number} stands still")
            self.sched.freeze(number)
            stopped.set()

        if dice.random() < 0.4:
            stop()
        else:
            store = self.alive[number].store
            store.stop_within(dice.randint(1, 12), stop)
            try:
                with trio.move_on_after(2 * dice.random()):
                    await stopped.wait()
            finally:
                store.stop_within(0, None)
        self.world.trace.count("freezes", stopped.is_set())
        return stopped.is_set()

    async def _oust(self, number: int, dice: random.Random) -> None:
        """Others are asked for what a process has, for as long as its lease lasts, and go on with it."""
        process = self.alive.get(number)
        others = [other for other in self._all() if other is not process]
        mine = [path for path in self.world.paths if process is not None and process.store.runs(tree_of(AgentId(path)))]
        for _ in range(4):
            if mine and others:
                self._errand(dice.choice(others), dice.choice(mine), dice)
            await trio.sleep(LEASE_S / 3)

    async def _press(self, number: int, dice: random.Random) -> None:
        """In the moment of its coming back, orders come for a process, and it is asked for what it may have lost."""
        process = self.alive.get(number)
        mine = [path for path in self.world.paths if process is not None and process.store.runs(tree_of(AgentId(path)))]
        if not mine or process is None:
            return
        self.world.trace.count("orders to one that comes back")
        others = [other for other in self._all() if other is not process]
        if others:
            self._errand(dice.choice(others), dice.choice(mine), dice)
            await trio.sleep(dice.random() / 2)
        self._errand(process, mine[-1], dice)

    def _errand(self, process: Process, path: str, dice: random.Random) -> None:
        """Let a process ask something of an agent."""
        nursery = self._errands.get(process.number)
        if nursery is not None:
            with acting_for(process.number):
                living.order(process, nursery, AgentId(path), dice)

    # -- healing ---------------------------------------------------------------------------------------------------

    async def _heal(self) -> None:
        """Nothing fails any more, people decide, everything paused goes on: it must come to rest (invariant 37)."""
        self.world.trace.say("all heals")
        self.healing.set()
        await self.healed.wait()
        await trio.sleep(LEASE_S + 1)  # whom the store failed has stopped by then; the dead have lost their trees
        self.world.healed = True
        if not self.world.paths:  # nobody was started, or each start failed
            with acting_for((first := self._all()[0]).number):
                await first.sup.start(self.world.specs[0], "begin")
        with trio.move_on_after(living.REST_S) as scope:
            for process in self._all():
                with acting_for(process.number):
                    await living.survive(process, process.sup.resume)
            await self._wake_all()
            while not await self._rests():  # noqa: ASYNC110 - a store has no event
                await trio.sleep(1)
        self.world.trace.say("all is at rest")
        if scope.cancelled_caught:
            self.problems += [
                f"37: after {living.REST_S:.0f} s of healing there is still work: p{process.number}: {line}"
                for process in self._all()
                for line in await living.still(process.sup)
            ]
            return
        for process in self._all():
            with acting_for(process.number):
                await self._hear(process)
            self.problems += await after.at_rest(process)
        if not self.problems and self.world.dice("end").random() < 0.5:
            with acting_for((closer := self._all()[0]).number):
                self.problems += await living.close_all(closer)

    def _all(self) -> tuple[Process, ...]:
        return tuple(self.alive[number] for number in sorted(self.alive))

    def _owner(self, row: AgentRow) -> Process:
        tree = tree_of(row.agent)
        everyone = self._all()
        return next((one for one in everyone if tree in one.sup._parts.kernel.ownership.epochs), everyone[-1])

    async def _wake_all(self) -> None:
        for row in await self._all()[0].sup.tree():
            process = self._owner(row)
            with acting_for(process.number):
                await living.wake(process, row)

    async def _rests(self) -> bool:
        return all([await living.rests(process) for process in self._all()])

    async def _hear(self, process: Process) -> None:
        """Each receipt that a process holds says its end, whoever decided it (ACC-9)."""
        for receipt in (*process.receipts, *process.posted):
            if receipt.state in (ReceiptState.PENDING, ReceiptState.REFUSED, ReceiptState.WITHDRAWN):
                continue
            with trio.move_on_after(ANSWER_S) as scope:
                try:
                    await receipt.wait_report()
                except CallboardError as error:
                    self.world.trace.say(f"p{process.number} {receipt!r}: {type(error).__name__}")
            if scope.cancelled_caught:
                self.problems.append(f"37: p{process.number} {receipt!r} never says its end")
