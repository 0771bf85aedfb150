"""Starting agents, and children as tools: the call starts one, and waits for its report."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, final

import trio

from actors.changes import Bump, Intake
from actors.errors import Aborted, AgentClosed, Conflict, Unfinished, UsageError
from actors.guarding import safely_told
from actors.ids import AgentId, TreeId, child_path, ordinal_of, tree_of
from actors.messages import Status
from actors.ref import AgentRef
from actors.results import Given
from actors.tools import Effect, Tool, toolbox
from actors.transcript import ResultStatus

from .births import new
from .knots import within
from .remote import Remote
from .starting import Start, Started

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from actors.agent import Agent, Child
    from actors.calling import Context
    from actors.changes import AgentRow
    from actors.ids import CallId
    from actors.reports import Report
    from actors.running import Running
    from actors.tools import Toolbox

    from .parts import Parts
    from .roster import Place
    from .staging import Birth

TASK_SCHEMA: Final = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "what it is to do, with all it needs to know"}},
    "required": ["task"],
    "additionalProperties": False,
}


@final
class Children:
    """The makings of a tree.

    Invariants:
        CHILD-1 a path is given once: ordinals only rise, and the row is written fresh.
        CHILD-2 one key under one parent is one agent, whoever asks and however often.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ordinals: dict[tuple[str, str], int] = {}
        self._reserved: dict[CallId, int] = {}
        self._childless: set[AgentId] = set()
        self._keys: dict[tuple[str, str], AgentId] = {}
        self._making: dict[tuple[str, str], trio.Lock] = {}
        """Held by whoever finds or makes the agent of a key; only while somebody does."""
        self._boxes: dict[AgentId, tuple[Toolbox, int]] = {}
        self._births: dict[AgentId, tuple[trio.Event, CallId | None]] = {}
        """Agents whose commit is under way: they are in no memory before it is durable (CON-4)."""

    # -- starting --------------------------------------------------------------------------------------------------

    async def start(self, start: Start) -> Started:
        """Start an agent with its task, or find the one of the key.

        Raises:
            SpawnLimit: the tree may not grow. UsageError: the key was used with another task. Aborted: the parent
            is being stopped. StoreError: nothing was made.

        Durable: the agent and its task, on return.
        """
        self._check_may(start)
        self._parts.kernel.remember(start.agent)  # also to bring back with it the one that is there
        if start.key is None:
            return await self._start(start)
        place = (start.parent, start.key)
        making = self._making.setdefault(place, trio.Lock())
        try:
            async with making:  # CHILD-2: whoever comes second finds what the first made
                return await self._find(start) or await self._start(start)
        finally:
            if not making.locked():
                self._making.pop(place, None)

    def _check_may(self, start: Start) -> None:
        """Refuse a start below a barrier (STOP-1), and by a call that was cut: nobody would stop it then (SUP-4)."""
        if start.parent and self._parts.stopping.barred(AgentId(start.parent)):
            msg = f"{start.parent} is being stopped; it starts no agents"
            raise Aborted(msg)
        if _is_cut(self._parts, start):
            raise Aborted(f"the call {start.call} of {start.parent} was cut off; it starts no agents any more")
        parent = self._parts.kernel.actors.get(AgentId(start.parent))
        if parent is not None and parent.intake is Intake.CLOSED:  # code of it that outlived it (CLS-4, SUP-4)
            raise AgentClosed(f"{start.parent} is closed; it starts no agents")

    async def _find(self, start: Start) -> Started | None:
        """The agent of the key, if there is one."""
        assert start.key is not None, "only a key finds an agent"
        found = self._keys.get((start.parent, start.key))
        found = found or await self._parts.kernel.store.find_key(start.parent, start.key)
        if found is None:
            return None
        if start.call is not None:
            self._reserved.pop(start.call, None)
        return await self._found(found, start)

    async def _start(self, start: Start) -> Started:
        """A new agent; where another process was faster with the key, that one's."""
        parts = self._parts
        place = parts.ledger.spawn(start.parent)
        try:
            return await self._make(start, place)
        except BaseException as error:  # noqa: ASYNC103 - what is not ours is told, not raised: our own cancellation goes on
            parts.ledger.unspawn(place)
            found = await self._find(start) if isinstance(error, Conflict) and start.key is not None else None  # noqa: ASYNC102 - it is bounded where it waits, or does not wait at all
            if found is None:
                raise
            return found  # noqa: ASYNC104 - likewise

    async def _found(self, path: AgentId, start: Start) -> Started:
        self._keys[start.parent, start.key or ""] = path
        birth = self._parts.staging.birth(path)
        row = birth.row if birth is not None else await self._row(path)
        if row.name != start.agent.name:
            msg = (
                f"the key {start.key!r} was used for another agent ({path}), not for {start.agent.name!r}; the same key"
                " means the same agent: give another key"
            )
            raise UsageError(msg)
        if row.task_digest != start.task_digest():
            msg = (
                f"the key {start.key!r} was used for another task ({path}); the same key means the same task:"
                " give another key, or send() to that agent"
            )
            raise UsageError(msg)
        if birth is None and (actor := self._parts.kernel.actors.get(path)) is not None:
            actor.wake()
        return Started(path, None)

    async def _row(self, path: AgentId) -> AgentRow:
        remote = Remote(self._parts)
        actor = await remote.here(path)
        return (await remote.stored(path)).row if actor is None else actor.row

    async def _make(self, start: Start, place: Place) -> Started:
        stage = self._parts.staging.here()
        if stage is not None and stage.agent != start.parent:
            raise UsageError("a tool with effect='store' starts children of its own agent only: use ctx.start()")
        path = await self._next_path(start.parent, start.agent.name, start.call)
        if start.key is not None:
            self._keys[start.parent, start.key] = path
        try:
            self._check_may(start)  # a barrier may have come up since; from here to the commit nothing awaits
            birth = new(self._parts, start, path, place, forget=lambda: self._forget(start))
            if stage is None:
                await self._commit(birth)
            else:
                stage.bear(birth)
            if start.agent.children:
                self._childless.add(path)  # made here: no child of it is in the store that we did not start
            return Started(path, birth.task)
        except BaseException:
            self._forget(start)
            raise

    def _forget(self, start: Start) -> None:
        if start.key is not None:
            self._keys.pop((start.parent, start.key), None)

    async def _commit(self, birth: Birth) -> None:
        path = birth.path
        kernel, tree = self._parts.kernel, tree_of(path)

        def born() -> None:
            if not birth.row.parent:
                kernel.ownership.founded(tree)
            birth.born()

        founding = nullcontext() if birth.row.parent else kernel.ownership.founds(tree)
        with founding, self.bearing(path, call=None if birth.row.background else birth.row.started_by):
            try:
                await kernel.commit(tree, birth.operations, first=born)
            except BaseException:
                self._parts.ledger.ended(path)  # it was opened above
                if not birth.row.parent:  # should it be there all the same, it is opened with its tree
                    self._parts.ledger.lose(path)
                raise

    @contextmanager
    def bearing(self, *paths: AgentId, call: CallId | None = None) -> Iterator[None]:
        """Agents are being written for the length of the block: whoever puts a barrier up waits for that.

        `call`: that will wait for them.
        """
        made = trio.Event()
        self._births.update(dict.fromkeys(paths, (made, call)))
        try:
            yield
        finally:
            for path in paths:
                del self._births[path]
            made.set()

    async def born(self, parent: AgentId) -> None:
        """Wait until neither an agent nor one below it is being written: each is there, or is not, from then on."""
        for made in [made for path, (made, _) in self._births.items() if within(path, parent)]:
            await made.wait()

    def unborn(self, calls: Collection[CallId]) -> tuple[AgentId, ...]:
        """The agents that are being written, and for which one of these calls will wait."""
        return tuple([path for path, (_, call) in self._births.items() if call in calls])

    def reserve(self, parent: AgentId, name: str, call: CallId) -> None:
        """Give the child that a call is about to start its ordinal now: in call order, whatever order tasks run in."""
        known = self._ordinals.get((parent, name))
        if known is None and parent in self._childless:
            known = 0
        if known is not None and call not in self._reserved:
            self._ordinals[parent, name] = self._reserved[call] = known + 1

    async def _next_path(self, parent: str, name: str, call: CallId | None) -> AgentId:
        """The next path of a name: a root's from the store's counter, a child's from the tree, which we own."""
        kernel = self._parts.kernel
        if not parent:
            (value,) = await kernel.commit(TreeId(""), (Bump(f"roots:{name}"),), fenced=False)
            assert isinstance(value, int), "Bump returns the new value"
            return child_path("", name, value)
        reserved = None if call is None else self._reserved.pop(call, None)
        if reserved is not None:
            return child_path(parent, name, reserved)
        known = self._ordinals.get((parent, name))
        if known is None:
            rows = await kernel.store.children(AgentId(parent))
            known = max((ordinal_of(row.agent) for row in rows if row.name == name), default=0)
            known = max(known, self._ordinals.get((parent, name), 0))  # another start may have asked meanwhile
        self._ordinals[parent, name] = known + 1
        return child_path(parent, name, known + 1)

    # -- children as tools -----------------------------------------------------------------------------------------

    def toolbox(self, path: AgentId, agent: Agent) -> Toolbox:
        """What an agent may call: tools, children, and answers to the questions that are open."""
        box = self._boxes.get(path)
        if box is None:
            made = toolbox((*agent.tools, *(self._child_tool(child) for child in agent.children)))
            box = self._boxes[path] = (made, sum(len(o.schema) + len(o.description) for o in made.offers))
        if not self._parts.questions.any:
            return box[0]
        return toolbox((*box[0].values(), *self._parts.questions.tools(path, self._told)))

    def tool_names(self, path: AgentId) -> Collection[str]:
        """The names of what an agent may call but for answers, as far as it was asked for."""
        return self._boxes[path][0] if path in self._boxes else ()

    def offers_bytes(self, path: AgentId, agent: Agent) -> int:
        """About how many bytes the offers are in a request."""
        if path not in self._boxes:
            self.toolbox(path, agent)
        return self._boxes[path][1]

    def _child_tool(self, child: Child) -> Tool[..., object]:
        agent = child.agent

        async def run(ctx: Context, task: str) -> str | Given:
            kid = await ctx.start(agent, task, budget=child.budget, background=child.background)
            if child.background:
                return f"{kid.path} was started; its report will come as a message."
            return self._told(await kid.wait_report())

        first = agent.instructions.text.strip().split("\n", 1)[0]
        description = f"Hand a task to {agent.name}. {first}".strip()
        return Tool.internal(agent.name, description, dict(TASK_SCHEMA), run, effect=Effect.CHILD, context="ctx")

    def _told(self, report: Report) -> Given:
        """A report as the parent's model reads it, believed as far as its agent; no answer is an error result."""
        try:
            return Given(self._words(report), trust=report.trust)
        except Unfinished as error:
            return Given(safely_told(error), ResultStatus.ERROR, report.trust)

    def _words(self, report: Report) -> str:
        if report.status is Status.DONE:
            return report.text
        if report.question is not None:
            name = self._parts.questions.tool_of(report.question.id)
            how = "It no longer waits for an answer." if name is None else f"Answer it with the tool {name}."
            return f"{report.question.path} asks before it can go on: {report.question.text}\n{how}"
        why = f": {report.error}" if report.error is not None else ""
        said = f" It had said: {report.text}" if report.text else ""
        msg = f"{report.path} came to no answer ({report.status.value}{why}).{said}"
        raise Unfinished(msg)

    def ref(self, path: AgentId) -> AgentRef:
        """A handle."""
        return AgentRef(self._parts.desk, path)


def _running(parts: Parts, start: Start) -> Running | None:
    """The call that starts an agent, while its code runs; None for other code."""
    life = parts.lives.get(AgentId(start.parent))
    if life is None or start.call is None:
        return None
    return life.calls.running.get(start.call) or life.calls.stuck.get(start.call)


def _is_cut(parts: Parts, start: Start) -> bool:
    """Whether a call starts an agent that was cut, or is to be, though its code goes on."""
    running = _running(parts, start)
    if running is None:
        return False
    loop = parts.kernel.actors[AgentId(start.parent)].loop
    return running.scope.cancel_called or (loop is not None and loop.cutting)
