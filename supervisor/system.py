"""The composition root: the only place that builds concrete parts and hands them to each other."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import attrs
import sniffio
import trio

from actors.actor import Actor
from actors.agent import closure
from actors.budget import Budget
from actors.errors import CallboardError, InsideLoop, Unfinished, UsageError
from actors.frames import Frames
from actors.hooked import check_hooks
from actors.hooks import points_of
from actors.journal import EventJournal, JournalBound
from actors.running import Room, Runner
from actors.tools import is_number
from actors.usage import Price
from actors.watching import Board

from .approvals import Approvals
from .awaiting import Awaiting
from .budgets import turn_spec
from .calls import Calls
from .children import Children
from .closing import Closing
from .desk import SupervisorDesk
from .expiry import Expiry
from .front import Supervisor
from .gateway import Gateway
from .hooking import Hooking
from .kernel import Kernel
from .knots import Web
from .leaving import Leaving
from .ledger import Ledger
from .leftover import stuck, unwound
from .life import Life
from .models import Models
from .parts import Options, Parts
from .peers import Peers
from .post import Post
from .questions import Questions
from .replies import Replies
from .seconds import Seconds
from .services import Services
from .stages import Stages
from .standing import Standing
from .stopping import Stopping
from .stores import open_store
from .timekeeper import jumps, kept
from .waits import WaitGraph

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    import httpx

    from actors.agent import Agent, Child
    from actors.changes import AgentRow
    from actors.ids import AgentId
    from actors.models.spec import ModelSpec
    from actors.ports import Model
    from actors.reports import Report

    from .store.base import Store

ON_EXIT: Final = ("suspend", "finish", "close")


@asynccontextmanager
async def open_supervisor(
    *,
    model: str | Model | Sequence[str | Model] | None = None,
    store: str | os.PathLike[str] | Store | None = None,
    agents: Sequence[Agent | Child] = (),
    budget: Budget | None = None,
    prices: Mapping[str, Price] | None = None,
    on_exit: str | None = None,
    grace: float = 30.0,
    hard: float = 10.0,
    permits: int = 8,
    journal: JournalBound | None = None,
    hooks: object = None,
    inline: bool = False,
) -> AsyncIterator[Supervisor]:
    """Open a supervisor for the length of an `async with`.

    Args:
        model: what agents ask that name no model: a model, a string `protocol:name[@base_url]`, or a list to fall back
            along.
        store: None keeps everything in memory; a path is an SQLite file, made if it is not there; an opened `Store`
            stays its opener's to close, and outlives the supervisor.
        agents: the registry that stored agents are brought back with, with all their children.
        budget: above all trees together.
        prices: dollars per million tokens, by model name.
        on_exit: `suspend` (the default with a store), `finish` (the default in memory) or `close`.
        grace: seconds that turns have to end when it is left.
        hard: seconds from an abort to giving up.
        permits: requests to one model at once.
        journal: how much of what happened is kept in memory for watchers that come back.
        hooks: a `Hooks` around every agent's own, or None.
        inline: sync tools and the store run on this thread; for virtual clocks in tests. A path opened so is not looked
            at for what others write: what another supervisor sends there waits for the next owner.

    Raises:
        UsageError: contradictions, an unknown model string. StoreError: the store cannot be opened.

    If cancelled: it is left as at the end of the block; nothing keeps running (CLS-4).
    """
    _check_options(on_exit, journal, grace=grace, hard=hard)
    check_hooks(hooks, "hooks=")
    body: Exception | SystemExit | KeyboardInterrupt | None = None
    async with AsyncExitStack() as stack:
        models = Models(model, _model_builder(stack))
        registry = closure(agents)
        for known in registry.values():
            models.remember(known)
        spending = _spending(budget, prices, permits)  # what is wrong is said before a nursery could wrap it
        options = Options(
            models.default, models.resolve, grace, hard, durable=store is not None, journal=journal, hooks=hooks
        )
        opened = await stack.enter_async_context(open_store(store, inline=inline))
        async with trio.open_nursery() as tools, trio.open_nursery() as actors:
            parts = _assemble(
                opened, registry, spending=spending, nurseries=(tools, actors), options=options, inline=inline
            )
            mode = on_exit or ("finish" if store is None else "suspend")
            try:
                yield Supervisor(parts, models)
            except BaseException as error:  # noqa: ASYNC103 - what is not ours is told, not raised: our own cancellation goes on
                try:
                    await _leave(parts, "suspend" if store is not None else "abort", 0.0, hard)  # noqa: ASYNC102 - it is bounded where it waits, or does not wait at all
                except Exception as trouble:  # noqa: BLE001 - the body's own exception comes out, whatever happens here
                    error.add_note(f"callboard: leaving failed, too: {type(trouble).__name__}: {trouble}")
                if not isinstance(error, Exception | SystemExit | KeyboardInterrupt):
                    raise
                body = error  # raised below, where no nursery wraps it in a group
            else:
                try:
                    await _leave(parts, mode, grace, hard)
                except CallboardError as error:
                    body = error
    if body is not None:
        raise body


def _check_options(on_exit: object, journal: object, **times: object) -> None:
    if on_exit is not None and on_exit not in ON_EXIT:
        msg = f"on_exit= is one of {', '.join(ON_EXIT)}; got {on_exit!r}"
        raise UsageError(msg)
    for name, seconds in times.items():
        if not is_number(seconds) or not seconds >= 0:  # type: ignore[operator]  # a number
            msg = f"{name}= is seconds from 0 to 10^15; got {seconds!r}"
            raise UsageError(msg)
    if not isinstance(journal, JournalBound | None):
        msg = f"journal= is a JournalBound(events=..., size_bytes=...) or None; got {journal!r}"
        raise UsageError(msg)


def _model_builder(stack: AsyncExitStack) -> Callable[[ModelSpec], Model]:
    """Builds models of strings; the HTTP client is made with the first that needs it, and closed with the rest."""
    clients: list[httpx.AsyncClient] = []

    def build(spec: ModelSpec) -> Model:
        from actors.models.http_chat import open_chat_model  # noqa: PLC0415 - httpx costs a third of the import time
        from actors.models.http_transport import open_client  # noqa: PLC0415 - likewise

        if not clients:
            client = open_client()
            stack.push_async_callback(client.aclose)
            clients.append(client)
        key = next((os.environ[name] for name in spec.key_variables if os.environ.get(name)), None)
        return open_chat_model(spec, key=key, client=clients[0])

    return build


@attrs.frozen
class _Spending:
    """What bounds and prices the whole supervisor."""

    ledger: Ledger
    graph: WaitGraph
    gateway: Gateway


@attrs.frozen
class _Waiting:
    """Who waits for whom, and whose code is whose, in one Trio run: agents of several supervisors may form a ring."""

    web: Web = attrs.field(factory=Web)
    frames: Frames = attrs.field(init=False)

    @frames.default
    def _frames(self) -> Frames:
        return Frames(self.web.leave)


_WAITING: Final[trio.lowlevel.RunVar[_Waiting]] = trio.lowlevel.RunVar("callboard_waiting")
"""A key, like a context variable: what it names belongs to the Trio run, and ends with it."""


def _waiting() -> _Waiting:
    """This run's; made by the first supervisor that is opened in it."""
    try:
        return _WAITING.get()
    except LookupError:
        _WAITING.set(waiting := _Waiting())
        return waiting


def _spending(budget: object, prices: Mapping[str, Price] | None, permits: object) -> _Spending:
    if budget is not None and not isinstance(budget, Budget):
        msg = f"budget= is a Budget or None; got {budget!r}"
        raise UsageError(msg)
    if not isinstance(permits, int) or isinstance(permits, bool):
        msg = f"permits= is a whole number from 1; got {permits!r}"
        raise UsageError(msg)
    if prices is not None and not _are_prices(prices):
        msg = f"prices= is a dict such as {{'gpt-5-mini': Price(input='0.25', output='2.00')}}; got {prices!r}"
        raise UsageError(msg)
    ledger, graph = Ledger(budget), WaitGraph(_waiting().web)
    now = trio.lowlevel.current_clock().current_time
    gateway = Gateway(ledger, prices=prices, permits=permits, waits=graph, clock=now)
    return _Spending(ledger, graph, gateway)


def _are_prices(prices: object) -> bool:
    return isinstance(prices, Mapping) and all(isinstance(price, Price) for price in prices.values())


def _assemble(
    store: Store,
    registry: Mapping[str, Agent],
    *,
    spending: _Spending,
    nurseries: tuple[trio.Nursery, trio.Nursery],
    options: Options,
    inline: bool,
) -> Parts:
    (tools, actors), ledger, graph, gateway = nurseries, spending.ledger, spending.graph, spending.gateway
    graph.place, frames = store.id, _waiting().frames
    replies = Replies(graph, frames)
    now = trio.lowlevel.current_clock().current_time
    board = Board(now, EventJournal(secrets.token_hex(4), options.journal))
    kernel = Kernel(
        store=store,
        ledger=ledger,
        board=board,
        frames=frames,
        replies=replies,
        registry=dict(registry),
        nursery=actors,
        token=board.journal.token,
        now=now,
        hard_s=options.hard_s,
        wall=now if inline else time.time,  # under a virtual clock the time of day is virtual, too
    )
    parts = Parts(
        kernel=kernel,
        ledger=ledger,
        gateway=gateway,
        board=board,
        frames=frames,
        graph=graph,
        replies=replies,
        runner=Runner(tools, frames, inline=inline),
        options=options,
        actors_nursery=actors,
        tools_nursery=tools,
        timed=inline or not jumps(trio.lowlevel.current_clock()),
    )
    parts.post = Post(parts)
    parts.children, parts.awaiting, parts.questions = Children(parts), Awaiting(parts), Questions(parts)
    stopping = parts.stopping = Stopping(parts)
    parts.closing, parts.exits = Closing(parts, stopping), Leaving(parts, stopping)
    parts.desk = SupervisorDesk(parts)
    standing = parts.standing = Standing(parts)
    approvals = parts.approvals = Approvals(parts)

    def adopted(actor: Actor) -> None:
        approvals.adopt(actor)
        standing.look(actor.path)

    kernel.make_actor = lambda agent, row: _make_actor(parts, agent, row)
    kernel.adopted = adopted
    kernel.mirror.mortal = Expiry(parts).watch
    Peers(parts).start()
    graph.watch(lambda path: _waited_for(parts, path))
    graph.watch(standing.awaited)
    parts.stages, parts.seconds = Stages(parts), Seconds(parts)
    gateway.watch_spending(parts.stages.spent)
    return parts


def _waited_for(parts: Parts, path: AgentId) -> None:
    """Somebody begins to wait for this agent: while we leave, it may begin a turn for that."""
    if parts.leaving is not None:
        if (actor := parts.kernel.actors.get(path)) is not None:
            actor.wake()
        parts.stopping.moved()


def _make_actor(parts: Parts, agent: Agent, row: AgentRow) -> Actor:
    calls = Calls(parts, row.agent, Room(agent.limits.result_chars, agent.limits.kept_chars))
    hooking = Hooking(parts, agent, row.agent, calls)
    services = Services(parts, agent, row.agent, calls, hooking)
    calls.tell = services.tell
    hooking.bind(services.open_row, services.tell, services.toolbox)
    life = parts.lives[row.agent] = Life(parts, services, calls, hooking)
    hooks = points_of(parts.options.hooks, agent.hooks)
    spec = turn_spec(agent, row, hooks, kept(agent.limits, timed=parts.timed))
    actor = Actor(agent, row, life, spec)
    services.bind(actor)
    return actor


async def _leave(parts: Parts, mode: str, grace_s: float, hard_s: float) -> None:
    """Leave as asked, in bounded time, and hide nothing that still runs (CLS-4, CLS-5)."""
    try:
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + grace_s + 2 * hard_s + 1
            await parts.exits.leave(mode, grace_s, hard_s)
            await unwound(parts, hard_s)
    finally:
        await parts.kernel.ownership.give_back(hard_s)  # noqa: ASYNC102 - it is bounded where it waits, or does not wait at all
        parts.left = True
        parts.board.end()
        parts.approvals.end()
        parts.replies.fail_all(Unfinished("the supervisor was left; with a store, resume() goes on"))
        left = stuck(parts)
        for nursery in (parts.actors_nursery, parts.tools_nursery):
            nursery.cancel_scope.cancel()
    if left:
        sys.stderr.write("callboard: still running when the supervisor was left:\n" + "\n".join(left) + "\n")


def run_sync(agent: Agent, task: object, **options: object) -> Report:
    """Run an agent from code without an event loop.

    Args:
        agent: which.
        task: what it is asked.
        **options: of `open_supervisor`; `key` goes to `run`.

    Raises:
        InsideLoop: an event loop runs in this thread: `await sup.run(...)` there instead.
    """
    try:
        library = sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        pass
    else:
        msg = f"run_sync() was called inside a {library} event loop; " + (
            "use: async with open_supervisor(...) as sup: await sup.run(...)"
            if library == "trio"
            else "call it from a thread: await asyncio.to_thread(run_sync, agent, task)"
        )
        raise InsideLoop(msg)
    key = options.pop("key", None)

    async def main() -> Report:
        async with open_supervisor(**options) as sup:  # type: ignore[arg-type]  # checked by open_supervisor
            return await sup.run(agent, task, key=key)  # type: ignore[arg-type]  # checked by run

    return trio.run(main)
