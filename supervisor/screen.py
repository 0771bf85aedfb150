"""The board: what a tree of agents is doing now, made from its events alone.

Pure: no terminal, no clock. An event costs O(1), and O(depth) where it changes what an ancestor shows; a picture
costs O(rows shown), however many agents there are.

Invariants:
    BOARD-1 `tokens` and `cost` of a node are those of all responses seen in its subtree.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from actors.happenings import (
    AdmissionWaited,
    AgentCrashed,
    AgentEnded,
    AgentSettled,
    AgentStarted,
    AgentSuspended,
    ApprovalAsked,
    AttemptDiscarded,
    BudgetStage,
    Event,
    MessageDead,
    Missed,
    PostRefused,
    ReasoningDelta,
    RequestFailed,
    RequestStarted,
    ResponseEnded,
    StoreTroubled,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    ToolStuck,
    TurnEnded,
    TurnStarted,
)
from actors.ids import parent_path

from .screen_nodes import LOOKS, OPEN, Call, Look, Node, said
from .screen_rows import Row, picture
from .screen_words import APPROVAL, clean, gist, suspended

if TYPE_CHECKING:
    from actors.messages import Outcome

NOTES: Final = 3
ABOVE: Final = "/"
"""The path of what is said of all trees together."""


class Board:
    """What is known of all agents; fed with events in order, asked for pictures.

    Attributes:
        counts: agents by look. notes: the last things a person should know. missed: events that were not kept for us.
        since, clock: the first and the latest instant seen, on the events' clock.
    """

    __slots__ = ("_nodes", "_roots", "clock", "counts", "missed", "notes", "responses", "since")

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._roots: list[Node] = []
        self.counts: Counter[Look] = Counter()
        self.notes: deque[str] = deque(maxlen=NOTES)
        self.missed = 0
        self.responses = 0
        self.since: float | None = None
        self.clock = 0.0

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"<Board {len(self._nodes)} agents, {self.responses} responses, clock {self.clock:.1f}>"

    @property
    def tokens(self) -> int:
        """Of all agents."""
        return sum(root.tokens for root in self._roots)

    @property
    def cost(self) -> int:
        """Picodollars, of all agents, as far as prices are known."""
        return sum(root.cost for root in self._roots)

    @property
    def cost_known(self) -> bool:
        """Whether every response had a price."""
        return all(root.cost_known for root in self._roots)

    @property
    def seconds(self) -> float:
        """From the first event to the latest."""
        return self.clock - self.since if self.since is not None else 0.0

    def rows(self, limit: int, now: float | None = None) -> list[Row]:
        """The trees in at most `limit` rows (BOARD-3), as of `now` on the events' clock or the latest event."""
        return picture(self._roots, limit, self.clock if now is None else max(now, self.clock))

    def apply(self, event: Event) -> None:
        """Take one event in; the next must not be older."""
        if self.since is None:
            self.since = event.at
        self.clock = max(self.clock, event.at)
        if isinstance(event, Missed):
            self.missed += event.count or 0
            return
        if event.path == ABOVE:  # the supervisor's own budget: no agent
            if (text := notable(event)) is not None:
                self.notes.append(text)
            return
        self._take(self._nodes.get(event.path) or self._grow(event.path, event.at), event)

    def _take(self, node: Node, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                node.written += len(text)
                node.thinking = False
            case ReasoningDelta(text=text):
                node.written += len(text)
                node.thinking = True
            case ToolProgress():
                _progressed(node, event)
            case ToolStarted(call=call, name=name, arguments=arguments):
                node.calls[call] = Call(clean(name), arguments)
            case ToolEnded(call=call):
                _call_ended(node, call)
            case AdmissionWaited():
                self._asks(node, "waits for a place at the model")
            case RequestStarted():
                self._asks(node, f"asks again{node.after}" if node.after else "asks the model")
            case ResponseEnded():
                self._spent(node, event)
            case AttemptDiscarded(error=error, retry_in_s=retry):
                again = f"tries again in {retry:.0f} s: " if retry is not None else "no answer: "
                self._asks(node, f"{again}{clean(error)}")
            case AgentStarted(key=key):
                node.key = key
            case TurnStarted():
                node.after = ""
                self._asks(node, "starts")
            case TurnEnded(outcome=outcome):
                self._ended(node, outcome)
            case _:
                self._lifecycle(node, event)

    def _lifecycle(self, node: Node, event: Event) -> None:
        match event:
            case AgentSettled():
                if node.look in {Look.WAITING, Look.BUSY}:
                    self._look(node, Look.DONE)
            case AgentSuspended(reason=reason):
                if not (reason == "approval" and node.doing.startswith(APPROVAL)):
                    node.doing = suspended(reason)
                self._look(node, Look.STILL)
            case ApprovalAsked(name=name, arguments=arguments):
                node.doing = f"{APPROVAL}: {clean(name)} {gist(arguments)}".rstrip()
                if node.look is not Look.BUSY:  # one of an earlier process
                    self._look(node, Look.STILL)
            case AgentEnded(reason=reason):
                if node.look in OPEN:
                    node.doing = f"closed: {clean(reason)}" if reason else "closed"
                    self._look(node, Look.STOPPED)
            case AgentCrashed(error=error):
                node.doing = f"crashed: {clean(error)}"
                self._look(node, Look.FAILED)
                self._note(node, node.doing)
            case _:
                if (text := notable(event)) is not None:
                    self._note(node, text)

    def _grow(self, path: str, at: float) -> Node:
        """The node of a new path; ancestors that no event named yet are made with it."""
        missing = [path]
        while (path := parent_path(path)) and path not in self._nodes:
            missing.append(path)
        parent = self._nodes.get(path) if path else None
        for name in reversed(missing):
            node = Node(name, parent, len(self._nodes), at)
            self._nodes[name] = node
            self.counts[node.look] += 1
            if parent is None:
                self._roots.append(node)
            node.rehome()
            parent = node
        return self._nodes[missing[0]]

    def _look(self, node: Node, look: Look) -> None:
        self.counts[node.look] -= 1
        self.counts[look] += 1
        node.turn_to(look, self.clock)

    def _asks(self, node: Node, doing: str) -> None:
        node.doing = doing
        node.written = 0
        self._look(node, Look.BUSY)

    def _spent(self, node: Node, event: ResponseEnded) -> None:
        self.responses += 1
        node.written = 0
        tokens = event.usage.total_tokens
        here: Node | None = node
        while here is not None:  # BOARD-1
            here.tokens += tokens
            if event.cost is None:
                here.cost_known = False
            else:
                here.cost += event.cost
            here = here.parent

    def _ended(self, node: Node, outcome: Outcome) -> None:
        look = LOOKS[outcome.status]
        node.doing = said(outcome, node.key)
        self._look(node, look)
        if look is Look.FAILED:
            self._note(node, node.doing)

    def _note(self, node: Node, text: str) -> None:
        self.notes.append(f"{clean(node.path)}: {text}")


def notable(event: Event) -> str | None:
    """What a person should know of an event that changes no agent's looks, or None."""
    match event:
        case RequestFailed(error=error):
            return f"no answer: {clean(error)}"
        case BudgetStage(stage=stage, dimension=dimension, limit=limit, spent=spent):
            return f"budget {stage}: {dimension} {spent} of {limit}"
        case ToolStuck(name=name):
            return f"{clean(name)} was left behind and still runs"
        case MessageDead(reason=reason):
            return f"a message will not be answered: {clean(reason)}"
        case PostRefused(error=error):
            return f"a message was refused: {clean(error)}"
        case StoreTroubled(error=error):
            return f"stands still: {clean(error)}" if error else "goes on: the store can be written again"
        case _:
            return None


def _progressed(node: Node, event: ToolProgress) -> None:
    call = node.calls.get(event.call)
    if call is None:
        call = node.calls[event.call] = Call(clean(event.name), "")
    call.text = clean(event.text)
    if event.total is not None:
        call.done, call.total = event.done or 0, event.total


def _call_ended(node: Node, call: str) -> None:
    ended = node.calls.pop(call, None)
    about = "" if ended is None else gist(ended.arguments, leave_out=node.key)
    node.after = "" if ended is None else f" after {ended.name} {about}".rstrip()
