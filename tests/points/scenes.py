"""Small whole lives: each a way through the product that a crash can cut anywhere, driven again from its beginning."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from actors import Agent, Budget, Child, Context, Hooks, Limits, StoreError, UsageError, call, tool
from actors.ids import run_id, tree_of, turn_id
from actors.messages import ReceiptState, Status
from actors.models.script import hang
from actors.pages import PIECE_KEY, READER, reference, scopes
from actors.transcript import MessageRecord, ResultRecord, ResultStatus
from tests.points.kit import (
    LONG,
    TOME,
    Person,
    Scene,
    aborts,
    chain,
    closes,
    compacts,
    dies,
    family,
    goes,
    lone,
    plays,
    poisoned,
    steers,
    talks,
    tools,
)
from tests.supervisor.promises.world import EVERY_STATE, said

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.changes import AgentRow
    from actors.hooks import Moment
    from actors.ports import ModelRequest
    from supervisor import Supervisor
    from supervisor.store.base import Store
    from tests.points.dying import Process
    from tests.points.outside import Outside

TREES: Final = 3
GRANTED: Final = 3
AT_FIRST: Final = 2


# -- agents ----------------------------------------------------------------------------------------------------------


class Counting(Hooks):
    """Hooks at every boundary; what one writes beside the end of a run counts the runs (HOK-3)."""

    def __init__(self, now: Callable[[], Process]) -> None:
        self._now = now

    async def before_run(self, at: Moment) -> None:
        """Begin a run."""
        await at.kv.run.set("begun", at.run)

    async def before_request(self, at: Moment) -> None:
        """Come before a request."""

    async def after_response(self, at: Moment) -> None:
        """Come behind a response."""

    async def settling(self, at: Moment) -> None:
        """Count a run that settles; where the store fails it does, it is not counted, and settles all the same."""
        try:
            runs = await at.kv.agent.get("runs", int, 0)
        except StoreError:
            self._now().outside.done.add(f"uncounted {at.run}")
            raise
        await at.kv.agent.set("runs", runs + 1)


def hooked(now: Callable[[], Process]) -> tuple[Agent, ...]:
    """One agent with hooks."""
    return (Agent("a", "Act.", tools=[tools(now)["act"]], hooks=Counting(now)),)


def bearing(now: Callable[[], Process]) -> tuple[Agent, ...]:
    """A lead whose `store` tool starts a child, which lands with its result or not at all."""
    made = tools(now)
    kid = Agent("kid", "Help.", tools=[made["act"]])

    @tool(effect="store")
    async def bear(ctx: Context) -> str:
        """Start a child."""
        await now().enter(ctx, "store")
        await ctx.start(kid, "help", background=True)
        await trio.sleep(0.1)
        now().passes("tool:exit")
        return "it was started"

    return (Agent("a", "Lead.", tools=[bear, made["act"]]), kid)


def sharing(now: Callable[[], Process]) -> tuple[Agent, ...]:
    """A lead and a child that share one budget."""
    kid = Agent("kid", "Help.", tools=[tools(now)["look"]])
    return (Agent("a", "Lead.", children=[Child(kid)], budget=Budget(model_calls=6, on_exhausted="fail")), kid)


# -- models ----------------------------------------------------------------------------------------------------------


def repeats(request: ModelRequest, _: Process) -> object:
    """Asks again for what ended with its outcome unknown."""
    last = request.window[-1]
    if isinstance(last, ResultRecord):
        return call("act") if last.status is ResultStatus.UNKNOWN else "fine"
    return call("act")


def reads(request: ModelRequest, _: Process) -> object:
    """Reads on in a result that was too long."""
    last = request.window[-1]
    if isinstance(last, MessageRecord):
        return call("tome")
    if not isinstance(last, ResultRecord) or (last.name == READER and last.status is ResultStatus.OK):
        return "fine"
    long = next(one for one in reversed(request.window) if isinstance(one, ResultRecord) and one.name == "tome")
    return call(READER, reference=reference(long.call), start=40_000)  # the store may have failed when it read


def spoils(request: ModelRequest, process: Process) -> object:
    """Dies of a message until somebody has put it back."""
    return "healed" if "put back" in process.outside.done else poisoned(request, process)


def kid_dies(request: ModelRequest, process: Process) -> object:
    """Hands on what kills whoever is asked for it."""
    last = request.window[-1]
    if isinstance(last, MessageRecord) and said(last.content) == "go":
        return call("kid", task="poison")
    return poisoned(request, process)


# -- people ----------------------------------------------------------------------------------------------------------


async def plants(person: Person, sup: Supervisor, spec: Agent) -> None:
    """Start several trees, which are taken side by side."""

    async def plant(number: int) -> None:
        ref = await sup.start(spec, "go", key=f"tree {number}")
        await ref.wait_idle()

    async with trio.open_nursery() as nursery:
        for number in range(TREES):
            nursery.start_soon(plant, number)


async def interrupts(person: Person, sup: Supervisor, spec: Agent) -> None:
    """Cut a call that waits for a child."""
    ref = await sup.start(spec, "go", key="scene")
    await trio.sleep(1)
    await person.steer(ref, "stop that", interrupt=True)
    await ref.wait_idle()


async def grants(person: Person, sup: Supervisor, spec: Agent) -> None:
    """Grant more whenever it is parked for want of budget."""
    ref = await sup.start(spec, "go", key="scene")
    while ref.path in await sup.store.agents_with_work():
        stored = await sup.store.load_agent(ref.path)
        if stored is not None and stored.row.suspended == "budget":
            person.outside.granted += GRANTED
            await sup.grant(ref, Budget(model_calls=GRANTED), by="an operator")
        await trio.sleep(1)


async def pauses(person: Person, sup: Supervisor, spec: Agent) -> None:
    """Pause it for a while."""
    ref = await sup.start(spec, "go", key="scene")
    await trio.sleep(1)
    await person.once("pause", ref.pause)
    await trio.sleep(5)
    person.outside.done.add("waking")
    await person.once("wake", ref.wake)
    await ref.wait_idle()


async def kills(person: Person, sup: Supervisor, spec: Agent) -> None:
    """Kill a tree whose child works."""
    ref = await sup.start(spec, "go", key="scene")
    await trio.sleep(1)
    await person.send(ref, "queued")
    await person.once("kill", ref.kill)
    await ref.wait_closed()


async def puts_back(person: Person, sup: Supervisor, spec: Agent) -> None:
    """Put back what has killed every process that touched it, now that it is harmless."""
    await dies(person, sup, spec)
    person.outside.done.add("put back")
    for letter in await sup.dead_letters():
        with suppress(UsageError):  # it waits again since
            await sup.put_back(letter.message, by="an operator")
    ref = await sup.start(spec, key="scene")
    await ref.wait_idle()


# -- what holds of one of them ---------------------------------------------------------------------------------------


async def _tree(store: Store) -> tuple[AgentRow, ...]:
    """The rows of the scene's only tree, its root first."""
    (root,) = await store.roots()
    return await store.tree_rows(tree_of(root.agent))


async def _results(store: Store, row: AgentRow, name: str) -> list[ResultRecord]:
    records = await store.read_records(row.agent)
    return [one for one in records if isinstance(one, ResultRecord) and one.name == name]


async def counted(store: Store, outside: Outside) -> list[str]:
    """Each run that settled was counted in the commit that settled it, and its own store is gone (HOK-3, HOK-4)."""
    (row,) = await _tree(store)
    kept = [one.value for one in await store.kv(row.agent, "agent") if one.key == "runs"]
    most, least = row.runs, row.runs - sum(name.startswith("uncounted") for name in outside.done)
    good = least <= int(kept[0]) <= most if kept else least == 0
    found = [] if good else [f"HOK-3: {most} runs settled, and {kept} were counted"]
    left = [number for number in range(1, row.runs + 1) if await store.kv(row.agent, run_id(row.agent, number))]
    return [*found, *(f"HOK-4: the store of run {number} outlived it" for number in left)]


async def born(store: Store, _: Outside) -> list[str]:
    """A `store` call that settled ok has one child, and no other has one (HOK-3)."""
    row, *kids = await _tree(store)
    good = sorted(one.call for one in await _results(store, row, "bear") if one.status is ResultStatus.OK)
    there = sorted(str(kid.started_by) for kid in kids)
    return [] if good == there else [f"HOK-3: calls {good} settled, and children are there of {there}"]


async def whole(store: Store, _: Outside) -> list[str]:
    """A result that is too long is kept whole, in as many pieces as it needs and no more, and was read (TOL-8)."""
    (row,) = await _tree(store)
    found = []
    good = [one.call for one in await _results(store, row, "tome") if one.status is ResultStatus.OK]
    if good != [one.call for one in row.kept]:
        found.append(f"TOL-8: {good} were too long, and {row.kept} are kept")
    for one in row.kept:
        pieces = [kv.value for scope in scopes(one) for kv in await store.kv(row.agent, scope) if kv.key == PIECE_KEY]
        if "".join(piece.strip('"') for piece in pieces) != TOME:
            found.append(f"TOL-8: of {one.call} {len(pieces)} pieces are kept, and they are not the whole")
    read = await _results(store, row, READER)
    if not any(one.status is ResultStatus.OK and "[characters 40,000 to" in said(one.content) for one in read):
        found.append(f"TOL-8: it could not be read: {read}")
    return found


async def stopped(store: Store, _: Outside) -> list[str]:
    """A child whose call was cut came to no answer of its own (SUP-4)."""
    row, *kids = await _tree(store)
    cut = {one.call for one in await _results(store, row, "kid") if one.status is ResultStatus.ABORTED}
    ends = [await store.outcome(turn_id(kid.agent, kid.turns)) for kid in kids if kid.started_by in cut and kid.turns]
    wrong = [end.outcome.status.value for end in ends if end is not None and end.outcome.status is not Status.ABORTED]
    return [f"SUP-4: the call was cut, and its child came to {wrong}"] if wrong else []


async def told(store: Store, _: Outside) -> list[str]:
    """The parent of a child that was given up read an error, or was given up itself (CON-6)."""
    row, *_kids = await _tree(store)
    status = [one.status for one in await _results(store, row, "kid")]
    dead = any(letter.agent == row.agent for letter in await store.dead_letters(row.agent))
    given_up = dead and status in ([], [ResultStatus.ABORTED])
    fits = given_up or status == [ResultStatus.ERROR]
    return [] if fits else [f"CON-6: the child died, and its parent read {status}"]


async def answered(store: Store, _: Outside) -> list[str]:
    """What was put back was answered (CON-6)."""
    (row,) = await _tree(store)
    states = {said(one.envelope.content): one.state for one in await store.messages(row.agent, EVERY_STATE)}
    wrong = {text: state for text, state in states.items() if text and state is not ReceiptState.CONSUMED}
    return [f"CON-6: it was put back, and {wrong}"] if wrong else []


SCENES: Final = (
    Scene("classes", lone("act", "mend", "look", "keep"),
          chain(call("act"), call("mend"), call("look"), call("keep")), goes),
    Scene("parallel", lone("act", "slow", "look"), chain([call("slow"), call("act"), call("look")]), goes),
    Scene("approval", lone("gated", "look"), chain([call("gated"), call("look")]), goes),
    Scene("steer", lone("slow"), chain(call("slow", seconds=3)), steers),
    Scene("compaction", lone(), plays(go=LONG, again=LONG), compacts),
    Scene("child", family(background=False), plays(go=call("kid", task="help"), help=call("act")), goes),
    Scene("background", family(background=True),
          plays(go=[call("kid", task="help"), call("act")], help=call("act")), goes),
    Scene("abort", lone("slow"), chain([call("slow", seconds=50), call("slow", seconds=60)]), aborts),
    Scene("hang", lone(), plays(go=("half", hang())), aborts),
    Scene("close", family(background=True),
          plays(go=call("kid", task="help"), help=call("slow", seconds=50)), closes),
    Scene("budget", lone("look", budget=Budget(model_calls=4, on_exhausted="fail")),
          chain(*(call("look") for _ in range(9))), goes, most=4),
    Scene("sends", lone("tell", "post"), chain(call("tell"), call("post")), talks),
    Scene("poison", lone(), poisoned, dies, kills=True),
    Scene("repeat", lone("act"), repeats, goes),
    Scene("trees", lone("act"), chain(call("act")), plants),
    Scene("cut", family(background=False),
          plays(go=[call("kid", task="help"), call("act")], help=call("slow", seconds=50)), interrupts, holds=stopped),
    Scene("parked", lone("look", budget=Budget(model_calls=AT_FIRST, on_exhausted="park")),
          chain(call("look"), call("look"), call("look")), grants, most=AT_FIRST),
    Scene("shared", sharing, chain(*(call("kid", task="go") for _ in range(9))), goes, most=6),
    Scene("pause", lone("slow", "look"), chain(call("slow", seconds=3), call("look")), pauses),
    Scene("kill", family(background=True),
          plays(go=call("kid", task="help"), help=call("slow", seconds=50)), kills),
    Scene("kept", lone("tome", limits=Limits(result_chars=1_000)), reads, goes, holds=whole),
    Scene("born", bearing, plays(go=call("bear"), help=call("act")), goes, holds=born),
    Scene("hooks", hooked, chain(call("act")), talks, holds=counted),
    Scene("kid dies", family(background=False), kid_dies, goes, kills=True, holds=told),
    Scene("put back", lone(), spoils, puts_back, kills=True, holds=answered),
)  # fmt: skip
