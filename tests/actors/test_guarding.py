"""The guard around foreign code."""

from __future__ import annotations

import pytest
import trio

from actors.errors import Rejected
from actors.guarding import goes_on, safely_told, speaks


class Mute(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise SystemExit("no text")


class MuteRejected(Rejected):
    """A provider's error whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("x"), "ValueError: x"),
        (ValueError(), "ValueError"),
        (Mute(), "Mute"),
        (ValueError("bad \udcff"), "ValueError: bad ?"),
        (SystemExit(3), "SystemExit: 3"),
        (ExceptionGroup("g", [KeyError("k")]), "KeyError: 'k'"),
        (BaseExceptionGroup("g", [Mute(), ExceptionGroup("h", [ValueError("v")])]), "Mute; ValueError: v"),
    ],
)
def test_any_exception_is_told_in_a_text_that_can_be_stored(error: BaseException, told: str) -> None:
    """Whatever its `__str__` does, and whatever its text holds."""
    assert safely_told(error) == told
    assert safely_told(error).encode()


def test_an_error_whose_text_raises_or_cannot_be_stored_does_not_speak() -> None:
    """Others may format an error only where that works."""
    assert speaks(Rejected("no key"))
    assert not speaks(MuteRejected("no key"))
    assert not speaks(Rejected("\udcff"))


async def stale() -> trio.Cancelled:
    """A cancellation of a scope that is closed."""
    found: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep(1)
        except trio.Cancelled as error:
            found.append(error)
            raise
    return found[0]


async def test_a_cancellation_goes_on_only_while_one_is_in_force() -> None:
    """A stray `Cancelled`, alone or in a group, is an error like others; with anything beside it, it always is."""
    error = await stale()
    alone, mixed = BaseExceptionGroup("g", [error]), BaseExceptionGroup("g", [error, ValueError("v")])
    assert not goes_on(error)
    assert not goes_on(alone)
    assert not goes_on(mixed)
    assert safely_told(mixed) == "a stray cancellation: none was in force; ValueError: v"
    with trio.CancelScope() as scope:
        scope.cancel()
        assert goes_on(error)
        assert goes_on(alone)
        assert not goes_on(mixed)
        assert not goes_on(SystemExit(1))
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught


async def test_an_interrupt_goes_on_wherever_it_stands() -> None:
    """Ctrl-C is nobody's data."""
    assert goes_on(KeyboardInterrupt())
    assert goes_on(BaseExceptionGroup("g", [ValueError("v"), BaseExceptionGroup("h", [KeyboardInterrupt()])]))
    assert not goes_on(GeneratorExit())
