"""The requests of one turn: who is in one, and which of those that were cut have not ended (REQ-2, CLS-4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

from .guarding import stack_of
from .happenings import RequestStuck

if TYPE_CHECKING:
    from .hosting import Host


@final
class Streams:
    """Requests under way.

    Attributes:
        deaf: one that was cut did not notice it in time: the next one waits for it (REQ-2), and nobody else.
    """

    __slots__ = ("_asker", "_cut", "_hard_s", "_host", "deaf")

    def __init__(self, host: Host, hard_s: float) -> None:
        self._host = host
        self._hard_s = hard_s
        self._asker: trio.lowlevel.Task | None = None
        self._cut: dict[trio.lowlevel.Task, trio.Event] = {}
        self.deaf = False

    def __enter__(self) -> None:
        """The running task is in a request until the end of the block."""
        self._asker = trio.lowlevel.current_task()

    def __exit__(self, *_error: object) -> None:
        """Nothing of its request holds anything any more."""
        task = trio.lowlevel.current_task()
        if self._asker is task:
            self._asker = None
        if self._cut and (unwound := self._cut.pop(task, None)) is not None:
            unwound.set()

    def cut(self, nursery: trio.Nursery) -> None:
        """The request is cut: from now on it is watched."""
        assert self._asker is not None, "somebody is in a request"
        unwound = self._cut[self._asker] = trio.Event()
        nursery.start_soon(self._watch, unwound)

    async def _watch(self, unwound: trio.Event) -> None:
        """Name a request that does not notice that it was cut; whoever waits for the turn's end waits no longer."""
        with trio.move_on_after(self._hard_s):
            await unwound.wait()
        if not unwound.is_set():
            self.deaf = True
            self._host.tell(RequestStuck, {"stack": self.stack()})

    @property
    def open(self) -> bool:
        """Whether a request is under way, or was cut and has not ended."""
        return self._asker is not None or bool(self._cut)

    def stack(self) -> str:
        """Where its request is now; of several, those that were cut."""
        tasks = tuple(self._cut) or (() if self._asker is None else (self._asker,))
        return "\n".join(map(stack_of, tasks))
