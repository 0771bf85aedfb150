"""A person at a terminal is asked whether a call may run; where none sits there, the run ends parked."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from actors.happenings import AgentStarted, AgentSuspended, ApprovalAsked, ApprovalDecided, RequestStarted
from actors.ids import AgentId, CallId
from supervisor import Approval
from supervisor.cli_ask import question, verdict
from supervisor.screen import Board
from supervisor.screen_lines import PlainLog
from supervisor.screen_nodes import Look

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "import sys; from supervisor._start import main; sys.exit(main())"]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80", "LINES": "24", "NO_COLOR": "1"}
PROGRAM = '''
from actors import Agent, Script, call, tool

@tool(approve=True)
def delete(path: str, deep: bool = False) -> str:
    """Delete."""
    return "deleted " + path

def last(request):
    return request.window[-1].content[0].text

agent = Agent("one", "Tidy up.", tools=[delete])

def model(args):
    return Script({"one": [call("delete", path="x"), last]})
'''


def request(arguments: dict[str, Any], reason: str = "tool") -> Approval:
    """A request of `lead/a` for `delete`."""
    return Approval(AgentId("lead/a"), "delete", arguments, CallId("lead/a:t1.1.0"), reason, 0.0, None, None)  # type: ignore[arg-type]  # nobody decides


# -- words -----------------------------------------------------------------------------------------------------------


def test_a_question_shows_every_argument_whole() -> None:
    """However long, with breaks and controls: nothing is cut, and nothing reaches the terminal as a command."""
    long = "x" * 5_000
    shown = question(request({"path": f"a\x1b[2J\n{long}", "deep": False, "tags": ["é", None]}))
    lines = shown.split("\n")
    assert lines[0] == "lead/a asks to run delete"
    assert lines[1].startswith("  path: a")
    assert lines[2] == f"    {long}"
    assert lines[3:5] == ["  deep: false", '  tags: ["é", null]']
    assert "\x1b" not in shown
    assert shown.endswith("[y/n, or n and why] ")


def test_a_question_says_that_it_is_a_repeat() -> None:
    """Why a call is asked about whose tool asks for no approval."""
    assert "with its outcome unknown" in question(request({}, "repeat"))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("y\n", (True, "")),
        (" YES \n", (True, "")),
        ("n\n", (False, "")),
        ("no, never\n", None),
        ("n not today\n", (False, "not today")),
        ("y but carefully\n", None),
        ("\n", None),
        ("yep\n", None),
    ],
)
def test_only_a_plain_answer_counts(typed: str, meant: tuple[bool, str] | None) -> None:
    """What is no plain yes or no is asked again: nothing runs by mistake."""
    assert verdict(typed) == meant


def test_the_board_says_what_is_waited_for() -> None:
    """An agent that waits for a person stands still, and says for which call; so does one of an earlier process."""
    board = Board()
    path = AgentId("a")
    board.apply(AgentStarted(path=path, name="a"))
    board.apply(RequestStarted(path=path, model="m"))
    asked = ApprovalAsked(path=path, call=CallId("a:t1.1.0"), name="delete", arguments='{"path": "x"}')
    board.apply(asked)
    assert board.counts[Look.BUSY] == 1  # its other calls run
    board.apply(AgentSuspended(path=path, reason="approval"))
    (row,) = board.rows(5)
    assert (row.look, row.doing) == (Look.STILL, "waits for approval: delete x")
    later = Board()
    later.apply(asked)
    assert later.rows(5)[0].look is Look.STILL
    for reason, words in (
        ("paused", "paused"),
        ("approval", "waits for approval"),
        ("store", "suspended: store"),
        ("budget", "parked: its budget is exhausted"),
    ):
        other = Board()
        other.apply(AgentSuspended(path=path, reason=reason))
        assert other.rows(5)[0].doing == words


def test_plain_lines_say_who_decided_what() -> None:
    """A log tells what was asked, from any depth, and how it was decided."""
    log, path = PlainLog(), AgentId("lead/a")
    events = (
        ApprovalAsked(path=path, call=CallId("c"), name="delete", arguments='{"path": "x"}'),
        AgentSuspended(path=path, reason="approval"),
        ApprovalDecided(path=path, call=CallId("c"), name="delete", verdict="denied", by="an operator"),
        ApprovalDecided(path=path, call=CallId("c"), name="delete", verdict="withdrawn"),
    )
    lines = [line.partition("lead/a  ")[2] for event in events for line in log.lines(event)]
    assert lines == [
        "needs approval: delete x",
        "waits for approval",
        "delete denied by an operator",
        "delete withdrawn",
    ]


# -- on a terminal ---------------------------------------------------------------------------------------------------


def program(folder: Path) -> str:
    """A FILE.py whose agent deletes."""
    path = folder / "one.py"
    path.write_text(PROGRAM)
    return str(path)


def on_terminal(typed: list[bytes], *args: str) -> tuple[int, str]:
    """Run the command on a terminal, where a person answers each question with the next of these."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *args], env=ENVIRON, stdin=side, stdout=side, stderr=side, start_new_session=True
    )
    os.close(side)
    seen, answered = b"", 0
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if select.select([main], [], [], 0.1)[0]:
            try:
                data = os.read(main, 65536)
            except OSError:
                break
            if not data:
                break
            seen += data
        if typed and (b"and why] " in seen[answered:] or b"and why: " in seen[answered:]):
            answered = len(seen)
            os.write(main, typed.pop(0))
    code = process.wait(timeout=10)
    os.close(main)
    return code, seen.decode()


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--plain",)])
@pytest.mark.parametrize(
    ("typed", "text"), [([b"y\n"], "deleted x"), ([b"what?\n", b"n not today\n"], "Not approved: not today")]
)
def test_a_person_decides_on_the_terminal(how: tuple[str, ...], typed: list[bytes], text: str, tmp_path: Path) -> None:
    """In the live tree and between plain lines the person is asked, and the run goes on with the answer."""
    code, seen = on_terminal(list(typed), "run", program(tmp_path), *how, "go")
    assert code == 0, seen
    assert "path: x" in seen
    assert text in seen
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h")


@pytest.mark.slow
def test_without_an_answer_the_run_is_parked_and_can_be_resumed(tmp_path: Path) -> None:
    """Ctrl-D decides nothing: exit code 6 and the line to go on; so does a pipe; later the person is asked again."""
    store = str(tmp_path / "s.db")
    file = program(tmp_path)
    code, seen = on_terminal([b"\x04"], "run", file, "--plain", "--store", store, "go")
    assert code == 6, seen
    assert "waits for approval of delete" in seen
    assert "--resume" in seen
    piped = subprocess.run(
        [*COMMAND, "run", file, "--store", store, "--resume", "go"],
        env=ENVIRON, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert piped.returncode == 6, piped.stderr
    assert "on a terminal you are asked; there, go on with\n  callboard run" in piped.stderr
    code, seen = on_terminal([b"y\n"], "run", file, "--plain", "--store", store, "--resume", "go")
    assert code == 0, seen
    assert "deleted x" in seen
