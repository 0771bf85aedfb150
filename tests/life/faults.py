"""The store between a life and its rows: slow, failing for a while, dead with its process; and its history.

Every commit that was applied is kept in order, with the process that made it: invariants about order are read there.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from actors.changes import AgentRow, ChangeSet, Intake, Put, Shut, Values
from actors.errors import InDoubt, Unavailable
from actors.ids import AgentId, TreeId
from supervisor.store.faults import Fault, PassingStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisor.store.base import Store, StoredAgent, Then
    from supervisor.store.leases import Holder
    from tests.life.trace import Trace

LONGEST_DELAY_S: Final = 0.4


@attrs.frozen
class Applied:
    """A commit that is in the store, and the process that made it."""

    process: int
    set: ChangeSet
    values: Values


@attrs.frozen
class Taken:
    """A tree came from one process to another. `ran`: the one believed just then that it runs it."""

    tree: TreeId
    before: int
    by: int
    at: float
    ran: bool


@attrs.define(eq=False)
class History:
    """All that was ever written, in the order of writing.

    Attributes:
        applied: commits. told: when their process heard of them, by their index.
        paths: the agents that were made, in order.
        owned: epochs of trees, as they were given out: tree, epoch, process. faults: how many were injected.
        still: what stood still: process, from, to. gone: when a process gave its trees back, or died.
        taken: trees that went from one process to another.
        ambiguous: one of them told a failure of what was written. stores: as each process has it.
    """

    applied: list[Applied] = attrs.field(factory=list)
    told: dict[int, float] = attrs.field(factory=dict)
    paths: list[str] = attrs.field(factory=list)
    owned: list[tuple[TreeId, int, int]] = attrs.field(factory=list)
    still: list[tuple[int, float, float]] = attrs.field(factory=list)
    gone: dict[int, float] = attrs.field(factory=dict)
    taken: list[Taken] = attrs.field(factory=list)
    stores: dict[int, LifeStore] = attrs.field(factory=dict)
    faults: int = 0
    ambiguous: int = 0

    def owner(self, tree: TreeId) -> int | None:
        """The process that took a tree last."""
        return next((process for one, _, process in reversed(self.owned) if one == tree), None)

    def add(self, process: int, change_set: ChangeSet, values: Values) -> int:
        """A commit is written. Returns its index."""
        self.applied.append(Applied(process, change_set, values))
        for one in change_set.operations:
            if isinstance(one, Put) and one.fresh and isinstance(one.row, AgentRow):
                self.paths.append(one.row.agent)
        return len(self.applied) - 1


@attrs.frozen
class Trouble:
    """Commits `at`, counted from 1 in one process, to `until`, without it, fail."""

    at: int
    until: int
    when: Fault


def troubles(dice: random.Random) -> tuple[Trouble, ...]:
    """What goes wrong with the commits of one process: mostly nothing; one commit, a few, or many."""
    if dice.random() < 0.5:
        return ()
    found = []
    for _ in range(dice.choice((1, 1, 2))):
        at = dice.randrange(1, 90)
        length = dice.choice((1, 1, 1, 2, 3, 12))
        when = Fault.BEFORE if length > 3 else dice.choice(list(Fault))
        found.append(Trouble(at, at + length, when))
    return tuple(found)


@final
class LifeStore(PassingStore):
    """The store as one process of a life has it.

    Args:
        shared: other processes of this life have the same rows at the same time: taking a tree takes its time.

    Attributes:
        dead: the process has crashed: nothing that it still does is written. left: set at the end of its process.
        runs: whether the process believes that it owns a tree. meets: sends an agent an order, at once.
    """

    def __init__(
        self, store: Store, history: History, trace: Trace, process: int, seed: str, *, shared: bool = False
    ) -> None:
        super().__init__(store)
        self._shared = shared
        self.bare = store
        self.dead = False
        self.left = trio.Event()
        self.runs: Callable[[TreeId], bool] = lambda _: True
        self.meets: Callable[[AgentId, random.Random], None] | None = None
        self._history = history
        history.stores[process] = self
        self._trace = trace
        self._process = process
        self._dice = random.Random(f"{seed}:store:{process}")
        self._slow = self._dice.choice((0.0, 0.0, 0.2, 0.7))
        self._troubles = troubles(self._dice)
        self._commits = 0
        self._last: trio.Event | None = None
        self._holder: Holder | None = None
        self._stop: Callable[[], None] | None = None
        self._stops_in = 0

    def stop_within(self, steps: int, stop: Callable[[], None] | None) -> None:
        """Let the process be stopped that many steps of its store from now, in the midst of one; None: no more."""
        self._stops_in, self._stop = steps, stop

    async def load_agent(self, agent: AgentId) -> StoredAgent | None:
        found = await self._store.load_agent(agent)
        if not self.dead:  # it may be old by the time it is known
            await self._pause()
        return found

    async def commit(self, change_set: ChangeSet, then: Then | None = None) -> Values:
        self._commits += 1
        number = self._commits
        with trio.CancelScope(shield=True):  # a commit is never raced by a cancellation
            await self._met(change_set)
            await self._pause()
            self._alive()
            fault = next((one.when for one in self._troubles if one.at <= number < one.until), None)
            if fault is Fault.BEFORE:
                self._injected(number, fault)
            before, mine = None, trio.Event()
            at = -1

            def applied(values: Values) -> None:
                nonlocal at, before
                at = self._history.add(self._process, change_set, values)
                if change_set.founder is not None:
                    self._owns(change_set.tree, 1)
                before, self._last = self._last, mine

            try:
                values = await self._store.commit(change_set, applied)
                await self._pause()
                if before is not None:
                    await before.wait()  # whoever hears of commits hears in their order
                self._alive()
                if fault is Fault.AFTER:
                    self._injected(number, fault)
                self._history.told[at] = trio.current_time()
                if then is not None:
                    then(values)
            finally:
                mine.set()
        return values

    def new_holder(self) -> Holder:
        self._holder = attrs.evolve(
            self._store.new_holder(),
            id=f"holder {self._process}",
            pid=self._process,
            space="a life",
            started="",
            since="",
        )  # else it is another in each run
        return self._holder

    async def own(self, tree: TreeId, holder: Holder) -> int:
        await self._pause_between()
        self._alive()
        epoch = await self._store.own(tree, holder)
        self._owns(tree, epoch)
        await self._pause_between()
        return epoch

    def _owns(self, tree: TreeId, epoch: int) -> None:
        if (tree, epoch, self._process) not in self._history.owned:
            before = self._history.owner(tree)
            if before is not None:
                ran = self._history.stores[before].runs(tree)
                self._history.taken.append(Taken(tree, before, self._process, trio.current_time(), ran))
            self._history.owned.append((tree, epoch, self._process))
            self._trace.say(f"p{self._process} owns {tree} at epoch {epoch}")

    async def renew(self, holder: Holder) -> dict[TreeId, int] | None:
        await self._pause_between()
        self._alive()
        held = await self._store.renew(holder)
        await self._pause_between()
        return held

    async def release(self, holder: Holder, trees: tuple[TreeId, ...] | None = None) -> None:
        self._alive()
        if trees is None:
            self._history.gone.setdefault(self._process, trio.current_time())
        await self._store.release(holder, trees)

    async def buried(self) -> None:
        """The process is known to be gone: its trees are free for the next."""
        if self.dead and self._holder is not None:
            await self._store.release(self._holder)

    async def heal(self) -> None:
        """Fail nothing more; what is on its way is told first."""
        self._troubles, self.meets = (), None
        while not self.told and self._last is not None:
            await self._last.wait()

    @property
    def told(self) -> bool:
        """Whether everybody has heard of their commits."""
        return self._last is None or self._last.is_set()

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _pause(self) -> None:
        if self._stop is not None:
            self._stops_in -= 1
            if self._stops_in <= 0:
                stop, self._stop = self._stop, None
                stop()
        if self._dice.random() < self._slow:
            await trio.sleep(self._dice.random() * LONGEST_DELAY_S)
        else:
            await trio.lowlevel.checkpoint()

    async def _met(self, change_set: ChangeSet) -> None:
        """Let an order come to an agent in the moment in which its end is written."""
        ends = [one.agent for one in change_set.operations if isinstance(one, Shut) and one.to is Intake.CLOSED]
        if ends and self.meets is not None and self._dice.random() < 0.25:
            self._trace.count("orders that meet an end")
            self.meets(ends[0], self._dice)
            await trio.sleep(LONGEST_DELAY_S)

    async def _pause_between(self) -> None:
        if self._shared:
            with trio.CancelScope(shield=True):  # it is not raced by a cancellation either
                await self._pause()

    def _alive(self) -> None:
        if self.dead:
            msg = "the process is dead"
            raise Unavailable(msg)

    def _injected(self, number: int, fault: Fault) -> None:
        self._history.faults += 1
        self._history.ambiguous += fault is Fault.AFTER
        self._trace.count(f"fault {fault.value}")
        self._trace.say(f"p{self._process} commit {number} fails {fault.value} it was written")
        msg = f"an injected fault: the commit failed {fault.value} it was written"
        raise Unavailable(msg) if fault is Fault.BEFORE else InDoubt(msg)
