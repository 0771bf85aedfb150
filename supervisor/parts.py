"""The parts that one supervisor is made of, handed to each service as one thing. Built in `system.py` only.

Services that need each other know each other by the Protocols here, so that no module imports in a circle.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, final

import attrs
import trio

from actors.errors import UsageError
from actors.frames import Frames
from actors.ids import AgentId, CallId, MessageId
from actors.journal import JournalBound
from actors.output import OutputSpec
from actors.ports import Gate, Model
from actors.ref import Desk
from actors.running import Runner, Running
from actors.watching import Board

from .elsewhere import Elsewhere
from .kernel import Kernel
from .ledger import Ledger
from .replies import Replies
from .staging import Staging
from .timekeeper import Timekeeper
from .waits import WaitGraph

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from actors.actor import Actor
    from actors.agent import Agent
    from actors.errors import CallboardError
    from actors.happenings import Event
    from actors.letters import Letter
    from actors.messages import Envelope, Outcome
    from actors.ref import AgentRef, Receipt
    from actors.reports import Report
    from actors.results import Given
    from actors.tools import Tool, Toolbox
    from actors.waiting import Frame, Wait

    from .approval import Approval
    from .cause import Cause
    from .starting import Start, Started


# ruff: noqa: D102 - the classes that keep these Protocols say what each verb does


class Posting(Protocol):
    """The way into mailboxes (`post.py`)."""

    async def send(self, path: AgentId, letters: Sequence[Letter]) -> tuple[Receipt, ...]: ...
    def post(self, path: AgentId, letter: Letter) -> Receipt: ...
    async def flush(self, path: AgentId) -> None: ...
    async def withdraw(self, receipt: Receipt) -> bool: ...
    def placed(self, receipt: Receipt, value: object) -> Receipt: ...
    def pending(self) -> bool: ...
    async def decided(self) -> None: ...


class Parenting(Protocol):
    """Starting agents, and children as tools (`children.py`)."""

    async def start(self, start: Start) -> Started: ...
    async def born(self, parent: AgentId) -> None: ...
    def unborn(self, calls: Collection[CallId]) -> tuple[AgentId, ...]: ...
    def bearing(self, *paths: AgentId, call: CallId | None = None) -> AbstractContextManager[None]: ...
    def reserve(self, parent: AgentId, name: str, call: CallId) -> None: ...
    def toolbox(self, path: AgentId, agent: Agent) -> Toolbox: ...
    def offers_bytes(self, path: AgentId, agent: Agent) -> int: ...
    def tool_names(self, path: AgentId) -> Collection[str]: ...


class Reporting(Protocol):
    """Waiting for reports (`awaiting.py`)."""

    async def ask(self, path: AgentId, letter: Letter, timeout_s: float | None) -> Report: ...
    async def wait_any(self, waited: Sequence[AgentRef | Receipt]) -> tuple[int, Report]: ...
    def report(self, outcome: Outcome) -> Report: ...


class Questioning(Protocol):
    """Questions of children for those above them (`questions.py`)."""

    @property
    def any(self) -> bool: ...
    def tool_of(self, question: MessageId) -> str | None: ...
    def takes(self, message: MessageId) -> bool: ...
    async def ask(self, frame: Frame, ancestor: AgentId, letter: Letter, waits: Collection[Wait]) -> Outcome: ...
    def by_message(
        self, frame: Frame, ancestor: AgentId, letter: Letter, wait: Wait
    ) -> AbstractContextManager[Callable[[MessageId], None]]: ...
    async def taken(self, waiter: Frame, targets: Sequence[AgentId]) -> tuple[int, Outcome] | None: ...
    async def answer(self, question: MessageId, text: str) -> None: ...
    def tools(self, ancestor: AgentId, told: Callable[[Report], Given]) -> tuple[Tool[..., object], ...]: ...
    def turn_over(self, agent: AgentId) -> None: ...


class Barriers(Protocol):
    """Barriers, and aborts (`stopping.py`)."""

    def moved(self) -> None: ...
    def busy(self, paths: tuple[AgentId, ...], *, idle: bool = False) -> bool: ...
    async def movement(self) -> None: ...
    def cut_off(self, path: AgentId) -> None: ...
    def barred(self, path: AgentId) -> bool: ...
    def keeps(self, path: AgentId) -> bool: ...
    def below(self, path: AgentId) -> tuple[AgentId, ...]: ...
    async def take_along(self, path: AgentId, reason: str) -> None: ...
    def to_abort(self, targets: Iterable[AgentId]) -> tuple[AgentId, ...]: ...
    async def abort(self, path: AgentId, reason: str, *, subtree: bool) -> None: ...
    def abort_aside(self, tops: tuple[AgentId, ...], cause: Cause) -> trio.Event: ...
    async def wait_aborted(self, path: AgentId) -> None: ...
    def barring(self, paths: tuple[AgentId, ...]) -> AbstractContextManager[None]: ...


class Closes(Protocol):
    """Closes and kills (`closing.py`)."""

    def go_on_closing(self, actor: Actor, envelope: Envelope | None = None) -> None: ...
    async def close(self, path: AgentId, grace_s: float | None) -> None: ...
    async def close_all(self, roots: tuple[AgentId, ...], grace_s: float, hard_s: float) -> None: ...
    async def wait_closed(self, path: AgentId) -> None: ...
    async def kill(self, path: AgentId, reason: str) -> None: ...


class Exits(Protocol):
    """Leaving (`leaving.py`)."""

    async def suspend(self, nodes: tuple[AgentId, ...], grace_s: float, reason: str = "leaving") -> None: ...
    async def give_up(self, path: AgentId) -> None: ...
    async def leave(self, mode: str, grace_s: float, hard_s: float) -> None: ...


class Asking(Protocol):
    """Requests for approval (`approvals.py`)."""

    @property
    def listening(self) -> int: ...
    def of(self, path: AgentId) -> tuple[Approval, ...]: ...
    def heard(self, path: AgentId, event: type[Event], values: Mapping[str, object]) -> None: ...
    async def find(self) -> None: ...
    def open(self) -> AbstractContextManager[AsyncIterator[Approval]]: ...
    def end(self) -> None: ...


class Telling(Protocol):
    """Stages of budgets (`stages.py`)."""

    @property
    def pending(self) -> Mapping[AgentId, tuple[str, ...]]: ...
    def spent(self, agent: AgentId) -> None: ...
    def take(self, agent: AgentId) -> tuple[str, ...]: ...
    def granted(self, agent: AgentId) -> None: ...


class Still(Protocol):
    """Who stands still until a person acts (`standing.py`)."""

    @property
    def any(self) -> bool: ...
    def still(self, path: AgentId) -> bool: ...
    def look(self, path: AgentId) -> None: ...
    def left(self, path: AgentId) -> None: ...
    def outcome(self, path: AgentId) -> Outcome | None: ...
    def parked(self, actor: Actor) -> Outcome: ...
    def tell_all(self) -> None: ...


class RunningCalls(Protocol):
    """The running calls of one agent (`calls.py`)."""

    @property
    def running(self) -> Mapping[CallId, Running]: ...
    @property
    def stuck(self) -> Mapping[CallId, Running]: ...
    def gave_up(self, call: CallId, targets: Sequence[AgentId]) -> None: ...
    def cancel(self, call: CallId, reason: str) -> None: ...


class Clocked(Protocol):
    """The clock of one agent (`services.py`)."""

    charged_us: int

    def now(self) -> float: ...
    def stand(self, *, still: bool) -> None: ...


class Hooked(Protocol):
    """The hooks of one agent (`hooking.py`)."""

    def sends(self) -> None: ...


class Living(Protocol):
    """One agent's life in this process (`life.py`)."""

    @property
    def hooking(self) -> Hooked: ...

    @property
    def calls(self) -> RunningCalls: ...
    @property
    def host(self) -> Clocked: ...
    def stopped(self, actor: Actor) -> CallboardError | None: ...
    def fail_waiters(self, actor: Actor, error: CallboardError) -> None: ...


class Passing(Protocol):
    """The active seconds of budgets while they pass (`seconds.py`)."""

    def begins(self, actor: Actor) -> None: ...
    def over(self, path: AgentId) -> None: ...


@attrs.frozen
class Options:
    """How this supervisor behaves.

    Attributes:
        models: the chain for agents that name none. resolve: a model string or object as a model.
        grace_s, hard_s: of closes and of leaving. durable: the store outlives the process.
        journal: how much of what happened is kept.
        hooks: of the supervisor, around every agent's own, or None.
    """

    models: tuple[Model, ...]
    resolve: Callable[[str | Model], Model]
    grace_s: float
    hard_s: float
    durable: bool
    journal: JournalBound | None = None
    hooks: object = None


@final
@attrs.define(eq=False)
class Parts:
    """What the services of one supervisor share.

    Attributes:
        outputs: types that messages owed, by key. lives: of the agents in memory.
        leaving: how the supervisor is being left (`suspend`, `finish`, `close`, `abort`), or None.
        left: it was; nothing runs here any more.
        timed: turns have a time where nobody gave them one (`timekeeper.kept`).
    """

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
    timed: bool
    outputs: dict[str, OutputSpec] = attrs.field(factory=dict)
    lives: dict[AgentId, Living] = attrs.field(factory=dict)
    leaving: str | None = None
    left: bool = False
    staging: Staging = attrs.field(
        init=False, default=attrs.Factory(lambda self: Staging(self.frames), takes_self=True)
    )
    elsewhere: Elsewhere = attrs.field(
        init=False, default=attrs.Factory(lambda self: Elsewhere(self.kernel), takes_self=True)
    )
    post: Posting = attrs.field(init=False)
    desk: Desk = attrs.field(init=False)
    children: Parenting = attrs.field(init=False)
    awaiting: Reporting = attrs.field(init=False)
    questions: Questioning = attrs.field(init=False)
    stopping: Barriers = attrs.field(init=False)
    closing: Closes = attrs.field(init=False)
    exits: Exits = attrs.field(init=False)
    standing: Still = attrs.field(init=False)
    stages: Telling = attrs.field(init=False)
    seconds: Passing = attrs.field(init=False)
    approvals: Asking = attrs.field(init=False)
    timekeeper: Timekeeper = attrs.field(init=False)

    def own_frame(self) -> Frame | None:
        """The frame of an agent of this store whose code runs now; None outside of all, and in another store's."""
        frame = self.frames.current_owner()
        return frame if frame is not None and frame.place == self.graph.place else None

    @timekeeper.default
    def _timekeeper(self) -> Timekeeper:
        return Timekeeper(self.kernel.nursery, self.kernel.now)

    def check_open(self) -> None:
        """Refuse what would need a supervisor that was left.

        Raises:
            UsageError: it was left.
        """
        if self.left:
            raise UsageError("the supervisor was left: its agents run no more; open another over the same store")

    def models_of(self, agent: Agent) -> tuple[Model, ...]:
        """The chain an agent asks."""
        if not agent.model:
            return self.options.models
        return tuple(self.options.resolve(item) for item in agent.model)

    def output(self, key: str | None, agent: Agent | None) -> OutputSpec | None:
        """The output type of a key: the agent's own, one that a message owed, or one of a registered agent."""
        if key is None:
            return None
        own = agent.output_spec if agent is not None else None
        if own is not None and own.key == key:
            return own
        registered = (one.output_spec for one in self.kernel.registry.values())
        return self.outputs.get(key) or next(
            (spec for spec in registered if spec is not None and spec.key == key), None
        )
