"""The trees that a supervisor runs: taken once, kept by a lease, given back (SUP-6).

What an owner writes carries the epoch that it took the tree with, and the store refuses it once another has taken the
tree. So a supervisor that was stopped for longer than its lease lasts writes nothing more, whatever it believes.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, final

import trio

from actors.errors import CallboardError, Fenced, OwnedElsewhere

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from actors.ids import TreeId

    from .patience import Patience
    from .store.base import Store
    from .store.leases import Holder


@final
class Ownership:
    """What one supervisor owns.

    Invariants:
        OWN-1 a tree is in `epochs` from when it was taken and its accounts were opened, until it is lost.
        OWN-2 a tree that was lost is in `leaving` until nothing of it is in memory; until then it is not taken again.

        OWN-3 from `give_back` on no tree is taken, and none that was being taken is kept.
        OWN-4 a tree that was taken, and not opened, is given back at the next renewal, if nobody has opened it by then.

    Attributes:
        holder: this supervisor, as others are told of it.
        patience: with a store that cannot be written for a while.
        opened: awaited with a tree that was taken and its epoch, before anything of it may begin; whether it was there.
        found: trees that were there: not all that owes work in them need be in memory.
        founding: new trees, each of which is taken by the commit that makes its root.
    """

    def __init__(self, store: Store, opened: Callable[[TreeId, int], Awaitable[bool]], patience: Patience) -> None:
        self._store = store
        self._opened = opened
        self._patience = patience
        self._taking: dict[TreeId, trio.Lock] = {}
        self.holder: Holder = store.new_holder()
        self.epochs: dict[TreeId, int] = {}
        self._fresh: set[TreeId] = set()  # those of `epochs` that were taken since the last renewal began
        self._vain: set[TreeId] = set()  # taken, and not opened: whoever did that was cut off, or could not read
        self._lost = False  # something was; the store has not heard yet that this process lives
        self.leaving: set[TreeId] = set()
        self.found: set[TreeId] = set()
        self.founding: set[TreeId] = set()
        self._over = False

    async def own(self, tree: TreeId) -> int:
        """Own a tree, once; its epoch.

        Raises:
            OwnedElsewhere: another runs it. StoreError: it cannot be owned.
        """
        epoch = self.epochs.get(tree)
        if epoch is not None:
            return epoch
        self.check(tree)
        async with self._alone(tree):
            if tree not in self.epochs:
                self.check(tree)
                epoch = await self._patience.through(self._store.own, tree, self.holder)
                self._vain.add(tree)
                if await self._opened(tree, epoch):
                    self.found.add(tree)
                self._vain.discard(tree)
                self.epochs[tree] = epoch
                self._fresh.add(tree)
        return self.epochs[tree]

    @asynccontextmanager
    async def _alone(self, tree: TreeId) -> AsyncIterator[None]:
        lock = self._taking.setdefault(tree, trio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():  # else it was handed to the next one, who must be alone with it
                self._taking.pop(tree, None)

    @contextmanager
    def founds(self, tree: TreeId) -> Iterator[None]:
        """Let the commit within take a tree that is new: a crash leaves both, or neither.

        Raises:
            OwnedElsewhere: the supervisor was left.
        """
        self.check(tree)
        lock = self._taking.setdefault(tree, trio.Lock())
        lock.acquire_nowait()  # nobody else knows the path
        self.founding.add(tree)
        try:
            yield
        finally:
            self.founding.discard(tree)
            lock.release()
            if not lock.locked():
                self._taking.pop(tree, None)

    def founded(self, tree: TreeId) -> None:
        """The commit that takes a new tree is durable."""
        self.epochs[tree] = 1
        self._fresh.add(tree)

    def takes(self, tree: TreeId) -> bool:
        """Whether a tree, new or not, is being taken just now."""
        return tree in self._taking

    def check(self, tree: TreeId) -> None:
        """Refuse a tree that was lost while something of it is still here: that is no longer so, whoever asks for it.

        Raises:
            OwnedElsewhere: it is such a tree, or the supervisor was left.
        """
        if self._over:
            raise OwnedElsewhere(f"tree {tree!r} is not run here any more: the supervisor was left")
        if tree in self.leaving:
            raise OwnedElsewhere(
                f"tree {tree!r} was taken over by another process, and this one is still leaving it; its agents take"
                " messages all the same: send or steer, or try again"
            )

    def lost(self, tree: TreeId) -> bool:
        """Another process has the tree; False where that is known."""
        if self.epochs.pop(tree, None) is None:
            return False
        self.leaving.add(tree)
        self._lost = True
        return True

    def epoch(self, tree: TreeId) -> int:
        """The epoch to write with.

        Raises:
            Fenced: the tree is not this supervisor's, or not any more.
        """
        epoch = self.epochs.get(tree)
        if epoch is None and tree in self.founding:
            return 1
        if epoch is None:
            raise Fenced(f"tree {tree!r} is not run by this process any more; whoever runs it goes on with it")
        return epoch

    async def renew(self) -> tuple[TreeId, ...]:
        """Keep the lease, and show that this process lives (SUP-6); the trees that were lost all the same.

        Raises:
            StoreError: it could not be written; the lease lasts on from when it was renewed last.
        """
        for tree in [tree for tree in self._vain if tree not in self._taking]:
            async with self._alone(tree):
                if tree in self._vain:
                    await self._store.release(self.holder, (tree,))
                    self._vain.discard(tree)
        if not self.epochs and not self._lost:
            return ()
        self._fresh.clear()
        held = await self._store.renew(self.holder)
        self._lost = False
        if held is None:
            return ()
        missing = [tree for tree, epoch in self.epochs.items() if held.get(tree) != epoch]
        return tuple([tree for tree in missing if tree not in self._fresh or not await self._has(tree)])

    async def _has(self, tree: TreeId) -> bool:
        lease = await self._store.lease(tree)
        return lease is not None and lease.holder.id == self.holder.id

    async def give_back(self, within_s: float) -> None:
        """Let another take the trees at once; where that cannot be written, it may when the lease is over."""
        self._over = True
        with trio.CancelScope(shield=True) as scope, suppress(CallboardError):
            scope.deadline = trio.current_time() + within_s
            await self._store.release(self.holder)
            for lock in tuple(self._taking.values()):  # OWN-3: what was being taken is given back, too
                async with lock:
                    await self._store.release(self.holder)
