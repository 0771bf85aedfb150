"""Budgets as people write them: what cannot be meant is refused where it is written."""

from __future__ import annotations

import math

import pytest

from actors import Budget
from actors.errors import UsageError


@pytest.mark.parametrize("seconds", [math.inf, math.nan, -1, "5", True, [1], 10**400, 1e308])
def test_seconds_are_a_finite_number(seconds: object) -> None:
    """No limit is None; everything that is no finite number from 0 is refused, with the way to say it."""
    with pytest.raises(UsageError, match="None for no limit"):
        Budget(seconds=seconds)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("share", ["0.5", None, math.nan, 2])
def test_shares_are_numbers_from_0_to_1(share: object) -> None:
    """A stage is a share of a limit."""
    with pytest.raises(UsageError, match="soft <= critical"):
        Budget(soft=share)  # type: ignore[arg-type]  # that is the point
