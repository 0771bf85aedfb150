"""What a tool is handed: who it acts for, and the verbs it may use (TOL-11).

Nothing the model emits can name any of this: it comes from the agent's identity and from the call's own record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol, final

from .first import wait_any
from .ids import AgentId
from .pages import PAGE_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable

    from .agent import Agent
    from .budget import Budget
    from .conversation import Window
    from .first import Waited
    from .ids import CallId
    from .kv import CallStores
    from .pages import Page
    from .reading import BudgetLimit
    from .ref import AgentRef, Receipt
    from .reports import Report


# ruff: noqa: D102 - the context's own methods say what each verb of the Protocol does


class ToolHost(Protocol):
    """The supervisor, as a tool's context sees it."""

    @property
    def agent(self) -> AgentId: ...
    @property
    def idempotency_scope(self) -> str: ...
    @property
    def caller(self) -> str: ...
    def conversation(self) -> Window: ...
    def ref(self, path: AgentId) -> AgentRef: ...
    async def start_child(
        self, agent: Agent, task: object, *, key: str, budget: Budget | None, background: bool, call: CallId
    ) -> AgentRef: ...
    async def read_result(self, reference: str, *, start: int, chars: int) -> Page: ...
    def tell_progress(self, values: dict[str, object]) -> None: ...


@final
class Context:
    """A tool call's surroundings; a parameter annotated with it is hidden from the model.

    Attributes:
        agent: path of the agent whose call this is. call_id: of this call, unique in the store.
        idempotency_key: the same for every attempt at this call, and for no other call: hand it to remote systems.
        name: of the tool. caller: who asked the agent, or empty.
        kv: key-value stores: `kv.call` of this call, `kv.run` of its run, `kv.agent` of the agent.
        so_far: a tool may set it to a function that gives what the call has so far, as text: the result of a call that
            is cut off (by an abort, a message that interrupts, its timeout, by hand) shows it. It is called when the
            call is cut, in the Trio thread.
    """

    __callboard_context__: ClassVar[bool] = True

    def __init__(self, host: ToolHost, call: CallId, name: str, kv: CallStores) -> None:
        self._host = host
        self._started = self._sent = 0
        self.call_id = call
        self.name = name
        self.agent = host.agent
        self.idempotency_key = f"{host.idempotency_scope}:{call}"
        self.kv = kv
        self.so_far: Callable[[], str] | None = None

    @property
    def caller(self) -> str:
        """Path of the agent that gave the task, or empty for code."""
        return self._host.caller

    @property
    def budget(self) -> tuple[BudgetLimit, ...]:
        """The limits that bind this call's agent, and what they have left; as `AgentRef.budget`."""
        return self.ref(self.agent).budget

    @property
    def conversation(self) -> Window:
        """The conversation before this call's results; reading it copies nothing."""
        return self._host.conversation()

    async def start(
        self,
        agent: Agent,
        task: object,
        *,
        key: str | None = None,
        budget: Budget | None = None,
        background: bool = False,
    ) -> AgentRef:
        """Start a child of this call's agent, its task accepted.

        Args:
            agent: which.
            task: what it is asked first.
            key: the same key under this parent is the same child, also after a restart; by default made of this call
                and the order of starts in it, so that a call that is run again finds its children again.
            budget: a bound of its own, below the parent's.
            background: its reports come to the parent as messages.

        Raises:
            SpawnLimit: depth or number. UsageError: the key was used with another task. StoreError.

        Durable: the child and its task; from a tool with `effect="store"` with the call's result.
        """
        self._started += 1
        return await self._host.start_child(
            agent,
            task,
            key=f"{self.call_id}:{self._started}" if key is None else key,
            budget=budget,
            background=background,
            call=self.call_id,
        )

    def ref(self, path: str) -> AgentRef:
        """The handle of another agent."""
        return self._host.ref(AgentId(path))

    async def send(self, path: str, content: object, *, key: str | None = None) -> Receipt:
        """Send a message to an agent: always allowed, waits for acceptance only.

        Args:
            path: to whom.
            content: as for `AgentRef.send`.
            key: an idempotency key; by default made of this call and the order of sends in it, so that a call that is
                run again sends nothing twice and gets the first receipts.

        Durable: on return; from a tool with `effect="store"` with the call's result.
        """
        self._sent += 1
        return await self.ref(path).send(content, key=f"{self.call_id}:{self._sent}" if key is None else key)

    async def ask(self, path: str, content: object, *, timeout: float | None = None) -> Report:
        """Ask an agent and wait for its report; an ancestor that waits for us is asked by `needs_input` (REE-2)."""
        return await self.ref(path).ask(content, timeout=timeout)

    async def read_result(self, reference: str, *, start: int = 0, chars: int = PAGE_CHARS) -> Page:
        """Read a page of a result of this call's agent that is kept whole (TOL-8); as `AgentRef.read_result`."""
        return await self._host.read_result(reference, start=start, chars=chars)

    async def wait_any(self, *waited: Waited) -> tuple[Waited, Report]:
        """Wait for the first report of several, children or receipts: `kid, report = await ctx.wait_any(*kids)`.

        See `wait_any` of `supervisor`.
        """
        return await wait_any(*waited)

    def progress(self, text: str = "", *, done: int | None = None, total: int | None = None) -> None:
        """Say how far the call is; sync, from the Trio thread or the tool's own."""
        values: dict[str, object] = {"call": self.call_id, "name": self.name, "text": text}
        self._host.tell_progress(values | {"done": done, "total": total})

    def __repr__(self) -> str:
        return f"<Context of {self.call_id} ({self.name})>"
