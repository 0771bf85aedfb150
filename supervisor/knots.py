"""Who waits for whom, as bare nodes, and whether one more wait could ever end.

A node is an agent of a store, or a stretch of code that its agent no longer waits for. A node goes on when all its
open waits end, for a turn waits for all its frames. A wait for all its targets ends when each of them goes on, a wait
for any when one does. Whoever cannot go on by this rule, whatever happens, is stuck: by a cycle where every wait is
for all, else by a knot, out of which no way leads. No node of the web is ever stuck (WEB-1), so only the newest wait
can be at fault, and only whether its waiter goes on need be asked.

The check costs nothing where nobody needs the waiter. Else it walks the waits that the new one leads to and those that
lead to the waiter, in turns, until the shorter side is through; whoever is on neither costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NewType, TypeVar, final

from actors.waiting import Mode, Need

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from actors.ids import AgentId
    from actors.waiting import Frame, Wait

Node = NewType("Node", str)
"""`store:path`; below `a` stands `a/b`. Code that stands apart has a node that is below nobody's."""

_Key = TypeVar("_Key")


def node_of(place: str, agent: AgentId) -> Node:
    """The node of an agent of a store."""
    return Node(f"{place}:{agent}")


def apart(frame: Frame, name: str) -> Node:
    """The node of code that its agent no longer waits for; `name`: its own among the agent's."""
    return Node(f"!{frame.place}:{frame.agent}!{name}")


def within(node: str, root: str) -> bool:
    """Whether a node is the root or stands below it."""
    return node == root or node.startswith(root + "/")


@final
class Web:
    """All open waits of a process, whichever supervisor they are of.

    Invariants:
        WEB-1 no node of it is stuck, if `add` follows a `knot` of the same wait that found nothing.
        WEB-2 a wait stands under its node, under each of its targets, and its node under all nodes above; no entry is
            empty.
        WEB-3 what a search or a change costs does not depend on nodes that have no part in it.
    """

    def __init__(self) -> None:
        self._open: dict[Wait, Node] = {}
        self._of: dict[Node, dict[Wait, None]] = {}
        self._for: dict[Node, dict[Wait, None]] = {}
        self._under: dict[Node, dict[Node, None]] = {}
        self._apart: dict[Frame, Node] = {}
        self.checks = 0

    # -- changing --------------------------------------------------------------------------------------------------

    def node(self, frame: Frame) -> Node:
        """Whom a frame's waits hold up: its agent, or only itself where its agent waits for it no more."""
        return self._apart.get(frame) or node_of(frame.place, frame.agent)

    def is_apart(self, frame: Frame) -> bool:
        """Whether a frame's agent waits for it no more."""
        return frame in self._apart

    def add(self, wait: Wait) -> None:
        """Open a wait."""
        node = self.node(wait.waiter)
        self._open[wait] = node
        self._enter(node, wait)
        for target in wait.nodes:
            self._for.setdefault(Node(target), {})[wait] = None

    def remove(self, wait: Wait) -> bool:
        """Close a wait; False where it is closed already."""
        node = self._open.pop(wait, None)
        if node is None:
            return False
        self._exit(node, wait)
        for target in wait.nodes:
            _drop(self._for, Node(target), wait)
        return True

    def set_apart(self, frame: Frame, name: str) -> None:
        """Let a frame hold up nobody but who waits for it by this name: its agent waits for it no more (REE-3)."""
        waits = self._by(frame)
        if frame in self._apart:
            return
        for wait in waits:
            self._exit(self._open[wait], wait)
        node = self._apart[frame] = apart(frame, name)
        for wait in waits:
            self._open[wait] = node
            self._enter(node, wait)

    def leave(self, frame: Frame) -> None:
        """Close all waits of a frame whose code has ended."""
        for wait in self._by(frame):
            self.remove(wait)
        self._apart.pop(frame, None)

    def _by(self, frame: Frame) -> list[Wait]:
        return [wait for wait in self._of.get(self.node(frame), ()) if wait.waiter is frame]

    def _enter(self, node: Node, wait: Wait) -> None:
        waits = self._of.get(node)
        if waits is not None:
            waits[wait] = None
            return
        self._of[node] = {wait: None}
        for above in _upward(node):
            self._under.setdefault(above, {})[node] = None

    def _exit(self, node: Node, wait: Wait) -> None:
        if _drop(self._of, node, wait):
            for above in _upward(node):
                _drop(self._under, above, node)

    # -- reading ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._open)

    def open(self) -> tuple[Wait, ...]:
        """The open waits of frames that their agents wait for, oldest first."""
        return tuple([wait for wait in self._open if wait.waiter not in self._apart])

    def waits_of(self, node: Node) -> tuple[Wait, ...]:
        """The open waits of a node, oldest first."""
        return tuple(self._of.get(node, ()))

    def waiters_of(self, node: Node) -> tuple[Wait, ...]:
        """The open waits that name a node, oldest first."""
        return tuple(self._for.get(node, ()))

    def is_named(self, node: Node) -> bool:
        """Whether an open wait names a node."""
        return node in self._for

    def stuck(self) -> tuple[Node, ...]:
        """Who can never go on: knots and all who wait into them. Always empty, or it is a bug (WEB-1)."""
        return tuple(sorted(_Search(self, {node: tuple(waits) for node, waits in self._of.items()}).stuck()))

    # -- the check -------------------------------------------------------------------------------------------------

    def knot(self, wait: Wait, without: Container[Wait] = ()) -> tuple[Wait, ...]:
        """The waits, the new one first, that lead from its waiter back to it, where it could never go on.

        Args:
            wait: about to be opened.
            without: open waits that would end by that.
        """
        node = self.node(wait.waiter)
        if not (self._needed_by_any(node) or any(within(node, target) for target in _blocking(wait, node))):
            return ()
        if not self._leads_back(wait, node, without):
            return ()  # with no way back, the waiter goes on as soon as others do, and all others do (WEB-1)
        waits, path, certain = self._reach(wait, node, without)
        self.checks += 1
        if certain:
            return path
        stuck = _Search(self, waits, node).stuck()
        if node not in stuck:
            return ()
        return self._reach(wait, node, without, among=stuck)[1]

    def _needed_by_any(self, node: Node) -> bool:
        """Whether anybody waits for the node, or for an exit above it."""
        if node in self._for:
            return True
        return any(
            wait.needs is Need.EXIT for above in _upward(node) if above in self._for for wait in self._for[above]
        )

    def _leads_back(self, wait: Wait, node: Node, without: Container[Wait]) -> bool:
        """Whether any way leads from the wait to its waiter: walked from both ends in turns, the shorter decides."""
        starts = dict.fromkeys(self._needs(wait, node))
        for needed, needing in zip(self._ahead(starts, node, without), self._behind(node, without), strict=False):
            if needed == node or needing in starts:
                return True
        return False

    def _ahead(self, starts: Iterable[Node], waiter: Node, without: Container[Wait]) -> Iterator[Node]:
        """The nodes, and all that they need."""
        queue = list(starts)
        seen = set(queue)
        for node in queue:  # grows while it is walked
            yield node
            for held in self._of.get(node, ()):
                fresh = () if held in without else [one for one in self._needs(held, waiter) if one not in seen]
                queue += fresh
                seen.update(fresh)

    def _behind(self, node: Node, without: Container[Wait]) -> Iterator[Node]:
        """The node, and all that need it."""
        queue, seen = [node], {node}
        for one in queue:  # grows while it is walked
            yield one
            for above in _upward(one):
                for held in self._for.get(above, ()):
                    waiter = self._open[held]
                    if (above == one or held.needs is Need.EXIT) and held not in without and waiter not in seen:
                        queue.append(waiter)
                        seen.add(waiter)

    def _reach(
        self, wait: Wait, node: Node, without: Container[Wait], among: Container[Node] | None = None
    ) -> tuple[dict[Node, tuple[Wait, ...]], tuple[Wait, ...], bool]:
        """All that the new wait leads to, nearest first.

        Returns:
            The nodes with their waits; a shortest way back to the waiter, or (); whether that way alone is certain to
            have no end: then not all was walked.
        """
        waits: dict[Node, tuple[Wait, ...]] = {}
        came: dict[Node, tuple[Wait, Node | None]] = {}
        queue: list[tuple[Node | None, Wait]] = [(None, wait)]
        path: tuple[Wait, ...] = ()
        for start, held in queue:  # grows while it is walked: breadth first
            for target in self._needs(held, node):
                if among is not None and target not in among:
                    continue
                if target == node and not path:
                    path = (*_trace(came, start), held)
                    if among is not None or all(one.mode is Mode.ALL or len(one.nodes) == 1 for one in path):
                        return waits, path, True
                if target in waits:
                    continue
                of = tuple([one for one in self._of.get(target, ()) if one not in without])
                waits[target] = (*of, wait) if target == node else of
                if target != node:
                    came[target] = (held, start)
                queue += [(target, one) for one in of]
        return waits, path, False

    def _needs(self, wait: Wait, waiter: Node) -> Iterator[Node]:
        """Whom a wait needs: its targets and, where they must exit, all below them that wait for something."""
        for target in wait.nodes:
            yield from self.needs_of(wait, Node(target), waiter)

    def needs_of(self, wait: Wait, target: Node, waiter: Node | None) -> Iterator[Node]:
        """Whom one target of a wait stands for. `waiter`: of a wait that is about to be opened."""
        yield target
        if wait.needs is not Need.EXIT:
            return
        yield from self._under.get(target, ())
        if waiter is not None and within(waiter, target):
            yield waiter


@final
class _Search:
    """Strikes out whoever can go on, until nobody more can: who is left is stuck."""

    def __init__(self, web: Web, waits: dict[Node, tuple[Wait, ...]], waiter: Node | None = None) -> None:
        self._web = web
        self._waits = waits
        self._waiter = waiter

    def stuck(self) -> set[Node]:
        stuck = {node for node, of in self._waits.items() if of}
        needed_by: dict[Node, list[Node]] = {}
        for node in stuck:
            for wait in self._waits[node]:
                for target in wait.nodes:
                    for needed in self._web.needs_of(wait, Node(target), self._waiter):
                        needed_by.setdefault(needed, []).append(node)
        queue = list(stuck)
        for node in queue:  # grows while it is walked: whoever needed one that goes on is looked at again
            if node in stuck and all(self._ends(wait, stuck) for wait in self._waits[node]):
                stuck.discard(node)
                queue.extend(needed_by.get(node, ()))
        return stuck

    def _ends(self, wait: Wait, stuck: set[Node]) -> bool:
        """Whether a wait can end while these nodes are stuck."""
        free = (stuck.isdisjoint(self._web.needs_of(wait, Node(target), self._waiter)) for target in wait.nodes)
        return all(free) if wait.mode is Mode.ALL else any(free)


def _blocking(wait: Wait, node: Node) -> Iterable[str]:
    """The targets that the waiter itself may stand for."""
    return wait.nodes if wait.needs is Need.EXIT else [target for target in wait.nodes if target == node]


def _upward(node: Node) -> Iterator[Node]:
    """The node and all above it."""
    yield node
    cut = len(node)
    while (cut := node.rfind("/", 0, cut)) > 0:
        yield Node(node[:cut])


def _drop(index: dict[Node, dict[_Key, None]], node: Node, key: _Key) -> bool:
    """Take an entry out of an index; whether it was the node's last."""
    entries = index[node]
    del entries[key]
    if entries:
        return False
    del index[node]
    return True


def _trace(came: dict[Node, tuple[Wait, Node | None]], last: Node | None) -> tuple[Wait, ...]:
    """The waits that led to a node, first to last."""
    path: list[Wait] = []
    while last is not None:
        wait, last = came[last]
        path.append(wait)
    return tuple(path[::-1])
