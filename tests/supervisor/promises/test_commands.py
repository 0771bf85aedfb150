"""Tools that run a program: its whole group ends with the call, whatever ends that, and what it wrote is bounded.

Real processes under the real clock; each waits for what the program wrote, never for a time.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import Context, ToolProgress, ToolStarted, UsageError, call, command
from actors.commands import How, Kept, run_command
from actors.transcript import ResultRecord
from tests.supervisor.promises.world import agent, check, said, watched

if TYPE_CHECKING:
    from actors import Tool
    from actors.transcript import Record
    from tests.supervisor.promises.world import Log, World

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")

FAMILY = """
sh -c 'trap "" TERM; echo child $$; while :; do sleep 1000; done' &
trap "" TERM
echo parent $$
while :; do sleep 1000; done
"""
"""A program with a child and grandchildren, of which the two shells ignore the signal to end."""


def shell(script: str, **options: Any) -> Tool[..., Any]:
    """A tool `run` that runs a script."""

    @command(**options)
    def run() -> list[str]:
        """Run the script."""
        return ["sh", "-c", script]

    return run


def lives(pid: int) -> bool:
    """Whether a process runs still; one that has ended, and of which nobody took the exit, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in b"ZX"
    except OSError:
        return False


def family(log: Log) -> dict[str, int]:
    """The processes that told their numbers."""
    words = "".join(event.text for event in log.of(ToolProgress)).split()
    return {name: int(pid) for name, pid in zip(words[::2], words[1::2], strict=True)}


def results(records: tuple[Record, ...]) -> list[tuple[str, str]]:
    """The results of a conversation: status and text."""
    return [(one.status.value, said(one.content)) for one in records if isinstance(one, ResultRecord)]


async def wait_until(condition: Any) -> None:
    """Wait in real time, bounded, for what a real process does."""
    with trio.fail_after(20):
        while not condition():  # noqa: ASYNC110 - a process outside of us has no event
            await trio.sleep(0.005)


@pytest.mark.parametrize("way", ["cancel", "timeout", "abort", "close", "kill", "leave", "crash", "suspend"])
async def test_tol_7_nothing_of_a_command_is_left_running(world: World, way: str) -> None:
    """Its child, its grandchildren, all of which ignore the signal to end: whatever ends the call ends them."""
    spec = agent(tools=[shell(FAMILY, stop_s=0.05, timeout=1.5 if way == "timeout" else None)])
    found: dict[str, int] = {}
    try:
        script = {"a": [call("run"), "done", "done"]}
        async with world.open(script, on_exit="suspend", grace=0.05) as sup, watched(sup) as log:
            ref = await sup.start(spec, "go")
            await wait_until(lambda: len(family(log)) == 2)
            found = family(log)
            assert way == "timeout" or all(map(lives, found.values()))
            match way:
                case "cancel":
                    (started,) = log.of(ToolStarted)
                    ref.cancel_call(started.call, "not needed")
                    await ref.wait_idle()
                    ((status, text),) = results(await ref.transcript())
                    assert (status, text.splitlines()[0]) == ("error", "The call was cancelled: not needed")
                case "timeout":
                    await ref.wait_idle()
                    assert [status for status, _ in results(await ref.transcript())] == ["timeout"]
                case "abort":
                    await ref.abort("enough")
                    await ref.wait_aborted()
                    assert (await ref.ask("on")).text == "done"  # REQ-2: it waits for what was left behind
                case "close":
                    await ref.close(grace=0.05)
                    await ref.wait_closed()
                case "kill":
                    await ref.kill("now")
                    await ref.wait_closed()
                case "crash":
                    raise ZeroDivisionError  # noqa: TRY301 - the raise is the crash
            if way in {"cancel", "timeout", "abort"}:
                assert not any(map(lives, found.values()))
                await check(sup.store)
    except ZeroDivisionError:
        assert way == "crash"
    assert len(found) == 2
    assert not any(map(lives, found.values()))


async def test_tol_7_what_a_command_left_behind_ends_with_it(memory: World) -> None:
    """It exits in order, and its background process, which holds its output open, is ended before the call is."""
    script = "sleep 1000 & echo child $!; echo parent $$"
    async with memory.open({"a": [call("run"), "done"]}) as sup, watched(sup) as log:
        with trio.fail_after(20):
            await sup.run(agent(tools=[shell(script)]), "go")
        found = family(log)
        assert set(found) == {"child", "parent"}
        assert not any(map(lives, found.values()))


async def test_tol_7_a_command_has_time_to_end_in_order(memory: World) -> None:
    """The signal to end comes first: a program that heeds it says so, and is not killed."""
    script = "trap 'echo ending in order; exit 0' TERM; echo parent $$; while :; do sleep 0.1; done"
    async with memory.open({"a": [call("run"), "done"]}) as sup, watched(sup) as log:
        ref = await sup.start(agent(tools=[shell('exec bash -c "' + script + '"', stop_s=15.0)]), "go")
        await wait_until(lambda: log.of(ToolProgress))
        (started,) = log.of(ToolStarted)
        began = trio.current_time()
        ref.cancel_call(started.call, "enough")
        with trio.fail_after(10):
            await ref.wait_idle()
        assert trio.current_time() - began < 10


async def test_tol_6_a_command_says_what_it_wrote_and_how_it_ended(memory: World) -> None:
    """Both streams, an exit code, a signal, no such program, nothing at all; its input is empty."""

    @command
    def nowhere() -> list[str]:
        """Run what is not there."""
        return ["no-such-program-anywhere"]

    @command
    def words() -> list[str]:
        """Return no list."""
        return "echo $HOME; true"  # type: ignore[return-value]  # on purpose

    tools = [
        shell("echo out; echo err >&2; exit 3", name="both"),
        shell("kill -9 $$", name="dies"),
        shell("cat; echo at the end", name="reads"),
        shell("true", name="silent"),
        shell("printf '\\377x'", name="bytes"),
        nowhere,
        words,
    ]
    step = [call(one.name) for one in tools]
    async with memory.open({"a": [step, "done"]}) as sup:
        ref = await sup.start(agent(tools=tools), "go")
        with trio.fail_after(20):
            await ref.wait_idle()
        found = results(await ref.transcript())
        assert found[:5] == [
            ("error", "out\nerr\n\n[exit code 3]"),
            ("error", f"[ended by signal {int(signal.SIGKILL)}]"),
            ("ok", "at the end\n"),
            ("ok", "done"),
            ("ok", "\ufffdx"),
        ]
        assert [status for status, _ in found[5:]] == ["error", "error"]
        assert "FileNotFoundError" in found[5][1]
        assert "no shell" in found[6][1]


async def test_tol_7_arguments_reach_a_command_whole_and_no_shell_reads_them(memory: World) -> None:
    """What a model sends is one argument, whatever stands in it; the context is the function's if it asks for it."""

    @command
    def show(ctx: Context, text: str, times: int = 1) -> list[str]:
        """Show a text."""
        assert ctx.agent == "a"
        return ["printf", "%s|", *[text] * times]

    assert "ctx" not in show.offer.schema
    async with memory.open({"a": [call("show", text="$(id); `id` \n *", times=2), "done"]}) as sup:
        ref = await sup.start(agent(tools=[show]), "go")
        with trio.fail_after(20):
            await ref.wait_idle()
        assert results(await ref.transcript()) == [("ok", "$(id); `id` \n *|$(id); `id` \n *|")]


async def test_tol_8_the_output_of_a_command_is_bounded(memory: World) -> None:
    """Far more than fits: beginning and end are kept, and how much is missing is said; it is never held as a whole."""
    script = "echo first; yes x | head -n 100000; echo last"
    async with memory.open({"a": [call("run"), "done"]}) as sup:
        ref = await sup.start(agent(tools=[shell(script, output_bytes=200)]), "go")
        with trio.fail_after(20):
            await ref.wait_idle()
        ((status, text),) = results(await ref.transcript())
        assert status == "ok"
        assert text.startswith("first\nx\n")
        assert text.endswith("x\nlast\n")
        assert f"[cut: {6 + 200_000 + 5 - 200:,} bytes are missing here]" in text
        assert len(text) < 300


def test_tol_8_what_is_kept_of_an_output_is_its_beginning_and_its_end() -> None:
    """Whatever the chunks: within the bound all of it, above it both halves, and never much more in memory."""
    whole = bytes(range(65, 91)) * 40
    for size in (1, 3, 7, 50, len(whole)):
        kept = Kept(100)
        for at in range(0, len(whole), size):
            kept.take(whole[at : at + size])
            assert len(kept._tail) <= 150 + size
        text = kept.text()
        assert (
            text == f"{whole[:50].decode()}\n[cut: {len(whole) - 100:,} bytes are missing here]\n{whole[-50:].decode()}"
        )
        small = Kept(2000)
        for at in range(0, len(whole), size):
            small.take(whole[at : at + size])
        assert small.text() == whole.decode()


async def test_tol_7_a_commands_place_and_environment_are_what_it_was_given(tmp_path: Path) -> None:
    """Its folder, and no variable of ours where it was given its own; it can be called from Python too."""

    @command(cwd=tmp_path, env={"ONLY": "this", "PATH": "/usr/bin:/bin"})
    def where() -> list[str]:
        """Say where."""
        return ["sh", "-c", "pwd; echo $ONLY$HOME"]

    with trio.fail_after(20):
        given = await where()
    assert (given.value, given.status) == (f"{tmp_path}\nthis\n", "ok")


@pytest.mark.parametrize("options", [{"stop_s": -1}, {"output_bytes": 0}, {"timeout": 0}, {"nonsense": 1}])
def test_a_command_with_options_that_cannot_be_meant_is_refused(options: dict[str, Any]) -> None:
    """Where it is written, by name."""
    with pytest.raises(UsageError, match=next(iter(options))):
        shell("true", **options)


def test_a_command_that_is_async_is_refused() -> None:
    """It only says what to run."""
    with pytest.raises(UsageError, match="plain function"):

        @command  # type: ignore[arg-type]  # on purpose
        async def run() -> list[str]:
            """Run."""
            return []


async def test_tol_7_what_left_the_group_holds_no_call_open() -> None:
    """A process that made itself a group of its own keeps the pipe; the call ends all the same, soon after."""
    script = "setsid sleep 1000 & echo $!"
    told: list[str] = []
    with trio.fail_after(15):
        given = await run_command(["sh", "-c", script], How(stop_s=0.05), told.append)
    assert given.status == "ok"
    for pid in str(given.value).split():
        if lives(int(pid)):
            os.kill(int(pid), signal.SIGKILL)
