"""Carries out a `callboard run`: the supervisor, the file's main, the screen and the signals, in one scope.

The first Ctrl-C (or SIGTERM) cancels the file's main and leaves the supervisor, which suspends what runs; a second one
aborts it; a third ends the process where it stands. Signals are counted by a plain handler, so that code which blocks
the loop can be ended too.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors.errors import UsageError
from actors.happenings import AgentStarted
from actors.ids import AgentId
from actors.reports import Report

from . import open_supervisor
from .cli_ask import ask_on_terminal, can_ask
from .cli_exit import INTERRUPTED
from .starting import task_message

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from actors.changes import AgentRow
    from actors.happenings import Event

    from . import Supervisor
    from .cli_load import Program
    from .cli_options import Common
    from .screen_live import Screen

ABORT_S: Final = 5.0
"""How long an abort may take before the supervisor is left without it."""
DRAIN_S: Final = 2.0
"""How long the last events may take to be shown."""


@attrs.frozen
class Ending:
    """How it came out.

    Attributes:
        report: what main returned, if it got that far. interrupted: how many signals came.
        root: path of the run's root, where the store knows the run, so that it can be resumed; else None.
    """

    report: Report | None
    interrupted: int
    root: str | None


class Interrupts:
    """Counts signals, and makes of the first a cancellation of the work, of the second an abort.

    Args:
        screen: where a person is told.
        durable: whether there is a store to suspend into.
    """

    def __init__(self, screen: Screen, *, durable: bool) -> None:
        self.count = 0
        self.work = trio.CancelScope()
        self.whole = trio.CancelScope()
        self.supervisor: Supervisor | None = None
        self._screen = screen
        self._durable = durable
        self._wake = trio.Event()

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM over while inside."""
        token = trio.lowlevel.current_trio_token()

        def came(number: int, _frame: FrameType | None) -> None:
            self.count += 1
            if self.count > 2:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._came)

        before = {number: signal.signal(number, came) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, _leave if self.count else handler)

    def _came(self) -> None:
        self._wake.set()
        if self.count == 1 and self._durable:
            self._screen.tell("suspending; Ctrl-C again aborts")
            self.work.cancel()

    async def watch(self) -> None:
        """Abort at the second signal, or at the first where nothing could be suspended."""
        while self.count < (2 if self._durable else 1):
            await self._wake.wait()
            self._wake = trio.Event()
        self._screen.tell("aborting")
        if self.supervisor is not None:
            with trio.move_on_after(ABORT_S):
                await self.supervisor.abort_all("interrupted")
        self.work.cancel()
        self.whole.cancel()


def _leave(_number: int, _frame: FrameType | None) -> None:
    """One more signal while the end of an interrupted run is told: all that matters is done."""
    os._exit(INTERRUPTED)


async def carry_out(program: Program, args: argparse.Namespace, common: Common, screen: Screen) -> Ending:
    """Run the file's job to its end, or until it is interrupted.

    Raises:
        CallboardError: usage, store and lifecycle errors. Whatever main raised, as it was raised.
    """
    stop = Interrupts(screen, durable=common.store is not None)
    report: Report | None = None
    drained = trio.Event()
    shown = _Shown(screen)
    async with trio.open_nursery() as around:
        around.start_soon(screen.run)
        try:
            with stop.caught(), stop.whole:
                async with trio.open_nursery() as signals:
                    signals.start_soon(stop.watch)
                    async with open_supervisor(
                        model=list(common.model) or program.model_for(args),
                        store=common.store,
                        agents=program.agents_for(args),
                        budget=common.budget,
                    ) as sup:
                        stop.supervisor = sup
                        await around.start(_show, sup, shown, drained)  # noqa: ASYNC111 - the nursery ends before what it uses
                        run = await choose_run(sup, program.path.stem, resume=common.resume, path=common.path)
                        args.key = run.key
                        if run.root is not None:
                            shown.roots[run.key] = run.root
                            screen.tell(run.said)
                        if program.main is None and not common.json and can_ask():
                            signals.start_soon(ask_on_terminal, sup, screen)  # noqa: ASYNC111 - the nursery ends before what it uses
                        with stop.work:
                            report = await _ask(program, sup, args, run.root)
                    signals.cancel_scope.cancel()
        finally:
            with trio.move_on_after(DRAIN_S, shield=True):
                if stop.supervisor is not None:
                    await drained.wait()
            around.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await screen.finish()
    return Ending(report, stop.count, shown.roots.get(getattr(args, "key", "")))


class _Shown:
    """What was seen of the run. `roots`: those that are in the store, by key."""

    def __init__(self, screen: Screen) -> None:
        self.roots: dict[str, str] = {}
        self._screen = screen

    def feed(self, event: Event) -> None:
        """An event."""
        if isinstance(event, AgentStarted) and event.key and "/" not in event.path:
            self.roots[event.key] = event.path
        self._screen.feed(event)


async def _show(sup: Supervisor, shown: _Shown, drained: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:  # noqa: ASYNC114 - started in this block only
    try:
        async with sup.events() as events:
            task_status.started()
            async for event in events:
                shown.feed(event)
    finally:
        drained.set()


@attrs.frozen
class Run:
    """Which run it is. `root`: path of its root, where it is gone on with. `said`: what a person is told of that."""

    key: str
    root: str | None = None
    said: str = ""


async def choose_run(sup: Supervisor, name: str, *, resume: bool, path: str | None) -> Run:
    """The run of this file: a new one, counted per file; or with `resume` one that is there.

    Args:
        sup: whose store holds them.
        name: of the file.
        resume: go on with the one that is not finished; where all are, with the last, whose report is there.
        path: of the root of the one to go on with, or None.

    Raises:
        UsageError: there is no run to resume, or there are several and no path says which.
    """
    key = re.compile(re.escape(name) + r"-(\d+)")
    found = [
        (int(match[1]), row) for row in await sup.tree() if not row.parent and (match := key.fullmatch(row.key or ""))
    ]
    if not resume:
        return Run(f"{name}-{max((number for number, _ in found), default=0) + 1}")
    if not found:
        raise UsageError(f"there is no run of {name} in this store to resume; start one without --resume")
    runs = [row for _, row in sorted(found, key=lambda one: one[0])]
    open_runs = [row for row in runs if row.owes or row.open is not None]
    if path is not None:
        wanted = [row for row in runs if row.agent == path.strip("/")]
        if not wanted:
            raise UsageError(f"--resume-path {path}: {name} has no such run in this store; it has {_listed(runs)}")
    elif len(open_runs) > 1:
        raise UsageError(
            f"{len(open_runs)} runs of {name} are not finished: {_listed(open_runs)};"
            " say with --resume-path PATH which to go on with"
        )
    else:
        wanted = open_runs or runs[-1:]
    row = wanted[0]
    done = "goes on" if row in open_runs else "was finished, and its report is there"
    return Run(str(row.key), row.agent, f"{row.agent} ({row.key}) {done}")


def _listed(rows: Sequence[AgentRow]) -> str:
    return ", ".join(f"{row.agent} ({row.key})" for row in rows[:8]) + (", …" if len(rows) > 8 else "")


async def _ask(program: Program, sup: Supervisor, args: argparse.Namespace, root: str | None) -> Report | None:
    """What the file does. `root`: path of the run that is gone on with; its key is enough, its task is in the store."""
    if program.main is not None:
        report = await program.main(sup, args)
        if report is not None and not isinstance(report, Report):
            raise UsageError(f"{program.path}: main returns a Report or None; got {report!r}")
        return report
    assert program.agent is not None
    if root is None:
        return await sup.run(program.agent, args.task, key=args.key)
    if args.task is None:
        await sup.find(root)
        return await (await sup.receipt(task_message(AgentId(root)))).wait_report()
    try:
        return await sup.run(program.agent, args.task, key=args.key)
    except UsageError as error:
        if type(error) is not UsageError:
            raise
        raise UsageError(f"{root} goes on with the TASK that it has; leave TASK out ({error})") from error
