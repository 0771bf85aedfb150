"""`callboard send` and `steer`: to an agent that this process, another, or nobody runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Agent, Script, call, tool
from supervisor import open_supervisor
from supervisor.cli import main

if TYPE_CHECKING:
    from pathlib import Path

spec = Agent("a", "Answer.")


async def command(*argv: str) -> int:
    """The command in a thread of its own, as another process would run it."""
    return await trio.to_thread.run_sync(partial(main, argv))


async def test_sup_6_a_sent_message_is_answered_by_whoever_runs_the_tree(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command says who runs the tree, waits for the report, and prints it; a key again is the same message."""
    store = str(tmp_path / "agents.db")
    async with open_supervisor(model=Script({"a": ["one", "two", "three"]}), store=store) as sup:
        await sup.run(spec, "go")
        assert await command("send", store, "a", "more", "--wait", "30", "--key", "k") == 0
        out, err = capfd.readouterr()
        assert out == "two\n"
        assert "runs this tree" in err
        assert await command("send", store, "a", "more", "--wait", "30", "--key", "k") == 0
        assert capfd.readouterr().out == "two\n"
        assert await command("steer", store, "a", "and now", "--wait", "30") == 0
        assert capfd.readouterr().out == "three\n"


async def test_sup_6_a_message_that_nobody_runs_waits_for_the_next_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is accepted, the command says that nobody is there, and the next process answers it."""
    store = str(tmp_path / "agents.db")
    async with open_supervisor(model=Script({"a": ["one"]}), store=store) as sup:
        await sup.run(spec, "go")
    assert await command("send", store, "a", "more") == 0
    assert "no process runs this tree now" in capfd.readouterr().err
    async with open_supervisor(model=Script({"a": ["one", "two"]}), store=store, agents=[spec]) as sup:
        (ref,) = await sup.resume()
        assert (await ref.wait_report()).text == "two"


async def test_con_7_a_steer_from_another_process_interrupts(tmp_path: Path) -> None:
    """What is under way is cut for it, as for one that is sent here."""
    store = str(tmp_path / "agents.db")
    begun = trio.Event()

    @tool
    async def wait_long() -> str:
        """Wait."""
        begun.set()
        await trio.sleep(1_000)
        return "never"

    waiting = Agent("a", "Answer.", tools=[wait_long])
    async with open_supervisor(model=Script({"a": [call("wait_long"), "steered"]}), store=store) as sup:
        ref = await sup.start(waiting, "go")
        await begun.wait()
        assert await command("steer", store, "a", "stop that", "--interrupt", "--wait", "30") == 0
        assert (await ref.wait_report()).text == "steered"


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (("send", "{}", "b", "x"), 2, "no agent b in"),
        (("send", "{}-not", "a", "x"), 2, "there is no store"),
        (("send", "{}", "a", " "), 2, "a message says something"),
        (("send", "{}", "a", "x", "--wait", "soon"), 2, "--wait takes seconds"),
        (("send", "{}", "a", "x", "--wait", "0.2"), 2, "it stays accepted"),
        (("send", "{}", "a", "x" * 300_000), 1, "one may have"),
    ],
)
async def test_what_cannot_be_sent_is_told(
    argv: tuple[str, ...], code: int, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each mistake is one line that says what to do, and its exit code."""
    store = str(tmp_path / "agents.db")
    async with open_supervisor(model=Script({"a": ["one"]}), store=store) as sup:
        await sup.run(spec, "go")
    filled: list[Any] = [part.replace("{}", store) for part in argv]
    assert await command(*filled) == code
    assert told in capfd.readouterr().err
