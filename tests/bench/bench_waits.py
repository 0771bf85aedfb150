"""What opening and closing a wait costs, by how many waits are open and where they lead.

`python tests/bench/bench_waits.py [--rounds 20] [--open 10,1000,10000]` prints one line of JSON: microseconds of this
thread's CPU for a `begin` and an `end`, and that over the same in an empty graph, in turns. The shapes:

- `elsewhere`: the open waits have nothing to do with the new one, alternatives and exits among them.
- `awaited`: all of them are for the new waiter; what it waits for waits for nobody.
- `into_a_tree`: they form a tree, whose root the new wait names; nobody waits for the waiter.
- `chain`, `alternatives`: they form a chain that the new wait leads into, of waits for one agent, or for any of two,
  and somebody waits for the waiter: the one case in which anything is walked.
- `refused`: as `chain`, and the chain leads back.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import timeit
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from actors.errors import WaitCycle
from actors.ids import AgentId
from actors.waiting import Frame, Mode, Need
from supervisor.waits import WaitGraph
from tests.bench import measuring

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 20


def wait(graph: WaitGraph, waiter: str, *targets: str, needs: Need = Need.REPLY, mode: Mode = Mode.ALL) -> None:
    """Open a wait."""
    graph.begin(Frame(AgentId(waiter), 1, "tool", "t"), [AgentId(t) for t in targets], needs=needs, mode=mode)


def elsewhere(graph: WaitGraph, count: int) -> str:
    """Waits of others for others."""
    for at in range(count):
        if at % 3 == 0:
            wait(graph, f"w{at}", f"x{at}")
        elif at % 3 == 1:
            wait(graph, f"w{at}", f"x{at}", f"y{at}", mode=Mode.ANY)
        else:
            wait(graph, f"w{at}", f"z{at}", needs=Need.EXIT)
    return "far"


def awaited(graph: WaitGraph, count: int) -> str:
    """Waits for the waiter."""
    for at in range(count):
        wait(graph, f"w{at}", "me")
    return "far"


def into_a_tree(graph: WaitGraph, count: int) -> str:
    """Each agent of a tree waits for the one below."""
    for at in range(count):
        wait(graph, f"n{(at - 1) // 8 if at else 'r'}", f"n{at}")
    return "nr"


def chain(graph: WaitGraph, count: int) -> str:
    """Each waits for the next, and somebody for the waiter."""
    wait(graph, "user", "me")
    for at in range(count):
        wait(graph, f"n{at}", f"n{at + 1}")
    return "n0"


def alternatives(graph: WaitGraph, count: int) -> str:
    """Each waits for any of the next two, and somebody for the waiter."""
    wait(graph, "user", "me")
    for at in range(count):
        wait(graph, f"n{at}", f"n{at + 1}", f"n{at + 2}", mode=Mode.ANY)
    return "n0"


def refused(graph: WaitGraph, count: int) -> str:
    """A chain whose last waits for the waiter."""
    for at in range(count):
        wait(graph, f"n{at}", "me" if at == count - 1 else f"n{at + 1}")
    return "n0"


SHAPES: dict[str, Callable[[WaitGraph, int], str]] = {
    shape.__name__: shape for shape in (elsewhere, awaited, into_a_tree, chain, alternatives, refused)
}


def once(graph: WaitGraph, target: str) -> float:
    """Microseconds of a wait."""
    mine, targets = Frame(AgentId("me"), 1, "tool", "t"), (AgentId(target),)

    def one() -> None:
        with suppress(WaitCycle):
            graph.end(graph.begin(mine, targets))

    return timeit.timeit(one, number=CALLS, timer=time.thread_time) / CALLS * 1e6


def measure(counts: list[int], rounds: int) -> dict[str, object]:
    """All figures."""
    said: dict[str, object] = {}
    empty = WaitGraph()
    for name, shape in SHAPES.items():
        for count in counts:
            graph = WaitGraph()
            target = shape(graph, count)
            ours, bare = [], []
            for _ in range(rounds):
                ours.append(once(graph, target))
                bare.append(once(empty, "far"))
            said[f"{name} {count}"] = {"us": measuring.middle(ours), "over_empty": measuring.ratios(ours, bare)}
    return said


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--open", default="10,1000,10000")
    options = parser.parse_args()
    counts = [int(count) for count in options.open.split(",")]
    said = {"bench": "waits", "wait": measure(counts, options.rounds), "on": measuring.machine()}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
