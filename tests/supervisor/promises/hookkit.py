"""Hooks for the tests of hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors import Hooks, tool

if TYPE_CHECKING:
    from actors.hooks import Moment
    from actors.reports import Report


@tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


class Logs(Hooks):
    """Writes down which of its methods is called, with run and turn."""

    def __init__(self, name: str = "", log: list[str] | None = None) -> None:
        self._name = name
        self.log = [] if log is None else log

    def _note(self, at: Moment, point: str) -> None:
        self.log.append(f"{self._name}{point} {at.run}.{at.turn}")

    async def instructions(self, at: Moment) -> str | None:
        self._note(at, "instructions")
        return None

    async def before_run(self, at: Moment) -> None:
        self._note(at, "before_run")

    async def before_turn(self, at: Moment) -> None:
        self._note(at, "before_turn")

    async def before_request(self, at: Moment) -> None:
        self._note(at, "before_request")

    async def after_response(self, at: Moment) -> None:
        assert at.response is not None
        self._note(at, "after_response")

    async def after_turn(self, at: Moment, report: Report) -> None:
        self._note(at, f"after_turn({report.status})")

    async def after_run(self, at: Moment, report: Report) -> None:
        self._note(at, f"after_run({report.text})")

    async def settled(self, at: Moment) -> None:
        self._note(at, "settled")
