"""Foreign code that still runs when its agents have stopped: waited for a while, then named (CLS-4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from .parts import Parts


async def unwound(parts: Parts, hard_s: float) -> None:
    """Wait, at most `hard_s`, until the code of cancelled calls has ended."""
    with trio.move_on_after(hard_s):
        for life in tuple(parts.lives.values()):  # a tree may be lost meanwhile
            for running in tuple(life.calls.running.values()):
                await running.done.wait()
        for hook in tuple(parts.runner.hooks):
            hook.scope.cancel()  # whoever waited for it is gone
            await hook.done.wait()


def stuck(parts: Parts) -> tuple[str, ...]:
    """The calls, hooks and requests whose code still runs, by name, with the stack they are stuck in."""
    calls = [
        f"{running.call.block.name} ({running.call.block.id})\n{running.stack()}"
        for life in parts.lives.values()
        for running in (*life.calls.running.values(), *life.calls.stuck.values())
        if not running.done.is_set()
    ]
    hooks = [f"hook {hook.frame.name} of {hook.frame.agent}\n{hook.stack()}" for hook in parts.runner.hooks]
    requests = [
        f"a request of {actor.path} to its model\n{actor.loop.streams.stack()}"
        for actor in parts.kernel.actors.values()
        if actor.active and actor.loop is not None and actor.loop.streams.open
    ]
    return (*calls, *hooks, *requests)
