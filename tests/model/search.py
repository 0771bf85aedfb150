"""Searches all states of the protocol: breadth first, so that a trace to what is wrong is a shortest one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from tests.model.protocol import at_rest, begin, broken

if TYPE_CHECKING:
    from tests.model.protocol import Protocol, State


@attrs.frozen
class Found:
    """What a search saw.

    Attributes:
        states, edges: how many. wrong: what is broken, or empty. trace: the steps to it, in order.
        stuck: states from which no state of rest can be reached any more; one of them is at the end of `trace`.
    """

    states: int
    edges: int
    wrong: str = ""
    trace: tuple[str, ...] = ()
    stuck: int = 0


def search(protocol: Protocol) -> Found:
    """Look at every state that can be reached: each is sound, and from each a state of rest can be reached."""
    first = begin(protocol.world)
    came: dict[State, tuple[State, str] | None] = {first: None}
    back: dict[State, list[State]] = {}
    rests: list[State] = []
    todo = deque([first])
    edges = 0
    while todo:
        state = todo.popleft()
        wrong = broken(protocol.world, state)
        if wrong:
            return Found(len(came), edges, wrong, _trace(came, state))
        if not at_rest(state):
            rests.append(state)
        for name, after in protocol.steps(state):
            edges += 1
            back.setdefault(after, []).append(state)
            if after not in came:
                came[after] = (state, name)
                todo.append(after)
    good = set(rests)
    reach = deque(rests)
    while reach:
        for before in back.get(reach.popleft(), ()):
            if before not in good:
                good.add(before)
                reach.append(before)
    stuck = next((state for state in came if state not in good), None)
    if stuck is None:
        return Found(len(came), edges)
    return Found(
        len(came), edges, f"it never comes to rest: {at_rest(stuck)}", _trace(came, stuck), len(came) - len(good)
    )


def _trace(came: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names: list[str] = []
    step = came[state]
    while step is not None:
        names.append(step[1])
        step = came[step[0]]
    return tuple(reversed(names))
