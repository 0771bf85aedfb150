"""A whole life of a small tree, which tests cut off at every point, and what must hold afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors import Agent, Context, Script, call, tool
from actors.ids import MessageId
from actors.messages import Lane, ReceiptState
from actors.models.script import hang
from actors.transcript import MessageRecord, ResultRecord
from tests.supervisor.promises.world import EVERY_STATE, check, said

if TYPE_CHECKING:
    from actors.ports import ModelRequest
    from supervisor import AgentRef, Receipt, Supervisor
    from supervisor.store.base import Reader

HANG: Final = "hang"


@attrs.define
class Life:
    """What a test knows of a life, whatever becomes of it.

    Attributes:
        accepted: messages whose acceptance was returned. ran: ids of `once` calls, at each run.
        hangs: the model hangs where it is asked to.
    """

    accepted: list[MessageId] = attrs.field(factory=list)
    ran: list[str] = attrs.field(factory=list)
    hangs: bool = True
    lead: Agent = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the agents; their tools write into this life."""

        @tool(effect="once")
        async def act(ctx: Context) -> str:
            """Act outside, once."""
            self.ran.append(ctx.call_id)
            await trio.sleep(0.1)
            return "acted"

        @tool(effect="pure")
        async def look() -> str:
            """Look."""
            await trio.sleep(0.1)
            return "looked"

        kid = Agent("kid", "Help.", tools=[act])
        self.lead = Agent("lead", "Lead.", tools=[act, look], children=[kid])

    async def live(self, sup: Supervisor) -> None:
        """Start, call tools, ask a child, be steered, be aborted, go on, close."""
        ref = await sup.start(self.lead, "work", key="life")
        self.took(await ref.steer("mind the gap"))
        more = self.took(await ref.send("more"))
        await more.wait_report()
        self.took(await ref.send(HANG))
        self.took(await ref.send("held"))
        await trio.sleep(1)
        await ref.abort("enough")
        await ref.wait_aborted()
        self.took(await ref.send("after"))
        await ref.wait_idle()
        await ref.close(grace=5)
        await ref.wait_closed()

    def took(self, receipt: Receipt) -> Receipt:
        """An acceptance was returned."""
        self.accepted.append(receipt.id)
        return receipt


def model(life: Life) -> Script:
    """Answers what it is asked last; asked to hang, it does, if it may."""

    def lead(request: ModelRequest) -> object:
        last = request.window[-1]
        if not isinstance(last, MessageRecord):
            return "answer"
        match said(last.content):
            case "work":
                return [call("act"), call("kid", task="help"), call("look")]
            case "hang" if life.hangs:
                return ("half", hang())
            case _:
                return "answer"

    def kid(request: ModelRequest) -> object:
        return call("act") if not any(isinstance(record, ResultRecord) for record in request.window) else "helped"

    return Script({"lead": lead, "kid": kid})


async def hold(store: Reader, life: Life) -> None:
    """What holds after a life that was cut off anywhere, before anybody went on with it."""
    await check(store)
    await in_order(store)
    assert len(set(life.ran)) == len(life.ran), f"a `once` call ran twice: {life.ran}"
    for message in life.accepted:
        view = await store.message_state(message)
        assert view is not None, f"the accepted message {message} is lost"
        assert view.state in EVERY_STATE


async def in_order(store: Reader) -> None:
    """Each lane was consumed in its order of acceptance (ACC-4)."""
    for root in await store.roots():
        for row in await store.tree_rows(root.agent):  # type: ignore[arg-type]  # a root's path is its tree's id
            entered = [r.message for r in await store.read_records(row.agent) if isinstance(r, MessageRecord)]
            place = {message: index for index, message in enumerate(entered)}
            queued = await store.messages(row.agent, (ReceiptState.CONSUMED,))
            for lane in (Lane.STEER, Lane.SEND):
                places = [place[one.envelope.id] for one in queued if one.envelope.lane is lane]
                assert places == sorted(places), (row.agent, lane, entered)


async def go_on(sup: Supervisor, life: Life) -> None:
    """The next owner goes on until nothing is owed; all that was accepted has come to its end."""
    life.hangs = False
    refs: tuple[AgentRef, ...] = await sup.resume()
    with trio.fail_after(1_000):
        for ref in refs:
            await ref.wait_idle()
        while await sup.store.agents_with_work():  # noqa: ASYNC110 - a store has no event
            await trio.sleep(1)
    await hold(sup.store, life)
    for message in life.accepted:
        view = await sup.store.message_state(message)
        assert view is not None
        assert view.state is not ReceiptState.QUEUED, view
    for row in await sup.tree():
        assert row.open is None, f"{row.agent} was left with an open turn"
        if row.agent in sup._parts.kernel.actors:
            assert sup._parts.ledger.snapshot(row.agent).held.model_calls == 0
    assert sup._parts.graph.statistics().open == 0
