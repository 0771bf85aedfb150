"""`callboard send` and `callboard steer`: a message to an agent of a store, whoever runs its tree."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors.changes import ChangeSet, Enqueue, Placed
from actors.content import Text
from actors.errors import UsageError
from actors.ids import AgentId, MessageId, tree_of
from actors.messages import Envelope, Lane, LaneBound, ReceiptState, Status
from actors.parking import BUDGET
from actors.usage import MOST

from . import cli_exit as codes
from .cause import dead_error
from .show import unknown_agent
from .standstill import causes_of
from .store.leases import described
from .stores import existing_store, open_store

if TYPE_CHECKING:
    import argparse

    from actors.messages import Outcome

    from .store.base import Reader, Store

POLL_S: Final = 0.1


@attrs.frozen
class Message:
    """What the command line says. `wait_s`: seconds to wait for the report; 0: not at all; None: for ever."""

    store: str
    agent: AgentId
    text: str
    lane: Lane
    interrupt: bool = False
    key: str | None = None
    wait_s: float | None = 0.0


@attrs.frozen
class Parked:
    """The agent stands still before it has answered. `why`: in words. `exhausted`: for more budget, for no person."""

    why: str
    exhausted: bool


def add_message(parser: argparse.ArgumentParser, *, steers: bool) -> None:
    """Add what a message needs to the command line."""
    parser.add_argument("store", metavar="STORE", help="the file that --store named; it may be in use")
    parser.add_argument("path", metavar="PATH", help="the agent, such as lead/reviewer#2")
    parser.add_argument("text", metavar="TEXT", help="what it is told; - reads it from standard input")
    parser.add_argument("--key", help="the same key again is the same message: it is accepted once")
    parser.add_argument(
        "--wait",
        nargs="?",
        const="",
        metavar="SECONDS",
        help="wait for the report of the run that takes it in; it ends with 6 where that waits for a person, and with 7"
        " where there is none within SECONDS",
    )
    if steers:
        parser.add_argument("--interrupt", action="store_true", help="cut the response and the calls under way for it")


def message_of(args: argparse.Namespace) -> Message:
    """What was parsed, as a message.

    Raises:
        UsageError: the time to wait is none, or the text is empty.
    """
    text = sys.stdin.read() if args.text == "-" else args.text
    if not text.strip():
        raise UsageError("a message says something: give TEXT, or - and the text on standard input")
    try:
        wait_s = 0.0 if args.wait is None else float(args.wait) if args.wait else None
    except ValueError as error:
        raise UsageError(f"--wait takes seconds, such as 60, or nothing; got {args.wait!r}") from error
    if wait_s is not None and not 0 <= wait_s <= MOST:
        raise UsageError(f"--wait takes seconds from 0, or nothing for as long as it takes; got {args.wait!r}")
    lane = Lane.STEER if args.command == "steer" else Lane.SEND
    interrupt = lane is Lane.STEER and args.interrupt
    return Message(args.store, AgentId(args.path.strip("/")), text, lane, interrupt, args.key, wait_s)


def send(message: Message) -> int:
    """Send it, and wait for the report where that is asked for.

    Returns:
        The exit code: 0, or that of the report.

    Raises:
        UnknownPath: no such agent. MailboxError: the agent does not take it, or will not answer it.
        Unheard: no report within the time to wait. StoreError: no such store, or it cannot be used.
    """
    existing_store(message.store)
    outcome = trio.run(_send, message)
    if outcome is None:
        return codes.DONE
    if isinstance(outcome, Parked):
        _tell(f"{message.agent} is parked: {outcome.why}", "what you sent stays accepted, and is answered then")
        return codes.EXHAUSTED if outcome.exhausted else codes.PARKED
    if outcome.text:
        sys.stdout.write(outcome.text + "\n")
    if outcome.status is not Status.DONE:
        why = f": {outcome.failure.message}" if outcome.failure is not None else ""
        _tell(f"{outcome.path} {outcome.status.value.replace('_', ' ')}{why}")
    return codes.code_of_outcome(outcome)


def _tell(*lines: str) -> None:
    """Say it on standard error, the lines behind the first below it."""
    sys.stderr.write("callboard: " + "\n  ".join(lines) + "\n")
    sys.stderr.flush()


async def _send(message: Message) -> Outcome | Parked | None:
    async with open_store(message.store, inline=False) as store:
        await unknown_agent(store, message.agent, message.store)
        sent = await _accepted(store, message)
        _tell(f"accepted as {sent}", *await _by_whom(store, message))
        if message.wait_s == 0.0:
            return None
        with trio.move_on_after(float("inf") if message.wait_s is None else message.wait_s):
            return await _reply(store, message.agent, sent)
        raise codes.Unheard(
            f"no report of {sent} within {message.wait_s:g} s\n  it stays accepted, and is answered later"
        )


async def _accepted(store: Store, message: Message) -> MessageId:
    """Have it accepted, as any process may (SUP-6). Durable: the message, on return."""
    envelope = Envelope(
        id=MessageId(f"m-{secrets.token_hex(8)}"),
        to=message.agent,
        lane=message.lane,
        content=(Text(message.text),),
        key=message.key,
        interrupt=message.interrupt,
    )
    enqueue = Enqueue(envelope, LaneBound())
    (placed,) = await store.commit(ChangeSet(tree_of(message.agent), None, (enqueue,)))
    assert isinstance(placed, Placed), "Enqueue returns the place"
    return placed.message


async def _by_whom(store: Store, message: Message) -> tuple[str, ...]:
    """Who will answer it, in lines of at most 80 cells where names are short."""
    lease = await store.lease(tree_of(message.agent))
    if lease is not None:
        return (f"{described(lease.holder)} runs this tree",)
    waits = ("waiting for that (Ctrl-C leaves the message there)",) if message.wait_s != 0.0 else ()
    return (
        "no process runs this tree now: it waits for the next that goes on with it,",
        "by `callboard run FILE.py --store ... --resume`, or by sup.resume() in Python",
        *waits,
    )


async def _reply(store: Reader, agent: AgentId, message: MessageId) -> Outcome | Parked:
    """The outcome of the run that took the message in, or that it waits for a person (TOL-12)."""
    while True:
        stored = await store.load_agent(agent)
        causes = {} if stored is None else await causes_of(store, stored)
        view = await store.message_state(message)  # read behind the causes: an answer counts for more
        row = None if view is None or view.turn is None else await store.outcome(view.turn)
        if row is not None:
            return row.outcome
        if view is not None and view.state is ReceiptState.DEAD:
            raise dead_error(message, view.agent, view.reason or "")
        if view is not None and view.state is ReceiptState.WITHDRAWN:
            raise UsageError(f"{message} will have no report: it was taken back")
        if causes:
            reasons, words = zip(*(causes[path] for path in sorted(causes)), strict=True)
            return Parked("; ".join(words), exhausted=set(reasons) == {BUDGET})
        await trio.sleep(POLL_S)
