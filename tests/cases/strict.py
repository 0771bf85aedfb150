"""A model that plays a script and takes only what a strict server takes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs

from actors import Script
from actors.models.profile import ChatProfile
from actors.models.wire_chat_request import ChatEncoder
from actors.testing.chat_reading import problems_of
from actors.transcript import ResultRecord, problems

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.ports import Emit, ModelRequest, Response
    from actors.transcript import Record


@attrs.define(eq=False)
class Strict:
    """Each request is looked at in our own words, and as it goes over the wire.

    Attributes:
        refused: what a provider would not have taken. sent: the bodies, in order.
    """

    script: Script
    refused: list[str] = attrs.field(factory=list)
    sent: list[dict[str, Any]] = attrs.field(factory=list)
    name: str = "script"
    id: str = "script:script"
    free: bool = True
    context_window: int | None = None
    _encoder: ChatEncoder = attrs.field(factory=lambda: ChatEncoder(ChatProfile(), "script:script"))

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        """Look at it, then play."""
        body = self._encoder.encode(request)
        self.refused += [*problems(request.window), *problems_of(body)]
        self.sent.append(json.loads(body))
        return await self.script.request(request, emit)

    def roles(self) -> list[str]:
        """Who speaks, in the last request."""
        return [message["role"] for message in self.sent[-1]["messages"]]


def strict(steps: dict[str, Any], **options: Any) -> Strict:
    """A strict model with these steps."""
    return Strict(Script(steps, **options))


def statuses(records: Iterable[Record]) -> list[str]:
    """What became of the calls, in the order of their results."""
    return [record.status.value for record in records if isinstance(record, ResultRecord)]
