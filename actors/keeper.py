"""What an actor needs of the supervisor beside its loop's host: a task, records, ears for what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from .conversation import Conversation
    from .errors import CallboardError
    from .hosting import Host
    from .moves import Over


A_contra = TypeVar("A_contra", contravariant=True)
"""The actor that is kept."""


class Keeper(Protocol[A_contra]):
    """The supervisor, as an actor's life needs it."""

    @property
    def host(self) -> Host:
        """The loop's side of it."""
        ...

    def spawn(self, actor: A_contra) -> None:
        """Start the actor's task, in a context of its own."""

    def may_begin(self, actor: A_contra) -> bool:
        """Whether a new turn may begin now (leaving and closing forbid it)."""
        ...

    async def conversation(self, actor: A_contra) -> Conversation:
        """The agent's records, read from the store where they are not in memory."""
        ...

    async def refresh(self, actor: A_contra) -> None:
        """Take row, calls and mailbox from the store anew."""

    async def obey(self, actor: A_contra) -> None:
        """Carry out control messages that no running turn carried out."""

    def turn_begins(self, actor: A_contra) -> None:
        """A turn begins, or goes on."""

    def turn_over(self, actor: A_contra, over: Over) -> None:
        """A turn ended: tell those who wait."""

    async def after_turn(self, actor: A_contra, over: Over) -> None:
        """The hooks behind a turn."""

    async def after_run(self, actor: A_contra) -> None:
        """The hooks behind a run that is over."""

    def compacted(self, actor: A_contra, error: CallboardError | None) -> None:
        """A compaction is over, or will not be: tell those who wait."""

    def settled(self, actor: A_contra) -> None:
        """Nothing is due any more; the actor is about to be passive."""

    def passive(self, actor: A_contra) -> None:
        """The actor has no task now."""

    def crashed(self, actor: A_contra, error: Exception) -> None:
        """The loop ended with an exception that nothing expected; it is suspended, or goes on."""
