"""Turns that compact, for the tests of compaction in the turn's core."""

from __future__ import annotations

from typing import Any

from actors.compaction import CompactAsked, CompactionOver, Plan, Summarised
from actors.content import Trust
from actors.errors import ContextOverflow
from actors.inputs import Begin, Failed, Looked, Phase
from actors.transcript import Stop
from actors.usage import Amounts, Usage
from tests.actors.turnkit import SPENT, TOOLS, Drive, message, served

PLAN = Plan(3, 3, (0,), 4_000, Trust.WORKSPACE, 2)
OVERFLOW = ContextOverflow("too long", reason="context_overflow")


def asked(drive: Drive, *mail: Any, window: int | None = None) -> Drive:
    """A turn that was asked to compact, before its first request."""
    drive.give(Begin(drive.now))
    drive.give(CompactAsked(drive.now))
    look(drive, *mail or (message("m"),), window=window)
    return drive


def look(drive: Drive, *mail: Any, window: int | None = None, choice: Any = None) -> None:
    """Answer `Look`, with the model's context window."""
    drive.give(Looked(drive.now, mail, TOOLS, choice=choice, context_window=window))


def at_the_model(drive: Drive) -> Drive:
    """From Admit to the summary's request."""
    drive.admit()
    drive.look()
    assert drive.phase is Phase.COMPACTING
    return drive


def summary(drive: Drive, text: str = "in short", *, stop: Stop = Stop.END_TURN, plan: Plan = PLAN) -> None:
    """The summary comes."""
    drive.give(Summarised(drive.now, served(text, stop=stop), SPENT, plan, 5_000))


def over(drive: Drive) -> list[str | None]:
    """What those who wait for compactions were told, in all steps."""
    found = [action for action in drive.actions if isinstance(action, CompactionOver)]
    return [None if action.error is None else str(action.error) for action in found]


def overflowed() -> Drive:
    """A turn whose request was refused as too long."""
    drive = Drive().start()
    drive.give(Failed(drive.now, OVERFLOW, Usage(fresh=1), Amounts(cost=2)))
    return drive
