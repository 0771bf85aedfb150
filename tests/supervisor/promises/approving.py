"""What the tests of approvals share: an agent whose tool asks, and people who decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio

from actors import Agent, Context, Script, call, tool
from actors.transcript import MessageRecord, ResultRecord
from tests.supervisor.promises.world import said

if TYPE_CHECKING:
    from actors import Tool
    from actors.ports import ModelRequest
    from supervisor import Approval, Supervisor


@attrs.define(eq=False)
class Ask:
    """A world in which `delete` needs approval, and `look` does not; both note when they run.

    Attributes:
        ran: what ran, with which arguments, in order.
    """

    ran: list[tuple[str, Any]] = attrs.field(factory=list)

    def delete(self, **options: Any) -> Tool[..., Any]:
        """The tool `delete(path, deep)`."""

        @tool(name="delete", **{"approve": True, **options})
        async def delete(ctx: Context, path: str, deep: bool = False) -> str:  # noqa: FBT001, FBT002 - by name
            """Delete."""
            self.ran.append((ctx.call_id, {"path": path, "deep": deep}))
            await trio.sleep(1)
            return f"deleted {path}"

        return delete

    def look(self, seconds: float = 1.0) -> Tool[..., Any]:
        """The tool `look()`."""

        @tool(name="look", effect="pure")
        async def look() -> str:
            """Look."""
            self.ran.append(("look", None))
            await trio.sleep(seconds)
            return "looked"

        return look

    def agent(self, name: str = "a", *, children: tuple[Agent, ...] = (), **options: Any) -> Agent:
        """An agent with both tools; `options` are of `delete`, and `limits` and `hooks` of the agent."""
        of_agent = {key: options.pop(key) for key in ("limits", "hooks") if key in options}
        return Agent(name, "Tidy up.", tools=[self.delete(**options), self.look()], children=children, **of_agent)

    @property
    def paths(self) -> list[str]:
        """What was deleted, in order."""
        return [arguments["path"] for name, arguments in self.ran if name != "look"]


def asks(*calls: Any) -> Any:
    """A model that makes these calls when it is given a task, says what came of them, and echoes anything else."""

    def model(request: ModelRequest) -> object:
        last = request.window[-1]
        if isinstance(last, MessageRecord):
            text = said(last.content)
            return list(calls) if text == "go" else f"heard {text}"
        results = [record for record in request.window if isinstance(record, ResultRecord)]
        return " | ".join(said(record.content) for record in results[-len(calls) :])

    return model


def script(*calls: Any, **others: Any) -> Script:
    """`asks` for the agent `a`."""
    return Script({"a": asks(*(calls or (call("delete", path="x"),))), **others})


async def first(sup: Supervisor) -> Approval:
    """The oldest open request."""
    async with sup.approvals() as inbox:
        async for request in inbox:
            return request
    raise AssertionError("the inbox ended")


async def pending(sup: Supervisor, count: int) -> list[Approval]:
    """So many open requests, oldest first."""
    found: list[Approval] = []
    async with sup.approvals() as inbox:
        async for request in inbox:
            found.append(request)
            if len(found) == count:
                break
    return found


async def approve_all(sup: Supervisor, after_s: float = 0.0) -> None:
    """A person who approves everything, each a while after it was asked."""
    async with sup.approvals() as inbox:
        async for request in inbox:
            await trio.sleep(after_s)
            await request.approve(by="an operator")
