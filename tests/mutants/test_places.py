"""Mutants follow the code: each has its place, once, and is a program."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.life.mutants import MUTANTS as LIFE
from tests.life.mutants import SHARED
from tests.mutants.place import Mutant
from tests.points.mutants import MUTANTS as POINTS
from tests.processes.mutants import MUTANTS as PROCESSES

if TYPE_CHECKING:
    import pytest


def core(monkeypatch: pytest.MonkeyPatch) -> tuple[Mutant, ...]:
    """Those of the core, whose lists are read as their script reads them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    for name in ("approvals", "core", "place", "values"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import approvals  # type: ignore[import-not-found]  # noqa: PLC0415 - as above
    import core  # type: ignore[import-not-found]  # noqa: PLC0415 - likewise
    import values  # type: ignore[import-not-found]  # noqa: PLC0415 - likewise

    return tuple(Mutant(*one) for one in (*core.MUTANTS, *approvals.MUTANTS, *values.MUTANTS))


def test_every_mutant_has_its_place_and_is_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose place is gone kills nothing, and one that does not parse is killed by nothing that it says."""
    mutants = (*core(monkeypatch), *LIFE, *SHARED, *POINTS, *PROCESSES)
    assert len(mutants) > 300
    wrong = [f"{one.breaks} ({one.file}): {found}" for one in mutants if (found := one.wrong())]
    for one in mutants:
        try:
            ast.parse(one.text())
        except SyntaxError as error:
            wrong.append(f"{one.breaks} ({one.file}): {error}")
    assert not wrong, "\n".join(wrong)


def test_a_place_that_is_gone_or_there_twice_is_told() -> None:
    """In words that say which."""
    file = "actors/mailbox.py"
    assert Mutant("x", file, "no such line", "").wrong() == "its place is gone"
    assert "times" in (Mutant("x", file, "self", "").wrong() or "")
    assert Mutant("x", file, "class Mailbox:", "").wrong() is None
