"""`callboard send` and `steer`: to an agent that this process, another, or nobody runs."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import apsw
import pytest
import trio

from actors import Agent, Budget, Script, call, tool
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
    err = capfd.readouterr().err
    assert "no process runs this tree now" in err
    assert max(map(len, err.splitlines())) <= 80
    assert await command("show", store) == 0
    first, *_, owes, typed, python = capfd.readouterr().out.splitlines()
    assert "1 message waits; one" in first
    assert owes == "1 agent owes work, 1 message waits, and no process goes on:"
    assert typed.startswith("  callboard run FILE.py --store ")
    assert python == "  or in Python: sup.resume()"
    assert await command("show", store, "--json") == 0
    (shown,) = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert (shown["path"], shown["state"], shown["owes"], shown["waiting"]) == ("a", "running", True, 1)
    assert (shown["last"], shown["owner"], shown["tokens"] > 0, shown["cost"]) == ("done", None, True, "0")
    assert await command("show", store, "a", "--json") == 0
    assert json.loads(capfd.readouterr().out) == shown
    assert await command("show", store, "b", "--json") == 2
    async with open_supervisor(model=Script({"a": ["one", "two"]}), store=store, agents=[spec]) as sup:
        (ref,) = await sup.resume()
        assert (await ref.wait_report()).text == "two"
    assert await command("show", store) == 0
    assert len(capfd.readouterr().out.splitlines()) == 2, "it owes nothing any more"


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


@tool(approve=True)
async def delete() -> str:
    """Delete."""
    return "deleted"


@pytest.mark.parametrize(
    ("how", "code", "told"),
    [
        ("pause", 6, "a is parked: a is paused: wake() goes on"),
        ("approve", 6, "a is parked: a waits for approval of delete (a:t1.1.0)"),
        ("budget", 4, "a is parked: a waits for more budget"),
    ],
)
async def test_tol_12_who_waits_with_the_command_hears_that_the_agent_is_parked(
    how: str, code: int, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`--wait` ends with 6, or with 4 where it waits for budget; the message stays accepted and is answered later."""
    store = str(tmp_path / "agents.db")
    steps: list[Any] = [call("delete"), "deleted", "more"] if how == "approve" else ["one", "two"]
    budget = Budget(model_calls=1, on_exhausted="park") if how == "budget" else None
    parked = Agent("a", "Answer.", tools=[delete], budget=budget)
    async with open_supervisor(model=Script({"a": steps}), store=store) as sup:
        ref = await sup.start(parked, "go")
        await ref.wait_report()
        if how == "pause":
            await ref.pause()
        with trio.fail_after(20):
            assert await command("send", store, "a", "more", "--wait") == code
        err = capfd.readouterr().err
        assert told in err
        assert "stays accepted" in err
        assert (await ref.snapshot()).mailbox.send == 1


async def test_cls_1_a_message_to_a_closed_agent_is_refused_as_closed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The code is that of closed, not of failed."""
    store = str(tmp_path / "agents.db")
    async with open_supervisor(model=Script({"a": ["one"]}), store=store) as sup:
        await sup.run(spec, "go")
        await (await sup.find("a")).close()
        assert await command("send", store, "a", "more") == 5
    assert "accepts nothing new" in capfd.readouterr().err


@pytest.mark.parametrize("content", [b"not a store at all", None])
def test_a_file_that_is_no_store_is_left_alone_by_send(
    content: bytes | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A text file, or another program's database, is refused, and no file is left beside it."""
    path = tmp_path / "x.db"
    if content is None:
        db = apsw.Connection(str(path))
        db.execute("CREATE TABLE mine (a)")
        db.close()
    else:
        path.write_bytes(content)
    assert main(["send", str(path), "a", "x"]) == 3
    assert capfd.readouterr().err.startswith("callboard: ")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_a_run_is_resumed_without_its_task(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`--resume` takes a run up by its key: TASK may be left out, and another one is told to be left out."""
    store, file = str(tmp_path / "x.db"), tmp_path / "one.py"
    steps = "['first', 'second']"
    file.write_text(
        f"from actors import Agent, Script\nagent = Agent('one', 'x')\nmodel = Script({{'one': {steps}}})\n"
    )
    run = ["run", str(file), "--store", store]
    assert main(run) == 2
    assert "required: TASK" in capfd.readouterr().err
    assert main([*run, "Go."]) == 0
    assert capfd.readouterr().out == "first\n"
    assert main(["send", store, "one", "more"]) == 0
    capfd.readouterr()
    assert main([*run, "--resume"]) == 0
    assert capfd.readouterr().out == "first\n", "the report of its task, whatever it was asked since"
    assert main([*run, "--resume", "Go."]) == 0
    assert main([*run, "--resume", "Come."]) == 2
    assert "callboard: one goes on with the TASK that it has; leave TASK out" in capfd.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ("show", "{}"),
        ("send", "{}", "a", "x"),
        ("store", "check", "{}"),
        ("store", "export", "{}", "a"),
        ("run", "FILE", "--store", "{}", "--resume"),
    ],
)
def test_a_store_that_is_not_there_is_told_alike(
    argv: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every command ends with 3 and the same words, for a missing file and for a folder, and makes nothing."""
    file = tmp_path / "one.py"
    file.write_text("from actors import Agent, Script\nagent = Agent('one', 'x')\nmodel = Script({})\n")
    for store, told in ((tmp_path / "no" / "x.db", "there is no store"), (tmp_path, "is a folder")):
        filled = [part.replace("{}", str(store)).replace("FILE", str(file)) for part in argv]
        assert main(filled if argv[0] != "run" else [*filled, "x"]) == 3
        assert told in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == [file]


ALIKE = [
    ("show", "{}"),
    ("show", "{}", "a"),
    ("send", "{}", "a", "x"),
    ("steer", "{}", "a", "x"),
    ("store", "check", "{}"),
    ("store", "export", "{}", "a"),
    ("run", "FILE", "--store", "{}", "--resume", "x"),
]
HARMS = {
    "empty": "is an empty file, not a store",
    "negative": "has schema -1, which no callboard writes: restore it from a copy",
    "nothing": "has schema 0, which no callboard writes: restore it from a copy",
    "newer": "this callboard knows",
    "row": "is damaged: an agent's row",
}


async def lived(store: Path) -> None:
    """Make a store with an agent that has answered."""
    async with open_supervisor(model=Script({"a": ["one"]}), store=store) as sup:
        await sup.run(spec, "go")


@pytest.mark.parametrize("harm", HARMS)
def test_what_is_no_store_any_more_is_told_alike(harm: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every command ends with 3, the same words and the name of the file, and changes nothing of it."""
    file, store = tmp_path / "one.py", tmp_path / "agents.db"
    file.write_text("from actors import Agent, Script\nagent = Agent('a', 'x')\nmodel = Script({'a': ['ok']})\n")
    if harm == "empty":
        store.touch()
    else:
        trio.run(lived, store)
        with contextlib.closing(apsw.Connection(str(store))) as db:
            if harm == "row":
                db.execute("UPDATE agents SET body = CAST('{\"broken\": 1}' AS BLOB)")
            else:
                db.pragma("user_version", {"negative": -1, "nothing": 0, "newer": 99}[harm])
    before = store.read_bytes()
    for argv in ALIKE:
        if harm == "row" and argv[0] in ("run", "store"):  # a check goes on, and names each
            continue
        filled = [part.replace("{}", str(store)).replace("FILE", str(file)) for part in argv]
        assert main(filled) == 3, argv
        said = capfd.readouterr().err
        assert (HARMS[harm] in said, store.name in said) == (True, True), (argv, said)
        assert store.read_bytes() == before, argv


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (("send", "{}", "b", "x"), 2, "no agent b in"),
        (("send", "{}-not", "a", "x"), 3, "there is no store"),
        (("send", "{}", "a", " "), 2, "a message says something"),
        (("send", "{}", "a", "x", "--wait", "soon"), 2, "--wait takes seconds"),
        (("send", "{}", "a", "x", "--wait", "0.2"), 7, "it stays accepted"),
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


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
async def test_a_time_to_wait_that_is_none_is_refused_before_anything_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    """Usage, in one line, and the agent has no message."""
    spec, store = Agent("a", "x"), str(tmp_path / "agents.db")
    async with open_supervisor(model=Script({"a": ["one"]}), store=store, agents=[spec]) as sup:
        await sup.run(spec, "go")
    assert await command("send", store, "a", "more", f"--wait={seconds}") == 2
    assert capsys.readouterr().err.startswith("callboard: --wait takes seconds")
    assert await command("show", store) == 0
    assert "waits" not in capsys.readouterr().out
