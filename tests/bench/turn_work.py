"""One message's work, ours and a bare loop's: a tool call, an answer; two calls of a model that takes no time.

Each subject is an async context manager that yields what opens a conversation; a conversation says one message.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import trio

from actors import Agent, Script, call, tool
from actors.transcript import ResultRecord
from supervisor import open_supervisor

CALLS_PER_MESSAGE: Final = 2
Say: TypeAlias = Callable[[str], Awaitable[str]]
Opened: TypeAlias = Callable[[], Awaitable[Say]]


@tool
async def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


ADDER: Final = Agent("adder", "Add what you are asked to.", tools=[add])
ADD: Final = call("add", a=1, b=2)


def play(request: Any) -> object:
    """Ask for the tool, then say what it gave."""
    return "It is 3." if isinstance(request.window[-1], ResultRecord) else ADD


@asynccontextmanager
async def _ours(store: Path | None) -> AsyncIterator[Opened]:
    async with open_supervisor(model=Script({"adder": play}, delta_chars=0), store=store, agents=[ADDER]) as sup:

        async def opened() -> Say:
            ref = await sup.start(ADDER)

            async def say(text: str) -> str:
                return (await ref.ask(text)).text

            return say

        yield opened


@asynccontextmanager
async def memory() -> AsyncIterator[Opened]:
    """Ours, in memory."""
    async with _ours(None) as opened:
        yield opened


@asynccontextmanager
async def sqlite() -> AsyncIterator[Opened]:
    """Ours, on SQLite, each commit flushed."""
    with tempfile.TemporaryDirectory(prefix="bench-turns-") as folder:
        async with _ours(Path(folder) / "turns.db") as opened:
            yield opened


@asynccontextmanager
async def floor() -> AsyncIterator[Opened]:
    """A bare loop on Trio: plain dicts, JSON arguments, one task per tool call; nothing is promised."""
    made = 0

    async def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
        nonlocal made
        made += 1
        await trio.lowlevel.checkpoint()
        if messages[-1]["role"] == "tool":
            return {"role": "assistant", "content": f"It is {messages[-1]['content']}."}
        return {"role": "assistant", "calls": [{"id": f"c{made}", "name": "add", "arguments": '{"a": 1, "b": 2}'}]}

    async def run(asked: dict[str, Any], results: dict[str, str], done: trio.Event) -> None:
        results[asked["id"]] = str(await add(**json.loads(asked["arguments"])))
        done.set()

    async with trio.open_nursery() as nursery:

        async def loop(messages: list[dict[str, Any]], text: str) -> str:
            messages.append({"role": "user", "content": text})
            while True:
                reply = await model(messages)
                messages.append(reply)
                if not reply.get("calls"):
                    return str(reply["content"])
                results: dict[str, str] = {}
                waits = [(asked, trio.Event()) for asked in reply["calls"]]
                for asked, done in waits:
                    nursery.start_soon(run, asked, results, done)
                for asked, done in waits:
                    await done.wait()
                    messages.append({"role": "tool", "call": asked["id"], "content": results[asked["id"]]})

        async def opened() -> Say:
            messages: list[dict[str, Any]] = []
            return lambda text: loop(messages, text)

        yield opened


SUBJECTS: Final[dict[str, Callable[[], AbstractAsyncContextManager[Opened]]]] = {
    "memory": memory,
    "sqlite": sqlite,
    "floor": floor,
}
