"""How long a tree is nobody's: from its owner's end to the next owner's, after a clean release, a kill and a stop.

`python tests/bench/bench_takeover.py [--rounds 5] [--lease 1]` prints one line of JSON; seconds of the wall. The owner
is a process of its own whose agent is amid a tool call. `resumed`: a second process asks `resume()` every 10 ms, until
the tree is among what it goes on with. `answered`: one that waits for a reply since before, and asks nothing again,
has it. A clean release counts from the word to leave; a kill and a stop from the signal.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors import Agent, Script, call, tool
from actors.transcript import ResultRecord
from supervisor import open_supervisor
from supervisor.store.sqlite import open_sqlite_store
from tests.bench import measuring

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from actors.ports import ModelRequest
    from supervisor import Supervisor

ENDS: Final = ("release", "kill", "stop")
LOOK_S: Final = 0.01


@tool
async def sit() -> str:
    """Sit there."""
    await trio.sleep(10_000)
    return "never"


def _answer(request: ModelRequest) -> object:
    return "up" if any(isinstance(record, ResultRecord) for record in request.window) else call("sit")


AGENT: Final = Agent("sitter", "Sit.", tools=[sit])


@asynccontextmanager
async def _owner(store: str, lease_s: float) -> AsyncIterator[Supervisor]:
    async with (
        open_sqlite_store(store, owner="bench_takeover", lease_s=lease_s) as opened,
        open_supervisor(model=Script({"sitter": _answer}), store=opened, agents=[AGENT], grace=0.0, hard=1.0) as sup,
    ):
        yield sup


async def hold(store: str, lease_s: float) -> None:
    """Own the tree until a line comes in."""
    async with _owner(store, lease_s) as sup:
        ref = await sup.start(AGENT, "go", key="k")
        while not any(record.blocks for record in await ref.transcript() if hasattr(record, "blocks")):  # noqa: ASYNC110 - read from the store
            await trio.sleep(0.01)
        print("holding", flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)


def _begun(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _end(owner: subprocess.Popen[str], how: str) -> float:
    began = time.perf_counter()
    if how == "release":
        assert owner.stdin is not None, "it was opened with a pipe"
        owner.stdin.write("\n")
        owner.stdin.flush()
    else:
        owner.send_signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    return began


async def taken_over(how: str, lease_s: float, *, waits: bool) -> float:
    """Seconds until the next owner has the tree, or, where it waits for a reply, until that has come."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "agents.db")
        command = [sys.executable, __file__, "--hold", store, "--lease", str(lease_s)]
        owner = _begun(command)
        try:
            assert owner.stdout is not None, "it was opened with a pipe"
            assert await trio.to_thread.run_sync(owner.stdout.readline) == "holding\n"
            async with _owner(store, lease_s) as sup, trio.open_nursery() as nursery:
                ref = await sup.find("sitter")
                if waits:
                    nursery.start_soon(ref.ask, "are you there?")
                    await trio.sleep(0.2)
                began = _end(owner, how)
                while not waits and not await sup.resume():  # noqa: ASYNC110 - a store has no event
                    await trio.sleep(LOOK_S)
                took = time.perf_counter() - began
            return time.perf_counter() - began if waits else took
        finally:
            owner.kill()
            owner.wait()
            for pipe in (owner.stdin, owner.stdout):
                if pipe is not None:
                    pipe.close()


async def measured(rounds: int, lease_s: float) -> dict[str, Any]:
    """Every end in turns."""
    resumed: dict[str, list[float]] = {how: [] for how in ENDS}
    answered: dict[str, list[float]] = {how: [] for how in ENDS}
    for _ in range(rounds):
        for how in ENDS:
            resumed[how].append(await taken_over(how, lease_s, waits=False))
            answered[how].append(await taken_over(how, lease_s, waits=True))
    return {
        "lease_s": lease_s,
        "resumed_s": {how: measuring.middle(times) for how, times in resumed.items()},
        "answered_s": {how: measuring.middle(times) for how, times in answered.items()},
    }


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lease", type=float, default=1.0)
    parser.add_argument("--hold", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold:
        trio.run(hold, options.hold, options.lease)
    else:
        measuring.emit("takeover", trio.run(measured, options.rounds, options.lease))


if __name__ == "__main__":
    main()
