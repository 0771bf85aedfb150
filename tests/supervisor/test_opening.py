"""How a supervisor is opened and left: wrong options are said in words, and what the body raised comes out as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Agent, Budget, Hooks, Limits, Script, UsageError, tool
from actors.usage import Price
from supervisor import open_supervisor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HUGE = 10**400


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"agents": Agent("lead")}, "agents= takes a list of agents"),
        ({"agents": None}, "agents= takes a list of agents"),
        ({"agents": "lead"}, "agents= takes a list of agents"),
        ({"prices": [Price("1", "1")]}, "prices= is a dict such as"),
        ({"prices": {"m": "0.25"}}, "prices= is a dict such as"),
        ({"model": 3}, "model= is 'protocol:name', a model, or a list"),
        ({"model": ["script", None]}, "model"),
        ({"store": 3}, "store= is the path of an SQLite file"),
        ({"store": b"agents.db"}, "store= is the path of an SQLite file"),
        ({"journal": 100}, r"journal= is a JournalBound\("),
        ({"grace": HUGE}, "grace= is seconds from 0 to 10"),
        ({"hard": 1e300}, "hard= is seconds from 0 to 10"),
    ],
    ids=lambda found: next(iter(found)) if isinstance(found, dict) else "",
)
async def test_wrong_options_are_said_in_words(option: dict[str, Any], told: str) -> None:
    """An option that is none of what it takes is a plain `UsageError`, not a group of what it led to."""
    with pytest.raises(UsageError, match=told):
        async with open_supervisor(**{"model": Script({}), **option}):
            pytest.fail("it was opened")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Budget(tokens=HUGE),
        lambda: Budget(seconds=HUGE),
        lambda: Budget(seconds=1e308),
        lambda: Budget(usd=HUGE),
        lambda: Budget(usd="1e4000"),
        lambda: Limits(turn_s=HUGE),
        lambda: Limits(first_event_s=HUGE),
        lambda: Price(HUGE, "1"),
        lambda: tool(timeout=HUGE)(trio.sleep),
    ],
)
def test_numbers_that_cannot_be_reckoned_with_are_refused_where_they_are_written(make: Callable[[], object]) -> None:
    """What no float can hold is refused at once: it would fail a start, or crash a loop, when it is met."""
    with pytest.raises(UsageError, match=r"10\^15|seconds above 0"):
        make()


@pytest.mark.parametrize("raised", [ValueError("mine"), SystemExit(4), KeyboardInterrupt()])
@pytest.mark.parametrize("store", [False, True], ids=["memory", "sqlite"])
async def test_what_the_body_raises_comes_out_as_it_is(
    tmp_path: Path, raised: BaseException, *, store: bool, autojump_clock: trio.abc.Clock
) -> None:
    """`sys.exit(4)` in the body ends the program with 4: no nursery of ours stands around it."""
    place = tmp_path / "agents.db" if store else None

    async def program() -> None:
        async with open_supervisor(model=Script({"lead": lambda _: "ok"}), store=place, inline=True) as sup:
            await sup.run(Agent("lead"), "go")
            raise raised

    with pytest.raises(type(raised)) as caught:
        await program()
    assert caught.value is raised


@pytest.mark.parametrize("wrong", [3, "look", [None], {"look": 1}])
async def test_hok_1_tools_that_are_none_are_said_in_words(wrong: Any, autojump_clock: trio.abc.Clock) -> None:
    """What the hook `tools` returns and is no list of tools is the turn's error, with the value and what is taken."""

    class Wrong(Hooks):
        async def tools(self, at: object) -> Any:
            del at
            return wrong

    async with open_supervisor(model=Script({"lead": lambda _: "ok"}), inline=True) as sup:
        report = await sup.run(Agent("lead", hooks=Wrong()), "go")
    assert str(report.error) == f"tools returns a list of tools or None; got {wrong!r}"


async def test_a_path_that_is_no_file_name_is_said_in_words(tmp_path: Path) -> None:
    """A link that leads to itself, and a name with a NUL in it, are no stores."""
    loop = tmp_path / "loop.db"
    loop.symlink_to(loop)
    for store in (loop, "a\0b.db"):
        with pytest.raises(UsageError, match="is no file name"):
            async with open_supervisor(model=Script({}), store=store):
                pytest.fail("it was opened")
