"""A call of the open batch as a turn sees it, and what its tool gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from .changes import Asking, CallState, Operation
from .content import Content, Trust
from .ids import CallId
from .transcript import CallBlock, ResultRecord, ResultStatus

if TYPE_CHECKING:
    from .tools import Tool

    AnyTool: TypeAlias = Tool[..., object]


class CallView(Struct, frozen=True):
    """A call of the open batch.

    Attributes:
        tool, arguments: None where the call can never run; then `result` is set from the start.
        keys: resource keys. exclusive: runs alone. repaired: places of the arguments that were sent as JSON text.
        asking: what a person is shown, where it needs approval. decided: the person has decided.
        kept: its key-value store may hold something, which is erased with the batch (HOK-4).
    """

    block: CallBlock
    state: CallState
    tool: AnyTool | None = None
    arguments: dict[str, object] | None = None
    keys: tuple[str, ...] = ()
    exclusive: bool = False
    tries: int = 1
    result: ResultRecord | None = None
    asking: Asking | None = None
    decided: bool = False
    repaired: tuple[str, ...] = ()
    kept: bool = False


class CallOutcome(Struct, frozen=True):
    """What a tool gave.

    Attributes:
        whole: what is to be kept aside, as `content` shows only some of it (TOL-8).
        staged: what lands with the result, of a `store` call that did not fail.
        kept: it has written to the call's key-value store.
    """

    call: CallId
    status: ResultStatus
    content: Content
    trust: Trust = Trust.TRUSTED
    whole: str | None = None
    staged: tuple[Operation, ...] = ()
    kept: bool = False
