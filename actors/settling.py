"""How a turn ends that may settle its run: with what the `settling` hook wrote beside it, and the run's store erased.

A run is settled by the commit that ends a turn behind which no message waits (HOK-4). So the mailbox is looked at
before that commit is decided, and once more behind the hook: what came meanwhile goes on with the run, and what the
hook wrote vanishes (HOK-3). An abort waits for nobody: it ends the run without the hook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import ending
from .changes import Erase, KvRow
from .hooked import Point
from .ids import run_id
from .inputs import Phase
from .messages import Status
from .moves import CallHook, Look, Step, opened

if TYPE_CHECKING:
    from .inputs import HookReturned, Looked
    from .moves import TurnState


BESIDE: Final = frozenset({Point.MODEL_CHANGED, Point.SETTLING})
"""Hooks that write beside a commit."""


def end(state: TurnState, event: Looked) -> Step:
    """End a turn that has its answer, or that fails, as far as the mailbox is known now."""
    settles = event.waits <= len(state.mail)
    if settles and Point.SETTLING in state.spec.hooks and state.beside is None:
        state.phase, state.then = Phase.HOOK, Point.SETTLING
        return Step(state, (), (CallHook(Point.SETTLING),))
    state.run_over = settles and state.spec.keeps
    if settles:
        state.staged = (*state.staged, *(state.beside or ()))
    if settles and state.spec.keeps:
        erased = Erase(KvRow, (state.row.agent, run_id(state.row.agent, opened(state).run)))
        state.staged = (*state.staged, erased)
    state.beside = None
    if state.failing is None:
        return ending.finish(state, Status.DONE, event.now)
    status, failure = state.failing
    return ending.finish(state, status, event.now, failure=failure)


def clean(state: TurnState) -> None:
    """A new run begins: where a crash came between two turns of the last one, its store is still there (HOK-4)."""
    if state.new_run and state.spec.keeps and state.row.runs:
        agent = state.row.agent
        state.staged = (*state.staged, Erase(KvRow, (agent, run_id(agent, state.row.runs))))


def written(state: TurnState, event: HookReturned) -> Step:
    """The hook is over: what it wrote lands if nothing has come meanwhile. A guard's failure fails the turn."""
    state.beside, state.phase = event.staged, Phase.LOOKING
    if event.error is not None and state.failing is None:
        return ending.fail(state, event.error, event.now)
    return Step(state, (), (Look(sends=False),))
