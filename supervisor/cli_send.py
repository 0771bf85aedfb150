"""`callboard send` and `callboard steer`: a message to an agent of a store, whoever runs its tree."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors.changes import ChangeSet, Enqueue, Placed
from actors.content import Text
from actors.errors import UsageError
from actors.ids import AgentId, MessageId, tree_of
from actors.messages import Envelope, Lane, LaneBound, ReceiptState, Status

from . import cli_exit as codes
from .show import unknown_agent
from .store.leases import described
from .stores import open_store

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


def add_message(parser: argparse.ArgumentParser, *, steers: bool) -> None:
    """Add what a message needs to the command line."""
    parser.add_argument("store", metavar="STORE", help="the file that --store named; it may be in use")
    parser.add_argument("path", metavar="PATH", help="the agent, such as lead/reviewer#2")
    parser.add_argument("text", metavar="TEXT", help="what it is told; - reads it from standard input")
    parser.add_argument("--key", help="the same key again is the same message: it is accepted once")
    parser.add_argument(
        "--wait", nargs="?", const="", metavar="SECONDS", help="wait for the report of the run that takes it in"
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
    lane = Lane.STEER if args.command == "steer" else Lane.SEND
    interrupt = lane is Lane.STEER and args.interrupt
    return Message(args.store, AgentId(args.path.strip("/")), text, lane, interrupt, args.key, wait_s)


def send(message: Message) -> int:
    """Send it, and wait for the report where that is asked for.

    Returns:
        The exit code: 0, or that of the report.

    Raises:
        UsageError: no such store or agent. MailboxError: the agent does not take it. StoreError.
    """
    if "://" not in message.store and not Path(message.store).is_file():
        raise UsageError(f"there is no store {message.store!r}; name the file that --store named")
    outcome = trio.run(_send, message)
    if outcome is None:
        return codes.DONE
    if outcome.text:
        sys.stdout.write(outcome.text + "\n")
    if outcome.status is not Status.DONE:
        why = f": {outcome.failure.message}" if outcome.failure is not None else ""
        sys.stderr.write(f"callboard: {outcome.path} {outcome.status.value.replace('_', ' ')}{why}\n")
    return codes.code_of_outcome(outcome)


async def _send(message: Message) -> Outcome | None:
    async with open_store(message.store, inline=False) as store:
        await unknown_agent(store, message.agent, message.store)
        sent = await _accepted(store, message)
        sys.stderr.write(f"callboard: accepted as {sent}; {await _by_whom(store, message)}\n")
        sys.stderr.flush()
        if message.wait_s == 0.0:
            return None
        with trio.move_on_after(float("inf") if message.wait_s is None else message.wait_s):
            return await _reply(store, sent)
        raise UsageError(f"no report of {sent} within {message.wait_s:g} s; it stays accepted, and is answered later")


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


async def _by_whom(store: Store, message: Message) -> str:
    lease = await store.lease(tree_of(message.agent))
    if lease is None:
        waits = "; waiting for that (Ctrl-C leaves the message there)" if message.wait_s != 0.0 else ""
        return f"no process runs this tree now: it waits for the next run with this store and --resume{waits}"
    return f"{described(lease.holder)} runs this tree"


async def _reply(store: Reader, message: MessageId) -> Outcome:
    """The outcome of the run that took the message in."""
    while True:
        view = await store.message_state(message)
        row = None if view is None or view.turn is None else await store.outcome(view.turn)
        if row is not None:
            return row.outcome
        if view is not None and view.state in {ReceiptState.DEAD, ReceiptState.WITHDRAWN}:
            raise UsageError(f"{message} will have no report: it is {view.state.value} ({view.reason or 'taken back'})")
        await trio.sleep(POLL_S)
