"""Checked by mypy only: what people write keeps its types. Never imported, never run."""

from typing import TYPE_CHECKING, Any, assert_type

import attrs

from actors.agent import Agent, Child, Drain, Prompt, closure
from actors.budget import Budget
from actors.models.script import Script, call, overloaded
from actors.ports import Model, ModelRequest
from actors.tools import Parsed, Refusal, Tool, Toolbox, tool, toolbox
from supervisor import AgentRef, Approval, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Context:
    """Stands for the real one."""

    __callboard_context__ = True


@tool
async def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


@tool(effect="once", resource=lambda path: path, approve=lambda path: not path.startswith("scratch/"), timeout=30)
def delete(ctx: Context, path: str) -> str:
    """Delete."""
    return f"{ctx}{path}"


async def tools_keep_the_types_of_their_functions() -> None:
    """A decorated function is called as before."""
    assert_type(await add(1, b=2), int)
    assert_type(delete(Context(), path="x"), str)
    add("1")  # type: ignore[arg-type, unused-coroutine]
    add(1, c=2)  # type: ignore[call-arg, unused-coroutine]
    delete("x")  # type: ignore[call-arg, arg-type]
    fn: Callable[[Context, str], str] = delete
    other: Tool[[Context, str], str] = delete
    wider: Tool[..., object] = delete
    sync_add: Callable[[int], Coroutine[Any, Any, int]] = add
    assert_type(tool(fn, name="x"), Tool[[Context, str], str])
    del other, wider, sync_add


tool(effect="twice")  # type: ignore[call-overload]
tool(timeout_s=3)  # type: ignore[call-overload]


def parsing() -> None:
    """A parse is one of two."""
    parsed = add.parse("{}")
    assert_type(parsed, Parsed | Refusal)
    assert_type(toolbox([add, delete]), Toolbox)
    assert_type(add.keys({}), tuple[tuple[str, ...], bool])


@attrs.frozen
class Verdict:
    """An answer."""

    file: str


def agents() -> None:
    """Lists, dicts and text are taken where people write them, and have their one type afterwards."""
    reviewer = Agent("reviewer", "Review one file.", tools=[add], output=Verdict)
    lead = Agent(
        "lead",
        Prompt("Hand out.", "v1"),
        tools=[add, delete],
        children=[reviewer, Child(reviewer, background=True, restart="temporary", grace=5, budget=Budget(usd="0.10"))],
        model=["openai:gpt-5-mini", Script({})],
        drain={"send": "all"},
    )
    assert_type(lead.instructions, Prompt)
    assert_type(lead.tools, tuple[Tool[..., Any], ...])
    assert_type(lead.children, tuple[Child, ...])
    assert_type(lead.model, tuple[str | Model, ...])
    assert_type(lead.drain, Drain)
    assert_type(closure([lead])["lead"], Agent)
    Agent("lead", tools=[len])  # type: ignore[list-item]
    Agent("lead", drain={"send": "some"})  # type: ignore[dict-item]
    Child(reviewer, restart="always")  # type: ignore[arg-type]
    lead.name = "other"  # type: ignore[misc]


def scripts() -> None:
    """Steps of every kind in one script; a script is a model."""

    def answer(request: ModelRequest) -> str:
        return request.instructions

    model: Model = Script({"adder": [call("add", a=2, b=3), ("x", call("add")), overloaded(retry_after=2), answer]})
    Script({"adder": answer}, latency_s=(1, 2), delta_chars=8)
    Script(["x"])  # type: ignore[arg-type]
    del model


async def people(sup: Supervisor, ref: AgentRef) -> None:
    """What a person may do: decide, pause, wake."""
    async with sup.approvals() as inbox:
        async for request in inbox:
            assert_type(request, Approval)
            assert_type(request.expires, float | None)
            await request.approve(by="an operator")
            await request.deny("Only the cleaner may delete.")
    await ref.pause()
    await ref.wake()
    tool(add.fn, approve=True, approve_timeout=60)
    tool(add.fn, approve_timeout="60")  # type: ignore[call-overload]
