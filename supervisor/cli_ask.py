"""Asks the person at the terminal whether a call may run (TOL-12). All of its arguments are shown, none cut short."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from actors.errors import UsageError

from .screen_words import clean, clean_lines

if TYPE_CHECKING:
    from . import Approval, Supervisor
    from .screen_live import Screen

BY: Final = "the terminal"
SHOWN_S: Final = 0.2
"""How long what led to the question may take to be shown before it."""
AGAIN: Final = "Please answer y, n, or n and why: "


def can_ask() -> bool:
    """Whether a person sits there: lines can be read, and are shown."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def question(request: Approval) -> str:
    """What a person is asked."""
    lines = [f"{clean(request.path)} asks to run {clean(request.tool)}"]
    if request.reason == "repeat":
        lines[0] += ", which ran before with its outcome unknown"
    for name, value in request.arguments.items():
        first, *more = clean_lines(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        lines += [f"  {clean(name)}: {first}", *(f"    {line}" for line in more)]
    return "\n".join([*lines, "Run it? [y/n, or n and why] "])


def verdict(answer: str) -> tuple[bool, str] | None:
    """What an answer means: whether it may run, and what the model is told; None where it means nothing."""
    word, _, why = answer.strip().partition(" ")
    match word.lower():
        case "y" | "yes":
            return (True, "") if not why else None
        case "n" | "no":
            return False, why.strip()
        case _:
            return None


async def ask_on_terminal(sup: Supervisor, screen: Screen) -> None:
    """Ask about each request, one after another; without an answer (Ctrl-D) ask no more, so that the run parks."""
    async with sup.approvals() as inbox:
        async for request in inbox:
            await trio.sleep(SHOWN_S)
            answer = await screen.ask(question(request))
            while answer is not None and (meant := verdict(answer)) is None:
                answer = await screen.ask(AGAIN)
            if answer is None or meant is None:
                return
            await _decide(request, *meant)


async def _decide(request: Approval, runs: bool, why: str) -> None:  # noqa: FBT001 - as `verdict` gives it
    with suppress(UsageError):  # it expired, or its turn was aborted, while the question stood
        await (request.approve(by=BY) if runs else request.deny(why, by=BY))
