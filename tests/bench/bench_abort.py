"""From an abort to a settled turn, with a tool that ignores cancellation, beside cancelling a nursery of one child.

`python tests/bench/bench_abort.py [--rounds 300]` prints one line of JSON. In memory: no disk is measured. Aborts and
cancelled nurseries take turns; times are of the wall, in microseconds. The tool sits in a shielded wait and goes on
behind the abort; it is let go only after the turn was seen to be over, so its end cannot have been waited for.
`accepted` is until `abort` returned (it is durable), `settled` until `wait_aborted` did.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import trio
import trio.testing

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors import Agent, Script, call, tool
from supervisor import open_supervisor
from tests.bench import measuring

WARM = 5


class Stubborn:
    """A tool's inside: it says when it runs, and heeds nothing until it is let go."""

    def __init__(self) -> None:
        self.runs = trio.Event()
        self.free = trio.Event()
        self.ended = trio.Event()

    async def sit(self) -> None:
        """Ignore cancellation."""
        with trio.CancelScope(shield=True):
            self.runs.set()
            await self.free.wait()
            self.ended.set()


async def nursery_cancel() -> float:
    """Seconds from a cancel to the nursery's end."""
    runs = trio.Event()

    async def child() -> None:
        runs.set()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        await runs.wait()
        start = time.perf_counter()
        nursery.cancel_scope.cancel()
    return time.perf_counter() - start


async def measured(rounds: int) -> dict[str, Any]:
    """Aborts and cancels in turns."""
    current = Stubborn()

    @tool
    async def sit() -> str:
        """Sit there."""
        await current.sit()
        return "got up"

    agent = Agent("sitter", "Sit.", tools=[sit])
    accepted, settled, cancelled = [], [], []
    async with open_supervisor(model=Script({"sitter": lambda _request: call("sit")}, delta_chars=0)) as sup:
        for number in range(rounds + WARM):
            current = one = Stubborn()
            ref = await sup.start(agent, "go")
            await one.runs.wait()
            start = time.perf_counter()
            await ref.abort("enough")
            durable = time.perf_counter()
            await ref.wait_aborted()
            end = time.perf_counter()
            assert not one.ended.is_set(), "the abort did not wait for the tool"
            report = await ref.wait_report()
            assert report.status == "aborted", report
            one.free.set()
            await one.ended.wait()
            await trio.testing.wait_all_tasks_blocked()
            if number >= WARM:
                accepted.append((durable - start) * 1e6)
                settled.append((end - start) * 1e6)
                cancelled.append(await nursery_cancel() * 1e6)
    return {
        "us": {
            "accepted": measuring.middle(accepted),
            "settled": measuring.middle(settled),
            "nursery_cancel": measuring.middle(cancelled),
        },
        "nursery_cancels": measuring.ratios(settled, cancelled),
    }


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    measuring.emit("abort", trio.run(measured, parser.parse_args().rounds))


if __name__ == "__main__":
    main()
