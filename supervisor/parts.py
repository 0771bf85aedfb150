"""The parts that one supervisor is made of, handed to each service as one thing. Built in `system.py` only."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from actors.actor import Actor
    from actors.agent import Agent
    from actors.frames import Frames
    from actors.ids import AgentId
    from actors.output import OutputSpec
    from actors.ports import Gate, Model
    from actors.ref import Desk
    from actors.running import Runner
    from actors.watching import Board

    from .calls import Calls
    from .children import Children
    from .kernel import Kernel
    from .ledger import Ledger
    from .life import Life
    from .post import Post
    from .replies import Replies
    from .stopping import Stopping
    from .waits import WaitGraph


@attrs.frozen
class Options:
    """How this supervisor behaves.

    Attributes:
        models: the chain for agents that name none. resolve: a model string or object as a model.
        grace_s, hard_s: of closes and of leaving. durable: the store outlives the process.
    """

    models: tuple[Model, ...]
    resolve: Callable[[str | Model], Model]
    grace_s: float
    hard_s: float
    durable: bool


@final
@attrs.define(eq=False)
class Parts:
    """What the services of one supervisor share."""

    kernel: Kernel
    ledger: Ledger
    gateway: Gate
    board: Board
    frames: Frames
    graph: WaitGraph
    replies: Replies
    runner: Runner
    options: Options
    actors_nursery: trio.Nursery
    tools_nursery: trio.Nursery
    outputs: dict[str, OutputSpec] = attrs.field(factory=dict)
    lives: dict[AgentId, Life] = attrs.field(factory=dict)
    leaving: str | None = None
    post: Post = attrs.field(init=False)
    desk: Desk = attrs.field(init=False)
    children: Children = attrs.field(init=False)
    stopping: Stopping = attrs.field(init=False)

    def models_of(self, agent: Agent) -> tuple[Model, ...]:
        """The chain an agent asks."""
        if not agent.model:
            return self.options.models
        return tuple(self.options.resolve(item) for item in agent.model)

    def output(self, name: str | None, agent: Agent | None) -> OutputSpec | None:
        """The output type of a name, or the agent's own where the name is its own or none is known of it."""
        if name is None:
            return None
        own = agent.output_spec if agent is not None else None
        if own is not None and own.name == name:
            return own
        return self.outputs.get(name)

    def life_of(self, actor: Actor) -> Life:
        """The keeper of an actor."""
        return self.lives[actor.path]

    def all_calls(self) -> tuple[Calls, ...]:
        """The calls of every agent in memory."""
        return tuple(life.calls for life in self.lives.values())
