"""What one agent's loop needs of whoever hosts it. The supervisor implements it; nothing here decides anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .callview import CallOutcome, CallView
    from .changes import Operation, Values
    from .conversation import Window
    from .errors import Exhausted
    from .happenings import Event
    from .ids import AgentId, CallId
    from .inputs import HookReturned, Looked
    from .messages import Selection
    from .moves import CallHook
    from .output import OutputSpec
    from .ports import Gate, Model, ModelRequest

DeliverCall: TypeAlias = "Callable[[CallOutcome], None]"
DeliverHook: TypeAlias = "Callable[[HookReturned], None]"


class Host(Protocol):
    """The supervisor, as one agent's loop sees it."""

    @property
    def agent(self) -> AgentId:
        """Whose loop it is."""
        ...

    @property
    def gate(self) -> Gate:
        """The one way to a model (REQ-1)."""
        ...

    def chain(self, selection: Selection | None) -> tuple[Model, ...]:
        """The chain of models that a selection asks; None: the agent's own. Raises `UsageError`: no such model."""
        ...

    def now(self) -> float:
        """Seconds on the supervisor's clock."""
        ...

    async def commit(self, operations: tuple[Operation, ...]) -> Values:
        """Make operations durable, and then true in memory. Raises `StoreError`; never `Cancelled`."""
        ...

    def look(self, *, sends: bool) -> Looked:
        """Choose what the next request takes, and say what is in force for it."""
        ...

    def request_bytes(self, window: Window) -> int:
        """About how large a request on this window is, with instructions and tools."""
        ...

    def request(self, window: Window, step: int, output: OutputSpec | None, *, toolless: bool) -> ModelRequest:
        """The request for a step of the open turn."""
        ...

    def grant_calls(self, count: int) -> tuple[int, Exhausted | None]:
        """How many of these tool calls the budget admits, and why not all; they are charged (BUD-2)."""
        ...

    def start_call(self, call: CallView, deliver: DeliverCall) -> Callable[[], str]:
        """Run a call in the tool nursery; `deliver` is called once, unless the call is cancelled first.

        Returns:
            What tells what it has so far, and who would be aborted with it, as a result may show it; or nothing.
        """
        ...

    def cancel_calls(self, calls: tuple[CallId, ...], why: str) -> None:
        """Cancel running calls and leave them behind; what they return is late (TOL-14).

        `why`: for this what they wait for is aborted with them, where it is not empty (`moves.CancelCalls`).
        """
        ...

    def left_behind(self) -> bool:
        """Whether calls that an abort left behind still run."""
        ...

    async def settle_left_behind(self) -> None:
        """Wait, for a bounded time, until they are done; then name those that are not (REQ-2)."""

    def start_hook(self, call: CallHook, deliver: DeliverHook, wanted: Callable[[], bool]) -> Callable[[], None]:
        """Call the hooks of a point; `deliver` hears the error of one that decides, and the tools that one chose.

        `wanted`: whether the turn still asks; what is answered later is dropped (ABT-6).

        Returns:
            What cancels them and leaves them behind.
        """
        ...

    def tell(self, event: type[Event], values: Mapping[str, object]) -> None:
        """Emit an event of this agent; it never blocks."""
        ...

    def watched(self) -> bool:
        """Whether anybody wants deltas."""
        ...
