"""ABT, CLS: every way to stop one agent, in every state it can be in, whatever the code does that it waits for.

A table: state x verb x conduct of foreign code x store. Whatever the row, the verb ends in bounded time, the
conversation is valid, memory is what a reload would rebuild, nothing is held any more, what comes late is recorded as
late and never applied (TOL-14), and the agent either answers the next message or is closed.
"""

from __future__ import annotations

import enum
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import pytest
import trio

from actors import AgentClosed, Hooks, Limits, RequestStuck, ToolLate, tool
from actors.changes import Append, Enqueue, Intake, OutcomeRow, Put
from actors.ids import AgentId
from actors.messages import Lane, Purpose
from actors.ports import ReportedUsage, Response, WireCall
from actors.transcript import MessageRecord, Stop, TextBlock
from supervisor import AgentRef, Supervisor
from supervisor.life import read_conversation
from tests.supervisor.promises.world import Log, World, agent, check, has, quiet, said, texts, until, watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from trio.testing import MockClock

    from actors import Agent
    from actors.changes import ChangeSet
    from actors.ports import Emit, ModelRequest

STUCK_S: Final = 50.0
"""How long the foreign code takes that the agent waits for."""
GRACE_S, HARD_S = 3.0, 2.0


class Conduct(enum.Enum):
    """What foreign code does about a cancellation."""

    COOPERATES = "cooperates"
    IGNORES = "ignores"
    SWALLOWS = "swallows"
    THREAD = "thread"


@attrs.define(eq=False)
class Code:
    """Foreign code that takes its time. `inside`: how often it was entered, `left`: and came to its end."""

    conduct: Conduct
    inside: int = 0
    left: int = 0
    gate: threading.Event = attrs.field(factory=threading.Event)
    on: bool = True

    async def __call__(self) -> str:
        """Take it, but only once."""
        if self.inside or not self.on:
            return "ok"
        self.inside += 1
        match self.conduct:
            case Conduct.COOPERATES:
                await trio.sleep(STUCK_S)
            case Conduct.IGNORES:
                with trio.CancelScope(shield=True):
                    await trio.sleep(STUCK_S)
            case _:
                try:
                    await trio.sleep(STUCK_S)
                except trio.Cancelled:  # noqa: ASYNC103 - what no code should do, and some does
                    with trio.CancelScope(shield=True):
                        await trio.sleep(STUCK_S)
        self.left += 1
        return "late"

    def block(self) -> str:
        """Take it in a thread."""
        self.inside += 1
        self.gate.wait(60)
        self.left += 1
        return "late"


@attrs.define(eq=False)
class Scene:
    """One row of the table while it is played.

    Attributes:
        sup: the supervisor. ref: whom it is about. code: what it waits for. log: all events.
    """

    world: World
    code: Code
    sup: Supervisor
    log: Log
    ref: AgentRef = attrs.field(init=False)

    async def start(self, spec: Agent, task: object = "go") -> None:
        """Start it."""
        self.ref = await self.sup.start(spec, task)

    def hold_commits(self, where: Callable[[ChangeSet], bool], seconds: float = 1.0) -> None:
        """Such commits take a second; orders do not."""

        async def before(one: ChangeSet) -> None:
            if where(one) and not has(one, Enqueue, lambda op: op.envelope.purpose in _ORDERS):
                await trio.sleep(seconds)

        self.world.spy.before = before


_ORDERS: Final = frozenset({Purpose.ABORT, Purpose.CLOSE, Purpose.KILL, Purpose.PAUSE, Purpose.WAKE})
Reach: TypeAlias = "Callable[[Scene], Awaitable[None]]"
Verb: TypeAlias = "Callable[[Scene], Awaitable[None]]"


def hooked(name: str, code: Code) -> Hooks:
    """Hooks of which one takes its time."""

    async def slow(self: Hooks, at: object, *rest: object) -> object:
        await code()
        return await rest[-1]() if name == "around_tool" else None  # type: ignore[operator]  # what runs the call

    return type("Slow", (Hooks,), {name: slow})()  # type: ignore[no-any-return]  # a class of hooks


# -- the states ------------------------------------------------------------------------------------------------------


async def starting(scene: Scene) -> None:
    """The commit that takes its first message is under way."""
    scene.hold_commits(lambda one: has(one, Append, lambda op: isinstance(op.records[0], MessageRecord)))
    await scene.start(agent())
    await scene.ref.send("go")
    await quiet()


async def settling(scene: Scene) -> None:
    """The commit that ends its turn is under way."""
    scene.hold_commits(lambda one: has(one, Put, lambda op: isinstance(op.row, OutcomeRow)))
    await scene.start(agent())
    await scene.ref.send("go")
    await quiet()


def in_hook(name: str) -> Callable[[Scene], Awaitable[None]]:
    """A hook runs."""

    async def reach(scene: Scene) -> None:
        await scene.start(
            agent(hooks=hooked(name, scene.code), tools=[quick]), "call" if name == "around_tool" else "go"
        )
        await until(lambda: scene.code.inside)

    return reach


async def admitting(scene: Scene) -> None:
    """It waits for a place at the model, which another has."""
    scene.code.conduct = Conduct.COOPERATES
    await scene.sup.start(agent("other"), "slow")
    await until(lambda: scene.code.inside)
    await scene.start(agent())
    await quiet()


async def streaming(scene: Scene) -> None:
    """The model answers."""
    await scene.start(agent(), "slow")
    await until(lambda: scene.code.inside)


async def batch(scene: Scene) -> None:
    """A tool runs, and another waits for it."""
    await scene.start(agent(tools=[stuck_tool(scene.code), quick]), "stuck")
    await until(lambda: scene.code.inside)


async def parked(scene: Scene) -> None:
    """A call waits for approval."""
    await scene.start(agent(tools=[asking]), "ask")
    await quiet()
    assert scene.ref.state == "approval"


async def compacting(scene: Scene) -> None:
    """The model writes a summary."""
    await scene.start(agent(), "x" * 9_000)
    await scene.ref.wait_idle()
    await scene.ref.compact()
    await until(lambda: scene.code.inside)


async def waiting(scene: Scene) -> None:
    """A blocking child's tool runs."""
    kid = agent("kid", tools=[stuck_tool(scene.code), quick])
    await scene.start(agent(children=[kid]), "child")
    await until(lambda: scene.code.inside)


async def crashed(scene: Scene) -> None:
    """Its loop crashed again and again."""
    left = 8

    async def before(one: ChangeSet) -> None:
        nonlocal left
        if left and has(one, Append):
            left -= 1
            msg = "a bug"
            raise RuntimeError(msg)

    await scene.start(agent(), None)
    scene.world.spy.before = before
    await scene.ref.send("go")
    await quiet(60)
    left = 0
    assert scene.ref.state == "suspended"


async def idle(scene: Scene) -> None:
    """It has nothing to do."""
    await scene.start(agent())
    await scene.ref.wait_idle()


async def queued_only(scene: Scene) -> None:
    """It is paused, and a message waits."""
    await scene.start(agent(), None)
    await scene.ref.pause()
    await quiet()
    await scene.ref.send("go")


async def closing(scene: Scene) -> None:
    """It is being closed, in good time."""
    await batch(scene)
    await scene.ref.close(grace=1_000)


async def read_in(scene: Scene) -> None:
    """It was left behind by another process, and is being read."""
    load = scene.world.spy.load_agent
    slow = True

    async def take(path: AgentId) -> Any:
        nonlocal slow
        found = await load(path)
        if slow:
            slow = False
            await trio.sleep(1)
        return found

    scene.world.spy.load_agent = take  # type: ignore[assignment,method-assign]  # it takes its time
    scene.ref = AgentRef(scene.sup._parts.desk, AgentId("a"))


# -- the agents' world -----------------------------------------------------------------------------------------------


@tool
async def quick() -> str:
    """Be quick."""
    return "done"


@tool(approve=True)
async def asking() -> str:
    """Ask first."""
    return "asked"


def stuck_tool(code: Code) -> Any:
    """A tool that takes its time."""
    if code.conduct is Conduct.THREAD:

        @tool(name="stuck", exclusive=True)
        def threaded() -> str:
            """Be stuck in a thread."""
            return code.block()

        return threaded

    @tool(exclusive=True)
    async def stuck() -> str:
        """Be stuck."""
        return await code()

    return stuck


class Model:
    """Answers by what it was asked last; asked for a summary, or "slow", it takes its time."""

    id = name = "model"
    free = True
    context_window = None

    def __init__(self, code: Code) -> None:
        self._code = code

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        last = request.window[-1]
        asked = said(last.content) if isinstance(last, MessageRecord) else ""
        if asked == "slow" or request.purpose == "compaction":
            await self._code()
        if request.agent == "a/kid" and asked:
            asked = "stuck"
        names = _ASKS.get(asked, ())
        if not names or request.purpose == "compaction":
            return Response((TextBlock("ok"),), Stop.END_TURN, _USAGE)
        arguments = '{"task": "x"}' if names == ("kid",) else "{}"
        return Response(tuple(WireCall(f"w{n}", n, arguments) for n in names), Stop.TOOL_CALLS, _USAGE)


_USAGE: Final = ReportedUsage(10, 10)
_ASKS: Final = {"stuck": ("stuck", "quick"), "ask": ("asking",), "child": ("kid",), "call": ("quick",)}


# -- the verbs -------------------------------------------------------------------------------------------------------


async def abort(scene: Scene) -> None:
    """Abort it, and wait until it has unwound."""
    await scene.ref.abort("enough")
    await scene.ref.wait_aborted()


async def close(scene: Scene) -> None:
    """Close it."""
    await scene.ref.close(grace=GRACE_S)
    await scene.ref.wait_closed()


async def kill(scene: Scene) -> None:
    """Kill it."""
    await scene.ref.kill("now")
    await scene.ref.wait_closed()


async def pause(scene: Scene) -> None:
    """Pause it."""
    await scene.ref.pause()


WITHIN_S: Final[dict[Verb, float]] = {abort: 2.5, close: GRACE_S + HARD_S + 2.5, kill: 2.5, pause: 1.5}
"""In how many seconds a verb is done; the second is for commits and reads that take one."""
ENDS: Final = (close, kill)

C = Conduct
FOREIGN: Final = (C.COOPERATES, C.IGNORES, C.SWALLOWS)
STATES: Final[dict[str, tuple[Reach, tuple[Conduct, ...]]]] = {
    "starting": (starting, (C.COOPERATES,)),
    "before_run": (in_hook("before_run"), FOREIGN),
    "before_turn": (in_hook("before_turn"), FOREIGN),
    "instructions": (in_hook("instructions"), FOREIGN),
    "before_request": (in_hook("before_request"), FOREIGN),
    "admitting": (admitting, (C.COOPERATES,)),
    "streaming": (streaming, FOREIGN),
    "after_response": (in_hook("after_response"), FOREIGN),
    "batch": (batch, (*FOREIGN, C.THREAD)),
    "around_tool": (in_hook("around_tool"), FOREIGN),
    "parked": (parked, (C.COOPERATES,)),
    "compacting": (compacting, FOREIGN),
    "waiting": (waiting, (*FOREIGN, C.THREAD)),
    "settling": (settling, (C.COOPERATES,)),
    "after_turn": (in_hook("after_turn"), FOREIGN),
    "after_run": (in_hook("after_run"), FOREIGN),
    "settled": (in_hook("settled"), FOREIGN),
    "idle": (idle, (C.COOPERATES,)),
    "queued only": (queued_only, (C.COOPERATES,)),
    "crashed": (crashed, (C.COOPERATES,)),
    "closing": (closing, FOREIGN),
    "read in": (read_in, (C.COOPERATES,)),
}
ROWS: Final = [
    pytest.param(reach, verb, conduct, id=f"{state}-{name}-{conduct.value}")
    for state, (reach, conducts) in STATES.items()
    for conduct in conducts
    for name, verb in {"abort": abort, "close": close, "kill": kill, "pause": pause}.items()
]


@asynccontextmanager
async def played(world: World, reach: Reach, conduct: Conduct) -> AsyncIterator[Scene]:
    """A scene in its state."""
    code = Code(conduct)
    spec = agent(tools=[quick])
    if reach is read_in:
        async with world.open(Model(code), grace=0) as sup:
            ref = await sup.start(spec)
            await ref.pause()
            await quiet()
            await ref.send("go")
    try:
        threads = conduct is Conduct.THREAD
        options: dict[str, Any] = {
            "permits": 1 if reach is admitting else 8,
            "agents": [spec] if reach is read_in else [],
        }
        async with (
            world.open(Model(code), threads=threads, grace=GRACE_S, hard=HARD_S, **options) as sup,
            watched(sup) as log,
        ):
            scene = Scene(world, code, sup, log)
            await reach(scene)
            yield scene
    finally:
        code.gate.set()


@pytest.mark.parametrize(("reach", "verb", "conduct"), ROWS)
async def test_abt_cls_whatever_it_is_stopped_in_it_stops_in_time_and_whole(
    world: World, autojump_clock: MockClock, reach: Reach, verb: Verb, conduct: Conduct
) -> None:
    """The verb is done in time; conversation and memory are whole; what comes late changes nothing; it goes on."""
    async with played(world, reach, conduct) as scene:
        ref, code = scene.ref, scene.code
        code.on = bool(code.inside)
        shares = reach is closing and verb is close  # CLS-1: the first one's shutdown, with its grace
        deaf = reach in (streaming, compacting) and conduct is not Conduct.COOPERATES and verb is abort
        with trio.fail_after(STUCK_S + 1 if shares else Limits().hard_s + 1 if deaf else WITHIN_S[verb]):
            await verb(scene)
        if deaf:
            (stuck_one,) = scene.log.of(RequestStuck)
            assert "test_stops.py" in stuck_one.stack
        if verb in ENDS:
            await whole(scene, ended=True)
            with pytest.raises(AgentClosed):
                await ref.send("again")
        before = await ref.transcript()
        code.gate.set()
        await trio.sleep(3 * STUCK_S)  # all that is late comes
        await until(lambda: code.left or code.conduct is Conduct.COOPERATES or not code.inside)
        if conduct is Conduct.THREAD:  # a real thread: what it returns takes real time to come here
            lives = scene.sup._parts.lives.values()
            calls = [one for life in lives for one in (*life.calls.running.values(), *life.calls.stuck.values())]
            await until(lambda: all(one.done.is_set() for one in calls))
            await trio.sleep(1)
        await quiet()
        late = [event.text for event in scene.log.of(ToolLate)]
        if verb is not pause:
            assert await ref.transcript() == before or (verb is abort and reach is closing), "TOL-14"
            wraps = reach is STATES["around_tool"][0]
            stuck = (reach in (batch, waiting, closing) or wraps) and conduct is not Conduct.COOPERATES and not shares
            assert late == ["done" if wraps else "late"] * stuck
        await whole(scene, ended=verb in ENDS)
        if verb in ENDS or reach is closing:
            await ref.wait_closed()
            return
        if verb is pause:
            await until(lambda: ref.state == "paused")
        await ref.wake()
        if reach is parked and verb is pause:
            assert (await ref.wait_report()).status == "parked"
            return
        with trio.fail_after(60):
            assert (await ref.ask("again")).text == "ok"
            await ref.wait_idle()
        assert texts(await ref.transcript())[-2:] == ["<again", ">ok"]
        await whole(scene, ended=False)


async def whole(scene: Scene, *, ended: bool) -> None:
    """Nothing is half done: the store is valid, and memory is what a reload would rebuild (TRN-8)."""
    sup = scene.sup
    await check(sup.store)
    for path, actor in sup._parts.kernel.actors.items():
        if path == "other":
            continue
        stored = await sup.store.load_agent(path)
        assert stored is not None
        assert (actor.row if actor.loop is None else actor.loop.row) == stored.row
        assert [one.envelope.id for one in actor.mailbox.waiting] == [
            one.envelope.id for one in stored.queued if one.envelope.lane is not Lane.CONTROL
        ]
        assert actor.intake is stored.intake
        if actor.memory.conversation is not None:
            again = await read_conversation(sup.store, stored.row)
            assert list(actor.memory.conversation.window()) == list(again.window())
        if ended:
            assert (stored.intake, stored.row.open, stored.queued) == (Intake.CLOSED, None, ())
        if not actor.active:
            assert sup._parts.ledger.snapshot(path).held.model_calls == 0


@pytest.mark.parametrize(
    ("reach", "conduct", "name"),
    [
        (batch, Conduct.IGNORES, "stuck (a:t1.1.0)"),
        (batch, Conduct.SWALLOWS, "stuck (a:t1.1.0)"),
        (batch, Conduct.THREAD, "stuck (a:t1.1.0)"),
        (streaming, Conduct.IGNORES, "a request of a to its model"),
        (waiting, Conduct.IGNORES, "stuck (a/kid:t1.1.0)"),
    ],
)
async def test_cls_4_what_still_runs_when_the_supervisor_is_left_is_named_with_its_stack(
    memory: World,
    autojump_clock: MockClock,
    capsys: pytest.CaptureFixture[str],
    reach: Reach,
    conduct: Conduct,
    name: str,
) -> None:
    """A close past its limits and the end of the `async with` hide nothing: name and place stand on standard error."""
    async with played(memory, reach, conduct) as scene:
        await scene.ref.close(grace=1)
        await scene.ref.wait_closed()
        if conduct is Conduct.THREAD:
            threading.Timer(0.2, scene.code.gate.set).start()  # a real thread: it needs real time to be found stuck
    told = capsys.readouterr().err
    assert name in told
    assert "test_stops.py" in told or "threading.py" in told
