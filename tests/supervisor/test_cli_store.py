"""`callboard store`: a check says what is wrong, an export is a conversation that programs and people read."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest
import trio
from trio.testing import MockClock

from actors import Agent, Compaction, Script, call, codec, tool
from actors.errors import Crashed
from actors.models.script import thought
from supervisor import cli, open_supervisor
from supervisor.cli_exit import only
from supervisor.cli_store import MOST
from supervisor.store.audit import RULES

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.ports import ModelRequest


LONG = " Long." * 400
"""Worth a summary."""


@tool
async def look(what: str) -> str:
    """Look."""
    return f"saw ```{what}```"


async def made(path: Path) -> str:
    """A store with a conversation that was compacted once."""
    steps = [(thought("Hm."), "Let me see.", call("look", what="a")), "It is a." + LONG, "And b."]

    def answers(request: ModelRequest) -> object:
        return "All was a." if request.purpose == "compaction" else steps.pop(0)

    file = path / "agents.db"
    lead = Agent("lead", "Lead.", tools=[look], compaction=Compaction(keep=0.0))
    async with open_supervisor(model=Script({"lead": answers}), store=file, agents=[lead], inline=True) as sup:
        ref = await sup.start(lead, "What is it?")
        await ref.wait_report()
        await ref.compact()
        await ref.wait_compacted()
        await ref.ask("And then?")
    return str(file)


def ran(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """The command's exit code, its output and its errors."""
    capsys.readouterr()
    code = cli.main(argv)
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_check_exits_with_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 and a line where all is well; 1 and a line for each violation, which names the agent and the invariant."""
    file = trio.run(made, tmp_path, clock=MockClock(autojump_threshold=0))
    code, out, _ = ran(capsys, "store", "check", file)
    assert (code, out.startswith(f"{file}: all that must hold does")) == (0, True)
    db = apsw.Connection(file)
    db.execute("UPDATE agents SET seq = 7")
    code, out, err = ran(capsys, "store", "check", file)
    assert (code, out) == (1, "lead: its last message is to be 7, and 2 is: messages are lost [4]\n")
    assert err.endswith(
        f"{file} breaks what must hold:\n  [4] an agent's messages are numbered as they were accepted, without a gap\n"
    )
    db.execute("UPDATE records SET epoch = 99")
    db.execute(
        "INSERT INTO counters WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000)"
        " SELECT i, '', 9, 1 FROM n"
    )
    db.close()
    code, out, _ = ran(capsys, "store", "check", file)
    assert (code, len(out.splitlines())) == (1, MOST + 1)
    assert ran(capsys, "store", "check", str(tmp_path / "none.db"))[0] == 3
    assert ran(capsys, "store", "check", str(tmp_path))[0] == 3


def test_what_a_check_names_is_explained_and_listed() -> None:
    """Each number and promise that a violation can name has its words, and the README's table is of these."""
    root = Path(__file__).parents[2]
    sources = [(root / "supervisor" / "store" / name).read_text("utf-8") for name in ("audit.py", "sqlite_check.py")]
    named = set(re.findall(r'Violation\(\s*"([A-Z0-9-]+)"', "".join(sources)))
    assert named == set(RULES)
    readme = (root / "supervisor" / "README.md").read_text("utf-8")
    table = readme.partition("## What `callboard store check` verifies")[2].partition("## ")[0]
    assert re.findall(r"^\| ([A-Z0-9][A-Z0-9-]*) \| (.*) \|$", table, re.MULTILINE) == list(RULES.items())


def test_an_agent_that_a_damaged_store_hides_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`show` counts what it lists, also where a path is no text and where that agent owes work, and ends with 3."""
    file = trio.run(made, tmp_path, clock=MockClock(autojump_threshold=0))
    assert ran(capsys, "show", file)[::2] == (0, "")
    db = apsw.Connection(file)
    db.execute("UPDATE agents SET agent = CAST(agent || x'ff' AS TEXT), owes = 1")
    db.close()
    code, _, err = ran(capsys, "show", file)
    assert (code, f"callboard: 1 agent of {file} cannot be found by path: it is damaged\n" in err) == (3, True)


@pytest.mark.parametrize(("told", "width"), [("", 80), ("60", 60), ("wide", 80)])
def test_what_is_piped_is_as_wide_as_columns_says(
    told: str, width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """80 columns where nothing is said."""
    file = trio.run(made, tmp_path, clock=MockClock(autojump_threshold=0))
    monkeypatch.setenv("COLUMNS", told)
    _, out, _ = ran(capsys, "show", file, "lead")
    assert max(len(line) for line in out.splitlines()) == width


def test_a_row_that_cannot_be_read_is_told_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No words of a codec; and who waits for such an agent hears what helps."""
    file = trio.run(made, tmp_path, clock=MockClock(autojump_threshold=0))
    db = apsw.Connection(file)
    db.execute("UPDATE messages SET body = x'7bff'")
    db.execute("UPDATE outcomes SET body = x'7b227d'")
    db.execute("UPDATE records SET body = x'7bff' WHERE k = (SELECT max(k) FROM records)")
    db.close()
    _, out, _ = ran(capsys, "store", "check", file)
    assert "lead, message " in out
    assert ": an envelope cannot be read: the byte 0xff at 1 is in no text (UTF-8): restore the store" in out
    assert ": an outcome row cannot be read: " in out

    async def asked() -> str:
        lead = Agent("lead", "Lead.")
        async with open_supervisor(model=Script({"lead": ["x"]}), store=file, agents=[lead], inline=True) as sup:
            ref = await sup.find("lead")
            return str((await ref.ask("And?")).error)

    try:
        told = trio.run(asked, clock=MockClock(autojump_threshold=0))
    except (Crashed, ExceptionGroup) as error:
        told = str(only(error))
    assert "restore the store from a copy" in told
    assert "wake()" not in told


def test_an_export_is_one_record_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line says its version, kind, place and whether it is archived; records read back as they are."""
    file = trio.run(made, tmp_path, clock=MockClock(autojump_threshold=0))
    code, out, _ = ran(capsys, "store", "export", file, "lead", "--archived")
    assert code == 0
    head, *lines = [json.loads(line) for line in out.splitlines()]
    assert (head["v"], head["kind"], head["agent"], head["records"]) == (1, "conversation", "lead", len(lines))
    assert [line["index"] for line in lines] == list(range(len(lines)))
    assert {(line["v"], line["kind"]) for line in lines} == {(1, "record")}
    records = [codec.RECORD.decode(json.dumps(line["record"]).encode()) for line in lines]
    assert [type(record).__name__[:-6] for record in records[:5]] == [
        "Message", "Response", "Result", "Response", "Summary",
    ]  # fmt: skip
    force = [line for line in lines if not line["archived"]]
    assert 0 < len(force) < len(lines)
    _, out, _ = ran(capsys, "store", "export", file, "lead")
    assert [json.loads(line) for line in out.splitlines()[1:]] == force


def test_an_export_in_markdown_reads_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Messages, reasoning, calls, results and summaries are sections; what holds fences stands in longer ones."""
    file = trio.run(made, tmp_path, clock=MockClock(autojump_threshold=0))
    out = tmp_path / "lead.md"
    assert ran(capsys, "store", "export", file, "lead", "--format", "md", "--archived", "--output", str(out))[:2] == (
        0,
        "",
    )
    text = out.read_text()
    assert text.startswith("# lead\n\n")
    for part in (
        "## Message (archived)\n\nWhat is it?\n",
        "*Reasoning*\n\n> Hm.\n\nLet me see.\n\n**Call** `look`\n\n```json\n",
        "### Result of `look`: ok (archived)\n\n````\nsaw ```a```\n````\n",
        "## Summary of what came before\n\n> All was a.\n",
        "## Message\n\nAnd then?\n",
    ):
        assert part in text, text
    assert not out.with_name("lead.md.part").exists()
    _, shown, _ = ran(capsys, "store", "export", file, "lead", "--format", "md")
    assert "What is it?" not in shown
    assert "And then?" in shown


def test_an_export_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown agent and a file that cannot be written are usage errors, and nothing is left behind."""
    file = trio.run(made, tmp_path, clock=MockClock(autojump_threshold=0))
    code, _, err = ran(capsys, "store", "export", file, "nobody")
    assert (code, "no agent nobody" in err) == (2, True)
    assert ran(capsys, "store", "export", file, "lead", "--output", str(tmp_path / "no" / "x"))[0] == 2


def test_an_export_to_a_read_only_disk_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line and 3, also where the half-written file cannot be removed; a missing folder is named as the folder."""
    file = trio.run(made, tmp_path, clock=MockClock(autojump_threshold=0))
    code, _, err = ran(capsys, "store", "export", file, "lead", "--output", str(tmp_path / "no" / "x"))
    assert (code, err) == (
        2,
        f"callboard: {tmp_path}/no/x cannot be written: there is no folder {tmp_path}/no; make it first\n",
    )

    for name, really in (("open", Path.open), ("unlink", Path.unlink)):

        def refuse(path: Path, *given: Any, really: Callable[..., Any] = really, **more: Any) -> Any:
            if path.name.startswith("x"):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return really(path, *given, **more)

        monkeypatch.setattr(Path, name, refuse)
    code, _, err = ran(capsys, "store", "export", file, "lead", "--output", "x")
    assert (code, err) == (3, "callboard: x cannot be written: Read-only file system\n")


@pytest.mark.parametrize("argv", [("show",), ("show", "lead"), ("store", "export", "lead"), ("store", "check")])
def test_output_that_cannot_be_written_or_is_not_read_is_no_traceback(
    argv: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk ends with 3 and one line; a reader that has gone, as `head` does, with 141 and no word."""
    file = trio.run(made, tmp_path, clock=MockClock(autojump_threshold=0))
    at = 2 if argv[0] == "store" else 1
    filled = [*argv[:at], file, *argv[at:]]
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as unread:  # noqa: PTH123 - a pipe has no path
        monkeypatch.setattr(sys, "stdout", unread)
        assert cli.main(filled) == 141
    assert capsys.readouterr().err == ""
    if Path("/dev/full").exists():
        with Path("/dev/full").open("w") as full:
            monkeypatch.setattr(sys, "stdout", full)
            assert cli.main(filled) == 3
        assert capsys.readouterr().err == "callboard: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    "argv",
    [(), ("run",), ("show",), ("send",), ("steer",), ("demo",), ("store",), ("store", "check"), ("store", "export")],
    ids=" ".join,
)
def test_help_fits_eighty_columns(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a person reads first is no wider than a terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = ran(capsys, *argv, "--help")
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= 80
