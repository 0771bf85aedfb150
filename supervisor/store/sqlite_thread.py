"""A thread that works for Trio tasks, in groups: what SQLite's connections run in.

Its own queue instead of Trio's worker threads: half the cost, groups form by themselves, and sync tools that hold all
of Trio's threads do not hold up the store. Where many tasks ask, what they ask for in one pass of Trio's scheduler is
handed over at its end, together: the thread then does not wake for the first, contend with the rest for the
interpreter and make many small groups. A task that asks alone is served at once.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import outcome
import trio

from actors.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable


MAX_GROUP: Final = 128
"""Entries of one group: beyond it nothing is gained, and the first of the group waits longer."""

T = TypeVar("T")
Result: TypeAlias = "outcome.Value[Any] | outcome.Error"


class Thread(Generic[T]):
    """A thread that does what it is given, in groups, and tells each waiting task the outcome.

    Args:
        name: of the thread.
        work: called in the thread with a group; it returns an outcome for each, in order, and never raises.
        last: called in the thread when it ends.
        most: how many a group may have.
    """

    def __init__(
        self, name: str, work: Callable[[list[T]], list[Result]], *, last: Callable[[], None], most: int = MAX_GROUP
    ) -> None:
        self._work = work
        self._last = last
        self._most = most
        self._token = trio.lowlevel.current_trio_token()
        # unbounded: each waiter is a task that waits here, so there are never more entries than tasks
        self._queue: queue.SimpleQueue[tuple[_Waiter, T] | None] = queue.SimpleQueue()
        self._held: list[tuple[_Waiter, T]] = []  # asked for in this pass, to be handed over at its end
        self._in_hand = 0
        self._alone = True  # the last hand-over was of one
        self._ended = trio.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def do(self, what: T, *, given_up: bool = False, then: Callable[[Any], None] | None = None) -> Any:
        """Have it done.

        Args:
            what: to do.
            given_up: whether a cancellation ends the wait at once (the work goes on, its outcome is dropped);
                otherwise it has no effect here.
            then: called with the value, in the order of work, before any waiter of the group goes on.
        """
        if self._closing:
            raise Unavailable("the store is closed; open it again")
        waiter = _Waiter(trio.lowlevel.current_task(), then)
        if self._alone and not self._in_hand:
            self._in_hand = 1
            self._queue.put((waiter, what))
        else:
            self._held.append((waiter, what))
            if len(self._held) == 1:
                self._token.run_sync_soon(self._hand_over)
        return await trio.lowlevel.wait_task_rescheduled(waiter.give_up if given_up else _goes_on)

    async def close(self) -> None:
        """Let it finish what it was given, and end it."""
        if not self._closing:
            self._closing = True
            self._hand_over()
            self._queue.put(None)
        await self._ended.wait()
        self._thread.join()  # it has told us and only returns: nothing is waited for

    def _hand_over(self) -> None:
        held, self._held = self._held, []
        if held:
            self._alone = len(held) == 1
            self._in_hand += len(held)
            for entry in held:
                self._queue.put(entry)

    def _hand_out(self, waiters: list[_Waiter], results: list[Result]) -> None:
        self._in_hand -= len(waiters)
        for waiter, result in zip(waiters, results, strict=True):
            told = result if waiter.then is None else _told(waiter.then, result)
            if waiter.task is not None:
                trio.lowlevel.reschedule(waiter.task, told)

    def _run(self) -> None:
        ended = False
        while not ended:
            waiters: list[_Waiter] = []
            group: list[T] = []
            ended = self._collect(waiters, group)
            if group:
                results = self._work(group)
                self._in_trio(self._hand_out, waiters, results)
        try:
            self._last()
        finally:
            self._in_trio(self._ended.set)

    def _collect(self, waiters: list[_Waiter], group: list[T]) -> bool:
        """Take what waits, at least one and at most a group; True at the end."""
        entry = self._queue.get()
        while entry is not None:
            waiters.append(entry[0])
            group.append(entry[1])
            if len(group) == self._most:
                return False
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return False
        return True

    def _in_trio(self, function: Callable[..., object], *arguments: object) -> None:
        # after the end of the run nobody is left to be told; what was committed stays
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function, *arguments)


class _Waiter:
    """A task that waits, or None once it gave up."""

    __slots__ = ("task", "then")

    def __init__(self, task: trio.lowlevel.Task, then: Callable[[Any], None] | None) -> None:
        self.task: trio.lowlevel.Task | None = task
        self.then = then

    def give_up(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        """Wait no more: the task is cancelled."""
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED


def _goes_on(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
    """A cancellation is told behind the outcome."""
    return trio.lowlevel.Abort.FAILED


def _told(then: Callable[[Any], None], result: Result) -> Result:
    """Say it first, in the order of work: Trio lets the tasks of a group go on in any order."""
    if isinstance(result, outcome.Error):
        return result
    try:
        then(result.value)
    except Exception as error:  # noqa: BLE001 - it is the waiter's to hear, and no other's
        return outcome.Error(error)
    return result
