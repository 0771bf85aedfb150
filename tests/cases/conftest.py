"""Fixtures of the cases: the kit of the promises' tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.supervisor.promises.world import World

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of store."""
    kind: str = request.param
    return kind


@pytest.fixture
def world(kind: str, tmp_path: Path) -> World:
    """A store of either kind, which outlives supervisors."""
    return World(kind, tmp_path)


@pytest.fixture
def memory(tmp_path: Path) -> World:
    """A store in memory, where which store it is does not matter."""
    return World("memory", tmp_path)
