"""Waits that go from one process to another, as the store keeps them, and who of them can never end (REE-5).

Each process refuses by itself what would close a ring within it, before anything is sent. A ring over several is seen
in what they publish here, at the next look. Nothing is refused for a wait that has ended meanwhile: all waits of a ring
must be known to have been open at one moment, the one at which the newest of them was first seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence


@attrs.frozen
class Crossing:
    """An open wait of one process.

    Attributes:
        id: the process's own number of it. label: who waits, for people.
        waiter: the path of the agent that is held up. targets: paths of those that it waits for.
        exits: they must stop, and all below them. any: one of them is enough.
    """

    id: int
    label: str
    waiter: str
    targets: tuple[str, ...]
    exits: bool = False
    any: bool = False


@attrs.frozen
class Published:
    """A wait as another process sees it.

    Attributes:
        holder: whose. since: when it was first published; at: last. Seconds of the store's clock.
    """

    holder: str
    since: float
    at: float
    wait: Crossing


def hopeless(waits: Sequence[Published]) -> tuple[Published, ...]:
    """The waits of the ring or knot that the newest wait in it has closed, that one first; () where there is none.

    Whoever can go on is struck out, until nobody more can: an agent goes on when all its waits end, a wait for all its
    targets when each of them goes on, one for any when one does.
    """
    of: dict[str, list[Published]] = {}
    for one in waits:
        of.setdefault(one.wait.waiter, []).append(one)
    stuck = set(of)
    while free := [agent for agent in stuck if all(_ends(one.wait, stuck) for one in of[agent])]:
        stuck.difference_update(free)
    left = sorted(
        (one for agent in stuck for one in of[agent] if not _ends(one.wait, stuck)),
        key=lambda one: (one.since, one.holder, one.wait.id),
        reverse=True,
    )
    if not left or any(one.at < left[0].since for one in left):
        return ()
    return tuple(_path(left))


def _ends(wait: Crossing, stuck: set[str]) -> bool:
    free = (not any(_needs(wait, target, agent) for agent in stuck) for target in wait.targets)
    return any(free) if wait.any else all(free)


def _needs(wait: Crossing, target: str, agent: str) -> bool:
    return agent == target or (wait.exits and agent.startswith(target + "/"))


def _path(left: list[Published]) -> list[Published]:
    """From the newest on, each followed by one that it waits for, as far as that is not in it yet."""
    path = [left[0]]
    while True:
        wait = path[-1].wait
        following = next(
            (one for one in left if one not in path and any(_needs(wait, to, one.wait.waiter) for to in wait.targets)),
            None,
        )
        if following is None:
            return path
        path.append(following)
